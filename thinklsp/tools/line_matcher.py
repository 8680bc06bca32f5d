"""Lines of texts that a pattern of Python matches; for a worker process, since a pattern can run forever."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice


def compile_fault(pattern: str) -> str:
    """Return what is wrong with a regular expression; empty if nothing is."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return ""


def matching_lines(pattern: str, texts: list[str], most: int) -> list[list[int]]:
    """Return `[text, line, column]` of the first matches. Lines end at ``\\n`` and count from 1, columns are bytes."""
    regex = re.compile(pattern)
    found = ([index, *place] for index, text in enumerate(texts) for place in _matches(regex, text))
    return list(islice(found, most))


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), start=1):
        for found in pattern.finditer(line.removesuffix("\r")):
            yield number, len(line[: found.start()].encode("utf-8", "replace"))
            # Only a lone `\r` makes one row several lines for the reader.
            if "\r" not in line[:-1]:
                break
