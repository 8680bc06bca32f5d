"""Before the libraries that check settings are loaded: the same as they say, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.settings.test_own_actions import ACTION, WRONG
from thinklsp.core.errors import SettingsError
from thinklsp.settings import EditorSettings, load_user_settings, resolve
from thinklsp.settings.early import Early, EarlyReading, read_early, setting_in

NAMED = ACTION + 'scope = "file"\n[[actions]]\nname = "b_1"\ntitle = " Two words "\nprompt = "x"\n'
FILES: dict[str, tuple[str, dict[str, str]]] = {
    "nothing": ("", {}),
    "actions": (NAMED, {}),
    "disabled": ('[actions]\ndisabled = ["fix", "edit"]', {}),
    "disabled beside actions": (f'"actions.disabled" = ["fix"]\n{NAMED}', {}),
    "a suffix": ('[chat]\nfile_suffix = ".talk.md"', {}),
    "a wrong suffix": ('[chat]\nfile_suffix = ".py"', {}),
    "no suffix": ("[chat]\nfile_suffix = 5", {}),
    "the environment": (
        '[chat]\nfile_suffix = ".talk.md"\n[actions]\ndisabled = ["fix"]',
        {"THINKLSP_CHAT_FILE_SUFFIX": ".ai.md", "THINKLSP_ACTIONS_DISABLED": "edit, test"},
    ),
    "a list in the environment": ("", {"THINKLSP_ACTIONS_DISABLED": '["edit"]'}),
    "a wrong environment": (
        '[chat]\nfile_suffix = ".talk.md"\n[actions]\ndisabled = ["fix"]',
        {"THINKLSP_CHAT_FILE_SUFFIX": ".py", "THINKLSP_ACTIONS_DISABLED": "[5]"},
    ),
    "wrong names": ('[actions]\ndisabled = ["fix", 5]', {}),
    "other spellings": ('"chat.fileSuffix" = ".talk.md"', {}),
    "no TOML": ("= 5", {}),
    **{f"wrong {number}": (toml, {}) for number, (toml, _) in enumerate(WRONG)},
}


@pytest.mark.parametrize("case", FILES)
def test_what_is_read_early_is_what_counts_later(tmp_path: Path, case: str) -> None:
    """A-11."""
    toml, environment = FILES[case]
    path = tmp_path / "config.toml"
    path.write_text(toml)
    path.chmod(0o600)
    environment = {"THINKLSP_CONFIG": str(path), **environment}
    early = read_early(environment)
    try:
        later = load_user_settings(environment)
    except SettingsError:
        # An action that is offered all the same says what is wrong when it is run.
        return
    settings = resolve(later).settings
    assert [(one.name, one.title, one.scope) for one in early.own] == [
        (one.name, one.title, one.scope) for one in later.file.actions
    ]
    assert (early.disabled, early.file_suffix) == (frozenset(settings.actions.disabled), settings.chat.file_suffix)


@pytest.mark.parametrize("mode", [0o666, 0o620])
def test_a_file_that_others_can_write_counts_for_nothing(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "config.toml"
    path.write_text(NAMED)
    path.chmod(mode)
    reading = EarlyReading({"THINKLSP_CONFIG": str(path)})
    reading.wait()
    assert reading.now == Early()


KEY = "actions.disabled"
EDITORS: list[tuple[Any, Any]] = [
    ({"actions": {"disabled": ["fix"]}}, ["fix"]),
    ({"actions.disabled": ["fix"]}, ["fix"]),
    ({"thinklsp": {"actions": {"disabled": ["fix"]}}}, ["fix"]),
    ({"thinklsp.actions.disabled": ["fix"]}, ["fix"]),
    ({"thinklsp": {"actions.disabled": ["fix"]}}, ["fix"]),
    ({"thinklsp.actions": {"disabled": []}}, []),
    ({"actions": {"disabled": None}, "actionsx": {"disabled": 1}}, None),
    ({"actions": [1]}, None),
    ({}, None),
    (None, None),
    (["fix"], None),
]


@pytest.mark.parametrize(("raw", "value"), EDITORS)
def test_a_setting_is_found_in_any_nesting(raw: Any, value: Any) -> None:
    assert setting_in(raw, KEY) == value


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
    [{"thinklsp.actions.disabled": ["edit"]}, {"actions": {"disabled": 5}}, {"actions": {"disabled": ["test"]}}],
]


@pytest.mark.parametrize("configurations", CONFIGURATIONS)
def test_settings_of_an_editor_count_early_as_they_do_later(tmp_path: Path, configurations: list[Any]) -> None:
    """A-11: a configuration replaces the former one, and a value that is not allowed leaves the former value."""
    path = tmp_path / "config.toml"
    path.write_text('[chat]\nfile_suffix = ".talk.md"\n[actions]\ndisabled = ["fix"]')
    path.chmod(0o600)
    environment = {"THINKLSP_CONFIG": str(path)}
    user, editor = load_user_settings(environment), EditorSettings()
    for raw in configurations:
        editor, _ = editor.updated(raw, user)
    settings = resolve(user, editor).settings
    early = read_early(environment).under(configurations)
    assert (early.disabled, early.file_suffix) == (frozenset(settings.actions.disabled), settings.chat.file_suffix)
