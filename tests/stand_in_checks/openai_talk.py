"""Speaks to the OpenAI dialect, without a socket or through one: a request in, status and JSON (or events) out."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from tests.stand_in_checks.talk import REST_OF_LOOP, DialectTalk, OneDialect
from tests.stand_ins.openai.service import OpenAiDialect

MODEL = "gpt-6-sol"
BOUND = "gpt-6.2-sol"
HEADERS = {"authorization": "Bearer sk-test", "content-type": "application/json"}
PATH = {"path": {"type": "string"}}
SCHEMA = {"type": "object", "properties": PATH, "required": ["path"], "additionalProperties": False}
TOOLS = [
    {"type": "function", "name": name, "description": "A tool", "strict": True, "parameters": SCHEMA}
    for name in ("read_file", "list_files", "search_text")
]
ENCRYPTED = ["reasoning.encrypted_content"]
LOOP = f"""
[[turn]]
when = "loop"
[[turn.step]]
block = [
  {{ thinking = "First I think.\\n\\nThen I plan." }}, {{ redacted_thinking = "hidden" }}, {{ text = "Looking." }},
  {{ thinking = "And think again." }},
  {{ tool = "read_file", input = {{ path = "a" }} }}, {{ tool = "list_files", input = {{ path = "." }} }},
]
{REST_OF_LOOP}
"""


class Talk(DialectTalk):
    speaks = OpenAiDialect
    path = "/v1/responses"
    headers = HEADERS
    scenario = LOOP

    def refused(self, body: Any, status: int = 400, **options: str) -> Any:
        """The error of a refusal: message, type, param and code."""
        answered, answer = self.ask(body, **options)
        assert answered == status, answer
        assert answer.keys() == {"error"}
        assert answer["error"].keys() == {"message", "type", "param", "code"}
        assert answer["error"]["type"] == "invalid_request_error"
        return answer["error"]


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def request(prompt: str = "loop", model: str = MODEL, **changes: Any) -> dict[str, Any]:
    reasoning = {"effort": "high", "summary": "auto"}
    body = {"model": model, "store": False, "include": ENCRYPTED, "reasoning": reasoning, "input": [user(prompt)]}
    return {**body, "tools": deepcopy(TOOLS), "instructions": "You help.", **changes}


def continued(body: dict[str, Any], answer: dict[str, Any], prompt: str | None = None) -> dict[str, Any]:
    """The next request: the answer's items exactly as they came, then outputs for its calls, or a new prompt."""
    calls = [item["call_id"] for item in answer["output"] if item["type"] == "function_call"]
    outputs = [
        {"type": "function_call_output", "call_id": call, "output": f"result {n}"} for n, call in enumerate(calls, 1)
    ]
    said = [user(prompt)] if prompt is not None else []
    return deepcopy({**body, "input": [*body["input"], *answer["output"], *outputs, *said]})


def in_loop(**changes: Any) -> tuple[Talk, dict[str, Any]]:
    """The third request of a tool loop: two answers stand before it."""
    talk = Talk()
    body = request(**changes)
    body = continued(body, talk.good(body))
    return talk, continued(body, talk.good(body))


class OpenAiSimulator(OneDialect):
    speaks = OpenAiDialect


simulated = OpenAiSimulator
