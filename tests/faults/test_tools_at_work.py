"""Models that call tools as no model should, and files that are not what they were when they were read."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.epilogue import faulty
from tests.support.outside import Json, Outside, statuses
from tests.support.signing_server import Hold, Text, Thinking, Tool, answer, tool

DONE = answer(Thinking(), Text("Done."))


async def play(outside: Outside, *calls: Tool) -> list[Json]:
    """Return the results of these calls, after which the turn must end well."""
    outside.provider.say(answer(Thinking(), *calls, letters=50), DONE)
    assert (await outside.turn("thinklsp.chat", {"prompt": "x"}))["text"] == "Done."
    results: list[Json] = outside.provider.requests[-1].tool_results()
    return results


async def test_calls_that_make_no_sense(tmp_path: Path) -> None:
    calls = [
        Tool("launch_rockets", {"at": "noon"}), Tool("read_file", {}), Tool("read_file", {"path": 7}),
        Tool("read_file", {"path": "a.py", "sudo": True}), Tool("read_file", {"path": "../../etc/passwd"}),
        Tool("edit_file", {"path": "a.py", "old_text": "nowhere", "new_text": "x"}),
        Tool("search_text", {"pattern": "("}), Tool("read_file", {"path": "a\u0000b"}),
    ]  # fmt: skip
    async with faulty(tmp_path, files={"a.py": "x = 1\n"}) as outside:
        results = await play(outside, *calls)
        assert [result.get("is_error") for result in results] == [True] * len(calls)


async def test_a_thousand_calls_in_one_message(tmp_path: Path) -> None:
    calls = [tool("read_file", path="a.py") for _ in range(1_000)]
    async with faulty(tmp_path, files={"a.py": "x = 1\n" * 50}) as outside:
        assert len(await play(outside, *calls)) == 1_000


async def test_the_same_call_for_ever(tmp_path: Path) -> None:
    again = [answer(Thinking(), tool("read_file", path="a.py")) for _ in range(40)]
    async with faulty(tmp_path, *again, files={"a.py": "x = 1\n"}) as outside:
        result = await outside.turn("thinklsp.chat", {"prompt": "x"})
        assert (result["stopReason"], len(outside.provider.requests)) == ("max_steps", 32)
        outside.provider.script[:] = [DONE]
        more = await outside.turn("thinklsp.chat", {"prompt": "And?", "sessionId": result["sessionId"]})
        assert more["text"] == "Done."


async def test_files_that_would_hang_or_flood(tmp_path: Path) -> None:
    calls = [
        tool("read_file", path="pipe"), tool("read_file", path="huge.txt"), tool("search_text", pattern="(x+x+)+y"),
        tool("list_files"), tool("read_file", path="zero"),
    ]  # fmt: skip
    async with faulty(tmp_path) as outside:
        os.mkfifo(outside.root / "pipe")
        (outside.root / "zero").symlink_to("/dev/zero")
        with (outside.root / "huge.txt").open("wb") as file:
            file.write(b"x" * 100_000_000)
        results = await play(outside, *calls)
        assert [bool(result.get("is_error")) for result in results] == [True, True, False, False, True]
        assert sum(len(str(result["content"])) for result in results) < 200_000


async def test_two_edits_of_one_file_in_one_message(tmp_path: Path) -> None:
    first = tool("edit_file", path="a.py", old_text="x = 1", new_text="x = 2")
    second = tool("edit_file", path="a.py", old_text="x = 2", new_text="x = 3")
    async with faulty(tmp_path, answer(Thinking(), first, second), DONE, files={"a.py": "x = 1\n"}) as outside:
        uri = outside.open("a.py")
        await outside.edit(uri)
        assert (outside.client.text(uri), len(outside.client.edits())) == ("x = 3\n", 1)


async def test_files_that_go_while_the_model_thinks(tmp_path: Path) -> None:
    hold = Hold()
    files = dict.fromkeys(("deleted.py", "renamed.py", "closed.py"), "x = 1\n")
    reads = [tool("read_file", path=name) for name in files]
    edits = [tool("edit_file", path=name, old_text="1", new_text="2") for name in files]
    script = answer(Thinking(), *reads), answer(Thinking(), *edits), answer(Thinking(), hold, Text("Done."))
    async with faulty(tmp_path, *script, files=files) as outside:
        client = outside.client
        closed = outside.open("closed.py")
        turn = client.command("thinklsp.chat", {"prompt": "x"}, token="t")
        await hold.reached.wait()
        (outside.root / "deleted.py").unlink()
        (outside.root / "renamed.py").rename(outside.root / "other.py")
        client.close_document(closed)
        hold.release()
        result = await outside.result(turn)
        told = statuses(result)
        assert told["closed.py"] == "applied"
        assert {told["deleted.py"], told["renamed.py"]} <= {"conflict", "refused"}
        assert sorted(path.name for path in outside.root.iterdir()) == ["closed.py", "other.py"]
        assert (outside.root / "closed.py").read_text() == "x = 2\n"
