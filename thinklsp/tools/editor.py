"""What tools may ask of the editor: all that its other language servers know. Without an editor, or one that does not
say, the answer is None, and tools do with less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from thinklsp.core.problems import Problem


@dataclass(frozen=True, slots=True)
class Point:
    """A place in a document. `line` counts from 1, `column` from 0 in code points of `text`, the text of the document
    that the caller sees: an editor whose text differs is not asked. `is_open`: the text is that of an open document,
    else of the file on disk."""

    uri: str
    text: str
    line: int
    column: int
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class Target:
    """Where a symbol stands. Lines count from 1, both ends included."""

    uri: str
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class NamedTarget:
    """A symbol that the editor's language servers name. `container`: the name of the symbol around it, empty if the
    answer has none; `depth`: how many symbols of the same answer contain it."""

    name: str
    kind: str
    target: Target
    container: str = ""
    depth: int = 0


@dataclass(frozen=True, slots=True)
class NamedTargets:
    """At most 2,000 symbols, in the editor's order. `unread`: how many before the last of them cannot be read;
    `is_cut`: there are more."""

    symbols: tuple[NamedTarget, ...]
    unread: int = 0
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class DiagnosedDocument:
    """What the editor says about one document. `text`: of the document while it is open, as its lines are counted in
    `problems`. `older`: they were made for an earlier version; their lines have moved with the text, and what stood in
    text that has changed since is left out. `unread`: how many more were told in a form that nobody can read."""

    uri: str
    problems: tuple[Problem, ...]
    text: str | None = None
    older: bool = False
    unread: int = 0


Failure = Literal["silent", "refused", "unreadable"]
"""Of an editor that was asked: it did not answer in time, with an error, or with something that it is not asked for."""


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """`complete`: from every server that the editor runs, so that a document without problems has none. Otherwise they
    came along with code actions, and there may be more; `failed` says why where the editor could have told of all. A
    document that is not among them is not known about."""

    documents: tuple[DiagnosedDocument, ...]
    complete: bool
    failed: Failure | None = None


class Editor(Protocol):
    async def diagnostics(self, uri: str | None) -> Diagnostics | None:
        """Those of the present versions, waited for within bounds; of all documents where `uri` is None."""

    async def definition(self, point: Point) -> tuple[Target, ...] | None: ...

    async def references(self, point: Point) -> tuple[Target, ...] | None: ...

    async def hover(self, point: Point) -> str | None:
        """Return at most 3,000 characters that the editor shows about a symbol; None also if it shows nothing."""

    async def outline(self, document: Point) -> NamedTargets | None:
        """Return the symbols of a document. Line and column of `document` do not matter."""

    async def symbols(self, query: str) -> NamedTargets | None:
        """Return the symbols of the workspace that match a query, in the way each language server matches."""


class NoEditor:
    """The terminal, and editors that answer no questions."""

    async def diagnostics(self, uri: str | None) -> Diagnostics | None:  # noqa: ARG002 - see Editor
        return None

    async def definition(self, point: Point) -> tuple[Target, ...] | None:  # noqa: ARG002 - see Editor
        return None

    async def references(self, point: Point) -> tuple[Target, ...] | None:  # noqa: ARG002 - see Editor
        return None

    async def hover(self, point: Point) -> str | None:  # noqa: ARG002 - see Editor
        return None

    async def outline(self, document: Point) -> NamedTargets | None:  # noqa: ARG002 - see Editor
        return None

    async def symbols(self, query: str) -> NamedTargets | None:  # noqa: ARG002 - see Editor
        return None
