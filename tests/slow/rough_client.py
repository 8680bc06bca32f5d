"""The raw client for invalid traffic: it sends bytes as they are and counts the answers to each id."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.support.client.raw import RawClient
from tests.support.epilogue import gauge
from tests.support.outside import ROOT, Outside

Key = tuple[str, Any]
_START = {"line": 0, "character": 0}
ACTION = {
    "textDocument": {"uri": "file:///no/such"},
    "range": {"start": _START, "end": _START},
    "context": {"diagnostics": []},
}
MOST_MEMORY = 150  # Megabytes.


class Rough:
    """`answers`: the number of answers by id. `told`: messages shown to the user."""

    def __init__(self, client: RawClient, patience: float) -> None:
        self.client, self.patience = client, patience
        self.answers: Counter[Key] = Counter()
        self.told: list[str] = []
        self.client.received.clear()

    def look(self) -> Counter[Key]:
        for received in self.client.received:
            method = received.message.get("method")
            if method is None:
                self.answers[key(received.message.get("id"))] += 1
            elif method in ("window/showMessage", "window/showMessageRequest"):
                self.told.append(received.params["message"])
        self.client.received.clear()
        return self.answers

    async def answered(self, due: Mapping[Key, int]) -> None:
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
    return Counter(key(r.message.get("id")) for r in client.received if "method" not in r.message)


def check_decent(outside: Outside) -> None:
    """Check that the output holds nothing internal, and the log no bug."""
    client = outside.client
    signs = [b"Traceback", b"site-packages", str(ROOT).encode(), b'"code":-32603']
    out, log = bytes(client.stdout), bytes(client.stderr).decode(errors="replace")
    found = [out[max(0, out.index(sign) - 300) :][:600] for sign in signs if sign in out]
    assert not found, f"{found}\n{log[-3000:]}"
    assert "Traceback" not in log, log[log.index("Traceback") - 300 :][:4000]


def check_memory(outside: Outside) -> None:
    """Check that the memory of the server is below its limit, if the server runs."""
    process = outside.client.process
    if process.returncode is None:
        used = gauge(process.pid).resident
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
    """Distinguish the ids 1 and "1"."""
    return type(identity).__name__, identity


def probe(name: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": name, "method": "textDocument/codeAction", "params": ACTION}).encode()
