"""One client of a streaming service, in a process of its own: `python -m tests.bench.stream_clients WHO URL`.

Prints JSON: the cost from the request to the complete message, without imports.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import time
from typing import Any

import anyio


def _own(provider: str, url: str) -> Any:
    """Return a client that uses the code of thinklsp: it decodes, accumulates and reports the stream to an editor."""
    from thinklsp.core.import_context import reduce_gc

    with reduce_gc():  # As a server does.
        from tests.support import anthropic_samples, openai_samples
        from thinklsp.agent.model_call import AttemptUsage, CallFinished, HttpModelCaller
        from thinklsp.http.retry import RetryPolicy
        from thinklsp.http.transport import Transport
        from thinklsp.jsonrpc.framing import build_frame
        from thinklsp.jsonrpc.writer import FrameWriter
        from thinklsp.lsp.editor.turn_progress import TurnProgress
        from thinklsp.lsp.transport.connection import create_server
        from thinklsp.providers.anthropic import AnthropicAdapter
        from thinklsp.providers.base import Endpoint
        from thinklsp.providers.responses_adapter import OpenAiResponsesAdapter

    by_anthropic = provider == "anthropic"
    adapter = AnthropicAdapter() if by_anthropic else OpenAiResponsesAdapter()
    request = anthropic_samples.PLAIN if by_anthropic else openai_samples.PLAIN
    endpoint = Endpoint(provider, url if by_anthropic else f"{url}/v1", "key")
    server = create_server()  # An editor has started it long before.

    async def run() -> int:
        transport = Transport()
        caller = HttpModelCaller(adapter, endpoint, transport, policy=RetryPolicy(), rng=lambda: 0.5)
        writer = FrameWriter(os.open(os.devnull, os.O_WRONLY), build_frame)
        server.protocol.connect(writer)
        progress = TurnProgress(server.state.client, "chat", "work")
        progress.begin()
        progress.use("partial", "status")
        length = 0
        async for event in caller.stream(request):
            if isinstance(event, CallFinished):
                length = len(event.message.text) + sum(len(str(use.input)) for use in event.message.tool_uses)
            elif not isinstance(event, AttemptUsage):  # The turn adds it up; the editor does not show it.
                progress.show(event)
        progress.end("done")
        writer.close()
        await transport.aclose()
        return length

    return run


def _libraries(url: str) -> Any:
    """Return a client that streams with the libraries of thinklsp alone: the least memory that a server can use."""
    import httpx
    from pydantic import BaseModel, TypeAdapter
    from pygls.lsp.server import LanguageServer

    class Event(BaseModel):
        type: str
        delta: dict[str, Any] = {}

    server, adapter = LanguageServer("libraries", "1"), TypeAdapter(Event)

    async def run() -> int:
        length = 0
        async with (
            httpx.AsyncClient(verify=False) as client,
            client.stream("POST", f"{url}/v1/messages", json={"stream": True}) as response,
        ):
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    length += len(adapter.validate_json(line[6:]).delta.get("text", ""))
        server.shutdown()
        return length

    return run


def _anthropic(url: str) -> Any:
    import anthropic

    async def run() -> int:
        async with anthropic.AsyncAnthropic(base_url=url, api_key="key", max_retries=0) as client:
            tools = [{"name": "edit_file", "description": "Edits.", "input_schema": {"type": "object"}}]
            asked = client.messages.stream(
                model="claude-opus-5-5", max_tokens=1000, messages=[{"role": "user", "content": "Hello"}], tools=tools
            )
            async with asked as stream:
                async for _ in stream:
                    pass
                message = await stream.get_final_message()
        return sum(len(block.text) if block.type == "text" else len(str(block.input)) for block in message.content)

    return run


def _openai(url: str) -> Any:
    import openai

    async def run() -> int:
        async with (
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0) as client,
            client.responses.stream(model="gpt-5.5", input="Hello") as stream,
        ):
            async for _ in stream:
                pass
            message = await stream.get_final_response()
        return len(message.output_text)

    return run


def _peak() -> float:
    """Return the peak memory in MB. `getrusage` would include the peak of the parent process."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM:"))


WHO = {
    "thinklsp-anthropic": lambda url: _own("anthropic", url),
    "thinklsp-openai": lambda url: _own("openai", url),
    "libraries": _libraries,
    "anthropic": _anthropic,
    "openai": _openai,
}


def main() -> None:
    who, url = sys.argv[1:]
    run = WHO[who](url)
    # Load the modules that every client loads with its first request.
    anyio.run(anyio.sleep, 0)
    "localhost".encode("idna")
    gc.collect()
    before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    length = asyncio.run(run())
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"cpu": cpu, "wall": time.perf_counter() - begun, "length": length, "memory": _peak()}))


if __name__ == "__main__":
    main()
