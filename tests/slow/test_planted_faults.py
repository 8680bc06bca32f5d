"""Servers with a planted fault: what fuzzes messages, frames and whole sessions finds each, and nothing without one."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.slow.running import planted, running
from tests.slow.session_world import World
from tests.slow.test_bad_inputs import through_the_table
from tests.slow.test_fuzz import mutated_frames, mutated_messages
from tests.slow.test_whole_sessions import random_sessions
from tests.support.outside import own_server
from tests.support.signing_server import Text, answer
from tests.support.sizes import some

PATIENCE = 5.0
SEED = 7
MESSAGES = {
    "drops replies": "not seen within",
    "replies twice": "answered otherwise",
    "pops up": "shown to the user",
    "dies of a message": "has gone",
    "tells its insides": "Traceback",
    "grows": r"^\d+ MB",
}
FRAMES = {
    "dies of a header": "left with code 3",
    "leaves slowly": "took .* to leave",
    "grows deaf": "not seen within",
    "replies twice": "answered otherwise",
}
ROWS = ("replies twice", "pops up", "tells its insides")
SESSIONS = {
    "edits otherwise": "x = ",
    "misses a change": r"Side\(first=",
    "seals otherwise": "blocks",
    "ends twice": "'end' while ended",
    "writes to the log": "Traceback",
    "forgets sessions": "lost",
}
FOUND = (AssertionError, TimeoutError)


async def messages(place: Path, fault: str) -> None:
    answers = [answer(Text("Done."))] * 100
    async with running(place, *answers, files={"a.py": "x = 1\n"}, finish=False, env=planted(fault)) as outside:
        await mutated_messages(outside, "quiet", Random(SEED), 400, patience=PATIENCE)


async def frames(place: Path, fault: str) -> None:
    left = list(range(400))
    for number in range(10):
        async with running(place / str(number), finish=False, env=planted(fault)) as outside:
            await outside.client.command("thinklsp.cancel")
            await mutated_frames(outside, Random(SEED + number), left, 400, patience=PATIENCE)
        if not left:
            return


async def a_session(place: Path, fault: str) -> None:
    """Play a session that covers everything."""
    world = await World.begin(place, own_server, "utf-16", "all", planted(fault))
    try:
        for kind in ("read", "edit", "read", "edit", "say"):
            world.files.type("a.py", 0.5, 0, "🙂 word\n")
            plan = world.plan(kind, "a.py", hold=False)
            await world.starts(plan, "thinklsp.chat", {"prompt": plan.prompt} | world.session("last"))
            world.check()
        await world.sends(world.plan("say", "a.py", hold=False), "/effort low")
        await world.restarts(kill=True)
        await world.looks_after("compact", "known")
        await world.finish()
    finally:
        await world.outside.stop()


@pytest.mark.timing
@pytest.mark.parametrize("fault", some(MESSAGES, commit=2))
async def test_a_fault_with_messages_is_found(tmp_path: Path, fault: str) -> None:
    with pytest.raises(FOUND, match=MESSAGES[fault]):
        await messages(tmp_path, fault)


@pytest.mark.timing
@pytest.mark.parametrize("fault", some(FRAMES, commit=1))
async def test_a_fault_with_frames_is_found(tmp_path: Path, fault: str) -> None:
    with pytest.raises(FOUND, match=FRAMES[fault]):
        await frames(tmp_path, fault)


@pytest.mark.parametrize("fault", some(ROWS, commit=1))
async def test_a_fault_with_bad_inputs_is_found(tmp_path: Path, fault: str) -> None:
    with pytest.raises(AssertionError):
        await through_the_table(tmp_path, planted(fault))


@pytest.mark.parametrize("fault", some(SESSIONS, commit=2))
async def test_a_fault_of_a_session_is_found(tmp_path: Path, fault: str) -> None:
    with pytest.raises(FOUND, match=SESSIONS[fault]):
        await a_session(tmp_path, fault)


def test_random_sessions_find_a_fault(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=SESSIONS["ends twice"]):
        random_sessions(tmp_path, own_server, 10, planted("ends twice"))


@pytest.mark.timing
@pytest.mark.parametrize("course", [messages, frames, a_session], ids=lambda course: course.__name__)
async def test_without_a_fault_nothing_is_found(tmp_path: Path, course: object) -> None:
    assert callable(course)
    await course(tmp_path, "")
