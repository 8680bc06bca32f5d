"""Speaks to the Gemini dialect without a socket: a request in, status and JSON (or chunks) out."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from tests.stand_in_checks.talk import REST_OF_LOOP, DialectTalk, OneDialect
from tests.stand_ins.dialect import StreamedReply, WholeReply
from tests.stand_ins.google.service import GoogleDialect

NEW, OLD = "gemini-3.5-flash", "gemini-2.5-flash"
THOUGHTS = {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}}
DUMMY = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
DECLARATIONS = [
    {"name": name, "description": "A tool", "parametersJsonSchema": {"type": "object", "properties": {}}}
    for name in ("read_file", "list_files", "search_text")
]
LOOP = f"""
[[turn]]
when = "loop"
[[turn.step]]
block = [
  {{ thinking = "First I think.", summary = "Thinks." }}, {{ redacted_thinking = "hidden" }},
  {{ text = "Looking at it now, right away." }},
  {{ tool = "read_file", input = {{ path = "a", n = 1.5 }} }}, {{ tool = "read_file", input = {{ path = "b" }} }},
  {{ tool = "list_files" }},
]
{REST_OF_LOOP.replace("Plain answer.", "Plain answer of more than one chunk.")}
[[turn]]
when = "pause"
[[turn.step]]
stop_reason = "pause_turn"
block = [{{ thinking = "Wait." }}, {{ text = "One, " }}]
[[turn.step]]
stop_reason = "pause_turn"
block = [{{ text = "two, " }}]
[[turn.step]]
block = [{{ text = "three" }}, {{ tool = "read_file", input = {{ path = "c" }} }}]
[[turn.step]]
block = [{{ text = "Counted {{{{result:1}}}}." }}]
"""


class GoogleSimulator(OneDialect):
    speaks = GoogleDialect


class Talk(DialectTalk):
    speaks = GoogleDialect
    scenario = LOOP

    def reply(
        self,
        body: Any,
        *,
        model: str = NEW,
        method: str = "generateContent",
        key: str = "key-1",
        query: str = "",
        path: str | None = None,
        verb: str = "POST",
        **headers: str,
    ) -> WholeReply | StreamedReply:
        self.headers = {"x-goog-api-key": key} if key else {}
        path = path or f"/v1beta/models/{model}:{method}"
        return super().reply(body, path=f"{path}?{query}", method=verb, **headers)

    def get(self, path: str, query: str = "") -> tuple[int, Any]:
        return self.ask(b"", path=path, query=query, verb="GET")

    def refused(self, body: Any, **options: str) -> str:
        status, answer = self.ask(body, **options)
        assert status == 400, answer
        assert set(answer["error"]) <= {"code", "message", "status", "details"}
        assert (answer["error"]["code"], answer["error"]["status"]) == (400, "INVALID_ARGUMENT")
        return str(answer["error"]["message"])

    def chunks(self, body: Any, **options: str) -> list[Any]:
        streaming = {"method": "streamGenerateContent", "query": "alt=sse"}
        return [parsed(data) for data in self.sent(body, **{**streaming, **options})]

    def streamed(self, body: Any, **options: str) -> dict[str, Any]:
        """The parts of all chunks as one answer, with what the last chunk tells."""
        chunks = self.chunks(body, **options)
        ending = chunks[-1]["candidates"][0]
        return {**chunks[-1], "candidates": [{**ending, "content": {"role": "model", "parts": all_parts(chunks)}}]}


def parsed(data: bytes) -> Any:
    """One event of the wire, which has no name."""
    line, *rest = data.decode().split("\n")
    assert rest == ["", ""]
    return json.loads(line.removeprefix("data: "))


def all_parts(chunks: list[Any]) -> list[dict[str, Any]]:
    return [part for chunk in chunks for part in chunk["candidates"][0].get("content", {}).get("parts", [])]


def parts_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return list(answer["candidates"][0]["content"].get("parts", []))


def texts(answer: dict[str, Any]) -> str:
    return "".join(part["text"] for part in parts_of(answer) if "text" in part and not part.get("thought"))


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def model(*parts: Any) -> dict[str, Any]:
    return {**user(*parts), "role": "model"}


def request(prompt: str = "loop", **changes: Any) -> dict[str, Any]:
    tools = [{"functionDeclarations": deepcopy(DECLARATIONS)}]
    system = {"parts": [{"text": "You help."}]}
    return {"contents": [user(prompt)], "tools": tools, "systemInstruction": system, **changes}


def results(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """A content that answers every call of an answer."""
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    names = [{key: call[key] for key in ("id", "name") if key in call} for call in calls]
    answers = [{**name, "response": {"output": f"result {number}"}} for number, name in enumerate(names, 1)]
    return user(*({"functionResponse": answer} for answer in answers))


def continued(body: dict[str, Any], answer: dict[str, Any], prompt: str | None = None) -> dict[str, Any]:
    """The next request: the answer exactly as it came, then results for its calls, and a new prompt."""
    parts = parts_of(answer)
    added = [model(*parts)]
    if any("functionCall" in part for part in parts):
        added.append(results(parts))
    if prompt is not None:
        added.append(user(prompt))
    return deepcopy({**body, "contents": [*body["contents"], *added]})
