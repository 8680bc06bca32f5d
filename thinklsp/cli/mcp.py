"""List MCP servers and their tools, approve a server of this folder's project, pin changed tools, or test a server."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from thinklsp.cli.terminal import (
    create_console,
    find_current_folder,
    is_confirmed,
    print_fact,
    print_json,
    print_problem,
    render_diff,
    sanitize_text,
    wrap_paragraph,
)
from thinklsp.core.errors import PathRefused, ThinkLspError
from thinklsp.engine.mcp_report import KnownServer, KnownServers, StartedServer, list_known_servers, try_server
from thinklsp.mcp_client.consent import Approvals, PinReport, Pins, format_definition
from thinklsp.mcp_client.server_config import ListedTool
from thinklsp.sessions.state_folder import resolve_state_folder
from thinklsp.settings.sources import load_user_settings
from thinklsp.settings.user_file import UserSettings
from thinklsp.workspace.paths import Root

_NAME_HELP = "the name of the server"
_MAX_DESCRIPTION_CHARACTERS = 2_000
_MAX_ERROR_LINES = 20
_REFUSAL = "There is no terminal to ask you in. Use `--yes` to accept what is shown."
_CONSENTS = {
    "own": "on",
    "approved": "on, approved",
    "new": "off, not approved",
    "changed": "off, changed since you approved it",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    ops = parser.add_subparsers(dest="op", metavar="{list,tools,approve,pin,test}")
    parser.set_defaults(op="list", json=False)
    listing = ops.add_parser("list", help="list the servers of your config.toml and of this folder (default)")
    tools = ops.add_parser("tools", help="start a server and list its tools with the names that the model sees")
    approve = ops.add_parser("approve", help="approve a server that a file of this folder names")
    pin = ops.add_parser("pin", help="start a server, show what changed in its tools, and accept it")
    test = ops.add_parser("test", help="start a server and show its state")
    for op in (tools, approve, pin, test):
        op.add_argument("name", metavar="NAME", help=_NAME_HELP)
    for op in (approve, pin):
        op.add_argument("--yes", action="store_true", help="accept without asking")
    for op in (listing, tools, test):
        op.add_argument("--json", action="store_true", help="print the result as JSON")


@dataclass(frozen=True, slots=True)
class _Context:
    """The user's settings, the current folder and the files of the state folder, for all operations."""

    user: UserSettings
    folder: str
    approvals: Approvals
    pins: Pins
    console: Console

    def list_servers(self) -> KnownServers:
        try:
            root = Root(self.folder, allow_wide=self.user.file.workspace.allow_home)
        except PathRefused:
            # A home folder is not a project.
            return list_known_servers(self.user, (), self.approvals)
        with root:
            return list_known_servers(self.user, (root,), self.approvals)

    def start(self, server: KnownServer) -> StartedServer:
        """Start and end a server. Raises ThinkLspError if the user has not approved it."""
        if not server.may_run:
            problem = f"The MCP server `{server.name}` is not approved, because {server.place} names it."
            raise ThinkLspError(f"{problem} Run `thinklsp mcp approve {server.name}` to see what it runs.")
        return asyncio.run(try_server(server.config, self.user, self.folder, self.pins))


def run(args: argparse.Namespace) -> int:
    state_folder = resolve_state_folder(os.environ)
    user, console = load_user_settings(os.environ), create_console(sys.stdout)
    context = _Context(user, find_current_folder(), Approvals(state_folder), Pins(state_folder), console)
    return _OPERATIONS[args.op](context, args)


def _list(context: _Context, args: argparse.Namespace) -> int:
    known = context.list_servers()
    if args.json:
        servers = [server.describe() for server in known.servers]
        print_json({"servers": servers, "disabled": list(known.disabled), "problems": list(known.problems)})
        return 0
    for server in known.servers:
        print_fact(context.console, server.name, f"{_CONSENTS[server.consent]} · {server.place}")
        _print_text(context.console, server.description)
    for name in known.disabled:
        print_fact(context.console, name, "off, `enabled` is false · your config.toml")
    for problem in known.problems:
        print_problem(context.console, problem)
    if not (known.servers or known.disabled):
        context.console.print("There are no MCP servers. docs/mcp.md describes `[mcp.servers.NAME]` of config.toml.")
    return 0


