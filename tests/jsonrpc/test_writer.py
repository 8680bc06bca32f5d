"""The queue of outgoing frames, and the writer of a pipe whose client may be slow, silent or gone."""

from __future__ import annotations

import os

import pytest

from thinklsp.jsonrpc.framing import BadFrame, LineReader, build_line
from thinklsp.jsonrpc.writer import FrameWriter, OutgoingQueue


def test_a_client_that_does_not_read_keeps_nobody_waiting() -> None:
    reading, writing = os.pipe()
    writer = FrameWriter(writing, build_line, OutgoingQueue(max_bytes=500_000))
    assert not writer.is_full
    for _ in range(100):
        writer.write(b"x" * 10_000)  # Far more than the pipe holds: a writer that waited would stop here for ever.
    assert writer.is_client_gone
    os.close(reading)
    writer.close()


# What is put, and how it is replaced -> whether the outbox is full then, and whether its client is lost.
OUTBOXES: dict[str, tuple[list[tuple[int, str | None]], bool, bool]] = {
    "little": ([(1_000, None)] * 5, False, False),
    "more than full": ([(1_000, None)] * 9, True, False),
    "more than may wait": ([(1_000, None)] * 20, True, True),
    "at once": ([(20_000, None)], True, True),
    "small ones take room, too": ([(1, None)] * 100, True, True),
    "reports that are replaced": ([(1_000, "a")] * 100, False, False),
}


@pytest.mark.parametrize(("frames", "full", "lost"), OUTBOXES.values(), ids=OUTBOXES)
def test_an_outbox_is_full_and_then_lost(frames: list[tuple[int, str | None]], full: bool, lost: bool) -> None:
    outbox = OutgoingQueue(full_bytes=8_000, max_bytes=16_000)
    seen = False
    for size, replaces in frames:
        outbox.put(b"x" * size, replaces)
        seen |= outbox.is_full or outbox.is_client_gone
    assert (seen, outbox.is_client_gone) == (full, lost)
    assert (outbox.take() is None) == lost


def test_what_was_written_before_the_end_arrives() -> None:
    reading, writing = os.pipe()
    writer = FrameWriter(writing, build_line)
    for number in range(50):
        writer.write(b"%02d" % number)
    writer.close()
    writer.write(b"too late")
    with os.fdopen(reading, "rb") as pipe:
        assert LineReader().feed(pipe.read()) == [b"%02d" % number for number in range(50)]


def test_a_client_that_is_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    writer = FrameWriter(writing, build_line)
    os.close(reading)
    writer.write(b"x")
    writer.close()
    assert writer.is_client_gone


def test_a_report_that_nobody_has_read_gives_way_to_the_next() -> None:
    reading, writing = os.pipe()
    writer = FrameWriter(writing, build_line)
    writer.write(b"x" * 1_000_000)  # More than the pipe holds: from here on everything waits.
    for number in range(1_000):
        writer.write(b"report %d" % number, coalesce_key=("report", "a"))
        if number % 100 == 0:
            writer.write(b"answer %d" % number)
    writer.write(b"other", coalesce_key=("report", "b"))
    frames: list[bytes | BadFrame] = []
    reader = LineReader()
    while not frames or frames[-1] != b"other":
        frames += reader.feed(os.read(reading, 1 << 20))
    writer.close()
    os.close(reading)
    bodies = [frame for frame in frames if isinstance(frame, bytes)]
    answers = [b"answer %d" % number for number in range(0, 1_000, 100)]
    assert [body for body in bodies if body.startswith(b"answer")] == answers
    reports = [body for body in bodies if body.startswith(b"report")]
    assert reports[-1] == b"report 999"
    assert len(reports) <= 2, "at most one was on its way when the others came"
