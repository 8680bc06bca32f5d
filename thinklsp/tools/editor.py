"""Queries to the editor about other language servers.

If there is no editor or the editor does not respond, the result of a query is None, and tools use other sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from thinklsp.core.check_results import EditorDiagnostic
from thinklsp.workspace.view import WorkspaceView


@dataclass(frozen=True, slots=True)
class Point:
    """A position in a document.

    `line` starts at 1. `column` starts at 0 and counts code points. `text` is the document's text as the tool knows it.
    If the editor has a different text, no query is sent. `is_open` is true if the document is open in the editor.
    """

    uri: str
    text: str
    line: int
    column: int
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class Target:
    """The location of a symbol. Lines are numbered from 1, and the last line is included."""

    uri: str
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class NamedTarget:
    """A symbol that the editor's language servers have reported.

    `container` is the name of the enclosing symbol, or empty. `depth` is the number of enclosing symbols in the
    response.
    """

    name: str
    kind: str
    target: Target
    container: str = ""
    depth: int = 0


@dataclass(frozen=True, slots=True)
class NamedTargets:
    """Up to 2,000 symbols in the editor's order.

    `unreadable_count` is the number of malformed symbols, which are skipped. `is_cut` is true if the editor reported
    more symbols.
    """

    symbols: tuple[NamedTarget, ...]
    unreadable_count: int = 0
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class DiagnosedDocument:
    """The diagnostics that the editor reports for a document.

    If the document is open, `text` is its current text. `is_outdated` is true if the diagnostics refer to an earlier
    version. In this case, only diagnostics on unchanged lines are included. `unreadable_count` is the number of
    malformed diagnostics.
    """

    uri: str
    problems: tuple[EditorDiagnostic, ...]
    text: str | None = None
    is_outdated: bool = False
    unreadable_count: int = 0


EditorFailure = Literal["silent", "refused", "unreadable"]
"""The reason why an editor did not give a useful answer: a timeout, an error, or an answer in an unexpected format."""


@dataclass(frozen=True, slots=True)
class EditorDiagnostics:
    """The diagnostics that an editor reports.

    If `is_complete` is true, all of the editor's language servers have reported. Otherwise, documents may have more
    problems than listed, and `failure` explains why.
    """

    documents: tuple[DiagnosedDocument, ...]
    is_complete: bool
    failure: EditorFailure | None = None


class Editor(Protocol):
    async def load_documents(self, view: WorkspaceView, paths: Sequence[str]) -> None:
        """Add the editor's text of these files to the view before a tool uses them.

        Only an editor that does not announce its open documents does something here. Paths that tools may not read are
        skipped.
        """

    async def fetch_diagnostics(self, uri: str | None) -> EditorDiagnostics | None:
        """Return the diagnostics of the documents' current versions, after waiting for a limited time.

        If `uri` is None, the diagnostics of all documents are returned.
        """

    async def find_definition(self, point: Point) -> tuple[Target, ...] | None: ...

    async def find_references(self, point: Point) -> tuple[Target, ...] | None: ...

    async def fetch_hover(self, point: Point) -> str | None:
        """Return up to 3,000 characters of the editor's hover text for a symbol, or None if there is no text."""

    async def fetch_outline(self, document: Point) -> NamedTargets | None:
        """Return the symbols in a document. The line and column of `document` are ignored."""

    async def find_symbols(self, query: str) -> NamedTargets | None:
        """Return the workspace symbols that match a query. Each language server decides which symbols match."""


async def _answer_none(_editor: object, _argument: object) -> None:
    return None


class NoEditor:
    """A placeholder for sessions without an editor. The answer to every query is None."""

    async def load_documents(self, view: WorkspaceView, paths: Sequence[str]) -> None:
        """Do nothing, because the view already contains every open document."""

    fetch_diagnostics = find_definition = find_references = fetch_hover = fetch_outline = find_symbols = _answer_none
