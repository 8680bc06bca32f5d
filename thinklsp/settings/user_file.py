"""What only the user may set: the parts of their file that no editor reaches (keys, hosts, network, protected paths,
models, commands, permissions, actions of their own), and with it all that file and environment say. `resolve` reads
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from thinklsp.core.errors import SettingsError
from thinklsp.settings.action_names import named_actions
from thinklsp.settings.model import Settings
from thinklsp.settings.own_actions import ActionSection, action_mistake, taken_name
from thinklsp.settings.unknown import nearest, unknown_settings

Rule = Annotated[tuple[str, ...], Field(min_length=1)]
KeyedProvider = Literal["anthropic", "openai", "google", "openai-compatible"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ProviderSection(_Section):
    """`[providers.NAME]`. The file never holds the key itself: name a variable, an entry of the system's keyring, or a
    command that prints it.

    For `openai-compatible` alone: `server`, the kind of server that stands there; `reasoning`, the field in which its
    thinking goes back to it; `think_tags`, whether it writes its thinking into the text between tags.
    """

    base_url: str | None = None
    api_key_env: str | None = None
    api_key_keyring: str | None = Field(
        None,
        pattern=r"^[^/\x00-\x1f]+/[^\x00-\x1f]+$",
        description="Entry of the system's keyring that holds the key: SERVICE/USER.",
    )
    api_key_command: tuple[str, ...] | None = Field(None, min_length=1)
    headers: dict[str, str] = {}
    server: str | None = None
    reasoning: Literal["auto", "reasoning", "reasoning_content", "reasoning_details", "none"] | None = None
    think_tags: bool = False


class NetworkSection(_Section):
    """`[network]`."""

    proxy: str | None = None
    ca_bundle: str | None = None


class WorkspaceSection(_Section):
    """`[workspace]`. `allow_protected` lists protected paths, relative to a folder, that tools may use all the same."""

    allow_protected: tuple[str, ...] = ()
    allow_home: bool = False
    extra_roots: tuple[Annotated[str, Field(pattern=r"\A(/|~/)")], ...] = Field(
        (), max_length=20, description="Folders beside the workspace that tools may read, never change; / or ~/ first."
    )


class CommandsSection(_Section):
    """`[commands]`. Whether a model may run commands in the sandbox, and what one command may take up there."""

    model_config = ConfigDict(strict=True)

    enabled: bool = False
    sandbox: Literal["auto", "bubblewrap"] = Field(
        "auto", description="The sandbox that commands run in. auto: the best one that this machine has."
    )
    timeout_seconds: int = Field(300, ge=1, le=3_600)
    memory_mb: int = Field(4_096, ge=64, le=1_048_576)
    disk_mb: int = Field(2_048, ge=64, le=1_048_576, description="What a command may write; 500 MB always stay free.")
    output_kb: int = Field(1_024, ge=1, le=65_536)
    processes: int = Field(512, ge=1, le=32_768)


class CommandRules(_Section):
    """`[permissions]`, and what was allowed while working. Each rule is the words of a command, from its first on."""

    allow: tuple[Rule, ...] = Field((), description="Beginnings of commands that run without a question.")
    deny: tuple[Rule, ...] = Field((), description="Beginnings of commands that never run.")
    exact: tuple[Rule, ...] = Field((), description="Whole commands that run without a question.")


class LogSection(_Section):
    """`[log]`."""

    level: Literal["debug", "info", "warning", "error"] = "warning"


class UserFile(_Section):
    """What of the file is no setting of the common table."""

    providers: dict[KeyedProvider, ProviderSection] = {}
    models: dict[KeyedProvider, dict[str, dict[str, Any]]] = Field(
        {}, description="Provider, then model id, then what you say of it: keys as in the rows of the catalogue."
    )
    network: NetworkSection = NetworkSection()
    workspace: WorkspaceSection = WorkspaceSection()
    commands: CommandsSection = CommandsSection()
    permissions: CommandRules = CommandRules()
    log: LogSection = LogSection()
    actions: tuple[ActionSection, ...] = Field((), max_length=100)

    @model_validator(mode="after")
    def _servers_differ_only_where_compatible(self) -> UserFile:
        for name, section in self.providers.items():
            wrong = sorted(section.model_fields_set & {"server", "reasoning", "think_tags"})
            if wrong and name != "openai-compatible":
                told = {"place": f"providers.{name}.{wrong[0]}"}
                raise PydanticCustomError("compatible_only", "only openai-compatible takes it", told)
        return self

    @staticmethod
    def holds(key: str, value: object) -> bool:
        """Whether a part of the file is of this module. `[[actions]]` are own actions, `[actions]` holds a setting."""
        return key in UserFile.model_fields and not (key == "actions" and isinstance(value, Mapping))

    @staticmethod
    def parse(raw: Mapping[str, Any]) -> UserFile:
        """The sections of this module; settings of the common table stand beside them and are read elsewhere."""
        own = {key: value for key, value in raw.items() if UserFile.holds(key, value)}
        if "actions" in own:
            own["actions"] = named_actions(own["actions"])
        try:
            file = UserFile.model_validate(own)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            parts = [str(part) for part in first["loc"]]
            said = first["msg"].lower()
            if first["type"] == "extra_forbidden" and parts[0] == "actions":
                meant = nearest(parts[-1], ActionSection.model_fields)
                said = "there is no such key" + (f" (did you mean `{meant}`?)" if meant else "")
            if parts[:1] == ["actions"] and len(parts) > 1:
                raise SettingsError("actions", action_mistake(own["actions"], parts[1:], said)) from None
            if first["type"] == "extra_forbidden":
                raise SettingsError(".".join(parts), _unknown(parts)) from None
            if parts[-1:] == ["[key]"]:
                parts.pop()
                said = said.replace("input should be", "there is no such provider; it is")
            place = ".".join(parts) or first["ctx"]["place"]
            raise SettingsError(place, f"Your config.toml has a mistake at {place}: {said}.") from None
        if (taken := taken_name(file.actions)) is not None:
            raise SettingsError("actions", taken)
        return file


def _unknown(parts: Sequence[str]) -> str:
    """Return the sentence for a key that its section does not have."""
    *place, _ = parts
    section: Any = ProviderSection if place[0] == "providers" else UserFile.model_fields[place[0]].annotation
    known = [".".join((*place, name)) for name in section.model_fields]
    return " ".join(unknown_settings([".".join(parts)], known, " in your config.toml"))


def file_schema() -> dict[str, Any]:
    """JSON Schema of the whole file, in the spelling of TOML."""
    own, common = UserFile.model_json_schema(), Settings.model_json_schema(by_alias=False)
    properties = common["properties"] | own["properties"]
    # `[[actions]]` are own actions, `[actions]` holds a setting; beside the former that is written with a dot.
    properties["actions"] = {"anyOf": [each["properties"]["actions"] for each in (own, common)]}
    properties["actions.disabled"] = common["$defs"]["ActionsGroup"]["properties"]["disabled"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": common["$defs"] | own["$defs"],
        "title": "config.toml of thinklsp",
        "description": "The settings that editors can choose or tighten, and all that only this file can hold.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class UserSettings:
    """What the user's file and the environment say. `problems` are sentences about what was left out; `refused` are
    those among them that are about wrong values."""

    file: UserFile
    path: str
    from_file: Mapping[str, Any]
    from_environment: Mapping[str, Any]
    environment: Mapping[str, str] = field(repr=False)
    problems: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
