"""Row 8: typing in large documents, against the documents of pygls."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any

from lsprotocol import types
from pygls.workspace import TextDocument

from tests.bench.measure import Bench, Figure, compared, in_turn, ratio
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.protocol.forms import Change, Opened, Position, Range

LINE = "    value = compute(number, another) + offset  # one line of code\n"
URI = "file:///large.py"
_TYPED = 10_000


async def edits(bench: Bench) -> list[Figure]:
    count = 100 if bench.quick else 1_000
    large, larger = LINE * (1_000_000 // len(LINE)), LINE * (10_000_000 // len(LINE))
    variants = {"thinklsp": _ours(large, count), "pygls": _theirs(large, count)}
    values, missing = await in_turn(variants, bench.some(5))
    figures = compared("8", f"{count:,} edits in 1 MB", values, missing, {"pygls": 0.01})
    # A text is split into lines once, at its first edit. That is told apart: else the figure for typing would hang on
    # how many edits are measured.
    firsts, missing = await in_turn({"thinklsp": _ours(larger, 1), "pygls": _theirs(larger, 1)}, bench.some(5))
    figures += compared("8", "the first edit in 10 MB", firsts, missing, {"pygls": None})
    typing = {"10 MB": _ours(larger, _TYPED, split=True), "1 MB": _ours(large, _TYPED, split=True)}
    sizes, _ = await in_turn(typing, bench.some(11))
    per_edit = {name: [taken / _TYPED * 1000 for taken in times] for name, times in sizes.items()}
    found = ratio(per_edit["10 MB"], per_edit["1 MB"])
    name = "an edit in 10 MB"
    return [*figures, Figure("8", name, "µs", per_edit["10 MB"], per_edit["1 MB"], "in 1 MB", found, most=2.0)]


def _places(text: str, count: int) -> list[tuple[int, int]]:
    """Where somebody types: here and there, and some letters in each place."""
    random, lines = Random(1), text.count("\n")
    starts = [(random.randrange(lines), random.randrange(len(LINE) - 1)) for _ in range(-(-count // 10))]
    return [(line, column + letter) for line, column in starts for letter in range(10)][:count]


def _ours(text: str, count: int, *, split: bool = False) -> Callable[[], float]:
    """`split`: the document has been edited before."""
    places = _places(text, count)

    def measure() -> float:
        document = Document(Opened(URI, "python", 0, text), "utf-16")
        changes = [Change(Range(Position(*place), Position(*place)), "x") for place in places]
        if split:
            document.apply(1, changes[:1])
        return _timed(lambda: [document.apply(n, [change]) for n, change in enumerate(changes, 2)])

    return measure


def _theirs(text: str, count: int) -> Callable[[], float]:
    places = _places(text, count)

    def measure() -> float:
        document = TextDocument(URI, text, 0, "python", types.TextDocumentSyncKind.Incremental)
        changes = [
            types.TextDocumentContentChangePartial(types.Range(types.Position(*place), types.Position(*place)), "x")
            for place in places
        ]
        return _timed(lambda: [document.apply_change(change) for change in changes])

    return measure


def _timed(work: Callable[[], Any]) -> float:
    """Milliseconds of processor time."""
    begun = time.process_time()
    work()
    return (time.process_time() - begun) * 1000
