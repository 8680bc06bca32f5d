"""Params as lsprotocol types and arguments of commands: what does not fit is refused, by the name of its field."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol import types
from lsprotocol.converters import get_converter
from lsprotocol.types import ExecuteCommandParams
from pydantic import ValidationError

from tests.lsp.bodies import places
from tests.support.in_process import as_json
from tests.support.sizes import examples
from thinklsp.jsonrpc.rpc_messages import InvalidParams
from thinklsp.lsp.documents.tracked_diagnostics import convert_diagnostics
from thinklsp.lsp.editor.arguments import ChatArguments, ChoiceArguments, TurnArguments, parse_arguments
from thinklsp.lsp.protocol.converter import load_converter
from thinklsp.lsp.transport.connection import create_server

PLACE = {"line": 2, "character": 5}
RANGE = {"start": {"line": 1, "character": 0}, "end": PLACE}
DOCUMENT = {"uri": "file:///ws/a.py"}
DIAGNOSTIC = {
    "range": RANGE, "severity": 2, "code": "E1", "codeDescription": {"href": "https://example.com"}, "source": "lint",
    "message": "wrong", "tags": [1], "data": {"fix": [1, None]},
    "relatedInformation": [{"location": {"uri": "file:///b", "range": RANGE}, "message": "there"}],
}  # fmt: skip
ODD = {"diagnostics": [{"range": RANGE, "message": "", "code": 7}], "only": ["quickfix", "odd.kind"], "triggerKind": 2}
MARKED = {"range": RANGE, "message": {"kind": "markdown", "value": "**x** is wrong"}}
FOLDER = {"uri": "file:///ws", "name": "ws"}
GOOD: dict[str, list[Any]] = {
    "textDocument/didOpen": [{"textDocument": DOCUMENT | {"languageId": "python", "version": 1, "text": "x"}}],
    "textDocument/didChange": [
        {
            "textDocument": DOCUMENT | {"version": -2},
            "contentChanges": [{"range": RANGE, "rangeLength": 3, "text": "x"}, {"text": ""}],
        },
    ],
    "textDocument/didClose": [{"textDocument": DOCUMENT}],
    "textDocument/didSave": [{"textDocument": DOCUMENT}, {"textDocument": DOCUMENT, "text": "x"}],
    "textDocument/codeLens": [{"textDocument": DOCUMENT, "workDoneToken": 1}],
    "textDocument/hover": [{"textDocument": DOCUMENT, "position": PLACE}],
    "textDocument/completion": [{"textDocument": DOCUMENT, "position": PLACE, "context": {"triggerKind": 1}}],
    "textDocument/codeAction": [
        {"textDocument": DOCUMENT, "range": RANGE, "context": {"diagnostics": [DIAGNOSTIC]}},
        {"textDocument": DOCUMENT, "range": RANGE, "context": ODD},
        # As of LSP 3.18 a message may be markup.
        {"textDocument": DOCUMENT, "range": RANGE, "context": {"diagnostics": [MARKED, DIAGNOSTIC]}},
    ],
    "workspace/executeCommand": [
        {"command": "thinklsp.chat"},
        {"command": "thinklsp.chat", "arguments": [{"a": None, "jsonrpc": "2.0", "n": [1.5]}], "workDoneToken": "t"},
    ],
    "workspace/didChangeWorkspaceFolders": [{"event": {"added": [FOLDER], "removed": []}}],
    "workspace/didChangeConfiguration": [{"settings": {"thinklsp": {"effort": "low"}}}],
    "window/workDoneProgress/cancel": [{"token": 3}, {"token": "t"}],
    "$/cancelRequest": [{"id": 3}, {"id": "3"}],
}
INITIALIZE = {
    "processId": 1, "rootUri": "file:///ws", "rootPath": "/ws", "workspaceFolders": [FOLDER],
    "clientInfo": {"name": "x"}, "capabilities": {"general": {"positionEncodings": ["utf-8"]}},
    "initializationOptions": {"effort": "low"},
}  # fmt: skip
STRICT = get_converter()
CASES = [(method, params) for method, several in GOOD.items() for params in several]


def structured(method: str, params: Any) -> Any:
    """The params as the handler gets them."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return SERVER.protocol._structure_params(method, message)


SERVER = create_server()


