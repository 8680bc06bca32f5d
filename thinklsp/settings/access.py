"""Access to a provider, which consists of its host and key. Both come only from the user's file and the environment.

Environment variables take precedence over the file. The file can name an additional variable, a command that prints the
key, or an entry in the system keyring.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from thinklsp.core.choices import ReasoningEcho
from thinklsp.core.errors import SettingsError, format_install_command
from thinklsp.core.server_context import DEFAULT_TENANT, TENANT_VARIABLE, USER_VARIABLE
from thinklsp.settings.model import KeyedProvider
from thinklsp.settings.user_file import ProviderSection, UserSettings

KEYRING_REQUIREMENT = "keyring>=25"

# The interval for checking whether a key command has exited, because its output may stay open after the exit.
_POLL_SECONDS = 0.05
# The time limit for the keyring, which may ask the user for a password.
_KEYRING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Access:
    """The host and key of a provider.

    `source` describes the source of the key for the user. `bearer` is true if the key is an OAuth token. `server`,
    `reasoning` and `think_tags` describe a compatible server, as in `ProviderSection`.
    """

    provider: str
    base_url: str
    api_key: str = field(repr=False)
    source: str
    base_url_source: str
    bearer: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    server: str | None = None
    reasoning: ReasoningEcho | None = None
    think_tags: bool = False


@dataclass(frozen=True, slots=True)
class _Variables:
    keys: tuple[str, ...]
    base_url: str
    default_url: str
    bearer: str | None = None


_FILE = "user file"

# The providers in the order in which `auto` tries them.
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

# The environment variables that may contain a key.
KEY_VARIABLES = frozenset(
    name for each in _PROVIDERS.values() for name in (*each.keys, *((each.bearer,) if each.bearer else ()))
)


def list_keyed_providers(user: UserSettings) -> tuple[KeyedProvider, ...]:
    """Return the providers that have a key, and `openai-compatible` if it has a base URL.

    Key commands are not run.
    """
    return tuple(name for name in _PROVIDERS if _is_keyed(name, user))


def resolve_access(name: KeyedProvider, user: UserSettings, *, external_key: str = "") -> Access:
    """Return the host and key of a provider. Raises SettingsError with a message for the user.

    `external_key` is the key if it comes from the keyring or a key command. The caller must read it first.
    """
    variables, section = _PROVIDERS[name], _find_section(name, user)
    base_url, where = _find_base_url(variables, section, user.environment)
    if not base_url:
        raise SettingsError(
            "base_url",
            f"{name} has no base URL. Set {variables.base_url} to the address of your server with its version path, "
            "like http://localhost:11434/v1.",
        )
    if (mistake := _find_url_problem(base_url)) is not None:
        source = "your config.toml" if where == _FILE else where
        raise SettingsError("base_url", f"The base URL of {name}, from {source}, {mistake}.")
    key, source, bearer = _resolve_key(name, user, external_key)
    return Access(
        name,
        base_url.rstrip("/"),
        key,
        source,
        where,
        bearer,
        {**section.headers, **_build_user_header(section, user.environment)},
        section.server,
        section.reasoning,
        section.think_tags,
    )


def _build_user_header(section: ProviderSection, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the header with the name of the user, or nothing if the client is not identified.

    A tenant's name and a slash come first if users have tenants. Names are percent-encoded, so they contain no slash.
    """
    if section.user_header is None or USER_VARIABLE not in environment:
        return {}
    tenant = environment.get(TENANT_VARIABLE, DEFAULT_TENANT)
    names = ([] if tenant == DEFAULT_TENANT else [tenant]) + [environment[USER_VARIABLE]]
    return {section.user_header: "/".join(quote(name, safe="@") for name in names)}


def get_base_url_variable(name: KeyedProvider) -> str:
    return _PROVIDERS[name].base_url


def _find_section(name: KeyedProvider, user: UserSettings) -> ProviderSection:
    return user.file.providers.get(name, ProviderSection())


