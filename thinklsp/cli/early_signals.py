"""Signals of a server that has not started its event loop yet."""

import os
import signal


def exit_on_signals() -> None:
    """Exit on signals until the event loop handles signals. Ignored signals stay ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: os._exit(128 + number))
