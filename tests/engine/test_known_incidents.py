"""What has gone wrong with thinking, tool loops and compaction in programs of this kind, 1 to 28, and why not here.

Each row names the tests that prove it. What nobody else proves by itself stands here: whole sessions of several turns
through the engine, against the simulated services, which refuse what the real ones refuse.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engine.test_engine import PLAIN, A, run, spec
from tests.settings.test_sources import NO_FILE
from tests.support.services import KEYS, WAYS, Way, sealed_in
from tests.support.stored_sessions import NoVault
from thinklsp.agent.remedies import BARE, NEVER
from thinklsp.core.events import Notice, TurnFinished
from thinklsp.engine import Engine
from thinklsp.sessions.sqlite_store import SqliteStore
from thinklsp.simulator.journal import RecordedRequest
from thinklsp.simulator.scenario import parse
from thinklsp.simulator.server import Simulator

# Every prompt: two rounds of tools with thinking before each, and an answer.
LOOPS = parse(
    f"""
[[turn]]
when = '.'
[[turn.step]]
block = [
  {{ thinking = "First a look." }},
  {{ tool = "read_file", input = {{ path = "{A}", end_line = 2 }} }},
  {{ tool = "read_file", input = {{ path = "{A}", start_line = 3, end_line = 4 }} }},
]
[[turn.step]]
block = [{{ thinking = "Another." }}, {{ tool = "read_file", input = {{ path = "{A}", start_line = 9 }} }}]
[[turn.step]]
block = [{{ thinking = "Enough." }}, {{ text = "Seen." }}]
""",
    "loops",
)
STEPS = 3
FIXTURES = Path(__file__).parents[1] / "fixtures"
CLAUDE = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-opus-4-8", "claude-sonnet-4-6", "claude-sonnet-4-5")
ANTHROPIC = WAYS["anthropic"]


@asynccontextmanager
async def engine_at(url: str, state: Path, **more: str) -> AsyncIterator[Engine]:
    """As after a restart: it knows of the session what is on disk. Every way leads to `url`."""
    hosts = {name: value for way in WAYS.values() for name, value in way.environment(url).items()}
    engine = Engine(NO_FILE | hosts | more, SqliteStore(str(state), vault=NoVault))
    try:
        yield engine
    finally:
        await engine.aclose()


async def goes_on(engine: Engine, prompt: str, way: Way) -> list[str]:
    """One turn of the one session to its good end. What the user was told."""
    known = {"session_id": "last"} if await engine.store.list("w") else {}
    turn = await engine.begin(spec(prompt, **known), PLAIN, {"provider": way.provider, "model": way.model})
    events = await run(turn)
    last = events[-1]
    assert isinstance(last, TurnFinished)
    assert (last.stop_reason, last.text) == ("end_turn", "Seen.")
    return [event.text for event in events if isinstance(event, Notice)]


def assert_left_behind(told: list[str], reason: str, *, times: int) -> None:
    """A-9: each time that thinking stays with another issuer, and never otherwise."""
    assert len(told) == times
    assert all("cannot read the thinking of" in text and reason in text for text in told)


def seals(*requests: RecordedRequest) -> set[str]:
    return {text for request in requests for text in sealed_in(request.body)}


GATEWAYS = ("openrouter", "strict gateway")
TALKING = {model: Way("anthropic", model, "", None) for model in CLAUDE} | {name: WAYS[name] for name in GATEWAYS}


@pytest.mark.parametrize("name", TALKING)
async def test_incident_01_02_03_05_06_and_09_thinking_before_tools_goes_back_first_over_many_turns(
    name: str, tmp_path: Path
) -> None:
    """With a budget and adaptive, directly and through gateways; each turn in a process that knows the store alone."""
    way = TALKING[name]
    async with Simulator(LOOPS) as simulator:
        told = []
        for number in range(4):
            async with engine_at(simulator.base_url, tmp_path) as engine:
                told += await goes_on(engine, f"Look, {number}.", way)
        # A server whose rule can only be learned says so once, to all processes.
        assert told == [NEVER] * way.learned
        assert sum(request.status != 200 for request in simulator.requests) == way.learned
        if way.provider == "anthropic":
            calls = [
                [block["type"] for block in message["content"]]
                for message in simulator.requests[-1].body["messages"]
                if message["role"] == "assistant" and message["content"][-1]["type"] == "tool_use"
            ]
            assert calls == [["thinking", "tool_use", "tool_use"], ["thinking", "tool_use"]] * 4


async def test_incident_04_off_is_off_for_one_turn_and_the_session_thinks_again(tmp_path: Path) -> None:
    way = Way("anthropic", "claude-opus-4-8", "", None)
    async with Simulator(LOOPS) as simulator:
        for mode in ("adaptive", "off", "adaptive"):
            more = {"THINKLSP_THINKING_MODE": mode}
            async with engine_at(simulator.base_url, tmp_path, **more) as engine:
                told = await goes_on(engine, "Look.", way)
                assert told == [f"Thinking is off, so {way.model} does not read the thinking of 3 earlier answers."] * (
                    mode == "off"
                )
        forms = [request.body.get("thinking", {"type": "disabled"})["type"] for request in simulator.requests]
        assert forms == ["adaptive"] * STEPS + ["disabled"] * STEPS + ["adaptive"] * STEPS
        assert {request.status for request in simulator.requests} == {200}


@pytest.mark.parametrize("name", ["anthropic", "openai", "google", "openrouter"])
async def test_incident_07_11_and_25_a_service_that_forgot_its_thinking_costs_one_notice(
    name: str, tmp_path: Path
) -> None:
    """The same address, another secret behind it: everything sealed so far is void."""
    way = WAYS[name]
    async with Simulator(LOOPS) as simulator, engine_at(simulator.base_url, tmp_path) as engine:
        assert await goes_on(engine, "Look.", way) == []
        port = int(simulator.base_url.rpartition(":")[2])
    for _ in range(2):
        # As often as it happens.
        async with Simulator(LOOPS, port) as simulator, engine_at(simulator.base_url, tmp_path) as engine:
            assert await goes_on(engine, "Look again.", way) == [BARE]
            assert await goes_on(engine, "And again.", way) == []
            refused = [request for request in simulator.requests if request.status != 200]
            assert len(refused) == 1
            # What the model has thought since goes back; nothing else was given up.
            assert seals(simulator.requests[-1])
            assert not seals(simulator.requests[-1]) & seals(*refused)
            assert simulator.requests[-1].raw.decode().count("Seen.") >= 2


async def test_incident_17_models_of_one_house_get_only_their_own_thinking(tmp_path: Path) -> None:
    issued: dict[str, set[str]] = {}
    async with Simulator(LOOPS) as simulator, engine_at(simulator.base_url, tmp_path) as engine:
        for number, model in enumerate((*CLAUDE, *reversed(CLAUDE))):
            before = len(simulator.requests)
            told = await goes_on(engine, f"Look, {number}.", Way("anthropic", model, "", None))
            assert_left_behind(told, "another model (", times=number not in (0, len(CLAUDE)))
            sent = seals(*simulator.requests[before:])
            assert not any(sent & foreign for other, foreign in issued.items() if other != model)
            assert issued.get(model, set()) <= sent
            issued[model] = issued.get(model, set()) | sent
        assert {request.status for request in simulator.requests} == {200}
        assert all(issued.values())


async def test_incident_18_19_and_20_two_hosts_of_one_dialect_and_one_model_stay_apart(tmp_path: Path) -> None:
    """Neither a seal nor half a block goes to a host that did not issue it, and each gets its own back."""
    async with Simulator(LOOPS) as one, Simulator(LOOPS) as two:
        for number, host in enumerate((one, two, one, two)):
            async with engine_at(host.base_url, tmp_path) as engine:
                told = await goes_on(engine, f"Look, {number}.", ANTHROPIC)
                assert_left_behind(told, "another address of the provider", times=number > 0)
        assert {request.status for request in (*one.requests, *two.requests)} == {200}
        assert seals(*one.requests)
        assert not seals(*one.requests) & seals(*two.requests)
        for service in (one, two):
            # Whole or not at all: what is left of a foreign answer is its words and its calls.
            blocks = [
                b for m in service.requests[-1].body["messages"] if m["role"] == "assistant" for b in m["content"]
            ]
            assert all(block["signature"] for block in blocks if block["type"] == "thinking")
            assert {block["type"] for block in blocks} == {"thinking", "tool_use", "text"}
            assert seals(service.requests[STEPS - 1]) <= seals(service.requests[-1])


async def test_incident_21_another_account_gets_nothing_of_the_first(tmp_path: Path) -> None:
    keys = (KEYS["anthropic"], "sk-ant-canary-Another5Xk2mWq8zTr4vBn7j", KEYS["anthropic"])
    seen: list[set[str]] = []
    async with Simulator(LOOPS) as simulator:
        for number, key in enumerate(keys):
            before = len(simulator.requests)
            async with engine_at(simulator.base_url, tmp_path, ANTHROPIC_API_KEY=key) as engine:
                told = await goes_on(engine, f"Look, {number}.", ANTHROPIC)
                assert_left_behind(told, "another API key", times=number > 0)
            seen.append(seals(*simulator.requests[before:]))
        assert {request.status for request in simulator.requests} == {200}
    first, other, again = seen
    assert first
    assert other
    assert not first & other
    assert first <= again
    assert not other & again


@dataclass(frozen=True)
class Incident:
    """`tests`: ids of tests elsewhere; those of this module bear the number. `fixtures`: recorded streams that those
    tests play. `reason`: why it cannot come about here."""

    title: str
    tests: tuple[str, ...] = ()
    fixtures: tuple[str, ...] = ()
    reason: str = ""


REPLAY, STREAM = "providers/test_anthropic_replay", "providers/test_anthropic_stream"
OPENAI, OPENAI_REPLAY = (
    "providers/openai_responses/test_openai_sharp_edges",
    "providers/openai_responses/test_openai_replay",
)
GOOGLE, GOOGLE_REPLAY = "providers/google/test_google_sharp_edges", "providers/google/test_google_replay"
CHAT, CHAT_REPLAY = "providers/openai_chat/test_chat_sharp_edges", "providers/openai_chat/test_chat_replay"
TURN, REMEDIES, COMPACTING = "agent/test_turn", "agent/test_remedies", "agent/test_compacting"
STORE_ROWS, REPAIR, ANSWERS = "sessions/test_rows", "sessions/test_repair", "providers/test_rows_of_answers"
SAME, SWITCHING = "e2e/providers/test_same_everywhere", "e2e/providers/test_switching"

INCIDENTS: dict[int, Incident] = {
    1: Incident(
        "an answer went back with its call before its thinking, and was refused",
        (f"{REPLAY}::test_what_was_issued_here_goes_back_as_it_came", f"{SAME}::test_fix"),
    ),
    2: Incident(
        "the same on a model that thinks with a budget",
        (f"{REPLAY}::test_a_budget_needs_a_tool_loop_that_began_with_thinking",),
    ),
    3: Incident(
        "the same through a gateway, from the second message on",
        (f"{SAME}::test_a_long_loop_goes_through_and_is_cached",),
    ),
    4: Incident(
        "the same, and users could not switch thinking off for easy questions",
        (
            "providers/test_thinking_plan::test_rule",
            "providers/test_thinking_plan::test_every_wish_becomes_something_the_model_takes",
        ),
    ),
    5: Incident(
        "the first tool loop with thinking failed at once", (f"{REPLAY}::test_recorded_answers_survive_the_round_trip",)
    ),
    6: Incident(
        "thinking and tools together were not offered at all",
        (f"{COMPACTING}::test_f6_f13_what_is_sent_back_is_what_the_rest_of_the_history_needs", f"{SAME}::test_fix"),
    ),
    7: Incident(
        "once a block had been refused there was no way on",
        (f"{REMEDIES}::test_what_is_tried_is_tried_once_said_and_kept",),
    ),
    8: Incident(
        "blocks were stored without the signatures that they need",
        (
            f"{STORE_ROWS}::test_every_message_comes_back_as_it_was",
            f"{STORE_ROWS}::test_what_cannot_be_opened_takes_only_its_own_block_along",
            f"{REPLAY}::test_thinking_without_signature_goes_back_only_where_it_came_from",
        ),
    ),
    9: Incident(
        "a session with thinking was refused whenever it was opened again",
        (
            "e2e/outside/test_outside_restarts::test_the_next_server_goes_on_with_the_whole_history",
            f"{STORE_ROWS}::test_any_session_may_follow_any_other",
        ),
    ),
    10: Incident(
        "half a block was stored and blocked the session for good",
        (
            "agent/test_model_call::test_a_stream_cut_before_its_end_is_never_an_answer",
            "core/test_accumulator::test_without_the_terminal_event_there_is_no_message",
            "sessions/test_sessions::test_a_step_is_committed_whole_or_not_at_all",
            "sessions/test_sessions::test_what_a_crash_leaves_can_be_continued",
        ),
    ),
    11: Incident(
        "sessions broke several times a day and had to be mended by hand",
        (f"{REPAIR}::test_what_is_found_is_mended", f"{REPAIR}::test_the_mended_one_can_be_sent_and_no_word_is_lost"),
    ),
    12: Incident(
        "the store held the same blocks dozens of times",
        (
            f"{STORE_ROWS}::test_the_same_conversation_is_not_written_twice",
            f"{STORE_ROWS}::test_a_write_costs_what_is_new",
            f"{REPAIR}::test_what_is_found_is_mended",
        ),
    ),
    13: Incident(
        "long conversations broke since every old signed block was sent for ever",
        (
            f"{COMPACTING}::test_f6_f13_what_is_sent_back_is_what_the_rest_of_the_history_needs",
            "engine/test_long_conversation::test_it_is_never_refused_and_costs_no_more_at_its_end",
        ),
    ),
    14: Incident(
        "thinking was made up without a signature, refused, and made up again without end",
        (
            f"{TURN}::test_a_stored_conversation_can_always_be_sent",
            f"{REPLAY}::test_thinking_without_signature_goes_back_only_where_it_came_from",
            f"{REMEDIES}::test_a_refusal_after_everything_was_tried_is_the_end",
        ),
    ),
    15: Incident(
        "compaction was refused since it changed the newest thinking",
        (
            f"{COMPACTING}::test_f15_the_summary_is_asked_for_at_a_turns_border_without_thinking_and_tools",
            "agent/test_compaction::test_silica_s5_the_summary_is_asked_for_without_thinking_or_tools",
            "agent/test_compacted_histories::test_every_compacted_conversation_can_be_sent",
        ),
    ),
    16: Incident(
        "a stop in mid-thought left a block without signature, and every later turn failed",
        (
            f"{COMPACTING}::test_f16_a_turn_stopped_while_the_summary_is_written_leaves_the_old_history",
            f"{TURN}::test_a_turn_cancelled_at_any_moment_leaves_a_conversation_that_can_be_sent",
            f"{TURN}::test_every_await_of_a_turn_is_a_place_to_cancel",
            f"{SAME}::test_cancel_closes_the_connection_and_the_session_goes_on",
        ),
    ),
    17: Incident(
        "changing between models of one house was refused",
        (f"{REPLAY}::test_foreign_state_is_dropped_whole_and_text_is_kept",),
    ),
    18: Incident(
        "thinking of another service went along, then without its signature, and either was refused",
        (
            f"{REPLAY}::test_foreign_state_is_dropped_whole_and_text_is_kept",
            f"{ANSWERS}::test_row_34_thinking_goes_back_only_where_it_came_from",
            f"{SWITCHING}::test_one_session_goes_through_all_of_them_and_back",
        ),
    ),
    19: Incident(
        "what a host of the same dialect had signed went to another one",
        ("core/test_opaque_state::test_only_the_issuer_gets_it_back",),
    ),
    20: Incident(
        "the same between services of different dialects",
        (f"{SWITCHING}::test_one_session_goes_through_all_of_them_and_back",),
    ),
    21: Incident(
        "a change of account made the thinking void",
        (f"{REPLAY}::test_foreign_state_is_dropped_whole_and_text_is_kept",),
    ),
    22: Incident(
        "the end of a helper's conversation left that of its parent unusable",
        reason="No tool starts another conversation: a session has one history, and only its own turn writes to it.",
    ),
    23: Incident(
        "signatures of parallel calls were lost or moved to another part",
        (
            f"{GOOGLE}::test_row_48_a_signature_in_the_last_chunk_is_kept_however_long",
            f"{GOOGLE}::test_row_49_signed_parts_keep_their_borders",
            f"{GOOGLE}::test_row_51_parallel_calls_keep_order_and_get_no_signatures",
            f"{GOOGLE}::test_row_52_calls_of_somebody_else_get_the_stand_in",
            f"{GOOGLE_REPLAY}::test_recorded_answers_survive_the_round_trip",
        ),
    ),
    24: Incident(
        "reasoning went back without the item behind it, or was gone where nothing is stored",
        (
            f"{OPENAI}::test_row_38_thinking_and_what_follows_it_go_back_together_or_not_at_all",
            f"{OPENAI}::test_row_41_items_stand_under_their_index",
            f"{OPENAI}::test_row_47_nothing_is_stored_or_referred_to",
            f"{OPENAI_REPLAY}::test_an_answer_goes_back_whole_or_bare",
        ),
    ),
    25: Incident(
        "encrypted reasoning could no longer be verified, and the session was dead",
        ("providers/openai_responses/test_openai_failures::test_failure",),
    ),
    26: Incident(
        "a compatible server wants its reasoning back in turns with tools",
        (
            f"{CHAT}::test_row_67_deepseek_gets_its_field_back_and_an_empty_one_for_foreign_calls",
            f"{CHAT_REPLAY}::test_deepseek_wants_the_field_on_every_answer_with_calls",
            f"{CHAT_REPLAY}::test_the_replay_rule",
        ),
    ),
    27: Incident(
        "a turn ended with nothing but thinking, and nothing was said",
        (
            f"{TURN}::test_thinking_alone_is_asked_to_go_on_once",
            "engine/test_scenarios_everywhere::test_row_33_an_empty_answer_after_results_is_asked_about_once",
        ),
    ),
    28: Incident(
        "odd ends of answers: a call with another reason, thinking that is null, a pause in a search, no output at all",
        (
            f"{CHAT}::test_row_64_calls_count_whatever_the_reason_says",
            "providers/openai_chat/test_chat_stream::test_recorded_stream",
            "providers/openai_responses/test_openai_stream::test_recorded_stream",
            f"{STREAM}::test_recorded_stream",
            f"{TURN}::test_a_pause_is_sent_back_as_it_is",
            "providers/test_sharp_edges::test_row_26_a_paused_answer_goes_back_unchanged_at_the_end",
            f"{ANSWERS}::test_row_33_an_empty_answer_after_results_is_an_answer",
        ),
        (
            "openai_chat/lm_studio_stop_although_called",
            "openai_responses/null_deltas",
            "anthropic/thinking_without_delta",
            "anthropic/server_tools",
            "anthropic/pause_turn",
            "anthropic/empty_end",
        ),
    ),
}
NUMBERED = re.compile(r"test_incident_((?:\d\d_(?:and_)?)+)")


def own() -> Mapping[int, list[str]]:
    """The tests of this module by the numbers that they bear."""
    found: dict[int, list[str]] = {}
    for name, value in globals().items():
        bears = NUMBERED.match(name)
        if bears and inspect.isfunction(value):
            for number in re.findall(r"\d\d", bears[1]):
                found.setdefault(int(number), []).append(name)
    return found


def named(test: str) -> str:
    """Fails for a test that does not exist."""
    place, _, name = test.partition("::")
    module = importlib.import_module(f"tests.{place.replace('/', '.')}")
    assert name.startswith("test_")
    assert inspect.isfunction(getattr(module, name, None)), f"{test} does not exist"
    return name


@pytest.mark.parametrize("number", range(1, 29))
def test_every_incident_is_proven_or_cannot_come_about(number: int) -> None:
    incident = INCIDENTS[number]
    proofs = [*map(named, incident.tests), *own().get(number, [])]
    assert len(set(incident.tests)) == len(incident.tests)
    for fixture in incident.fixtures:
        assert {(FIXTURES / f"{fixture}{end}").exists() for end in (".sse", ".json")} == {True}, fixture
    assert bool(proofs) is not bool(incident.reason)
    assert not incident.reason or len(incident.reason) > 20


def test_nothing_is_listed_that_is_no_incident() -> None:
    assert list(INCIDENTS) == list(range(1, 29))
    assert own().keys() <= INCIDENTS.keys()
    assert len({incident.title for incident in INCIDENTS.values()}) == len(INCIDENTS)


def test_a_missing_test_is_noticed() -> None:
    with pytest.raises(AssertionError, match="does not exist"):
        named("agent/test_turn::test_this_is_not_there")
