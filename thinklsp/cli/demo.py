"""Watch a whole turn with nothing to configure: no key, no network, no file of yours is touched.

The model is the offline simulator on a loopback port. Everything else is real: the language server is started as an
editor would start it and driven over its standard input and output.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine
from typing import Any

from thinklsp.cli.demo_screen import Screen
from thinklsp.cli.terminal import console_for
from thinklsp.core.loading import uncollected
from thinklsp.simulator.scenario import Pacing, Scenario, Step, load, packaged
from thinklsp.simulator.server import Simulator

_TERMINATED = 128 + signal.SIGTERM
_NEXT = """\
Give your editor ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY – or THINKLSP_COMPATIBLE_BASE_URL for a
server of your own, like http://localhost:11434/v1 – and the same server talks to a real model.
`thinklsp doctor` says what would be used and what is missing.
`thinklsp demo --workspace .` looks at your folder; `thinklsp ask "…"` runs one turn here.
The README shows the set-up for each editor."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(packaged())
    parser.add_argument("--scenario", metavar="NAME", help=f"what the model does: a scenario file, or one of {names}")
    parser.add_argument(
        "--workspace", metavar="DIR", help="use this folder: the model looks and proposes, nothing is written"
    )


def run(args: argparse.Namespace) -> int:
    """0 only when the edits arrived and, in the sample project, the tests went from red to green."""
    scenario = load(args.scenario or ("demo" if args.workspace is None else "review"))
    console = console_for(sys.stdout)
    if not console.is_terminal and args.scenario in (None, *packaged()):
        scenario = _hurried(scenario)
    with tempfile.TemporaryDirectory(prefix="thinklsp-demo-") as folder, Screen(console) as screen:
        try:
            asyncio.run(_stoppable(_play(scenario, os.path.realpath(folder), args.workspace, screen)))
        except asyncio.CancelledError:
            return _TERMINATED
    return 0


async def _stoppable(play: Coroutine[Any, Any, None]) -> None:
    """Told to end, it leaves through every `finally`, so that server and folder are gone as after Ctrl-C."""
    playing = asyncio.ensure_future(play)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
    await playing


def _hurried(scenario: Scenario) -> Scenario:
    """The same course without pauses: nobody is watching."""
    turns = [turn.model_copy(update={"step": tuple(map(_unpaced, turn.step))}) for turn in scenario.turn]
    return scenario.model_copy(update={"pacing": Pacing(), "turn": tuple(turns)})


def _unpaced(step: Step) -> Step:
    blocks = tuple(part.model_copy(update={"delay_ms": 0}) for part in step.block)
    return step.model_copy(update={"pacing": Pacing(), "block": blocks})


async def _play(scenario: Scenario, folder: str, workspace: str | None, screen: Screen) -> None:
    begun = time.monotonic()
    screen.title("thinklsp demo", aside="offline: no key, no network, none of your files is written")
    with uncollected():
        # Loading pygls takes a quarter of a second, so the title is shown before.
        from thinklsp.cli.demo_course import play_course  # noqa: PLC0415 - see above
    async with Simulator(scenario) as simulator:
        usage = await play_course(screen, simulator.base_url, folder, workspace)
    screen.blank()
    screen.note(f"{time.monotonic() - begun:.1f} s · simulated: {usage}")
    screen.blank()
    screen.title("Where to go next")
    screen.say(_NEXT)
