"""Opens the database: pragmas, migrations with a copy before each, and what to do with one that cannot be used.

A damaged file is set aside and a new one begun; one from a newer version is only read. Neither is ever deleted.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from sqlite3 import Connection

from thinklsp.sessions import ledger, remedies
from thinklsp.sessions.copying import salvage
from thinklsp.sessions.folder import (
    FileIds,
    FolderRefused,
    backup_path,
    file_ids,
    network_file_system,
    opening_lock,
    prepared,
    prepared_database,
    private_copy,
    set_aside,
)
from thinklsp.sessions.migrations import released, statements
from thinklsp.sessions.transaction import transaction

PATIENCE = 5.0
LARGE = 1 << 30
_CHECK_SECONDS = 0.25
# No version of ours will ever have such a number: a flipped bit has.
_IMPLAUSIBLE = 10_000
_PRAGMAS = (
    "synchronous = FULL",
    "foreign_keys = ON",
    "wal_autocheckpoint = 1000",
    f"journal_size_limit = {64 << 20}",
    "cell_size_check = ON",
    "trusted_schema = OFF",
    "secure_delete = ON",
)
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_DISK = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it cannot be written",
    sqlite3.SQLITE_BUSY: "another program has locked it for long",
    sqlite3.SQLITE_LOCKED: "another program has locked it for long",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_PERM: "it may not be opened",
    sqlite3.SQLITE_AUTH: "it may not be opened",
    sqlite3.SQLITE_TOOBIG: "a value is too large for it",
}


@dataclass(frozen=True, slots=True)
class Opened:
    """`connection` None: nothing can be kept there now. `writable` False: it may only be read, for good.

    `problems` are sentences; `passing`: another try may go better. `files` tell the files from others of their names.
    """

    connection: Connection | None
    path: str
    writable: bool = True
    problems: tuple[str, ...] = ()
    passing: bool = False
    files: FileIds = ()


class Damaged(Exception):
    """The file is no database, or not one of ours any more."""


def reason(error: sqlite3.Error) -> str | None:
    """What is wrong with the disk, as the end of a sentence; None when it is something else."""
    return _DISK.get(_code(error))


def is_damage(error: sqlite3.Error) -> bool:
    return _code(error) in _DAMAGE


def _code(error: sqlite3.Error) -> int:
    """Without the bits of the extended codes. Python's own errors have none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def in_memory() -> Connection:
    connection = _connected(":memory:", PATIENCE)
    connection.execute("PRAGMA foreign_keys = ON")
    migrate(connection, released())
    return connection


def open_database(
    state_folder: str,
    patience: float = PATIENCE,
    migrations: Mapping[int, str] | None = None,
    *,
    damaged: FileIds = (),
    network: Callable[[str], str | None] = network_file_system,
) -> Opened:
    """Never raises for what a disk may hold. `damaged`: the file that has turned out not to be sound; if it is there
    still, it is set aside without another look. `network` tells the type of a file system that is one over a network.
    """
    migrations = released() if migrations is None else migrations
    path = os.path.join(state_folder, "sessions")
    try:
        folder = prepared(state_folder)
        prepared_database(folder, create=False)
        with opening_lock(folder, patience):
            path = prepared_database(folder)
            known = damaged[:1] == file_ids(path)[:1]
            place = _Place(folder, path, patience, migrations, network(folder))
            return _open(place, damaged=known)
    except FolderRefused as refused:
        return Opened(None, path, problems=(f"{refused} Sessions are kept in memory until then.",), passing=True)
    except OSError as error:
        said = f"The session store {path} cannot be used: {error.strerror}. Sessions are kept in memory."
        return Opened(None, path, problems=(said,), passing=True)
    except sqlite3.Error as error:
        said = f"The session store {path} cannot be used: {reason(error) or error}. Sessions are kept in memory."
        return Opened(None, path, problems=(said,), passing=True)


@dataclass(frozen=True, slots=True)
class _Place:
    folder: str
    path: str
    patience: float
    migrations: Mapping[int, str]
    network: str | None


def _open(place: _Place, *, damaged: bool) -> Opened:
    if not damaged:
        try:
            return _sound(place)
        except Damaged:
            pass
    aside = set_aside(place.path)
    prepared_database(place.folder)
    opened = _sound(place)
    saved = 0 if opened.connection is None else _salvage(aside, opened.connection)
    said = f"The session store was damaged. It is kept as {aside}, and a new one was begun"
    them = "session" if saved == 1 else f"{saved} sessions"
    said += f" with the {them} that could be read." if saved else "."
    return replace(opened, problems=(said, *opened.problems))


def _salvage(aside: str, connection: Connection) -> int:
    with suppress(sqlite3.Error, UnicodeError), closing(_read_only(aside, PATIENCE)) as source:
        # Tables can be read although the schema has parts that make no sense.
        source.execute("PRAGMA writable_schema = ON")
        return salvage(source, connection)
    return 0


