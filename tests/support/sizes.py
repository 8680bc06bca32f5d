"""The sizes of the suites: `SLOW` = quick (plain `pytest` and `.ci/run`), commit (`.ci/nightly`), nightly or release.

`tests/figures.toml` says how many tries a figure takes. `SLOW_SEED` chooses another random course through the suites.
Properties draw the same examples in every quick run. In the larger sizes they draw new ones, and a failure prints the
line that repeats it.
"""

from __future__ import annotations

import os
import random
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

Row = TypeVar("Row")

STEPS = ("quick", "commit", "nightly", "release")
STEP = os.environ.get("SLOW", "quick")
SEED = int(os.environ.get("SLOW_SEED", "20261120"))

if STEP not in STEPS:
    raise ValueError(f"SLOW is one of {', '.join(STEPS)}, not {STEP!r}")


@cache
def figures() -> dict[str, dict[str, Any]]:
    """The rows of `figures.toml` by their id."""
    text = (Path(__file__).parents[1] / "figures.toml").read_text("utf-8")
    return {row["id"]: row for row in tomllib.loads(text)["figure"]}


def tries(figure: str, share: float = 1) -> int:
    """How many this step takes of a figure; `share`, where several tests make it up together."""
    row = figures()[figure]
    return max(1, round(share * row["commit" if STEP == "quick" else STEP]))


def sized(*, commit: int, nightly: int, release: int | None = None) -> int:
    """Of what is no figure. `release`: as nightly."""
    if STEP == "release":
        return nightly if release is None else release
    return nightly if STEP == "nightly" else commit


def some(rows: Iterable[Row], *, commit: int) -> list[Row]:
    """Return all rows, or in a quick or commit run `commit` of them, which `SLOW_SEED` selects."""
    whole = list(rows)
    return whole if STEP in ("nightly", "release") else random.Random(SEED).sample(whole, commit)


def examples(usual: int) -> int:
    """Of a property in the default suite: a sixth of the usual number there, ten and a hundred times as many later."""
    return {"quick": max(1, usual // 6), "commit": usual, "nightly": 10 * usual, "release": 100 * usual}[STEP]


def lots(total: int, size: int) -> list[int]:
    """`total` cut into lots of at most `size`, one per server process."""
    return [min(size, total - start) for start in range(0, total, size)]
