"""Which text is a turn's: exactly what it wrote and nobody has rewritten, however the document changes around it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol.types import (
    MarkupKind,
    Position,
    Range,
    TextDocumentContentChangeEvent,
    TextDocumentContentChangePartial,
    TextDocumentContentChangeWholeDocument,
    VersionedTextDocumentIdentifier,
)
from markdown_it import MarkdownIt

from tests.support.client.documents import apply_text_edits, offset_at, position_at
from tests.support.in_process import as_json, in_process, item
from tests.support.sizes import examples
from thinklsp.core.edits import FileEdit
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.edits.edit_ledger import AttributedText, Attribution, EditAttribution, UndoableTurn
from thinklsp.lsp.features.hover import build_hover, extract_first_sentences, format_moment
from thinklsp.lsp.protocol.positions import Encoding, find_written_spans, shift_spans

A, B = "file:///ws/a.py", "file:///ws/b.py"
FIX = Attribution(
    UndoableTurn("t1", "fix a.py", "s"), "It was off by one.", "m", datetime(2026, 11, 22, 9, 5, tzinfo=UTC)
)
EDIT = Attribution(UndoableTurn("t2", "edit a.py", "s"), "", "m", FIX.written_at + timedelta(seconds=1))


class Desk:
    """Documents without a connection. Texts change by the client's own words."""

    def __init__(self, state: ConnectionState, encoding: Encoding = "utf-16") -> None:
        self.state, self.encoding = state, encoding
        state.documents.encoding = encoding
        self.texts = EditAttribution(state)

    def open(self, text: str, uri: str = A) -> Document:
        self.state.documents.put_text_document(item(text, uri))
        return self.document(uri)

    def close(self, uri: str = A) -> None:
        self.state.documents.remove_text_document(uri)

    def document(self, uri: str = A) -> Document:
        found = self.state.documents.get(uri)
        assert found is not None
        return found

    def change(self, start: int, end: int, new: str) -> None:
        text = self.document().text
        places = (Position(**position_at(text, at, self.encoding)) for at in (start, end))
        self.send(TextDocumentContentChangePartial(Range(*places), new))

    def replace(self, old: str, new: str) -> None:
        start = self.document().text.index(old)
        self.change(start, start + len(old), new)

    def send(self, change: TextDocumentContentChangeEvent) -> None:
        identifier = VersionedTextDocumentIdentifier(self.document().version + 1, A)
        self.state.documents.change_text_document(identifier, [change])

    def marked(self, uri: str = A) -> list[str | None]:
        """By character of the text: the turn that a hover names there."""
        document = self.document(uri)
        found = []
        for at in range(len(document.text)):
            place = position_at(document.text, at, self.encoding)
            origin = self.texts.find_attribution(document, place["line"], place["character"])
            found.append(None if origin is None else origin.turn.turn_id)
        return found

    def words(self, uri: str = A) -> str:
        """The text with a dot for all that is nobody's."""
        text = self.document(uri).text
        pairs = zip(text, self.marked(uri), strict=True)
        return "".join(char if char == "\n" or mark else "." for char, mark in pairs)

    def lenses(self, uri: str = A) -> tuple[str, list[int]] | None:
        newest = self.texts.find_newest(self.document(uri))
        return None if newest is None else (newest[0].turn.turn_id, newest[1])


@pytest.fixture
async def desk() -> Any:
    async with in_process() as editor:
        yield Desk(editor.server.state)


BEFORE = "one\ntwo\nthree\nfour\n"
AFTER = "one\nTWO\nthree\nFOUR\nFIVE\n"


def edit(before: str | None = BEFORE, after: str | None = AFTER, uri: str = A, **more: Any) -> FileEdit:
    return FileEdit(uri, "a.py", before, after, 1, **more)


def whole(text: str) -> TextDocumentContentChangeEvent:
    return TextDocumentContentChangeWholeDocument(text)


def other(desk: Desk) -> None:
    desk.replace("FIVE", "NINE")
    desk.texts.record("e2", EDIT, edit(AFTER, AFTER.replace("FIVE", "NINE")))
    assert [mark for mark in desk.marked() if mark] == ["t1"] * 8 + ["t2"] * 4


def undone(desk: Desk) -> None:
    other(desk)
    desk.texts.forget({"t2"}, A)


