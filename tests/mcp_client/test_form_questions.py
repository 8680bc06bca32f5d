"""The questions of MCP servers: which forms are shown, and which answers are accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from thinklsp.mcp_client.elicitation import FormQuestions

NAME = {"type": "string"}


class User:
    """A user with prepared answers, and the questions that were asked."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.questions: list[str] = []

    async def ask(self, question: str, options: tuple[str, ...]) -> str | None:
        self.questions.append(f"{question} {options}")
        return self.answers.pop(0)

    async def ask_text(self, question: str) -> str | None:
        self.questions.append(question)
        return self.answers.pop(0)


async def elicit(
    user: User, fields: Mapping[str, Any], *, has_input: bool = True, required: tuple[str, ...] = ()
) -> tuple[Mapping[str, Any] | None, list[str]]:
    form = FormQuestions("sky", user.ask, user.ask_text if has_input else None)
    content = await form.elicit("Who?", {"type": "object", "properties": fields, "required": list(required)})
    return content, form.notes


async def test_each_field_is_a_question() -> None:
    user = User("Ada", "Yes", "36", "1.5")
    fields = {"name": NAME, "sure": {"type": "boolean"}, "age": {"type": "integer"}, "size": {"type": "number"}}
    assert await elicit(user, fields) == ({"name": "Ada", "sure": True, "age": 36, "size": 1.5}, [])
    assert user.questions[0] == "The MCP server `sky` asks: Who?\nname:"
    assert user.questions[1].endswith("\nsure: ('Yes', 'No', 'Decline')")


async def test_titles_and_descriptions_are_shown() -> None:
    heroes = [{"const": "hero-1", "title": "Superman"}, {"const": "hero-2"}]
    pets = {"enum": ["pet-1", "pet-2"], "enumNames": ["Cats", "Dogs"]}
    user = User("Superman", "Dogs", "Ada")
    fields = {
        "hero": {"type": "string", "title": "Hero", "description": "Who saves us?", "oneOf": heroes},
        "pet": {"type": "string", **pets}, "name": {**NAME, "description": "Your full name"},
    }  # fmt: skip
    assert await elicit(user, fields) == ({"hero": "hero-1", "pet": "pet-2", "name": "Ada"}, [])
    asks = "The MCP server `sky` asks: Who?\n"
    assert user.questions == [
        f"{asks}Hero:\nWho saves us? ('Superman', 'hero-2', 'Decline')", f"{asks}pet: ('Cats', 'Dogs', 'Decline')",
        f"{asks}name:\nYour full name",
    ]  # fmt: skip


LIST = {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}
TITLES = {"type": "array", "items": {"anyOf": [{"const": "a", "title": "First"}, {"const": "b", "title": "Second"}]}}


@pytest.mark.parametrize(
    ("field", "answers", "value", "options"),
    [
        (LIST, ["c", "a", "Finish the list"], ["c", "a"], "('b', 'Finish the list', 'Decline')"),
        (LIST, ["Finish the list"], [], "('a', 'b', 'c', 'Finish the list', 'Decline')"),
        (TITLES, ["Second", "First"], ["b", "a"], "('First', 'Finish the list', 'Decline')"),
        (LIST | {"minItems": 2}, ["a", "b", "Finish the list"], ["a", "b"], "('c', 'Finish the list', 'Decline')"),
        (LIST | {"minItems": 2, "maxItems": 2}, ["a", "b"], ["a", "b"], "('b', 'c', 'Decline')"),
        (LIST, ["a", "Decline"], None, "('b', 'c', 'Finish the list', 'Decline')"),
        (LIST, ["a", None], None, "('b', 'c', 'Finish the list', 'Decline')"),
    ],
)
async def test_list_is_chosen_one_after_the_other(field: Any, answers: list[Any], value: Any, options: str) -> None:
    user = User(*answers)
    assert await elicit(user, {"l": field}) == (None if value is None else {"l": value}, [])
    assert user.answers == []
    assert user.questions[-1].endswith(options)
    if len(answers) > 1:
        assert "\nChosen: " in user.questions[-1]


