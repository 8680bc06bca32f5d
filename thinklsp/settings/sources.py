"""Where settings come from and which source wins. Each source is a flat mapping of dotted keys to checked values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from pydantic import ValidationError

from thinklsp.core.log_level import LOG_LEVEL_VARIABLE, LOG_LEVELS, has_wrong_level
from thinklsp.settings.access import keyed_providers
from thinklsp.settings.environment import environment_values, unknown_variables, variable_of
from thinklsp.settings.model import KEYS, MAPPINGS, STAYS, Provider, Settings, nested, refusal, sentence, value_of
from thinklsp.settings.own_folder import config_path, unused_path
from thinklsp.settings.toml_file import read_toml
from thinklsp.settings.unknown import nearest, shown, unknown_settings
from thinklsp.settings.user_file import UserFile, UserSettings

Flat = Mapping[str, Any]

_DEFAULTS = Settings()

# Settings whose values are more or less strict, the loosest first. An editor may go only to the right.
_STRICTNESS: Mapping[str, tuple[str, ...]] = {
    "edits.review": ("never", "auto", "always"),
    "verify": ("off", "auto", "always"),
    "compaction.thinkingAfter": ("keep", "off"),
}

_BUDGET = "thinking.budgetTokens"
# The least budget where it is no more than a number of tokens; where less is taken, 0 and -1 are words.
_LEAST_BUDGET, _LEAST_WORD = 1024, -1
_WITH_SMALL_BUDGETS = "google"

_GROUPS = tuple({key.partition(".")[0]: None for key in KEYS if "." in key})
# Groups of the section that belong to the editor's own side: our extension's, and those of its client library.
_OF_EDITORS = ("ui", "trace")
_MAX_GROUPS = 32

# Nobody nests settings any deeper.
_DEEPEST = 16

# Names that choose keys, hosts or power, without case, "_" and "-". Editor settings may come from the opened
# repository, so these names are ignored there at any level; `actions` is one of them, for the user's own actions.
_POWERS = frozenset(
    (
        *("baseurl", "host", "url", "endpoint", "headers", "extraheaders", "network", "providers"),
        *("proxy", "httpproxy", "httpsproxy", "cabundle", "cafile", "verifytls"),
        *("apikey", "apikeyenv", "apikeykeyring", "apikeycommand", "keysource", "keycommand", "keyring", "key"),
        *("authtoken", "token", "secret", "password"),
        *("commands", "permissions", "sandbox", "mcp", "mcpservers", "actions", "models"),
        *("env", "environment", "roots", "extraroots", "allowprotected", "allowhome", "log", "loglevel"),
    )
)
# Those that mean the same with the name of a provider before them.
_POWER_ENDINGS = ("apikey", "baseurl", "authtoken")


@dataclass(frozen=True, slots=True)
class EditorSettings:
    """The editor's settings as last accepted, and what was said of them: `told` holds the names of ignored and unknown
    keys, for good; `refused` and `loosening` the values that were left out of the latest configuration, by key;
    `unknown` is a sentence for each unknown key of it."""

    values: Flat = field(default_factory=dict)
    told: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict, repr=False)
    loosening: Mapping[str, str] = field(default_factory=dict, repr=False)
    unknown: tuple[str, ...] = ()

    def updated(
        self, raw: object, user: UserSettings | None = None, *, keyed: frozenset[str] = frozenset()
    ) -> tuple[EditorSettings, tuple[str, ...]]:
        """A pushed or pulled configuration replaces the former one whole; a refused value keeps its former one.

        Returns the new settings and the sentences to show: none of what the former configuration held as well, since
        editors send the same again and again. What is no object at all changes nothing. `user` and `keyed`, the
        providers that the user has a key for, tell which provider the limits are those of.
        """
        if not isinstance(raw, Mapping):
            return self, ()
        part = _own_part(raw)
        flat = _collected((key.removeprefix("thinklsp."), value) for key, value in _flatten(part))
        # Of a provider that is refused the former one stays.
        asked = next((at["provider"] for at in (flat, self.values) if at.get("provider") in get_args(Provider)), None)
        provider = _used(None if "provider" not in flat else asked, user, keyed)
        values, said = _checked({key: value for key, value in flat.items() if key in KEYS}, provider)
        groups = [key for key in flat if key == "thinklsp" or (_holds_settings(key) and not _is_power(key))]
        said |= {key: f"The setting {key} was refused: it must be an object. {STAYS}" for key in groups}
        for key, former in self.values.items():
            if key in said or any(group == "thinklsp" or key.startswith(f"{group}.") for group in groups):
                values.setdefault(key, former)
        refused = {key: repr(flat[key]) for key in said}
        sentences = [sentence for key, sentence in said.items() if self.refused.get(key) != refused[key]]
        ignored = {shown(name) for name in _powers(flat.items())} - self.told
        if ignored:
            sentences.append(
                "These editor settings were ignored, because an opened folder could set them: "
                f"{', '.join(sorted(ignored))}. Set them in your own config.toml or the environment."
            )
        strange = _unknown(flat) if part is raw else {shown(key) for key in flat if not _is_known(key)}
        unknown = unknown_settings(strange, KEYS)
        sentences += unknown_settings(strange - self.told, KEYS)
        told = self.told | ignored | strange
        return replace(self, values=values, told=told, refused=refused, unknown=unknown), tuple(sentences)


@dataclass(frozen=True, slots=True)
class Resolved:
    """`sources`: dotted key -> where its value comes from, for every key that is not a default."""

    settings: Settings
    sources: Mapping[str, str]


def load_user_settings(environment: Mapping[str, str]) -> UserSettings:
    """Reads the user's file once. Raises SettingsError where it cannot be trusted or understood."""
    path = config_path(environment)
    unused = [unused_path(environment, variable) for variable in ("THINKLSP_CONFIG", "THINKLSP_STATE_DIR")]
    raw = read_toml(path, "config.toml")
    file = UserFile.parse(raw)
    own = {key: value for key, value in raw.items() if not UserFile.holds(key, value)}
    rest = _collected(_flatten(own, spell=_camel))
    strange = {_snake(key) for key in rest.keys() - KEYS if not key.startswith("$")}
    unknown = unknown_settings(strange, [_snake(key) for key in KEYS], " in your config.toml")
    flat = {key: value for key, value in rest.items() if key in KEYS}
    variables = _collected(environment_values(environment))
    unchecked = UserSettings(file, path, flat, variables, environment)
    provider = _used(None, unchecked, frozenset(keyed_providers(unchecked)))
    from_file, wrong = _checked(flat, provider, lambda _: "Change it in your config.toml.")
    from_environment, more = _checked(variables, provider, lambda key: f"Change {variable_of(key)}.")
    refused = (*wrong.values(), *more.values(), *_wrong_level(environment))
    named = filter(None, (section.api_key_env for section in file.providers.values()))
    told = (*filter(None, unused), *unknown, *unknown_variables(environment, named), *refused)
    return UserSettings(file, path, from_file, from_environment, environment, told, refused)


