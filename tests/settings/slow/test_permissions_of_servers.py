"""Permissions that several servers store at once."""

from __future__ import annotations

import multiprocessing

from tests.settings.test_permissions import kept
from thinklsp.settings.permissions import PermissionsFile

__all__ = ["kept"]


def _allow(path: str, first: int) -> None:
    for number in range(first, first + 10):
        PermissionsFile(path).allow("allow", ["cmd", str(number)])


def test_servers_that_write_at_once_lose_nothing(kept: PermissionsFile) -> None:
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_allow, args=(kept.path, first)) for first in (0, 100)]
    for other in others:
        other.start()
    for other in others:
        other.join(60)
    assert [other.exitcode for other in others] == [0, 0]
    numbers = {int(rule[1]) for rule in kept.read().commands.allow}
    assert numbers == {*range(10), *range(100, 110)}
