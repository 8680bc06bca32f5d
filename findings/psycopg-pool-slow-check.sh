#!/usr/bin/env bash
# FACT: `ConnectionPool.connection(timeout=1)` of psycopg_pool waits without a limit for its `check`. With the package's
#   own `check_connection` and a server that answers after 4 seconds, it returns a connection after 4 seconds.
# WITH: psycopg 3.3.9 (psycopg-binary 3.3.9), psycopg-pool 3.3.3 (PyPI), Python 3.11
# GUESS: PoolTimeout after one second, because "timeout" is the time to wait for a usable connection.
# SEEN 2026-11-28: no error; 4 seconds. `connect_timeout` and `reconnect_timeout` do not limit the check, either.
# MATTERS: stores that keep sessions behind PgBouncer: while the database is away, PgBouncer keeps its clients and holds
#   the statement of the check for `query_wait_timeout`, 120 seconds by default. A turn whose pool waits for "five
#   seconds" stands still for two minutes. Set `query_wait_timeout`, or let the check have a time limit of its own.
set -euo pipefail
room=$(mktemp -d); trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install -q --disable-pip-version-check 'psycopg[binary]==3.3.9' 'psycopg-pool==3.3.3'
seen=$("$room/venv/bin/python" - <<'PY'
import socketserver, struct, threading, time
from psycopg_pool import ConnectionPool, PoolTimeout

PAUSE = 0.0
READY = b"Z" + struct.pack("!i", 5) + b"I"


class Server(socketserver.StreamRequestHandler):
    """A PostgreSQL server that trusts everybody and answers each statement with an empty result."""

    def handle(self):
        self.rfile.read(struct.unpack("!i", self.rfile.read(4))[0] - 4)
        self.wfile.write(b"R" + struct.pack("!ii", 8, 0) + READY)
        while kind := self.rfile.read(1):
            self.rfile.read(struct.unpack("!i", self.rfile.read(4))[0] - 4)
            if kind == b"Q":
                time.sleep(PAUSE)
                self.wfile.write(b"I" + struct.pack("!i", 4) + READY)


server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Server)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"postgresql://u@127.0.0.1:{server.server_address[1]}/d?sslmode=disable&gssencmode=disable&connect_timeout=2"
for check in (None, ConnectionPool.check_connection):
    pool = ConnectionPool(
        address, kwargs={"autocommit": True}, min_size=1, reconnect_timeout=1, check=check, open=True
    )
    pool.wait()
    PAUSE = 4.0
    began = time.monotonic()
    try:
        with pool.connection(timeout=1):
            outcome = "a connection"
    except PoolTimeout:
        outcome = "PoolTimeout"
    print("with a check:" if check else "without:", outcome, "after", round(time.monotonic() - began), "seconds")
    PAUSE = 0.0
    pool.close()
PY
)
printf '%s\n' "$seen"
expected="without: a connection after 0 seconds
with a check: a connection after 4 seconds"
[ "$seen" = "$expected" ] || { echo 'the behaviour has changed'; exit 1; }
echo 'as stated'