def _wrong_level(environment: Mapping[str, str]) -> Iterator[str]:
    if has_wrong_level(environment):
        yield refusal("log.level", f"one of {', '.join(LOG_LEVELS)}", f"Change {LOG_LEVEL_VARIABLE}.")


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
    chosen = {} if editor is None else editor.values
    counting = {key: value for key, value in chosen.items() if _counts(key, value, _own(user, key), keyed)}
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
    return Resolved(nested(values), {key: layers[rank][0] for key, rank in ranks.items()})


def ignored(
    user: UserSettings, editor: EditorSettings, *, keyed: frozenset[str]
) -> tuple[EditorSettings, tuple[str, ...]]:
    """Sentences about editor settings that `resolve` leaves out, and the settings that know that these were told."""
    loosening = {
        key: repr(value)
        for key, value in editor.values.items()
        if value != (own := _own(user, key)) and not _counts(key, value, own, keyed)
    }
    changed = {key for key, value in loosening.items() if editor.loosening.get(key) != value}
    sentences = []
    if told := sorted(changed - {"provider"}):
        sentences.append(
            f"These editor settings were ignored, because they would loosen your own: {', '.join(told)}. "
            "Set them in your own config.toml or the environment."
        )
    if "provider" in changed:
        sentences.append(
            f"The editor setting provider was ignored, because {_why_not(editor.values['provider'], user)}."
        )
    return replace(editor, loosening=loosening), tuple(sentences)


def _why_not(provider: str, user: UserSettings) -> str:
    """Why an editor cannot choose this provider."""
    if provider in ("auto", "simulator"):
        return f"your own settings choose {_own(user, 'provider')}"
    return f"you have no key for {provider}"


def _own(user: UserSettings, key: str) -> Any:
    """What the user has said without an editor, else the default."""
    return user.from_environment.get(key, user.from_file.get(key, value_of(_DEFAULTS, key)))


def _counts(key: str, value: Any, own: Any, keyed: frozenset[str]) -> bool:
    """Whether an editor's value counts: where it could loosen, only one that is stricter than the user's own."""
    if key == "maxSteps" or key.startswith("budget."):
        return value is not None and (own is None or value < own)
    if (order := _STRICTNESS.get(key)) is not None:
        return order.index(value) > order.index(own)
    if key == "provider":
        return value in keyed or (own == "auto" and value in ("auto", "simulator"))
    return True


