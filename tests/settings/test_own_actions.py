"""`[[actions]]` in the user's file, and the startup settings, which agree with the validated settings or are empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.settings.test_sources import SECRET, user
from thinklsp.agent.prompts import ACTIONS
from thinklsp.core.errors import SettingsError
from thinklsp.settings.sources import EditorSettings, load_user_settings, resolve_settings
from thinklsp.settings.startup_settings import (
    BUILT_IN_ACTIONS,
    StartupSettings,
    StartupSettingsReader,
    read_startup_settings,
)

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
    ('[[actions]]\nprompt = "x"', "at actions.1.name: field required"),
    ('[[actions]]\ntitle = "日本"\nprompt = "x"', "at actions.1.name: string should match pattern '^[a-z0-9]"),
    ('[[actions]]\ntitle = "T"', "at actions.1.prompt: field required"),
    ('[[actions]]\ntitle = "T"\nprompt = " \\n"', "at actions.1.prompt: string should have at least 1"),
    (ACTION + 'scope = "world"', "at actions.1.scope: input should be 'selection'"),
    (ACTION + 'tools = ["read_file"]', "at actions.1.tools: input should be"),
    (ACTION + 'effort = "huge"', "at actions.1.effort: input should be"),
    (ACTION + 'model = ""', "at actions.1.model: string should have at least 1"),
    (ACTION + f'base_url = "{SECRET}"', "`actions.1.base_url` in your config.toml. "),
    (ACTION + 'name = "Fix it"', "at actions.1.name: string should match pattern '^[a-z0-9]"),
    (ACTION.replace("Add types", "Fix"), "at actions.1.name: fix is already the name of a built-in action"),
    (ACTION + ACTION, "at actions.2.name: add-types is already the name of another action"),
    (ACTION + ACTION + "scop = 1", "`actions.2.scop` in your config.toml. Did you mean `actions.2.scope`?"),
    ("actions = 5", "at actions: input should be a valid tuple"),
    ("actions = [5]", "at actions.1: input should be a valid dictionary"),
]


@pytest.mark.parametrize(("toml", "named"), WRONG)
def test_mistakes_name_the_action_and_the_field(tmp_path: Path, toml: str, named: str) -> None:
    with pytest.raises(SettingsError) as refused:
        user(toml, tmp_path)
    assert str(refused.value).startswith(("Your config.toml has a mistake at actions", "Unknown setting `actions."))
    assert named in str(refused.value)
    assert SECRET not in str(refused.value)


def test_every_name_of_ours_is_taken() -> None:
    assert set(ACTIONS) <= BUILT_IN_ACTIONS


NAMED = ACTION + 'scope = "file"\n[[actions]]\nname = "b_1"\ntitle = " Two words "\nprompt = "x"\n'
SUFFIX_AND_DISABLED = '[chat]\nfile_suffix = ".talk.md"\n[actions]\ndisabled = ["fix"]'
FILES: dict[str, tuple[str, dict[str, str]]] = {
    "nothing": ("", {}),
    "actions": (NAMED, {}),
    "disabled": ('[actions]\ndisabled = ["fix", "edit"]', {}),
    "disabled beside actions": (f'"actions.disabled" = ["fix"]\n{NAMED}', {}),
    "a suffix": ('[chat]\nfile_suffix = ".talk.md"', {}),
    "a wrong suffix": ('[chat]\nfile_suffix = ".py"', {}),
    "no suffix": ("[chat]\nfile_suffix = 5", {}),
    "the environment": (
        SUFFIX_AND_DISABLED,
        {"THINKLSP_CHAT_FILE_SUFFIX": ".ai.md", "THINKLSP_ACTIONS_DISABLED": "edit, test"},
    ),
    "a list in the environment": ("", {"THINKLSP_ACTIONS_DISABLED": '["edit"]'}),
    "a wrong environment": (
        SUFFIX_AND_DISABLED,
        {"THINKLSP_CHAT_FILE_SUFFIX": ".py", "THINKLSP_ACTIONS_DISABLED": "[5]"},
    ),
    "wrong names": ('[actions]\ndisabled = ["fix", 5]', {}),
    "other spellings": ('"chat.fileSuffix" = ".talk.md"', {}),
    "no TOML": ("= 5", {}),
    **{f"wrong {number}": (toml, {}) for number, (toml, _) in enumerate(WRONG)},
}


def write_config(folder: Path, toml: str, mode: int = 0o600) -> dict[str, str]:
    """Write the user's file. Return the environment that names it."""
    path = folder / "config.toml"
    path.write_text(toml)
    path.chmod(mode)
    return {"THINKLSP_CONFIG": str(path)}


@pytest.mark.parametrize("case", FILES)
def test_what_is_read_early_is_what_counts_later(tmp_path: Path, case: str) -> None:
    toml, environment = FILES[case]
    environment = write_config(tmp_path, toml) | environment
    early = read_startup_settings(environment)
    try:
        later = load_user_settings(environment)
    except SettingsError:
        # An action that is offered all the same says what is wrong when it is run.
        return
    settings = resolve_settings(later).settings
    assert [(one.name, one.title, one.scope) for one in early.own_actions] == [
        (one.name, one.title, one.scope) for one in later.file.actions
    ]
    expected = (frozenset(settings.actions.disabled), settings.chat.file_suffix)
    assert (early.disabled_actions, early.file_suffix) == expected


@pytest.mark.parametrize("mode", [0o666, 0o620])
def test_a_file_that_others_can_write_counts_for_nothing(tmp_path: Path, mode: int) -> None:
    reading = StartupSettingsReader(write_config(tmp_path, NAMED, mode))
    reading.wait()
    assert reading.current == StartupSettings()


# configurations of an editor, in the order in which they came
CONFIGURATIONS: list[list[Any]] = [
    [],
    [None],
    [{"actions": {"disabled": ["edit"]}}],
    [{"actions": {"disabled": []}}],
    [{"actions": {"disabled": ["edit", 5]}}],
    [{"actions": {"disabled": "edit"}}, {"chat.fileSuffix": ".ai.md"}],
    [{"chat": {"fileSuffix": ".ai.md"}}, {"chat": {"fileSuffix": ".py"}}],
    [{"chat": {"fileSuffix": ".ai.md"}}, {"model": "m"}],
    [{"chat": {"fileSuffix": ".ai.md"}}, 5],
    [{"thinklsp": {"actions.disabled": ["edit"]}}, {"thinklsp.actions": {"disabled": []}}],
    [{"actions": {"disabled": None}, "actionsx": {"disabled": 1}}, {"actions": [1]}],
    [{"thinklsp.actions.disabled": ["edit"]}, {"actions": {"disabled": 5}}, {"actions": {"disabled": ["test"]}}],
]


@pytest.mark.parametrize("configurations", CONFIGURATIONS)
def test_settings_of_an_editor_count_early_as_they_do_later(tmp_path: Path, configurations: list[Any]) -> None:
    """A configuration replaces the previous one, and an invalid value keeps the previous value."""
    environment = write_config(tmp_path, SUFFIX_AND_DISABLED)
    user, editor = load_user_settings(environment), EditorSettings()
    for raw in configurations:
        editor, _ = editor.apply_configuration(raw, user)
    settings = resolve_settings(user, editor).settings
    early = read_startup_settings(environment).merge_editor_settings(configurations)
    expected = (frozenset(settings.actions.disabled), settings.chat.file_suffix)
    assert (early.disabled_actions, early.file_suffix) == expected
