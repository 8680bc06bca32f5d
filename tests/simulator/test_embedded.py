"""The simulator inside a server."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import thinklsp.engine.engine
from thinklsp.simulator.embedded import create_sample_simulator

before = "thinklsp.simulator.http_server" in sys.modules
create_sample_simulator()
print(before, "thinklsp.simulator.http_server" in sys.modules)
"""


def test_the_engine_loads_the_simulator_only_if_it_is_used() -> None:
    done = subprocess.run((sys.executable, "-c", PROGRAM), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
