"""The offline model inside a server."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import thinklsp.engine.engine

print("thinklsp.offline.service" in sys.modules)
"""


def test_the_engine_loads_the_offline_model_only_if_it_is_used() -> None:
    done = subprocess.run((sys.executable, "-c", PROGRAM), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
