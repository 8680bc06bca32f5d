"""The real server while somebody takes its store away: told once, and a kill afterwards loses nothing that was told."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.acting import chat, reach, read_file, release, say, start_chat
from tests.e2e.conftest import Begin
from tests.support.outside import ARGV, Outside, said, server_by
from tests.support.signing_server import Hold, Redacted, Text, Thinking, answer

FILES = {"a.py": "x = 1\n"}


def put_another_database(sessions: Path) -> None:
    (sessions / "new").touch(mode=0o600)
    (sessions / "new").replace(sessions / "sessions.db")


TAKES: dict[str, Callable[[Path], object]] = {
    "the folder": shutil.rmtree,
    "the database": lambda sessions: (sessions / "sessions.db").unlink(),
    "another database": put_another_database,
}


@pytest.mark.parametrize("take", TAKES.values(), ids=TAKES)
async def test_between_turns_and_in_the_middle_of_one(begin: Begin, take: Callable[[Path], object]) -> None:
    hold = Hold()
    outside = await begin(
        say("One."),
        answer(Thinking("I look."), Redacted(), read_file("a.py")),
        answer(Thinking(), Text("Two."), before=hold),
        say("Three."),
        say("Four."),
        files=FILES,
    )
    sessions = outside.home / "state" / "sessions"
    first = await chat(outside, "One?")
    identity = first["sessionId"]

    take(sessions)
    turn = await reach(hold, start_chat(outside, "Two?", sessionId=identity, token="w"))
    assert "was removed or replaced while it was in use" in await outside.until_told(str(sessions / "sessions.db"))
    assert (await release(hold, outside, turn))["text"] == "Two."

    await outside.restart(kill=True)
    hold = Hold()
    outside.provider.say(answer(Text("Five."), before=hold), say("Six."))  # type: ignore[attr-defined] # a signing server
    for number in ("Three", "Four"):
        result = await chat(outside, f"{number}?", sessionId="last")
        assert (result["sessionId"], result["text"]) == (identity, f"{number}.")
    turn = await reach(hold, start_chat(outside, "Five?", sessionId=identity, token="w"))
    take(sessions)
    assert (await release(hold, outside, turn))["text"] == "Five."
    assert "The latest sessions from this process were saved again" in await outside.until_told("in use")
    # What the terminal says of it comes from the disk.
    await outside.restart(kill=True)
    [entry] = await outside.client.command("thinklsp.sessions", {"op": "list"})
    assert (entry["sessionId"], entry["steps"]) == (identity, 6)
    await chat(outside, "Six?", sessionId="last")
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


async def test_in_a_folder_that_is_made_read_only(begin: Begin) -> None:
    outside: Outside = await begin(
        *(say(f"{number}.") for number in ("One", "Two", "Three", "Four")), connect=server_by(held_by_modes(ARGV))
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