def _used(asked: str | None, user: UserSettings | None, keyed: frozenset[str]) -> str:
    """The provider that would be used, `asked` being the editor's; empty where none has a key."""
    own = "auto"
    if user is not None and (said := _own(user, "provider")) in get_args(Provider):
        own = said
    name = own if asked is None or not _counts("provider", asked, own, keyed) else asked
    return next((each for each in get_args(Provider) if each in keyed), "") if name == "auto" else name


def wrong_value(key: str, value: object, provider: str) -> str | None:
    """Return the sentence for a value that a setting does not allow with this provider."""
    return _checked({key: value}, provider)[1].get(key)


def _checked(
    flat: Flat, provider: str, then: Callable[[str], str] = lambda _: STAYS
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values that are allowed with the provider, and a sentence about each of the others. `then` ends the
    sentence for a key."""
    values: dict[str, Any] = {}
    said: dict[str, str] = {}
    least = _LEAST_WORD if provider == _WITH_SMALL_BUDGETS else _LEAST_BUDGET
    for key, given in flat.items():
        # JSON knows one kind of number, and so does its schema.
        value = int(given) if isinstance(given, float) and given.is_integer() else given
        if key == _BUDGET and type(value) is int and value < least:
            only = "" if least < 0 else " (less, 0 and -1 are for Gemini models)"
            said[key] = refusal(key, f"at least {least}{only}", then(key))
            continue
        try:
            values[key] = value_of(nested({key: value}), key)
        except ValidationError as error:
            said[key] = sentence(key, value, error, then(key))
    return values, said


def _own_part(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Some editors send the settings of every server. Beside our own section only what would be power for us counts."""
    if not any(str(key).split(".")[0] == "thinklsp" for key in raw):
        return raw
    return {key: value for key, value in raw.items() if (top := str(key).split(".")[0]) == "thinklsp" or _is_power(top)}


def _unknown(flat: Flat) -> set[str]:
    """Return the keys of an editor that mean nothing. Without any key of ours they may be those of other servers: then
    only groups that resemble ours count."""
    names = {shown(key) for key in flat if not _is_known(key)}
    if not names or any(key in KEYS or _holds_settings(key.partition(".")[0]) for key in flat):
        return names
    groups = sorted({name.partition(".")[0] for name in names if "." in name})
    ours = {group for group in groups[:_MAX_GROUPS] if nearest(group, _GROUPS) is not None}
    return {name for name in names if "." not in name or name.partition(".")[0] in ours}


def _is_known(key: str) -> bool:
    group = key.partition(".")[0]
    return key in KEYS or key == "thinklsp" or group in _OF_EDITORS or _holds_settings(key) or _is_power(key)


def _flatten(
    raw: object, prefix: str = "", depth: int = 0, *, spell: Callable[[str], str] = str
) -> Iterator[tuple[str, Any]]:
    """Nested objects and dotted keys to dotted leaves. A null says that nothing is set."""
    if not isinstance(raw, Mapping) or depth > _DEEPEST:
        return
    for name, value in raw.items():
        key = f"{prefix}{spell(str(name))}"
        if value is None:
            continue
        if isinstance(value, Mapping) and key.removeprefix("thinklsp.") not in KEYS:
            if _is_power(str(name)) and not _holds_settings(key):
                yield key, value
            else:
                yield from _flatten(value, f"{key}.", depth + 1, spell=spell)
        else:
            yield key, value


def _collected(leaves: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Leaves by key. Entries of a mapping setting that came as dotted keys stand in the mapping."""
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


def _holds_settings(key: str) -> bool:
    group = f"{key.removeprefix('thinklsp.')}."
    return any(known.startswith(group) for known in KEYS)


def _is_power(key: str) -> bool:
    """Return whether any part of a dotted key is a name that chooses keys, hosts or power."""
    parts = (re.sub("[_-]", "", part).lower() for part in key.split("."))
    return any(part in _POWERS or part.endswith(_POWER_ENDINGS) for part in parts)


def _powers(leaves: Iterable[tuple[str, Any]], place: str = "", depth: int = 0) -> Iterator[str]:
    """The keys that name power, those inside of arrays and of wrong values included."""
    for name, value in leaves:
        key = f"{place}{name}"
        if key not in KEYS and _is_power(name):
            yield key
        elif key in MAPPINGS or depth > _DEEPEST:
            continue
        elif isinstance(value, list):
            yield from _powers((("", each) for each in value), f"{key}[]", depth + 1)
        elif isinstance(value, Mapping):
            yield from _powers(_flatten(value, depth=depth), f"{key}.", depth + 1)


def _snake(key: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)
