"""Stores that are damaged, locked, from the future, or not ours."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from random import Random

import pytest

from tests.support.epilogue import clock, faulty
from tests.support.outside import ARGV, Outside, said, server_by, start
from tests.support.signing_server import Redacted, Text, Thinking, answer
from tests.support.sizes import SEED

ONE = answer(Thinking(), Redacted(), Text("One."))
TWO = answer(Thinking(), Text("Two."))


def store(outside: Outside) -> Path:
    return outside.home / "state" / "sessions" / "sessions.db"


async def filled(place: Path) -> None:
    outside = await start(place, ONE)
    try:
        await outside.turn("thinklsp.chat", {"prompt": "One?"})
        await outside.finish()
    finally:
        await outside.stop()


async def test_a_signature_that_was_altered_on_disk(tmp_path: Path) -> None:
    async with faulty(tmp_path, ONE) as outside:
        await outside.turn("thinklsp.chat", {"prompt": "One?"})
        await outside.kill()
        with closing(sqlite3.connect(store(outside))) as connection, connection:
            rows = connection.execute("SELECT rowid, content FROM opaque").fetchall()
            for row, content in rows:
                flipped = bytearray(content)
                flipped[len(flipped) // 2] ^= 1
                connection.execute("UPDATE opaque SET content = ? WHERE rowid = ?", (bytes(flipped), row))
        assert rows
        await outside.restart(kill=True)
        # The judge requires the thinking that the server leaves out.
        outside.provider.conversations.check = lambda body: None
        outside.provider.say(TWO)
        result = await outside.turn("thinklsp.chat", {"prompt": "Two?", "sessionId": "last"})
        assert result["text"] == "Two."
        sent = said(outside.provider.requests[-1].body)
        assert "One." in sent
        assert "signature" not in sent
        outside.told()


def flip(path: Path) -> None:
    data, chance = bytearray(path.read_bytes()), Random(SEED)
    for _ in range(100):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def rubbish(path: Path) -> None:
    path.write_bytes(b"no database at all\n" * 500)


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 + 7)


def future(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 9999")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)
    (path / "kept").write_text("mine")


def a_link(path: Path) -> None:
    other = path.parent.parent.parent.parent / "elsewhere.db"
    path.rename(other)
    path.symlink_to(other)


DAMAGES = [flip, rubbish, truncated, future, a_folder, a_link]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_stores_that_cannot_be_used(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """F-37, F-39, F-40"""
    async with faulty(tmp_path, ONE) as outside:
        await outside.turn("thinklsp.chat", {"prompt": "One?"})
        assert await outside.client.close() == 0
        path = store(outside)
        damage(path)
        before = (tmp_path / "elsewhere.db").read_bytes() if damage is a_link else b""
        await outside.reopen()
        outside.provider.say(TWO, TWO)
        result = await outside.turn("thinklsp.chat", {"prompt": "Two?"})
        again = await outside.turn("thinklsp.chat", {"prompt": "Three?", "sessionId": result["sessionId"]})
        assert (result["text"], again["text"]) == ("Two.", "Two.")
        assert len(outside.told()) <= 1
        if damage is a_link:
            assert (tmp_path / "elsewhere.db").read_bytes() == before
        if damage is a_folder:
            assert list(path.parent.parent.rglob("kept"))
            shutil.rmtree(path, ignore_errors=True)
        if damage is future:
            with closing(sqlite3.connect(path)) as connection:
                assert connection.execute("PRAGMA user_version").fetchone() == (9999,)
        if damage is a_link:
            path.unlink()


HOLDING = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


async def test_a_store_that_another_program_has_locked(tmp_path: Path) -> None:
    async with faulty(tmp_path, ONE, TWO, TWO) as outside:
        session = (await outside.turn("thinklsp.chat", {"prompt": "One?"}))["sessionId"]
        pipe = asyncio.subprocess.PIPE
        argv = [sys.executable, "-c", HOLDING, str(store(outside))]
        holder = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"held\n"
        result = await outside.turn("thinklsp.chat", {"prompt": "Two?", "sessionId": session})
        assert result["text"] == "Two."
        assert len(outside.told()) <= 1
        await holder.communicate(b"")
        await outside.turn("thinklsp.chat", {"prompt": "Three?", "sessionId": session})
        await outside.restart()
        outside.told()
        [entry] = await outside.client.command("thinklsp.sessions", {"op": "list"})
        assert (entry["sessionId"], entry["steps"]) == (session, 3)


async def test_a_disk_that_takes_nothing_at_all(tmp_path: Path) -> None:
    full = ["bash", "-c", 'ulimit -f 0; exec "$0" -m thinklsp', sys.executable]
    async with faulty(tmp_path, ONE, TWO, connect=server_by(full)) as outside:
        session = (await outside.turn("thinklsp.chat", {"prompt": "One?"}))["sessionId"]
        # A reason to log.
        outside.client.notify("textDocument/didChange", {"textDocument": 7})
        result = await outside.turn("thinklsp.chat", {"prompt": "Two?", "sessionId": session})
        assert result["text"] == "Two."
        assert len(outside.told()) == 1
        assert b"Traceback" not in outside.client.stderr, bytes(outside.client.stderr).decode()[-2000:]


# A small file system for everything that the server writes.
SMALL = """
mount -t tmpfs -o size=2M,mode=700 none "$HOME" && mkdir -m 700 "$HOME/state" "$HOME/config" "$HOME/tmp" && exec "$@"
"""


@cache
def mounting() -> list[str] | str:
    """Return the command that starts a program with the right to mount, or the reason why there is none."""
    why = ""
    for how in (["-m"], ["-Urm"]):
        argv = [shutil.which("unshare") or "unshare", *how]
        try:
            tried = subprocess.run(
                [*argv, "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, text=True, check=False
            )
        except OSError as error:
            return str(error)
        if tried.returncode == 0:
            return argv
        why = tried.stderr
    return why


@pytest.mark.kernel
async def test_a_disk_that_runs_full(tmp_path: Path) -> None:
    if isinstance(argv := mounting(), str):
        pytest.skip(f"NO DISK WAS FILLED: {argv}")
    connect = server_by([*argv, "sh", "-c", SMALL, "sh", *ARGV])
    # The store retries after half a minute of the server's clock.
    async with faulty(tmp_path, ONE, connect=connect, env=clock(100)) as outside:
        client, provider = outside.pair
        disk = Path(f"/proc/{client.process.pid}/root{outside.home}")
        session = (await outside.turn("thinklsp.chat", {"prompt": "One?"}))["sessionId"]
        fill(disk / "filling")
        for number in range(3):
            client.notify("textDocument/didChange", {"textDocument": 7})
            provider.say(answer(Thinking(), Text("y" * 5_000)))
            result = await outside.turn("thinklsp.chat", {"prompt": f"{number}?", "sessionId": session})
            assert result["text"] == "y" * 5_000
        [told] = outside.told()
        assert "the disk is full" in told
        os.unlink(disk / "filling")
        steps = 4
        while not (told_again := outside.told()):
            provider.say(TWO)
            await outside.turn("thinklsp.chat", {"prompt": "And now?", "sessionId": session})
            steps += 1
        assert told_again == ["Sessions are saved to disk again, including those that were kept in memory."]
        shutil.copytree(disk / "state" / "sessions", tmp_path / "saved")
        with closing(sqlite3.connect(tmp_path / "saved" / "sessions.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("SELECT id, steps FROM session").fetchall() == [(session, steps)]


def fill(path: Path) -> None:
    piece = b"x" * 65_536
    with path.open("wb", buffering=0) as file:
        while piece:
            try:
                file.write(piece)
            except OSError:
                piece = piece[: len(piece) // 2]