def _start(context: _Context, args: argparse.Namespace) -> int:
    """Start a server and show its state, and for `tools` its tools."""
    started = context.start(context.list_servers().find(args.name))
    report, is_ready = started.describe(), started.state == "ready"
    if args.json:
        print_json(report)
        return 0 if is_ready else 1
    facts = started.state
    if is_ready and started.start_seconds is not None:
        facts = f"ready after {started.start_seconds:.2f} s · protocol {started.era} · {_count_tools(started.tools)}"
    print_fact(context.console, started.config.name, facts)
    _print_text(context.console, f"Hash: {started.config.fingerprint}")
    if started.last_error:
        _print_text(context.console, f"Last error: {started.last_error}")
    for line in [] if is_ready else report["stderr"].splitlines()[-_MAX_ERROR_LINES:]:
        context.console.print(Text(f"  {sanitize_text(line)}", style="dim"), soft_wrap=True)
    for tool in report["tools"] if args.op == "tools" else ():
        pin = {"same": "accepted", "new": "new", "changed": "changed", None: "not compared"}[tool["pin"]]
        context.console.print()
        name = tool["modelName"] or f"{tool['name']} (left out)"
        print_fact(context.console, name, f"{pin} · {(tool['hash'] or '')[:16]}")
        _print_text(context.console, tool["description"][:_MAX_DESCRIPTION_CHARACTERS])
    for problem in started.problems:
        print_problem(context.console, problem)
    return 0 if is_ready else 1


def _approve(context: _Context, args: argparse.Namespace) -> int:
    server = context.list_servers().find(args.name)
    if server.offered is None:
        context.console.print(f"The MCP server `{server.name}` is in your config.toml, so it needs no approval.")
        return 0
    print_fact(context.console, server.name, f"{_CONSENTS[server.consent]} · {server.place}")
    _print_text(context.console, server.description)
    _print_text(context.console, f"Hash of the entry: {server.offered.digest}")
    if server.consent == "approved":
        context.console.print("You have approved this server.")
        return 0
    if not is_confirmed("Approve this server for this folder?", yes=args.yes, refusal=_REFUSAL):
        return 1
    context.approvals.approve(server.offered)
    context.console.print(f"The MCP server `{server.name}` is approved until its entry changes.")
    return 0


def _pin(context: _Context, args: argparse.Namespace) -> int:
    server = context.list_servers().find(args.name)
    started = context.start(server)
    if started.pins is None:
        problem = started.last_error or " ".join(started.problems)
        raise ThinkLspError(problem or f"The MCP server `{server.name}` is not ready.")
    _print_text(context.console, server.description)
    is_different = _print_differences(context.console, started.pins, started.tools)
    if not is_different:
        context.console.print("Nothing has changed since you accepted this server.")
        return 0
    if not is_confirmed("Accept this server and its tools as they are now?", yes=args.yes, refusal=_REFUSAL):
        return 1
    context.pins.accept(server.config, started.tools, replace=True)
    context.console.print(f"Accepted {_count_tools(started.tools)} of the MCP server `{server.name}`.")
    return 0


def _count_tools(tools: tuple[ListedTool, ...]) -> str:
    return "1 tool" if len(tools) == 1 else f"{len(tools)} tools"


def _print_differences(console: Console, pins: PinReport, tools: tuple[ListedTool, ...]) -> bool:
    """Print everything that differs from the accepted state. Return False if nothing differs."""
    if pins.server == "changed":
        _print_text(console, f"The command line or URL changed.\n  accepted  {pins.pinned_fingerprint}")
        _print_text(console, f"  now       {pins.fingerprint}")
    by_name = {tool.name: tool for tool in tools}
    for name, pin in pins.tools.items():
        tool = by_name[name]
        if pin.state == "new":
            console.print()
            print_fact(console, name, f"new · {pin.hash}")
            _print_text(console, (tool.description or tool.title)[:_MAX_DESCRIPTION_CHARACTERS])
        elif pin.state == "changed":
            console.print()
            print_fact(console, name, "changed")
            _print_text(console, f"accepted  {pin.pinned_hash}\nnow       {pin.hash}")
            for line in render_diff(_build_diff(pin.pinned_definition, format_definition(tool)), indent=2):
                console.print(line, soft_wrap=True)
    for name in pins.removed:
        console.print()
        print_fact(console, name, "no longer listed")
    is_same = pins.server == "same" and all(pin.state == "same" for pin in pins.tools.values())
    return not is_same or bool(pins.removed)


def _build_diff(accepted: str, present: str) -> str:
    lines = difflib.unified_diff(accepted.splitlines(), present.splitlines(), "accepted", "now", lineterm="", n=2)
    return "".join(f"{line}\n" for line in lines)


def _print_text(console: Console, text: str) -> None:
    for line in wrap_paragraph(console, text, indent=2):
        console.print(line)


_OPERATIONS: dict[str, Callable[[_Context, argparse.Namespace], int]] = {
    "list": _list,
    "tools": _start,
    "approve": _approve,
    "pin": _pin,
    "test": _start,
}
