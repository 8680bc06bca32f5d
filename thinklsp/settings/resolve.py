"""Where settings come from and which source wins. Each source is a flat mapping of dotted keys to checked values."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from platformdirs import user_config_path
from pydantic import ValidationError

from thinklsp.core.errors import SettingsError
from thinklsp.settings.model import KEYS, Settings, nested, sentence, value_of
from thinklsp.settings.user_file import UserFile

Flat = Mapping[str, Any]

_DEFAULTS = Settings()

# Names that choose keys, hosts or power, compared without case, "_" and "-". In editor settings they may come from
# the opened repository, so they are ignored there at any level.
_POWER = frozenset(
    (
        *("baseurl", "host", "url", "endpoint", "proxy", "cabundle", "headers", "network", "providers"),
        *("apikey", "apikeyenv", "apikeycommand", "authtoken", "token", "key", "secret", "password"),
        *("commands", "permissions", "sandbox", "mcp", "mcpservers", "trust", "extraroots", "allowprotected"),
        "loglevel",
    )
)


@dataclass(frozen=True, slots=True)
class UserSettings:
    """What the user's file and the environment say. `problems` are sentences about values that were left out."""

    file: UserFile
    path: str
    from_file: Flat
    from_environment: Flat
    environment: Mapping[str, str] = field(repr=False)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EditorSettings:
    """The editor's settings as last accepted. `told` holds the names of ignored keys that were already reported."""

    values: Flat = field(default_factory=dict)
    told: frozenset[str] = frozenset()

    def updated(self, raw: object) -> tuple[EditorSettings, tuple[str, ...]]:
        """A pushed or pulled configuration replaces the former one whole; a refused value keeps its former one.

        Returns the new settings and the sentences to show.
        """
        flat = {key.removeprefix("thinklsp."): value for key, value in _flatten(raw)}
        values, sentences = _checked({key: value for key, value in flat.items() if key in KEYS})
        for key in flat:
            if key in KEYS and key not in values and key in self.values:
                values[key] = self.values[key]
        ignored = {_shown(key) for key in flat if key not in KEYS and _is_power(key)} - self.told
        if ignored:
            sentences.append(
                "These editor settings were ignored, because an opened folder could set them: "
                f"{', '.join(sorted(ignored))}. Set them in your own config.toml or the environment."
            )
        return EditorSettings(values, self.told | ignored), tuple(sentences)


@dataclass(frozen=True, slots=True)
class Resolved:
    """`sources`: dotted key -> where its value comes from, for every key that is not a default."""

    settings: Settings
    sources: Mapping[str, str]


def load_user_settings(environment: Mapping[str, str]) -> UserSettings:
    """Reads the user's file once. Raises SettingsError where it cannot be trusted or understood."""
    path = environment.get("THINKLSP_CONFIG") or str(user_config_path("thinklsp") / "config.toml")
    raw = _read_toml(path)
    flat = {key: value for key, value in _flatten(_camel(raw)) if key in KEYS}
    file = UserFile.parse(raw)
    from_file, problems = _checked(flat)
    from_environment, more = _checked(dict(_environment_values(environment)))
    return UserSettings(file, path, from_file, from_environment, environment, (*problems, *more))


def resolve(
    user: UserSettings,
    editor: EditorSettings | None = None,
    *,
    keyed: frozenset[str] = frozenset(),
    overrides: tuple[tuple[str, Flat], ...] = (),
) -> Resolved:
    """Lays the sources over each other. `keyed`: providers that the user has a key for; editors choose among these.

    `overrides` are (source name, values), weakest first: the session's, then the command's.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    layers: list[tuple[str, Flat]] = [
        ("user file", user.from_file),
        ("environment", user.from_environment),
    ]
    for name, flat in layers:
        values |= flat
        sources |= dict.fromkeys(flat, name)
    for key, value in (editor.values if editor else {}).items():
        if _may_tighten(key, value, values.get(key, value_of(_DEFAULTS, key)), keyed):
            values[key] = value
            sources[key] = "editor settings"
    for name, flat in overrides:
        values |= flat
        sources |= dict.fromkeys(flat, name)
    return Resolved(nested(values), sources)


def _may_tighten(key: str, value: Any, own: Any, keyed: frozenset[str]) -> bool:
    if key == "maxSteps" or key.startswith("budget."):
        return value is not None and (own is None or value < own)
    if key == "edits.review":
        return bool(value != "never")
    if key == "provider":
        return value in keyed or value in ("auto", "simulator")
    return True


def _checked(flat: Flat) -> tuple[dict[str, Any], list[str]]:
    values: dict[str, Any] = {}
    sentences: list[str] = []
    for key, value in flat.items():
        try:
            values[key] = value_of(nested({key: value}), key)
        except ValidationError as error:
            sentences.append(sentence(key, error))
    return values, sentences


def _flatten(raw: object, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Nested objects and dotted keys to dotted leaves. A null says that nothing is set."""
    if not isinstance(raw, Mapping) or depth > 8:
        return
    for name, value in raw.items():
        key = f"{prefix}{name}"
        if value is None:
            continue
        if isinstance(value, Mapping) and key.removeprefix("thinklsp.") not in KEYS:
            if _is_power(str(name)):
                yield key, value
            else:
                yield from _flatten(value, f"{key}.", depth + 1)
        else:
            yield key, value


def _is_power(key: str) -> bool:
    return any(re.sub("[_-]", "", part).lower() in _POWER for part in key.split("."))


def _shown(key: str) -> str:
    """The name of a key as it may stand in a message: bounded, printable."""
    return "".join(c if c.isprintable() else "?" for c in key)[:80]


def _environment_values(environment: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for key in KEYS:
        name = "THINKLSP_" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\.", "_", key).upper()
        text = environment.get(name)
        if text:
            yield key, _from_text(key, text)


def _from_text(key: str, text: str) -> Any:
    """JSON where it is JSON for this key, else the text itself; lists may be written with commas."""
    try:
        value = json.loads(text)
        nested({key: value})
        return value
    except (ValueError, ValidationError):
        return [part.strip() for part in text.split(",")] if key == "actions.disabled" else text


def _camel(raw: object) -> object:
    if not isinstance(raw, Mapping):
        return raw
    return {re.sub(r"_([a-z])", lambda m: m[1].upper(), str(k)): _camel(v) for k, v in raw.items()}


def _read_toml(path: str) -> Mapping[str, Any]:
    """The user's file; empty when there is none. One descriptor is checked and read, so that both see one file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError("config", f"Your config.toml cannot be read: {error.strerror}.") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > 1_000_000:
            raise SettingsError("config", "Your config.toml is not a file of settings; move it away.")
        if status.st_mode & 0o022 or status.st_uid not in (os.getuid(), 0):
            raise SettingsError(
                "config",
                "Your config.toml is not used, because other users can write it. Run chmod 600 on it.",
            )
        try:
            return tomllib.loads(file.read().decode())
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SettingsError("config", f"Your config.toml is not valid TOML: {error}.") from None
