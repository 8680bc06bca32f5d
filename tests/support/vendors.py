"""The official clients, each as its documentation has a tool loop: what came goes back as the client gives it.

They are told to ask as our own requests do, so that nothing differs but what they make of the answers.
"""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import anthropic
import openai
from google import genai
from google.genai import types
from pydantic.alias_generators import to_camel

from tests.support.anthropic_cases import raw
from tests.support.dialects import Answer
from thinklsp.core.messages import Origin

Json = dict[str, Any]


class Vendor(ABC):
    """One conversation by the vendor's client. `body` is our own request, whose options it takes over."""

    def __init__(self, base_url: str, key: str, model: str) -> None:
        self.base_url, self.key, self.model = base_url, key, model
        self.history: list[Any] = []

    @abstractmethod
    def prompt(self, text: str) -> None: ...

    @abstractmethod
    async def ask(self, body: Mapping[str, Any]) -> tuple[list[Json], bool]:
        """What the client read, in the words of the service, and whether it called tools, which are then answered."""

    def read_by_us(self, answer: Answer, origin: Origin) -> list[Json]:
        """The same of what we have read."""
        return [json.loads(block.raw.open_for(origin)) for block in answer.message.blocks if block.raw is not None]

    @abstractmethod
    async def close(self) -> None: ...

    @staticmethod
    @abstractmethod
    def said_by_model(body: Mapping[str, Any]) -> list[list[Json]]:
        """What a request sends back of each answer of the model, without the differences that mean nothing."""


class Anthropic(Vendor):
    def __init__(self, base_url: str, key: str, model: str) -> None:
        super().__init__(base_url, key, model)
        self.client = anthropic.AsyncAnthropic(base_url=base_url, api_key=key, max_retries=0)

    def read_by_us(self, answer: Answer, origin: Origin) -> list[Json]:
        return [raw(block, origin) for block in answer.message.blocks]

    def prompt(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    async def ask(self, body: Mapping[str, Any]) -> tuple[list[Json], bool]:
        options = {key: value for key, value in body.items() if key not in ("stream", "messages")}
        async with self.client.messages.stream(messages=self.history, **options) as stream:
            message = await stream.get_final_message()
        self.history.append({"role": "assistant", "content": message.content})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "seen"}
            for block in message.content
            if block.type == "tool_use"
        ]
        if results:
            self.history.append({"role": "user", "content": results})
        read = [block.model_dump(mode="json", by_alias=True, warnings=False) for block in message.content]
        return [_without(block) for block in read], bool(results)

    async def close(self) -> None:
        await self.client.close()

    @staticmethod
    def said_by_model(body: Mapping[str, Any]) -> list[list[Json]]:
        """The client adds fields with the value null; cache marks are a wish of ours about the request, not content."""
        said = [message["content"] for message in body["messages"] if message["role"] == "assistant"]
        return [[_without(block, "cache_control") for block in content] for content in said]


class OpenAi(Vendor):
    def __init__(self, base_url: str, key: str, model: str) -> None:
        super().__init__(base_url, key, model)
        self.client = openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key=key, max_retries=0)

    def prompt(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    async def ask(self, body: Mapping[str, Any]) -> tuple[list[Json], bool]:
        options = {key: value for key, value in body.items() if key not in ("stream", "input")}
        async with self.client.responses.stream(input=[body["input"][0], *self.history], **options) as stream:
            response = await stream.get_final_response()
        self.history += response.output
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "seen"}
            for item in response.output
            if item.type == "function_call"
        ]
        self.history += results
        read = [item.model_dump(mode="json", by_alias=True, warnings=False) for item in response.output]
        return [_without(item, *_PARSED) for item in read], bool(results)

    async def close(self) -> None:
        await self.client.close()

    @staticmethod
    def said_by_model(body: Mapping[str, Any]) -> list[list[Json]]:
        """Items between two of ours are one answer. The client adds nulls, and what it has parsed itself."""
        answers: list[list[Json]] = [[]]
        for item in body["input"]:
            ours = item.get("role") in ("user", "developer") or item.get("type") == "function_call_output"
            if not ours:
                answers[-1].append(_without(item, *_PARSED))
            elif answers[-1]:
                answers.append([])
        return [answer for answer in answers if answer]


