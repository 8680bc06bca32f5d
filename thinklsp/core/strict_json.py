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
    try:
        value: object = _READERS[odd_numbers].decode(text)
    except RecursionError:
        raise ValueError("it nests too deep") from None
    return value


def _refused(figure: str) -> float:
    value = float(figure)
    if math.isfinite(value):
        return value
    raise ValueError(f"{figure[:20]} is no number that JSON can hold")


def _null(figure: str) -> float | None:
    value = float(figure)
    return value if math.isfinite(value) else None


# Made once: a stream has an event for each token.
_READERS = {
    "refuse": json.JSONDecoder(parse_constant=_refused, parse_float=_refused),
    "null": json.JSONDecoder(parse_constant=_null, parse_float=_null),
}


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


def is_shallow(value: object, depth: int, text: str | None = None) -> bool:
    """Whether containers nest at most `depth` deep. Deeper JSON can be readable here and yet fail to be written into
    the next request, which would leave the conversation unusable. `text`: what the value was read from; where hardly
    a bracket stands, nothing needs to be walked through."""
    if text is not None and text.count("{") + text.count("[") <= depth:
        return True
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
