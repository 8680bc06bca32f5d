"""A file is one file under all its names, and a document that shows a file in another way is not that file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.e2e.acting import chat, edit_file, reach, read_file, release, say, start_chat, start_over, write_file
from tests.e2e.conftest import Begin
from tests.support.client.actions import Request
from tests.support.client.lsp import named
from tests.support.outside import Outside, statuses
from tests.support.signing_server import Hold, Text, Thinking, Tool, answer, tool
from tests.support.watching import HANG_SECONDS

FILE, DISK, TYPED = "shared/util.py", "LIMIT = 1\n\n\nEND = 0\n", "LIMIT = 2\n\n\nEND = 0\n"
# The link, its target, and the name under which the editor has the file open.
LINKS = {
    "folder": ("app/lib", "../shared", "app/lib/util.py"),
    "file": ("app/util.py", "../shared/util.py", "app/util.py"),
}
EDIT = edit_file(FILE, "LIMIT = 2", "LIMIT = 3")
DELETE = tool("delete_file", path=FILE)
DONE = say("Done.")


async def each_link(begin: Begin, *, typed: str | None = TYPED) -> AsyncIterator[tuple[Outside, str, str]]:
    """Open the file through each kind of link, with unsaved text. Yield the server, the kind and the editor's URI."""
    outside = await begin()
    for kind, (link, target, name) in LINKS.items():
        start_over(outside, {FILE: DISK, "app/main.py": "import util\n"})
        (outside.root / link).symlink_to(target)
        if typed is not None:
            outside.open(name, typed)
        yield outside, kind, outside.uri(name)


async def play(outside: Outside, *calls: Tool, **argument: Any) -> tuple[Any, list[str]]:
    """Run a turn in which each call has its own message. Return its result and the results of the calls."""
    outside.provider.say(*(answer(Thinking(), call) for call in calls), DONE)
    result = await chat(outside, "Change it.", **argument)
    bodies = [request.body for request in outside.provider.requests[-len(calls) :]] if calls else []
    return result, [body["messages"][-1]["content"][0]["content"] for body in bodies]


async def begin_held(outside: Outside, *calls: Tool) -> tuple[Hold, Request, str]:
    """Begin a turn whose edit is made and whose answer is held. Return its token as well."""
    hold, token = Hold(), outside.token()
    outside.provider.say(*map(answer, calls), answer(Thinking(), hold, Text("Done.")))
    return hold, await reach(hold, start_chat(outside, "Change it.", token=token)), token


def disk(outside: Outside) -> str:
    return (outside.root / FILE).read_text()


async def test_a_file_behind_a_link_is_the_open_document(begin: Begin) -> None:
    search = tool("search_text", pattern="LIMIT")
    async for outside, _, uri in each_link(begin):
        result, told = await play(outside, read_file(FILE), tool("list_files"), search, EDIT, search)
        assert "LIMIT = 2" in told[0]
        assert told[1].split("\n") == ["app/main.py", FILE]
        assert told[2] == f"{FILE}\n1: LIMIT = 2"
        assert told[4] == f"{FILE}\n1: LIMIT = 3"
        assert [(file["uri"], file["status"]) for file in result["edits"]["files"]] == [(uri, "applied")]
        assert (outside.client.text(uri), disk(outside)) == (TYPED.replace("2", "3"), DISK)


async def test_all_names_are_the_file(begin: Begin) -> None:
    """The editor's name and the real name are one file for the proof of sight, too."""
    async for outside, kind, uri in each_link(begin):
        name = LINKS[kind][2]
        result, told = await play(outside, read_file(name), write_file(FILE, "LIMIT = 4\n"), edit_file(name, "4", "5"))
        assert all(FILE in text for text in told)
        assert statuses(result) == {"util.py": "applied"}
        assert (outside.client.text(uri), disk(outside)) == ("LIMIT = 5\n", DISK)


async def test_a_code_action_through_a_link(begin: Begin) -> None:
    async for outside, _, uri in each_link(begin):
        outside.provider.say(answer(Thinking(), EDIT), DONE)
        result = await outside.edit(uri)
        assert f"{FILE}, lines 1-4" in str(outside.provider.requests[-2].body["messages"])
        assert [(file["uri"], file["status"]) for file in result["edits"]["files"]] == [(uri, "applied")]
        assert (outside.client.text(uri), disk(outside)) == (TYPED.replace("2", "3"), DISK)


