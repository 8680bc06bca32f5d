"""How much the slow suites do: `SLOW=commit`, the default and what CI runs, or `SLOW=full`.

`SLOW_SEED` takes another course through the same suites. Nothing else is random: a failing run can be repeated.
"""

from __future__ import annotations

import os

STEP = os.environ.get("SLOW", "commit")
SEED = int(os.environ.get("SLOW_SEED", "20261120"))

if STEP not in ("commit", "full"):
    raise ValueError(f"SLOW is commit or full, not {STEP!r}")


def sized(*, commit: int, full: int) -> int:
    return full if STEP == "full" else commit


def examples(full: int) -> int:
    """Of a property in the default suite: a third of them. `SLOW=full pytest -m hypothesis` tries all."""
    return sized(commit=full // 3, full=full)


def lots(total: int, size: int) -> list[int]:
    """`total` cut into lots of at most `size`, one per server process."""
    return [min(size, total - start) for start in range(0, total, size)]
