"""The conversation in a Gemini request: what a content may hold, whose turn it is, which results answer.

Raises `Refused` for what the service refuses. Signatures are looked at in `replay`. Counts of tokens are estimates, but
steady ones: the same text always counts the same, so tests can compare figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from thinklsp.simulator.google.errors import invalid, invalid_fields
from thinklsp.simulator.google.payload import data_fields
from thinklsp.simulator.script import join_prompt
from thinklsp.simulator.state import Item, chain_items, text_tokens

_CALL_TURN = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
_RESPONSE_TURN = "Please ensure that function response turn comes immediately after a function call turn."
_COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
_ENDS_MULTI = "Please ensure that multiturn requests ends with a user role or a function response."
_ENDS_SINGLE = "Please ensure that single turn requests end with a user role or the role field is empty."
_BEGINS = "Please ensure that multiturn requests begin with a user role."
_NO_DATA = "data: required oneof field 'data' must have one initialized field"
# Nothing is marked for the implicit cache: every prefix is kept, for as long as a marked one elsewhere.
_LIFETIME = "5m"
_BLOB_TOKENS = 258


@dataclass(frozen=True, slots=True)
class Content:
    """One content and its place; names in its parts are snake_case."""

    number: int
    role: str
    parts: tuple[Mapping[str, Any], ...]

    @property
    def calls(self) -> list[Mapping[str, Any]]:
        return [part["function_call"] for part in self.parts if "function_call" in part]

    @property
    def responses(self) -> list[Mapping[str, Any]]:
        return [part["function_response"] for part in self.parts if "function_response" in part]

    def place(self, index: int) -> str:
        return f"contents[{self.number}].parts[{index}]"


@dataclass(frozen=True, slots=True)
class Conversation:
    """`prompts`: what the user said, oldest first. Contents from `loop_start` on answer the last prompt.

    `turn_start`: where the service sees the current turn begin, which it does after any user content without results.
    `results`: texts of the results that end the conversation.
    """

    contents: tuple[Content, ...]
    prompts: tuple[str, ...]
    loop_start: int
    turn_start: int
    results: tuple[str, ...]


def read_conversation(body: Mapping[str, Any], own_parts: frozenset[str]) -> Conversation:
    """The checked conversation of a request that `payload` has read."""
    contents = read_contents(body, own_parts)
    _check_ends(contents)
    _check_turns(contents)
    return _conversation(contents)


def read_contents(body: Mapping[str, Any], own_parts: frozenset[str]) -> tuple[Content, ...]:
    """The contents, each checked for itself."""
    values = body.get("contents") or []
    if not values:
        invalid_fields(["contents: contents is not specified"])
    contents = tuple(
        Content(number, _role(value, alone=len(values) == 1), tuple(value.get("parts") or ()))
        for number, value in enumerate(values)
    )
    problems = [problem for content in contents for problem in _problems(content, own_parts)]
    problems += _system_problems(body.get("system_instruction"), own_parts)
    if problems:
        invalid_fields(problems)
    return contents


def response_text(response: Mapping[str, Any]) -> str:
    """The text of a function's result, which stands under one of the usual names or is the whole object."""
    value = response.get("response") or {}
    told = next((value[name] for name in ("output", "error", "result") if name in value), value)
    return told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)


def _role(value: Mapping[str, Any], *, alone: bool) -> str:
    role = value.get("role") or ""
    if role not in ("user", "model") and (role or not alone):
        invalid("Please use a valid role: user, model.")
    return role or "user"


def _problems(content: Content, own_parts: frozenset[str]) -> Iterator[str]:
    if not content.parts:
        yield f"contents[{content.number}].parts: contents.parts must not be empty."
    for index, part in enumerate(content.parts):
        place = content.place(index)
        yield from _part_problems(part, place, content.role, own_parts)


def _part_problems(part: Mapping[str, Any], place: str, role: str, own_parts: frozenset[str]) -> Iterator[str]:
    signed = role == "model" and "thought_signature" in part
    fields = data_fields(part, own_parts)
    if not fields and not signed:
        yield f"{place}.{_NO_DATA}"
    if role == "user" and part.get("text") == "":
        yield f"{place}.{_NO_DATA}"
    if "function_call" in part:
        if not part["function_call"].get("name"):
            yield f"{place}.function_call.name: Name cannot be empty."
        if role == "user":
            yield f"{place}.function_call: function_call must have the role model."
    if "function_response" in part:
        if not part["function_response"].get("name"):
            yield f"{place}.function_response.name: Name cannot be empty."
        if "response" not in part["function_response"]:
            yield f"{place}.function_response.response: response is required."