class Google(Vendor):
    def __init__(self, base_url: str, key: str, model: str) -> None:
        super().__init__(base_url, key, model)
        options = types.HttpOptions(base_url=base_url, api_version="v1beta")
        self.client = genai.Client(api_key=key, http_options=options, vertexai=False)

    def prompt(self, text: str) -> None:
        self.history.append(types.Content(role="user", parts=[types.Part(text=text)]))

    async def ask(self, body: Mapping[str, Any]) -> tuple[list[Json], bool]:
        generation = body["generationConfig"]
        config = types.GenerateContentConfig(
            system_instruction=body["systemInstruction"]["parts"][0]["text"],
            tools=[types.Tool.model_validate(tool) for tool in body["tools"]],
            max_output_tokens=generation.get("maxOutputTokens"),
            thinking_config=types.ThinkingConfig.model_validate(generation["thinkingConfig"]),
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        )
        asking = self.client.aio.models.generate_content_stream(model=self.model, contents=self.history, config=config)
        parts: list[types.Part] = []
        async for chunk in await asking:
            for candidate in chunk.candidates or []:
                parts += (candidate.content or types.Content()).parts or []
        self.history.append(types.Content(role="model", parts=parts))
        calls = [part.function_call for part in parts if part.function_call]
        results = [
            types.Part(
                function_response=types.FunctionResponse(id=call.id, name=call.name, response={"output": "seen"})
            )
            for call in calls
        ]
        if results:
            self.history.append(types.Content(role="user", parts=results))
        read = [part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in parts]
        return _joined([_plain_part(part) for part in read]), bool(results)

    def read_by_us(self, answer: Answer, origin: Origin) -> list[Json]:
        return [_plain_part(part) for part in super().read_by_us(answer, origin)]

    async def close(self) -> None:
        await self.client.aio.aclose()
        self.client.close()

    @staticmethod
    def said_by_model(body: Mapping[str, Any]) -> list[list[Json]]:
        """The client writes names with underscores and bytes in the other base64, both of which the service takes, and
        sends pieces of unsigned text as they came, where ours are one. It also sends readable thoughts, which the
        service documents as not needed: we leave them out."""
        said = [content["parts"] for content in body["contents"] if content["role"] == "model"]
        joined = [_joined([_plain_part(_camel(part)) for part in parts]) for parts in said]
        return [[part for part in parts if "thought" not in part or "thoughtSignature" in part] for parts in joined]


def _answer(call: types.FunctionCall) -> types.Part:
    answer = types.FunctionResponse(id=call.id, name=call.name, response={"output": "seen"})
    return types.Part(function_response=answer)


