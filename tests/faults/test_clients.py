"""Editors that are silent, wrong, deaf or gone, and what becomes of the edits and questions that they were asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.client.actions import ResponseError
from tests.support.client.editor import Refusal, capabilities
from tests.support.client.raw import Ear, RawClient
from tests.support.epilogue import check_answers, clock, faulty
from tests.support.outside import Json, statuses
from tests.support.signing_server import Hold, Text, Thinking, answer, tool
from tests.support.watching import seen

FILES = {"a.py": "x = 1\n", "b.py": "y = 1\n"}
EDIT = answer(Thinking(), tool("edit_file", path="a.py", old_text="1", new_text="2"))
DONE = answer(Thinking(), Text("Done."))


def silent(client: RawClient, method: str) -> asyncio.Event:
    asked = asyncio.Event()

    async def wait(_: Json) -> Json:
        asked.set()
        await asyncio.Event().wait()

    client.editor.handlers[method] = wait
    return asked


@pytest.mark.timing
async def test_an_edit_that_is_never_answered(tmp_path: Path) -> None:
    """The server waits longer than a minute for the user. After a cancel the outcome is unknown."""
    async with faulty(tmp_path, EDIT, DONE, files=FILES, env=clock(100)) as outside:
        client = outside.client
        uri = outside.open("a.py")
        asked = silent(client, "workspace/applyEdit")
        turn = client.command("thinklsp.action", {"name": "edit", "uri": uri, "instruction": "Go."}, token="t")
        await asked.wait()
        await client.wait_for(lambda: any("applying" in str(value) for value in client.progress("t")))
        told = len(client.progress("t"))
        await client.wait_for(lambda: len(client.progress("t")) > told + 35)
        assert not turn.answered
        await client.command("thinklsp.cancel")
        result = await turn
        assert (result["stopReason"], statuses(result)) == ("cancelled", {"a.py": "unknown"})
        assert client.edits()[1:] == []


@pytest.mark.timing
async def test_a_configuration_that_is_never_told(tmp_path: Path) -> None:
    """The server uses its defaults after 10 seconds."""
    async with faulty(tmp_path, DONE, env=clock(30), initialize=False) as outside:
        silent(outside.client, "workspace/configuration")
        await outside.client.initialize(outside.root, options={"model": "claude-opus-5-5"})
        assert (await outside.turn("thinklsp.chat", {"prompt": "x"}))["text"] == "Done."


@pytest.mark.timing
async def test_a_question_that_is_never_answered(tmp_path: Path) -> None:
    """The answer is no after 120 seconds."""
    question = answer(Thinking(), tool("ask_user", question="May I?", options=["yes", "no"]))
    async with faulty(tmp_path, question, DONE, env=clock(60)) as outside:
        asked = silent(outside.client, "window/showMessageRequest")
        assert (await outside.turn("thinklsp.chat", {"prompt": "x"}))["text"] == "Done."
        assert asked.is_set()
        [result] = outside.provider.requests[-1].tool_results()
        assert result["is_error"]


def refuse(_: Json) -> Json:
    raise Refusal("no")


WRONG: dict[str, Callable[[Json], Json]] = {
    "an error": refuse,
    "nothing": lambda _: None,
    "a number": lambda _: 7,
    "a list": lambda _: [True],
    "a text for a truth": lambda _: {"applied": "true"},
}


async def test_answers_of_the_wrong_kind(tmp_path: Path) -> None:
    """The server takes none of them as a yes, keeps the edit for `apply`, and sends nothing twice."""
    async with faulty(tmp_path, files=FILES) as outside:
        client, provider = outside.pair
        uri = outside.open("a.py")
        for name, wrong in WRONG.items():
            client.editor.handlers["workspace/applyEdit"] = wrong
            provider.say(EDIT, DONE)
            sent = len(client.edits())
            result = await outside.edit(uri)
            assert statuses(result)["a.py"] in {"refused", "unknown"}, (name, result["edits"])
            assert client.text(uri) == "x = 1\n"
            assert len(client.edits()) == sent + 1
        await check_answers(outside)


async def test_answers_that_come_twice_and_to_nobody(tmp_path: Path) -> None:
    async with faulty(tmp_path, EDIT, DONE, files=FILES) as outside:
        client = outside.client
        uri = outside.open("a.py")

        def answer_twice(params: Json) -> Json:
            number = client.calls("workspace/applyEdit")[-1].message["id"]
            made = client.editor.apply_edit(params)
            for identity in (number, number, "nobody", 99_999, None):
                message = {"jsonrpc": "2.0", "id": identity, "result": {"applied": True}}
                client.wire.write(json.dumps(message).encode())
            return made

        client.editor.handlers["workspace/applyEdit"] = answer_twice
        assert statuses(await outside.edit(uri)) == {"a.py": "applied"}
        assert client.text(uri) == "x = 2\n"
        assert len(client.edits()) == 1


async def test_cancel_while_the_editor_is_asked(tmp_path: Path) -> None:
    question = answer(Thinking(), tool("ask_user", question="May I?", options=["yes"]))
    async with faulty(tmp_path, question) as outside:
        client = outside.client
        late, asked = asyncio.Event(), asyncio.Event()

        async def answer_late(_: Json) -> Json:
            asked.set()
            await late.wait()
            return {"title": "yes"}

        client.editor.handlers["window/showMessageRequest"] = answer_late
        turn = client.command("thinklsp.chat", {"prompt": "x"}, token="t")
        await asked.wait()
        client.cancel(turn)
        with pytest.raises(ResponseError) as cancelled:
            await turn
        assert cancelled.value.code == -32800
        late.set()
        await check_answers(outside)


@pytest.mark.parametrize("kind", ["refused", "not announced"])
async def test_no_progress(tmp_path: Path, kind: str) -> None:
    announce = capabilities(window__workDoneProgress=False) if kind == "not announced" else None
    async with faulty(tmp_path, DONE, announce=announce) as outside:
        client = outside.client
        client.editor.handlers["window/workDoneProgress/create"] = refuse
        started = await client.command("thinklsp.chat", {"prompt": "x"})
        assert set(started) == {"turnId", "sessionId"}
        await client.wait_for(lambda: any("Done." in (d.text or "") for d in client.desk.open.values()), what="answer")
        assert client.calls("$/progress") == []


async def test_an_editor_that_formats_what_it_saves(tmp_path: Path) -> None:
    """The editor reports the edit as applied, but the text differs. The next turn reads the real text."""
    look = answer(Thinking(), tool("read_file", path="a.py"))
    async with faulty(tmp_path, EDIT, DONE, look, DONE, files=FILES) as outside:
        client = outside.client
        uri = outside.open("a.py")

        def formatted(params: Json) -> Json:
            made = client.editor.apply_edit(params)
            client.change(uri, "x = 2\n", "x  =  2\n# formatted\n")
            return made

        client.editor.handlers["workspace/applyEdit"] = formatted
        result = await outside.edit(uri)
        assert statuses(result)["a.py"] in {"applied", "unknown"}
        await outside.turn("thinklsp.chat", {"prompt": "Read it.", "sessionId": result["sessionId"]})
        assert "# formatted" in str(outside.provider.requests[-1].tool_results())
        assert client.text(uri) == "x  =  2\n# formatted\n"


async def test_an_editor_that_does_not_read(tmp_path: Path) -> None:
    """H-F6: the server exits with code 1 when more than 64 MiB wait for the editor."""
    streams = Hold()
    # Each piece becomes a partial result of its own, so that much waits.
    long = answer(Text("y" * 2_000_000), streams, *[Text("z" * 2_000_000) for _ in range(36)], letters=400_000)
    async with faulty(tmp_path, long, code=1) as outside:
        client = outside.client
        ear = Ear(client.wire)
        client.command("thinklsp.chat", {"prompt": "x", "partialResultToken": "p"}, token="t")
        await streams.reached.wait()
        ear.open.clear()
        streams.release()
        await seen(lambda: client.process.returncode is not None, within=60, what="the end of the server")
        ear.open.set()
        # The last message breaks off in the middle, and the turn has no answer.
        await client.gone()
        client.checker.violations.clear()
