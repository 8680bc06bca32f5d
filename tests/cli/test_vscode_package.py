"""The package of the VS Code extension says what the server says: settings, names of commands, what is left alone."""

from __future__ import annotations

import json
import os
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.generated import ADVICE
from thinklsp.core.prompt_syntax import SLASH_COMMANDS
from thinklsp.lsp.protocol.fast_initialize import COMMANDS

VSCODE = Path(__file__).parents[2] / "editors" / "vscode"


@pytest.fixture(scope="module")
def package() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((VSCODE / "package.json").read_text("utf-8"))
    return found


def test_its_settings_are_those_of_the_server(package: dict[str, Any]) -> None:
    script = runpy.run_path(str(VSCODE / "settings.py"))
    found, wanted = package["contributes"]["configuration"], script["configuration"]()
    assert found == wanted, ADVICE
    assert package["capabilities"]["untrustedWorkspaces"]["restrictedConfigurations"] == script["restricted"]()


def test_chat_panel_has_every_slash_command() -> None:
    words = (VSCODE / "src" / "chat" / "words.ts").read_text("utf-8")
    assert re.findall(r"\{ name: '([a-z-]+)', usage", words) == sorted(command.name for command in SLASH_COMMANDS)


def test_its_commands_are_its_own(package: dict[str, Any]) -> None:
    """The client library registers what the server announces; what is contributed too would be registered twice."""
    contributed = {command["command"] for command in package["contributes"]["commands"]}
    assert contributed
    assert all(command.startswith("thinklsp.ui.") for command in contributed)
    assert contributed.isdisjoint(COMMANDS)


def test_every_command_is_in_the_palette_while_it_can_run(package: dict[str, Any]) -> None:
    """So that the keyboard reaches all of them."""
    hidden = {entry["command"]: entry.get("when") for entry in package["contributes"]["menus"]["commandPalette"]}
    assert set(hidden) <= {command["command"] for command in package["contributes"]["commands"]}
    assert [command for command, when in hidden.items() if not str(when).startswith("thinklsp.")] == []
    assert [c["command"] for c in package["contributes"]["commands"] if c["category"] != "thinklsp"] == []


def test_links_and_pictures_of_the_walkthroughs_exist(package: dict[str, Any]) -> None:
    commands = {command["command"] for command in package["contributes"]["commands"]} | {"thinklsp.ui.openTourFile"}
    steps = [step for walkthrough in package["contributes"]["walkthroughs"] for step in walkthrough["steps"]]
    assert len(steps) == 10
    for step in steps:
        assert not set("`*") & set(step["description"]), "the editor shows these characters as they are"
        assert set(re.findall(r"\(command:([\w.]+)", step["description"])) <= commands, step["id"]
        assert (VSCODE / step["media"]["image"]).is_file(), step["id"]
        assert step["media"]["altText"], step["id"]
        for kind, _, name in (event.partition(":") for event in step["completionEvents"]):
            assert kind in ("onContext", "onCommand", "onView", "onSettingChanged")
            assert name.startswith("thinklsp.") or kind in ("onCommand", "onView")


def test_nothing_runs_at_start_up_and_no_key_is_a_setting(package: dict[str, Any]) -> None:
    # `onLanguage` alone counts the editor's input boxes too, and its settings, which it opens at start-up, are JSON.
    # The sample folder of the tour has this file, and no document is open in its window at first.
    events = set(package["activationEvents"]) - {"workspaceContains:.thinklsp-tour"}
    assert events
    assert all(event.startswith("onLanguage:") for event in events)
    assert events.isdisjoint({"onLanguage:json", "onLanguage:jsonc"})
    groups = package["contributes"]["configuration"]
    settings = {key: part for group in groups for key, part in group["properties"].items()}
    assert [key for key in settings if "key" in key.lower() or "url" in key.lower()] == []
    powers = ("thinklsp.provider", "thinklsp.ui.server.path")
    scopes = {key: part.get("scope") for key, part in settings.items()}
    assert {key: scopes[key] for key in powers} == dict.fromkeys(powers, "machine")


# The name on an index that nobody of the project owns, whatever program installs it.
_FROM_AN_INDEX = re.compile(
    r"(?:pipx?3?|uv(?: tool| pip)?|uvx|poetry|conda|brew|python3? -m pip)\s+(?:install|add|run|tool install)\s+"
    r"(?:-\S+\s+)*[\"'`]?thinklsp|\b(?:uvx|pipx run)\s+thinklsp"
)
_TEXTS = (".md", ".py", ".ts", ".tsx", ".js", ".mjs", ".json", ".lua", ".el", ".vim", ".toml", ".yml", ".html", ".svg")

_BUILT = (".git", "node_modules", "dist", "build", ".venv", "__pycache__", ".hypothesis", ".mypy_cache", ".ruff_cache")


def _sources(root: Path) -> Iterator[Path]:
    for above, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _BUILT]
        yield from (Path(above, name) for name in names if name.endswith(_TEXTS))


def test_no_text_installs_a_package_that_nobody_owns() -> None:
    texts = {path: path.read_text("utf-8", "replace") for path in _sources(VSCODE.parents[1])}
    assert len(texts) > 300
    assert [path for path, text in texts.items() if _FROM_AN_INDEX.search(text)] == []
    typed = [
        path.name for path in (VSCODE / "src").rglob("*.ts") if re.search("createTerminal|sendText", path.read_text())
    ]
    assert typed == ["answer-actions.ts"], "only a command of an answer goes to the terminal, when the user asks for it"
    for words in ("pipx install {}", "pip install '{}[keyring]'", "uv tool install {}", "uvx {}", "pip install -U {}"):
        assert _FROM_AN_INDEX.search(words.format("thinklsp"))
