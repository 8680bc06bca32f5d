"""Encoded requests of generateContent, taken apart again, and the rules that the service holds their contents to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tests.support.google_cases import ENDPOINT
from tests.support.google_requests import PLAIN
from thinklsp.core.messages import Conversation
from thinklsp.providers.base import Endpoint, ModelRequest
from thinklsp.providers.google.adapter import GoogleAdapter

ADAPTER = GoogleAdapter()
DUMMY = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
Json = dict[str, Any]


def body_of(request: ModelRequest, endpoint: Endpoint = ENDPOINT) -> Json:
    value: Json = json.loads(bytes(ADAPTER.encode(request, endpoint).body))
    return value


def contents_of(conversation: Conversation, **changes: Any) -> list[Json]:
    contents: list[Json] = body_of(replace(PLAIN, conversation=conversation, **changes))["contents"]
    return contents


def user(*parts: Json) -> Json:
    return {"role": "user", "parts": list(parts)}


def model(*parts: Json) -> Json:
    return {"role": "model", "parts": list(parts)}


def called(call_id: str | None, signature: str = "", name: str = "read_file") -> Json:
    wire = {} if call_id is None else {"id": call_id}
    part: Json = {"functionCall": {**wire, "name": name, "args": {"path": "a"}}}
    return part | ({"thoughtSignature": signature} if signature else {})


def answered(call_id: str | None, value: str = "content", name: str = "read_file") -> Json:
    wire = {} if call_id is None else {"id": call_id}
    return {"functionResponse": {**wire, "name": name, "response": {"output": value}}}


def broken_rules(contents: list[Json], *, signed_calls: bool) -> list[str]:
    """A sentence for each rule of the service that the contents break. `signed_calls`: Gemini 3 and later."""
    if not contents:
        return ["there are no contents"]
    return [*_shape(contents), *_pairing(contents), *_signatures(contents, signed_calls=signed_calls)]


def _shape(contents: list[Json]) -> Iterator[str]:
    if (contents[0]["role"], contents[-1]["role"]) != ("user", "user"):
        yield "the user has neither the first nor the last word"
    for content in contents:
        if not content["parts"]:
            yield "a content is empty"
        for part in content["parts"]:
            if not part or (part.keys() <= {"text", "thought"} and not part.get("text")):
                yield "a part is empty"
            if "functionCall" in part and content["role"] != "model":
                yield "the user calls a tool"
    for one, other in pairwise(contents):
        if one["role"] == other["role"] == "model":
            yield "a step is split"


def _pairing(contents: list[Json]) -> Iterator[str]:
    open_calls: list[Json] = []
    for content in contents:
        answers = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if answers and len(answers) != len(content["parts"]):
            yield "answers stand beside other parts"
        if [_name(call) for call in open_calls] != [_name(answer) for answer in answers]:
            yield "answers are not those to the calls, in their order"
        for answer in answers:
            if not isinstance(answer["response"], dict) or answer["response"].keys() not in ({"output"}, {"error"}):
                yield "a response is no object of output or error"
        open_calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
    if open_calls:
        yield "calls are left open"


def _name(call: Json) -> tuple[str | None, str]:
    return call.get("id"), call["name"]


def _signatures(contents: list[Json], *, signed_calls: bool) -> Iterator[str]:
    begun = max(
        (
            index
            for index, content in enumerate(contents)
            if content["role"] == "user" and not any("functionResponse" in part for part in content["parts"])
        ),
        default=-1,
    )
    for index, content in enumerate(contents):
        calls = [part for part in content["parts"] if "functionCall" in part]
        demanded = signed_calls and index > begun
        if demanded and calls and not calls[0].get("thoughtSignature"):
            yield "the first call of a step of the running turn is not signed"
        for part in content["parts"]:
            if part.get("thoughtSignature") == DUMMY and not (demanded and calls and part is calls[0]):
                yield "a stand-in for a signature where none is demanded"
