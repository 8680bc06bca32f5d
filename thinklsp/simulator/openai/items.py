"""The input items of an OpenAI request: what each may look like, whose turn it is, and what the user said.

Raises `Refused`. How items belong together is looked at in `replay`; items that this process sent as they stand, by a
scenario's own wish, are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from thinklsp.simulator.openai.errors import (
    array,
    bad_value,
    choice,
    filled_array,
    filled_text,
    identifier,
    invalid,
    missing,
    only,
    required,
    table,
    text,
    unknown,
    wrong_type,
)
from thinklsp.simulator.openai.options import Options, check_effort
from thinklsp.simulator.openai.tools import check_name, check_tools
from thinklsp.simulator.script import join_prompt

Item = Mapping[str, Any]
Side = Literal["user", "model", "frame"]
OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
_SIDES: Mapping[str, Side] = {"developer": "frame", "system": "frame", "user": "user"}
_FRAME = frozenset({"additional_tools", "compaction_trigger", "configuration_update"})
_ANSWERED = frozenset(
    {"apply_patch_call_output", "computer_call_output", "local_shell_call_output", "mcp_approval_response"}
    | {"program_output", "shell_call_output"}
)
_ROLES = ("assistant", "system", "developer", "user")
_STATUSES = ("in_progress", "completed", "incomplete")
_PHASES = ("commentary", "final_answer")
_MESSAGE_KEYS = frozenset({"content", "id", "phase", "role", "status", "type"})
_CALL_KEYS = frozenset({"async", "call_id", "caller", "id", "name", "namespace", "status", "type"})
_OUTPUT_KEYS = frozenset({"call_id", "caller", "id", "name", "namespace", "output", "status", "type"})
_REASONING_KEYS = frozenset({"content", "encrypted_content", "id", "status", "summary", "type"})
_PART_KEYS: Mapping[str, frozenset[str]] = {
    "input_file": frozenset({"detail", "file_data", "file_id", "file_url", "filename", "prompt_cache_breakpoint"}),
    "input_image": frozenset({"detail", "file_id", "image_url", "prompt_cache_breakpoint"}),
    "input_text": frozenset({"prompt_cache_breakpoint", "text"}),
    "output_text": frozenset({"annotations", "logprobs", "text"}),
    "refusal": frozenset({"refusal"}),
}
_HEARD = ("input_text", "input_image", "input_file")
_SAID = ("output_text", "refusal")
# Used by the service itself; they come back as they are.
_HOSTED = (
    "apply_patch_call", "apply_patch_call_output", "code_interpreter_call", "compaction_trigger", "computer_call",
    "computer_call_output", "file_search_call", "image_generation_call", "local_shell_call",
    "local_shell_call_output", "mcp_approval_request", "mcp_approval_response", "mcp_call", "mcp_list_tools",
    "program", "program_output", "shell_call", "shell_call_output", "tool_search_call", "tool_search_output",
    "web_search_call",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Conversation:
    """`prompts`: what the user said, oldest first. Items from `turn_start` on answer the last prompt.

    `answers`: runs of the model's items among them. `results`: texts of the tool outputs that end the conversation.
    `system`: what developers said. `effort`: what a configuration_update set it to, if one did.
    """

    items: tuple[Item, ...]
    prompts: tuple[str, ...]
    turn_start: int
    answers: int
    results: tuple[str, ...]
    system: tuple[str, ...]
    effort: str | None


COMPACTION = "compaction"


def still_read(items: Sequence[Item]) -> int:
    """The index of the last compaction, before which nothing is read any more but what developers said."""
    return max((index for index, item in enumerate(items) if kind(item) == COMPACTION), default=0)


def kind(item: Item) -> str:
    return str(item.get("type") or "message")


def side(item: Item) -> Side:
    """Whose turn an item is; what developers put between them parts nothing."""
    name = kind(item)
    if name == "message":
        return _SIDES.get(str(item.get("role")), "model")
    if name in _FRAME:
        return "frame"
    return "user" if name in OUTPUTS or name in _ANSWERED else "model"


def item_text(content: Any) -> str:
    """The text of a message's content or a tool's output; parts that are no text are left out."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def read_conversation(items: Sequence[Item]) -> Conversation:
    prompts: list[str] = []
    start = answers = 0
    last: Sequence[Item] = ()
    for who, run in _runs(items):
        last = [item for _, item in run]
        if who == "model":
            answers += 1
        elif (prompt := _prompt(last)) is not None:
            prompts.append(prompt)
            start, answers = run[-1][0] + 1, 0
    efforts = [effort for item in items if (effort := _effort(item)) is not None]
    return Conversation(
        tuple(items),
        tuple(prompts),
        start,
        answers,
        tuple(item_text(item.get("output")) for item in last if kind(item) in OUTPUTS),
        tuple(item_text(item.get("content")) for item in items if kind(item) == "message" and side(item) == "frame"),
        efforts[-1] if efforts else None,
    )


