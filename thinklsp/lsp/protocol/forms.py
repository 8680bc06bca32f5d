"""What stands in the params of the messages that we take, as plain values.

A message of the usual form is read here at once. Whatever is unusual is left to `whole`, which holds the whole protocol
and takes long to load: what it lets pass comes back in its usual form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_LARGEST = 2**31 - 1


class Position(NamedTuple):
    line: int
    character: int


class Range(NamedTuple):
    start: Position
    end: Position


class Opened(NamedTuple):
    """A document as the client has it."""

    uri: str
    language_id: str
    version: int
    text: str


class Change(NamedTuple):
    """`range` None: the whole text is another one."""

    range: Range | None
    text: str


class Changed(NamedTuple):
    uri: str
    version: int
    changes: list[Change]


class Place(NamedTuple):
    uri: str
    position: Position


class ActionsAsked(NamedTuple):
    """`only`: the kinds that are wanted, None for any. `automatic`: nobody has called for them."""

    uri: str
    range: Range
    diagnostics: list[dict[str, Any]]
    only: list[str] | None
    automatic: bool


class Command(NamedTuple):
    """`token`: where its progress goes, which need not be one."""

    name: str
    arguments: list[Any] | None
    token: Any


class Folder(NamedTuple):
    uri: str
    name: str


class Folders(NamedTuple):
    added: list[Folder]
    removed: list[Folder]


class Beginning(NamedTuple):
    """What `initialize` says beside capabilities. `root`: the folder of a client that names no list of folders."""

    process_id: int | None
    folders: list[Folder]
    root: Folder | None
    options: Any


def is_usual(value: object, form: Any) -> bool:
    """A form is a type or a test; a list of it; or the members that must be there. A name that ends in `?` may be left
    out or null, others are passed over."""
    if isinstance(form, dict):
        return isinstance(value, Mapping) and all(_has(value, name, inner) for name, inner in form.items())
    if isinstance(form, list):
        return isinstance(value, list) and all(is_usual(item, form[0]) for item in value)
    return type(value) is form if isinstance(form, type) else form(value)


def _has(value: Mapping[str, Any], name: str, form: Any) -> bool:
    if name[-1] == "?":
        found = value.get(name[:-1])
        return found is None or is_usual(found, form)
    return name in value and is_usual(value[name], form)


def _anything(_: object) -> bool:
    return True


def _count(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _number(value: object) -> bool:
    return type(value) is int and -_LARGEST <= value <= _LARGEST


def _one_of(*values: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and value in values


def _code(value: object) -> bool:
    return isinstance(value, str) or _number(value)


def is_markup(value: object) -> bool:
    """As of LSP 3.18 a diagnostic's message may be one."""
    return is_usual(value, _MARKUP)


def is_message(value: object) -> bool:
    """Of a diagnostic."""
    return isinstance(value, str) or is_markup(value)


def _change(value: object) -> bool:
    # Null is no range, and no change of the whole text either.
    return is_usual(value, _PARTIAL if isinstance(value, Mapping) and "range" in value else {"text": str})


_DOCUMENT = {"uri": str}
_POSITION = {"line": _count, "character": _count}
_RANGE = {"start": _POSITION, "end": _POSITION}
_PARTIAL = {"range": _RANGE, "rangeLength?": _count, "text": str}
_MARKUP = {"kind": str, "value": str}
_FOLDER = {"uri": str, "name": str}
_DIAGNOSTIC = {
    "range": _RANGE,
    "severity?": _one_of(1, 2, 3, 4),
    "code?": _code,
    "codeDescription?": {"href": str},
    "source?": str,
    "message": is_message,
    "tags?": [_one_of(1, 2)],
    "relatedInformation?": [{"location": {"uri": str, "range": _RANGE}, "message": str}],
    "data?": _anything,
}
_DIAGNOSTIC_NAMES = tuple(name.rstrip("?") for name in _DIAGNOSTIC)


def range_of(value: Mapping[str, Any]) -> Range:
    return Range(_position(value["start"]), _position(value["end"]))


def _position(value: Mapping[str, Any]) -> Position:
    return Position(value["line"], value["character"])


