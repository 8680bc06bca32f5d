"""The search for machines without ripgrep: Python's patterns over texts, in a worker process."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from thinklsp.core.errors import ToolFailed
from thinklsp.tools.line_matcher import compile_fault, matching_lines
from thinklsp.tools.ripgrep import Match, Query
from thinklsp.workers.pool import WorkFailed, run_in_worker

# Of one call; the search as a whole has a limit of its own, which cancels it.
_SECONDS = 10.0
_MOST_AT_ONCE = 2_000_000


async def match_texts(texts: Sequence[str], query: Query, *, most: int) -> list[tuple[int, Match]]:
    """Return at most `most` matches, each with the index of its text. Raises ToolFailed for a wrong pattern."""
    pattern = re.escape(query.pattern) if query.literal else query.pattern
    found: list[tuple[int, Match]] = []
    try:
        if fault := await run_in_worker(_SECONDS, compile_fault, pattern):
            raise ToolFailed(f"The pattern is not a regular expression: {fault}.")
        for first, batch in _batches(texts):
            rows = await run_in_worker(_SECONDS, matching_lines, pattern, batch, most - len(found))
            found += [(first + index, Match("", number, b"", (column,))) for index, number, column in rows]
            if len(found) == most:
                break
    except WorkFailed:
        raise TimeoutError from None
    return found


def _batches(texts: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Texts that a worker takes together, with the index of the first."""
    first, batch, size = 0, list[str](), 0
    for index, text in enumerate(texts):
        if batch and size + len(text) > _MOST_AT_ONCE:
            yield first, batch
            first, batch, size = index, [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield first, batch
