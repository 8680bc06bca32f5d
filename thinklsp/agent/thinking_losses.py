"""Decides which thinking a model has to do without, and why. Pure.

Thinking goes back only to the provider, model, address and key that issued it, and not every service and gateway takes
it back. What a service refuses is told by `remedies`, what a compaction takes away by `compacting`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    Message,
    Origin,
    RedactedThinkingBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from thinklsp.core.usage import Usage
from thinklsp.providers.base import ModelRequest

# Services that ignore earlier thinking while thinking is off.
_IGNORES_WHEN_OFF = ("anthropic", "simulator")
# Services whose models begin with thinking whenever they are given a budget.
_ALWAYS_THINKS = ("anthropic", "simulator")
# It signs calls, and shows no thinking unless asked.
_SIGNS_CALLS = "google"


@dataclass(frozen=True, slots=True)
class Loss:
    """A sentence for the user about thinking of earlier answers that the model does not read.

    `reason` and `beginning`, the conversation as far as the loss concerns it, tell whether the user knows of it.
    """

    reason: str
    text: str
    beginning: Conversation


def find_losses(conversation: Conversation, request: ModelRequest, here: Origin) -> Iterator[Loss]:
    """Yield what the model cannot read in this request to `here`.

    `conversation` is the history, `request` what is sent of it after earlier refusals.
    """
    issuers = _issuers(conversation)
    foreign = {place: _why(origin, here) for place, origin in issuers.items() if origin != here}
    if foreign:
        reasons = " and ".join(dict.fromkeys(foreign.values()))
        text = f"{request.model.id} cannot read the thinking of {_answers(len(foreign))}: it came from {reasons}."
        yield Loss(f"foreign: {reasons}", text, conversation[: max(foreign) + 1])
    own = [place for place, origin in _issuers(request.conversation).items() if origin == here]
    if own and request.thinking.form == "off" and request.model.provider in _IGNORES_WHEN_OFF:
        text = f"Thinking is off, so {request.model.id} does not read the thinking of {_answers(len(own))}."
        yield Loss("off", text, conversation[: own[-1] + 1])


def find_losses_in_answer(request: ModelRequest, answer: AssistantMessage, *, unsealed: bool) -> Iterator[Loss]:
    """Yield what the model cannot read later on, told once in a session. `unsealed`: see `MessageFinished`."""
    if unsealed and thought_at(answer) is not None:
        yield Loss("unsealed", UNSEALED, request.conversation[:1])


UNSEALED = (
    "The service sent thinking without the signature that sending it back takes, so the model does not read it again. "
    "A gateway on the way may have left it out."
)
WITHOUT_BUDGET = (
    "The running tool calls began without thinking that the model accepts, so it goes on without its thinking budget "
    "until your next prompt."
)


def missing_thinking(
    request: ModelRequest, answer: AssistantMessage, usage: Usage, *, without_budget: bool
) -> Iterator[str]:
    """Yield a sentence if a budget was asked for and the model did not think. `without_budget`: see `HttpRequest`."""
    if without_budget:
        yield WITHOUT_BUDGET
        return
    last = request.conversation[-1] if request.conversation else None
    begins = last is not None and not any(isinstance(block, ToolResultBlock) for block in last.blocks)
    asked = request.thinking.form == "manual" and request.model.provider in _ALWAYS_THINKS
    thought = thought_at(answer) is not None or bool(usage.thinking_tokens)
    if begins and asked and not thought and answer.stop_reason != "refusal":
        yield f"{request.model.id} answered without thinking, although it was given a thinking budget."


def lost_answers(before: Conversation, after: Conversation) -> int:
    """Return how many answers with thinking stand in `before` and not in `after`."""
    return sum(1 for message in before if thought_at(message)) - sum(1 for message in after if thought_at(message))


def _issuers(conversation: Conversation) -> dict[int, Origin]:
    return {place: origin for place, message in enumerate(conversation) if (origin := thought_at(message))}


def thought_at(message: Message) -> Origin | None:
    """Return who issued the thinking in an answer, None if there is none."""
    for block in message.blocks:
        match block:
            case ThinkingBlock(raw=raw) | RedactedThinkingBlock(raw=raw) if raw is not None:
                return raw.origin
            case ToolUseBlock(raw=raw) if raw is not None and raw.origin.provider == _SIGNS_CALLS:
                return raw.origin
            case _:
                pass
    return None


def _why(issuer: Origin, here: Origin) -> str:
    if issuer.provider != here.provider:
        return f"another provider ({issuer.provider}, {issuer.model})"
    if issuer.model != here.model:
        return f"another model ({issuer.model})"
    return "another address of the provider" if issuer.host != here.host else "another API key"


def _answers(count: int) -> str:
    return "an earlier answer" if count == 1 else f"{count} earlier answers"
