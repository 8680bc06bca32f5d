"""A scenario knows no service: each that comes with the package plays to its end on every one of them, with one result.

Through the engine and real HTTP; only the waiting between tries is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from tests.settings.test_sources import NO_FILE
from tests.stand_ins.http_server import Simulator
from tests.support.scripted_model import connect_to, run_to_end
from tests.support.services import WAYS, Way
from thinklsp.agent.model_call import HttpModelCaller
from thinklsp.agent.prompts import Excerpt, build_action_prompt
from thinklsp.agent.request_fallbacks import NEVER_NOTICE
from thinklsp.cli.demo import make_project
from thinklsp.engine import ChatRequest, Engine, Turn
from thinklsp.engine.connections import build_endpoint, select_adapter
from thinklsp.http.retry import RetryPolicy
from thinklsp.offline.scenario import Pacing, Scenario, list_packaged, load_scenario, parse_scenario
from thinklsp.settings.sources import EditorSettings
from thinklsp.tools.registry import Mode
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import WorkspaceView

# What `fix` asks in the file that the README tells people to try.
TRIED = "    return sum(values) / len(value)  # the name of the parameter AI!"
README = build_action_prompt("fix", Excerpt("stats.py", 2, 2, TRIED, 2))

TOUR_FOLDER = Path(__file__).parents[3] / "editors/vscode/media/tour"


def tour(name: str, file: str, line: str, instruction: str = "") -> str:
    """The prompt of an action at a line of the tour's folder."""
    lines = (TOUR_FOLDER / file).read_text().splitlines()
    number = next(number for number, text in enumerate(lines, 1) if line in text)
    excerpt = Excerpt(file, number, number, lines[number - 1], len(lines))
    return build_action_prompt(name, excerpt, instruction=instruction)


TOUR = [
    tour("fix", "stats.ts", "value.length"),
    tour("edit", "stats.ts", "// Rename", "Rename total to sum in every file."),
    tour("explain", "report.ts", "on average"),
    tour("review", "report.ts", "on average"),
    tour("edit", "stats.ts", "// Make", "Make the limit configurable."),
    build_action_prompt("edit", Excerpt("stats.py", 1, 1, "def mean(values):", 2), instruction="Anything."),
    tour("edit", "report.ts", "export function", "Anything."),
]

# Prompts of one session each, with the mode they are asked in; together they come to every turn of the scenario.
SESSIONS: Mapping[str, Sequence[Sequence[tuple[str, Mode]]]] = {
    "demo": [[("Fix the diagnostic in tests/test_invoice.py.", "agent"), ("Why?", "agent")]],
    "parallel": [[("Look around.", "agent"), ("And again.", "agent")]],
    "refusal": [[("Anything.", "agent"), ("Another thing.", "agent")]],
    "retry": [[("One.", "agent"), ("Two.", "agent"), ("Three.", "agent")]],
    "review": [[("Review this.", "agent"), ("Once more.", "agent")]],
    "sample": [[("What is here?", "agent"), ("And what else?", "plan")], [(README, "agent")]]
    + [[(prompt, "agent")] for prompt in TOUR],
}
# Turns for programs that offer fewer tools; this one always offers all, since a change would spoil caches and thinking.
TOOLLESS = {"review": {2, 3}, "sample": {10}}


# What stands before the text of a failed tool where the service has no other place to say that it failed.
FAILED = "Error: "


@dataclass(frozen=True)
class Ended:
    stop_reason: str
    text: str
    changed: tuple[tuple[str, str | None], ...]


@asynccontextmanager
async def way_to(simulator: Simulator, way: Way) -> AsyncIterator[tuple[Engine, HttpModelCaller]]:
    async def at_once(_seconds: float) -> None:
        await asyncio.sleep(0)

    async with aclosing(Engine(NO_FILE | way.environment(simulator.base_url))) as engine:
        provider: Any = way.provider
        access = await engine.connections.resolve_access(provider)
        assert access is not None
        adapter, endpoint = select_adapter(provider, access), build_endpoint(access)
        yield (
            engine,
            HttpModelCaller(adapter, endpoint, engine.transport, policy=RetryPolicy(), rng=lambda: 0.5, sleep=at_once),
        )


async def play(simulator: Simulator, way: Way, name: str, root: Root) -> list[Ended]:
    ended = []
    async with way_to(simulator, way) as (engine, caller):
        for prompts in SESSIONS[name]:
            session_id = None
            for prompt, mode in prompts:
                turn = await begun(engine, caller, way, prompt, mode, root, session_id)
                session_id = turn.session.id
                ended.append(await finished(turn))
                assert [said for said in turn.output.notices if said != NEVER_NOTICE] == [], way
    return ended


