"""The comparison of one recorded answer: what the vendor's SDK reads of it, what thinklsp reads, and what goes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import anthropic
import openai
from google import genai
from google.genai import types

from tests.providers.families import FAMILIES
from tests.recorded.recordings import Recording
from tests.support.hosts import SseServer, answer, head
from tests.support.samples import Answer, asked, read_events, read_stream, result
from tests.vendors.clients import PARSED, decode_base64, drop_nulls, join_parts
from thinklsp.core.messages import UserMessage, ensure_unique_call_ids
from thinklsp.providers.base import Adapter, Endpoint, Thinking
from thinklsp.providers.catalogue import find_model
from thinklsp.providers.chat_adapter import OpenAiChatAdapter
from thinklsp.providers.chat_servers import resolve_server
from thinklsp.providers.failures import OutputRejected

Json = dict[str, Any]
# The keys of opaque strings: signatures, and thinking that only the service can read.
_OPAQUE = ("signature", "encrypted_content", "thoughtSignature", "thought_signature", "data")
_DETAILS = ("reasoning_details", "extra_content")
_UNREADABLE = (
    *(ValueError, TypeError, AttributeError, IndexError, AssertionError, RuntimeError),
    *(anthropic.AnthropicError, openai.OpenAIError),
)
_ASKED: list[Any] = [{"role": "user", "content": "x"}]


@dataclass(frozen=True)
class Compared:
    """`opaque`: how many opaque strings came. `problem`: what is wrong, or an empty string."""

    opaque: int = 0
    problem: str = ""


async def compare(recording: Recording) -> Compared | None:
    """Compare an answer. Return None if the vendor's SDK cannot read it, or the service calls it a failure."""
    try:
        async with SseServer([[head(), recording.body] if recording.is_stream else answer(recording.body)]) as server:
            theirs = await READERS[recording.family](recording, server.url)
    except _UNREADABLE:
        return None
    adapter, endpoint = find_service(recording)
    origin = endpoint.build_origin(recording.model)
    try:
        if recording.is_stream:
            ours = read_stream(adapter, recording.body, origin)
        else:
            decoder = adapter.create_decoder()
            ours = read_events([*decoder.feed("", recording.body.decode()), *decoder.finish()], origin)
    except OutputRejected:
        return None  # The service itself says that the answer is a failure.
    except Exception as error:  # noqa: BLE001 - whatever it is, the recording could not be read
        # A job that still runs has no content.
        return Compared(problem=f"not read: {type(error).__name__} {error}") if theirs else None
    came = [*find_opaque(theirs)]
    read = describe(recording, ours)
    if read != theirs:
        return Compared(len(came), f"read {json.dumps(read)[:300]} and not {json.dumps(theirs)[:300]}")
    sent = [*find_opaque(send_back(recording, adapter, endpoint, ours))]
    return Compared(len(came), "" if sent == came else f"sent {len(sent)} opaque strings of {len(came)}")


def find_service(recording: Recording) -> tuple[Adapter, Endpoint]:
    """Return the adapter for a recording, and the endpoint that it was recorded at."""
    family = FAMILIES[recording.family]
    endpoint = replace(family.samples.ENDPOINT, base_url=recording.address.partition("?")[0])
    if recording.family != "chat":
        return family.adapter, endpoint
    return OpenAiChatAdapter(resolve_server(recording.address, kind=None, echo=None, think_tags=False)), endpoint


def send_back(recording: Recording, adapter: Adapter, endpoint: Endpoint, ours: Answer) -> list[Json]:
    """Return the messages of the next request, which have the answer in them."""
    message = ensure_unique_call_ids(ours.message, ())
    results = asked(*(result(call.id) for call in message.tool_uses), *UserMessage.from_text("y").blocks)
    plain = FAMILIES[recording.family].samples.PLAIN
    model = replace(find_model(endpoint.provider, recording.model), compacts=False)
    conversation = (UserMessage.from_text("x"), message, results)
    request = replace(plain, model=model, conversation=conversation, thinking=Thinking(), tools=())
    body = json.loads(adapter.encode(request, endpoint).body)
    if recording.family == "google":
        return [_plain_part(part) for content in body["contents"] for part in content["parts"]]
    return list(body["input" if recording.family == "openai" else "messages"])