# What happens after the turn has written -> what is still its text.
Course = Callable[[Desk], None]
COURSES: list[tuple[str, Course, str]] = [
    ("nothing", lambda desk: None, "...\nTWO\n.....\nFOUR\nFIVE\n"),
    ("typing above", lambda desk: desk.change(0, 0, "zero\n\n"), "....\n\n...\nTWO\n.....\nFOUR\nFIVE\n"),
    ("typing below", lambda desk: desk.change(len(AFTER), len(AFTER), "six"), "...\nTWO\n.....\nFOUR\nFIVE\n..."),
    ("typing beside", lambda desk: desk.change(4, 4, "a "), "...\n..TWO\n.....\nFOUR\nFIVE\n"),
    ("typing within", lambda desk: desk.replace("OUR", "O-UR"), "...\nTWO\n.....\nFO.UR\nFIVE\n"),
    ("a part is rewritten", lambda desk: desk.replace("WO\nth", "x\n"), "...\nT.\n...\nFOUR\nFIVE\n"),
    ("all is rewritten", lambda desk: desk.replace("TWO", "two"), "...\n...\n.....\nFOUR\nFIVE\n"),
    ("a part is deleted", lambda desk: desk.replace("FOUR\nFI", ""), "...\nTWO\n.....\nVE\n"),
    ("the same is sent whole", lambda desk: desk.send(whole(AFTER)), "...\nTWO\n.....\nFOUR\nFIVE\n"),
    ("a change is sent whole", lambda desk: desk.send(whole("0\n" + AFTER)), ".\n...\nTWO\n.....\nFOUR\nFIVE\n"),
    ("it is taken back by hand", lambda desk: desk.send(whole(BEFORE)), "...\n...\n.....\n....\n"),
    ("another turn writes", other, "...\nTWO\n.....\nFOUR\nNINE\n"),
    ("the other is undone", undone, "...\nTWO\n.....\nFOUR\n...E\n"),
    ("forgotten", lambda desk: desk.texts.forget({"t1"}), "...\n...\n.....\n....\n....\n"),
]


@pytest.mark.parametrize(("course", "words"), [row[1:] for row in COURSES], ids=[row[0] for row in COURSES])
async def test_what_is_still_the_turns(desk: Desk, course: Course, words: str) -> None:
    desk.open(AFTER)
    desk.texts.record("e1", FIX, edit())
    course(desk)
    assert desk.words() == words


async def test_an_edit_counts_for_the_document_that_has_it(desk: Desk) -> None:
    """The file may be new, not open, or have a new name. A deleted one has no text."""
    desk.open("new\n", B)
    desk.open(AFTER, "file:///ws/d.py")
    desk.open(BEFORE, "file:///ws/e.py")
    desk.texts.record("e1", FIX, edit(None, "new\n", B))
    desk.texts.record("e1", FIX, edit(uri="file:///ws/c.py", new_uri="file:///ws/d.py"))
    desk.texts.record("e1", FIX, edit(after=None, uri="file:///ws/e.py"))
    desk.texts.record("e1", FIX, edit(uri="file:///ws/f.py"))
    assert desk.words(B) == "new\n"
    assert desk.words("file:///ws/d.py") == "...\nTWO\n.....\nFOUR\nFIVE\n"
    assert desk.words("file:///ws/e.py") == "...\n...\n.....\n....\n"
    # Blank lines, and lines that are gone, are nobody's.
    desk.open("one\n\n")
    desk.texts.record("e1", FIX, edit(BEFORE, "one\n\n"))
    assert (desk.words(), desk.lenses()) == ("...\n\n", None)


async def test_lines_in_another_form_are_the_same_lines(desk: Desk) -> None:
    desk.open("\ufeff" + AFTER.replace("\n", "\r\n"))
    desk.texts.record("e1", FIX, edit())
    found = [line for line in range(5) if desk.texts.find_attribution(desk.document(), line, 0) is FIX]
    assert found == [1, 3, 4]


async def test_lenses_are_for_the_newest_turn_until_it_is_saved(desk: Desk) -> None:
    text = "".join(f"line {number}\n" for number in range(40))
    now = text.replace("line 3\n", "LINE 3\n").replace("line 5\n", "LINE 5\n").replace("line 30\n", "LINE 30\n")
    desk.open(now)
    desk.texts.record("e1", FIX, edit(text, now))
    assert desk.lenses() == ("t1", [3, 30])
    desk.change(0, 0, "\n")
    assert desk.lenses() == ("t1", [4, 31])
    desk.replace("LINE 30", "mine")
    assert desk.lenses() == ("t1", [4])
    desk.texts.mark_saved(A)
    desk.texts.mark_saved(A)
    assert desk.lenses() is None
    assert desk.texts.find_attribution(desk.document(), 4, 0) is FIX, "the hover stays"
    again = desk.document().text
    desk.send(whole(again.replace("line 9", "NEW 9")))
    desk.texts.record("e2", EDIT, edit(again, desk.document().text))
    assert desk.lenses() == ("t2", [10])


