"""Helpers for servers with `--metrics` and for requests to their HTTP port."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.listening import Listening

METRICS = ("--metrics", "0")
_ADDRESS = re.compile(r"^thinklsp: metrics on http://127\.0\.0\.1:(\d+)/metrics$", re.MULTILINE)
_RUN = '\nimport runpy\nrunpy.run_module("thinklsp", run_name="__main__", alter_sys=True)\n'
Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def run_first(program: str) -> tuple[str, ...]:
    """Return the command of a server in which this program runs first."""
    return sys.executable, "-c", program + _RUN


def find_port(server: Listening) -> int:
    address = _ADDRESS.search(server.log)
    assert address is not None, server.log
    return int(address[1])


async def fetch(port: int, path: str, method: str = "GET") -> Reply:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Reply(int(status.split(" ")[1]), headers, body)


async def until_answer(port: int, path: str, status: int, within: float = 60) -> Reply:
    """Fetch the page until it has this status."""
    return await until_reply(port, path, lambda reply: reply.status == status, within)


async def until_reply(port: int, path: str, predicate: Callable[[Reply], bool], within: float = 60) -> Reply:
    """Fetch the page until the predicate holds, with pauses: the server needs the processor, too."""
    async with asyncio.timeout(within):
        while not predicate(reply := await fetch(port, path)):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.02)
    return reply


async def read_samples(port: int) -> dict[tuple[str, Labels], float]:
    """Return the value of each sample by its name and labels, as Prometheus' own parser reads them."""
    reply = await fetch(port, "/metrics")
    assert reply.status == 200
    families = text_string_to_metric_families(reply.body.decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def select(samples: Mapping[tuple[str, Labels], float], name: str, **labels: str) -> float:
    """Return the sum of the samples with this name and these labels."""
    return sum(value for (known, held), value in samples.items() if known == name and labels.items() <= set(held))
