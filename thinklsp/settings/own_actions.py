"""`[[actions]]` of the user's file: actions of their own, offered beside the built-in ones.

[[actions]]
title = "add types"
prompt = "Add type annotations to the selected code. Change nothing else."
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from thinklsp.core.choices import EffortSetting, ThinkingMode
from thinklsp.settings.action_names import BUILT_IN, NAME


class ActionSection(BaseModel):
    """One of `[[actions]]`."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        str_strip_whitespace=True,
        # `named_actions` makes the name before it is missed.
        json_schema_extra=lambda schema: schema.update(required=["title", "prompt"]),
    )

    name: str = Field(
        pattern=NAME,
        max_length=40,
        description="What `thinklsp.action`, `effortByAction` and `actions.disabled` call it: small letters, digits, "
        "`-` and `_`. Made from the title where it is missing.",
    )
    title: str = Field(min_length=1, max_length=60, description="What the menu shows behind `thinklsp: `.")
    prompt: str = Field(min_length=1, max_length=20_000, description="What is asked; the place is quoted below it.")
    scope: Literal["selection", "definition", "file", "staged"] = Field(
        "selection",
        description="What it is about and where it is offered: a selection, a definition, any file as a whole, or in "
        "any file the staged changes of the workspace.",
    )
    tools: Literal["all", "read", "none"] = Field(
        "all",
        description="`all` may edit; with `read` the model may look around, with `none` not even that, and the answer "
        "goes to a chat document.",
    )
    effort: EffortSetting | None = Field(None, description="Its own effort; `effortByAction` counts before it.")
    thinking: ThinkingMode | None = Field(None, description="Its own value of `thinking.mode`.")
    model: str | None = Field(None, min_length=1, max_length=200, description="Its own model.")


def taken_name(actions: Sequence[ActionSection]) -> str | None:
    """A sentence about the first action that cannot be told from another by its name."""
    seen: set[str] = set()
    for action in actions:
        if action.name in BUILT_IN:
            said = f"{action.name} is an action of thinklsp's; give it another name"
        elif action.name in seen:
            said = f"{action.name} is another action's name already"
        else:
            seen.add(action.name)
            continue
        return f'Your config.toml has a mistake in the action "{action.title}" at name: {said}.'
    return None


def action_mistake(raw: object, where: Sequence[str], said: str) -> str:
    """A sentence that names the action, as its owner would, and the field. `where`: its number and the field."""
    number = int(where[0]) if where[0].isdecimal() else 0
    each = raw[number] if isinstance(raw, list) and number < len(raw) else None
    title = (each.get("title") or each.get("name")) if isinstance(each, Mapping) else None
    name = f'"{title[:60]}"' if isinstance(title, str) and title.isprintable() else f"number {number + 1}"
    if where[1:] == ["name"] and "pattern" in said:
        said = "give it one of small letters, digits, - and _"
    field = f" at {where[1]}" if len(where) > 1 else ""
    return f"Your config.toml has a mistake in the action {name}{field}: {said}."
