"""Storage of a provider's key in the system's keyring or in a private file, named by the user's config.toml.

The server then finds the key without any environment variable. The key itself is never written to config.toml.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import tomlkit
from tomlkit.exceptions import TOMLKitError

from thinklsp.cli.setup.blocks import decode_text
from thinklsp.cli.setup.files import FileChange, apply_changes, check_writable, plan_change, read_file
from thinklsp.core.errors import SettingsError, ThinkLspError
from thinklsp.settings.access import read_keyring, run_key_command
from thinklsp.settings.model import KeyedProvider
from thinklsp.settings.private_paths import make_private
from thinklsp.settings.user_file import ProviderSection, UserSettings

KeyPlace = Literal["keyring", "file"]

_SERVICE = "thinklsp"
_FOLDER = "keys"


def is_keyring_installed() -> bool:
    return importlib.util.find_spec("keyring") is not None


def names_key_place(name: KeyedProvider, user: UserSettings) -> bool:
    """Return True if config.toml names a keyring entry or a key command of the provider."""
    section = user.file.providers.get(name, ProviderSection())
    return section.api_key_keyring is not None or section.api_key_command is not None


def find_own_place(name: KeyedProvider, user: UserSettings) -> KeyPlace | None:
    """Return the place in which this module has stored the key, or None."""
    section = user.file.providers.get(name, ProviderSection())
    if section.api_key_keyring is not None:
        return "keyring" if section.api_key_keyring == _build_entry(name) else None
    command = section.api_key_command
    return "file" if command is not None and command[-1:] == (_find_key_file(name, user),) else None


def store_key(
    name: KeyedProvider, key: str, user: UserSettings, *, place: KeyPlace, base_url: str | None = None
) -> str:
    """Store the key, name its place in config.toml, and return a sentence that says so.

    An empty key is not stored. Raises ThinkLspError; then nothing was changed.
    """
    values: dict[str, Any] = {"base_url": base_url} if base_url is not None else {}
    if key and place == "keyring":
        values["api_key_keyring"] = _build_entry(name)
    elif key:
        values["api_key_command"] = [shutil.which("cat") or "/bin/cat", _find_key_file(name, user)]
    path = Path(user.path)
    change = plan_change(path, path.parent.parent, partial(_edit_config, path=path, name=name, values=values))
    changes = () if change is None else (change,)
    check_writable(changes)
    if not key:
        apply_changes(changes)
        return f"The base URL was added to {user.path}."
    if place == "keyring":
        _store_in_keyring(name, key, changes)
        return f"The key is in the system's keyring, as {_build_entry(name)}. {user.path} names the entry."
    file = _find_key_file(name, user)
    _store_in_file(name, key, file, changes, tuple(values["api_key_command"]))
    return f"The key is in {file}, which only you can read. {user.path} names the file."


def _build_entry(name: KeyedProvider) -> str:
    return f"{_SERVICE}/{name}"


def _find_key_file(name: KeyedProvider, user: UserSettings) -> str:
    # The model's tools may not read files with this suffix in any workspace, which could be a repository of dotfiles.
    return os.path.join(os.path.dirname(user.path), _FOLDER, f"{name}.key")


def _store_in_keyring(name: KeyedProvider, key: str, changes: tuple[FileChange, ...]) -> None:
    try:
        importlib.import_module("keyring").set_password(_SERVICE, name, key)
        stored = asyncio.run(read_keyring(name, _build_entry(name)))
    except SettingsError:
        stored = ""
    except Exception as error:  # noqa: BLE001 - backends raise any error
        raise ThinkLspError(f"The keyring cannot store the key ({type(error).__name__}).") from None
    if stored != key:
        raise ThinkLspError("The keyring did not keep the key.")
    apply_changes(changes)


def _store_in_file(
    name: KeyedProvider, key: str, path: str, changes: tuple[FileChange, ...], argv: tuple[str, ...]
) -> None:
    try:
        before = read_file(Path(path))
        _write_private(path, f"{key}\n".encode())
    except OSError as error:
        raise ThinkLspError(f"Cannot write {path}: {error.strerror}. Nothing was changed.") from None
    try:
        _check_key_command(name, key, argv)
        apply_changes(changes)
    except ThinkLspError:
        with suppress(OSError):
            if before is None:
                os.unlink(path)
            else:
                _write_private(path, before)
        raise


def _check_key_command(name: KeyedProvider, key: str, argv: tuple[str, ...]) -> None:
    if asyncio.run(run_key_command(name, argv)) != key:
        raise ThinkLspError(f"`{argv[0]}` does not print the key. Nothing was changed.")


def _write_private(path: str, data: bytes) -> None:
    """Write a file that only the user can read. Its folder keeps itself out of a repository of dotfiles."""
    folder = os.path.dirname(path)
    make_private(folder)
    ignore = os.path.join(folder, ".gitignore")
    if not os.path.lexists(ignore):
        _replace(ignore, b"*\n")
    _replace(path, data)


def _replace(path: str, data: bytes) -> None:
    # The mode is 0600 from the start.
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    finally:
        # After the replacement, the name is gone.
        with suppress(FileNotFoundError):
            os.unlink(temporary)


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
