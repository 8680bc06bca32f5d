"""Random courses of sessions: what the model says, what breaks, when the user stops or changes provider, model, host,
key, mode and effort.

They run through the engine and real HTTP against strict simulators, which answer 400 to whatever the services would
refuse. The only thing that is not real is the waiting between tries.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from operator import methodcaller
from random import Random
from typing import Any, Literal, get_args

from tests.stand_ins.dialect import ReceivedRequest, WholeReply
from tests.stand_ins.http_server import RecordedRequest, Simulator
from tests.support.scripted_model import check_sendable, connect_to, metered, run_to_end, stop_at_budget
from tests.support.services import WAYS, sealed_in
from thinklsp.agent.compaction import compact_now
from thinklsp.agent.model_call import HttpModelCaller
from thinklsp.agent.request_fallbacks import DROP_NOTICE, STRIP_NOTICE
from thinklsp.agent.summary import is_summary_message
from thinklsp.core.choices import EFFORT_SETTINGS, PlannedThinkingMode
from thinklsp.core.errors import ProviderError, TurnRefused
from thinklsp.core.events import (
    ContextCompacted,
    Notice,
    RetryScheduled,
    StepCommitted,
    ToolFinished,
    TurnEvent,
    TurnFinished,
)
from thinklsp.core.messages import (
    AssistantMessage,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    find_compaction_origin,
)
from thinklsp.engine import ChatRequest, Engine, Turn
from thinklsp.engine.connections import build_endpoint, select_adapter
from thinklsp.http.retry import RetryPolicy
from thinklsp.offline.scenario import Scenario
from thinklsp.providers.catalogue import find_model, list_models
from thinklsp.sessions.sqlite_store import MemoryStore
from thinklsp.settings.model import Provider
from thinklsp.settings.sources import EditorSettings
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

_DOCUMENT = "untitled:a.py"
_MODES = get_args(PlannedThinkingMode)
MODELS: Mapping[Provider, Sequence[str]] = {
    "anthropic": list_models("anthropic"),
    "openai": list_models("openai"),
    # It makes images and takes no tools.
    "google": tuple(name for name in list_models("google") if name != "gemini-2.5-flash-image"),
    "openai-compatible": (
        *("deepseek-reasoner", "anthropic/claude-opus-5.5", "qwen3-8b", "gpt-oss:20b", "lmstudio-qwen"),
        *("strict-1", "plain-1", "anything-else"),
    ),
}
_COMPACTING = tuple(name for name in list_models("openai") if find_model("openai", name).compacts)
_LONG = re.compile(r"([A-Za-z0-9+/=_-]{24})[A-Za-z0-9+/=_-]{32,}([A-Za-z0-9+/=_-]{4})")
# What a compatible server takes can only be learned by asking: once, after which the turn goes on.
_LEARNED = ("Extra inputs", "does not support thinking", "unknown variant", "invalid reasoning value")
_NUDGED = "held only thinking"
Json = dict[str, Any]


@dataclass(frozen=True)
class PlannedTurn:
    """`place`: which of the two sets of hosts and keys is used. `stop_after`: cycles of the event loop, or events of
    the turn, after which the user stops it. `room`: tokens of the window beside system prompt and tools, which the turn
    believes in. `compact`: the user shortens the conversation after it."""

    name: str
    place: int
    choices: Mapping[str, Any]
    mode: Literal["agent", "ask", "plan"]
    steps: Sequence[Json]
    stop_after: tuple[Literal["cycles", "events"], int] | None
    room: int | None = None
    compact: bool = False


@dataclass
class Outcome:
    """`refused`: requests that a simulator refused by itself. `sealed`: where opaque state was sent first."""

    turns: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    sealed: dict[str, tuple[int, str]] = field(default_factory=dict)
    is_attempt: bool = False

    def take(self, request: RecordedRequest, simulator: Simulator) -> None:
        if request.method == "GET":
            # A list of models, which holds nothing.
            return
        self.seen[f"answered {request.status}"] += 1
        host = (id(simulator), "google" if "/models/" in request.path else request.path)
        for text in sealed_in(request.body):
            if self.sealed.setdefault(text, host) != host:
                self.refused.append("opaque state went to a host that did not issue it")
        # After a refusal that nothing explains, the request is sent once without the earlier thinking.
        is_attempt, self.is_attempt = self.is_attempt, request.played is not None and request.status in (400, 422)
        if request.played is None and not is_attempt:
            # Asked again, since the record holds no answers; a refusal changes nothing.
            path, _, query = request.path.partition("?")
            asked = ReceivedRequest(request.method, path, query, request.headers, request.raw)
            again = simulator.find_dialect(asked).build_reply(asked)
            said = again.body.decode() if isinstance(again, WholeReply) else "accepted at the second try"
            if not any(words in said for words in _LEARNED):
                self.refused.append(f"{said}\n{_shape(request.body)}")


def _shape(body: Json) -> str:
    """A request in short, for a person who looks for what is wrong with it."""
    left_out = ("tools", "system", "systemInstruction", "messages", "input", "contents")
    lines = [json.dumps({key: value for key, value in body.items() if key not in left_out})]
    messages = body.get("messages") or body.get("input") or body.get("contents") or []
    for number, message in enumerate(messages):
        shown = _LONG.sub(r"\1…\2", json.dumps(message, ensure_ascii=False))
        lines.append(f"{number}: {shown}")
    return "\n".join(lines)


async def play_histories(
    seed: int, turns: int, *, per_batch: int = 100, compacting: bool = False, by_service: bool = False
) -> Outcome:
    """`turns` turns in sessions of one to nine. Raises AssertionError, naming the seed of the history, at a fault.

    `compacting`: conversations are shortened on the way, in small windows and by the user's word. `by_service`: the
    service is left to do it, where it can."""
    outcome = Outcome()
    while outcome.turns < turns:
        number, planned = 0, []
        while sum(map(len, planned)) < min(per_batch, turns - outcome.turns):
            rng = Random(f"{seed}.{outcome.turns}.{number}")
            history = _history(rng, number)
            if compacting or by_service:
                history = [_shortened(rng, turn) for turn in history]
            if by_service:
                history = [_left_to_the_service(rng, turn) for turn in history]
            planned.append(history)
            number += 1
        where = f"seed {seed}, batch from turn {outcome.turns}"
        async with _stage(planned, outcome, Random(seed + outcome.turns)) as places:
            for history in planned:
                await _play(history, places, outcome, where)
    return outcome


@dataclass
class _Place:
    """A set of hosts and keys: one engine, its own simulator, one caller per provider that does not wait."""

    engine: Engine
    rng: Random
    callers: dict[Provider, HttpModelCaller] = field(default_factory=dict)

    async def caller(self, provider: Provider, _known: object) -> HttpModelCaller:
        if provider not in self.callers:
            access = await self.engine.connections.resolve_access(provider)
            assert access is not None
            adapter, endpoint, policy = select_adapter(provider, access), build_endpoint(access), RetryPolicy()
            self.callers[provider] = HttpModelCaller(
                adapter, endpoint, self.engine.transport, policy=policy, rng=self.rng.random, sleep=_at_once
            )
        return self.callers[provider]


@asynccontextmanager
async def _stage(
    histories: Sequence[Sequence[PlannedTurn]], outcome: Outcome, rng: Random
) -> AsyncIterator[list[_Place]]:
    turns: list[Json] = [{"when": f"ask {turn.name};", "step": turn.steps} for history in histories for turn in history]
    turns.append({"when": _NUDGED, "step": [_step(rng, "tools"), _step(rng, rng.choice(("text", "silence")))]})
    scenario = Scenario.model_validate({"turn": turns, "pacing": {"chunk_chars": 40}})
    store = MemoryStore()
    async with AsyncExitStack() as stack:
        places = []
        for number in range(2):
            simulator = Simulator(scenario)
            simulator.on_finished = partial(outcome.take, simulator=simulator)
            await stack.enter_async_context(simulator)
            engine = Engine(_environment(simulator.base_url, number), store)
            stack.push_async_callback(engine.aclose)
            places.append(_Place(engine, rng))
        yield places


def _environment(host: str, number: int) -> dict[str, str]:
    """No file of the user is read. Each place has keys of its own."""
    every = {name: value for way in WAYS.values() for name, value in way.environment(host).items()}
    keys = {name: f"{value}{number}" for name, value in every.items() if not value.startswith(host)}
    return {"THINKLSP_CONFIG": "/nonexistent/config.toml", **every, **keys}


async def _at_once(_seconds: float) -> None:
    await asyncio.sleep(0)


async def _play(history: Sequence[PlannedTurn], places: Sequence[_Place], outcome: Outcome, where: str) -> None:
    session = await places[0].engine.store.create("w")
    for planned in history:
        place = places[planned.place]
        engine = place.engine
        view = WorkspaceView((), [DocumentSnapshot(_DOCUMENT, 1, "one\ntwo\nthree\n")])
        prompt = f"ask {planned.name};"
        request = ChatRequest(prompt=prompt, mode=planned.mode, view=view, workspace="w", session_id=session.id)
        turn = await engine.start_turn(request, EditorSettings(), planned.choices)
        connect_to(turn, partial(place.caller, planned.choices["provider"]))
        if planned.room is not None:
            _narrow(turn, planned.room)
        refusals = outcome.seen["answered 400"]
        ended = await _run(turn, planned, outcome)
        outcome.turns += 1
        outcome.seen[ended] += 1
        session = await engine.store.get(session.id, "w")
        said = f"{where}, turn {planned.name} ({planned.choices}) ended with {ended}"
        check_sendable(session.add_user_message("More.").conversation)
        assert not outcome.refused, f"{said}; the service refused {outcome.refused[0]}"
        # After a refusal that the scenario plays and nothing explains, earlier thinking may be left out.
        is_refused = outcome.seen["answered 400"] > refusals
        unexpected = {DROP_NOTICE} if is_refused else {DROP_NOTICE, STRIP_NOTICE}
        assert not unexpected & set(turn.output.notices), f"{said}; earlier thinking was refused"
        for message in session.conversation:
            if isinstance(message, AssistantMessage):
                outcome.seen["kept thinking"] += any(isinstance(block, ThinkingBlock) for block in message.blocks)
        if planned.compact:
            await _compact(turn, planned, outcome, engine)


def _narrow(turn: Turn, room: int) -> None:
    # The simulators count four bytes for a token where the meter begins with three.
    frame = turn.meter.estimate_fixed_tokens(turn.config.build_request(())) * 3 // 4
    model = replace(turn.config.model, context_window=round((frame + room) / turn.config.compaction.threshold))
    turn.config = replace(turn.config, model=model)


async def _compact(turn: Turn, planned: PlannedTurn, outcome: Outcome, engine: Engine) -> None:
    session = await engine.store.get(turn.session.id, "w")
    caller = metered(await turn.connect(()), turn.config, stop_at_budget, meter=turn.meter)

    async def take(event: TurnEvent) -> None:
        nonlocal session
        if isinstance(event, ContextCompacted):
            check_compacted(event)
            session = await engine.store.update(session.id, methodcaller("replace_conversation", event.after))
            outcome.seen["compacted by command"] += 1

    try:
        await compact_now(session.conversation, turn.config, caller=caller, emit=take)
    except TurnRefused:
        outcome.seen["nothing to compact"] += 1
    except ProviderError:
        outcome.seen["compaction failed"] += 1
    if session.conversation:
        check_sendable(session.add_user_message("More.").conversation)


def check_compacted(event: ContextCompacted) -> None:
    """Sendable as it stands, shorter, and what is kept is what was there but for thinking."""
    check_sendable(event.after)
    assert event.after[-1].role == "user"
    assert is_summary_message(event.after[0])
    assert sum(is_summary_message(message) for message in event.after) == 1
    whole, kept = _said(event.before), _said(event.after[1:])
    if kept and str(kept[-1][-1]).startswith("<note>This conv"):
        kept.pop()
    elif kept and str(kept[0][-1]).startswith("<note>Your steps"):
        # Of the running turn only the task is left, and the step whose results no call has held.
        kept.pop(0)
        assert len(kept) <= 2
    assert not kept or whole[len(whole) - len(kept) :] == kept


def _said(messages: Sequence[Message]) -> list[list[Any]]:
    """Words, calls and results, message by message. What stands for mere thinking is left out."""
    found = []
    for message in messages:
        blocks = [block for block in message.blocks if isinstance(block, TextBlock | ToolUseBlock | ToolResultBlock)]
        found.append([(b.id, b.name, b.input) if isinstance(b, ToolUseBlock) else b.text for b in blocks])
    return [said for said in found if said not in ([], ["(thinking only)"])]


async def _run(turn: Turn, planned: PlannedTurn, outcome: Outcome) -> str:
    """How it ended."""
    running = asyncio.create_task(_events(turn, planned, outcome))
    if planned.stop_after is not None and planned.stop_after[0] == "cycles":
        for _ in range(planned.stop_after[1]):
            await asyncio.sleep(0)
        running.cancel()
    await asyncio.wait([running])
    if running.cancelled():
        return "cancelled"
    return "error" if isinstance(running.exception(), ProviderError) else running.result()


class _Left(BaseException):
    """The front end went away after an event."""


async def _events(turn: Turn, planned: PlannedTurn, outcome: Outcome) -> str:
    left = planned.stop_after[1] if planned.stop_after and planned.stop_after[0] == "events" else None

    def show(event: TurnEvent) -> None:
        nonlocal left
        match event:
            case RetryScheduled():
                outcome.seen["restart" if event.restart else "retry"] += 1
            case ToolFinished():
                outcome.seen["failed tool" if event.is_error else "tool"] += 1
            case ContextCompacted():
                check_compacted(event)
                outcome.seen["compacted in a turn"] += 1
            case StepCommitted():
                outcome.seen["shortened by the service"] += find_compaction_origin(event.assistant) is not None
            case Notice():
                outcome.seen["notice"] += 1
            case _:
                pass
        if left is not None and not isinstance(event, TurnFinished):
            left -= 1
            if left <= 0:
                raise _Left

    try:
        return (await run_to_end(turn, show)).stop_reason
    except _Left:
        return "left"


def _history(rng: Random, number: int) -> list[PlannedTurn]:
    """A session: it begins with some settings, and now and then the user changes one of them."""
    choices: dict[str, Any] = {}
    place = rng.randrange(2)
    turns = []
    for index in range(rng.choice((1, 2, 3, 5, 9))):
        if not choices or rng.random() < 0.25:
            choices["provider"] = rng.choice(tuple(MODELS))
            choices["model"] = rng.choice(MODELS[choices["provider"]])
        if rng.random() < 0.2:
            choices["model"] = rng.choice(MODELS[choices["provider"]])
        if rng.random() < 0.1:
            place = 1 - place
        if rng.random() < 0.5:
            choices["effort"] = rng.choice(EFFORT_SETTINGS)
        if rng.random() < 0.5:
            choices["thinking.mode"] = rng.choice(_MODES)
        if rng.random() < 0.2:
            choices["thinking.display"] = rng.choice(("status", "summary", "off"))
        if rng.random() < 0.2:
            # Where the cap of a model is not known, it is the user who has to know it.
            most = 64_000 if choices["provider"] == "openai-compatible" else 500_000
            choices["maxTokens"] = rng.choice(("auto", 1024, 4096, 64_000, most))
        elif choices["provider"] == "openai-compatible":
            choices["maxTokens"] = "auto"
        if rng.random() < 0.2:
            choices["thinking.budgetTokens"] = rng.choice((1024, 8000, 100_000))
        kinds = rng.choices(_KINDS, weights=_WEIGHTS, k=rng.randint(0, 3))
        steps = [_step(rng, kind) for kind in (*kinds, rng.choice(("text", "text", "tools")))]
        stop: tuple[Literal["cycles", "events"], int] | None = None
        if rng.random() < 0.3:
            stop = rng.choice((("cycles", int(2 ** rng.uniform(0, 12))), ("events", rng.randint(1, 30))))
        mode: Literal["agent", "ask", "plan"] = rng.choice(("agent", "agent", "agent", "ask", "plan"))
        turns.append(PlannedTurn(f"h{number}t{index}", place, dict(choices), mode, steps, stop))
    return turns


def _shortened(rng: Random, turn: PlannedTurn) -> PlannedTurn:
    """The same with more to say and less room for it."""
    long = {"text": "Many words are said here. " * rng.randint(50, 400)}
    steps = [{**step, "block": [long, *step["block"]]} if rng.random() < 0.6 else step for step in turn.steps]
    room = int(2 ** rng.uniform(9, 12)) if rng.random() < 0.7 else None
    off = {"compaction.thinkingAfter": "off"} if rng.random() < 0.2 else {}
    return replace(turn, steps=steps, room=room, compact=rng.random() < 0.2, choices={**turn.choices, **off})


def _left_to_the_service(rng: Random, turn: PlannedTurn) -> PlannedTurn:
    """The same where the user lets the service shorten, most often one that does."""
    own = {"provider": "openai", "model": rng.choice(_COMPACTING)} if rng.random() < 0.7 else {}
    return replace(turn, choices={**turn.choices, **own, "compaction.by": "provider"}, compact=rng.random() < 0.1)


_TOOLS: tuple[Json, ...] = (
    {"tool": "read_file", "input": {"path": _DOCUMENT}},
    {"tool": "read_file", "input": {"path": "../outside"}},
    {"tool": "read_file", "input_json": '{"path": "a.p'},
    {"tool": "read_file", "input_json": "[1]"},
    {"tool": "list_files"},
    {"tool": "list_files", "input_json": ""},
    {"tool": "edit_file", "input": {"path": _DOCUMENT, "old_text": "two\n", "new_text": "2\n"}},
    {"tool": "edit_file", "input": {"path": _DOCUMENT, "old_text": "not there", "new_text": ""}},
    {"tool": "plan", "input": {"entries": [{"text": "look", "status": "pending"}]}},
    {"tool": "ask_user", "input": {"question": "Which?", "options": ["a", "b"]}},
    {"tool": "no_such_tool", "input": {"x": "\u2028 \U0001f30d"}},
)
_TEXTS = ("Words.", "More \u2028 words \U0001f30d, and\u0085 so on. " * 3, " ", "x")
_KINDS = ("tools", "text", "silence", "refusal", "max_tokens", "pause_turn", "context_window", "fault")
_WEIGHTS = (8, 1, 2, 1, 2, 3, 1, 5)


def _step(rng: Random, kind: str) -> Json:
    if kind == "fault":
        step = _step(rng, rng.choice(("tools", "text", "silence", "max_tokens", "pause_turn")))
        return {**step, "fault": _fault(rng)}
    blocks = _thoughts(rng)
    if kind != "silence":
        for _ in range(rng.randint(0, 2)):
            blocks += [{"text": rng.choice(_TEXTS)}, *_thoughts(rng)]
    if kind == "text":
        blocks.append({"text": "An answer."})
    if kind == "tools" or (kind in ("max_tokens", "refusal", "context_window") and rng.random() < 0.6):
        for _ in range(rng.randint(1, 3)):
            blocks += [rng.choice(_TOOLS), *_thoughts(rng, 0.15)]
        if rng.random() < 0.2:
            blocks.append({"text": "Behind the calls."})
    step: Json = {"block": blocks}
    if kind in ("refusal", "max_tokens", "pause_turn", "context_window"):
        step["stop_reason"] = kind
    return step


def _thoughts(rng: Random, share: float = 0.6) -> list[Json]:
    """No, one or several thinking blocks in a row, some of them redacted."""
    blocks: list[Json] = []
    while rng.random() < share and len(blocks) < 3:
        blocks.append({"redacted_thinking": "hidden"} if rng.random() < 0.25 else {"thinking": "I think. " * 5})
    return blocks


def _fault(rng: Random) -> Json:
    times: Json = {"times": rng.choice((1, 1, 1, 2, 5))}
    match rng.choice(("http", "http", "event", "cut", "cut")):
        case "http":
            status = rng.choice((400, 400, 401, 408, 409, 413, 429, 500, 502, 529))
            error: Json = {"status": status}
            if status == 400 and rng.random() < 0.5:
                error["message"] = "prompt is too long: 2 tokens > 1 maximum"
            return times | {"http_error": error}
        case "event":
            kind = rng.choice(("overloaded_error", "api_error", "invalid_request_error", "rate_limit_error"))
            return times | {"error_event": {"type": kind, "message": "Broken", "after_events": rng.randint(0, 12)}}
        case _:
            return times | {"cut_after_events": rng.randint(0, 25), "cut_cleanly": rng.random() < 0.5}
