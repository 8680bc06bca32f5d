"""Settings: their schema, where they may come from, and who may set what.

Weakest first: default, user file, environment, editor settings (which only choose or tighten), session override,
command argument. Keys, hosts and power come from the user's file and the environment alone.

The names below are loaded when they are first used: `early` is needed before the libraries that check settings.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thinklsp.settings.access import Access, key_command, keyed_providers, keyring_entry, provider_access
    from thinklsp.settings.key_sources import read_keyring, run_key_command
    from thinklsp.settings.model import KEYS, Provider, Settings, schema, sentence
    from thinklsp.settings.own_folder import config_path
    from thinklsp.settings.sources import EditorSettings, Resolved, ignored, load_user_settings, resolve
    from thinklsp.settings.user_file import UserSettings

__all__ = [
    "KEYS",
    "Access",
    "EditorSettings",
    "Provider",
    "Resolved",
    "Settings",
    "UserSettings",
    "config_path",
    "ignored",
    "key_command",
    "keyed_providers",
    "keyring_entry",
    "load_user_settings",
    "provider_access",
    "read_keyring",
    "resolve",
    "run_key_command",
    "schema",
    "sentence",
]

_HOMES = {
    **dict.fromkeys(("Access", "key_command", "keyed_providers", "keyring_entry", "provider_access"), "access"),
    **dict.fromkeys(("read_keyring", "run_key_command"), "key_sources"),
    **dict.fromkeys(("KEYS", "Provider", "Settings", "schema", "sentence"), "model"),
    **dict.fromkeys(("EditorSettings", "Resolved", "ignored", "load_user_settings", "resolve"), "sources"),
    "UserSettings": "user_file",
    "config_path": "own_folder",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
