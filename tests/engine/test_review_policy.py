"""The review policy: what an editor would load because of an edit, and which hunks the user has to look at."""

from __future__ import annotations

import time

import pytest

from thinklsp.core.choices import Review
from thinklsp.core.edits import FileEdit
from thinklsp.engine.merge_plan import FileState, MergedFile, Scope
from thinklsp.engine.review_policy import find_added_hosts, find_hunk_reasons, should_review

A, B = "file:///ws/a.py", "file:///ws/b.py"
BASE = "one\r\ntwo\rthree\nfour"
OUTSIDE, OTHER, UNTRUSTED = "outside the requested lines", "in a different file", "in a folder that you do not trust"


def merged(before: str | None, after: str | None, new_uri: str | None = None) -> MergedFile:
    return MergedFile(FileEdit(A, "a.py", before, after, new_uri=new_uri), FileState(before), after)


BOTH_ENDS = merged(BASE, "1\r\ntwo\rthree\n4")
# A file, the scope of the request -> why each of its hunks is asked about.
REASONS: dict[str, tuple[MergedFile, Scope | None, list[str | None]]] = {
    "no scope": (BOTH_ENDS, None, [None, None]),
    "the file": (BOTH_ENDS, Scope(A), [None, None]),
    "all its lines": (BOTH_ENDS, Scope(A, (0, 3)), [None, None]),
    "the first line": (BOTH_ENDS, Scope(A, (0, 0)), [None, OUTSIDE]),
    "the last line, which has no end": (BOTH_ENDS, Scope(A, (3, 3)), [OUTSIDE, None]),
    "a line behind the last one": (merged("one\n", "one\ntwo\n"), Scope(A, (0, 0)), [None]),
    "the first line of an empty file": (merged("", "one\n"), Scope(A, (0, 0)), [None]),
    "another file": (BOTH_ENDS, Scope(B), [OTHER, OTHER]),
    "a folder without trust": (BOTH_ENDS, Scope(A, untrusted=frozenset({"a.py"})), [UNTRUSTED, UNTRUSTED]),
    "a new file": (merged(None, "one\n"), Scope(A), [None]),
    "deleted": (merged(BASE, None), Scope(A), ["deletes the file"]),
    "renamed": (merged(BASE, BASE, B), Scope(A), ["renames the file"]),
}


@pytest.mark.parametrize("case", REASONS)
def test_what_the_user_did_not_ask_for_is_reviewed(case: str) -> None:
    file, scope, reasons = REASONS[case]
    assert find_hunk_reasons(file, scope) == reasons
    assert should_review([file], "auto", scope) == any(reasons)


@pytest.mark.parametrize(("review", "is_asked"), [("always", True), ("never", False)])
def test_the_setting_can_ask_always_or_never(review: Review, is_asked: bool) -> None:
    for file, scope, _ in REASONS.values():
        assert should_review([file], review, scope) is is_asked


# text -> the hosts that an editor would ask for a schema
FETCHED: list[tuple[str, list[str]]] = [
    ('{"$schema": "https://example.com/a?secret"}', ["example.com"]),
    ('{"$schema" /* no */ : // one\n "http://example.com:80/a"}', ["example.com"]),
    ('{"\\u0024sch\\u0065ma": "https:\\/\\/example.com"}', ["example.com"]),
    ('[{"$ref":"//name:secret@example.com/a#/b"}, {"$ref": "ftp://b.example"}]', ["b.example", "example.com"]),
    ('{"$schema": "file://example.com/share/a.json"}', ["example.com"]),
    ("# yaml-language-server: $schema=https://example.com/a.json\na: 1\n", ["example.com"]),
    ("# $schema: https://example.com/a.json\na: 1\n", ["example.com"]),
    ("a:\n  $ref: 'https://example.com/a.yaml'\n", ["example.com"]),
    ("#:schema https://example.com/a.json\n", ["example.com"]),
    ('{"$schema": "https://[example/"}', ["the network"]),
    ('{"$schema": "https://b\u00fccher.example/"}', ["b\\xfccher.example"]),
    ('{"$schema": "./a.json", "$ref": "#/definitions/b", "see": "https://example.com"}', []),
    ('{"$schema": "file:///usr/share/a.json"}', []),
    ("schema = 'https://example.com'\n", []),
]


@pytest.mark.parametrize(("text", "hosts"), FETCHED)
def test_what_editors_would_load_is_found(text: str, hosts: list[str]) -> None:
    """And only where it is new: who has such a schema already is not asked about it."""
    assert find_added_hosts("", text) == hosts
    assert find_added_hosts(text, f"{text} ") == []
    other = text.replace("example", "other")
    assert find_added_hosts(other, text) == hosts


@pytest.mark.timing
@pytest.mark.parametrize("piece", ["//$ref", "$schema /*", "$ref/* * ", "$ref:/*a*/", "$ref\n//\n"])
def test_no_text_takes_long(piece: str) -> None:
    begun = time.perf_counter()
    find_added_hosts("", piece * (1_000_000 // len(piece)))
    assert time.perf_counter() - begun < 1
