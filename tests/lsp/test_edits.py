"""A turn's edit set as a workspace edit: versioned, minimal, and with the groups that the user looks at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.client.documents import apply_text_edits
from tests.support.in_process import as_json
from tests.support.sizes import examples
from thinklsp.core.check_results import VerificationOutcome
from thinklsp.core.choices import Review
from thinklsp.core.edits import FileEdit
from thinklsp.engine.merge_plan import FileState, MergePlan, Scope, plan_merge
from thinklsp.lsp.editor.client import ClientFeatures
from thinklsp.lsp.edits.workspace_edits import build_workspace_edit
from thinklsp.lsp.protocol.positions import Encoding

A, B = "file:///ws/a.py", "file:///ws/b.py"
BASE = "one\ntwo\nthree\nfour\n"
BARE = ClientFeatures(apply_edit=True)
VERSIONED = replace(BARE, document_changes=True)
OPERATIONS = frozenset(("create", "rename", "delete"))
ALL = replace(VERSIONED, resource_operations=OPERATIONS, change_annotations=True)


def edit(before: str | None = BASE, after: str | None = BASE.replace("two", "2"), **more: Any) -> FileEdit:
    return FileEdit(A, "a.py", before, after, **more)


def made(file: FileEdit, now: FileState, can: ClientFeatures = ALL) -> MergePlan:
    present = {file.uri: now}
    if file.new_uri is not None:
        present[file.new_uri] = FileState(None)
    return plan_merge([file], present, can.file_operations)


RENAME = edit(new_uri=B, new_path="b.py")
BOM = "\ufeff"


def test_operations_on_files_need_document_changes() -> None:
    """The operations are announced apart from them, and no edit without document changes can hold one."""
    assert ALL.file_operations == VERSIONED.file_operations | OPERATIONS == OPERATIONS
    assert replace(ALL, document_changes=False).file_operations == BARE.file_operations == frozenset()


def sent(
    result: MergePlan, can: ClientFeatures = ALL, *, review: Review = "auto", scope: Scope | None = None
) -> dict[str, Any]:
    return as_json(
        build_workspace_edit(result.mergeable, can, encoding="utf-16", title="fix it", review=review, scope=scope)
    )


def test_open_documents_have_their_exact_version_and_others_null() -> None:
    for version in (0, 7, None):
        [change] = sent(made(edit(version=3), FileState(BASE, version)), VERSIONED)["documentChanges"]
        assert change["textDocument"] == {"uri": A, "version": version}


def test_hunks_are_minimal() -> None:
    [change] = sent(made(edit(), FileState(BASE, 1)), VERSIONED)["documentChanges"]
    [hunk] = change["edits"]
    place = {"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 3}}
    assert hunk == {"range": place, "newText": "2"}


def test_clients_without_versions_get_plain_changes() -> None:
    whole = sent(made(edit(), FileState(BASE, 1), BARE), BARE)
    assert set(whole) == {"changes"}
    assert apply_text_edits(BASE, whole["changes"][A]) == "one\n2\nthree\nfour\n"


def kinds(whole: dict[str, Any]) -> list[str]:
    return [change.get("kind", "edit") for change in whole["documentChanges"]]


def test_operations_stand_in_an_order_that_can_be_done() -> None:
    create = sent(made(edit(None, "new\n"), FileState(None)))
    assert kinds(create) == ["create", "edit"]
    assert create["documentChanges"][1]["textDocument"]["version"] is None
    assert kinds(sent(made(edit(None, ""), FileState(None)))) == ["create"]
    assert kinds(sent(made(edit(after=None), FileState(BASE)))) == ["delete"]
    rename = sent(made(RENAME, FileState(BASE, 2)))
    assert kinds(rename) == ["edit", "rename"]
    assert (rename["documentChanges"][1]["oldUri"], rename["documentChanges"][1]["newUri"]) == (A, B)
    assert kinds(sent(made(edit(after=BASE, new_uri=B), FileState(BASE)))) == ["rename"]


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
    ("auto", Scope(A, (1, 1), frozenset({"a.py"})), edit(), [True]),
    ("auto", Scope(untrusted=frozenset({"a.py"})), edit(), [True]),
    ("auto", Scope(untrusted=frozenset({"b.py"})), edit(), [False]),
    ("auto", Scope(untrusted=frozenset({"a.py"})), RENAME, [True, True]),
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
    whole = sent(made(file, FileState(BASE, 1)), review=review, scope=scope)
    found = [mark for mark in marks(whole) if mark is not None]
    assert [whole["changeAnnotations"][mark]["needsConfirmation"] for mark in found] == looks
    assert all(note["label"].startswith("thinklsp: fix it – ") for note in whole["changeAnnotations"].values())
    assert set(found) == set(whole["changeAnnotations"])


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
SCHEMA = '{"$schema": "https://example.com/?secret", "a": 1}\n'
IMPORTED = STATS.replace("import math", "import math\nimport os")
NEW = FileEdit(A, "a.py", None, STATS)
LOADS = "makes the editor download a schema from example.com"
GROUPS: list[tuple[FileEdit, Scope | None, list[tuple[int, str, str, bool]]]] = [
    (
        FileEdit(A, "src/stats.py", STATS, FIXED),
        Scope(A, (3, 7)),
        [
            (2, "stats.py (lines 5–8)", "in the requested file or lines", False),
            (1, "stats.py (line 13)", "outside the requested lines", True),
            (1, "stats.py (line 20)", "outside the requested lines", True),
        ],
    ),
    (FileEdit(A, "src/stats.py", STATS, IMPORTED), Scope(B), [(1, "stats.py (line 2)", "in a different file", True)]),
    (NEW, None, [(2, "new file a.py", "requested by you", False)]),
    (NEW, Scope(untrusted=frozenset({"a.py"})), [(2, "new file a.py", "in a folder that you do not trust", True)]),
    (NEW, Scope(untrusted=frozenset({"b.py"})), [(2, "new file a.py", "requested by you", False)]),
    (FileEdit(A, "d/a.py", "x\n", None), None, [(1, "delete a.py", "deletes the file", True)]),
    (FileEdit(A, "a.json", '{"a": 1}\n', SCHEMA), Scope(A), [(1, "a.json (line 1)", LOADS, True)]),
    (FileEdit(A, "a.json", None, SCHEMA), None, [(2, "new file a.json", LOADS, True)]),
    (
        FileEdit(A, "a.py", "x\n", "y\n", new_uri=B, new_path="d/b.py"),
        None,
        [(1, "a.py (line 1)", "requested by you", False), (1, "a.py becomes b.py", "renames the file", True)],
    ),
]


@pytest.mark.parametrize(("file", "scope", "groups"), GROUPS)
def test_neighbouring_changes_are_reviewed_together(
    file: FileEdit, scope: Scope | None, groups: list[tuple[int, str, str, bool]]
) -> None:
    whole = sent(made(file, FileState(file.before, 1)), scope=scope)
    order = list(dict.fromkeys(marks(whole)))
    notes = [whole["changeAnnotations"][name] for name in order]
    assert [
        (marks(whole).count(name), note["label"], note["description"], note["needsConfirmation"])
        for name, note in zip(order, notes, strict=True)
    ] == [(count, f"thinklsp: fix it – {where}", why, asks) for count, where, why, asks in groups]


def test_every_group_tells_of_the_tests() -> None:
    files = made(edit(after=BASE.replace("two", "2")), FileState(BASE, 1)).mergeable
    for outcome, told in (
        (("pytest -q", True, 3, 0), "Verified: `pytest -q` – 3 passed in 1.5 s."),
        (("pytest -q", False, 2, 1), "Not verified: `pytest -q` – 1 failed, 2 passed in 1.5 s."),
        (("make test", True, None, None), "Verified: `make test` – succeeded in 1.5 s."),
    ):
        verified = VerificationOutcome(*outcome, 1.5).format_sentence()
        whole = as_json(build_workspace_edit(files, ALL, encoding="utf-16", title="fix it", verified=verified))
        [note] = whole["changeAnnotations"].values()
        assert note["description"] == f"requested by you. {told}"


def test_a_preview_is_never_flooded() -> None:
    before = "".join(f"line {number}\n" for number in range(2000))
    after = "".join(f"line {number}{'!' * (number % 10 == 0)}\n" for number in range(2000))
    whole = sent(made(edit(before, after), FileState(before, 1)), scope=Scope(A, (0, 1800)))
    notes = whole["changeAnnotations"]
    assert len(marks(whole)) == 200
    assert set(marks(whole)) == set(notes)
    assert len(notes) == 62
    assert [note["needsConfirmation"] for note in notes.values()][-2:] == [False, True]
    assert all(len(note["label"]) <= 120 for note in notes.values())


def test_edit_is_not_annotated_without_review_or_support() -> None:
    for can, review in ((ALL, "never"), (VERSIONED, "always")):
        whole = sent(made(edit(), FileState(BASE, 1), can), can, review=review)  # type: ignore[arg-type] # both are reviews
        assert "changeAnnotations" not in whole
        assert marks(whole) == [None]


_texts = st.lists(st.sampled_from(["a", "b", "é", "😀", "\n", "\r\n", "\r", "\f", "\u2028"]), max_size=12).map("".join)


@settings(max_examples=examples(300), deadline=None)
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
    result = made(edit(before, after), FileState(now, 5), can)
    for proposal in result.mergeable:
        whole = as_json(build_workspace_edit([proposal], can, encoding=encoding, title="t"))
        edits = whole["documentChanges"][0]["edits"] if versioned else whole["changes"][A]
        assert apply_text_edits(now, edits, encoding) == proposal.after
        assert all(set(edit["range"]) == {"start", "end"} for edit in edits)
        assert (proposal.after or "").startswith(present)
        if texts[2] == texts[0]:
            assert proposal.after == present + texts[1]
    if texts[2] == texts[0] != texts[1]:
        assert result.mergeable
