"""What would be used and why, and how to mend what is wrong. Asks no model anything and never prints a key."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from thinklsp.cli.terminal import console_for, harmless, size_told
from thinklsp.engine.doctor import diagnose

_WIDTH = 12
_SHOWN_MODELS = 8
_NEWEST = "treated as the newest ones"
_UNLISTED = {"openai-compatible": "so its window and price are not known"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def run(args: argparse.Namespace) -> int:
    """0 when a turn could run."""
    report = asyncio.run(diagnose(os.environ))
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        _print(console_for(sys.stdout), report)
    return 0 if report["canRun"] else 1


def _print(console: Console, report: Mapping[str, Any]) -> None:
    version, system = report["version"], report["system"]
    console.print(Text(f"thinklsp {version}", style="bold").append(f"   {_system(system)}", style="not bold dim"))
    console.print()
    for name, value, why in _rows(report):
        line = Text(f"{name:<{_WIDTH}} ").append(harmless(value), style="bold")
        console.print(line.append(f"   {harmless(why)}" if why else "", style="not bold dim"), soft_wrap=True)
    console.print()
    for problem in report["problems"]:
        console.print(
            Text("! ", style="bold yellow").append(harmless(problem), style="not bold yellow"), soft_wrap=True
        )
    if report["canRun"]:
        console.print(Text("✓ A turn could run now.", style="green"))
    else:
        console.print(Text("✗ No turn can run before this is mended.", style="red"))


def _system(system: Mapping[str, str]) -> str:
    return f"Python {system['python']} on {system['platform']}"


def _rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name, value, and why it is so."""
    if (model := report["model"]) is not None:
        yield from _model_rows(model, report["reachable"])
    else:
        yield "provider", "none", _why_none(report)
    yield "search", *(("ripgrep", "") if report["tools"]["ripgrep"] else ("slow", "ripgrep was not found"))
    if (commands := report["commands"]) is not None:
        yield "commands", *_commands(commands)
    yield from _file_rows(report)


def _commands(commands: Mapping[str, Any]) -> tuple[str, str]:
    if commands["offered"]:
        return "on", "in the sandbox, on a copy"
    if commands["enabled"]:
        return "not possible", "see below"
    can = "commands.enabled in your config.toml lets the model run tests"
    return "off", can if commands["problem"] is None else "and no sandbox to run them in"


def _why_none(report: Mapping[str, Any]) -> str:
    if report["settings"] is None:
        return "the settings cannot be used"
    keyed = ", ".join(report["providers"]["keyed"])
    return f"with a key or an address: {keyed}" if keyed else "no provider has a key"


def _model_rows(model: Mapping[str, Any], reachable: bool | None) -> Iterator[tuple[str, str, str]]:
    yield "provider", model["provider"], model["providerSource"]
    yield "key", *_key(model)
    if model["baseUrl"]:
        answer = {True: "reachable", False: "not reachable", None: "not tried"}[reachable]
        yield "host", model["baseUrl"], f"{model['baseUrlSource']} · {answer}"
    known = "" if model["known"] else f" · not in the catalogue, {_UNLISTED.get(model['provider'], _NEWEST)}"
    yield "model", model["id"] or "the server's first", model["idSource"] + known
    budget = f", {model['budgetTokens']:,} tokens" if model["budgetTokens"] else ""
    summary = model["summary"]
    summaries = "" if summary is None else ", summaries" if summary == "auto" else f", {summary} summaries"
    yield "thinking", f"{model['thinking']}{budget}{summaries}", model["thinkingSource"]
    yield "effort", model["effort"], model["effortSource"]
    most = "as much as the server allows" if model["maxTokens"] is None else f"at most {model['maxTokens']:,} tokens"
    window = model["contextWindow"]
    yield "output", most, "window not known" if window is None else f"window {window:,}"
    yield "price", *_price(model["catalogue"]["price"])
    if (told := model["capabilities"]) is not None:
        yield from _told_rows(told)
    for notice in model["notices"]:
        yield "", notice, ""


def _key(model: Mapping[str, Any]) -> tuple[str, str]:
    if not model["baseUrl"]:
        return "not needed", ""
    if model["keySource"] == "none needed":
        return "none", "set THINKLSP_COMPATIBLE_API_KEY where the server wants one"
    return "found", model["keySource"]


def _price(price: Mapping[str, Any] | None) -> tuple[str, str]:
    if price is None:
        return "not known", ""
    return f"${price['input']:g} in, ${price['output']:g} out", "for a million tokens"


def _told_rows(told: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    if told["thinking"] is not None or told["efforts"] is not None:
        thinking, efforts = (", ".join(told[key] or ["none"]) for key in ("thinking", "efforts"))
        yield "", f"thinking {thinking}; effort {efforts}", "what the service says the model takes"
    if told["models"] is not None:
        more = ["…"] if len(told["models"]) > _SHOWN_MODELS else []
        some = ", ".join([*told["models"][:_SHOWN_MODELS], *more]) or "none"
        yield "models", some, f"{len(told['models'])} on the server"


def _file_rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    if (settings := report["settings"]) is not None:
        yield "settings", settings["file"], "" if os.path.exists(settings["file"]) else "not there, which is fine"
        for key, source in sorted(settings["sources"].items()):
            yield "", f"{key} = {_value(settings['values'], key)}", source
    if (permissions := report["permissions"]) is not None:
        yield "trust", *_trust(permissions)
    store = report["store"]
    yield "sessions", *_store(store)
    yield "own folder", store["folder"], "" if store["folderExists"] else "made when it is needed"
    log = "nothing logged yet" if store["logBytes"] is None else f"{store['logBytes']:,} bytes"
    yield "log", store["log"], log


def _trust(permissions: Mapping[str, Any]) -> tuple[str, str]:
    folders = permissions["trustedFolders"]
    if folders is None:
        return "nothing", f"{permissions['file']} cannot be used"
    count = "1 folder" if len(folders) == 1 else f"{len(folders)} folders"
    return count, f"whose instructions are followed · {permissions['file']}" if folders else ""


def _store(store: Mapping[str, Any]) -> tuple[str, str]:
    if not store["databaseExists"]:
        return (
            ("in memory only", "they last as long as the server")
            if store["kind"] == "memory"
            else (
                store["path"],
                "none yet; made with the first prompt",
            )
        )
    kind = "cannot be written · " if store["kind"] == "read-only" else ""
    count = "1 session" if store["sessions"] == 1 else f"{store['sessions']:,} sessions"
    return store["path"], f"{kind}{count}, {size_told(store['bytes'])} · {store['protection']}"


def _value(values: Mapping[str, Any], key: str) -> str:
    value: Any = values
    for part in key.split("."):
        value = value[part]
    return json.dumps(value)
