"""Settings: their schema, where they may come from, and who may set what.

Weakest first: default, user file, environment, editor settings (which only choose or tighten), session override,
command argument. Keys, hosts and power come from the user's file and the environment alone.
"""

from thinklsp.settings.access import Access, key_command, keyed_providers, keyring_entry, provider_access
from thinklsp.settings.key_sources import read_keyring, run_key_command
from thinklsp.settings.model import KEYS, Provider, Settings, schema, sentence
from thinklsp.settings.resolve import EditorSettings, Resolved, config_path, ignored, load_user_settings, resolve
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
