"""`[[actions]]` of the user's file: what is taken, and sentences that name action and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.settings.test_sources import SECRET, user
from thinklsp.agent.prompts import ACTIONS
from thinklsp.core.errors import SettingsError
from thinklsp.settings import EditorSettings, resolve
from thinklsp.settings.action_names import BUILT_IN

ACTION = '[[actions]]\ntitle = "Add types"\nprompt = "Add types."\n'


def test_names_come_from_titles_and_defaults_fill_the_rest(tmp_path: Path) -> None:
    made = user(ACTION + ACTION.replace("Add types", "  ÖL: x/y  ") + 'name = "own_1"\neffort = "low"', tmp_path)
    first, second = made.file.actions
    assert (first.name, first.title, first.scope, first.tools, first.effort) == (
        "add-types", "Add types", "selection", "all", None,
    )  # fmt: skip
    assert (second.name, second.title, second.effort) == ("own_1", "ÖL: x/y", "low")
    assert made.problems == ()


WRONG: list[tuple[str, str]] = [
    ('[[actions]]\nprompt = "x"', "in the action number 1 at name: field required"),
    ('[[actions]]\ntitle = "日本"\nprompt = "x"', 'in the action "日本" at name: give it one of small letters'),
    ('[[actions]]\ntitle = "T"', 'in the action "T" at prompt: field required'),
    ('[[actions]]\ntitle = "T"\nprompt = " \\n"', 'in the action "T" at prompt: string should have at least 1'),
    (ACTION + 'scope = "world"', "in the action \"Add types\" at scope: input should be 'selection'"),
    (ACTION + 'tools = ["read_file"]', 'in the action "Add types" at tools: input should be'),
    (ACTION + 'effort = "huge"', 'in the action "Add types" at effort: input should be'),
    (ACTION + 'model = ""', 'in the action "Add types" at model: string should have at least 1'),
    (ACTION + f'base_url = "{SECRET}"', 'in the action "Add types" at base_url: there is no such key'),
    (ACTION + 'name = "Fix it"', 'in the action "Add types" at name: give it one of small letters'),
    (ACTION.replace("Add types", "Fix"), 'in the action "Fix" at name: fix is an action of thinklsp'),
    (ACTION + ACTION, 'in the action "Add types" at name: add-types is another action\'s name'),
    (ACTION + ACTION + "scop = 1", 'in the action "Add types" at scop'),
    ("actions = 5", "at actions: input should be a valid tuple"),
    ("actions = [5]", "in the action number 1: input should be a valid dictionary"),
]


@pytest.mark.parametrize(("toml", "named"), WRONG)
def test_mistakes_name_the_action_and_the_field(tmp_path: Path, toml: str, named: str) -> None:
    with pytest.raises(SettingsError) as refused:
        user(toml, tmp_path)
    assert str(refused.value).startswith(f"Your config.toml has a mistake {named}")
    assert str(refused.value).endswith(".")
    assert SECRET not in str(refused.value)


def test_the_setting_of_the_same_group_stays_one(tmp_path: Path) -> None:
    for toml in ('[actions]\ndisabled = ["fix"]', f'"actions.disabled" = ["fix"]\n{ACTION}'):
        made = user(toml, tmp_path)
        assert (made.problems, resolve(made).settings.actions.disabled) == ((), ("fix",))


def test_an_editor_has_no_own_actions() -> None:
    settings, sentences = EditorSettings().updated({"actions": [{"title": "T", "prompt": "x"}]})
    assert settings.values == {}
    assert "actions" in sentences[0]


def test_every_name_of_ours_is_taken() -> None:
    assert set(ACTIONS) <= BUILT_IN
