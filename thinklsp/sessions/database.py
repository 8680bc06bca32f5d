"""Functions that open the session database, migrate it, and replace unusable files.

Each migration begins with a backup. A damaged file is renamed, and a new file is created. A file from a newer version
of thinklsp is opened read-only. thinklsp never deletes either kind of file.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from sqlite3 import Connection

from thinklsp.sessions import edit_rows, fallback_rows
from thinklsp.sessions.folder import (
    FileIds,
    FolderRefused,
    build_backup_path,
    create_private_copy,
    find_network_file_system,
    hold_opening_lock,
    prepare_database,
    prepare_folder,
    read_file_ids,
    set_aside,
)
from thinklsp.sessions.migrations import load_migrations, split_statements
from thinklsp.sessions.tables import begin_transaction, rescue_sessions

LOCK_TIMEOUT_SECONDS = 5.0
LARGE_FILE_BYTES = 1 << 30
_CHECK_SECONDS = 0.25
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
_DAMAGE_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_DISK_ERRORS = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_BUSY: "another program is holding a lock on it",
    sqlite3.SQLITE_LOCKED: "another program is holding a lock on it",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_PERM: "access to it is denied",
    sqlite3.SQLITE_AUTH: "access to it is denied",
    sqlite3.SQLITE_TOOBIG: "a value is too large for it",
}


@dataclass(frozen=True, slots=True)
class OpenedDatabase:
    """The result of opening the session database.

    `connection` is None if the file cannot be opened at the moment. `problems` contains messages for the user.
    `is_temporary` is true if another attempt may succeed. `files` identifies the opened files, so that the store can
    detect their replacement.
    """

    connection: Connection | None
    path: str
    is_writable: bool = True
    problems: tuple[str, ...] = ()
    is_temporary: bool = False
    files: FileIds = ()


class DatabaseDamaged(Exception):
    """Raised if the file is not a thinklsp database or has been damaged."""


def explain_error(error: sqlite3.Error) -> str | None:
    """Return a description of the disk error for the user, or None if the disk did not cause the error."""
    return _DISK_ERRORS.get(_extract_code(error))


def is_damage(error: sqlite3.Error) -> bool:
    """Return True if the error indicates a damaged file."""
    return _extract_code(error) in _DAMAGE_CODES


def _extract_code(error: sqlite3.Error) -> int:
    """Return the primary SQLite error code, or 0 for errors raised by Python itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def open_memory_database() -> Connection:
    """Open a new database in memory."""
    connection = _connect(":memory:", LOCK_TIMEOUT_SECONDS)
    connection.execute("PRAGMA foreign_keys = ON")
    migrate(connection, load_migrations())
    return connection


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
    migrations = load_migrations() if migrations is None else migrations
    path = os.path.join(state_folder, "sessions")
    try:
        folder = prepare_folder(state_folder)
        prepare_database(folder, create=False)
        with hold_opening_lock(folder, timeout_seconds):
            path = prepare_database(folder)
            is_damaged = damaged_files[:1] == read_file_ids(path)[:1]
            place = _Location(folder, path, timeout_seconds, migrations, find_network(folder))
            return _open(place, damaged=is_damaged)
    except FolderRefused as refused:
        problem = f"{refused} Until then, sessions are kept in memory."
    except (OSError, sqlite3.Error) as error:
        cause = error.strerror if isinstance(error, OSError) else explain_error(error) or error
        problem = f"The session store {path} cannot be used: {cause}. Sessions are kept in memory."
    return OpenedDatabase(None, path, problems=(problem,), is_temporary=True)


@dataclass(frozen=True, slots=True)
class _Location:
    folder: str
    path: str
    timeout_seconds: float
    migrations: Mapping[int, str]
    network_type: str | None


def _open(place: _Location, *, damaged: bool) -> OpenedDatabase:
    if not damaged:
        try:
            return _open_sound(place)
        except DatabaseDamaged:
            pass
    aside = set_aside(place.path)
    prepare_database(place.folder)
    database = _open_sound(place)
    rescued_count = 0 if database.connection is None else _rescue_sessions(aside, database.connection)
    sentence = f"The session store was damaged. It is kept as {aside}, and a new store was created"
    sessions = "session" if rescued_count == 1 else f"{rescued_count} sessions"
    sentence += f" with the {sessions} that could be read." if rescued_count else "."
    return replace(database, problems=(sentence, *database.problems))


def _rescue_sessions(aside: str, connection: Connection) -> int:
    with suppress(sqlite3.Error, UnicodeError), closing(_open_read_only(aside, LOCK_TIMEOUT_SECONDS)) as source:
        # With this pragma, SQLite can read tables even if parts of the schema are invalid.
        source.execute("PRAGMA writable_schema = ON")
        return rescue_sessions(source, connection)
    return 0


