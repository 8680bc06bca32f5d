"""The server on standard input and output: the editor is answered first, and everything else loaded afterwards."""

from __future__ import annotations

import gc
import os
import signal
import sys

from thinklsp.lsp.protocol.greeting import Greeting, greet

_ON_A_TERMINAL = (
    "thinklsp is waiting for an editor to speak to it here. Editors start it by themselves; Ctrl-C ends it. "
    "To see what it does: thinklsp demo. To ask something: thinklsp ask. All commands: thinklsp --help.\n"
)


def serve() -> int:
    """The exit code: 0 after `shutdown` and `exit`, 1 without, 128 and the number after a signal."""
    gc.disable()
    _end_on_signals()
    if os.isatty(0):
        # On a screen nothing else would tell why nothing happens.
        sys.stderr.write(_ON_A_TERMINAL)
    greeting = greet()
    return _serve(greeting) if greeting.read else 1


def _serve(greeting: Greeting) -> int:
    # Now, while nobody waits for an answer that we have not given.
    from thinklsp.cli.logs import set_up_logs  # noqa: PLC0415 - see above
    from thinklsp.core.loading import uncollected  # noqa: PLC0415 - see above

    set_up_logs()
    with uncollected():
        from thinklsp.settings.early import EarlyReading  # noqa: PLC0415 - see above

        # A thread reads the user's file while the libraries are loaded.
        early = EarlyReading(os.environ)
        from thinklsp.lsp.serving.stdio import serve_stdio  # noqa: PLC0415 - see above

    return serve_stdio(greeting, early)


def _end_on_signals() -> None:
    """Until the event loop takes them over. A hang-up that whoever started us has switched off stays so."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: os._exit(128 + number))
