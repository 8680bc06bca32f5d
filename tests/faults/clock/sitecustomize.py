"""Replaces the clocks of a server that has this folder on PYTHONPATH.

A second of the test is `CLOCK_SPEED` seconds of the server. At SIGUSR1 the wall clock jumps by `CLOCK_JUMP` seconds and
the steady one by `CLOCK_SUSPENDED`. C libraries, such as SQLite when it waits for a lock, see the real time.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from typing import Any

_speed = float(os.environ.get("CLOCK_SPEED", "1"))
_steady, _wall, _select = time.monotonic, time.time, selectors.DefaultSelector.select
_began = _steady()
_jumped = {"steady": 0.0, "wall": 0.0}


def _monotonic() -> float:
    return _began + (_steady() - _began) * _speed + _jumped["steady"]


def _patient(self: Any, timeout: float | None = None) -> Any:
    return _select(self, timeout if timeout is None or timeout <= 0 else timeout / _speed)


def _jump(*_: object) -> None:
    _jumped["steady"] += float(os.environ.get("CLOCK_SUSPENDED", "0"))
    _jumped["wall"] += float(os.environ.get("CLOCK_JUMP", "0"))


time.monotonic = _monotonic
time.time = lambda: _wall() + _jumped["wall"]
selectors.DefaultSelector.select = _patient  # type: ignore[method-assign] # this is what the module is for
signal.signal(signal.SIGUSR1, _jump)
