"""The models of the Gemini service as the simulator imitates them, and the options that each of them takes.

It is kept apart from the program's own catalogue on purpose: a client is tested against an independent account.
The result of the checks is a `Mode`; everything refused raises `Refused` with the service's own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from thinklsp.simulator.google.errors import invalid, invalid_fields

_LOW_UP = ("LOW", "MEDIUM", "HIGH")
_ALL = ("MINIMAL", *_LOW_UP)
_METHODS = ("generateContent", "countTokens", "createCachedContent", "batchGenerateContent")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
_NAME_RULE = (
    "Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), "
    "underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64."
)
_RANGES = {"temperature": (0, 2), "top_p": (0, 1)}


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """What one model accepts and how it behaves.

    `levels`: thinking levels, none where budgets rule. `budget`: the range of thinking budgets besides -1, None where
    it takes none. `off`: whether budget 0 is taken. `thinks`: whether it thinks unasked; None: it never does.
    """

    id: str
    generation: int
    levels: tuple[str, ...] = ()
    budget: tuple[int, int] | None = None
    off: bool = False
    thinks: bool | None = True
    functions: bool = True
    cache_minimum: int = 4096
    window: int = 1_048_576
    max_tokens: int = 65_536

    @property
    def demands_signatures(self) -> bool:
        """From generation 3 on calls carry ids and signatures, and the signatures are demanded back."""
        return self.generation >= 3


def _third(name: str, levels: tuple[str, ...]) -> ModelTraits:
    """Generation 3 takes budgets still; 0 stands for the lowest level where that is MINIMAL."""
    return ModelTraits(name, 3, levels, budget=(1, 65_536), off="MINIMAL" in levels)


_ROWS = (
    ModelTraits("gemini-4-hydrogen", 4, (*_LOW_UP, "XHIGH")),
    ModelTraits("gemini-4-argon", 4, _LOW_UP),
    ModelTraits("gemini-4-carbon", 4, _LOW_UP),
    _third("gemini-3.8-flash", _LOW_UP),
    _third("gemini-3.7-flash", _LOW_UP),
    _third("gemini-3.6-flash", _ALL),
    _third("gemini-3.5-flash", _ALL),
    _third("gemini-3.5-flash-lite", _ALL),
    _third("gemini-3.1-pro-preview", _LOW_UP),
    _third("gemini-3.1-flash-lite", _ALL),
    _third("gemini-3-pro-preview", ("LOW", "HIGH")),
    _third("gemini-3-flash-preview", _ALL),
    ModelTraits("gemini-2.5-pro", 2, budget=(128, 32_768)),
    ModelTraits("gemini-2.5-flash", 2, budget=(1, 24_576), off=True, cache_minimum=1024),
    ModelTraits("gemini-2.5-flash-lite", 2, budget=(512, 24_576), off=True, thinks=False, cache_minimum=1024),
    ModelTraits("gemini-2.5-flash-image", 2, thinks=None, functions=False, window=32_768, max_tokens=32_768),
)
MODELS = {row.id: row for row in _ROWS}


def model_info(name: str, *, window: int | None = None) -> dict[str, Any]:
    """The models endpoint's account of one id. `window` replaces the model's own context window."""
    traits = MODELS[name]
    return {
        "name": f"models/{name}",
        "version": "001",
        "displayName": name.replace("-", " ").title(),
        "description": "A scripted stand-in.",
        "inputTokenLimit": window or traits.window,
        "outputTokenLimit": traits.max_tokens,
        "supportedGenerationMethods": list(_METHODS),
        "temperature": 1,
        "topP": 0.95,
        "topK": 64,
        "maxTemperature": 2,
        **({} if traits.thinks is None else {"thinking": True}),
    }


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
