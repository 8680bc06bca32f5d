"""The ACP agent on standard input and output. It responds to `initialize` before it imports most of its modules."""

from __future__ import annotations

import gc
import os
import sys

from thinklsp.acp.initialization import answer_initialize
from thinklsp.cli.early_signals import exit_on_signals

# Each line fits in 80 columns.
_TERMINAL_HINT = """\
thinklsp is waiting for messages of the Agent Client Protocol on standard input.
Editors start it for you: see `thinklsp setup zed`, `thinklsp setup jetbrains`
and `thinklsp doctor --acp`. Press Ctrl-C to stop it.
"""


def serve() -> int:
    """Serve the client until it closes its end. Returns 0. After a signal, the code is 128 plus the signal number."""
    gc.disable()
    exit_on_signals()
    if os.isatty(0):
        sys.stderr.write(_TERMINAL_HINT)
    first_input = answer_initialize()
    if not first_input.data:
        return 0
    # Import the rest of the server after responding to `initialize`, because the imports are slow.
    from thinklsp.cli.logs import set_up_logs  # noqa: PLC0415 - loaded after the answer to `initialize`
    from thinklsp.core.import_context import reduce_gc  # noqa: PLC0415 - loaded after the answer to `initialize`

    set_up_logs()
    with reduce_gc():
        from thinklsp.acp.acp_server import serve_stdio  # noqa: PLC0415 - loaded after the answer to `initialize`

    return serve_stdio(first_input)
