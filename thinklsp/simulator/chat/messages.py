"""The conversation in a chat request: its shape, its tool calls and their answers, and what the user said in it.

Raises `Refused` for what servers refuse. Reasoning that comes back is judged elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NoReturn

from thinklsp.simulator.chat.flavours import Flavour, empty_list, extra, invalid, missing, wrong_type
from thinklsp.simulator.script import join_prompt

Message = Mapping[str, Any]
_INLINE_IMAGE = re.compile(r"data:(image/(jpeg|jpg|png|webp))?;base64,")
# Keys that a gateway without any extension knows, by role.
_KEYS: Mapping[str, frozenset[str]] = {
    "system": frozenset({"role", "content", "name"}),
    "developer": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "name", "refusal", "tool_calls"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
_PARTS: Mapping[str, frozenset[str]] = {
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
}
_PAYLOADS: Mapping[str, type[object]] = {"text": str, "refusal": str, "image_url": dict}


@dataclass(frozen=True, slots=True)
class Conversation:
    """`prompts`: what the user said, oldest first. Messages from `loop_start` on answer the last prompt.

    `answers`: assistant messages among them. `results`: texts of the tool messages that end the conversation.
    """

    messages: tuple[Message, ...]
    prompts: tuple[str, ...]
    loop_start: int
    answers: int
    results: tuple[str, ...]

    @property
    def system(self) -> str:
        return "\n".join(text_of(m) for m in self.messages if m["role"] in ("system", "developer"))

    def assistants(self) -> Iterator[tuple[int, Message]]:
        return ((number, m) for number, m in enumerate(self.messages) if m["role"] == "assistant")


def read_conversation(messages: Any, flavour: Flavour) -> Conversation:
    """The checked conversation. Raises Refused."""
    if not isinstance(messages, list):
        wrong_type("messages", "an array of objects")
    if not messages:
        empty_list("messages")
    for number, message in enumerate(messages):
        _check_message(message, f"messages[{number}]", number, flavour)
    _check_pairs(messages)
    return _conversation(tuple(messages))


def text_of(message: Message) -> str:
    """The text of a message; parts that are no text are left out."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part["type"] == "text")
    return content or ""


def calls_of(message: Message) -> list[str]:
    return [str(call["id"]) for call in message.get("tool_calls") or ()]


def _check_message(message: Any, place: str, number: int, flavour: Flavour) -> None:
    if not isinstance(message, Mapping):
        wrong_type(place, "an object")
    role = message.get("role")
    if role is None:
        missing(f"{place}.role")
    if role not in flavour.roles:
        _unknown_role(role, place, flavour)
    if flavour.closed:
        for key in message:
            if key not in _KEYS[role]:
                extra(f"messages.{number}.{key}")
    _check_calls(message.get("tool_calls"), f"{place}.tool_calls", flavour)
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        missing(f"{place}.tool_call_id")
    _check_content(message, place, flavour)


def _unknown_role(role: Any, place: str, flavour: Flavour) -> NoReturn:
    if flavour.name == "deepseek":
        known = ", ".join(f"`{name}`" for name in flavour.roles)
        invalid(
            "Failed to deserialize the JSON body into the target type: "
            f"{place}.role: unknown variant `{role}`, expected one of {known}"
        )
    known = ", ".join(f"'{name}'" for name in flavour.roles[:-1])
    invalid(
        f"Invalid value: '{role}'. Supported values are: {known}, and '{flavour.roles[-1]}'.",
        f"{place}.role",
        "invalid_value",
    )


def _check_content(message: Message, place: str, flavour: Flavour) -> None:
    content, role = message.get("content"), message["role"]
    if isinstance(content, str):
        return
    if content is None:
        if role != "assistant" or not message.get("tool_calls"):
            if flavour.name == "ollama":
                invalid("invalid message content type: <nil>")
            invalid(f"Invalid value for 'content': expected a string, got null. ({place}.content)", f"{place}.content")
        return
    if not isinstance(content, list):
        wrong_type(f"{place}.content", "one of a string or array of objects")
    if not content:
        empty_list(f"{place}.content")
    for index, part in enumerate(content):
        _check_part(part, f"{place}.content[{index}]", _PARTS.get(role, frozenset({"text"})), flavour)


