"""Thinking, sampling, tools and tool config of a Gemini request: what each model takes, and what it means.

The result of the checks is a `Mode`; everything refused raises `Refused` with the service's own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from thinklsp.simulator.google.errors import invalid, invalid_fields
from thinklsp.simulator.google.models import ModelTraits

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
_NAME_RULE = (
    "Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), "
    "underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64."
)
_RANGES = {"temperature": (0, 2), "top_p": (0, 1)}


@dataclass(frozen=True, slots=True)
class Mode:
    """How the model thinks in this request, and whether what it thought is summed up for the reader."""

    on: bool
    shown: bool


def check_options(body: Mapping[str, Any], traits: ModelTraits) -> Mode:
    """Everything in the body but system instruction and contents."""
    config = body.get("generation_config") or {}
    _check_generation(config, traits)
    mode = _mode(config.get("thinking_config"), traits)
    _check_function_calling(body.get("tool_config") or {}, _declared(body, traits))
    return mode


def declarations(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [item for tool in body.get("tools") or () for item in tool.get("function_declarations") or ()]


def _mode(config: Mapping[str, Any] | None, traits: ModelTraits) -> Mode:
    config = config or {}
    shown = bool(config.get("include_thoughts"))
    budget, level = config.get("thinking_budget"), config.get("thinking_level")
    if traits.thinks is None:
        if shown or budget is not None or level is not None:
            invalid("Thinking is not enabled for this model")
        return Mode(on=False, shown=False)
    if budget is not None and level is not None:
        invalid("You can only set only one of thinking budget and thinking level.")
    if level is not None:
        _check_level(level, traits)
    if budget is not None:
        _check_budget(budget, traits)
    thinks = traits.thinks if budget is None else budget != 0
    return Mode(thinks, shown and thinks)


def _check_level(level: str, traits: ModelTraits) -> None:
    if not traits.levels:
        invalid("Thinking level is not supported for this model.")
    if level not in traits.levels and level != "THINKING_LEVEL_UNSPECIFIED":
        invalid(f"Thinking level {level} is not supported for this model.")


def _check_budget(budget: int, traits: ModelTraits) -> None:
    if traits.budget is None:
        invalid("Thinking budget is not supported for this model.")
    if budget == 0 and not traits.off:
        invalid("Budget 0 is invalid. This model only works in thinking mode.")
    low, high = traits.budget
    if budget not in (0, -1) and not low <= budget <= high:
        invalid(f"The thinking budget ({budget}) is invalid. Please choose a value between {low} and {high}.")


def _check_generation(config: Mapping[str, Any], traits: ModelTraits) -> None:
    limit = config.get("max_output_tokens")
    if limit is not None and not 1 <= limit <= traits.max_tokens:
        invalid(
            f"Unable to submit request because it has a maxOutputTokens value of {limit} but the supported range is "
            f"from 1 (inclusive) to {traits.max_tokens + 1} (exclusive). Update the value and try again."
        )
    if config.get("candidate_count", 1) != 1:
        invalid("Multiple candidates is not enabled for this model")
    for name, (low, high) in _RANGES.items():
        value = config.get(name)
        if value is not None and not low <= value <= high:
            invalid_fields([f"generation_config.{name}: {name} must be in the range [{low}.0, {high}.0]."])


def _declared(body: Mapping[str, Any], traits: ModelTraits) -> frozenset[str]:
    problems: list[str] = []
    names: set[str] = set()
    for index, tool in enumerate(body.get("tools") or ()):
        for number, declaration in enumerate(tool.get("function_declarations") or ()):
            problems += _declaration_problems(declaration, f"tools[{index}].function_declarations[{number}]")
            name = str(declaration.get("name"))
            if name in names and not problems:
                invalid(f"Duplicate function declaration found: {name}")
            names.add(name)
    if problems:
        invalid_fields(problems)
    if names and not traits.functions:
        invalid(f"Function calling is not enabled for models/{traits.id}")
    return frozenset(names)


def _declaration_problems(declaration: Mapping[str, Any], place: str) -> Iterator[str]:
    if not _NAME.fullmatch(declaration.get("name") or ""):
        yield f"{place}.name: {_NAME_RULE}"
    schema, json_schema = declaration.get("parameters"), declaration.get("parameters_json_schema")
    if schema is not None and json_schema is not None:
        yield f"{place}: only one of parameters and parameters_json_schema can be set."
    if schema is not None and schema.get("type") != "OBJECT":
        yield f"{place}.parameters: functionDeclaration parameters schema should be of type OBJECT."
    if json_schema is not None and (not isinstance(json_schema, Mapping) or json_schema.get("type") != "object"):
        yield f"{place}.parameters_json_schema: functionDeclaration parameters schema should be of type OBJECT."


def _check_function_calling(config: Mapping[str, Any], names: frozenset[str]) -> None:
    calling = config.get("function_calling_config")
    if calling is None:
        return
    if not names:
        invalid("Function calling config is set without function_declarations.")
    allowed = calling.get("allowed_function_names") or ()
    place = "tool_config.function_calling_config.allowed_function_names"
    if allowed and calling.get("mode") not in ("ANY", "VALIDATED"):
        invalid_fields([f"{place}: only supported with the modes ANY and VALIDATED."])
    for name in allowed:
        if name not in names:
            invalid_fields([f"{place}: {name} is not among the function_declarations."])
