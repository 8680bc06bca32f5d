"""What the language server leaves behind: logs on standard error and in a file, which others cannot read."""

from __future__ import annotations

import logging
import os
import sys

from thinklsp.sessions.state_folder import LOG_NAME, state_folder

_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LOG_LIMIT = 1_000_000
# Libraries that would log message bodies or addresses.
_PINNED = ("pygls", "httpcore", "asyncio", "websockets")


def set_up_logs() -> None:
    """Warnings and worse; the file is made when the first one comes. Whatever is made from here on can be read by the
    user alone."""
    os.umask(0o077)
    # A log on a full disk would put a traceback of its own on standard error for every line.
    logging.raiseExceptions = False
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format=_LINE)
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
        handler.setFormatter(logging.Formatter(_LINE))
        logging.getLogger().addHandler(handler)
    for name in _PINNED:
        logging.getLogger(name).setLevel(logging.CRITICAL)
