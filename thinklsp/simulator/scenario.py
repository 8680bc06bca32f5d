"""Scenario files: what a scripted model says, how fast, and what goes wrong. TOML in, frozen models out.

Owns the format, its checks and the packaged samples. It knows no provider: stop reasons, usage and faults are in
neutral words, and a dialect translates them. `SCENARIOS.md` beside this file is the user's description.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from thinklsp.core.errors import ThinkLspError
from thinklsp.simulator.template import check_template

DialectName = Literal["anthropic", "openai", "google", "openai-compatible"]
StopReason = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "pause_turn", "refusal", "context_window"]
Milliseconds = Annotated[int, Field(ge=0, le=3_600_000)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]


class ScenarioError(ThinkLspError):
    """A scenario that cannot be found or played; the sentence names the file and the place in it."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pacing(_Part):
    """Speed of an answer. What a step leaves out it takes from the scenario, and that from `DEFAULT_PACE`."""

    delay_ms: Milliseconds | None = None
    chunk_chars: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    interval_ms: Milliseconds | None = None
    ping_every_ms: Milliseconds | None = None


class _Block(_Part):
    delay_ms: Milliseconds = 0


class ThinkingPart(_Block):
    """`thinking` as the model produced it; `summary` is what a caller who asks for summaries reads instead."""

    thinking: str
    summary: str | None = None
    omitted: bool = False

    @property
    def readable(self) -> str:
        return self.thinking if self.summary is None else self.summary


class RedactedPart(_Block):
    """Thinking that arrives encrypted. The text only decides how many tokens it counts."""

    redacted_thinking: str


class TextPart(_Block):
    text: Annotated[str, Field(min_length=1)]


class ToolPart(_Block):
    """A tool call. `input_json` replaces `input` by text that is sent as it stands, valid JSON or not."""

    tool: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
    input: dict[str, Any] = Field(default_factory=dict)
    input_json: str | None = None

    @model_validator(mode="after")
    def _one_input(self) -> ToolPart:
        if self.input and self.input_json is not None:
            raise ValueError("give either input or input_json, not both")
        return self


class RawPart(_Block):
    """A block in the words of one dialect, sent as it stands: server tools, fallbacks, types nobody knows yet. The
    other dialects leave it out."""

    raw: dict[str, Any]
    dialect: DialectName = "anthropic"

    @field_validator("raw")
    @classmethod
    def _filled(cls, raw: dict[str, Any]) -> dict[str, Any]:
        if not raw:
            raise ValueError("a raw block cannot be empty")
        return raw

    @model_validator(mode="after")
    def _typed(self) -> RawPart:
        if self.dialect in ("anthropic", "openai") and not isinstance(self.raw.get("type"), str):
            raise ValueError("a raw block needs a type")
        return self


_PART_KEYS = ("thinking", "redacted_thinking", "text", "tool", "raw")


def _part_kind(value: Any) -> str | None:
    if isinstance(value, Mapping):
        present = [key for key in _PART_KEYS if key in value]
        return present[0] if len(present) == 1 else None
    return next((key for key in _PART_KEYS if hasattr(value, key)), None)


Part = Annotated[
    Annotated[ThinkingPart, Tag("thinking")]
    | Annotated[RedactedPart, Tag("redacted_thinking")]
    | Annotated[TextPart, Tag("text")]
    | Annotated[ToolPart, Tag("tool")]
    | Annotated[RawPart, Tag("raw")],
    Discriminator(
        _part_kind,
        custom_error_type="block_kind",
        custom_error_message="needs exactly one of the keys thinking, redacted_thinking, text, tool and raw",
    ),
]


