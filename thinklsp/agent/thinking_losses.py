"""Detection of thinking in earlier answers that the model cannot read.

Thinking can be sent back only to the provider, model, address and key that produced it. The functions in this module
are pure. They find such thinking before a request and explain the loss to the user.
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

# Providers that ignore earlier thinking while thinking is off.
_IGNORING_PROVIDERS = ("anthropic", "simulator")
# Providers whose models always think at the start of a turn if the request contains a thinking budget.
_ALWAYS_THINKING_PROVIDERS = ("anthropic", "simulator")
# Google's signed tool calls contain encrypted thinking, even if no thinking is visible in the answer.
_SIGNING_PROVIDER = "google"


@dataclass(frozen=True, slots=True)
class ThinkingLoss:
    """A notice for the user that the model cannot read the thinking in earlier answers.

    `reason` and `conversation_prefix` identify the loss, so that the user sees the notice only once.
    `conversation_prefix` ends with the last answer that contains the thinking.
    """

    reason: str
    text: str
    conversation_prefix: Conversation


def find_losses(conversation: Conversation, request: ModelRequest, target: Origin) -> Iterator[ThinkingLoss]:
    """Yield the losses of earlier thinking in a request.

    `conversation` is the full history. `request` is the request after all fallbacks. The model can read only thinking
    whose origin is `target`.
    """
    issuers = _find_issuers(conversation)
    foreign = {place: _describe_issuer(origin, target) for place, origin in issuers.items() if origin != target}
    if foreign:
        reasons = " and ".join(dict.fromkeys(foreign.values()))
        answers = _format_answer_count(len(foreign))
        text = f"{request.model.id} cannot read the thinking in {answers}, because it came from {reasons}."
        yield ThinkingLoss(f"foreign: {reasons}", text, conversation[: max(foreign) + 1])
    own = [place for place, origin in _find_issuers(request.conversation).items() if origin == target]
    if own and request.thinking.form == "off" and request.model.provider in _IGNORING_PROVIDERS:
        text = f"Thinking is off, so {request.model.id} does not read the thinking in {_format_answer_count(len(own))}."
        yield ThinkingLoss("off", text, conversation[: own[-1] + 1])


def find_losses_in_answer(
    request: ModelRequest, answer: AssistantMessage, *, is_thinking_unsigned: bool
) -> Iterator[ThinkingLoss]:
    """Yield a notice if the answer's thinking cannot be sent back, because the provider did not sign it.

    The user sees the notice once per session.
    """
    if is_thinking_unsigned and find_thinking_origin(answer) is not None:
        yield ThinkingLoss("unsealed", UNSIGNED_NOTICE, request.conversation[:1])


UNSIGNED_NOTICE = (
    "The provider sent thinking without a signature, so the model cannot read that thinking later. A gateway may have "
    "removed the signature."
)
BUDGET_OMITTED_NOTICE = (
    "The running tool calls started without thinking that the model accepts, so the model continues without its "
    "thinking budget until your next prompt."
)


def explain_missing_thinking(
    request: ModelRequest, answer: AssistantMessage, usage: Usage, *, without_budget: bool
) -> Iterator[str]:
    """Yield a notice if the request had a thinking budget but the answer contains no thinking.

    `without_budget` is true if thinklsp had to omit the budget.
    """
    if without_budget:
        yield BUDGET_OMITTED_NOTICE
        return
    last = request.conversation[-1] if request.conversation else None
    starts_turn = last is not None and not any(isinstance(block, ToolResultBlock) for block in last.blocks)
    has_budget = request.thinking.form == "manual" and request.model.provider in _ALWAYS_THINKING_PROVIDERS
    has_thinking = find_thinking_origin(answer) is not None or bool(usage.thinking_tokens)
    if starts_turn and has_budget and not has_thinking and answer.stop_reason != "refusal":
        yield f"{request.model.id} answered without thinking, although it had a thinking budget."


def count_lost_answers(before: Conversation, after: Conversation) -> int:
    """Return the number of answers whose thinking is in `before` but not in `after`."""
    return sum(1 for message in before if find_thinking_origin(message)) - sum(
        1 for message in after if find_thinking_origin(message)
    )


def _find_issuers(conversation: Conversation) -> dict[int, Origin]:
    return {place: origin for place, message in enumerate(conversation) if (origin := find_thinking_origin(message))}


def find_thinking_origin(message: Message) -> Origin | None:
    """Return the origin of a message's thinking, or None if the message contains no thinking."""
    for block in message.blocks:
        match block:
            case ThinkingBlock(raw=raw) | RedactedThinkingBlock(raw=raw) if raw is not None:
                return raw.origin
            case ToolUseBlock(raw=raw) if raw is not None and raw.origin.provider == _SIGNING_PROVIDER:
                return raw.origin
            case _:
                pass
    return None


def _describe_issuer(issuer: Origin, target: Origin) -> str:
    if issuer.provider != target.provider:
        return f"another provider ({issuer.provider}, {issuer.model})"
    if issuer.model != target.model:
        return f"another model ({issuer.model})"
    return "another address of the provider" if issuer.host != target.host else "another API key"


def _format_answer_count(count: int) -> str:
    return "an earlier answer" if count == 1 else f"{count} earlier answers"
