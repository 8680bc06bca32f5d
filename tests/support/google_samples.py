"""Samples of generateContent: recorded streams and the way through our decoder, requests of every shape."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tests.stand_ins.google.requests import read_conversation, read_request
from tests.stand_ins.rejections import RequestRejected
from tests.support.samples import Recorded, asked, plain_request, read_stream, result, said
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    OpaqueBlock,
    Origin,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.core.usage import Usage
from thinklsp.providers.base import Endpoint, ModelRequest, Thinking
from thinklsp.providers.catalogue import find_model
from thinklsp.providers.google import GoogleAdapter

ENDPOINT = Endpoint("google", "https://generativelanguage.googleapis.com", "AIzaCanary0123456789abcdefgh")
MODEL = "gemini-3.8-flash"
RECORDED = Recorded("google", ENDPOINT, MODEL)
ADAPTER = GoogleAdapter()
ORIGIN, FOLDER = RECORDED.origin, RECORDED.folder
cases, expected, stream = RECORDED.cases, RECORDED.expected, RECORDED.stream
raw, sealed, neutral = RECORDED.raw, RECORDED.sealed, RECORDED.neutral


def run(data: bytes, origin: Origin = ORIGIN) -> tuple[AssistantMessage, Usage, str | None]:
    answer = read_stream(ADAPTER, data, origin)
    assert not answer.unmatched
    return answer.message, answer.usage, answer.explanation


def as_stream(*chunks: Any) -> bytes:
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode()


def chunk(*parts: Any, reason: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk of a stream; `more` goes to its candidate."""
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": list(parts)}, **more}
    return {"candidates": [candidate | ({"finishReason": reason} if reason else {})], "modelVersion": MODEL}


LEVELS = find_model("google", MODEL)
BUDGET = find_model("google", "gemini-2.5-flash")
LITE = find_model("google", "gemini-2.5-flash-lite")
NO_THOUGHT = find_model("google", "gemini-2.5-flash-image")
UNKNOWN = find_model("google", "gemini-5-neon")


def signed(raw: dict[str, Any], signature: str) -> dict[str, Any]:
    return raw | ({"thoughtSignature": signature} if signature else {})


def text(value: str, signature: str = "", **origin: str) -> TextBlock:
    return TextBlock(value, sealed(signed({"text": value}, signature), **origin))


def thought(value: str, signature: str = "", **origin: str) -> ThinkingBlock:
    return ThinkingBlock(value, sealed(signed({"text": value, "thought": True}, signature), **origin))


def call(
    call_id: str, signature: str = "", *, name: str = "read_file", wire_id: str | None = "", **origin: str
) -> ToolUseBlock:
    """`wire_id`: what the service called it, None where it gave no id; as a rule our name for it."""
    wire = {} if wire_id is None else {"id": wire_id or call_id}
    function: dict[str, Any] = {"functionCall": {**wire, "name": name, "args": {"path": "a"}}}
    return ToolUseBlock(call_id, name, {"path": "a"}, sealed(signed(function, signature), **origin))


def signature_alone(signature: str, **origin: str) -> OpaqueBlock:
    return OpaqueBlock("thoughtSignature", sealed({"text": "", "thoughtSignature": signature}, **origin))


def paused(token: str, **origin: str) -> OpaqueBlock:
    return OpaqueBlock("continuation", sealed({"type": "continuation", "continuationToken": token}, **origin))


def loop(**origin: str) -> Conversation:
    """A question and two steps of a tool loop, the second with two calls; all was issued by the given origin."""
    return (
        UserMessage.from_text("Why?"),
        said(thought("Hm.", **origin), text("Looking.", **origin), call("k1", "Sig1", **origin)),
        asked(result("k1")),
        said(thought("So.", "Sig2", **origin), call("k2", "Sig3", **origin), call("k3", **origin)),
        asked(result("k2"), result("k3", "no such file", is_error=True)),
    )


