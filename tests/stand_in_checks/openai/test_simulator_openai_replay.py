"""Reasoning comes back unmodified, in order, with what follows it and behind its own prefix - or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.stand_in_checks.openai_talk import BOUND, MODEL, Talk, continued, in_loop, request, user
from tests.stand_in_checks.talk import change_letter

Items = list[dict[str, Any]]
Apply = Callable[[dict[str, Any]], object]
NOT_READABLE = "Encrypted content could not be decrypted or parsed."
KINDS = ["reasoning", "reasoning", "message", "reasoning", "function_call", "function_call"]
# Where the items of the first answer stand in a request of `in_loop`.
FIRST, SECOND, SAID, THIRD, CALL, OTHER_CALL = range(1, 7)


def unverified(item: int, reason: str = NOT_READABLE) -> str:
    return f"The encrypted content for item {{{item}}} could not be verified. Reason: {reason}"


def not_followed(item: int) -> str:
    return f"Item '{{{item}}}' of type 'reasoning' was provided without its required following item."


def not_reasoned(item: int, kind: str, reasoning: int) -> str:
    return f"Item '{{{item}}}' of type '{kind}' was provided without its required 'reasoning' item: '{{{reasoning}}}'."


def change(index: int, **values: Any) -> Callable[[Items], None]:
    return lambda items: items[index].update(values)


def corrupt(index: int, position: int) -> Callable[[Items], None]:
    key = "encrypted_content"
    return lambda items: items[index].update({key: change_letter(items[index][key], position)})


def drop(*indexes: int) -> Callable[[Items], None]:
    def apply(items: Items) -> None:
        items[:] = [item for index, item in enumerate(items) if index not in indexes]

    return apply


def swap(one: int, other: int) -> Callable[[Items], None]:
    def apply(items: Items) -> None:
        items[one], items[other] = items[other], items[one]

    return apply


def exchange_content(items: Items) -> None:
    one, other = items[FIRST], items[SECOND]
    one["encrypted_content"], other["encrypted_content"] = other["encrypted_content"], one["encrypted_content"]
    one["summary"], other["summary"] = other["summary"], one["summary"]


def unissued(items: Items) -> None:
    items[SAID]["id"] = change_letter(items[SAID]["id"], -1)


@pytest.mark.parametrize(
    ("apply", "expected"),
    [
        (corrupt(FIRST, 0), unverified(FIRST)),
        (corrupt(FIRST, 100), unverified(FIRST)),
        (corrupt(SECOND, -1), unverified(SECOND)),
        (exchange_content, unverified(FIRST, "Encrypted content item_id did not match the target item id.")),
        (change(FIRST, summary=[]), unverified(FIRST)),
        (change(FIRST, summary=[{"type": "summary_text", "text": "First I think."}]), unverified(FIRST)),
        (change(SECOND, summary=[{"type": "summary_text", "text": "Made up."}]), unverified(SECOND)),
        (drop(FIRST), not_reasoned(SECOND, "reasoning", FIRST)),
        (drop(SECOND), not_followed(FIRST)),
        (drop(FIRST, SECOND), not_reasoned(SAID, "message", SECOND)),
        (drop(SAID), not_followed(SECOND)),
        (drop(THIRD), not_reasoned(CALL, "function_call", THIRD)),
        (drop(FIRST, SECOND, THIRD), not_reasoned(SAID, "message", SECOND)),
        (drop(FIRST, SECOND, SAID, THIRD), not_reasoned(CALL, "function_call", THIRD)),
        (drop(CALL, 7), not_followed(THIRD)),
        (drop(CALL, OTHER_CALL, 7, 8), not_followed(THIRD)),
        (swap(FIRST, SECOND), not_reasoned(SECOND, "reasoning", FIRST)),
        (swap(THIRD, CALL), not_reasoned(CALL, "function_call", THIRD)),
        (swap(CALL, OTHER_CALL), not_followed(THIRD)),
        (swap(SAID, THIRD), not_followed(SECOND)),
        (lambda items: items.insert(SECOND, user("loop, please")), not_followed(FIRST)),
        (change(SAID, id="msg_made_up"), "Item with id 'msg_made_up' not found."),
        (change(CALL, id="fc_made_up"), "Item with id 'fc_made_up' not found."),
        (unissued, "Item with id '"),
        (lambda items: items[FIRST].pop("encrypted_content"), f"Item with id '{{{FIRST}}}' not found."),
        (change(FIRST, encrypted_content=None), f"Item with id '{{{FIRST}}}' not found."),
        (lambda items: items.insert(FIRST, dict(items[FIRST])), f"Duplicate item found with id {{{FIRST}}}."),
        (drop(7), f"No tool output found for function call {{{CALL}:call}}."),
    ],
)
@pytest.mark.parametrize("model", [MODEL, "gpt-5.4", BOUND])
def test_a_changed_replay_is_refused(apply: Callable[[Items], object], expected: str, model: str) -> None:
    talk, body = in_loop(model=model)
    items = body["input"]
    assert [item["type"] for item in items[1:7]] == KINDS
    assert talk.good(body)["output"][-1]["content"][0]["text"] == "Done with result 1."
    for index, item in enumerate(items):
        expected = expected.replace(f"{{{index}}}", item.get("id", ""))
        expected = expected.replace(f"{{{index}:call}}", item.get("call_id", ""))
    apply(items)
    error = talk.refused(body, 404 if "not found" in expected or apply is unissued else 400)
    assert error["message"].startswith(expected)
    if expected.startswith("The encrypted"):
        assert (error["param"], error["code"]) == (None, "invalid_encrypted_content")
    else:
        assert (error["param"], error["code"]) == ("input", None)


def test_reasoning_may_not_stand_last() -> None:
    talk = Talk('[[turn]]\n[[turn.step]]\nstop_reason="max_tokens"\nblock=[{thinking="Too long a thought."}]')
    body = request("go")
    answer = talk.good(body)
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["type"] for item in answer["output"]] == ["reasoning"]
    error = talk.refused(continued(body, answer, "go on"))
    assert error["message"].endswith("of type 'reasoning' was provided without its required following item.")


def bare(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in ("id", "status")}


def test_without_any_ids_the_order_still_counts() -> None:
    talk, body = in_loop()
    body["input"] = [bare(item) for item in body["input"]]
    talk.good(body)
    shuffled = {**body, "input": list(body["input"])}
    swap(CALL, OTHER_CALL)(shuffled["input"])
    assert talk.refused(shuffled)["message"].endswith("without its required following item.")
    edited = {**body, "input": [*body["input"]]}
    edited["input"][SAID] = {**edited["input"][SAID], "content": "Looking around."}
    assert talk.refused(edited)["message"].endswith("without its required following item.")


@pytest.mark.parametrize("model", [MODEL, BOUND])
def test_a_seal_of_another_process_is_refused(model: str) -> None:
    _, body = in_loop(model=model)
    assert Talk().refused(body)["code"] == "invalid_encrypted_content"
    body["input"] = [item for item in body["input"] if item["type"] != "reasoning"]
    assert "not found" in Talk().refused(body, 404)["message"]


def test_seals_of_another_model_or_key_are_refused() -> None:
    talk, body = in_loop()
    error = talk.refused({**body, "model": "gpt-6-luna"})
    assert (error["code"], error["message"].endswith(NOT_READABLE)) == ("invalid_encrypted_content", True)
    error = talk.refused(body, authorization="Bearer sk-another")
    assert error["code"] == "invalid_encrypted_content"
    assert error["message"].endswith("Encrypted content organization_id did not match the target organization.")


def rewrite_arguments(body: dict[str, Any]) -> None:
    body["input"][CALL]["arguments"] = body["input"][CALL]["arguments"].replace(":", ": ")


CONFIGURATION = {"type": "configuration_update", "reasoning": {"effort": "low"}}
# A change to a request in a tool loop, and how many of its four reasoning items still fit where they are bound.
PREFIXES: list[tuple[str, int, Apply]] = [
    ("same", 4, lambda body: None),
    ("instructions", 4, lambda body: body.update(instructions="You help. Today is Friday.")),
    ("effort", 4, lambda body: body.update(reasoning={"effort": "low"})),
    ("tool-choice", 4, lambda body: body.update(tool_choice="none")),
    ("max-output", 4, lambda body: body.update(max_output_tokens=4000)),
    ("text-as-string", 4, lambda body: body["input"].__setitem__(0, {"role": "user", "content": "loop"})),
    ("appended", 4, lambda body: body["input"].append({"role": "developer", "content": "Hurry."})),
    ("configured", 4, lambda body: body["input"].append(CONFIGURATION)),
    ("tools", 0, lambda body: body["tools"].reverse()),
    ("first-message", 0, lambda body: body["input"].__setitem__(0, user("loop, please"))),
    ("output", 3, lambda body: body["input"][7].update(output="another")),
    ("phase", 3, lambda body: body["input"][SAID].pop("phase")),
    ("arguments", 3, rewrite_arguments),
    ("model", 0, lambda body: body.update(model="gpt-6.2-luna")),
    ("end-user", 0, lambda body: body.update(safety_identifier="somebody")),
]
REASONS = {"model": "model_mismatch", "end-user": "end_user_mismatch"}


@pytest.mark.parametrize(("name", "kept", "apply"), PREFIXES, ids=[case[0] for case in PREFIXES])
def test_the_newest_models_drop_what_no_longer_fits_and_say_so(name: str, kept: int, apply: Apply) -> None:
    talk, body = in_loop(model=BOUND)
    ids = [item["id"] for item in body["input"] if item["type"] == "reasoning"]
    apply(body)
    reason = REASONS.get(name, "prefix_mismatch")
    dropped = [{"id": id_, "type": "reasoning", "action": "removed", "reason": reason} for id_ in ids[kept:]]
    assert talk.good(body)["input_transformations"] == dropped
    assert talk.events(body)[0]["response"]["input_transformations"] == dropped


def test_what_was_stored_can_be_referred_to() -> None:
    talk = Talk()
    body = request(store=True)
    answer = talk.good(body)
    outputs = [item for item in continued(body, answer)["input"] if item["type"] == "function_call_output"]
    chained = {**body, "input": outputs, "previous_response_id": answer["id"]}
    assert talk.good(chained)["output"][-1]["arguments"] == '{"path":"result 1"}'
    references = [{"type": "item_reference", "id": item["id"]} for item in answer["output"]]
    referred = {**body, "input": [*body["input"], *references, *outputs]}
    assert talk.good(referred)["output"][-1]["arguments"] == '{"path":"result 1"}'
    stripped = continued(body, answer)
    for item in stripped["input"]:
        item.pop("encrypted_content", None)
    talk.good(stripped)
    talk.dialect.reset()
    assert talk.refused(chained)["code"] == "previous_response_not_found"
    sentence = (
        f"Item with id '{answer['output'][0]['id']}' not found. Items are not persisted when `store` is set to "
        "false. Try again with `store` set to true, or remove this item from your input."
    )
    assert [talk.refused(forgotten, 404)["message"] for forgotten in (referred, stripped)] == [sentence] * 2
