"""What is offered where. Looking is free: no request of the provider, no edit, no wait."""

from __future__ import annotations

import time
from typing import Any

import pytest
from lsprotocol import types

from tests.e2e.acting import begin_file
from tests.e2e.conftest import Begin
from tests.support.client.documents import range_of
from tests.support.client.editor import capabilities
from tests.support.client.lsp import diagnostic, named
from tests.support.outside import Outside

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
    "chat", "action", "send", "cancel", "apply", "discard", "undo", "compact", "effort", "thinking", "model",
    "sessions", "usage", "doctor", "mcp", "skills",
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
        name = "fix" if action.kind == "quickfix" else action.kind.removeprefix("refactor.rewrite.thinklsp.")
        assert action.title.startswith(f"thinklsp: {TITLES[name]}")
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
    ("a definition", caret("greet"), {"edit", "document", "test"}, {"fix", "simplify", "explain", "stop"}),
    ("a TODO", caret("TODO"), {"edit", "complete"}, {"fix"}),
    ("an empty body", caret("pass"), {"edit", "complete"}, {"fix"}),
    ("a comment trigger", caret("AI!"), {"edit"}, {"fix", "simplify"}),
    ("elsewhere", caret("total"), {"edit", "review"}, {"fix", "complete", "document", "test", "simplify", "send"}),
]


async def test_offered_where(outside: Outside) -> None:
    for name, place, offered, not_offered in PLACES:
        found = names(await outside.client.code_actions(outside.uri("app.py"), place))
        assert (name, offered - found, found & not_offered) == (name, set(), set())


# Of the context of a request: what it wants, and whether there is a problem -> the families of what is offered.
CONTEXTS: list[tuple[dict[str, Any], bool, set[str]]] = [
    ({}, True, {"quickfix", "refactor"}),
    ({"only": ["quickfix"]}, True, {"quickfix"}),
    ({"only": ["refactor.rewrite"]}, True, {"refactor"}),
    ({"only": ["source.fixAll", "source.organizeImports"]}, True, set()),
    ({"triggerKind": 2}, True, {"quickfix"}),
    ({"triggerKind": 2}, False, set()),
    ({"triggerKind": 2, "only": ["source.fixAll"]}, True, set()),
]


async def test_the_context_of_a_request_is_honoured(outside: Outside) -> None:
    uri, problem = outside.uri("app.py"), diagnostic(TEXT, "nmae", "not defined", code="x", data={"any": 1})
    for context, is_wrong, families in CONTEXTS:
        actions = await outside.client.code_actions(uri, "nmae", diagnostics=[problem] * is_wrong, **context)
        assert (context, {action.kind.partition(".")[0] for action in actions}) == (context, families)
        assert all(action.tags == (types.CodeActionTag.LlmGenerated,) for action in actions)
        assert all(action.diagnostics == (problem,) for action in named(actions, "fix "))
    assert outside.provider.connections == 0


async def test_disabled_actions_and_clients_without_literals(begin: Begin) -> None:
    announce = capabilities(textDocument__codeAction={"dynamicRegistration": False})
    options = {"actions": {"disabled": ["explain"]}}
    outside, _, uri = await begin_file(begin, TEXT, name="app.py", announce=announce, options=options)
    plain = await outside.client.code_actions(uri, "total = 1")
    assert len(named(plain, "edit")) == len(named(plain, "simplify")) == 1
    assert named(plain, "explain") == []
    assert all(isinstance(action, types.Command) for action in plain)


@pytest.mark.timing
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
    sync = announced.text_document_sync
    assert (sync.open_close, sync.change, bool(sync.save)) == (True, types.TextDocumentSyncKind.Incremental, True)
    assert set(announced.code_action_provider.code_action_kinds) == {"quickfix", "refactor.rewrite"}
    assert not announced.code_action_provider.resolve_provider
    assert announced.execute_command_provider.work_done_progress is True
    assert announced.workspace.workspace_folders.supported is True
    assert announced.code_lens_provider == types.CodeLensOptions(resolve_provider=False)
    assert announced.completion_provider == types.CompletionOptions(trigger_characters=("/", "@"))
    commands = announced.execute_command_provider.commands
    assert len(commands) == len(set(commands))
    assert set(commands) == {f"thinklsp.{name}" for name in COMMANDS}
