"""Watch a complete turn without a key, a network connection or any configuration. Your files stay unchanged.

The server's offline model replaces a real model. Everything else is real. The demo starts the language server as an
editor does and communicates with it over standard input and output.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine, Mapping
from typing import Any

from thinklsp.cli.demo_screen import DemoScreen
from thinklsp.cli.terminal import create_console
from thinklsp.core.import_context import reduce_gc
from thinklsp.offline.scenario import list_packaged, load_scenario
from thinklsp.offline.service import PAUSES_VARIABLE, SCENARIO_VARIABLE

_TERMINATED = 128 + signal.SIGTERM
NEXT_STEPS = """\
To use a real model, set ANTHROPIC_API_KEY, OPENAI_API_KEY or
GEMINI_API_KEY in your editor's environment. For a server of your own, set
THINKLSP_COMPATIBLE_BASE_URL, for example to http://localhost:11434/v1.

thinklsp demo --workspace .   review the folder that you are in, offline
thinklsp ask "…"              ask a question in this terminal
thinklsp doctor               check your configuration
thinklsp setup                add thinklsp to your editor"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(list_packaged())
    parser.add_argument(
        "--scenario", metavar="NAME", help=f"the script of the simulated model: a scenario file, or one of {names}"
    )
    parser.add_argument(
        "--workspace",
        metavar="DIR",
        help="run the demo in this folder; the model proposes changes, but nothing is written",
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo. Returns 0 if the edits arrived and, in the sample project, made the failing tests pass."""
    scenario = args.scenario or ("demo" if args.workspace is None else "review")
    load_scenario(scenario)  # Report an invalid scenario before the demo starts.
    console = create_console(sys.stdout)
    is_packaged = scenario in list_packaged()
    variables = {SCENARIO_VARIABLE: scenario if is_packaged else os.path.abspath(scenario)}
    if is_packaged and not console.is_terminal:
        variables[PAUSES_VARIABLE] = "off"
    with tempfile.TemporaryDirectory(prefix="thinklsp-demo-") as folder, DemoScreen(console) as screen:
        try:
            asyncio.run(_cancel_on_sigterm(_play(variables, os.path.realpath(folder), args.workspace, screen)))
        except asyncio.CancelledError:
            return _TERMINATED
    return 0


async def _cancel_on_sigterm(play: Coroutine[Any, Any, None]) -> None:
    """Run the demo. SIGTERM cancels the demo like Ctrl-C, so that the server exits and the folder is removed."""
    playing = asyncio.ensure_future(play)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
    await playing


async def _play(variables: Mapping[str, str], folder: str, workspace: str | None, screen: DemoScreen) -> None:
    started_at = time.monotonic()
    subtitle = "about 10 seconds; offline: no key, no network, your files stay unchanged"
    screen.print_title("thinklsp demo", subtitle=subtitle)
    with reduce_gc():
        # Print the title before importing pygls, because the import takes a quarter of a second.
        from thinklsp.cli.demo_script import play_course  # noqa: PLC0415 - imported after the title is shown
    usage = await play_course(screen, variables, folder, workspace)
    screen.print_blank()
    screen.print_note(f"{time.monotonic() - started_at:.1f} s · simulated: {usage}")
    screen.print_blank()
    screen.print_title("Next steps")
    screen.print_text(NEXT_STEPS)
