"""A workspace, and commands that run on its shadow."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from thinklsp.sandbox.process import Limits
from thinklsp.tools.commands import Ran
from thinklsp.tools.shadow_runner import ShadowRunner, sandbox_problem
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceFolder, WorkspaceView

PROBLEM = sandbox_problem()
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
        opened = [
            DocumentSnapshot((self.folders[0] / name).as_uri(), 1, text) for name, text in (documents or {}).items()
        ]
        named = zip(self.folders, self.roots, strict=True)
        return WorkspaceView([(WorkspaceFolder(path.as_uri(), path.name), root) for path, root in named], opened)

    async def run(
        self,
        *argv: str,
        overlay: EditOverlay | None = None,
        folder: str | None = None,
        seconds: float = 20,
        fresh: bool = False,
    ) -> Ran:
        overlay = overlay or EditOverlay(self.view())
        return await self.runner.run(argv, overlay, folder=folder, seconds=seconds, fresh=fresh)

    async def sh(
        self, words: str, overlay: EditOverlay | None = None, *, folder: str | None = None, seconds: float = 20
    ) -> str:
        return (await self.run("sh", "-c", words, overlay=overlay, folder=folder, seconds=seconds)).output.decode()

    async def py(self, code: str, overlay: EditOverlay | None = None) -> str:
        ran = await self.run(PYTHON, "-c", code, overlay=overlay)
        return ran.output.decode("utf-8", "backslashreplace")

    def left(self) -> list[str]:
        """What lies in the state folder besides the lock."""
        above = self.state / "shadow"
        return sorted(name for name in os.listdir(above) if name != "lock") if above.exists() else []


@asynccontextmanager
async def shadowed(
    *folders: Path,
    state: Path,
    overlays: bool = True,
    limits: Limits | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Shadowed]:
    """Ends with the runner closed and nothing of it left."""
    given = dict(os.environ) if environment is None else dict(environment)
    runner = ShadowRunner(given, str(state), limits or Limits(), overlays=overlays)
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


def survivors(marker: str) -> list[str]:
    """Processes that are called so or have it in their environment, ours left out."""
    others = (entry for entry in os.listdir("/proc") if entry.isdecimal() and int(entry) != os.getpid())
    return [entry for entry in others if marker.encode() in _words(entry)]


async def until(what: Callable[[], bool], *, within: float) -> None:
    """Raises TimeoutError where it does not come true in so many seconds."""
    async with asyncio.timeout(within):
        while not what():  # noqa: ASYNC110 - other processes tell of no event
            await asyncio.sleep(0.01)


def _words(pid: str) -> bytes:
    said = b""
    for name in ("cmdline", "environ"):
        try:
            said += Path(f"/proc/{pid}/{name}").read_bytes()
        except OSError:
            continue
    return said
