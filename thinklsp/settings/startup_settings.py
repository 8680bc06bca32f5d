"""The settings that code actions need before the validation libraries are loaded.

These settings are `[[actions]]`, `actions.disabled` and `chat.fileSuffix`, from the user's file and the environment.
Invalid values are skipped here. The engine reports them after it is loaded, and again when an action runs.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard, get_args

from thinklsp.core.errors import SettingsError
from thinklsp.settings.config_files import find_config_path, read_toml

SUFFIX_PATTERN = r"^\.[^/\\\s]{1,37}\.md$"
Scope = Literal["selection", "definition", "file", "staged"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
BUILT_IN_ACTIONS = frozenset(
    (
        *("fix", "edit", "ask", "complete", "document", "test", "simplify", "explain", "review"),
        *("send", "apply", "discard", "stop", "undo"),
    )
)
"""Names that the user's own actions cannot have."""
ACTION_NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]*$"
_DEFAULT_SUFFIX = ".chat.md"
_DISABLED = "actions.disabled"
_SUFFIX_IN_FILE = ("chat.file_suffix", "chat.fileSuffix")
# The time limit for reading the settings. A disk that does not respond must not block the server.
_MAX_WAIT_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class MenuAction:
    """The properties of a user-defined action that the code action menu needs."""

    name: str
    title: str
    scope: str


@dataclass(frozen=True, slots=True)
class StartupSettings:
    own_actions: tuple[MenuAction, ...] = ()
    disabled_actions: frozenset[str] = frozenset()
    file_suffix: str = _DEFAULT_SUFFIX

    def merge_editor_settings(self, configurations: Iterable[object]) -> StartupSettings:
        """Return the settings after applying an editor's configurations, oldest first.

        Each configuration replaces the previous one. A setting with an invalid value keeps its previous value.
        """
        disabled = suffix = None
        for raw in configurations:
            if isinstance(raw, Mapping):
                disabled = _select_value(_find_setting(raw, _DISABLED), _is_names, disabled)
                suffix = _select_value(_find_setting(raw, "chat.fileSuffix"), _is_suffix, suffix)
        return StartupSettings(
            self.own_actions,
            self.disabled_actions if disabled is None else frozenset(disabled),
            self.file_suffix if suffix is None else suffix,
        )


class StartupSettingsReader:
    """A reader that loads the startup settings in a thread.

    `current` contains the defaults until the settings have been read.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.current = StartupSettings()
        self._environment = environment
        self._thread = threading.Thread(target=self._read, daemon=True, name="thinklsp-early")
        # If the operating system does not allow more threads, another part of the server reports the problem.
        with suppress(RuntimeError):
            self._thread.start()

    def wait(self) -> None:
        """Wait until the settings have been read, for at most a quarter of a second."""
        if self._thread.is_alive():
            self._thread.join(_MAX_WAIT_SECONDS)

    def _read(self) -> None:
        self.current = read_startup_settings(self._environment)


def read_startup_settings(environment: Mapping[str, str]) -> StartupSettings:
    """Return the startup settings from the user's file and the environment. An invalid file is ignored."""
    try:
        file = read_toml(find_config_path(environment), "config.toml")
    except SettingsError:
        file = {}
    variable = environment.get("THINKLSP_ACTIONS_DISABLED")
    disabled = (_parse_list(variable) if variable else None, _find_setting(file, _DISABLED))
    suffixes = (environment.get("THINKLSP_CHAT_FILE_SUFFIX"), *(_find_setting(file, key) for key in _SUFFIX_IN_FILE))
    return StartupSettings(
        _parse_actions(file.get("actions")),
        frozenset(next(filter(_is_names, disabled), ())),
        next(filter(_is_suffix, suffixes), _DEFAULT_SUFFIX),
    )


def _find_setting(raw: object, key: str) -> Any:
    """Return the value of a setting in an editor's settings, or None if the setting is missing.

    The key may be dotted, nested, or partly both.
    """
    if not isinstance(raw, Mapping):
        return None
    for name, value in raw.items():
        path = str(name).removeprefix("thinklsp.")
        if path == key and value is not None:
            return value
        inner = key if path == "thinklsp" else key.removeprefix(f"{path}.")
        if (path == "thinklsp" or inner != key) and (nested_value := _find_setting(value, inner)) is not None:
            return nested_value
    return None


def add_action_names(raw: object) -> object:
    """Derive a name from the title for each action without a name."""
    if not isinstance(raw, list):
        return raw
    return [
        {"name": _build_slug(action["title"]), **action}
        if isinstance(action, Mapping) and "name" not in action and isinstance(action.get("title"), str)
        else action
        for action in raw
    ]


def _build_slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.casefold()).strip("-")[:40].strip("-")


def _parse_actions(raw: object) -> tuple[MenuAction, ...]:
    """Return the user's actions that the menu can show."""
    entries = add_action_names(raw)
    actions = (_parse_action(entry) for entry in (entries if isinstance(entries, list) else ()))
    return tuple(action for action in actions if action is not None)


def _parse_action(raw: object) -> MenuAction | None:
    if not isinstance(raw, Mapping):
        return None
    name, title, scope = raw.get("name"), raw.get("title"), raw.get("scope", "selection")
    if not isinstance(name, str) or not isinstance(title, str) or scope not in SCOPES or name in BUILT_IN_ACTIONS:
        return None
    return MenuAction(name, title.strip(), scope) if re.match(ACTION_NAME_PATTERN, name) and title.strip() else None


def _select_value(value: Any, is_allowed: Callable[[object], bool], former: Any) -> Any:
    """Return the new value, or `former` if the new value is invalid. A missing value stays None."""
    return value if value is None or is_allowed(value) else former


def _is_names(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _parse_list(text: str) -> list[str]:
    """Parse a list of names in JSON, or a list of comma-separated names."""
    with suppress(ValueError):
        if _is_names(names := json.loads(text)):
            return names
    return [part.strip() for part in text.split(",")]


def _is_suffix(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and re.match(SUFFIX_PATTERN, value) is not None
