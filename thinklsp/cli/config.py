"""The settings as JSON Schemas for editors and programs, or as a Markdown table for people; and as another such table
what is sent to each model about thinking."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any, assert_never

from thinklsp.core.choices import EFFORT_LEVELS
from thinklsp.engine.turn_config import plan_for
from thinklsp.providers.base import Thinking
from thinklsp.providers.catalog import known_models, lookup
from thinklsp.providers.model_info import ModelInfo
from thinklsp.settings import KEYS, schema
from thinklsp.settings.model import nested
from thinklsp.settings.user_file import file_schema

# The columns of the table of efforts: heading -> settings.
_WISHES: Mapping[str, Mapping[str, str]] = {
    "auto": {},
    "off": {"thinking.mode": "off"},
    **{f"effort {effort}": {"effort": effort} for effort in EFFORT_LEVELS},
}
_PROVIDERS = ("anthropic", "openai", "google", "openai-compatible")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    forms = parser.add_subparsers(dest="form", required=True, metavar="{schema,file,table,efforts}")
    forms.add_parser("schema", help="print the JSON Schema of every setting")
    forms.add_parser("file", help="print the JSON Schema of your own config.toml")
    forms.add_parser("table", help="print a Markdown table of every setting")
    forms.add_parser("efforts", help="print a Markdown table of what is sent to each model for each effort")


def run(args: argparse.Namespace) -> int:
    match args.form:
        case "schema":
            print(json.dumps(schema(), indent=2))
        case "file":
            print(json.dumps(file_schema(), indent=2))
        case "efforts":
            print(efforts_table())
        case _:
            print(settings_table())
    return 0


def efforts_table() -> str:
    """What is sent about thinking, in words: a row for each model of the catalogue and for those not in it, a column
    for mode `auto`, for mode `off` and for each effort in mode `auto`. `providers/EFFORTS.md` holds this text."""
    rows = [
        f"| {provider} | {f'`{name}`' if name else 'any other'} | {' | '.join(_sent_to(lookup(provider, name)))} |"
        for provider in _PROVIDERS
        for name in (*known_models(provider), "")
    ]
    head = " | ".join(("provider", "model", *_WISHES))
    return "\n".join([f"| {head} |", "|---" * (len(_WISHES) + 2) + "|", *rows])


def _sent_to(model: ModelInfo) -> Iterator[str]:
    for wish in _WISHES.values():
        yield _in_words(model, plan_for(nested(wish), model).thinking)


def _in_words(model: ModelInfo, thinking: Thinking) -> str:
    """What stands in the request: `level HIGH`, `budget 2048`, `adaptive, effort low`."""
    google = model.provider == "google"
    match thinking.form:
        case "unset":
            form = ""
        case "off":
            form = {"openai": "effort none", "google": "budget 0"}.get(model.provider, "off")
        case "between_tools":
            form = "between tools"
        case "adaptive":
            # Gemini models that think unasked need not be told to think as they like.
            dynamic = "budget -1" if model.budget_steers and not model.on_when_unset else ""
            form = "adaptive" if model.provider == "anthropic" else dynamic
        case "manual":
            form = f"budget {thinking.budget_tokens}"
        case _:
            assert_never(thinking.form)
    effort = thinking.effort and (f"level {thinking.effort.upper()}" if google else f"effort {thinking.effort}")
    return ", ".join(filter(None, (form, effort))) or "nothing"


def settings_table() -> str:
    """Every setting as a Markdown table: key, values with the default first, meaning. The README holds this text."""
    whole = schema()
    rows = [f"| `{key}` | {_values(found)} | {found['description']} |" for key, found in _settings(whole)]
    return "\n".join(["| key | values (default first) | meaning |", "|---|---|---|", *rows])


def _settings(whole: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each key with its part of the schema, in the order of the settings."""
    for key in KEYS:
        part: Mapping[str, Any] = whole
        for name in key.split("."):
            part = _resolved(part["properties"][name], whole)
        yield key, part


def _resolved(part: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follows a reference to the definitions at the end of the schema."""
    if "$ref" not in part:
        return part
    return {**whole["$defs"][part["$ref"].rpartition("/")[2]], **part}


def _values(part: Mapping[str, Any]) -> str:
    default = part.get("default")
    if default is None or default == "":
        first = "none"
    else:
        first = f"`{default if isinstance(default, str) else json.dumps(default)}`"
    return ", ".join(dict.fromkeys((first, *_kinds(part))))


def _kinds(part: Mapping[str, Any]) -> Iterator[str]:
    for choice in part.get("anyOf", [part]):
        if "enum" in choice:
            yield from (f"`{value}`" for value in choice["enum"])
        elif "const" in choice:
            yield f"`{choice['const']}`"
        elif choice.get("type") == "boolean":
            yield from ("`true`", "`false`")
        elif choice.get("type") in ("integer", "number"):
            yield _number(choice)
        elif choice.get("type") == "string":
            yield _text(choice, part)
        elif choice.get("type") == "array":
            yield "a list of texts"
        elif choice.get("type") == "object":
            yield "an object"


def _text(choice: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    """`a text of at most 200 characters`, or `a text like` the default where a pattern is asked for."""
    if "pattern" in choice and part.get("default"):
        return f"a text like `{part['default']}`"
    return f"a text of at most {choice['maxLength']:,} characters" if "maxLength" in choice else "a text"


def _number(part: Mapping[str, Any]) -> str:
    """`a whole number, at least 1, at most 1,000`."""
    words = ["a whole number" if part["type"] == "integer" else "a number"]
    for key, text in (
        ("minimum", "at least"),
        ("exclusiveMinimum", "more than"),
        ("maximum", "at most"),
        ("exclusiveMaximum", "less than"),
    ):
        if key in part:
            words.append(f"{text} {part[key]:,}")
    return " ".join((words[0], " and ".join(words[1:]))).strip()
