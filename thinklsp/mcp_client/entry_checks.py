"""Checks of a server's entry that do not depend on where the entry comes from.

Each check returns a part of a sentence for the user, which follows the name of the server. It contains no value of the
entry, because a value may be a secret.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

MAX_SERVERS = 32
_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_MAX_SHOWN_CHARACTERS = 60
_RESERVED_HEADERS = ("host", "content-length", "content-type", "accept", "connection", "transfer-encoding")


def is_server_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def format_server_name(name: str) -> str:
    """Return the name for a message, with a question mark for each character that cannot be shown."""
    return "".join(c if c.isprintable() and c != "`" else "?" for c in name[:_MAX_SHOWN_CHARACTERS]) or "(no name)"


def explain_server_name(name: str) -> str | None:
    return None if is_server_name(name) else "its name must be 1 to 32 letters, digits, `_` or `-`"


def explain_command(command: tuple[str, ...]) -> str | None:
    """Return the reason why a command line cannot be used, or None."""
    if not all(map(_is_passable, command)):
        return "its command contains a character that no program can receive"
    if command and not command[0].strip():
        return "its command is empty"
    return None


def explain_url(url: str) -> str | None:
    """Return the reason why a URL cannot be used, or None. The URL must use https or lead to this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        parts.port  # noqa: B018 - raises ValueError for an invalid port
    except ValueError:
        return "`url` is not a valid URL"
    if parts.scheme not in ("http", "https") or not host or not url.isprintable() or " " in url:
        return "`url` must begin with https:// and the name of a host"
    if "@" in parts.netloc:
        return "`url` contains a user name or password; use `headers` or `token_command`"
    if parts.scheme == "http" and not _is_loopback(host):
        return "`url` must use https, because its host is not this machine"
    return None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def explain_headers(headers: Mapping[str, str]) -> str | None:
    """Return the reason why headers cannot be sent, or None."""
    for name, value in headers.items():
        shown = format_server_name(name)
        if not _HEADER_NAME.fullmatch(name):
            return f"`{shown}` is not the name of a header"
        if name.lower() in _RESERVED_HEADERS or name.lower().startswith("mcp-"):
            return f"the header `{shown}` is set by thinklsp"
        if not all(" " <= c <= "~" or c == "\t" for c in value):
            return f"the header `{shown}` contains characters that cannot be sent"
    return None


def _is_passable(text: str) -> bool:
    """Return True if a program can receive the text. Null characters and lone surrogates cannot be passed on."""
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


def explain_environment(environment: Mapping[str, str]) -> str | None:
    """Return the reason why environment variables cannot be set, or None."""
    for name, value in environment.items():
        if not name or "=" in name or not _is_passable(name) or not _is_passable(value):
            return f"the variable `{format_server_name(name)}` cannot be set"
    return None
