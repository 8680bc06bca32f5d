"""Parsers for editor bridge answers. They return None if the JSON does not have the expected form.

If a location is invalid, the entire list of locations is rejected. Invalid diagnostics are omitted individually.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from lsprotocol.types import Diagnostic

from thinklsp.lsp.documents.open_documents import Point
from thinklsp.lsp.protocol.lenient import read_diagnostic
from thinklsp.tools.tool import NamedTarget, NamedTargets, Target
from thinklsp.workspace.uri import normalize_uri

_MAX_TARGETS = 500
_MAX_DOCUMENTS = 500
_MAX_DIAGNOSTICS = 1000
_MAX_URI_LENGTH = 4096

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ReportedDiagnostics:
    """A document's diagnostics, as reported by the editor.

    `version` is None if the editor does not report a version. `unread` is the number of diagnostics that could not be
    parsed.
    """

    uri: str
    version: int | None
    diagnostics: tuple[Diagnostic, ...]
    unread: int = 0


def parse_reports(answer: object) -> tuple[ReportedDiagnostics, ...] | None:
    """Parse the answer to `thinklsp/editor/diagnostics`."""
    if not isinstance(answer, list):
        return None
    reports, unread = _parse_readable(answer, _parse_report, _MAX_DOCUMENTS)
    # Unreadable reports can be omitted. The diagnostics of their documents are then treated as unknown.
    return None if unread and not reports else reports


def parse_targets(answer: object) -> tuple[Target, ...] | None:
    """Parse the answer to a request for definitions or references. Remove duplicate locations.

    The answer is a Location, Location[], LocationLink[] or null.
    """
    if answer is None:
        return ()
    targets = _parse_all(answer if isinstance(answer, list) else [answer], _parse_target, _MAX_TARGETS)
    return None if targets is None else tuple(dict.fromkeys(targets))


def _parse_all(
    values: Iterable[object], parse: Callable[[object], Item | None], max_items: int
) -> tuple[Item, ...] | None:
    """Return at most `max_items` parsed values, or None if a value is invalid."""
    items, unread = _parse_readable(values, parse, max_items)
    return None if unread else items


def _parse_readable(
    values: Iterable[object], parse: Callable[[object], Item | None], max_items: int
) -> tuple[tuple[Item, ...], int]:
    """Return at most `max_items` parsed values, and the number of invalid values found."""
    items: list[Item] = []
    unread = 0
    for value in values:
        if (item := parse(value)) is None:
            unread += 1
        else:
            items.append(item)
        if len(items) == max_items:
            break
    return tuple(items), unread


def _parse_report(value: object) -> ReportedDiagnostics | None:
    if not isinstance(value, Mapping) or not isinstance(diagnostics := value.get("diagnostics"), list):
        return None
    uri = parse_uri(value.get("uri"))
    if uri is None:
        return None
    return ReportedDiagnostics(
        uri, parse_count(value.get("version")), *_parse_readable(diagnostics, read_diagnostic, _MAX_DIAGNOSTICS)
    )


def _parse_target(value: object) -> Target | None:
    if not isinstance(value, Mapping):
        return None
    is_link = "targetUri" in value
    uri = parse_uri(value.get("targetUri" if is_link else "uri"))
    range_ = parse_range(value.get("targetRange" if is_link else "range"))
    if uri is None or range_ is None or range_[1] < range_[0]:
        return None
    return Target(uri, *find_target_lines(range_))


def find_target_lines(range_: tuple[Point, Point]) -> tuple[int, int]:
    """Return the first and the last line of a range, numbered from 1."""
    (first, _), (last, end) = range_
    # A range that ends at the start of a line excludes that line.
    return first + 1, max(first + 1, last if end == 0 else last + 1)


def parse_uri(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= _MAX_URI_LENGTH else None


def parse_range(value: object) -> tuple[Point, Point] | None:
    if not isinstance(value, Mapping):
        return None
    start, end = _parse_position(value.get("start")), _parse_position(value.get("end"))
    return None if start is None or end is None else (start, end)


def _parse_position(value: object) -> Point | None:
    if not isinstance(value, Mapping):
        return None
    line, character = parse_count(value.get("line")), parse_count(value.get("character"))
    return None if line is None or character is None else (line, character)


def parse_count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


_MAX_SYMBOLS = 2_000
_MAX_UNREAD = 10_000
_MAX_NAME_LENGTH = 200
_MAX_HOVER_LENGTH = 3_000
_MAX_PARTS = 50
_KINDS = (
    "file", "module", "namespace", "package", "class", "method", "property", "field", "constructor", "enum",
    "interface", "function", "variable", "constant", "string", "number", "boolean", "array", "object", "key", "null",
    "enum member", "struct", "event", "operator", "type parameter",
)  # fmt: skip


def parse_hover(answer: object) -> str | None:
    """Return the text of a Hover, or None if it has no text."""
    contents = answer.get("contents") if isinstance(answer, Mapping) else None
    parts = contents if isinstance(contents, list) else [contents]
    texts = (_extract_text(part) for part in parts[:_MAX_PARTS])
    text = "\n\n".join(text for text in texts if text)
    cut = " [cut]"
    return (text if len(text) <= _MAX_HOVER_LENGTH else text[: _MAX_HOVER_LENGTH - len(cut)] + cut) or None


def _extract_text(part: object) -> str:
    """Return the text of a MarkedString or MarkupContent, truncated slightly above the hover limit."""
    value = part.get("value") if isinstance(part, Mapping) else part
    return value[: _MAX_HOVER_LENGTH + 1].strip() if isinstance(value, str) else ""


def parse_symbols(answer: object, uri: str | None) -> NamedTargets | None:
    """Return the symbols of a DocumentSymbol[], SymbolInformation[] or WorkspaceSymbol[], or None for other JSON.

    `uri` is the requested document, or None for the entire workspace. Symbols in other documents are omitted.
    """
    if answer is None:
        return NamedTargets(())
    if not isinstance(answer, list):
        return None
    symbols: list[NamedTarget] = []
    unread = 0
    # Use a stack instead of recursion, because an answer may be nested as deeply as JSON allows.
    waiting: list[tuple[object, str, int]] = [(value, "", 0) for value in reversed(answer)]
    while waiting and len(symbols) < _MAX_SYMBOLS and unread < _MAX_UNREAD:
        value, container, depth = waiting.pop()
        symbol = _parse_symbol(value, uri, container, depth)
        if symbol is None:
            unread += 1
            continue
        symbols.append(symbol)
        if isinstance(value, Mapping) and isinstance(children := value.get("children"), list):
            waiting += ((child, symbol.name, depth + 1) for child in reversed(children))
    if unread and not symbols:
        return None
    if uri is not None:
        symbols = [item for item in symbols if normalize_uri(item.target.uri) == normalize_uri(uri)]
    return NamedTargets(tuple(symbols), unread, is_cut=bool(waiting))


def _parse_symbol(value: object, uri: str | None, container: str, depth: int) -> NamedTarget | None:
    if not isinstance(value, Mapping) or not isinstance(name := value.get("name"), str) or not name.strip():
        return None
    location = value.get("location")
    if isinstance(location, Mapping):
        uri, range_ = parse_uri(location.get("uri")), parse_range(location.get("range"))
        container_name = value.get("containerName")
        container = container_name if isinstance(container_name, str) else container
    else:
        range_ = parse_range(value.get("range"))
    if uri is None or range_ is None or range_[1] < range_[0]:
        return None
    kind = parse_count(value.get("kind")) or 0
    word = _KINDS[kind - 1] if 0 < kind <= len(_KINDS) else "symbol"
    return NamedTarget(
        name[:_MAX_NAME_LENGTH], word, Target(uri, *find_target_lines(range_)), container[:_MAX_NAME_LENGTH], depth
    )
