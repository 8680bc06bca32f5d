"""An audit hook for processes that must not talk to anything but this machine: a test that passes needed no network."""

from __future__ import annotations

from typing import Any


def only_loopback(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple) and arguments[1][0] != "127.0.0.1":
        raise OSError("this test has no network")
    if event == "socket.getaddrinfo" and arguments[0] not in ("127.0.0.1", "localhost", None):
        raise OSError("this test has no network")
