"""The editor bridge, through which tools get information from the editor's other language servers.

If the editor answers late, not at all or with invalid data, the methods return None. The methods for diagnostics also
return the reason. Live documents are read between two awaits, so that the versions, lines and text in an answer are
consistent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeGuard, TypeVar

from lsprotocol.types import Diagnostic

from thinklsp.core.lines import split_without_ends
from thinklsp.jsonrpc.rpc_messages import ClientError
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.documents.tracked_diagnostics import convert_diagnostics, map_diagnostics, update_tracked
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.protocol.converter import read_diagnostic, read_range
from thinklsp.lsp.protocol.positions import count_units
from thinklsp.tools.tool import (
    DiagnosedDocument,
    EditorDiagnostics,
    EditorFailure,
    NamedTarget,
    NamedTargets,
    Point,
    Target,
)
from thinklsp.workspace.uri import normalize_uri
from thinklsp.workspace.view import WorkspaceView

# The maximum number of concurrent requests for all turns of a connection. A model may send many tool calls at once.
_MAX_CONCURRENT = 4
_MAX_QUERY_SECONDS = 4.0
_MAX_SYNC_SECONDS = 0.5


# The limits of answers. Editors may send megabytes.
_MAX_TARGETS = _MAX_DOCUMENTS = 500
_MAX_DIAGNOSTICS, _MAX_SYMBOLS, _MAX_UNREAD = 1_000, 2_000, 10_000
_MAX_URI_LENGTH, _MAX_NAME_LENGTH, _MAX_HOVER_LENGTH, _MAX_PARTS = 4_096, 200, 3_000, 50
_KINDS = (
    "file", "module", "namespace", "package", "class", "method", "property", "field", "constructor", "enum",
    "interface", "function", "variable", "constant", "string", "number", "boolean", "array", "object", "key", "null",
    "enum member", "struct", "event", "operator", "type parameter",
)  # fmt: skip

T = TypeVar("T")


class EditorBridge:
    """The implementation of `Editor` for a connection. Without a bridge, diagnostics come from code action requests."""

    def __init__(self, state: ConnectionState) -> None:
        self._state = state
        self._documents = state.documents
        self._request_slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def load_documents(self, view: WorkspaceView, paths: Sequence[str]) -> None:
        """Do nothing, because a view contains every document that the editor has opened."""

    async def fetch_diagnostics(self, uri: str | None) -> EditorDiagnostics:
        reports, failed = await self._fetch_reports(uri)
        if reports is not None:
            diagnosed = (self._build_from_report(item) for item in reports)
        else:
            key = None if uri is None else normalize_uri(uri)
            diagnosed = (
                _build_from_actions(item)
                for item in self._documents.list_documents()
                if key in (None, normalize_uri(item.uri))
            )
        documents = tuple(item for item in diagnosed if item is not None)
        return EditorDiagnostics(documents, is_complete=reports is not None, failure=failed)

    async def find_definition(self, point: Point) -> tuple[Target, ...] | None:
        return await _parse_answer(self._ask_at("definition", point), parse_targets)

    async def find_references(self, point: Point) -> tuple[Target, ...] | None:
        return await _parse_answer(self._ask_at("references", point), parse_targets)

    async def fetch_hover(self, point: Point) -> str | None:
        return await _parse_answer(self._ask_at("hover", point), parse_hover)

    async def fetch_outline(self, document: Point) -> NamedTargets | None:
        try:
            with self._ensure_unchanged(document) as uri:
                answer = await self._ask("symbols", {"uri": uri})
        except (ClientError, TimeoutError):
            return None
        return parse_symbols(answer, uri)

    async def find_symbols(self, query: str) -> NamedTargets | None:
        return await _parse_answer(self._ask("symbols", {"query": query}), lambda answer: parse_symbols(answer, None))

    async def _ask_at(self, method: str, point: Point) -> object:
        """Return the editor's answer for a position. Raise ClientError or TimeoutError if there is none."""
        with self._ensure_unchanged(point) as uri:
            document = self._find_document(uri)
            number = point.line - 1
            line = split_without_ends(point.text)[number] if document is None else document.get_line(number)
            before = line[: point.column]
            position = {"line": number, "character": count_units(before, self._documents.encoding)}
            return await self._ask(method, {"textDocument": {"uri": uri}, "position": position})

    @contextmanager
    def _ensure_unchanged(self, point: Point) -> Iterator[str]:
        """Yield the URI as the editor spells it.

        Raise ClientError if the editor's text differs from the caller's text before or after the request.
        """
        before = self._get_version(point)
        document = self._find_document(point.uri)
        yield point.uri if document is None else document.uri
        if self._get_version(point) != before:
            raise ClientError("The text changed during the request to the editor.")

    def _get_version(self, point: Point) -> int | None:
        """Return the version of an open file, or None for a closed file.

        Raise ClientError if the editor's text differs from the caller's text.
        """
        document = self._find_document(point.uri)
        if document is None and not point.is_open:
            return None
        if document is None or document.is_desynced or document.text != point.text:
            raise ClientError("The editor has different text.")
        return document.version

    async def _fetch_reports(
        self, uri: str | None
    ) -> tuple[tuple[ReportedDiagnostics, ...] | None, EditorFailure | None]:
        """Return the editor's diagnostics, or the reason why none are available."""
        if not self._can_answer("diagnostics"):
            return None, None
        try:
            async with asyncio.timeout(_MAX_QUERY_SECONDS):
                reports = parse_reports(await self._ask("diagnostics", {} if uri is None else {"uri": uri}))
        except ClientError:
            return None, "refused"
        except TimeoutError:
            return None, "silent"
        if reports is None:
            return None, "unreadable"
        await self._wait_for_documents(reports)
        return reports, None

    def _can_answer(self, method: str) -> bool:
        return method in self._state.client.features.bridge_requests

    async def _ask(self, method: str, params: Mapping[str, object]) -> object:
        """Send a bridge request. Raise ClientError or TimeoutError if the editor does not answer it."""
        if not self._can_answer(method):
            raise ClientError("The editor does not support this request.")
        async with self._request_slots:
            return await self._state.client.query_bridge(method, params)

    async def _wait_for_documents(self, reports: tuple[ReportedDiagnostics, ...]) -> None:
        """Wait briefly for document changes, because some editors report changes shortly after they answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_MAX_SYNC_SECONDS):
                while any(self._is_behind(report) for report in reports):
                    self._documents.change_event.clear()
                    await self._documents.change_event.wait()

    def _is_behind(self, report: ReportedDiagnostics) -> bool:
        document = self._find_document(report.uri)
        return document is not None and report.version is not None and document.version < report.version

    def _find_document(self, uri: str) -> Document | None:
        """Return the open document for a URI, even if the editor spells the URI differently."""
        if (document := self._documents.get(uri)) is not None:
            return document
        key = normalize_uri(uri)
        return next(
            (document for document in self._documents.list_documents() if normalize_uri(document.uri) == key), None
        )

    def _build_from_report(self, report: ReportedDiagnostics) -> DiagnosedDocument | None:
        """Return a document's diagnostics, or None if they are unknown, for example because the file is closed."""
        document = self._find_document(report.uri)
        problems = convert_diagnostics(report.diagnostics)
        if document is None:
            return (
                DiagnosedDocument(report.uri, problems, unreadable_count=report.unread)
                if problems or report.unread
                else None
            )
        if document.is_desynced:
            return None
        if report.version == document.version:
            return DiagnosedDocument(document.uri, problems, document.text, unreadable_count=report.unread)
        if report.version is not None:
            problems = map_diagnostics(document, report.diagnostics, report.version)
        elif not problems and not report.unread:
            return None
        return DiagnosedDocument(
            document.uri, problems, document.text, is_outdated=True, unreadable_count=report.unread
        )


