"""How to reach a provider: host and key, and where they come from. Reads the user's file and the environment only."""

from __future__ import annotations

import asyncio
import subprocess
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

    `printed`: what the provider's key command has said, where there is one. This function runs no command.
    """
    variables, section = _PROVIDERS[name], user.file.providers.get(name, ProviderSection())
    base_url = section.base_url or user.environment.get(variables.base_url) or variables.default_url
    if not base_url:
        raise SettingsError(
            "base_url",
            f"{name} has no base URL. Set {variables.base_url} to the address of your server with its version path, "
            "like http://localhost:11434/v1.",
        )
    if "@" in urlsplit(base_url).netloc:
        raise SettingsError("base_url", f"The base URL of {name} holds a user name or password; leave them out.")
    key, source, bearer = (
        (printed, "the key command of the user file", False)
        if section.api_key_command is not None
        else _key(name, variables, section, user.environment)
    )
    where = (
        "user file"
        if section.base_url
        else variables.base_url
        if user.environment.get(variables.base_url)
        else "default"
    )
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


def _is_keyed(name: KeyedProvider, user: UserSettings) -> bool:
    variables, section = _PROVIDERS[name], user.file.providers.get(name, ProviderSection())
    if name == "openai-compatible":
        return bool(section.base_url or user.environment.get(variables.base_url))
    names = (*_key_variables(variables, section), *filter(None, (variables.bearer,)))
    return section.api_key_command is not None or any(user.environment.get(name, "").strip() for name in names)


def _key_variables(variables: _Variables, section: ProviderSection) -> tuple[str, ...]:
    return (section.api_key_env,) if section.api_key_env else variables.keys


def _key(
    name: KeyedProvider, variables: _Variables, section: ProviderSection, environment: Mapping[str, str]
) -> tuple[str, str, bool]:
    named = _key_variables(variables, section)
    for variable in named:
        if value := environment.get(variable, "").strip():
            return value, f"the environment variable {variable}", False
    if variables.bearer and (value := environment.get(variables.bearer, "").strip()):
        return value, f"the environment variable {variables.bearer}", True
    if name == "openai-compatible":
        return "", "none needed", False
    raise SettingsError("key", f"{name} has no key. Set {named[0]} in the environment.")


def key_command(name: KeyedProvider, user: UserSettings) -> tuple[str, ...] | None:
    return user.file.providers.get(name, ProviderSection()).api_key_command


async def run_key_command(name: KeyedProvider, argv: tuple[str, ...], *, seconds: float = 10.0) -> str:
    """The key that the user's command prints. It may wait for the user; it does not outlive this call.

    Raises SettingsError with a sentence when it fails, prints nothing or takes longer than `seconds`.
    """
    failed = SettingsError("key", f"The key command for {name} failed. Run it in a terminal to see why.")
    try:
        process = subprocess.Popen(  # noqa: ASYNC220 - starting is quick; its end is waited for in a thread
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except (OSError, ValueError):
        raise failed from None
    try:
        # Shielded, so that the thread always comes to close what belongs to the process.
        output = await asyncio.shield(asyncio.to_thread(_output, process, seconds))
    finally:
        process.kill()
    if output is None:
        said = f"The key command for {name} did not end within {seconds:.0f} seconds."
        raise SettingsError("key", f"{said} Run it in a terminal to see why.")
    if process.returncode:
        raise failed
    if not (key := output.decode("utf-8", "replace").strip()):
        raise SettingsError("key", f"The key command for {name} printed nothing.")
    return key


def _output(process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """What it has printed when it has ended; None when it takes too long, and it is ended then."""
    with process:
        try:
            return process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            return None
        finally:
            process.kill()
