"""The settings as a JSON Schema for editors and programs, or as a Markdown table for people."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from thinklsp.settings import KEYS, schema


def add_arguments(parser: argparse.ArgumentParser) -> None:
    forms = parser.add_subparsers(dest="form", required=True, metavar="{schema,table}")
    forms.add_parser("schema", help="print the JSON Schema of every setting")
    forms.add_parser("table", help="print a Markdown table of every setting")


def run(args: argparse.Namespace) -> int:
    print(json.dumps(schema(), indent=2) if args.form == "schema" else settings_table())
    return 0


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
