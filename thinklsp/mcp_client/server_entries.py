"""The MCP servers that the user's file, the files of a project and the client of the agent name.

The servers of a project and of a client are only offered. A sentence about an entry contains no value of the entry,
because a value may be a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from thinklsp.core.errors import PathRefused
from thinklsp.core.json_codec import parse_jsonc
from thinklsp.http.routes import is_loopback
from thinklsp.mcp_client.server_config import OfferedServer, ServerConfig, compute_digest, describe_server
from thinklsp.settings.model import describe_limit, find_nearest, format_key
from thinklsp.settings.user_file import McpSection, McpServerSection, UserSettings
from thinklsp.workspace.paths import Root
from thinklsp.workspace.uri import RelPath

MAX_SERVERS = 32
_MAX_FILE_BYTES = 256 * 1024
_MAX_VALUE_CHARACTERS = 100_000
_MAX_SHOWN_CHARACTERS = 60
_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_RESERVED_HEADERS = ("host", "content-length", "content-type", "accept", "connection", "transfer-encoding")
# The keys of the user's entries that apply only to a server with a command, and only to one with a URL.
_COMMAND_KEYS, _URL_KEYS = ("args", "env", "cwd", "sandbox"), ("headers", "token_command")
# The files of a project in the order of their precedence, with the key that contains the servers.
_FILES = ((RelPath.build((".mcp.json",)), "mcpServers"), (RelPath.build((".vscode", "mcp.json")), "servers"))
_UNSUPPORTED_KEYS = ("envFile", "headersHelper", "oauth")
_HTTP_TYPES = ("http", "streamable-http", "streamableHttp")
_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE_NAME = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]{0,127})(?::-(.*))?", re.DOTALL)

Offers = tuple[tuple[OfferedServer, ...], tuple[str, ...]]
"""The offered servers in the order of their names, with a sentence for each entry that cannot be used."""


class _WrongEntry(Exception):
    """Raised for an entry that cannot be used. The message is part of a sentence, after the name of the server."""


def _show(text: str) -> str:
    """Return a text for a message, with a question mark for each character that cannot be shown."""
    return "".join(c if c.isprintable() and c != "`" else "?" for c in text[:_MAX_SHOWN_CHARACTERS])


def _check(config: ServerConfig) -> ServerConfig:
    """Return the configuration. Raises _WrongEntry if the server cannot be used, wherever its entry comes from."""
    for problem in _list_problems(config):
        raise _WrongEntry(problem)
    return config


def _list_problems(config: ServerConfig) -> Iterator[str]:
    if not _NAME.fullmatch(config.name):
        yield "its name must be 1 to 32 letters, digits, `_` or `-`"
    if not all(map(_is_passable, (*config.command, *config.token_command))):
        yield "its command contains a character that no program can receive"
    if config.command and not config.command[0].strip():
        yield "its command is empty"
    for name, value in config.env.items():
        if not name or "=" in name or not _is_passable(name + value):
            yield f"the variable `{_show(name)}` cannot be set"
    for name, value in config.headers.items():
        if not _HEADER_NAME.fullmatch(name):
            yield f"`{_show(name)}` is not the name of a header"
        if name.lower() in _RESERVED_HEADERS or name.lower().startswith("mcp-"):
            yield f"the header `{name}` is set by thinklsp"
        if not all(" " <= c <= "~" or c == "\t" for c in value):
            yield f"the header `{name}` contains characters that cannot be sent"
    if config.url is not None:
        yield from _list_url_problems(config.url)


def _is_passable(text: str) -> bool:
    """Return True if a program can receive the text. Null characters and lone surrogates cannot be passed on."""
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


def _list_url_problems(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        host = parts.hostname
        parts.port  # noqa: B018 - raises ValueError for an invalid port
    except ValueError:
        yield "`url` is not a valid URL"
        return
    if parts.scheme not in ("http", "https") or not host or not url.isprintable() or " " in url:
        yield "`url` must begin with https:// and the name of a host"
    elif "@" in parts.netloc:
        yield "`url` contains a user name or password; use `headers` or `token_command`"
    elif parts.scheme == "http" and not is_loopback(host):
        yield "`url` must use https, because its host is not this machine"


def list_user_servers(user: UserSettings) -> tuple[tuple[ServerConfig, ...], tuple[str, ...]]:
    """Return the servers of the user's file in the order of their names, and a sentence for each entry with a mistake.

    An entry with a mistake has no effect on other entries. Entries with `enabled = false` are left out.
    """
    section = user.file.mcp
    servers: list[ServerConfig] = []
    problems: list[str] = []
    for name in sorted(section.servers.keys() - set(list_disabled_servers(user))):
        try:
            servers.append(_check(_build_user_config(name, section)))
        except _WrongEntry as wrong:
            problems.append(f"The MCP server `{_show(name) or '(no name)'}` in your config.toml is off: {wrong}.")
    if len(servers) > MAX_SERVERS:
        problems.append(f"Your config.toml names {len(servers)} MCP servers. Only the first {MAX_SERVERS} are used.")
    return tuple(servers[:MAX_SERVERS]), tuple(problems)


def list_disabled_servers(user: UserSettings) -> tuple[str, ...]:
    """Return the names of the entries with `enabled = false`."""
    entries = user.file.mcp.servers.items()
    return tuple(sorted(name for name, raw in entries if isinstance(raw, dict) and raw.get("enabled") is False))


def _explain_user_entry(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    parts = [str(part) for part in first["loc"] if part != "[key]"]
    if not parts:
        return "it must be a table"
    if first["type"] == "extra_forbidden":
        nearest = find_nearest(parts[0], McpServerSection.model_fields)
        return f"the key `{format_key(parts[0])}` is unknown" + (f" (did you mean `{nearest}`?)" if nearest else "")
    if parts[0] == "env" and "[key]" in first["loc"]:
        return "the names in `env` must consist of letters, digits and `_`"
    if parts[0] == "cwd" and first["type"] == "string_pattern_mismatch":
        return "`cwd` must begin with / or ~/"
    if parts[0] == "command" and first["type"] == "string_type":
        return "`command` must be the name of a program; write its arguments into `args`"
    limit = describe_limit(error)
    return f"`{format_key('.'.join(parts))}` must be {limit.partition(' or ')[0] if error.error_count() > 1 else limit}"


def _build_user_config(name: str, section: McpSection) -> ServerConfig:
    try:
        entry = McpServerSection.model_validate(section.servers[name])
    except ValidationError as error:
        raise _WrongEntry(_explain_user_entry(error)) from None
    if (entry.command is None) == (entry.url is None):
        raise _WrongEntry("it needs either `command` or `url`")
    kind, wrong = ("url", _COMMAND_KEYS) if entry.command is None else ("command", _URL_KEYS)
    for key in wrong:
        if key in entry.model_fields_set:
            raise _WrongEntry(f"`{key}` does not apply to a server with `{kind}`")
    sandbox = section.sandbox if entry.sandbox is None else entry.sandbox
    return ServerConfig(
        name, entry.build_command(), entry.env, entry.find_directory(), entry.url, entry.headers, entry.token_command,
        entry.tools, entry.deny, entry.ask, entry.timeout_s, entry.start_timeout_s,
        sandbox and entry.command is not None,
    )  # fmt: skip


class _OfferedEntry(BaseModel):
    """The keys of an offered entry that thinklsp uses. Environment variables are often written as numbers."""

    model_config = ConfigDict(strict=True, frozen=True)

    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str | int | float] | None = None
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str | int | float] | None = None


_FORMS = {"args": "a list of texts", "env": "an object of texts", "headers": "an object of texts"}


@dataclass(frozen=True, slots=True)
class ClientEntry:
    """The entry of a server that the agent's client names, in the form of a project's file."""

    name: str
    entry: Mapping[str, Any] = field(repr=False)


def offer_client_servers(servers: Sequence[ClientEntry], folder: str, user: UserSettings) -> Offers:
    """Return the servers that the client of the agent names. They never replace the user's own servers.

    `folder` is the path of the session's folder without links, in which programs run.
    """
    offers = _OfferList(user, "client")
    for server in servers[:MAX_SERVERS]:
        # Clients show names that people write, with spaces and dots.
        name = server.name.translate(str.maketrans(" .", "__"))
        offers.add(name, server.entry, folder, "the client", "of the client")
    if len(servers) > MAX_SERVERS:
        offers.notices.append(f"The client names {len(servers)} MCP servers. Only the first {MAX_SERVERS} are offered.")
    return offers.build()


def read_project_servers(roots: Sequence[Root], user: UserSettings) -> Offers:
    """Read the servers that the files of the workspace folders name. A name of the user's own file is left out."""
    offers = _OfferList(user, "project")
    for root in roots:
        for path, key in _FILES:
            place = f"`{path.label}`" if len(roots) == 1 else f"`{path.label}` in {root.path}"
            for name, entry in _read_entries(root, path, key, offers.notices):
                if not (isinstance(entry, Mapping) and entry.get("disabled") is True):
                    offers.add(name, entry, root.path, place, f"in {place}")
    return offers.build()


