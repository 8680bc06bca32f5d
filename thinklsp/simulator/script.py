"""Which step of a scenario answers a request, and with what. Decided from the request alone, except for faults.

The rule: the turn follows from the prompts in the conversation, the step from the number of answers after the last
prompt. So retries, restarts, cancels and any number of sessions side by side need no memory. The one thing counted
here is how often a faulty step was tried, by conversation, in a bounded table.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, assert_never

from thinklsp.simulator.scenario import (
    DialectName,
    ErrorEvent,
    Fault,
    HttpError,
    Pacing,
    RawPart,
    RedactedPart,
    Refusal,
    Scenario,
    Step,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolPart,
    Turn,
    UsageOverride,
    When,
)
from thinklsp.simulator.state import forget_oldest
from thinklsp.simulator.template import Heard, fill

ScriptedPart = ThinkingPart | RedactedPart | TextPart | ToolPart | RawPart
_REMEMBERED_TRIES = 4096
_TAGGED = re.compile(r"\s*<([A-Za-z][\w-]*)[^>]*>.*</\1>\s*", re.DOTALL)
# Services that can stop in the middle of an answer and go on with it in the next one.
_PAUSING: frozenset[DialectName] = frozenset({"anthropic", "google"})


@dataclass(frozen=True, slots=True)
class Course:
    """A request in neutral words. `prompts`: every text of the user, oldest first; `answers`: model messages since.

    `results`: texts of the tool results that the request brings. `digest` tells conversations apart.
    """

    model: str
    system: str
    tools: frozenset[str]
    prompts: tuple[str, ...]
    answers: int
    results: tuple[str, ...]
    digest: str

    @property
    def prompt(self) -> str:
        return self.prompts[-1] if self.prompts else ""


@dataclass(frozen=True, slots=True)
class Pace:
    """Milliseconds, and characters per delta. `ping_every_ms` 0: no pings in silence."""

    delay_ms: int = 0
    chunk_chars: int = 24
    interval_ms: int = 0
    ping_every_ms: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """One model answer, placeholders filled. `label` says for people where in the scenario it stands."""

    parts: tuple[ScriptedPart, ...]
    stop_reason: StopReason
    label: str
    pace: Pace = Pace()
    stop_sequence: str | None = None
    refusal: Refusal | None = None
    usage: UsageOverride = field(default_factory=UsageOverride)
    fault: Fault | None = None

    @property
    def http_error(self) -> HttpError | None:
        return self.fault.http_error if self.fault else None

    @property
    def error_event(self) -> ErrorEvent | None:
        return self.fault.error_event if self.fault else None


class Script:
    """A scenario being played. Owns the table of tries; nothing else changes."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._tries: OrderedDict[tuple[str, str], int] = OrderedDict()

    def reset(self) -> None:
        self._tries.clear()

    def answer(self, course: Course, dialect: DialectName) -> Answer:
        """The answer to a request that the dialect has accepted. Counts as a try of that step."""
        number = turn_number(self.scenario, course)
        if number is None:
            return _unscripted(self.scenario, course, "no turn of it answers this prompt")
        steps = _steps(self.scenario.turn[number], dialect)
        if course.answers >= len(steps):
            return _unscripted(self.scenario, course, f"turn {number + 1} has no step {course.answers + 1}")
        label = f"turn {number + 1}, step {course.answers + 1}"
        step = steps[course.answers]
        return _played(step, self.scenario, course, label, fault=self._fault(step, course, label))

    def _fault(self, step: Step, course: Course, label: str) -> Fault | None:
        if step.fault is None or step.fault.times is None:
            return step.fault
        key = (course.digest, label)
        tried = self._tries.pop(key, 0)
        self._tries[key] = tried + 1
        forget_oldest(self._tries, _REMEMBERED_TRIES)
        return step.fault if tried < step.fault.times else None


def join_prompt(texts: Iterable[str], *, beside_results: bool) -> str | None:
    """Join what the user says between two answers.

    Beside tool results, remarks in tags do not count; None if the user says nothing else there.
    """
    if beside_results:
        texts = [text for text in texts if not _TAGGED.fullmatch(text)]
        if not texts:
            return None
    return "\n\n".join(texts)


