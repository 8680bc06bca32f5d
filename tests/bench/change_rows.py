"""Row "change": the processor time of a whole server for one typed key, beside bare pygls."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.bench.lockstep import Lockstep
from tests.bench.measure import Bench, Figure, compared, cpu_seconds, in_turn

OURS, BARE = "thinklsp", "bare pygls"
_WARM, _QUIET_SECONDS, _MOST_SECONDS = 200, 0.2, 10.0


async def type_keys(bench: Bench) -> list[Figure]:
    """Each server reads its notifications from a pipe; a code action at the end waits for all of them."""
    count = 500 if bench.quick else 5_000
    peers = bench.peers
    servers = {OURS: peers.ours(), BARE: peers.script("bare_pygls.py")}

    def type_into(name: str, argv: Sequence[str]) -> Callable[[], float]:
        def measure() -> float:
            with Lockstep(argv, bench.folder / name.replace(" ", "-")) as server:
                server.initialize()
                server.first_code_action()
                _type(server, _WARM, version=2)
                _wait_until_idle(server)
                begun = cpu_seconds(server.process.pid)
                _type(server, count, version=2 + _WARM)
                return (cpu_seconds(server.process.pid) - begun) / count * 1e6

        return measure

    variants = {name: type_into(name, argv) for name, argv in servers.items()}
    values, missing = await in_turn(variants, bench.some(5))
    return compared("change", "CPU of a didChange of one key", values, missing, {BARE: None}, unit="µs")


def _type(server: Lockstep, count: int, version: int) -> None:
    """Send the keys, and wait until the server has read the last of them."""
    identity = server.next_id()
    keys = [_key(server, version + number) for number in range(count)]
    server.send(*keys, {"id": identity} | server.code_action_request("a.py"))
    assert "result" in server.receive(identity)


def _key(server: Lockstep, version: int) -> dict[str, Any]:
    place = {"line": version % 300, "character": 0}
    change = {"range": {"start": place, "end": place}, "text": "x"}
    document = {"uri": (server.folder / "a.py").as_uri(), "version": version}
    return {"method": "textDocument/didChange", "params": {"textDocument": document, "contentChanges": [change]}}


def _wait_until_idle(server: Lockstep) -> None:
    """Wait until nothing loads in the background. Raises TimeoutError."""
    give_up = time.monotonic() + _MOST_SECONDS
    used = -1.0
    while (now := cpu_seconds(server.process.pid)) > used + 0.001:
        if time.monotonic() > give_up:
            raise TimeoutError("the server did not become idle")
        used = now
        time.sleep(_QUIET_SECONDS)
