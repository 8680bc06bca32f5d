"""The user's config.toml, with the sections that no editor can set, and the values from the environment.

The sections contain keys, hosts, network settings, protected paths, models, commands, permissions, MCP servers and
user-defined actions. `resolve_settings` combines all other values with the remaining sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from thinklsp.core.choices import EffortSetting, LogLevel, ReasoningEcho, ThinkingMode
from thinklsp.core.errors import SettingsError
from thinklsp.settings.error_messages import describe_unknown_settings, find_nearest
from thinklsp.settings.mcp_section import McpSection, McpServerSection
from thinklsp.settings.model import KeyedProvider, Settings
from thinklsp.settings.section import Section
from thinklsp.settings.serve_section import ServeSection
from thinklsp.settings.startup_settings import ACTION_NAME_PATTERN, BUILT_IN_ACTIONS, Scope, add_action_names
from thinklsp.settings.store_section import StoreSection

Rule = Annotated[tuple[str, ...], Field(min_length=1)]


class ProviderSection(Section):
    """The section `[providers.NAME]`.

    The section never contains the key itself. It names an environment variable, an entry in the system keyring, or a
    command that prints the key.

    `server`, `reasoning` and `think_tags` apply only to `openai-compatible`. `server` is the kind of server.
    `reasoning` is the field in which thinking is sent back to the server. If `think_tags` is true, thinking is enclosed
    in tags.
    """

    base_url: str | None = None
    api_key_env: str | None = None
    api_key_keyring: str | None = Field(
        None,
        pattern=r"^[^/\x00-\x1f]+/[^\x00-\x1f]+$",
        description="Entry in the system keyring that contains the key, in the form SERVICE/USER.",
    )
    api_key_command: tuple[str, ...] | None = Field(None, min_length=1)
    headers: dict[str, str] = Field({})
    user_header: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,99}$",
        description="HTTP header in which a gateway receives the name of the user, on a server with `[serve.oidc]`.",
    )
    server: str | None = None
    reasoning: ReasoningEcho | None = None
    think_tags: bool = False


class NetworkSection(Section):
    """The section `[network]`."""

    proxy: str | None = None
    ca_bundle: str | None = None


class WorkspaceSection(Section):
    """The section `[workspace]`.

    `allow_protected` lists protected paths, relative to a folder, that tools may nevertheless use.
    """

    allow_protected: tuple[str, ...] = ()
    allow_home: bool = False
    extra_roots: tuple[Annotated[str, Field(pattern=r"\A(/|~/)")], ...] = Field(
        (),
        max_length=20,
        description="Folders outside the workspace that tools may only read. The paths begin with / or ~/.",
    )


class CommandsSection(Section):
    """The section `[commands]`, which allows the model to run commands in the sandbox and limits each command."""

    model_config = ConfigDict(strict=True)

    enabled: bool = False
    sandbox: Literal["auto", "bubblewrap"] = Field(
        "auto", description="The sandbox for commands. `auto` selects the best sandbox that this machine supports."
    )
    timeout_seconds: int = Field(300, ge=1, le=3_600)
    memory_mb: int = Field(4_096, ge=64, le=1_048_576)
    disk_mb: int = Field(
        2_048, ge=64, le=1_048_576, description="Maximum disk space for a command. At least 500 MB always stay free."
    )
    output_kb: int = Field(1_024, ge=1, le=65_536)
    processes: int = Field(512, ge=1, le=32_768)


class CommandRules(Section):
    """The section `[permissions]`, which is also the format of the rules in `permissions.toml`.

    A rule consists of the first words of a command.
    """

    allow: tuple[Rule, ...] = Field((), description="First words of commands that run without asking.")
    deny: tuple[Rule, ...] = Field((), description="First words of commands that never run.")
    exact: tuple[Rule, ...] = Field((), description="Entire commands that run without asking.")


class AcpSection(Section):
    """The section `[acp]`, with the consent that clients of the Agent Client Protocol cannot give themselves."""

    model_config = ConfigDict(strict=True)

    allow_auto: bool = Field(
        False, description="Whether clients may choose the mode `auto`, which applies edits without asking."
    )
    write_disk: bool = Field(
        False, description="Whether edits are written to the disk for a client that cannot write files itself."
    )


class LogSection(Section):
    """The section `[log]`."""

    level: LogLevel = "warning"


class ActionSection(BaseModel):
    """An entry in `[[actions]]`, which defines a custom code action."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        str_strip_whitespace=True,
        # `name` is not required, because `add_action_names` adds a missing name before the validation.
        json_schema_extra=lambda schema: schema.update(required=["title", "prompt"]),
    )

    name: str = Field(
        pattern=ACTION_NAME_PATTERN,
        max_length=40,
        description="Name for `thinklsp.action`, `effortByAction` and `actions.disabled`: lowercase letters, digits, "
        "`-` and `_`. Derived from the title if omitted.",
    )
    title: str = Field(min_length=1, max_length=60, description="Title in the menu, after `thinklsp: `.")
    prompt: str = Field(min_length=1, max_length=20_000, description="Prompt for the model, sent with the code.")
    scope: Scope = Field(
        "selection",
        description="Code that the action concerns: a selection, a definition, the entire file, or the staged changes "
        "of the workspace (offered in any file).",
    )
    tools: Literal["all", "read", "none"] = Field(
        "all",
        description="Tools for the model. `all` includes edits, `read` allows only reading, and `none` allows no "
        "tools. Without edits, the answer is written to a chat document.",
    )
    effort: EffortSetting | None = Field(None, description="Effort for this action. `effortByAction` takes precedence.")
    thinking: ThinkingMode | None = Field(None, description="Value of `thinking.mode` for this action.")
    model: str | None = Field(None, min_length=1, max_length=200, description="Model for this action.")


