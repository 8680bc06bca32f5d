"""What many threads send at once goes out whole, and in the order of each."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.slow.running import Tally
from tests.support.sizes import tries
from thinklsp.jsonrpc.framing import build_frame
from thinklsp.jsonrpc.writer import FrameWriter, OutgoingQueue

THREADS, SIZE, SMALL = 8, 200_000, 300
_HEADER = re.compile(rb"Content-Length: (\d+)\r\n\r\n")


class Unlocked:
    """A writer without a lock."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, body: bytes) -> None:
        frame = memoryview(build_frame(body))
        while frame:
            frame = frame[os.write(self._descriptor, frame) :]

    def close(self) -> None:
        os.close(self._descriptor)


def sent(make: Callable[[int], Any], count: int) -> tuple[int, int]:
    """Return the number of whole messages, and of bytes that belong to none."""
    reading, writing = os.pipe()
    writer = make(writing)
    each = count // THREADS

    def send(name: int) -> None:
        for number in range(each):
            # Small messages go out at once if nothing waits, large ones by the writer's thread.
            size = SMALL if number % 2 else SIZE
            head = json.dumps({"thread": name, "number": number, "text": ""})[:-2]
            writer.write((head + str(name) * (size - len(head) - 2) + '"}').encode())

    threads = [threading.Thread(target=send, args=(name,)) for name in range(THREADS)]
    ended = threading.Thread(target=lambda: ([thread.join() for thread in threads], writer.close()))
    for thread in (*threads, ended):
        thread.start()
    seen: dict[int, list[int]] = {name: [] for name in range(THREADS)}
    unread, broken = bytearray(), 0
    while chunk := os.read(reading, 1 << 20):
        unread += chunk
        while (header := _HEADER.match(unread)) and len(unread) >= header.end() + int(header[1]):
            body = bytes(unread[header.end() : header.end() + int(header[1])])
            del unread[: header.end() + int(header[1])]
            if len(body) in (SIZE, SMALL) and body.count(body[-3:-2]) >= len(body) - 100:
                seen[int(body[-3:-2])].append(json.loads(body)["number"])
            else:
                broken += len(body)
    ended.join()
    os.close(reading)
    assert broken or all(numbers == sorted(numbers) for numbers in seen.values()), "out of order"
    return sum(map(len, seen.values())), broken + len(unread)


def test_many_threads_send_at_once(tally: Tally) -> None:
    """The queue may hold as much as the threads are ahead of the reader."""
    count = tries("A-11")
    assert sent(lambda pipe: FrameWriter(pipe, build_frame, OutgoingQueue(max_bytes=1 << 40)), count) == (count, 0)
    tally("A-11", count)


@pytest.mark.timing
def test_a_writer_without_a_lock_is_noticed() -> None:
    whole, broken = sent(Unlocked, 80)
    assert whole < 80
    assert broken > 0
