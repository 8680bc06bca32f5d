"""The table of what is sent for each effort, as people read it, against the bytes that are really sent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import thinklsp.providers
from tests.support.services import Place, place
from thinklsp.cli.config import build_efforts_table
from thinklsp.core.messages import UserMessage
from thinklsp.engine.turn_config import build_thinking_plan
from thinklsp.providers.base import ModelRequest
from thinklsp.providers.catalogue import list_models
from thinklsp.settings.model import Provider, build_settings
from thinklsp.tools.registry import TOOLS, build_tool_specs

TABLE = Path(thinklsp.providers.__file__).with_name("EFFORTS.md").read_text("utf-8")
PROVIDERS: tuple[Provider, ...] = ("anthropic", "openai", "google", "openai-compatible")
# Ids that no row lists, for the rows of all others.
OTHERS = {
    "anthropic": "claude-next-9",
    "openai": "gpt-next-9",
    "google": "gemini-next-9",
    "openai-compatible": "compatible-1",
}
# Every other key that says something about thinking would be one that the table is silent about.
THINKING = re.compile(r"(?i)think|reason|effort|budget")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table() -> dict[tuple[str, str], dict[str, str]]:
    """(provider, model) -> heading -> words; the model is empty in the rows of all others."""
    head, _, *rows = [cells(line) for line in TABLE.splitlines() if line.startswith("|")]
    return {
        (row[0], "" if row[1] == "any other" else row[1].strip("`")): dict(zip(head[2:], row[2:], strict=True))
        for row in rows
    }


ROWS = table()
HEADINGS = ("auto", "off", *(f"effort {effort}" for effort in ("low", "medium", "high", "xhigh", "max")))


def wish(heading: str) -> Mapping[str, str]:
    match heading.split():
        case ["auto"]:
            return {}
        case ["off"]:
            return {"thinking.mode": "off"}
        case ["effort", effort]:
            return {"effort": effort}
        case _:
            raise AssertionError(heading)


def sent(where: Place, heading: str) -> dict[str, Any]:
    plan = build_thinking_plan(build_settings(wish(heading)), where.model)
    asked = (UserMessage.from_text("x"),)
    request = ModelRequest(where.model, "Be good.", build_tool_specs(TOOLS), asked, plan.thinking, plan.max_tokens)
    body: dict[str, Any] = json.loads(where.encode(request).body)
    return body


def words(provider: Provider, body: dict[str, Any]) -> str:
    """What a body says about thinking, in the words of the table. Takes out what it has read."""
    said = READERS[provider](body)
    # The openings and tools of a request are texts; `include` asks for what has to go back.
    left = {key: value for key, value in body.items() if key not in ("tools", "system", "messages", "input", "include")}
    assert not THINKING.search(json.dumps({key: left[key] for key in left.keys() - {"contents", "systemInstruction"}}))
    return ", ".join(filter(None, said)) or "nothing"


def of_anthropic(body: dict[str, Any]) -> list[str]:
    form = body.pop("thinking", {})
    effort = body.pop("output_config", {}).get("effort")
    names = {"adaptive": "adaptive", "disabled": "off", "between_tools": "between tools"}
    budget = form.get("budget_tokens")
    kind = f"budget {budget}" if budget is not None else names[form["type"]] if form else ""
    assert (form.get("type") == "enabled") is (budget is not None)
    return [kind, f"effort {effort}" if effort else ""]


def of_openai(body: dict[str, Any]) -> list[str]:
    reasoning = body.pop("reasoning", {})
    assert reasoning.keys() <= {"effort"}
    return [f"effort {reasoning['effort']}" if reasoning else ""]


def of_google(body: dict[str, Any]) -> list[str]:
    config = body.get("generationConfig", {}).pop("thinkingConfig", {})
    assert config.keys() in (set(), {"thinkingBudget"}, {"thinkingLevel"})
    level, budget = config.get("thinkingLevel"), config.get("thinkingBudget")
    return [f"level {level}" if level else "", "" if budget is None else f"budget {budget}"]


def of_compatible(body: dict[str, Any]) -> list[str]:
    effort, switch = body.pop("reasoning_effort", ""), body.pop("thinking", None)
    if switch is not None or effort == "none":
        assert switch in (None, {"type": "disabled"})
        return ["off"]
    return [f"effort {effort}" if effort else ""]


READERS = {
    "anthropic": of_anthropic,
    "openai": of_openai,
    "google": of_google,
    "openai-compatible": of_compatible,
}


def test_the_file_holds_what_the_command_prints() -> None:
    _, _, rest = TABLE.partition("<!-- efforts: made by `thinklsp config efforts` -->\n")
    assert rest.partition("\n<!-- end of efforts -->")[0] == build_efforts_table()


def test_the_table_has_every_model_and_every_wish() -> None:
    assert [*ROWS] == [(provider, name) for provider in PROVIDERS for name in (*list_models(provider), "")]
    assert all(tuple(row) == HEADINGS for row in ROWS.values())


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_words_of_the_table_are_what_is_sent(provider: Provider) -> None:
    judged = 0
    for (name_of_provider, name), row in ROWS.items():
        if name_of_provider == provider:
            where = place(provider, name or OTHERS[provider])
            assert {heading: words(provider, sent(where, heading)) for heading in row} == row, name
            judged += 1
    assert judged == len(list_models(provider)) + 1