class UserFile(Section):
    """The sections of the user's file that no editor can set."""

    providers: dict[KeyedProvider, ProviderSection] = Field({})
    models: dict[KeyedProvider, dict[str, dict[str, Any]]] = Field(
        {}, description="Model properties by provider and model ID. The keys are the same as in the catalogue."
    )
    network: NetworkSection = NetworkSection()
    workspace: WorkspaceSection = WorkspaceSection()
    commands: CommandsSection = CommandsSection()
    permissions: CommandRules = CommandRules()
    acp: AcpSection = AcpSection()
    mcp: McpSection = McpSection()
    serve: ServeSection = ServeSection()
    store: StoreSection = StoreSection()
    log: LogSection = LogSection()
    actions: tuple[ActionSection, ...] = Field((), max_length=100)

    @model_validator(mode="after")
    def _check_compatible_only_keys(self) -> UserFile:
        for name, section in self.providers.items():
            wrong = sorted(section.model_fields_set & {"server", "reasoning", "think_tags"})
            if wrong and name != "openai-compatible":
                context = {"place": f"providers.{name}.{wrong[0]}"}
                raise PydanticCustomError("compatible_only", "only openai-compatible supports it", context)
        return self

    @staticmethod
    def is_section(key: str, value: object) -> bool:
        """Return True if a key in the user's file belongs to one of the sections in this class.

        `[[actions]]` contains user-defined actions and belongs to this class. `[actions]` is a group of settings and
        does not.
        """
        return key in UserFile.model_fields and not (key == "actions" and isinstance(value, Mapping))

    @staticmethod
    def parse(raw: Mapping[str, Any]) -> UserFile:
        """Parse the sections of the user's file. All other keys are ignored."""
        own = {key: value for key, value in raw.items() if UserFile.is_section(key, value)}
        if "actions" in own:
            own["actions"] = add_action_names(own["actions"])
        try:
            file = UserFile.model_validate(own)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            parts = [str(part) for part in first["loc"]]
            problem = first["msg"].lower()
            if first["type"] == "extra_forbidden" and parts[0] == "actions":
                suggestion = find_nearest(parts[-1], ActionSection.model_fields)
                problem = "the key is unknown" + (f" (did you mean `{suggestion}`?)" if suggestion else "")
            if parts[:1] == ["actions"] and len(parts) > 1:
                raise SettingsError("actions", _describe_action_error(own["actions"], parts[1:], problem)) from None
            if first["type"] == "extra_forbidden":
                raise SettingsError(".".join(parts), _describe_unknown_key(parts)) from None
            if parts[-1:] == ["[key]"]:
                parts.pop()
                problem = problem.replace("input should be", "the provider is unknown; it must be")
            place = ".".join(parts) or first["ctx"]["place"]
            raise SettingsError(place, f"Your config.toml has a mistake at {place}: {problem}.") from None
        if (conflict := _find_name_conflict(file.actions)) is not None:
            raise SettingsError("actions", conflict)
        return file