def _opened(params: Any) -> Opened:
    item = params["textDocument"]
    return Opened(item["uri"], item["languageId"], item["version"], item["text"])


def _changed(params: Any) -> Changed:
    document = params["textDocument"]
    return Changed(document["uri"], document["version"], [_part(one) for one in params["contentChanges"]])


def _part(change: Mapping[str, Any]) -> Change:
    return Change(range_of(change["range"]) if "range" in change else None, change["text"])


def _uri(params: Any) -> str:
    uri: str = params["textDocument"]["uri"]
    return uri


def _place(params: Any) -> Place:
    return Place(_uri(params), _position(params["position"]))


def _actions_asked(params: Any) -> ActionsAsked:
    context = params["context"]
    diagnostics = [
        {name: one[name] for name in _DIAGNOSTIC_NAMES if one.get(name) is not None} for one in context["diagnostics"]
    ]
    automatic = context.get("triggerKind") not in (None, _INVOKED)
    return ActionsAsked(_uri(params), range_of(params["range"]), diagnostics, context.get("only"), automatic)


def _command(params: Any) -> Command:
    return Command(params["command"], params.get("arguments"), params.get("workDoneToken"))


def _folders(params: Any) -> Folders:
    event = params["event"]
    return Folders(*([Folder(one["uri"], one["name"]) for one in event[side]] for side in ("added", "removed")))


def beginning(params: Mapping[str, Any]) -> Beginning:
    """Of `initialize` in its usual form."""
    named, root = params.get("workspaceFolders"), params.get("rootUri")
    folders = [Folder(one["uri"], one["name"]) for one in named or ()]
    # An empty list says that no folder is open, whatever `rootUri` says: Kate names the home folder there.
    fallback = Folder(root, "") if named is None and root else None
    return Beginning(params.get("processId"), folders, fallback, params.get("initializationOptions"))


_INVOKED = 1
_OF_DOCUMENT = {"textDocument": _DOCUMENT}
_AT_PLACE = {"textDocument": _DOCUMENT, "position": _POSITION}
_FORMS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "textDocument/didOpen": (
        {"textDocument": {"uri": str, "languageId": str, "version": _number, "text": str}},
        _opened,
    ),
    "textDocument/didChange": (
        {"textDocument": {"uri": str, "version": _number}, "contentChanges": [_change]},
        _changed,
    ),
    "textDocument/didClose": (_OF_DOCUMENT, _uri),
    "textDocument/didSave": (_OF_DOCUMENT | {"text?": str}, _uri),
    "textDocument/codeLens": (_OF_DOCUMENT, _uri),
    "textDocument/hover": (_AT_PLACE, _place),
    "textDocument/completion": (
        _AT_PLACE | {"context?": {"triggerKind": _one_of(1, 2, 3), "triggerCharacter?": str}},
        _place,
    ),
    "textDocument/codeAction": (
        {
            "textDocument": _DOCUMENT,
            "range": _RANGE,
            "context": {"diagnostics": [_DIAGNOSTIC], "only?": [str], "triggerKind?": _one_of(1, 2)},
        },
        _actions_asked,
    ),
    "workspace/executeCommand": ({"command": str, "arguments?": [_anything]}, _command),
    "workspace/didChangeWorkspaceFolders": ({"event": {"added": [_FOLDER], "removed": [_FOLDER]}}, _folders),
    "workspace/didChangeConfiguration": ({}, lambda params: params.get("settings")),
    "window/workDoneProgress/cancel": ({"token": _anything}, lambda params: params["token"]),
    "$/cancelRequest": ({"id": _anything}, lambda params: params["id"]),
}
METHODS = frozenset(_FORMS)


def params_of(method: str, message: Mapping[str, Any], usual: Callable[[str, Mapping[str, Any]], Any]) -> Any:
    """As its handler takes them; as they came for any other method. `usual` brings params of an unusual form into the
    usual one, or raises InvalidParams."""
    params = message.get("params")
    if method not in _FORMS:
        return params
    form, read = _FORMS[method]
    return read(params if is_usual(params, form) else usual(method, message))
