"""Arguments of the commands: at most one object, every field optional, nothing unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError
from pydantic.alias_generators import to_camel

from thinklsp.core.choices import EffortSetting, ThinkingMode
from thinklsp.lsp.protocol.envelope import is_id
from thinklsp.lsp.protocol.errors import InvalidParams


class _Arguments(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, strict=True, hide_input_in_errors=True
    )


def _whole(text: str) -> str:
    """Half of a character pair can be in no id, and no store takes it."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("half of a character pair")
    return text


def _token(value: object) -> object:
    if not is_id(value):
        raise ValueError("neither an integer nor a short text")
    return value


def _place(value: object) -> object:
    return {"uri": value} if isinstance(value, str) else value


# Of a union pydantic names the arms and not the field that is wrong: where two forms may come one of them is read.
Name = Annotated[str, AfterValidator(_whole)]
Token = Annotated[str | int, PlainValidator(_token)]


class Position(_Arguments):
    line: int = Field(ge=0, lt=2**31)
    character: int = Field(ge=0, lt=2**31)


class Range(_Arguments):
    start: Position
    end: Position


class Location(_Arguments):
    uri: str
    range: Range | None = None


class ChatArguments(_Arguments):
    prompt: str | None = None
    session_id: Name | None = None
    uri: str | None = None
    range: Range | None = None
    references: list[Annotated[Location, BeforeValidator(_place)]] = []
    mode: Literal["agent", "ask", "plan"] = "agent"
    effort: EffortSetting | None = None
    thinking: ThinkingMode | None = None
    model: Name | None = Field(None, min_length=1, max_length=200)
    partial_result_token: Token | None = None


class ActionArguments(_Arguments):
    name: str | None = None
    uri: str | None = None
    range: Range | None = None
    diagnostics: list[dict[str, Any]] | None = None
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
    """Of `op`: `step` belongs to fork, `format` to export, `archiveId` to show, export and restore, `apply` to repair,
    `partialResultToken` to attach."""

    op: Literal["list", "show", "export", "delete", "repair", "restore", "fork", "attach"] = "list"
    session_id: Name | None = Field(None, min_length=1, max_length=200)
    partial_result_token: Token | None = None
    step: int | None = Field(None, ge=0, lt=2**31)
    format: Literal["markdown", "json"] = "markdown"
    archive_id: str | None = Field(None, min_length=1, max_length=200)
    apply: bool = True


class UsageArguments(_Arguments):
    session_id: Name | None = Field(None, min_length=1, max_length=200)


class NoArguments(_Arguments):
    pass


A = TypeVar("A", bound=_Arguments)


def parsed(kind: type[A], arguments: Sequence[Any] | None) -> A:
    """Raises InvalidParams that names the field."""
    given = arguments or []
    if len(given) > 1:
        raise InvalidParams("The command takes at most one argument, an object.")
    value = given[0] if given and given[0] is not None else {}
    if not isinstance(value, dict):
        raise InvalidParams("The argument of the command must be an object.")
    try:
        return kind.model_validate({key: item for key, item in value.items() if item is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])[:80]
        if first["type"] == "extra_forbidden":
            raise InvalidParams(f"The command knows no field {name}.") from None
        raise InvalidParams(f"The field {name} is not valid: {first['msg'].lower()}.") from None