def _sound(place: _Place) -> Opened:
    path, migrations = place.path, place.migrations
    connection = _connected(path, place.patience)
    try:
        version, problems = _looked_at(connection, place)
        if version > max(migrations):
            connection.close()
            return _from_the_future(path, place.patience)
        if version < max(migrations):
            _back_up(connection, path, version)
            migrate(connection, migrations)
        ledger.forget_old(connection)
        remedies.forget_old(connection)
        return Opened(connection, path, problems=problems, files=file_ids(path))
    except sqlite3.Error as error:
        connection.close()
        if is_damage(error):
            raise Damaged from None
        raise
    except Damaged:
        connection.close()
        raise


def _looked_at(connection: Connection, place: _Place) -> tuple[int, tuple[str, ...]]:
    """The version of its schema, and problems to be told. Raises Damaged."""
    try:
        version = _version(connection)
        if not 0 <= version < _IMPLAUSIBLE:
            raise Damaged
        if version > max(place.migrations):
            return version, ()
        problems = _configure(connection, place)
        _check(connection)
        _expect_schema(connection, {step: sql for step, sql in place.migrations.items() if step <= version})
    except UnicodeDecodeError:
        # What SQLite wanted to say held a piece of the damage.
        raise Damaged from None
    except sqlite3.Error as error:
        # A schema that is none any more, or a format of the file that there never was.
        if _code(error) == sqlite3.SQLITE_ERROR:
            raise Damaged from None
        raise
    return version, problems


def _from_the_future(path: str, patience: float) -> Opened:
    said = (
        f"The session store {path} was written by a newer thinklsp. It is only read, and new sessions are kept in "
        "memory. Use the newer version, or set THINKLSP_STATE_DIR to another folder."
    )
    connection = _read_only(path, patience)
    with suppress(sqlite3.Error):
        # Only now it has its log.
        _version(connection)
    return Opened(connection, path, False, (said,), files=file_ids(path))


def _read_only(path: str, patience: float) -> Connection:
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return _connected(f"file:{quoted}?mode=ro", patience, uri=True)


def _connected(path: str, patience: float, *, uri: bool = False) -> Connection:
    # All use is in the store's one thread; a store in memory is used where it is.
    connection = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False, uri=uri)
    connection.text_factory = _lenient
    return connection


def _lenient(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _version(connection: Connection) -> int:
    [(version,)] = connection.execute("PRAGMA user_version")
    return int(version)


def _configure(connection: Connection, place: _Place) -> tuple[str, ...]:
    path = place.path
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    problems = []
    if place.network is None:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
    else:
        # The write-ahead log needs memory that all processes share.
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        problems.append(
            f"The session store {path} is on a network file system ({place.network}), where a write can be lost "
            "when the network fails. Set THINKLSP_STATE_DIR to a folder on a disk of this machine."
        )
    if (size := os.stat(path).st_size) > LARGE:
        problems.append(
            f"The session store {path} has grown to {size >> 20:,} MiB. Delete what is not needed any more, such as "
            "all that was last used 90 days ago: thinklsp sessions delete --all --older-than 90d"
        )
    return tuple(problems)


def _check(connection: Connection) -> None:
    """Looks for damage as long as a start may take. What it does not reach in time is found when it is read."""
    until = time.monotonic() + _CHECK_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > until, 10_000)
    try:
        [(found,)] = connection.execute("PRAGMA integrity_check(1)").fetchall()
    except sqlite3.OperationalError as error:
        if _code(error) != sqlite3.SQLITE_INTERRUPT:
            raise
        found = "ok"
    finally:
        connection.set_progress_handler(None, 0)
    if found != "ok":
        raise Damaged


def is_sound(connection: Connection) -> bool:
    """The whole check, for when something has gone wrong already."""
    try:
        return connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
    except sqlite3.Error:
        return False


def _expect_schema(connection: Connection, migrations: Mapping[int, str]) -> None:
    """A flipped byte can change the name of a table or column, or the version, which no check of SQLite's finds."""
    query = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite%'"
    with closing(_connected(":memory:", 0)) as model:
        migrate(model, migrations)
        if set(model.execute(query)) != set(connection.execute(query)):
            raise Damaged


def _back_up(connection: Connection, path: str, version: int) -> None:
    if version == 0:
        return
    with closing(sqlite3.connect(private_copy(f"{path}.copying"))) as copy:
        connection.backup(copy)
    os.replace(f"{path}.copying", backup_path(path, version + 1))


def migrate(connection: Connection, migrations: Mapping[int, str]) -> None:
    """Each step is one transaction: the file has the old schema or the new one, whenever the process dies."""
    for version in sorted(migrations):
        with transaction(connection):
            # Another process may have been faster.
            if _version(connection) < version:
                for statement in statements(migrations[version]):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version}")


def erase_traces(connection: Connection) -> bool:
    """After a deletion: no byte of it stays in the database or its log. False while another process reads the log."""
    # Without room for a second copy deleted rows are zeroed all the same, wherever SQLite knows of them.
    with suppress(sqlite3.OperationalError):
        connection.execute("VACUUM")
    for _ in range(20):
        [(busy, *_)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if not busy:
            return True
        time.sleep(0.05)
    return False
