"""The params of the client's requests, and the content of its prompts. Unknown fields are ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, assert_never

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

from thinklsp.agent.prompts import Excerpt
from thinklsp.core.errors import PathRefused
from thinklsp.core.images import decode_image
from thinklsp.core.messages import ImageBlock, compute_digest
from thinklsp.core.prompt_syntax import write_mention
from thinklsp.core.text_safety import escape_invisible
from thinklsp.engine.turn_request import build_excerpt
from thinklsp.jsonrpc.rpc_messages import InvalidParams
from thinklsp.mcp_client.server_entries import ClientEntry
from thinklsp.workspace.uri import uri_to_path
from thinklsp.workspace.view import Place, WorkspaceView

_T = TypeVar("_T")
ListOrNull = Annotated[list[_T], Field(fail_fast=True), BeforeValidator(lambda value: [] if value is None else value)]
"""A list. The schema of the protocol says where null stands for an empty list."""

_MAX_NAME_LENGTH = 300


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

    def build_client_entry(self) -> ClientEntry:
        """Return the server in the form in which `offer_client_servers` takes it."""
        env, headers = ({item.name: item.value for item in items} for items in (self.env, self.headers))
        entry = {**self.model_dump(exclude={"env", "headers"}), "env": env, "headers": headers}
        return ClientEntry(self.name, entry)


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


def _parse_content(number: int, block: object) -> Content:
    """Return a content block. `number` counts from 0. Raises InvalidParams for a block that the agent cannot use."""
    try:
        return CONTENT.validate_python(block)
    except ValidationError:
        raise InvalidParams(
            f"The block `prompt.{number}` is not valid content. This agent accepts texts, links, images and resources "
            "with text."
        ) from None


@dataclass(frozen=True, slots=True)
class PromptContent:
    """A prompt in the user's words, in which `@` mentions name the linked files.

    `attachments` are embedded texts. The text names each of the `images` at its place.
    """

    text: str
    attachments: tuple[Excerpt, ...]
    images: tuple[ImageBlock, ...] = ()


def read_prompt(blocks: Sequence[object], view: WorkspaceView) -> PromptContent:
    """Read the blocks of a prompt. A link that is not a file of the workspace only adds its address to the text.

    Raises InvalidParams for a block that the agent cannot use, ImageRefused for an image that cannot be sent, and
    PathRefused for the text of a protected file.
    """
    pieces: list[str] = []
    attachments: list[Excerpt] = []
    images: list[ImageBlock] = []
    for number, raw in enumerate(blocks):
        match _parse_content(number, raw):
            case TextContent(text=words):
                _append_text(pieces, words)
            case LinkContent(uri=uri):
                place = _find_place(uri, view)
                is_file = place is not None and view.find_kind(place) == "file"
                name = _format_name(uri, place)
                _append_word(pieces, write_mention(name) if is_file else name)
            case ImageContent(data=data, mime_type=media_type):
                name = f"Image {len(images) + 1}"
                _append_word(pieces, f"[{name}]")
                images.append(decode_image(name, data, escape_invisible(media_type)))
            case ResourceContent(resource=resource):
                place = _find_place(resource.uri, view)
                if place is not None or resource.uri.startswith("file:"):
                    # A file outside the workspace may contain secrets, too.
                    view.check_readable(place or Place(resource.uri, resource.uri.rpartition("/")[2], resource.uri))
                name = _format_name(resource.uri, place)
                _append_word(pieces, name)
                attachments.append(build_excerpt(name, resource.text, key=_find_key(place, resource.text, view)))
            case _ as unreachable:
                assert_never(unreachable)
    # Some clients send lone surrogates, which neither the store nor a provider accepts.
    plain = "".join(pieces).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return PromptContent(plain, tuple(attachments), tuple(images))


def _find_place(uri: str, view: WorkspaceView) -> Place | None:
    try:
        return view.resolve(uri)
    except PathRefused:
        return None


def _find_key(place: Place | None, text: str, view: WorkspaceView) -> str | None:
    """Return the key of the file that has exactly this text, because a client may send only a part of the file."""
    try:
        file = None if place is None else view.peek(place)
    except PathRefused:
        return None
    return None if place is None or file is None or compute_digest(file.text) != compute_digest(text) else place.key


def _format_name(uri: str, place: Place | None) -> str:
    """Return the label of a place in the workspace, or the address of anything else."""
    if place is not None:
        return place.label
    try:
        return escape_invisible(uri_to_path(uri)[:_MAX_NAME_LENGTH])
    except PathRefused:
        return escape_invisible(uri[:_MAX_NAME_LENGTH])


def _append_text(pieces: list[str], words: str) -> None:
    """Append a block of text. It is a new paragraph, unless the texts have a space where they meet.

    codecompanion.nvim sends a block for each file that the user shares, and again a prompt that was cancelled.
    """
    last = next((piece for piece in reversed(pieces) if piece), " ")
    is_apart = not words or last[-1].isspace() or words[0].isspace()
    pieces.append(words if is_apart else f"\n\n{words}")


def _append_word(pieces: list[str], word: str) -> None:
    """Append a word to a text, and a space after it, because the next block may begin with a letter."""
    last = next((piece for piece in reversed(pieces) if piece), " ")
    pieces.append(f"{word} " if last[-1].isspace() else f" {word} ")
