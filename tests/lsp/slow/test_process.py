"""The process: how it ends, what it logs, and that nothing else writes to its output."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.test_start import (
    INITIALIZE,
    WITNESS,
    Process,
    frame,
    run_program,
    run_server,
    write_config,
)
from tests.support.epilogue import clock
from tests.support.outside import ROOT
from tests.support.watching import HANG_SECONDS, seen
from thinklsp.sessions.store_folder import prepare_database, prepare_folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Process]:
    yield from run_server(["-m", "thinklsp"], tmp_path)


LEVEL_WITNESS = WITNESS.replace(
    'real(2, ("loaded: " + " ".join(sorted(sys.modules)) + "\\n").encode())',
    "real(2, f\"level: {__import__('logging').getLogger('thinklsp').level}\\n\".encode())",
)


def test_the_command_line_chooses_the_level_of_the_log(tmp_path: Path) -> None:
    """Over the environment and the user's file."""
    write_config(tmp_path, '[log]\nlevel = "info"\n')
    argv = run_program(LEVEL_WITNESS, "--stdio", "--log-level", "debug")
    for server in run_server(argv, tmp_path, THINKLSP_LOG_LEVEL="error"):
        server.initialize()
        assert server.ask(1, "workspace/executeCommand", {"command": "thinklsp.effort"})["result"]["value"] == "auto"
        server.open()
        assert server.list_actions()
        server.tell("exit")
        assert "level: 10\n" in server.end()[1]


@pytest.mark.timing
def test_editor_death_is_noticed_with_open_input(server: Process) -> None:
    argv = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as editor:
        server.initialize(processId=editor.pid)
        server.ask_for_unknown()
        editor.kill()
        editor.wait()
        at = time.monotonic()
        assert server.process.wait(HANG_SECONDS) == 1
        assert time.monotonic() - at < 6


@pytest.mark.parametrize(
    ("process_id", "code"),
    [(None, 0), (os.getpid(), 0), (0, 0), (2**40, 1), (-(2**30), 1)],
    ids=["not told", "alive", "our own group", "too large", "no group"],
)
def test_an_editor_that_lives_is_not_taken_for_dead(tmp_path: Path, process_id: int | None, code: int) -> None:
    """For a minute of the server's own time, which is twenty looks, from its first answer on."""
    for server in run_server(["-m", "thinklsp"], tmp_path, **clock(60)):
        server.initialize(processId=process_id)
        if code == 0:
            server.ask_for_unknown()
            until = time.monotonic() + 1
            while time.monotonic() < until:
                server.ask_for_unknown()
            assert server.ask(2, "shutdown")["result"] is None
            server.tell("exit")
        # The input stays open.
        assert server.process.wait(HANG_SECONDS) == code


# What has gone wrong with the whole server -> what its log says.
FAILED = {
    "ValueError('secret words')": "the server has failed\nTraceback without messages, root cause first:\n",
    "RuntimeError('secret words')": "the server has failed\n",
    'RuntimeError("can\'t start new thread")': "the server cannot run: the system does not let thinklsp "
    "start another thread.",
}
FAILING = """
from thinklsp.cli.logs import log_to_stderr
from thinklsp.jsonrpc.stdio import run_and_exit
async def serve(): raise {}
log_to_stderr()
run_and_exit(serve())
"""


@pytest.mark.parametrize("error", FAILED)
def test_whatever_goes_wrong_the_process_ends(tmp_path: Path, error: str) -> None:
    for server in run_server(["-c", FAILING.format(error)], tmp_path):
        code, errors = server.end()
        assert code == 1
        assert FAILED[error] in errors
        assert "secret words" not in errors


def test_a_hang_up_that_was_switched_off_stays_so(tmp_path: Path) -> None:
    ignoring = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    for server in run_server(run_program(ignoring), tmp_path):
        server.initialize()
        for _ in range(2):
            server.process.send_signal(signal.SIGHUP)
            server.ask_for_unknown()
        assert server.leave() == ""


HANGING = """
import sys, threading
def get_password(*_):
    print("asked", file=sys.stderr, flush=True)
    threading.Event().wait()
"""


