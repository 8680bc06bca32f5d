"""Serve one client of the Agent Client Protocol (ACP) on standard input and output, such as Zed or a JetBrains IDE.

The agent uses the same settings, keys and sessions as the language server.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import os
import shutil
import sys
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import tomlkit
from tomlkit.exceptions import TOMLKitError

from thinklsp.cli.doctor import describe_hidden_config
from thinklsp.cli.serve_stdio import serve_acp
from thinklsp.cli.setup.files import apply_changes, check_writable, decode_text, plan_change
from thinklsp.cli.terminal import ask_line, ask_secret, can_ask, choose, confirm, sanitize_text
from thinklsp.core.errors import ThinkLspError
from thinklsp.engine.diagnosis import run_diagnosis
from thinklsp.settings.access import PROVIDERS, find_section, list_key_variables, list_keyed_providers, resolve_access
from thinklsp.settings.config_files import make_private, replace_file
from thinklsp.settings.model import KeyedProvider
from thinklsp.settings.sources import load_user_settings, resolve_settings
from thinklsp.settings.user_file import UserSettings

_Place = Literal["keyring", "file"]

_COMPATIBLE: KeyedProvider = "openai-compatible"
_SERVICE = "thinklsp"
_IN_KEYRING = "in the system's keyring (the client must pass the variables of your desktop session)"
_IN_FILE = "in a file that only you can read (works with every client)"
_EXPLANATION = """\
thinklsp needs the API key of a provider. It looks for a key in this order: an environment variable such as
ANTHROPIC_API_KEY, an entry in the system's keyring, and a command that prints the key; your config.toml names
the entry or the command. This setup tests the key that you type and stores it outside the environment, so that
every client finds it. The key is not shown while you type it. Press Enter without a key to stop.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--setup", action="store_true", help="store the key of a provider, in a terminal, and exit")


def run(args: argparse.Namespace) -> int:
    """Run the command. Returns 0 if the client closed its end, or if a provider has a key."""
    return _set_up_key() if args.setup else serve_acp()


