"""The title of a turn in its progress, from the words that the client sent: needed before the engine is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import PathRefused
from thinklsp.lsp.chats.chat_outline import parse
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.protocol.forms import Command
from thinklsp.sessions.titles import LENGTH, shortened
from thinklsp.sessions.titles import title_of as title_of_prompt
from thinklsp.workspace.uri import uri_to_path

# A title says no more than the first line, and a prompt can be a megabyte.
_LONGEST_LOOKED_AT = 10_000
_LONGEST_NAME = 40


def title_of(state: State, command: Command) -> str:
    """Return the title of the turn that a command of `TURNS` runs. Arguments are not checked yet."""
    kind, argument = command.name.removeprefix("thinklsp."), _argument(command)
    match kind:
        case "chat":
            title = title_of_prompt(_text(argument, "prompt")[:_LONGEST_LOOKED_AT])
        case "send":
            document = state.documents.get(_text(argument, "uri"))
            title = "" if document is None else title_of_prompt(parse(document.text).prompt[:_LONGEST_LOOKED_AT])
        case "action":
            title = _title_of_action(state, argument)
        case _:
            title = ""
    return title or kind


def has_words(command: Command) -> bool:
    """Whether a command has the prompt or the instruction without which it starts no turn."""
    argument = _argument(command)
    if command.name == "thinklsp.chat":
        return bool(_text(argument, "prompt"))
    if command.name == "thinklsp.action" and argument.get("name") in (None, "edit", "ask"):
        return bool(_text(argument, "instruction").strip())
    return True


def _title_of_action(state: State, argument: Mapping[str, Any]) -> str:
    latest = state.last_action
    uri = _text(argument, "uri") or ("" if latest is None else latest.uri)
    has_problems = not _text(argument, "uri") and latest is not None and bool(latest.seen)
    name = _text(argument, "name")[:_LONGEST_NAME] or ("fix" if has_problems else "edit")
    shown = _shown(state, uri)
    if name == "review" and shown in ("", "."):
        shown = "the working tree"
    return shortened(f"{name} {shown}".rstrip(), 2 * LENGTH)


def _shown(state: State, uri: str) -> str:
    """Return the path of a document below the innermost folder that holds it, else its URI. Follows no link."""
    try:
        path = uri_to_path(uri)
        folders = {uri_to_path(folder): name for folder, name in state.folders.items()}
    except (PathRefused, UnicodeError):
        return uri
    above = max((folder for folder in folders if f"{path}/".startswith(f"{folder}/")), key=len, default=None)
    if above is None:
        return uri
    below = path[len(above) :].lstrip("/")
    return "/".join(filter(None, (folders[above] if len(folders) > 1 else "", below))) or "."


def _argument(command: Command) -> Mapping[str, Any]:
    first = command.arguments[0] if command.arguments else None
    return first if isinstance(first, Mapping) else {}


def _text(argument: Mapping[str, Any], field: str) -> str:
    value = argument.get(field)
    return value if isinstance(value, str) else ""
