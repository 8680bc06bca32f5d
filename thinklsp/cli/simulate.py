"""The offline stand-in for the model services, alone: plays a scenario on a loopback port until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress

from thinklsp.simulator.journal import RecordedRequest
from thinklsp.simulator.scenario import Scenario, load, packaged
from thinklsp.simulator.server import Simulator

_HIGHEST_PORT = 65535
# Key, variable of the base URL, and what that ends in, for each service that one port plays.
_USES = (
    ("ANTHROPIC_API_KEY=simulator ", "ANTHROPIC_BASE_URL", ""),
    ("OPENAI_API_KEY=simulator ", "OPENAI_BASE_URL", "/v1"),
    ("GEMINI_API_KEY=simulator ", "GOOGLE_GEMINI_BASE_URL", ""),
    ("", "THINKLSP_COMPATIBLE_BASE_URL", "/v1"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=_port, default=0, metavar="N", help="the port to listen on (default: any free one)"
    )
    parser.add_argument(
        "--scenario",
        default="sample",
        metavar="FILE",
        help=f"what the model does: a scenario file, or one of {', '.join(packaged())} (default: sample)",
    )


def run(args: argparse.Namespace) -> int:
    """Ends by Ctrl-C only, which is its good end."""
    scenario = load(args.scenario)
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(scenario, args.port))
    return 0


async def _serve(scenario: Scenario, port: int) -> None:
    async with Simulator(scenario, port, on_finished=_tell) as simulator:
        _say(f"Playing the scenario “{scenario.name}” on {simulator.base_url} until Ctrl-C. Use it with one of:")
        for key, variable, path in _USES:
            _say(f"export {key}{variable}={simulator.base_url}{path}")
        await asyncio.Event().wait()


def _tell(request: RecordedRequest) -> None:
    outcome = "the client left" if request.closed_by_client else str(request.status or "cut off")
    _say(f"{request.method} {request.path}: {outcome}" + (f" ({request.played})" if request.played else ""))


def _say(line: str) -> None:
    """At once, also into a pipe: programs wait for the address."""
    print(line, flush=True)


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= _HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{port} is no port; they go up to {_HIGHEST_PORT}")
    return port