def _runs(items: Sequence[Item]) -> Iterator[tuple[Side, list[tuple[int, Item]]]]:
    spoken = ((index, item) for index, item in enumerate(items) if side(item) != "frame")
    for who, run in groupby(spoken, key=lambda entry: side(entry[1])):
        yield who, list(run)


def _prompt(run: Sequence[Item]) -> str | None:
    """What the user says in a run, or None where it only brings tool outputs (and remarks in tags beside them)."""
    texts = [item_text(item.get("content")) for item in run if kind(item) == "message"]
    return join_prompt(texts, beside_results=any(kind(item) != "message" for item in run))


def _effort(item: Item) -> str | None:
    reasoning = item.get("reasoning") if kind(item) == "configuration_update" else None
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    return effort if isinstance(effort, str) else None


def check_item(item: Any, place: str, options: Options) -> None:
    """One item of `input`; `place` names it in errors."""
    kind = kind_of(table(item, place), place)
    if kind in _CHECKS:
        _CHECKS[kind](item, place)
        if item.get("status") is not None:
            choice(item["status"], f"{place}.status", _STATUSES)
        return
    match kind:
        case "configuration_update":
            _check_configuration(item, place, options)
        case _ if kind not in _HOSTED:
            known = sorted((*_CHECKS, "configuration_update", *_HOSTED))
            bad_value(f"{place}.type", kind, known)
        case _:
            pass


def kind_of(item: Mapping[str, Any], place: str) -> str:
    """The item's type; messages may leave it out."""
    if item.get("type") is None:
        if "role" in item:
            return "message"
        if item.keys() == {"id"}:
            return "item_reference"
        missing(f"{place}.type")
    return text(item["type"], f"{place}.type")


def _check_message(item: Mapping[str, Any], place: str) -> None:
    only(item, _MESSAGE_KEYS, place)
    role = choice(required(item, "role", place), f"{place}.role", _ROLES)
    if item.get("phase") is not None:
        if role != "assistant":
            unknown(f"{place}.phase")
        choice(item["phase"], f"{place}.phase", _PHASES)
    if item.get("id") is not None:
        identifier(item["id"], f"{place}.id", "msg")
    content = required(item, "content", place)
    if isinstance(content, str):
        filled_text(content, f"{place}.content")
        return
    if not isinstance(content, list):
        wrong_type(f"{place}.content", "one of an array of objects or string", content)
    _check_parts(content, f"{place}.content", _SAID if role == "assistant" else _HEARD)


def _check_parts(parts: Any, place: str, kinds: tuple[str, ...]) -> None:
    for index, part in enumerate(filled_array(parts, place)):
        _check_part(part, f"{place}[{index}]", kinds)


def _check_part(part: Any, place: str, kinds: tuple[str, ...]) -> None:
    kind = choice(required(table(part, place), "type", place), f"{place}.type", kinds)
    only(part, _PART_KEYS[kind] | {"type"}, place)
    match kind:
        case "input_text" | "output_text":
            filled_text(required(part, "text", place), f"{place}.text")
        case "refusal":
            filled_text(required(part, "refusal", place), f"{place}.refusal")
        case "input_image" if part.get("image_url") is None and part.get("file_id") is None:
            missing(f"{place}.image_url")
        case "input_file" if not part.keys() & {"file_data", "file_id", "file_url"}:
            missing(f"{place}.file_id")
        case _:
            pass


