"""The server on standard input and output. It responds to `initialize` before it imports most of its modules."""

from __future__ import annotations

import gc
import os
import sys

from thinklsp.cli.early_signals import exit_on_signals
from thinklsp.jsonrpc.first_message import FirstInput
from thinklsp.lsp.protocol.fast_initialize import answer_initialize

# Each line fits in 80 columns.
_TERMINAL_HINT = """\
thinklsp is waiting for LSP messages on standard input. Editors start it for
you. Press Ctrl-C to stop it. Run `thinklsp demo` to see a demo, `thinklsp ask`
to ask a question, and `thinklsp --help` for all commands.
"""


def serve() -> int:
    """Run the server. Returns 0 after `shutdown` and `exit`, and 1 otherwise.

    After a signal, the process exits with code 128 plus the signal number.
    """
    gc.disable()
    exit_on_signals()
    if os.isatty(0):
        # Without a hint, a user who starts the server in a terminal sees no output.
        sys.stderr.write(_TERMINAL_HINT)
    greeting = answer_initialize()
    return _serve(greeting) if greeting.data else 1


def _serve(greeting: FirstInput) -> int:
    # Import the rest of the server after responding to `initialize`, because the imports are slow.
    from thinklsp.cli.logs import set_up_logs  # noqa: PLC0415 - loaded after the answer to `initialize`
    from thinklsp.core.import_context import reduce_gc  # noqa: PLC0415 - loaded after the answer to `initialize`

    set_up_logs()
    with reduce_gc():
        from thinklsp.settings.startup_settings import StartupSettingsReader  # noqa: PLC0415 - loaded after the answer to `initialize`

        # A thread reads the user's file while the main thread imports libraries.
        early = StartupSettingsReader(os.environ)
        from thinklsp.lsp.transport.connection import serve_stdio  # noqa: PLC0415 - loaded after the answer to `initialize`

    return serve_stdio(greeting, early)
