"""Reads the command line and hands over. Exit codes: 0 good, 1 failed, 2 wrong usage, 130 after Ctrl-C."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TextIO

from thinklsp import __version__
from thinklsp.cli import serve
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.loading import uncollected
from thinklsp.tools.shown import visible

# Subcommand -> its module, which has `add_arguments(parser)` and `run(args) -> exit code`, and its help line.
COMMANDS = {
    "demo": "watch a whole turn on a sample project, offline",
    "ask": "one chat turn in the terminal",
    "sessions": "conversations that are kept: list, show, export, delete, repair, fork",
    "simulate": "the offline stand-in for the model services, alone",
    "doctor": "what would be used, why, and how to mend what is wrong",
    "config": "the settings: their JSON Schema, or a table of them",
}
_INTERRUPTED = 130


def run(argv: Sequence[str]) -> int:
    """The exit code. Wrong usage raises SystemExit(2), as argparse does, and so does a help text, with 0."""
    try:
        return _run(argv)
    except SystemExit:
        # A help text or version that could not be written is not a success.
        try:
            sys.stdout.flush()
        except OSError as error:
            return _unwritten("thinklsp", error)
        raise


def _run(argv: Sequence[str]) -> int:
    if argv and argv[0] in COMMANDS:
        return _guarded(argv[0], argv[1:])
    parser = argparse.ArgumentParser(
        prog="thinklsp",
        usage="thinklsp [--stdio | --tcp HOST:PORT | --ws HOST:PORT] [OPTION …]\n       thinklsp COMMAND …",
        description="A language server that thinks. Without a command it serves one editor on standard input and "
        "output.",
        epilog="commands (each has a --help of its own):\n"
        + "\n".join(f"  {name:<10}{text}" for name, text in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"thinklsp {__version__}")
    serve.add_arguments(parser)
    parser.add_argument("command", nargs="?", choices=sorted(COMMANDS), help=argparse.SUPPRESS)
    args = parser.parse_args(list(argv[1:] if argv[:1] == ["serve"] else argv))
    if args.command is not None:
        parser.error(f"nothing stands before {args.command}")
    return serve.run(args)


def _guarded(name: str, argv: Sequence[str]) -> int:
    """A terminal command: what goes wrong is one sentence on standard error."""
    try:
        code = _entry(name, argv)
        sys.stdout.flush()
        return code
    except ThinkLspError as error:
        # The sentence may quote a name of a file or a word of a server.
        sys.stderr.write(f"thinklsp {name}: {visible(str(error))}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"\nthinklsp {name}: stopped.\n")
        return _INTERRUPTED
    except OSError as error:
        # One with a name is about a file that we should have looked after.
        if error.filename is not None:
            raise
        return _unwritten(f"thinklsp {name}", error)


def _unwritten(name: str, error: OSError) -> int:
    """What we print cannot be written. Nothing must be flushed there at the exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    # Whoever read it has enough, such as `head`, or has to hear that it is not whole.
    if not isinstance(error, BrokenPipeError):
        sys.stderr.write(f"{name}: it could not go on: {error.strerror}.\n")
    return 1


def _entry(name: str, argv: Sequence[str]) -> int:
    with uncollected():
        module = import_module(f"thinklsp.cli.{name}")
    parser = argparse.ArgumentParser(prog=f"thinklsp {name}", description=module.__doc__)
    module.add_arguments(parser)
    command: Callable[[argparse.Namespace], int] = module.run
    return command(parser.parse_args(list(argv)))


def prepare_streams() -> bool:
    """Open the standard streams that are closed, and let them take any text. Return whether standard output was open.

    A closed descriptor is filled first: the next file that is opened would get its number, and what is printed with it.
    """
    is_open = [_fill(number) for number in range(3)]
    # Python leaves out the stream of a descriptor that was closed.
    sys.stdin = sys.stdin or _open_text(0, "r")
    sys.stdout = sys.stdout or _open_text(1, "w")
    sys.stderr = sys.stderr or _open_text(2, "w")
    for stream in (sys.stdout, sys.stderr):
        _take_any_text(stream)
    return is_open[1]


def _fill(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        os.open(os.devnull, os.O_RDWR)
        return False
    return True


def _open_text(descriptor: int, mode: str) -> TextIO:
    return io.TextIOWrapper(io.FileIO(descriptor, mode, closefd=False), encoding="utf-8")


def _take_any_text(stream: TextIO) -> None:
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