def _find_name_conflict(actions: Sequence[ActionSection]) -> str | None:
    """Return an error message for the first action whose name is already in use, or None if all names are unique."""
    names: set[str] = set()
    for action in actions:
        if action.name in BUILT_IN_ACTIONS:
            problem = f"{action.name} is the name of a built-in action; choose another name"
        elif action.name in names:
            problem = f"{action.name} is already the name of another action"
        else:
            names.add(action.name)
            continue
        return f'Your config.toml has a mistake in the action "{action.title}" at name: {problem}.'
    return None


def _describe_action_error(raw: object, where: Sequence[str], problem: str) -> str:
    """Return an error message that names the action and the field.

    `where` contains the index of the action and, if known, the name of the field.
    """
    number = int(where[0]) if where[0].isdecimal() else 0
    entry = raw[number] if isinstance(raw, list) and number < len(raw) else None
    title = (entry.get("title") or entry.get("name")) if isinstance(entry, Mapping) else None
    name = f'"{title[:60]}"' if isinstance(title, str) and title.isprintable() else f"number {number + 1}"
    if where[1:] == ["name"] and "pattern" in problem:
        problem = "use only lower-case letters, digits, - and _"
    field = f" at {where[1]}" if len(where) > 1 else ""
    return f"Your config.toml has a mistake in the action {name}{field}: {problem}."


def _describe_unknown_key(parts: Sequence[str]) -> str:
    """Return an error message for an unknown key in a section."""
    *place, _ = parts
    section = _find_section(place)
    known_keys = [".".join((*place, name)) for name in section.model_fields]
    return " ".join(describe_unknown_settings([".".join(parts)], known_keys, " in your config.toml"))


def _find_section(place: Sequence[str]) -> Any:
    """Return the model of a section, such as `[acp]`, or of a section inside it, such as `[serve.oidc]`."""
    if place[0] == "providers":
        return ProviderSection
    section: Any = UserFile
    for name in place:
        kind = section.model_fields[name].annotation
        # The type of an optional section is a union with None.
        section = next((part for part in get_args(kind) if part is not type(None)), kind)
    return section


def build_file_schema() -> dict[str, Any]:
    """Return the JSON Schema for the entire file, with the spelling used in TOML."""
    own, common = UserFile.model_json_schema(), Settings.model_json_schema(by_alias=False)
    properties = common["properties"] | own["properties"]
    # `[[actions]]` contains user-defined actions, while `[actions]` is a group of settings. A file cannot contain both,
    # so the setting in the group can also be written with a dotted key.
    properties["actions"] = {"anyOf": [schema_part["properties"]["actions"] for schema_part in (own, common)]}
    # The entries of MCP servers are validated one by one, so the model of the section does not contain their schema.
    own["$defs"]["McpSection"]["properties"]["servers"]["additionalProperties"] = {"$ref": "#/$defs/McpServerSection"}
    properties["actions.disabled"] = common["$defs"]["ActionsGroup"]["properties"]["disabled"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": common["$defs"] | own["$defs"] | {"McpServerSection": McpServerSection.model_json_schema()},
        "title": "thinklsp config.toml",
        "description": "The settings that editors can choose or tighten, and the sections that only this file can set.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class UserSettings:
    """The values in the user's file and in environment variables.

    `problems` contains messages about ignored values. `rejected` contains the messages about invalid values.
    """

    file: UserFile
    path: str
    from_file: Mapping[str, Any]
    from_environment: Mapping[str, Any]
    environment: Mapping[str, str] = field(repr=False)
    problems: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
