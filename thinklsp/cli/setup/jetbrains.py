"""JetBrains IDEs: thinklsp as an agent in `~/.jetbrains/acp.json`.

The file is JSON, and no page says that comments are allowed in it. So a variable in the entry's environment marks the
entry, instead of the two comments around a block.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from thinklsp.cli.setup.blocks import decode_text, explain_wrong_json, select_newline
from thinklsp.cli.setup.files import read_file
from thinklsp.cli.setup.machine import Machine
from thinklsp.cli.setup.steps import ConfigEdit, SetupSteps, refuse_own_entry
from thinklsp.cli.setup.zed import SERVERS, build_entry, has_entry
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.json_codec import find_object, parse_jsonc

PROGRAMS = (
    "idea", "pycharm", "webstorm", "goland", "clion", "rider", "rubymine", "phpstorm", "rustrover", "datagrip",
)  # fmt: skip
_VARIABLE, _WRITER = "SETUP_BY", "thinklsp setup jetbrains"
_NEW_FILE, _EMPTY_FILE = ", new file", ", empty file"
_SKELETON = "{}\n"
_NOTE = "To use it, choose thinklsp in the AI chat of the IDE. The chat needs the plug-in AI Assistant."

# The entry as this module writes it, on one line. Its mark says if the file was new or empty.
_ENTRY = (
    r'(?P<entry>"thinklsp": \{"command": "(?:[^"\\\n]|\\.)*", "args": \[[^\]\n]*\], '
    rf'"env": \{{"{_VARIABLE}": "{_WRITER}(?P<origin>[^"\n]*)"\}}\}})'
)
_BREAK = r"\r?\n *"
# The places of the entry: with an object around it that was inserted, too; as the first member; as the last one; or
# between others. A removal deletes the match of a pattern.
_FORMS = tuple(
    re.compile(form)
    for form in (
        # The exact indentation, because a user's own object may have only this entry, too.
        rf'(?<=\{{)\r?\n  "{SERVERS}": \{{\r?\n    {_ENTRY}\r?\n  \}}(?:,|\r?\n)',
        rf"(?<=\{{){_BREAK}{_ENTRY}(?:,|\r?\n)",
        rf",\s*{_ENTRY}(?=\s*\}})",
        rf"(?<=,)\s*{_ENTRY},",
    )
)


def find_folders(machine: Machine) -> tuple[Path, ...]:
    return machine.applications / "JetBrains", machine.home / ".jetbrains"


def build_steps(machine: Machine, _: str) -> SetupSteps:
    path = _find_path(machine)
    entry = build_entry(machine)
    text = decode_text(read_file(path) or b"", path)
    found = _find(text)
    if found is None and has_entry(text):
        return _keep_entry(path, text, entry)
    return SetupSteps((ConfigEdit(path, machine.home, partial(insert_entry, path=path, entry=entry)),), notes=(_NOTE,))


def build_removals(machine: Machine) -> tuple[ConfigEdit, ...]:
    path = _find_path(machine)
    return (ConfigEdit(path, machine.home, partial(remove_entry, path=path)),)


def insert_entry(data: bytes | None, *, path: Path, entry: Mapping[str, object]) -> bytes:
    """Return the file's content with the entry; `data` is None if there is no file. An entry of ours is replaced.

    Raises ThinkLspError if the content is not UTF-8, or not JSON with an object at the place.
    """
    text = decode_text(data or b"", path)
    if (found := _find(text)) is not None:
        start, end = found.span("entry")
        return (text[:start] + _format(entry, found["origin"]) + text[end:]).encode()
    origin = _NEW_FILE if data is None else "" if text.strip() else _EMPTY_FILE
    text += _SKELETON if origin else ""
    place = find_object(text, (SERVERS,))
    if place is None:
        raise explain_wrong_json(path)
    member = _format(entry, origin)
    lines = [member] if place.depth else [f'"{SERVERS}": {{', f"  {member}", "}"]
    newline, indent = select_newline(text.encode()), "  " * (place.depth + 1)
    body = newline.join(indent + line for line in lines) + (newline if place.is_empty else ",")
    return (text[: place.start] + newline + body + text[place.start :]).encode()


def remove_entry(data: bytes | None, *, path: Path) -> bytes | None:
    """Return the file's content without the entry, or None if the file was created for it and holds nothing else.

    Raises ThinkLspError if another program has rewritten the entry, or if the content is not UTF-8.
    """
    if data is None:
        return None
    text = decode_text(data, path)
    found = _find(text)
    if found is None:
        if _find_command(text) is not None:
            raise _explain_rewritten(path)
        return data
    rest = text[: found.start()] + text[found.end() :]
    if found["origin"] == _NEW_FILE and rest == _SKELETON:
        return None
    return (rest.removesuffix(_SKELETON) if found["origin"] == _EMPTY_FILE else rest).encode()


def _keep_entry(path: Path, text: str, entry: Mapping[str, object]) -> SetupSteps:
    """Return no steps for an entry of the user, or for one of ours that the IDE has formatted.

    Raises ThinkLspError if an entry of ours is no longer up to date.
    """
    command = _find_command(text)
    if command is None:
        return refuse_own_entry(path)
    if command != entry["command"]:
        raise _explain_rewritten(path)
    return SetupSteps(notes=(_NOTE,))


def _explain_rewritten(path: Path) -> ThinkLspError:
    return ThinkLspError(
        f"{path} was rewritten by another program, so nothing was changed. Delete the entry `thinklsp` by hand."
    )


def _find(text: str) -> re.Match[str] | None:
    return next((found for form in _FORMS if (found := form.search(text)) is not None), None)


def _find_command(text: str) -> object:
    """Return the program of an entry with the mark of this module, in whatever format, or None."""
    try:
        entry = parse_jsonc(text)[SERVERS]["thinklsp"]
        return entry["command"] if entry["env"][_VARIABLE].startswith(_WRITER) else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _format(entry: Mapping[str, object], origin: str) -> str:
    marked = {**entry, "env": {_VARIABLE: _WRITER + origin}}
    return f'"thinklsp": {json.dumps(marked, ensure_ascii=False)}'


def _find_path(machine: Machine) -> Path:
    return machine.home / ".jetbrains" / "acp.json"