class Chat(Vendor):
    def __init__(self, base_url: str, key: str, model: str) -> None:
        super().__init__(base_url, key, model)
        self.client = openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key=key, max_retries=0)

    def prompt(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    async def ask(self, body: Mapping[str, Any]) -> tuple[list[Json], bool]:
        """Chunks are put together by hand, as the documentations of servers that think have it: the client's own
        helper strings together everything that comes twice, roles and types included."""
        known = ("model", "max_tokens", "tools", "reasoning_effort", "stream", "stream_options")
        options = {key: body[key] for key in known if key in body}
        beyond = {key: value for key, value in body.items() if key not in (*known, "messages")}
        message: Json = {"role": "assistant", "content": "", self.field: [] if self.field in _LISTS else ""}
        calls: dict[int, Json] = {}
        messages = [body["messages"][0], *self.history]
        async with await self.client.chat.completions.create(messages=messages, extra_body=beyond, **options) as stream:
            async for chunk in stream:
                for choice in chunk.choices:
                    self._add(message, calls, choice.delta.model_dump(exclude_none=True))
        message |= {"tool_calls": [*calls.values()]} if calls else {}
        self.history.append(message)
        self.history += [{"role": "tool", "tool_call_id": call["id"], "content": "seen"} for call in calls.values()]
        return [_plain_message(message)], bool(calls)

    def read_by_us(self, answer: Answer, origin: Origin) -> list[Json]:
        """Our blocks are parts of one message."""
        parts = super().read_by_us(answer, origin)
        calls = [part for part in parts if "function" in part]
        whole = {key: value for part in parts if "function" not in part for key, value in part.items()}
        return [_plain_message({"role": "assistant", "tool_calls": calls, **whole})]

    @property
    def field(self) -> str:
        """The field in which the server documents that thinking comes and goes back."""
        return _FIELDS["/" if "/" in self.model else self.model]

    def _add(self, message: Json, calls: dict[int, Json], delta: Json) -> None:
        message["content"] += delta.get("content", "")
        for piece in delta.get("tool_calls", ()):
            call = calls.setdefault(piece["index"], {**piece, "function": {**piece["function"], "arguments": ""}})
            call["function"]["arguments"] += piece["function"].get("arguments", "")
        if self.field not in _LISTS:
            message[self.field] += delta.get(self.field, "")
            return
        for piece in delta.get(self.field, ()):
            entries = message[self.field]
            same = [one for one in entries if (one["type"], one["index"]) == (piece["type"], piece["index"])]
            if not same:
                entries.append(dict(piece))
            else:
                same[0].update(piece | {"text": same[0].get("text", "") + piece.get("text", "")})

    async def close(self) -> None:
        await self.client.close()

    @staticmethod
    def said_by_model(body: Mapping[str, Any]) -> list[list[Json]]:
        """Calls are numbered in the stream only; no text and an empty one are the same."""
        return [[_plain_message(message)] for message in body["messages"] if message["role"] == "assistant"]


_LISTS = ("reasoning_details",)
_FIELDS = {
    "deepseek-reasoner": "reasoning_content",
    "qwen3-8b": "reasoning_content",
    "gpt-oss:20b": "reasoning",
    "/": "reasoning_details",
}
_PARSED = ("parsed", "parsed_arguments")


def _without(value: Any, *names: str) -> Any:
    if isinstance(value, dict):
        return {key: _without(item, *names) for key, item in value.items() if item is not None and key not in names}
    return [_without(item, *names) for item in value] if isinstance(value, list) else value


def _plain_message(message: Json) -> Json:
    plain = {**message, "tool_calls": [_without(call, "index") for call in message.get("tool_calls", ())]}
    return {key: value for key, value in plain.items() if value not in ("", [], None)}


def _camel(value: Any, *, names: bool = True) -> Any:
    """Names of the service alone: arguments of tools are as the model wrote them."""
    if isinstance(value, dict):
        return {
            (to_camel(key) if names else key): _camel(item, names=names and key not in ("args", "response"))
            for key, item in value.items()
        }
    return [_camel(item, names=names) for item in value] if isinstance(value, list) else value


def _plain_part(part: Json) -> Json:
    """Signatures as bytes. Absent, null and false are the same."""
    kept = {key: value for key, value in part.items() if value is not None and value is not False}
    if "thoughtSignature" in kept:
        text = kept["thoughtSignature"].replace("+", "-").replace("/", "_")
        kept["thoughtSignature"] = base64.urlsafe_b64decode(text)
    if "functionCall" in kept:
        kept["functionCall"] = {"args": {}, **_without(kept["functionCall"])}
    return kept


def _joined(parts: list[Json]) -> list[Json]:
    """Pieces of unsigned text made one, empty ones left out."""
    whole: list[Json] = []
    for part in parts:
        is_plain = part.keys() <= {"text", "thought"}
        if is_plain and not part.get("text"):
            continue
        last = whole[-1] if whole else None
        if is_plain and last is not None and last.keys() == part.keys():
            last["text"] += part["text"]
        else:
            whole.append(dict(part))
    return whole