@pytest.mark.parametrize(("method", "params"), CASES)
def test_editor_params_are_structured_without_loss(method: str, params: Any) -> None:
    found = structured(method, params)
    assert type(found).__module__ == "lsprotocol.types"
    assert as_json(found) == params


def test_every_method_that_is_served_has_its_case() -> None:
    served = {*SERVER.protocol.fm.features, types.WORKSPACE_EXECUTE_COMMAND, types.CANCEL_REQUEST}
    assert set(GOOD) == served - {types.INITIALIZE, types.INITIALIZED, types.SHUTDOWN}


REFUSED: list[tuple[str, Any]] = [
    ("textDocument/didChange", {"textDocument": DOCUMENT | {"version": 1}, "contentChanges": [{"range": None}]}),
    (
        "textDocument/didChange",
        {"textDocument": DOCUMENT | {"version": 1}, "contentChanges": [{"range": None, "text": "x"}]},
    ),
    ("textDocument/didChange", {"textDocument": DOCUMENT | {"version": None}, "contentChanges": []}),
    ("textDocument/hover", {"textDocument": DOCUMENT, "position": {"line": -1, "character": 0}}),
    ("textDocument/hover", {"textDocument": DOCUMENT, "position": {"line": 0, "character": 2**31}}),
    ("textDocument/hover", {"textDocument": DOCUMENT}),
    ("textDocument/codeAction", {"textDocument": DOCUMENT, "context": {"diagnostics": []}}),
    ("textDocument/codeAction", {"textDocument": DOCUMENT, "range": RANGE | {"end": {"line": None, "character": 0}}}),
    ("textDocument/codeAction", {"textDocument": {"uri": None}, "range": RANGE, "context": {"diagnostics": []}}),
    ("textDocument/didOpen", {"textDocument": DOCUMENT | {"languageId": "python", "version": 1, "text": None}}),
]


@pytest.mark.parametrize(("method", "params"), REFUSED)
def test_params_that_do_not_fit_are_refused(method: str, params: Any) -> None:
    with pytest.raises(InvalidParams):
        structured(method, params)


COMPLETION = {"textDocument": DOCUMENT, "position": PLACE}
INVOKED = COMPLETION | {"context": {"triggerKind": 1}}
# What the client passes on, or says of itself, and what is read of that.
READ: list[tuple[str, Any, Any]] = [
    ("textDocument/completion", COMPLETION | {"context": {"triggerKind": 0, "triggerCharacter": 3}}, INVOKED),
    ("textDocument/completion", COMPLETION | {"context": []}, INVOKED),
    ("textDocument/completion", COMPLETION | {"context": None}, COMPLETION),
    (
        "workspace/didChangeWorkspaceFolders",
        {"event": {"added": [{"uri": "file:///ws", "name": None}, None, {"name": "x"}], "removed": {}}},
        {"event": {"added": [{"uri": "file:///ws", "name": ""}], "removed": []}},
    ),
    ("workspace/didChangeConfiguration", {}, {"settings": None}),
    ("workspace/didChangeConfiguration", [], {"settings": None}),
    ("initialized", [], {}),
    ("initialized", None, {}),
]


@pytest.mark.parametrize(("method", "params", "read"), READ)
def test_members_that_do_not_fit_are_dropped(method: str, params: Any, read: Any) -> None:
    assert as_json(structured(method, params)) == read


def test_an_odd_reason_is_dropped_from_an_answer() -> None:
    answer = {"applied": False, "failureReason": {"x": 1}, "failedChange": -1}
    assert as_json(load_converter().structure(answer, types.ApplyWorkspaceEditResult)) == {"applied": False}


def test_the_text_no_is_not_a_yes() -> None:
    with pytest.raises(Exception, match="not a boolean"):
        load_converter().structure({"applied": "no"}, types.ApplyWorkspaceEditResult)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**32), 2**32) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