def _check_reasoning(item: Mapping[str, Any], place: str) -> None:
    only(item, _REASONING_KEYS, place)
    if item.get("id") is not None:
        identifier(item["id"], f"{place}.id", "rs")
    if "summary" not in item:
        missing(f"{place}.summary")
    for index, part in enumerate(array(item["summary"], f"{place}.summary")):
        _check_readable(part, f"{place}.summary[{index}]", "summary_text")
    for index, part in enumerate(array(item.get("content") or [], f"{place}.content")):
        _check_readable(part, f"{place}.content[{index}]", "reasoning_text")
    if item.get("encrypted_content") is not None:
        text(item["encrypted_content"], f"{place}.encrypted_content")


def _check_readable(part: Any, place: str, kind: str) -> None:
    choice(required(table(part, place), "type", place), f"{place}.type", (kind,))
    only(part, ("type", "text"), place)
    text(required(part, "text", place), f"{place}.text")


def _check_compaction(item: Mapping[str, Any], place: str) -> None:
    only(item, ("type", "id", "encrypted_content"), place)
    if item.get("id") is not None:
        identifier(item["id"], f"{place}.id", "cmp")
    text(required(item, "encrypted_content", place), f"{place}.encrypted_content")


def _check_call(item: Mapping[str, Any], place: str) -> None:
    only(item, _CALL_KEYS | {"arguments"}, place)
    if item.get("id") is not None:
        identifier(item["id"], f"{place}.id", "fc")
    identifier(required(item, "call_id", place), f"{place}.call_id")
    check_name(required(item, "name", place), f"{place}.name")
    text(required(item, "arguments", place), f"{place}.arguments")


def _check_custom_call(item: Mapping[str, Any], place: str) -> None:
    only(item, _CALL_KEYS | {"input"}, place)
    identifier(required(item, "call_id", place), f"{place}.call_id")
    check_name(required(item, "name", place), f"{place}.name")
    text(required(item, "input", place), f"{place}.input")


def _check_output(item: Mapping[str, Any], place: str) -> None:
    only(item, _OUTPUT_KEYS, place)
    identifier(required(item, "call_id", place), f"{place}.call_id")
    output = required(item, "output", place)
    if isinstance(output, str):
        return
    if not isinstance(output, list):
        wrong_type(f"{place}.output", "one of an array of objects or string", output)
    _check_parts(output, f"{place}.output", _HEARD)


def _check_reference(item: Mapping[str, Any], place: str) -> None:
    only(item, ("type", "id"), place)
    identifier(required(item, "id", place), f"{place}.id")


def _check_additional_tools(item: Mapping[str, Any], place: str) -> None:
    only(item, ("type", "id", "role", "tools"), place)
    choice(required(item, "role", place), f"{place}.role", ("developer",))
    check_tools(filled_array(required(item, "tools", place), f"{place}.tools"), f"{place}.tools")


def _check_configuration(item: Mapping[str, Any], place: str, options: Options) -> None:
    """Changes the effort from its place on; the request's own settings stay as they were."""
    only(item, ("type", "id", "reasoning", "text"), place)
    if options.pro:
        invalid("The 'configuration_update' item type is not supported with pro or tournament models.", place)
    reasoning = item.get("reasoning")
    if reasoning is not None:
        only(table(reasoning, f"{place}.reasoning"), ("effort",), f"{place}.reasoning")
        if reasoning.get("effort") is not None:
            check_effort(reasoning["effort"], options.traits, f"{place}.reasoning.effort")
    if item.get("text") is not None:
        table(item["text"], f"{place}.text")


_CHECKS: Mapping[str, Callable[[Mapping[str, Any], str], None]] = {
    "additional_tools": _check_additional_tools,
    "compaction": _check_compaction,
    "custom_tool_call": _check_custom_call,
    "custom_tool_call_output": _check_output,
    "function_call": _check_call,
    "function_call_output": _check_output,
    "item_reference": _check_reference,
    "message": _check_message,
    "reasoning": _check_reasoning,
}
