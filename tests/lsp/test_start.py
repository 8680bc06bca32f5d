"""The process: what is loaded before the first answer, how it ends, and that nothing else writes to its output."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.epilogue import clock
from tests.support.outside import ROOT

_HEADER = re.compile(rb"Content-Length: (\d+)\r\n\r\n")
INITIALIZE = {"processId": None, "rootUri": None, "capabilities": {}}
DEADLINE = 20.0


class Process:
    """The server as a subprocess, spoken to in lock step."""

    def __init__(self, argv: Sequence[str], home: Path, stdin: int = subprocess.PIPE, **variables: str) -> None:
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "PYTHONPATH")}
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", *argv],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=kept
            | {"HOME": str(home), "THINKLSP_STATE_DIR": str(home / "state"), "XDG_CONFIG_HOME": str(home)}
            | variables,
        )

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def tell(self, method: str, params: Any = None, **more: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params} | more).encode()
        self.send(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def receive(self) -> Any:
        """The next message; anything else on the output is a failure."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = _HEADER.match(line + self.process.stdout.readline())
        assert match, line
        return json.loads(self.process.stdout.read(int(match[1])))

    def ask(self, identity: int, method: str, params: Any = None) -> Any:
        self.tell(method, params, id=identity)
        while (message := self.receive()).get("id") != identity:
            pass
        return message

    def initialize(self, **more: Any) -> Any:
        answer = self.ask(0, "initialize", INITIALIZE | more)
        self.tell("initialized", {})
        return answer["result"]

    def end(self) -> tuple[int, str]:
        """Waits for the end that must come by itself: exit code and standard error."""
        _, errors = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, errors.decode()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Process]:
    yield from _running(["-m", "thinklsp"], tmp_path)


def _running(argv: Sequence[str], home: Path, stdin: int = subprocess.PIPE, **variables: str) -> Iterator[Process]:
    running = Process(argv, home, stdin, **variables)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


# Says which modules are loaded when the answer to `initialize` goes out, and that to the first code action. `ssl` is
# not asked about: asyncio itself imports it.
WITNESS = """
import os, runpy, sys
real = os.write
def write(descriptor, data):
    if b'"serverInfo"' in bytes(data) or b'"title":"thinklsp: ' in bytes(data):
        real(2, ("loaded: " + " ".join(sorted(sys.modules)) + "\\n").encode())
    return real(descriptor, data)
os.write = write
sys.argv = ["thinklsp"]
runpy.run_module("thinklsp", run_name="__main__", alter_sys=True)
"""
HEAVY = {"httpcore", "anyio", "h11", "pydantic", "pydantic_core", "sqlite3", "tree_sitter", "pathspec", "rich"}
# All of the protocol, which takes longer than all else until then.
PROTOCOL = {"pygls", "lsprotocol", "attrs", "attr", "cattrs"}


def test_nothing_heavy_is_loaded_before_initialize_has_been_answered(tmp_path: Path) -> None:
    for server in _running(["-c", WITNESS], tmp_path):
        server.initialize()
        server.ask(1, "shutdown")
        server.tell("exit")
        code, errors = server.end()
        [loaded] = _loaded(errors)
        assert "thinklsp" in loaded
        assert loaded & {"asyncio", "logging", *HEAVY, *PROTOCOL} == set()
        assert code == 0


def test_the_first_code_action_is_served_before_anything_heavy_is_loaded(tmp_path: Path) -> None:
    """The engine comes after `initialized`, which this client leaves out. A-11: what the user's file says of the menu
    counts already."""
    (tmp_path / "thinklsp").mkdir()
    (tmp_path / "thinklsp" / "config.toml").write_text(
        '[chat]\nfile_suffix = ".talk.md"\n[[actions]]\ntitle = "whistle"\nprompt = "Whistle."\nscope = "file"\n'
    )
    for server in _running(["-c", WITNESS], tmp_path):
        server.ask(0, "initialize", INITIALIZE)
        document = {"uri": "file:///ws/a.py", "languageId": "python", "version": 1, "text": "def f(): pass\n"}
        server.tell("textDocument/didOpen", {"textDocument": document})
        place = {"line": 0, "character": 0}
        context = {"diagnostics": [{"range": {"start": place, "end": place}, "message": "wrong"}]}
        asked = {"textDocument": document, "range": {"start": place, "end": place}, "context": context}
        titles = [action["title"] for action in server.ask(1, "textDocument/codeAction", asked)["result"]]
        assert {"thinklsp: fix wrong", "thinklsp: whistle"} <= set(titles)
        chat = document | {"uri": "file:///ws/a.talk.md", "text": "## You\n\nHello.\n"}
        server.tell("textDocument/didOpen", {"textDocument": chat})
        asked = {"textDocument": chat, "range": {"start": place, "end": place}, "context": {"diagnostics": []}}
        assert server.ask(3, "textDocument/codeAction", asked)["result"][0]["title"] == "thinklsp: send"
        server.ask(2, "shutdown")
        server.tell("exit")
        code, errors = server.end()
        *_, loaded = _loaded(errors)
        assert "asyncio" in loaded
        assert loaded & (HEAVY | PROTOCOL) == set()
        assert code == 0


