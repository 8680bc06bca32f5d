"""Scenario files in TOML, which script a model's answers, pacing and faults.

This module checks the files and loads the packaged ones. `SCENARIOS.md` in this folder documents the format, which is
the same for all providers.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from thinklsp.core.errors import ThinkLspError

# The regular expression of a placeholder may end with a brace, as in `{1,3}`. Other text in double braces stays
# unchanged, because models also write templates.
_PLACEHOLDER = re.compile(r"\{\{(?:(user)|result:(\d+))(?::(.*?))?\}\}(?!\})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PlaceholderValues:
    """The values that replace placeholders: the last prompt and the latest tool results."""

    user: str
    results: tuple[str, ...]

    def resolve(self, placeholder: re.Match[str]) -> str:
        user, number, pattern = placeholder.groups()
        source = self.user if user else "".join(self.results[int(number) - 1 : int(number)])
        if not pattern:
            return source
        found = re.search(pattern, source, re.MULTILINE)
        return (found[1 if found.re.groups else 0] or "") if found else ""


def replace_placeholders(value: Any, resolve: Callable[[re.Match[str]], str]) -> Any:
    """Return a copy of a string, list or table with all placeholders replaced. Keys and other values are unchanged."""
    match value:
        case str():
            return _PLACEHOLDER.sub(resolve, value)
        case Mapping():
            return {key: replace_placeholders(item, resolve) for key, item in value.items()}
        case list() | tuple():
            return [replace_placeholders(item, resolve) for item in value]
        case _:
            return value


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a valid regular expression: {error}") from None
    return pattern


def _check_placeholder(placeholder: re.Match[str]) -> str:
    """Raise ValueError if a placeholder has the result number 0 or an invalid regular expression."""
    if placeholder[2] == "0":
        raise ValueError(f"{placeholder[0]} is invalid: results are numbered from 1, so the first is {{{{result:1}}}}")
    return _check_pattern(placeholder[3] or "")


class TableRow(BaseModel):
    """A table in a TOML file. Unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)


ScriptedStopReason = Literal["end_turn", "tool_use", "max_tokens", "pause_turn", "refusal", "context_window"]
Milliseconds = Annotated[int, Field(ge=0, le=3_600_000)]
TokenCount = Annotated[int, Field(ge=0, le=1_000_000_000)]


class ScenarioError(ThinkLspError):
    """An error for a missing or invalid scenario. The message names the file and any invalid key."""


class Pacing(TableRow):
    """The speed of an answer. Values that a step does not set come from the scenario.

    If `ping_every_ms` is 0, no pings are sent.
    """

    delay_ms: Milliseconds = 0
    chunk_chars: Annotated[int, Field(ge=1, le=1_000_000)] = 24
    interval_ms: Milliseconds = 0
    ping_every_ms: Milliseconds = 0


class _Part(TableRow):
    delay_ms: Milliseconds = 0


class ThinkingPart(_Part):
    """A thinking block. A client that asks for no text receives it empty."""

    thought: str = Field(alias="thinking")

    @property
    def readable_text(self) -> str:
        return self.thought


class RedactedPart(_Part):
    """A thinking block that is sent in encrypted form. Its text determines only the token count."""

    thought: str = Field(alias="redacted_thinking")
    readable_text: ClassVar[None] = None


class TextPart(_Part):
    text: Annotated[str, Field(min_length=1)]


class ToolPart(_Part):
    """A tool call. `input_json` replaces `input` with text that is sent unchanged, even if it is not valid JSON."""

    tool: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
    input: dict[str, Any] = Field(default_factory=dict)
    input_json: str | None = None

    def format_arguments(self, separators: tuple[str, str] = (", ", ": ")) -> str:
        """Return the tool call's arguments as JSON text."""
        if self.input_json is not None:
            return self.input_json
        return json.dumps(self.input, ensure_ascii=False, separators=separators, default=str)

    @model_validator(mode="after")
    def _check_single_input(self) -> ToolPart:
        if self.input and self.input_json is not None:
            raise ValueError("set either input or input_json, not both")
        return self


class RawPart(_Part):
    """A content block in the API's own JSON, such as a server tool or a block type that clients do not support."""

    raw: Annotated[dict[str, Any], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_type(self) -> RawPart:
        if "type" not in self.raw:
            raise ValueError("a raw block must contain the key `type`")
        return self


_PART_KEYS = ("thinking", "redacted_thinking", "text", "tool", "raw")


def _find_part_kind(value: Any) -> str | None:
    present = [key for key in _PART_KEYS if key in value] if isinstance(value, Mapping) else []
    return present[0] if len(present) == 1 else None


ScenarioPart = Annotated[
    Annotated[ThinkingPart, Tag("thinking")]
    | Annotated[RedactedPart, Tag("redacted_thinking")]
    | Annotated[TextPart, Tag("text")]
    | Annotated[ToolPart, Tag("tool")]
    | Annotated[RawPart, Tag("raw")],
    Discriminator(
        _find_part_kind,
        custom_error_type="block_kind",
        custom_error_message="must contain exactly one of the keys thinking, redacted_thinking, text, tool and raw",
    ),
]


class HttpError(TableRow):
    """An HTTP error that is sent instead of an answer, by default with the service's usual type and message."""

    status: Annotated[int, Field(ge=400, le=599)]
    type: str | None = None
    message: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)


class ErrorEvent(TableRow):
    """An error event that ends a stream. It follows `after_events` other events."""

    type: str = "overloaded_error"
    message: str = "Overloaded"
    after_events: TokenCount = 1


