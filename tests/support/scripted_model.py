"""A model caller that plays a script, and the checker of what a service would accept as a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from thinklsp.agent.budget import ContextMeter, MeteredCaller, TurnConfig, UsageLedger
from thinklsp.agent.model_call import CallEvent, CallFinished, ModelCaller
from thinklsp.core.events import TextStreamed, ThinkingStreamed, ThinkingTick, TurnEvent, TurnFinished
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    Conversation,
    OpaqueState,
    Origin,
    RedactedThinkingBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.core.usage import Usage
from thinklsp.engine import FrontEnd, Turn
from thinklsp.providers.base import ModelRequest
from thinklsp.providers.catalogue import find_model

ORIGIN = Origin("scripted", "m", "http://localhost", "k")
SCRIPTED = replace(find_model("anthropic", "claude-opus-5-5"), provider="scripted", id="m")
SEALED = OpaqueState("{}", ORIGIN)


def text(words: str) -> TextBlock:
    return TextBlock(words, SEALED)


def thinking(words: str = "") -> ThinkingBlock:
    return ThinkingBlock(words, SEALED)


def redacted() -> RedactedThinkingBlock:
    return RedactedThinkingBlock(SEALED)


def tool(identity: str, name: str, arguments: Mapping[str, Any] | None = None, *, broken: bool = False) -> ToolUseBlock:
    """A call. `broken`: its arguments did not parse."""
    return ToolUseBlock(identity, name, None if broken else dict(arguments or {}), SEALED)


@dataclass(frozen=True)
class Answer:
    """One answer of the model. Without `stop`: `tool_use` if it calls tools, else `end_turn`."""

    blocks: tuple[ContentBlock, ...]
    stop: StopReason | None = None
    usage: Usage = field(default_factory=lambda: Usage(input_tokens=10, output_tokens=5))
    explanation: str | None = None

    @property
    def message(self) -> AssistantMessage:
        calls = any(isinstance(block, ToolUseBlock) for block in self.blocks)
        return AssistantMessage(self.blocks, self.stop or ("tool_use" if calls else "end_turn"))


def says(*blocks: ContentBlock | str, stop: StopReason | None = None, **more: Any) -> Answer:
    return Answer(tuple(text(block) if isinstance(block, str) else block for block in blocks), stop, **more)


class ScriptedModel:
    """Plays one entry of the script per call: an answer, or an error that the call ends with. After the last entry it
    says "Done." for ever. `requests` are the calls; `open` counts the streams that are running."""

    def __init__(self, script: Iterable[Answer | Exception]) -> None:
        self._script = list(script)
        self.requests: list[ModelRequest] = []
        self.open = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        check_sendable(request.conversation)
        number = len(self.requests)
        self.requests.append(request)
        entry = self._script[number] if number < len(self._script) else says("Done.")
        self.open += 1
        try:
            await asyncio.sleep(0)
            if isinstance(entry, Exception):
                raise entry
            for block in entry.blocks:
                match block:
                    case TextBlock():
                        yield TextStreamed(block.text)
                    case ThinkingBlock():
                        yield ThinkingTick(3)
                        yield ThinkingStreamed(block.text)
                    case _:
                        pass
                await asyncio.sleep(0)
            yield CallFinished(entry.message, entry.usage, entry.explanation)
        finally:
            self.open -= 1


def metered(
    caller: ModelCaller,
    config: TurnConfig,
    ask: Callable[[str], Any],
    *,
    usage: UsageLedger | None = None,
    meter: ContextMeter | None = None,
) -> MeteredCaller:
    usage, meter = usage or UsageLedger(), meter or ContextMeter()
    return MeteredCaller(caller, config.limits, usage=usage, meter=meter, ask=ask)


def check_sendable(conversation: Conversation) -> None:
    """What every service demands. Raises AssertionError with what is wrong."""
    assert is_sendable(conversation), problem_of(conversation)


def is_sendable(conversation: Conversation) -> bool:
    return problem_of(conversation) is None


def problem_of(conversation: Conversation) -> str | None:
    if not conversation or not isinstance(conversation[0], UserMessage):
        return "it must begin with the user"
    last = conversation[-1]
    if isinstance(last, AssistantMessage) and last.stop_reason != "pause_turn":
        return "it must end with the user"
    waiting: list[str] = []
    seen: set[str] = set()
    for number, message in enumerate(conversation):
        place = f"message {number}"
        if isinstance(message, AssistantMessage):
            if waiting:
                return f"{place}: the calls {waiting} have no results"
            # Blank texts and thinking at the end are mended by the encoders.
            if not message.blocks:
                return f"{place}: an empty message"
            waiting = [call.id for call in message.tool_uses]
            if len({*waiting} | seen) != len(waiting) + len(seen):
                return f"{place}: the id of a call is used twice"
            seen |= {*waiting}
        else:
            if (fault := _fault_of_user(message)) is not None:
                return f"{place}: {fault}"
            results = [block.tool_use_id for block in message.blocks if isinstance(block, ToolResultBlock)]
            if results != waiting:
                return f"{place}: results {results} for the calls {waiting}"
            waiting = []
    return f"the calls {waiting} have no results" if waiting else None


def _fault_of_user(message: UserMessage) -> str | None:
    kinds = [block.kind for block in message.blocks]
    if not kinds:
        return "an empty message"
    # Images of results are stored before the results; the encoders send them after all results.
    kinds = kinds[len(message.result_images) :]
    if kinds != sorted(kinds, key=lambda kind: kind != "tool_result"):
        return "results must come before everything else"
    if any(isinstance(block, TextBlock) and not block.text.strip() for block in message.blocks):
        return "an empty text"
    return None


async def give_no_answer(*_: Any) -> Any:
    return None


async def stop_at_budget(_question: str) -> Any:
    return "stop"


def connect_to(turn: Turn, connect: Callable[[Any], Awaitable[ModelCaller]]) -> None:
    """The turn will call the models of this connection."""
    turn.connect = connect


async def run_to_end(
    turn: Turn,
    show: Callable[[TurnEvent], None] = lambda _: None,
    *,
    ask: Callable[..., Any] = give_no_answer,
) -> TurnFinished:
    with turn:
        return await turn.run(FrontEnd(show, ask))
