"""The setup of an API key in a terminal: choose a provider, type the key, test it and store it.

The key appears in no output, log, command line or environment of another program.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from thinklsp.cli.key_storage import KeyPlace, find_own_place, is_keyring_installed, names_key_place, store_key
from thinklsp.cli.terminal import ask_line, ask_secret, can_ask, choose, confirm, sanitize_text
from thinklsp.core.errors import ThinkLspError
from thinklsp.engine.diagnosis import run_diagnosis
from thinklsp.settings.access import (
    get_base_url_variable,
    list_key_variables,
    list_keyed_providers,
    resolve_access,
)
from thinklsp.settings.model import KeyedProvider
from thinklsp.settings.private_paths import find_config_path
from thinklsp.settings.sources import load_user_settings, resolve_settings
from thinklsp.settings.user_file import UserSettings

_COMPATIBLE: KeyedProvider = "openai-compatible"
# The name of each provider, and the page where its keys are made.
_PROVIDERS: Mapping[KeyedProvider, tuple[str, str | None]] = {
    "anthropic": ("Anthropic", "https://console.anthropic.com/settings/keys"),
    "openai": ("OpenAI", "https://platform.openai.com/api-keys"),
    "google": ("Google Gemini", "https://aistudio.google.com/apikey"),
    _COMPATIBLE: ("OpenAI-compatible server", None),
}
_IN_KEYRING = "in the system's keyring (the client must pass the variables of your desktop session)"
_IN_FILE = "in a file that only you can read (works with every client)"
_EXPLANATION = """\
thinklsp needs the API key of a provider. It looks for a key in this order: an environment variable such as
ANTHROPIC_API_KEY, an entry in the system's keyring, and a command that prints the key; your config.toml names
the entry or the command. This setup tests the key that you type and stores it outside the environment, so that
every client finds it. The key is not shown while you type it. Press Enter without a key to stop.
"""


@dataclass(frozen=True, slots=True)
class _Answer:
    key: str = field(repr=False)
    base_url: str | None


def run_key_setup() -> int:
    """Set up a key and return the exit code, which is 0 if there is a key afterwards.

    Raises ThinkLspError, and KeyboardInterrupt after Ctrl-C.
    """
    user = load_user_settings(os.environ)
    chosen = resolve_settings(user).settings.provider
    if chosen == "simulator":
        print("Your settings use the offline simulator, which needs no key.")
        return 0
    if keyed := [name for name in list_keyed_providers(user) if chosen in ("auto", name)]:
        return _offer_storage(keyed[0], user)
    if not can_ask():
        raise ThinkLspError("No key was found. Run `thinklsp acp --setup` in a terminal to store one.")
    print(_EXPLANATION)
    name = _choose_provider() if chosen == "auto" else chosen
    if name is None:
        return _stop()
    return _ask_and_store(name, user, _choose_place())


def describe_hidden_config() -> str | None:
    """Return a sentence if clients without the user's environment do not find config.toml, or None."""
    path = find_config_path(os.environ)
    variable = next((name for name in ("THINKLSP_CONFIG", "XDG_CONFIG_HOME") if os.environ.get(name)), None)
    if variable is None or path == os.path.expanduser("~/.config/thinklsp/config.toml"):
        return None
    return f"{path} is used because of {variable}. A client must pass this variable to thinklsp."


def _offer_storage(name: KeyedProvider, user: UserSettings) -> int:
    """Say where the key comes from. Offer to store a key from the environment, or to replace one that we stored."""
    source = resolve_access(name, user).source
    title, _ = _PROVIDERS[name]
    if source == "none needed":
        print(f"A base URL for {name} was found; no key is needed.")
        return 0
    print(f"A key for {title} was found: {source}.")
    place = find_own_place(name, user)
    variable = next((item for item in list_key_variables(name, user) if user.environment.get(item, "").strip()), None)
    if not can_ask() or (place is None and names_key_place(name, user)):
        return 0
    if variable is not None:
        if confirm("Store this key, too, for clients that do not pass the variable?"):
            key = user.environment[variable].strip()
            return _store(name, _Answer(key, None), user, place or _choose_place())
    elif place is not None and confirm("Replace it?"):
        return _ask_and_store(name, user, place)
    return 0


def _choose_provider() -> KeyedProvider | None:
    titles = {title: name for name, (title, _) in _PROVIDERS.items()}
    chosen = asyncio.run(choose("Provider:", list(titles)))
    return None if chosen is None else titles[chosen]


def _choose_place() -> KeyPlace:
    if not is_keyring_installed():
        return "file"
    chosen = asyncio.run(choose("Where should the key be stored?", [_IN_KEYRING, _IN_FILE]))
    return "keyring" if chosen == _IN_KEYRING else "file"


def _ask_and_store(name: KeyedProvider, user: UserSettings, place: KeyPlace) -> int:
    """Ask for a key until one works or the user gives none."""
    while (answer := _ask(name, user)) is not None:
        print("Testing the key …", flush=True)
        report = asyncio.run(run_diagnosis(_build_environment(name, answer, user)))
        if report["canRun"]:
            return _store(name, answer, user, place)
        problem = report["problems"][-1] if report["problems"] else "The provider gave no reason."
        sys.stderr.write(f"The key does not work. {sanitize_text(problem)}\n")
        if report["reachable"] is False and confirm("Store the key without a test?"):
            return _store(name, answer, user, place)
    return _stop()


def _ask(name: KeyedProvider, user: UserSettings) -> _Answer | None:
    """Ask for a key, and for the base URL if it is unknown. Return None if the user gives none."""
    title, page = _PROVIDERS[name]
    base_url: str | None = None
    if name == _COMPATIBLE and name not in list_keyed_providers(user):
        base_url = ask_line("Base URL of the server, like http://localhost:11434/v1: ")
        if not base_url:
            return None
    question = f"API key for {title}"
    question += " (empty if it needs none)" if page is None else f" (from {page})"
    while True:
        key = ask_secret(f"{question}: ")
        if key.isascii() and key.isprintable() and " " not in key:
            return None if not key and base_url is None else _Answer(key, base_url)
        sys.stderr.write("A key consists of letters, digits and punctuation, without spaces. Try again.\n")


def _build_environment(name: KeyedProvider, answer: _Answer, user: UserSettings) -> Mapping[str, str]:
    """Return the environment for the test. It is a value in this process; no program is started with it."""
    environment = {**os.environ, "THINKLSP_PROVIDER": name}
    if answer.key:
        environment[list_key_variables(name, user)[0]] = answer.key
    if answer.base_url is not None:
        environment[get_base_url_variable(name)] = answer.base_url
    return environment


def _store(name: KeyedProvider, answer: _Answer, user: UserSettings, place: KeyPlace) -> int:
    print(sanitize_text(_store_somewhere(name, answer, user, place)))
    if (note := describe_hidden_config()) is not None:
        print(sanitize_text(note))
    return 0


def _store_somewhere(name: KeyedProvider, answer: _Answer, user: UserSettings, place: KeyPlace) -> str:
    """Store the key. If the keyring cannot be used, store the key in a file."""
    try:
        return store_key(name, answer.key, user, place=place, base_url=answer.base_url)
    except ThinkLspError as error:
        if place == "file" or find_own_place(name, user) is not None:
            raise
        sys.stderr.write(f"{sanitize_text(str(error))}\n")
    return store_key(name, answer.key, user, place="file", base_url=answer.base_url)


def _stop() -> int:
    sys.stderr.write("Nothing was stored.\n")
    return 1
