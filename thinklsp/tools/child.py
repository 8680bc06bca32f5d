"""Child processes of the tools: programs from outside the workspace, nothing inherited but a plain environment, and
none outlives its block."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from thinklsp.workspace.paths import real_path

_ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


def find_program(name: str, folders: Iterable[str], path: str | None = None) -> str | None:
    """The first of this name on the PATH that does not lie in a workspace folder.

    `path` defaults to the PATH of this process; entries that are not absolute do not count.
    """
    inside = [folder.rstrip("/") + "/" for folder in folders]
    for entry in (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep):
        if not os.path.isabs(entry):
            continue
        # The place of the name counts as well as that of the file: a link in the workspace could name any program.
        written, program = os.path.join(real_path(entry), name), real_path(os.path.join(entry, name))
        if runs(program) and not any(place.startswith(tuple(inside)) for place in (written, program)):
            return program
    return None


def runs(program: str) -> bool:
    return os.path.isfile(program) and os.access(program, os.X_OK)


@asynccontextmanager
async def started(
    argv: Sequence[str], folder: str, *, fed: bool = False, environment: Mapping[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child that does not outlive the block; it sees neither our environment nor our input and output. `environment`:
    what it gets beside the plain one."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=folder,
        env={**_ENVIRONMENT, **(environment or {})},
        stdin=asyncio.subprocess.PIPE if fed else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            # A full pipe would keep the loop waiting for its end.
            await process.communicate()
