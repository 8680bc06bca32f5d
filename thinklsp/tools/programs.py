"""Where a program of the system is, and never one that lies in a workspace."""

from __future__ import annotations

import os
from collections.abc import Iterable

from thinklsp.workspace.paths import real_path


def find_program(name: str, folders: Iterable[str], path: str | None = None) -> str | None:
    """None where there is none outside of these workspace folders. `path` defaults to the PATH of this process; entries
    that are not absolute do not count."""
    inside = tuple(folder.rstrip("/") + "/" for folder in folders)
    for entry in (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep):
        if not os.path.isabs(entry):
            continue
        # The place of the name counts as well as that of the file: a link in the workspace could name any program.
        written, program = os.path.join(real_path(entry), name), real_path(os.path.join(entry, name))
        if runs(program) and not any(place.startswith(inside) for place in (written, program)):
            return program
    return None


def runs(program: str) -> bool:
    return os.path.isfile(program) and os.access(program, os.X_OK)
