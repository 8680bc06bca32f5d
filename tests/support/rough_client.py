"""The raw client where the traffic is wrong on purpose: bytes as they are, and how often each id was answered.

What the client's own checks find does not count here. Shares no code with the product.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.support.gauges import gauge
from tests.support.outside import ROOT, Outside
from tests.support.raw_client import RawClient

Key = tuple[str, Any]
MOST_MEMORY = 150  # Megabytes.


class Rough:
    """`answers` counts what was answered by id, `told` is what was shown to the user.

    What it has looked at is taken out of the client's record, so that it can go on for long.
    """

    def __init__(self, client: RawClient, patience: float) -> None:
        self.client, self.patience = client, patience
        self.answers: Counter[Key] = Counter()
        self.told: list[str] = []
        self.client.received.clear()

    def look(self) -> Counter[Key]:
        """All answers so far."""
        for received in self.client.received:
            method = received.message.get("method")
            if method is None:
                self.answers[key(received.message.get("id"))] += 1
            elif method in ("window/showMessage", "window/showMessageRequest"):
                self.told.append(received.params["message"])
        self.client.received.clear()
        return self.answers

    async def answered(self, due: Mapping[Key, int]) -> None:
        """Waits until each id was answered so often in all."""

        def done() -> bool:
            answers = self.look()
            return self.has_gone or all(answers[identity] >= often for identity, often in due.items())

        await self.client.wait_for(done, within=self.patience, what=f"answers to {due}")
        assert not self.has_gone, "the server has gone"

    @property
    def has_gone(self) -> bool:
        assert self.client.process.stdout is not None
        return self.client.process.stdout.at_eof()


def answered(client: RawClient) -> Counter[Key]:
    """How often each id was answered, by what stands in the client's record."""
    return Counter(key(r.message.get("id")) for r in client.received if "method" not in r.message)


def check_decent(outside: Outside) -> None:
    """No inside of ours in anything that the client was sent, no bug in the log, and no more memory than is due."""
    client = outside.client
    signs = [b"Traceback", b"site-packages", str(ROOT).encode(), b'"code":-32603']
    out, log = bytes(client.stdout), bytes(client.stderr).decode(errors="replace")
    found = [out[max(0, out.index(sign) - 300) :][:600] for sign in signs if sign in out]
    assert not found, f"{found}\n{log[-3000:]}"
    assert "Traceback" not in log, log[log.index("Traceback") - 300 :][:4000]
    if client.process.returncode is None:
        used = gauge(client.process.pid).resident
        assert used < MOST_MEMORY, f"{used:.0f} MB"


def write(client: RawClient, data: bytes) -> None:
    assert client.process.stdin is not None
    client.process.stdin.write(data)


async def write_in_pieces(client: RawClient, chance: random.Random, data: bytes) -> None:
    while data:
        size = chance.choice([1, 3, 20, 1_000, len(data)])
        write(client, data[:size])
        data = data[size:]
        assert client.process.stdin is not None
        try:
            await client.process.stdin.drain()
        except ConnectionError:
            return  # It has left already.


def key(identity: Any) -> Key:
    """1 and "1" are two ids."""
    return type(identity).__name__, identity


def probe(name: str) -> bytes:
    """A request that any living server answers at once."""
    start = {"line": 0, "character": 0}
    params = {
        "textDocument": {"uri": "file:///no/such"},
        "range": {"start": start, "end": start},
        "context": {"diagnostics": []},
    }
    return json.dumps({"jsonrpc": "2.0", "id": name, "method": "textDocument/codeAction", "params": params}).encode()
