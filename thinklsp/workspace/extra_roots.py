"""Folders beside the workspace that tools may read and never change. Only the user's own file names them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import Root, real_path
from thinklsp.workspace.protected import ProtectedPaths


def open_extra_roots(
    paths: Iterable[str], workspace: Iterable[Root], protected: ProtectedPaths, *, allow_wide: bool = False
) -> tuple[list[Root], list[str]]:
    """Open the folders that tools may only read, and say which cannot be used. One inside of a workspace folder needs
    no second name."""
    inside = [root.path for root in workspace]
    opened: list[Root] = []
    problems: list[str] = []
    for path in dict.fromkeys(real_path(os.path.expanduser(path)) for path in paths):
        if any(os.path.commonpath((path, outer)) == outer for outer in inside):
            continue
        try:
            opened.append(Root(path, protected=protected, allow_wide=allow_wide, read_only=True))
        except PathRefused as refused:
            problems.append(f"`extra_roots`: {refused}")
    return opened, problems
