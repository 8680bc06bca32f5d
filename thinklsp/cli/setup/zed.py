"""Zed: thinklsp as an external agent in `settings.json`, which is JSON with comments."""

from __future__ import annotations

import json
from pathlib import Path

from thinklsp.cli.setup.blocks import ConfigPlace
from thinklsp.cli.setup.machine import Machine
from thinklsp.cli.setup.steps import ConfigEdit, SetupSteps, insert, read_own_text, refuse_own_entry, remove
from thinklsp.core.json_codec import parse_jsonc

SERVERS = "agent_servers"
# Distributions name the program differently.
PROGRAMS = ("zed", "zeditor", "zedit", "zed-editor", "/Applications/Zed.app/Contents/MacOS/cli")
_NOTE = "To use it, open the agent panel of Zed and start a new thread with thinklsp."


def find_folder(machine: Machine) -> Path:
    """Return the folder of Zed's settings. On macOS, Zed does not read XDG_CONFIG_HOME."""
    return (machine.home / ".config" if machine.platform == "darwin" else machine.config) / "zed"


def build_steps(machine: Machine, _: str) -> SetupSteps:
    place = _find_place(machine)
    if has_entry(read_own_text(place)):
        return refuse_own_entry(place.path)
    entry = {"type": "custom", **build_entry(machine)}
    line = f'"thinklsp": {json.dumps(entry, ensure_ascii=False)}'
    return SetupSteps((insert(place, [line]),), notes=(_NOTE,))


def build_removals(machine: Machine) -> tuple[ConfigEdit, ...]:
    return (remove(_find_place(machine)),)


def build_entry(machine: Machine) -> dict[str, object]:
    """Return the part of the entry that clients of the Agent Client Protocol have in common."""
    program, *args = machine.acp_command
    return {"command": program, "args": args, "env": {}}


def has_entry(text: str) -> bool:
    """Return True if the text has an agent that is called thinklsp or starts a program of that name."""
    try:
        value = parse_jsonc(text)
    except ValueError:
        return False
    servers = value.get(SERVERS) if isinstance(value, dict) else None
    entries = servers.items() if isinstance(servers, dict) else ()
    return any(name == "thinklsp" or _find_program_name(entry) == "thinklsp" for name, entry in entries)


def _find_program_name(entry: object) -> str:
    command = entry.get("command") if isinstance(entry, dict) else None
    return Path(command).name if isinstance(command, str) else ""


def _find_place(machine: Machine) -> ConfigPlace:
    folder = find_folder(machine)
    return ConfigPlace(folder / "settings.json", folder.parent, "//", (SERVERS,))
