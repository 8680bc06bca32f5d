"""A turn's edit set as a workspace edit: merged, versioned, minimal, and for each file what became of it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.raw_documents import apply_text_edits
from thinklsp.core.choices import Review
from thinklsp.core.edits import FileEdit
from thinklsp.core.problems import Verified
from thinklsp.lsp.editor.client import Abilities
from thinklsp.lsp.editor.present import Present
from thinklsp.lsp.edits.drafts import Draft, Scope, draft
from thinklsp.lsp.edits.fetched import newly_fetched
from thinklsp.lsp.edits.workspace_edits import workspace_edit
from thinklsp.lsp.protocol.convert import Encoding

A, B = "file:///ws/a.py", "file:///ws/b.py"
BASE = "one\ntwo\nthree\nfour\n"
ALL = Abilities(
    apply_edit=True,
    document_changes=True,
    resource_operations=frozenset(("create", "rename", "delete")),
    change_annotations=True,
)
BARE = Abilities(apply_edit=True)
VERSIONED = Abilities(apply_edit=True, document_changes=True)


def edit(before: str | None = BASE, after: str | None = BASE.replace("two", "2"), **more: Any) -> FileEdit:
    return FileEdit(A, "a.py", before, after, **more)


def made(
    file: FileEdit, now: Present, can: Abilities = ALL, *, wins: bool = False, target: Present | None = None
) -> Draft:
    present = {file.uri: now}
    if file.new_uri is not None:
        present[file.new_uri] = target or Present(None)
    told = {file.uri: now.text} if wins and now.text is not None else {}
    return draft([file], present, can, told=told)


def text_of(result: Draft) -> str | None:
    [proposal] = result.ready
    assert result.left_out == ()
    return proposal.after


RENAME = edit(new_uri=B, new_path="b.py")
BOM = "\ufeff"

# name -> the turn's edit, the file as it is now, and the text that it will have or the status it gets.
DRAFTS: dict[str, tuple[FileEdit, Present, str | None]] = {
    "unchanged": (edit(version=3), Present(BASE, 3), "one\n2\nthree\nfour\n"),
    "not open": (edit(), Present(BASE), "one\n2\nthree\nfour\n"),
    "merged": (edit(version=3), Present(f"zero\n{BASE}".replace("four", "4"), 9), "zero\none\n2\nthree\n4\n"),
    "the same change by the user": (edit(), Present(BASE.replace("two", "2"), 4), "applied"),
    "the same place": (edit(), Present(BASE.replace("two", "zwei"), 4), "conflict"),
    "the next line": (edit(), Present(BASE.replace("three", "drei"), 4), "conflict"),
    "deleted meanwhile": (edit(), Present(None), "conflict"),
    "out of step": (edit(), Present(BASE, 4, desynced=True), "refused"),
    "refused by its path": (edit(), Present(None, refusal="`a.py` is protected."), "refused"),
    "created": (edit(None, "new\n"), Present(None), "new\n"),
    "created empty": (edit(None, ""), Present(None), ""),
    "created meanwhile": (edit(None, "new\n"), Present("other\n"), "conflict"),
    "created meanwhile with this text": (edit(None, "new\n"), Present("new\n"), "applied"),
    "deleted": (edit(after=None), Present(BASE), None),
    "deleted after a change": (edit(after=None), Present(f"{BASE}more\n"), "conflict"),
    "renamed": (edit(after=BASE, new_uri=B), Present(BASE), BASE),
    "renamed and changed": (RENAME, Present(BASE, 4), "one\n2\nthree\nfour\n"),
    "a mark in the buffer only": (edit(), Present(f"{BOM}{BASE}", 4), f"{BOM}one\n2\nthree\nfour\n"),
    "a mark in the turn's text only": (edit(BOM + BASE, f"{BOM}1\n{BASE[4:]}"), Present(BASE), f"1\n{BASE[4:]}"),
    "a mark in all, its line changed": (
        edit(BOM + BASE, f"{BOM}1\n{BASE[4:]}"), Present(BOM + BASE, 4), f"{BOM}1\n{BASE[4:]}"
    ),
    "a mark, deleted": (edit(BOM + BASE, None), Present(BOM + BASE), None),
    "a mark on one side, deleted": (edit(BASE, None), Present(BOM + BASE), None),
}  # fmt: skip
STATUSES = {"applied", "conflict", "refused"}


@pytest.mark.parametrize("case", DRAFTS)
def test_drafts(case: str) -> None:
    file, now, expected = DRAFTS[case]
    result = made(file, now)
    if expected not in STATUSES:
        assert text_of(result) == expected
        return
    assert result.ready == ()
    [status] = result.left_out
    assert (status.uri, status.status) == (A, expected)
    assert (status.reason is None) == (expected == "applied")


@pytest.mark.parametrize(
    ("now", "after"),
    [
        (Present(BASE.replace("two", "zwei"), 4), "one\n2\nthree\nfour\n"),
        (Present(BASE.replace("two", "zwei").replace("four", "4"), 4), "one\n2\nthree\n4\n"),
    ],
)
def test_a_conflict_that_the_user_knows_takes_the_text_of_the_turn(now: Present, after: str) -> None:
    assert text_of(made(edit(), now, wins=True)) == after


def test_a_conflict_names_the_lines_that_the_user_sees() -> None:
    [status] = made(edit(), Present(BASE.replace("two", "zwei"), 4)).left_out
    assert status.reason is not None
    assert "line 2" in status.reason


ABILITIES: list[tuple[str, FileEdit, Present]] = [
    ("create", edit(None, "x"), Present(None)),
    ("delete", edit(after=None), Present(BASE)),
    ("rename", RENAME, Present(BASE)),
]


@pytest.mark.parametrize(("ability", "file", "now"), ABILITIES)
def test_what_the_editor_cannot_do_is_refused_with_the_reason(ability: str, file: FileEdit, now: Present) -> None:
    without = Abilities(apply_edit=True, document_changes=True, resource_operations=ALL.resource_operations - {ability})
    unversioned = Abilities(apply_edit=True, resource_operations=ALL.resource_operations)
    for can in (without, unversioned, BARE):
        [status] = made(file, now, can).left_out
        assert status.status == "refused"
        assert ability in (status.reason or "")
    assert made(file, now).ready


def sent(result: Draft, can: Abilities = ALL, *, review: Review = "auto", scope: Scope | None = None) -> dict[str, Any]:
    return workspace_edit(result.ready, can, encoding="utf-16", title="fix it", review=review, scope=scope)


def test_open_documents_have_their_exact_version_and_others_null() -> None:
    for version in (0, 7, None):
        [change] = sent(made(edit(version=3), Present(BASE, version)), VERSIONED)["documentChanges"]
        assert change["textDocument"] == {"uri": A, "version": version}


def test_hunks_are_minimal() -> None:
    [change] = sent(made(edit(), Present(BASE, 1)), VERSIONED)["documentChanges"]
    [hunk] = change["edits"]
    assert hunk == {
        "range": {"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 3}},
        "newText": "2",
    }


def test_clients_without_versions_get_plain_changes() -> None:
    whole = sent(made(edit(), Present(BASE, 1), BARE), BARE)
    assert set(whole) == {"changes"}
    assert apply_text_edits(BASE, whole["changes"][A]) == "one\n2\nthree\nfour\n"


def kinds(whole: dict[str, Any]) -> list[str]:
    return [change.get("kind", "edit") for change in whole["documentChanges"]]


def test_operations_stand_in_an_order_that_can_be_done() -> None:
    create = sent(made(edit(None, "new\n"), Present(None)))
    assert kinds(create) == ["create", "edit"]
    assert create["documentChanges"][1]["textDocument"]["version"] is None
    assert kinds(sent(made(edit(None, ""), Present(None)))) == ["create"]
    assert kinds(sent(made(edit(after=None), Present(BASE)))) == ["delete"]
    rename = sent(made(RENAME, Present(BASE, 2)))
    assert kinds(rename) == ["edit", "rename"]
    assert (rename["documentChanges"][1]["oldUri"], rename["documentChanges"][1]["newUri"]) == (A, B)
    assert kinds(sent(made(edit(after=BASE, new_uri=B), Present(BASE)))) == ["rename"]


def test_a_new_name_that_has_been_taken_meanwhile_is_not_overwritten() -> None:
    [status] = made(RENAME, Present(BASE), target=Present("theirs\n")).left_out
    assert status.status == "conflict"


# review, scope and edit -> does each change, in order, ask for a look?
LOOKS: list[tuple[Review, Scope | None, FileEdit, list[bool]]] = [
    ("auto", None, edit(), [False]),
    ("auto", Scope(A), edit(), [False]),
    ("auto", Scope(A, (1, 1)), edit(), [False]),
    ("auto", Scope(A, (3, 3)), edit(), [True]),
    ("auto", Scope(B), edit(), [True]),
    ("auto", Scope(A, (0, 1)), edit(after="1\ntwo\nthree\n4\n"), [False, True]),
    ("auto", Scope(A), edit(after=None), [True]),
    ("auto", Scope(A), RENAME, [False, True]),
    ("auto", None, edit(after=None), [True]),
    ("auto", Scope(A, (1, 1), frozenset({A})), edit(), [True]),
    ("auto", Scope(untrusted=frozenset({A})), edit(), [True]),
    ("auto", Scope(untrusted=frozenset({B})), edit(), [False]),
    ("auto", Scope(untrusted=frozenset({A})), RENAME, [True, True]),
    ("always", Scope(A), edit(), [True]),
    ("always", None, RENAME, [True, True]),
]


def marks(whole: dict[str, Any]) -> list[str | None]:
    found: list[str | None] = []
    for change in whole["documentChanges"]:
        found += [part.get("annotationId") for part in change.get("edits", [change])]
    return found


@pytest.mark.parametrize(("review", "scope", "file", "looks"), LOOKS)
def test_changes_that_the_user_did_not_ask_for_want_a_look(
    review: Review, scope: Scope | None, file: FileEdit, looks: list[bool]
) -> None:
    whole = sent(made(file, Present(BASE, 1)), review=review, scope=scope)
    found = [mark for mark in marks(whole) if mark is not None]
    assert [whole["changeAnnotations"][mark]["needsConfirmation"] for mark in found] == looks
    assert all(note["label"].startswith("thinklsp: fix it – ") for note in whole["changeAnnotations"].values())
    assert set(found) == set(whole["changeAnnotations"])


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
    assert newly_fetched("", text) == hosts
    assert newly_fetched(text, f"{text} ") == []
    other = text.replace("example", "other")
    assert newly_fetched(other, text) == hosts


@pytest.mark.parametrize("piece", ["//$ref", "$schema /*", "$ref/* * ", "$ref:/*a*/", "$ref\n//\n"])
def test_no_text_takes_long(piece: str) -> None:
    begun = time.perf_counter()
    newly_fetched("", piece * (1_000_000 // len(piece)))
    assert time.perf_counter() - begun < 1


STATS = """import math


