"""The entry point for the command line.

The exit code is 0 for success, 1 for failure, 2 for wrong usage, and 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from thinklsp import __version__
from thinklsp.core.choices import LOG_LEVEL_VARIABLE, LOG_LEVELS
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.import_context import reduce_gc
from thinklsp.core.text_safety import escape_invisible

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

# Maps each subcommand to its help text. The module of the same name defines `add_arguments(parser)` and `run(args)`.
COMMANDS = {
    "demo": "watch a complete turn on a sample project, offline",
    "ask": "run one chat turn in the terminal",
    "sessions": "list, show, export, rename, delete, repair, restore or fork sessions",
    "simulate": "serve the offline model on a loopback port",
    "acp": "serve an editor that speaks the Agent Client Protocol",
    "mcp": "list, test, approve or pin MCP servers, which give the model more tools",
    "store": "create, check, prune or copy the database in which a team keeps its sessions",
    "setup": "add thinklsp to an editor, or take it out again",
    "doctor": "check the configuration and suggest fixes",
    "config": "print a JSON Schema or a table of the settings",
    "uninstall-data": "list what thinklsp keeps on this machine, and delete it after a yes",
}
_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """A parser that exits with 1 if the help text or the version cannot be written."""

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        # The method of the base class ignores errors.
        if file is not sys.stdout:
            super()._print_message(message, file)
            return
        try:
            print(message, end="", flush=True)
        except OSError as error:
            self.exit(_report_write_error(self.prog, error))


def run(argv: Sequence[str]) -> int:
    """Run the command line and return the exit code.

    Raises SystemExit(2) for wrong usage, or SystemExit(0) after printing the help text or the version.
    """
    if argv and argv[0] in COMMANDS:
        return _run_command(argv[0], argv[1:])
    parser = _Parser(
        prog="thinklsp",
        usage="thinklsp [--stdio | --tcp HOST:PORT | --ws HOST:PORT] [OPTION …]\n       thinklsp COMMAND …",
        description="A language server that runs an AI coding assistant. Without a command, it serves one editor on "
        "standard input and output.",
        epilog="commands (for help: thinklsp COMMAND --help):\n"
        + "\n".join(f"  {name:<16}{text}" for name, text in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"thinklsp {__version__}")
    _add_server_arguments(parser)
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    args, rest = parser.parse_known_args(list(argv))
    # The value of a mistyped option looks like a command, so the options come first.
    if options := [word for word in rest if word.startswith("-")]:
        parser.error(f"unrecognized arguments: {' '.join(options)}")
    if args.command in COMMANDS:
        parser.error(f"the command {args.command} must come first")
    if args.command is not None:
        names = ", ".join(map(repr, sorted(COMMANDS)))
        parser.error(f"argument command: invalid choice: {args.command!r} (choose from {names})")
    return _serve(args)


def _add_server_arguments(parser: argparse.ArgumentParser) -> None:
    transports = parser.add_mutually_exclusive_group()
    transports.add_argument(
        "--stdio", action="store_true", help="serve one editor on standard input and output (default)"
    )
    transports.add_argument(
        "--tcp", metavar="HOST:PORT", help="serve many clients over TCP; port 0 means any free port"
    )
    transports.add_argument("--ws", metavar="HOST:PORT", help="serve many clients over WebSocket, including browsers")
    sockets = parser.add_argument_group(
        "with --tcp or --ws", "Without --token-file, the server prints a new token when it starts."
    )
    sockets.add_argument(
        "--token-file",
        metavar="FILE",
        help="file that contains the token that clients must send; it must be readable only by you",
    )
    sockets.add_argument("--no-token", action="store_true", help="accept clients without a token (--tcp only)")
    sockets.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="origin of web pages that may connect, for example https://ide.example.com; repeatable (--ws only)",
    )
    sockets.add_argument(
        "--metrics",
        metavar="[HOST:]PORT",
        help="serve /health, /ready and /metrics over HTTP (default host: 127.0.0.1)",
    )
    sockets.add_argument("--listen-publicly", action="store_true", help="allow a HOST that other machines can reach")
    parser.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        help=f"log level (default: warning); overrides {LOG_LEVEL_VARIABLE} and the user's file",
    )
    parser.set_defaults(wrong=parser.error)


def _serve(args: argparse.Namespace) -> int:
    if args.log_level is not None:
        os.environ[LOG_LEVEL_VARIABLE] = args.log_level
    # Import only the modules for the chosen transport, because imports slow down the start.
    if args.tcp is not None or args.ws is not None:
        from thinklsp.cli.serve_sockets import serve  # noqa: PLC0415 - only this kind of server needs it

        return serve(args)
    if args.token_file or args.no_token or args.allow_origin or args.listen_publicly or args.metrics is not None:
        args.wrong("these options require --tcp or --ws")
    from thinklsp.cli import serve_stdio  # noqa: PLC0415 - only this kind of server needs it

    return serve_stdio.serve()


def _run_command(name: str, argv: Sequence[str]) -> int:
    """Run a subcommand. If it fails, print a message to standard error."""
    try:
        with reduce_gc():
            module = import_module(f"thinklsp.cli.{name.replace('-', '_')}")
        parser = _Parser(prog=f"thinklsp {name}", description=module.__doc__)
        module.add_arguments(parser)
        code: int = module.run(parser.parse_args(list(argv)))
        sys.stdout.flush()
        return code
    except ThinkLspError as error:
        # Escape invisible characters, because the message may contain a file name or a response from a server.
        sys.stderr.write(f"thinklsp {name}: {escape_invisible(str(error))}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"\nthinklsp {name}: stopped.\n")
        return _INTERRUPTED
    except OSError as error:
        # Commands catch file errors themselves, so an OSError with a file name is a bug.
        if error.filename is not None:
            raise
        return _report_write_error(f"thinklsp {name}", error)


def _report_write_error(name: str, error: OSError) -> int:
    """Report that standard output cannot be written to, and discard further output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    # Readers such as `head` close the pipe early. This is not an error.
    if not isinstance(error, BrokenPipeError):
        sys.stderr.write(f"{name}: cannot write the output: {error.strerror}.\n")
    return 1


def prepare_streams() -> bool:
    """Open closed standard streams and make them accept any text. Return True if standard output was open.

    If a standard descriptor is closed, the next opened file gets its number and receives the program's output.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    # Python has set a standard stream to None if its descriptor was closed.
    is_open = sys.stdout is not None
    sys.stdin = sys.stdin or os.fdopen(0, "r", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return is_open
