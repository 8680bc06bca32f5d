"""What a conversation needs since the service refused its earlier thinking.

Two things help. Where thinking is bound to everything before it and that has changed, the service is asked to leave out
what no longer fits. Otherwise the thinking so far stays away whole: a gap in the middle would be refused just as well.
Either is tried once and then kept for the conversation; a refusal after both is the end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from thinklsp.core.messages import AssistantMessage, Conversation, RedactedThinkingBlock, ThinkingBlock
from thinklsp.providers.base import ModelRequest
from thinklsp.providers.service_errors import ThinkingRejected

_REMEMBERED = 16
DROPPING = (
    "Something before the model's earlier thinking has changed, so the service leaves out the thinking that no longer "
    "fits. The conversation goes on."
)
BARE = "The service no longer takes the model's earlier thinking; the conversation goes on without it."


@dataclass(frozen=True, slots=True)
class _Remedy:
    """For conversations that begin so. `drops`: the service leaves out what does not fit; else we leave out all."""

    beginning: Conversation
    drops: bool


class Remedies:
    """Owned by one caller; the newest sixteen conversations are remembered."""

    def __init__(self) -> None:
        self._known: deque[_Remedy] = deque(maxlen=_REMEMBERED)

    def applied(self, request: ModelRequest) -> ModelRequest:
        """The request as it can be sent, as far as that is known."""
        for remedy in self._known:
            if request.conversation[: len(remedy.beginning)] == remedy.beginning:
                return _treated(request, remedy)
        return request

    def after(
        self, error: ThinkingRejected, whole: ModelRequest, sent: ModelRequest
    ) -> tuple[ModelRequest, str] | None:
        """What to send instead of `sent`, and the sentence for the user. None when there is nothing left to try."""
        if _treated(whole, _Remedy(whole.conversation, drops=False)) == whole:
            # There is no thinking that could be left out.
            return None
        untouched = sent.conversation == whole.conversation and not sent.thinking.drop_mismatched
        binds = error.bound and untouched and sent.thinking.form == "adaptive"
        remedy = _Remedy(whole.conversation, drops=binds)
        treated = _treated(whole, remedy)
        if treated == sent:
            return None
        self._known.appendleft(remedy)
        return treated, DROPPING if binds else BARE


def _treated(request: ModelRequest, remedy: _Remedy) -> ModelRequest:
    if remedy.drops:
        return replace(request, thinking=replace(request.thinking, drop_mismatched=True))
    count = len(remedy.beginning)
    conversation: Conversation = tuple(
        replace(message, blocks=tuple(block for block in message.blocks if not _is_thinking(block)))
        if isinstance(message, AssistantMessage) and index < count
        else message
        for index, message in enumerate(request.conversation)
    )
    return replace(request, conversation=conversation)


def _is_thinking(block: object) -> bool:
    return isinstance(block, ThinkingBlock | RedactedThinkingBlock)
