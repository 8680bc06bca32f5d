"""Mutated messages and mutated frames over real pipes: every usable id is answered once, and the server lives on.

`corpus.jsonl` holds messages as an editor really sent them. The server gets raw bytes; what it writes is read by the
raw client, whose own checks of the traffic do not count here, because it is the traffic that is wrong.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.slow.running import running, say
from tests.support.outside import ROOT, Outside
from tests.support.raw_client import RawClient
from tests.support.signing_script import Text, answer
from tests.support.sizes import SEED, lots, sized

Json = Any
AT_ONCE = 25
DEEPEST = 20
MOST_MEMORY = 150 * 1024  # KiB
CORPUS = [json.loads(line) for line in (Path(__file__).parent / "corpus.jsonl").read_text("utf-8").splitlines()]

# What is told to the user on purpose: a setting that is refused, and the failure of a turn that nobody waits for.
SPEAKING = ("workspace/didChangeConfiguration", "thinklsp.chat", "thinklsp.action", "thinklsp.send")

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


def changed(value: Json, path: tuple[Any, ...], change: Callable[[Json, Any], None]) -> Json:
    """A copy in which `change(holder, key)` was done to the member at the path."""
    made = json.loads(json.dumps(value))
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return made


def mutated(chance: random.Random, source: list[Json], number: int) -> bytes:
    """One body with one to three things wrong in it, and mostly an id of its own."""
    message = json.loads(json.dumps(chance.choice(source)))
    if "id" in message and "method" in message:
        message["id"] = chance.choice([number + 1_000_000, f"fuzz-{number}"])
    for _ in range(chance.randint(1, 3)):
        path = chance.choice(places(message)[1:] or [("x",)])
        if chance.random() < 0.12 and "id" in message:
            path = chance.choice([("id",), ("method",), ("jsonrpc",), ("params",)])
        new = chance.choice(HUGE)() if chance.random() < 0.02 else chance.choice(VALUES)
        kind = chance.randrange(4)
        if kind == 0:
            message = changed(message, path, lambda holder, key: holder.pop(key) if _has(holder, key) else None)
        elif kind == 1:
            message = changed(message, path, lambda holder, key, new=new: _put(holder, f"{key} more", new))
        else:
            message = changed(message, path, lambda holder, key, new=new: _put(holder, key, new))
        if not places(message)[1:]:
            break
    return damaged(chance, json.dumps(message).encode())


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
    is_text = isinstance(identity, str) and len(identity) <= 256
    return identity if is_text or (isinstance(identity, int) and not isinstance(identity, bool)) else None


def frame(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def write(client: RawClient, data: bytes) -> None:
    assert client.process.stdin is not None
    client.process.stdin.write(data)


def answered(client: RawClient) -> Counter[Any]:
    """How often each id was answered. 1 and "1" are two ids."""
    return Counter(key(r.message.get("id")) for r in client.received if "method" not in r.message)


def key(identity: Any) -> tuple[str, Any]:
    return type(identity).__name__, identity


def probe(name: str) -> bytes:
    """A request that any living server answers at once."""
    context = {"diagnostics": []}
    start = {"line": 0, "character": 0}
    params = {
        "textDocument": {"uri": "file:///no/such"},
        "range": {"start": start, "end": start},
        "context": context,
    }
    return json.dumps({"jsonrpc": "2.0", "id": name, "method": "textDocument/codeAction", "params": params}).encode()


def memory(process: int) -> int:
    """Resident, in KiB."""
    done = subprocess.run(["ps", "-o", "rss=", "-p", str(process)], capture_output=True, check=True)  # noqa: S607 - the ps of the machine
    return int(done.stdout)


def check_decent(outside: Outside) -> None:
    """No inside of ours in anything that the client was sent, and no bug in the log."""
    out = bytes(outside.client.stdout)
    signs = [b"Traceback", b"site-packages", str(ROOT).encode(), b"-32603"]
    assert [sign for sign in signs if sign in out] == []
    log = bytes(outside.client.stderr).decode(errors="replace")
    assert "Traceback" not in log, log[log.index("Traceback") - 300 :][:4000]


@pytest.mark.parametrize("part", ["quiet", "speaking"])
async def test_mutated_messages(tmp_path: Path, part: str) -> None:
    def speaks(message: Json) -> bool:
        return any(name in json.dumps(message) for name in SPEAKING)

    source = [message for message in CORPUS if speaks(message) == (part == "speaking")]
    total = sized(commit=225, nightly=750) if part == "quiet" else sized(commit=75, nightly=250)
    chance = random.Random(f"{SEED} {part}")
    sent: Counter[Any] = Counter()
    answers = [lambda body: answer(Text("Done."))] * 10_000
    async with running(tmp_path, *answers, finish=False, files={"a.py": "x = 1\n"}) as outside:
        client = outside.client
        client.editor.handlers["workspace/applyEdit"] = lambda params: {"applied": False}
        (await outside.turn("thinklsp.chat", {"prompt": "The engine is loaded."}))
        client.received.clear()
        for number, count in enumerate(lots(total, AT_ONCE)):
            bodies = [mutated(chance, source, number * AT_ONCE + n) for n in range(count)]
            bodies.append(probe(f"probe-{number}"))
            ids = [key(usable_id(body)) for body in bodies if usable_id(body) is not None]
            sent.update(ids)
            write(client, b"".join(frame(body) for body in bodies))
            await client.wait_for(lambda ids=ids: not (Counter(ids) - answered(client)), what=f"answers to {ids}")
        again = answered(client)
        none = again.pop(key(None), 0)
        assert again == sent
        assert none <= total
        assert memory(client.process.pid) < MOST_MEMORY
        told = client.messages()
        assert part == "speaking" or told == []
        assert [text for text in told if re.search(r"Traceback|\b\w+Error\b|/thinklsp/", text)] == []
        check_decent(outside)
        say(f"{total} messages, {sum(sent.values())} ids answered, {none} answers without an id, {len(told)} told")
        assert await client.close() == 0


def bad_frames(chance: random.Random, number: int) -> bytes:
    """One to three pieces of a stream, most of them wrong."""
    return b"".join(bad_frame(chance, number) for _ in range(chance.randint(1, 3)))


def bad_frame(chance: random.Random, number: int) -> bytes:
    body = json.dumps(
        {"jsonrpc": "2.0", "id": f"framed-{number}-{chance.randrange(10**9)}", "method": "no/such"}
    ).encode()
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
            b"Content-Length: " + b"9" * chance.choice([12, 13, 300, 5_000]) + b"\r\n\r\n" + body,
            b"Content-Length: abc\r\n\r\n" + body,
            b"Content-Length:\r\n\r\n" + body,
            length + b"\r\nContent-Length: %d\r\n\r\n" % (size + 1) + body,
            body,
            body + b"\n",
            b"\r\n\r\n" + frame(body),
            noise,
            noise + b"\r\n\r\n",
            noise + frame(body),
            b"X" * chance.choice([100, 4_000, 5_000]) + b"\r\n" + frame(body),
            b"".join(b"X-%d: y\r\n" % n for n in range(chance.choice([3, 16, 40]))) + frame(body),
            frame(body)[: chance.randrange(1, size)],
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            frame(b"\0" * chance.randint(1, 99)),
            frame(noise),
        ]
    )


async def test_mutated_frames(tmp_path: Path) -> None:
    """What is swallowed by a length that is too long is filled up, so that a server that can go on has the chance."""
    total = sized(commit=150, nightly=500)
    chance = random.Random(f"{SEED} frames")
    fill = frame(json.dumps({"jsonrpc": "2.0", "method": "$/fill", "params": "-" * 25_000}).encode())
    number = servers = ended = 0
    slowest = 0.0
    while number < total:
        servers += 1
        async with running(tmp_path / str(servers), finish=False) as outside:
            # Loaded by now, the engine does not hold up the way out.
            await outside.client.command("thinklsp.cancel")
            once: Counter[Any] = Counter()
            while number < total and outside.client.process.returncode is None:
                number += 1
                data = bad_frames(chance, number)
                at = time.monotonic()
                await in_pieces(outside.client, chance, data)
                if await left_after(outside.client, fill, f"probe-{number}", data):
                    slowest = max(slowest, time.monotonic() - at)
                    ended += 1
                once += answered(outside.client)
                assert outside.client.messages() == []
                outside.client.received.clear()
            del once[key(None)]
            assert set(once.values()) <= {1}
            check_decent(outside)
            if outside.client.process.returncode is None:
                assert memory(outside.client.process.pid) < MOST_MEMORY
                assert await outside.client.close() == 0
    say(f"{total} streams, {servers} servers, {ended} ended by themselves, the slowest after {slowest:.2f} s")
    assert slowest < 1.0
    assert ended < total / 4, "mostly it should find the next message"


async def left_after(client: RawClient, fill: bytes, name: str, data: bytes) -> bool:
    """Whether the server has left, with code 1, instead of answering one of two probes."""
    write(client, fill + frame(probe(name)) + frame(probe(f"{name} again")))
    assert client.process.stdout is not None
    stdout = client.process.stdout

    def done() -> bool:
        ids = answered(client)
        return bool(ids[key(name)] or ids[key(f"{name} again")]) or stdout.at_eof()

    await client.wait_for(done, what=f"an answer or the end after {data!r}")
    if stdout.at_eof():
        assert await client.process.wait() == 1, data
    return stdout.at_eof()


async def in_pieces(client: RawClient, chance: random.Random, data: bytes) -> None:
    while data:
        size = chance.choice([1, 3, 20, 1_000, len(data)])
        write(client, data[:size])
        data = data[size:]
        assert client.process.stdin is not None
        try:
            await client.process.stdin.drain()
        except ConnectionError:
            return  # It has left already.