def _steps(turn: Turn, dialect: DialectName) -> list[Step]:
    """The steps as this dialect can play them: raw blocks of others are left out, and where answers cannot pause,
    the two halves of one are a single answer."""
    steps: list[Step] = []
    for step in turn.step:
        blocks = tuple(part for part in step.block if not isinstance(part, RawPart) or part.dialect == dialect)
        step = step.model_copy(update={"block": blocks})
        if steps and steps[-1].stop_reason == "pause_turn" and dialect not in _PAUSING:
            first = steps.pop()
            joined = {"block": (*first.block, *step.block), "pacing": first.pacing, "fault": first.fault or step.fault}
            step = step.model_copy(update=joined)
        steps.append(step)
    if steps[-1].stop_reason == "pause_turn" and dialect not in _PAUSING:
        steps[-1] = steps[-1].model_copy(update={"stop_reason": None})
    return steps


def turn_number(scenario: Scenario, course: Course) -> int | None:
    """Index of the turn that answers the last prompt, or None.

    The first turn whose `when` holds; else the n-th turn without `when`, for the n-th prompt that no `when` takes.
    """
    plain = [number for number, turn in enumerate(scenario.turn) if turn.when is None]
    unmatched = 0
    for prompt in course.prompts[:-1]:
        unmatched += _matching(scenario.turn, course, prompt) is None
    matched = _matching(scenario.turn, course, course.prompt)
    if matched is not None:
        return matched
    return plain[unmatched] if unmatched < len(plain) else None


def _matching(turns: tuple[Turn, ...], course: Course, prompt: str) -> int | None:
    for number, turn in enumerate(turns):
        if turn.when is not None and _holds(turn.when, course, prompt):
            return number
    return None


def _holds(when: When, course: Course, prompt: str) -> bool:
    pairs = ((when.user, prompt), (when.system, course.system), (when.model, course.model))
    return set(when.tools) <= course.tools and all(
        pattern is None or re.search(pattern, text, re.MULTILINE) for pattern, text in pairs
    )


def _played(step: Step, scenario: Scenario, course: Course, label: str, *, fault: Fault | None) -> Answer:
    heard = Heard(course.prompt, course.results, course.model)
    parts = tuple(_filled(part, heard) for part in step.block)
    calls = any(isinstance(part, ToolPart) for part in parts)
    return Answer(
        parts,
        step.stop_reason or ("tool_use" if calls else "end_turn"),
        label,
        pace=_pace(scenario.pacing, step.pacing),
        stop_sequence=step.stop_sequence,
        refusal=step.refusal,
        usage=step.usage,
        fault=fault,
    )


def _filled(part: ScriptedPart, heard: Heard) -> ScriptedPart:
    changes: dict[str, Any]
    match part:
        case ThinkingPart():
            changes = {"thinking": fill(part.thinking, heard), "summary": fill(part.summary, heard)}
        case RedactedPart():
            changes = {"redacted_thinking": fill(part.redacted_thinking, heard)}
        case TextPart():
            # A capture that found nothing must not leave an empty block: the service never sends one.
            changes = {"text": fill(part.text, heard) or "(nothing)"}
        case ToolPart():
            changes = {"input": fill(part.input, heard), "input_json": fill(part.input_json, heard)}
        case RawPart():
            changes = {"raw": fill(part.raw, heard)}
        case _:
            assert_never(part)
    return part.model_copy(update=changes)


def _pace(default: Pacing, own: Pacing) -> Pace:
    values = {**default.model_dump(exclude_none=True), **own.model_dump(exclude_none=True)}
    return Pace(**values)


def _unscripted(scenario: Scenario, course: Course, why: str) -> Answer:
    """The built-in answer: whatever comes, the conversation goes on and says what is being played."""
    heard = course.prompt if len(course.prompt) <= 200 else course.prompt[:200] + "…"
    said = f"I heard: {heard}" if heard.strip() else "I heard no text."
    text = f"This is the thinklsp simulator, playing the scenario “{scenario.name}”; {why}. {said}"
    parts = (ThinkingPart(thinking="Nothing is scripted for this, so I say what I heard."), TextPart(text=text))
    return Answer(parts, "end_turn", "built-in answer", pace=_pace(scenario.pacing, Pacing()))
