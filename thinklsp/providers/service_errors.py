"""What all services' error answers have in common: Retry-After, a readable excerpt without secrets, retry overrides."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from thinklsp.core.errors import BadRequest
from thinklsp.providers.base import ThinkingForm

_EXCERPT = 300
# Keys with a vendor's prefix, bearer tokens, long hexadecimal runs.
_KEY = re.compile(r"\bsk[-_][\w-]{8,}|\bAIza[\w-]{16,}|(?i:\bbearer)\s+\S+|\b[0-9a-fA-F]{32,}\b")
# Signatures and encrypted blocks: a long run of base64.
_BASE64 = re.compile(r"[A-Za-z0-9+/=_-]{24,}")
# Names are made of short parts; a part of base64 between these characters is hardly ever as short.
_BETWEEN_PARTS = re.compile(r"[-_/=]")
_MAX_PART = 12
_CAMEL_CASE = re.compile(r"[a-z]{0,12}(?:[A-Z]{1,5}[a-z]{2,14})+")
# A shorter model id could split a key that happens to contain it.
_MIN_SPARED = 8
_MASK = "[hidden]"


class ThinkingRejected(BadRequest):
    """The service no longer takes the thinking that stands in the conversation. Without it the request may pass.

    `bound`: because what stands before it is not what it was when the model thought so. `never`: because the service
    takes none back at all.
    """

    bound = False
    never = False


class CompactionRefused(BadRequest):
    """The service does not shorten what this model reads."""


class CacheHintRefused(BadRequest):
    """The service does not accept the field that helps it to find its prompt cache."""


class ThinkingCountsRefused(BadRequest):
    """The service does not count the tokens of thinking while the model thinks."""


class EffortRefused(BadRequest):
    """The model does not take the level of effort that was asked for, or none at all."""


class ThinkingFormRefused(BadRequest):
    """The model does not take thinking in the form that was asked for. `instead`: the form that may pass."""

    def __init__(self, message: str, instead: ThinkingForm) -> None:
        super().__init__(message)
        self.instead: ThinkingForm = instead


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the service asks to wait; None where it does not say, or says nonsense.

    A date is measured against the answer's own `Date`, so that a wrong clock on this machine does no harm.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        wait = (parsedate_to_datetime(value) - parsedate_to_datetime(headers["date"])).total_seconds()
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return wait if wait >= 0 else None


def should_retry(headers: Mapping[str, str]) -> bool | None:
    """The service's own word on whether another try makes sense, None where it gives none."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower())


def mask(text: str, model: str = "") -> str:
    """Replace everything that looks like a key, a signature or encrypted thinking.

    `model` is the id that the request asked for; it is never masked. Keys that the process holds are not known here:
    `Endpoint.without_secrets` replaces those whatever they look like.
    """
    return _BASE64.sub(lambda run: _mask_run(run[0], model), _KEY.sub(_MASK, text))


def excerpt(text: str, model: str = "") -> str:
    """Return one line for people: printable, masked (see `mask`), at most 300 characters. Empty for HTML."""
    if text.lstrip()[:1] == "<":
        return ""
    # Masked before it is cut, so that no half of a key slips through, and after what nobody sees is gone, so that it
    # hides none; bounded first, so that it stays cheap.
    line = " ".join(text[: 20 * _EXCERPT].split())
    line = mask("".join(char for char in line if char.isprintable()), model)
    return line if len(line) <= _EXCERPT else line[: _EXCERPT - 1] + "…"


def json_object(body: bytes | str) -> Mapping[str, Any]:
    """The body as a JSON object; empty where it is none."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _mask_run(run: str, model: str) -> str:
    if len(model) >= _MIN_SPARED and model in run:
        return model.join(_BASE64.sub(lambda part: _mask_run(part[0], ""), part) for part in run.split(model))
    return run if _is_name(run) else _MASK


def _is_name(run: str) -> bool:
    """Whether a run is an identifier, a model id or a host name rather than base64: base64 mixes cases and digits."""
    if run.islower() or run.isupper() or run.isdigit() or _CAMEL_CASE.fullmatch(run) is not None:
        return True
    return all(len(part) <= _MAX_PART for part in _BETWEEN_PARTS.split(run))


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
