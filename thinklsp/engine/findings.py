"""The findings of a `review` action, parsed from the model's list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.view import WorkspaceView

_FINDING = re.compile(
    r"\s*(?:[-*+]|\d{1,3}[.)])\s+[*`\[]*(?P<path>(?:[a-z]+:)?[^\s`*\]:][^`*\]:\n]{0,500}):(?P<first>\d{1,7})(?:-(?P<last>\d{1,7}))?"
    r"[*`\]]*:?\s*[*`]*(?:(?P<severity>error|warning|note)[*`]*:)?\s*(?P<message>\S.*)",
    re.IGNORECASE,
)


def parse_findings(text: str, view: WorkspaceView) -> list[dict[str, Any]]:
    """Return the findings of a review with their places in the workspace. Other lines are ignored."""
    return list(_parse_lines(text, view))


def _parse_lines(text: str, view: WorkspaceView) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        match = _FINDING.fullmatch(line)
        if match is None:
            continue
        try:
            uri = view.resolve(match["path"].strip()).uri
        except PathRefused:
            continue
        first = max(1, int(match["first"])) - 1
        last = max(first, int(match["last"] or match["first"]) - 1)
        yield {
            "uri": uri,
            "range": {"start": {"line": first, "character": 0}, "end": {"line": last + 1, "character": 0}},
            "severity": (match["severity"] or "warning").lower(),
            "message": match["message"].strip(),
        }
