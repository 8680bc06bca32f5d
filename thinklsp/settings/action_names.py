"""Names of the user's own actions. Light: needed before the first code action."""

from __future__ import annotations

import re
from collections.abc import Mapping

BUILT_IN = frozenset(
    (
        *("fix", "edit", "ask", "complete", "document", "test", "simplify", "explain", "review"),
        *("send", "apply", "stop", "undo"),
    )
)
"""Names that are taken."""

NAME = r"^[a-z0-9][a-z0-9_-]*$"


def named_actions(raw: object) -> object:
    """The same with names made from titles, where one is missing and the other is there."""
    if not isinstance(raw, list):
        return raw
    return [
        {"name": _slug(each["title"]), **each}
        if isinstance(each, Mapping) and "name" not in each and isinstance(each.get("title"), str)
        else each
        for each in raw
    ]


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.casefold()).strip("-")[:40].strip("-")
