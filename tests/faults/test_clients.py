"""Editors that are silent, wrong, deaf or gone, and what becomes of the edits and questions that they were asked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.epilogue import check_answers, clock, faulty
from tests.support.outside import statuses
from tests.support.raw_client import RawClient, ResponseError
from tests.support.raw_editor import capabilities
from tests.support.raw_wires import Ear
from tests.support.signing_script import Hold, Text, Thinking, answer, tool
from tests.support.watching import seen

Json = Any
FILES = {"a.py": "x = 1\n", "b.py": "y = 1\n"}
EDIT = answer(Thinking(), tool("edit_file", path="a.py", old_text="1", new_text="2"))
DONE = answer(Thinking(), Text("Done."))


def silent(client: RawClient, method: str) -> asyncio.Event:
    """The editor never answers this; the event tells that it was asked."""
    asked = asyncio.Event()

    async def wait(_: Json) -> Json:
        asked.set()
        await asyncio.Event().wait()

    client.editor.handlers[method] = wait
    return asked


async def test_an_edit_that_is_never_answered(tmp_path: Path) -> None:
    """F-26: it waits for the user, who may look at it for long; a cancel ends it and what became of it is unknown."""
    async with faulty(tmp_path, EDIT, DONE, files=FILES, env=clock(100)) as outside:
        client = outside.client
        uri = outside.open("a.py")
        asked = silent(client, "workspace/applyEdit")
        turn = client.command("thinklsp.action", {"name": "edit", "uri": uri, "instruction": "Go."}, token="t")
        await asked.wait()
        await client.wait_for(lambda: any("applying" in str(value) for value in client.progress("t")))
        told = len(client.progress("t"))
        # More than a minute of the server's time.
        await client.wait_for(lambda: len(client.progress("t")) > told + 35)
        assert not turn.answered
        await client.command("thinklsp.cancel")
        result = await turn
        assert (result["stopReason"], statuses(result)) == ("cancelled", {"a.py": "unknown"})
        assert client.edits()[1:] == []


async def test_a_configuration_that_is_never_told(tmp_path: Path) -> None:
    """F-26: after 10 s the defaults count."""
    async with faulty(tmp_path, DONE, env=clock(30), initialize=False) as outside:
        silent(outside.client, "workspace/configuration")
        await outside.client.initialize(outside.root, options={"model": "claude-opus-5-5"})
        assert (await outside.turn("thinklsp.chat", {"prompt": "x"}))["text"] == "Done."


async def test_a_question_that_is_never_answered(tmp_path: Path) -> None:
    """F-26: 120 s, and then no."""
    question = answer(Thinking(), tool("ask_user", question="May I?", options=["yes", "no"]))
    async with faulty(tmp_path, question, DONE, env=clock(60)) as outside:
        asked = silent(outside.client, "window/showMessageRequest")
        assert (await outside.turn("thinklsp.chat", {"prompt": "x"}))["text"] == "Done."
        assert asked.is_set()
        provider: Any = outside.provider
        [result] = provider.requests[-1].tool_results()
        assert result["is_error"]


WRONG: dict[str, Json] = {
    "an error": {"error": {"code": -32603, "message": "boom"}},
    "nothing": {"result": None},
    "a number": {"result": 7},
    "a list": {"result": [True]},
    "a text for a truth": {"result": {"applied": "true"}},
}


async def test_answers_of_the_wrong_kind(tmp_path: Path) -> None:
    """F-27, F-31: none of them is a yes; the edit is kept for `apply`, and nothing is sent twice."""
    async with faulty(tmp_path, files=FILES) as outside:
        client, provider = outside.pair
        uri = outside.open("a.py")
        right = client.editor.answer
        for name, wrong in WRONG.items():

            async def reply(method: str, params: Json, wrong: Json = wrong) -> Json:
                return wrong if method == "workspace/applyEdit" else await right(method, params)

            client.editor.answer = reply  # type: ignore[method-assign] # this is the fault
            provider.say(EDIT, DONE)
            sent = len(client.edits())
            result = await outside.edit(uri)
            assert statuses(result)["a.py"] in {"refused", "unknown"}, (name, result["edits"])
            assert client.text(uri) == "x = 1\n"
            assert len(client.edits()) == sent + 1
        await check_answers(outside)


async def test_answers_that_come_twice_and_to_nobody(tmp_path: Path) -> None:
    """F-27: only the first one counts, and what answers nothing is passed over."""
    async with faulty(tmp_path, EDIT, DONE, files=FILES) as outside:
        client = outside.client
        uri = outside.open("a.py")
        right = client.editor.answer

        async def twice(method: str, params: Json) -> Json:
            made = await right(method, params)
            if method == "workspace/applyEdit":
                number = client.calls(method)[-1].message["id"]
                for identity in (number, number, "nobody", 99_999, None):
                    client.wire.write(
                        b'{"jsonrpc":"2.0","id":%s,"result":{"applied":true}}' % json.dumps(identity).encode()
                    )
            return made

        client.editor.answer = twice  # type: ignore[method-assign] # this is the fault
        assert statuses(await outside.edit(uri)) == {"a.py": "applied"}
        assert client.text(uri) == "x = 2\n"
        assert len(client.edits()) == 1


async def test_cancel_while_the_editor_is_asked(tmp_path: Path) -> None:
    """F-29: both end, and the late answer changes nothing."""
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
    """F-30"""
    announce = capabilities(window__workDoneProgress=False) if kind == "not announced" else None
    async with faulty(tmp_path, DONE, announce=announce) as outside:
        client = outside.client
        right = client.editor.answer

        async def refuse(method: str, params: Json) -> Json:
            if method == "window/workDoneProgress/create":
                return {"error": {"code": -32601, "message": "no"}}
            return await right(method, params)

        client.editor.answer = refuse  # type: ignore[method-assign] # this is the fault
        started = await client.command("thinklsp.chat", {"prompt": "x"})
        assert set(started) == {"turnId", "sessionId"}
        await client.wait_for(lambda: any("Done." in (d.text or "") for d in client.desk.open.values()), what="answer")
        assert client.calls("$/progress") == []


async def test_an_editor_that_formats_what_it_saves(tmp_path: Path) -> None:
    """F-33: it says applied, and the text is another one; the next turn reads what is there."""
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
        provider: Any = outside.provider
        assert "# formatted" in str(provider.requests[-1].tool_results())
        assert client.text(uri) == "x  =  2\n# formatted\n"


async def test_an_editor_that_does_not_read(tmp_path: Path) -> None:
    """F-28, H-F6: with more than 64 MiB waiting it is given up: exit code 1."""
    streams = Hold()
    # Each piece of this goes out as a partial result of its own, so much waits.
    long = answer(Text("y" * 2_000_000), streams, *[Text("z" * 2_000_000) for _ in range(36)], letters=400_000)
    async with faulty(tmp_path, long, code=1) as outside:
        client = outside.client
        ear = Ear(client.wire)
        client.command("thinklsp.chat", {"prompt": "x", "partialResultToken": "p"}, token="t")
        await streams.reached.wait()
        ear.open.clear()
        streams.release()
        # It ends by itself although nobody reads.
        await seen(lambda: client.process.returncode is not None, within=30, what="the end of the server")
        ear.open.set()
        # The bytes that were on their way break off in the middle, and the turn has no answer.
        await client.gone()
        client.checker.violations.clear()
