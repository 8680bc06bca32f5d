"""The MCP servers that a client of the agent names. They are only offered, and never replace the user's own servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
from thinklsp.mcp_client.server_config import ServerConfig
from thinklsp.settings.user_file import UserSettings

_PLACE = "the client"


@dataclass(frozen=True, slots=True)
class ClientServer:
    """A server as the client names it: a command with its arguments, or a URL. `type` is the kind of transport."""

    name: str
    type: str = "stdio"
    command: str | None = None
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def offer_client_servers(
    servers: Sequence[ClientServer], folder: str, user: UserSettings
) -> tuple[tuple[OfferedServer, ...], tuple[str, ...]]:
    """Return the servers in the order of their names, and a sentence for each server that cannot be used.

    `folder` is the path of the session's folder without links, in which programs run.
    """
    by_name: dict[str, OfferedServer] = {}
    problems: list[str] = []
    for server in servers[:MAX_SERVERS]:
        name = _choose_name(server.name)
        config = _build_config(name, server, folder, user)
        problem = _explain(server, config)
        if problem is None and name in by_name:
            problem = "the client names another server of this name"
        if problem is not None:
            problems.append(f"The MCP server `{format_server_name(server.name)}` of the client is off: {problem}.")
        elif name in user.file.mcp.servers:
            reason = "because your config.toml has a server of that name"
            problems.append(f"The MCP server `{name}` of the client is not used, {reason}.")
        else:
            by_name[name] = OfferedServer(config, _PLACE, folder, _compute_digest(server), describe_server(config))
    if len(servers) > MAX_SERVERS:
        problems.append(f"The client names {len(servers)} MCP servers. Only the first {MAX_SERVERS} are offered.")
    return tuple(by_name[name] for name in sorted(by_name)), tuple(problems)


def _choose_name(name: str) -> str:
    """Return the name with `_` for spaces and dots, because clients show names that people write."""
    return name.translate(str.maketrans(" .", "__"))


def _build_config(name: str, server: ClientServer, folder: str, user: UserSettings) -> ServerConfig:
    if server.type == "stdio":
        command = () if server.command is None else (server.command, *server.args)
        return ServerConfig(
            name, command, dict(server.env), folder, is_sandboxed=user.file.mcp.sandbox, source="client"
        )
    return ServerConfig(name, url=server.url, headers=dict(server.headers), source="client")


def _explain(server: ClientServer, config: ServerConfig) -> str | None:
    if server.type not in ("stdio", "http"):
        return f"the type `{format_server_name(server.type)}` is not supported; use a server with the type `http`"
    if not config.command and config.url is None:
        return "it has neither a command nor a URL"
    checks = (
        explain_server_name(config.name),
        explain_command(config.command),
        explain_environment(config.env),
        explain_headers(config.headers),
        None if config.url is None else explain_url(config.url),
    )
    return next((problem for problem in checks if problem is not None), None)


def _compute_digest(server: ClientServer) -> str:
    entry = {
        "name": server.name, "type": server.type, "command": server.command, "args": list(server.args),
        "env": dict(server.env), "url": server.url, "headers": dict(server.headers),
    }  # fmt: skip
    return compute_digest(entry)
