"""A service that sends prepared events over HTTP, one chunk per event.

Each connection has its own thread, and stays open for the next request like that of a provider.

Over TLS, each event is a TLS record of its own.
The service signs and checks nothing, because only the client is measured.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nrequest-id: req_1\r\nTransfer-Encoding: chunked\r\n\r\n"
MODEL = "claude-opus-5-5"
OPENAI_MODEL = "gpt-5.5"
_PIECE = 32


@dataclass(frozen=True)
class Play:
    """A prepared answer. `pace`: events per second; None: as fast as the client reads."""

    events: Sequence[bytes]
    pace: float | None = None

    def frames(self) -> list[bytes]:
        return [b"%x\r\n%b\r\n" % (len(event), event) for event in self.events]


@dataclass
class Source:
    """A running service. `play` maps a request's number and body to its answer. `busy`: the seconds of each request.
    `ended`: the monotonic time of the last byte of the last answer."""

    url: str
    play: Callable[[int, bytes], Play]
    busy: list[float] = field(default_factory=list)
    ended: float = 0.0
    requests: int = 0
    tls: ssl.SSLContext | None = None

    def serve(self, connection: socket.socket) -> None:
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
        with connection, connection.makefile("rb") as requests, suppress(OSError):
            while True:
                self._answer(connection, _request(requests))

    def _answer(self, connection: socket.socket, body: bytes) -> None:
        begun = time.perf_counter()
        number, self.requests = self.requests, self.requests + 1
        play = self.play(number, body)
        frames = play.frames()
        connection.sendall(_HEAD)
        if play.pace is None:
            _send(connection, frames)
        else:
            self._pace(connection, frames, play.pace)
        connection.sendall(b"0\r\n\r\n")
        self.ended = time.monotonic()
        self.busy.append(time.perf_counter() - begun)

    def _pace(self, connection: socket.socket, frames: list[bytes], pace: float) -> None:
        begun, sent = time.perf_counter(), 0
        while sent < len(frames):
            due = min(len(frames), int((time.perf_counter() - begun) * pace) + 1)
            if due > sent:
                _send(connection, frames[sent:due])
                sent = due
            time.sleep(max(0.0, begun + sent / pace - time.perf_counter()))


def _send(connection: socket.socket, frames: Sequence[bytes]) -> None:
    """Send each frame as a record over TLS, else all frames at once."""
    for piece in frames if isinstance(connection, ssl.SSLSocket) else [b"".join(frames)]:
        connection.sendall(piece)


def _request(file: BinaryIO) -> bytes:
    length = 0
    while (line := file.readline().lower()) != b"\r\n":
        if not line:
            raise OSError("gone")
        if line.startswith(b"content-length"):
            length = int(line.split(b":")[1])
    body = file.read(length)
    if len(body) < length:
        raise OSError("gone")
    return body


@contextmanager
def source(play: Callable[[int, bytes], Play], tls: ssl.SSLContext | None = None) -> Iterator[Source]:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        scheme = "http" if tls is None else "https"
        made = Source(f"{scheme}://127.0.0.1:{listening.getsockname()[1]}", play, tls=tls)

        def accept() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=made.serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield made
        finally:
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)


def _event(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def words(count: int) -> list[str]:
    return [f"word {number:>8} of the answer and more\n"[:_PIECE] for number in range(count)]


def anthropic(*blocks: tuple[str, Sequence[str]], usage: int = 100) -> list[bytes]:
    """Return the events of a Messages API answer. A block is `text` or a tool name, with its deltas."""
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": {"input_tokens": usage, "output_tokens": 1},
    }  # fmt: skip
    events = [_event({"type": "message_start", "message": message})]
    for index, (kind, pieces) in enumerate(blocks):
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta, member = "text_delta", "text"
        if kind != "text":
            block = {"type": "tool_use", "id": f"toolu_{time.perf_counter_ns()}_{index}", "name": kind, "input": {}}
            delta, member = "input_json_delta", "partial_json"
        events.append(_event({"type": "content_block_start", "index": index, "content_block": block}))
        events += [
            _event({"type": "content_block_delta", "index": index, "delta": {"type": delta, member: piece}})
            for piece in pieces
        ]
        events.append(_event({"type": "content_block_stop", "index": index}))
    reason = "end_turn" if all(kind == "text" for kind, _ in blocks) else "tool_use"
    stop = {"stop_reason": reason, "stop_sequence": None}
    events.append(_event({"type": "message_delta", "delta": stop, "usage": {"output_tokens": usage}}))
    return [*events, _event({"type": "message_stop"})]


def responses(pieces: Sequence[str]) -> list[bytes]:
    """Return the events of a Responses API answer."""
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    response = {
        "id": "resp_1", "object": "response", "created_at": 1, "model": OPENAI_MODEL, "status": "in_progress",
        "output": [], "error": None, "incomplete_details": None, "instructions": None, "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0, "usage": None,
    }  # fmt: skip
    place = {"item_id": "msg_1", "output_index": 0}
    whole = part | {"text": "".join(pieces)}
    done = item | {"status": "completed", "content": [whole]}
    usage = {
        "input_tokens": 10, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 20,
    }  # fmt: skip
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **place, "content_index": 0, "part": part},
        *(
            {"type": "response.output_text.delta", **place, "content_index": 0, "delta": piece, "logprobs": []}
            for piece in pieces
        ),
        {"type": "response.output_text.done", **place, "content_index": 0, "text": whole["text"], "logprobs": []},
        {"type": "response.content_part.done", **place, "content_index": 0, "part": whole},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {
            "type": "response.completed",
            "response": response | {"status": "completed", "output": [done], "usage": usage},
        },
    ]
    return [_event(data | {"sequence_number": number}) for number, data in enumerate(events)]


def argument(size: int) -> list[str]:
    """Return the arguments of a call with about `size` bytes of small edits, in pieces of 20 bytes."""
    edits = []
    length = 0
    while length < size:
        edits.append({"old": f"value_{len(edits)} = 1", "new": f"value_{len(edits)} = 2", "why": "as it was asked for"})
        length += len(json.dumps(edits[-1])) + 2
    text = json.dumps({"path": "a.py", "edits": edits})
    return [text[start : start + 20] for start in range(0, len(text), 20)]


# A prompt may say how many events answer it, and one after how many milliseconds each.
_ASKED = re.compile(r"\[(\d+) every (\d+)\]")


def build_prompt(events: int, milliseconds: int) -> str:
    return f"Stream [{events} every {milliseconds}]."


def build_text(events: int) -> str:
    """Return the answer to such a prompt."""
    return "".join(f"{number} " for number in range(events))


def play_prompt(_number: int, body: bytes) -> Play:
    """Return the answer to the newest prompt."""
    count, milliseconds = map(int, _ASKED.findall(body.decode())[-1])
    return Play(anthropic(("text", [f"{number} " for number in range(count)])), 1000 / milliseconds)


def main() -> None:
    """Run a service until the standard input ends: `python -m tests.bench.source [COUNT PACE]`."""
    prepared = Play(anthropic(("text", words(int(sys.argv[1])))), float(sys.argv[2])) if sys.argv[1:] else None
    with source(play_prompt if prepared is None else lambda *_: prepared) as made:
        print(made.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