def _open_sound(place: _Location) -> OpenedDatabase:
    path, migrations = place.path, place.migrations
    connection = _connect(path, place.timeout_seconds)
    try:
        version, problems = _inspect(connection, place)
        if version > max(migrations):
            connection.close()
            return _open_newer(path, place.timeout_seconds)
        if version < max(migrations):
            _back_up(connection, path, version)
            migrate(connection, migrations)
        edit_rows.delete_old_edits(connection)
        fallback_rows.delete_old_fallbacks(connection)
        return OpenedDatabase(connection, path, problems=problems, files=read_file_ids(path))
    except sqlite3.Error as error:
        connection.close()
        if is_damage(error):
            raise DatabaseDamaged from None
        raise
    except DatabaseDamaged:
        connection.close()
        raise


def _inspect(connection: Connection, place: _Location) -> tuple[int, tuple[str, ...]]:
    """Check the database. Return its schema version and messages about problems for the user. Raises DatabaseDamaged if
    the file is damaged."""
    try:
        version = _read_version(connection)
        if not 0 <= version < _MAX_VERSION:
            raise DatabaseDamaged
        if version > max(place.migrations):
            return version, ()
        problems = _configure(connection, place)
        _check(connection)
        _check_schema(connection, {step: sql for step, sql in place.migrations.items() if step <= version})
    except UnicodeDecodeError:
        # SQLite's error message quotes text from the damaged file that is not valid UTF-8.
        raise DatabaseDamaged from None
    except sqlite3.Error as error:
        # SQLite uses this general error code for an invalid schema or file format.
        if _extract_code(error) == sqlite3.SQLITE_ERROR:
            raise DatabaseDamaged from None
        raise
    return version, problems


def _open_newer(path: str, timeout_seconds: float) -> OpenedDatabase:
    sentence = (
        f"The session store {path} was written by a newer version of thinklsp, so new sessions are kept in memory. "
        "Use the newer version, or set `THINKLSP_STATE_DIR` to another folder."
    )
    connection = _open_read_only(path, timeout_seconds)
    with suppress(sqlite3.Error):
        # Run a query first, because it creates the log file whose id is read next.
        _read_version(connection)
    return OpenedDatabase(connection, path, False, (sentence,), files=read_file_ids(path))


def _open_read_only(path: str, timeout_seconds: float) -> Connection:
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return _connect(f"file:{quoted}?mode=ro", timeout_seconds, uri=True)


def _connect(path: str, timeout_seconds: float, *, uri: bool = False) -> Connection:
    # Each connection is used in only one thread. For an in-memory store, this is the caller's thread.
    connection = sqlite3.connect(path, timeout=timeout_seconds, isolation_level=None, check_same_thread=False, uri=uri)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return connection


def _read_version(connection: Connection) -> int:
    [(version,)] = connection.execute("PRAGMA user_version")
    return int(version)


def _configure(connection: Connection, place: _Location) -> tuple[str, ...]:
    path = place.path
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    problems = []
    if place.network_type is None:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
    else:
        # Write-ahead logging requires memory shared by all processes, which does not exist on network file systems.
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        problems.append(
            f"The session store {path} is on a network file system ({place.network_type}), "
            "where network failures can lose data. Set `THINKLSP_STATE_DIR` to a folder on a local disk."
        )
    if (size := os.stat(path).st_size) > LARGE_FILE_BYTES:
        problems.append(
            f"The session store {path} has grown to {size >> 20:,} MiB. Delete old sessions, for example with "
            "`thinklsp sessions delete --all --older-than 90d`."
        )
    return tuple(problems)


def _check(connection: Connection) -> None:
    """Check the database for damage, within a short time limit. Other damage is detected when the data is read."""
    until = time.monotonic() + _CHECK_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > until, 10_000)
    try:
        [(result,)] = connection.execute("PRAGMA integrity_check(1)").fetchall()
    except sqlite3.OperationalError as error:
        if _extract_code(error) != sqlite3.SQLITE_INTERRUPT:
            raise
        result = "ok"
    finally:
        connection.set_progress_handler(None, 0)
    if result != "ok":
        raise DatabaseDamaged


def is_sound(connection: Connection) -> bool:
    """Return True if the database passes a complete check."""
    try:
        return connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
    except sqlite3.Error:
        return False


def _check_schema(connection: Connection, migrations: Mapping[int, str]) -> None:
    """Raise DatabaseDamaged if the schema differs from the schema that the migrations create.

    A flipped byte can change a table name or the version number, and SQLite does not detect this.
    """
    query = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite%'"
    with closing(_connect(":memory:", 0)) as model:
        migrate(model, migrations)
        if set(model.execute(query)) != set(connection.execute(query)):
            raise DatabaseDamaged


def _back_up(connection: Connection, path: str, version: int) -> None:
    if version == 0:
        return
    with closing(sqlite3.connect(create_private_copy(f"{path}.copying"))) as copy:
        connection.backup(copy)
    os.replace(f"{path}.copying", build_backup_path(path, version + 1))


def migrate(connection: Connection, migrations: Mapping[int, str]) -> None:
    """Apply each missing migration in a separate transaction, so that a crash cannot leave half a migration."""
    for version in sorted(migrations):
        with begin_transaction(connection):
            # Another process may have applied the migration first.
            if _read_version(connection) < version:
                for statement in split_statements(migrations[version]):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version}")


def erase_traces(connection: Connection) -> bool:
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
