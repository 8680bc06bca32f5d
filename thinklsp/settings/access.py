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
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from urllib.parse import quote

from thinklsp.core.choices import ReasoningEcho
from thinklsp.core.errors import SettingsError, format_install_command
from thinklsp.core.server_context import DEFAULT_TENANT, TENANT_VARIABLE, USER_VARIABLE
from thinklsp.settings.model import KeyedProvider
from thinklsp.settings.user_file import ProviderSection, UserSettings, find_url_problem

KEYRING_REQUIREMENT = "keyring>=25"

# The default time limits for the keyring and for key commands.
_KEYRING_SECONDS, _COMMAND_SECONDS = 60.0, 10.0

KeySource = str | tuple[str, ...]
"""A keyring entry of the form `SERVICE/USER`, or a command that prints the key."""


@dataclass(frozen=True, slots=True)
class Access:
    """The host and key of a provider.

    `source` describes the source of the key for the user. `bearer` is true if the key is an OAuth token. `server`,
    `reasoning` and `think_tags` describe a compatible server, as in `ProviderSection`.
    """

    provider: KeyedProvider
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
class ProviderFacts:
    """What is known about a provider before it is asked.

    `keys`, `bearer` and `base_url` are environment variables, and `key_page` is the web page where keys are made.
    `added_path` matches the part of the path that thinklsp adds to the base URL.
    """

    title: str
    keys: tuple[str, ...]
    base_url: str
    default_url: str
    added_path: str
    key_page: str | None = None
    bearer: str | None = None


_FILE = "user file"

# The providers in the order in which `auto` tries them.
PROVIDERS: Mapping[KeyedProvider, ProviderFacts] = {
    "anthropic": ProviderFacts(
        "Anthropic", ("ANTHROPIC_API_KEY",), "ANTHROPIC_BASE_URL", "https://api.anthropic.com",
        r"/v\d\w*(?:/messages)?$", "https://console.anthropic.com/settings/keys", "ANTHROPIC_AUTH_TOKEN",
    ),
    "openai": ProviderFacts(
        "OpenAI", ("OPENAI_API_KEY",), "OPENAI_BASE_URL", "https://api.openai.com/v1", r"/responses$",
        "https://platform.openai.com/api-keys",
    ),
    "google": ProviderFacts(
        "Google Gemini", ("GEMINI_API_KEY", "GOOGLE_API_KEY"), "GOOGLE_GEMINI_BASE_URL",
        "https://generativelanguage.googleapis.com", r"/v\d\w*(?:/models.*)?$", "https://aistudio.google.com/apikey",
    ),
    "openai-compatible": ProviderFacts(
        "OpenAI-compatible server", ("THINKLSP_COMPATIBLE_API_KEY",), "THINKLSP_COMPATIBLE_BASE_URL", "",
        r"/chat/completions$",
    ),
}  # fmt: skip

# The environment variables that may contain a key.
KEY_VARIABLES = frozenset(
    name for each in PROVIDERS.values() for name in (*each.keys, *((each.bearer,) if each.bearer else ()))
)


def list_keyed_providers(user: UserSettings) -> tuple[KeyedProvider, ...]:
    """Return the providers that have a key, and `openai-compatible` if it has a base URL.

    Key commands are not run.
    """
    return tuple(name for name in PROVIDERS if _is_keyed(name, user))


def resolve_access(name: KeyedProvider, user: UserSettings, *, external_key: str = "") -> Access:
    """Return the host and key of a provider. Raises SettingsError with a message for the user.

    `external_key` is the key if it comes from the keyring or a key command. The caller must read it first.
    """
    facts, section = PROVIDERS[name], find_section(name, user)
    base_url, where = _find_base_url(facts, section, user.environment)
    if not base_url:
        raise SettingsError(
            "base_url",
            f"{name} has no base URL. Set {facts.base_url} to the address of your server with its version path, "
            "like http://localhost:11434/v1.",
        )
    if (mistake := find_url_problem(base_url)) is not None:
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


def find_section(name: KeyedProvider, user: UserSettings) -> ProviderSection:
    """Return the provider's section of config.toml, or an empty one."""
    return user.file.providers.get(name, ProviderSection())


