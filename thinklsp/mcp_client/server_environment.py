"""The environment variables of MCP servers."""

from __future__ import annotations

import os
from collections.abc import Mapping

from thinklsp.mcp_client.server_config import ServerConfig
from thinklsp.settings.access import KEY_VARIABLES

_INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR")
_OWN_PREFIX = "THINKLSP_"


def build_environment(config: ServerConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server: a few of the user's variables, and the variables of its configuration.

    Keys of providers and the variables of thinklsp are left out, even if the configuration names them. Relative entries
    of the inherited PATH are left out, because a program in the workspace must not replace a program of the system.
    """
    inherited = {name: environment[name] for name in _INHERITED if name in environment}
    path = [entry for entry in inherited.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(entry)]
    inherited["PATH"] = os.pathsep.join(path) or os.defpath
    return {name: value for name, value in {**inherited, **config.env}.items() if not is_withheld(name)}


def is_withheld(name: str) -> bool:
    """Return whether no server receives this variable."""
    return name in KEY_VARIABLES or name.upper().startswith(_OWN_PREFIX)
