"""A workspace, and commands that run on its shadow."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from thinklsp.core.errors import ToolFailed
from thinklsp.sandbox.process import CommandLimits, CommandResult
from thinklsp.settings.user_file import CommandsSection
from thinklsp.tools.shadow_runner import ShadowRunner, explain_missing_sandbox
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

PROBLEM = explain_missing_sandbox()
needs_sandbox = pytest.mark.skipif(
    PROBLEM is not None, reason=f"NOTHING OF THE SANDBOX IS TESTED HERE, for there can be none: {PROBLEM}"
)
BOTH = pytest.mark.parametrize("overlays", [True, False], ids=["overlay", "copy"])
PYTHON = sys.executable


@dataclass
class Shadowed:
    """Folders of a workspace and a runner on it. `documents`: name to text, of the first folder."""

    folders: Sequence[Path]
    runner: ShadowRunner
    state: Path
    roots: list[Root] = field(default_factory=list)

    def view(self, documents: Mapping[str, str] | None = None) -> WorkspaceView:
        texts = {(self.folders[0] / name).as_uri(): text for name, text in (documents or {}).items()}
        opened = [DocumentSnapshot(uri, 1, text) for uri, text in texts.items()]
        return WorkspaceView(self.roots, opened)

    async def run(
        self,
        *argv: str,
        overlay: EditOverlay | None = None,
        folder: str | None = None,
        seconds: float = 20,
        fresh: bool = False,
    ) -> CommandResult:
        overlay = overlay or EditOverlay(self.view())
        return await self.runner.run(argv, overlay, folder=folder, seconds=seconds, fresh=fresh)

    async def sh(
        self, words: str, overlay: EditOverlay | None = None, *, folder: str | None = None, seconds: float = 20
    ) -> str:
        return (await self.run("sh", "-c", words, overlay=overlay, folder=folder, seconds=seconds)).output.decode()

    async def py(self, code: str, overlay: EditOverlay | None = None) -> str:
        return (await self.run(PYTHON, "-c", code, overlay=overlay)).output.decode("utf-8", "backslashreplace")

    def left(self) -> list[str]:
        """Return the names of the scratch folders in the state folder."""
        above = self.state / "shadow"
        return sorted(name for name in os.listdir(above) if name != "lock") if above.exists() else []


@asynccontextmanager
async def shadowed(
    *folders: Path,
    state: Path,
    overlays: bool = True,
    limits: CommandLimits | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Shadowed]:
    """Ends with the runner closed and nothing of it left."""
    given = dict(os.environ) if environment is None else dict(environment)
    runner = ShadowRunner(given, str(state), limits or CommandLimits(), overlays=overlays)
    roots = [Root(str(folder)) for folder in folders]
    made = Shadowed(folders, runner, state, roots)
    try:
        yield made
    finally:
        await runner.aclose()
        for root in roots:
            root.close()
    assert made.left() == []


def tree(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def as_it_is(*folders: Path) -> dict[str, object]:
    """Every entry with its times, modes and bytes."""
    found: dict[str, object] = {}
    for folder in folders:
        for path in [folder, *sorted(folder.rglob("*"))]:
            status = path.lstat()
            data = path.read_bytes() if path.is_file() and not path.is_symlink() else None
            found[os.fspath(path)] = (status.st_mode, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, data)
    return found


class PlainRunner:
    """`runs`: the commands that were started, with their folder and seconds."""

    def __init__(self) -> None:
        self.runs: list[tuple[tuple[str, ...], str | None, float]] = []
        self.closed = False
        self.running = asyncio.Event()

    async def run(
        self, argv: Sequence[str], overlay: EditOverlay, *, folder: str | None, seconds: float, fresh: bool = False
    ) -> CommandResult:
        with tempfile.TemporaryDirectory() as temporary:
            copy = Path(temporary) / "copy"
            _copy(overlay, copy)
            (place,) = overlay.view.resolve_folder(folder)
            assert place.path is not None
            self.runs.append((tuple(argv), folder, seconds))
            return await _run(argv, copy.joinpath(*place.path.parts), seconds, self.running)

    async def aclose(self) -> None:
        self.closed = True


def _copy(overlay: EditOverlay, copy: Path) -> None:
    [folder] = overlay.view.folders
    shutil.copytree(folder.root.path, copy, symlinks=True)
    for place in (*overlay.view.list_open_places(), *overlay.list_changed()):
        assert place.path is not None
        target = copy.joinpath(*place.path.parts)
        found = overlay.peek(place)
        if found is None:
            target.unlink(missing_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(found.text)


async def _run(argv: Sequence[str], folder: Path, seconds: float, running: asyncio.Event) -> CommandResult:
    begun = time.monotonic()
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        nothing, pipe, both = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
        process = await asyncio.create_subprocess_exec(
            *argv, cwd=folder, env=env, stdin=nothing, stdout=pipe, stderr=both, start_new_session=True
        )
    except OSError as error:
        raise ToolFailed(f"`{argv[0]}` cannot be started: {error.strerror}.") from None
    running.set()
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate()
    except TimeoutError:
        return CommandResult("timeout", 0, b"", time.monotonic() - begun)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    status = process.returncode or 0
    took = time.monotonic() - begun
    return CommandResult("signal", -status, output, took) if status < 0 else CommandResult("exit", status, output, took)


async def make_runner(_limits: CommandsSection, _environment: Mapping[str, str]) -> PlainRunner:
    return PlainRunner()
