"""The MCP servers that the files `.mcp.json` and `.vscode/mcp.json` of a project name. They are only offered."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from thinklsp.core.errors import PathRefused
from thinklsp.core.json_codec import parse_jsonc
from thinklsp.mcp_client.entry_checks import (
    MAX_SERVERS,
    explain_command,
    explain_environment,
    explain_headers,
    explain_server_name,
    explain_url,
    format_server_name,
)
from thinklsp.mcp_client.offered_server import OfferedServer, compute_digest, describe_server
from thinklsp.mcp_client.project_variables import UnusableVariable, VariableExpander
from thinklsp.mcp_client.server_config import ServerConfig
from thinklsp.settings.user_file import UserSettings
from thinklsp.workspace.paths import Root
from thinklsp.workspace.relpath import RelPath

# The files in the order of their precedence, with the key that contains the servers.
_FILES = ((RelPath.build((".mcp.json",)), "mcpServers"), (RelPath.build((".vscode", "mcp.json")), "servers"))
_MAX_FILE_BYTES = 256 * 1024
_UNSUPPORTED_KEYS = ("envFile", "headersHelper", "oauth")
_HTTP_TYPES = ("http", "streamable-http", "streamableHttp")


class _WrongEntry(Exception):
    """Raised for an entry that cannot be used. The message is part of a sentence."""


@dataclass(frozen=True, slots=True)
class ProjectServers:
    """The servers that a project offers, in the order of their names, with notices for the user."""

    offered: tuple[OfferedServer, ...] = ()
    notices: tuple[str, ...] = ()


def read_project_servers(roots: Sequence[Root], user: UserSettings) -> ProjectServers:
    """Read the servers that the workspace folders name. A server that the user's own file names is left out."""
    by_name: dict[str, OfferedServer] = {}
    notices: list[str] = []
    for root in roots:
        for path, key in _FILES:
            place = f"`{path.label}`" if len(roots) == 1 else f"`{path.label}` in {root.path}"
            entries = _read_entries(root, path, key, notices)
            for name, entry in entries:
                problem = _add_server(by_name, name, entry, (root, place), user)
                notices += () if problem is None else (problem,)
    return ProjectServers(tuple(by_name[name] for name in sorted(by_name)), tuple(notices))


def _read_entries(root: Root, path: RelPath, key: str, notices: list[str]) -> list[tuple[str, Any]]:
    try:
        data = root.read(path, limit=_MAX_FILE_BYTES)
    except PathRefused as error:
        notices.append(f"{error} Its MCP servers are ignored.")
        return []
    entries = {} if data is None else _parse_file(data, key)
    if entries is None:
        notices.append(f"`{path.label}` is not a JSON object with MCP servers in `{key}`, so it is ignored.")
        return []
    if len(entries) > MAX_SERVERS:
        notices.append(f"`{path.label}` names {len(entries)} MCP servers. Only the first {MAX_SERVERS} are offered.")
    return sorted(entries.items())[:MAX_SERVERS]


def _parse_file(data: bytes, key: str) -> Mapping[str, Any] | None:
    """Return the entries of a file, or None if the file is invalid or too deeply nested."""
    try:
        value = parse_jsonc(data.decode())
        json.dumps(value)
    except (ValueError, RecursionError):
        return None
    entries = value.get(key, {}) if isinstance(value, dict) else None
    return entries if isinstance(entries, dict) else None


def _add_server(
    by_name: dict[str, OfferedServer], name: str, entry: object, where: tuple[Root, str], user: UserSettings
) -> str | None:
    """Add the server of an entry. Returns a sentence if the entry is not used."""
    root, place = where
    shown = format_server_name(name)
    if isinstance(entry, Mapping) and entry.get("disabled") is True:
        return None
    if name in user.file.mcp.servers:
        return f"The MCP server `{shown}` in {place} is not used, because your config.toml has a server of that name."
    digest = compute_digest(entry)
    if name in by_name:
        earlier = by_name[name]
        if (earlier.digest, earlier.folder) == (digest, root.path):
            return None
        return f"The MCP server `{shown}` in {place} is not used, because {earlier.place} has a server of that name."
    try:
        config, description = _parse_entry(name, entry, root.path, user)
    except (_WrongEntry, UnusableVariable) as wrong:
        return f"The MCP server `{shown}` in {place} is off: {wrong}."
    by_name[name] = OfferedServer(config, place, root.path, digest, description)
    return None