def _set_up_key() -> int:
    """Choose a provider, ask for its key, test it and store it.

    The key appears in no output, log, command line or environment of another program.
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
    if chosen == "auto":
        titles: dict[str | None, KeyedProvider] = {facts.title: name for name, facts in PROVIDERS.items()}
        name = titles.get(asyncio.run(choose("Provider:", [facts.title for facts in PROVIDERS.values()])))
        return _stop() if name is None else _ask_and_store(name, user, _choose_place())
    return _ask_and_store(chosen, user, _choose_place())


def _offer_storage(name: KeyedProvider, user: UserSettings) -> int:
    """Say where the key comes from. Offer to store a key from the environment, or to replace one that we stored."""
    source = resolve_access(name, user).source
    if source == "none needed":
        print(f"A base URL for {name} was found; no key is needed.")
        return 0
    print(f"A key for {PROVIDERS[name].title} was found: {source}.")
    place, section = _find_own_place(name, user), find_section(name, user)
    variable = next((item for item in list_key_variables(name, user) if user.environment.get(item, "").strip()), None)
    if not can_ask() or (place is None and (section.api_key_keyring or section.api_key_command)):
        return 0
    if variable is not None:
        if confirm("Store this key, too, for clients that do not pass the variable?"):
            return _store(name, user.environment[variable].strip(), None, user, place or _choose_place())
    elif place is not None and confirm("Replace it?"):
        return _ask_and_store(name, user, place)
    return 0


def _choose_place() -> _Place:
    if importlib.util.find_spec("keyring") is None:
        return "file"
    chosen = asyncio.run(choose("Where should the key be stored?", [_IN_KEYRING, _IN_FILE]))
    return "keyring" if chosen == _IN_KEYRING else "file"


def _ask_and_store(name: KeyedProvider, user: UserSettings, place: _Place) -> int:
    """Ask for a key, and for the base URL if it is unknown, until a key works or the user gives none."""
    while True:
        base_url: str | None = None
        if name == _COMPATIBLE and name not in list_keyed_providers(user):
            base_url = ask_line("Base URL of the server, like http://localhost:11434/v1: ")
        if base_url == "" or not ((key := _ask_key(name)) or base_url):
            return _stop()
        print("Testing the key …", flush=True)
        report = asyncio.run(run_diagnosis(_build_environment(name, key, base_url, user)))
        if report["canRun"]:
            return _store(name, key, base_url, user, place)
        problem = report["problems"][-1] if report["problems"] else "The provider gave no reason."
        sys.stderr.write(f"The key does not work. {sanitize_text(problem)}\n")
        if report["reachable"] is False and confirm("Store the key without a test?"):
            return _store(name, key, base_url, user, place)


def _ask_key(name: KeyedProvider) -> str:
    title, page = PROVIDERS[name].title, PROVIDERS[name].key_page
    hint = "empty if it needs none" if page is None else f"from {page}"
    while True:
        key = ask_secret(f"API key for {title} ({hint}): ")
        if key.isascii() and key.isprintable() and " " not in key:
            return key
        sys.stderr.write("A key consists of letters, digits and punctuation, without spaces. Try again.\n")


def _build_environment(name: KeyedProvider, key: str, base_url: str | None, user: UserSettings) -> Mapping[str, str]:
    """Return the environment for the test. It is a value in this process; no program is started with it."""
    environment = {**os.environ, "THINKLSP_PROVIDER": name}
    if key:
        environment[list_key_variables(name, user)[0]] = key
    if base_url is not None:
        environment[PROVIDERS[name].base_url] = base_url
    return environment


def _stop() -> int:
    sys.stderr.write("Nothing was stored.\n")
    return 1


def _find_key_file(name: KeyedProvider, user: UserSettings) -> str:
    # The model's tools may not read files with this suffix in any workspace, which could be a repository of dotfiles.
    return os.path.join(os.path.dirname(user.path), "keys", f"{name}.key")


def _find_own_place(name: KeyedProvider, user: UserSettings) -> _Place | None:
    """Return the place in which this module has stored the key, or None."""
    section = find_section(name, user)
    if section.api_key_keyring is not None:
        return "keyring" if section.api_key_keyring == f"{_SERVICE}/{name}" else None
    return "file" if (section.api_key_command or ())[-1:] == (_find_key_file(name, user),) else None


def _store(name: KeyedProvider, key: str, base_url: str | None, user: UserSettings, place: _Place) -> int:
    """Store the key and name its place in config.toml, which never contains the key. An empty key is not stored.

    Raises ThinkLspError.
    """
    file, entry = _find_key_file(name, user), f"{_SERVICE}/{name}"
    values: dict[str, Any] = {} if base_url is None else {"base_url": base_url}
    if key and place == "keyring":
        values["api_key_keyring"] = entry
        sentence = f"The key is in the system's keyring, as {entry}. {user.path} names the entry."
    elif key:
        values["api_key_command"] = [shutil.which("cat") or "/bin/cat", file]
        sentence = f"The key is in {file}, which only you can read. {user.path} names the file."
    else:
        sentence = f"The base URL was added to {user.path}."
    path = Path(user.path)
    changes = plan_change(path, partial(_edit_config, path=path, name=name, values=values))
    check_writable(changes)
    if key and place == "keyring":
        _store_in_keyring(name, key)
    elif key:
        _store_in_file(file, key)
    apply_changes(changes)
    print(sanitize_text(sentence))
    if (note := describe_hidden_config()) is not None:
        print(sanitize_text(note))
    return 0


def _store_in_keyring(name: KeyedProvider, key: str) -> None:
    try:
        keyring = importlib.import_module("keyring")
        keyring.set_password(_SERVICE, name, key)
        is_stored = keyring.get_password(_SERVICE, name) == key
    except Exception as error:  # noqa: BLE001 - backends raise any error
        problem = f"The keyring cannot store the key ({type(error).__name__})."
        raise ThinkLspError(f"{problem} Run the command again and choose the file.") from None
    if not is_stored:
        raise ThinkLspError("The keyring did not keep the key. Run the command again and choose the file.")


def _store_in_file(path: str, key: str) -> None:
    """Write a file that only the user can read. Its folder keeps itself out of a repository of dotfiles."""
    folder = os.path.dirname(path)
    ignore = os.path.join(folder, ".gitignore")
    try:
        make_private(folder)
        if not os.path.lexists(ignore):
            replace_file(ignore, "*\n")
        replace_file(path, f"{key}\n")
    except OSError as error:
        raise ThinkLspError(f"Cannot write {path}: {error.strerror}.") from None


def _edit_config(data: bytes | None, *, path: Path, name: str, values: Mapping[str, Any]) -> bytes:
    """Add the values to the provider's section. Raises ThinkLspError if other values would change."""
    text = decode_text(data or b"", path)
    try:
        wanted = tomllib.loads(text)
        section = wanted.setdefault("providers", {}).setdefault(name, {})
        section.update({key: value for key, value in values.items() if key not in section})
        document = tomlkit.parse(text)
        providers = document.setdefault("providers", tomlkit.table(is_super_table=True))
        edited = providers.setdefault(name, tomlkit.table())
        for key, value in section.items():
            if key not in edited:
                edited[key] = value
        changed = tomlkit.dumps(document)
        is_right = tomllib.loads(changed) == wanted and all(section[key] == values[key] for key in values)
    except (TOMLKitError, tomllib.TOMLDecodeError, TypeError, AttributeError):
        is_right = False
    if not is_right:
        lines = ", ".join(f"{key} = {value!r}" for key, value in values.items())
        raise ThinkLspError(f"{path} cannot be changed. Add to `[providers.{name}]` by hand: {lines}.")
    return changed.encode()
