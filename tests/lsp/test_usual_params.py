"""Params of the usual form, read at once: the same comes of them as where the whole protocol reads them first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.bodies import places
from tests.support.sizes import examples
from thinklsp.lsp.protocol import forms, whole
from thinklsp.lsp.protocol.errors import InvalidParams

PLACE = {"line": 2, "character": 5}
RANGE = {"start": {"line": 1, "character": 0}, "end": PLACE}
DOCUMENT = {"uri": "file:///ws/a.py"}
DIAGNOSTIC = {
    "range": RANGE,
    "severity": 2,
    "code": "E1",
    "codeDescription": {"href": "https://example.com"},
    "source": "lint",
    "message": "wrong",
    "tags": [1],
    "relatedInformation": [{"location": {"uri": "file:///b", "range": RANGE}, "message": "there"}],
    "data": {"fix": [1, None]},
    "new": True,
}
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
        {
            "textDocument": DOCUMENT,
            "range": RANGE,
            "context": {
                "diagnostics": [{"range": RANGE, "message": "", "code": 7, "severity": None}],
                "only": ["quickfix", "odd.kind"],
                "triggerKind": 2,
            },
        },
        {"textDocument": DOCUMENT, "range": RANGE, "context": {"diagnostics": [], "only": None, "triggerKind": 1}},
        # As of 3.18 a message may be markup.
        {"textDocument": DOCUMENT, "range": RANGE, "context": {"diagnostics": [MARKED, DIAGNOSTIC]}},
    ],
    "workspace/executeCommand": [
        {"command": "thinklsp.chat"},
        {"command": "thinklsp.chat", "arguments": [{"a": None, "jsonrpc": "2.0", "n": [1.5]}], "workDoneToken": "t"},
    ],
    "workspace/didChangeWorkspaceFolders": [{"event": {"added": [FOLDER], "removed": []}}],
    "workspace/didChangeConfiguration": [{"settings": {"thinklsp": {"effort": "low"}}}, {"settings": None}],
    "window/workDoneProgress/cancel": [{"token": 3}, {"token": "t"}],
    "$/cancelRequest": [{"id": 3}, {"id": "3"}],
}
CASES = [(method, params) for method, several in GOOD.items() for params in several]


def message(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def never(method: str, _: Any) -> Any:
    raise AssertionError(f"{method} is of the usual form")


def thorough(method: str, params: Any) -> Any:
    """What comes of it by way of the whole protocol; None where it is refused."""
    try:
        usual = whole.usual_params(method, message(method, params))
    except InvalidParams:
        return None
    return forms.params_of(method, {"params": usual}, lambda _, same: same["params"])


@pytest.mark.parametrize(("method", "params"), CASES)
def test_the_usual_is_read_at_once_and_as_by_the_whole_protocol(method: str, params: Any) -> None:
    assert forms.params_of(method, message(method, params), never) == thorough(method, params)


def test_markup_stays_as_it_came_whatever_else_is_unusual() -> None:
    usual, odd = ({"textDocument": DOCUMENT, "range": RANGE, "context": {"diagnostics": [MARKED, *more]}}
                  for more in ([DIAGNOSTIC], [DIAGNOSTIC | {"message": 3}]))  # fmt: skip
    left: list[str] = []

    def leave(method: str, message: Any) -> Any:
        left.append(method)
        return whole.usual_params(method, message)

    forms.params_of("textDocument/codeAction", message("textDocument/codeAction", usual), leave)
    assert left == []
    found = forms.params_of("textDocument/codeAction", message("textDocument/codeAction", odd), leave)
    assert left != []
    assert [one["message"] for one in found.diagnostics] == [MARKED["message"], "3"]


def test_every_form_has_its_cases() -> None:
    assert set(GOOD) == set(forms.METHODS)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**32), 2**32) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def _changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """`new` in its place; a member is left out where that is `...`."""
    if not path:
        return None if new is ... else new
    if isinstance(value, list):
        return [_changed(one, path[1:], new) if at == path[0] else one for at, one in enumerate(value)]
    if new is ... and len(path) == 1:
        return {key: child for key, child in value.items() if key != path[0]}
    return {key: _changed(child, path[1:], new) if key == path[0] else child for key, child in value.items()}


@given(st.sampled_from(CASES), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_whatever_is_read_at_once_the_whole_protocol_would_let_pass(case: tuple[str, Any], data: st.DataObject) -> None:
    method, params = case
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(places(params)))
        params = _changed(params, path, data.draw(st.just(...) | anything))
    left: list[str] = []

    def leave(method: str, _: Any) -> Any:
        left.append(method)
        raise InvalidParams("")

    try:
        read = forms.params_of(method, message(method, params), leave)
    except InvalidParams:
        assert left, "what is refused is refused by the whole protocol"
        thorough(method, params)
        return
    assert read == thorough(method, params)
