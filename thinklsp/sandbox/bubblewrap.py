"""Whether there can be a sandbox on this machine, and what to do where there cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import lru_cache

_SECONDS = 5.0
_INSTALL = (
    "Install bubblewrap (Debian and Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap; Arch: pacman -S "
    "bubblewrap)."
)
_NAMESPACES = (
    "This system does not let users make namespaces, which the sandbox is made of. Let it: sysctl "
    "kernel.unprivileged_userns_clone=1 (Debian), sysctl kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor "
    "profile for bwrap (Ubuntu), user.max_user_namespaces above 0 (RHEL); inside a container, start that with leave to."
)


@lru_cache(maxsize=8)
def why_not(program: str | None) -> str | None:
    """Why commands cannot be run in a sandbox here, in sentences that say what to do; None where they can. `program`:
    bubblewrap, None where it was not found. It is tried once, which takes some milliseconds."""
    if sys.platform != "linux":
        return "Commands run on Linux only: there is no sandbox for other systems yet."
    if program is None:
        return f"The program bwrap was not found outside of the workspace. {_INSTALL}"
    tried = _has_room(program)
    if tried is None:
        return f"The program {program} could not be run. {_INSTALL}"
    return None if tried else _NAMESPACES


@lru_cache(maxsize=8)
def is_deep(program: str) -> bool:
    """Whether it can switch off user namespaces inside: from 0.8 on, and not where it only has them by being setuid."""
    return _has_room(program, "--unshare-user", "--disable-userns") is True


def _has_room(program: str, *more: str) -> bool | None:
    """None where it does not even start."""
    room = ("--unshare-all", *more, "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
    try:
        tried = subprocess.run(
            (program, *room, "--", "/bin/true"), capture_output=True, timeout=_SECONDS, check=False, env={}, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return tried.returncode == 0


def machine_name() -> str:
    return os.uname().machine