class ScriptedFault(TableRow):
    """A scripted failure of a step. It occurs on the first `times` attempts, or by default on every attempt."""

    times: Annotated[int, Field(ge=1)] | None = None
    http_error: HttpError | None = None
    error_event: ErrorEvent | None = None
    cut_after_events: TokenCount | None = None
    cut_cleanly: bool = True

    @model_validator(mode="after")
    def _check_single_fault(self) -> ScriptedFault:
        faults = [self.http_error, self.error_event, self.cut_after_events]
        if sum(fault is not None for fault in faults) != 1:
            raise ValueError("must contain exactly one of http_error, error_event and cut_after_events")
        return self


class UsageOverride(TableRow):
    """The usage that a step reports instead of an estimate. `input_tokens` includes cached tokens."""

    input_tokens: TokenCount | None = None
    output_tokens: TokenCount | None = None
    thinking_tokens: TokenCount | None = None
    cache_read_tokens: TokenCount | None = None
    cache_write_tokens: TokenCount | None = None


class Refusal(TableRow):
    category: str | None = None
    explanation: str | None = None


class ScenarioStep(TableRow):
    """A model's answer. `stop_reason` defaults to `tool_use` if the step calls a tool, and to `end_turn` otherwise.

    `label` identifies the step in messages to the user.
    """

    parts: tuple[ScenarioPart, ...] = Field(default=(), alias="block")
    stop_reason: ScriptedStopReason | None = None
    refusal: Refusal | None = None
    usage: UsageOverride = UsageOverride()
    pacing: Pacing = Pacing()
    fault: ScriptedFault | None = None
    label: str = ""

    @property
    def http_error(self) -> HttpError | None:
        return self.fault.http_error if self.fault else None

    @model_validator(mode="after")
    def _check_stop_reason(self) -> ScenarioStep:
        if self.refusal is not None and self.stop_reason != "refusal":
            raise ValueError('refusal requires stop_reason = "refusal"')
        for part in self.parts:
            replace_placeholders(part.model_dump(), _check_placeholder)
        return self


Pattern = Annotated[str, AfterValidator(_check_pattern)]


class TurnCondition(TableRow):
    """The condition for a turn: the prompt matches the regular expression, and the request offers all the tools."""

    user: Pattern = ""
    tools: tuple[str, ...] = ()

    def matches(self, prompt: str, tools: frozenset[str]) -> bool:
        return re.search(self.user, prompt, re.MULTILINE) is not None and tools.issuperset(self.tools)


class ScenarioTurn(TableRow):
    """The scripted answers to a user prompt. Each step is the answer to a model call."""

    when: Annotated[
        TurnCondition | None, BeforeValidator(lambda when: {"user": when} if isinstance(when, str) else when)
    ] = None
    step: Annotated[tuple[ScenarioStep, ...], Field(min_length=1)]


class Scenario(TableRow):
    """A scenario file. `context_window` replaces the model's context window, so that a short conversation fills it."""

    name: str = "unnamed"
    description: str = ""
    context_window: Annotated[int, Field(ge=1)] | None = None
    pacing: Pacing = Pacing()
    turn: tuple[ScenarioTurn, ...] = ()


def parse_scenario(text: str, name: str) -> Scenario:
    """Parse a scenario in TOML. Raises ScenarioError if the scenario is invalid.

    `name` is the file's name, which appears in error messages. It is also the default for the scenario's name.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"The scenario {name!r} is not valid TOML: {error}.") from None
    try:
        return Scenario.model_validate({"name": Path(name).stem, **table})
    except ValidationError as error:
        problems = "; ".join(_format_problem(item["loc"], item["msg"]) for item in error.errors(include_url=False))
        raise ScenarioError(f"The scenario {name!r} is invalid: {problems}.") from None


def list_packaged() -> tuple[str, ...]:
    """Return the sorted names of the packaged scenarios."""
    folder = files("thinklsp.offline") / "scenarios"
    return tuple(sorted(item.name[:-5] for item in folder.iterdir() if item.name.endswith(".toml")))


def load_scenario(name_or_path: str) -> Scenario:
    """Load a packaged scenario by its name, or another scenario by its path. Raises ScenarioError."""
    if name_or_path in list_packaged():
        source = files("thinklsp.offline") / "scenarios" / f"{name_or_path}.toml"
        return parse_scenario(source.read_text("utf-8"), name_or_path)
    try:
        text = Path(name_or_path).read_text("utf-8")
    except OSError as error:
        names = ", ".join(list_packaged())
        reason = error.strerror or "not readable"
        raise ScenarioError(
            f"Cannot read the scenario {name_or_path!r} ({reason}). Use the path of a TOML file, or one of: {names}."
        ) from None
    except UnicodeDecodeError:
        raise ScenarioError(f"The scenario {name_or_path!r} is not UTF-8 text.") from None
    return parse_scenario(text, name_or_path)


def _format_problem(location: tuple[int | str, ...], message: str) -> str:
    """Format a validation error, for example as `turn 1, step 2, pacing.delay_ms: …`."""
    path = ".".join(f"#{item + 1}" if isinstance(item, int) else item for item in location)
    # The name of the kind of a block follows its number.
    path = re.sub(r"(?<=block\.)(#\d+)\.\w+(?=\.|$)", r"\1", path)
    path = re.sub(r"\.#(\d+)", r" \1,", path).replace(",.", ", ").removesuffix(",")
    message = "unknown key" if message == "Extra inputs are not permitted" else message.removeprefix("Value error, ")
    return f"{path or 'the file'}: {message}"
