"""Answers of the editor to `thinklsp/editor/hover` and `thinklsp/editor/symbols`, parsed.

They come from any language server and have any size: what cannot be read is left out and counted, what is too long is
cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thinklsp.lsp.editor.bridge_answers import parse_count, parse_range, parse_uri, target_lines
from thinklsp.tools.editor import NamedTarget, NamedTargets, Target
from thinklsp.workspace.uri import uri_key

_MAX_SYMBOLS = 2_000
_MAX_UNREAD = 10_000
_MAX_NAME = 200
_MAX_HOVER = 3_000
_MAX_PARTS = 50
_KINDS = (
    "file", "module", "namespace", "package", "class", "method", "property", "field", "constructor", "enum",
    "interface", "function", "variable", "constant", "string", "number", "boolean", "array", "object", "key", "null",
    "enum member", "struct", "event", "operator", "type parameter",
)  # fmt: skip


def parse_hover(answer: Any) -> str | None:
    """Return the text of a Hover; None if there is none."""
    contents = answer.get("contents") if isinstance(answer, Mapping) else None
    parts = contents if isinstance(contents, list) else [contents]
    texts = (_marked_text(part) for part in parts[:_MAX_PARTS])
    text = "\n\n".join(text for text in texts if text)
    cut = " [cut]"
    return (text if len(text) <= _MAX_HOVER else text[: _MAX_HOVER - len(cut)] + cut) or None


def _marked_text(part: Any) -> str:
    """Return the text of a MarkedString or MarkupContent, more than a hover may have at most."""
    value = part.get("value") if isinstance(part, Mapping) else part
    return value[: _MAX_HOVER + 1].strip() if isinstance(value, str) else ""


def parse_symbols(answer: Any, uri: str | None) -> NamedTargets | None:
    """Return the symbols of a DocumentSymbol[], SymbolInformation[] or WorkspaceSymbol[]; None if it is something else.

    `uri`: the document that was asked about, None for the workspace. Symbols of other documents are left out.
    """
    if answer is None:
        return NamedTargets(())
    if not isinstance(answer, list):
        return None
    found: list[NamedTarget] = []
    unread = 0
    # A stack instead of recursion: an answer may be nested as deep as JSON allows.
    waiting: list[tuple[Any, str, int]] = [(each, "", 0) for each in reversed(answer)]
    while waiting and len(found) < _MAX_SYMBOLS and unread < _MAX_UNREAD:
        value, container, depth = waiting.pop()
        symbol = _parse_symbol(value, uri, container, depth)
        if symbol is None:
            unread += 1
            continue
        found.append(symbol)
        if isinstance(children := value.get("children"), list):
            waiting += ((child, symbol.name, depth + 1) for child in reversed(children))
    if unread and not found:
        return None
    if uri is not None:
        found = [each for each in found if uri_key(each.target.uri) == uri_key(uri)]
    return NamedTargets(tuple(found), unread, is_cut=bool(waiting))


def _parse_symbol(value: Any, uri: str | None, container: str, depth: int) -> NamedTarget | None:
    if not isinstance(value, Mapping) or not isinstance(name := value.get("name"), str) or not name.strip():
        return None
    location = value.get("location")
    if isinstance(location, Mapping):
        uri, where = parse_uri(location.get("uri")), parse_range(location.get("range"))
        named = value.get("containerName")
        container = named if isinstance(named, str) else container
    else:
        where = parse_range(value.get("range"))
    if uri is None or where is None or where[1] < where[0]:
        return None
    kind = parse_count(value.get("kind")) or 0
    word = _KINDS[kind - 1] if 0 < kind <= len(_KINDS) else "symbol"
    return NamedTarget(name[:_MAX_NAME], word, Target(uri, *target_lines(where)), container[:_MAX_NAME], depth)
