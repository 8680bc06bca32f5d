"""The edits of turns behind a document, as actions and lenses offer them. Light: needed before the engine is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Held:
    """A proposal that waits for this document. `edit`: ready to be applied, for clients that take edits in actions."""

    turn_id: str
    title: str
    edit: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Written:
    """A turn that wrote to a document and can be undone."""

    turn_id: str
    title: str
    session_id: str
