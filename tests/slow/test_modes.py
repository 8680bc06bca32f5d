"""Only the owner can read the files of any session, even with umask 0 and if parent folders are missing."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.slow.running import Tally, running
from tests.support.client.actions import ResponseError
from tests.support.outside import ROOT, Connect, Outside, loose_files
from tests.support.shadowing import needs_sandbox
from tests.support.signing_server import Cut, Failure, Redacted, Text, Thinking, answer, tool
from tests.support.watching import seen

FIXTURE = ROOT / "tests/fixtures/sessions/version_1.sql"


@dataclass
class Scene:
    """`user` contains everything of the user, and is empty at first."""

    outside: Outside
    user: Path

    @property
    def state(self) -> Path:
        return self.user / "local/state/thinklsp"

    async def chat(self, *answers: Any, **argument: Any) -> None:
        self.outside.provider.say(*answers)
        try:
            await self.outside.turn("thinklsp.chat", {"prompt": "Go."} | argument)
        except ResponseError:
            self.outside.told()

    async def terminal(self, *arguments: str) -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "thinklsp", *arguments, cwd=self.outside.root, env=self.outside.variables, umask=0,
            stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await process.communicate()
        assert process.returncode == 0, said


SAID = answer(Thinking(), Redacted(), Text("Said."))


async def chat(at: Scene) -> None:
    await at.chat(SAID)


async def error(at: Scene) -> None:
    await at.chat(Failure(400, "invalid_request_error", "no"))
    at.outside.client.notify("textDocument/didChange", {"textDocument": {"uri": 1}, "contentChanges": []})
    await seen((at.state / "thinklsp.log").exists)


async def cut(at: Scene) -> None:
    await at.chat(answer(Thinking(), Cut()), SAID)


async def trusted(at: Scene) -> None:
    (at.outside.root / "AGENTS.md").write_text("Be kind.")
    at.outside.client.editor.message_answers = ["Follow them"]
    await at.chat(SAID)
    assert (at.user / "config/thinklsp/permissions.toml").exists()


async def command(at: Scene) -> None:
    config = at.user / "config/thinklsp/config.toml"
    config.parent.mkdir(parents=True, mode=0o700)
    config.parent.parent.chmod(0o700)
    config.write_text('[commands]\nenabled = true\n[permissions]\nallow = [["sleep", "1"]]\n')
    config.chmod(0o600)
    await at.outside.restart()
    turn = asyncio.create_task(at.chat(answer(tool("run_command", argv=["sleep", "1"])), SAID))
    await seen(lambda: any((at.state / "shadow").glob("*/*")))
    while not turn.done():
        assert open_to_others(at.state) == []
        await asyncio.wait([turn], timeout=0.05)
    await turn


async def killed(at: Scene) -> None:
    await at.chat(SAID)
    assert (at.state / "sessions/sessions.db-wal").exists()
    await at.outside.restart(kill=True)


async def old(at: Scene) -> None:
    (at.state / "sessions").mkdir(parents=True)
    for folder in (at.user / "local", at.user / "local/state", at.state, at.state / "sessions"):
        folder.chmod(0o700)
    with closing(sqlite3.connect(at.state / "sessions/sessions.db")) as connection:
        connection.executescript(FIXTURE.read_text())
    await at.outside.restart()
    await at.chat(SAID)
    assert list(at.state.glob("sessions/sessions.db.before-version-*"))


async def damaged(at: Scene) -> None:
    await at.chat(SAID)
    await at.outside.kill()
    for path in at.state.glob("sessions/sessions.db*"):
        path.write_bytes(b"SQLite format 3\0" + b"nonsense" * 1000)
    await at.outside.restart(kill=True)
    await at.chat(SAID)
    at.outside.told()
    assert list(at.state.glob("sessions/sessions.db.corrupt-*"))


async def exported(at: Scene) -> None:
    await at.chat(SAID)
    for form in ("markdown", "json"):
        await at.terminal("sessions", "export", "last", "--format", form, "-o", str(at.user / f"talk.{form}"))


async def asked_in_the_terminal(at: Scene) -> None:
    state = at.user / "never/seen/before"
    at.outside.variables["THINKLSP_STATE_DIR"] = str(state)
    at.outside.provider.say(SAID)
    await at.terminal("ask", "Go.")
    assert (state / "sessions/sessions.db").exists()


KINDS: dict[str, Callable[[Scene], Awaitable[None]]] = {
    kind.__name__.replace("_", " "): kind
    for kind in (chat, error, cut, trusted, command, killed, old, damaged, exported, asked_in_the_terminal)
}


def open_to_others(folder: Path) -> list[str]:
    """Ignore copies of workspace files: they keep their modes, in a folder that only the owner can enter."""
    return [loose for loose in loose_files(folder) if not re.search(r"/shadow/[0-9a-f]{16}/", loose)]


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[needs_sandbox, pytest.mark.kernel]) if kind == "command" else kind for kind in KINDS],
)
async def test_nobody_else_can_read_what_is_written(tmp_path: Path, servers: Connect, kind: str, tally: Tally) -> None:
    user = tmp_path / "user"
    user.mkdir(mode=0o700)
    variables: dict[str, str | None] = {
        "HOME": str(user), "THINKLSP_STATE_DIR": str(user / "local/state/thinklsp"),
        "XDG_CONFIG_HOME": str(user / "config"),
    }  # fmt: skip
    async with running(tmp_path / "x", env=variables, connect=servers, finish=False) as outside:
        at = Scene(outside, user)
        await KINDS[kind](at)
        assert open_to_others(user) == []
        assert await outside.client.close() == 0
    assert loose_files(user) == []
    assert any(path.is_file() for path in user.rglob("*"))
    tally("A-33", 1)
