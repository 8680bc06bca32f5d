"""Requests that compatible servers refuse, and the words in which they do; and what they take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.simulator_chat_talk import TOOLS

USER = {"role": "user", "content": "plain"}
FUNCTION = {"name": "read_file", "arguments": "{}"}
CALL = {"id": "call_1", "type": "function", "function": FUNCTION}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "ok"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The "
    "following tool_call_ids did not have response messages: call_1"
)
ORPHAN = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
EXTRA = "Extra inputs are not permitted"
NO_THINKING = '"plain-1" does not support thinking'
OLLAMA_LEVELS = (
    'invalid reasoning value: "tiny" (must be "minimal", "low", "medium", "high", "xhigh", "max", "ultra", or "none")'
)


@dataclass(frozen=True)
class Case:
    """A request and the words in its refusal; without words it is accepted."""

    id: str
    message: str = ""
    model: str = "compatible-1"
    changes: dict[str, Any] = field(default_factory=dict)


def messages(id_: str, message: str, *said: Any, model: str = "compatible-1") -> Case:
    return Case(id_, message, model, {"messages": list(said)})


def calling(id_: str, message: str, *calls: Any, model: str = "compatible-1", **changes: Any) -> Case:
    return messages(id_, message, USER, {**CALLING, "tool_calls": list(calls), **changes}, RESULT, model=model)


def tool(id_: str, message: str, model: str = "compatible-1", **function: Any) -> Case:
    changed = {**TOOLS[0], "function": {**TOOLS[0]["function"], **function}}
    return Case(id_, message, model, {"tools": [changed]})


def strict(id_: str, message: str, **changes: Any) -> Case:
    return Case(id_, f"{message}: {EXTRA}", "strict-1", changes)


REFUSALS = [
    Case("messages-none", "Invalid type for 'messages'", changes={"messages": None}),
    messages("messages-empty", "Invalid 'messages': empty array."),
    messages("message-text", "Invalid type for 'messages[0]'", "hello"),
    messages("role-none", "Missing required parameter: 'messages[0].role'", {"content": "x"}),
    messages("role-unknown", "Invalid value: 'robot'. Supported values are: 'system'", {**USER, "role": "robot"}),
    messages("role-list", "Invalid value: '[]'", {**USER, "role": []}),
    messages(
        "developer-at-deepseek", "unknown variant `developer`", {**USER, "role": "developer"}, model="deepseek-chat"
    ),
    messages("content-null", "expected a string, got null", {"role": "user", "content": None}),
    messages("content-missing", "expected a string, got null", {"role": "user"}),
    messages("content-null-answer", "expected a string, got null", USER, {"role": "assistant", "content": None}, USER),
    messages("content-null-ollama", "invalid message content type: <nil>", {"role": "user"}, model="gpt-oss:20b"),
    messages("content-number", "expected one of a string or array of objects", {"role": "user", "content": 7}),
    messages("content-empty", "Invalid 'messages[0].content': empty array", {"role": "user", "content": []}),
    messages("part-kind", "Invalid value: 'song'.", {"role": "user", "content": [{"type": "song"}]}),
    messages("part-text", "Invalid value: None.", {"role": "user", "content": ["hello"]}),
    messages("part-hollow", "'messages[0].content[0].text'", {"role": "user", "content": [{"type": "text"}]}),
    messages(
        "image-of-assistant", "Invalid value: 'image_url'.", USER, {"role": "assistant", "content": [IMAGE]}, USER
    ),
    messages("image-of-tool", "Invalid value: 'image_url'.", USER, CALLING, {**RESULT, "content": [IMAGE]}),
    messages("image-far", "invalid image input", {"role": "user", "content": [IMAGE]}, model="ollama-llava"),
    messages("unanswered", UNANSWERED, USER, CALLING, USER),
    messages("unanswered-end", UNANSWERED, USER, CALLING),
    messages("unanswered-late", UNANSWERED, USER, CALLING, USER, RESULT),
    calling("unanswered-one", UNANSWERED.replace("call_1", "call_2"), CALL, {**CALL, "id": "call_2"}),
    messages("orphan", ORPHAN, USER, RESULT),
    messages("orphan-other", ORPHAN, USER, CALLING, {**RESULT, "tool_call_id": "call_2"}),
    messages("orphan-later", ORPHAN, USER, CALLING, RESULT, {"role": "assistant", "content": "x"}, RESULT),
    messages("answered-twice", "Duplicate value for 'tool_call_id' of 'call_1'", USER, CALLING, RESULT, RESULT),
    messages("result-without-id", "messages[2].tool_call_id", USER, CALLING, {"role": "tool", "content": "x"}),
    messages("result-null", "expected a string, got null", USER, CALLING, {**RESULT, "content": None}),
    calling("id-twice", "Duplicate value for 'tool_call_id' of 'call_1'", CALL, CALL),
    messages("calls-of-user", "Invalid type for 'messages[0].tool_calls'", {**USER, "tool_calls": True}),
    calling("calls-empty", "Invalid 'messages[1].tool_calls': empty array."),
    calling("call-text", "Invalid type for 'messages[1].tool_calls[0]'", "call_1"),
    calling("id-empty", "messages[1].tool_calls[0].id", {**CALL, "id": ""}),
    calling("type-missing", "messages[1].tool_calls[0].type", {"id": "call_1", "function": FUNCTION}),
    calling("name-empty", "tool_calls[0].function.name", {**CALL, "function": {**FUNCTION, "name": ""}}),
    calling("input-object", "tool_calls[0].function.arguments", {**CALL, "function": {**FUNCTION, "arguments": {}}}),
    calling(
        "input-empty",
        "Failed to parse tool call arguments as JSON",
        {**CALL, "function": {**FUNCTION, "arguments": ""}},
    ),
    calling(
        "input-cut",
        "Failed to parse tool call arguments as JSON",
        {**CALL, "function": {**FUNCTION, "arguments": '{"path": "a'}},
    ),
    calling(
        "input-list-ollama",
        "invalid tool call arguments",
        {**CALL, "function": {**FUNCTION, "arguments": "[]"}},
        model="gpt-oss:20b",
    ),
    Case("tools-empty", "Invalid 'tools': empty array.", changes={"tools": []}),
    Case("tools-object", "Invalid type for 'tools'", changes={"tools": {}}),
    Case("tool-type", "Invalid value for 'tools[0].type'", changes={"tools": [{**TOOLS[0], "type": "custom"}]}),
    Case("tool-flat", "Missing required parameter: 'tools[0].function'", changes={"tools": [{"type": "function"}]}),
    tool("tool-name", "Invalid 'tools[0].function.name'", name="a b"),
    tool("tool-schema", "Invalid type for 'tools[0].function.parameters'", parameters=[]),
    Case("choice-without-tools", "'tool_choice' is only allowed when", changes={"tools": None, "tool_choice": "auto"}),
    Case("parallel-without-tools", "only allowed when", changes={"tools": None, "parallel_tool_calls": True}),
    Case("choice-word", "Invalid value for 'tool_choice'", changes={"tool_choice": "any"}),
    Case(
        "choice-name",
        "no function named 'edit'",
        changes={"tool_choice": {"type": "function", "function": {"name": "edit"}}},
    ),
    Case("cap-0", "Expected a value >= 1, but got 0 instead.", changes={"max_tokens": 0}),
    Case("cap-true", "Invalid type for 'max_tokens'", changes={"max_tokens": True}),
    Case("cap-twice", "at the same time", changes={"max_tokens": 9, "max_completion_tokens": 9}),
    Case(
        "cap-over-window",
        "'max_tokens' or 'max_completion_tokens' is too large: 65536. This model's maximum context length is 65536",
        "vllm-qwen3-32b",
        {"max_tokens": 65536},
    ),
    Case("stream-word", "Invalid type for 'stream'", changes={"stream": "yes"}),
    Case("usage-unstreamed", "'stream_options' parameter is only", changes={"stream_options": {"include_usage": True}}),
    Case("temperature", "Invalid 'temperature'", changes={"temperature": 3}),
    Case("effort-ollama", OLLAMA_LEVELS, "gpt-oss:20b", {"reasoning_effort": "tiny"}),
    Case(
        "effort-ollama-wins", OLLAMA_LEVELS, "gpt-oss:20b", {"reasoning": {"effort": "tiny"}, "reasoning_effort": "low"}
    ),
    Case("effort-deepseek", "unknown variant `none`", "deepseek-chat", {"reasoning_effort": "none"}),
    Case("effort-vllm", "reasoning_effort: Input should be 'none', 'low'", "vllm-x", {"reasoning_effort": "max"}),
    Case("effort-openrouter", "reasoning.effort: Invalid option", "a/b", {"reasoning": {"effort": "ultra"}}),
    Case("effort-number", "Invalid type for 'reasoning_effort'", changes={"reasoning_effort": 3}),
    Case("effort-and-budget", "Only one of", "a/b", {"reasoning": {"effort": "low", "max_tokens": 2000}}),
    Case("budget-word", "reasoning.max_tokens", "a/b", {"reasoning": {"max_tokens": "many"}}),
    Case("thinking-type", "unknown variant `adaptive`", "deepseek-chat", {"thinking": {"type": "adaptive"}}),
    Case("thinking-word", "Invalid type for 'thinking'", "deepseek-chat", {"thinking": "on"}),
    Case("format", "Unknown reasoning format: tags", "llama-3", {"reasoning_format": "tags"}),
    Case("plain-effort", NO_THINKING, "plain-1", {"reasoning_effort": "low"}),
    Case("plain-reasoning", NO_THINKING, "plain-1", {"reasoning": {"max_tokens": 2000}}),
    Case("plain-thinking", NO_THINKING, "plain-1", {"thinking": {"type": "enabled"}}),
    Case("plain-template", NO_THINKING, "plain-1", {"chat_template_kwargs": {"enable_thinking": True}}),
    Case("plain-flag", NO_THINKING, "plain-1", {"enable_thinking": True}),
    strict("strict-key", "max_completion_tokens", max_completion_tokens=9),
    strict("strict-thinking", "thinking", thinking={"type": "disabled"}),
    strict("strict-reasoning", "reasoning", reasoning=None),
    strict("strict-message", "messages.0.cache_control", messages=[{**USER, "cache_control": None}]),
    strict(
        "strict-part",
        "messages[0].content[0].x",
        messages=[{**USER, "content": [{"type": "text", "text": "", "x": 1}]}],
    ),
    strict("strict-result", "messages.2.name", messages=[USER, CALLING, {**RESULT, "name": "read_file"}]),
    strict(
        "strict-call",
        "messages[1].tool_calls[0].index",
        messages=[USER, {**CALLING, "tool_calls": [{**CALL, "index": 0}]}, RESULT],
    ),
    strict("strict-tool", "tools[0].x", tools=[{**TOOLS[0], "x": 1}]),
    strict("strict-options", "stream_options.x", stream=True, stream_options={"x": 1}),
]

ACCEPTED = [
    Case("bare", changes={"tools": None}),
    messages(
        "result-order",
        "",
        USER,
        {**CALLING, "tool_calls": [CALL, {**CALL, "id": "b"}]},
        {**RESULT, "tool_call_id": "b"},
        RESULT,
    ),
    messages("same-id-later", "", USER, CALLING, RESULT, CALLING, RESULT),
    messages("parts", "", {"role": "user", "content": [{"type": "text", "text": "plain"}, IMAGE]}),
    messages("system-late", "", USER, {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}),
    messages("text-with-calls", "", USER, {**CALLING, "content": "Looking."}, RESULT),
    calling("unknown-keys", "", {**CALL, "index": 0}, x=1),
    Case("unknown-key", changes={"mood": "good"}),
    Case("nulls", changes={"max_tokens": None, "tool_choice": None, "stream_options": None, "reasoning_effort": None}),
    Case("named-choice", changes={"tool_choice": {"type": "function", "function": {"name": "read_file"}}}),
    Case("openai-keys", "", "strict-1", {"reasoning_effort": "high", "max_tokens": 900, "temperature": 1, "user": "x"}),
    Case("effort-template", "", "llama-3", {"reasoning_effort": "whatever"}),
    Case("plain-off", "", "plain-1", {"reasoning_effort": "none", "thinking": {"type": "disabled"}}),
    Case("budget", "", "a/b", {"reasoning": {"max_tokens": 2000, "exclude": False}}),
    Case("foreign-knob", "", "gpt-oss:20b", {"thinking": {"type": "deep"}, "max_tokens": 10**6}),
    Case("cap-later", "", changes={"max_completion_tokens": 9}),
]

# Model, what the request says about thinking, and whether the model thinks then.
SWITCHES: list[tuple[str, dict[str, Any], bool]] = [
    ("compatible-1", {}, True),
    ("compatible-1", {"reasoning_effort": "none"}, False),
    ("compatible-1", {"thinking": {"type": "disabled"}}, False),
    ("compatible-1", {"enable_thinking": False}, False),
    ("deepseek-chat", {}, True),
    ("deepseek-chat", {"thinking": {"type": "disabled"}}, False),
    ("deepseek-chat", {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}, True),
    ("qwen3-8b", {"chat_template_kwargs": {"enable_thinking": False}}, False),
    ("qwen3-8b", {"reasoning_effort": "none"}, False),
    ("qwen3-8b", {"thinking": {"type": "disabled"}}, True),
    ("gpt-oss:20b", {"reasoning_effort": "none"}, False),
    ("gpt-oss:20b", {"reasoning": {"effort": "none"}, "reasoning_effort": "high"}, False),
    ("gpt-oss:20b", {"reasoning_effort": "ultra"}, True),
    ("a/b", {"reasoning": {"effort": "none"}}, False),
    ("a/b", {"reasoning": {"enabled": False}}, False),
    ("a/b", {"reasoning": {"exclude": True}}, False),
    ("a/b", {"reasoning_effort": "xhigh"}, True),
    ("vllm-x", {"chat_template_kwargs": {"thinking": False}}, False),
    ("lmstudio-x", {"reasoning_effort": "none"}, False),
    ("strict-1", {"reasoning_effort": "none"}, False),
    ("plain-1", {}, False),
]
