"""The user's config.toml, with the sections that no editor can set, and the values from the environment.

The sections contain keys, hosts, network settings, protected paths, models, commands, permissions, MCP servers and
user-defined actions. `resolve_settings` combines all other values with the remaining sources.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Annotated, Any, Literal, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from thinklsp.core.choices import EffortSetting, LogLevel, ReasoningEcho, ThinkingMode
from thinklsp.core.errors import SettingsError
from thinklsp.settings.model import KeyedProvider, Settings, describe_unknown_settings
from thinklsp.settings.startup_settings import ACTION_NAME_PATTERN, BUILT_IN_ACTIONS, Scope, add_action_names

VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
MAX_TIMEOUT_SECONDS, MAX_START_SECONDS = 600, 120
DEFAULT_MAX_CLIENTS = 64

_Words = Annotated[tuple[str, ...], Field(max_length=200)]
Rule = Annotated[tuple[str, ...], Field(min_length=1)]


class Section(BaseModel):
    """The base class of the sections of the user's files."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


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


class McpServerSection(Section):
    """The entry `[mcp.servers.NAME]`, which names either a command on this machine or a URL."""

    command: str | None = Field(None, min_length=1, description="Program to start, without its arguments.")
    args: _Words = Field((), description="Arguments of the program.")
    env: dict[Annotated[str, Field(pattern=VARIABLE_PATTERN)], str] = Field(
        {}, description="Environment variables for the program, besides the few that every server receives."
    )
    cwd: str | None = Field(None, pattern=r"^(/|~/|~$)", description="Working directory. The path begins with / or ~/.")
    url: str | None = Field(None, min_length=1, description="Address of the server: https, or http on this machine.")
    headers: dict[str, str] = Field({}, description="HTTP headers for the server at `url`.")
    token_command: _Words = Field((), description="Command that prints the bearer token for the server at `url`.")
    enabled: bool = Field(True, strict=True, description="Whether thinklsp uses the server.")
    tools: _Words = Field(("*",), description="Patterns for the names of the tools to offer to the model.")
    deny: _Words = Field((), description="Patterns for the names of tools that the model never gets.")
    ask: Literal["always", "once", "never"] = Field(
        "once",
        description="When a tool asks for permission: before every call, once per tool and session, or never.",
    )
    timeout_s: float = Field(
        60.0, strict=True, allow_inf_nan=False, ge=1, le=MAX_TIMEOUT_SECONDS, description="Seconds for one call."
    )
    start_timeout_s: float = Field(
        10.0,
        strict=True,
        allow_inf_nan=False,
        ge=1,
        le=MAX_START_SECONDS,
        description="Seconds that a turn waits for the server to start.",
    )
    sandbox: bool | None = Field(
        None, strict=True, description="Whether the program runs in the sandbox. The default is `mcp.sandbox`."
    )

    def build_command(self) -> tuple[str, ...]:
        """Return the program and its arguments, or nothing for a server at a URL."""
        return () if self.command is None else (os.path.expanduser(self.command), *self.args)

    def find_directory(self) -> str | None:
        """Return the absolute path of the working directory, or None if the entry names none."""
        return None if self.cwd is None else os.path.expanduser(self.cwd)


class McpSection(Section):
    """The section `[mcp]`. `servers` contains the entries as they are in the file, which may include secrets."""

    sandbox: bool = Field(False, strict=True, description="Whether servers that are programs run in the sandbox.")
    project_env: tuple[Annotated[str, Field(pattern=VARIABLE_PATTERN)], ...] = Field(
        (),
        max_length=100,
        description="Environment variables that the MCP servers of a project may receive by `${NAME}`.",
    )
    servers: dict[str, Any] = Field({}, repr=False, description="MCP servers by name.")


_ClaimName = Annotated[str, Field(min_length=1, max_length=200)]