def _check_part(part: Any, place: str, known: frozenset[str], flavour: Flavour) -> None:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(kind, str) or kind not in known:
        names = ", ".join(f"'{name}'" for name in sorted(known))
        invalid(f"Invalid value: {kind!r}. Supported values are: {names}.", f"{place}.type", "invalid_value")
    if not isinstance(part.get(kind), _PAYLOADS.get(kind, object)) or part.get(kind) is None:
        missing(f"{place}.{kind}")
    if flavour.closed:
        for key in part:
            if key not in ("type", kind):
                extra(f"{place}.{key}")
    if kind == "image_url":
        url = part["image_url"].get("url")
        if not isinstance(url, str):
            missing(f"{place}.image_url.url")
        if flavour.name == "ollama" and not _INLINE_IMAGE.match(url):
            invalid("invalid image input")


def _check_calls(calls: Any, place: str, flavour: Flavour) -> None:
    if calls is None:
        return
    if not isinstance(calls, list):
        wrong_type(place, "an array of objects")
    if not calls:
        empty_list(place)
    seen: set[str] = set()
    for index, call in enumerate(calls):
        call_id = _check_call(call, f"{place}[{index}]", flavour)
        if call_id in seen:
            invalid(f"Duplicate value for 'tool_call_id' of '{call_id}' in '{place}'.", place, "duplicate_value")
        seen.add(call_id)


def _check_call(call: Any, place: str, flavour: Flavour) -> str:
    if not isinstance(call, Mapping):
        wrong_type(place, "an object")
    call_id, function = call.get("id"), call.get("function")
    if not isinstance(call_id, str) or not call_id:
        missing(f"{place}.id")
    if call.get("type") != "function":
        missing(f"{place}.type")
    if not isinstance(function, Mapping):
        missing(f"{place}.function")
    if not isinstance(function.get("name"), str) or not function["name"]:
        missing(f"{place}.function.name")
    if not isinstance(function.get("arguments"), str):
        missing(f"{place}.function.arguments")
    if flavour.closed:
        for key in (*call, *function):
            if key not in ("id", "type", "function", "name", "arguments"):
                extra(f"{place}.{key}")
    _check_arguments(function["arguments"], place, flavour)
    return call_id


def _check_arguments(arguments: str, place: str, flavour: Flavour) -> None:
    """Chat templates load them, so they must be JSON; Ollama demands an object."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        if flavour.name == "ollama":
            invalid("invalid tool call arguments")
        invalid(f"Failed to parse tool call arguments as JSON: {error}", f"{place}.function.arguments")
    if flavour.name == "ollama" and not isinstance(value, dict):
        invalid("invalid tool call arguments")


def _check_pairs(messages: Sequence[Message]) -> None:
    """Every call is answered by one tool message right after its own message, and nothing else is."""
    open_calls: list[str] = []
    answered: set[str] = set()
    for number, message in enumerate(messages):
        if message["role"] != "tool":
            _check_answered(open_calls, answered, number)
            open_calls, answered = calls_of(message), set()
            continue
        call_id = message["tool_call_id"]
        if call_id not in open_calls:
            invalid(
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                "'tool_calls'.",
                f"messages.[{number}].role",
            )
        if call_id in answered:
            invalid(f"Duplicate value for 'tool_call_id' of '{call_id}'.", f"messages.[{number}].tool_call_id")
        answered.add(call_id)
    _check_answered(open_calls, answered, len(messages))


def _check_answered(calls: Sequence[str], answered: set[str], number: int) -> None:
    open_calls = [call_id for call_id in calls if call_id not in answered]
    if open_calls:
        invalid(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'. The following tool_call_ids did not have response messages: " + ", ".join(open_calls),
            f"messages.[{number}].role",
        )


def _conversation(messages: tuple[Message, ...]) -> Conversation:
    prompts: list[str] = []
    loop_start = 0
    last: list[tuple[int, Message]] = []
    spoken = [(number, m) for number, m in enumerate(messages) if m["role"] not in ("system", "developer")]
    for answered, run in groupby(spoken, key=lambda item: item[1]["role"] == "assistant"):
        last = list(run)
        if not answered and (prompt := _prompt([m for _, m in last])) is not None:
            prompts.append(prompt)
            loop_start = last[-1][0] + 1
    answers = sum(message["role"] == "assistant" for message in messages[loop_start:])
    results = tuple(text_of(m) for _, m in last if m["role"] == "tool")
    return Conversation(messages, tuple(prompts), loop_start, answers, results)


def _prompt(run: Sequence[Message]) -> str | None:
    """What the user says between two answers, or None where tools answer (and remarks in tags stand beside them)."""
    texts = [text_of(message) for message in run if message["role"] == "user"]
    return join_prompt(texts, beside_results=any(message["role"] == "tool" for message in run))