PLAIN = plain_request(LEVELS)

REQUESTS: dict[str, ModelRequest] = {
    "plain": PLAIN,
    "summaries": replace(PLAIN, thinking=Thinking("adaptive", summarized=True)),
    "nothing said about thinking": replace(PLAIN, thinking=Thinking()),
    "off": replace(PLAIN, model=BUDGET, thinking=Thinking("off")),
    "budget": replace(PLAIN, model=BUDGET, thinking=Thinking("manual", 10_000, summarized=True)),
    "dynamic": replace(PLAIN, model=LITE, thinking=Thinking("adaptive")),
    "unknown model": replace(PLAIN, model=UNKNOWN, max_tokens=None),
    "no system, no tools": replace(PLAIN, system="", tools=()),
    "tool loop": replace(PLAIN, conversation=loop()),
    "tool loop of another model": replace(PLAIN, conversation=loop(model="gemini-4-argon")),
    "tool loop of another model on 2.5": replace(PLAIN, model=BUDGET, conversation=loop()),
    "paused": replace(PLAIN, conversation=(UserMessage.from_text("a"), said(text("x"), paused("dG9rZW4=")))),
    "halves of a pair": replace(
        PLAIN, conversation=(UserMessage.from_text("half: \ud83d, whole: \ud83d\ude00, \u2028"),)
    ),
}

DUMMY = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
Json = dict[str, Any]


def body_of(request: ModelRequest, endpoint: Endpoint = ENDPOINT) -> Json:
    return dict(json.loads(ADAPTER.encode(request, endpoint).body))


def contents_of(conversation: Conversation, **changes: Any) -> list[Json]:
    return list(body_of(replace(PLAIN, conversation=conversation, **changes))["contents"])


def user(*parts: Json) -> Json:
    return {"role": "user", "parts": list(parts)}


def model(*parts: Json) -> Json:
    return {"role": "model", "parts": list(parts)}


def called(call_id: str | None, signature: str = "", name: str = "read_file") -> Json:
    wire = {} if call_id is None else {"id": call_id}
    return signed({"functionCall": {**wire, "name": name, "args": {"path": "a"}}}, signature)


def answered(call_id: str | None, value: str = "content", name: str = "read_file") -> Json:
    wire = {} if call_id is None else {"id": call_id}
    return {"functionResponse": {**wire, "name": name, "response": {"output": value}}}


def broken_rules(contents: list[Json], *, signed_calls: bool) -> list[str]:
    """A sentence for a rule of the service, or of ours, that the contents break. `signed_calls`: from Gemini 3 on."""
    try:
        read_conversation(read_request({"contents": contents}))
    except RequestRejected as refusal:
        return [str(refusal)]
    return [*_shape(contents), *_signatures(contents, signed_calls=signed_calls)]


def _shape(contents: list[Json]) -> Iterator[str]:
    for content in contents:
        if any(part.keys() <= {"text", "thought"} and not part.get("text") for part in content["parts"]):
            yield "a part is empty"
    for one, other in pairwise(contents):
        if one["role"] == other["role"] == "model":
            yield "a step is split"


def _signatures(contents: list[Json], *, signed_calls: bool) -> Iterator[str]:
    prompts = [
        content["role"] == "user" and not any("functionResponse" in part for part in content["parts"])
        for content in contents
    ]
    begun = max((index for index, is_prompt in enumerate(prompts) if is_prompt), default=-1)
    for index, content in enumerate(contents):
        calls = [part for part in content["parts"] if "functionCall" in part]
        demanded = signed_calls and index > begun
        if demanded and calls and not calls[0].get("thoughtSignature"):
            yield "the first call of a step of the running turn is not signed"
        for part in content["parts"]:
            if part.get("thoughtSignature") == DUMMY and not (demanded and calls and part is calls[0]):
                yield "a stand-in for a signature where none is demanded"
