"""Chat documents: what was put in is read again, and what the user wrote stays, whatever prompts and answers hold."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.sizes import examples
from thinklsp.core.edits import apply_edits
from thinklsp.lsp.chats.chat_documents import (
    MAX_SHOWN_CHARACTERS,
    NO_TEXT,
    ChatAnswer,
    build_blank_document,
    build_document,
    find_same_line_end,
    plan_answer_edits,
    plan_exchange_edits,
    prepare_text,
    sanitize_answer,
    sanitize_chat_text,
)
from thinklsp.lsp.chats.chat_outline import find_prompt_section, parse_chat
from thinklsp.lsp.protocol.positions import split_keeping_ends

ID = "0123456789abcdef"
LINE = f"<!-- thinklsp session: {ID} -->"

# Everything that could be taken for a heading, a fence or the end of one.
_lines = st.sampled_from(
    [
        "## You", "## thinklsp", "\\## You", "\\\\## You  ", "## thinklsp\t", "## Yours", " ## You", "# You",
        "```", "````", "```python", "``` a`b", "```code``` inline", "~~~", "~~~~ x", "   ```", "    ```", "\t```",
        "words", "", "  ", "<!-- thinklsp session: other -->", "a\fb\u2028c", "\x0b\x85", "\u2028## You", "> - x",
        "```\u2028", "## You\u2028", "- ```", "  ```", "10. ~~~ x", "    ~~~", "- - ```", "-\t```", "- ## You", "  - a",
    ]
)  # fmt: skip
_ends = st.sampled_from(["\n", "\r\n", "\r"])
_texts = _ends.flatmap(lambda end: st.lists(_lines, max_size=8).map(end.join))
# Without headings: below one, the prompt would begin anew.
_typed = st.lists(
    st.tuples(_lines.filter(lambda line: not line.lstrip("\\").startswith("## ")), _ends), max_size=8
).map(lambda lines: "".join(a + b for a, b in lines))
_prompts = _texts.map(prepare_text)
_answers = st.builds(ChatAnswer, _texts.map(prepare_text), st.lists(_texts, max_size=2).map(tuple))
# Mixed ends, as nobody writes them but some programs do.
_documents = st.lists(st.tuples(_lines, _ends), max_size=8).map(lambda lines: "".join(a + b for a, b in lines))
_many = settings(max_examples=examples(200), deadline=None)


def plain(text: str) -> str:
    """A prompt with line ends of one kind and no blank lines around it."""
    lines = re.split(r"\r\n|\r|\n", text)
    while lines and not lines[0].strip(" \t"):
        del lines[0]
    while lines and not lines[-1].strip(" \t"):
        del lines[-1]
    return "\n".join(lines)


def unified(text: str) -> str:
    return re.sub(r"\r\n?", "\n", text)


def answer_of(text: str, notices: tuple[str, ...] = ()) -> ChatAnswer:
    return ChatAnswer(prepare_text(text), notices)


def answered(text: str, answer: ChatAnswer) -> str:
    return apply_edits(text, plan_answer_edits(text, ID, answer))


def is_part(text: str, whole: str) -> bool:
    """True when all characters of `text` are in `whole`, in their order."""
    rest = iter(whole)
    return all(char in rest for char in text)


@_many
@given(_texts)
def test_a_prompt_is_read_as_it_was_put_in(prompt: str) -> None:
    assert parse_chat(build_blank_document(prepare_text(prompt, is_draft=True))).prompt == plain(prompt)


@_many
@given(_typed, _answers)
def test_a_prompt_typed_below_an_answer_is_read_as_it_was_typed(typed: str, answer: ChatAnswer) -> None:
    """Not one character is different: line ends, indentation and blanks at the end of lines included."""
    around = re.fullmatch(r"(?s)(?:[ \t]*[\r\n])*(?P<prompt>.*?)(?:[\r\n][ \t]*)*", typed)
    assert around is not None
    prompt = around["prompt"] if around["prompt"].strip(" \t") else ""
    assert parse_chat(build_document(ID, prepare_text("Before"), answer) + typed).prompt == prompt


@_many
@given(_prompts, _answers, _answers)
def test_answers_and_prompts_never_add_headings(prompt: str, first: ChatAnswer, second: ChatAnswer) -> None:
    whole = build_document(ID, prompt, first)
    assert parse_chat(whole) == parse_chat(f"{LINE}\n## You\n")
    assert parse_chat(f"{whole}What now?").prompt == "What now?"
    again = answered(f"{whole}What now?", second)
    assert parse_chat(again).prompt == ""
    assert parse_chat(f"{again}And now?").prompt == "And now?"
    # Cut before the last answer, what was sent is the prompt again.
    before = again[: again.index("What now?") + len("What now?")]
    assert parse_chat(before).prompt == "What now?"


@_many
@given(_documents, st.sampled_from(["", "\ufeff"]), _answers)
def test_an_answer_below_anything_is_followed_by_an_empty_prompt(document: str, mark: str, answer: ChatAnswer) -> None:
    """What the user left open, a line or a code fence, does not swallow the headings; nothing of theirs is lost."""
    text = mark + document
    whole = answered(text, answer)
    assert re.sub(r"\A<!-- thinklsp session: other -->", "", document) in whole
    assert whole.startswith(mark + LINE)
    assert parse_chat(whole) == parse_chat(f"{LINE}\n## You\n")
    assert parse_chat(f"{whole}Next.").prompt == "Next."
    assert len(plan_answer_edits(whole, ID, answer)) == 1


@_many
@given(_documents, _prompts, _answers)
def test_an_exchange_from_elsewhere_loses_nothing(document: str, prompt: str, answer: ChatAnswer) -> None:
    text = f"{LINE}\n{document}"
    whole = apply_edits(text, plan_exchange_edits(text, ID, prompt, answer))
    assert is_part(text, whole)
    assert parse_chat(whole).session_id == ID
    assert parse_chat(whole).prompt in ("", parse_chat(text).prompt)


@_many
@given(_typed, _prompts, _answers)
def test_a_draft_stays_the_prompt_when_an_exchange_comes_in(draft: str, prompt: str, answer: ChatAnswer) -> None:
    text = build_document(ID, prepare_text("Before"), answer_of("It was.")) + draft
    whole = apply_edits(text, plan_exchange_edits(text, ID, prompt, answer))
    assert parse_chat(whole) == parse_chat(text)
    assert whole.endswith(f"## You\n\n{draft}")
    assert whole.index("It was.") < whole.rindex("## thinklsp")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_what_comes_in_has_the_line_ends_of_the_document(end: str) -> None:
    document = f"## You{end}{end}Hello{end}```{end}open"
    whole = answered(document, answer_of("a\nb\r\nc\rd", ("One.",)))
    assert whole.split(end) == [
        LINE, "", "## You", "", "Hello", "```", "open", "```",
        "", "## thinklsp", "", "a", "b", "c", "d", "", "> - One.", "", "## You", "", "",
    ]  # fmt: skip
    again = apply_edits(whole, plan_exchange_edits(whole, ID, prepare_text("x\n## You\ny"), answer_of("z")))
    assert again.split(end) == [
        *whole.split(end)[:-3],
        "## You", "", "x", "\\## You", "y", "", "## thinklsp", "", "z", "", "## You", "", "",
    ]  # fmt: skip


FIRST_LINES: dict[str, tuple[str, str]] = {
    "none": ("Hello", f"{LINE}\n\nHello"),
    "new": (f"{build_blank_document(prepare_text('Hello', is_draft=True))}", f"{LINE}\n\n## You\n\nHello"),
    "foreign": ("<!-- thinklsp session: 77 -->\nHello", f"{LINE}\nHello"),
    "odd": ("<!-- thinklsp session: a b>c -->  \nHello", f"{LINE}\nHello"),
    "empty": ("<!-- thinklsp session: -->\nHello", f"{LINE}\nHello"),
    "the right one": (f"{LINE}\nHello", f"{LINE}\nHello"),
    "with more on the line": (f"{LINE} Hello", f"{LINE}\n\n{LINE} Hello"),
}


@pytest.mark.parametrize(("before", "after"), FIRST_LINES.values(), ids=FIRST_LINES)
def test_the_first_line_names_the_session(before: str, after: str) -> None:
    assert answered(before, answer_of("Hi")) == f"{after}\n\n## thinklsp\n\nHi\n\n## You\n\n"


def test_notices_stand_below_the_answer_in_one_line_each() -> None:
    whole = build_document(
        ID, prepare_text("Hello"), answer_of("Hi\n```", ("a.py was not changed:\n## You", "Two.\u2028More."))
    )
    assert whole.endswith("\nHi\n```\n```\n\n> - a.py was not changed: ## You\n> - Two. More.\n\n## You\n\n")
    assert "## thinklsp\n\n> - One.\n\n## You" in build_document(ID, prepare_text("Hello"), answer_of(" ", ("One.",)))
    assert f"## thinklsp\n\n> - {NO_TEXT}\n\n## You" in build_document(ID, prepare_text("Hello"), answer_of(""))


@_many
@given(_documents, _typed.filter(lambda typed: bool(plain(typed))), _answers, _texts)
def test_text_written_after_a_prompt_stays_after_its_answer(
    above: str, prompt: str, answer: ChatAnswer, later: str
) -> None:
    """Not one character is lost, and the headings are as they would be without it."""
    sent = f"{LINE}\n{above}\n## You\n\n{prompt}"
    end = parse_chat(sent).end
    if end is None:
        return
    text = f"{sent[:end]}\n{later}"
    whole = apply_edits(text, plan_answer_edits(text, ID, answer, end))
    assert is_part(text, whole)
    assert whole.startswith(sent[:end])
    assert whole.endswith(later) or not plain(later)
    if plain(later) and not [line for line in plain(later).split("\n") if line.startswith("## ")]:
        assert unified(parse_chat(whole).prompt) == unified(parse_chat(f"## You\n{later}").prompt)


@_many
@given(_documents, _texts, _answers)
def test_what_could_not_be_sent_is_the_next_prompt(document: str, draft: str, answer: ChatAnswer) -> None:
    whole = answered(f"{LINE}\n{document}", replace(answer, draft=prepare_text(draft, is_draft=True)))
    assert unified(parse_chat(whole).prompt) == plain(draft)


ENDS: dict[str, tuple[str, str | None]] = {
    "at the end": ("Hello?", "Hello?"),
    "before blank lines": ("## You\n\nHello? \r\n \n", "## You\n\nHello? "),
    "before an answer": ("Hello?\n## thinklsp\nHi", None),
    "in a fence": ("Hello?\n```\nx", None),
    "behind a fence": ("```\nx\n```\n", "```\nx\n```"),
    "nothing": ("## You\n", None),
}


@pytest.mark.parametrize(("text", "before"), ENDS.values(), ids=ENDS)
def test_where_a_prompt_ends(text: str, before: str | None) -> None:
    assert parse_chat(text).end == (None if before is None else len(before))


def test_the_same_line_is_found_again() -> None:
    before = "## You\n\nHello?\n"
    at = before.index("\n", 10)
    assert find_same_line_end(before, at, f"More.\r\n{before}\nAnd?") == at + len("More.\r\n")
    assert find_same_line_end(before, at, "## You\n\nHello? Now.") is None


def build_large_document(end: str) -> str:
    lines = (f"    some words of line {number}\n" for number in range(35_000))
    return "".join(("## You\n", *lines, "## You\n", end))


def test_a_large_document_is_read() -> None:
    text = build_large_document("Now?")
    assert find_prompt_section(text).heading == 35_001
    assert parse_chat(text).prompt == "Now?"


@pytest.mark.timing
def test_a_large_document_is_read_in_no_time() -> None:
    took = []
    for number in range(5):
        text = build_large_document(f"Now?{number}")
        begun = time.thread_time()
        find_prompt_section(text)
        parse_chat(text)
        took.append(time.thread_time() - begun)
    assert min(took) < 0.010


PROMPTS: dict[str, tuple[str, str | None, str]] = {
    "empty": ("", None, ""),
    "no heading": ("Hello\n", None, "Hello"),
    "a new one": (build_blank_document(prepare_text("@a.py ", is_draft=True)), None, "@a.py "),
    "with session": (f"<!-- thinklsp session: {ID} -->\nHello", ID, "Hello"),
    "a mark in front": (f"\ufeff<!-- thinklsp session: {ID} -->\nHello", ID, "Hello"),
    "line ends": ("## You\r\n  a\r\nb\rc \r\n\r\n", None, "  a\r\nb\rc "),
    "line ends of a fence": ("## You\r```\r## You\r```\r", None, "```\r## You\r```"),
    "a session without id": ("<!-- thinklsp session: -->\nHello", None, "Hello"),
    "carriage returns": (f"<!-- thinklsp session: {ID} -->\r\n\r\n## You\r\n\r\nHello\r\n", ID, "Hello"),
    "the session further down": (
        f"Hello\n<!-- thinklsp session: {ID} -->",
        None,
        f"Hello\n<!-- thinklsp session: {ID} -->",
    ),
    "the last one counts": ("## You\na\n## thinklsp\nb\n## You\nc\nd", None, "c\nd"),
    "in a fence": ("## You\na\n```\n## You\n```\nb", None, "a\n```\n## You\n```\nb"),
    "in a fence of waves": ("## You\na\n~~~\n```\n## You\n~~~\nb", None, "a\n~~~\n```\n## You\n~~~\nb"),
    "a longer fence": ("## You\n````\n```\n## You\n````", None, "````\n```\n## You\n````"),
    "in a fence of a list item": ("## You\n- ```\n  a\n  ```\n## You\nb", None, "b"),
    "behind a fence of a list item": (
        "## You\n- ```\n  a\n  ```\n```\n## You\n```",
        None,
        "- ```\n  a\n  ```\n```\n## You\n```",
    ),
    "a numbered item": ("## You\n10. ~~~\n    a\n    ~~~\n## You\nb", None, "b"),
    "an item of an item": ("## You\n- - ```\n    a\n    ```\n## You\nb", None, "b"),
    "an item with a tab": ("## You\n-\t```\n\ta\n\t```\n## You\nb", None, "b"),
    "an open fence of a list item": ("## You\n- ```\n  a\n\n## You\nb", None, "b"),
    "a fence that ends with its item": ("## You\n- ```\ntext\n```\n## You\n```", None, "- ```\ntext\n```\n## You\n```"),
    "code within an item is no fence": ("## You\n- ```x``` y\n```\n## You\n```", None, "- ```x``` y\n```\n## You\n```"),
    "code within a line is no fence": ("```x``` y\n## You\nc", None, "c"),
    "escaped": ("## You\n\\## You\n\\\\## thinklsp", None, "## You\n\\## thinklsp"),
    "indented is no heading": ("## You\na\n ## You\nb", None, "a\n ## You\nb"),
    "other line separators": ("## You\na\fb\u2028## You\x0bc", None, "a\fb\u2028## You\x0bc"),
    "below an answer": ("## You\na\n## thinklsp\nb", None, "a"),
}


@pytest.mark.parametrize(("text", "session", "prompt"), PROMPTS.values(), ids=PROMPTS)
def test_what_is_sent(text: str, session: str | None, prompt: str) -> None:
    chat = parse_chat(text)
    assert (chat.session_id, chat.prompt) == (session, prompt)


@given(_documents, _texts)
@example("", "<!-- thinklsp session: other -->")
@_many
def test_the_prompt_has_the_same_place_in_lines_as_in_the_text(before: str, typed: str) -> None:
    text = before + typed
    section = find_prompt_section(text)
    lines = split_keeping_ends(text)
    if section.heading is not None:
        assert lines[section.heading].strip("\r\n\t \ufeff") == "## You"
        assert section.begin == section.heading + 1
    assert section.begin <= section.end <= len(lines)
    written = "".join(lines[section.begin : section.end])
    # Escapes are taken away by `parse` alone.
    assert plain(written).replace("\\", "") == plain(parse_chat(text).prompt).replace("\\", "")


# An answer that a preview would read otherwise where it stands than alone, and how it stands there.
STANDING = {
    "## You\n</b>\n[x](command:y)": "## You\n</b>\n[x\\](command:y)",
    "- a\n  ```\n![x](u)\n  ```": "- a\n  \\```\n!\\[x](u)\n  \\```",
    "1. a\n   ```html\n   <img src=x>\n   ```": "1. a\n   ```html\n   <img src=x>\n   ```",
}


@pytest.mark.parametrize("text", STANDING)
def test_an_answer_is_inert_where_it_stands(text: str) -> None:
    assert sanitize_chat_text(text) == STANDING[text]
    assert sanitize_chat_text(STANDING[text]) == STANDING[text]


async def test_an_answer_without_measure_is_shown_in_part() -> None:
    shown = await sanitize_answer(ChatAnswer("x" * 3_000_000, ("Note.",)))
    assert len(shown.text) == MAX_SHOWN_CHARACTERS
    assert shown.notices == ("Note.", "Only the first 1,000,000 of 3,000,000 characters of the answer are shown.")


@pytest.mark.timing
@pytest.mark.parametrize("line", ["a\n", "## You\n", "```\n~~~\n", "\u2028\n"])
def test_a_megabyte_of_lines_is_read_before_its_edit_is_planned(line: str) -> None:
    """Planning the edit is a few copies of the text; 5 to 10 ms, where reading the lines takes 200 to 500 ms."""
    text = line * (MAX_SHOWN_CHARACTERS // len(line))
    began = time.process_time()
    answer = answer_of(text)
    read = time.process_time()
    plan_answer_edits(f"{LINE}\r\n\r\n## You\r\n\r\nHello", ID, answer)
    assert time.process_time() - read < (read - began) / 5
