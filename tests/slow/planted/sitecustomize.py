"""Plants faults in a server: `PLANT` names them. Python imports a `sitecustomize` on PYTHONPATH before the server."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from lsprotocol import types

from thinklsp.core import messages
from thinklsp.jsonrpc import framing, rpc_messages
from thinklsp.jsonrpc.stdio import ExitCode
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.editor.client import Client
from thinklsp.lsp.edits import workspace_edits
from thinklsp.lsp.protocol.converter import load_converter
from thinklsp.lsp.protocol.lsp_protocol import LspProtocol
from thinklsp.sessions.sqlite_store import MemoryStore, SqliteStore

KEPT: list[Any] = []
_numbers = count(1)
_heard: dict[Any, float] = {}


def around(owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace `owner.name` by `change(original, *arguments)`."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *given, **named: change(original, *given, **named))


def _is_twelfth() -> bool:
    return next(_numbers) % 12 == 0


def _kind_of(value: Any) -> str:
    """Return the kind of a work-done progress or of a partial result."""
    return str(value["kind"] if isinstance(value, dict) else value.kind)


def _change_replies(change: Callable[..., None]) -> None:
    around(LspProtocol, "_answer", change)
    around(LspProtocol, "_send_error", change)


def _change_errors(change: Callable[..., None]) -> None:
    around(LspProtocol, "_send_error", change)


def _change_progress(change: Callable[..., None]) -> None:
    around(Client, "send_progress", change)


def _at_end(work: Callable[[], object]) -> None:
    """Do this at the end of each turn."""

    def change(original: Any, client: Client, token: Any, value: Any) -> None:
        if _kind_of(value) == "end":
            work()
        original(client, token, value)

    _change_progress(change)


def _drop(original: Any, *given: Any, **named: Any) -> None:
    if not _is_twelfth():
        original(*given, **named)


def _double(original: Any, *given: Any, **named: Any) -> None:
    original(*given, **named)
    if _is_twelfth():
        original(*given, **named)


def _pop_up(original: Any, protocol: LspProtocol, *given: Any, **named: Any) -> None:
    protocol.notify("window/showMessage", types.ShowMessageParams(types.MessageType.Error, "Error in server"))
    original(protocol, *given, **named)


def _die(original: Any, body: bytes) -> Any:
    if b"jsonrpc" in body and b'"id"' not in body and _is_twelfth():
        os._exit(3)
    return original(body)


def _tell_insides(original: Any, protocol: LspProtocol, identity: Any, code: int, text: str, **more: Any) -> None:
    original(protocol, identity, code, f"Traceback (most recent call last): {text}", **more)


def _grow(original: Any, protocol: LspProtocol, *given: Any, **named: Any) -> None:
    if len(KEPT) < 50:
        KEPT.append(os.urandom(1) * 4_000_000)
    original(protocol, *given, **named)


def _die_of_a_header(original: Any, decoder: framing.FrameDecoder, line: bytes) -> Any:
    if line.startswith(b"Content-Type"):
        os._exit(3)
    return original(decoder, line)


def _leave_slowly(original: Any, exit_code: ExitCode, code: int) -> None:
    time.sleep(1.5)
    original(exit_code, code)


def _grow_deaf(original: Any, decoder: framing.FrameDecoder, data: bytes) -> list[Any]:
    if b"GET / HTTP" in data:
        decoder.__dict__["deaf"] = True
    return [] if "deaf" in decoder.__dict__ else list(original(decoder, data))


def _edit_elsewhere(original: Any, *given: Any) -> list[types.TextEdit]:
    return [types.TextEdit(edit.range, f"{edit.new_text} ") for edit in original(*given)]


def _miss_a_change(original: Any, document: Document, version: int, changes: Any) -> None:
    original(document, version, changes[:-1] if next(_numbers) % 3 == 0 else changes)


def _seal_otherwise(original: Any, state: messages.OpaqueState, text: str, origin: Any) -> None:
    block = json.loads(text)
    if block.get("signature"):
        text = json.dumps(block | {"signature": "x" + block["signature"][1:]})
    original(state, text, origin)


def _end_twice(original: Any, client: Client, token: Any, value: Any) -> None:
    for _ in range(2 if _kind_of(value) == "end" else 1):
        original(client, token, value)


def _write_to_the_log(original: Any, client: Client, token: Any, value: Any) -> None:
    sys.stderr.write("Traceback (most recent call last):\n")
    original(client, token, value)


def _lose_text(original: Any, client: Client, token: Any, value: Any) -> None:
    if _kind_of(value) != "text" or next(_numbers) % 50:
        original(client, token, value)


def _flood(original: Any, client: Client, token: Any, value: Any) -> None:
    for _ in range(10 if _kind_of(value) == "report" else 1):
        # As JSON, so that no report replaces another one.
        original(client, token, load_converter().unstructure(value))


def _report_late(original: Any, client: Client, token: Any, value: Any) -> None:
    now = time.monotonic()
    if now - _heard.setdefault(token, now) > 3 or _kind_of(value) == "end":
        original(client, token, value)


def _stop_once(original: Any, client: Client, token: Any, value: Any) -> None:
    if next(_numbers) == 30:
        time.sleep(8)
    original(client, token, value)


def _keep_notification(original: Any, protocol: LspProtocol, notification: Any) -> None:
    KEPT.append([asyncio.get_running_loop().create_future(), bytearray(200)])
    original(protocol, notification)


async def _wait_for_ever() -> None:
    await asyncio.Event().wait()


async def _wake_up_often() -> None:
    for _ in range(10_000):
        await asyncio.sleep(0.1)


def _keep_task(work: Callable[[], Any]) -> None:
    KEPT.append(asyncio.get_running_loop().create_task(work()))


def _log_traceback() -> None:
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        logging.getLogger("thinklsp").exception("planted")


PLANTS: dict[str, Callable[[], None]] = {
    "drops replies": lambda: _change_replies(_drop),
    "replies twice": lambda: _change_replies(_double),
    "pops up": lambda: _change_errors(_pop_up),
    "dies of a message": lambda: around(rpc_messages, "parse_message", _die),
    "tells its insides": lambda: _change_errors(_tell_insides),
    "grows": lambda: _change_errors(_grow),
    "dies of a header": lambda: around(framing.FrameDecoder, "_read_line", _die_of_a_header),
    "leaves slowly": lambda: around(ExitCode, "set", _leave_slowly),
    "grows deaf": lambda: around(framing.FrameDecoder, "feed", _grow_deaf),
    "edits otherwise": lambda: around(workspace_edits, "_build_text_edits", _edit_elsewhere),
    "misses a change": lambda: around(Document, "apply", _miss_a_change),
    "seals otherwise": lambda: around(messages.OpaqueState, "__init__", _seal_otherwise),
    "ends twice": lambda: _change_progress(_end_twice),
    "writes to the log": lambda: _change_progress(_write_to_the_log),
    "forgets sessions": lambda: around(SqliteStore, "_open", lambda original, store: MemoryStore._open(store)),
    "memory": lambda: _at_end(lambda: KEPT.append(b"x" * 2_000_000)),
    "objects": lambda: _at_end(lambda: KEPT.extend([] for _ in range(500))),
    "descriptor": lambda: _at_end(lambda: KEPT.append(os.open(os.devnull, os.O_RDONLY))),
    "task": lambda: _at_end(lambda: _keep_task(_wait_for_ever)),
    "traceback": lambda: _at_end(_log_traceback),
    "lost text": lambda: _change_progress(_lose_text),
    "flood": lambda: _change_progress(_flood),
    "late": lambda: _change_progress(_report_late),
    "stuck loop": lambda: _change_progress(_stop_once),
    "restless": lambda: _at_end(lambda: _keep_task(_wake_up_often)),
    "kept notifications": lambda: around(LspProtocol, "_receive_notification", _keep_notification),
}

for plant in filter(None, os.environ.get("PLANT", "").split(", ")):
    PLANTS[plant]()
