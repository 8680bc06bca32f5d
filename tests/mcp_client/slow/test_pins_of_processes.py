"""Pins that several processes store at once."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace

from tests.mcp_client.test_pins import READ, SERVER, pins
from thinklsp.mcp_client.consent import Pins

__all__ = ["pins"]


def accept_many(folder: str, start: int) -> None:
    for number in range(start, start + 10):
        Pins(folder, lock_timeout=60).accept(SERVER, [replace(READ, name=f"tool{number}")])


def test_processes_lose_no_pin_of_each_other(pins: Pins) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=accept_many, args=(pins.state_folder, start)) for start in (0, 10, 20)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    report = pins.check(SERVER, [replace(READ, name=f"tool{number}") for number in range(30)])
    assert all(report.allows(name) for name in report.tools)
    assert len(report.tools) == 30
