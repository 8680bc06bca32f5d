"""Run the offline model, which plays a scenario on a loopback port until you press Ctrl-C."""

from __future__ import annotations

import argparse
from contextlib import suppress

from thinklsp.offline.scenario import list_packaged, load_scenario
from thinklsp.offline.service import OfflineServer, OfflineService

_MAX_PORT = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=_parse_port, default=0, metavar="N", help="the port to listen on (default: any free port)"
    )
    parser.add_argument(
        "--scenario",
        default="sample",
        metavar="FILE",
        help="the script of the simulated model: a scenario file, or one of "
        f"{', '.join(list_packaged())} (default: sample)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve Anthropic's Messages API until the user presses Ctrl-C. Returns 0."""
    scenario = load_scenario(args.scenario)
    with OfflineServer(OfflineService(scenario), args.port, _print_line) as server, suppress(KeyboardInterrupt):
        _print_line(f"Playing the scenario “{scenario.name}” on {server.base_url} until Ctrl-C. To use it, run:")
        _print_line(f"export ANTHROPIC_API_KEY=simulator ANTHROPIC_BASE_URL={server.base_url}")
        server.serve_forever()
    return 0


def _print_line(line: str) -> None:
    """Print a line and flush it, because a program may be reading the address from a pipe."""
    print(line, flush=True)


def _parse_port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= _MAX_PORT:
        raise argparse.ArgumentTypeError(f"invalid port {port}; use 0 to {_MAX_PORT}")
    return port