def _find_base_url(variables: _Variables, section: ProviderSection, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the base URL and its source. The base URL is an empty string if it is not set."""
    if from_environment := environment.get(variables.base_url, "").strip():
        return from_environment, variables.base_url
    return (section.base_url, _FILE) if section.base_url else (variables.default_url, "default")


def _find_url_problem(base_url: str) -> str | None:
    """Return the part of an error message that describes a problem with a base URL, or None if the URL is valid.

    The message contains no part of the URL.
    """
    try:
        parts = urlsplit(base_url)
        parts.port  # noqa: B018 - raises ValueError for an invalid port
    except ValueError:
        return "is not a valid URL; it should look like https://host"
    if "@" in parts.netloc:
        return "contains a user name or password; remove them"
    if (sign := next((candidate for candidate in "?#" if candidate in base_url), None)) is not None:
        return f"has a query or a fragment; remove everything from `{sign}` on"
    return None


def _is_keyed(name: KeyedProvider, user: UserSettings) -> bool:
    if name == "openai-compatible":
        return bool(_find_base_url(_PROVIDERS[name], _find_section(name, user), user.environment)[0])
    return any(place is not None for place in _locate_key(name, user))


def list_key_variables(name: KeyedProvider, user: UserSettings) -> tuple[str, ...]:
    """Return the environment variables that may contain the key, in the order in which they are tried."""
    variable = _find_section(name, user).api_key_env
    return (*((variable,) if variable else ()), *_PROVIDERS[name].keys)


def _locate_key(name: KeyedProvider, user: UserSettings) -> tuple[str | None, str | None, tuple[str, ...] | None]:
    """Return the variable, the keyring entry or the command that provides the key. The other two values are None."""
    bearer, section = _PROVIDERS[name].bearer, _find_section(name, user)
    variables = (*list_key_variables(name, user), *((bearer,) if bearer else ()))
    variable = next((item for item in variables if user.environment.get(item, "").strip()), None)
    if variable is not None or section.api_key_keyring is not None:
        return variable, None if variable is not None else section.api_key_keyring, None
    return None, None, section.api_key_command


def _resolve_key(name: KeyedProvider, user: UserSettings, external_key: str) -> tuple[str, str, bool]:
    """Return the key, its source, and whether the key is an OAuth token."""
    variable, entry, command = _locate_key(name, user)
    if variable is not None:
        bearer = variable == _PROVIDERS[name].bearer
        return user.environment[variable].strip(), f"the environment variable {variable}", bearer
    if entry is not None:
        return external_key, f"the keyring entry {entry} in the user file", False
    if command is not None:
        return external_key, "the key command in the user file", False
    if name == "openai-compatible":
        return "", "none needed", False
    raise SettingsError("key", f"{name} has no key. Set {list_key_variables(name, user)[0]} in the environment.")


def find_keyring_entry(name: KeyedProvider, user: UserSettings) -> str | None:
    """Return the name of the keyring entry for the key, or None if the key does not come from the keyring."""
    return _locate_key(name, user)[1]


def find_key_command(name: KeyedProvider, user: UserSettings) -> tuple[str, ...] | None:
    """Return the command that prints the key, or None if the key does not come from a command."""
    return _locate_key(name, user)[2]


async def read_keyring(name: KeyedProvider, entry: str, *, seconds: float = _KEYRING_SECONDS) -> str:
    """Return the key in a keyring entry. `entry` has the form `SERVICE/USER`.

    Raises SettingsError with a message for the user if there is no key, or if the keyring fails or takes longer than
    `seconds`.
    """
    service, _, user = entry.partition("/")
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str | None] = loop.create_future()

    def settle(outcome: str | Exception | None) -> None:
        if answer.done():
            return
        if isinstance(outcome, Exception):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    def read() -> None:
        try:
            outcome: str | Exception | None = importlib.import_module("keyring").get_password(service, user)
        except Exception as error:  # noqa: BLE001 - backends raise any error
            outcome = error
        # The event loop may be closed by the time the keyring returns.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, outcome)

    # Keyring backends block and cannot be interrupted. In a daemon thread, they do not delay the exit of the process.
    threading.Thread(target=read, daemon=True, name="thinklsp-key").start()
    try:
        async with asyncio.timeout(seconds):
            key = await answer
    except TimeoutError:
        message = f"The keyring did not respond within {seconds:.0f} seconds. Unlock it and try again."
        raise SettingsError("key", message) from None
    except ImportError:
        command = format_install_command(KEYRING_REQUIREMENT)
        message = f"The key for {name} is in the keyring, which needs one more package. Run {command}."
        raise SettingsError("key", message) from None
    except Exception as error:  # noqa: BLE001 - backends raise any error
        message = f"The keyring cannot be used for the key of {name} ({type(error).__name__})."
        raise SettingsError("key", message) from None
    if not (key or "").strip():
        command = shlex.join((sys.executable, "-m", "keyring", "set", service, user))
        raise SettingsError("key", f"The keyring has no entry {entry} for {name}. Run {command}.")
    return (key or "").strip()


async def run_key_command(
    name: KeyedProvider, argv: tuple[str, ...], environment: Mapping[str, str] | None = None, *, seconds: float = 10.0
) -> str:
    """Run the user's key command and return the key that it prints. The command may ask the user for confirmation.

    `environment` is the environment of the engine. On a server for several users, the command receives its variables
    with the user's names, so that each user can have a key of their own.

    The command is killed on cancellation. Raises SettingsError with a message for the user if the command fails, prints
    nothing, or takes longer than `seconds`.
    """
    return await run_secret_command(f"The key command for {name}", argv, environment, seconds=seconds)


async def run_secret_command(
    subject: str, argv: tuple[str, ...], environment: Mapping[str, str] | None = None, *, seconds: float = 10.0
) -> str:
    """Run a command of the user that prints a secret, as `run_key_command` does. `subject` begins each message."""
    failed = SettingsError("key", f"{subject} failed. Run it in a terminal to see why.")
    names = environment or {}
    try:
        process = subprocess.Popen(  # noqa: ASYNC220 - a thread waits for the exit
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **{name: names[name] for name in (TENANT_VARIABLE, USER_VARIABLE) if name in names}},
        )
    except (OSError, ValueError):
        raise failed from None
    try:
        # Shield the thread from cancellation, so that it always closes the pipes of the process.
        output = await asyncio.shield(asyncio.to_thread(_read_output, process, seconds))
    finally:
        process.kill()
    if output is None:
        message = f"{subject} did not finish within {seconds:.0f} seconds."
        raise SettingsError("key", f"{message} Run it in a terminal to see why.")
    if process.returncode:
        raise failed
    if not (key := output.decode("utf-8", "replace").strip()):
        raise SettingsError("key", f"{subject} printed nothing.")
    return key


def _read_output(process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """Return the output of a process after it exits. If the process takes too long, kill it and return None.

    Do not wait for the end of the output, because a background process of the command may keep the output open.
    """
    end = time.monotonic() + seconds
    with process:
        try:
            while True:
                # After the process has exited, the next call of `communicate` returns its entire output.
                has_ended = process.poll() is not None
                try:
                    return process.communicate(timeout=_POLL_SECONDS)[0]
                except subprocess.TimeoutExpired as so_far:
                    if has_ended:
                        return so_far.output or b""
                    if time.monotonic() > end:
                        return None
        finally:
            process.kill()
