"""The section `[budgets]` of the administrator's file, which caps the spending of users and teams."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, ValidationError

from thinklsp.core.errors import SettingsError
from thinklsp.settings.admin_file import read_admin_file
from thinklsp.settings.private_paths import find_admin_path
from thinklsp.settings.section import Section


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


def load_budgets_section(environment: Mapping[str, str]) -> BudgetsSection:
    """Return the section of the administrator's file. Raises SettingsError."""
    try:
        return BudgetsSection.model_validate(read_admin_file(environment).get("budgets", {}))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(("budgets", *map(str, first["loc"])))
        raise SettingsError(
            where, f"{find_admin_path(environment)} has a mistake at {where}: {first['msg'].lower()}."
        ) from None
