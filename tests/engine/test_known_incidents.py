"""What has gone wrong with thinking, tool loops and compaction in programs of this kind, 1 to 28, and why not here.

Each row names the tests that prove it. What nobody else proves by itself stands here: whole sessions of several turns
through the engine, against the simulated services, which refuse what the real ones refuse.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.engine.test_engine import PLAIN, A, run, spec
from tests.settings.test_sources import NO_FILE
from tests.stand_ins.http_server import RecordedRequest, Simulator
from tests.support.services import KEYS, WAYS, Way, sealed_in
from thinklsp.agent.request_fallbacks import NEVER_NOTICE, STRIP_NOTICE
from thinklsp.core.events import Notice, TurnFinished
from thinklsp.engine import Engine
from thinklsp.offline.scenario import parse_scenario
from thinklsp.sessions.sqlite_store import SqliteStore

# Every prompt: two rounds of tools with thinking before each, and an answer.
LOOPS = parse_scenario(
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


def engine_at(url: str, state: Path, **more: str) -> aclosing[Engine]:
    """As after a restart: it knows of the session what is on disk. Every way leads to `url`."""
    hosts = {name: value for way in WAYS.values() for name, value in way.environment(url).items()}
    return aclosing(Engine(NO_FILE | hosts | more, SqliteStore(str(state))))


async def goes_on(engine: Engine, prompt: str, way: Way) -> list[str]:
    """One turn of the one session to its good end. What the user was told."""
    known = {"session_id": "last"} if await engine.store.list_sessions("w") else {}
    turn = await engine.start_turn(spec(prompt, **known), PLAIN, {"provider": way.provider, "model": way.model})
    events = await run(turn)
    last = events[-1]
    assert isinstance(last, TurnFinished)
    assert (last.stop_reason, last.text) == ("end_turn", "Seen.")
    return [event.text for event in events if isinstance(event, Notice)]


def assert_left_behind(told: list[str], reason: str, *, times: int) -> None:
    """Each time that thinking stays with another issuer, and never otherwise."""
    assert len(told) == times
    assert all("cannot read the thinking in" in text and reason in text for text in told)


def seals(*requests: RecordedRequest) -> set[str]:
    return {text for request in requests for text in sealed_in(request.body)}


GATEWAYS = ("openrouter", "strict gateway")
TALKING = {model: Way("anthropic", model, "", None) for model in CLAUDE} | {name: WAYS[name] for name in GATEWAYS}


@pytest.mark.parametrize("name", TALKING)
async def test_incident_01_02_03_05_06_09_thinking_precedes_tools(name: str, tmp_path: Path) -> None:
    """With a budget and adaptive, directly and through gateways; each turn in a process that knows the store alone."""
    way = TALKING[name]
    async with Simulator(LOOPS) as simulator:
        told = []
        for number in range(4):
            async with engine_at(simulator.base_url, tmp_path) as engine:
                told += await goes_on(engine, f"Look, {number}.", way)
        # A server whose rule can only be learned says so once, to all processes.
        assert told == [NEVER_NOTICE] * way.learned
        assert sum(request.status != 200 for request in simulator.requests) == way.learned
        if way.provider == "anthropic":
            calls = [
                [block["type"] for block in message["content"]]
                for message in simulator.requests[-1].body["messages"]
                if message["role"] == "assistant" and message["content"][-1]["type"] == "tool_use"
            ]
            assert calls == [["thinking", "tool_use", "tool_use"], ["thinking", "tool_use"]] * 4


async def test_incident_04_off_lasts_for_one_turn(tmp_path: Path) -> None:
    way = Way("anthropic", "claude-opus-4-8", "", None)
    async with Simulator(LOOPS) as simulator:
        for mode in ("adaptive", "off", "adaptive"):
            more = {"THINKLSP_THINKING_MODE": mode}
            async with engine_at(simulator.base_url, tmp_path, **more) as engine:
                told = await goes_on(engine, "Look.", way)
                assert told == [f"Thinking is off, so {way.model} does not read the thinking in 3 earlier answers."] * (
                    mode == "off"
                )
        forms = [request.body.get("thinking", {"type": "disabled"})["type"] for request in simulator.requests]
        assert forms == ["adaptive"] * STEPS + ["disabled"] * STEPS + ["adaptive"] * STEPS
        assert {request.status for request in simulator.requests} == {200}


@pytest.mark.parametrize("name", ["anthropic", "openai", "google", "openrouter"])
async def test_incident_07_11_25_forgotten_thinking_costs_one_notice(name: str, tmp_path: Path) -> None:
    """The same address, another secret behind it: everything sealed so far is void."""
    way = WAYS[name]
    async with Simulator(LOOPS) as simulator, engine_at(simulator.base_url, tmp_path) as engine:
        assert await goes_on(engine, "Look.", way) == []
        port = int(simulator.base_url.rpartition(":")[2])
    for _ in range(2):
        # As often as it happens.
        async with Simulator(LOOPS, port) as simulator, engine_at(simulator.base_url, tmp_path) as engine:
            assert await goes_on(engine, "Look again.", way) == [STRIP_NOTICE]
            assert await goes_on(engine, "And again.", way) == []
            refused = [request for request in simulator.requests if request.status != 200]
            assert len(refused) == 1
            # What the model has thought since goes back; nothing else was given up.
            assert seals(simulator.requests[-1])
            assert not seals(simulator.requests[-1]) & seals(*refused)
            assert simulator.requests[-1].raw.decode().count("Seen.") >= 2


async def test_incident_17_models_get_only_their_own_thinking(tmp_path: Path) -> None:
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


async def test_incident_18_19_20_hosts_of_one_dialect_stay_apart(tmp_path: Path) -> None:
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


# Below the title of each incident: the tests that prove it, except those of this module, which bear its number; the
# recorded streams that they play; or why it cannot come about here.
TABLE = """\
1: an answer went back with its call before its thinking, and was refused
  providers/test_replay::test_what_was_issued_here_goes_back_as_it_came
  e2e/providers/test_same_everywhere::test_fix
