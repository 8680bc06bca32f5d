"""The phases of a turn in which a client may cancel it, and what the client does with open requests of the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.acp.client import CANCELLED, NoAnswer
from tests.acp.talk import Talk
from tests.e2e.acting import edit_file, read_file, say
from tests.support.client.actions import Request
from tests.support.signing_rules import Conversations
from tests.support.signing_server import Event, Failure, Hold, Text, Thinking, answer, tool
from tests.support.watching import HANG_SECONDS, seen

Json = Any
Way = Literal["as the protocol says", "never", "late"]
OLD, NEW = "x = 1\n", "x = 2\n"
COMMANDS = '[commands]\nenabled = true\n[permissions]\nallow = [["sleep"]]\n'
_OVERLOADED = 529
# As much as a compaction needs.
_EARLIER_TURNS = 2


async def _until_held(talk: Talk, hold: Hold) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        await hold.reached.wait()


async def _until_command_runs(talk: Talk, hold: Hold) -> None:
    await talk.client.wait_for(lambda: any(call.status == "in_progress" for call in talk.tools("execute")))


async def _until_overloaded(talk: Talk, hold: Hold) -> None:
    await seen(lambda: talk.provider.requests[-1].status == _OVERLOADED)


async def _until_asked(talk: Talk, hold: Hold) -> None:
    """The request that the client leaves open is awaited for every phase."""


@dataclass(frozen=True)
class Phase:
    """`script` makes the model's answers. `asks`: the request of the agent that the client leaves open."""

    script: Callable[[Hold], list[Any]]
    prompt: str = "Go."
    asks: str = ""
    until: Callable[[Talk, Hold], Awaitable[None]] = _until_held


def _begin_block(block: Json, delta: Json) -> list[Event]:
    """Return the events of a block that does not end."""
    start = {"type": "content_block_start", "index": 0, "content_block": block}
    more = {"type": "content_block_delta", "index": 0, "delta": delta}
    return [Event("content_block_start", start), Event("content_block_delta", more)]


def _ask(method: str, *script: Any, prompt: str = "Go.") -> Phase:
    return Phase(lambda hold: [*script], prompt, method, _until_asked)


_THOUGHT = _begin_block(
    {"type": "thinking", "thinking": "", "signature": ""}, {"type": "thinking_delta", "thinking": "I "}
)
_CALL = _begin_block(
    {"type": "tool_use", "id": "toolu_1", "name": "edit_file", "input": {}},
    {"type": "input_json_delta", "partial_json": '{"path": "a'},
)
_EDIT = answer(Thinking(), edit_file("a.py", "1", "2"))
_SLEEP = answer(Thinking(), tool("run_command", argv=["sleep", "60"]))
_QUESTION = answer(Thinking(), tool("ask_user", question="Which one?", options=["This", "That"]))
PHASES: Mapping[str, Phase] = {
    "before the request": _ask("fs/read_text_file", prompt="Look at @a.py."),
    "connecting": Phase(lambda hold: [answer(Text("a"), before=hold)]),
    "thinking": Phase(lambda hold: [answer(*_THOUGHT, hold)]),
    "text": Phase(lambda hold: [answer(Thinking(), Text("a"), hold, Text("b"))]),
    "arguments of a tool call": Phase(lambda hold: [answer(*_CALL, hold)]),
    "after a tool call": Phase(lambda hold: [answer(Thinking(), read_file("a.py"), hold)]),
    "reading": _ask("fs/read_text_file", answer(Thinking(), read_file("a.py"))),
    "a command": Phase(lambda hold: [_SLEEP], until=_until_command_runs),
    "a permission": _ask("session/request_permission", _EDIT, say("a")),
    "elicitation": _ask("elicitation/create", _QUESTION),
    "after an edit": Phase(lambda hold: [_EDIT, answer(Thinking(), Text("a"), hold)]),
    "writing": _ask("fs/write_text_file", _EDIT, say("a")),
    "retry": Phase(
        lambda hold: [Failure(_OVERLOADED, "overloaded_error", "Overloaded", {"retry-after": "30"})],
        until=_until_overloaded,
    ),
    "compaction": Phase(lambda hold: [answer(Text("They "), hold)], "/compact"),
}
ANSWERS: Mapping[str, Json] = {
    "session/request_permission": {"outcome": {"outcome": "selected", "optionId": "allow_once"}},
    "elicitation/create": {"action": "accept", "content": {"answer": "This"}},
}
CANCELS: Mapping[str, Json] = {"session/request_permission": CANCELLED, "elicitation/create": {"action": "cancel"}}


@dataclass
class OpenRequest:
    """A request of the agent that the client answers when `release` is called, or never."""

    talk: Talk
    method: str
    way: Way
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """The next request of this method stays open, later ones are answered at once."""
        handlers = self.talk.peer.handlers
        usual = handlers[self.method]

        async def wait(params: Json) -> Json:
            handlers[self.method] = usual
            if self.way == "never":
                raise NoAnswer
            await self._released.wait()
            self.answered.set()
            table = ANSWERS if self.way == "late" else CANCELS
            return table[self.method] if self.method in table else usual(params)

        handlers[self.method] = wait

    def release(self) -> None:
        self._released.set()


@dataclass
class Reached:
    """A turn in one of the phases. `held` is the request that the client leaves open in it."""

    running: Request
    held: OpenRequest | None
    hold: Hold


async def reach(talk: Talk, name: str, way: Way) -> Reached:
    """Start a session with earlier turns, and a turn that comes to the phase."""
    phase, client, hold = PHASES[name], talk.client, Hold()
    (talk.root / "a.py").write_text(OLD)
    talk.peer.buffers.clear()
    talk.provider.conversations = Conversations()
    await talk.new_session()
    talk.provider.script[:] = [*[answer(Text("Word. " * 2_000), letters=2_000)] * _EARLIER_TURNS, *phase.script(hold)]
    for number in range(_EARLIER_TURNS):
        assert await talk.prompt(f"Hello {number}.") == "end_turn"
    asked = len(client.requests(phase.asks))
    held = OpenRequest(talk, phase.asks, way) if phase.asks else None
    running = talk.send(phase.prompt)
    if phase.asks:
        await client.wait_for(lambda: len(client.requests(phase.asks)) > asked, what=phase.asks)
    await phase.until(talk, hold)
    return Reached(running, held, hold)
