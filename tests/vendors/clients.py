"""The official clients, each with the tool loop of its documentation and the options of our own requests."""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from typing import Any

import anthropic
import openai
from google import genai
from google.genai import types
from pydantic import TypeAdapter
from pydantic.alias_generators import to_camel

from tests.support.anthropic_samples import raw
from tests.support.services import Answer
from thinklsp.core.messages import Origin

Json = dict[str, Any]


class Vendor(ABC):
    """A conversation by the vendor's client. `body`: our own request, whose options it takes over."""

    client: Any

    def __init__(self, base_url: str, key: str, model: str) -> None:
        self.model = model
        self.history: list[Any] = []

    def prompt(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    @abstractmethod
    async def ask(self, body: Mapping[str, Any]) -> tuple[list[Json], bool]:
        """Return the content as the service sent it, and whether it called tools. Answer those calls."""

    def read_by_us(self, answer: Answer, origin: Origin) -> list[Json]:
        return [json.loads(block.raw.reveal_for(origin)) for block in answer.message.blocks if block.raw is not None]

    async def close(self) -> None:
        await self.client.close()

    @staticmethod
    @abstractmethod
    def said_by_model(body: Mapping[str, Any]) -> list[list[Json]]:
        """Return what a request sends back of each answer of the model, in a comparable form."""


class Anthropic(Vendor):
    def __init__(self, base_url: str, key: str, model: str) -> None:
        super().__init__(base_url, key, model)
        self.client = anthropic.AsyncAnthropic(base_url=base_url, api_key=key, max_retries=0)

    def read_by_us(self, answer: Answer, origin: Origin) -> list[Json]:
        return [raw(block, origin) for block in answer.message.blocks]

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
        return [drop_nulls(block) for block in read], bool(results)

    @staticmethod
    def said_by_model(body: Mapping[str, Any]) -> list[list[Json]]:
        """The client adds nulls. Our cache marks are no content."""
        said = [message["content"] for message in body["messages"] if message["role"] == "assistant"]
        return [[drop_nulls(block, "cache_control") for block in content] for content in said]


class OpenAi(Vendor):
    def __init__(self, base_url: str, key: str, model: str) -> None:
        super().__init__(base_url, key, model)
        self.client = openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key=key, max_retries=0)

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
        return [drop_nulls(item, *PARSED) for item in read], bool(results)

    @staticmethod
    def said_by_model(body: Mapping[str, Any]) -> list[list[Json]]:
        """Items between two of ours are one answer. The client adds nulls, and its own parsed values."""
        answers: list[list[Json]] = [[]]
        for item in body["input"]:
            ours = item.get("role") in ("user", "developer") or item.get("type") == "function_call_output"
            if not ours:
                answers[-1].append(drop_nulls(item, *PARSED))
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
        results = [answer_call(part.function_call, "seen") for part in parts if part.function_call]
        if results:
            self.history.append(types.Content(role="user", parts=results))
        read = [part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in parts]
        return join_parts([_plain_part(part) for part in read]), bool(results)

    def read_by_us(self, answer: Answer, origin: Origin) -> list[Json]:
        return [_plain_part(part) for part in super().read_by_us(answer, origin)]

    async def close(self) -> None:
        await self.client.aio.aclose()
        self.client.close()

    @staticmethod
    def said_by_model(body: Mapping[str, Any]) -> list[list[Json]]:
        """The client writes snake case and standard base64, and sends unsigned text in pieces and unsigned thoughts."""
        said = [content["parts"] for content in body["contents"] if content["role"] == "model"]
        joined = [join_parts([_plain_part(to_camel_names(part)) for part in parts]) for parts in said]
        return [[part for part in parts if "thought" not in part or "thoughtSignature" in part] for parts in joined]


def answer_call(call: types.FunctionCall, output: str) -> types.Part:
    answer = types.FunctionResponse(id=call.id, name=call.name, response={"output": output})
    return types.Part(function_response=answer)


class Chat(OpenAi):
    async def ask(self, body: Mapping[str, Any]) -> tuple[list[Json], bool]:
        """Join the chunks here: the client's own helper concatenates repeated fields, such as roles and types."""
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
        parts = super().read_by_us(answer, origin)
        calls = [part for part in parts if "function" in part]
        whole = {key: value for part in parts if "function" not in part for key, value in part.items()}
        return [_plain_message({"role": "assistant", "tool_calls": calls, **whole})]

    @property
    def field(self) -> str:
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

    @staticmethod
    def said_by_model(body: Mapping[str, Any]) -> list[list[Json]]:
        """Only the stream numbers calls. An empty text is no text."""
        return [[_plain_message(message)] for message in body["messages"] if message["role"] == "assistant"]


_LISTS = ("reasoning_details",)
_FIELDS = {
    "deepseek-reasoner": "reasoning_content",
    "qwen3-8b": "reasoning_content",
    "gpt-oss:20b": "reasoning",
    "/": "reasoning_details",
}
# A scenario of three turns: two failures and an answer, a rate limit, and an error within a stream.
FAILING = """
[[turn]]
[[turn.step]]
fault = { times = 2, http_error = { status = 529, headers = { retry-after-ms = "1" } } }
block = [{ text = "third" }]
[[turn]]
[[turn.step]]
fault = { http_error = { status = 429, message = "Slow down", headers = { x-should-retry = "false" } } }
[[turn]]
[[turn.step]]
fault = { error_event = { type = "overloaded_error", message = "Overloaded", after_events = 4 } }
block = [{ text = "never" }]
"""
PARSED = ("parsed", "parsed_arguments")


def check_type(value: Json, kind: Any, beyond: Container[str] = ()) -> None:
    """Validation drops unknown keys, so nothing may be missing afterwards. Lists are checked by their members."""
    validated = TypeAdapter(kind).validate_python(value)
    for key, item in value.items():
        assert key in validated or key in beyond, key
        if key in validated and not isinstance(item, list):
            assert validated[key] == item


def drop_nulls(value: Any, *names: str) -> Any:
    if isinstance(value, dict):
        return {key: drop_nulls(item, *names) for key, item in value.items() if item is not None and key not in names}
    return [drop_nulls(item, *names) for item in value] if isinstance(value, list) else value


def decode_base64(text: str) -> bytes:
    """Decode either of the two alphabets."""
    return base64.urlsafe_b64decode(text.replace("+", "-").replace("/", "_"))


def _plain_message(message: Json) -> Json:
    plain = {**message, "tool_calls": [drop_nulls(call, "index") for call in message.get("tool_calls", ())]}
    return {key: value for key, value in plain.items() if value not in ("", [], None)}


def to_camel_names(value: Any) -> Any:
    """Convert the field names, but not the arguments of tools."""
    if isinstance(value, dict):
        plain = ("args", "response")
        return {to_camel(key): item if key in plain else to_camel_names(item) for key, item in value.items()}
    return [to_camel_names(item) for item in value] if isinstance(value, list) else value


def _plain_part(part: Json) -> Json:
    kept = {key: value for key, value in part.items() if value is not None and value is not False}
    if "thoughtSignature" in kept:
        kept["thoughtSignature"] = decode_base64(kept["thoughtSignature"])
    if "functionCall" in kept:
        kept["functionCall"] = {"args": {}, **drop_nulls(kept["functionCall"])}
    return kept


def join_parts(parts: list[Json]) -> list[Json]:
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
