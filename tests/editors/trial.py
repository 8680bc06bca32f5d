"""One editor's trial: its own home, a workspace with a diagnostic, a simulated service, and the rows that came of it.

A driver asserts on buffers, files, the server's log and `requests`, the record of the service; never on pixels.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tests.editors.steps import Step
from tests.editors.waiting import until
from tests.stand_ins.http_server import RecordedRequest
from tests.support.canary import Canary
from tests.support.outside import WATCHED
from tests.support.services import Service
from thinklsp.offline.scenario import load_scenario

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCENARIO = HERE / "scenario.toml"
FILE = "stats.py"
# `value` is undefined: the lint server beside this file says so, at the second line.
BROKEN = "def mean(values):\n    return sum(values) / len(value)\n"
# Ruff, the second server of the trials, says that the import is not used.
OTHER_FILE = "tally.py"
UNUSED = "import os\n\n\ndef tally(values):\n    return len(values)\n"
FIXED = "def mean(values):\n    return sum(values) / len(values)\n"

_MAX_SECONDS = 600.0  # For one trial; the slowest takes about 60.

Outcome = Literal["passed", "fallback", "unsteady", "failed", "skipped"]


@dataclass(frozen=True)
class Row:
    """`note`: the fallback that was asserted, why it was skipped, or what went wrong."""

    editor: str
    step: Step | str
    outcome: Outcome
    seconds: float
    note: str = ""


@dataclass
class Trial:
    """`room` holds everything that editor and server may write to. `variables` is the whole environment of the editor;
    `thinklsp`, `thinklsp-lint` (a small language server with one diagnostic), `ruff` and the other servers of this
    folder are on its PATH.
    """

    editor: str
    room: Path
    pictures: Path
    service: Service
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workspace = self.room / "project"
        self.home = self.room / "home"
        self._held = self.room / "held"
        self.workspace.mkdir(parents=True)
        (self.workspace / ".git").mkdir()
        (self.workspace / FILE).write_text(BROKEN)
        (self.workspace / OTHER_FILE).write_text(UNUSED)
        self.variables = self._environment()

    @property
    def file(self) -> Path:
        return self.workspace / FILE

    @property
    def requests(self) -> list[RecordedRequest]:
        """The model calls so far, oldest first. A test of a key asks for the list of models, which has no body."""
        return [request for request in self.service.requests if request.body is not None]

    def find_prompt(self, words: str) -> str:
        """Return the newest prompt with these words, or an empty string."""
        return next((said for request in reversed(self.requests) if words in (said := prompt_of(request))), "")

    @contextmanager
    def check(self, step: Step | str, fallback: str = "") -> Iterator[None]:
        """One row. What the body raises fails the row, not the trial; a later step that builds on it fails by itself.

        `fallback`: what the client cannot do and the body asserts instead.
        """
        began = time.monotonic()
        try:
            yield
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            said = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            self.rows.append(Row(self.editor, step, "failed", time.monotonic() - began, said))
        else:
            outcome: Outcome = "fallback" if fallback else "passed"
            self.rows.append(Row(self.editor, step, outcome, time.monotonic() - began, fallback))

    def noted(self, note: str) -> Row:
        """The latest row with something worth knowing about it, like a figure. A failure keeps its own words."""
        row = self.rows[-1]
        return row if row.outcome == "failed" else replace(row, note=note)

    async def until(self, holds: Callable[[], Any], what: str) -> Any:
        """As `waiting.until`."""
        return await until(holds, what)

    def searched(self, data: bytes, where: str) -> None:
        """Nothing sealed and no key in what an editor received or wrote. Raises AssertionError that names the leak."""
        leaks = Canary(self.service.secrets()).search(data, where)
        assert leaks == [], [*map(str, leaks), self._around(data)]

    def _around(self, data: bytes) -> bytes:
        """What stands before the first secret that is written plainly, for whoever looks for its way there."""
        plain = [at for secret in self.service.secrets().values() if (at := data.find(secret.encode())) >= 0]
        return data[max(0, min(plain) - 200) : min(plain)] if plain else b""

    def search_room(self) -> None:
        """The same over every file that editor and server left behind, the session store excepted."""
        leaks = Canary(self.service.secrets()).search_tree(self.room)
        assert leaks == [], [str(leak) for leak in leaks]

    async def ended(self) -> None:
        """Waits until editor, servers and their children are gone. Raises AssertionError that names who is left, or
        what has kept the event loop of a server."""
        ours = f"HOME={self.home}".encode()
        left: list[str] = []

        def alone() -> bool:
            nonlocal left
            left = [name for process in Path("/proc").iterdir() if (name := _name_if(process, ours))]
            return not left

        await until(alone, lambda: f"the end of {', '.join(left)}")
        assert not self._held.exists(), self._held.read_text("utf-8")

    def _environment(self) -> dict[str, str]:
        programs = self.home / "bin"
        programs.mkdir(parents=True)
        servers = ("lint", "asking", "knowing")
        for name, argv in {
            "thinklsp": f'"{sys.executable}" -m thinklsp',
            "ruff": f'"{sys.executable}" -m ruff',
            **{f"thinklsp-{name}": f'"{sys.executable}" "{HERE / "servers.py"}" {name}' for name in servers},
        }.items():
            (programs / name).write_text(f'#!/bin/sh\nPYTHONPATH="{WATCHED}:{ROOT}" exec {argv} "$@"\n')
            (programs / name).chmod(0o755)
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TERM", "USER") if name in os.environ}
        folders = {f"XDG_{name}_HOME": str(self.home / name.lower()) for name in ("CONFIG", "DATA", "STATE", "CACHE")}
        for folder in folders.values():
            Path(folder).mkdir()
        runtime = self.home / "runtime"
        runtime.mkdir(mode=0o700)
        # One way only: with all of them open `auto` takes the first, and every wire would have to be looked at.
        return {
            "LANG": "C.UTF-8", **kept, **folders, "HOME": str(self.home), "XDG_RUNTIME_DIR": str(runtime),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "LOOP_WATCH": str(self._held),
            "ANTHROPIC_BASE_URL": self.service.url, "ANTHROPIC_API_KEY": self.service.key,
        }  # fmt: skip


def _name_if(process: Path, variable: bytes) -> str:
    """What a process calls itself, where its environment holds the variable."""
    try:
        if process.name.isdigit() and variable in (process / "environ").read_bytes().split(b"\0"):
            return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        pass
    return ""


def effort_of(request: RecordedRequest) -> str | None:
    """The effort that a request of the Messages API asks for, None where it says nothing."""
    return (request.body.get("output_config") or {}).get("effort")


def prompt_of(request: RecordedRequest) -> str:
    """Everything that the last user message says, as one text."""
    content = request.body["messages"][-1]["content"]
    blocks = [{"text": content}] if isinstance(content, str) else content
    return "\n".join(block["text"] for block in blocks if "text" in block)


def result_of(request: RecordedRequest) -> str:
    """What the tools of the last user message have answered, as one text."""
    content = request.body["messages"][-1]["content"]
    return "\n".join(str(block["content"]) for block in content if block["type"] == "tool_result")


def service() -> Service:
    """To be entered once for each trial."""
    return Service(load_scenario(str(SCENARIO)))


async def play(editor: str, drive: Callable[[Trial, Path], Awaitable[None]], room: Path, pictures: Path) -> list[Row]:
    """Drive an editor once, in a fresh home. Return the rows. `room`: where the editor is installed."""
    with tempfile.TemporaryDirectory(prefix="trial-", ignore_cleanup_errors=True) as folder:
        async with service() as played:
            trial = Trial(editor, Path(folder), pictures, played)
            try:
                async with asyncio.timeout(_MAX_SECONDS):
                    await drive(trial, room)
            except Exception as error:
                traceback.print_exc()
                said = f"{type(error).__name__}: {error}".strip().splitlines()[0]
                trial.rows.append(Row(editor, "is driven to the end", "failed", 0.0, said))
            with trial.check("leaves no process behind"):
                await trial.ended()
            with trial.check("no secret reached it, and no rule of the service was broken"):
                trial.search_room()
                assert played.violations == [], played.violations
            return trial.rows