async def test_a_deletion_deletes_the_file_and_not_the_link(begin: Begin) -> None:
    async for outside, kind, uri in each_link(begin):
        result, _ = await play(outside, read_file(FILE), DELETE)
        if kind == "folder":
            outside.client.close_document(uri)
        assert statuses(result) == {"util.py": "applied"}
        assert not (outside.root / FILE).exists()
        assert (outside.root / LINKS[kind][0]).is_symlink()
        assert (await outside.client.command("thinklsp.undo"))["applied"] == "all"
        assert disk(outside) == TYPED


async def test_a_rename_moves_the_file_and_not_the_link(begin: Begin) -> None:
    async for outside, kind, _ in each_link(begin, typed=DISK):
        result, told = await play(outside, tool("rename_file", path=FILE, new_path="shared/new.py"))
        assert (outside.root / LINKS[kind][0]).is_symlink()
        if kind == "file":
            assert "cannot be renamed" in told[0]
            assert disk(outside) == DISK
            continue
        assert statuses(result) == {"util.py": "applied"}
        assert not (outside.root / FILE).exists()
        assert (outside.root / "shared/new.py").read_text() == DISK


@pytest.mark.parametrize("opened", [False, True])
async def test_a_document_that_opens_or_closes_meanwhile(begin: Begin, opened: bool) -> None:
    """The edit goes to the file, wherever the editor has it when the turn ends."""
    text = DISK + "# typed\n"
    async for outside, kind, uri in each_link(begin, typed=None if opened else text):
        hold, turn, _ = await begin_held(outside, edit_file(FILE, "LIMIT = 1", "LIMIT = 3"))
        if opened:
            outside.open(LINKS[kind][2], text)
        else:
            outside.client.save(uri)
            outside.client.close_document(uri)
            (outside.root / FILE).write_text(text)
        assert statuses(await release(hold, outside, turn)) == {"util.py": "applied"}
        edited = TYPED.replace("2", "3") + "# typed\n"
        assert (outside.client.text(uri), disk(outside)) == (edited, DISK if opened else edited)


async def leave(outside: Outside, uri: str) -> None:
    """Change nothing."""


async def save_and_close(outside: Outside, uri: str) -> None:
    (outside.root / FILE).write_text(str(outside.client.text(uri)))
    outside.client.save(uri)
    outside.client.close_document(uri)


async def reopen_as_itself(outside: Outside, uri: str) -> None:
    await save_and_close(outside, uri)
    outside.open(FILE, disk(outside))


async def restart(outside: Outside, uri: str) -> None:
    await save_and_close(outside, uri)
    await outside.restart()
    outside.open(FILE, disk(outside))


async def until_offered(outside: Outside, uri: str, name: str) -> Any:
    """Return the code action. The server follows links, and reads what earlier processes wrote, in the background."""
    async with asyncio.timeout(HANG_SECONDS):
        while not (actions := named(await outside.client.code_actions(uri, "LIMIT"), name)):
            pass
    return actions[0]


async def test_a_held_edit_is_offered_under_all_names(begin: Begin) -> None:
    async for outside, _, uri in each_link(begin):
        _, turn, token = await begin_held(outside, EDIT)
        outside.client.stop(token)
        assert statuses(await outside.result(turn)) == {"util.py": "held"}
        await reopen_as_itself(outside, uri)
        action = await until_offered(outside, outside.uri(FILE), "apply")
        assert (await outside.client.run_action(action))["applied"] == "all"
        assert outside.client.text(outside.uri(FILE)) == TYPED.replace("2", "3")


@pytest.mark.parametrize("change", [leave, save_and_close, reopen_as_itself, restart])
async def test_undo_finds_the_file(begin: Begin, change: Any) -> None:
    async for outside, _, uri in each_link(begin):
        await play(outside, EDIT)
        await change(outside, uri)
        now = outside.uri(FILE) if change in (reopen_as_itself, restart) else uri
        if change is not save_and_close:
            await until_offered(outside, now, "undo")
        assert (await outside.client.command("thinklsp.undo"))["applied"] == "all"
        assert outside.client.text(now) == TYPED


