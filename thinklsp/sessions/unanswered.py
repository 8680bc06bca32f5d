"""Prompts without an answer, and turns that stopped early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

_MAX_QUOTED_CHARS = 4_000
MAX_PARTIAL_CHARS = 100_000

PromptOutcome = Literal[
    "queued",
    "running",
    "interrupted",
    "cancelled",
    "error",
    "refusal",
    "max_tokens",
    "max_steps",
    "budget",
    "context_window",
]
_OUTCOME_TEXTS: Mapping[PromptOutcome, str] = {
    "queued": "it waits for the running turn",
    "running": "thinklsp stopped during the turn",
    "interrupted": "thinklsp stopped during the turn",
    "cancelled": "the user stopped the turn",
    "error": "the turn failed",
    "refusal": "the model declined",
    "max_tokens": "the output token limit was reached",
    "max_steps": "the step limit was reached",
    "budget": "the budget was reached",
    "context_window": "the conversation was too long",
}

# The outcomes of prompts that are quoted to the model. A declined prompt could make the model decline again.
REPORTED_OUTCOMES = frozenset(_OUTCOME_TEXTS) - {"queued", "running", "refusal"}


@dataclass(frozen=True, slots=True)
class UnansweredPrompt:
    """A user prompt that no step has answered.

    `after_step` is the number of steps before the prompt. `reason` is the error message if the turn failed. `told` is
    true if the model has answered a later message that quotes the prompt. The outcome `running` means that the turn has
    not ended, or that thinklsp stopped during the turn. The outcome `queued` means that the prompt waits for the
    session's running turn. `turn_id` is the id of the prompt's turn. `partial_text` is the part of the answer that had
    arrived; the model never reads it again. `text` is empty if steps had answered the prompt before the turn stopped.
    `references` contains the places whose text was sent with the prompt, such as `src/app.py:3-9`.
    """

    text: str
    after_step: int
    outcome: PromptOutcome = "running"
    reason: str = ""
    told: bool = False
    turn_id: str = ""
    partial_text: str = ""
    references: tuple[str, ...] = ()

    @property
    def explanation(self) -> str:
        """The reason why the prompt has no answer, as part of a sentence."""
        return _OUTCOME_TEXTS[self.outcome]

    def build_note(self) -> str:
        """Return a note that quotes the prompt to the model.

        A long prompt is truncated, because its length may have caused the failure.
        """
        text = self.text if len(self.text) <= _MAX_QUOTED_CHARS else f"{self.text[:_MAX_QUOTED_CHARS]} … (cut)"
        return f"<note>An earlier user prompt has no answer, because {self.explanation}. The prompt was:\n{text}</note>"
