"""Session leases. Only the process with the lease on a session can change the session or apply its edits."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from thinklsp.core.errors import SessionError
from thinklsp.sessions.budget_caps import BudgetCap
from thinklsp.sessions.lease_uses import LeaseUses

_MAX_LOCKS = 64


class Leases(LeaseUses):
    """The leases of a session store.

    A lease is a file lock, so it ends with the process. `folder` contains the lock files. If `folder` is None, no other
    process can use the sessions. No lock file is created until `is_usable` returns True. To save file descriptors, the
    least recently used leases are released.
    """

    def __init__(self, folder: str | None = None, is_usable: Callable[[], bool] = lambda: True) -> None:
        super().__init__()
        self._folder = folder
        self._is_usable = is_usable
        self._locks: dict[str, int] = {}

    def take(self, session_id: str) -> None:
        """Lock the session if the disk is writable. Raises SessionError if another process is using the session."""
        if self._folder is None or not (self._locks or self._is_usable()):
            return
        if (held_lock := self._locks.pop(session_id, None)) is not None:
            if _is_current(held_lock, self._build_path(session_id)):
                self._locks[session_id] = held_lock
                return
            # Another process can lock a new file with the same name, because the lock file was removed.
            os.close(held_lock)
        try:
            lock = self._lock(session_id)
        except OSError:
            # If the lock file cannot be created, the disk is not writable, and the session continues in memory.
            return
        if lock is None:
            raise SessionError(
                f"This session is in use by another thinklsp{self._describe_owner(session_id)}. "
                "Fork it or stop the other one."
            )
        if len(self._locks) >= _MAX_LOCKS:
            self._drop(next(iter(self._locks)))
        self._locks[session_id] = lock

    def check(self, session_id: str) -> None:
        """Do nothing: a file lock ends only with its process."""

    def reserve(self, _session_id: str, _usd: float, _caps: Sequence[BudgetCap]) -> None:
        """Do nothing: budgets of a team need a database that its processes share."""

    def renew(self) -> None:
        """Acquire the leases again after the folder was replaced."""
        for session_id in self._used_ids:
            with suppress(SessionError):
                self.take(session_id)

    def is_free(self, session_id: str) -> bool:
        """Return True if no other process is using the session."""
        if self._folder is None or session_id in self._locks or not os.path.lexists(self._build_path(session_id)):
            return True
        try:
            lock = self._lock(session_id)
        except OSError:
            return True
        if lock is None:
            return False
        self._locks[session_id] = lock
        self._drop(session_id)
        return True

    def find_in_use(self, session_ids: Iterable[str]) -> frozenset[str]:
        """Return the ids of the sessions that another process is using."""
        return frozenset(session_id for session_id in session_ids if not self.is_free(session_id))

    def close(self) -> None:
        """Release all leases."""
        for session_id in tuple(self._locks):
            self._drop(session_id)

    def _build_path(self, session_id: str) -> str:
        """Return the path of the lock file. In a damaged store, a session id may not be a valid file name."""
        is_name = session_id.isascii() and session_id.isalnum() and len(session_id) <= 64
        name = session_id if is_name else sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
        return os.path.join(self._folder or "", name)

    def _lock(self, session_id: str) -> int | None:
        lock = lock_file(self._build_path(session_id))
        if lock is not None:
            # The process id appears only in an error message, so a failed write does not matter.
            with suppress(OSError):
                os.ftruncate(lock, 0)
                os.write(lock, str(os.getpid()).encode())
        return lock

    def _drop(self, session_id: str) -> None:
        lock = self._locks.pop(session_id, None)
        if lock is None:
            return
        path = self._build_path(session_id)
        # Remove the file before releasing the lock, because another process may lock the file immediately afterwards.
        # In a read-only folder, the file stays.
        with suppress(OSError):
            if _is_current(lock, path):
                Path(path).unlink(missing_ok=True)
        os.close(lock)

    def _describe_owner(self, session_id: str) -> str:
        try:
            number = Path(self._build_path(session_id)).read_text("utf-8")
        except (OSError, ValueError):
            return ""
        if number == str(os.getpid()):
            return " (another client of this server)"
        return f" (process {number})" if number.isdecimal() else ""


def lock_file(path: str) -> int | None:
    """Lock a file and return its descriptor, or None if the file is already locked. Raises OSError if the file cannot
    be created."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        # The previous owner may remove the lock file after this process has opened it.
        is_locked = _lock_exclusively(descriptor)
        if is_locked and _is_current(descriptor, path):
            return descriptor
        os.close(descriptor)
        if not is_locked:
            return None


def _is_current(descriptor: int, path: str) -> bool:
    """Return True if the locked file still exists under its name. Other processes ignore a lock on a removed file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _lock_exclusively(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
