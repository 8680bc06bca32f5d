"""Session stores that use SQLite, either in memory or in a file.

A single thread writes to the file. Each migration begins with a backup. A damaged file is renamed, and a new file is
created with everything that can be read. thinklsp never deletes the damaged file. If the file cannot be written to,
sessions are kept in memory: a database in memory has copies of the newest sessions, and the changed ones are written to
the file as soon as this is possible. The same happens for a file from a newer version of thinklsp, which is only read.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from thinklsp.core.errors import SessionError
from thinklsp.core.text_safety import format_size
from thinklsp.sessions import ledger, session_rows
from thinklsp.sessions.codec import build_corruption_error
from thinklsp.sessions.encryption import FILE_MODE_PROTECTION
from thinklsp.sessions.session_cache import SessionCache
from thinklsp.sessions.store import SessionQuery, SessionStore, StoreKind
from thinklsp.sessions.store_folder import (
    LOCK_FOLDER,
    FileIds,
    FileLeases,
    FolderRefused,
    KeptTexts,
    Leases,
    build_backup_path,
    create_private_copy,
    find_network_file_system,
    hold_opening_lock,
    measure_size,
    prepare_database,
    prepare_folder,
    read_file_ids,
    remove_backups,
    remove_left_behind,
    set_aside,
)
from thinklsp.sessions.tables import (
    SqliteConnection,
    begin_transaction,
    connect,
    copy_newer,
    copy_readable,
    delete_session,
    explain_error,
    extract_error_code,
    is_damage,
    load_migrations,
    migrate,
    open_memory_database,
    read_version,
)

_P = ParamSpec("_P")
_T = TypeVar("_T")
LOCK_TIMEOUT_SECONDS = 5.0
RETRY_SECONDS = 30.0
LARGE_FILE_BYTES = 1 << 30
_CHECK_SECONDS = 0.25
# At most this much of a file that cannot be written to is kept in memory.
_MAX_COPIED_BYTES = 256 * 1024 * 1024
# A higher schema version can only be the result of damage.
_MAX_VERSION = 10_000
_PRAGMAS = (
    "synchronous = FULL",
    "foreign_keys = ON",
    "wal_autocheckpoint = 1000",
    f"journal_size_limit = {64 << 20}",
    "cell_size_check = ON",
    "trusted_schema = OFF",
    "secure_delete = ON",
)
_FAILURE = "The session store {} cannot be written to: {}. Until then, sessions are kept in memory."
_LOST = (
    "The session store {} was removed or replaced while it was in use. The latest sessions from this process were "
    "saved again; all other sessions are lost."
)
_SAVED_AGAIN = "Sessions are saved to disk again, including those that were kept in memory."


class MemoryStore(SessionStore):
    """A store that keeps sessions in memory until the process exits. It uses neither a thread nor the disk."""

    def __init__(self) -> None:
        super().__init__(KeptTexts(None))

    def _open(self) -> None:
        self._cache = SessionCache(self._problems)
        self._database = open_memory(self._cache, self._problems)
        self._leases = Leases()

    async def _run(self, work: Callable[[], _T]) -> _T:
        return self._run_work(work)

    async def aclose(self) -> None:
        self._close()
        self._is_open = False


class SqliteStore(SessionStore):
    """A store in a file in the state folder. A single thread accesses the file.

    The first call opens the database, so creating the store performs no I/O. `timeout_seconds` is the maximum time to
    wait for the lock of another process.
    """

    def __init__(
        self,
        state_folder: str,
        *,
        timeout_seconds: float = LOCK_TIMEOUT_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        super().__init__(KeptTexts(os.path.join(state_folder, "sessions", "texts")))
        self._state_folder = state_folder
        self._timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds

    def _open(self) -> None:
        self._cache = SessionCache(self._problems)
        open_file = partial(open_database, self._state_folder, self._timeout_seconds)
        database = SqliteDatabase(open_file, self._retry_seconds, self._cache, self._problems)
        locks = os.path.join(self._state_folder, "sessions", LOCK_FOLDER)
        self._database = database
        self._leases = FileLeases(locks, lambda: database.file is not None)


class SqliteDatabase:
    """A database in a file, or in memory while the file cannot be written to.

    If `open_file` is None, there is no file. The file is tried again after `retry_seconds`. `cache` replaces sessions
    that cannot be read from the file. Messages for the user are added to `problems`. All methods run in the store's
    thread.
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
        self.file: SqliteConnection | None = None
        self.path = ""
        self._file_ids: FileIds = ()
        self._is_writable = False
        # The database in use instead of the file, the sessions that were changed there, and the time of the next try.
        self._memory: SqliteConnection | None = None
        self._changed_ids: set[str] = set()
        self._retry_at = self._replaced_until = 0.0
        self._open()

    @property
    def kind(self) -> StoreKind:
        """The current kind of storage."""
        if self.file is None:
            return "memory"
        return "file" if self._is_writable else "read-only"

    @property
    def protection(self) -> str:
        """A sentence for the user about who can read the sessions."""
        return FILE_MODE_PROTECTION if self._open_file is not None else "Sessions are not written to disk."

    @property
    def size_bytes(self) -> int:
        """The total size of the database file and its log in bytes."""
        return 0 if self.file is None else measure_size(self.path)

    def close(self) -> None:
        """Close both databases, after a last attempt to write the sessions in memory to the file."""
        if self._changed_ids:
            if self.file is not None:
                self.file.execute("PRAGMA busy_timeout = 500")
            self._retry_file(now=True)
        for connection in (self.file, self._memory):
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.close()
        self.file = self._memory = None

    def read(
        self, function: Callable[Concatenate[SqliteConnection, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Run a query in a transaction."""
        try:
            connection = self._get_connection()
            with begin_transaction(connection, "DEFERRED"):
                return function(connection, *args, **kwargs)
        except sqlite3.Error as error:
            if not self._recover(error):
                raise
        return self.read(function, *args, **kwargs)

    def write(self, function: SessionQuery[_P, _T], session_id: str, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Write to one session in one transaction, in memory if the file is not writable."""
        try:
            connection = self._get_connection()
            with begin_transaction(connection):
                result = function(connection, session_id, *args, **kwargs)
        except sqlite3.Error as error:
            if not self._recover(error):
                raise
            return self.write(function, session_id, *args, **kwargs)
        if self._memory is not None:
            self._changed_ids.add(session_id)
        return result

    # A file lock ends only with its process, so a write need not check that it is still held.
    write_as_holder = write

    def delete(self, session_id: str) -> None:
        """Delete the rows of a session.

        Raises SessionError on failure. Call `erase_traces` afterwards to erase the bytes of the deleted rows.
        """
        self._retry_file(now=True)
        if self.file is not None and self._memory is not None:
            raise SessionError("The session cannot be deleted, because its store is not writable at the moment.")
        connection = self._get_connection()
        with _report_failed_delete(), begin_transaction(connection):
            delete_session(connection, session_id)

    def erase_traces(self) -> None:
        """Erase the bytes of deleted rows from the file. Raises SessionError on failure."""
        if self.file is None:
            return
        with _report_failed_delete():
            remove_backups(self.path)
            if not _erase_traces(self.file):
                self._report(
                    "Data of a deleted session stays in the store's log until all other thinklsp processes exit."
                )

    def read_data_version(self) -> tuple[int, ...]:
        return self.read(lambda connection: tuple(connection.execute("PRAGMA data_version").fetchone()))

    def follow_file(self) -> bool:
        """Return True if another program has removed or replaced the database file or its log.

        In this case, the cached sessions are written to the new file, or to the memory until the file is writable. If a
        retry is due, the sessions in memory are written to the file.
        """
        self._retry_file()
        if self.file is None or self._file_ids == self._read_file_ids():
            return False
        with suppress(sqlite3.Error):
            # Write all data to the database file before closing it, because the user may have moved the file.
            self.file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with suppress(OSError):
            remove_left_behind(self.path, self._file_ids)
        self._report(_LOST.format(self.path))
        self._reopen()
        return True

    def _get_connection(self) -> SqliteConnection:
        connection = self._memory or self.file
        if connection is None:
            raise SessionError("The session store is closed. Restart the server.")
        return connection

    def _open(self, damaged: FileIds = ()) -> None:
        """Open the file. If it cannot be written to, use the memory."""
        if self._open_file is None:
            self._memory = open_memory_database()
            return
        opened = self._open_file(damaged_files=damaged)
        self.file, self.path, self._is_writable = opened.connection, opened.path, opened.is_writable
        self._file_ids = opened.files
        self._report(*opened.problems)
        if self.file is None or not self._is_writable:
            self._use_memory()

    def _use_memory(self) -> None:
        self._retry_at = time.monotonic() + self._retry_seconds
        if self._memory is None:
            self._memory = open_memory_database()
            if self.file is not None:
                copy_readable(self.file, self._memory, _MAX_COPIED_BYTES)

    def _reopen(self, damaged: FileIds = ()) -> None:
        """Open the file again, and write the cached sessions to it if it does not contain them."""
        with suppress(sqlite3.Error):
            if self.file is not None:
                self.file.close()
        self.file = None
        self._open(damaged)
        self._write_back()
        self._rescue_sessions()

    def _rescue_sessions(self) -> None:
        for session_id in tuple(self._cache.stored_sessions):
            self.write(self._cache.rescue, session_id)

    def _report(self, *sentences: str) -> None:
        self._problems.update(dict.fromkeys(sentences))

    def _read_file_ids(self) -> FileIds:
        try:
            return read_file_ids(self.path)
        except OSError:
            # The folder cannot be read at the moment, but the files may still exist.
            return self._file_ids

    def _recover(self, error: sqlite3.Error) -> bool:
        """Replace a damaged file, or use the memory for some time. Return False if the disk did not cause the error."""
        if self.file is None or self._memory is not None:
            return False
        cause = explain_error(error)
        if is_damage(error) or (cause is None and not _is_sound(self.file)):
            # A disk that damages every new file is not tried without a pause.
            if time.monotonic() >= self._replaced_until:
                self._replaced_until = time.monotonic() + self._retry_seconds
                self._reopen(self._file_ids)
                return True
            cause = "it was damaged again"
        elif cause is None:
            return False
        self._report(_FAILURE.format(self.path, cause))
        self._use_memory()
        self._rescue_sessions()
        return True

    def _retry_file(self, *, now: bool = False) -> None:
        """Use the file again, if a retry is due and it can be written to."""
        if self._memory is None or self._open_file is None or (not now and time.monotonic() < self._retry_at):
            return
        self._retry_at = time.monotonic() + self._retry_seconds
        if self.file is None:
            self._open()
        has_changed = bool(self._changed_ids)
        if self._write_back() and has_changed:
            self._report(_SAVED_AGAIN)

    def _write_back(self) -> bool:
        """Write the sessions that were changed in memory to the file. Return True if the file is used again."""
        if self._memory is None or self.file is None or not self._is_writable:
            return False
        try:
            with begin_transaction(self.file):
                copy_newer(self._memory, self.file, self._changed_ids)
        except sqlite3.Error as error:
            if is_damage(error):
                self.file.close()
                self.file = None
                self._open(self._file_ids)
            elif (cause := explain_error(error)) is not None:
                self._report(_FAILURE.format(self.path, cause))
            return False
        self._changed_ids.clear()
        self._memory.close()
        self._memory = None
        return True


def open_memory(cache: SessionCache, problems: dict[str, None]) -> SqliteDatabase:
    """Open a database without a file."""
    return SqliteDatabase(None, RETRY_SECONDS, cache, problems)


@contextmanager
def _report_failed_delete() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        cause = (explain_error(error) if isinstance(error, sqlite3.Error) else error.strerror) or "the store is damaged"
        raise SessionError(f"The session could not be deleted: {cause}.") from None


@dataclass(frozen=True, slots=True)
class OpenedDatabase:
    """The result of opening the session database.

    `connection` is None if the file cannot be opened at the moment. `problems` contains messages for the user.
    `files` identifies the opened files, so that the store can detect their replacement.
    """

    connection: SqliteConnection | None
    path: str
    is_writable: bool = True
    problems: tuple[str, ...] = ()
    files: FileIds = ()


def open_database(
    state_folder: str,
    timeout_seconds: float = LOCK_TIMEOUT_SECONDS,
    migrations: Mapping[int, str] | None = None,
    *,
    damaged_files: FileIds = (),
    find_network: Callable[[str], str | None] = find_network_file_system,
) -> OpenedDatabase:
    """Open the database in the state folder. Disk problems are returned as messages and are never raised.

    `damaged_files` identifies a database that is known to be damaged and must be replaced. `find_network` returns the
    type of a network file system, or None for a local file system.
    """
    path = os.path.join(state_folder, "sessions")
    try:
        folder = prepare_folder(state_folder)
        prepare_database(folder, create=False)
        with hold_opening_lock(folder, timeout_seconds):
            path = prepare_database(folder)
            place = _Location(path, timeout_seconds, migrations or load_migrations(), find_network(folder))
            if damaged_files[:1] != read_file_ids(path)[:1]:
                try:
                    return _open_sound(place)
                except sqlite3.Error as error:
                    if not is_damage(error):
                        raise
            aside = set_aside(path)
            prepare_database(folder)
            return _fill_new(_open_sound(place), aside)
    except FolderRefused as refused:
        problem = f"{refused} Until then, sessions are kept in memory."
    except (OSError, sqlite3.Error) as error:
        cause = error.strerror if isinstance(error, OSError) else explain_error(error) or error
        problem = f"The session store {path} cannot be used: {cause}. Sessions are kept in memory."
    return OpenedDatabase(None, path, problems=(problem,))


@dataclass(frozen=True, slots=True)
class _Location:
    path: str
    timeout_seconds: float
    migrations: Mapping[int, str]
    network_type: str | None


def _fill_new(database: OpenedDatabase, aside: str) -> OpenedDatabase:
    """Fill a new database from the damaged one, which has been set aside."""
    count = 0
    with suppress(sqlite3.Error, UnicodeError), closing(_connect_read_only(aside, LOCK_TIMEOUT_SECONDS)) as source:
        # With this pragma, SQLite can read tables even if parts of the schema are invalid.
        source.execute("PRAGMA writable_schema = ON")
        if database.connection is not None:
            count = copy_readable(source, database.connection)
    sentence = f"The session store was damaged. It is kept as {aside}, and a new store was created"
    sessions = "session" if count == 1 else f"{count} sessions"
    sentence += f" with the {sessions} that could be read." if count else "."
    return replace(database, problems=(sentence, *database.problems))


def _open_sound(place: _Location) -> OpenedDatabase:
    """Open a database and bring it to the newest version. Raises sqlite3.Error, also if the file is damaged."""
    path, latest = place.path, max(place.migrations)
    connection = connect(path, place.timeout_seconds)
    try:
        version, problems = _inspect(connection, place)
        if version > latest:
            connection.close()
            return _open_newer(path, place.timeout_seconds)
        if version < latest:
            if version > 0:
                with closing(sqlite3.connect(create_private_copy(f"{path}.copying"))) as copy:
                    connection.backup(copy)
                os.replace(f"{path}.copying", build_backup_path(path, version + 1))
            migrate(connection, place.migrations)
        ledger.delete_old_edits(connection)
        session_rows.delete_old_fallbacks(connection)
        return OpenedDatabase(connection, path, problems=problems, files=read_file_ids(path))
    except (sqlite3.Error, OSError):
        connection.close()
        raise


def _inspect(connection: SqliteConnection, place: _Location) -> tuple[int, tuple[str, ...]]:
    """Check the database.

    Return its schema version and messages about problems for the user. Raises sqlite3.Error if the file is damaged.
    """
    try:
        version = read_version(connection)
        if not 0 <= version < _MAX_VERSION:
            raise build_corruption_error("the schema version is invalid")
        if version > max(place.migrations):
            return version, ()
        problems = _configure(connection, place)
        _check(connection)
        _check_schema(connection, {step: sql for step, sql in place.migrations.items() if step <= version})
    except UnicodeDecodeError:
        raise build_corruption_error("SQLite's error message quotes damaged text") from None
    except sqlite3.Error as error:
        # SQLite uses this general error code for an invalid schema or file format.
        if extract_error_code(error) == sqlite3.SQLITE_ERROR:
            raise build_corruption_error(str(error)) from None
        raise
    return version, problems


def _open_newer(path: str, timeout_seconds: float) -> OpenedDatabase:
    sentence = (
        f"The session store {path} was written by a newer version of thinklsp, so new sessions are kept in memory. "
        "Use the newer version, or set `THINKLSP_STATE_DIR` to another folder."
    )
    connection = _connect_read_only(path, timeout_seconds)
    with suppress(sqlite3.Error):
        # Run a query first, because it creates the log file whose id is read next.
        read_version(connection)
    return OpenedDatabase(connection, path, False, (sentence,), read_file_ids(path))


def _connect_read_only(path: str, timeout_seconds: float) -> SqliteConnection:
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return connect(f"file:{quoted}?mode=ro", timeout_seconds, uri=True)


def _configure(connection: SqliteConnection, place: _Location) -> tuple[str, ...]:
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    # Write-ahead logging requires memory shared by all processes, which does not exist on network file systems.
    mode = "WAL" if place.network_type is None else "DELETE"
    connection.execute(f"PRAGMA journal_mode = {mode}").fetchall()
    problems = []
    if place.network_type is not None:
        problems.append(
            f"The session store {place.path} is on a network file system ({place.network_type}), "
            "where network failures can lose data. Set `THINKLSP_STATE_DIR` to a folder on a local disk."
        )
    if (size := os.stat(place.path).st_size) > LARGE_FILE_BYTES:
        problems.append(
            f"The session store {place.path} has grown to {format_size(size)}. Delete old sessions, for example with "
            "`thinklsp sessions delete --all --older-than 90d`."
        )
    return tuple(problems)


def _check(connection: SqliteConnection) -> None:
    """Check the database for damage, within a short time limit. Other damage is detected when the data is read."""
    until = time.monotonic() + _CHECK_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > until, 10_000)
    try:
        [(result,)] = connection.execute("PRAGMA integrity_check(1)").fetchall()
    except sqlite3.OperationalError as error:
        if extract_error_code(error) != sqlite3.SQLITE_INTERRUPT:
            raise
        result = "ok"
    finally:
        connection.set_progress_handler(None, 0)
    if result != "ok":
        raise build_corruption_error(str(result))


def _is_sound(connection: SqliteConnection) -> bool:
    """Return True if the database passes a complete check."""
    try:
        return connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
    except sqlite3.Error:
        return False


def _check_schema(connection: SqliteConnection, migrations: Mapping[int, str]) -> None:
    """Raise sqlite3.Error if the schema differs from the schema that the migrations create.

    A flipped byte can change a table name or the version number, and SQLite does not detect this.
    """
    query = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite%'"
    with closing(connect(":memory:")) as model:
        migrate(model, migrations)
        if set(model.execute(query)) != set(connection.execute(query)):
            raise build_corruption_error("the schema is not that of its version")


def _erase_traces(connection: SqliteConnection) -> bool:
    """Erase the bytes of deleted rows from the database and its log.

    Returns False if another process is still reading the log.
    """
    # VACUUM needs space for a second copy. If it fails, `secure_delete` has already overwritten most deleted rows.
    with suppress(sqlite3.OperationalError):
        connection.execute("VACUUM")
    for _ in range(20):
        [(busy, *_)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if not busy:
            return True
        time.sleep(0.05)
    return False