# The turn writes capitals, the user everything else, so that every character tells whose it is.
_lines = st.lists(st.sampled_from(["a", "bé", "c😀", "", "D", "EF", "GÄ"]), min_size=1, max_size=8)
_typed = st.lists(st.sampled_from(["x", "é", "😀", "\n", "\r\n", "\r", "yz"]), max_size=3).map("".join)
_change = st.tuples(st.floats(0, 1), st.floats(0, 1), _typed, st.booleans())


async def test_lenses_go_when_the_file_is_reverted(desk: Desk) -> None:
    desk.open(AFTER)
    desk.texts.record("e1", FIX, edit())
    assert desk.lenses() == ("t1", [1])
    desk.replace("TWO", "two")
    assert desk.lenses() == ("t1", [3]), "the other change is still there"
    desk.replace("FOUR", "fOUR")
    assert desk.lenses() == ("t1", [3])
    desk.replace("fOUR\nFIVE\n", "four\n")
    assert desk.lenses() is None


def is_capital(char: str) -> bool:
    return char in "DEFGÄ"


@settings(max_examples=examples(200), deadline=None)
@given(_lines, st.lists(_change, max_size=8), st.sampled_from(["utf-8", "utf-16", "utf-32"]))
def test_a_hover_names_a_turn_only_where_the_text_is_still_its(
    lines: list[str], changes: list[tuple[float, float, str, bool]], encoding: Encoding
) -> None:
    before = "".join(f"{'' if any(map(is_capital, line)) else line}\n" for line in lines)
    after = "".join(f"{line}\n" for line in lines)
    document = Document(item(after, A), encoding)
    spans = find_written_spans(before, after, after)

    def follow(start: int, end: int, length: int) -> None:
        spans[:] = shift_spans(spans, start, end, length)

    document.change_listener = follow
    expected = after
    for number, (one, other_, typed, whole_text) in enumerate(changes, 2):
        start, end = sorted((round(one * len(expected)), round(other_ * len(expected))))
        places = [position_at(expected, at, encoding) for at in (start, end)]
        start, end = (offset_at(expected, place, encoding) for place in places)
        range_ = {"start": places[0], "end": places[1]}
        expected = apply_text_edits(expected, [{"range": range_, "newText": typed}], encoding)
        if whole_text:
            document.apply(number, [whole(expected)])
        else:
            where = Range(*(Position(**place) for place in places))
            document.apply(number, [TextDocumentContentChangePartial(where, typed)])
        assert document.text == expected
        for at, char in enumerate(expected):
            if char not in "\r\n":
                place = position_at(expected, at, encoding)
                offset = document.offset_at_position(Position(**place))
                assert any(a <= offset < b for a, b in spans) == is_capital(char), (expected, spans, at)


def earlier(before: str, after: str, origin: Attribution = FIX, *, edit_id: str = "e") -> AttributedText:
    return AttributedText(edit_id, origin, before, after, find_written_spans(before, after, after))


async def test_typing_while_texts_are_compared_counts(desk: Desk) -> None:
    """No character of the user is attributed."""
    desk.open(AFTER)
    desk.replace("TWO", "T-WO")
    desk.change(0, 0, "zero\n")
    desk.texts.add(desk.document(), AFTER, [earlier(BEFORE, AFTER)])
    assert desk.words() == "....\n...\n..WO\n.....\nFOUR\nFIVE\n"


async def test_earlier_text_has_a_hover_and_no_lens(desk: Desk) -> None:
    """It is attributed once, and lies below what was written later, whichever came first."""
    text = AFTER.replace("FIVE", "NINE")
    desk.open(text)
    desk.texts.record("e2", EDIT, edit(AFTER, text))
    assert desk.lenses() == ("t2", [4])
    newest = replace(FIX, written_at=FIX.written_at + timedelta(seconds=2), turn=UndoableTurn("t3", "", "s"))
    desk.texts.add(desk.document(), text, [earlier(BEFORE, text), earlier("", "one\n", newest, edit_id="n")])
    desk.texts.add(desk.document(), text, [earlier(BEFORE, text)])
    assert desk.words() == "one\nTWO\n.....\nFOUR\nNINE\n"
    assert set(desk.marked()) == {"t1", "t2", "t3", None}
    assert desk.lenses() == ("t2", [4]), "the text that is not saved"
    assert desk.texts.list_edits(A) == {"e", "e2", "n"}
    desk.replace("TWO", "two")
    assert desk.lenses() == ("t2", [4])
    desk.close()
    assert desk.texts.list_edits(A) == frozenset()


