"""Finds lines in texts; run as a script of its own so that it can be killed, since a pattern can run for ever.

Standard library only, and it opens nothing: input and output are its pipes. Input: a JSON line `{"pattern",
"literal", "most"}`, then one JSON string per text. Output: JSON lines `[text, line, column]`, or `{"error"}` alone.
Lines end at ``\\n`` and are counted from 1; columns count bytes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import TextIO


def run(source: TextIO, target: TextIO) -> None:
    query = json.loads(source.readline())
    try:
        pattern = re.compile(re.escape(query["pattern"]) if query["literal"] else query["pattern"])
    except re.error as error:
        target.write(json.dumps({"error": str(error)}) + "\n")
        return
    left = query["most"]
    for index, line in enumerate(source):
        for number, column in matches(pattern, json.loads(line)):
            if left == 0:
                return
            left -= 1
            target.write(json.dumps([index, number, column]) + "\n")


def matches(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), start=1):
        for found in pattern.finditer(line.removesuffix("\r")):
            yield number, len(line[: found.start()].encode("utf-8", "replace"))
            # Only a lone `\r` makes one row several lines for the reader.
            if "\r" not in line[:-1]:
                break


if __name__ == "__main__":
    run(sys.stdin, sys.stdout)
