"""What tests do again and again: begin with an open document, reach a moment of a turn, be refused, write a prompt."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.client.actions import Request, ResponseError
from tests.support.outside import Outside
from tests.support.signing_server import Answer, Hold, Text, Tool, answer, tool

Opened = tuple[Outside, Any, str]


def say(text: str) -> Answer:
    return answer(Text(text))


def read_file(path: str) -> Tool:
    return tool("read_file", path=path)


def edit_file(path: str, old: str, new: str) -> Tool:
    return tool("edit_file", path=path, old_text=old, new_text=new)


def write_file(path: str, content: str) -> Tool:
    return tool("write_file", path=path, content=content)


def read_before(*calls: Tool) -> list[Answer]:
    """Return the step in which the model reads the files that these calls delete."""
    paths = [str(call.input["path"]) for call in calls if call.name == "delete_file"]
    return [answer(*map(read_file, paths))] if paths else []


async def begin_talk(begin: Begin, text: str, *script: Any, name: str = "notes.chat.md", **how: Any) -> Opened:
    """Begin with a chat document that only the editor has."""
    outside = await begin(*script, **how)
    return outside, outside.client, outside.open(name, text)


async def begin_file(begin: Begin, text: str, *script: Any, name: str = "a.py", **how: Any) -> Opened:
    """Begin with a file that is open."""
    files = {name: text} | how.pop("files", {})
    outside = await begin(*script, files=files, **how)
    return outside, outside.client, outside.open(name)


def start_chat(outside: Outside, prompt: str, *, token: str | None = None, **argument: Any) -> Request:
    """Send a prompt. Without a token it is answered at once."""
    request: Request = outside.client.command("thinklsp.chat", {"prompt": prompt} | argument, token=token)
    return request


async def chat(outside: Outside, prompt: str, *, token: str | None = None, **argument: Any) -> Any:
    return await outside.turn("thinklsp.chat", {"prompt": prompt} | argument, token=token)


async def reach(hold: Hold, request: Request) -> Request:
    """Return the request of a turn when its answer has come to the hold."""
    await hold.reached.wait()
    return request


async def release(hold: Hold, outside: Outside, turn: Request) -> Any:
    """Let a turn go on from the hold to its end; return its result."""
    hold.release()
    return await outside.result(turn)


async def never_answer(_: Any) -> Any:
    """The handler of an editor."""
    await asyncio.Event().wait()


async def stop_waiting(outside: Outside, turn: Request, token: str) -> Any:
    """Stop a turn in its progress when that says that it waits for the user; return its result."""
    client = outside.client
    await client.wait_for(lambda: "waiting for you" in str(client.progress(token)), what="the report of the wait")
    client.stop(token)
    result = await outside.result(turn)
    assert result["stopReason"] == "cancelled"
    return result


WAYS = ("request", "progress", "command")


async def cancel(outside: Outside, way: str, turn: Request, token: str) -> Any:
    """Cancel a turn in one of the ways; return its result, None where the request itself was cancelled."""
    client, ids = outside.client, []
    if way == "request":
        client.cancel(turn)
        await refused(turn, -32800)
        return None
    if way == "progress":
        client.stop(token)
    else:
        ids = (await client.command("thinklsp.cancel"))["cancelled"]
        assert len(ids) == 1
    result = await turn
    assert client.progress(token)[-1]["message"].startswith("cancelled")
    assert ids in ([], [result.get("turnId", *ids)])
    return result


def sum_usage(requests: list[Any]) -> dict[str, int]:
    """What the provider reported for these requests, in the words of a TurnResult."""

    def total(*kinds: str) -> int:
        return sum(request.usage[kind] for request in requests for kind in kinds)

    return {
        "inputTokens": total("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
        "outputTokens": total("output_tokens"),
        "thinkingTokens": total("thinking_tokens"),
        "cacheReadTokens": total("cache_read_input_tokens"),
        "cacheWriteTokens": total("cache_creation_input_tokens"),
    }


def read_choices(outside: Outside) -> tuple[Any, Any]:
    """Return thinking and effort of the newest request, as the provider sees them."""
    body = outside.provider.requests[-1].body
    thinking = {name: value for name, value in body.get("thinking", {}).items() if name != "display"}
    return thinking, body.get("output_config", {}).get("effort")


async def refused(request: Awaitable[Any], code: int = -32803, match: str | None = None) -> str:
    """Return the sentence with which a request is refused."""
    with pytest.raises(ResponseError, match=match) as error:
        await request
    assert error.value.code == code
    return error.value.message


def write_prompt(outside: Outside, uri: str, text: str) -> None:
    """The user writes into the empty prompt at the end."""
    document = outside.client.desk.open[uri].text
    assert document.endswith("## You\n\n")
    outside.client.change(uri, "## You\n\n", f"## You\n\n{text}", nth=document.count("## You\n\n") - 1)


async def send(outside: Outside, uri: str) -> Any:
    return await outside.turn("thinklsp.send", {"uri": uri})


def start_over(outside: Outside, files: dict[str, str]) -> None:
    """Close all documents, and leave only these files in the workspace."""
    for uri in list(outside.client.desk.open):
        outside.client.close_document(uri)
    for path in outside.root.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    for name, text in files.items():
        (outside.root / name).parent.mkdir(parents=True, exist_ok=True)
        (outside.root / name).write_bytes(text.encode())
