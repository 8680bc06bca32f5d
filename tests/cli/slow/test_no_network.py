"""Nothing is asked of anybody before the user asks for something: no socket but the event loop's own pair."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.raw import framed
from tests.support.outside import ROOT

_LISTENING = """
import os, sys

def note(event, arguments):
    if event == "socket.__new__":
        named = arguments[1] in (2, 10)
    else:
        named = event in ("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo", "urllib.Request")
    if named:
        with open(os.environ["HEARD"], "a") as file:
            file.write(event + repr(arguments[1:]) + "\\n")

sys.addaudithook(note)
"""
EVERYTHING = """
import importlib, pkgutil, thinklsp
for module in pkgutil.walk_packages(thinklsp.__path__, 'thinklsp.'):
    if not module.name.endswith(('__main__', 'sandbox.enter')):
        importlib.import_module(module.name)
"""
STARTS: dict[str, list[str]] = {
    "import thinklsp": ["-c", "import thinklsp"],
    "import of everything": ["-c", EVERYTHING],
    **{words: ["-m", "thinklsp", *words.split()] for words in ("--version", "--help", "config table", "sessions list")},
    "an editor that comes and goes": ["-m", "thinklsp"],
}


def heard(place: Path, *argv: str) -> str:
    """What was asked of whom. An editor speaks where there is a server to listen."""
    (place / "site").mkdir(exist_ok=True)
    (place / "site/sitecustomize.py").write_text(_LISTENING)
    env = {
        "PATH": os.environ["PATH"], "HOME": str(place), "PYTHONPATH": f"{place / 'site'}{os.pathsep}{ROOT}",
        "THINKLSP_STATE_DIR": str(place / "state"), "HEARD": str(place / "heard"), "ANTHROPIC_API_KEY": "sk-ant-x",
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    (place / "heard").touch()
    spoken = b"".join(framed(json.dumps({"jsonrpc": "2.0", **message}).encode()) for message in SPOKEN)
    done = subprocess.run([sys.executable, *argv], env=env, cwd=place, input=spoken, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return (place / "heard").read_text()


SPOKEN: list[Any] = [
    {"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}}},
    {"method": "initialized", "params": {}},
    {"id": 2, "method": "textDocument/codeAction", "params": {
        "textDocument": {"uri": "file:///a.py"}, "context": {"diagnostics": []},
        "range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}},
    }},
    {"id": 3, "method": "workspace/executeCommand", "params": {"command": "thinklsp.sessions", "arguments": []}},
    {"id": 4, "method": "shutdown"},
    {"method": "exit"},
]  # fmt: skip


@pytest.mark.parametrize("start", STARTS)
def test_nobody_is_asked(tmp_path: Path, start: str) -> None:
    assert heard(tmp_path, *STARTS[start]) == ""


@pytest.mark.parametrize(
    "code", ["socket.socket().connect_ex(('127.0.0.1', 9))", "socket.getaddrinfo('localhost', 80)", "socket.socket()"]
)
def test_whoever_asks_is_heard(tmp_path: Path, code: str) -> None:
    assert "socket." in heard(tmp_path, "-c", f"import socket; {code}")
