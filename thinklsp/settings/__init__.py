"""Settings: their schema, where they may come from, and who may set what.

Weakest first: default, user file, environment, editor settings (which only choose or tighten), session override,
command argument. Keys, hosts and power come from the user's file and the environment alone.
"""

from thinklsp.settings.access import Access, keyed_providers, provider_access
from thinklsp.settings.model import KEYS, Provider, Settings, schema, sentence
from thinklsp.settings.resolve import EditorSettings, Resolved, UserSettings, load_user_settings, resolve

__all__ = [
    "KEYS",
    "Access",
    "EditorSettings",
    "Provider",
    "Resolved",
    "Settings",
    "UserSettings",
    "keyed_providers",
    "load_user_settings",
    "provider_access",
    "resolve",
    "schema",
    "sentence",
]
