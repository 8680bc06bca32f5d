"""Makes a server break one promise on purpose: `FAULT` names it, this folder on PYTHONPATH brings it.

Python imports a module of this name at its start, so that the server itself is the real one and nothing in it knows.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from thinklsp.core import messages
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.editor.client import Client
from thinklsp.lsp.edits import workspace_edits
from thinklsp.lsp.protocol import envelope, frames
from thinklsp.lsp.protocol.dispatch import Protocol
from thinklsp.lsp.serving.connection import Connection
from thinklsp.sessions.sqlite_store import MemoryStore, SqliteStore

_numbers = itertools.count(1)
_kept: list[bytes] = []


def around(owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replaces `owner.name` by `change(original, *arguments)`."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *given, **named: change(original, *given, **named))


def now_and_then() -> bool:
    return next(_numbers) % 12 == 0


def _replies(change: Callable[..., None]) -> None:
    around(Protocol, "_reply", change)
    around(Protocol, "_reply_error", change)


def _drops(original: Any, *given: Any, **named: Any) -> None:
    if not now_and_then():
        original(*given, **named)


def _doubles(original: Any, *given: Any, **named: Any) -> None:
    original(*given, **named)
    if now_and_then():
        original(*given, **named)


def _pops_up(original: Any, protocol: Protocol, *given: Any, **named: Any) -> None:
    protocol.tell("window/showMessage", {"type": 1, "message": "Error in server"})
    original(protocol, *given, **named)


def _dies(original: Any, body: bytes) -> Any:
    if b"jsonrpc" in body and b'"id"' not in body and now_and_then():
        os._exit(3)
    return original(body)


def _tells_insides(original: Any, protocol: Protocol, identity: Any, code: int, text: str, **more: Any) -> None:
    original(protocol, identity, code, f"Traceback (most recent call last): {text}", **more)


def _grows(original: Any, protocol: Protocol, *given: Any, **named: Any) -> None:
    if len(_kept) < 50:
        _kept.append(os.urandom(1) * 4_000_000)
    original(protocol, *given, **named)


def _dies_of_a_header(original: Any, decoder: frames.FrameDecoder, line: bytes) -> str | None:
    if line.startswith(b"Content-Type"):
        os._exit(3)
    found: str | None = original(decoder, line)
    return found


def _leaves_slowly(original: Any, connection: Connection, code: int) -> None:
    time.sleep(1.5)
    original(connection, code)


def _grows_deaf(original: Any, decoder: frames.FrameDecoder, data: bytes) -> list[Any]:
    if b"GET / HTTP" in data:
        decoder.__dict__["deaf"] = True
    return [] if "deaf" in decoder.__dict__ else list(original(decoder, data))


def _edits_elsewhere(original: Any, edit: Any, lines: Any) -> dict[str, Any]:
    made: dict[str, Any] = original(edit, lines)
    return made | {"newText": made["newText"] + " "}


def _misses_a_change(original: Any, document: Document, version: int, changes: Any) -> None:
    original(document, version, changes[:-1] if next(_numbers) % 3 == 0 else changes)


def _seals_otherwise(original: Any, state: messages.OpaqueState, text: str, origin: Any) -> None:
    block = json.loads(text)
    if block.get("signature"):
        text = json.dumps(block | {"signature": "x" + block["signature"][1:]})
    original(state, text, origin)


def _ends_twice(original: Any, client: Client, token: Any, value: Any) -> None:
    original(client, token, value)
    if value["kind"] == "end":
        original(client, token, value)


def _writes_to_the_log(original: Any, client: Client, token: Any, value: Any) -> None:
    sys.stderr.write("Traceback (most recent call last):\n")
    original(client, token, value)


FAULTS: dict[str, Callable[[], None]] = {
    "drops replies": lambda: _replies(_drops),
    "replies twice": lambda: _replies(_doubles),
    "pops up": lambda: around(Protocol, "_reply_error", _pops_up),
    "dies of a message": lambda: around(envelope, "read", _dies),
    "tells its insides": lambda: around(Protocol, "_reply_error", _tells_insides),
    "grows": lambda: around(Protocol, "_reply_error", _grows),
    "dies of a header": lambda: around(frames.FrameDecoder, "_read_line", _dies_of_a_header),
    "leaves slowly": lambda: around(Connection, "leave", _leaves_slowly),
    "grows deaf": lambda: around(frames.FrameDecoder, "feed", _grows_deaf),
    "edits otherwise": lambda: around(workspace_edits, "_text_edit", _edits_elsewhere),
    "misses a change": lambda: around(Document, "apply", _misses_a_change),
    "seals otherwise": lambda: around(messages.OpaqueState, "__init__", _seals_otherwise),
    "ends twice": lambda: around(Client, "progress", _ends_twice),
    "writes to the log": lambda: around(Client, "progress", _writes_to_the_log),
    "forgets sessions": lambda: around(SqliteStore, "_open", lambda original, store: MemoryStore._open(store)),
}

if os.environ.get("FAULT"):
    FAULTS[os.environ["FAULT"]]()
