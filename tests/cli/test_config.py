"""The tables that the program prints stand in the documents, and the one of settings is readable for every value."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from thinklsp.cli.config import build_efforts_table, build_settings_table
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
