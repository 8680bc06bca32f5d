"""JSON as its standard has it. Python's own reader takes numbers that no other reader does, and its writer writes them:
what came in so could never be sent again.
"""

from __future__ import annotations

import json
import math
from typing import Literal


def read_json(text: str, *, odd_numbers: Literal["refuse", "null"] = "refuse") -> object:
    """The value of the text. `odd_numbers`: NaN, infinity, and figures too large to be held, be they a reason to refuse
    the text or read as null. Raises ValueError, also for what nests too deep to be read."""

    def number(figure: str) -> float | None:
        value = float(figure)
        if math.isfinite(value):
            return value
        if odd_numbers == "refuse":
            raise ValueError(f"{figure[:20]} is no number that JSON can hold")
        return None

    try:
        value: object = json.loads(text, parse_constant=number, parse_float=number)
    except RecursionError:
        raise ValueError("it nests too deep") from None
    return value


def json_bytes(value: object) -> bytes:
    """UTF-8 that every reader takes. Half of a surrogate pair, as models and editors may send one, is no text to most,
    and what holds it is refused now and ever after: it becomes U+FFFD, and two halves that meet one character.

    Raises TypeError or ValueError for what JSON cannot hold.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")


def is_shallow(value: object, depth: int) -> bool:
    """Whether containers nest at most `depth` deep. Deeper JSON can be readable here and yet fail to be written into
    the next request, which would leave the conversation unusable."""
    level = [value]
    for _ in range(depth + 1):
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return True
    return False
