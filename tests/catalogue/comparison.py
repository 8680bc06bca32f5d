"""The comparison of the catalogue with what the sources say, and the differences that are accepted."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.catalogue.sources import Facts
from thinklsp.providers.catalogue import Catalogue, ModelInfo

_ACCEPTED = Path(__file__).with_name("accepted.toml")


@dataclass(frozen=True)
class Difference:
    """`what`: `missing`, or the figure that differs."""

    facts: Facts
    what: str
    ours: object = None

    @property
    def key(self) -> str:
        return f"{self.facts.provider}/{self.facts.model} {self.what}"

    def __str__(self) -> str:
        if self.what == "missing":
            return f"{self.key} ({self.facts.source})"
        return f"{self.key}: {self.ours}, in {self.facts.source} {getattr(self.facts, self.what)}"


def compare(facts: Iterable[Facts], catalogue: Catalogue, day: date) -> Iterator[Difference]:
    """Yield what the catalogue lacks, and the figures of which it has others."""
    for each in facts:
        model = catalogue.find_model(each.provider, each.model, day=day)
        if not model.known:
            yield Difference(each, "missing")
            continue
        if each.window is not None and each.window not in _list_windows(model):
            yield Difference(each, "window", model.context_window)
        if each.output_cap is not None and each.output_cap != model.output_cap:
            yield Difference(each, "output_cap", model.output_cap)
        for what in ("input", "output", "cache_read"):
            theirs, ours = getattr(each, what), getattr(model.price, what, None)
            if theirs is not None and ours != pytest.approx(theirs):
                yield Difference(each, what, ours)


def _list_windows(model: ModelInfo) -> tuple[int | None, ...]:
    """Return the figures that count as the window. Some sources give it without the output."""
    window, cap = model.context_window, model.output_cap
    return (window,) if window is None or cap is None else (window, window - cap)


@dataclass(frozen=True)
class Accepted:
    """Patterns of keys, and why the differences that they match are right."""

    reasons: dict[str, str]

    @classmethod
    def read(cls) -> Accepted:
        table = tomllib.loads(_ACCEPTED.read_text("utf-8"))
        return cls({pattern: why for why, patterns in table.items() for pattern in patterns})

    def split(self, differences: Iterable[Difference]) -> tuple[list[Difference], list[str]]:
        """Return the differences that no pattern matches, and the patterns that match no difference."""
        unused, rest = set(self.reasons), list[Difference]()
        for difference in differences:
            matching = {pattern for pattern in self.reasons if fnmatchcase(difference.key, pattern)}
            unused -= matching
            rest += [] if matching else [difference]
        return rest, sorted(unused)
