"""A file as the user has it, in the editor or on disk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Present:
    """A file as it is now. `text` None: it does not exist. `version` None: it is not open."""

    text: str | None
    version: int | None = None
    desynced: bool = False
    refusal: str | None = None
