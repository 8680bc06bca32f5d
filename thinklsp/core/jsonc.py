"""JSON with comments and trailing commas, as VS Code and other editors write their settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
