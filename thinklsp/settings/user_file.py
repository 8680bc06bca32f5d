"""The parts of the user's file that no editor may set: keys, hosts, network, protected paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from thinklsp.core.errors import SettingsError


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ProviderSection(_Section):
    """`[providers.NAME]`. The key itself never stands in the file: name a variable or a command that prints it."""

    base_url: str | None = None
    api_key_env: str | None = None
    api_key_command: tuple[str, ...] | None = Field(None, min_length=1)
    headers: dict[str, str] = {}


class NetworkSection(_Section):
    """`[network]`."""

    proxy: str | None = None
    ca_bundle: str | None = None


class WorkspaceSection(_Section):
    """`[workspace]`. `allow_protected` lists protected paths, relative to a folder, that tools may use all the same."""

    allow_protected: tuple[str, ...] = ()
    allow_home: bool = False


class LogSection(_Section):
    """`[log]`."""

    level: Literal["error", "warning", "info"] = "warning"


class UserFile(_Section):
    providers: dict[Literal["anthropic", "openai", "google", "openai-compatible"], ProviderSection] = {}
    network: NetworkSection = NetworkSection()
    workspace: WorkspaceSection = WorkspaceSection()
    log: LogSection = LogSection()

    @staticmethod
    def parse(raw: Mapping[str, Any]) -> UserFile:
        """The sections of this module; settings of the common table stand beside them and are read elsewhere."""
        own = {key: value for key, value in raw.items() if key in UserFile.model_fields}
        try:
            return UserFile.model_validate(own)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise SettingsError(place, f"Your config.toml has a mistake at {place}: {first['msg'].lower()}.") from None
