"""Placeholders in scripted text: `{{user}}`, `{{user:regex}}`, `{{result:N}}`, `{{result:N:regex}}` and `{{model}}`.

A placeholder with a regular expression is replaced with the expression's first group, or with the entire match if the
expression has no group. If the expression does not match, the placeholder is removed. The expression may end with a
brace, as in `{1,3}`. Other text in double braces stays unchanged, because models also write templates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_PLACEHOLDER = re.compile(r"\{\{(?:(user)|result:(\d+)|(model))(?::(.*?))?\}\}(?!\})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PlaceholderValues:
    """The values that replace placeholders: the last prompt, the latest tool results and the model name."""

    user: str
    results: tuple[str, ...]
    model: str


def fill_placeholders(value: Any, values: PlaceholderValues) -> Any:
    """Return a copy of a string, list or table with all placeholders replaced. Keys and other values are unchanged."""
    return _map_text(value, lambda text: _PLACEHOLDER.sub(lambda match: _resolve_placeholder(match, values), text))


def check_template(value: Any) -> None:
    """Raise ValueError if a placeholder has the result number 0 or an invalid regular expression."""
    _map_text(value, _check_text)


def _map_text(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case Mapping():
            return {key: _map_text(item, change) for key, item in value.items()}
        case list() | tuple():
            return [_map_text(item, change) for item in value]
        case _:
            return value


def _check_text(text: str) -> str:
    for match in _PLACEHOLDER.finditer(text):
        _check_placeholder(match)
    return text


def _check_placeholder(match: re.Match[str]) -> None:
    if match[2] == "0":
        raise ValueError(f"{match[0]} is invalid: results are numbered from 1, so the first is {{{{result:1}}}}")
    try:
        re.compile(match[4] or "")
    except re.error as error:
        raise ValueError(f"{match[0]} contains an invalid regular expression: {error}") from None


def _resolve_placeholder(match: re.Match[str], values: PlaceholderValues) -> str:
    if match[1]:
        source = values.user
    elif match[3]:
        source = values.model
    else:
        number = int(match[2])
        source = values.results[number - 1] if 0 < number <= len(values.results) else ""
    if not match[4]:
        return source
    capture = re.search(match[4], source, re.MULTILINE)
    if capture is None:
        return ""
    return (capture[1] if capture.re.groups else capture[0]) or ""
