"""System programs, which run as child processes with a minimal environment. They must be outside the workspace."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType

from thinklsp.workspace.paths import resolve_real_path

if sys.platform == "linux":
    import resource


def find_program(name: str, folders: Iterable[str], path: str | None = None) -> str | None:
    """Return the path of a program outside the workspace folders, or None.

    `path` defaults to the PATH of this process. Relative entries are ignored.
    """
    inside = tuple(folder.rstrip("/") + "/" for folder in folders)
    for entry in (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep):
        if not os.path.isabs(entry):
            continue
        # Check the path both before and after resolving links, because a link in the workspace can point to any
        # program.
        named_path, program = os.path.join(resolve_real_path(entry), name), resolve_real_path(os.path.join(entry, name))
        if is_executable(program) and not any(place.startswith(inside) for place in (named_path, program)):
            return program
    return None


def is_executable(program: str) -> bool:
    return os.path.isfile(program) and os.access(program, os.X_OK)


# The memory limit of a child process. Without the limit, an ignore file that links to `/dev/zero` could use all memory.
_MAX_MEMORY_BYTES = 512 * 1024 * 1024
_ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


@asynccontextmanager
async def run_child(
    argv: Sequence[str], folder: str, *, has_stdin: bool = False, environment: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a child process, and kill it when the context exits.

    The child does not inherit the environment, input or output of thinklsp. If `has_stdin` is true, the caller writes
    to the child's standard input. `environment` is added to the minimal environment.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=folder,
        env={**_ENVIRONMENT, **environment},
        stdin=asyncio.subprocess.PIPE if has_stdin else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _limit_memory(process.pid)
        yield process
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            # Read the remaining output, because a full pipe would prevent the process from exiting.
            await process.communicate()


def _limit_memory(process: int) -> None:
    """Limit the memory of a running process. Only Linux supports this."""
    if sys.platform == "linux":
        with suppress(ProcessLookupError):
            # A process cannot raise a limit above its own limit.
            own = resource.prlimit(process, resource.RLIMIT_DATA)
            most = min([_MAX_MEMORY_BYTES, *(limit for limit in own if limit != resource.RLIM_INFINITY)])
            resource.prlimit(process, resource.RLIMIT_DATA, (most, most))
