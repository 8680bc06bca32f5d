"""Speaks to the chat dialect without a socket: a request in, status and JSON (or chunks) out; and a right client."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from tests.stand_in_checks.talk import DialectTalk, OneDialect
from tests.stand_ins.chat.service import ChatDialect

Json = dict[str, Any]
HEADERS = {"authorization": "Bearer sk-test", "content-type": "application/json"}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "A tool", "parameters": {"type": "object"}}}
    for name in ("read_file", "list_files", "search_text")
]
# A model of every kind of server, and the field in which it takes reasoning back (None: in none).
ECHO = {
    "compatible-1": "reasoning_content",
    "qwen3-8b": "reasoning_content",
    "llama-old-7b": "reasoning_content",
    "gpt-oss:20b": "reasoning",
    "deepseek-reasoner": "reasoning_content",
    "anthropic/claude-opus-5.5": "reasoning_details",
    "google/gemini-4-argon": "reasoning_details",
    "openai/gpt-6-sol": "reasoning_details",
    "vllm-qwen3-32b": "reasoning",
    "lmstudio-qwen3-4b": "reasoning",
    "strict-1": None,
    "plain-1": None,
}


class ChatSimulator(OneDialect):
    speaks = ChatDialect


class Talk(DialectTalk):
    speaks = ChatDialect
    path = "/v1/chat/completions"
    headers = HEADERS

    def refused(self, body: Any, **options: str) -> str:
        """The words of a refusal, those of the server behind a router included."""
        status, answer = self.ask(body, **options)
        assert status == 400, answer
        error = answer["error"]
        return f"{error['message']} {error.get('metadata', {}).get('raw', '')}".strip()

    def lines(self, body: Any, **options: str) -> list[str]:
        """The pieces of a stream as text, comments included."""
        return [data.decode() for data in self.sent({**body, "stream": True}, **options)]

    def chunks(self, body: Any, **options: str) -> list[Any]:
        return parsed(self.lines(body, **options))

    def message(self, body: Any, *, stream: bool) -> tuple[dict[str, Any], str]:
        """The message as a client keeps it, and the finish reason."""
        if stream:
            return merged(self.chunks(body))
        choice = self.good(body)["choices"][0]
        return choice["message"], choice["finish_reason"]


def parsed(lines: list[str]) -> list[Any]:
    """The chunks of a stream that ends as it should."""
    events = [line for line in lines if not line.startswith(":")]
    assert all(line.startswith("data: ") and line.endswith("\n\n") and line.count("\n") == 2 for line in events)
    assert events[-1] == "data: [DONE]\n\n"
    return [json.loads(line.removeprefix("data: ")) for line in events[:-1]]


def merged(chunks: list[Any]) -> tuple[dict[str, Any], str]:
    """Chunks put together as a right client does it."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: list[dict[str, Any]] = []
    by_index: dict[int, dict[str, Any]] = {}
    details: dict[tuple[str, int], dict[str, Any]] = {}
    finish = ""
    for chunk in chunks:
        for choice in chunk["choices"]:
            finish = choice["finish_reason"] or finish
            delta = choice["delta"]
            for name in ("content", "reasoning", "reasoning_content", "refusal"):
                if delta.get(name):
                    message[name] = (message.get(name) or "") + delta[name]
            for detail in delta.get("reasoning_details") or ():
                _merge_detail(detail, details)
            for piece in delta.get("tool_calls") or ():
                _merge_call(piece, calls, by_index)
    if calls:
        message["tool_calls"] = calls
    if details:
        message["reasoning_details"] = list(details.values())
    return message, finish


def _merge_detail(detail: dict[str, Any], details: dict[tuple[str, int], dict[str, Any]]) -> None:
    entry = details.setdefault((detail["type"], detail["index"]), {})
    for key, value in detail.items():
        entry[key] = entry.get(key, "") + value if key in ("text", "summary") else value


def _merge_call(piece: dict[str, Any], calls: list[dict[str, Any]], by_index: dict[int, dict[str, Any]]) -> None:
    index = piece.get("index")
    known = by_index.get(index) if index is not None else (calls[-1] if calls else None)
    if known is None or piece.get("id") not in (None, "", known["id"]):
        function = {"name": piece["function"]["name"], "arguments": ""}
        known = {"id": piece["id"], "type": "function", "function": function}
        calls.append(known)
        if index is not None:
            by_index[index] = known
    known["function"]["arguments"] += piece["function"].get("arguments") or ""


def request(prompt: str = "loop", model: str = "compatible-1", **changes: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "You help."}, {"role": "user", "content": prompt}]
    return {"model": model, "messages": messages, "tools": deepcopy(TOOLS), **changes}


def continued(body: Json, message: Json, prompt: str | None = None, **changes: Any) -> Json:
    """The next request: the answer as this server takes it back, then results for its calls, or a new prompt."""
    kept = {"role", "content", "tool_calls", ECHO[body["model"]]}
    answer = {key: value for key, value in message.items() if key in kept} | changes
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"result {number}"}
        for number, call in enumerate(message.get("tool_calls") or (), 1)
    ]
    asked = [] if prompt is None else [{"role": "user", "content": prompt}]
    return deepcopy({**body, "messages": [*body["messages"], answer, *results, *asked]})
