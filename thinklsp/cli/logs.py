"""What a process leaves behind: logs on standard error and, of a server, in a file, which others cannot read. What
they tell of a fault is its kind and place; its words could quote a prompt, a file or a key."""

from __future__ import annotations

import logging
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from types import TracebackType
from typing import Any

from thinklsp.core.log_level import log_level
from thinklsp.core.secrets import hide
from thinklsp.sessions.state_folder import LOG_NAME, closed, is_mine, state_folder

if sys.platform != "win32":
    import resource

_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# Windows has neither of the last two: no link is followed, and nobody waited for who would read a pipe.
_ADD = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_LOG_LIMIT = 1_000_000
_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
# The last ones, where it happened: a recursion without end has a thousand.
_MOST_PLACES = 12
# Libraries that would log message bodies or addresses.
_PINNED = ("pygls", "httpcore", "asyncio", "websockets")


def set_up_logs() -> None:
    """Log to standard error and to a file, which is made with the first line. Whatever is made from here on can be read
    by the user alone, and nothing is left of our memory should we crash."""
    os.umask(0o077)
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    log_to_stderr()
    logging.getLogger().addHandler(_LogFile(state_folder(os.environ)))


def log_to_stderr() -> None:
    """Log to standard error at the level that the environment chooses, uncaught faults included. The engine sets the
    level of the user's file when it has read it."""
    # A log on a full disk would put a traceback of its own on standard error for every line.
    logging.raiseExceptions = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Discreet(_LINE))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("thinklsp").setLevel((log_level(os.environ) or "warning").upper())
    for name in _PINNED:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    sys.excepthook = lambda _, error, __: _tell_uncaught(error)
    threading.excepthook = lambda uncaught: _tell_uncaught(uncaught.exc_value)
    sys.unraisablehook = lambda uncaught: _tell_uncaught(uncaught.exc_value)


def _tell_uncaught(error: BaseException | None) -> None:
    logging.getLogger(__name__).error("nobody expected a fault", exc_info=error)


class _LogFile(logging.FileHandler):
    """The log in the state folder, in a file that nobody else can read or put there. Where it cannot be kept that is
    said once, and everything goes on without: logging itself would raise where a line is logged."""

    def __init__(self, folder: str) -> None:
        super().__init__(os.path.join(folder, LOG_NAME), encoding="utf-8", delay=True)
        self.setFormatter(_Discreet(_LINE))
        self._folder = folder
        self._is_kept = True
        self._guarded(self._close_to_others)

    def emit(self, record: logging.LogRecord) -> None:
        if self._is_kept:
            self._guarded(lambda: logging.FileHandler.emit(self, record))

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            self._is_kept = False
            # It comes back to us, who are silent now, and goes to standard error.
            logging.getLogger(__name__).warning("no log file is kept: %s", _reason(error))

    def _close_to_others(self) -> None:
        """The folder, which is made, and what an earlier server has left in it, before anything is logged."""
        self._prepare_folder()
        if os.path.lexists(self.baseFilename):
            with self._open() as log:
                size = os.fstat(log.fileno()).st_size
            if size > _LOG_LIMIT:
                os.replace(self.baseFilename, f"{self.baseFilename}.1")

    def _prepare_folder(self) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        if (reason := closed(self._folder)) is not None:
            raise OSError(reason)

    def _open(self) -> TextIOWrapper:
        self._prepare_folder()
        return open(_private_file(self.baseFilename), "a", encoding=self.encoding)


def _reason(error: OSError) -> str:
    return f"{error.filename} cannot be used: {error.strerror}" if error.strerror else str(error)


def _private_file(path: str) -> int:
    """A descriptor to add to it. Raises OSError where it is a link, or not a file of ours."""
    descriptor = os.open(path, _ADD, 0o600)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or not is_mine(status):
        os.close(descriptor)
        raise OSError(f"{path} is not a file of yours. Move it away.")
    if sys.platform != "win32":
        os.fchmod(descriptor, 0o600)
    return descriptor


class _Discreet(logging.Formatter):
    """Lines without the keys of the environment, at any level, and faults without their words."""

    def format(self, record: logging.LogRecord) -> str:
        held = (value for name, value in os.environ.items() if name.endswith(_SECRETS))
        return hide(super().format(record), held)

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