def _find_base_url(facts: ProviderFacts, section: ProviderSection, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the base URL and its source. The base URL is an empty string if it is not set."""
    if from_environment := environment.get(facts.base_url, "").strip():
        return from_environment, facts.base_url
    return (section.base_url, _FILE) if section.base_url else (facts.default_url, "default")


def _is_keyed(name: KeyedProvider, user: UserSettings) -> bool:
    if name == "openai-compatible":
        return bool(_find_base_url(PROVIDERS[name], find_section(name, user), user.environment)[0])
    return _find_key_variable(name, user) is not None or find_key_source(name, user) is not None


def list_key_variables(name: KeyedProvider, user: UserSettings) -> tuple[str, ...]:
    """Return the environment variables that may contain the key, in the order in which they are tried."""
    variable = find_section(name, user).api_key_env
    return (*((variable,) if variable else ()), *PROVIDERS[name].keys)


def _find_key_variable(name: KeyedProvider, user: UserSettings) -> str | None:
    variables = (*list_key_variables(name, user), PROVIDERS[name].bearer)
    return next((each for each in variables if each and user.environment.get(each, "").strip()), None)


def find_key_source(name: KeyedProvider, user: UserSettings) -> KeySource | None:
    """Return the keyring entry or the command that provides the key, or None if no such source is needed."""
    section = find_section(name, user)
    return (section.api_key_keyring or section.api_key_command) if _find_key_variable(name, user) is None else None


def _resolve_key(name: KeyedProvider, user: UserSettings, external_key: str) -> tuple[str, str, bool]:
    """Return the key, its source, and whether the key is an OAuth token."""
    if (variable := _find_key_variable(name, user)) is not None:
        bearer = variable == PROVIDERS[name].bearer
        return user.environment[variable].strip(), f"the environment variable {variable}", bearer
    if (source := find_key_source(name, user)) is not None:
        where = f"keyring entry {source}" if isinstance(source, str) else "key command"
        return external_key, f"the {where} in the user file", False
    if name == "openai-compatible":
        return "", "none needed", False
    raise SettingsError("key", f"{name} has no key. Set {list_key_variables(name, user)[0]} in the environment.")


async def read_external_key(
    name: KeyedProvider, source: KeySource, environment: Mapping[str, str], *, seconds: float | None = None
) -> str:
    """Read the key from a keyring entry or a command, which may ask the user for a password.

    Raises SettingsError with a message for the user if there is no key, or if the source fails or takes longer than
    `seconds` (default: 60 for the keyring, 10 for a command). On cancellation, the command is killed.
    """
    if isinstance(source, str):
        return await _read_keyring(name, source, _KEYRING_SECONDS if seconds is None else seconds)
    limit = _COMMAND_SECONDS if seconds is None else seconds
    return await run_secret_command(f"The key command for {name}", source, environment, seconds=limit)


async def _read_keyring(name: KeyedProvider, entry: str, seconds: float) -> str:
    service, _, user = entry.partition("/")
    answer: Future[str | None] = Future()
    # A running future cannot be cancelled, so the thread can always set the result.
    answer.set_running_or_notify_cancel()

    def read() -> None:
        try:
            answer.set_result(importlib.import_module("keyring").get_password(service, user))
        except Exception as error:  # noqa: BLE001 - backends raise any error
            answer.set_exception(error)

    # Keyring backends block and cannot be interrupted. In a daemon thread, they do not delay the exit of the process.
    threading.Thread(target=read, daemon=True, name="thinklsp-key").start()
    try:
        async with asyncio.timeout(seconds):
            key = (await asyncio.wrap_future(answer) or "").strip()
    except TimeoutError:
        message = f"The keyring did not respond within {seconds:.0f} seconds. Unlock it and try again."
    except ImportError:
        command = format_install_command(KEYRING_REQUIREMENT)
        message = f"The key for {name} is in the keyring, which needs one more package. Run {command}."
    except Exception as error:  # noqa: BLE001 - backends raise any error
        message = f"The keyring cannot be used for the key of {name} ({type(error).__name__})."
    else:
        if key:
            return key
        command = shlex.join((sys.executable, "-m", "keyring", "set", service, user))
        message = f"The keyring has no entry {entry} for {name}. Run {command}."
    raise SettingsError("key", message)


async def run_secret_command(
    subject: str, argv: tuple[str, ...], environment: Mapping[str, str], *, seconds: float = _COMMAND_SECONDS
) -> str:
    """Run a command of the user that prints a secret of at most 64 kB, and return the secret without spaces around it.

    `environment` is the environment of the engine. On a server for several users, the command receives its variables
    with the user's names, so that each user can have a secret of their own.

    The command is killed on cancellation. Raises SettingsError with a message that begins with `subject` if the command
    fails, prints nothing, or takes longer than `seconds`.
    """
    advice = "Run it in a terminal to see why."
    failed = SettingsError("key", f"{subject} failed. {advice}")
    names = {name: environment[name] for name in (TENANT_VARIABLE, USER_VARIABLE) if name in environment}
    try:
        process = subprocess.Popen(  # noqa: ASYNC220 - a thread waits for the exit
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **names},
        )
    except (OSError, ValueError):
        raise failed from None
    try:
        # Shield the thread from cancellation, so that it always closes the pipe of the process.
        output = await asyncio.shield(asyncio.to_thread(_read_output, process, seconds))
    except subprocess.TimeoutExpired:
        raise SettingsError("key", f"{subject} did not finish within {seconds:.0f} seconds. {advice}") from None
    finally:
        process.kill()
    if process.returncode:
        raise failed
    if not (secret := output.decode("utf-8", "replace").strip()):
        raise SettingsError("key", f"{subject} printed nothing.")
    return secret


def _read_output(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """Return the output of a process after it exits. If the process takes too long, kill it and raise TimeoutExpired.

    Do not wait for the end of the output, because a background process of the command may keep the output open.
    """
    with process:
        try:
            process.wait(seconds)
        finally:
            process.kill()
        if process.stdout is None:
            raise ValueError("the process must be started with a pipe")
        os.set_blocking(process.stdout.fileno(), False)
        return process.stdout.read() or b""
