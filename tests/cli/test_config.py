"""The tables that the program prints stand in the documents, and the one of settings is readable for every value."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from thinklsp.cli.config import _format_values, build_efforts_table, build_settings_table
from thinklsp.providers.catalogue import list_models
from thinklsp.settings.admin_file import BudgetsSection

ROOT = Path(__file__).parents[2]
TABLES = {
    "docs/settings.md": ("settings", "table", build_settings_table),
    "thinklsp/providers/EFFORTS.md": ("efforts", "efforts", build_efforts_table),
}


@pytest.mark.parametrize("document", TABLES)
def test_the_document_holds_the_table_that_the_program_prints(document):
    """After a change: put the output of `python -m thinklsp config table` (or `efforts`) between the two marks."""
    name, command, table = TABLES[document]
    begin, end = f"<!-- {name}: made by `thinklsp config {command}` -->\n", f"<!-- end of {name} -->"
    text = (ROOT / document).read_text()
    assert text.count(begin) == text.count(end) == 1
    assert text.partition(begin)[2].partition(end)[0] == table() + "\n"


KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "null": type(None)}
KINDS |= {"number": (int, float)}


def refused(value, part, whole, place=""):
    """Where a value is not what its part of a JSON Schema says, in as much of that as our schemas use."""
    if "$ref" in part:
        part = whole["$defs"][part["$ref"].rpartition("/")[2]]
    if "anyOf" in part:
        found = [refused(value, choice, whole, place) for choice in part["anyOf"]]
        return min(found, key=len)
    if value not in part.get("enum", [value]) or not isinstance(value, KINDS.get(part.get("type"), object)):
        return [place]
    if isinstance(value, list):
        items = part.get("items", {})
        return [at for n, each in enumerate(value) for at in refused(each, items, whole, f"{place}[{n}]")]
    if not isinstance(value, dict):
        return []
    found = [f"{place}.{name} is missing" for name in part.get("required", []) if name not in value]
    for name, each in value.items():
        inner = part.get("properties", {}).get(name, part.get("additionalProperties", True))
        if inner is False:
            found.append(f"{place}.{name} is not known")
        elif inner is not True:
            found += refused(each, inner, whole, f"{place}.{name}")
    return found


def test_user_file_schema_accepts_documented_examples(inside):
    schema = json.loads(inside("config", "file").stdout)
    pages = [page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))]
    own = [text for page in pages for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)]
    # Budgets are in the administrator's file only.
    budgets = [text for text in own if text.startswith("[budgets]")]
    own = [text for text in own if text not in budgets]
    assert (len(own), len(budgets)) == (14, 1)
    for text in budgets:
        assert BudgetsSection.model_validate(tomllib.loads(text)["budgets"]).teams
    for text in (*own, '"actions.disabled" = ["fix"]', '[actions]\ndisabled = ["fix"]'):
        assert refused(tomllib.loads(text), schema, schema) == []
    for text, place in (
        ('[[actions]]\ntitle = "x"', "prompt is missing"),
        ("[thinkin]", "thinkin is not known"),
        ('effort = "HIGH"', ".effort"),
        ("[actions]\nx = 1", ".actions"),
    ):
        assert any(place in found for found in refused(tomllib.loads(text), schema, schema)), text


# Model -> what is sent in mode auto, off, and for efforts low, medium, high, xhigh, max; from each service's own page.
SENT = {
    "`claude-opus-4-6`": "adaptive | off | adaptive, effort low | adaptive, effort medium | adaptive, effort high | "
    "adaptive, effort max | adaptive, effort max",
    "`claude-sonnet-4-5`": "budget 10000 | off | budget 2048 | budget 10000 | budget 16384 | budget 32768 | "
    "budget 32768",
    "`claude-sonnet-5-5`": "adaptive | between tools | adaptive, effort low | adaptive, effort medium | "
    "adaptive, effort high | adaptive, effort xhigh | adaptive, effort max",
    "`gpt-6-sol`": "nothing | effort none | effort low | effort medium | effort high | effort xhigh | effort max",
    "`gpt-5.1`": "nothing | effort none | effort low | effort medium | effort high | effort high | effort high",
    "`gpt-5`": "nothing | effort minimal | effort low | effort medium | effort high | effort high | effort high",
    "`gpt-4.1`": "nothing | nothing | nothing | nothing | nothing | nothing | nothing",
    "`gemini-4-hydrogen`": "nothing | level LOW | level LOW | level MEDIUM | level HIGH | level XHIGH | level XHIGH",
    "`gemini-3.6-flash`": "nothing | level MINIMAL | level LOW | level MEDIUM | level HIGH | level HIGH | level HIGH",
    "`gemini-3-pro-preview`": "nothing | level LOW | level LOW | level HIGH | level HIGH | level HIGH | level HIGH",
    "`gemini-2.5-pro`": "nothing | budget 128 | budget 2048 | budget 8192 | budget 16384 | budget 32768 | budget 32768",
    "`gemini-2.5-flash-lite`": "budget -1 | budget 0 | budget 2048 | budget 8192 | budget 16384 | budget 24576 | "
    "budget 24576",
    "`deepseek-flash`": "nothing | off | effort low | effort high | effort high | effort max | effort max",
}


def test_the_table_of_efforts_says_what_each_service_is_sent():
    rows = [line.strip("| ").split(" | ", 2) for line in build_efforts_table().splitlines()[2:]]
    shown = {(provider, model): sent for provider, model, sent in rows}
    assert {model: sent for (_, model), sent in shown.items() if model in SENT} == SENT
    providers = ("anthropic", "openai", "google", "openai-compatible")
    listed = {(provider, f"`{model}`") for provider in providers for model in list_models(provider)}
    assert set(shown) == listed | {(provider, "any other") for provider in providers}


VALUES = {
    "an empty text": ({"type": "string", "default": ""}, "none, text"),
    "a long text": ({"type": "string", "default": "x", "maxLength": 2000}, "`x`, text of at most 2,000 characters"),
    "no text": ({"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}], "default": None},
        "none, text of at most 9 characters"),
    "a pattern": ({"type": "string", "default": ".a", "pattern": "^.a$", "maxLength": 9}, "`.a`, text like `.a`"),
    "a pattern without an example": ({"type": "string", "default": "", "pattern": "^.a$"}, "none, text"),
    "a switch": ({"type": "boolean", "default": True}, "`true`, `false`"),
    "a number": ({"type": "integer", "default": 1, "minimum": 1, "exclusiveMaximum": 2000},
        "`1`, a whole number (at least 1 and less than 2,000)"),
    "a list": ({"type": "array", "default": []}, "`[]`, a list of strings"),
}  # fmt: skip


@pytest.mark.parametrize(("part", "shown"), VALUES.values(), ids=VALUES)
def test_values_are_shown_for_people(part, shown):
    assert _format_values(part) == shown