def test_work_that_does_not_end_is_left_behind(tmp_path: Path) -> None:
    """A keyring that waits for its password keeps a turn from starting, and nobody from leaving."""
    (tmp_path / "keyring.py").write_text(HANGING)
    write_config(tmp_path, 'provider = "anthropic"\n[providers.anthropic]\napi_key_keyring = "thinklsp/me"\n')
    for server in run_server(["-m", "thinklsp"], tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}"):
        server.initialize(rootUri=tmp_path.as_uri())
        arguments = [{"prompt": "Hello."}]
        server.tell("workspace/executeCommand", {"command": "thinklsp.chat", "arguments": arguments}, id=2)
        assert server.process.stderr is not None
        assert server.process.stderr.readline() == b"asked\n"
        assert server.leave() == ""


def _has_open(server: Process, path: str) -> bool:
    return path in map(os.path.realpath, Path(f"/proc/{server.process.pid}/fd").iterdir())


async def test_work_that_does_not_end_in_time_is_abandoned(tmp_path: Path) -> None:
    """Another program keeps the sessions to itself, and the store waits for them."""
    path = prepare_database(prepare_folder(str(tmp_path / "state")))
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for server in run_server(["-m", "thinklsp"], tmp_path):
            server.initialize(rootUri=tmp_path.as_uri())
            arguments = [{"op": "list"}]
            server.tell("workspace/executeCommand", {"command": "thinklsp.sessions", "arguments": arguments}, id=2)
            await seen(partial(_has_open, server, path), what="the open file")
            assert server.leave().endswith("some work did not end in time and was abandoned\n")


def test_what_comes_behind_the_exit_is_passed_over(server: Process) -> None:
    server.initialize()
    words: list[dict[str, Any]] = [{"id": 1, "method": "shutdown"}, {"method": "exit"}, {"id": 2, "method": "shutdown"}]
    server.send(b"".join(map(frame, words)))
    assert server.receive()["id"] == 1
    output, errors = server.process.communicate(timeout=HANG_SECONDS)
    assert (server.process.returncode, output, errors) == (0, b"", b"")


def test_an_input_that_breaks_is_the_end(tmp_path: Path) -> None:
    """A socket, as some editors give, that is reset instead of closed."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        editor = socket.create_connection(door.getsockname())
        theirs, _ = door.accept()
    with theirs, editor:
        for server in run_server(["-m", "thinklsp"], tmp_path, theirs.fileno()):
            editor.sendall(frame({"id": 0, "method": "initialize", "params": INITIALIZE}))
            assert server.receive()["id"] == 0
            editor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            editor.close()
            code, errors = server.end()
            assert (code, errors.endswith("the input was closed\n")) == (1, True)


@pytest.mark.parametrize("where", ["a large one is there", "there can be none"])
def test_a_log_is_neither_endless_nor_needed(tmp_path: Path, where: str) -> None:
    state = tmp_path / "state"
    if where == "there can be none":
        state.write_text("no folder")
    else:
        state.mkdir()
        (state / "thinklsp.log").write_text("x" * 1_000_001)
    for server in run_server(["-m", "thinklsp"], tmp_path):
        server.initialize()
        errors = server.leave()
        if where == "there can be none":
            assert "no log file is written: " in errors
        else:
            assert errors == ""
            assert (state / "thinklsp.log.1").stat().st_size == 1_000_001
            assert not (state / "thinklsp.log").exists()


def test_input_that_makes_no_sense_is_answered_and_passed_over(server: Process) -> None:
    server.initialize()
    server.send(b"Content-Length: 99999999999999999999\r\n\r\n")
    assert server.receive()["error"]["code"] == -32600
    server.send(b"content-length:2\n\n[]")
    assert server.receive()["error"]["code"] == -32600
    server.leave()


# A library of the process that prints: it does so whenever something is logged, in three ways.
PRINTING = """
import logging, os, subprocess
class Printing(logging.Handler):
    def emit(self, record):
        print("stray print", flush=True)
        os.write(1, b"stray write\\n")
        subprocess.run(["echo", "stray child"])
logging.getLogger("thinklsp").addHandler(Printing())
"""


def test_stray_prints_do_not_reach_the_editor(tmp_path: Path) -> None:
    for server in run_server(run_program(PRINTING), tmp_path):
        server.initialize()
        server.tell("textDocument/didOpen", {"textDocument": "no document"})
        for _ in range(3):
            server.ask_for_unknown()
        errors = server.leave()
        for way in ("print", "write", "child"):
            assert f"stray {way}" in errors


def test_what_it_writes_is_readable_by_the_user_alone(server: Process) -> None:
    server.initialize()
    server.tell("textDocument/didOpen", {"textDocument": "a reason to log"})
    server.leave()
    state = server.home / "state"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    files = [path for path in state.rglob("*") if path.is_file()]
    assert files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
