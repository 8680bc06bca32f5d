"""The cattrs converter between JSON and lsprotocol types, and lenient readers of values that the client passes on.

A member of such a value that does not fit its type is omitted, and the rest is kept. Only a message's own members, such
as its document and position, are checked strictly. Real shapes are listed in `tests/e2e/outside/odd_peers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, TypeVar

from cattrs import Converter
from lsprotocol import types
from lsprotocol.converters import get_converter

from thinklsp.workspace.uri import path_to_uri

_MAX_NUMBER = 2**31 - 1

Item = TypeVar("Item")


class MarkupMessage(str):
    """A diagnostic message that the client sent as MarkupContent (LSP 3.18).

    lsprotocol 2025 supports only plain text. The string contains the text, and `markup` contains the original value to
    send back to the client.
    """

    __slots__ = ("markup",)

    markup: Mapping[str, Any]


def read_diagnostic(value: object, place: types.Range | None = None) -> types.Diagnostic | None:
    """Return a diagnostic, or None if the value is not an object or has no range.

    `place` is the range of a diagnostic that has no readable range.
    """
    range_ = read_range(_get(value, "range")) or place
    if not isinstance(value, Mapping) or range_ is None:
        return None
    href = _read_text(_get(value.get("codeDescription"), "href"))
    return types.Diagnostic(
        range_,
        _read_message(value.get("message")),
        severity=_read_enum(types.DiagnosticSeverity, value.get("severity")),
        code=_read_code(value.get("code")),
        code_description=None if href is None else types.CodeDescription(href),
        source=_read_text(value.get("source")),
        tags=_read_list(value.get("tags"), lambda tag: _read_enum(types.DiagnosticTag, tag)),
        related_information=_read_list(value.get("relatedInformation"), _read_related),
        data=value.get("data"),
    )


def read_code_action_context(value: object, place: types.Range) -> types.CodeActionContext:
    """Return the context of a code action request. `place` is the range of the request."""
    return types.CodeActionContext(
        _read_list(_get(value, "diagnostics"), lambda item: read_diagnostic(item, place)) or [],
        only=_read_list(_get(value, "only"), _read_text),
        trigger_kind=_read_enum(types.CodeActionTriggerKind, _get(value, "triggerKind")),
    )


def _read_apply_result(value: object) -> types.ApplyWorkspaceEditResult:
    applied = _get(value, "applied")
    if not isinstance(applied, bool):
        raise TypeError("not a boolean")
    return types.ApplyWorkspaceEditResult(applied, _read_text(_get(value, "failureReason")))


def _read_completion_context(value: object) -> types.CompletionContext:
    kind = _read_enum(types.CompletionTriggerKind, _get(value, "triggerKind"))
    character = _read_text(_get(value, "triggerCharacter"))
    return types.CompletionContext(kind or types.CompletionTriggerKind.Invoked, character)


def read_initialize_params(params: Mapping[str, object]) -> types.InitializeParams:
    """Return the members of `initialize` params that the server uses.

    Of the capabilities, pygls needs only the position encodings. Converting all capabilities with cattrs takes longer
    than the rest of the startup.
    """
    process = params.get("processId")
    encodings = _read_list(_get(_get(params.get("capabilities"), "general"), "positionEncodings"), _read_text)
    general = types.GeneralClientCapabilities(position_encodings=encodings)
    return types.InitializeParams(
        types.ClientCapabilities(general=general),
        process_id=process if isinstance(process, int) and not isinstance(process, bool) else None,
        root_uri=_read_text(params.get("rootUri")) or _read_root_path(params.get("rootPath")),
        workspace_folders=_read_list(params.get("workspaceFolders"), _read_folder),
        initialization_options=params.get("initializationOptions"),
    )


def limit_range(value: Mapping[str, Mapping[str, Any]]) -> Mapping[str, object]:
    """Return the JSON of a range without numbers larger than LSP allows. The caller checks everything else."""
    return {
        end: {name: min(value[end][name], _MAX_NUMBER) for name in ("line", "character")} for end in ("start", "end")
    }


def read_range(value: object) -> types.Range | None:
    """Return a range with numbers that LSP allows, or None if the value has no start."""
    start = _read_position(_get(value, "start"))
    return None if start is None else types.Range(start, _read_position(_get(value, "end")) or start)


def _read_position(value: object) -> types.Position | None:
    line = _read_number(_get(value, "line"))
    return None if line is None else types.Position(line, _read_number(_get(value, "character")) or 0)


def _read_number(value: object) -> int | None:
    """Return the nearest number from 0 to 2**31 - 1. For the end of a line, servers send -1, 2**32 - 1 or 1.8e308."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return int(min(max(value, 0), _MAX_NUMBER))


def _read_message(value: object) -> str:
    text, kind = (value.get("value"), value.get("kind")) if isinstance(value, Mapping) else (value, None)
    if not isinstance(text, str):
        return ""
    if not isinstance(kind, str):
        return text
    message = MarkupMessage(text)
    message.markup = {"kind": kind, "value": text}
    return message


