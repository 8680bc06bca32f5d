"""Requests that the service refuses, and the words in which it does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.simulator_talk import TOOLS

USE_ADAPTIVE = (
    'is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort" to control thinking '
    "behavior."
)
ADAPTIVE = {"type": "adaptive"}
OFF = {"type": "disabled"}
MANUAL = {"type": "enabled", "budget_tokens": 2000}
BETWEEN = {"type": "between_tools"}
CACHE = {"cache_control": {"type": "ephemeral"}}
USER = {"role": "user", "content": "plain"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
TEXT = {"type": "text", "text": "hello"}


def said(*contents: Any) -> list[dict[str, Any]]:
    """Contents of user and assistant in turn."""
    return [{"role": ("user", "assistant")[i % 2], "content": content} for i, content in enumerate(contents)]


@dataclass(frozen=True)
class Refusal:
    """A request that is refused with exactly this message (or, with `whole` False, one that contains it)."""

    id: str
    message: str
    model: str = "claude-opus-5-5"
    changes: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    whole: bool = True


def messages(id_: str, message: str, *contents: Any, **options: Any) -> Refusal:
    return Refusal(id_, message, changes={"messages": said(*contents)}, **options)


REFUSALS = [
    Refusal("manual-on-new", f'"thinking.type.enabled" {USE_ADAPTIVE}', changes={"thinking": MANUAL}),
    Refusal("off-on-always-on", f'"thinking.type.disabled" {USE_ADAPTIVE}', changes={"thinking": OFF}),
    Refusal(
        "off-on-preview",
        '"thinking.type.disabled" is not supported for this model. Thinking defaults to adaptive mode when not '
        'specified; use "thinking.type.enabled" with "budget_tokens" for extended thinking.',
        "claude-mythos-preview",
        {"thinking": OFF},
    ),
    Refusal(
        "off-on-sonnet-5-5",
        'To turn thinking off on this model, send "thinking": {"type": "between_tools"} instead of ',
        "claude-sonnet-5-5",
        {"thinking": OFF},
        whole=False,
    ),
    Refusal(
        "between-elsewhere",
        '"thinking.type.between_tools" is not supported for this model.',
        changes={"thinking": BETWEEN},
    ),
    Refusal(
        "adaptive-on-old",
        "adaptive thinking is not supported on this model",
        "claude-opus-4-5",
        {"thinking": ADAPTIVE},
    ),
    Refusal(
        "effort-when-off",
        "output_config.effort 'xhigh' is not supported when thinking is disabled on this model. Use effort 'high' or "
        "below, or enable thinking.",
        "claude-opus-5",
        {"thinking": OFF, "output_config": {"effort": "xhigh"}},
    ),
    Refusal(
        "max-when-between",
        "output_config.effort 'max' is not supported when thinking is disabled",
        "claude-sonnet-5-5",
        {"thinking": BETWEEN, "output_config": {"effort": "max"}},
        whole=False,
    ),
    Refusal(
        "effort-unknown-to-model",
        "output_config.effort",
        "claude-sonnet-4-5",
        {"output_config": {"effort": "low"}},
        whole=False,
    ),
    Refusal("effort-no-level", "output_config.effort", changes={"output_config": {"effort": "tiny"}}, whole=False),
    Refusal(
        "output-config-key",
        "output_config.mood: Extra inputs are not permitted",
        changes={"output_config": {"mood": 1}},
    ),
    Refusal(
        "forced-tool",
        'tool_choice: type "tool" and "any" are not supported for this model.',
        changes={"tool_choice": {"type": "any"}},
    ),
    Refusal(
        "forced-manual",
        "Thinking may not be enabled when tool_choice forces tool use.",
        "claude-sonnet-4-6",
        {"tool_choice": {"type": "any"}, "thinking": MANUAL},
    ),
    Refusal("choice-without-tools", "tool_choice", changes={"tools": [], "tool_choice": {"type": "auto"}}, whole=False),
    messages(
        "prefill",
        "This model does not support assistant message prefill. The conversation must end with a user message.",
        "plain",
        "Sure",
    ),
    Refusal(
        "budget-small",
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        "claude-opus-4-5",
        {"thinking": {"type": "enabled", "budget_tokens": 1023}},
    ),
    Refusal(
        "budget-reaches-max-tokens",
        "`max_tokens` must be greater than `thinking.budget_tokens`",
        "claude-opus-4-5",
        {"thinking": {"type": "enabled", "budget_tokens": 8000}},
        whole=False,
    ),
    Refusal(
        "budget-with-max-tokens-0",
        "`max_tokens` must be greater than `thinking.budget_tokens`",
        "claude-opus-4-5",
        {"thinking": MANUAL, "max_tokens": 0},
        {"anthropic_beta": "interleaved-thinking-2025-05-14"},
        whole=False,
    ),
    Refusal(
        "display-off",
        "thinking.disabled.display: Extra inputs are not permitted",
        "claude-opus-5",
        {"thinking": {**OFF, "display": "omitted"}},
    ),
    Refusal(
        "display-between",
        "thinking.between_tools.display: Extra inputs are not permitted",
        "claude-sonnet-5-5",
        {"thinking": {**BETWEEN, "display": "omitted"}},
    ),
    Refusal(
        "display-updates-without-beta",
        "thinking.adaptive.display",
        changes={"thinking": {**ADAPTIVE, "display": "updates"}},
        whole=False,
    ),
    Refusal(
        "binding-without-beta",
        "thinking.adaptive.block_binding: Extra inputs are not permitted",
        changes={"thinking": {**ADAPTIVE, "block_binding": {"prefix_mismatch_behavior": "drop_block"}}},
    ),
    Refusal("thinking-without-type", "thinking: ", changes={"thinking": {"display": "omitted"}}, whole=False),
    Refusal("thinking-kind", "Input tag 'deep'", changes={"thinking": {"type": "deep"}}, whole=False),
    Refusal("temperature-4-7", "`temperature`", "claude-opus-4-7", {"temperature": 0.2}, whole=False),
    Refusal("top-k-5-5", "`top_k`", changes={"top_k": 5}, whole=False),
    Refusal("top-p-thinking", "`top_p`", "claude-opus-4-6", {"top_p": 0.5, "thinking": ADAPTIVE}, whole=False),
    Refusal(
        "temperature-newest",
        "temperature: Extra inputs are not permitted",
        "claude-sonnet-4-5",
        {"temperature": 1},
        {"anthropic_version": "2026-10-21"},
    ),
    Refusal("top-level-key", "mood: Extra inputs are not permitted", changes={"mood": "good"}),
    Refusal(
        "beta-key",
        "context_management: Extra inputs are not permitted",
        changes={"context_management": {"edits": []}},
    ),
    Refusal("max-tokens-too-many", "max_tokens: 64001 > 64000", "claude-haiku-4-5", {"max_tokens": 64001}, whole=False),
    Refusal("max-tokens-true", "max_tokens", changes={"max_tokens": True}, whole=False),
    Refusal(
        "beta-unknown",
        "Unexpected value(s) `mood-2026` for the `anthropic-beta` header. Please consult our documentation at "
        "platform.claude.com/docs or try again without the header.",
        headers={"anthropic_beta": "context-1m-2025-08-07, mood-2026"},
    ),
    Refusal("version-unknown", "anthropic-version", headers={"anthropic_version": "2024-01-01"}, whole=False),
    Refusal(
        "breakpoints",
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        changes={
            "tools": [{**tool, **CACHE} for tool in TOOLS],
            "system": [{**TEXT, **CACHE}],
            "messages": said([{**TEXT, **CACHE}]),
        },
    ),
    Refusal(
        "automatic-is-a-breakpoint",
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        changes={"tools": [{**t, **CACHE} for t in TOOLS], "system": [{**TEXT, **CACHE}], **CACHE},
    ),
    Refusal(
        "automatic-and-other-ttl",
        "different ttl",
        changes={"messages": said([{**TEXT, **CACHE}]), "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        whole=False,
    ),
    Refusal(
        "ttl-order",
        "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block",
        changes={
            "system": [{**TEXT, **CACHE}],
            "messages": said([{**TEXT, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]),
        },
        whole=False,
    ),
    messages("empty-text", "messages: text content blocks must be non-empty", [{"type": "text", "text": ""}]),
    messages(
        "blank-text", "messages: text content blocks must contain non-whitespace text", [{"type": "text", "text": " "}]
    ),
    messages("empty-user", "messages.0: user messages must have non-empty content", ""),
    messages("empty-assistant", "messages.1: all messages must have non-empty content", "a", [], "b", whole=False),
    Refusal(
        "empty-system",
        "system: text content blocks must be non-empty",
        changes={"system": [{"type": "text", "text": ""}]},
    ),
    messages(
        "call-without-result",
        "messages.1: tool_use ids were found without tool_result blocks immediately after: toolu_1",
        "loop",
        [CALL],
        "go on",
        whole=False,
    ),
    messages(
        "one-of-two-results",
        "tool_use ids were found without tool_result blocks immediately after: toolu_2",
        "loop",
        [CALL, {**CALL, "id": "toolu_2"}],
        [RESULT],
        whole=False,
    ),
    messages("call-at-end", "tool_use ids were found without tool_result blocks", "loop", [CALL], whole=False),
    messages(
        "text-before-result",
        "tool_use ids were found without tool_result blocks immediately after: toolu_1",
        "loop",
        [CALL],
        [TEXT, RESULT],
        whole=False,
    ),
    messages(
        "orphan",
        "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1.",
        [RESULT],
        whole=False,
    ),
    messages("late-result", "unexpected `tool_use_id`", "loop", [CALL], [RESULT], "hm", [RESULT], whole=False),
    messages(
        "double-result", "each tool_use must have a single result.", "loop", [CALL], [RESULT, RESULT], whole=False
    ),
    messages("double-id", "`tool_use` ids must be unique", "loop", [CALL, CALL], [RESULT], whole=False),
    messages("bad-id", "messages.1.content.0.tool_use.id", "loop", [{**CALL, "id": "a b"}], [RESULT], whole=False),
    messages(
        "input-text",
        "tool_use.input: Input should be a valid dictionary",
        "loop",
        [{**CALL, "input": "{}"}],
        [RESULT],
        whole=False,
    ),
    messages("block-key", "messages.0.content.0.text.id: Extra inputs are not permitted", [{**TEXT, "id": "x"}]),
    messages("call-of-user", "`tool_use` blocks can only be in `assistant` messages", [CALL], whole=False),
    messages("block-type", "Input tag 'song'", [{"type": "song"}], whole=False),
    messages(
        "thinking-breakpoint",
        "Extra inputs are not permitted",
        "a",
        [{"type": "thinking", "thinking": "", "signature": "x", **CACHE}, TEXT],
        "b",
        whole=False,
    ),
    messages(
        "server-tool",
        "`web_search` tool use with id `srvtoolu_1` was found without a corresponding `web_search_tool_result` block",
        "a",
        [{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}, TEXT],
        "b",
        whole=False,
    ),
    Refusal(
        "first-assistant",
        'first message must use the "user" role',
        changes={"messages": [{"role": "assistant", "content": "x"}, USER]},
        whole=False,
    ),
    Refusal("no-messages", "messages: at least one message is required", changes={"messages": []}),
    Refusal("role", "messages.0.role", changes={"messages": [{"role": "tool", "content": "x"}]}, whole=False),
    Refusal(
        "message-key", "messages.0.name: Extra inputs are not permitted", changes={"messages": [{**USER, "name": "x"}]}
    ),
    Refusal(
        "system-role-on-old",
        "role 'system' is not supported on this model",
        "claude-opus-4-6",
        {"messages": [USER, {"role": "system", "content": "x"}]},
        whole=False,
    ),
    Refusal(
        "own-effort-without-beta",
        "messages.1.output_config: Extra inputs are not permitted",
        changes={"messages": [USER, {"role": "system", "content": [], "output_config": {"effort": "low"}}]},
    ),
    Refusal("tool-names", "tools: Tool names must be unique.", changes={"tools": [TOOLS[0], TOOLS[0]]}),
    Refusal("tool-name", "tools.0.custom.name", changes={"tools": [{**TOOLS[0], "name": "a b"}]}, whole=False),
    Refusal("tool-schema", "tools.0.custom.input_schema", changes={"tools": [{"name": "a"}]}, whole=False),
]
