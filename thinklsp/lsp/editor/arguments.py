"""Command arguments and targets.

A command takes at most one object, all fields are optional, and unknown fields are rejected. Its target is the document
and range in its arguments or in the latest code action request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

from lsprotocol import types
from lsprotocol.types import Diagnostic, ExecuteCommandParams
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError
from pydantic.alias_generators import to_camel

from thinklsp.core.check_results import EditorDiagnostic
from thinklsp.core.choices import EffortSetting, ThinkingMode
from thinklsp.core.errors import StaleDocument, TurnRefused
from thinklsp.core.images import MAX_PROMPT_IMAGES
from thinklsp.jsonrpc.rpc_messages import InvalidParams, is_id
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.documents.tracked_diagnostics import select_in_range, structure_diagnostics, update_tracked
from thinklsp.lsp.editor.connection_state import ActionContext, ConnectionState

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
    references: list[Annotated[Location, BeforeValidator(_wrap_uri)]] = Field([], fail_fast=True)
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


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """A command's target. `range` is None for an entire document."""

    uri: str
    range: types.Range | None
    line_count: int
    problems: tuple[EditorDiagnostic, ...] = ()


def resolve_target(
    state: ConnectionState, uri: str | None, range_: Range | None, version: int | None = None
) -> CommandTarget | None:
    """Return the target of a command, or None if neither the arguments nor a code action request specify a target.

    Raise StaleDocument if the text of the range has changed since the given version.
    """
    problems: tuple[EditorDiagnostic, ...] = ()
    target_range = None if range_ is None else to_lsp_range(range_)
    if uri is None and (latest := state.last_action) is not None:
        uri, problems = latest.uri, _find_problems(state, latest)
        if target_range is None:
            target_range, version = latest.range, latest.version
    if uri is None:
        return None
    document = state.documents.get(uri)
    if document is None:
        return CommandTarget(uri, target_range, 2**31, problems)
    if target_range is not None and version is not None and version != document.version:
        target_range = _map_range(document, target_range, version)
    return CommandTarget(uri, target_range, document.line_count, problems)


def find_known_problems(state: ConnectionState, target: CommandTarget) -> tuple[EditorDiagnostic, ...]:
    """Return the target's current diagnostics from code action requests, sorted by position."""
    document = state.documents.get(target.uri)
    diagnostics = () if document is None else update_tracked(document, document.tracked_diagnostics)
    if target.range is not None:
        diagnostics = select_in_range(diagnostics, target.range)
    return tuple(diagnostic.problem for diagnostic in sorted(diagnostics, key=lambda diagnostic: diagnostic.start))


def find_latest_location(state: ConnectionState) -> CommandTarget | None:
    """Return the target of the latest code action request outside chat documents, with its diagnostics.

    `range` is the current range, or None if the text of the range has changed.
    """
    place = state.last_location
    if place is None:
        return None
    problems = _find_problems(state, place)
    document = state.documents.get(place.uri)
    if document is None:
        return CommandTarget(place.uri, place.range, 2**31, problems)
    try:
        target_range: types.Range | None = _map_range(document, place.range, place.version)
    except StaleDocument:
        target_range = None
    return CommandTarget(place.uri, target_range, document.line_count, problems)


def _find_problems(state: ConnectionState, location: ActionContext) -> tuple[EditorDiagnostic, ...]:
    """Return a location's diagnostics at their current positions, or as sent if all their lines have changed."""
    document = state.documents.get(location.uri)
    diagnostics = () if document is None else update_tracked(document, location.diagnostics)
    return tuple(diagnostic.problem for diagnostic in diagnostics or location.diagnostics)


def require_target(state: ConnectionState, uri: str | None, range_: Range | None, version: int | None) -> CommandTarget:
    """Return the target of a command. Raise TurnRefused if there is none."""
    subject = resolve_target(state, uri, range_, version)
    if subject is None:
        raise TurnRefused("The command has no target: name a document with `uri`, or select some code first.")
    return subject


def to_lsp_range(range_: Range) -> types.Range:
    return types.Range(
        types.Position(range_.start.line, range_.start.character), types.Position(range_.end.line, range_.end.character)
    )


def to_line_numbers(range_: types.Range | None, line_count: int) -> tuple[int, int] | None:
    """Return the first and the last line, numbered from 1.

    A range that ends at the start of a line excludes that line.
    """
    if range_ is None:
        return None
    first, last = range_.start.line + 1, range_.end.line + 1
    if range_.end.character == 0 and last > first:
        last -= 1
    return min(first, line_count), min(max(first, last), line_count)


def _map_range(document: Document, range_: types.Range, version: int) -> types.Range:
    start = document.map_position((range_.start.line, range_.start.character), version)
    end = document.map_position((range_.end.line, range_.end.character), version)
    if start is None or end is None:
        raise StaleDocument("The selected code has changed since it was selected. Select it again.")
    return types.Range(types.Position(*start), types.Position(*end))