def _build_from_actions(document: Document) -> DiagnosedDocument | None:
    diagnostics = update_tracked(document, document.tracked_diagnostics)
    if document.is_desynced or not diagnostics:
        return None
    older = any(diagnostic.reported_version != document.version for diagnostic in diagnostics)
    return DiagnosedDocument(
        document.uri, tuple(diagnostic.problem for diagnostic in diagnostics), document.text, older
    )


async def _parse_answer(request: Awaitable[object], parse: Callable[[object], T | None]) -> T | None:
    """Return the editor's parsed answer, or None if the editor does not give a valid one."""
    try:
        return parse(await request)
    except (ClientError, TimeoutError):
        return None


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
    """Parse the answer to `thinklsp/editor/diagnostics`, or return None for other JSON.

    Unreadable reports are omitted. The diagnostics of their documents are then treated as unknown.
    """
    if not isinstance(answer, list):
        return None
    reports, unread = _parse_readable(answer, _parse_report, _MAX_DOCUMENTS)
    return None if unread and not reports else reports


def _parse_report(value: object) -> ReportedDiagnostics | None:
    if not isinstance(value, Mapping) or not isinstance(diagnostics := value.get("diagnostics"), list):
        return None
    if not _is_uri(uri := value.get("uri")):
        return None
    version = value.get("version")
    return ReportedDiagnostics(
        uri,
        version if type(version) is int and 0 <= version < 2**31 else None,
        *_parse_readable(diagnostics, read_diagnostic, _MAX_DIAGNOSTICS),
    )


