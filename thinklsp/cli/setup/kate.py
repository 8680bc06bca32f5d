"""Kate: its file of language servers, which is JSON without comments and so is written as a whole or left alone.

Kate runs one server per language. thinklsp gets the languages for whose own server no program is installed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from thinklsp.cli.setup.machine import Machine
from thinklsp.cli.setup.steps import ConfigEdit, SetupSteps
from thinklsp.core.errors import ThinkLspError

# Kate's own server for each language.
_PROGRAMS = {
    "bash": "bash-language-server", "c": "clangd", "cpp": "clangd", "go": "gopls",
    "javascript": "typescript-language-server", "lua": "lua-language-server", "markdown": "marksman",
    "php": "intelephense", "python": "pylsp", "ruby": "solargraph", "rust": "rust-analyzer",
    "typescript": "typescript-language-server",
}  # fmt: skip
_MARK = "written by"
_WRITER = "thinklsp setup kate"


def build_steps(machine: Machine, _: str) -> SetupSteps:
    free = [name for name, program in _PROGRAMS.items() if machine.find_program([program]) is None]
    servers = {name: {"command": list(machine.server)} for name in free}
    text = json.dumps({_MARK: _WRITER, "servers": servers}, indent=2, ensure_ascii=False) + "\n"
    kept = ", ".join(name for name in _PROGRAMS if name not in free)
    notes = ["Enable the plug-in LSP Client in Settings → Configure Kate → Plugins."]
    if kept:
        notes.append(f"Kate runs one server per language, and these keep theirs: {kept}.")
    page = machine.files / "kate" / "README.md"
    return SetupSteps((_edit(machine, partial(_write, data=text.encode(), page=page)),), notes=tuple(notes))


def build_removals(machine: Machine) -> tuple[ConfigEdit, ...]:
    return (_edit(machine, _delete),)


def _edit(machine: Machine, edit: Callable[[bytes | None], bytes | None]) -> ConfigEdit:
    root = machine.home / "Library" / "Preferences" if machine.platform == "darwin" else machine.config
    return ConfigEdit(root / "kate" / "lspclient" / "settings.json", root, edit)


def _write(current: bytes | None, *, data: bytes, page: Path) -> bytes | None:
    if current is None or _is_ours(current):
        return data
    raise ThinkLspError(
        "Kate's file of language servers has content of your own, so nothing was changed. Add the entries of "
        f"{page} in Settings → LSP Client → User Server Settings."
    )


def _delete(current: bytes | None) -> bytes | None:
    return None if current is not None and _is_ours(current) else current


def _is_ours(data: bytes) -> bool:
    """Return True if thinklsp wrote the file and nothing was added to it."""
    try:
        value = json.loads(data)
        commands = [server.pop("command") for server in value["servers"].values()]
        rest = [value[key] for key in value if key not in (_MARK, "servers")]
        return value.get(_MARK) == _WRITER and not rest and all(commands) and not any(value["servers"].values())
    except (ValueError, TypeError, KeyError, AttributeError):
        return False
