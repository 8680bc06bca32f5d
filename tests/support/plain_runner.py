"""Runs commands in a plain copy of the workspace that holds the turn's edits. It contains nothing: what the tests give
it to run is theirs."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from thinklsp.core.errors import ToolFailed
from thinklsp.settings.user_file import CommandsSection
from thinklsp.tools.commands import Ran
from thinklsp.workspace.overlay import EditOverlay


class PlainRunner:
    """`runs`: the commands that were started, with their folder and seconds."""

    def __init__(self) -> None:
        self.runs: list[tuple[tuple[str, ...], str | None, float]] = []
        self.closed = False
        self.running = asyncio.Event()

    async def run(
        self, argv: Sequence[str], overlay: EditOverlay, *, folder: str | None, seconds: float, fresh: bool = False
    ) -> Ran:
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
    for place in (*overlay.view.unlike_disk(), *overlay.changed()):
        assert place.path is not None
        target = copy.joinpath(*place.path.parts)
        found = overlay.peek(place)
        if found is None:
            target.unlink(missing_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(found.text)


async def _run(argv: Sequence[str], folder: Path, seconds: float, running: asyncio.Event) -> Ran:
    begun = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=folder,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise ToolFailed(f"`{argv[0]}` cannot be started: {error.strerror}.") from None
    running.set()
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate()
    except TimeoutError:
        return Ran("timeout", 0, b"", time.monotonic() - begun)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    status = process.returncode or 0
    took = time.monotonic() - begun
    return Ran("signal", -status, output, took) if status < 0 else Ran("exit", status, output, took)


async def make_runner(_limits: CommandsSection, _environment: Mapping[str, str]) -> PlainRunner:
    return PlainRunner()
