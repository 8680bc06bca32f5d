"""What code actions need of the user's settings before the libraries that check settings are loaded.

`[[actions]]`, `actions.disabled` and `chat.fileSuffix`, as the user's file and the environment say. What cannot
be shown is left out; the sentence about a mistake comes with the engine, and again when an action is run.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
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

    def under(self, editor: object) -> Early:
        """Return these settings with those of an editor over them, which nothing has checked yet."""
        disabled, suffix = setting_in(editor, "actions.disabled"), setting_in(editor, "chat.fileSuffix")
        return Early(
            self.own,
            self.disabled if disabled is None else _names(disabled),
            suffix if _is_suffix(suffix) else self.file_suffix,
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
    actions, chat = file.get("actions"), file.get("chat")
    disabled = actions.get("disabled") if isinstance(actions, Mapping) else file.get("actions.disabled")
    written = chat.get("file_suffix") if isinstance(chat, Mapping) else None
    suffix = environment.get("THINKLSP_CHAT_FILE_SUFFIX") or written
    named = environment.get("THINKLSP_ACTIONS_DISABLED")
    return Early(
        _own(actions),
        _names(_listed(named) if named else disabled),
        suffix if _is_suffix(suffix) else _DEFAULT_SUFFIX,
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


def _names(value: object) -> frozenset[str]:
    return frozenset(each for each in value if isinstance(each, str)) if isinstance(value, list) else frozenset()


def _listed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return [part.strip() for part in text.split(",")]


def _is_suffix(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and re.match(SUFFIX, value) is not None
