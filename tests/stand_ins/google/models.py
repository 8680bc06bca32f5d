"""The models of the simulated Gemini API, and the options that each model accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tests.stand_ins.google.payload_reader import reject_fields
from tests.stand_ins.rejections import reject
from tests.stand_ins.tables import read_table
from thinklsp.offline.scenario import TableRow

_METHODS = ("generateContent", "countTokens", "createCachedContent", "batchGenerateContent")
_FUNCTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
_NAME_RULE = (
    "Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), "
    "underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64."
)
_SAMPLING_RANGES = {"temperature": (0, 2), "top_p": (0, 1)}


class GoogleTraits(TableRow):
    """The behavior of a model and the options that it accepts.

    `levels` contains the thinking levels, or is empty if the model has only thinking budgets. `budget` is the range of
    thinking budgets, apart from -1 and 0, or None if the model accepts no budget. If `off` is true, a budget of 0 is
    accepted.
    """

    id: str
    generation: int
    levels: tuple[str, ...] = ()
    budget: tuple[int, int] | None = None
    off: bool = False
    thinks: Literal["unasked", "asked", "never"] = "unasked"
    functions: bool = True
    cache_minimum: int = 4096
    window: int = 1_048_576
    max_tokens: int = 65_536

    @property
    def requires_signatures(self) -> bool:
        """True if tool calls have IDs, and signatures that clients must send back."""
        return self.generation >= 3


GOOGLE_MODELS = {name: GoogleTraits(id=name, **row) for name, row in read_table("models")["google"]["models"].items()}


def build_model_info(name: str, *, window: int | None = None) -> dict[str, Any]:
    """Return a model's entry in the list of models. If given, `window` replaces the model's own context window."""
    traits = GOOGLE_MODELS[name]
    return {
        "name": f"models/{name}",
        "version": "001",
        "displayName": name.replace("-", " ").title(),
        "description": "A simulated model with scripted answers.",
        "inputTokenLimit": window or traits.window,
        "outputTokenLimit": traits.max_tokens,
        "supportedGenerationMethods": list(_METHODS),
        "temperature": 1,
        "topP": 0.95,
        "topK": 64,
        "maxTemperature": 2,
        **({} if traits.thinks == "never" else {"thinking": True}),
    }


@dataclass(frozen=True, slots=True)
class GoogleThinkingMode:
    """The thinking settings in a request. If `includes_thoughts` is true, the answer contains thinking summaries."""

    is_on: bool
    includes_thoughts: bool


def check_options(body: Mapping[str, Any], traits: GoogleTraits) -> GoogleThinkingMode:
    """Check a request body, except for the system instruction and the contents. Raises RequestRejected."""
    config = body.get("generation_config") or {}
    _check_generation(config, traits)
    mode = _read_mode(config.get("thinking_config"), traits)
    _check_function_calling(body.get("tool_config") or {}, _read_function_names(body, traits))
    return mode


def list_declarations(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [item for tool in body.get("tools") or () for item in tool.get("function_declarations") or ()]


def _read_mode(config: Mapping[str, Any] | None, traits: GoogleTraits) -> GoogleThinkingMode:
    config = config or {}
    shown = bool(config.get("include_thoughts"))
    budget, level = config.get("thinking_budget"), config.get("thinking_level")
    if traits.thinks == "never":
        if shown or budget is not None or level is not None:
            reject("Thinking is not enabled for this model")
        return GoogleThinkingMode(is_on=False, includes_thoughts=False)
    if budget is not None and level is not None:
        reject("You can only set only one of thinking budget and thinking level.")
    if level is not None:
        _check_level(level, traits)
    if budget is not None:
        _check_budget(budget, traits)
    thinks = traits.thinks == "unasked" if budget is None else budget != 0
    return GoogleThinkingMode(thinks, shown and thinks)


def _check_level(level: str, traits: GoogleTraits) -> None:
    if not traits.levels:
        reject("Thinking level is not supported for this model.")
    if level not in traits.levels and level != "THINKING_LEVEL_UNSPECIFIED":
        reject(f"Thinking level {level} is not supported for this model.")


def _check_budget(budget: int, traits: GoogleTraits) -> None:
    if traits.budget is None:
        reject("Thinking budget is not supported for this model.")
    if budget == 0 and not traits.off:
        reject("Budget 0 is invalid. This model only works in thinking mode.")
    low, high = traits.budget
    if budget not in (0, -1) and not low <= budget <= high:
        reject(f"The thinking budget ({budget}) is invalid. Please choose a value between {low} and {high}.")


def _check_generation(config: Mapping[str, Any], traits: GoogleTraits) -> None:
    limit = config.get("max_output_tokens")
    if limit is not None and not 1 <= limit <= traits.max_tokens:
        reject(
            f"Unable to submit request because it has a maxOutputTokens value of {limit} but the supported range is "
            f"from 1 (inclusive) to {traits.max_tokens + 1} (exclusive). Update the value and try again."
        )
    if config.get("candidate_count", 1) != 1:
        reject("Multiple candidates is not enabled for this model")
    for name, (low, high) in _SAMPLING_RANGES.items():
        value = config.get(name)
        if value is not None and not low <= value <= high:
            reject_fields([f"generation_config.{name}: {name} must be in the range [{low}.0, {high}.0]."])


def _read_function_names(body: Mapping[str, Any], traits: GoogleTraits) -> frozenset[str]:
    problems: list[str] = []
    names: set[str] = set()
    for index, tool in enumerate(body.get("tools") or ()):
        for number, declaration in enumerate(tool.get("function_declarations") or ()):
            problems += _find_declaration_problems(declaration, f"tools[{index}].function_declarations[{number}]")
            name = str(declaration.get("name"))
            if name in names and not problems:
                reject(f"Duplicate function declaration found: {name}")
            names.add(name)
    if problems:
        reject_fields(problems)
    if names and not traits.functions:
        reject(f"Function calling is not enabled for models/{traits.id}")
    return frozenset(names)


def _find_declaration_problems(declaration: Mapping[str, Any], place: str) -> Iterator[str]:
    if not _FUNCTION_NAME.fullmatch(declaration.get("name") or ""):
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
        reject("Function calling config is set without function_declarations.")
    allowed = calling.get("allowed_function_names") or ()
    place = "tool_config.function_calling_config.allowed_function_names"
    if allowed and calling.get("mode") not in ("ANY", "VALIDATED"):
        reject_fields([f"{place}: only supported with the modes ANY and VALIDATED."])
    for name in allowed:
        if name not in names:
            reject_fields([f"{place}: {name} is not among the function_declarations."])
