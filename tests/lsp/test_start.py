"""The process: what is loaded before the first answer. `tests/lsp/slow/test_process.py` has how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.raw import framed
from tests.support.watching import HANG_SECONDS

_HEADER = re.compile(rb"Content-Length: (\d+)\r\n\r\n")
INITIALIZE = {"processId": None, "rootUri": None, "capabilities": {}}
UNKNOWN = -32601


class Process:
    """The server as a subprocess, spoken to in lock step."""

    def __init__(self, argv: Sequence[str], home: Path, stdin: int = subprocess.PIPE, **variables: str) -> None:
        env = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "PYTHONPATH")}
        env |= {"HOME": str(home), "THINKLSP_STATE_DIR": str(home / "state"), "XDG_CONFIG_HOME": str(home)}
        argv, pipe = [sys.executable, "-W", "error", *argv], subprocess.PIPE
        self.home = home
        self.process = subprocess.Popen(argv, stdin=stdin, stdout=pipe, stderr=pipe, env=env | variables)

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def tell(self, method: str, params: Any = None, **more: Any) -> None:
        self.send(frame({"method": method, "params": params} | more))

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

    def ask_for_unknown(self) -> None:
        """Show that it lives."""
        assert self.ask(1, "textDocument/rename", {})["error"]["code"] == UNKNOWN

    def open(self, uri: str = "file:///ws/a.py", text: str = "def f(): pass\n") -> None:
        document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": document})

    def list_actions(self, uri: str = "file:///ws/a.py", *messages: str) -> list[str]:
        """Return the titles at the beginning of a document, where there are problems with these messages."""
        place = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}
        context = {"diagnostics": [{"range": place, "message": message} for message in messages]}
        params = {"textDocument": {"uri": uri}, "range": place, "context": context}
        return [action["title"] for action in self.ask(1, "textDocument/codeAction", params)["result"]]

    def leave(self) -> str:
        """Shut down and exit, which is no failure; return standard error."""
        assert self.ask(1, "shutdown")["result"] is None
        self.tell("exit")
        code, errors = self.end()
        assert code == 0
        return errors

    def end(self) -> tuple[int, str]:
        """Waits for the end that must come by itself: exit code and standard error."""
        _, errors = self.process.communicate(timeout=HANG_SECONDS)
        return self.process.returncode, errors.decode()


def frame(message: dict[str, Any]) -> bytes:
    return framed(json.dumps({"jsonrpc": "2.0"} | message).encode())


def run_server(argv: Sequence[str], home: Path, stdin: int = subprocess.PIPE, **variables: str) -> Iterator[Process]:
    running = Process(argv, home, stdin, **variables)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


def run_program(program: str, *arguments: str) -> list[str]:
    """Return the arguments of a Python that runs this program and then the server."""
    run = 'import runpy, sys\nsys.argv = {}\nrunpy.run_module("thinklsp", run_name="__main__", alter_sys=True)\n'
    return ["-c", program + run.format(["thinklsp", *arguments])]


# Says which modules are loaded when the answer to `initialize` goes out, and that to the first code action. `ssl` is
# not asked about: asyncio itself imports it.
WITNESS = """
import os, sys
real = os.write
def write(descriptor, data):
    if b'"serverInfo"' in bytes(data) or b'"title":"thinklsp: ' in bytes(data):
        real(2, ("loaded: " + " ".join(sorted(sys.modules)) + "\\n").encode())
    return real(descriptor, data)
os.write = write
"""
HEAVY = {"httpcore", "anyio", "h11", "pydantic", "pydantic_core", "sqlite3", "tree_sitter", "pathspec", "rich"}
HEAVY |= {"prometheus_client", "opentelemetry", "hashlib"}
PROTOCOL = {"pygls", "lsprotocol", "attrs", "attr", "cattrs"}


def test_initialize_is_answered_before_heavy_imports(tmp_path: Path) -> None:
    for server in run_server(run_program(WITNESS), tmp_path):
        server.initialize()
        [loaded] = list_loaded(server.leave())
        assert "thinklsp" in loaded
        assert loaded & {"asyncio", "logging", *HEAVY, *PROTOCOL} == set()


def run_configured_server(home: Path) -> Iterator[Process]:
    """Run a server with a menu of the user's, up to the first document."""
    own = '[chat]\nfile_suffix = ".talk.md"\n[[actions]]\ntitle = "whistle"\nprompt = "Whistle."\nscope = "file"\n'
    write_config(home, own)
    for server in run_server(run_program(WITNESS), home):
        server.ask(0, "initialize", INITIALIZE)
        server.open()
        yield server


def has_own_menu(server: Process) -> bool:
    return {"thinklsp: fix wrong", "thinklsp: whistle"} <= set(server.list_actions("file:///ws/a.py", "wrong"))


@pytest.mark.timing
def test_first_code_action_knows_the_users_menu(tmp_path: Path) -> None:
    """The server waits a quarter of a second for the user's file."""
    for server in run_configured_server(tmp_path):
        assert has_own_menu(server)


def test_first_code_action_precedes_heavy_imports(tmp_path: Path) -> None:
    """The engine comes after `initialized`, which this client leaves out. A-11: what the user's file says of the menu
    counts already."""
    for server in run_configured_server(tmp_path):
        until = time.monotonic() + HANG_SECONDS
        while not has_own_menu(server):
            assert time.monotonic() < until
        server.open("file:///ws/a.talk.md", "## You\n\nHello.\n")
        assert server.list_actions("file:///ws/a.talk.md")[0] == "thinklsp: send"
        *_, loaded = list_loaded(server.leave())
        assert "asyncio" in loaded
        assert loaded & HEAVY == set()


def test_imports_keep_no_generated_source() -> None:
    """attrs keeps the source of the methods of all types of the protocol, 1.7 MB."""
    program = "import linecache\nfrom thinklsp.core.import_context import reduce_gc\n"
    program += "with reduce_gc():\n    import lsprotocol.types\nprint(list(linecache.cache))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def write_config(home: Path, text: str) -> None:
    (home / "thinklsp").mkdir()
    (home / "thinklsp" / "config.toml").write_text(text)


def list_loaded(errors: str) -> list[set[str]]:
    lines = [line.split()[1:] for line in errors.splitlines() if line.startswith("loaded: ")]
    return [{name.split(".")[0] for name in line} for line in lines]