2: the same on a model that thinks with a budget
  providers/test_replay::test_a_budget_needs_a_tool_loop_that_began_with_thinking
3: the same through a gateway, from the second message on
  e2e/providers/test_same_everywhere::test_a_long_loop_goes_through_and_is_cached
4: the same, and users could not switch thinking off for easy questions
  providers/test_thinking_plan::test_a_wish_becomes_a_plan
  providers/test_thinking_plan::test_every_wish_becomes_something_the_model_takes
5: the first tool loop with thinking failed at once
  providers/test_replay::test_recorded_answers_survive_the_round_trip
6: thinking and tools together were not offered at all
  agent/test_compacting::test_f6_f13_compaction_keeps_opaque_state_in_use
  e2e/providers/test_same_everywhere::test_fix
7: once a block had been refused there was no way on
  agent/test_remedies::test_what_is_tried_is_tried_once_said_and_kept
8: blocks were stored without the signatures that they need
  sessions/test_rows::test_every_message_comes_back_as_it_was
  sessions/test_rows::test_what_cannot_be_opened_takes_only_its_own_block_along
  providers/test_replay::test_unsigned_thinking_returns_only_to_its_issuer
9: a session with thinking was refused whenever it was opened again
  e2e/conformance/slow/test_restarts::test_the_next_server_goes_on_with_the_whole_history
  sessions/test_rows::test_any_session_may_follow_any_other
10: half a block was stored and blocked the session for good
  agent/test_model_call::test_a_stream_cut_before_its_end_is_never_an_answer
  core/test_accumulator::test_without_the_terminal_event_there_is_no_message
  sessions/test_sessions::test_a_step_is_committed_whole_or_not_at_all
  sessions/test_sessions::test_what_a_crash_leaves_can_be_continued
11: sessions broke several times a day and had to be mended by hand
  sessions/test_repair::test_what_is_found_is_mended
  sessions/test_repair::test_the_mended_one_can_be_sent_and_no_word_is_lost
12: the store held the same blocks dozens of times
  sessions/test_rows::test_the_same_conversation_is_not_written_twice
  sessions/test_rows::test_a_write_costs_what_is_new
  sessions/test_repair::test_what_is_found_is_mended
13: long conversations broke since every old signed block was sent for ever
  agent/test_compacting::test_f6_f13_compaction_keeps_opaque_state_in_use
  engine/slow/test_long_conversation::test_it_is_never_refused_and_costs_no_more_at_its_end
14: thinking was made up without a signature, refused, and made up again without end
  agent/test_turn::test_a_stored_conversation_can_always_be_sent
  providers/test_replay::test_unsigned_thinking_returns_only_to_its_issuer
  agent/test_remedies::test_a_refusal_after_everything_was_tried_is_the_end
