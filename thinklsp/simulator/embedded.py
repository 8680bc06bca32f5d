"""The simulator inside a server, for users who try thinklsp offline."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thinklsp.simulator.http_server import Simulator


def create_sample_simulator() -> Simulator:
    """Return a simulator that plays the scenario `sample`. The first call imports the simulator, so use a thread.

    Its journal keeps one request, because nobody reads the journal and each request contains the whole conversation.
    """
    from thinklsp.simulator.http_server import Simulator  # noqa: PLC0415 - a fifth of the engine's import time
    from thinklsp.simulator.scenario import load_scenario  # noqa: PLC0415 - a fifth of the engine's import time

    return Simulator(load_scenario("sample"), max_requests=1)
