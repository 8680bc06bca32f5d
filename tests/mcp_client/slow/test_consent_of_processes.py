"""Approvals that several processes store at once."""

from __future__ import annotations

import multiprocessing

from tests.mcp_client.test_consent import approvals, offer
from thinklsp.mcp_client.consent import Approvals

__all__ = ["approvals"]


def _approve(folder: str, first: int) -> None:
    for number in range(first, first + 10):
        Approvals(folder).approve(offer(f"s{number}"))


def test_processes_that_approve_at_once_lose_nothing(approvals: Approvals) -> None:
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_approve, args=(approvals.state_folder, first)) for first in (0, 100)]
    for other in others:
        other.start()
    for other in others:
        other.join(60)
    assert {each.name for each in approvals.read()} == {f"s{n}" for n in (*range(10), *range(100, 110))}
