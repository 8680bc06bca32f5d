"""Chat documents: what was put in is read again, and what the user wrote stays, whatever prompts and answers hold."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from thinklsp.core.edits import apply_edits
from thinklsp.lsp.chats.chat_documents import (
    MAX_SHOWN_CHARACTERS,
    NO_TEXT,
    Answer,
    blank_document,
    end_of_same_line,
    inert_text,
    make_answer_inert,
    new_document,
    with_answer,
    with_exchange,
)
from thinklsp.lsp.chats.chat_outline import parse, prompt_section
from thinklsp.lsp.chats.mentions import Mention, mentions, written
from thinklsp.lsp.protocol.convert import split_keeping_ends

ID = "0123456789abcdef"
LINE = f"<!-- thinklsp session: {ID} -->"

# Everything that could be taken for a heading, a fence or the end of one.
_lines = st.sampled_from(
    [
        "## You", "## thinklsp", "\\## You", "\\\\## You  ", "## thinklsp\t", "## Yours", " ## You", "# You",
        "```", "````", "```python", "``` a`b", "```code``` inline", "~~~", "~~~~ x", "   ```", "    ```", "\t```",
        "words", "", "  ", "<!-- thinklsp session: other -->", "a\fb\u2028c", "\x0b\x85", "\u2028## You", "> - x",
        "```\u2028", "## You\u2028",
    ]
)  # fmt: skip
_ends = st.sampled_from(["\n", "\r\n", "\r"])
_texts = _ends.flatmap(lambda end: st.lists(_lines, max_size=8).map(end.join))
# Without headings: below one, the prompt would begin anew.
_typed = st.lists(
    st.tuples(_lines.filter(lambda line: not line.lstrip("\\").startswith("## ")), _ends), max_size=8
).map(lambda lines: "".join(a + b for a, b in lines))
_answers = st.builds(Answer, _texts, st.lists(_texts, max_size=2).map(tuple))
# Mixed ends, as nobody writes them but some programs do.
_documents = st.lists(st.tuples(_lines, _ends), max_size=8).map(lambda lines: "".join(a + b for a, b in lines))
_many = settings(max_examples=200, deadline=None)


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


def answered(text: str, answer: Answer) -> str:
    return apply_edits(text, with_answer(text, ID, answer))


def is_part(text: str, whole: str) -> bool:
    """True when all characters of `text` are in `whole`, in their order."""
    rest = iter(whole)
    return all(char in rest for char in text)


@_many
@given(_texts)
def test_a_prompt_is_read_as_it_was_put_in(prompt: str) -> None:
    assert parse(blank_document(prompt)).prompt == plain(prompt)


@_many
@given(_typed, _answers)
def test_a_prompt_typed_below_an_answer_is_read_as_it_was_typed(typed: str, answer: Answer) -> None:
    """Not one character is different: line ends, indentation and blanks at the end of lines included."""
    around = re.fullmatch(r"(?s)(?:[ \t]*[\r\n])*(?P<prompt>.*?)(?:[\r\n][ \t]*)*", typed)
    assert around is not None
    prompt = around["prompt"] if around["prompt"].strip(" \t") else ""
    assert parse(new_document(ID, "Before", answer) + typed).prompt == prompt


@_many
@given(_texts, _answers, _answers)
def test_answers_and_prompts_never_add_headings(prompt: str, first: Answer, second: Answer) -> None:
    whole = new_document(ID, prompt, first)
    assert parse(whole) == parse(f"{LINE}\n## You\n")
    assert parse(f"{whole}What now?").prompt == "What now?"
    again = answered(f"{whole}What now?", second)
    assert parse(again).prompt == ""
    assert parse(f"{again}And now?").prompt == "And now?"
    # Cut before the last answer, what was sent is the prompt again.
    before = again[: again.index("What now?") + len("What now?")]
    assert parse(before).prompt == "What now?"


@_many
@given(_documents, st.sampled_from(["", "\ufeff"]), _answers)
def test_an_answer_below_anything_is_followed_by_an_empty_prompt(document: str, mark: str, answer: Answer) -> None:
    """What the user left open, a line or a code fence, does not swallow the headings; nothing of theirs is lost."""
    text = mark + document
    whole = answered(text, answer)
    assert re.sub(r"\A<!-- thinklsp session: other -->", "", document) in whole
    assert whole.startswith(mark + LINE)
    assert parse(whole) == parse(f"{LINE}\n## You\n")
    assert parse(f"{whole}Next.").prompt == "Next."
    assert len(with_answer(whole, ID, answer)) == 1


@_many
@given(_documents, _texts, _answers)
def test_an_exchange_from_elsewhere_loses_nothing(document: str, prompt: str, answer: Answer) -> None:
    text = f"{LINE}\n{document}"
    whole = apply_edits(text, with_exchange(text, ID, prompt, answer))
    assert is_part(text, whole)
    assert parse(whole).session_id == ID
    assert parse(whole).prompt in ("", parse(text).prompt)


@_many
@given(_typed, _texts, _answers)
def test_a_draft_stays_the_prompt_when_an_exchange_comes_in(draft: str, prompt: str, answer: Answer) -> None:
    text = new_document(ID, "Before", Answer("It was.")) + draft
    whole = apply_edits(text, with_exchange(text, ID, prompt, answer))
    assert parse(whole) == parse(text)
    assert whole.endswith(f"## You\n\n{draft}")
    assert whole.index("It was.") < whole.rindex("## thinklsp")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_what_comes_in_has_the_line_ends_of_the_document(end: str) -> None:
    document = f"## You{end}{end}Hello{end}```{end}open"
    whole = answered(document, Answer("a\nb\r\nc\rd", ("One.",)))
    assert whole.split(end) == [
        LINE, "", "## You", "", "Hello", "```", "open", "```",
        "", "## thinklsp", "", "a", "b", "c", "d", "", "> - One.", "", "## You", "", "",
    ]  # fmt: skip
    again = apply_edits(whole, with_exchange(whole, ID, "x\n## You\ny", Answer("z")))
    assert again.split(end) == [
        *whole.split(end)[:-3],
        "## You", "", "x", "\\## You", "y", "", "## thinklsp", "", "z", "", "## You", "", "",
    ]  # fmt: skip


FIRST_LINES: dict[str, tuple[str, str]] = {
    "none": ("Hello", f"{LINE}\n\nHello"),
    "new": (f"{blank_document('Hello')}", f"{LINE}\n\n## You\n\nHello"),
    "foreign": ("<!-- thinklsp session: 77 -->\nHello", f"{LINE}\nHello"),
    "odd": ("<!-- thinklsp session: a b>c -->  \nHello", f"{LINE}\nHello"),
    "empty": ("<!-- thinklsp session: -->\nHello", f"{LINE}\nHello"),
    "the right one": (f"{LINE}\nHello", f"{LINE}\nHello"),
    "with more on the line": (f"{LINE} Hello", f"{LINE}\n\n{LINE} Hello"),
}


@pytest.mark.parametrize("case", FIRST_LINES)
def test_the_first_line_names_the_session(case: str) -> None:
    before, after = FIRST_LINES[case]
    assert answered(before, Answer("Hi")) == f"{after}\n\n## thinklsp\n\nHi\n\n## You\n\n"


def test_notices_stand_below_the_answer_in_one_line_each() -> None:
    whole = new_document(ID, "Hello", Answer("Hi\n```", ("a.py was not changed:\n## You", "Two.\u2028More.")))
    assert whole.endswith("\nHi\n```\n```\n\n> - a.py was not changed: ## You\n> - Two. More.\n\n## You\n\n")
    assert "## thinklsp\n\n> - One.\n\n## You" in new_document(ID, "Hello", Answer(" ", ("One.",)))
    assert f"## thinklsp\n\n> - {NO_TEXT}\n\n## You" in new_document(ID, "Hello", Answer(""))


@_many
@given(_documents, _typed.filter(lambda typed: bool(plain(typed))), _answers, _texts)
def test_what_was_written_behind_a_prompt_stays_behind_its_answer(
    above: str, prompt: str, answer: Answer, later: str
) -> None:
    """Not one character is lost, and the headings are as they would be without it."""
    sent = f"{LINE}\n{above}\n## You\n\n{prompt}"
    end = parse(sent).end
    if end is None:
        return
    text = f"{sent[:end]}\n{later}"
    whole = apply_edits(text, with_answer(text, ID, answer, end))
    assert is_part(text, whole)
    assert whole.startswith(sent[:end])
    assert whole.endswith(later) or not plain(later)
    if plain(later) and not [line for line in plain(later).split("\n") if line.startswith("## ")]:
        assert unified(parse(whole).prompt) == unified(parse(f"## You\n{later}").prompt)


@_many
@given(_documents, _texts, _answers)
def test_what_could_not_be_sent_is_the_next_prompt(document: str, draft: str, answer: Answer) -> None:
    whole = answered(f"{LINE}\n{document}", replace(answer, draft=draft))
    assert unified(parse(whole).prompt) == plain(draft)


ENDS: dict[str, tuple[str, str | None]] = {
    "at the end": ("Hello?", "Hello?"),
    "before blank lines": ("## You\n\nHello? \r\n \n", "## You\n\nHello? "),
    "before an answer": ("Hello?\n## thinklsp\nHi", None),
    "in a fence": ("Hello?\n```\nx", None),
    "behind a fence": ("```\nx\n```\n", "```\nx\n```"),
    "nothing": ("## You\n", None),
}


@pytest.mark.parametrize("case", ENDS)
def test_where_a_prompt_ends(case: str) -> None:
    text, before = ENDS[case]
    assert parse(text).end == (None if before is None else len(before))


def test_the_same_line_is_found_again() -> None:
    before = "## You\n\nHello?\n"
    at = before.index("\n", 10)
    assert end_of_same_line(before, at, f"More.\r\n{before}\nAnd?") == at + len("More.\r\n")
    assert end_of_same_line(before, at, "## You\n\nHello? Now.") is None


def test_a_large_document_is_read_in_no_time() -> None:
    lines = ["## You\n", *(f"    some words of line {number}\n" for number in range(35_000)), "## You\n", "Now?"]
    took = []
    for number in range(5):
        text = "".join((*lines, str(number)))
        begun = time.thread_time()
        assert prompt_section(text).heading == 35_001
        assert parse(text).prompt == f"Now?{number}"
        took.append(time.thread_time() - begun)
    assert min(took) < 0.010


PROMPTS: dict[str, tuple[str, str | None, str]] = {
    "empty": ("", None, ""),
    "no heading": ("Hello\n", None, "Hello"),
    "a new one": (blank_document("@a.py "), None, "@a.py "),
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
    "code within a line is no fence": ("```x``` y\n## You\nc", None, "c"),
    "escaped": ("## You\n\\## You\n\\\\## thinklsp", None, "## You\n\\## thinklsp"),
    "indented is no heading": ("## You\na\n ## You\nb", None, "a\n ## You\nb"),
    "other line separators": ("## You\na\fb\u2028## You\x0bc", None, "a\fb\u2028## You\x0bc"),
    "below an answer": ("## You\na\n## thinklsp\nb", None, "a"),
}


@pytest.mark.parametrize("case", PROMPTS)
def test_what_is_sent(case: str) -> None:
    text, session, prompt = PROMPTS[case]
    chat = parse(text)
    assert (chat.session_id, chat.prompt) == (session, prompt)


MENTIONS: list[tuple[str, list[Mention]]] = [
    ("see @src/a.py.", [Mention("src/a.py", None)]),
    ("@a.py:10 and (@b.py:10-20)", [Mention("a.py", (10, 10)), Mention("b.py", (10, 20))]),
    ("@a.py:L10-L20, @a.py:L3", [Mention("a.py", (10, 20)), Mention("a.py", (3, 3))]),
    ("mail me@example.com or @@x", []),
    ("@selection @diagnostics", []),
    ("@a.py @a.py", [Mention("a.py", None)]),
    ("@", []),
    ("@späß/ü.py", [Mention("späß/ü.py", None)]),
    ('see @"a b.py", @"a\\"b\\\\.py":3 and @"un', [Mention("a b.py", None), Mention('a"b\\.py', (3, 3))]),
    ('@"selection" @"untitled:Untitled-1":1-2', [Mention("selection", None), Mention("untitled:Untitled-1", (1, 2))]),
    (f"@a.py:{'9' * 5000}", [Mention("a.py", (999_999_999, 999_999_999))]),
]


@pytest.mark.parametrize(("prompt", "found"), MENTIONS)
def test_mentions(prompt: str, found: list[Mention]) -> None:
    assert list(mentions(prompt)) == found


@given(path=st.text(st.sampled_from('ab @:"\\.,/-?é🙂'), min_size=1, max_size=12), first=st.integers(0, 99))
def test_what_is_mentioned_is_read_back(path: str, first: int) -> None:
    """In any sentence."""
    for lines in (None, (first, first + 1)):
        for sentence in (written(path, lines), f"({written(path, lines)})", f"Say {written(path, lines)}, then."):
            assert mentions(sentence) == (Mention(path, lines),), sentence


@given(_documents, _texts)
@example("", "<!-- thinklsp session: other -->")
@_many
def test_the_prompt_has_the_same_place_in_lines_as_in_the_text(before: str, typed: str) -> None:
    text = before + typed
    section = prompt_section(text)
    lines = split_keeping_ends(text)
    if section.heading is not None:
        assert lines[section.heading].strip("\r\n\t \ufeff") == "## You"
        assert section.begin == section.heading + 1
    assert section.begin <= section.end <= len(lines)
    written = "".join(lines[section.begin : section.end])
    # Escapes are taken away by `parse` alone.
    assert plain(written).replace("\\", "") == plain(parse(text).prompt).replace("\\", "")


# An answer that a preview would read otherwise where it stands than alone, and how it stands there.
STANDING = {
    "## You\n</b>\n[x](command:y)": "## You\n</b>\n[x\\](command:y)",
    "- a\n  ```\n![x](u)\n  ```": "- a\n  \\```\n!\\[x](u)\n  \\```",
    "1. a\n   ```html\n   <img src=x>\n   ```": "1. a\n   ```html\n   <img src=x>\n   ```",
}


@pytest.mark.parametrize("text", STANDING)
def test_an_answer_is_inert_where_it_stands(text: str) -> None:
    assert inert_text(text) == STANDING[text]
    assert inert_text(STANDING[text]) == STANDING[text]


async def test_an_answer_without_measure_is_shown_in_part() -> None:
    """H-F21."""
    shown = await make_answer_inert(Answer("x" * 3_000_000, ("Note.",)))
    assert len(shown.text) == MAX_SHOWN_CHARACTERS
    assert shown.notices == ("Note.", "This is only the beginning of the answer, which has 3,000,000 characters.")
