"""The real server while somebody takes its store away: told once, and a kill afterwards loses nothing that was told."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.outside import ARGV, Outside, said, server_by
from tests.support.signing_script import Hold, Redacted, Text, Thinking, answer, tool

FILES = {"a.py": "x = 1\n"}


def the_folder(sessions: Path) -> None:
    shutil.rmtree(sessions)


def the_database(sessions: Path) -> None:
    (sessions / "sessions.db").unlink()


def another_database(sessions: Path) -> None:
    (sessions / "new").touch(mode=0o600)
    (sessions / "new").replace(sessions / "sessions.db")


TAKES = [the_folder, the_database, another_database]


@pytest.mark.parametrize("take", TAKES, ids=lambda take: take.__name__)
async def test_between_turns_and_in_the_middle_of_one(begin: Begin, take: Callable[[Path], None]) -> None:
    hold = Hold()
    outside = await begin(
        answer(Text("One.")),
        answer(Thinking("I look."), Redacted(), tool("read_file", path="a.py")),
        answer(Thinking(), Text("Two."), before=hold),
        answer(Text("Three.")),
        answer(Text("Four.")),
        files=FILES,
    )
    sessions = outside.home / "state" / "sessions"
    first = await outside.turn("thinklsp.chat", {"prompt": "One?"})
    identity = first["sessionId"]

    take(sessions)
    turn = outside.client.command("thinklsp.chat", {"prompt": "Two?", "sessionId": identity}, token="w")
    await hold.reached.wait()
    assert "was removed or replaced while it was in use" in await outside.until_told(str(sessions / "sessions.db"))
    hold.release()
    assert (await outside.result(turn))["text"] == "Two."

    await outside.restart(kill=True)
    hold = Hold()
    outside.provider.say(answer(Text("Five."), before=hold), answer(Text("Six.")))  # type: ignore[attr-defined] # a signing server
    for number in ("Three", "Four"):
        result = await outside.turn("thinklsp.chat", {"prompt": f"{number}?", "sessionId": "last"})
        assert (result["sessionId"], result["text"]) == (identity, f"{number}.")
    turn = outside.client.command("thinklsp.chat", {"prompt": "Five?", "sessionId": identity}, token="w")
    await hold.reached.wait()
    take(sessions)
    hold.release()
    assert (await outside.result(turn))["text"] == "Five."
    assert "The session that this program has worked on stays" in await outside.until_told("in use")
    # What the terminal says of it comes from the disk.
    await outside.restart(kill=True)
    [entry] = await outside.client.command("thinklsp.sessions", {"op": "list"})
    assert (entry["sessionId"], entry["steps"]) == (identity, 6)
    await outside.turn("thinklsp.chat", {"prompt": "Six?", "sessionId": "last"})
    told = said(outside.provider.requests[-1].body)  # type: ignore[attr-defined] # a signing server
    assert all(f"{number}." in told for number in ("One", "Two", "Three", "Four", "Five"))


def held_by_modes(argv: list[str]) -> list[str]:
    """Root may write everywhere: then the server runs without that right."""
    if os.getuid() != 0:
        return argv
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("root cannot be kept from writing here")
    return [setpriv, "--bounding-set", "-dac_override,-dac_read_search", "--", *argv]


@pytest.mark.skipif(sys.platform == "win32", reason="folders have no modes there")
async def test_in_a_folder_that_is_made_read_only(begin: Begin) -> None:
    outside: Outside = await begin(
        *(answer(Text(f"{number}.")) for number in ("One", "Two", "Three", "Four")),
        connect=server_by(held_by_modes(ARGV)),
    )
    sessions = outside.home / "state" / "sessions"

    async def ask(number: str, **argument: str) -> Any:
        result = await outside.turn("thinklsp.chat", {"prompt": f"{number}?"} | argument)
        assert result["text"] == f"{number}."
        return result["sessionId"]

    identity = await ask("One")
    folders = (sessions / "locks", sessions, sessions.parent)
    for folder in folders:
        folder.chmod(0o500)
    await ask("Two", sessionId=identity)
    new = await ask("Three")
    await outside.kill()
    for folder in reversed(folders):
        folder.chmod(0o700)
    assert outside.told() == []
    await outside.restart(kill=True)
    listed = await outside.client.command("thinklsp.sessions", {"op": "list"})
    assert {entry["sessionId"]: entry["steps"] for entry in listed} == {identity: 2, new: 1}
    await ask("Four", sessionId=identity)
