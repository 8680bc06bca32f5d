"""The administrator's file. Its sections `[store]` and `[serve]` replace the user's, and `[budgets]` caps spending."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from thinklsp.core.errors import SettingsError
from thinklsp.settings.config_files import find_admin_path, find_config_path, read_toml
from thinklsp.settings.user_file import Section, StoreSection, parse_section

URL_VARIABLE = "THINKLSP_STORE_URL"
_OWN_FILE = "Your config.toml"
_REPLACING = ("store", "serve")


class TeamBudget(Section):
    """The entry `[budgets.teams.NAME]`. The name is a group of the identity provider."""

    usd_per_day: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="Cap for the whole team and a UTC day."
    )
    usd_per_month: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="Cap for the whole team and a month."
    )


class BudgetsSection(Section):
    """The section `[budgets]`. Without a value, there is no cap."""

    usd_per_user_day: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="Cap for each user and a UTC day."
    )
    usd_per_user_month: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="Cap for each user and a month."
    )
    teams: dict[str, TeamBudget] = Field({}, description="Caps for teams, by the name of the group.")


def replace_sections(raw: Mapping[str, Any], environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the content of the user's file with the administrator's sections. Raises SettingsError."""
    admin = _read(environment)
    return {**raw, **{key: admin[key] for key in _REPLACING if key in admin}}


def load_budgets_section(environment: Mapping[str, str]) -> BudgetsSection:
    """Return the section of the administrator's file. Raises SettingsError."""
    return parse_section(BudgetsSection, _read(environment).get("budgets", {}), find_admin_path(environment), "budgets")


def load_store_section(environment: Mapping[str, str]) -> StoreSection:
    """Return the section of the administrator's file, else the one of the environment or of the user's file.

    Raises SettingsError if a file cannot be trusted or parsed, or if the section is invalid.
    """
    place, admin = find_admin_path(environment), _read(environment)
    raw = read_toml(find_config_path(environment), "config.toml")
    own = _parse_store(raw.get("store", {}), _OWN_FILE)
    if "store" in admin:
        section = _parse_store(admin["store"], place)
        if own.key_command is not None and own.key_command != section.key_command:
            raise SettingsError(
                "store.key_command",
                f"{_OWN_FILE} has store.key_command, but the administrator's file decides where and how sessions are "
                "stored. Remove it, or let the administrator set it.",
            )
    elif url := environment.get(URL_VARIABLE, "").strip():
        section = _parse_store({"url": url}, URL_VARIABLE)
        return section.model_copy(update={"fallback": own.fallback, "key_command": own.key_command})
    else:
        section, place = own, _OWN_FILE
    if section.key_command is not None and not section.is_shared:
        raise SettingsError(
            "store.key_command",
            f"{place} has store.key_command, which encrypts sessions in a database, but no store.url. Set store.url, "
            "too.",
        )
    return section


def _parse_store(raw: object, place: str) -> StoreSection:
    section = parse_section(StoreSection, raw, place, "store")
    if section.url is not None and section.url_command is not None:
        raise SettingsError("store", f"{place} has both store.url and store.url_command. Remove one of them.")
    return section


def _read(environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the content of the file, which is empty if there is no file. Raises SettingsError."""
    path = find_admin_path(environment)
    return read_toml(path, path)
