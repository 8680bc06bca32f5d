"""The language server: on standard input and output for one editor, or on a socket for many clients."""

from __future__ import annotations

import argparse
import os

from thinklsp.core.log_level import LOG_LEVEL_VARIABLE, LOG_LEVELS


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
    parser.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        help=f"what the log tells (default: warning); beats {LOG_LEVEL_VARIABLE} and the user's file",
    )
    parser.set_defaults(wrong=parser.error)


def run(args: argparse.Namespace) -> int:
    if args.log_level is not None:
        os.environ[LOG_LEVEL_VARIABLE] = args.log_level
    # Nothing is imported that is not needed: one kind of server knows nothing of the other, the terminal of neither.
    if args.tcp is not None or args.ws is not None:
        from thinklsp.cli.serve_sockets import serve  # noqa: PLC0415 - see above

        return serve(args)
    if args.token_file or args.no_token or args.allow_origin or args.listen_publicly:
        args.wrong("these options need --tcp or --ws")
    from thinklsp.cli import serve_stdio  # noqa: PLC0415 - see above

    return serve_stdio.serve()
