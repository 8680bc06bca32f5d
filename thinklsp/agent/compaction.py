"""What of a conversation is kept and where it is cut. Pure: the summary itself is the business of `summary`.

A cut stands only where a turn of the user begins, so no call is parted from its result. The last turns are kept word by
word as far as they fit. The running turn is kept too, unless it is what outgrows the window, or its steps hold thinking
that is bound to what stands before it: services take a tool loop back only with all its thinking, so such a loop
cannot go on behind a shortened past. Its steps are then summarised as well, and the task stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from thinklsp.agent.user_turns import shortened_note, split_turns, words_of
from thinklsp.core.bare import bare_message
from thinklsp.core.messages import AssistantMessage, Conversation, Message, TextBlock, UserMessage, shortened_by
from thinklsp.core.said import THINKING_ONLY
from thinklsp.providers.catalog import lookup
from thinklsp.providers.model_info import ModelInfo

Cause = Literal["threshold", "overflow", "command"]
Tokens = Callable[[Conversation], int]

# What is shortened to nearly the limit would have to be shortened again at once.
_COMFORT = 0.9
# A compaction that saves less is not worth what it loses.
_LEAST_GAIN = 0.1
_GO_ON = (
    "<note>Your steps so far were shortened; the summary above says what is done. Go on from there. The edits that you "
    "made in this turn are still in place.</note>"
)


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens. `limit`: what the next request may come to. `tail`: what finished turns may take of it. `fixed`: what
    system prompt, tools and the summary take. `present`: the request as it would be now."""

    limit: int
    tail: int
    fixed: int
    present: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`earlier` is to be summarised, a former summary first; `kept` follows the summary as it stands here.

    `running`: a turn goes on behind it. `latest`: that turn's last step, where `earlier` holds it.
    """

    earlier: Conversation
    kept: Conversation
    running: bool
    latest: Conversation = ()

    def shortened(self, summary: str) -> Conversation:
        """Begins with the summary and ends with the user: with the running turn's own last message, else a remark."""
        conversation: Conversation = (UserMessage.of(summary), *self.kept)
        if self.running:
            return conversation
        before = len(self.earlier) + len(self.kept)
        return (*conversation, UserMessage.of(shortened_note(before, len(conversation) + 1)))


def make_plan(
    conversation: Conversation, *, model: ModelInfo, running: bool, room: Room, cause: Cause, tokens: Tokens
) -> Plan | None:
    """None where there is nothing to shorten, or shortening would not help. `running`: the last turn has not ended."""
    parts = split_turns(conversation)
    if running and not parts.turns:
        return None
    finished = parts.turns[:-1] if running else parts.turns
    current = parts.turns[-1] if running else ()
    bound = binds_thinking(model)
    plans = []
    if not _must_fold(current, bound=bound):
        plans.append(_cut(conversation, finished, current, model, room, tokens))
    if any(isinstance(message, AssistantMessage) for message in current):
        plans.append(_folded(conversation, current))
    plans = [plan for plan in plans if any(isinstance(message, AssistantMessage) for message in plan.earlier)]
    if cause == "command":
        return plans[0] if plans else None
    sizes = [(room.fixed + tokens(plan.kept), plan) for plan in plans]
    helpful = [(size, plan) for size, plan in sizes if size <= room.present * (1 - _LEAST_GAIN)]
    fitting = (plan for size, plan in helpful if size <= room.limit * _COMFORT)
    return next(fitting, None) or min(helpful, key=lambda pair: pair[0], default=(0, None))[1]


def binds_thinking(model: ModelInfo) -> bool:
    """Whether thinking stops being valid, or may do so, when what stands before it is shortened.

    An unlisted model of OpenAI may be one of the newer ones, which then leave thinking out without a word. A broker's
    model, `vendor/name`, may be anybody's.
    """
    unlisted = not model.known and (model.provider == "openai" or "/" in model.id)
    return model.prefix_bound or unlisted or (model.provider == "openai-compatible" and "/" in model.id)


def _must_fold(current: Conversation, *, bound: bool) -> bool:
    """A running turn that cannot stay as it is. A paused answer at its end would go back without what it was bound to,
    and could not be the last message."""
    return any(isinstance(message, AssistantMessage) for message in current) and (
        bound or isinstance(current[-1], AssistantMessage)
    )


def _cut(
    conversation: Conversation,
    finished: Sequence[Conversation],
    current: Conversation,
    model: ModelInfo,
    room: Room,
    tokens: Tokens,
) -> Plan:
    """Keeps the running turn and as many finished ones before it as there is room for."""
    current = _without_bound(current, model)
    left = min(room.tail, round(room.limit * _COMFORT) - room.fixed - tokens(current))
    tail: Conversation = ()
    count = len(current)
    for turn in reversed(finished):
        kept = _without_bound(turn, model)
        left -= tokens(kept)
        if left < 0:
            break
        tail = (*kept, *tail)
        count += len(turn)
    return Plan(conversation[: len(conversation) - count], (*tail, *current), bool(current))


def _folded(conversation: Conversation, current: Conversation) -> Plan:
    """Keeps of the running turn only what the user asked for."""
    answers = [index for index, message in enumerate(current) if isinstance(message, AssistantMessage)]
    task = UserMessage((*words_of(current[0]), TextBlock(_GO_ON)))
    return Plan(conversation, (task,), running=True, latest=current[answers[-1] :])


def _without_bound(messages: Conversation, model: ModelInfo) -> Conversation:
    """Thinking stays only where this very model has made it and takes it back behind another past."""
    return tuple(_kept(message, model) for message in messages)


def _kept(message: Message, model: ModelInfo) -> Message:
    if isinstance(message, UserMessage):
        return message
    # What a service has noted of the past would hide our summary of it.
    hides = shortened_by(message) is not None
    return message if _is_own(message, model) and not hides and not binds_thinking(model) else _bare(message)


def free_from_past(message: Message) -> Message:
    """Return the message as its own model accepts it behind another past: bare if its thinking is bound to the past."""
    if isinstance(message, UserMessage):
        return message
    models = {(block.raw.origin.provider, block.raw.origin.model) for block in message.blocks if block.raw is not None}
    is_bound = any(binds_thinking(lookup(*model)) for model in models)
    return _bare(message) if is_bound or shortened_by(message) is not None else message


def _bare(message: AssistantMessage) -> AssistantMessage:
    bare = bare_message(message)
    return bare if bare.blocks else replace(bare, blocks=(TextBlock(THINKING_ONLY),))


def _is_own(message: AssistantMessage, model: ModelInfo) -> bool:
    origins = (block.raw.origin for block in message.blocks if block.raw is not None)
    return all((origin.provider, origin.model) == (model.provider, model.id) for origin in origins)
