"""Bodies of messages for the dispatcher in process, and what became of them."""

from __future__ import annotations

import json
from typing import Any

URI = "file:///ws/a.py"
OPEN = {"textDocument": {"uri": URI, "languageId": "python", "version": 1, "text": "x = 1\n"}}
ACTION = {
    "textDocument": {"uri": URI},
    "range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}},
    "context": {"diagnostics": []},
}
Codes = list[tuple[Any, int]]
# In place of a code, where a request must succeed.
RESULT = 0


def call(method: Any, params: Any = None, identity: Any = 7, **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": identity, "method": method, "params": params} | more).encode()


def told(method: str, params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


def answers(received: list[Any]) -> Codes:
    return [(m.get("id"), m["error"]["code"] if "error" in m else RESULT) for m in received if "method" not in m]


def check_decent(received: list[Any]) -> None:
    """No pop-up, no inside of ours in any text, and every answer is one."""
    for message in received:
        assert message["jsonrpc"] == "2.0"
        assert message.get("method") != "window/showMessage", message
        if "method" not in message:
            assert ("result" in message) != ("error" in message), message
        if "error" in message:
            assert set(message["error"]) == {"code", "message"}
            assert len(message["error"]["message"]) < 400
        text = json.dumps(message)
        assert not [sign for sign in ("Traceback", "site-packages", ".py\\", "Error(") if sign in text], text


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, child in children for deeper in places(child, (*path, key)))]
