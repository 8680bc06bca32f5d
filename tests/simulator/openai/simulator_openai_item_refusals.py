"""Input items that the service refuses, one by one or for what stands beside them."""

from __future__ import annotations

from typing import Any

from simulator_openai_refusals import CALL, OUTPUT, SAID, USER, Refusal, missing, unknown, without, wrong_type

from tests.support.simulator_openai_talk import user


def said(id_: str, message: str, param: str | None, code: str | None, *items: Any, **options: Any) -> Refusal:
    return Refusal(id_, message, param, code, changes={"input": list(items)}, **options)


def dup(item_id: str) -> str:
    return f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again."


ITEM_REFUSALS = [
    unknown("item-key", "input[0].mood", input=[{**USER, "mood": 1}]),
    unknown("parsed-arguments", "input[1].parsed_arguments", input=[USER, {**CALL, "parsed_arguments": {}}, OUTPUT]),
    unknown("part-key", "input[0].content[0].mood", input=[{**USER, "content": [{**USER["content"][0], "mood": 1}]}]),
    unknown("phase-of-user", "input[0].phase", input=[{**USER, "phase": "final_answer"}]),
    wrong_type("arguments", "input[1].arguments", "a string", "an object", input=[USER, {**CALL, "arguments": {}}]),
    wrong_type(
        "summary", "input[1].summary", "an array", "a string", input=[USER, {"type": "reasoning", "summary": ""}]
    ),
    missing("no-call-id", "input[1].call_id", input=[USER, without(CALL, "call_id"), OUTPUT]),
    missing("no-summary", "input[1].summary", input=[USER, {"type": "reasoning", "id": "rs_1"}, SAID]),
    missing("no-output", "input[2].output", input=[USER, CALL, without(OUTPUT, "output")]),
    missing("no-item-type", "input[0].type", input=[{"content": "x"}]),
    Refusal(
        "item-type",
        "Invalid value: 'song'. ",
        "input[0].type",
        "invalid_value",
        changes={"input": [{"type": "song"}]},
        whole=False,
    ),
    said(
        "role",
        "Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', and 'user'.",
        "input[0].role",
        "invalid_value",
        {"role": "tool", "content": "x"},
    ),
    said(
        "anthropic-text",
        "Invalid value: 'text'. Supported values are: 'input_text', 'input_image', and 'input_file'.",
        "input[0].content[0].type",
        "invalid_value",
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
    ),
    said(
        "input-text-of-assistant",
        "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
        "input[1].content[0].type",
        "invalid_value",
        USER,
        {"role": "assistant", "content": [{"type": "input_text", "text": "x"}]},
    ),
    said(
        "empty-string",
        "Invalid 'input[0].content': empty string. Expected a string with minimum length 1, but got an empty string "
        "instead.",
        "input[0].content",
        "empty_string",
        {"role": "user", "content": ""},
    ),
    said(
        "empty-list",
        "Invalid 'input[0].content': empty array. Expected an array with minimum length 1, but got an empty array "
        "instead.",
        "input[0].content",
        "empty_array",
        {"role": "user", "content": []},
    ),
    said(
        "empty-part",
        "Invalid 'input[0].content[0].text': empty string. Expected a string with minimum length 1, but got an empty "
        "string instead.",
        "input[0].content[0].text",
        "empty_string",
        user(""),
    ),
    said(
        "message-id",
        "Invalid 'input[1].id': 'rs_1'. Expected an ID that begins with 'msg'.",
        "input[1].id",
        "invalid_value",
        USER,
        {**SAID, "id": "rs_1"},
    ),
    said(
        "call-id-as-id",
        "Invalid 'input[1].id': 'call_1'. Expected an ID that begins with 'fc'.",
        "input[1].id",
        "invalid_value",
        USER,
        {**CALL, "id": "call_1"},
        OUTPUT,
    ),
    said(
        "empty-id",
        "Invalid 'input[1].id': ''. Expected an ID that contains letters, numbers, underscores, or dashes, but this "
        "value contained additional characters.",
        "input[1].id",
        "invalid_value",
        USER,
        {**CALL, "id": ""},
        OUTPUT,
    ),
    said(
        "long-call-id",
        "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64, but got a string with "
        "length 65 instead.",
        "input[1].call_id",
        "string_above_max_length",
        USER,
        {**CALL, "call_id": "c" * 65},
        OUTPUT,
    ),
    said("call-without-output", "No tool output found for function call call_1.", "input", None, USER, CALL, USER),
    said("call-last", "No tool output found for function call call_1.", "input", None, USER, CALL),
    said(
        "output-without-call",
        "No tool call found for function call output with call_id call_1.",
        "input",
        None,
        USER,
        OUTPUT,
    ),
    said(
        "output-before-call",
        "No tool call found for function call output with call_id call_1.",
        "input",
        None,
        USER,
        OUTPUT,
        CALL,
    ),
    said("two-calls", dup("call_1"), "input", None, USER, CALL, CALL, OUTPUT),
    said("two-outputs", dup("call_1"), "input", None, USER, CALL, OUTPUT, OUTPUT),
    said(
        "foreign-blob",
        "The encrypted content for item rs_1 could not be verified. Reason: Encrypted content could not be decrypted "
        "or parsed.",
        None,
        "invalid_encrypted_content",
        USER,
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABabcdef=="},
        SAID,
    ),
    said(
        "foreign-blob-without-id",
        "The encrypted content gAAA...ef== could not be verified. Reason: Encrypted content could not be decrypted or "
        "parsed.",
        None,
        "invalid_encrypted_content",
        USER,
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAABabcdef=="},
        SAID,
    ),
    Refusal(
        "pro-and-configuration",
        "The 'configuration_update' item type is not supported with pro or tournament models.",
        "input[1]",
        None,
        changes={
            "reasoning": {"mode": "pro"},
            "input": [USER, {"type": "configuration_update", "reasoning": {"effort": "low"}}],
        },
    ),
]