def mean(values):
    total = sum(values)
    count = len(values)

    return total / (count - 1)


class Sample:
    def spread(self):
        low = min(self.values)
        # one
        # two
        # three
        # four
        # five
        high = max(self.values)
        return high + low
"""
FIXED = (
    STATS.replace("count - 1", "count")
    .replace("= sum(values)", "= math.fsum(values)")
    .replace("high + low", "high - low")
    .replace("low = min", "lowest = min")
)
# edit and scope -> groups: how many changes they hold, where they are, why they are there, whether they are asked about
GROUPS: list[tuple[FileEdit, Scope | None, list[tuple[int, str, str, bool]]]] = [
    (
        FileEdit(A, "src/stats.py", STATS, FIXED),
        Scope(A, (3, 7)),
        [
            (2, "stats.py: mean() (lines 5–8)", "where you asked for it", False),
            (2, "stats.py: spread() (lines 13–20)", "outside the lines that you asked about", True),
        ],
    ),
    (
        FileEdit(A, "src/stats.py", STATS, STATS.replace("import math", "import math\nimport os")),
        Scope(B),
        [(1, "stats.py (line 2)", "in another file than the one that you asked about", True)],
    ),
    (FileEdit(A, "a.py", None, STATS), None, [(2, "new file a.py", "what you asked for", False)]),
    (
        FileEdit(A, "a.py", None, STATS),
        Scope(untrusted=frozenset({A})),
        [(2, "new file a.py", "in a folder whose instructions you have not agreed to", True)],
    ),
    (
        FileEdit(A, "a.py", None, STATS),
        Scope(untrusted=frozenset({B})),
        [(2, "new file a.py", "what you asked for", False)],
    ),
    (FileEdit(A, "d/a.py", "x\n", None), None, [(1, "delete a.py", "deletes the file", True)]),
    (
        FileEdit(A, "a.json", '{"a": 1}\n', '{"$schema": "https://example.com/?secret", "a": 1}\n'),
        Scope(A),
        [(1, "a.json (line 1)", "makes editors load from example.com", True)],
    ),
    (
        FileEdit(A, "a.json", None, '{"$schema": "https://example.com/a.json"}\n'),
        None,
        [(2, "new file a.json", "makes editors load from example.com", True)],
    ),
    (
        FileEdit(A, "a.py", "x\n", "y\n", new_uri=B, new_path="d/b.py"),
        None,
        [(1, "a.py (line 1)", "what you asked for", False), (1, "a.py becomes b.py", "renames the file", True)],
    ),
]


@pytest.mark.parametrize(("file", "scope", "groups"), GROUPS)
def test_neighbouring_changes_are_reviewed_together(
    file: FileEdit, scope: Scope | None, groups: list[tuple[int, str, str, bool]]
) -> None:
    whole = sent(made(file, Present(file.before, 1)), scope=scope)
    order = list(dict.fromkeys(marks(whole)))
    notes = [whole["changeAnnotations"][name] for name in order]
    assert [
        (marks(whole).count(name), note["label"], note["description"], note["needsConfirmation"])
        for name, note in zip(order, notes, strict=True)
    ] == [(count, f"thinklsp: fix it – {where}", why, asks) for count, where, why, asks in groups]


def test_every_group_tells_of_the_tests() -> None:
    files = made(edit(after=BASE.replace("two", "2")), Present(BASE, 1)).ready
    for tests, told in (
        (Verified("pytest -q", True, 3, 0, 1.5), "Verified: `pytest -q` – 3 passed in 1.5 s."),
        (Verified("pytest -q", False, 2, 1, 1.5), "Not verified: `pytest -q` – 1 failed, 2 passed in 1.5 s."),
        (Verified("make test", True, None, None, 1.5), "Verified: `make test` – succeeded in 1.5 s."),
    ):
        whole = workspace_edit(files, ALL, encoding="utf-16", title="fix it", verified=tests.sentence())
        [note] = whole["changeAnnotations"].values()
        assert note["description"] == f"what you asked for. {told}"


def test_a_preview_is_never_flooded() -> None:
    before = "".join(f"line {number}\n" for number in range(2000))
    after = "".join(f"line {number}{'!' * (number % 10 == 0)}\n" for number in range(2000))
    whole = sent(made(edit(before, after), Present(before, 1)), scope=Scope(A, (0, 1800)))
    notes = whole["changeAnnotations"]
    assert len(marks(whole)) == 200
    assert set(marks(whole)) == set(notes)
    assert len(notes) == 62
    assert [note["needsConfirmation"] for note in notes.values()][-2:] == [False, True]
    assert all(len(note["label"]) <= 120 for note in notes.values())


def test_without_review_or_without_the_ability_nothing_is_annotated() -> None:
    for can, review in ((ALL, "never"), (VERSIONED, "always")):
        whole = sent(made(edit(), Present(BASE, 1), can), can, review=review)  # type: ignore[arg-type] # both are reviews
        assert "changeAnnotations" not in whole
        assert marks(whole) == [None]


_texts = st.lists(st.sampled_from(["a", "b", "é", "😀", "\n", "\r\n", "\r", "\f", "\u2028"]), max_size=12).map("".join)


@settings(max_examples=300, deadline=None)
@given(
    st.tuples(_texts, _texts, _texts),
    st.sampled_from(["", BOM]),
    st.sampled_from(["", BOM]),
    st.sampled_from(["utf-8", "utf-16", "utf-32"]),
    st.booleans(),
)
def test_what_is_sent_gives_what_was_promised(
    texts: tuple[str, str, str], known: str, present: str, encoding: Encoding, versioned: bool
) -> None:
    """A stale document is merged or refused, never overwritten: the text is ours, theirs, or has all of both."""
    can = ALL if versioned else BARE
    before, after, now = known + texts[0], known + texts[1], present + texts[2]
    result = made(edit(before, after), Present(now, 5), can)
    for proposal in result.ready:
        whole = workspace_edit([proposal], can, encoding=encoding, title="t")
        edits = whole["documentChanges"][0]["edits"] if versioned else whole["changes"][A]
        assert apply_text_edits(now, edits, encoding) == proposal.after
        assert all(set(edit["range"]) == {"start", "end"} for edit in edits)
        assert (proposal.after or "").startswith(present)
        if texts[2] == texts[0]:
            assert proposal.after == present + texts[1]
    if texts[2] == texts[0] != texts[1]:
        assert result.ready