def _parse_entry(name: str, entry: object, folder: str, user: UserSettings) -> tuple[ServerConfig, str]:
    """Return the configuration for an entry, and its description. Raises _WrongEntry or UnusableVariable."""
    if not isinstance(entry, Mapping):
        raise _WrongEntry("it must be an object")
    for problem in filter(None, (explain_server_name(name), *_explain_keys(entry))):
        raise _WrongEntry(problem)
    expander = VariableExpander(folder, user.environment, user.file.mcp.project_env)
    config = _build_config(name, entry, folder, expander.expand)
    checks = (
        explain_command(config.command),
        explain_environment(config.env),
        explain_headers(config.headers),
        None if config.url is None else explain_url(config.url),
    )
    for problem in filter(None, checks):
        raise _WrongEntry(problem)
    # The values of the user's variables may be secrets, so the description contains the variables instead.
    description = describe_server(_build_config(name, entry, folder, lambda text: text), has_values=True)
    return replace(config, is_sandboxed=user.file.mcp.sandbox and config.url is None), description


def _build_config(name: str, entry: Mapping[str, Any], folder: str, expand: Callable[[str], str]) -> ServerConfig:
    if entry.get("url") is not None:
        headers = {key: expand(value) for key, value in _read_texts(entry, "headers").items()}
        return ServerConfig(name, url=expand(_read_text(entry, "url")), headers=headers, source="project")
    command = tuple(expand(word) for word in (_read_text(entry, "command"), *_read_list(entry, "args")))
    env = {key: expand(value) for key, value in _read_texts(entry, "env").items()}
    cwd = expand(_read_text(entry, "cwd")) if entry.get("cwd") is not None else folder
    if not cwd.startswith(("/", "${")):
        raise _WrongEntry("`cwd` must be an absolute path, or begin with `${workspaceFolder}`")
    return ServerConfig(name, command, env, cwd, source="project")


def _explain_keys(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons why the keys of an entry cannot be used."""
    yield from (f"`{key}` is not supported" for key in _UNSUPPORTED_KEYS if entry.get(key) is not None)
    kind = entry.get("type")
    is_http = entry.get("url") is not None
    if kind in ("sse", "ws"):
        yield f"the type `{kind}` is not supported; use a server with the type `http`"
    elif kind is not None and kind not in (_HTTP_TYPES if is_http else ("stdio",)):
        yield "its `type` does not fit; use `stdio` with `command`, or `http` with `url`"
    if (entry.get("command") is None) != is_http:
        yield "it needs either `command` or `url`"


def _read_text(entry: Mapping[str, Any], key: str) -> str:
    value = entry[key]
    if not isinstance(value, str):
        raise _WrongEntry(f"`{key}` must be a text")
    return value


def _read_list(entry: Mapping[str, Any], key: str) -> list[str]:
    value = [] if entry.get(key) is None else entry[key]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _WrongEntry(f"`{key}` must be a list of texts")
    return value


def _read_texts(entry: Mapping[str, Any], key: str) -> dict[str, str]:
    """Return an object of texts. Numbers become texts, because environment variables are often written as numbers."""
    value = {} if entry.get(key) is None else entry[key]
    if not isinstance(value, dict):
        raise _WrongEntry(f"`{key}` must be an object")
    texts = {name: str(item) if type(item) in (int, float) else item for name, item in value.items()}
    if not all(isinstance(item, str) for item in texts.values()):
        raise _WrongEntry(f"the values in `{key}` must be texts")
    return texts
