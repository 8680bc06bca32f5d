"""Failover of the session store: the file of the sessions, and a database in memory for what the file cannot take.

If the disk fails a write, the session moves to memory. The file is tried again every half minute, and then takes what
is in memory. A damaged file is set aside and a new file started. If the file was removed or replaced, the sessions that
this process has written move to the new file. All of it runs in the store's thread.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from sqlite3 import Connection
from typing import Concatenate, Literal, ParamSpec, Protocol, TypeVar

from thinklsp.core.errors import SessionError
from thinklsp.sessions import spending
from thinklsp.sessions.copying import copy_newer, copy_readable
from thinklsp.sessions.database import Opened, erase_traces, in_memory, is_damage, is_sound, reason
from thinklsp.sessions.folder import FileIds, file_ids, remove_backups, remove_left_behind, size_of
from thinklsp.sessions.rows import delete_session, read_revision
from thinklsp.sessions.session_cache import SessionCache
from thinklsp.sessions.transaction import transaction


class Row(Protocol):
    """A value from the database that belongs to one session."""

    @property
    def session_id(self) -> str: ...


_P = ParamSpec("_P")
_T = TypeVar("_T")
_Row = TypeVar("_Row", bound=Row)
# Functions of SQL, about one session or about all.
OfOne = Callable[Concatenate[Connection, str, _P], _T]
OfAll = Callable[Concatenate[Connection, _P], _T]
_NEVER = float("inf")


class Failover:
    """Transactions in the database that holds a session. `open_file` None: every session is in memory.

    `cache` knows sessions that the file has lost. New sentences for people are added to `problems`.
    """

    def __init__(
        self,
        open_file: Callable[[FileIds], Opened] | None,
        retry_seconds: float,
        cache: SessionCache,
        problems: dict[str, None],
    ) -> None:
        self._open_file, self._retry_seconds = open_file, retry_seconds
        self._cache, self._problems = cache, problems
        self.file: Connection | None = None
        self.path = ""
        self._file_ids: FileIds = ()
        self._writable = False
        # When the file is tried again: `_NEVER` while it is usable, and if no try could help.
        self._retry_at = _NEVER
        self._memory: Connection | None = None
        # Sessions in memory, whose rows in the file are out of date.
        self._moved: set[str] = set()
        self._open()

    @property
    def kind(self) -> Literal["file", "read-only", "memory"]:
        if self.file is None:
            return "memory"
        return "file" if self._writable else "read-only"

    @property
    def size(self) -> int:
        """The bytes of the file and its log."""
        return 0 if self.file is None else size_of(self.path)

    def close(self) -> None:
        """Close both databases. The file is tried once more for what is in memory."""
        if self._moved and self._retry_at != _NEVER:
            if self.file is not None:
                self.file.execute("PRAGMA busy_timeout = 500")
            self._catch_up(now=True)
        for connection in self._connections():
            with suppress(sqlite3.Error):
                connection.close()
        self.file = self._memory = None

    def read(self, function: OfOne[_P, _T], session_id: str, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Read one session. Raise SessionError if the disk does not allow it."""
        while True:
            connection = self._connection_of(session_id)
            try:
                with transaction(connection, "DEFERRED"):
                    return function(connection, session_id, *args, **kwargs)
            except sqlite3.Error as error:
                if not self._is_expected(error, connection):
                    raise
                # If the file was set aside, the session is in another database now.
                if connection is self._connection_of(session_id):
                    why = reason(error) or "its store belongs to a newer version"
                    raise SessionError(f"The session cannot be read: {why}.") from None

    def read_each(self, function: OfAll[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> list[_T]:
        """Return one result for each database. A file that cannot be read has none."""
        found: list[_T] = []
        for connection in self._connections():
            try:
                with transaction(connection, "DEFERRED"):
                    found.append(function(connection, *args, **kwargs))
            except sqlite3.Error as error:
                if not self._is_expected(error, connection):
                    raise
        return found

    def read_all(self, function: OfAll[_P, Iterable[_Row]], *args: _P.args, **kwargs: _P.kwargs) -> list[_Row]:
        """Return rows of all sessions, each from the database that holds its session."""

        def read(connection: Connection) -> list[tuple[bool, _Row]]:
            return [(connection is self.file, row) for row in function(connection, *args, **kwargs)]

        found = (pair for pairs in self.read_each(read) for pair in pairs)
        return [row for by_file, row in found if not (by_file and row.session_id in self._moved)]

    def write(self, function: OfOne[_P, _T], session_id: str, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Write one session in one transaction: in the file, or in memory if the file cannot take it."""
        self._catch_up()
        if self.file is not None and self._is_usable:
            try:
                with transaction(self.file):
                    return function(self.file, session_id, *args, **kwargs)
            except sqlite3.Error as error:
                if not self._handle(error):
                    raise
        if self._open_file is not None:
            self._move(session_id)
        memory = self._open_memory()
        with transaction(memory):
            return function(memory, session_id, *args, **kwargs)

    def delete(self, session_id: str) -> None:
        """Delete the rows of a session; `erase_traces` erases their bytes. Raise SessionError if it fails."""
        self._catch_up(now=True)
        if self.file is not None and not self._is_usable:
            raise SessionError("The session cannot be deleted while its store cannot be written.")
        connection = self._connection_of(session_id)
        with _report_failed_delete(), transaction(connection):
            delete_session(connection, session_id)

    def erase_traces(self) -> None:
        """Leave no byte of what was deleted. Raise SessionError if it fails."""
        if self.file is None:
            return
        with _report_failed_delete():
            remove_backups(self.path)
            if not erase_traces(self.file):
                self._report("Traces of a deleted session stay in the log of the store until the others end.")

    def follow_file(self) -> bool:
        """Return whether the file was removed or replaced. Then the sessions that this process has written are in the
        new file, or wait for it in memory."""
        if self.file is None or self._file_ids == (found := self._find_files()):
            return False
        path, lost, ids = self.path, self.file, self._file_ids
        only_log = found[:1] == ids[:1]
        count = self._move(*self._cache.revisions, is_lost=True) if self._writable else 0
        with suppress(sqlite3.Error):
            # A database that was moved elsewhere stays whole.
            lost.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with suppress(sqlite3.Error):
            lost.close()
        if not only_log:
            with suppress(OSError):
                remove_left_behind(path, ids)
        self.file = None
        self._report(_describe_loss(path, count, only_log=only_log))
        self._open()
        self._write_back()
        return True

    @property
    def _is_usable(self) -> bool:
        return self.kind == "file" and self._retry_at == _NEVER

    def _connections(self) -> Iterable[Connection]:
        return [connection for connection in (self.file, self._memory) if connection is not None]

    def _connection_of(self, session_id: str) -> Connection:
        return self._open_memory() if self.file is None or session_id in self._moved else self.file

    def _open_memory(self) -> Connection:
        self._memory = self._memory or in_memory()
        return self._memory

    def _open(self, damaged: FileIds = ()) -> None:
        if self._open_file is not None:
            opened = self._open_file(damaged)
            self.file, self.path, self._writable = opened.connection, opened.path, opened.writable
            self._file_ids = opened.files
            self._retry_at = time.monotonic() + self._retry_seconds if opened.passing else _NEVER
            self._report(*opened.problems)

    def _report(self, *sentences: str) -> None:
        self._problems.update(dict.fromkeys(sentences))

    def _find_files(self) -> FileIds:
        try:
            return file_ids(self.path)
        except OSError:
            # The folder cannot be searched now; the files may still be there.
            return self._file_ids

    def _is_expected(self, error: sqlite3.Error, connection: Connection) -> bool:
        """Handle an error of a read. Return whether the disk or a newer version's file explains it."""
        return connection is self.file and (self._handle(error) or not self._writable)

    def _handle(self, error: sqlite3.Error) -> bool:
        """Set a damaged file aside, or leave the file alone for a while. Return False if the disk is not at fault."""
        if self.file is None:
            return False
        why = reason(error)
        if is_damage(error) or (why is None and not is_sound(self.file)):
            with suppress(sqlite3.Error):
                self.file.close()
            self.file = None
            self._open(self._file_ids)
            self._move(*self._cache.stored, distrust=True)
            # The new file takes them with the next write.
            self._retry_at = 0.0
            return True
        if why is None:
            return False
        self._retry_at = time.monotonic() + self._retry_seconds
        self._report(
            f"The session store {self.path} cannot be written: {why}. Sessions are kept in memory until it can."
        )
        return True

    def _catch_up(self, *, now: bool = False) -> None:
        """Try the file again if it is time, and write back what is in memory."""
        if self._retry_at == _NEVER or (not now and time.monotonic() < self._retry_at):
            return
        self._retry_at = time.monotonic() + self._retry_seconds
        if self.file is None:
            self._open()
        if self._write_back():
            self._report("Sessions are saved to disk again, those too that had to wait.")

    def _write_back(self) -> bool:
        """Write what is in memory to the file. Return whether there was anything and the file took it."""
        if self.file is None or not self._writable:
            return False
        memory = self._memory
        try:
            with transaction(self.file):
                if memory is not None:
                    copy_newer(memory, self.file, self._moved)
                    spending.move(memory, self.file)
        except sqlite3.Error as error:
            self._handle(error)
            return False
        self._retry_at = _NEVER
        self._moved.clear()
        self._memory = None
        if memory is not None:
            memory.close()
        return memory is not None

    def _move(self, *session_ids: str, distrust: bool = False, is_lost: bool = False) -> int:
        """Bring sessions to memory: their rows if they can be read and trusted, else what the process knows of them.

        `is_lost`: the file has no name any more. Return how many sessions were brought.
        """
        count = 0
        for session_id in [session_id for session_id in session_ids if session_id not in self._moved]:
            memory = self._open_memory()
            with transaction(memory):
                is_read = self.file is not None and copy_readable(self.file, memory, session_id, with_usage=is_lost)
                if distrust or not is_read:
                    self._cache.rescue(memory, session_id)
                count += read_revision(memory, session_id) is not None
            self._moved.add(session_id)
        return count


@contextmanager
def _report_failed_delete() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        why = (reason(error) if isinstance(error, sqlite3.Error) else error.strerror) or "its store is damaged"
        raise SessionError(f"The session could not be deleted: {why}.") from None


def _describe_loss(path: str, count: int, *, only_log: bool) -> str:
    if only_log:
        return f"Files beside the session store {path} were removed while it was in use. It was opened again."
    said = f"The session store {path} was removed or replaced while it was in use. "
    if not count:
        return f"{said}From now on sessions are kept in the one that is there now."
    them, stays = ("The session", "stays") if count == 1 else (f"The {count} sessions", "stay")
    return f"{said}{them} that this program has worked on {stays}; what else was in it does not."
