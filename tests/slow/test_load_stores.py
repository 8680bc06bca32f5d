"""Load: a store of hundreds of sessions with a huge one among them, and a workspace of a hundred thousand files."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.bench.store_rows import filled, opened
from tests.slow.running import SLACK, Tally, planted, running, say
from tests.slow.test_load import ECHO, echoes, share, told, too_slow
from tests.support.epilogue import gauge
from tests.support.outside import Json, Outside
from tests.support.signing_server import Text, Thinking, answer, tool
from tests.support.sizes import sized, tries
from thinklsp.workspace.paths import compute_workspace_key

pytestmark = pytest.mark.timing
FILES = sized(commit=8_000, nightly=100_000)
_RARE = 1_000


async def timed(work: Any) -> tuple[float, Any]:
    at = time.perf_counter()
    result = await work
    return (time.perf_counter() - at) * 1000, result


async def test_a_store_of_many_sessions(tmp_path: Path, tally: Tally) -> None:
    """A-L3: initialize in a second, resume in half a second, list in 50 ms."""
    sessions, steps = sized(commit=60, nightly=200), sized(commit=1_000, nightly=5_000)
    async with running(tmp_path) as outside:
        assert await outside.client.close() == 0
        key = compute_workspace_key(outside.root.as_uri())
        large = await filled(outside.home, key, sessions=sessions, steps=steps)
        begun, _ = await timed(outside.reopen())
        first, _ = await timed(outside.client.command("thinklsp.sessions"))
        listing, listed = await timed(outside.client.command("thinklsp.sessions"))
        assert len(listed) == sessions
        size = next(each["size"] for each in listed if each["sessionId"] == large)
        store = opened(outside.home)
        resuming, session = await timed(store.get(large, key))
        await store.aclose()
        assert len(session.conversation) > 2 * steps
    said = f"{sessions} sessions, one of {2 * steps} messages and {size / 1e6:.0f} MB: initialize {begun:.0f} ms, "
    say(f"{said}list {first:.0f} and then {listing:.0f} ms, resume {resuming:.0f} ms")
    assert begun < SLACK * 1000
    assert listing < SLACK * 50
    assert resuming < SLACK * 500
    tally("A-30", 1)


@pytest.fixture(scope="module")
def large_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a workspace that a test moves into."""
    root = tmp_path_factory.mktemp("large") / "many"
    words, random = ["alpha", "beta", "gamma", "delta"], Random(1)
    for number in range(FILES):
        folder = root / f"d{number // 200}"
        if number % 200 == 0:
            folder.mkdir(parents=True)
        rare = "needle = 1\n" if number % _RARE == 0 else ""
        (folder / f"f{number}.py").write_text(f"{random.choice(words)} = {number}\n{rare}", "utf-8")
    return root


LOOKS = [
    tool("list_files"), tool("list_files", glob="**/f1*.py"), tool("search_text", pattern="needle"),
    tool("search_text", pattern="alpha|beta"), tool("search_text", pattern="(a+)+$"),
]  # fmt: skip


async def test_a_workspace_of_many_files(tmp_path: Path, large_workspace: Path, tally: Tally) -> None:
    async with running(tmp_path) as outside:
        await _moved_in(outside, large_workspace)
        await _turn(outside, [tool("list_files", path=".")])
        before = gauge(outside.client.process.pid)
        took: dict[str, float] = {}
        for look in LOOKS:
            took[f"{look.name} {look.input}"], result = await timed(_turn(outside, [look]))
            assert result["text"] == "Done."
        after = gauge(outside.client.process.pid)
    times = ", ".join(f"{name} {milliseconds / 1000:.1f} s" for name, milliseconds in took.items())
    say(f"{FILES} files: {times}; {after.private - before.private:+.1f} MB")
    assert max(took.values()) < 1000 * (10 + 2 * SLACK)
    assert after.private - before.private < 50
    tally("A-30", 1)


async def _moved_in(outside: Outside, root: Path) -> None:
    event = {"added": [{"uri": root.as_uri(), "name": "many"}], "removed": []}
    outside.client.notify("workspace/didChangeWorkspaceFolders", {"event": event})
    await outside.client.command("thinklsp.effort")


async def _turn(outside: Outside, looks: list[Any]) -> Json:
    provider: Any = outside.provider
    provider.say(answer(Thinking(), *looks), answer(Text("Done.")))
    request = outside.client.command("thinklsp.chat", {"prompt": "Look."}, token=outside.token())
    await outside.client.wait_for(lambda: request.answered, within=120, what="the end of a look")
    return await request


async def busy(place: Path, root: Path, wanted: int, figure: str = "p99", plant: str = "") -> tuple[list[str], str]:
    """Return the figures of the echoes that are too slow, and a summary, while eight turns search a large workspace."""
    async with running(place, env=planted(plant)) as outside:
        provider: Any = outside.provider
        await _moved_in(outside, root)
        await _turn(outside, [tool("list_files", path=".")])
        before = gauge(outside.client.process.pid)
        values: list[float] = []
        looks = [tool("list_files", glob=f"**/f{n}*.py") for n in range(6)]

        def play(body: Json) -> Any:
            done = body["messages"][-1]["content"][0]["type"] == "tool_result"
            return answer(Text("Done.")) if done else answer(Thinking(), *looks)

        while len(values) < wanted:
            provider.script[:] = [play] * 16
            turns = [
                outside.client.command("thinklsp.chat", {"prompt": "Look."}, token=outside.token()) for _ in range(8)
            ]
            values += await echoes(outside.client, turns)
            assert {(await turn)["text"] for turn in turns} == {"Done."}
        got = share(before, gauge(outside.client.process.pid))
    said = (
        f"{len(values)} echoes while 8 turns look through {FILES} files: {told(values)} ms, {got:.0f} % of a processor"
    )
    return too_slow(values, {figure: ECHO[figure]}), said


async def test_an_echo_while_all_workers_are_busy(tmp_path: Path, large_workspace: Path, tally: Tally) -> None:
    wanted = tries("A-12")
    slow, said = await busy(tmp_path, large_workspace, wanted)
    say(said)
    assert slow == [], said
    tally("A-12", wanted)


async def test_a_loop_that_stands_still_is_noticed(tmp_path: Path, large_workspace: Path) -> None:
    # The loop stops once, which the p99 of many echoes would hide.
    slow, said = await busy(tmp_path, large_workspace, 50, "max", "stuck loop")
    assert slow, said
