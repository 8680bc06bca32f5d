"""Child processes of the tools: programs from outside the workspace, nothing inherited but a plain environment,
bounded, and none outlives its block."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType

if sys.platform == "linux":
    import resource

# Bytes of data. A list of ignored files that is a link to an endless device would be read until nothing is left.
_MOST_MEMORY = 512 * 1024 * 1024
_ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


@asynccontextmanager
async def started(
    argv: Sequence[str], folder: str, *, fed: bool = False, environment: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child that does not outlive the block; it sees neither our environment nor our input and output.
    `environment`: variables beside the plain ones."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=folder,
        env={**_ENVIRONMENT, **environment},
        stdin=asyncio.subprocess.PIPE if fed else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _bound(process.pid)
        yield process
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            # A full pipe would keep the loop waiting for its end.
            await process.communicate()


def _bound(process: int) -> None:
    """Elsewhere than on Linux nobody can bound a process that has been started already."""
    if sys.platform == "linux":
        with suppress(ProcessLookupError):
            # Who has less of it themselves may give no more.
            own = resource.prlimit(process, resource.RLIMIT_DATA)
            most = min([_MOST_MEMORY, *(limit for limit in own if limit != resource.RLIM_INFINITY)])
            resource.prlimit(process, resource.RLIMIT_DATA, (most, most))
