"""The script, which selects the scenario step that answers a request and fills in its placeholders.

The conversation alone determines the step. Attempts are counted only for faults that occur a limited number of times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from thinklsp.offline.scenario import (
    PlaceholderValues,
    Scenario,
    ScenarioPart,
    ScenarioStep,
    ScriptedFault,
    TextPart,
    ThinkingPart,
    ToolPart,
    replace_placeholders,
)

# The keys in scenario blocks whose values may contain placeholders.
_TEMPLATE_KEYS = {"thought", "text", "input", "input_json", "raw"}
_TAGGED_NOTE = re.compile(r"\s*<([A-Za-z][\w-]*)[^>]*>.*</\1>\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ConversationState:
    """The state of a conversation. `prompts` contains the user's prompts, oldest first.

    The current turn begins with the message at index `start` and has `answers` messages from the model. `results`
    contains the texts of the tool results at the end of the conversation.
    """

    prompts: tuple[str, ...]
    start: int
    answers: int
    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NeutralRequest:
    """A request in a form that is the same for all services. `digest` is a hash of the conversation."""

    tools: frozenset[str]
    conversation: ConversationState
    digest: str

    @property
    def prompt(self) -> str:
        return self.conversation.prompts[-1] if self.conversation.prompts else ""


class Script:
    """A scenario and the number of attempts at steps whose fault occurs a limited number of times."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._attempts: Counter[tuple[str, str]] = Counter()

    def answer(self, request: NeutralRequest) -> ScenarioStep:
        """Return the step that answers a request, and count the attempt if the step's fault has a limit.

        The placeholders of the step are filled in, and `label` names the step.
        """
        number, count = _find_turn(self.scenario, request), request.conversation.answers
        if number is None:
            return _build_builtin_answer(self.scenario, request, "no turn matches this prompt")
        steps = self.scenario.turn[number].step
        if count >= len(steps):
            return _build_builtin_answer(self.scenario, request, f"turn {number + 1} has no step {count + 1}")
        step, label = steps[count], f"turn {number + 1}, step {count + 1}"
        values = PlaceholderValues(request.prompt, request.conversation.results)
        calls = any(isinstance(part, ToolPart) for part in step.parts)
        return step.model_copy(
            update={
                "parts": tuple(_fill_part(part, values) for part in step.parts),
                "stop_reason": step.stop_reason or ("tool_use" if calls else "end_turn"),
                "pacing": self.scenario.pacing.model_copy(update=step.pacing.model_dump(exclude_unset=True)),
                "fault": self._find_fault(step, request, label),
                "label": label,
            }
        )

    def _find_fault(self, step: ScenarioStep, request: NeutralRequest, label: str) -> ScriptedFault | None:
        if step.fault is None or step.fault.times is None:
            return step.fault
        self._attempts[request.digest, label] += 1
        return step.fault if self._attempts[request.digest, label] <= step.fault.times else None


@dataclass(frozen=True, slots=True)
class DialoguePart:
    """A part of a conversation. `message` is the index of the message that contains the part.

    `text` is the user's text, and `result` is the text of a tool result. They are None for all other parts.
    """

    message: int
    by_model: bool
    text: str | None = None
    result: str | None = None


def read_conversation_state(pieces: Iterable[DialoguePart]) -> ConversationState:
    """Return the state of a conversation. `pieces` must not contain system messages."""
    prompts: list[str] = []
    start = 0
    answers: set[int] = set()
    results: tuple[str, ...] = ()
    for by_model, run in groupby(pieces, key=lambda piece: piece.by_model):
        parts = list(run)
        results = tuple(piece.result for piece in parts if piece.result is not None)
        if by_model:
            answers.update(piece.message for piece in parts)
        elif (prompt := _join_prompt(parts)) is not None:
            prompts.append(prompt)
            start, answers = parts[-1].message + 1, set()
    return ConversationState(tuple(prompts), start, len(answers), results)


def _join_prompt(parts: Sequence[DialoguePart]) -> str | None:
    """Join the texts that a user sent between two answers, or return None if there are no texts.

    Texts that accompany others or tool results are ignored if they consist of a tag, such as `<note>…</note>`.
    """
    texts = [piece.text for piece in parts if piece.text is not None]
    words = [text for text in texts if not _TAGGED_NOTE.fullmatch(text)]
    if not words and any(piece.result is not None for piece in parts):
        return None
    return "\n\n".join(words or texts)


def _find_turn(scenario: Scenario, request: NeutralRequest) -> int | None:
    """Return the index of the turn that answers the last prompt, or None.

    The first turn with a matching `when` is used. If no `when` matches, the turns without `when` are used in order.
    """
    turns = [(number, turn.when) for number, turn in enumerate(scenario.turn) if turn.when is not None]
    matches = [
        next((number for number, when in turns if when.matches(prompt, request.tools)), None)
        for prompt in request.conversation.prompts or ("",)
    ]
    if matches[-1] is not None:
        return matches[-1]
    plain = [number for number, turn in enumerate(scenario.turn) if turn.when is None]
    unmatched = matches[:-1].count(None)
    return plain[unmatched] if unmatched < len(plain) else None


def _fill_part(part: ScenarioPart, values: PlaceholderValues) -> ScenarioPart:
    changes = replace_placeholders(part.model_dump(include=_TEMPLATE_KEYS), values.resolve)
    if changes.get("text") == "":
        # Services never send empty text blocks. A placeholder can result in empty text, which is therefore replaced.
        changes["text"] = "(nothing)"
    return part.model_copy(update=changes)


def _build_builtin_answer(scenario: Scenario, request: NeutralRequest, reason: str) -> ScenarioStep:
    """Return the built-in answer to a prompt for which the scenario has no answer."""
    prompt = request.prompt if len(request.prompt) <= 200 else request.prompt[:200] + "…"
    echo = f"Your prompt was: {prompt}" if prompt.strip() else "Your prompt contained no text."
    text = f"This is the offline model of thinklsp, playing the scenario “{scenario.name}”; {reason}. {echo}"
    # Do not validate the text, because the prompt may contain a lone surrogate.
    text_part = TextPart.model_construct(text=text)
    parts = (ThinkingPart(thinking="The scenario has no answer for this prompt, so I repeat it."), text_part)
    changes = {"parts": parts, "stop_reason": "end_turn", "pacing": scenario.pacing, "label": "built-in answer"}
    return ScenarioStep().model_copy(update=changes)