def _system_problems(system: Mapping[str, Any] | None, own_parts: frozenset[str]) -> Iterator[str]:
    if system is None:
        return
    if not system.get("parts"):
        yield "system_instruction.parts: contents.parts must not be empty."
    for index, part in enumerate(system.get("parts") or ()):
        yield from _part_problems(part, f"system_instruction.parts[{index}]", "user", own_parts)


def _check_ends(contents: Sequence[Content]) -> None:
    if contents[0].role == "model":
        # A call that begins a conversation is the case that the service has words of its own for.
        invalid(_ENDS_SINGLE if len(contents) == 1 else _CALL_TURN if contents[0].calls else _BEGINS)
    if contents[-1].role == "model":
        invalid(_ENDS_MULTI)


def _check_turns(contents: Sequence[Content]) -> None:
    before: Content | None = None
    for content in contents:
        calls = before.calls if before is not None else []
        if content.role == "model":
            _check_model_turn(content, before)
        elif content.responses:
            # Beside other parts, results count as a part of a model's content: they answer nothing.
            if not calls or len(content.responses) != len(content.parts):
                invalid(_RESPONSE_TURN)
            _check_answers(content, calls)
        elif calls:
            invalid(_COUNT)
        before = content


def _check_model_turn(content: Content, before: Content | None) -> None:
    if content.responses:
        invalid(_RESPONSE_TURN)
    if before is not None and before.role == "model":
        if before.calls:
            invalid(_COUNT)
        if content.calls:
            invalid(_CALL_TURN)


def _check_answers(content: Content, calls: Sequence[Mapping[str, Any]]) -> None:
    """Every call has its result: by id where one is given, else by its place; the name is the call's."""
    if len(content.responses) != len(calls):
        invalid(_COUNT)
    by_id = {call["id"]: call for call in calls if call.get("id")}
    answered: set[str] = set()
    for index, (response, call) in enumerate(zip(content.responses, calls, strict=True)):
        place = f"{content.place(index)}.function_response"
        name = response.get("id") or ""
        if name:
            if name not in by_id or name in answered:
                invalid_fields([f"{place}.id: The id {name} does not match a function call of the function call turn."])
            answered.add(name)
            call = by_id[name]
        if response["name"] != call["name"]:
            text = f"The name {response['name']} does not match the function call {call['name']}."
            invalid_fields([f"{place}.name: {text}"])


def _conversation(contents: tuple[Content, ...]) -> Conversation:
    prompts: list[str] = []
    loop_start = turn_start = 0
    results: list[str] = []
    for role, run in groupby(contents, key=lambda content: content.role):
        spoken = list(run)
        results = [response_text(response) for content in spoken for response in content.responses]
        if role == "user" and (prompt := _prompt(spoken)) is not None:
            prompts.append(prompt)
            loop_start = spoken[-1].number + 1
        for content in spoken:
            if role == "user" and not content.responses:
                turn_start = content.number + 1
    return Conversation(contents, tuple(prompts), loop_start, turn_start, tuple(results))


def _prompt(run: Sequence[Content]) -> str | None:
    """What the user says in neighbouring contents; None where they only bring results (and remarks in tags)."""
    texts = [str(part["text"]) for content in run for part in content.parts if "text" in part]
    return join_prompt(texts, beside_results=any(content.responses for content in run))


def list_cache_items(body: Mapping[str, Any], contents: tuple[Content, ...], key: str) -> tuple[Item, ...]:
    """Return the request as cacheable units, in the order tools, system, contents.

    `key`: whose cache, and which model's.
    """
    return chain_items(key, ((unit, tokens, _LIFETIME) for unit, tokens in _units(body, contents)))


def _units(body: Mapping[str, Any], contents: tuple[Content, ...]) -> Iterator[tuple[str, int]]:
    for name in ("tools", "system_instruction"):
        if body.get(name):
            text = json.dumps(body[name], ensure_ascii=False)
            yield f"{name} {text}", text_tokens(text)
    for content in contents:
        for part in content.parts:
            yield f"{content.role} {json.dumps(part, ensure_ascii=False)}", 1 + _part_tokens(part)


def _part_tokens(part: Mapping[str, Any]) -> int:
    if "inline_data" in part or "file_data" in part:
        return _BLOB_TOKENS
    bare = {name: value for name, value in part.items() if name not in ("thought_signature", "thought")}
    return text_tokens(str(bare["text"]) if set(bare) == {"text"} else json.dumps(bare, ensure_ascii=False))