async def test_a_link_that_changes_meanwhile(begin: Begin) -> None:
    """The edit was made for the file, so it does not follow the link to another one."""
    async for outside, kind, uri in each_link(begin, typed=DISK):
        (outside.root / "other").mkdir()
        (outside.root / "other/util.py").write_text(DISK)
        hold, turn, _ = await begin_held(outside, edit_file(FILE, "LIMIT = 1", "LIMIT = 3"))
        link, target, _ = LINKS[kind]
        (outside.root / link).unlink()
        (outside.root / link).symlink_to(target.replace("shared", "other"))
        assert statuses(await release(hold, outside, turn)) == {"util.py": "applied"}
        assert (outside.client.text(uri), disk(outside)) == (DISK, TYPED.replace("2", "3"))


async def test_two_documents_of_one_file(begin: Begin) -> None:
    async for outside, kind, uri in each_link(begin):
        outside.open(FILE, DISK)
        result, told = await play(outside, read_file(FILE), EDIT, DELETE)
        names = f"`{FILE}` and `{LINKS[kind][2]}`"
        assert all("is open under several names with different texts" in text and names in text for text in told)
        assert result["edits"] is None
        assert (outside.client.text(uri), outside.client.text(outside.uri(FILE))) == (TYPED, DISK)
        outside.client.change(uri, TYPED, DISK)
        result, _ = await play(outside, edit_file(FILE, "LIMIT = 1", "LIMIT = 3"))
        files = [(file["uri"], file["status"]) for file in result["edits"]["files"]]
        assert files == [(outside.uri(FILE), "applied")]
        assert (outside.client.text(uri), outside.client.text(outside.uri(FILE))) == (DISK, DISK.replace("1", "3"))
        assert (await outside.client.command("thinklsp.undo"))["applied"] == "none"
        outside.client.change(uri, "LIMIT = 1", "LIMIT = 3")
        assert (await outside.client.command("thinklsp.undo"))["applied"] == "all"
        assert outside.client.text(outside.uri(FILE)) == DISK


async def test_a_link_is_no_way_around_the_guard(begin: Begin) -> None:
    outside = await begin()
    (outside.home.parent / "outside/hooks").mkdir(parents=True)
    (outside.home.parent / "outside/hooks/util.py").write_text(DISK)
    for target in ("../outside", ".git"):
        start_over(outside, {"app/main.py": "", ".git/hooks/util.py": DISK})
        (outside.root / "lib").symlink_to(target)
        uri = outside.open("lib/hooks/util.py", DISK)
        calls = edit_file("lib/hooks/util.py", "1", "3"), write_file("lib/new.py", "x = 1\n")
        result, told = await play(outside, *calls)
        assert result["edits"] is None
        assert outside.client.text(uri) == DISK
        assert all("link" in text or "protected" in text or "git" in text for text in told)


NOTEBOOK = '{"cells": [{"source": ["STALE = 1"]}]}\n'
CELLS = {"#a": "LIMIT = 1\n", "#b": "print(LIMIT)"}
CHANGES = {
    "edit": edit_file("nb.ipynb", "STALE", "FRESH"),
    "write": write_file("nb.ipynb", "{}\n"),
    "delete": tool("delete_file", path="nb.ipynb"),
    "rename": tool("rename_file", path="nb.ipynb", new_path="b.ipynb"),
}


async def begin_notebook(begin: Begin) -> tuple[Outside, str]:
    """Open a notebook of which the user has changed the cells. Return the URI of the notebook without its cells."""
    outside = await begin(files={"nb.ipynb": NOTEBOOK, "a.py": "STALE = 0\n"})
    uri = outside.uri("nb.ipynb").replace("file://", "vscode-notebook-cell:")
    for name, text in CELLS.items():
        outside.client.open(uri + name, text)
    return outside, uri


