"""The sources of settings and their precedence. Each source maps dotted keys to valid values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import ValidationError

from thinklsp.core.choices import LOG_LEVEL_VARIABLE, LOG_LEVELS, STRICTNESS, has_invalid_log_level
from thinklsp.settings.access import list_keyed_providers
from thinklsp.settings.admin_file import replace_sections
from thinklsp.settings.config_files import explain_unused_paths, find_config_path, read_toml
from thinklsp.settings.model import (
    KEYS,
    MAPPINGS,
    PREVIOUS_KEPT,
    Provider,
    Settings,
    build_settings,
    build_variable_name,
    describe_unknown_settings,
    find_nearest,
    find_unknown_variables,
    format_invalid_value,
    format_key,
    format_rejection,
    read_environment,
    read_value,
    to_snake_case,
)
from thinklsp.settings.user_file import UserFile, UserSettings

Flat = Mapping[str, Any]

_DEFAULTS = Settings()
_BUDGET = "thinking.budgetTokens"
# The minimum thinking budget in tokens. The second value applies to Google, where 0 and -1 have a special meaning.
_MIN_BUDGET, _MIN_SMALL_BUDGET = 1024, -1
_SMALL_BUDGET_PROVIDER = "google"

_GROUPS = tuple({key.partition(".")[0]: None for key in KEYS if "." in key})
# Groups of settings for the VS Code extension and its client library.
_EDITOR_GROUPS = ("ui", "trace")
_MAX_GROUPS = 32

_MAX_DEPTH = 16

# The names of settings for keys, hosts and permissions, in lower case and without "_" and "-". Editor settings with
# these names are ignored at every level, because editor settings may come from the opened repository.
_RESTRICTED_NAMES = frozenset(
    (
        *("baseurl", "host", "url", "endpoint", "headers", "extraheaders", "network", "providers"),
        *("proxy", "httpproxy", "httpsproxy", "cabundle", "cafile", "verifytls"),
        *("apikey", "apikeyenv", "apikeykeyring", "apikeycommand", "keysource", "keycommand", "keyring", "key"),
        *("authtoken", "token", "secret", "password"),
        *("commands", "permissions", "sandbox", "mcp", "mcpservers", "actions", "models", "serve", "oidc"),
        *("env", "environment", "roots", "extraroots", "allowprotected", "allowhome", "log", "loglevel"),
    )
)
# Names that end with one of these suffixes are also restricted, for example `openai_api_key`.
_RESTRICTED_SUFFIXES = ("apikey", "baseurl", "authtoken")


@dataclass(frozen=True, slots=True)
class EditorSettings:
    """The accepted editor settings, and the problems that have already been reported to the user.

    `reported_keys` contains all ignored and unknown keys that have been reported. `rejected` contains the latest values
    that are invalid or less strict than the user's own. `unknown_sentences` are about the latest unknown keys.
    """

    values: Flat = field(default_factory=dict)
    reported_keys: frozenset[str] = frozenset()
    rejected: Mapping[str, str] = field(default_factory=dict, repr=False)
    unknown_sentences: tuple[str, ...] = ()

    def apply_configuration(
        self, raw: object, user: UserSettings | None = None
    ) -> tuple[EditorSettings, tuple[str, ...]]:
        """Replace the previous configuration with a new one. A setting with an invalid value keeps its previous value.

        Returns the new settings, and messages about new problems. If the configuration is not an object, nothing
        changes. Some limits depend on the user's own settings.
        """
        if not isinstance(raw, Mapping):
            return self, ()
        part = _select_section(raw)
        flat = _collect((key.removeprefix("thinklsp."), value) for key, value in _flatten(part))
        # If the requested provider is invalid, keep the previous provider.
        choices = (values.get("provider") for values in (flat, self.values))
        requested = next((name for name in choices if name in get_args(Provider)), None)
        provider = _resolve_provider(None if "provider" not in flat else requested, user)
        values, problems = _validate({key: value for key, value in flat.items() if key in KEYS}, provider)
        groups = [key for key in flat if key == "thinklsp" or (_has_settings(key) and not _is_restricted(key))]
        problems |= {key: format_rejection(key, "an object") for key in groups}
        for key, former in self.values.items():
            if key in problems or any(group == "thinklsp" or key.startswith(f"{group}.") for group in groups):
                values.setdefault(key, former)
        looser = {} if user is None else _find_looser(values, user)
        rejected = {key: repr(flat[key]) for key in problems} | {key: repr(value) for key, value in looser.items()}
        changed = {key for key, value in rejected.items() if self.rejected.get(key) != value}
        sentences = [sentence for key, sentence in problems.items() if key in changed]
        sentences += _describe_looser({key: looser[key] for key in changed & looser.keys()}, user)
        if ignored := {format_key(name) for name in _find_restricted(flat.items())} - self.reported_keys:
            sentences.append(_describe_ignored(ignored, "because an opened folder could set them"))
        strange = _find_unknown(flat) if part is raw else {format_key(key) for key in flat if not _is_known(key)}
        sentences += describe_unknown_settings(strange - self.reported_keys, KEYS)
        reported_keys = self.reported_keys | ignored | strange
        unknown = describe_unknown_settings(strange, KEYS)
        return EditorSettings(values, reported_keys, rejected, unknown), tuple(sentences)


def _find_looser(values: Flat, user: UserSettings) -> dict[str, Any]:
    """Return the editor's values that are not used, and that differ from the user's own."""
    keyed, own = list_keyed_providers(user), {key: _find_own_value(user, key) for key in values}
    return {
        key: value
        for key, value in values.items()
        if value != own[key] and not _is_effective(key, value, own[key], keyed)
    }


def _describe_looser(values: Flat, user: UserSettings | None) -> Iterator[str]:
    if keys := values.keys() - {"provider"}:
        yield _describe_ignored(keys, "because they are less strict than your own")
    if (provider := values.get("provider")) is not None and user is not None:
        own = f"your own settings choose {_find_own_value(user, 'provider')}"
        reason = own if provider in ("auto", "simulator") else f"you have no key for {provider}"
        yield f"The editor setting `provider` was ignored because {reason}."


def _describe_ignored(keys: Iterable[str], reason: str) -> str:
    ignored = f"These editor settings were ignored {reason}: {', '.join(sorted(keys))}."
    return f"{ignored} Set them in your own config.toml or the environment."


@dataclass(frozen=True, slots=True)
class ResolvedSettings:
    """The resolved settings. `sources` maps each dotted key that is not a default to the name of its source."""

    settings: Settings
    sources: Mapping[str, str]


def load_user_settings(environment: Mapping[str, str]) -> UserSettings:
    """Read the user's file and the environment. Raises SettingsError if the file cannot be trusted or parsed."""
    path = find_config_path(environment)
    raw = replace_sections(read_toml(path, "config.toml"), environment)
    file = UserFile.parse(raw)
    own = {key: value for key, value in raw.items() if not UserFile.is_section(key, value)}
    rest = _collect(_flatten(own, spell=_to_camel))
    strange = {to_snake_case(key) for key in rest.keys() - KEYS if not key.startswith("$")}
    known = [*map(to_snake_case, KEYS), *UserFile.model_fields, "mcp.servers"]
    unknown = describe_unknown_settings(strange, known, " in your config.toml")
    flat = {key: value for key, value in rest.items() if key in KEYS}
    variables = _collect(read_environment(environment))
    unchecked = UserSettings(file, path, flat, variables, environment)
    provider = _resolve_provider(None, unchecked)
    from_file, wrong = _validate(flat, provider, lambda _: "Change it in your config.toml.")
    from_environment, more = _validate(variables, provider, lambda key: f"Change {build_variable_name(key)}.")
    rejected = (*wrong.values(), *more.values())
    if has_invalid_log_level(environment):
        rejected += (format_rejection("log.level", f"one of {', '.join(LOG_LEVELS)}", f"Change {LOG_LEVEL_VARIABLE}."),)
    key_variables = filter(None, (section.api_key_env for section in file.providers.values()))
    unused = explain_unused_paths(environment)
    problems = (*unused, *unknown, *find_unknown_variables(environment, key_variables), *rejected)
    return UserSettings(file, path, from_file, from_environment, environment, problems, rejected)


