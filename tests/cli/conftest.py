"""The real commands as subprocesses, in an environment that holds nothing of the person who runs the tests.

Every process refuses to talk to anything but loopback, so that a test that passes needed no network.
"""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

from thinklsp.cli.main import run

ROOT = Path(__file__).parents[2]

_ONLY_LOOPBACK = """
import sys

def refuse(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple) and arguments[1][0] != "127.0.0.1":
        raise OSError("this test has no network")
    if event == "socket.getaddrinfo" and arguments[0] not in ("127.0.0.1", "localhost", None):
        raise OSError("this test has no network")

sys.addaudithook(refuse)
"""


@dataclass
class Cli:
    """`folder` is where commands run; `temp` is the only place for temporary files, so that what is left is seen."""

    home: Path
    folder: Path
    temp: Path
    environment: dict[str, str] = field(default_factory=dict)

    def argv(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "thinklsp", *args]

    def env(self, **more: str) -> dict[str, str]:
        return {**self.environment, **more}

    def run(self, *args: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*args), input=stdin, capture_output=True, text=True, timeout=60, cwd=self.folder,
            env=self.env(**more), check=False,
        )  # fmt: skip

    def terminal(self, *args: str, columns: int = 100, **more: str) -> Terminal:
        return Terminal(self.argv(*args), self.folder, self.env(TERM="xterm-256color", **more), columns)

    def left_behind(self) -> list[str]:
        """Everything in the temporary and the home folder."""
        return sorted(str(path) for folder in (self.temp, self.home) for path in folder.rglob("*"))


class Terminal:
    """A command on a pseudo-terminal. Use as a context manager."""

    def __init__(self, argv: list[str], folder: Path, environment: dict[str, str], columns: int) -> None:
        self._ours, theirs = pty.openpty()
        environment = {**environment, "COLUMNS": str(columns), "LINES": "40"}
        self.process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment)
        os.close(theirs)
        # A read may end in the middle of a character.
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self.output = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def until(self, text: str, seconds: float = 30) -> str:
        """Reads until `text` has been shown."""
        deadline = time.monotonic() + seconds
        while text not in self.output:
            assert self._read(deadline), f"ended without {text!r}: {self.output}"
        return self.output

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self, seconds: float = 30) -> int:
        """Reads to the end. Returns the exit code."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        return self.process.wait(seconds)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"nothing more was shown in time: {self.output}"
        try:
            data = os.read(self._ours, 65536)
        except OSError:
            return False
        self.output += self._decoder.decode(data)
        return bool(data)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    home, folder, temp, site = (tmp_path / name for name in ("home", "folder", "temp", "site"))
    for place in (home, folder, temp, site):
        place.mkdir()
    (site / "sitecustomize.py").write_text(_ONLY_LOOPBACK)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(temp),
        "PYTHONPATH": os.pathsep.join((str(site), str(ROOT))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
    }
    return Cli(home, folder, temp, environment)


@dataclass(frozen=True)
class Done:
    returncode: object
    stdout: str
    stderr: str


@pytest.fixture
def inside(cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The same commands within this process, where a start of Python each would only take time."""

    def call(*args: str, **more: str) -> Done:
        for name in [name for name in os.environ if name.startswith(("THINKLSP_", "ANTHROPIC_", "OPENAI_", "XDG_"))]:
            monkeypatch.delenv(name)
        for name, value in cli.env(**more).items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(cli.folder)
        try:
            code: object = run(args)
        except SystemExit as end:
            code = end.code
        shown = capsys.readouterr()
        return Done(code, shown.out, shown.err)

    return call
