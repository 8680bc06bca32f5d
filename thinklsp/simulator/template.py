"""Placeholders in scripted text: `{{user}}`, `{{user:regex}}`, `{{result:N}}`, `{{result:N:regex}}`, `{{model}}`.

A regular expression yields its first group, or the whole match where it has none, or nothing where it is not found.
The expression ends at the last of the braces that close it, so it may itself end in `{1,3}`.
Everything else between double braces is left as it stands, since models write templates too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_PLACEHOLDER = re.compile(r"\{\{(?:(user)|result:(\d+)|(model))(?::(.*?))?\}\}(?!\})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Heard:
    """What a placeholder may speak of: the last prompt, the tool results after it, the model's name."""

    user: str
    results: tuple[str, ...]
    model: str


def fill(value: Any, heard: Heard) -> Any:
    """A copy of text, list or table with every placeholder replaced; keys and other values stay."""
    match value:
        case str():
            return _PLACEHOLDER.sub(lambda found: _value(found, heard), value)
        case Mapping():
            return {key: fill(item, heard) for key, item in value.items()}
        case list() | tuple():
            return [fill(item, heard) for item in value]
        case _:
            return value


def check_template(value: Any) -> None:
    """Raises ValueError with a sentence for the first placeholder whose regular expression does not compile."""
    match value:
        case str():
            for found in _PLACEHOLDER.finditer(value):
                _check(found)
        case Mapping():
            for item in value.values():
                check_template(item)
        case list() | tuple():
            for item in value:
                check_template(item)
        case _:
            pass


def _check(found: re.Match[str]) -> None:
    if found[2] == "0":
        raise ValueError(f"{found[0]} counts from 1: the first result is {{{{result:1}}}}")
    try:
        re.compile(found[4] or "")
    except re.error as error:
        raise ValueError(f"the regular expression of {found[0]} is wrong: {error}") from None


def _value(found: re.Match[str], heard: Heard) -> str:
    if found[1]:
        source = heard.user
    elif found[3]:
        source = heard.model
    else:
        number = int(found[2])
        source = heard.results[number - 1] if 0 < number <= len(heard.results) else ""
    if not found[4]:
        return source
    captured = re.search(found[4], source, re.MULTILINE)
    if captured is None:
        return ""
    return (captured[1] if captured.re.groups else captured[0]) or ""
