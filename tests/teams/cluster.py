"""A PostgreSQL primary with a standby, and PgBouncer in transaction mode in front of the primary."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.support.postgres_server import PostgresServer, find_free_port, find_user, report_missing
from thinklsp.sessions.postgres.maintenance import migrate


def find_bouncer() -> str:
    """Return the path of PgBouncer."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    return report_missing("pgbouncer") if program is None else program


_BOUNCER = """[databases]
thinklsp = host=127.0.0.1 port={port} dbname=thinklsp user=thinklsp
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 400
default_pool_size = 40
server_check_delay = 0
server_login_retry = 0
query_wait_timeout = 5
server_connect_timeout = 2
ignore_startup_parameters = extra_float_digits
logfile = {folder}/bouncer.log
pidfile = {folder}/bouncer.pid
admin_users = owner
"""


class Cluster:
    """`url`: for thinklsp's role, through PgBouncer. `is_synchronous`: whether a commit waits for the standby."""

    def __init__(self, folder: Path, user: str | None, *, is_synchronous: bool) -> None:
        self.folder, self.user = folder, user
        self._is_synchronous = is_synchronous
        self._names = iter(f"node{number}" for number in range(100))
        self.primary = self._create_node()
        self.standby: PostgresServer | None = None
        self.bouncer_port = find_free_port()
        self._bouncer: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql://thinklsp@127.0.0.1:{self.bouncer_port}/thinklsp"

    def _create_node(self) -> PostgresServer:
        folder = self.folder / next(self._names)
        folder.mkdir()
        if self.user is not None:
            shutil.chown(folder, self.user)
        return PostgresServer(folder, find_free_port(), self.user)

    def start(self) -> None:
        self.primary.create()
        self.primary.start()
        self.primary.execute("CREATE DATABASE thinklsp", url=self.primary.owner_url.replace("/thinklsp", "/postgres"))
        self.primary.execute("CREATE ROLE thinklsp LOGIN")
        migrate(self.primary.owner_url, "thinklsp")
        self.add_standby()
        self._point_bouncer()

    def add_standby(self) -> None:
        """Copy the primary to a new standby, and wait until it follows."""
        standby = self._create_node()
        standby.run_program(
            "pg_basebackup", "-D", str(standby.data), "-h", "127.0.0.1", "-p", str(self.primary.port), "-U", "owner",
            "-R", "-X", "stream", "-c", "fast", "--no-sync",
        )  # fmt: skip
        standby.start()
        self.standby = standby
        deadline = time.monotonic() + 60
        while not self.primary.execute("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"):
            assert time.monotonic() < deadline, "the standby does not follow"
        names = "*" if self._is_synchronous else ""
        self.primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self.primary.execute("SELECT pg_reload_conf()")

    def fail_over(self) -> None:
        """Kill the primary, promote the standby, and give it a new standby."""
        assert self.standby is not None
        self.primary.kill()
        shutil.rmtree(self.primary.folder, ignore_errors=True)
        self.primary, self.standby = self.standby, None
        self.primary.run_program("pg_ctl", "-s", "-w", "-D", str(self.primary.data), "promote")
        self._point_bouncer()
        self.add_standby()

    def _point_bouncer(self) -> None:
        config = self.folder / "bouncer.ini"
        config.write_text(
            _BOUNCER.format(port=self.primary.port, listen=self.bouncer_port, folder=self.folder), "utf-8"
        )
        config.chmod(0o644)
        if self._bouncer is None:
            with (self.folder / "bouncer.out").open("ab") as log:
                self._bouncer = subprocess.Popen(
                    [find_bouncer(), str(config)], user=self.user, stdout=log, stderr=log, cwd=self.folder
                )
            deadline = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", self.bouncer_port)).close()
                    return
                except OSError:
                    assert time.monotonic() < deadline, (self.folder / "bouncer.out").read_text()
        admin = f"postgresql://owner@127.0.0.1:{self.bouncer_port}/pgbouncer"
        with psycopg.connect(admin, autocommit=True, prepare_threshold=None) as connection:
            connection.pgconn.exec_(b"RELOAD")
            connection.pgconn.exec_(b"RECONNECT")

    def stop(self) -> None:
        if self._bouncer is not None:
            self._bouncer.kill()
            self._bouncer.wait(60)
        for server in filter(None, (self.primary, self.standby)):
            server.kill()


@contextmanager
def run_cluster(*, is_synchronous: bool = True) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="thinklsp-cluster-"))
    user = find_user()
    if user is not None:
        shutil.chown(folder, user)
    cluster = Cluster(folder, user, is_synchronous=is_synchronous)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
