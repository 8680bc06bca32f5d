"""How people add packages to the Python that runs thinklsp."""

from __future__ import annotations

import shlex
import sys


def install_command(*requirements: str) -> str:
    """Return the command that installs packages for this installation."""
    return " ".join((shlex.quote(sys.executable), "-m pip install", *map(shlex.quote, requirements)))