def resolve_settings(
    user: UserSettings, editor: EditorSettings | None = None, *, overrides: tuple[tuple[str, Flat], ...] = ()
) -> ResolvedSettings:
    """Combine all sources into the resolved settings.

    `overrides` contains the names and values of further sources in order of increasing precedence.
    """
    chosen = {} if editor is None else editor.values
    keyed = list_keyed_providers(user)
    counting = {
        key: value for key, value in chosen.items() if _is_effective(key, value, _find_own_value(user, key), keyed)
    }
    layers = [
        ("user file", user.from_file),
        ("environment", user.from_environment),
        ("editor settings", counting),
        *overrides,
    ]
    ranks = {key: rank for rank, (_, flat) in enumerate(layers) for key in flat}
    values = {key: layers[rank][1][key] for key, rank in ranks.items()}
    if values.get("thinking.mode") == "ultra" and ranks.get("effort", -1) <= ranks["thinking.mode"]:
        values["effort"], ranks["effort"] = "max", ranks["thinking.mode"]
    return ResolvedSettings(build_settings(values), {key: layers[rank][0] for key, rank in ranks.items()})


def _find_own_value(user: UserSettings, key: str) -> Any:
    """Return the value from the environment or the user's file, or the default."""
    return user.from_environment.get(key, user.from_file.get(key, read_value(_DEFAULTS, key)))


