"""How to reach a provider: host and key, and where they come from. Reads the user's file and the environment only, and
the environment comes first: a variable that the file names is part of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from thinklsp.core.errors import SettingsError
from thinklsp.settings.user_file import KeyedProvider, ProviderSection, UserSettings


@dataclass(frozen=True, slots=True)
class Access:
    """`source` names where the key comes from, for people; `bearer`: it is an OAuth token.

    For a compatible server what the user says of it: its kind, the field for its thinking, whether it writes tags.
    """

    provider: str
    base_url: str
    api_key: str = field(repr=False)
    source: str
    base_url_source: str
    bearer: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    server: str | None = None
    reasoning: str | None = None
    think_tags: bool = False


@dataclass(frozen=True, slots=True)
class _Variables:
    keys: tuple[str, ...]
    base_url: str
    default_url: str
    bearer: str | None = None


_FILE = "user file"

# In the order in which `auto` looks.
_PROVIDERS: dict[KeyedProvider, _Variables] = {
    "anthropic": _Variables(
        ("ANTHROPIC_API_KEY",), "ANTHROPIC_BASE_URL", "https://api.anthropic.com", "ANTHROPIC_AUTH_TOKEN"
    ),
    "openai": _Variables(("OPENAI_API_KEY",), "OPENAI_BASE_URL", "https://api.openai.com/v1"),
    "google": _Variables(
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "GOOGLE_GEMINI_BASE_URL",
        "https://generativelanguage.googleapis.com",
    ),
    "openai-compatible": _Variables(("THINKLSP_COMPATIBLE_API_KEY",), "THINKLSP_COMPATIBLE_BASE_URL", ""),
}


def keyed_providers(user: UserSettings) -> tuple[KeyedProvider, ...]:
    """Providers that the user has a key for (`openai-compatible`: a base URL), without running any key command."""
    return tuple(name for name in _PROVIDERS if _is_keyed(name, user))


def provider_access(name: KeyedProvider, user: UserSettings, *, printed: str = "") -> Access:
    """Host and key of a provider. Raises SettingsError that says what to set.

    `printed`: the key that the provider's keyring entry holds or its command prints. This function asks neither.
    """
    variables, section = _PROVIDERS[name], _section(name, user)
    base_url, where = _base_url(variables, section, user.environment)
    if not base_url:
        raise SettingsError(
            "base_url",
            f"{name} has no base URL. Set {variables.base_url} to the address of your server with its version path, "
            "like http://localhost:11434/v1.",
        )
    if (mistake := _mistake(base_url)) is not None:
        source = "your config.toml" if where == _FILE else where
        raise SettingsError("base_url", f"The base URL of {name}, from {source}, {mistake}.")
    key, source, bearer = _key(name, user, printed)
    return Access(
        name,
        base_url.rstrip("/"),
        key,
        source,
        where,
        bearer,
        section.headers,
        section.server,
        section.reasoning,
        section.think_tags,
    )


def _section(name: KeyedProvider, user: UserSettings) -> ProviderSection:
    return user.file.providers.get(name, ProviderSection())


def _base_url(variables: _Variables, section: ProviderSection, environment: Mapping[str, str]) -> tuple[str, str]:
    """The address, and where it comes from; empty where there is none."""
    if from_environment := environment.get(variables.base_url, "").strip():
        return from_environment, variables.base_url
    return (section.base_url, _FILE) if section.base_url else (variables.default_url, "default")


def _mistake(base_url: str) -> str | None:
    """Why no request can be made to anything below an address, in words that repeat nothing of it."""
    try:
        parts = urlsplit(base_url)
        parts.port  # noqa: B018 - reading it raises ValueError where the port is no number
    except ValueError:
        return "cannot be read; it should look like https://host"
    if "@" in parts.netloc:
        return "holds a user name or password; leave them out"
    if (sign := next((each for each in "?#" if each in base_url), None)) is not None:
        return f"cannot be used as it is: leave out what stands behind the address from {sign} on"
    return None


def _is_keyed(name: KeyedProvider, user: UserSettings) -> bool:
    if name == "openai-compatible":
        return bool(_base_url(_PROVIDERS[name], _section(name, user), user.environment)[0])
    sources = (_key_variable(name, user), keyring_entry(name, user), key_command(name, user))
    return any(source is not None for source in sources)


def _key_variables(name: KeyedProvider, user: UserSettings) -> tuple[str, ...]:
    named = _section(name, user).api_key_env
    return (*((named,) if named else ()), *_PROVIDERS[name].keys)


def _key_variable(name: KeyedProvider, user: UserSettings) -> str | None:
    """The variable of the environment that holds the provider's key."""
    bearer = _PROVIDERS[name].bearer
    variables = (*_key_variables(name, user), *((bearer,) if bearer else ()))
    return next((each for each in variables if user.environment.get(each, "").strip()), None)


def _key(name: KeyedProvider, user: UserSettings, printed: str) -> tuple[str, str, bool]:
    """The key, where it comes from, and whether it is an OAuth token."""
    if (variable := _key_variable(name, user)) is not None:
        bearer = variable == _PROVIDERS[name].bearer
        return user.environment[variable].strip(), f"the environment variable {variable}", bearer
    if (entry := keyring_entry(name, user)) is not None:
        return printed, f"the keyring entry {entry} of the user file", False
    if key_command(name, user) is not None:
        return printed, "the key command of the user file", False
    if name == "openai-compatible":
        return "", "none needed", False
    raise SettingsError("key", f"{name} has no key. Set {_key_variables(name, user)[0]} in the environment.")


def keyring_entry(name: KeyedProvider, user: UserSettings) -> str | None:
    """Return the entry that holds the key, SERVICE/USER; None if there is none or the environment has a key."""
    return None if _key_variable(name, user) is not None else _section(name, user).api_key_keyring


def key_command(name: KeyedProvider, user: UserSettings) -> tuple[str, ...] | None:
    """What to run for the key; None where there is nothing to run, or the environment or a keyring entry has it."""
    if keyring_entry(name, user) is not None or _key_variable(name, user) is not None:
        return None
    return _section(name, user).api_key_command
