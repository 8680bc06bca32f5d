"""The search for machines without ripgrep: Python's patterns over texts, in a process that can be killed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import PurePath

from thinklsp.core.errors import ToolFailed
from thinklsp.tools import line_matcher
from thinklsp.tools.child import started
from thinklsp.tools.ripgrep import Match, Query


async def match_texts(texts: Sequence[str], query: Query, *, most: int) -> list[tuple[int, Match]]:
    """Python's patterns, in a process that is killed with the call."""
    head = {"pattern": query.pattern, "literal": query.literal, "most": most}
    fed = "\n".join((json.dumps(head), *(json.dumps(text) for text in texts)))
    argv = (sys.executable, "-I", "-S", str(PurePath(line_matcher.__file__)))
    async with started(argv, "/", fed=True) as process:
        output, _ = await process.communicate(fed.encode())
    found: list[tuple[int, Match]] = []
    for line in output.splitlines():
        value = json.loads(line)
        if isinstance(value, dict):
            raise ToolFailed(f"The pattern is not a regular expression: {value['error']}.")
        index, number, column = value
        found.append((index, Match("", number, b"", (column,))))
    return found