LEVEL_WITNESS = WITNESS.replace(
    'real(2, ("loaded: " + " ".join(sorted(sys.modules)) + "\\n").encode())',
    "real(2, f\"level: {__import__('logging').getLogger('thinklsp').level}\\n\".encode())",
).replace('["thinklsp"]', '["thinklsp", "--stdio", "--log-level", "debug"]')


def test_the_command_line_chooses_the_level_of_the_log(tmp_path: Path) -> None:
    """A-13: over the environment and the user's file."""
    (tmp_path / "thinklsp").mkdir()
    (tmp_path / "thinklsp" / "config.toml").write_text('[log]\nlevel = "info"\n')
    for server in _running(["-c", LEVEL_WITNESS], tmp_path, THINKLSP_LOG_LEVEL="error"):
        server.initialize()
        assert server.ask(1, "workspace/executeCommand", {"command": "thinklsp.effort"})["result"]["value"] == "auto"
        document = {"uri": "file:///ws/a.py", "languageId": "python", "version": 1, "text": "def f(): pass\n"}
        server.tell("textDocument/didOpen", {"textDocument": document})
        place = {"line": 0, "character": 0}
        asked = {"textDocument": document, "range": {"start": place, "end": place}, "context": {"diagnostics": []}}
        server.ask(2, "textDocument/codeAction", asked)
        server.tell("exit")
        assert "level: 10\n" in server.end()[1]


def _loaded(errors: str) -> list[set[str]]:
    lines = [line.split()[1:] for line in errors.splitlines() if line.startswith("loaded: ")]
    return [{name.split(".")[0] for name in line} for line in lines]


def test_shutdown_and_exit(server: Process) -> None:
    result = server.initialize()
    assert result["serverInfo"]["name"] == "thinklsp"
    # Until then most of it is still being loaded.
    server.ask(0, "textDocument/hover", {})
    at = time.monotonic()
    assert server.ask(1, "shutdown")["result"] is None
    assert time.monotonic() - at < 2
    server.tell("exit")
    assert server.end() == (0, "")


@pytest.mark.parametrize("initialized", [True, False])
def test_exit_without_shutdown(server: Process, initialized: bool) -> None:
    if initialized:
        server.initialize()
    server.tell("exit")
    assert server.end()[0] == 1


@pytest.mark.parametrize("shut_down", [True, False])
def test_the_end_of_the_input_counts_as_no_exit(server: Process, shut_down: bool) -> None:
    server.initialize()
    if shut_down:
        server.ask(1, "shutdown")
    assert server.end()[0] == 1


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)], ids=["TERM", "INT", "HUP"]
)
def test_signals(server: Process, number: signal.Signals, code: int) -> None:
    server.initialize()
    server.ask(1, "textDocument/rename", {})
    server.process.send_signal(number)
    assert server.process.wait(DEADLINE) == code
    assert "Traceback" not in server.end()[1]


def test_the_death_of_the_editor_is_noticed_although_the_input_stays_open(server: Process) -> None:
    argv = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as editor:
        server.initialize(processId=editor.pid)
        assert server.ask(1, "textDocument/rename", {})["error"]["code"] == -32601
        editor.kill()
        editor.wait()
        at = time.monotonic()
        assert server.process.wait(DEADLINE) == 1
        assert time.monotonic() - at < 6


@pytest.mark.parametrize(
    ("process_id", "code"),
    [(None, 0), (os.getpid(), 0), (0, 0), (2**40, 1), (-(2**30), 1)],
    ids=["not told", "alive", "our own group", "too large", "no group"],
)
def test_an_editor_that_lives_is_not_taken_for_dead(tmp_path: Path, process_id: int | None, code: int) -> None:
    """For a minute of the server's own time, which is twenty looks, from its first answer on."""
    for server in _running(["-m", "thinklsp"], tmp_path, **clock(60)):
        server.initialize(processId=process_id)
        if code == 0:
            assert server.ask(1, "textDocument/rename", {})["error"]["code"] == -32601
            until = time.monotonic() + 1
            while time.monotonic() < until:
                assert server.ask(1, "textDocument/rename", {})["error"]["code"] == -32601
            assert server.ask(2, "shutdown")["result"] is None
            server.tell("exit")
        # The input stays open.
        assert server.process.wait(DEADLINE) == code


# What has gone wrong with the whole server -> what its log says.
FAILED = {
    "ValueError('secret words')": "the server has failed\nTraceback, the first fault first, without their words:\n",
    "RuntimeError('secret words')": "the server has failed\n",
    'RuntimeError("can\'t start new thread")': "the server cannot run: the system lets thinklsp start no more threads.",
}
FAILING = """
from thinklsp.cli.logs import log_to_stderr
from thinklsp.lsp.serving.connection import run_to_its_end
async def serve(): raise {}
log_to_stderr()
run_to_its_end(serve())
"""


