"""Copies sessions between stores, also of different kinds, and compares the copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thinklsp.core.errors import SessionError
from thinklsp.sessions.store import SessionStore

_DIFFERENT = "The copy differed from the original and was deleted. The original was not changed."


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The numbers of copied sessions and of sessions that were already there, and an error for each other session."""

    copied: int
    present: int
    errors: Mapping[str, str]


async def copy_sessions(source: SessionStore, target: SessionStore) -> CopyReport:
    """Copy all sessions, read each copy back and compare it with the original.

    A session that the target has with the same or a newer revision is skipped. Raises SessionError if the sessions
    cannot be listed.
    """
    copied = present = 0
    errors: dict[str, str] = {}
    for summary in await source.list_sessions(None):
        try:
            rows = await source.read_rows(summary.id)
            if not await target.write_rows(rows):
                present += 1
            elif await target.read_rows(summary.id) == rows:
                copied += 1
            else:
                # Otherwise the next attempt would find the session in the target.
                await target.delete(summary.id, None)
                errors[summary.id] = _DIFFERENT
        except SessionError as error:
            errors[summary.id] = str(error)
    return CopyReport(copied, present, errors)
