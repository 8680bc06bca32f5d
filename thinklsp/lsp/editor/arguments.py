"""Command arguments. A command takes at most one object, all fields are optional, and unknown fields are rejected."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeVar

from lsprotocol.types import Diagnostic, ExecuteCommandParams
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError
from pydantic.alias_generators import to_camel

from thinklsp.core.choices import EffortSetting, ThinkingMode
from thinklsp.core.images import MAX_PROMPT_IMAGES
from thinklsp.jsonrpc.rpc_messages import InvalidParams, is_id
from thinklsp.lsp.documents.tracked_diagnostics import structure_diagnostics

# A pattern, because a loop over the characters of the largest prompt takes a quarter of a second.
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class _Arguments(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, strict=True, hide_input_in_errors=True
    )


def _check_surrogates(text: str) -> str:
    """Reject lone surrogates, which the store cannot save."""
    if _LONE_SURROGATE.search(text):
        raise ValueError("lone surrogate")
    return text


def _check_token(value: object) -> object:
    if not is_id(value):
        raise ValueError("neither an integer nor a short string")
    return value


def _wrap_uri(value: object) -> object:
    return {"uri": value} if isinstance(value, str) else value


# Fields with two forms use a validator instead of a union. For an invalid union, pydantic does not report the field.
Name = Annotated[str, AfterValidator(_check_surrogates)]
Token = Annotated[str | int, PlainValidator(_check_token)]


class Position(_Arguments):
    line: int = Field(ge=0, lt=2**31)
    character: int = Field(ge=0, lt=2**31)


class Range(_Arguments):
    start: Position
    end: Position


class Location(_Arguments):
    uri: str
    range: Range | None = None


class Image(_Arguments):
    """An image in base64. The engine checks its bytes and its size."""

    mime_type: str = Field(max_length=200)
    data: str


class ChatArguments(_Arguments):
    prompt: str | None = None
    session_id: Name | None = None
    uri: str | None = None
    range: Range | None = None
    references: list[Annotated[Location, BeforeValidator(_wrap_uri)]] = []
    images: list[Image] = Field([], max_length=MAX_PROMPT_IMAGES)
    queue: bool = False
    mode: Literal["agent", "ask", "plan"] = "agent"
    effort: EffortSetting | None = None
    thinking: ThinkingMode | None = None
    model: Name | None = Field(None, min_length=1, max_length=200)
    partial_result_token: Token | None = None


class ActionArguments(_Arguments):
    name: str | None = None
    uri: str | None = None
    range: Range | None = None
    diagnostics: Annotated[list[Diagnostic] | None, PlainValidator(structure_diagnostics)] = None
    instruction: str | None = None
    version: int | None = None
    effort: EffortSetting | None = None
    thinking: ThinkingMode | None = None
    model: Name | None = Field(None, min_length=1, max_length=200)
    partial_result_token: Token | None = None


class TurnArguments(_Arguments):
    turn_id: Name | None = None


class ChoiceArguments(_Arguments):
    value: Name | None = None
    session_id: Name | None = None


class CompactArguments(_Arguments):
    session_id: Name | None = None
    instructions: str = ""


class SendArguments(_Arguments):
    uri: str | None = None


class SessionsArguments(_Arguments):
    """The arguments of `thinklsp.sessions`.

    Some fields are valid only for certain values of `op`: `step` for `fork`, `format` for `export`, `archiveId` for
    `show`, `export` and `restore`, `apply` for `repair`, `title` for `rename`, and `partialResultToken` for `attach`.
    """

    op: Literal["list", "show", "export", "delete", "repair", "restore", "fork", "rename", "attach"] = "list"
    session_id: Name | None = Field(None, min_length=1, max_length=200)
    partial_result_token: Token | None = None
    step: int | None = Field(None, ge=0, lt=2**31)
    title: Name | None = None
    format: Literal["markdown", "json"] = "markdown"
    archive_id: str | None = Field(None, min_length=1, max_length=200)
    apply: bool = True


class UsageArguments(_Arguments):
    session_id: Name | None = Field(None, min_length=1, max_length=200)


class NoArguments(_Arguments):
    pass


A = TypeVar("A", bound=_Arguments)


def parse_arguments(kind: type[A], params: ExecuteCommandParams) -> A:
    """Return a command's validated argument. Raise InvalidParams, naming the field, if a field is invalid."""
    values = params.arguments or []
    if len(values) > 1:
        raise InvalidParams("The command takes at most one argument, an object.")
    value = values[0] if values and values[0] is not None else {}
    if not isinstance(value, dict):
        raise InvalidParams("The command's argument must be an object.")
    try:
        return kind.model_validate({key: item for key, item in value.items() if item is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])[:80]
        if first["type"] == "extra_forbidden":
            raise InvalidParams(f"Unknown field {name}.") from None
        raise InvalidParams(f"The field {name} is not valid: {first['msg'].lower()}.") from None
