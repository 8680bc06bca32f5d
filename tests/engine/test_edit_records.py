"""The records of edits: what the files say about an edit without an answer, and the title of a turn that has none."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from thinklsp.engine.edit_records import build_files_title, classify_unconfirmed
from thinklsp.engine.results import EditOutcome
from thinklsp.sessions.ledger import LedgerEntry, PlannedWrite, compute_sha256

OLD, NEW = "one\n", "two\n"


def entry(before: str | None, after: str | None, new_uri: str | None = None) -> LedgerEntry:
    write = PlannedWrite("file:///a", "a", before, after, new_uri=new_uri)
    return LedgerEntry(write, compute_sha256(before), compute_sha256(after), None, False, datetime.now(UTC))


# Before and after of an edit, the text that is there now (of a rename: under both names) -> what came of the edit.
STANDING: list[tuple[LedgerEntry, tuple[str | None, ...], EditOutcome]] = [
    (entry(OLD, NEW), (NEW,), "applied"),
    (entry(OLD, NEW), ("two\r\n",), "applied"),
    (entry(OLD, NEW), (f"\ufeff{NEW}",), "applied"),
    (entry(OLD, NEW), (OLD,), "refused"),
    (entry(OLD, NEW), ("one\r\n",), "refused"),
    (entry(f"\ufeff{OLD}", f"\ufeff{NEW}"), (OLD,), "refused"),
    (entry(OLD, NEW), ("three\n",), "unknown"),
    (entry(OLD, NEW), (None,), "unknown"),
    (entry(None, NEW), (None,), "refused"),
    (entry(None, NEW), ("",), "unknown"),
    (entry(OLD, None), (None,), "applied"),
    # An edit of nothing but the form cannot be told from an editor that changes it.
    (entry(OLD, "one\r\n"), ("one",), "unknown"),
    (entry(OLD, "one\r\n"), ("one\r\n",), "applied"),
    (entry(OLD, NEW, "file:///b"), (None, NEW), "applied"),
    (entry(OLD, NEW, "file:///b"), (OLD, None), "refused"),
    (entry(OLD, NEW, "file:///b"), (None, OLD), "unknown"),
    (entry(OLD, NEW, "file:///b"), (OLD, NEW), "unknown"),
    (entry(OLD, NEW, "file:///b"), (None, None), "unknown"),
]


@pytest.mark.parametrize(("written", "now", "outcome"), STANDING)
def test_what_the_files_say_about_an_edit(
    written: LedgerEntry, now: tuple[str | None, ...], outcome: EditOutcome
) -> None:
    assert classify_unconfirmed(written, *now) == outcome


TITLES = {1: "f0", 3: "f0, f1, f2", 9: "f0, f1, f2, f3, f4, f5, f6, f7 and 1 more"}


@pytest.mark.parametrize(("number", "names"), TITLES.items())
def test_a_turn_without_a_title_is_named_after_its_files(number: int, names: str) -> None:
    """Each name once, and the time as the user's clock shows it."""
    paths = [f"src/f{place}" for place in range(number)]
    time = datetime(2024, 5, 6, 12, 30, tzinfo=UTC)
    assert build_files_title([*paths, "tests/f0"], time) == f"{names} ({time.astimezone():%H:%M})"
