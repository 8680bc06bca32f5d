"""Messages of editors with something wrong in them, and which of them have to be answered all the same.

What is mutated are messages as an editor really sent them; everything is drawn from the given source of chance. Shares
no code with the product.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.client.raw import framed as frame

Json = Any
DEEPEST = 20
_CORPUS = Path(__file__).parent / "corpus.jsonl"
CORPUS = [json.loads(line) for line in _CORPUS.read_text("utf-8").splitlines()]

VALUES: list[Any] = [
    None, True, False, 0, -1, 7, 2**31, 2**53 + 1, -(2**63), 10**30, 1.5, 1e308, "", "x", "7", "\ud800", "\0", "🙂" * 3,
    "file:///ws/a.py", "file://evil/share", "untitled:1", "../../etc/passwd", "thinklsp.cancel", "x" * 1_000,
    [], {}, [[]], [None], {"jsonrpc": "2.0", "method": "shutdown", "id": 5}, {"a": {"b": [1, {"c": None}]}},
    {"line": -1, "character": 2**40}, [{"uri": "file:///"}] * 50, "$/cancelRequest", "initialized",
]  # fmt: skip
HUGE: list[Callable[[], Any]] = [
    lambda: "y" * 1_000_000,
    lambda: [0] * 200_000,
    lambda: {f"k{number}": number for number in range(50_000)},
    lambda: nested(70),
    lambda: nested(500),
]


def nested(depth: int) -> Json:
    value: Json = "deep"
    for _ in range(depth):
        value = [value]
    return value


def places(value: Json, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if len(path) > DEEPEST:
        return [path]
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, child in list(children)[:50] for deeper in places(child, (*path, key)))]


def mutated(chance: random.Random, source: list[Json], number: int) -> bytes:
    """One body with one to three things wrong in it, and mostly an id of its own."""
    message = json.loads(json.dumps(chance.choice(source)))
    if "id" in message and "method" in message:
        message["id"] = chance.choice([number + 1_000_000, f"fuzz-{number}"])
    for _ in range(chance.randint(1, 3)):
        path = chance.choice(places(message)[1:] or [("x",)])
        if chance.random() < 0.12 and "id" in message:
            path = chance.choice([("id",), ("method",), ("jsonrpc",), ("params",)])
        is_huge = chance.random() < 0.005
        new = chance.choice(HUGE)() if is_huge else json.loads(json.dumps(chance.choice(VALUES)))
        _change(message, path, chance.randrange(4), new)
        if is_huge or not message:
            break
    return damaged(chance, json.dumps(message).encode())


def _change(message: Json, path: tuple[Any, ...], kind: int, new: Json) -> None:
    *parents, last = path
    holder = message
    for parent in parents:
        holder = holder[parent]
    if kind > 1:
        _put(holder, last, new)
    elif kind == 1:
        _put(holder, f"{last} more", new)
    elif _has(holder, last):
        holder.pop(last)


def _has(holder: Json, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else isinstance(key, int) and key < len(holder)


def _put(holder: Json, key: Any, new: Any) -> None:
    if isinstance(holder, dict) or (isinstance(key, int) and key < len(holder)):
        holder[key] = new
    else:
        holder.append(new)


def damaged(chance: random.Random, body: bytes) -> bytes:
    """Now and then the bytes themselves are wrong."""
    at = chance.randrange(len(body))
    match chance.randrange(40):
        case 0:
            return body[:at]
        case 1:
            return body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :]
        case 2:
            return body[:at] + b"\xff\xfe" + body[at:]
        case 3:
            return body.replace(b"}", b',"id":1.5,"method":NaN}', 1)
        case 4:
            return b"[" + body + b"," + body + b"]"
        case 5:
            return b'{"jsonrpc":"2.0","id":7,"method":"x","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        case 6:
            return body.replace(b":", b":" + b"9" * 5_000, 1)
        case 7:
            return b"\xef\xbb\xbf" + body
    return body


def usable_id(body: bytes) -> int | str | None:
    """The id that has to be answered, None where there is none."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        message = json.loads(body.decode(), parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or "method" not in message:
        return None
    identity = message.get("id")
    is_text = isinstance(identity, str) and len(identity) <= 256 and not re.search("[\ud800-\udfff]", identity)
    return identity if is_text or (isinstance(identity, int) and not isinstance(identity, bool)) else None


def bad_frames(chance: random.Random, number: int) -> bytes:
    """One to three pieces of a stream, most of them wrong."""
    return b"".join(bad_frame(chance, number) for _ in range(chance.randint(1, 3)))


def bad_frame(chance: random.Random, number: int) -> bytes:
    identity = f"framed-{number}-{chance.randrange(10**9)}"
    body = json.dumps({"jsonrpc": "2.0", "id": identity, "method": "no/such"}).encode()
    size = len(body)
    length = b"Content-Length: %d" % size
    noise = chance.randbytes(chance.randint(1, 200))
    return chance.choice(
        [
            frame(body),
            b"content-length:%d\r\n\r\n" % size + body,
            b"CONTENT-LENGTH \t: %d \r\n\r\n" % size + body,
            length + b"\n\n" + body,
            length + b"\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n" + body,
            length + b"\r\nContent-Type: text/plain; charset=utf-16\r\n\r\n" + body,
            b"Content-Length: %d\r\n\r\n" % (size + chance.randint(-size, 300)) + body,
            b"Content-Length: %d\r\n\r\n" % chance.choice([0, -5, 10**18, 2**26 + 1, 20_000]) + body,
            b"Content-Length: " + b"9" * chance.choices([12, 13, 300, 5_000], [40, 40, 19, 1])[0] + b"\r\n\r\n" + body,
            b"Content-Length: abc\r\n\r\n" + body,
            b"Content-Length:\r\n\r\n" + body,
            length + b"\r\nContent-Length: %d\r\n\r\n" % (size + 1) + body,
            body,
            body + b"\n",
            b"\r\n\r\n" + frame(body),
            noise,
            noise + b"\r\n\r\n",
            noise + frame(body),
            b"X" * chance.choices([100, 4_000, 5_000], [50, 48, 2])[0] + b"\r\n" + frame(body),
            b"".join(b"X-%d: y\r\n" % n for n in range(chance.choice([3, 16, 40]))) + frame(body),
            frame(body)[: chance.randrange(1, size)],
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            frame(b"\0" * chance.randint(1, 99)),
            frame(noise),
        ]
    )