class _OfferList:
    """The servers of a project or of the client, with a sentence for each entry that is not used."""

    def __init__(self, user: UserSettings, source: Literal["project", "client"]) -> None:
        self._user = user
        self._source: Literal["project", "client"] = source
        self._by_name: dict[str, OfferedServer] = {}
        self.notices: list[str] = []

    def build(self) -> Offers:
        return tuple(self._by_name[name] for name in sorted(self._by_name)), tuple(self.notices)

    def add(self, name: str, entry: object, folder: str, place: str, where: str) -> None:
        """Offer the server of an entry, or note why it is not used. `place` and `where` name the entry's source."""
        try:
            self._add(name, entry, folder, place)
        except _WrongEntry as wrong:
            self.notices.append(f"The MCP server `{_show(name) or '(no name)'}` {where} is {wrong}.")

    def _add(self, name: str, entry: object, folder: str, place: str) -> None:
        if name in self._user.file.mcp.servers:
            raise _WrongEntry("not used, because your config.toml has a server of that name")
        digest = compute_digest(entry)
        if (earlier := self._by_name.get(name)) is not None:
            if (earlier.digest, earlier.folder) != (digest, folder):
                raise _WrongEntry(f"not used, because {earlier.place} has a server of that name")
            return
        is_project = self._source == "project"
        try:
            parsed = _parse_entry(entry)
            plain = self._build_config(name, parsed, folder, str)
            config = plain
            if is_project:
                config = self._build_config(name, parsed, folder, lambda text: _expand(text, folder, self._user))
            config = replace(_check(config), is_sandboxed=self._user.file.mcp.sandbox and config.url is None)
        except _WrongEntry as wrong:
            raise _WrongEntry(f"off: {wrong}") from None
        # The values of the user's variables may be secrets, so the description contains the variables instead.
        description = describe_server(plain, has_values=is_project)
        self._by_name[name] = OfferedServer(config, place, folder, digest, description)

    def _build_config(self, name: str, entry: _OfferedEntry, folder: str, expand: Callable[[str], str]) -> ServerConfig:
        if entry.url is not None:
            headers = {key: expand(str(value)) for key, value in (entry.headers or {}).items()}
            return ServerConfig(name, url=expand(entry.url), headers=headers, source=self._source)
        command = tuple(expand(word) for word in (entry.command or "", *(entry.args or ())))
        env = {key: expand(str(value)) for key, value in (entry.env or {}).items()}
        cwd = folder if entry.cwd is None else expand(entry.cwd)
        if not cwd.startswith(("/", "${")):
            raise _WrongEntry("`cwd` must be an absolute path, or begin with `${workspaceFolder}`")
        return ServerConfig(name, command, env, cwd, source=self._source)


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


