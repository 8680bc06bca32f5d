"""Places of the user's own, in which nobody else may put or replace anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from platformdirs import user_config_path


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


def own_path(environment: Mapping[str, str], variable: str) -> str | None:
    """The absolute path that the user names. None also for a relative one: that would lie in whatever folder an editor
    was started in, perhaps a repository."""
    given = os.path.expanduser(environment.get(variable, "").strip())
    return given if os.path.isabs(given) else None


def config_path(environment: Mapping[str, str]) -> str:
    """Where the user's file is, or would be."""
    return own_path(environment, "THINKLSP_CONFIG") or str(user_config_path("thinklsp") / "config.toml")


def unused_path(environment: Mapping[str, str], variable: str) -> str | None:
    """A sentence for the user where a variable names a path that is not used."""
    if not environment.get(variable, "").strip() or own_path(environment, variable) is not None:
        return None
    said = f"{variable} is not used, because it is a relative path, which could lead into a folder that you open."
    return f"{said} Set it to one that begins with / or ~/."
