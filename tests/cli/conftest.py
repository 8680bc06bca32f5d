"""The real commands as processes, in an environment that holds nothing of the person who runs the tests.

They are forked from one that has loaded them already, where that can be. Every process refuses to talk to anything but
loopback, so that a test that passes needed no network.
"""

from __future__ import annotations

import inspect
import os
import pty
import select
import subprocess
import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Self

import pytest

from tests.support.forking import Command, Nursery, only_loopback
from thinklsp.cli.main import run

ROOT = Path(__file__).parents[2]

# A copy: what commands start must not import our `tests` in place of their own.
_ONLY_LOOPBACK = f"""\
from __future__ import annotations

import sys

{inspect.getsource(only_loopback)}
sys.addaudithook(only_loopback)
"""


@dataclass(frozen=True)
class Done:
    returncode: object
    stdout: str
    stderr: str


Process = subprocess.Popen[bytes] | Command


@dataclass
class Cli:
    """`folder` is where commands run; `temp` is the only place for temporary files, so that what is left is seen."""

    home: Path
    folder: Path
    temp: Path
    nursery: Nursery | None
    environment: dict[str, str] = field(default_factory=dict)

    def argv(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "thinklsp", *args]

    def env(self, **more: str) -> dict[str, str]:
        return self.environment | more

    def begin(self, args: Sequence[str], variables: dict[str, str], standard: tuple[int, int, int]) -> Process:
        if self.nursery is not None:
            return self.nursery.command(args, self.folder, variables, standard)
        stdin, stdout, stderr = standard
        return subprocess.Popen(
            self.argv(*args), stdin=stdin, stdout=stdout, stderr=stderr, cwd=self.folder, env=variables
        )

    def run(self, *args: str, stdin: str = "", **more: str) -> Done:
        with TemporaryFile() as said, TemporaryFile() as out, TemporaryFile() as err:
            said.write(stdin.encode())
            said.seek(0)
            process = self.begin(args, self.env(**more), (said.fileno(), out.fileno(), err.fileno()))
            try:
                code = process.wait(60)
            except (TimeoutError, subprocess.TimeoutExpired):
                process.kill()
                process.wait(60)
                raise
            out.seek(0)
            err.seek(0)
            return Done(code, out.read().decode(), err.read().decode())

    def terminal(self, *args: str, columns: int = 100, **more: str) -> Terminal:
        return Terminal(self, args, self.env(TERM="xterm-256color", COLUMNS=str(columns), LINES="40", **more))

    def left_behind(self) -> list[str]:
        """Everything in the temporary and the home folder."""
        return sorted(str(path) for folder in (self.temp, self.home) for path in folder.rglob("*"))


class Terminal:
    """A command on a pseudo-terminal. Use as a context manager."""

    def __init__(self, cli: Cli, args: Sequence[str], variables: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.process = cli.begin(args, variables, (theirs, theirs, theirs))
        os.close(theirs)
        # A read may end in the middle of a character.
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self.output = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        os.close(self._ours)

    def until(self, text: str, seconds: float = 60) -> str:
        """Reads until `text` has been shown."""
        deadline = time.monotonic() + seconds
        while text not in self.output:
            assert self._read(deadline), f"ended without {text!r}: {self.output}"
        return self.output

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self, seconds: float = 60) -> int:
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
def cli(tmp_path: Path, nursery: Nursery | None) -> Cli:
    home, folder, temp, site = (tmp_path / name for name in ("home", "folder", "temp", "site"))
    for place in (home, folder, temp, site):
        place.mkdir()
    (site / "sitecustomize.py").write_text(_ONLY_LOOPBACK)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(temp), "LANG": "C.UTF-8"}
    environment |= {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    return Cli(home, folder, temp, nursery, environment)


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
