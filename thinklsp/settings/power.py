"""Names that choose keys, hosts or power. In editor settings they may come from the opened repository, so they are
ignored there at any level; `actions` is one for the user's own actions, and settings are known by their full name."""

from __future__ import annotations

import re

# Compared without case, "_" and "-".
_NAMES = frozenset(
    (
        *("baseurl", "host", "url", "endpoint", "headers", "extraheaders", "network", "providers"),
        *("proxy", "httpproxy", "httpsproxy", "cabundle", "cafile", "verifytls"),
        *("apikey", "apikeyenv", "apikeykeyring", "apikeycommand", "keysource", "keycommand", "keyring", "key"),
        *("authtoken", "token", "secret", "password"),
        *("commands", "permissions", "sandbox", "mcp", "mcpservers", "actions", "models"),
        *("env", "environment", "roots", "extraroots", "allowprotected", "allowhome", "log", "loglevel"),
    )
)
# Those that mean the same with the name of a provider before them.
_ENDINGS = ("apikey", "baseurl", "authtoken")


def is_power(key: str) -> bool:
    """Whether any part of a dotted key is such a name."""
    parts = (re.sub("[_-]", "", part).lower() for part in key.split("."))
    return any(part in _NAMES or part.endswith(_ENDINGS) for part in parts)
