"""The product from outside: the real server process, an editor that shares no code with it, and a signing provider.

A test holds an `Outside` and ends with `finish`, which checks for a clean exit, no violation of the protocol or of the
provider's rules, no unexpected message, and no secret outside of the store.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
import sys
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.canary import Canary
from tests.support.client.actions import Editing, Request
from tests.support.client.documents import range_of
from tests.support.client.raw import RawClient
from tests.support.signing_server import Script, SigningServer
from tests.support.sizes import STEP

Json = Any
ROOT = Path(__file__).parents[2]
WATCHED = ROOT / "tests" / "support" / "watched"
# For tests in which the thread of the watch would count.
UNWATCHED: dict[str, str | None] = {"LOOP_WATCH": None}
MODEL = "claude-opus-5-5"
ARGV = [sys.executable, "-m", "thinklsp"]

TURN_RESULT = {
    "turnId", "sessionId", "stopReason", "text", "thinking", "edits", "verified", "findings", "usage", "notices",
}  # fmt: skip
USAGE = {
    "inputTokens", "outputTokens", "thinkingTokens", "cacheReadTokens", "cacheWriteTokens", "costUsd",
}  # fmt: skip
STOP_REASONS = {
    "end_turn", "cancelled", "refusal", "max_tokens", "max_steps", "budget", "context_window",
}  # fmt: skip


Connect = Callable[[Path, Mapping[str, str]], Awaitable[Any]]


def server_by(argv: Sequence[str], client: type[Editing] = RawClient) -> Connect:
    """Return a function that starts a server for one client."""

    async def connect(root: Path, variables: Mapping[str, str]) -> Editing:
        return await client.start(argv, cwd=root, env=variables)

    return connect


own_server = server_by(ARGV)

_RUN = """
import runpy, sys
sys.argv = ["thinklsp"]
runpy.run_module("thinklsp", run_name="__main__", alter_sys=True)
"""


def server_with(program: str, client: type[Editing] = RawClient) -> Connect:
    """Return a function that starts a server in which this Python code runs first, to plant a fault."""
    return server_by([sys.executable, "-c", program + _RUN], client)


@dataclass
class Outside:
    """A server with its editor and provider.

    `home` contains all folders that the server may write to, and `root` is the workspace. `variables` are the server's
    environment, and `announce` the editor's capabilities. `connect` starts a server.
    """

    client: Any
    provider: Any
    root: Path
    home: Path
    variables: dict[str, str]
    announce: Json
    _read: set[int] = field(default_factory=set)
    _tokens: int = 0
    results: list[Json] = field(default_factory=list)
    others: list[Outside] = field(default_factory=list)
    past: list[Any] = field(default_factory=list)
    connect: Connect = own_server

    @property
    def pair(self) -> tuple[Any, Any]:
        return self.client, self.provider

    def uri(self, name: str) -> str:
        return (self.root / name).as_uri()

    def open(self, name: str, text: str | None = None) -> str:
        return str(self.client.open(self.uri(name), text))

    def token(self) -> str:
        self._tokens += 1
        return f"turn-{self._tokens}"

    async def turn(self, command: str, argument: Json = None, *, token: str | None = None) -> Json:
        """Run a command with a work-done token, and return the checked TurnResult."""
        return await self.result(self.client.command(command, argument, token=token or self.token()))

    async def result(self, request: Request) -> Json:
        result = await request
        check_turn_result(result)
        self.results.append(result)
        return result

    async def edit(self, uri: str, instruction: str = "Change it.", **argument: Any) -> Json:
        return await self.turn("thinklsp.action", {"name": "edit", "uri": uri, "instruction": instruction} | argument)

    def told(self) -> list[str]:
        """Return the unread messages. At its end, a test fails if there are any."""
        new = self._unread()
        self._read.update(new)
        return [*new.values()]

    def _unread(self) -> dict[int, str]:
        """Return the messages that no test has read, by their number."""
        return {number: text for number, text in enumerate(self.client.messages()) if number not in self._read}

    async def until_told(self, *parts: str) -> str:
        """Wait for one message that contains all parts, ignoring case, and mark only this one as read."""

        def find() -> list[tuple[int, str]]:
            lowered = [part.lower() for part in parts]
            return [
                (number, text)
                for number, text in self._unread().items()
                if all(part in text.lower() for part in lowered)
            ]

        [(number, message), *_] = await self.client.wait_for(find, what=f"a message with {parts}")
        self._read.add(number)
        return str(message)

    def forget(self) -> None:
        """Drop the messages received so far, which would fill the memory of a long run."""
        self.client.forget()
        self._read.clear()

    async def restart(self, *, kill: bool = False) -> None:
        """End the server in order, or kill it, and start another one in its place."""
        if kill:
            await self.kill()
        else:
            assert await self.client.close() == 0
            assert self.client.checker.violations == []
        assert self.told() == []
        await self.reopen()

    async def reopen(self, *, announce: Json = None) -> Any:
        """Start a server and an editor in place of those that have gone, on the same workspace and state."""
        client = await self._another(self.root, announce)
        self.past.append(self.client)
        self._read.clear()
        self.client = client
        return client

    async def kill(self) -> None:
        """Kill the server, and read what it had written."""
        self.client.kill()
        await self.client.gone()

    async def beside(self, root: Path | None = None) -> Outside:
        """Start a second server with the same state folder and provider, on this or another workspace."""
        client = await self._another(root or self.root)
        other = replace(self, client=client, root=root or self.root, results=[], others=[], past=[], _read=set())
        self.others.append(other)
        return other

    async def _another(self, root: Path, announce: Json = None) -> Any:
        client = await self.uninitialized(root)
        announce = self.announce if announce is None else announce
        await client.initialize(root, announce=announce, options=client.editor.settings)
        return client

    async def uninitialized(self, root: Path | None = None) -> Any:
        """Start a second server and editor without `initialize`. The caller ends it."""
        client = await self.connect(root or self.root, self.variables)
        client.editor.settings = self.client.editor.settings
        return client

    async def finish(self) -> None:
        for other in self.others:
            await other.finish()
        assert await self.client.close() == 0
        assert self.client.checker.violations == []
        assert self.provider.violations == []
        assert self.told() == []
        assert [str(leak) for leak in self.leaks()] == []
        assert loose_files(self.home / "state") == []
        self.judge_loop()

    async def stop(self) -> None:
        """End everything that still runs, without checks."""
        for other in self.others:
            await other.stop()
        await self.provider.__aexit__()
        self.client.kill()
        await self.client.gone()

    def held(self) -> str:
        """Return the reports of the watch on the servers' event loops; see `loop_watch`."""
        path = self.home.parent / "held"
        return path.read_text("utf-8") if path.exists() else ""

    def judge_loop(self) -> None:
        """Warn if the event loop of a server was kept in a quick run, which may share its processors. Else fail."""
        held = self.held()
        if held and STEP == "quick":
            warnings.warn(f"The event loop was kept: {held}", UserWarning, stacklevel=2)
        else:
            assert not held, f"The event loop was kept:\n{held}"

    def leaks(self) -> list[Any]:
        canary = Canary(self.provider.secrets())
        clients = [*self.past, self.client]
        messages = [received.message for client in clients for received in client.received]
        return [
            *canary.search(b"".join(client.stdout for client in clients), "stdout"),
            *canary.search(b"".join(client.stderr for client in clients), "stderr"),
            *canary.search_messages(messages, "messages"),
            *canary.search_tree(self.home),
            *canary.search_tree(self.root, store_may_hold=False),
        ]


