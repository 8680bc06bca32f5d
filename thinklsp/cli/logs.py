"""What a process leaves behind: logs on standard error and, of a server, in a file, which others cannot read. What
they tell of a fault is its kind and place; its words could quote a prompt, a file or a key."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from thinklsp.sessions.state_folder import LOG_NAME, state_folder

if sys.platform != "win32":
    import resource

_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LOG_LIMIT = 1_000_000
# The last ones, where it happened: a recursion without end has a thousand.
_MOST_PLACES = 12
# Libraries that would log message bodies or addresses.
_PINNED = ("pygls", "httpcore", "asyncio", "websockets")


def set_up_logs() -> None:
    """Warnings and worse; the file is made when the first one comes. Whatever is made from here on can be read by the
    user alone, and nothing is left of our memory should we crash."""
    os.umask(0o077)
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    log_to_stderr()
    folder = state_folder(os.environ)
    path = os.path.join(folder, LOG_NAME)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.path.exists(path) and os.path.getsize(path) > _LOG_LIMIT:
            os.replace(path, f"{path}.1")
        handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    except OSError as error:
        logging.getLogger(__name__).warning("no log file is kept: %s", error.strerror)
    else:
        handler.setFormatter(_Discreet(_LINE))
        logging.getLogger().addHandler(handler)


def log_to_stderr() -> None:
    """Also what nobody has caught."""
    # A log on a full disk would put a traceback of its own on standard error for every line.
    logging.raiseExceptions = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Discreet(_LINE))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    for name in _PINNED:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    sys.excepthook = lambda _, error, __: _tell_uncaught(error)
    threading.excepthook = lambda uncaught: _tell_uncaught(uncaught.exc_value)
    sys.unraisablehook = lambda uncaught: _tell_uncaught(uncaught.exc_value)


def _tell_uncaught(error: BaseException | None) -> None:
    logging.getLogger(__name__).error("nobody expected a fault", exc_info=error)


class _Discreet(logging.Formatter):
    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is logging's
        return "\n".join(("Traceback, the first fault first, without their words:", *_faults(ei[1])))


def _faults(error: BaseException | None) -> Iterator[str]:
    """One line for each, from the first cause on."""
    if error is not None:
        yield from _faults(error.__cause__ or error.__context__)
        places = list(_places(error.__traceback__))[-_MOST_PLACES:]
        yield f"{type(error).__qualname__} in {' > '.join(places)}"


def _places(step: TracebackType | None) -> Iterator[str]:
    while step is not None:
        code = step.tb_frame.f_code
        yield f"{os.path.basename(code.co_filename)}:{step.tb_lineno} {code.co_name}"
        step = step.tb_next
