"""What tools may ask of the editor: all that its other language servers know. Without an editor, or one that does not
say, the answer is None, and tools do with less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from thinklsp.core.problems import Diagnosed


@dataclass(frozen=True, slots=True)
class Point:
    """A place in a document. `line` counts from 1, `column` from 0 in code points of `text`, the text of the document
    that the caller sees: an editor whose text differs is not asked."""

    uri: str
    text: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Target:
    """Where a symbol stands. Lines count from 1, both ends included."""

    uri: str
    first_line: int
    last_line: int


class Editor(Protocol):
    async def diagnostics(self, uris: Sequence[str] | None) -> tuple[Diagnosed, ...] | None:
        """Those of the present versions, waited for within bounds; of all documents where `uris` is None."""

    async def definition(self, point: Point) -> tuple[Target, ...] | None: ...

    async def references(self, point: Point) -> tuple[Target, ...] | None: ...


class NoEditor:
    """The terminal, and editors that answer no questions."""

    async def diagnostics(self, uris: Sequence[str] | None) -> tuple[Diagnosed, ...] | None:  # noqa: ARG002 - see Editor
        return None

    async def definition(self, point: Point) -> tuple[Target, ...] | None:  # noqa: ARG002 - see Editor
        return None

    async def references(self, point: Point) -> tuple[Target, ...] | None:  # noqa: ARG002 - see Editor
        return None
