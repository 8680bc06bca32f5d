"""The editor bridge, through which tools get information from the editor's other language servers.

If the editor answers late, not at all or with invalid data, the methods return None. The methods for diagnostics also
return the reason. Live documents are read between two awaits, so that the versions, lines and text in an answer are
consistent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from thinklsp.core.lines import split_without_ends
from thinklsp.jsonrpc.error_responses import ClientError
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.documents.tracked_diagnostics import convert_diagnostics, map_diagnostics, update_tracked
from thinklsp.lsp.editor.bridge_answers import (
    ReportedDiagnostics,
    parse_hover,
    parse_reports,
    parse_symbols,
    parse_targets,
)
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.protocol.positions import count_units
from thinklsp.tools.tool import DiagnosedDocument, EditorDiagnostics, EditorFailure, NamedTargets, Point, Target
from thinklsp.workspace.uri import normalize_uri
from thinklsp.workspace.view import WorkspaceView

# The maximum number of concurrent requests for all turns of a connection. A model may send many tool calls at once.
_MAX_CONCURRENT = 4
_MAX_QUERY_SECONDS = 4.0
_MAX_SYNC_SECONDS = 0.5


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
        return await self._fetch_targets("definition", point)

    async def find_references(self, point: Point) -> tuple[Target, ...] | None:
        return await self._fetch_targets("references", point)

    async def fetch_hover(self, point: Point) -> str | None:
        try:
            return parse_hover(await self._ask_at("hover", point))
        except (ClientError, TimeoutError):
            return None

    async def fetch_outline(self, document: Point) -> NamedTargets | None:
        try:
            with self._ensure_unchanged(document) as uri:
                answer = await self._ask("symbols", {"uri": uri})
        except (ClientError, TimeoutError):
            return None
        return parse_symbols(answer, uri)

    async def find_symbols(self, query: str) -> NamedTargets | None:
        try:
            answer = await self._ask("symbols", {"query": query})
        except (ClientError, TimeoutError):
            return None
        return parse_symbols(answer, None)

    async def _fetch_targets(self, method: str, point: Point) -> tuple[Target, ...] | None:
        try:
            return parse_targets(await self._ask_at(method, point))
        except (ClientError, TimeoutError):
            return None

    async def _ask_at(self, method: str, point: Point) -> object:
        """Return the editor's answer for a position. Raise ClientError or TimeoutError if there is none."""
        with self._ensure_unchanged(point) as uri:
            document = self._find_document(uri)
            line = (
                split_without_ends(point.text)[point.line - 1]
                if document is None
                else document.get_line(point.line - 1)
            )
            before = line[: point.column]
            position = {"line": point.line - 1, "character": count_units(before, self._documents.encoding)}
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
        """Return the editor's diagnostics, or the reason why none are available.

        Retry once if the user types during the request.
        """
        reports: tuple[ReportedDiagnostics, ...] | None = None
        failed: EditorFailure | None = None
        if not self._can_answer("diagnostics"):
            return reports, failed
        try:
            async with asyncio.timeout(_MAX_QUERY_SECONDS):
                for _ in range(2):
                    before = {document.uri: document.version for document in self._documents.list_documents()}
                    parsed = parse_reports(await self._ask("diagnostics", {} if uri is None else {"uri": uri}))
                    if parsed is None:
                        failed = "unreadable"
                        break
                    reports = parsed
                    await self._wait_for_documents(reports)
                    if not any(self._has_changed_since(report, before) for report in reports):
                        break
        except ClientError:
            failed = "refused"
        except TimeoutError:
            failed = "silent"
        return reports, failed if reports is None else None

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

    def _has_changed_since(self, report: ReportedDiagnostics, before: Mapping[str, int]) -> bool:
        document = self._find_document(report.uri)
        if document is None or report.version == document.version:
            return False
        return before.get(document.uri) != document.version

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
