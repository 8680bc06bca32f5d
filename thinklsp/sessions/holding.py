"""Which sessions this process keeps from other processes: while they are worked on, and while the answer to an edit is
awaited. Lives in the store's thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from thinklsp.core.errors import SessionError
from thinklsp.sessions.folder import Leases


class Holding:
    """`leases` None: everything belongs to this process. `usable`: whether the store's folder may be touched."""

    def __init__(self, leases: Callable[[], Leases] | None = None, usable: Callable[[], bool] = lambda: True) -> None:
        self._make_leases = leases
        self._usable = usable
        self._leases: Leases | None = None
        self._worked_on: set[str] = set()
        self._awaited: dict[str, set[str]] = {}

    def work(self, session_id: str) -> None:
        """Raises SessionError while another process has it."""
        self.take(session_id)
        self._worked_on.add(session_id)

    def release(self, session_id: str) -> None:
        self._worked_on.discard(session_id)
        self._give_back(session_id)

    def take(self, session_id: str) -> None:
        """For an edit that is about to be sent. Raises SessionError while another process has it."""
        if self._leases is None:
            # A folder that was refused is not touched.
            if self._make_leases is None or not self._usable():
                return
            self._leases = self._make_leases()
        try:
            self._leases.take(session_id)
        except OSError:
            # Where no lock can be made, nothing can be written either: the session goes on in memory.
            return

    def wait(self, session_id: str, edit: str) -> None:
        self._awaited.setdefault(session_id, set()).add(edit)

    def settle(self, session_id: str, edit: str) -> None:
        awaited = self._awaited.get(session_id, set())
        if edit in awaited:
            awaited.remove(edit)
            if not awaited:
                del self._awaited[session_id]
            self._give_back(session_id)

    def forget(self, session_id: str) -> None:
        """It was deleted."""
        self._awaited.pop(session_id, None)
        self.release(session_id)

    def renew(self) -> None:
        """The folder is another one: what is held is held there, too."""
        for session_id in (*self._worked_on, *self._awaited):
            with suppress(SessionError):
                self.take(session_id)

    def is_free(self, session_id: str) -> bool:
        """Whether no other process has it."""
        if self._leases is None and self._make_leases is not None:
            self._leases = self._make_leases()
        try:
            return self._leases is None or self._leases.free(session_id)
        except OSError:
            return True

    def close(self) -> None:
        if self._leases is not None:
            self._leases.close()

    def _give_back(self, session_id: str) -> None:
        if self._leases is not None and session_id not in self._worked_on and session_id not in self._awaited:
            self._leases.release(session_id)