@given(st.sampled_from(CASES), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_other_params_fit_or_are_refused(case: tuple[str, Any], data: st.DataObject) -> None:
    method, params = case
    for _ in range(data.draw(st.integers(1, 2))):
        params = mutated(params, data)
    try:
        found = structured(method, params)
    except InvalidParams:
        return
    assert type(found).__module__ == "lsprotocol.types"


@given(anything, st.data())
@settings(max_examples=examples(300), deadline=None)
def test_no_context_and_no_initialize_is_refused(made: Any, data: st.DataObject) -> None:
    """Whatever stands in place of any member, the request is read, and so is what goes back to the client."""
    context = data.draw(st.sampled_from([made, {"diagnostics": made}, {"diagnostics": [made], "only": made}]))
    context = data.draw(
        st.sampled_from([context, mutated({"diagnostics": [DIAGNOSTIC], "only": ["x"], "triggerKind": 1}, data)])
    )
    read = structured("textDocument/codeAction", {"textDocument": DOCUMENT, "range": RANGE, "context": context}).context
    back = as_json(read)
    assert as_json(STRICT.structure(back, types.CodeActionContext)) == back
    convert_diagnostics(read.diagnostics)
    assert isinstance(structured("initialize", mutated(INITIALIZE, data)), types.InitializeParams)


def mutated(params: Any, data: st.DataObject) -> Any:
    params = copy.deepcopy(params)
    *path, last = data.draw(st.sampled_from([place for place in places(params) if place]))
    inner = params
    for step in path:
        inner = inner[step]
    inner[last] = data.draw(anything)
    return params


def called(arguments: list[Any]) -> ExecuteCommandParams:
    return ExecuteCommandParams("thinklsp.x", arguments)


@pytest.mark.parametrize(
    ("kind", "field"),
    [(ChoiceArguments, "sessionId"), (ChoiceArguments, "value"), (TurnArguments, "turnId"), (ChatArguments, "model")],
)
def test_half_of_a_character_pair_is_in_no_id(kind: type[ChatArguments], field: str) -> None:
    with pytest.raises(InvalidParams, match=f"The field {field} is not valid"):
        parse_arguments(kind, called([{field: "x\ud800"}]))
    parse_arguments(kind, called([{field: "x\U0001f600"}]))


START = {"line": 0, "character": 0}
WHERE = {"start": START, "end": START}
# References, and the field that is wrong.
WRONG_REFERENCES: list[tuple[Any, str]] = [
    ([{"uri": "file:///a", "range": WHERE, "foo": 1}], "references.0.foo"),
    (["file:///a", {}], "references.1.uri"),
    ([{"uri": 3}], "references.0.uri"),
    ([{"uri": "file:///a", "range": WHERE | {"start": START | {"line": -1}}}], "references.0.range.start.line"),
    ([{"uri": "file:///a", "range": {"start": START}}], "references.0.range.end"),
    ([3], "references.0"),
    ([None], "references.0"),
    ("file:///a", "references"),
]


@pytest.mark.parametrize(("references", "field"), WRONG_REFERENCES)
def test_the_field_that_is_wrong_is_named(references: Any, field: str) -> None:
    with pytest.raises(InvalidParams, match=rf"field {re.escape(field)}( is not valid: .*)?\.$"):
        parse_arguments(ChatArguments, called([{"prompt": "x", "references": references}]))


def test_a_reference_is_a_uri_or_a_place() -> None:
    given = ["file:///a", {"uri": "file:///b", "range": WHERE}, {"uri": "file:///c", "range": None}]
    read = parse_arguments(ChatArguments, called([{"references": given}])).references
    found = [(one.uri, one.range is None) for one in read]
    assert found == [("file:///a", True), ("file:///b", False), ("file:///c", True)]


@pytest.mark.parametrize("token", [1.5, [], {}, True, "x" * 300])
def test_a_token_is_an_integer_or_a_short_text(token: Any) -> None:
    with pytest.raises(InvalidParams, match="field partialResultToken is not valid"):
        parse_arguments(ChatArguments, called([{"partialResultToken": token}]))
    for good in (0, -3, "t"):
        assert parse_arguments(ChatArguments, called([{"partialResultToken": good}])).partial_result_token == good


def test_a_prompt_may_hold_one_as_editors_can_send_it() -> None:
    assert parse_arguments(ChatArguments, called([{"prompt": "x\ud800"}])).prompt == "x\ud800"


def test_a_long_list_is_checked_until_its_first_fault() -> None:
    with pytest.raises(ValidationError) as refused:
        ChatArguments.model_validate({"prompt": "x", "references": [0] * 100})
    assert refused.value.error_count() == 1
