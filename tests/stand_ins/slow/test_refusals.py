"""The stand-ins refuse what the services refuse, in their words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stand_ins.slow.talk import MODELS, Talk
from thinklsp.settings.model import Provider

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
CHAT: Provider = "openai-compatible"
CACHE = {"cache_control": {"type": "ephemeral"}}
OFF, MANUAL = {"type": "disabled"}, {"type": "enabled", "budget_tokens": 2000}
ROUND = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "read_file", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
BLOB = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABabcdef=="}
ASKED = {"type": "message", "role": "user", "content": "a"}
USER = {"role": "user", "content": "plain"}
CALLED = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALLED]}
TOLD = {"role": "tool", "tool_call_id": "call_1", "content": "ok"}
DUMMY = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
SIGNED = {"functionCall": {"name": "read_file", "args": {}}, "thoughtSignature": DUMMY}
ANSWER = {"functionResponse": {"name": "read_file", "response": {"output": "ok"}}}


def between(*contents: Any) -> dict[str, Any]:
    """Contents of user and assistant in turn."""
    return {"messages": [{"role": ("user", "assistant")[n % 2], "content": said} for n, said in enumerate(contents)]}


def tool(**schema: Any) -> dict[str, Any]:
    return {"tools": [{"name": "read_file", "input_schema": {"type": "object", **schema}}]}


def function(strict: bool = False, **schema: Any) -> dict[str, Any]:
    parameters = {"type": "object", **schema}
    return {"tools": [{"type": "function", "name": "read_file", "strict": strict, "parameters": parameters}]}


def said(*parts: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def generation(**config: Any) -> dict[str, Any]:
    return {"generationConfig": config}


# The stand-in, a change of its usual request, and a part of the refusal.
ROWS: list[tuple[Provider, dict[str, Any], str]] = [
    ("anthropic", {"thinking": MANUAL}, '"thinking.type.enabled" is not supported for this model.'),
    ("anthropic", {"thinking": OFF}, '"thinking.type.disabled" is not supported for this model.'),
    ("anthropic", {"thinking": {"type": "between_tools"}}, '"thinking.type.between_tools" is not supported'),
    ("anthropic", {"model": "claude-opus-4-5"}, '"thinking.type.adaptive" is not supported for this model.'),
    ("anthropic", {"model": "claude-opus-4-5", "thinking": {**MANUAL, "budget_tokens": 1023}}, "or equal to 1024"),
    ("anthropic", {"model": "claude-opus-4-5", "thinking": {**MANUAL, "budget_tokens": 8000}}, "must be greater than"),
    ("anthropic", {"model": "claude-opus-5", "thinking": OFF, "output_config": {"effort": "max"}}, "is disabled"),
    ("anthropic", {"model": "claude-sonnet-4-5", "output_config": {"effort": "low"}}, "output_config.effort"),
    ("anthropic", {"temperature": 0.2}, "`temperature`"),
    ("anthropic", {"max_tokens": 128_001}, "max_tokens: 128001 > 128000"),
    ("anthropic", {"mood": "good"}, "mood: Extra inputs are not permitted"),
    ("anthropic", {"tools": tool()["tools"] * 2}, "Tool names must be unique."),
    ("anthropic", tool(anyOf=[]), "input_schema does not support oneOf, allOf, or anyOf"),
    ("anthropic", tool(properties={"a b": {}}), "Property keys should match pattern"),
    ("anthropic", between("plain", "Sure"), "does not support assistant message prefill"),
    ("anthropic", between([{"type": "text", "text": ""}]), "text content blocks must be non-empty"),
    ("anthropic", between("loop", [ROUND], "go on"), "tool_use ids were found without tool_result blocks"),
    ("anthropic", between([RESULT]), "unexpected `tool_use_id` found in `tool_result` blocks: toolu_1."),
    ("anthropic", between("loop", [ROUND], [RESULT, RESULT]), "each tool_use must have a single result."),
    ("anthropic", between("loop", [ROUND, ROUND], [RESULT]), "`tool_use` ids must be unique"),
    ("anthropic", between([{"type": "text", "text": "a", **CACHE}] * 5), "A maximum of 4 blocks"),
    ("anthropic", {"model": "missing-1"}, "model: missing-1"),
    ("openai", {"mood": "good"}, "Unknown parameter: 'mood'."),
    ("openai", {"max_output_tokens": 15}, "Invalid 'max_output_tokens'"),
    ("openai", {"temperature": 0.2}, "Unsupported parameter: 'temperature' is not supported with this model."),
    ("openai", {"model": "gpt-6-astra", "reasoning": {"effort": "none"}}, "Unsupported value: 'none' is not supported"),
    (
        "openai",
        {"model": "gpt-4.1", "include": [], "reasoning": {"effort": "low"}},
        "'reasoning.effort' is not supported with this model.",
    ),
    ("openai", {"model": "gpt-4.1", "reasoning": None}, "Encrypted content is not supported with this model."),
    ("openai", {"tools": [{**function()["tools"][0], "name": "a b"}]}, "Invalid 'tools[0].name'"),
    ("openai", function(strict=True), "Invalid 'tools[0].strict'"),
    ("openai", function(oneOf=[]), "and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top"),
    ("openai", function(properties={"a": {"type": "array"}}), "array schema missing items."),
    ("openai", {"input": [{**ASKED, "content": ""}]}, "Invalid 'input[0].content'"),
    ("openai", {"input": [ASKED, CALL]}, "No tool output found for function call call_1."),
    ("openai", {"input": [ASKED, OUTPUT]}, "No tool call found for function call output"),
    ("openai", {"input": [ASKED, CALL, OUTPUT, OUTPUT]}, "Duplicate item found with id call_1."),
    ("openai", {"input": [ASKED, {**CALL, "id": "call_1"}, OUTPUT]}, "Invalid 'input[1].id'"),
    ("openai", {"input": [ASKED, BLOB]}, "The encrypted content for item rs_1 could not be verified."),
    ("openai", {"model": "missing-1"}, "The model `missing-1` does not exist"),
    (CHAT, {"messages": [USER, CALLING, USER]}, "An assistant message with 'tool_calls' must be followed by"),
    (CHAT, {"messages": [USER, TOLD]}, "must be a response to a preceeding message"),
    (CHAT, {"messages": [USER, CALLING, TOLD, TOLD]}, "and there is one for each call"),
    (CHAT, {"messages": [USER, {"role": "assistant", "content": None}, USER]}, "expected a string, got null"),
    (CHAT, {"model": "deepseek-chat", "messages": [{**USER, "role": "developer"}]}, "Invalid value: 'developer'"),
    (CHAT, {"tools": []}, "Invalid 'tools'"),
    (CHAT, {"max_tokens": 9, "max_completion_tokens": 9}, "at the same time"),
    (CHAT, {"model": "deepseek-chat", "reasoning_effort": "none"}, "unknown variant `none`"),
    (CHAT, {"model": "gpt-oss:20b", "reasoning_effort": "tiny"}, 'invalid reasoning value: "tiny"'),
    (CHAT, {"model": "a/b", "reasoning": {"effort": "low", "max_tokens": 2000}}, "Only one of"),
    (CHAT, {"model": "plain-1", "reasoning_effort": "low"}, '"plain-1" does not support thinking'),
    (CHAT, {"model": "strict-1", "max_completion_tokens": 9}, "max_completion_tokens: Extra inputs are not"),
    (CHAT, {"model": "missing-1"}, "model 'missing-1' not found"),
    ("google", {"mood": 1}, 'Unknown name "mood": Cannot find field.'),
    ("google", {"contents": []}, "contents is not specified"),
    ("google", {"contents": [said("")]}, "required oneof field 'data' must have one initialized field"),
    ("google", {"contents": [said("a", role="model"), said("b")]}, "multiturn requests begin with a user role."),
    ("google", {"contents": [said("a"), said(SIGNED, role="model"), said("b")]}, "number of function response"),
    ("google", {"contents": [said(ANSWER)]}, "function response turn comes immediately after"),
    ("google", {"contents": [said("a"), said(SIGNED, role="model"), said(ANSWER, "b")]}, "response turn comes"),
    (
        "google",
        {"model": "gemini-3.8-flash", **generation(thinkingConfig={"thinkingBudget": 0})},
        "Budget 0 is invalid",
    ),
    ("google", {"model": "gemini-2.5-pro", **generation(thinkingConfig={"thinkingBudget": 32769})}, "between 128 and"),
    ("google", {"model": "gemini-4-argon", **generation(thinkingConfig={"thinkingLevel": "xhigh"})}, "level XHIGH is"),
    ("google", {"model": "gemini-2.5-flash-image", **generation()}, "Function calling is not enabled for models/"),
    ("google", generation(maxOutputTokens=65537), "the supported range is from 1 (inclusive)"),
    ("google", {"tools": [{"functionDeclarations": [{"name": "1st", "parametersJsonSchema": SCHEMA}]}]}, "name."),
    ("google", {"model": "missing-1"}, "models/missing-1 is not found"),
]


@pytest.mark.parametrize(("provider", "changes", "words"), ROWS, ids=[f"{row[0]}: {row[2][:32]}" for row in ROWS])
def test_request_that_breaks_a_rule_is_refused_by_name(provider: Provider, changes: dict[str, Any], words: str) -> None:
    """Gemini's model is a part of the address."""
    talk = Talk(provider, changes.get("model", "") if provider == "google" else "")
    body = {**talk.say("plain"), **changes}
    if provider == "google":
        body.pop("model", None)
    assert words in talk.refused(body)


@pytest.mark.parametrize("provider", MODELS)
def test_key_window_and_form_of_a_request_are_checked(provider: Provider) -> None:
    talk = Talk(provider, scenario='context_window = 30_000\n[[turn]]\n[[turn.step]]\nblock=[{text="Hi."}]')
    body = talk.say("short")
    talk.good(body)
    if provider != CHAT:
        talk.refused(body, authorization="", x_api_key="", x_goog_api_key="")
    talk.refused(talk.say("long " * 60_000))
    for wrong in (b"{", b"[]", b'{"x":' + 900 * b"[" + 900 * b"]" + b"}"):
        talk.refused(wrong)
