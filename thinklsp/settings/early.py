"""What code actions need of the user's settings before the libraries that check settings are loaded.

`[[actions]]`, `actions.disabled` and `chat.fileSuffix`, as the user's file and the environment say. What cannot
be shown is left out; the sentence about a mistake comes with the engine, and again when an action is run.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeGuard

from thinklsp.core.errors import SettingsError
from thinklsp.settings.action_names import BUILT_IN, NAME, named_actions
from thinklsp.settings.own_folder import config_path
from thinklsp.settings.toml_file import read_toml

SUFFIX = r"^\.[^/\\\s]{1,37}\.md$"
SCOPES = ("selection", "definition", "file", "staged")
_DEFAULT_SUFFIX = ".chat.md"
_DISABLED = "actions.disabled"
_SUFFIX_IN_FILE = ("chat.file_suffix", "chat.fileSuffix")
# Of a local disk it takes some milliseconds; a disk that hangs must not keep the server from answering.
_PATIENCE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class EarlyAction:
    """What the menu shows of an action of the user's own."""

    name: str
    title: str
    scope: str


@dataclass(frozen=True, slots=True)
class Early:
    own: tuple[EarlyAction, ...] = ()
    disabled: frozenset[str] = frozenset()
    file_suffix: str = _DEFAULT_SUFFIX

    def under(self, configurations: Iterable[object]) -> Early:
        """Return these settings with those of an editor over them: its configurations, oldest first. Each replaces the
        former one; a value that is not allowed leaves the former value."""
        disabled = suffix = None
        for raw in configurations:
            if isinstance(raw, Mapping):
                disabled = _accepted(setting_in(raw, _DISABLED), _is_names, disabled)
                suffix = _accepted(setting_in(raw, "chat.fileSuffix"), _is_suffix, suffix)
        return Early(
            self.own,
            self.disabled if disabled is None else frozenset(disabled),
            self.file_suffix if suffix is None else suffix,
        )


class EarlyReading:
    """Reads in a thread. `now` is what is known so far; the defaults where the system gives no thread."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.now = Early()
        self._environment = environment
        self._thread = threading.Thread(target=self._read, daemon=True, name="thinklsp-early")
        # Without a thread the server says what is missing as soon as it has to write.
        with suppress(RuntimeError):
            self._thread.start()

    def wait(self) -> None:
        """Wait until all is known, at most a quarter of a second."""
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_SECONDS)

    def _read(self) -> None:
        self.now = read_early(self._environment)


def read_early(environment: Mapping[str, str]) -> Early:
    """Return what the file and the environment say; the defaults if the file cannot be used."""
    try:
        file = read_toml(config_path(environment), "config.toml")
    except SettingsError:
        file = {}
    named = environment.get("THINKLSP_ACTIONS_DISABLED")
    disabled = (_listed(named) if named else None, setting_in(file, _DISABLED))
    suffixes = (environment.get("THINKLSP_CHAT_FILE_SUFFIX"), *(setting_in(file, key) for key in _SUFFIX_IN_FILE))
    return Early(
        _own(file.get("actions")),
        frozenset(next(filter(_is_names, disabled), ())),
        next(filter(_is_suffix, suffixes), _DEFAULT_SUFFIX),
    )


def setting_in(raw: object, key: str) -> Any:
    """Return the value of a setting in an editor's settings, in any nesting of the key; None if it is not set."""
    if not isinstance(raw, Mapping):
        return None
    for name, value in raw.items():
        path = str(name).removeprefix("thinklsp.")
        if path == key and value is not None:
            return value
        inner = key if path == "thinklsp" else key.removeprefix(f"{path}.")
        if (path == "thinklsp" or inner != key) and (found := setting_in(value, inner)) is not None:
            return found
    return None


def _own(raw: object) -> tuple[EarlyAction, ...]:
    """Return the user's actions; none if one of them is wrong, as the whole file is refused then."""
    named = named_actions(raw)
    made = [_action(each) for each in named] if isinstance(named, list) else []
    names = [each.name for each in made if each is not None]
    is_right = len(names) == len(made) == len(set(names)) and not BUILT_IN & set(names)
    return tuple(each for each in made if each is not None) if is_right else ()


def _action(raw: object) -> EarlyAction | None:
    if not isinstance(raw, Mapping):
        return None
    name, title, scope = raw.get("name"), raw.get("title"), raw.get("scope", "selection")
    if not isinstance(name, str) or not isinstance(title, str) or scope not in SCOPES:
        return None
    title = title.strip()
    return EarlyAction(name, title, scope) if re.match(NAME, name) and 0 < len(title) <= 60 else None


def _accepted(given: Any, is_allowed: Callable[[object], bool], former: Any) -> Any:
    """Return the value that counts after a new configuration; None if it does not set the key."""
    return given if given is None or is_allowed(given) else former


def _is_names(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _listed(text: str) -> list[str]:
    """Read a list of names: as JSON, or with commas between them."""
    with suppress(ValueError):
        if _is_names(given := json.loads(text)):
            return given
    return [part.strip() for part in text.split(",")]


def _is_suffix(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and re.match(SUFFIX, value) is not None
