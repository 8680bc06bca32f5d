"""Nobody hears a word but the provider: all hostile folders in a world in which every address would listen."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.slow.decoyed import PLANTED
from tests.slow.hostile_repositories import HOSTILE
from tests.slow.lonely_world import lonely, why_not
from tests.slow.running import Tally
from tests.support.outside import ROOT, Json
from tests.support.sizes import tries

MINUTES = 10

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=f"DECOYS ARE NOT SET UP: {why_not()}"),
    pytest.mark.kernel,
]
if why_not() is not None:
    warnings.warn(f"decoys are not set up: {why_not()}", pytest.PytestWarning, stacklevel=1)


def heard(place: Path, *what: str) -> Json:
    argv = lonely([sys.executable, "-m", "tests.slow.decoyed", str(place / "x"), *what], place)
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60 * MINUTES, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads(done.stdout)


def test_nobody_else_is_spoken_to(tmp_path: Path, tally: Tally) -> None:
    assert heard(tmp_path) == {"courses": len(HOSTILE), "packets": {}, "heard": {}}
    assert tries("A-27") == len(HOSTILE)
    tally("A-27", len(HOSTILE))


def test_whoever_reaches_for_somebody_is_heard(tmp_path: Path) -> None:
    found = heard(tmp_path, "planted")
    assert [name for name in PLANTED if name not in found["packets"]] == []
    said = {port: text for port, text in found["heard"].items() if text}
    assert set(said) == {"80", "3128", "445", "11434"}
    assert said["80"].startswith("GET /latest/meta-data")
    assert said["3128"].startswith("GET http://elsewhere.example/")
