"""Whether reasoning comes back as each server demands it: DeepSeek's rule, OpenRouter's seals, nothing elsewhere.

DeepSeek's reasoning is plain text without a seal, so what was issued is remembered, bounded; what has been forgotten
is not held against anybody who brings no text.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from thinklsp.simulator.chat.details import Owner, check_details
from thinklsp.simulator.chat.errors import invalid
from thinklsp.simulator.chat.flavours import Flavour
from thinklsp.simulator.chat.messages import Conversation, Message, calls_of
from thinklsp.simulator.chat.options import Options
from thinklsp.simulator.seals import Sealer, text_digest

_REMEMBERED = 4096
_MUST_COME_BACK = "The reasoning_content in the thinking mode must be passed back to the API"


@dataclass(frozen=True, slots=True)
class _Issued:
    owner: Owner
    digest: str


class Memory:
    """Reasoning that went out: by the ids of the tool calls behind it, and as texts of a model."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, _Issued] = OrderedDict()
        self._texts: OrderedDict[tuple[str, str], None] = OrderedDict()

    def clear(self) -> None:
        """Forget conversations; texts that were issued stay known, as signed blocks do elsewhere."""
        self._calls.clear()

    def remember(self, owner: Owner, reasoning: str, calls: Iterable[str]) -> None:
        digest = text_digest(reasoning)
        self._texts[owner.model, digest] = None
        for call in calls:
            self._calls[call] = _Issued(owner, digest)
        while len(self._texts) > _REMEMBERED:
            self._texts.popitem(last=False)
        while len(self._calls) > 4 * _REMEMBERED:
            self._calls.popitem(last=False)

    def knows(self, owner: Owner, reasoning: str) -> bool:
        return (owner.model, text_digest(reasoning)) in self._texts

    def behind(self, owner: Owner, calls: Iterable[str]) -> str | None:
        """Digest of the reasoning that this owner got before one of these calls; None where it got none of them."""
        issued = (self._calls.get(call) for call in calls)
        return next((found.digest for found in issued if found is not None and found.owner == owner), None)


def check_replay(
    conversation: Conversation, flavour: Flavour, options: Options, owner: Owner, sealer: Sealer, memory: Memory
) -> None:
    """Raises Refused when reasoning does not come back as it must."""
    for number, message in conversation.assistants():
        if flavour.details:
            check_details(message.get("reasoning_details"), owner, sealer, number)
        elif flavour.name == "deepseek":
            # Without tools and with thinking off the field is not looked for; in earlier turns it may be missing.
            demanded = options.thinks and bool(options.tools) and number >= conversation.loop_start
            _check_text(message, owner, memory, demanded=demanded and bool(message.get("tool_calls")))
        elif flavour.name == "llama.cpp" and options.thinks and number == len(conversation.messages) - 1:
            invalid("Assistant response prefill is incompatible with enable_thinking.")


def _check_text(message: Message, owner: Owner, memory: Memory, *, demanded: bool) -> None:
    text = message.get("reasoning_content")
    if text is None:
        if demanded:
            invalid(_MUST_COME_BACK)
        return
    if not isinstance(text, str):
        invalid(
            "Failed to deserialize the JSON body into the target type: reasoning_content: invalid type, expected a "
            "string"
        )
    if text and not memory.knows(owner, text):
        invalid(_MUST_COME_BACK)
    issued = memory.behind(owner, calls_of(message))
    if demanded and issued is not None and issued != text_digest(text):
        invalid(_MUST_COME_BACK)
