"""The servers on standard input and output: for an editor, and for a client of the Agent Client Protocol (ACP).

Both answer `initialize` before they import most of their modules, because the imports are slow.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

# Each line fits in 80 columns.
_LSP_HINT = """\
thinklsp is waiting for LSP messages on standard input. Editors start it for
you. Press Ctrl-C to stop it. Run `thinklsp demo` to see a demo, `thinklsp ask`
to ask a question, and `thinklsp --help` for all commands.
"""
_ACP_HINT = """\
thinklsp is waiting for messages of the Agent Client Protocol on standard input.
Editors start it for you: see `thinklsp setup zed`, `thinklsp setup jetbrains`
and `thinklsp doctor --acp`. Press Ctrl-C to stop it.
"""


def serve() -> int:
    """Run the language server. Returns 0 after `shutdown` and `exit`, and 1 otherwise.

    After a signal, the process exits with code 128 plus the signal number.
    """
    _prepare(_LSP_HINT)
    from thinklsp.lsp.protocol.fast_initialize import answer_initialize  # noqa: PLC0415 - not loaded for ACP

    greeting = answer_initialize()
    if not greeting.data:
        return 1
    from thinklsp.cli.logs import set_up_logs  # noqa: PLC0415 - loaded after the answer to `initialize`
    from thinklsp.core.import_context import reduce_gc  # noqa: PLC0415 - loaded after the answer to `initialize`

    set_up_logs()
    with reduce_gc():
        from thinklsp.settings.startup_settings import StartupSettingsReader  # noqa: PLC0415 - loaded after the answer to `initialize`

        # A thread reads the user's file while the main thread imports libraries.
        early = StartupSettingsReader(os.environ)
        from thinklsp.lsp.transport.connection import serve_stdio  # noqa: PLC0415 - loaded after the answer to `initialize`

    return serve_stdio(greeting, early)


def serve_acp() -> int:
    """Run the ACP agent until the client closes its end. Returns 0. After a signal, as for `serve`."""
    _prepare(_ACP_HINT)
    from thinklsp.acp.initialization import answer_initialize  # noqa: PLC0415 - not loaded for LSP

    first_input = answer_initialize()
    if not first_input.data:
        return 0
    from thinklsp.cli.logs import set_up_logs  # noqa: PLC0415 - loaded after the answer to `initialize`
    from thinklsp.core.import_context import reduce_gc  # noqa: PLC0415 - loaded after the answer to `initialize`

    set_up_logs()
    with reduce_gc():
        from thinklsp.acp.acp_server import serve_stdio  # noqa: PLC0415 - loaded after the answer to `initialize`

    return serve_stdio(first_input)


def _prepare(hint: str) -> None:
    """Exit on signals until the event loop handles signals. Ignored signals stay ignored."""
    gc.disable()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: os._exit(128 + number))
    if os.isatty(0):
        # Without a hint, a user who starts the server in a terminal sees no output.
        sys.stderr.write(hint)
