"""Folders of the user's own, in which nobody else may put or replace anything."""

from __future__ import annotations

import os
from contextlib import suppress


def make_private(folder: str) -> None:
    """With all above it that is missing, for this user alone: `os.makedirs` leaves what is above to the umask, and with
    an open one others could put a folder of theirs in the place of ours. Raises OSError."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder.rstrip("/"))
    if above:
        make_private(above)
    # Another process may be the first at the same moment.
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
