"""The params of the client's requests. Unknown fields are ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from thinklsp.jsonrpc.error_responses import InvalidParams
from thinklsp.mcp_client.server_entries import ClientServer

_T = TypeVar("_T")
ListOrNull = Annotated[list[_T], BeforeValidator(lambda value: [] if value is None else value)]
"""A list. The schema of the protocol says where null stands for an empty list."""


class RequestParams(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, extra="ignore", frozen=True, strict=True, hide_input_in_errors=True
    )


class AuthenticateParams(RequestParams):
    method_id: str


def _check_encodable(text: str) -> str:
    """Reject lone surrogates, which the store cannot look up."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("lone surrogate") from None
    return text


class SessionParams(RequestParams):
    session_id: Annotated[str, AfterValidator(_check_encodable)]


class NamedValue(RequestParams):
    """An environment variable or an HTTP header. The value may be a secret."""

    name: str
    value: str = Field(repr=False)


class McpServer(RequestParams):
    """An MCP server that the client names: a command to start, or the address of a running server."""

    name: str
    type: Literal["http", "sse", "stdio"] = "stdio"
    command: str | None = None
    args: ListOrNull[str] = []
    env: ListOrNull[NamedValue] = []
    url: str | None = None
    headers: ListOrNull[NamedValue] = []

    @model_validator(mode="after")
    def _check_address(self) -> McpServer:
        if (self.command if self.type == "stdio" else self.url) is None:
            raise ValueError("neither a command nor an address")
        return self

    def build_client_server(self) -> ClientServer:
        """Return the server in the form in which `offer_client_servers` takes it."""
        env, headers = ({item.name: item.value for item in items} for items in (self.env, self.headers))
        return ClientServer(self.name, self.type, self.command, tuple(self.args), env, self.url, headers)


class NewSessionParams(RequestParams):
    cwd: str
    mcp_servers: ListOrNull[McpServer]
    additional_directories: ListOrNull[str] = []


class OpenSessionParams(SessionParams):
    """The params of `session/load` and `session/resume`."""

    cwd: str
    mcp_servers: ListOrNull[McpServer] = []
    additional_directories: ListOrNull[str] = []


class ListSessionsParams(RequestParams):
    cwd: str | None = None
    cursor: str | None = None


class SetModeParams(SessionParams):
    mode_id: str


class SetConfigOptionParams(SessionParams):
    config_id: str
    value: str | bool


class PromptParams(SessionParams):
    """`prompt` is parsed block by block, so that an error can name the block."""

    prompt: list[Any]


class TextContent(RequestParams):
    type: Literal["text"]
    text: str


class LinkContent(RequestParams):
    type: Literal["resource_link"]
    uri: str
    name: str


class ImageContent(RequestParams):
    type: Literal["image"]
    data: str
    mime_type: str


class TextResource(RequestParams):
    uri: str
    text: str


class ResourceContent(RequestParams):
    type: Literal["resource"]
    resource: TextResource


Content = Annotated[TextContent | LinkContent | ImageContent | ResourceContent, Field(discriminator="type")]
CONTENT: TypeAdapter[Content] = TypeAdapter(Content)

_P = TypeVar("_P", bound=RequestParams)


def parse_params(kind: type[_P], params: Mapping[str, Any]) -> _P:
    """Return the params of a request. Raises InvalidParams with the name of the wrong field, never with its value."""
    try:
        return kind.model_validate(params)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = ".".join(str(part) for part in problem["loc"])[:100]
        state = "is missing" if problem["type"] == "missing" else "has a wrong type or value"
        raise InvalidParams(f"The field `{name}` {state}.") from None


def parse_content(number: int, block: object) -> TextContent | LinkContent | ImageContent | ResourceContent:
    """Return a content block. `number` counts from 0. Raises InvalidParams for a block that the agent cannot use."""
    try:
        return CONTENT.validate_python(block)
    except ValidationError:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind in ("audio", "resource"):
            what = "a resource without text" if kind == "resource" else "an audio"
            raise InvalidParams(f"The block `prompt.{number}` is {what}, which this agent does not accept.") from None
        raise InvalidParams(f"The block `prompt.{number}` is not valid content.") from None