def _read_code(value: object) -> int | str | None:
    """Return a diagnostic's code. Some servers send the object of VS Code's API, `{value, target}`."""
    code = value.get("value") if isinstance(value, Mapping) else value
    return code if isinstance(code, int | str) and not isinstance(code, bool) else None


def _read_related(value: object) -> types.DiagnosticRelatedInformation | None:
    location = _get(value, "location")
    uri, range_ = _read_text(_get(location, "uri")), read_range(_get(location, "range"))
    if not uri or range_ is None:
        return None
    return types.DiagnosticRelatedInformation(types.Location(uri, range_), _read_text(_get(value, "message")) or "")


def _read_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _read_enum(kind: Callable[[Any], Item], value: object) -> Item | None:
    try:
        return None if isinstance(value, bool) else kind(value)
    except ValueError:
        return None


def _read_list(value: object, read: Callable[[object], Item | None]) -> list[Item] | None:
    """Return the readable items of a list, or None if the value is not a list or none of its items is readable."""
    if not isinstance(value, list):
        return None
    items = [item for item in map(read, value) if item is not None]
    return items if items or not value else None


def _get(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _read_root_path(value: object) -> str | None:
    """Return the URI of the root folder from `rootPath`, which old clients send instead of `rootUri`."""
    try:
        return path_to_uri(value) if isinstance(value, str) and value.startswith("/") else None
    except UnicodeEncodeError:
        return None


def _read_folder(value: object) -> types.WorkspaceFolder | None:
    uri = _read_text(_get(value, "uri"))
    return types.WorkspaceFolder(uri, _read_text(_get(value, "name")) or "") if uri else None


def _read_folders_change(value: object) -> types.WorkspaceFoldersChangeEvent:
    added, removed = (_read_list(_get(value, name), _read_folder) or [] for name in ("added", "removed"))
    return types.WorkspaceFoldersChangeEvent(added, removed)


def _read_configuration(value: object) -> types.ConfigurationResponse:
    """Return the answer to `workspace/configuration`. Some clients answer with a section instead of a list."""
    result = _get(value, "result")
    sections = result if isinstance(result, list) else [result] if isinstance(result, Mapping) and result else []
    return types.ConfigurationResponse(_get(value, "id"), sections)


READERS: Mapping[type, Callable[[object], object]] = {
    types.ApplyWorkspaceEditResult: _read_apply_result,
    types.CompletionContext: _read_completion_context,
    types.ConfigurationResponse: _read_configuration,
    types.DidChangeConfigurationParams: lambda value: types.DidChangeConfigurationParams(_get(value, "settings")),
    types.InitializedNotification: lambda _: types.InitializedNotification(types.InitializedParams()),
    types.WorkspaceFoldersChangeEvent: _read_folders_change,
}
"""The readers of entire types. A converter calls them instead of its generated code."""


@cache
def load_converter() -> Converter:
    """Return the process-wide converter. The first use is slow, because cattrs generates code for each type.

    Validation stops at the first invalid value, because a full report about a long list could take minutes. The
    readers above read the values that the client only passes on.
    """
    result = get_converter(Converter(detailed_validation=False))
    for exact in (bool, str):
        result.register_structure_hook(exact, _check_type)
    for kind, read in READERS.items():
        result.register_structure_hook(kind, partial(_read, read))
    structure = result.get_structure_hook(types.CodeActionParams)
    result.register_structure_hook(types.CodeActionParams, partial(_structure_code_action, structure))
    unstructure = result.get_unstructure_hook(types.Diagnostic)
    result.register_unstructure_hook(types.Diagnostic, partial(_unstructure_diagnostic, unstructure))
    return result


def _check_type(value: object, kind: type) -> object:
    """Reject values of another type. Otherwise, cattrs converts the text "no" to True, and null to the text "None"."""
    if not isinstance(value, kind):
        raise TypeError(f"not a {kind.__name__}")
    return value


def _read(read: Callable[[object], object], value: object, _: type) -> object:
    return read(value)


def _structure_code_action(
    structure: Callable[[Any, Any], types.CodeActionParams], value: Any, kind: type[types.CodeActionParams]
) -> types.CodeActionParams:
    """Structure the params strictly, except for the context. Most clients copy the range from a diagnostic."""
    range_ = limit_range(value["range"])
    params = structure({**value, "range": range_, "context": {"diagnostics": []}}, kind)
    params.context = read_code_action_context(value.get("context"), params.range)
    return params


def _unstructure_diagnostic(unstructure: Callable[[types.Diagnostic], Any], diagnostic: types.Diagnostic) -> Any:
    value = unstructure(diagnostic)
    message = diagnostic.message
    return {**value, "message": message.markup} if isinstance(message, MarkupMessage) else value