def _parse_entry(entry: object) -> _OfferedEntry:
    if not isinstance(entry, Mapping):
        raise _WrongEntry("it must be an object")
    kind, is_http = entry.get("type"), entry.get("url") is not None
    for key in _UNSUPPORTED_KEYS:
        if entry.get(key) is not None:
            raise _WrongEntry(f"`{key}` is not supported")
    if kind in ("sse", "ws"):
        raise _WrongEntry(f"the type `{kind}` is not supported; use a server with the type `http`")
    if kind is not None and kind not in (_HTTP_TYPES if is_http else ("stdio",)):
        raise _WrongEntry("its `type` does not fit; use `stdio` with `command`, or `http` with `url`")
    if (entry.get("command") is None) != is_http:
        raise _WrongEntry("it needs either `command` or `url`")
    try:
        return _OfferedEntry.model_validate(entry)
    except ValidationError as error:
        key = str(error.errors(include_url=False, include_input=False, include_context=False)[0]["loc"][0])
        raise _WrongEntry(f"`{key}` must be {_FORMS.get(key, 'a text')}") from None


def _expand(text: str, folder: str, user: UserSettings) -> str:
    """Replace the variables `${NAME}`, `${env:NAME}` and `${NAME:-default}`. A value is not expanded again."""
    expanded = _VARIABLE.sub(lambda match: _find_value(match[1], folder, user), text)
    if len(expanded) > _MAX_VALUE_CHARACTERS:
        raise _WrongEntry("one of its values is too long")
    return expanded


def _find_value(variable: str, folder: str, user: UserSettings) -> str:
    """Return the value of a variable.

    Only names in `[mcp] project_env` have a value, because a project must not be able to read the user's environment.
    """
    if variable == "workspaceFolder":
        return folder
    match = _VARIABLE_NAME.fullmatch(variable)
    if match is None:
        raise _WrongEntry(f"`${{{_show(variable)}}}` is not supported")
    name, default = match.groups()
    is_allowed = name in user.file.mcp.project_env
    value = user.environment.get(name) if is_allowed else None
    if value or (value is not None and default is None):
        return value
    if default is not None:
        return default
    if is_allowed:
        raise _WrongEntry(f"it uses the variable `{name}`, which is not set in the environment")
    advice = "to pass it on, add its name to `project_env` of `[mcp]` in your config.toml"
    raise _WrongEntry(f"it uses the variable `{name}`; {advice}")
