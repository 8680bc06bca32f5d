"""The uses of leases: a lease ends when no turn uses its session and no edit of the session waits for an answer."""

from __future__ import annotations

from abc import ABC, abstractmethod


class LeaseUses(ABC):
    """The uses of the leases of a session store. Subclasses know how a lease is acquired and released."""

    def __init__(self) -> None:
        self._active_ids: set[str] = set()
        # The session id and the edit id of each edit that the editor has not answered yet.
        self._pending_edits: set[tuple[str, str]] = set()

    @abstractmethod
    def take(self, session_id: str) -> None:
        """Acquire the lease on a session, but do not keep it longer than necessary. Raises SessionError if another
        process is using the session."""

    @abstractmethod
    def _drop(self, session_id: str) -> None:
        """Release the lease on a session if this store holds it."""

    def acquire(self, session_id: str) -> None:
        """Acquire the lease on a session until `release` is called. Raises SessionError if another process is using the
        session."""
        self.take(session_id)
        self._active_ids.add(session_id)

    def release(self, session_id: str) -> None:
        """Release the lease on a session, unless an edit is still waiting for the editor's response."""
        self._active_ids.discard(session_id)
        self._drop_if_unused(session_id)

    def hold_for_edit(self, session_id: str, edit: str) -> None:
        """Keep the lease on a session until the edit is settled."""
        self._pending_edits.add((session_id, edit))

    def settle_edit(self, session_id: str, edit: str) -> None:
        """Mark an edit as settled, and release the lease if the session is no longer in use."""
        if (session_id, edit) in self._pending_edits:
            self._pending_edits.remove((session_id, edit))
            self._drop_if_unused(session_id)

    def forget(self, session_id: str) -> None:
        """Release the lease on a deleted session."""
        self._pending_edits = {pair for pair in self._pending_edits if pair[0] != session_id}
        self.release(session_id)

    @property
    def _used_ids(self) -> frozenset[str]:
        return frozenset({*self._active_ids, *(session_id for session_id, _ in self._pending_edits)})

    def _drop_if_unused(self, session_id: str) -> None:
        if session_id not in self._used_ids:
            self._drop(session_id)
