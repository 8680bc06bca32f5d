"""Edits reach the client by its own buffers: read, merge, write at once, read again; or they do not happen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acp.conftest import Begin
from tests.acp.fake_zed import Avante, CodeCompanion, FakeZed, NoFiles, ReadOnly, Toad, strip_trailing
from tests.acp.talk import Talk, diffs
from tests.e2e.acting import edit_file, read_file, say, write_file
from tests.support.outside import said
from tests.support.signing_server import answer, tool

Json = Any
LINES = "".join(f"line {number}\n" for number in range(9))
FILES = {"a.py": LINES, "b.py": "y = 1\n"}
WRITE_DISK = "[acp]\nwrite_disk = true\n"
EDITS = [answer(read_file("a.py")), answer(edit_file("a.py", "line 7", "changed 7")), say("Done.")]
CHANGED = LINES.replace("line 7", "changed 7")
MIB = 1 << 20


def typing(talk: Talk, old: str, new: str, result: Any = "allow_once") -> Callable[[Any], Any]:
    """Answer a question after the user has typed."""

    def choose(params: Json) -> Json:
        talk.peer.buffers[talk.peer.path("a.py")].type(old, new)
        return {"outcome": {"outcome": "selected", "optionId": result}}

    return choose


def check_reads(talk: Talk) -> None:
    """Every write follows a read of the whole file, with nothing of that file between; and is read again."""
    log = [(r.message["method"], r.params) for r in talk.client.asked if r.message["method"].startswith("fs/")]
    for path in {params["path"] for method, params in log if method == "fs/write_text_file"}:
        own = [(method, params) for method, params in log if params["path"] == path]
        for number, (method, _) in enumerate(own):
            if method == "fs/write_text_file":
                for side in (own[number - 1], own[number + 1]):
                    assert side[0] == "fs/read_text_file"
                    assert side[1].get("line") is None
                    assert side[1].get("limit") is None


async def test_unsaved_text_is_the_base(begin: Begin) -> None:
    talk = await begin(*EDITS, files={"a.py": "old\n"})
    talk.peer.open("a.py", LINES)
    assert await talk.prompt("Change it.") == "end_turn"
    assert talk.peer.text("a.py") == (talk.root / "a.py").read_text() == CHANGED
    assert talk.edit_statuses() == ["completed"]
    check_reads(talk)


@pytest.mark.parametrize("is_saved", [False, True])
async def test_text_that_was_typed_between_prompts_is_told(begin: Begin, is_saved: bool) -> None:
    """The client announces no open documents, so the agent asks for the files that the model knows."""
    script = [answer(read_file("a.py"), read_file("b.py")), say("Read."), answer(write_file("a.py", "mine\n"))]
    talk = await begin(*script, say("Done."), files=FILES)
    buffer = talk.peer.open("a.py")
    await talk.prompt("Read it.")
    buffer.type("line 3", "typed")
    if is_saved:
        (talk.root / "a.py").write_text(buffer.text)
    await talk.prompt("Rewrite it.")
    assert "Changed since you last saw them: a.py</note>" in said(talk.provider.requests[-1].body)
    assert talk.peer.text("a.py") == LINES.replace("line 3", "typed")


@pytest.mark.parametrize("moment", ["question", "write"])
@pytest.mark.parametrize("place", ["line 1", "line 3", "line 5"])
async def test_typing_during_the_turn_is_merged(begin: Begin, moment: str, place: str) -> None:
    """Before the last read the agent merges, between it and the write the client does."""
    talk = await begin(*EDITS, files=FILES)
    buffer = talk.peer.open("a.py")
    if moment == "question":
        talk.peer.choices = [typing(talk, place, "typed\nhere")]
    else:
        talk.peer.on_write = lambda path: buffer.type(place, "typed\nhere")
    assert await talk.prompt("Change it.") == "end_turn"
    assert talk.peer.text("a.py") == CHANGED.replace(place, "typed\nhere")
    assert (talk.root / "a.py").read_text() == talk.peer.text("a.py")
    check_reads(talk)
    talk.outside.told()


async def test_conflict_keeps_the_text_of_the_user(begin: Begin) -> None:
    talk = await begin(*EDITS, files=FILES)
    talk.peer.open("a.py")
    talk.peer.choices = [typing(talk, "line 7", "mine 7")]
    assert await talk.prompt("Change it.") == "end_turn"
    assert talk.peer.writes == []
    assert talk.peer.text("a.py") == LINES.replace("line 7", "mine 7")
    assert talk.edit_statuses() == ["failed"]
    told = " ".join([talk.text, *talk.outside.told(), str([call.members for call in talk.tools("edit")])])
    assert "a.py" in told


async def test_edits_of_several_turns_do_not_double(begin: Begin) -> None:
    rounds = [
        step
        for number in range(5)
        for step in (answer(edit_file("a.py", f"line {number}\n", f"line {number}\nmore {number}\n")), say("Done."))
    ]
    talk = await begin(*rounds, files=FILES)
    talk.peer.open("a.py")
    expected = LINES
    for number in range(5):
        assert await talk.prompt("More.") == "end_turn"
        expected = expected.replace(f"line {number}\n", f"line {number}\nmore {number}\n")
        assert talk.peer.text("a.py") == expected
    check_reads(talk)


async def test_formatting_on_save_is_what_undo_knows(begin: Begin) -> None:
    talk = await begin(answer(edit_file("a.py", "line 7", "changed 7   ")), say("Done."), files=FILES)
    talk.peer.open("a.py")
    talk.peer.formats = strip_trailing
    assert await talk.prompt("Change it.") == "end_turn"
    assert talk.peer.text("a.py") == CHANGED
    assert await talk.prompt("/undo") == "end_turn"
    assert talk.peer.text("a.py") == LINES
    assert (talk.root / "a.py").read_text() == LINES
    talk.outside.told()


async def test_line_that_the_client_adds_at_the_end_is_removed(begin: Begin) -> None:
    script = [*EDITS, answer(edit_file("a.py", "line 3", "changed 3")), say("Done.")]
    talk = await begin(*script, files=FILES, peer=CodeCompanion)
    talk.peer.open("a.py")
    assert await talk.prompt("Change 7.") == "end_turn"
    assert (talk.root / "a.py").read_text() == CHANGED
    assert await talk.prompt("Change 3.") == "end_turn"
    assert (talk.root / "a.py").read_text() == CHANGED.replace("line 3", "changed 3")
    assert await talk.prompt("/undo") == "end_turn"
    assert (talk.root / "a.py").read_text() == CHANGED
    assert talk.peer.text("a.py") == CHANGED


async def test_line_break_that_the_client_adds_to_the_last_line_stays(begin: Begin) -> None:
    script = [answer(edit_file("b.py", "1", "2")), say("Done.")]
    talk = await begin(*script, files={"b.py": "y = 1"}, peer=CodeCompanion)
    talk.peer.open("b.py")
    assert await talk.prompt("Two.") == "end_turn"
    assert talk.peer.writes == [(talk.peer.path("b.py"), "y = 2")]
    assert (talk.root / "b.py").read_text() == "y = 2\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("peer", [Avante, CodeCompanion])
async def test_line_breaks_that_the_client_does_not_show_stay(begin: Begin, peer: Any, end: str) -> None:
    script = [*EDITS, answer(edit_file("a.py", "line 3", "changed 3")), say("Done.")]
    talk = await begin(*script, files=FILES, peer=peer)
    file = talk.root / "a.py"
    file.write_text(LINES, newline=end)
    if peer is Avante:
        talk.peer.open("a.py")
    assert await talk.prompt("Change 7.") == "end_turn"
    changed = CHANGED.replace("\n", end).encode()
    assert file.read_bytes() == changed
    assert await talk.prompt("Change 3.") == "end_turn"
    assert await talk.prompt("/undo") == "end_turn"
    assert file.read_bytes() == changed
    assert talk.edit_statuses() == ["completed"] * 3


@pytest.mark.parametrize("peer", [FakeZed, CodeCompanion, Toad])
async def test_new_file_has_no_old_text(begin: Begin, peer: Any) -> None:
    talk = await begin(answer(write_file("new.py", "z = 1\n")), say("Done."), files=FILES, peer=peer)
    assert await talk.prompt("Write it.") == "end_turn"
    [question] = talk.client.requests("session/request_permission")
    path = str(talk.root / "new.py")
    assert diffs(question["toolCall"]) == [{"type": "diff", "path": path, "oldText": None, "newText": "z = 1\n"}]
    assert talk.peer.writes == [(path, "z = 1\n")]
    assert (talk.root / "new.py").read_text() == "z = 1\n"
    assert talk.edit_statuses() == ["completed"]


async def test_empty_file_that_exists_is_not_new(begin: Begin) -> None:
    talk = await begin(answer(write_file("empty.py", "z = 1\n")), say("Done."), files={"empty.py": ""})
    assert await talk.prompt("Write it.") == "end_turn"
    [question] = talk.client.requests("session/request_permission")
    assert diffs(question["toolCall"])[0]["oldText"] == ""


@pytest.mark.parametrize("peer", [Toad, Avante])
async def test_folder_is_not_made_for_the_client(begin: Begin, peer: Any) -> None:
    """The client cannot write there; the file is told as failed, with a sentence."""
    talk = await begin(answer(write_file("sub/new.py", "z = 1\n")), say("Done."), peer=peer)
    assert await talk.prompt("Write it.") == "end_turn"
    assert not (talk.root / "sub").exists()
    assert talk.edit_statuses() == ["failed"]
    assert "Note: sub/new.py was not created: its folder does not exist, and the editor did not create" in talk.text
    talk.outside.told()


@pytest.mark.parametrize("peer", [FakeZed, CodeCompanion, Toad])
@pytest.mark.parametrize("name", ["delete_file", "rename_file"])
async def test_deletion_and_rename_are_refused_with_a_sentence(begin: Begin, name: str, peer: Any) -> None:
    arguments = {"path": "b.py"} | ({"new_path": "c.py"} if name == "rename_file" else {})
    script = [answer(read_file("b.py")), answer(tool(name, **arguments)), say("Done.")]
    talk = await begin(*script, files=FILES, peer=peer)
    assert await talk.prompt("Do it.") == "end_turn"
    assert (talk.root / "b.py").read_text() == "y = 1\n"
    assert not (talk.root / "c.py").exists()
    assert talk.peer.writes == []
    verb = name.removesuffix("_file")
    assert f"Note: b.py was not changed: the protocol has no way to {verb} a file" in talk.text
    talk.outside.told()


async def test_question_about_a_rename_shows_both_names(begin: Begin) -> None:
    rename = tool("rename_file", path="b.py", new_path="c.py")
    talk = await begin(answer(rename), say("Done."), files=FILES, peer=NoFiles, own=WRITE_DISK)
    assert await talk.prompt("Rename it.") == "end_turn"
    [question] = talk.client.requests("session/request_permission")
    call = question["toolCall"]
    assert (call["title"], diffs(call)) == ("rename b.py to c.py", [])
    assert "rename to c.py" in str(call["content"])
    assert await talk.prompt("/undo") == "end_turn"
    assert talk.tools("move")[-1].members["title"] == "rename c.py to b.py"
    assert (talk.root / "b.py").read_text() == "y = 1\n"
    talk.outside.told()


LARGE = "x = 1\n" + "# a line of a large file\n" * 50_000


@pytest.mark.parametrize("peer", [FakeZed, Toad])
async def test_large_file_is_not_written(begin: Begin, peer: Any) -> None:
    assert len(LARGE) > MIB
    talk = await begin(answer(edit_file("a.py", "x = 1", "x = 2")), say("Done."), files={"a.py": LARGE}, peer=peer)
    assert await talk.prompt("Change it.") == "end_turn"
    assert talk.peer.writes == []
    assert (talk.root / "a.py").read_text() == LARGE
    assert "completed" not in talk.edit_statuses()
    talk.outside.told()


async def test_file_that_is_not_text_is_not_written(begin: Begin) -> None:
    talk = await begin(answer(write_file("a.bin", "text\n")), say("Done."))
    (talk.root / "a.bin").write_bytes(b"\xff\xfe\x00\x01")
    assert await talk.prompt("Change it.") == "end_turn"
    assert talk.peer.writes == []
    assert (talk.root / "a.bin").read_bytes() == b"\xff\xfe\x00\x01"
    talk.outside.told()


@pytest.mark.parametrize("peer", [ReadOnly, NoFiles])
async def test_client_that_cannot_write_sees_the_diff(begin: Begin, peer: Any) -> None:
    talk = await begin(*EDITS, files=FILES, peer=peer)
    assert await talk.prompt("Change it.") == "end_turn"
    assert (talk.root / "a.py").read_text() == LINES
    shown = [part for call in talk.tools() for part in diffs(call.members)]
    assert [part["newText"] for part in shown] == [CHANGED]
    assert "completed" not in talk.edit_statuses()
    assert len(talk.text) > len("Done.") or talk.outside.told()
    talk.outside.told()


@pytest.mark.parametrize("peer", [ReadOnly, NoFiles])
async def test_own_writes_need_the_users_own_file(begin: Begin, peer: Any) -> None:
    script = [
        *EDITS[:2],
        answer(write_file("sub/new.py", "z = 1\n"), read_file("b.py")),
        answer(tool("delete_file", path="b.py")),
        say("Done."),
    ]
    talk = await begin(*script, files=FILES, peer=peer, own=WRITE_DISK)
    assert await talk.prompt("Change it.") == "end_turn"
    assert (talk.root / "a.py").read_text() == CHANGED
    assert (talk.root / "sub" / "new.py").read_text() == "z = 1\n"
    assert not (talk.root / "b.py").exists()
    assert talk.client.requests("session/request_permission")
    talk.outside.told()


async def test_protected_file_is_not_written(begin: Begin, tmp_path: Path) -> None:
    names = [".env", ".git/config", "../outside.py", str(tmp_path / "elsewhere.py")]
    script = [step for name in names for step in (answer(write_file(name, "x = 1\n")), say("No."))]
    talk = await begin(*script, files={".git/HEAD": "ref: x\n"})
    for _ in names:
        assert await talk.prompt("Write it.") == "end_turn"
    assert talk.peer.writes == talk.peer.reads == []
    talk.outside.told()


async def test_write_that_fails_is_told(begin: Begin) -> None:
    talk = await begin(*EDITS, files=FILES)
    talk.peer.handlers.pop("fs/write_text_file")
    assert await talk.prompt("Change it.") == "end_turn"
    assert (talk.root / "a.py").read_text() == LINES
    assert talk.edit_statuses() == ["failed"]
    talk.outside.told()


async def test_client_that_reads_nonsense_changes_nothing(begin: Begin) -> None:
    talk = await begin(files=FILES)
    for wrong in ({"content": 7}, None, {}, [], {"content": None}):
        (talk.root / "a.py").write_text(LINES)
        await talk.new_session()
        talk.provider.script[:] = EDITS
        talk.peer.handlers["fs/read_text_file"] = lambda params, wrong=wrong: wrong
        assert await talk.prompt("Change it.") == "end_turn"
        assert (talk.root / "a.py").read_text() in (LINES, CHANGED)
        talk.outside.told()


async def test_empty_read_of_a_full_file_is_not_trusted(begin: Begin) -> None:
    """A client that fails to read answers with an empty text; the file on disk is not empty."""
    talk = await begin(*EDITS, files=FILES)
    talk.peer.handlers["fs/read_text_file"] = lambda params: {"content": ""}
    assert await talk.prompt("Change it.") == "end_turn"
    assert (talk.root / "a.py").read_text() == LINES
    assert talk.peer.writes == []
    talk.outside.told()


async def test_unsaved_text_is_what_the_model_has_seen(begin: Begin) -> None:
    """The client announces no open documents, so the disk alone would look like a change."""
    script = [*(answer(read_file("a.py")), say("Read.")), answer(write_file("a.py", "x = 2\n")), say("Done.")]
    talk = await begin(*script, files={"a.py": "old\n"})
    talk.peer.open("a.py", "x = 1\n")
    for _ in range(2):
        assert await talk.prompt("Go on.") == "end_turn"
    assert talk.peer.text("a.py") == "x = 2\n"
    assert "Files are not as you know them." not in str(talk.provider.requests[-1].body)
