"""A turn's title for progress reports, built from the command's arguments before the engine is loaded."""

from __future__ import annotations

from collections.abc import Mapping

from lsprotocol.types import ExecuteCommandParams

from thinklsp.core.errors import PathRefused
from thinklsp.lsp.chats.chat_outline import parse_chat
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.sessions.session import MAX_TITLE_LENGTH, truncate_title
from thinklsp.sessions.session import derive_title as title_of_prompt
from thinklsp.workspace.uri import uri_to_path

# A prompt can be a megabyte long, but a title needs only the first line.
_MAX_PROMPT_CHARACTERS = 10_000
_MAX_NAME_CHARACTERS = 40


def build_turn_title(state: ConnectionState, params: ExecuteCommandParams) -> str:
    """Return the title of the turn that a command starts. The arguments have not been validated yet."""
    kind, argument = params.command.removeprefix("thinklsp."), _get_argument(params)
    match kind:
        case "chat":
            title = title_of_prompt(_get_text(argument, "prompt")[:_MAX_PROMPT_CHARACTERS])
        case "send":
            document = state.documents.get(_get_text(argument, "uri"))
            title = (
                "" if document is None else title_of_prompt(parse_chat(document.text).prompt[:_MAX_PROMPT_CHARACTERS])
            )
        case "action":
            title = _build_action_title(state, argument)
        case _:
            title = ""
    return title or kind


def has_words(params: ExecuteCommandParams) -> bool:
    """Return True if a command has the prompt or instruction that it requires."""
    argument = _get_argument(params)
    if params.command == "thinklsp.chat":
        return bool(_get_text(argument, "prompt"))
    if params.command == "thinklsp.action" and argument.get("name") in (None, "edit", "ask"):
        return bool(_get_text(argument, "instruction").strip())
    return True


def _build_action_title(state: ConnectionState, argument: Mapping[str, object]) -> str:
    latest = state.last_action
    uri = _get_text(argument, "uri") or ("" if latest is None else latest.uri)
    has_problems = not _get_text(argument, "uri") and latest is not None and bool(latest.diagnostics)
    name = _get_text(argument, "name")[:_MAX_NAME_CHARACTERS] or ("fix" if has_problems else "edit")
    path = _format_path(state, uri)
    if name == "review" and path in ("", "."):
        path = "the working tree"
    return truncate_title(f"{name} {path}".rstrip(), 2 * MAX_TITLE_LENGTH)


def _format_path(state: ConnectionState, uri: str) -> str:
    """Return a document's path in its innermost workspace folder, or its URI if it is in no folder.

    Symbolic links are not followed.
    """
    try:
        path = uri_to_path(uri)
        folders = {uri_to_path(uri): folder.name for uri, folder in state.documents.folders.items()}
    except (PathRefused, UnicodeError):
        return uri
    above = max((folder for folder in folders if f"{path}/".startswith(f"{folder}/")), key=len, default=None)
    if above is None:
        return uri
    below = path[len(above) :].lstrip("/")
    return "/".join(filter(None, (folders[above] if len(folders) > 1 else "", below))) or "."


def _get_argument(params: ExecuteCommandParams) -> Mapping[str, object]:
    first = params.arguments[0] if params.arguments else None
    return first if isinstance(first, Mapping) else {}


def _get_text(argument: Mapping[str, object], field: str) -> str:
    value = argument.get(field)
    return value if isinstance(value, str) else ""