async def test_a_notebook_is_its_cells(begin: Begin) -> None:
    outside, uri = await begin_notebook(begin)
    searches = [tool("search_text", pattern="STALE|LIMIT", **more) for more in ({}, {"path": "nb.ipynb"})]
    edit = edit_file(f"{uri}#a", "LIMIT = 1", "LIMIT = 3")
    result, told = await play(
        outside, *searches, tool("list_files"), read_file("nb.ipynb"), edit, read_file("nb.ipynb")
    )
    found = f"{uri}#a\n1: LIMIT = 1\n\n{uri}#b\n1: print(LIMIT)"
    assert told[:3] == [f"a.py\n1: STALE = 0\n\n{found}", found, "a.py\nnb.ipynb"]
    assert [line.partition("\t")[2] for line in told[3].split("\n")[1:]] == [
        f"[cell {uri}#a]", "LIMIT = 1", f"[cell {uri}#b]", "print(LIMIT)",
    ]  # fmt: skip
    assert "LIMIT = 3" in told[5]
    assert statuses(result) == {"nb.ipynb#a": "applied"}
    assert outside.client.text(f"{uri}#a") == "LIMIT = 3\n"
    assert (outside.root / "nb.ipynb").read_text() == NOTEBOOK


async def test_a_notebook_is_not_changed_below_its_cells(begin: Begin) -> None:
    outside, uri = await begin_notebook(begin)
    for call in CHANGES.values():
        result, told = await play(outside, read_file("nb.ipynb"), call)
        assert "`nb.ipynb` is open as a notebook, so it cannot be changed" in told[1]
        assert f"`{uri}#a`, `{uri}#b`" in told[1]
        assert result["edits"] is None
    for cell in CELLS:
        outside.client.close_document(uri + cell)
    for call in CHANGES.values():
        (outside.root / "nb.ipynb").write_text(NOTEBOOK)
        result, _ = await play(outside, read_file("nb.ipynb"), call)
        assert result["edits"]["applied"] == "all"


async def test_a_notebook_that_opens_meanwhile_is_not_changed(begin: Begin) -> None:
    outside = await begin(files={"nb.ipynb": NOTEBOOK})
    hold, turn, _ = await begin_held(outside, CHANGES["edit"])
    outside.client.open(outside.uri("nb.ipynb").replace("file://", "vscode-notebook-cell:") + "#a", "LIMIT = 1\n")
    result = await release(hold, outside, turn)
    assert statuses(result) == {"nb.ipynb": "refused"}
    assert "open as a notebook" in result["edits"]["files"][0]["reason"]
    assert (outside.root / "nb.ipynb").read_text() == NOTEBOOK


VERSIONS = [
    'git:{path}?{{"path":"{path}","ref":"~"}}', "git:/elsewhere/a.py?HEAD", "gitlens://abc{path}?ref=1",
    "diff-left:{path}", "unknown:{path}", "vscode-local-history:/elsewhere/a.py", "fugitive://{path}//0/a.py",
]  # fmt: skip


async def test_another_version_of_a_file_is_never_written(begin: Begin) -> None:
    outside = await begin()
    for form in VERSIONS:
        start_over(outside, {"a.py": DISK})
        uri = outside.client.open(form.format(path=outside.root / "a.py"), TYPED)
        calls = (edit_file(uri, "LIMIT = 2", "LIMIT = 3"), write_file(uri, "x = 1\n"), tool("delete_file", path=uri))
        result, told = await play(outside, read_file(uri), *calls)
        assert "LIMIT = 2" in told[0]
        assert all("shows another version of a file and cannot be changed" in text for text in told[1:])
        assert result["edits"] is None
        outside.provider.say(answer(Thinking(), calls[0]), DONE)
        assert (await outside.edit(uri))["edits"] is None
        result, _ = await play(outside, edit_file("a.py", "LIMIT = 1", "LIMIT = 3"))
        assert result["edits"]["applied"] == "all"
        assert outside.client.text(uri) == TYPED


async def test_an_edit_does_not_follow_a_new_link(begin: Begin) -> None:
    """A folder that becomes a link while a turn runs leads its edit nowhere else."""
    outside = await begin()
    for calls in ([write_file("new/a.py", "x = 1\n")], [read_file(FILE), write_file(FILE, "x = 1\n")]):
        start_over(outside, {FILE: DISK, "other/util.py": DISK})
        hold, turn, _ = await begin_held(outside, *calls)
        (outside.root / "shared").rename(outside.root / "old")
        for link in ("shared", "new"):
            (outside.root / link).symlink_to("other")
        result = await release(hold, outside, turn)
        assert result["edits"]["applied"] == "none"
        assert "symbolic link" in result["edits"]["files"][0]["reason"]
        assert [path.name for path in (outside.root / "other").iterdir()] == ["util.py"]
        assert (outside.root / "other/util.py").read_text() == DISK
