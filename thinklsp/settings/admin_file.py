"""The administrator's file, whose sections `[store]` and `[serve]` replace those of the user's file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thinklsp.settings.private_paths import find_admin_path, read_toml

_REPLACING = ("store", "serve")


def read_admin_file(environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the content of the file, which is empty if there is no file. Raises SettingsError."""
    path = find_admin_path(environment)
    return read_toml(path, path)


def replace_sections(raw: Mapping[str, Any], environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the content of the user's file with the administrator's sections. Raises SettingsError."""
    admin = read_admin_file(environment)
    return {**raw, **{key: admin[key] for key in _REPLACING if key in admin}}