async def begun(
    engine: Engine, caller: HttpModelCaller, way: Way, prompt: str, mode: Mode, root: Root, session_id: str | None
) -> Turn:
    async def connect(_known: object) -> HttpModelCaller:
        return caller

    view = WorkspaceView([root])
    request = ChatRequest(prompt=prompt, mode=mode, view=view, workspace="w", session_id=session_id)
    turn = await engine.start_turn(request, EditorSettings(), {"provider": way.provider, "model": way.model})
    connect_to(turn, connect)
    return turn


async def finished(turn: Turn) -> Ended:
    last = await run_to_end(turn)
    overlay = turn.overlay
    texts = {place.label: overlay.read(place) for place in overlay.list_changed()}
    changed = tuple((shown, found.text if found else None) for shown, found in sorted(texts.items()))
    return Ended(last.stop_reason, turn.output.text.replace(FAILED, ""), changed)


def without_pauses(scenario: Scenario) -> Scenario:
    turns = (
        turn.model_copy(update={"step": tuple(step.model_copy(update={"pacing": Pacing()}) for step in turn.step)})
        for turn in scenario.turn
    )
    return scenario.model_copy(update={"pacing": Pacing(), "turn": tuple(turns)})


@pytest.mark.parametrize("name", list_packaged())
async def test_a_packaged_scenario_plays_to_its_end_on_every_service(name: str, tmp_path: Path) -> None:
    make_project(str(tmp_path))
    (tmp_path / "stats.py").write_text(f"def mean(values):\n{TRIED}\n")
    copytree(TOUR_FOLDER, tmp_path, dirs_exist_ok=True)
    root = Root(str(tmp_path))
    scenario = without_pauses(load_scenario(name))
    steps = {
        f"turn {number}, step {index}"
        for number, turn in enumerate(scenario.turn, 1)
        if number not in TOOLLESS.get(name, ())
        for index in range(1, len(turn.step) + 1)
    }
    results: dict[str, list[Ended]] = {}
    async with AsyncExitStack() as stack:
        for service, way in WAYS.items():
            simulator = await stack.enter_async_context(Simulator(scenario))
            results[service] = await play(simulator, way, name, root)
            played = {request.played for request in simulator.requests if request.method == "POST"}
            # A server that takes no thinking back says so once, to a request that then plays nothing.
            assert played - {None} == steps, service
            refused = [request for request in simulator.requests if request.played is None and request.method == "POST"]
            assert len(refused) <= way.learned, service
    first = results["anthropic"]
    assert {service: result for service, result in results.items() if result != first} == {}
    assert all(one.text for one in first if one.stop_reason != "refusal")
    assert any(one.changed for one in first) is (name in ("demo", "review", "sample"))
    if name == "sample":
        mended = "def mean(values):\n    return sum(values) / len(values)\n"
        assert first[2].changed == (("stats.py", mended),)
        files = [[name for name, _ in one.changed] for one in first[3:]]
        assert files == [["stats.ts"], ["report.ts", "stats.ts"], [], [], ["stats.ts"], ["stats.py"], ["report.ts"]]
        assert "# thinklsp offline: Anything.\ndef mean" in str(first[-2].changed[0][1])
        assert "// thinklsp offline: Anything.\nexport function report" in str(first[-1].changed[0][1])


THOUGHTFUL = """
[[turn]]
when = "Begin"
[[turn.step]]
block = [{ tool = "list_files" }]
[[turn.step]]
block = [{ thinking = "That is all." }]
[[turn]]
when = "held only thinking"
[[turn.step]]
block = [{ text = "So it is." }]
"""


async def test_row_33_empty_answer_after_results_is_retried_once(tmp_path: Path) -> None:
    make_project(str(tmp_path))
    for service, way in WAYS.items():
        async with (
            Simulator(parse_scenario(THOUGHTFUL, "thoughtful")) as simulator,
            way_to(simulator, way) as (engine, caller),
        ):
            turn = await begun(engine, caller, way, "Begin.", "agent", Root(str(tmp_path)), None)
            assert await finished(turn) == Ended("end_turn", "So it is.", ()), service
            played = [request.played for request in simulator.requests if request.played]
            assert played == ["turn 1, step 1", "turn 1, step 2", "turn 2, step 1"], service
