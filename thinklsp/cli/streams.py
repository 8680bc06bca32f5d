"""The standard streams of a terminal command: open, and able to take any text."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO


def prepare_streams() -> bool:
    """Make the standard streams usable. False if standard output is closed, so that nobody would see an answer.

    A closed descriptor is filled first: the next file that is opened would get its number, and what is printed with it.
    """
    is_open = [_fill(number) for number in range(3)]
    # Python leaves out the stream of a descriptor that was closed.
    sys.stdin = sys.stdin or _opened(0, "r")
    sys.stdout = sys.stdout or _opened(1, "w")
    sys.stderr = sys.stderr or _opened(2, "w")
    for stream in (sys.stdout, sys.stderr):
        _take_any_text(stream)
    return is_open[1]


def _fill(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        os.open(os.devnull, os.O_RDWR)
        return False
    return True


def _opened(descriptor: int, mode: str) -> TextIO:
    return io.TextIOWrapper(io.FileIO(descriptor, mode, closefd=False), encoding="utf-8")


def _take_any_text(stream: TextIO) -> None:
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
