"""Typed reading of JSON from outside: each function returns the value in its type or refuses in the service's words."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from thinklsp.simulator.openai.errors import (
    bad_value,
    empty_list,
    empty_text,
    invalid,
    missing,
    too_small,
    unknown,
    wrong_type,
)

_ID = re.compile(r"[A-Za-z0-9_-]+")
_MAX_ID = 64


def table(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        wrong_type(place, "an object", value)
    return value


def array(value: Any, place: str) -> Sequence[Any]:
    if not isinstance(value, list):
        wrong_type(place, "an array", value)
    return value


def filled_array(value: Any, place: str) -> Sequence[Any]:
    values = array(value, place)
    if not values:
        empty_list(place)
    return values


def text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        wrong_type(place, "a string", value)
    return value


def filled_text(value: Any, place: str) -> str:
    if not text(value, place):
        empty_text(place)
    return str(value)


def flag(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        wrong_type(place, "a boolean", value)
    return value


def whole_number(value: Any, place: str, minimum: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        wrong_type(place, "an integer", value)
    if value < minimum:
        too_small(place, minimum, value)
    return value


def number(value: Any, place: str, lowest: float, highest: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        wrong_type(place, "a decimal", value)
    if not lowest <= value <= highest:
        edge, word = (lowest, "below minimum") if value < lowest else (highest, "above maximum")
        sign = ">=" if value < lowest else "<="
        invalid(
            f"Invalid '{place}': decimal {word} value. Expected a value {sign} {edge:g}, but got {value} instead.",
            place,
            f"decimal_{word.replace(' ', '_').replace('minimum', 'min').replace('maximum', 'max')}_value",
        )
    return value


def choice(value: Any, place: str, supported: Collection[str]) -> str:
    if text(value, place) not in supported:
        bad_value(place, value, supported)
    return str(value)


def required(value: Mapping[str, Any], key: str, place: str) -> Any:
    if key not in value:
        missing(f"{place}.{key}")
    return value[key]


def only(value: Mapping[str, Any], known: Collection[str], place: str) -> None:
    for key in value:
        if key not in known:
            unknown(f"{place}.{key}")


def identifier(value: Any, place: str, prefix: str | None = None) -> str:
    """An id as the service takes one; with `prefix`, one of that kind of item."""
    if text(value, place) and prefix is not None and not value.startswith(f"{prefix}_"):
        invalid(
            f"Invalid '{place}': '{value}'. Expected an ID that begins with '{prefix}'.",
            place,
            "invalid_value",
        )
    if not _ID.fullmatch(value):
        invalid(
            f"Invalid '{place}': '{value}'. Expected an ID that contains letters, numbers, underscores, or dashes, "
            "but this value contained additional characters.",
            place,
            "invalid_value",
        )
    return short_text(value, place, _MAX_ID)


def short_text(value: Any, place: str, longest: int) -> str:
    if len(filled_text(value, place)) > longest:
        invalid(
            f"Invalid '{place}': string too long. Expected a string with maximum length {longest}, but got a string "
            f"with length {len(value)} instead.",
            place,
            "string_above_max_length",
        )
    return str(value)
