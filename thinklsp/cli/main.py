"""Reads the command line and hands over. Exit codes: 0 good, 1 failed, 2 wrong usage."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module

from thinklsp import __version__

# Subcommand -> its module, which has `add_arguments(parser)` and `run(args) -> exit code`, and its help line.
COMMANDS = {
    "demo": "watch a whole turn on a sample project, offline",
    "ask": "one chat turn in the terminal",
    "simulate": "the offline stand-in for the model services, alone",
    "doctor": "what would be used, why, and how to mend what is wrong",
    "config": "the settings: `config schema` prints their JSON Schema",
}


def run(argv: Sequence[str]) -> int:
    """The exit code. Wrong usage raises SystemExit(2), as argparse does."""
    if not argv or argv[0] in ("--stdio", "serve"):
        return _entry("serve", argv[1:])
    if argv[0] in COMMANDS:
        return _entry(argv[0], argv[1:])
    parser = argparse.ArgumentParser(
        prog="thinklsp",
        description="A language server that thinks. Without a command it serves one editor on standard input and "
        "output.",
        epilog="commands:\n" + "\n".join(f"  {name:<10}{text}" for name, text in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"thinklsp {__version__}")
    parser.add_argument("--stdio", action="store_true", help="serve an editor on standard input and output (default)")
    parser.add_argument("command", nargs="?", choices=sorted(COMMANDS), help=argparse.SUPPRESS)
    parser.parse_args(list(argv))
    return 2


def _entry(name: str, argv: Sequence[str]) -> int:
    module = import_module(f"thinklsp.cli.{name}")
    parser = argparse.ArgumentParser(prog=f"thinklsp {name}", description=module.__doc__)
    module.add_arguments(parser)
    command: Callable[[argparse.Namespace], int] = module.run
    return command(parser.parse_args(list(argv)))
