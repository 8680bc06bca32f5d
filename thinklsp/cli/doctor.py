"""Check the configuration, show the effective settings with their sources, and suggest a fix for each problem.

Doctor never calls a model and never prints a key.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from thinklsp.cli.setup.files import Machine, find_server
from thinklsp.cli.terminal import (
    create_console,
    find_current_folder,
    print_fact,
    print_json,
    print_problem,
)
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.text_safety import format_size
from thinklsp.engine.diagnosis import run_diagnosis
from thinklsp.settings.access import list_key_variables, list_keyed_providers, resolve_access
from thinklsp.settings.config_files import find_config_path
from thinklsp.settings.sources import load_user_settings, resolve_settings
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import WorkspaceView

_WIDTH = 12
_MAX_SHOWN = 8
_NEWEST = "treated like the newest models"
_UNLISTED = {"openai-compatible": "so its window and price are unknown"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print the report as a JSON object")
    forms.add_argument(
        "--acp", action="store_true", help="print the command and the key for clients of the Agent Client Protocol"
    )


def run(args: argparse.Namespace) -> int:
    """Print the report. Returns 0 if a turn can run with this configuration, or if `--acp` finds a key."""
    if args.acp:
        return _print_acp_report(create_console(sys.stdout))
    report = asyncio.run(run_diagnosis(os.environ, _open_current_folder()))
    if args.json:
        print_json(report)
    else:
        _print(create_console(sys.stdout), report)
    return 0 if report["canRun"] else 1


def _open_current_folder() -> WorkspaceView | None:
    """Return a view of the current folder, for its skills. Return None if tools must not read the folder."""
    try:
        return WorkspaceView([Root(find_current_folder())])
    except ThinkLspError:
        return None


def _print(console: Console, report: Mapping[str, Any]) -> None:
    python, platform = report["system"]["python"], report["system"]["platform"]
    head = Text(f"thinklsp {report['version']}", style="bold")
    console.print(head.append(f"   Python {python} on {platform}", style="not bold dim"))
    console.print()
    for name, value, why in _build_rows(report):
        print_fact(console, value, why, label=f"{name:<{_WIDTH}} ")
    console.print()
    for problem in report["problems"]:
        print_problem(console, problem)
    if report["canRun"]:
        console.print(Text("✓ thinklsp is ready to run a turn.", style="green"))
    else:
        console.print(Text("✗ thinklsp cannot run a turn until this is fixed.", style="red"))


def _build_rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of the report. Each row has a name, a value, and a source or an explanation."""
    if (model := report["model"]) is not None:
        yield from _build_model_rows(model, report["reachable"])
    else:
        keyed = ", ".join(report["providers"]["keyed"])
        reason = f"providers with a key or a base URL: {keyed}" if keyed else "no provider has a key"
        yield "provider", "none", "the settings are invalid" if report["settings"] is None else reason
    yield "search", *(("ripgrep", "") if report["tools"]["ripgrep"] else ("none", "ripgrep was not found"))
    if (commands := report["commands"]) is not None:
        advice = "set `commands.enabled` in your config.toml to let the model run tests"
        if commands["offered"]:
            yield "commands", "on", "in the sandbox, on a shadow copy"
        else:
            why = advice if commands["problem"] is None else "see below"
            yield "commands", "cannot run" if commands["enabled"] else "off", why
    if (mcp := report["mcp"]) is not None and (mcp["servers"] or mcp["disabled"]):
        names = ", ".join(server["name"] for server in mcp["servers"])
        yield "MCP servers", names or "none", "`thinklsp mcp test NAME` starts one and shows its state"
    if (skills := report["skills"]) is not None:
        names = _join([skill["name"] for skill in skills["skills"]])
        yield "skills", str(len(skills["skills"])), names or f"your own are in {skills['folder']}"
    yield from _build_file_rows(report)


def _join(names: Sequence[str]) -> str:
    return ", ".join([*names[:_MAX_SHOWN], *(["…"] if len(names) > _MAX_SHOWN else [])])


def _build_model_rows(model: Mapping[str, Any], reachable: bool | None) -> Iterator[tuple[str, str, str]]:
    is_offline, source, price = model["provider"] == "simulator", model["providerSource"], model["catalogue"]["price"]
    if is_offline:
        yield "provider", "simulator (offline)", f"{source} · answers come from a script, not from a model"
    else:
        yield "provider", model["provider"], source
    missing = "none", "set `THINKLSP_COMPATIBLE_API_KEY` if the server requires a key"
    key = missing if model["keySource"] == "none needed" else ("found", model["keySource"])
    yield "key", *(key if model["baseUrl"] else ("not needed", ""))
    if model["baseUrl"]:
        answer = {True: "reachable", False: "not reachable", None: "not tested"}[reachable]
        yield "host", model["baseUrl"], f"{model['baseUrlSource']} · {answer}"
    catalogue_note = "" if model["known"] else f" · not in the catalogue, {_UNLISTED.get(model['provider'], _NEWEST)}"
    yield "model", model["id"] or "the server's first model", model["idSource"] + catalogue_note
    budget = f", {model['budgetTokens']:,} tokens" if model["budgetTokens"] else ""
    summary = model["summary"]
    summaries = "" if summary is None else ", summaries" if summary == "auto" else f", {summary} summaries"
    yield "thinking", f"{model['thinking']}{budget}{summaries}", model["thinkingSource"]
    yield "effort", model["effort"], model["effortSource"]
    limit, window = model["maxTokens"], model["contextWindow"]
    output_limit = "as much as the server allows" if limit is None else f"at most {limit:,} tokens"
    yield "output", output_limit, "window unknown" if window is None else f"window {window:,} tokens"
    if is_offline or price is None:
        yield "price", "free" if is_offline else "unknown", ""
    else:
        yield "price", f"${price['input']:g} input, ${price['output']:g} output", "per million tokens"
    if (capabilities := model["capabilities"]) is not None:
        yield from _build_capability_rows(capabilities)
    for notice in model["notices"]:
        yield "", notice, ""


