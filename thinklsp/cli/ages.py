"""Ages on the command line, such as 90d or 12w."""

from __future__ import annotations

import argparse
import re
from datetime import timedelta

_AGE = re.compile(r"([0-9]{1,4})([dw])")
_UNITS = {"d": "days", "w": "weeks"}


def parse_age(argument: str) -> timedelta:
    """Parse an age in days or weeks. Raises ArgumentTypeError."""
    match = _AGE.fullmatch(argument)
    if match is None:
        raise argparse.ArgumentTypeError(f"invalid age {argument!r}; use a value such as 90d (days) or 12w (weeks)")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
