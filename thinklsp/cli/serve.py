"""The language server: on standard input and output for one editor, or on a socket for many clients."""

from __future__ import annotations

import argparse
import logging
import os
import sys

from thinklsp.sessions.state_folder import LOG_NAME, state_folder

_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LOG_LIMIT = 1_000_000
# Libraries that would log message bodies or addresses.
_PINNED = ("pygls", "httpx", "httpcore", "asyncio", "websockets")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--stdio", action="store_true", help="serve one editor on standard input and output (default)")
    where.add_argument("--tcp", metavar="HOST:PORT", help="serve many clients over TCP; port 0 takes any free one")
    where.add_argument("--ws", metavar="HOST:PORT", help="serve many clients over WebSocket, those in browsers too")
    sockets = parser.add_argument_group(
        "with --tcp or --ws", "Without --token-file a new token is printed at the start."
    )
    sockets.add_argument(
        "--token-file", metavar="FILE", help="the token that clients must bring; the file must be yours alone"
    )
    sockets.add_argument(
        "--no-token", action="store_true", help="every program on this machine may come in (--tcp only)"
    )
    sockets.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="web pages that may connect, such as https://ide.example.com; can be repeated (--ws only)",
    )
    sockets.add_argument(
        "--listen-publicly", action="store_true", help="let HOST be an address that other machines can reach"
    )
    parser.set_defaults(wrong=parser.error)


def run(args: argparse.Namespace) -> int:
    os.umask(0o077)
    _set_up_logs()
    # Nothing is imported that is not needed: one kind of server knows nothing of the other, the terminal of neither.
    if args.tcp or args.ws:
        from thinklsp.cli.serve_sockets import serve  # noqa: PLC0415 - see above

        return serve(args)
    if args.token_file or args.no_token or args.allow_origin or args.listen_publicly:
        args.wrong("these options need --tcp or --ws")
    from thinklsp.lsp.stdio import serve_stdio  # noqa: PLC0415 - see above

    return serve_stdio()


def _set_up_logs() -> None:
    """Warnings and worse; the file is made when the first one comes, readable by the user alone."""
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