class HttpError(_Part):
    """An answer that is no stream. `type` and `message` default to what the service says with this status."""

    status: Annotated[int, Field(ge=400, le=599)]
    type: str | None = None
    message: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    body: str | None = None

    @field_validator("headers")
    @classmethod
    def _sendable(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not re.fullmatch(r"[A-Za-z0-9-]+", name) or not re.fullmatch(r"[\x20-\x7e]*", value):
                raise ValueError(f"the header {name!r} cannot be sent; use plain ASCII")
        return headers


class ErrorEvent(_Part):
    """An error inside a stream that began well."""

    type: str = "overloaded_error"
    message: str = "Overloaded"
    after_events: Count = 1


class Fault(_Part):
    """What goes wrong with a step: exactly one thing, on its first `times` tries (always, where left out)."""

    times: Annotated[int, Field(ge=1)] | None = None
    http_error: HttpError | None = None
    error_event: ErrorEvent | None = None
    cut_after_events: Count | None = None
    cut_cleanly: bool = True
    silence_ms: Milliseconds | None = None
    silence_after_events: Count = 1

    @model_validator(mode="after")
    def _one_fault(self) -> Fault:
        given = [self.http_error, self.error_event, self.cut_after_events, self.silence_ms]
        if sum(fault is not None for fault in given) != 1:
            raise ValueError("needs exactly one of http_error, error_event, cut_after_events and silence_ms")
        return self


class UsageOverride(_Part):
    """Figures reported instead of the estimate. `input_tokens` is the whole input, cached parts included."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    thinking_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    cache_write_tokens: Count | None = None


class Refusal(_Part):
    category: str | None = None
    explanation: str | None = None


class Step(_Part):
    """One answer of the model. Without `stop_reason` it is `tool_use` where a tool is called, else `end_turn`."""

    block: tuple[Part, ...] = ()
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    refusal: Refusal | None = None
    usage: UsageOverride = UsageOverride()
    pacing: Pacing = Pacing()
    fault: Fault | None = None

    @model_validator(mode="after")
    def _reasons_agree(self) -> Step:
        if self.refusal is not None and self.stop_reason != "refusal":
            raise ValueError('refusal is only told with stop_reason = "refusal"')
        if (self.stop_sequence is not None) != (self.stop_reason == "stop_sequence"):
            raise ValueError('stop_sequence and stop_reason = "stop_sequence" go together')
        for part in self.block:
            check_template(part.model_dump(exclude={"delay_ms", "omitted"}, exclude_none=True))
        return self


class When(_Part):
    """Regular expressions that must all be found, and tools that must all be offered."""

    user: str | None = None
    system: str | None = None
    model: str | None = None
    tools: tuple[str, ...] = ()

    @field_validator("user", "system", "model")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
        return pattern


class Turn(_Part):
    """The answers to one prompt of the user, one step per model call."""

    when: When | None = None
    step: tuple[Step, ...]

    @field_validator("when", mode="before")
    @classmethod
    def _short_form(cls, when: Any) -> Any:
        return {"user": when} if isinstance(when, str) else when

    @model_validator(mode="after")
    def _answers(self) -> Turn:
        if not self.step:
            raise ValueError("needs at least one step")
        return self


class Scenario(_Part):
    """A whole file. `context_window` replaces the model's own, so that a small talk can fill it."""

    name: str = "unnamed"
    description: str = ""
    context_window: Annotated[int, Field(ge=1)] | None = None
    pacing: Pacing = Pacing()
    turn: tuple[Turn, ...] = ()


def parse(text: str, name: str) -> Scenario:
    """The scenario in a TOML text; `name` stands for it in sentences and is its name unless it gives itself one."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"The scenario {name!r} is not valid TOML: {error}.") from None
    try:
        return Scenario.model_validate({"name": Path(name).stem, **table})
    except ValidationError as error:
        places = "; ".join(_sentence(item["loc"], item["msg"]) for item in error.errors(include_url=False))
        raise ScenarioError(f"The scenario {name!r} cannot be played: {places}.") from None


def packaged() -> tuple[str, ...]:
    """Names of the scenarios that come with the package, sorted."""
    folder = files("thinklsp.simulator") / "scenarios"
    return tuple(sorted(item.name[:-5] for item in folder.iterdir() if item.name.endswith(".toml")))


def load(name_or_path: str) -> Scenario:
    """A packaged scenario by name, or any other by its path. Raises ScenarioError."""
    if name_or_path in packaged():
        source = files("thinklsp.simulator") / "scenarios" / f"{name_or_path}.toml"
        return parse(source.read_text("utf-8"), name_or_path)
    try:
        text = Path(name_or_path).read_text("utf-8")
    except OSError as error:
        known = ", ".join(packaged())
        reason = error.strerror or "it cannot be read"
        raise ScenarioError(
            f"There is no scenario {name_or_path!r} ({reason}). Give the path of a TOML file or one of: {known}."
        ) from None
    except UnicodeDecodeError:
        raise ScenarioError(f"The scenario {name_or_path!r} is not UTF-8 text.") from None
    return parse(text, name_or_path)


def _sentence(location: tuple[int | str, ...], message: str) -> str:
    """`('turn', 0, 'step', 1, 'pacing', 'delay_ms')` reads as `turn 1, step 2, pacing.delay_ms: …`."""
    words: list[str] = []
    skip_tag = False
    for item in location:
        if isinstance(item, int):
            words[-1] += f" {item + 1}"
            skip_tag = words[-1].startswith("block ")
        elif skip_tag:
            skip_tag = False
        elif words and not words[-1][-1].isdigit():
            words[-1] += f".{item}"
        else:
            words.append(item)
    message = message.removeprefix("Value error, ")
    if message == "Extra inputs are not permitted":
        message = "this key is not known"
    return f"{', '.join(words) or 'the file'}: {message}"
