"""Mutated messages and frames over real pipes: every usable id gets one answer, and the server keeps running."""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.slow.mutating import CORPUS, Json, bad_frames, frame, mutated, usable_id
from tests.slow.rough_client import Key, Rough, check_decent, check_memory, key, probe, write, write_in_pieces
from tests.slow.running import Tally, running, say
from tests.support.outside import Connect, Outside
from tests.support.signing_server import Text, answer
from tests.support.sizes import SEED, lots, tries

pytestmark = pytest.mark.timing
AT_ONCE = 50
PER_SERVER = 2_500

# Messages that may notify the user: an invalid setting, or the failure of a turn without a token.
SPEAKING = ("workspace/didChangeConfiguration", "thinklsp.chat", "thinklsp.action", "thinklsp.send")


def source(part: str) -> list[Json]:
    speaking = [message for message in CORPUS if any(name in json.dumps(message) for name in SPEAKING)]
    return speaking if part == "speaking" else [message for message in CORPUS if message not in speaking]


@pytest.mark.parametrize(("part", "share"), [("quiet", 0.75), ("speaking", 0.25)])
async def test_mutated_messages(part: str, share: float, tmp_path: Path, servers: Connect, tally: Tally) -> None:
    total = tries("A-01", share)
    for number, count in enumerate(lots(total, PER_SERVER)):
        answers = [lambda body: answer(Text("Done."))] * 10_000
        place = tmp_path / str(number)
        async with running(place, *answers, files={"a.py": "x = 1\n"}, finish=False, connect=servers) as outside:
            await mutated_messages(outside, part, random.Random(f"{SEED} {part} {number}"), count)
            assert await outside.client.close() == 0
    tally("A-01", total)


async def mutated_messages(
    outside: Outside, part: str, chance: random.Random, total: int, *, patience: float = 60.0
) -> None:
    """Send `total` messages to one server. `patience`: seconds for the answers to 50 of them."""
    client, messages = outside.client, source(part)
    client.editor.handlers["workspace/applyEdit"] = lambda params: {"applied": False}
    await outside.turn("thinklsp.chat", {"prompt": "The engine is loaded."})
    rough, sent = Rough(client, patience), Counter[Key]()
    for number, count in enumerate(lots(total, AT_ONCE)):
        bodies = [mutated(chance, messages, number * AT_ONCE + n) for n in range(count)]
        bodies.append(probe(f"probe-{number}"))
        batch = [key(identity) for body in bodies if (identity := usable_id(body)) is not None]
        sent.update(batch)
        write(client, b"".join(map(frame, bodies)))
        await rough.answered({identity: sent[identity] for identity in batch})
    unknown = rough.look().pop(key(None), 0)
    check_decent(outside)
    check_memory(outside)
    assert rough.answers == sent, f"answered otherwise than once: {(rough.answers - sent) + (sent - rough.answers)}"
    assert unknown <= total
    assert part == "speaking" or not rough.told, f"shown to the user: {rough.told}"
    assert [text for text in rough.told if re.search(r"Traceback|\b\w+Error\b|/thinklsp/", text)] == []
    say(f"{total} messages, {sent.total()} ids answered, {unknown} answers without an id, {len(rough.told)} told")


async def test_mutated_frames(tmp_path: Path, servers: Connect, tally: Tally) -> None:
    total = tries("A-02")
    chance = random.Random(f"{SEED} frames")
    left = list(range(total))
    ways_out: list[float] = []
    started = 0
    while left:
        started += 1
        async with running(tmp_path / str(started), finish=False, connect=servers) as outside:
            # This loads the engine, which would delay the exit.
            await outside.client.command("thinklsp.cancel")
            ways_out += await mutated_frames(outside, chance, left, PER_SERVER)
            if outside.client.process.returncode is None:
                assert await outside.client.close() == 0
    say(f"{total} streams, {started} servers, {len(ways_out)} ended by themselves, in {max(ways_out):.2f} s at most")
    assert len(ways_out) < total / 4, "mostly it should find the next message"
    tally("A-02", total)


async def mutated_frames(
    outside: Outside, chance: random.Random, left: list[int], most: int, *, patience: float = 60.0
) -> list[float]:
    """Send streams until the server exits or has had `most`. Return how long the exit took."""
    client, rough = outside.client, Rough(outside.client, patience)
    ended: list[float] = []
    while left and most and not ended:
        number, most = left.pop(), most - 1
        data = bad_frames(chance, number)
        await write_in_pieces(client, chance, data)
        at = time.monotonic()
        if await left_after(rough, fill(chance), f"probe-{number}", data):
            ended.append(time.monotonic() - at)
            assert ended[0] < 1.0, f"took {ended[0]:.1f} s to leave after {data!r}"
    once = rough.look()
    del once[key(None)]
    assert set(once.values()) <= {1}, "answered otherwise than once"
    assert not rough.told, f"shown to the user: {rough.told}"
    check_decent(outside)
    check_memory(outside)
    return ended


def fill(chance: random.Random) -> bytes:
    """Return the bytes that a wrong length swallows, mostly in lines: a long header line would end the server."""
    between = "\n" if chance.random() < 0.98 else ""
    body = '{"jsonrpc":"2.0","method":"$/fill","params":[%s0]}' % (f'"{"-" * 500}",{between}' * 50)
    return frame(body.encode())


async def left_after(rough: Rough, filling: bytes, name: str, data: bytes) -> bool:
    client = rough.client
    write(client, filling + frame(probe(name)) + frame(probe(f"{name} again")))

    def done() -> bool:
        answers = rough.look()
        return bool(answers[key(name)] or answers[key(f"{name} again")]) or rough.has_gone

    await client.wait_for(done, within=rough.patience, what=f"an answer or the end after {data!r}")
    if rough.has_gone:
        code = await client.process.wait()
        assert code == 1, f"left with code {code} after {data!r}"
    return rough.has_gone
