"""Input comes from whatever an editor gives: a pipe, a pair of sockets, a terminal, or a file."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.test_start import INITIALIZE, frame
from tests.support.outside import ARGV
from tests.support.watching import HANG_SECONDS
from thinklsp.jsonrpc.framing import BadFrame, FrameDecoder

TALK: list[dict[str, Any]] = [
    {"id": 1, "method": "initialize", "params": INITIALIZE},
    {"method": "initialized", "params": {}},
    *(
        # More than is read at once.
        {"id": number, "method": "workspace/executeCommand", "params": {"command": "no", "arguments": ["x" * 4000]}}
        for number in range(2, 60)
    ),
    {"id": 60, "method": "shutdown"},
    {"method": "exit"},
]
Source = Iterator[tuple[int, Callable[[], None]]]
"""What the server reads from, and what gives it everything that is said."""


def talk() -> bytes:
    return b"".join(map(frame, TALK))


def given_to(descriptor: int) -> None:
    data = talk()
    while data:
        data = data[os.write(descriptor, data) :]


@contextmanager
def pipe(_: Path) -> Source:
    theirs, ours = os.pipe()
    yield theirs, lambda: given_to(ours)
    os.close(ours)


@pytest.mark.parametrize("said", [b"x" * 10_000, talk()[:2000] + b"x" * 10_000])
def test_what_cannot_be_followed_ends_it_with_a_word(said: bytes, tmp_path: Path) -> None:
    env = os.environ | {"HOME": str(tmp_path), "THINKLSP_STATE_DIR": str(tmp_path / "state")}
    done = subprocess.run(ARGV, input=said, capture_output=True, env=env, timeout=HANG_SECONDS, check=False)
    assert done.returncode == 1
    assert b"the input can no longer be decoded" in done.stderr


@contextmanager
def sockets(_: Path) -> Source:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield os.dup(theirs.fileno()), lambda: given_to(ours.fileno())


@contextmanager
def without_waiting(place: Path) -> Source:
    """A pipe that somebody else who holds it has made so."""
    with pipe(place) as (theirs, give):
        os.set_blocking(theirs, False)
        yield theirs, give


@contextmanager
def terminal(_: Path) -> Source:
    ours, theirs = pty.openpty()
    raw = termios.tcgetattr(theirs)
    raw[0], raw[1], raw[3] = 0, 0, 0
    termios.tcsetattr(theirs, termios.TCSANOW, raw)
    yield theirs, lambda: given_to(ours)
    os.close(ours)


@contextmanager
def file(place: Path) -> Source:
    (place / "talk").write_bytes(talk())
    yield os.open(place / "talk", os.O_RDONLY), lambda: None


@pytest.mark.parametrize("source", [pipe, sockets, without_waiting, terminal, file])
def test_every_request_is_answered(source: Callable[[Path], AbstractContextManager[Any]], tmp_path: Path) -> None:
    env = os.environ | {"HOME": str(tmp_path), "THINKLSP_STATE_DIR": str(tmp_path / "state")}
    out = subprocess.PIPE
    with (
        source(tmp_path) as (descriptor, give),
        subprocess.Popen(ARGV, stdin=descriptor, stdout=out, stderr=out, env=env) as process,
    ):
        os.close(descriptor)
        giving = threading.Thread(target=give)
        giving.start()
        said, log = process.communicate(timeout=60)
        giving.join()
    assert process.returncode == 0, log.decode()
    assert sorted(message["id"] for message in messages(said) if "id" in message) == list(range(1, 61))


def messages(said: bytes) -> list[dict[str, Any]]:
    frames = list(FrameDecoder().feed(said))
    assert not [frame for frame in frames if isinstance(frame, BadFrame)], said[:200]
    return [json.loads(frame) for frame in frames if isinstance(frame, bytes)]