def parse_targets(answer: object) -> tuple[Target, ...] | None:
    """Parse the answer to a request for definitions or references. Remove duplicate locations.

    The answer is a Location, Location[], LocationLink[] or null. One invalid location makes the whole answer None.
    """
    if answer is None:
        return ()
    values = answer if isinstance(answer, list) else [answer]
    targets, unread = _parse_readable(values, _parse_target, _MAX_TARGETS)
    return None if unread else tuple(dict.fromkeys(targets))


def _parse_readable(
    values: Iterable[object], parse: Callable[[object], T | None], max_items: int
) -> tuple[tuple[T, ...], int]:
    """Return at most `max_items` parsed values, and the number of invalid values found."""
    items: list[T] = []
    unread = 0
    for value in values:
        if (item := parse(value)) is None:
            unread += 1
        else:
            items.append(item)
        if len(items) == max_items:
            break
    return tuple(items), unread


def _parse_target(value: object) -> Target | None:
    if not isinstance(value, Mapping):
        return None
    uri, range_ = ("targetUri", "targetRange") if "targetUri" in value else ("uri", "range")
    return _build_target(value.get(uri), value.get(range_))


def _build_target(uri: object, range_: object) -> Target | None:
    """Build a target with lines numbered from 1. A range that ends at the start of a line excludes that line."""
    place = read_range(range_)
    if place is None or place.end < place.start or not _is_uri(uri):
        return None
    first, last = place.start.line + 1, place.end.line + (place.end.character > 0)
    return Target(uri, first, max(first, last))


def _is_uri(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _MAX_URI_LENGTH


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


def _parse_symbol(value: object, uri: object, container: str, depth: int) -> NamedTarget | None:
    if not isinstance(value, Mapping) or not isinstance(name := value.get("name"), str) or not name.strip():
        return None
    place, location = value, value.get("location")
    if isinstance(location, Mapping):
        place, uri = location, location.get("uri")
        container_name = value.get("containerName")
        container = container_name if isinstance(container_name, str) else container
    target, kind = _build_target(uri, place.get("range")), value.get("kind")
    word = _KINDS[kind - 1] if type(kind) is int and 0 < kind <= len(_KINDS) else "symbol"
    if target is None:
        return None
    return NamedTarget(name[:_MAX_NAME_LENGTH], word, target, container[:_MAX_NAME_LENGTH], depth)
