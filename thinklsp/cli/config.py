"""Print all settings as a JSON Schema or a table, or the thinking parameters of each model."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any, assert_never

from thinklsp.core.choices import EFFORT_LEVELS
from thinklsp.engine.turn_config import build_thinking_plan
from thinklsp.providers.base import Thinking
from thinklsp.providers.catalogue import ModelInfo, find_model, list_models
from thinklsp.settings.model import KEYED_PROVIDERS, KEYS, build_settings, build_settings_schema
from thinklsp.settings.user_file import build_file_schema

# Maps the column headings of the efforts table to the settings for each column.
_EFFORT_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "auto": {},
    "off": {"thinking.mode": "off"},
    **{f"effort {effort}": {"effort": effort} for effort in EFFORT_LEVELS},
}
_TYPE_NAMES = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list of strings",
    "object": "an object",
}
_LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "`thinklsp doctor` shows your own settings and where they come from."
    forms = parser.add_subparsers(dest="form", metavar="{schema,file,table,efforts}", required=True)
    forms.add_parser("schema", help="print the JSON Schema of every setting")
    forms.add_parser("file", help="print the JSON Schema of your own config.toml")
    forms.add_parser("table", help="print a Markdown table of every setting")
    forms.add_parser("efforts", help="print a Markdown table of the parameters sent to each model for each effort")


def run(args: argparse.Namespace) -> int:
    match args.form:
        case "schema":
            print(json.dumps(build_settings_schema(), indent=2))
        case "file":
            print(json.dumps(build_file_schema(), indent=2))
        case "efforts":
            print(build_efforts_table())
        case _:
            print(build_settings_table())
    return 0


def build_efforts_table() -> str:
    """Build the table in `providers/EFFORTS.md`, which lists the thinking parameters sent to each model.

    The table has a row for each model in the catalogue, and a row for all other models of each provider. The columns
    are the thinking modes `auto` and `off`, and `auto` with each effort.
    """
    rows = [
        f"| {provider} | {f'`{name}`' if name else 'any other'} | "
        f"{' | '.join(_describe_efforts(find_model(provider, name)))} |"
        for provider in KEYED_PROVIDERS
        for name in (*list_models(provider), "")
    ]
    head = " | ".join(("provider", "model", *_EFFORT_COLUMNS))
    return "\n".join([f"| {head} |", "|---" * (len(_EFFORT_COLUMNS) + 2) + "|", *rows])


def _describe_efforts(model: ModelInfo) -> Iterator[str]:
    for values in _EFFORT_COLUMNS.values():
        yield _format_thinking(model, build_thinking_plan(build_settings(values), model).thinking)


def _format_thinking(model: ModelInfo, thinking: Thinking) -> str:
    """Format a request's thinking parameters, for example as `level HIGH` or `adaptive, effort low`."""
    google = model.provider == "google"
    match thinking.form:
        case "unset":
            form = ""
        case "off":
            form = {"openai": "effort none", "google": "budget 0"}.get(model.provider, "off")
        case "between_tools":
            form = "between tools"
        case "adaptive":
            # If thinking is enabled by default, Gemini models do not need a dynamic budget.
            dynamic = "budget -1" if model.budget_steers and not model.on_when_unset else ""
            form = "adaptive" if model.provider == "anthropic" else dynamic
        case "manual":
            form = f"budget {thinking.budget_tokens}"
        case _:
            assert_never(thinking.form)
    effort = thinking.effort and (f"level {thinking.effort.upper()}" if google else f"effort {thinking.effort}")
    return ", ".join(filter(None, (form, effort))) or "nothing"


def build_settings_table() -> str:
    """Build the Markdown table of all settings, with their values and descriptions."""
    full_schema = build_settings_schema()
    rows = [
        f"| `{key}` | {_format_values(part)} | {part['description']} |" for key, part in _list_settings(full_schema)
    ]
    return "\n".join(["| key | values (default first) | meaning |", "|---|---|---|", *rows])


def _list_settings(full_schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the key of each setting and the part of the schema that describes it."""
    for key in KEYS:
        part: Mapping[str, Any] = full_schema
        for name in key.split("."):
            part = part["properties"][name]
            if "$ref" in part:
                part = {**full_schema["$defs"][part["$ref"].rpartition("/")[2]], **part}
        yield key, part


def _format_values(part: Mapping[str, Any]) -> str:
    """Format the default and the other values of a setting, such as "`1`, a whole number (at least 1)"."""
    default = part.get("default")
    first = "none" if default in (None, "") else f"`{default if isinstance(default, str) else json.dumps(default)}`"
    types = (word for choice in part.get("anyOf", [part]) for word in _list_values(choice, part))
    return ", ".join(dict.fromkeys((first, *types)))


def _list_values(choice: Mapping[str, Any], part: Mapping[str, Any]) -> Iterator[str]:
    limits = " and ".join(f"{text} {choice[key]:,}" for key, text in _LIMITS.items() if key in choice)
    if "enum" in choice or "const" in choice:
        yield from (f"`{value}`" for value in choice.get("enum", [choice.get("const")]))
    elif choice.get("type") == "boolean":
        yield from ("`true`", "`false`")
    elif choice.get("type") == "string" and "pattern" in choice and part.get("default"):
        yield f"text like `{part['default']}`"
    elif choice.get("type") == "string" and "maxLength" in choice:
        yield f"text of at most {choice['maxLength']:,} characters"
    elif (name := _TYPE_NAMES.get(choice.get("type", ""))) is not None:
        yield f"{name} ({limits})" if limits else name