async def start(
    tmp_path: Path,
    *script: Script,
    files: dict[str, str] | None = None,
    options: Json = None,
    announce: Json = None,
    env: dict[str, str | None] | None = None,
    initialize: bool = True,
    provider: Any = None,
    connect: Connect = own_server,
    client_name: str | None = None,
) -> Outside:
    """Start a server, an editor and a provider on a workspace with `files`. In `env`, None removes a variable.

    `options` are the initializationOptions, and the editor's answer to `workspace/configuration`.
    """
    provider = provider or SigningServer(f"sk-ant-canary-{secrets.token_hex(24)}", *script)
    await provider.__aenter__()
    root, home = tmp_path / "work", tmp_path / "home"
    for name in ("work", "home/state", "home/config", "home/tmp"):
        (tmp_path / name).mkdir(parents=True)
    for folder in (home, *home.iterdir()):
        folder.chmod(0o700)
    for name, text in (files or {}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode())
    variables = _environment(provider, home) | (env or {})
    given = {name: value for name, value in variables.items() if value is not None}
    client = await connect(root, given)
    outside = Outside(client, provider, root, home, given, announce, connect=connect)
    settings = {"model": MODEL} | (options or {})
    outside.client.editor.settings = settings
    outside.client.editor.name = client_name or client.editor.name
    try:
        if initialize:
            await outside.client.initialize(root, announce=announce, options=settings)
    except BaseException:
        await outside.stop()
        raise
    return outside


