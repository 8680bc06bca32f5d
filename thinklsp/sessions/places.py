"""Where rows are kept: in the file, or in memory while the file cannot be written. Knows no sessions, only their ids.

When a write fails because of the disk, the session is copied to a database in memory and goes on there; every half
minute the file is tried again, and whatever had to wait is written then. A file that somebody has taken away can still
be read: the sessions that this process has written are brought from there to a new one. Lives in the store's thread.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from sqlite3 import Connection
from typing import Literal, Protocol, TypeVar

from thinklsp.core.errors import SessionError
from thinklsp.sessions import spending
from thinklsp.sessions.copying import copy_session
from thinklsp.sessions.database import Opened, erase_traces, in_memory, is_damage, is_sound, reason
from thinklsp.sessions.folder import FileIds, file_ids, remove_backups, remove_left_behind
from thinklsp.sessions.rows import delete_session, read_revision
from thinklsp.sessions.transaction import transaction

_T = TypeVar("_T")
FOR_GOOD = float("inf")


class Sessions(Protocol):
    """What the process still knows of sessions when a file lets it down."""

    def in_use(self) -> Iterable[str]: ...

    def written(self) -> Iterable[str]:
        """Those that this process has ever written."""
        ...

    def rescue(self, connection: Connection, session_id: str) -> None:
        """Writes what is known of the session into a place that has nothing of it, or less."""
        ...


class Places:
    """`file` None: everything is in memory. `moved` are the sessions whose rows in the file are out of date."""

    def __init__(self, opener: Callable[[FileIds], Opened] | None, retry_after: float, sessions: Sessions) -> None:
        self._opener = opener
        self._retry_after = retry_after
        self._sessions = sessions
        # When the file is tried again; `FOR_GOOD` while all is well, and where no try could help.
        self._retry_at = FOR_GOOD
        self._writable = False
        self._spare: Connection | None = None
        self.file: Connection | None = None
        self.path = ""
        self._files: FileIds = ()
        self.moved: set[str] = set()
        self.problems: list[str] = []
        self._open()

    @property
    def spare(self) -> Connection:
        if self._spare is None:
            self._spare = in_memory()
        return self._spare

    def close(self) -> None:
        """What waits in memory gets a last chance."""
        if self.moved and self._retry_at != FOR_GOOD:
            self._retry_at = 0.0
            if self.file is not None:
                self.file.execute("PRAGMA busy_timeout = 500")
            self.catch_up()
        for connection in self.all():
            with suppress(sqlite3.Error):
                connection.close()
        self.file = self._spare = None

    @property
    def kind(self) -> Literal["file", "read-only", "memory"]:
        if self.file is None:
            return "memory"
        return "file" if self._writable else "read-only"

    def of(self, session_id: str) -> Connection:
        return self.spare if self.file is None or session_id in self.moved else self.file

    def all(self) -> tuple[Connection, ...]:
        return tuple(connection for connection in (self.file, self._spare) if connection is not None)

    def everywhere(self, action: Callable[[Connection], Iterable[_T]]) -> list[tuple[_T, bool]]:
        """What every place tells; True: by the file. A file that cannot be read tells nothing."""
        found: list[tuple[_T, bool]] = []
        for place in self.all():
            try:
                with transaction(place, "DEFERRED"):
                    found += [(value, place is self.file) for value in action(place)]
            except sqlite3.Error as error:
                if place is not self.file or not (self._notice(error) or not self._writable):
                    raise
        return found

    def read(self, session_id: str, action: Callable[[Connection], _T]) -> _T:
        """Raises SessionError when the disk does not let it be read."""
        while True:
            place = self.of(session_id)
            try:
                with transaction(place, "DEFERRED"):
                    return action(place)
            except sqlite3.Error as error:
                readable = self._writable or place is not self.file
                if not self._notice(error) and readable:
                    raise
                # Another place: the file was set aside, and the session is wherever it was brought to.
                if place is self.of(session_id):
                    why = reason(error) or "its store belongs to a newer version"
                    raise SessionError(f"The session cannot be read: {why}.") from None

    def write(self, session_id: str, action: Callable[[Connection], _T]) -> _T:
        """Runs `action` in one transaction where the session lives; in memory if the file cannot take it."""
        self.catch_up()
        if self._in_order:
            try:
                with transaction(self._kept):
                    return action(self._kept)
            except sqlite3.Error as error:
                if not self._notice(error):
                    raise
        if self._opener is not None and session_id not in self.moved:
            self._move(session_id)
        with transaction(self.spare):
            return action(self.spare)

    def erase(self, session_id: str) -> None:
        """Deletes it; its traces are erased by `erase_traces`. Raises SessionError when that cannot be done now."""
        if self._retry_at != FOR_GOOD:
            self._retry_at = 0.0
        self.catch_up()
        if self.file is not None and not self._in_order:
            raise SessionError("The session cannot be deleted while its store cannot be written.")
        place = self.of(session_id)
        with _deleting(), transaction(place):
            delete_session(place, session_id)

    def erase_traces(self) -> None:
        """No byte of what was deleted stays. Raises SessionError when that cannot be done now."""
        if self.file is None:
            return
        with _deleting():
            remove_backups(self.path)
            if not erase_traces(self.file):
                self.say("Traces of a deleted session stay in the log of the store until the others end.")

    @property
    def _in_order(self) -> bool:
        return self.file is not None and self._writable and self._retry_at == FOR_GOOD

    @property
    def _kept(self) -> Connection:
        return self.spare if self.file is None else self.file

    def catch_up(self) -> None:
        """Tries the file again when it is time, and writes what had to wait."""
        if time.monotonic() < self._retry_at:
            return
        self._retry_at = time.monotonic() + self._retry_after
        if self.file is None:
            self._open()
        if self.file is None or not self._writable:
            return
        if self._brought_in(self.file):
            self.say("Sessions are saved to disk again, those too that had to wait.")

    def _brought_in(self, file: Connection) -> bool:
        """Writes what is in memory to the file; whether there was anything and all is well again."""
        try:
            with transaction(file):
                for session_id in self.moved:
                    # Another process may have been faster, and have gone on with it.
                    if (read_revision(file, session_id) or 0) <= (read_revision(self.spare, session_id) or 0):
                        copy_session(self.spare, file, session_id)
                if self._spare is not None:
                    spending.move(self._spare, file)
        except sqlite3.Error as error:
            self._notice(error)
            return False
        self._retry_at = FOR_GOOD
        self.moved.clear()
        if self._spare is None:
            return False
        self._spare.close()
        self._spare = None
        return True

    def look(self) -> bool:
        """Whether files were taken away or replaced since they were opened; then all that this process has written is
        in new ones, or waits for them."""
        if self.file is None or self._files == self._files_now():
            return False
        path, lost, files = self.path, self.file, self._files
        only_log = self._files_now()[:1] == files[:1]
        kept = self._brought_away(lost) if self._writable else 0
        with suppress(sqlite3.Error):
            # A database that stands elsewhere now is left whole.
            lost.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with suppress(sqlite3.Error):
            lost.close()
        if not only_log:
            with suppress(OSError):
                remove_left_behind(path, files)
        self.file = None
        self.say(_taken_away(path, kept, only_log=only_log))
        self._open()
        if self.kind == "file":
            self._brought_in(self._kept)
        return True

    def _files_now(self) -> FileIds:
        try:
            return file_ids(self.path)
        except OSError:
            # A folder that may not be searched now: the files may well be there.
            return self._files

    def _brought_away(self, lost: Connection) -> int:
        """Copies to memory what this process has written to the file; how many sessions."""
        count = 0
        for session_id in self._sessions.written():
            if session_id in self.moved:
                continue
            try:
                with transaction(self.spare):
                    copy_session(lost, self.spare, session_id)
                    spending.copy(lost, self.spare, session_id)
                if read_revision(self.spare, session_id) is None:
                    # It was deleted.
                    continue
                self.moved.add(session_id)
            except sqlite3.Error:
                self._move(session_id, distrust=True)
            count += 1
        return count

    def say(self, sentence: str) -> None:
        if sentence not in self.problems:
            self.problems.append(sentence)

    def _open(self, damaged: FileIds = ()) -> None:
        if self._opener is None:
            return
        opened = self._opener(damaged)
        self.file, self.path, self._writable = opened.connection, opened.path, opened.writable
        self._files = opened.files
        self._retry_at = time.monotonic() + self._retry_after if opened.passing else FOR_GOOD
        for problem in opened.problems:
            self.say(problem)

    def _notice(self, error: sqlite3.Error) -> bool:
        """Whether it is the disk's fault: then the file is left alone for a while, or a new one begun."""
        if self.file is None:
            return False
        if is_damage(error) or (reason(error) is None and not is_sound(self.file)):
            self._begin_anew(self.file)
            return True
        if (why := reason(error)) is None:
            return False
        self._retry_at = time.monotonic() + self._retry_after
        self.say(f"The session store {self.path} cannot be written: {why}. Sessions are kept in memory until it can.")
        return True

    def _begin_anew(self, damaged: Connection) -> None:
        """Sets the file aside. Sessions in use are brought to the new one, at the next write."""
        with suppress(sqlite3.Error):
            damaged.close()
        self.file = None
        self._open(self._files)
        for session_id in self._sessions.in_use():
            if session_id not in self.moved:
                self._move(session_id, distrust=True)
        self._retry_at = 0.0

    def _move(self, session_id: str, *, distrust: bool = False) -> None:
        """Brings a session to memory: its rows where they can be read and trusted, else what the process knows."""
        with transaction(self.spare):
            if self.file is not None:
                with suppress(sqlite3.Error):
                    copy_session(self.file, self.spare, session_id)
            if distrust or read_revision(self.spare, session_id) is None:
                self._sessions.rescue(self.spare, session_id)
        self.moved.add(session_id)


@contextmanager
def _deleting() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        why = (reason(error) if isinstance(error, sqlite3.Error) else error.strerror) or "its store is damaged"
        raise SessionError(f"The session could not be deleted: {why}.") from None


def _taken_away(path: str, kept: int, *, only_log: bool) -> str:
    if only_log:
        return f"Files beside the session store {path} were removed while it was in use. It was opened again."
    said = f"The session store {path} was removed or replaced while it was in use. "
    if not kept:
        return f"{said}From now on sessions are kept in the one that is there now."
    them = "The session" if kept == 1 else f"The {kept} sessions"
    stays = "stays" if kept == 1 else "stay"
    return f"{said}{them} that this program has worked on {stays}; what else was in it does not."
