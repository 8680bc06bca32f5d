"""The delays that providers ask for, in headers, in error objects and in error texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from thinklsp.providers.decoding import find_object

_DAY_LIMIT = re.compile(r"per[ _-]?day|daily|\b[rt]pd\b", re.IGNORECASE)
_WAIT = re.compile(r"(?:try again|retry) (?:in|after) ((?:[\d.]+ ?[a-z]+[, ]*(?:and )?)+)", re.IGNORECASE)
_WAIT_PART = re.compile(r"(\d+(?:\.\d+)?) ?(ms|milli|[dhms])", re.IGNORECASE)
_UNIT_SECONDS = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RESET_HEADER = "x-ratelimit-reset"
_MILLISECONDS_FROM = 1e12


def is_day_limit(text: str) -> bool:
    """Return whether an error text is about a limit of a day."""
    return _DAY_LIMIT.search(text) is not None


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the delay in seconds that the provider asked for, or None if the headers contain no valid delay.

    A date is compared with the response's `Date` header, because the clock on this machine may be wrong.
    """
    milliseconds = _parse_number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _parse_number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        wait = (parsedate_to_datetime(value) - parsedate_to_datetime(headers["date"])).total_seconds()
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return wait if wait >= 0 else None


def parse_wait(text: str) -> float | None:
    """Return the delay in seconds that an error text asks for, such as `try again in 4h59m3.5s`, or None."""
    match = _WAIT.search(text)
    parts = _WAIT_PART.findall(match[1]) if match else []
    return sum(float(number) * _UNIT_SECONDS[unit.lower()] for number, unit in parts) if parts else None


def find_reset(content: Mapping[str, Any], headers: Mapping[str, str]) -> float | None:
    """Return the seconds until a limit of a day is reset, or None if the response does not say.

    OpenRouter names the reset in a header, which is also in the error's metadata. The response's `Date` says what time
    it is, as for Retry-After.
    """
    inner = find_object(content, "error", "metadata", "headers") or {}
    values = (value for key, value in (*headers.items(), *inner.items()) if key.lower() == _RESET_HEADER)
    reset = next(filter(None, (_parse_number(str(value)) for value in values)), 0.0)
    seconds = reset / 1000 if reset >= _MILLISECONDS_FROM else reset
    try:
        now = parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return seconds - now if seconds > now else None


def should_retry(headers: Mapping[str, str]) -> bool | None:
    """Return whether the provider recommends a retry, or None if the headers do not say."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower())


def _parse_number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
