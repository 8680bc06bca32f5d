"""Diagnostics that came with a code action follow their lines through whatever is typed, or are given up."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sizes import examples
from thinklsp.lsp.documents.diagnostics import moved, present, see
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.protocol.forms import Change, Opened, Position, Range

_LINES = 8
Typed = list[tuple[int, int, int, int, str]]
_EVERYTHING = Range(Position(0, 0), Position(_LINES, 0))

changes = st.lists(
    st.tuples(
        st.integers(0, _LINES), st.integers(0, 7), st.integers(0, 2), st.integers(0, 7),
        st.sampled_from(["", "x", "\n", "new\n", "\nnew", "a\nb\nc", "🙂"]),
    ),
    max_size=6,
)  # fmt: skip


def diagnostic(line: int, start: int, end: int) -> dict[str, object]:
    where = {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}
    return {"range": where, "message": f"of {line}"}


def change(document: Document, start: tuple[int, int], end: tuple[int, int], text: str) -> None:
    where = Range(Position(*start), Position(*end))
    document.apply(document.version + 1, [Change(where, text)])


@settings(max_examples=examples(200), deadline=None)
@given(typed=changes, columns=st.tuples(st.integers(0, 6), st.integers(0, 6)))
def test_a_diagnostic_stands_on_its_line_or_is_given_up(typed: Typed, columns: tuple[int, int]) -> None:
    lines = [f"line {number}" for number in range(_LINES)]
    document = Document(Opened("file:///a.py", "python", 1, "\n".join(lines)), "utf-16")
    told = [diagnostic(number, min(columns), max(columns)) for number in range(_LINES)]
    see(document, _EVERYTHING, told)
    for first, start, count, end, text in typed:
        change(document, (first, start), (first + count, end if count else max(start, end)), text)
        # Looking at them in between changes nothing about what is found in the end.
        document.seen = present(document, document.seen)
    for seen in document.seen:
        number = int(seen.problem.message.removeprefix("of "))
        assert document.line(seen.problem.line - 1) == lines[number]
        assert seen.start <= seen.end
    assert all(1 <= problem.line <= document.line_count for problem in moved(document, told, 1))


def test_a_line_that_is_whole_keeps_its_diagnostic() -> None:
    """Whatever is typed at its ends, by editors that put a new line in front of a text or behind one."""
    for where, text, expected in (
        ((1, 0, 1, 0), "new\n", 2),
        ((0, 6, 0, 6), "\nnew", 2),
        ((1, 6, 1, 6), "\nnew", 1),
        ((2, 0, 2, 0), "new\n", 1),
        ((0, 0, 1, 0), "", 0),
        ((0, 0, 0, 6), "", 1),
        ((1, 6, 2, 0), "", None),
        ((0, 6, 1, 0), "", None),
        ((1, 2, 1, 3), "", None),
        ((1, 0, 2, 0), "line 1\n", None),
    ):
        document = Document(Opened("file:///a.py", "python", 1, "line 0\nline 1\nline 2"), "utf-16")
        see(document, _EVERYTHING, [diagnostic(1, 0, 6)])
        change(document, where[:2], where[2:], text)
        found = [seen.problem.line - 1 for seen in present(document, document.seen)]
        assert found == ([] if expected is None else [expected]), (where, text)