def _is_effective(key: str, value: Any, own: Any, keyed: Sequence[str]) -> bool:
    """Return True if the editor's value is used. Some settings can only be made stricter than the user's own value.

    The editor can choose only a provider that has a key.
    """
    if key == "maxSteps" or key.startswith("budget."):
        return value is not None and (own is None or value < own)
    if (order := STRICTNESS.get(key)) is not None:
        return order.index(value) > order.index(own)
    if key == "provider":
        return value in keyed or (own == "auto" and value in ("auto", "simulator"))
    return True


def _resolve_provider(requested: str | None, user: UserSettings | None) -> str:
    """Return the provider to use if the editor requests `requested`, or an empty string if no provider has a key."""
    keyed = () if user is None else list_keyed_providers(user)
    own = "auto" if user is None else _find_own_value(user, "provider")
    name = requested if requested is not None and _is_effective("provider", requested, own, keyed) else own
    return next(iter(keyed), "") if name == "auto" or name not in get_args(Provider) else name


def explain_wrong_value(key: str, value: object, provider: str) -> str | None:
    """Return an error message if the value is invalid for this provider, or None if the value is valid."""
    return _validate({key: value}, provider)[1].get(key)


def _validate(
    flat: Flat, provider: str, then: Callable[[str], str] = lambda _: PREVIOUS_KEPT
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values that are valid for the provider, and an error message for each invalid value."""
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    least = _MIN_SMALL_BUDGET if provider == _SMALL_BUDGET_PROVIDER else _MIN_BUDGET
    for key, raw_value in flat.items():
        # JSON has only one number type, so an integer may arrive as a float.
        value = int(raw_value) if isinstance(raw_value, float) and raw_value.is_integer() else raw_value
        if key == _BUDGET and type(value) is int and value < least:
            only = "" if least < 0 else " (smaller budgets, 0 and -1 are for Gemini models)"
            problems[key] = format_rejection(key, f"at least {least}{only}", then(key))
            continue
        try:
            values[key] = read_value(build_settings({key: value}), key)
        except ValidationError as error:
            problems[key] = format_invalid_value(key, value, error, then(key))
    return values, problems


def _select_section(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `thinklsp` section of an editor's settings, together with any restricted keys at the top level."""
    if not any(str(key).split(".")[0] == "thinklsp" for key in raw):
        return raw
    return {
        key: value for key, value in raw.items() if (top := str(key).split(".")[0]) == "thinklsp" or _is_restricted(top)
    }


def _find_unknown(flat: Flat) -> set[str]:
    """Return the unknown keys. If no key is valid, the settings may be meant for another server.

    In this case, groups are skipped unless their names are similar to those of thinklsp's groups.
    """
    names = {format_key(key) for key in flat if not _is_known(key)}
    if not names or any(key in KEYS or _has_settings(key.partition(".")[0]) for key in flat):
        return names
    groups = sorted({name.partition(".")[0] for name in names if "." in name})
    similar = {group for group in groups[:_MAX_GROUPS] if find_nearest(group, _GROUPS) is not None}
    return {name for name in names if "." not in name or name.partition(".")[0] in similar}


def _is_known(key: str) -> bool:
    group = key.partition(".")[0]
    return key in KEYS or key == "thinklsp" or group in _EDITOR_GROUPS or _has_settings(key) or _is_restricted(key)


def _flatten(
    raw: object, prefix: str = "", depth: int = 0, *, spell: Callable[[str], str] = str
) -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of each setting in nested objects. Null values are skipped."""
    if not isinstance(raw, Mapping) or depth > _MAX_DEPTH:
        return
    for name, value in raw.items():
        key = f"{prefix}{spell(str(name))}"
        if value is None:
            continue
        if isinstance(value, Mapping) and key.removeprefix("thinklsp.") not in KEYS:
            if _is_restricted(str(name)) and not _has_settings(key):
                yield key, value
            else:
                yield from _flatten(value, f"{key}.", depth + 1, spell=spell)
        else:
            yield key, value


def _collect(leaves: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Collect values by key. Dotted keys within a setting that is an object are merged into that object."""
    flat: dict[str, Any] = {}
    entries: dict[str, Any] = {}
    for key, value in leaves:
        owner = next((name for name in MAPPINGS if f"{key}.".startswith(f"{name}.")), None)
        if owner is None or (key == owner and not isinstance(value, Mapping)):
            flat[key] = value
        elif key == owner:
            entries.setdefault(owner, {}).update(_flatten(value))
        else:
            entries.setdefault(owner, {})[key.removeprefix(f"{owner}.")] = value
    return entries | flat


def _has_settings(key: str) -> bool:
    group = f"{key.removeprefix('thinklsp.')}."
    return any(setting.startswith(group) for setting in KEYS)


def _is_restricted(key: str) -> bool:
    """Return True if any part of a dotted key is the name of a restricted setting."""
    parts = (re.sub("[_-]", "", part).lower() for part in key.split("."))
    return any(part in _RESTRICTED_NAMES or part.endswith(_RESTRICTED_SUFFIXES) for part in parts)


def _find_restricted(leaves: Iterable[tuple[str, Any]], place: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the restricted keys, including keys inside arrays and inside invalid values."""
    for name, value in leaves:
        key = f"{place}{name}"
        if key not in KEYS and _is_restricted(name):
            yield key
        elif key in MAPPINGS or depth > _MAX_DEPTH:
            continue
        elif isinstance(value, list):
            yield from _find_restricted((("", item) for item in value), f"{key}[]", depth + 1)
        elif isinstance(value, Mapping):
            yield from _find_restricted(_flatten(value, depth=depth), f"{key}.", depth + 1)


def _to_camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


class CheckedSettings:
    """The editor settings of a connection, checked against the user's own settings.

    `editor` contains the effective settings. `warn` shows a sentence to the user.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._reported_problems: set[str] = set()
        self.editor = EditorSettings()

    def report_problems(self, user: UserSettings) -> None:
        """Report problems with the user's settings file and environment. Each problem is reported only once."""
        for problem in user.problems:
            if problem not in self._reported_problems:
                self._warn(problem)
        self._reported_problems.update(user.problems)

    def configure(self, raw: object, user: UserSettings) -> None:
        """Apply new editor settings. Rejected and ignored values are reported only once."""
        self.editor, sentences = self.editor.apply_configuration(raw, user)
        for sentence in sentences:
            self._warn(sentence)
