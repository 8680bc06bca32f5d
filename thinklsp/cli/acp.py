"""Serve one client of the Agent Client Protocol (ACP) on standard input and output, such as Zed or a JetBrains IDE.

The agent uses the same settings, keys and sessions as the language server.
"""

from __future__ import annotations

import argparse

from thinklsp.cli.serve_acp import serve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--setup", action="store_true", help="store the key of a provider, in a terminal, and exit")


def run(args: argparse.Namespace) -> int:
    """Run the command. Returns 0 if the client closed its end, or if a provider has a key."""
    if not args.setup:
        return serve()
    from thinklsp.cli.key_setup import run_key_setup  # noqa: PLC0415 - only this option needs it

    return run_key_setup()
