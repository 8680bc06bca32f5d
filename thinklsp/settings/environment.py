"""Settings from the environment: `THINKLSP_` and the key in upper snake case."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from thinklsp.settings.model import KEYS, MAPPINGS, nested
from thinklsp.settings.unknown import unknown_settings

_PREFIX = "THINKLSP_"
# Variables that are no settings of the table.
_OTHERS = frozenset(
    f"{_PREFIX}{name}"
    for name in ("CONFIG", "ADMIN_CONFIG", "STATE_DIR", "STORE_URL", "LOG_LEVEL", "COMPATIBLE_API_KEY")
) | {f"{_PREFIX}COMPATIBLE_BASE_URL"}


def variable_of(key: str) -> str:
    """Return the environment variable of a setting."""
    return _PREFIX + re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\.", "_", key).upper()


def environment_values(environment: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield each setting that the environment holds, by its dotted key."""
    for key in KEYS:
        name = variable_of(key)
        text = environment.get(name)
        if text:
            yield key, _from_text(key, text)
        if key in MAPPINGS:
            for longer in sorted(environment):
                if longer.startswith(f"{name}_") and environment[longer]:
                    yield f"{key}.{longer.removeprefix(f'{name}_').lower()}", environment[longer]


def unknown_variables(environment: Mapping[str, str], named: Iterable[str]) -> tuple[str, ...]:
    """Return sentences about variables of our prefix that mean nothing. `named`: those that the user's file names."""
    known = {variable_of(key) for key in KEYS} | _OTHERS
    groups = tuple(f"{variable_of(key)}_" for key in MAPPINGS)
    ours = {name for name in environment if name.startswith(_PREFIX) and not name.startswith(groups)}
    return unknown_settings(ours - known - set(named), known, " in the environment")


def _from_text(key: str, text: str) -> Any:
    """Return JSON if the text is JSON for this key, else the text itself; lists may be written with commas."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    for meant in (value, [part.strip() for part in text.split(",")] if key == "actions.disabled" else text):
        with suppress(ValidationError):
            nested({key: meant})
            return meant
    # What is refused is the number, not that it is none.
    return value