def _environment(provider: Any, home: Path) -> dict[str, str | None]:
    folders = {"HOME": home, "TMPDIR": home / "tmp", "XDG_CONFIG_HOME": home / "config"}
    folders |= {"THINKLSP_STATE_DIR": home / "state", "LOOP_WATCH": home.parent / "held"}
    path = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{WATCHED}{os.pathsep}{ROOT}"}
    return {**path, "LANG": "C.UTF-8", **{name: str(at) for name, at in folders.items()}, **provider.environment()}


def check_turn_result(result: Json) -> None:
    assert set(result) == TURN_RESULT
    assert set(result["usage"]) == USAGE
    assert result["stopReason"] in STOP_REASONS
    assert all(isinstance(result[name], str) and result[name] for name in ("turnId", "sessionId"))
    assert isinstance(result["text"], str)
    assert isinstance(result["notices"], list)
    if result["edits"] is not None:
        assert set(result["edits"]) == {"applied", "files", "proposalId"}
        assert result["edits"]["applied"] in {"all", "some", "none"}
        for file in result["edits"]["files"]:
            assert set(file) == {"uri", "status", "hunks", "reason"}
            assert set(file["hunks"]) == {"applied", "waiting"}
            assert file["status"] in {"applied", "some", "conflict", "refused", "held", "unknown"}


def check_sentence(text: str) -> None:
    """Check that a text for users has no traceback, installation path or name of a Python exception."""
    assert text.strip()
    assert "Traceback" not in text
    assert not re.search(r"site-packages|thinklsp/\w+\.py|\b\w+(Error|Exception)\b", text)


def statuses(result: Json) -> dict[str, str]:
    """Return the status of each file by its name."""
    return {file["uri"].rpartition("/")[2]: file["status"] for file in result["edits"]["files"]}


def diagnostic(text: str, part: str, message: str, **more: Any) -> Json:
    return {"range": range_of(text, part), "severity": 1, "source": "pyright", "message": message} | more


def named(actions: list[Json], name: str) -> list[Json]:
    """Return the actions whose title begins with `thinklsp: <name>`."""
    return [action for action in actions if action["title"].startswith(f"thinklsp: {name}")]


def said(body: Json) -> str:
    """Return the messages of a request as one text."""
    return json.dumps(body["messages"], ensure_ascii=False)


def loose_files(folder: Path) -> list[str]:
    """Return the folder and the files in it that other users can read. Ignore files that disappear."""
    found = []
    below = (os.path.join(above, name) for above, folders, files in os.walk(folder) for name in (*folders, *files))
    for path in sorted([str(folder), *below]):
        with suppress(FileNotFoundError):
            status = os.lstat(path)
            if not stat.S_ISLNK(status.st_mode) and status.st_mode & 0o077:
                found.append(f"{path} {stat.S_IMODE(status.st_mode):o}")
    return found


PASSED = pytest.StashKey[bool]()
"""Whether the test itself has passed, for fixtures that judge the rest at its end. `tests/conftest.py` notes it."""
