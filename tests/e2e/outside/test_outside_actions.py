"""What is offered where. Looking is free: no request of the provider, no edit, no wait."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.outside import Outside, diagnostic, named
from tests.support.raw_documents import range_of
from tests.support.raw_editor import capabilities

TEXT = '''"""🙂"""


def greet(name):
    # TODO: greet nicely
    return "Hello, " + nmae


def empty():
    pass


# make this shorter AI!
total = 1 + 1 + 1
'''
COMMANDS = (
    "chat", "action", "send", "cancel", "apply", "undo", "compact", "effort", "thinking", "model", "sessions", "usage",
    "doctor",
)  # fmt: skip
TITLES = {
    "fix": "fix ", "edit": "edit", "complete": "complete", "document": "document", "test": "write tests",
    "simplify": "simplify", "explain": "explain", "review": "review", "send": "send", "apply": "apply",
    "stop": "stop", "undo": "undo",
}  # fmt: skip


def caret(part: str) -> Any:
    place = range_of(TEXT, part)
    return {"start": place["start"], "end": place["start"]}


def names(actions: list[Any]) -> set[str]:
    """By kind, checked against the beginning of the title."""
    found = set()
    for action in actions:
        name = "fix" if action["kind"] == "quickfix" else action["kind"].removeprefix("refactor.rewrite.thinklsp.")
        assert action["title"].startswith(f"thinklsp: {TITLES[name]}")
        found.add(name)
    return found


@pytest.fixture
async def outside(begin: Begin) -> Outside:
    outside = await begin(files={"app.py": TEXT})
    outside.open("app.py")
    return outside


PLACES: list[tuple[str, Any, set[str], set[str]]] = [
    # place, range, offered, not offered
    ("a selection", "total = 1 + 1", {"edit", "simplify", "explain"}, {"fix", "send", "apply", "undo"}),
    ("a definition", caret("greet"), {"document", "test"}, {"fix", "edit", "simplify", "explain", "stop"}),
    ("a TODO", caret("TODO"), {"complete"}, {"fix", "edit"}),
    ("an empty body", caret("pass"), {"complete"}, {"fix", "edit"}),
    ("a comment trigger", caret("AI!"), {"edit"}, {"fix", "simplify"}),
    ("elsewhere", caret("total"), {"review"}, {"fix", "edit", "complete", "document", "test", "simplify", "send"}),
]


async def test_offered_where(outside: Outside) -> None:
    for name, place, offered, not_offered in PLACES:
        found = names(await outside.client.code_actions(outside.uri("app.py"), place))
        assert (name, offered - found, found & not_offered) == (name, set(), set())


async def test_the_form_of_an_action(outside: Outside) -> None:
    client, provider = outside.pair
    uri = outside.uri("app.py")
    long = '"nmae" is not defined\n' + "and this goes on " * 40
    problems = [diagnostic(TEXT, "nmae", long, code="x", data={"any": 1}), diagnostic(TEXT, "name", "unused")]
    everything = await client.code_actions(uri, range_of(TEXT, TEXT.strip()), diagnostics=problems)
    assert len(named(everything, "fix ")) == 2
    announced = client.server["executeCommandProvider"]["commands"]
    for action in everything:
        assert set(action) <= {
            "title", "kind", "command", "diagnostics", "isPreferred", "disabled", "tags", "data",
        }  # fmt: skip
        assert "edit" not in action
        assert not action["kind"].startswith("source")
        assert action["isPreferred"] is False
        assert action["tags"] == [1]
        assert "\n" not in action["title"]
        assert len(action["title"]) < 120
        assert action["command"]["command"] in announced
        assert len(action["command"].get("arguments", [])) <= 1
    assert [a["diagnostics"] for a in named(everything, "fix ")] == [[problem] for problem in problems]
    assert provider.connections == 0


ONLY: list[tuple[list[str], set[str]]] = [
    (["quickfix"], {"quickfix"}),
    (["refactor"], {"refactor"}),
    (["refactor.rewrite"], {"refactor"}),
    ([""], {"quickfix", "refactor"}),
    (["source"], set()),
    (["source.fixAll", "source.organizeImports"], set()),
    (["refactor.extract"], set()),
    (["refactor.rewrite.thinklsp.explain"], {"refactor"}),
]


async def test_only_is_honoured(outside: Outside) -> None:
    uri, problem = outside.uri("app.py"), diagnostic(TEXT, "nmae", "not defined")
    for only, families in ONLY:
        actions = await outside.client.code_actions(uri, "nmae", diagnostics=[problem], only=only)
        kinds = [action["kind"] for action in actions]
        assert (only, {kind.partition(".")[0] for kind in kinds}) == (only, families)
        assert all(any(o == "" or k == o or k.startswith(o + ".") for o in only) for k in kinds)


async def test_an_automatic_trigger_offers_only_quick_fixes(outside: Outside) -> None:
    uri, problem = outside.uri("app.py"), diagnostic(TEXT, "nmae", "not defined")
    automatic: dict[str, Any] = {"triggerKind": 2}
    assert names(await outside.client.code_actions(uri, "nmae", diagnostics=[problem], **automatic)) == {"fix"}
    assert not await outside.client.code_actions(uri, "nmae", **automatic)
    saving = automatic | {"only": ["source.fixAll"]}
    assert not await outside.client.code_actions(uri, "nmae", diagnostics=[problem], **saving)


async def test_disabled_actions_and_clients_without_literals(begin: Begin) -> None:
    announce = capabilities(textDocument__codeAction={"dynamicRegistration": False})
    options = {"actions": {"disabled": ["explain"]}}
    outside = await begin(files={"app.py": TEXT}, announce=announce, options=options)
    uri = outside.open("app.py")
    plain = await outside.client.code_actions(uri, "total = 1")
    assert len(named(plain, "edit")) == len(named(plain, "simplify")) == 1
    assert named(plain, "explain") == []
    assert all(set(c) <= {"title", "command", "arguments", "tooltip"} for c in plain)
    assert all(isinstance(c["command"], str) for c in plain)


async def test_a_look_takes_no_time(outside: Outside) -> None:
    uri, problem = outside.uri("app.py"), diagnostic(TEXT, "nmae", "not defined")
    took = []
    for _ in range(20):
        start = time.monotonic()
        await outside.client.code_actions(uri, "nmae", diagnostics=[problem])
        took.append(time.monotonic() - start)
    assert sorted(took)[10] < 0.010


async def test_what_is_announced(outside: Outside) -> None:
    announced = outside.client.server
    sync = announced["textDocumentSync"]
    assert (sync["openClose"], sync["change"], bool(sync["save"])) == (True, 2, True)
    assert set(announced["codeActionProvider"]["codeActionKinds"]) == {"quickfix", "refactor.rewrite"}
    assert not announced["codeActionProvider"].get("resolveProvider")
    assert announced["executeCommandProvider"]["workDoneProgress"] is True
    assert announced["workspace"]["workspaceFolders"]["supported"] is True
    assert announced["codeLensProvider"] == {"resolveProvider": False}
    assert announced["completionProvider"] == {"triggerCharacters": ["/", "@"]}
    commands = announced["executeCommandProvider"]["commands"]
    assert len(commands) == len(set(commands))
    assert set(commands) == {f"thinklsp.{name}" for name in COMMANDS}
