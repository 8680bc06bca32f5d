"""The user's look at an edit: by group in editors that can show it, by a question and a diff in those that cannot."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from lsprotocol import types

from tests.e2e.acting import edit_file, never_answer, read_file, refused, say, start_over, stop_waiting, write_file
from tests.e2e.conftest import Begin
from tests.support.client.editor import Refusal, capabilities
from tests.support.client.lsp import named
from tests.support.outside import Outside, said, statuses
from tests.support.signing_server import Tool, answer, tool

APP = "def one():\n    return 1\n\n\n" + "x = 0\n" * 20 + "def two():\n    return 2\n"
HERE = edit_file("app.py", "return 1", "return 11")
THERE = edit_file("app.py", "return 2", "return 22")
OTHER = write_file("b.py", "b = 2\n")
SCHEMA = edit_file("app.py", "return 1", 'return {"$ref": "https://example.com/?1"}')
RANGE = {"start": {"line": 0, "character": 0}, "end": {"line": 2, "character": 0}}
PLAIN = capabilities(workspace__workspaceEdit__changeAnnotationSupport=None)
BRIDGED = capabilities(workspace__workspaceEdit__changeAnnotationSupport=None, experimental__thinklsp__editor=["save"])
QUESTION = "window/showMessageRequest"


async def editing(begin: Begin, *calls: Tool, review: str = "auto", **how: Any) -> tuple[Outside, str]:
    outside = await begin(options={"edits": {"review": review}}, **how)
    return outside, prepare(outside, *calls)


def prepare(outside: Outside, *calls: Tool) -> str:
    """Let the model make these calls in the next turn, and return the URI of the open document."""
    start_over(outside, {"app.py": APP, "b.py": "b = 1\n", "old.py": "old = 1\n"})
    reading = answer(read_file("b.py"), read_file("old.py"))
    outside.provider.say(reading, answer(*calls), say("Both return more. Look twice."))
    return outside.open("app.py")


async def change(outside: Outside, uri: str) -> Any:
    return await outside.edit(uri, "Return more.", range=RANGE, version=1)


# `edits.review`, the editor -> what each annotation asks for; never can only be set by the user's own file
ANNOTATED: list[tuple[str, str | None, list[bool]]] = [
    ("auto", None, [False, True, True]),
    ("auto", "Another editor", [False, True, True]),
    ("always", None, [True, True, True]),
]


@pytest.mark.parametrize(("review", "name", "asks"), ANNOTATED)
async def test_changes_are_annotated_by_group(begin: Begin, review: str, name: str | None, asks: list[bool]) -> None:
    outside, uri = await editing(begin, HERE, THERE, OTHER, review=review, client_name=name)
    result = await change(outside, uri)
    assert result["edits"]["applied"] == "all"
    [sent] = outside.client.edits()
    notes = sent.edit.change_annotations
    assert [note.needs_confirmation for note in notes.values()] == asks
    assert [note.label for note in notes.values()] == [
        f"thinklsp: edit app.py – {where}" for where in ("app.py (line 2)", "app.py (line 26)", "b.py (line 1)")
    ]
    assert all(note.description for note in notes.values())
    assert outside.client.calls(QUESTION) == []


# The line of a bare cursor, a call -> the lines that the model gets, the number of questions
CURSORS: list[tuple[int, Tool, str, int]] = [
    (1, HERE, "lines 1-2 of 26", 0),
    (1, THERE, "lines 1-2 of 26", 1),
    (10, edit_file("app.py", "x = 0\n" * 20, "x = 1\n"), "lines 11-11 of 26", 1),
]


async def test_edit_at_a_cursor_works_on_the_definition(begin: Begin) -> None:
    outside = await begin(announce=PLAIN)
    for line, call, lines, questions in CURSORS:
        uri, asked = prepare(outside, call), len(outside.client.calls(QUESTION))
        outside.client.editor.message_answers = ["Apply"] * questions
        cursor = {"start": {"line": line, "character": 2}, "end": {"line": line, "character": 2}}
        result = await outside.edit(uri, "Return more.", range=cursor, version=1)
        assert result["edits"]["applied"] == "all"
        assert lines in said(outside.provider.requests[-3].body)
        assert len(outside.client.calls(QUESTION)) == asked + questions


# calls -> what the question tells
ASKED: list[tuple[tuple[Tool, ...], list[str]]] = [
    ((HERE, THERE), ["goes beyond", "app.py (+2 −2)"]),
    ((OTHER,), ["b.py (+1 −1)"]),
    ((tool("delete_file", path="old.py"),), ["deletes old.py"]),
    ((tool("rename_file", path="old.py", new_path="new.py"),), ["renames old.py to new.py"]),
    ((SCHEMA,), ["would change app.py (+1 −1, makes the editor download a schema from example.com)"]),
]


@pytest.mark.parametrize(
    ("review", "rows"), [("auto", ASKED), ("always", [((HERE,), ["would change app.py (+1 −1)"])])]
)
async def test_what_goes_beyond_the_request_is_asked_about(begin: Begin, review: str, rows: Any) -> None:
    outside = await begin(options={"edits": {"review": review}}, announce=PLAIN)
    for calls, told in rows:
        outside.client.editor.message_answers = ["Apply"]
        assert (await change(outside, prepare(outside, *calls)))["edits"]["applied"] == "all"
        asked = outside.client.calls(QUESTION)[-1]
        assert all(part in asked.params.message for part in told)
        assert [action.title for action in asked.params.actions] == ["Apply", "Show the diff", "Not now"]
    assert len(outside.client.calls(QUESTION)) == len(rows)


# A client, what it announces -> the text of a new file. Neovim alone inserts text in front of an empty line.
NEW_TEXTS = [("Neovim", PLAIN, "new = 1"), ("Neovim", BRIDGED, "new = 1\n"), ("Another editor", PLAIN, "new = 1\n")]


@pytest.mark.parametrize(("name", "announce", "text"), NEW_TEXTS)
async def test_new_file_ends_with_one_line_end(begin: Begin, name: str, announce: Any, text: str) -> None:
    """N3: the file had an empty line at its end."""
    call, _ = OPERATIONS["create"]
    outside, uri = await editing(begin, HERE, call, announce=announce, client_name=name)
    outside.client.editor.message_answers = ["Apply"]
    await change(outside, uri)
    *_, create, filled = outside.client.edits()[0].edit.document_changes
    assert (create.kind, [edit.new_text for edit in filled.edits]) == ("create", [text])


OPERATIONS: dict[str, tuple[Tool, str]] = {
    "create": (write_file("new.py", "new = 1\n"), "creates new.py (+1 −0)"),
    "rename": (tool("rename_file", path="old.py", new_path="new.py"), "renames old.py to new.py"),
    "delete": (tool("delete_file", path="old.py"), "deletes old.py"),
}


async def test_operation_on_a_file_is_asked_about_by_the_server(begin: Begin) -> None:
    """N1: an editor asked about the annotated hunks and deleted the file without a question."""
    outside = await begin(client_name="Another editor")
    client = outside.client
    for (call, told), reply in product(OPERATIONS.values(), ("Apply", "Not now", None)):
        uri, asked, edits = prepare(outside, HERE, call), len(client.calls(QUESTION)), len(client.edits())
        before = list_files(outside)
        client.editor.message_answers = [reply]
        result = await change(outside, uri)
        assert told in client.calls(QUESTION)[-1].params.message
        if reply == "Apply":
            assert result["edits"]["applied"] == "all"
        else:
            assert set(statuses(result).values()) == {"held"}
            assert (list_files(outside), len(client.edits())) == (before, edits)
            assert (await client.command("thinklsp.apply"))["applied"] == "all"
        assert list_files(outside) != before
        assert len(client.calls(QUESTION)) == asked + 1


# The editor -> the order of the answers. Enter chooses the first one in eglot and in menus.
ORDERS = {
    "VSCodium": ["Apply", "Show the diff", "Not now"],
    "Neovim": ["Not now", "Apply", "Show the diff"],
    "Another editor": ["Not now", "Apply", "Show the diff"],
}


@pytest.mark.parametrize(("name", "titles"), ORDERS.items())
async def test_enter_declines(begin: Begin, name: str, titles: list[str]) -> None:
    """N2: the key that dismissed a message was the yes to the next question."""
    outside, uri = await editing(begin, OTHER, announce=PLAIN, client_name=name)
    outside.client.editor.message_answers = ["Show the diff", "Not now"]
    assert set(statuses(await change(outside, uri)).values()) == {"held"}
    asked = [[action.title for action in call.params.actions] for call in outside.client.calls(QUESTION)]
    assert asked == [titles, [title for title in titles if title != "Show the diff"]]


async def test_every_file_is_named(begin: Begin) -> None:
    """N1: a deletion was mentioned in no question. Operations on files come first."""
    new = [f"new{number}.py" for number in range(20)]
    calls = [HERE, OTHER, *(write_file(name, "x = 1\n") for name in new), tool("delete_file", path="old.py")]
    outside, uri = await editing(begin, *calls, announce=PLAIN)
    await change(outside, uri)
    [asked] = outside.client.calls(QUESTION)
    created = ", ".join(f"creates {name} (+1 −0)" for name in new)
    assert f": {created}, deletes old.py, app.py (+1 −1), b.py (+1 −1). Apply it?" in asked.params.message


async def test_apply_asks_no_second_time(begin: Begin) -> None:
    """N7: with a deletion among the changes, *Apply* opened the preview again."""
    outside, uri = await editing(begin, HERE, OPERATIONS["delete"][0])
    outside.client.editor.handlers["workspace/applyEdit"] = lambda _: {"applied": False}
    assert set(statuses(await change(outside, uri)).values()) == {"refused"}
    del outside.client.editor.handlers["workspace/applyEdit"]
    assert (await outside.client.command("thinklsp.apply"))["applied"] == "all"
    asking, plain = (sent.edit.change_annotations for sent in outside.client.edits())
    assert [note.needs_confirmation for note in asking.values()] == [False, True]
    assert plain is None
    assert not (outside.root / "old.py").exists()


async def test_a_pending_new_file_can_be_shown(begin: Begin) -> None:
    """The editor cannot open the file, and compares it by the edit of `apply`. Other closed files have no actions."""
    outside, uri = await editing(begin, HERE, write_file("new.py", "new = 1\n"), announce=PLAIN, client_name="Another")
    client = outside.client
    client.editor.message_answers = ["Not now"]
    assert set(statuses(await change(outside, uri)).values()) == {"held"}
    new = (outside.root / "new.py").as_uri()
    assert await client.code_actions(outside.root.joinpath("old.py").as_uri(), RANGE) == ()
    apply, discard = await client.code_actions(new, RANGE)
    assert [action.kind.rpartition(".")[2] for action in (apply, discard)] == ["apply", "discard"]
    create, edit = apply.edit.document_changes
    assert (create.kind, create.uri, edit.edits[0].new_text) == ("create", new, "new = 1\n")
    assert not (outside.root / "new.py").exists()
    await client.run_action(discard)
    assert await client.code_actions(new, RANGE) == ()


async def test_what_waits_can_be_discarded(begin: Begin) -> None:
    """N7: no action dropped an edit that waits."""
    outside, uri = await editing(begin, HERE, OPERATIONS["delete"][0], announce=PLAIN)
    client, before = outside.client, list_files(outside)
    result = await change(outside, uri)
    assert set(statuses(result).values()) == {"held"}
    [discard] = named(await client.code_actions(uri, RANGE), "discard")
    assert discard.title.startswith("thinklsp: discard: edit app.py")
    uris = [outside.uri("app.py"), outside.uri("old.py")]
    assert await client.run_action(discard) == {"turnId": result["turnId"], "files": uris}
    assert [*named(after := await client.code_actions(uri, RANGE), "apply"), *named(after, "discard")] == []
    for command in ("apply", "discard"):
        await refused(client.command(f"thinklsp.{command}"), match="No edit is waiting")
    assert (list_files(outside), client.text(uri), client.edits()) == (before, APP, [])


def list_files(outside: Outside) -> list[str]:
    """Return the names of the files that are on disk or open in the editor."""
    names = ("app.py", "b.py", "old.py", "new.py")
    return [name for name in names if outside.client.text(outside.uri(name)) is not None]


async def test_the_diff_is_shown_and_the_user_asked_again(begin: Begin) -> None:
    outside, uri = await editing(begin, HERE, THERE, OTHER, announce=PLAIN)
    client = outside.client
    client.editor.message_answers = ["Show the diff", "Not now"]
    result = await change(outside, uri)
    assert statuses(result) == {"app.py": "held", "b.py": "held"}
    assert client.text(uri) == APP
    [shown] = client.calls("window/showDocument")
    assert shown.params.uri == outside.uri(".thinklsp/review/edit-app-py.diff")
    text = client.text(shown.params.uri)
    assert text is not None
    assert text.startswith("diff --git a/app.py b/app.py\n")
    assert all(line in text.splitlines() for line in ("-    return 2", "+    return 22", "-b = 1", "+b = 2"))
    assert (outside.root / ".thinklsp/review/.gitignore").read_text() == "*\n"
    # What was not agreed to is offered, in the files and where it can be read, and taken without a second question.
    for place in (uri, shown.params.uri):
        [apply] = named(await client.code_actions(place, RANGE), "apply")
    assert apply.edit is None
    assert (await client.run_action(apply))["applied"] == "all"
    assert (client.text(outside.uri("b.py")), len(client.calls(QUESTION))) == ("b = 2\n", 2)
    assert named(await client.code_actions(shown.params.uri, RANGE), "apply") == []


async def test_no_answer_is_no_yes(begin: Begin) -> None:
    outside = await begin(announce=PLAIN)

    def refuse(_: Any) -> Any:
        raise Refusal("this editor cannot ask")

    for number, handlers in enumerate(({}, {QUESTION: refuse})):
        uri = prepare(outside, HERE, OTHER)
        outside.client.editor.handlers = dict(handlers)
        result = await change(outside, uri)
        assert set(statuses(result).values()) == {"held"}
        assert all("apply" in file["reason"] for file in result["edits"]["files"])
        assert len(outside.client.edits()) == number
        assert (await outside.client.command("thinklsp.apply"))["applied"] == "all"
        assert outside.client.text(uri) == APP.replace("return 1", "return 11")


# the user's answer to the question about AGENTS.md -> is the edit asked about?
TRUST: dict[str, tuple[str | None, bool]] = {
    "agreed": ("Follow them", False),
    "not agreed": ("Not now", True),
    "not answered": (None, True),
}


@pytest.mark.parametrize(("given", "is_asked"), TRUST.values(), ids=TRUST)
@pytest.mark.parametrize("announce", [PLAIN, None], ids=["by a question", "by annotations"])
async def test_edits_in_an_untrusted_folder_are_asked_about(
    begin: Begin, announce: Any, given: str | None, is_asked: bool
) -> None:
    """`edits.review: auto` knew no untrusted folders."""
    outside, uri = await editing(begin, HERE, announce=announce)
    client = outside.client
    (outside.root / "AGENTS.md").write_text("Never test.")
    client.editor.message_answers = [given, *(["Apply"] if is_asked and announce else [])]
    assert (await change(outside, uri))["edits"]["applied"] == "all"
    _, *asked = client.calls(QUESTION)
    notes = (client.edits()[0].edit.change_annotations or {}).values()
    if announce:
        why = "would change files in a folder that you do not trust: app.py (+1 −1)"
        assert [one.params.message for one in asked] == is_asked * [f"thinklsp: “edit app.py” {why}. Apply it?"]
    else:
        assert [note.needs_confirmation for note in notes] == [is_asked]
        assert asked == []


# what the editor can do, calls -> the phase when the question is shown, and the phase when the edit is sent
PHASES: list[tuple[Any, tuple[Tool, ...], str | None, str]] = [
    (None, (HERE,), None, "applying"),
    (None, (HERE, THERE), None, "waiting for you"),
    (PLAIN, (HERE, THERE), "waiting for you", "applying"),
]


@pytest.mark.parametrize(("announce", "calls", "asked", "sent"), PHASES)
async def test_the_phase_names_the_user_only_if_the_user_is_asked(
    begin: Begin, announce: Any, calls: tuple[Tool, ...], asked: str | None, sent: str
) -> None:
    """An editor that applies an edit by itself is not the user."""
    outside, uri = await editing(begin, *calls, announce=announce)
    client, seen = outside.client, []

    async def reach(phase: str) -> None:
        def shown() -> bool:
            reports = [value["message"] for value in client.progress("t") if value["kind"] == "report"]
            return bool(reports) and reports[-1].startswith(f"{phase} · ")

        await client.wait_for(shown, what=f"the phase {phase}")
        seen.append(phase)

    async def question(_: Any) -> Any:
        await reach(str(asked))
        return types.MessageActionItem("Apply")

    async def apply(params: Any) -> Any:
        await reach(sent)
        return client.editor.apply_edit(params)

    client.editor.handlers |= {QUESTION: question, "workspace/applyEdit": apply}
    argument = {"name": "edit", "uri": uri, "instruction": "Return more.", "range": RANGE, "version": 1}
    result = await outside.turn("thinklsp.action", argument, token="t")
    assert result["edits"]["applied"] == "all"
    assert seen == [phase for phase in (asked, sent) if phase is not None]


async def test_a_cancel_while_the_question_stands_holds_the_edit(begin: Begin) -> None:
    outside, uri = await editing(begin, OTHER, announce=PLAIN)
    outside.client.editor.handlers[QUESTION] = never_answer
    action = {"name": "edit", "uri": uri, "instruction": "Go."}
    turn = outside.client.command("thinklsp.action", action, token="t")
    assert statuses(await stop_waiting(outside, turn, "t")) == {"b.py": "held"}