@pytest.mark.parametrize(
    ("field", "wrong", "sentence", "right", "value"),
    [
        ({"type": "integer"}, "1.5", "The answer must be a whole number.", " 2 ", 2),
        ({"type": "number"}, "one", "The answer must be a number.", "1e3", 1000.0),
        ({"type": "number"}, "inf", "The answer must be a number.", "-1", -1.0),
        ({"type": "number"}, "1" * 400, "The answer must be a number.", "0", 0.0),
    ],
)
async def test_wrong_answer_is_asked_for_again(field: Any, wrong: str, sentence: str, right: str, value: Any) -> None:
    user = User(wrong, right)
    assert await elicit(user, {"a": field}, required=("a",)) == ({"a": value}, [])
    assert user.questions[1].endswith(f"\n{sentence}")


async def test_user_declines() -> None:
    assert (await elicit(User(None), {"a": NAME}))[0] is None
    assert (await elicit(User("Ada", None), {"a": NAME, "b": NAME}))[0] is None
    assert (await elicit(User("Ada", "Decline"), {"a": NAME, "b": {"type": "boolean"}}))[0] is None
    assert (await elicit(User("A", "B", "C"), {"a": {"type": "number"}}))[0] is None


async def test_optional_field_can_stay_empty() -> None:
    assert (await elicit(User("", ""), {"a": NAME, "b": {"type": "integer"}}))[0] == {}
    assert (await elicit(User("", "36"), {"a": {"type": "integer"}}, required=("a",)))[0] == {"a": 36}


async def test_form_without_an_input_is_declined_with_a_sentence() -> None:
    user = User()
    content, notes = await elicit(user, {"a": {"type": "boolean"}, "b": NAME}, has_input=False)
    assert content is None
    sentence = "The MCP server `sky` asked the user for a text, but this client cannot show an input for one."
    assert notes == [f"{sentence} The question was declined without an answer."]
    assert user.questions == []
    assert (await elicit(User("Yes"), {"a": {"type": "boolean"}}, has_input=False))[0] == {"a": True}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {str(number): NAME for number in range(17)},
        {"a": {"type": "object"}},
        {"a": {"type": "array", "items": NAME}},
        {"a": {"type": "array"}},
        {"a": {"type": "array", "items": {"enum": ["Finish the list", "x"]}}},
        {"a": {}},
        {"a": {"type": "string", "oneOf": [{"const": 1}]}},
        {"a": {"type": "string", "oneOf": [1]}},
        {"a": 1},
        {"x" * 61: NAME},
        {"a": {"type": "string", "enum": [str(number) for number in range(9)]}},
    ],
)
async def test_other_forms_are_declined_with_a_sentence(fields: Any) -> None:
    content, notes = await elicit(User(), fields)
    assert content is None
    assert "to fill in a form that cannot be shown" in notes[0]


async def test_a_server_cannot_hide_or_turn_its_words() -> None:
    evil = "\u202eon\u202c\u200b"
    user = User("<U+202E>on<U+202C><U+200B>", "36")
    fields = {f"f{evil}": {"type": "string", "enum": [evil, "x"]}, "age": {"type": "integer"}}
    form = FormQuestions("sky", user.ask, user.ask_text)
    content = await form.elicit(f"Really?{evil}", {"type": "object", "properties": fields})
    assert content == {f"f{evil}": evil, "age": 36}
    assert not any(mark in question for question in user.questions for mark in evil if not mark.isalpha())
    assert user.questions[0].startswith("The MCP server `sky` asks: Really?<U+202E>on<U+202C><U+200B>\nf<U+202E>on")


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize("digits", [400, 5_000])
async def test_a_number_without_a_sensible_size_is_asked_for_again(kind: str, digits: int) -> None:
    user = User("9" * digits, "7")
    assert await elicit(user, {"n": {"type": kind}}) == ({"n": 7}, [])
    assert "The answer must be a" in user.questions[1]