15: compaction was refused since it changed the newest thinking
  agent/test_compacting::test_f15_summary_request_has_no_thinking_and_no_tools
  slow/test_histories::test_every_stored_conversation_can_be_sent
16: a stop in mid-thought left a block without signature, and every later turn failed
  agent/test_compacting::test_f16_cancel_during_summary_keeps_the_history
  agent/test_turn::test_turn_cancelled_anywhere_leaves_valid_conversation
  agent/test_turn::test_every_await_of_a_turn_is_a_place_to_cancel
  e2e/providers/test_same_everywhere::test_cancel_closes_the_connection_and_the_session_goes_on
17: changing between models of one house was refused
  providers/test_replay::test_foreign_state_is_dropped_and_words_are_kept
18: thinking of another service went along, then without its signature, and either was refused
  providers/test_replay::test_foreign_state_is_dropped_and_words_are_kept
  providers/test_edges_of_every_service::test_thinking_goes_back_only_where_it_came_from
  e2e/providers/slow/test_switching::test_one_session_goes_through_all_of_them_and_back
19: what a host of the same dialect had signed went to another one
  core/test_opaque_state::test_only_the_issuer_gets_it_back
20: the same between services of different dialects
  e2e/providers/slow/test_switching::test_one_session_goes_through_all_of_them_and_back
21: a change of account made the thinking void
  providers/test_replay::test_foreign_state_is_dropped_and_words_are_kept
22: the end of a helper's conversation left that of its parent unusable
  cannot come about: No tool starts another conversation: a session has one history, and only its own turn writes to it.
23: signatures of parallel calls were lost or moved to another part
  providers/test_edges_of_services::test_a_signature_in_the_last_chunk_is_kept
  providers/test_edges_of_services::test_signed_parts_keep_their_borders
  providers/test_replay::test_a_conversation_becomes_what_is_sent
  providers/test_replay::test_models_before_the_levels_get_no_stand_in
  providers/test_replay::test_recorded_answers_survive_the_round_trip
24: reasoning went back without the item behind it, or was gone where nothing is stored
  providers/test_edges_of_services::test_thinking_and_its_next_item_return_together
  providers/test_edges_of_services::test_nothing_is_stored_or_referred_to
  providers/test_replay::test_a_conversation_becomes_what_is_sent
25: encrypted reasoning could no longer be verified, and the session was dead
  providers/test_failures::test_failures_are_classified
26: a compatible server wants its reasoning back in turns with tools
  providers/test_replay::test_deepseek_wants_the_field_on_every_answer_with_calls
  providers/test_replay::test_the_replay_rule
27: a turn ended with nothing but thinking, and nothing was said
  agent/test_turn::test_thinking_alone_is_asked_to_go_on_once
  engine/slow/test_scenarios_everywhere::test_row_33_empty_answer_after_results_is_retried_once
28: odd ends of answers: a call with another reason, thinking that is null, a pause in a search, no output at all
  providers/test_streams::test_a_recorded_stream_becomes_its_message
  agent/test_turn::test_a_pause_is_sent_back_as_it_is
  providers/test_edges_of_services::test_a_paused_answer_goes_back_unchanged_at_the_end
  providers/test_edges_of_every_service::test_an_empty_answer_after_results_is_an_answer
  plays openai_chat/lm_studio_stop_although_called openai_responses/null_deltas anthropic/thinking_without_delta
  plays anthropic/server_tools anthropic/pause_turn anthropic/empty_end
"""


@dataclass
class Incident:
    title: str
    tests: list[str] = field(default_factory=list)
    fixtures: list[str] = field(default_factory=list)
    reason: str = ""


def read_table(table: str) -> dict[int, Incident]:
    found: dict[int, Incident] = {}
    for line in table.splitlines():
        if not line.startswith("  "):
            number, _, title = line.partition(": ")
            incident = found[int(number)] = Incident(title)
        elif line.startswith("  plays "):
            incident.fixtures += line.split()[1:]
        elif line.startswith("  cannot come about: "):
            incident.reason = line.partition(": ")[2]
        else:
            incident.tests.append(line.strip())
    return found


INCIDENTS = read_table(TABLE)
NUMBERED = re.compile(r"test_incident_(\d\d_)+")


def own() -> Mapping[int, list[str]]:
    """The tests of this module by the numbers that they bear."""
    found: dict[int, list[str]] = {}
    for bears in filter(None, map(NUMBERED.match, globals())):
        for number in re.findall(r"\d\d", bears[0]):
            found.setdefault(int(number), []).append(bears.string)
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