def find_url_problem(url: str) -> str | None:
    """Return the part of an error message that describes a problem with a URL, or None if the URL is valid.

    The message contains no part of the URL, which could be a secret.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises ValueError for an invalid port
    except ValueError:
        return "is not a valid URL; it should look like https://host"
    if "@" in parts.netloc:
        return "contains a user name or password; remove them"
    if (sign := next((candidate for candidate in "?#" if candidate in url), None)) is not None:
        return f"has a query or a fragment; remove everything from `{sign}` on"
    return None


def find_address_problem(address: str) -> str | None:
    """Return why an address of the identity provider cannot be used, as a part of a sentence, or None.

    HTTP is allowed only for this machine.
    """
    if (problem := find_url_problem(address)) is not None:
        return f"the address {problem}"
    parts = urlsplit(address)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        return "the address must start with https:// and contain a host name"
    if not address.isprintable() or " " in address:
        return "the address must contain no spaces"
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        return "http is allowed only for this machine; use https"
    return None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _check_address(address: str) -> str:
    if (problem := find_address_problem(address)) is not None:
        raise PydanticCustomError("oidc_address", "{problem}", {"problem": problem})
    return address


_Address = Annotated[str, Field(max_length=2_000), AfterValidator(_check_address)]


class OidcSection(Section):
    """The section `[serve.oidc]`. The claims name the user, the tenant and the groups in a token."""

    issuer: _Address = Field(
        description="Address of the identity provider, exactly as in the `iss` claim of its tokens: https, or http on "
        "this machine."
    )
    audience: str = Field(
        min_length=1, max_length=2_000, description="Value that the claim `aud` of a token must contain."
    )
    claim_tenant: _ClaimName | None = Field(
        None, description="Claim with the name of the user's tenant. Without it, all users belong to one tenant."
    )
    claim_user: _ClaimName = Field("sub", description="Claim with the name of the user, which never changes.")
    groups: _ClaimName | None = Field(None, description="Claim with the list of the user's groups.")
    jwks_url: _Address | None = Field(
        None,
        description="Address of the provider's public keys. Without it, the address comes from the issuer's "
        "`/.well-known/openid-configuration`.",
    )


class ServeSection(Section):
    """The section `[serve]`. A running server does not read it again."""

    model_config = ConfigDict(strict=True)

    max_clients: int = Field(
        DEFAULT_MAX_CLIENTS, ge=1, le=10_000, description="Maximum number of clients of a process with --ws or --tcp."
    )
    drain_seconds: int = Field(
        30,
        ge=0,
        le=3_600,
        description="Seconds that running turns have to finish after SIGTERM. The server starts no new turn then.",
    )
    oidc: OidcSection | None = Field(
        None, description="Identity provider whose tokens identify the clients of `thinklsp --ws`."
    )


class StoreSection(Section):
    """The section `[store]`. Without `url` and `url_command`, sessions are kept in the state folder.

    A value can also come from the environment variable `THINKLSP_STORE_URL`.
    """

    url: str | None = Field(
        None,
        pattern=r"^postgres(ql)?://",
        repr=False,
        description="Address of the PostgreSQL database for sessions: postgresql://USER@HOST:PORT/DATABASE.",
    )
    url_command: tuple[str, ...] | None = Field(
        None, min_length=1, description="Command that prints the address, if it contains a password."
    )
    key_command: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description="Command that prints the key with which the sessions in the database are encrypted: 32 bytes in "
        "hexadecimal. It receives `THINKLSP_TENANT`. Further lines are earlier keys.",
    )
    fallback: Literal["none", "memory"] = Field(
        "none",
        description="What happens if the database is not reachable at the start: `none` reports an error, and `memory` "
        "keeps sessions in memory until the server restarts.",
    )

    @property
    def is_shared(self) -> bool:
        """Return True if sessions are kept in a database and not in the state folder."""
        return self.url is not None or self.url_command is not None


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

    @model_validator(mode="after")
    def _check_action_names(self) -> UserFile:
        names = [action.name for action in self.actions]
        for number, name in enumerate(names):
            owner = "a built-in action" if name in BUILT_IN_ACTIONS else "another action"
            if name in BUILT_IN_ACTIONS or name in names[:number]:
                context = {"place": f"actions.{number + 1}.name", "name": name, "owner": owner}
                raise PydanticCustomError("action_name", "{name} is already the name of {owner}", context)
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
        """Parse the sections of the user's file. All other keys are ignored. Raises SettingsError."""
        own = {key: value for key, value in raw.items() if UserFile.is_section(key, value)}
        if "actions" in own:
            own["actions"] = add_action_names(own["actions"])
        return parse_section(UserFile, own, "Your config.toml")


T = TypeVar("T", bound=Section)


def parse_section(model: type[T], raw: object, file: str, prefix: str = "") -> T:
    """Validate a section. `prefix` is its key in the file. Raises SettingsError, which names the file and the key."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    # Users count the entries of a list from 1.
    location = [str(part + 1) if isinstance(part, int) else part for part in first["loc"]]
    parts = [prefix, *location] if prefix else location
    key, problem = ".".join(parts) or first["ctx"]["place"], first["msg"][:1].lower() + first["msg"][1:]
    if first["type"] == "extra_forbidden":
        raise SettingsError(key, _describe_unknown_key(model, parts, file))
    if parts[-1:] == ["[key]"]:
        key, problem = ".".join(parts[:-1]), problem.replace("input should be", "the provider is unknown; it must be")
    raise SettingsError(key, f"{file} has a mistake at {key}: {problem}.")


def _describe_unknown_key(model: type[BaseModel], parts: Sequence[str], file: str) -> str:
    """Return an error message for an unknown key in a section."""
    for name in parts[:-1]:
        # Other names are the prefix, providers and the numbers of actions.
        if name in model.model_fields:
            kind = model.model_fields[name].annotation
            classes = (each for each in (kind, *get_args(kind)) if isinstance(each, type))
            model = next(each for each in classes if issubclass(each, BaseModel))
    known_keys = [".".join((*parts[:-1], name)) for name in model.model_fields]
    return describe_unknown_settings([".".join(parts)], known_keys, f" in {file[0].lower()}{file[1:]}")[0]


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