async def test_reopened_text_has_its_lens_until_it_is_saved(desk: Desk) -> None:
    desk.texts.record("e1", FIX, edit())
    desk.open(AFTER)
    assert desk.lenses() is None
    desk.texts.add(desk.document(), AFTER, [earlier(BEFORE, AFTER, edit_id="e1")])
    assert desk.lenses() == ("t1", [1])
    desk.texts.mark_saved(A)
    assert desk.lenses() is None


def open_large_document(desk: Desk) -> Document:
    """Open a large document in which a turn has changed two lines."""
    text = "".join(f"value_{number} = compute({number})  # and so on\n" for number in range(80_000))
    now = text.replace("value_79000 ", "VALUE_79000 ").replace("value_100 ", "VALUE_100 ")
    document = desk.open(now)
    desk.texts.record("e1", FIX, edit(text, now))
    return document


# A line of the large document -> what it is from.
LARGE_LINES = {79_000: FIX, 100: FIX, 79_999: None, 0: None}


async def test_text_in_a_large_document_is_found(desk: Desk) -> None:
    document = open_large_document(desk)
    assert {line: desk.texts.find_attribution(document, line, 3) for line in LARGE_LINES} == LARGE_LINES


@pytest.mark.timing
async def test_a_large_document_is_answered_at_once(desk: Desk) -> None:
    document = open_large_document(desk)
    times = []
    for line in LARGE_LINES:
        began = time.perf_counter()
        desk.texts.find_attribution(document, line, 3)
        times.append(time.perf_counter() - began)
    assert min(times) < 0.01


def test_what_a_hover_says() -> None:
    origin = Attribution(
        UndoableTurn("t1", "fix a.py", "s", "Verified: `pytest` – 3 passed in 1.3 s."),
        "It was **off** by one.\nNow it [counts](https://evil.example).\n\n```\nx\n``` Third one! Fourth.\u202e",
        "claude",
        FIX.written_at,
    )
    plain = as_json(build_hover(origin, MarkupKind.PlainText))["contents"]
    assert plain == {
        "kind": "plaintext",
        "value": "thinklsp changed this text on 22 November 2026 at 09:05: fix a.py\n"
        "It was **off** by one. Now it [counts](https://evil.example). ``` x ``` Third one!\n"
        "Model: claude\n"
        "Verified: `pytest` – 3 passed in 1.3 s.\n"
        "To undo: code action “thinklsp: undo “fix a.py””",
    }
    marked = as_json(build_hover(origin, MarkupKind.Markdown))["contents"]
    assert marked == {
        "kind": "markdown",
        "value": "**thinklsp** changed this text on 22 November 2026 at 09:05: **fix a.py**\n\n"
        "It was \\*\\*off\\*\\* by one. Now it \\[counts\\](https:\\//evil.example). "
        "\\`\\`\\` x \\`\\`\\` Third one!\n\n"
        "Model: claude\n\n"
        "Verified: `pytest` – 3 passed in 1.3 s.\n\n"
        "To undo: code action **thinklsp: undo “fix a.py”**",
    }
    assert extract_first_sentences("") == ""
    assert extract_first_sentences("a" * 400) == "a" * 299 + "…"


DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("later", "words"),
    [(timedelta(0), "today"), (timedelta(hours=1), "today"), (DAY, "yesterday"), (2 * DAY, "on 22 November 2026")],
)
def test_hover_says_when_in_words(later: timedelta, words: str) -> None:
    assert format_moment(FIX.written_at, FIX.written_at + later) == f"{words} at 09:05"


_PIECES = [
    *("`", "```", "~~~", "\n", " ", "<img src=x>", "](https://e)", "![", "command:x", "&#96;", "    ", "a"),
    *("*", "_", "#", "1.", "-", "|", "\\", "www.e.x", "a@b.c", "<b>"),
]
_nasty = st.lists(st.sampled_from(_PIECES)).map("".join)
_INERT = {"paragraph_open", "paragraph_close", "inline", "text", "text_special", "strong_open", "strong_close"}


@given(_nasty, _nasty)
def test_hover_renders_no_markup_of_others(title: str, why: str) -> None:
    origin = Attribution(UndoableTurn("t", title, "s"), why, "m", FIX.written_at)
    text = as_json(build_hover(origin, MarkupKind.Markdown))["contents"]["value"]
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    kinds = {token.type for token in tokens} | {child.type for token in tokens for child in token.children or ()}
    assert kinds <= _INERT | {"code_inline"}, text
    assert not re.search(r"://|www\.|(?<!\\)@", re.sub(r"(?<![\\`])`[^`]+`", "", text))
