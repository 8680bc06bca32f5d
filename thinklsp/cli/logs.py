"""Logging to standard error and, for a server, to a private file.

Only the type and location of an exception are logged, because its message could contain a prompt, a file or a key.
"""

from __future__ import annotations

import logging
import os
import resource
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from types import TracebackType
from typing import Any

from thinklsp.core.choices import read_log_level
from thinklsp.core.text_safety import hide_secrets
from thinklsp.sessions.state_folder import LOG_NAME, is_owned, resolve_state_folder, restrict_access

_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# O_NOFOLLOW rejects symbolic links. O_NONBLOCK prevents blocking if the file is a pipe.
_APPEND_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
_MAX_LOG_BYTES = 1_000_000
_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
# The number of innermost frames to log, because infinite recursion leads to a thousand frames.
_MAX_FRAMES = 12
# Libraries whose log messages may contain prompts or addresses.
_SILENCED_LOGGERS = ("pygls", "httpcore", "asyncio", "websockets")


def set_up_logs() -> None:
    """Log to standard error and to a file, which is created when the first message is logged.

    This function also disables core dumps and makes all new files of the process private.
    """
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    log_to_stderr()
    logging.getLogger().addHandler(_LogFile(resolve_state_folder(os.environ)))


def log_to_stderr() -> None:
    """Log to standard error, including uncaught exceptions. The environment sets the log level.

    The engine later applies the level from the user's file.
    """
    # Prevent `logging` from printing a traceback for every message if the disk is full.
    logging.raiseExceptions = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_RedactingFormatter(_LINE))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("thinklsp").setLevel((read_log_level(os.environ) or "warning").upper())
    for name in _SILENCED_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    sys.excepthook = lambda _, error, __: _log_uncaught(error)
    threading.excepthook = lambda uncaught: _log_uncaught(uncaught.exc_value)
    sys.unraisablehook = lambda uncaught: _log_uncaught(uncaught.exc_value)


def _log_uncaught(error: BaseException | None) -> None:
    logging.getLogger(__name__).error("unexpected exception", exc_info=error)


class _LogFile(logging.FileHandler):
    """A handler for the log file in the state folder. Only the user can read the file.

    If writing to the file fails, the handler reports the error once and disables itself.
    """

    def __init__(self, folder: str) -> None:
        super().__init__(os.path.join(folder, LOG_NAME), encoding="utf-8", delay=True)
        self.setFormatter(_RedactingFormatter(_LINE))
        self._folder = folder
        self._is_enabled = True
        self._run_guarded(self._prepare_file)

    def emit(self, record: logging.LogRecord) -> None:
        if self._is_enabled:
            self._run_guarded(lambda: logging.FileHandler.emit(self, record))

    def _run_guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            self._is_enabled = False
            # The handler for the log file is now disabled, so the warning goes only to standard error.
            reason = f"{error.filename} cannot be used: {error.strerror}" if error.strerror else error
            logging.getLogger(__name__).warning("no log file is written: %s", reason)

    def _prepare_file(self) -> None:
        """Create the folder, and make an existing log file private. Rename the log file if it is too large."""
        self._prepare_folder()
        if os.path.lexists(self.baseFilename):
            with self._open() as log:
                size = os.fstat(log.fileno()).st_size
            if size > _MAX_LOG_BYTES:
                os.replace(self.baseFilename, f"{self.baseFilename}.1")

    def _prepare_folder(self) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        if (reason := restrict_access(self._folder)) is not None:
            raise OSError(reason)

    def _open(self) -> TextIOWrapper:
        self._prepare_folder()
        return open(_open_private_file(self.baseFilename), "a", encoding=self.encoding)


def _open_private_file(path: str) -> int:
    """Open a private file for appending. Raise OSError if the path is a link or the file belongs to another user."""
    descriptor = os.open(path, _APPEND_FLAGS, 0o600)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or not is_owned(status):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file that you own. Move or rename it.")
    os.fchmod(descriptor, 0o600)
    return descriptor


class _RedactingFormatter(logging.Formatter):
    """A formatter that omits exception messages and masks the values of all variables that may contain keys."""

    def format(self, record: logging.LogRecord) -> str:
        secrets = (value for name, value in os.environ.items() if name.endswith(_SECRETS))
        return hide_secrets(super().format(record), secrets)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - overrides a method of logging
        return "\n".join(("Traceback without messages, root cause first:", *_format_exceptions(ei[1])))


def _format_exceptions(error: BaseException | None) -> Iterator[str]:
    """Yield a line for each exception in the chain, root cause first."""
    if error is not None:
        yield from _format_exceptions(error.__cause__ or error.__context__)
        places = list(_format_frames(error.__traceback__))[-_MAX_FRAMES:]
        yield f"{type(error).__qualname__} in {' > '.join(places)}"


def _format_frames(step: TracebackType | None) -> Iterator[str]:
    while step is not None:
        code = step.tb_frame.f_code
        yield f"{os.path.basename(code.co_filename)}:{step.tb_lineno} {code.co_name}"
        step = step.tb_next
