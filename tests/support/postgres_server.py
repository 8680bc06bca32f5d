"""A PostgreSQL server on loopback in a folder of its own, with the roles of an owner and of thinklsp."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Literal, NoReturn

import psycopg
import pytest

from tests.support.sizes import STEP
from thinklsp.core.server_context import ClientIdentity
from thinklsp.sessions.postgres import PostgresStore
from thinklsp.sessions.postgres.maintenance import migrate

_OWNER, _ROLE = "owner", "thinklsp"
_SETTINGS = "listen_addresses=127.0.0.1", "max_connections=200", "lc_messages=C"


def list_program_folders() -> list[Path]:
    """Return the folders of PostgreSQL's programs, the newest version last."""
    return sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda at: int(at.parent.name))


def report_missing(package: str) -> NoReturn:
    """Skip the test in a quick run, and fail it in the others, which must not pass without a database."""
    (pytest.skip if STEP == "quick" else pytest.fail)(f"{package} is missing (on Debian: apt-get install {package})")


@cache
def find_programs() -> Path:
    """Return the folder of PostgreSQL's programs."""
    folders = list_program_folders()
    return folders[-1] if folders else report_missing("postgresql")


class PostgresServer:
    """A running server. `url` is the address for thinklsp's role, and `owner_url` the one for the owner."""

    def __init__(self, folder: Path, port: int, user: str | None, *, is_durable: bool = False) -> None:
        self.folder, self.port, self.user, self._is_durable = folder, port, user, is_durable
        self.owner_url = f"postgresql://{_OWNER}@127.0.0.1:{port}/thinklsp"
        self.url = f"postgresql://{_ROLE}@127.0.0.1:{port}/thinklsp"

    def run_program(self, name: str, *arguments: str) -> None:
        subprocess.run(
            [find_programs() / name, *arguments], user=self.user, check=True, stdout=subprocess.DEVNULL, cwd=self.folder
        )

    def create(self) -> None:
        self.run_program(
            "initdb", "-D", str(self.data), "-U", _OWNER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"
        )

    def start(self) -> None:
        options = " ".join(
            (
                f"-p {self.port}",
                f"-k {self.folder}",
                f"-c fsync={'on' if self._is_durable else 'off'}",
                *(f"-c {setting}" for setting in _SETTINGS),
            )
        )
        self._control("start", "-o", options, "-l", str(self.folder / "log"))

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "immediate") -> None:
        self._control("stop", "-m", mode)

    def kill(self) -> None:
        """Kill all processes of the server at once, as a power failure would."""
        first = int((self.data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{first}/task/{first}/children").read_text()
        for process in (first, *map(int, children.split())):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def _control(self, *arguments: str) -> None:
        self.run_program("pg_ctl", "-s", "-w", "-D", str(self.data), *arguments)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def execute(self, statement: str, *values: object, url: str = "") -> list[tuple[object, ...]]:
        """Run a statement, as the owner if no other address is given, and return its rows."""
        with psycopg.connect(url or self.owner_url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def create_identity(self) -> ClientIdentity:
        return ClientIdentity(f"tenant-{secrets.token_hex(4)}", "somebody")

    def create_store(
        self,
        identity: ClientIdentity,
        url: Callable[[], str] | None = None,
        load_keys: Callable[[], str] | None = None,
    ) -> PostgresStore:
        return PostgresStore(url or (lambda: self.url), identity, load_keys=load_keys)


@cache
def create_test_key() -> str:
    """Return a key of a tenant, the same one at each call."""
    return secrets.token_hex(32)


def find_free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


def find_user() -> str | None:
    """Return the user for the server, which refuses to run as root."""
    if os.getuid():
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


@contextmanager
def run_postgres(*, is_durable: bool = False) -> Iterator[PostgresServer]:
    """Start a server with an empty database. Without `is_durable`, a commit does not wait for the disk."""
    find_programs()
    user = find_user()
    folder = Path(tempfile.mkdtemp(prefix="thinklsp-pg-"))
    try:
        if user is not None:
            shutil.chown(folder, user)
        server = PostgresServer(folder, find_free_port(), user, is_durable=is_durable)
        server.create()
        server.start()
        try:
            server.execute("CREATE DATABASE thinklsp", url=server.owner_url.replace("/thinklsp", "/postgres"))
            server.execute(f"CREATE ROLE {_ROLE} LOGIN")
            migrate(server.owner_url, _ROLE)
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
