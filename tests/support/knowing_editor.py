"""An editor whose language server knows what a test tells it. It keeps what it was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from thinklsp.core.problems import Diagnosed
from thinklsp.tools.editor import NamedTargets, Point, Target


@dataclass
class KnowingEditor:
    """`texts`: what it has open or on disk, by URI; where the asked text differs the answer is None."""

    texts: dict[str, str]
    answers: tuple[Target, ...] | None = None
    shown: str | None = None
    named: NamedTargets | None = None
    asked: list[tuple[int, int]] = field(default_factory=list)

    async def diagnostics(self, uris: Sequence[str] | None) -> tuple[Diagnosed, ...] | None:
        return None

    async def hover(self, point: Point) -> str | None:
        return self.shown if self.texts.get(point.uri) == point.text else None

    async def outline(self, document: Point) -> NamedTargets | None:
        return self.named if self.texts.get(document.uri) == document.text else None

    async def symbols(self, query: str) -> NamedTargets | None:
        return self.named

    async def definition(self, point: Point) -> tuple[Target, ...] | None:
        return self._answer(point)

    async def references(self, point: Point) -> tuple[Target, ...] | None:
        return self._answer(point)

    def _answer(self, point: Point) -> tuple[Target, ...] | None:
        self.asked.append((point.line, point.column))
        return self.answers if self.texts.get(point.uri) == point.text else None