@pytest.mark.parametrize("error", FAILED)
def test_whatever_goes_wrong_the_process_ends(tmp_path: Path, error: str) -> None:
    for server in _running(["-c", FAILING.format(error)], tmp_path):
        code, errors = server.end()
        assert code == 1
        assert FAILED[error] in errors
        assert "secret words" not in errors


IGNORING = """
import runpy, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
sys.argv = ["thinklsp"]
runpy.run_module("thinklsp", run_name="__main__", alter_sys=True)
"""


def test_a_hang_up_that_was_switched_off_stays_so(tmp_path: Path) -> None:
    for server in _running(["-c", IGNORING], tmp_path):
        server.initialize()
        for identity in (1, 2):
            server.process.send_signal(signal.SIGHUP)
            assert server.ask(identity, "textDocument/rename", {})["error"]["code"] == -32601
        assert server.ask(3, "shutdown")["result"] is None
        server.tell("exit")
        assert server.end() == (0, "")


HANGING = """
import sys, threading
def get_password(*_):
    print("asked", file=sys.stderr, flush=True)
    threading.Event().wait()
"""


def test_work_that_does_not_end_is_left_behind(tmp_path: Path) -> None:
    """A keyring that waits for its password keeps the store from opening, and nobody from leaving."""
    (tmp_path / "keyring.py").write_text(HANGING)
    for server in _running(["-m", "thinklsp"], tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}"):
        server.initialize(rootUri=tmp_path.as_uri())
        assert server.process.stderr is not None
        assert server.process.stderr.readline() == b"asked\n"
        assert server.ask(1, "shutdown")["result"] is None
        server.tell("exit")
        code, errors = server.end()
        assert code == 0
        assert errors.endswith("some work did not end in time and was left behind\n")


def test_what_comes_behind_the_exit_is_passed_over(server: Process) -> None:
    server.initialize()
    words: list[dict[str, Any]] = [{"id": 1, "method": "shutdown"}, {"method": "exit"}, {"id": 2, "method": "shutdown"}]
    bodies = [json.dumps({"jsonrpc": "2.0"} | word).encode() for word in words]
    server.send(b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies))
    assert server.receive()["id"] == 1
    output, errors = server.process.communicate(timeout=DEADLINE)
    assert (server.process.returncode, output, errors) == (0, b"", b"")


def test_an_input_that_breaks_is_the_end(tmp_path: Path) -> None:
    """A socket, as some editors give, that is reset instead of closed."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        editor = socket.create_connection(door.getsockname())
        theirs, _ = door.accept()
    with theirs, editor:
        for server in _running(["-m", "thinklsp"], tmp_path, theirs.fileno()):
            body = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}).encode()
            editor.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            assert server.receive()["id"] == 0
            editor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            editor.close()
            code, errors = server.end()
            assert code == 1
            assert errors.endswith("the input was closed\n")


@pytest.mark.parametrize("where", ["a large one is there", "there can be none"])
def test_a_log_is_neither_endless_nor_needed(tmp_path: Path, where: str) -> None:
    state = tmp_path / "state"
    if where == "there can be none":
        state.write_text("no folder")
    else:
        state.mkdir()
        (state / "thinklsp.log").write_text("x" * 1_000_001)
    for server in _running(["-m", "thinklsp"], tmp_path):
        server.initialize()
        assert server.ask(1, "shutdown")["result"] is None
        server.tell("exit")
        code, errors = server.end()
        assert code == 0
        if where == "there can be none":
            assert "no log file is kept: " in errors
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
    assert server.ask(1, "shutdown")["result"] is None
    server.tell("exit")
    assert server.end()[0] == 0


def test_input_that_cannot_be_followed_is_the_end(server: Process) -> None:
    server.initialize()
    server.send(b"x" * 5000)
    assert server.process.wait(DEADLINE) == 1


# A library of the process that prints: it does so whenever something is logged, in three ways.
PRINTING = """
import logging, os, runpy, subprocess, sys
class Printing(logging.Handler):
    def emit(self, record):
        print("stray print", flush=True)
        os.write(1, b"stray write\\n")
        subprocess.run(["echo", "stray child"])
logging.getLogger("thinklsp").addHandler(Printing())
sys.argv = ["thinklsp"]
runpy.run_module("thinklsp", run_name="__main__", alter_sys=True)
"""


def test_stray_prints_do_not_reach_the_editor(tmp_path: Path) -> None:
    for server in _running(["-c", PRINTING], tmp_path):
        server.initialize()
        server.tell("textDocument/didOpen", {"textDocument": "no document"})
        for identity in range(1, 4):
            assert server.ask(identity, "textDocument/rename", {})["error"]["code"] == -32601
        server.ask(9, "shutdown")
        server.tell("exit")
        code, errors = server.end()
        assert code == 0
        for way in ("print", "write", "child"):
            assert f"stray {way}" in errors


def test_what_it_writes_is_readable_by_the_user_alone(server: Process) -> None:
    server.initialize()
    server.tell("textDocument/didOpen", {"textDocument": "a reason to log"})
    server.ask(1, "shutdown")
    server.tell("exit")
    server.end()
    state = server.home / "state"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    files = [path for path in state.rglob("*") if path.is_file()]
    assert files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