def _build_capability_rows(capabilities: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    if capabilities["thinking"] is not None or capabilities["efforts"] is not None:
        thinking, efforts = (", ".join(capabilities[key] or ["none"]) for key in ("thinking", "efforts"))
        yield "", f"thinking {thinking}; effort {efforts}", "supported by the model, according to the provider"
    if (models := capabilities["models"]) is not None:
        yield "models", _join(models) or "none", f"{len(models)} on the server"


def _build_file_rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    if (settings := report["settings"]) is not None:
        yield "settings", settings["file"], "" if os.path.exists(settings["file"]) else "does not exist (optional)"
        for key, source in sorted(settings["sources"].items()):
            value = settings["values"]
            for part in key.split("."):
                value = value[part]
            yield "", f"{key} = {json.dumps(value)}", source
    else:
        yield "settings", find_config_path(os.environ), "see the problem below"
    if (permissions := report["permissions"]) is not None:
        # None means that the file has a mistake, which is among the problems.
        folders = permissions["trustedFolders"] or ()
        trusted = "1 folder" if len(folders) == 1 else f"{len(folders)} folders"
        yield "trust", trusted, f"whose AGENTS.md, skills and similar files the model follows · {permissions['file']}"
    store = report["store"]
    yield "sessions", *_describe_store(store)
    yield "state folder", store["folder"], "" if store["folderExists"] else "created when needed"
    log = "nothing logged yet" if store["logBytes"] is None else format_size(store["logBytes"])
    yield "log", store["log"], log


def _describe_store(store: Mapping[str, Any]) -> tuple[str, str]:
    if store["databaseExists"]:
        kind = "read-only · " if store["kind"] == "read-only" else ""
        count = "1 session" if store["sessions"] == 1 else f"{store['sessions']:,} sessions"
        return store["path"], f"{kind}{count}, {format_size(store['bytes'])} · {store['protection']}"
    states = {
        "postgresql": ("not reachable", "see the problem below"),
        "memory": ("in memory only", "lost when the server exits"),
    }
    return states.get(store["kind"], (store["path"], "no sessions yet; created with the first prompt"))


def _print_acp_report(console: Console) -> int:
    """Print the command and the key for clients of the Agent Client Protocol. Return 0 if a key is found.

    Raises ThinkLspError if the user's file is invalid.
    """
    user = load_user_settings(os.environ)
    chosen = resolve_settings(user).settings.provider
    # The editors' files, which an installation may lack, are not needed.
    command = Machine(dict(os.environ), sys.platform, find_server(os.environ), Path()).acp_command
    keyed = [name for name in list_keyed_providers(user) if chosen in ("auto", name)]
    keys = [(str(name), resolve_access(name, user).source) for name in keyed]
    if chosen == "simulator":
        keys.append((chosen, "the offline simulator needs no key"))
    print_fact(console, " ".join(command), "", label=f"{'command':<{_WIDTH}} ")
    for value, source in keys or [("none", "no provider has a key")]:
        print_fact(console, value, source, label=f"{'key':<{_WIDTH}} ")
    if not keys:
        print_problem(console, "Run `thinklsp acp --setup` to store a key that every client finds.")
    elif any(user.environment.get(each, "").strip() for name in keyed for each in list_key_variables(name, user)):
        reason = "A key of the environment does not reach clients that pass few variables."
        print_problem(console, f"{reason} To store it for them, run `thinklsp acp --setup`.")
    if (hidden := describe_hidden_config()) is not None:
        print_problem(console, hidden)
    commands = "`thinklsp setup zed` or `thinklsp setup jetbrains`"
    console.print(f"\nFor Zed and JetBrains IDEs, run {commands}. docs/acp.md shows the settings of other clients.")
    return 0 if keys else 1


def describe_hidden_config() -> str | None:
    """Return a sentence if clients without the user's environment do not find config.toml, or None."""
    path = find_config_path(os.environ)
    variable = next((name for name in ("THINKLSP_CONFIG", "XDG_CONFIG_HOME") if os.environ.get(name)), None)
    if variable is None or path == os.path.expanduser("~/.config/thinklsp/config.toml"):
        return None
    return f"{path} is used because of {variable}. A client must pass this variable to thinklsp."
