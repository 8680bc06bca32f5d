"""The MCP servers that the user's own file names."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from thinklsp.mcp_client.entry_checks import (
    MAX_SERVERS,
    explain_command,
    explain_environment,
    explain_headers,
    explain_server_name,
    explain_url,
    format_server_name,
)
from thinklsp.mcp_client.server_config import ServerConfig
from thinklsp.settings.model import describe_limit, find_nearest, format_key
from thinklsp.settings.user_file import McpSection, McpServerSection, UserSettings

_COMMAND_KEYS, _URL_KEYS = ("args", "env", "cwd", "sandbox"), ("headers", "token_command")


def list_user_servers(user: UserSettings) -> tuple[tuple[ServerConfig, ...], tuple[str, ...]]:
    """Return the servers of the user's file in the order of their names, and a sentence for each entry with a mistake.

    An entry with a mistake has no effect on other entries. Entries with `enabled = false` are left out.
    """
    section = user.file.mcp
    servers: list[ServerConfig] = []
    problems: list[str] = []
    for name in sorted(section.servers.keys() - set(list_disabled_servers(user))):
        entry = _parse_entry(section.servers[name])
        problem = explain_server_name(name) or (entry if isinstance(entry, str) else _find_mistake(entry))
        if problem is not None or isinstance(entry, str):
            problems.append(f"The MCP server `{format_server_name(name)}` in your config.toml is off: {problem}.")
        else:
            servers.append(_build_config(name, entry, section))
    if len(servers) > MAX_SERVERS:
        problems.append(f"Your config.toml names {len(servers)} MCP servers. Only the first {MAX_SERVERS} are used.")
    return tuple(servers[:MAX_SERVERS]), tuple(problems)


def list_disabled_servers(user: UserSettings) -> tuple[str, ...]:
    """Return the names of the entries with `enabled = false`."""
    entries = user.file.mcp.servers.items()
    return tuple(sorted(name for name, raw in entries if isinstance(raw, dict) and raw.get("enabled") is False))


def _parse_entry(raw: object) -> McpServerSection | str:
    """Return the entry, or its first mistake as part of a sentence."""
    try:
        return McpServerSection.model_validate(raw)
    except ValidationError as error:
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
        return f"`{format_key('.'.join(parts))}` must be {_describe_first(error)}"


def _describe_first(error: ValidationError) -> str:
    return describe_limit(error).partition(" or ")[0] if error.error_count() > 1 else describe_limit(error)


def _find_mistake(entry: McpServerSection) -> str | None:
    """Return the first mistake in an entry that the types of its values do not show, as part of a sentence."""
    return next(_list_mistakes(entry), None)


def _list_mistakes(entry: McpServerSection) -> Iterator[str]:
    if (entry.command is None) == (entry.url is None):
        yield "it needs either `command` or `url`"
        return
    kind, wrong = ("url", _COMMAND_KEYS) if entry.command is None else ("command", _URL_KEYS)
    yield from (f"`{key}` does not apply to a server with `{kind}`" for key in wrong if key in entry.model_fields_set)
    checks = [explain_command((*entry.build_command(), *entry.token_command)), explain_environment(entry.env)]
    checks += [explain_headers(entry.headers), None if entry.url is None else explain_url(entry.url)]
    yield from (problem for problem in checks if problem is not None)


def _build_config(name: str, entry: McpServerSection, section: McpSection) -> ServerConfig:
    sandbox = section.sandbox if entry.sandbox is None else entry.sandbox
    return ServerConfig(
        name,
        entry.build_command(),
        entry.env,
        entry.find_directory(),
        entry.url,
        entry.headers,
        entry.token_command,
        entry.tools,
        entry.deny,
        entry.ask,
        entry.timeout_s,
        entry.start_timeout_s,
        sandbox and entry.command is not None,
    )
