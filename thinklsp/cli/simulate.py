"""Run the offline provider simulator, which plays a scenario on a loopback port until you press Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress

from thinklsp.simulator.http_server import Simulator
from thinklsp.simulator.journal import RecordedRequest
from thinklsp.simulator.scenario import Scenario, list_packaged, load_scenario

_MAX_PORT = 65535
# The API key variable, the base URL variable and the path of the base URL for each provider.
_EXPORTS = (
    ("ANTHROPIC_API_KEY=simulator ", "ANTHROPIC_BASE_URL", ""),
    ("OPENAI_API_KEY=simulator ", "OPENAI_BASE_URL", "/v1"),
    ("GEMINI_API_KEY=simulator ", "GOOGLE_GEMINI_BASE_URL", ""),
    ("", "THINKLSP_COMPATIBLE_BASE_URL", "/v1"),
)


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
    """Run the simulator until the user presses Ctrl-C. Returns 0."""
    scenario = load_scenario(args.scenario)
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(scenario, args.port))
    return 0


async def _serve(scenario: Scenario, port: int) -> None:
    async with Simulator(scenario, port, on_finished=_report_request) as simulator:
        _print_line(
            f"Playing the scenario “{scenario.name}” on {simulator.base_url} until Ctrl-C. To use it, run one of:"
        )
        for key, variable, path in _EXPORTS:
            _print_line(f"export {key}{variable}={simulator.base_url}{path}")
        await asyncio.Event().wait()


def _report_request(request: RecordedRequest) -> None:
    outcome = "the client disconnected" if request.closed_by_client else str(request.status or "interrupted")
    _print_line(f"{request.method} {request.path}: {outcome}" + (f" ({request.played})" if request.played else ""))


def _print_line(line: str) -> None:
    """Print a line and flush it, because a program may be reading the address from a pipe."""
    print(line, flush=True)


def _parse_port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= _MAX_PORT:
        raise argparse.ArgumentTypeError(f"invalid port {port}; use 0 to {_MAX_PORT}")
    return port
