"""Strict JSON, and JSON with comments."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal


def read_json(text: str, *, non_finite: Literal["refuse", "null"] = "refuse") -> object:
    """Parse JSON text.

    If `non_finite` is `null`, NaN, infinity and numbers too large for a float become null. Otherwise, they raise
    ValueError. Invalid JSON and JSON that is nested too deeply always raise ValueError.
    """
    try:
        value: object = _DECODERS[non_finite].decode(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    return value


def _parse_finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _require_finite(text: str) -> float:
    if (value := _parse_finite(text)) is None:
        raise ValueError(f"{text[:20]} is not a finite number")
    return value


_CONTAINERS = (dict, list)

# The decoders are created only once, because each token in a stream is a separate JSON text.
_DECODERS = {
    "refuse": json.JSONDecoder(parse_constant=_require_finite, parse_float=_require_finite),
    "null": json.JSONDecoder(parse_constant=_parse_finite, parse_float=_parse_finite),
}


def encode_json(value: object, default: Callable[[Any], object] | None = None) -> bytes:
    """Encode the value as strict UTF-8 JSON.

    Models and editors may send unpaired surrogates, which most JSON parsers reject. Each unpaired surrogate becomes
    U+FFFD, and adjacent halves of a pair become one character. `default` converts values that JSON does not support.
    Raises TypeError or ValueError for values that cannot be converted.
    """
    text = json.dumps(value, default=default, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")


def is_shallow(value: object, max_depth: int, text: str | None = None) -> bool:
    """Return whether arrays and objects are nested at most `max_depth` levels deep.

    The encoder supports less depth than the parser. A value between these limits makes a session unusable, because the
    next request cannot be encoded. `text` is the value's JSON text, which makes the check of a flat value fast.
    """
    if text is not None and text.count("{") + text.count("[") <= max_depth:
        return True
    level: list[Any] = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(max_depth):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, _CONTAINERS)
        ]
        if not level:
            return True
    return not any(level)


_TOKEN = re.compile(
    r"""(?P<skip>[\s\ufeff]+|//[^\n]*|/\*.*?\*/)|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<mark>[{}\[\],:])|(?P<atom>[^\s{}\[\],:"/]+)""",
    re.DOTALL,
)


@dataclass(frozen=True)
class FoundObject:
    """An object in a text. `start` is the offset behind its brace, and `depth` the number of keys on its path."""

    start: int
    depth: int
    is_empty: bool


def parse_jsonc(text: str) -> Any:
    """Return the value of the text. Raises ValueError."""
    words: list[str] = []
    for token in _tokenize(text):
        if token[0] in "}]" and words and words[-1] == ",":
            words.pop()
        words.append(token[0])
    return json.loads(" ".join(words))


def find_object(text: str, keys: Sequence[str]) -> FoundObject | None:
    """Return the object at the path of keys, or the innermost one that exists. None if the text is wrong."""
    try:
        value = parse_jsonc(text)
    except ValueError:
        return None
    tokens = list(_tokenize(text))
    if not isinstance(value, dict):
        return None
    index = depth = 0
    while depth < len(keys) and keys[depth] in value:
        value = value[keys[depth]]
        if not isinstance(value, dict):
            return None
        index = _find_member(tokens, index, keys[depth])
        depth += 1
    return FoundObject(tokens[index].end(), depth, is_empty=tokens[index + 1][0] == "}")


def _find_member(tokens: Sequence[re.Match[str]], opening: int, key: str) -> int:
    """Return the index of the token with which the last member of that name in the object begins, like `json` does."""
    nesting, found = 0, opening
    for index in range(opening, len(tokens)):
        word = tokens[index][0]
        nesting += (word in "{[") - (word in "}]")
        if nesting == 0:
            break
        if nesting == 1 and tokens[index]["string"] and tokens[index + 1][0] == ":" and json.loads(word) == key:
            found = index + 2
    return found


def _tokenize(text: str) -> Iterator[re.Match[str]]:
    """Yield the tokens without comments and space. Raises ValueError."""
    offset = 0
    while offset < len(text):
        token = _TOKEN.match(text, offset)
        if token is None:
            raise ValueError(f"unexpected character at {offset}")
        offset = token.end()
        if token["skip"] is None:
            yield token
