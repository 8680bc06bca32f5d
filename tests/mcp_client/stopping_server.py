"""An MCP server of the older protocol that stops at the point that a file names, and notes each point that it reaches.

`stopping_server.py FOLDER`: the file `point` in the folder contains the point, and the server appends to `notes`. With
the point `never`, it works. Uses only the standard library, and no code of the product.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

FOLDER = Path(sys.argv[1])
POINT = (FOLDER / "point").read_text()
TOOL = {"name": "work", "description": "Works.", "inputSchema": {"type": "object"}}
LEVELS = {"type": "string", "enum": ["low", "high"]}
QUESTION = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {"level": LEVELS}}}
LOG = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}


def note(point: str) -> None:
    """Note a point, and stop there if it is the one."""
    with (FOLDER / "notes").open("a") as file:
        file.write(f"{point}\n")
    if point == POINT:
        sleep()


def sleep() -> NoReturn:
    while True:
        time.sleep(60)


def send(message: Any, *, half: str = "") -> None:
    """Send a message, or only its first half if the server stops at the point `half`."""
    line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
    if half and half == POINT:
        os.write(1, line[: len(line) // 2])
        note(half)
    os.write(1, line)


def answer(request: Any, result: Any, *, half: str = "") -> None:
    send({"id": request["id"], "result": result}, half=half)


def initialize(request: Any) -> None:
    info = {"name": "stopping", "version": "1"}
    result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    answer(request, result, half="half handshake")


def list_tools(request: Any) -> None:
    if POINT == "crash":
        note_only("crash")
        os._exit(3)
    if request.get("params", {}).get("cursor") is None and POINT == "second page":
        answer(request, {"tools": [TOOL], "nextCursor": "more"})
        return
    note("second page")
    answer(request, {"tools": [TOOL]})


def call(request: Any) -> None:
    note("call")
    if POINT == "flood":
        lines = (json.dumps(LOG).encode() + b"\n") * 100
        os.write(1, lines)
        note_only("flood")
        while True:
            os.write(1, lines)
    if POINT == "daemon":
        start_daemon()
    if POINT == "question":
        send({"id": 1, "method": "elicitation/create", "params": QUESTION})
        note_only("question")
        return
    answer(request, {"content": [{"type": "text", "text": "It works. " * 1000}]}, half="half result")


def note_only(point: str) -> None:
    with (FOLDER / "notes").open("a") as file:
        file.write(f"{point}\n")


def start_daemon() -> None:
    """Start a process that has left the session and the group, and that ignores polite signals."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(null, descriptor)
            note_only("daemon")
            sleep()
        os._exit(0)
    os.wait()


def serve() -> NoReturn:
    note("start")
    while line := sys.stdin.buffer.readline():
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                initialize(message)
            case "notifications/initialized":
                note("initialized")
            case "tools/list":
                list_tools(message)
            case "tools/call":
                call(message)
            case _ if "id" in message and "method" in message:
                send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
    sys.exit(0)


if __name__ == "__main__":
    serve()
