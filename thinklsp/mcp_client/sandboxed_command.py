"""The command line of an MCP server in the sandbox of commands, with the real workspace instead of a copy.

The system is read-only, the workspace folders are writable, and there is no network access. Secrets in the workspace
are hidden, and existing files that other programs run or trust are read-only.
"""

from __future__ import annotations

import base64
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence

from thinklsp.core.errors import McpFailed, PathRefused
from thinklsp.mcp_client.guarded_process import ServerCommand
from thinklsp.sandbox.bubblewrap import (
    SandboxFolder,
    SandboxHost,
    build_filter,
    build_options,
    can_disable_namespaces,
    find_sandbox_problem,
    is_same_or_parent,
)
from thinklsp.workspace.paths import Root
from thinklsp.workspace.protected import load_patterns
from thinklsp.workspace.shadow import find_masks

_MEMORY_BYTES = 1024**3
_WILDCARDS = set("*?[")


def build_sandboxed_command(
    label: str, argv: Sequence[str], environment: Mapping[str, str], cwd: str, folders: Sequence[str]
) -> ServerCommand:
    """Return the command that starts a server in the sandbox. This function blocks.

    Raises McpFailed if the sandbox does not work on this machine or a folder cannot be mounted. `label` names the
    server.
    """
    bwrap = _find_bubblewrap(folders)
    problem = find_sandbox_problem(bwrap)
    if bwrap is None or problem is not None:
        raise McpFailed(f"{label} does not start, because it is set to run in the sandbox. {problem}")
    try:
        mounts = [_build_folder(folder) for folder in folders]
    except (PathRefused, OSError) as error:
        raise McpFailed(f"{label} does not start in the sandbox. {error}") from None
    home = environment.get("HOME", "/")
    home = os.path.realpath(home) if os.path.isabs(home) and home != "/" else "/tmp/home"  # noqa: S108 - in the sandbox
    if any(is_same_or_parent(mount.path, home) for mount in mounts):
        raise McpFailed(f"{label} does not start in the sandbox, because the workspace is the entire home folder.")
    host = SandboxHost(environment, home, os.devnull, (sys.base_prefix, sys.prefix, *_find_prefixes(argv[0])))
    options = build_options(
        host, mounts, cwd, memory_bytes=_MEMORY_BYTES, disable_namespaces=can_disable_namespaces(bwrap)
    )
    for name, value in environment.items():
        if name not in ("HOME", "TMPDIR"):
            options += ["--setenv", name, value]
    system_call_filter = base64.b64encode(build_filter(os.uname().machine)).decode()
    return ServerCommand((bwrap, *argv), {"PATH": os.defpath}, "/", options, system_call_filter)


def _find_bubblewrap(folders: Sequence[str]) -> str | None:
    path = os.pathsep.join(entry for entry in os.environ.get("PATH", os.defpath).split(os.pathsep) if entry[:1] == "/")
    program = shutil.which("bwrap", path=path)
    is_inside = program is not None and any(is_same_or_parent(folder, os.path.realpath(program)) for folder in folders)
    return None if is_inside else program


def _find_prefixes(program: str) -> Iterator[str]:
    """Yield the folders that a program outside of PATH needs, such as a virtual environment."""
    if os.path.isabs(program):
        for path in (program, os.path.realpath(program)):
            folder = os.path.dirname(path)
            yield os.path.dirname(folder) if os.path.basename(folder) == "bin" else folder


def _build_folder(folder: str) -> SandboxFolder:
    with Root(folder) as root:
        masks = find_masks(root)
        guarded = (pattern.strip("/") for pattern in load_patterns("guarded") if not set(pattern) & _WILDCARDS)
        read_only = tuple(path for path in guarded if os.path.lexists(os.path.join(root.path, path)))
        return SandboxFolder(root.path, root.path, read_only, (*masks.hidden, *masks.replaced))