def find_opaque(value: Any) -> Iterator[str]:
    """Yield the opaque strings of a JSON value in their order."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in _OPAQUE and isinstance(item, str | list) and item:
                yield from [item] if isinstance(item, str) else item
            elif key not in ("input", "args", "arguments", "inlineData"):
                yield from find_opaque(item)
    for item in value if isinstance(value, list) else ():
        yield from find_opaque(item)


async def _read_anthropic(recording: Recording, url: str) -> list[Json]:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client:
        messages: Any = client.beta.messages if "beta=true" in recording.address else client.messages
        options: Json = {"model": recording.model, "max_tokens": 100, "messages": _ASKED}
        if recording.is_stream:
            async with messages.stream(**options) as stream:
                message = await stream.get_final_message()
        else:
            message = await messages.create(**options)
    return [drop_nulls(_dump(block)) for block in message.content]


async def _read_openai(recording: Recording, url: str) -> list[Json]:
    async with openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
        if recording.is_stream:
            async with client.responses.stream(model=recording.model, input="x") as stream:
                events = [event async for event in stream]
            [end] = [event for event in events if event.type in ("response.completed", "response.incomplete")]
            # The service encrypts an item again for the last event; both forms are good.
            done = {event.output_index: event.item for event in events if event.type == "response.output_item.done"}
            output = [item for _, item in sorted((dict(enumerate(end.response.output)) | done).items())]
        else:
            output = (await client.responses.create(model=recording.model, input="x")).output
    return [drop_nulls(_dump(item), *_list_ignored(recording)) for item in output]


async def _read_google(recording: Recording, url: str) -> list[Json]:
    parts: list[Json] = []
    client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url))
    models, options = client.aio.models, {"model": recording.model, "contents": "x"}
    chunks: list[types.GenerateContentResponse] = []
    if recording.is_stream:
        async for chunk in await models.generate_content_stream(**options):
            chunks.append(chunk)  # noqa: PERF401 - the client may fail in the middle
    else:
        chunks = [await models.generate_content(**options)]
    await client.aio.aclose()
    client.close()
    for chunk in chunks:
        for candidate in (chunk.candidates or [])[:1]:
            found = (candidate.content or types.Content()).parts or []
            parts += [part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in found]
    return join_parts([_plain_part(part) for part in parts])


def _plain_part(part: Json) -> Json:
    """Drop null and false, and write data and signatures in one alphabet."""
    kept = {key: value for key, value in drop_nulls(part).items() if value is not False}
    if "thoughtSignature" in kept:
        kept["thoughtSignature"] = decode_base64(kept["thoughtSignature"]).hex()
    if "inlineData" in kept:
        kept["inlineData"] = {**kept["inlineData"], "data": decode_base64(kept["inlineData"]["data"]).hex()}
    return kept


async def _read_chat(recording: Recording, url: str) -> list[Json]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        options: Json = {"model": recording.model, "messages": _ASKED}
        if recording.is_stream:
            async with client.chat.completions.stream(**options) as stream:
                completion: Any = await stream.get_final_completion()
        else:
            completion = await client.chat.completions.create(**options)
    message = completion.choices[0].message
    content: Any = message.content or ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content if part.get("type") == "text")
    functions = [(call, call.function) for call in message.tool_calls or ()]
    calls = [
        {"id": call.id or "", "name": function.name, "arguments": function.arguments or ""}
        for call, function in functions
    ]
    details = {key: (message.model_extra or {}).get(key) for key in _DETAILS}
    if recording.is_stream:
        # The client joins strings that are no text, so only the opaque ones are compared, as they came.
        chunks = [json.loads(line[6:]) for line in recording.body.decode().splitlines() if line.startswith("data: {")]
        details = {"signature": [*find_opaque(chunks)]}
    return [{"text": content, "calls": calls, "refusal": message.refusal or ""}, drop_nulls(details)]


def _list_ignored(recording: Recording) -> tuple[str, ...]:
    """Return the fields of items that do not count: what the client adds, and ids that are new in each event."""
    return (*PARSED, "id") if "openrouter" in recording.address else PARSED


def _dump(model: Any) -> Json:
    return dict(model.model_dump(mode="json", by_alias=True, warnings=False))


READERS: Mapping[str, Callable[[Recording, str], Any]] = {
    "anthropic": _read_anthropic,
    "openai": _read_openai,
    "google": _read_google,
    "chat": _read_chat,
}


def describe(recording: Recording, ours: Answer) -> list[Json]:
    """Return what thinklsp read, in the form of the vendor's reader."""
    origin = find_service(recording)[1].build_origin(recording.model)
    samples = FAMILIES[recording.family].samples
    blocks = [samples.raw(block, origin) for block in ours.message.blocks]
    match recording.family:
        case "anthropic":
            return [drop_nulls(block) for block in blocks]
        case "openai":
            return [drop_nulls(block, *_list_ignored(recording)) for block in blocks]
        case "google":
            return join_parts([_plain_part(block) for block in blocks])
        case _:
            calls = [block["function"] | {"id": block["id"]} for block in blocks if "function" in block]
            plain = [{key: call[key] for key in ("id", "name", "arguments")} for call in calls]
            extra = {key: block[key] for block in blocks for key in _DETAILS if key in block}
            extra = {"signature": [*find_opaque(extra)]} if recording.is_stream else extra
            refusal = (ours.explanation or "") if not blocks else ""
            return [{"text": ours.message.text, "calls": plain, "refusal": refusal}, drop_nulls(extra)]
