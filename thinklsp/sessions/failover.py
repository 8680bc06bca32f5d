"""Failover of the session store from the database file to memory.

If a write to disk fails, the session moves to memory. The store retries the file every 30 seconds and then writes the
sessions back. If the file is damaged, a new file replaces it. If another program removes the file, the sessions of this
process are written to a new file. All functions run in the store's thread.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from sqlite3 import Connection
from typing import Literal, ParamSpec, TypeVar

from thinklsp.core.errors import SessionError
from thinklsp.sessions.codec import read_number
from thinklsp.sessions.database import (
    OpenedDatabase,
    erase_traces,
    explain_error,
    is_damage,
    is_sound,
    open_memory_database,
)
from thinklsp.sessions.folder import FileIds, measure_size, read_file_ids, remove_backups, remove_left_behind
from thinklsp.sessions.session_cache import SessionCache
from thinklsp.sessions.session_database import SessionQuery, SessionRow, StoreQuery
from thinklsp.sessions.session_rows import read_revision
from thinklsp.sessions.tables import begin_transaction, copy_newer, copy_readable, copy_usage, delete_session

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Row = TypeVar("_Row", bound=SessionRow)

_NEVER = float("inf")


class Failover:
    """Transactions in the file or in memory, depending on the location of the session.

    If `open_file` is None, all sessions are in memory. `cache` can replace sessions that are missing from the file.
    Messages for the user are added to `problems`.
    """

    def __init__(
        self,
        open_file: Callable[..., OpenedDatabase] | None,
        retry_seconds: float,
        cache: SessionCache,
        problems: dict[str, None],
    ) -> None:
        self._open_file, self._retry_seconds = open_file, retry_seconds
        self._cache, self._problems = cache, problems
        self.file: Connection | None = None
        self.path = ""
        self._file_ids: FileIds = ()
        self._is_writable = False
        # The time of the next retry. The value is `_NEVER` if the file is usable or a retry cannot succeed.
        self._retry_at = _NEVER
        self._memory: Connection | None = None
        # The sessions in memory. Their rows in the file are outdated.
        self._in_memory_ids: set[str] = set()
        self._open_database_file()

    @property
    def kind(self) -> Literal["file", "read-only", "memory"]:
        """The current kind of storage."""
        if self.file is None:
            return "memory"
        return "file" if self._is_writable else "read-only"

    @property
    def size_bytes(self) -> int:
        """The total size of the database file and its log in bytes."""
        return 0 if self.file is None else measure_size(self.path)

    def close(self) -> None:
        """Close both databases, after a last attempt to write the sessions in memory to the file."""
        if self._in_memory_ids and self._retry_at != _NEVER:
            if self.file is not None:
                self.file.execute("PRAGMA busy_timeout = 500")
            self._retry_file(now=True)
        for connection in self._list_connections():
            with suppress(sqlite3.Error):
                connection.close()
        self.file = self._memory = None

    def read(self, function: SessionQuery[_P, _T], session_id: str, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Read from one session. Raises SessionError if the session cannot be read from disk."""
        while True:
            connection = self._find_connection(session_id)
            try:
                with begin_transaction(connection, "DEFERRED"):
                    return function(connection, session_id, *args, **kwargs)
            except sqlite3.Error as error:
                if not self._is_expected(error, connection):
                    raise
                # The session is in a different database if the damaged file has been replaced.
                if connection is self._find_connection(session_id):
                    cause = explain_error(error) or "the store belongs to a newer version of thinklsp"
                    raise SessionError(f"The session cannot be read: {cause}.") from None

    def read_each(self, function: StoreQuery[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> list[_T]:
        """Run a query in each database and return the results. A file that cannot be read is skipped."""
        results: list[_T] = []
        for connection in self._list_connections():
            try:
                with begin_transaction(connection, "DEFERRED"):
                    results.append(function(connection, *args, **kwargs))
            except sqlite3.Error as error:
                if not self._is_expected(error, connection):
                    raise
        return results

    def read_all(self, function: StoreQuery[_P, Iterable[_Row]], *args: _P.args, **kwargs: _P.kwargs) -> list[_Row]:
        """Return the rows of all sessions. Each row comes from the database that contains its session."""

        def read(connection: Connection) -> list[tuple[bool, _Row]]:
            return [(connection is self.file, row) for row in function(connection, *args, **kwargs)]

        pairs = (pair for result in self.read_each(read) for pair in result)
        return [row for is_in_file, row in pairs if not (is_in_file and row.session_id in self._in_memory_ids)]

    def write(self, function: SessionQuery[_P, _T], session_id: str, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Write to one session in one transaction. If the file is not writable, the session moves to memory."""
        self._retry_file()
        if self.file is not None and self._is_usable:
            try:
                with begin_transaction(self.file):
                    return function(self.file, session_id, *args, **kwargs)
            except sqlite3.Error as error:
                if not self._recover_from_error(error):
                    raise
        if self._open_file is not None:
            self._move(session_id)
        memory = self._open_memory()
        with begin_transaction(memory):
            return function(memory, session_id, *args, **kwargs)

    # A file lock ends only with its process, so a write need not check that it is still held.
    write_as_holder = write

    def delete(self, session_id: str) -> None:
        """Delete the rows of a session. Raises SessionError on failure. Call `erase_traces` afterwards to erase the
        bytes of the deleted rows."""
        self._retry_file(now=True)
        if self.file is not None and not self._is_usable:
            raise SessionError("The session cannot be deleted, because its store is not writable at the moment.")
        connection = self._find_connection(session_id)
        with _report_failed_delete(), begin_transaction(connection):
            delete_session(connection, session_id)

    def erase_traces(self) -> None:
        """Erase the bytes of deleted rows from the file. Raises SessionError on failure."""
        if self.file is None:
            return
        with _report_failed_delete():
            remove_backups(self.path)
            if not erase_traces(self.file):
                self._report(
                    "Data of a deleted session stays in the store's log until all other thinklsp processes exit."
                )

    def read_data_version(self) -> tuple[int, ...]:
        return tuple(self.read_each(_read_data_version))

    def follow_file(self) -> bool:
        """Return True if another program has removed or replaced the database file.

        In this case, the sessions of this process are written to the new file. They stay in memory until the new file
        is writable.
        """
        if self.file is None or self._file_ids == (current := self._read_file_ids()):
            return False
        path, lost, ids = self.path, self.file, self._file_ids
        only_log = current[:1] == ids[:1]
        count = self._move(*self._cache.revisions, is_lost=True) if self._is_writable else 0
        with suppress(sqlite3.Error):
            # Write all data to the database file before closing it, because the user may have moved the file.
            lost.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with suppress(sqlite3.Error):
            lost.close()
        if not only_log:
            with suppress(OSError):
                remove_left_behind(path, ids)
        self.file = None
        self._report(_describe_loss(path, count, only_log=only_log))
        self._open_database_file()
        self._write_back()
        return True

    @property
    def _is_usable(self) -> bool:
        return self.kind == "file" and self._retry_at == _NEVER

    def _list_connections(self) -> Iterable[Connection]:
        return [connection for connection in (self.file, self._memory) if connection is not None]

    def _find_connection(self, session_id: str) -> Connection:
        return self._open_memory() if self.file is None or session_id in self._in_memory_ids else self.file

    def _open_memory(self) -> Connection:
        self._memory = self._memory or open_memory_database()
        return self._memory

    def _open_database_file(self, damaged: FileIds = ()) -> None:
        if self._open_file is not None:
            database = self._open_file(damaged_files=damaged)
            self.file, self.path, self._is_writable = database.connection, database.path, database.is_writable
            self._file_ids = database.files
            self._retry_at = time.monotonic() + self._retry_seconds if database.is_temporary else _NEVER
            self._report(*database.problems)

    def _report(self, *sentences: str) -> None:
        self._problems.update(dict.fromkeys(sentences))

    def _read_file_ids(self) -> FileIds:
        try:
            return read_file_ids(self.path)
        except OSError:
            # The folder cannot be read at the moment, but the files may still exist.
            return self._file_ids

    def _is_expected(self, error: sqlite3.Error, connection: Connection) -> bool:
        """Handle a read error. Return True if the disk caused the error or the file is read-only."""
        return connection is self.file and (self._recover_from_error(error) or not self._is_writable)

    def _recover_from_error(self, error: sqlite3.Error) -> bool:
        """Replace a damaged file, or stop using the file for some time. Return False if the disk did not cause the
        error."""
        if self.file is None:
            return False
        cause = explain_error(error)
        if is_damage(error) or (cause is None and not is_sound(self.file)):
            with suppress(sqlite3.Error):
                self.file.close()
            self.file = None
            self._open_database_file(self._file_ids)
            self._move(*self._cache.stored_sessions, distrust=True)
            # The next write moves the sessions to the new file.
            self._retry_at = 0.0
            return True
        if cause is None:
            return False
        self._retry_at = time.monotonic() + self._retry_seconds
        self._report(
            f"The session store {self.path} cannot be written to: {cause}. Until then, sessions are kept in memory."
        )
        return True

    def _retry_file(self, *, now: bool = False) -> None:
        """Retry the file if a retry is due, and write the sessions in memory back to the file."""
        if self._retry_at == _NEVER or (not now and time.monotonic() < self._retry_at):
            return
        self._retry_at = time.monotonic() + self._retry_seconds
        if self.file is None:
            self._open_database_file()
        if self._write_back():
            self._report("Sessions are saved to disk again, including those that were kept in memory.")

    def _write_back(self) -> bool:
        """Write the sessions in memory back to the file. Return True if any session was written."""
        if self.file is None or not self._is_writable:
            return False
        memory = self._memory
        try:
            with begin_transaction(self.file):
                if memory is not None:
                    copy_newer(memory, self.file, self._in_memory_ids)
                    copy_usage(memory, self.file)
        except sqlite3.Error as error:
            self._recover_from_error(error)
            return False
        self._retry_at = _NEVER
        self._in_memory_ids.clear()
        self._memory = None
        if memory is not None:
            memory.close()
        return memory is not None

    def _move(self, *session_ids: str, distrust: bool = False, is_lost: bool = False) -> int:
        """Move sessions to memory, and return the number of moved sessions.

        The cache replaces unreadable or distrusted rows. `is_lost` is true if the open file is no longer in the folder.
        """
        count = 0
        for session_id in [session_id for session_id in session_ids if session_id not in self._in_memory_ids]:
            memory = self._open_memory()
            with begin_transaction(memory):
                is_read = self.file is not None and copy_readable(self.file, memory, session_id, with_usage=is_lost)
                if distrust or not is_read:
                    self._cache.rescue(memory, session_id)
                count += read_revision(memory, session_id) is not None
            self._in_memory_ids.add(session_id)
        return count


def _read_data_version(connection: Connection) -> int:
    return read_number(connection.execute("PRAGMA data_version").fetchone()[0])


@contextmanager
def _report_failed_delete() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        cause = (explain_error(error) if isinstance(error, sqlite3.Error) else error.strerror) or "the store is damaged"
        raise SessionError(f"The session could not be deleted: {cause}.") from None


def _describe_loss(path: str, count: int, *, only_log: bool) -> str:
    if only_log:
        return f"Log files of the session store {path} were removed while it was in use. The store was reopened."
    sentence = f"The session store {path} was removed or replaced while it was in use. "
    if not count:
        return f"{sentence}Sessions are now saved in the new store."
    sessions, verb = ("session", "was") if count == 1 else (f"{count} sessions", "were")
    return f"{sentence}The {sessions} from this process {verb} saved again; all other sessions are lost."
