"""Several workers on one cluster while workers, the database and the network fail."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.hosts import CuttingRelay
from tests.support.postgres_server import PostgresServer, create_test_key
from tests.support.watching import seen
from tests.teams.cluster import Cluster
from thinklsp.core.messages import AssistantMessage
from thinklsp.core.server_context import ClientIdentity
from thinklsp.sessions.postgres import PostgresStore
from thinklsp.sessions.session import Session

LEASE_SECONDS = 3.0
_MARKER = re.compile(r"<[\w.]+>")


@dataclass(frozen=True, slots=True)
class Sizes:
    workers: int
    sessions: int
    kills: int
    stops: int
    failovers: int
    cuts: int
    seconds: float
    step_bytes: int = 200


@dataclass(slots=True)
class Outcome:
    """The answers to the workers and the rows in the database. Every list contains markers of steps or ids of edits."""

    acknowledged: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    recorded_although_refused: list[str] = field(default_factory=list)
    sent_without_intent: list[str] = field(default_factory=list)
    called_too_late: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class Chaos:
    """`relay` is the network between the workers and the cluster. Each worker has a journal in `folder`."""

    def __init__(self, cluster: Cluster, relay: CuttingRelay, folder: Path, sizes: Sizes) -> None:
        self._cluster, self._relay, self._folder, self._sizes = cluster, relay, folder, sizes
        self._identity = ClientIdentity("tenant", "somebody")
        self._url = cluster.url.replace(str(cluster.bouncer_port), str(relay.port))
        self._sessions: list[str] = []
        self._workers: dict[str, asyncio.subprocess.Process] = {}
        self._started = 0

    async def run(self) -> Outcome:
        store = self._create_store()
        for _ in range(self._sizes.sessions):
            session = await store.update((await store.create("w")).id, lambda new: new.rename("chaos"))
            await store.release(session.id)
            self._sessions.append(session.id)
        await store.aclose()
        end = asyncio.get_running_loop().time() + self._sizes.seconds
        try:
            for _ in range(self._sizes.workers):
                await self._start_worker()
            for number, fault in enumerate(self._plan_faults(), 1):
                # The next fault comes when the workers have done something again.
                wanted = self._count_acknowledged() + 5
                await seen(lambda wanted=wanted: self._count_acknowledged() >= wanted, within=60)
                await getattr(self, f"_{fault}")()
                assert self._workers, number
            await seen(lambda: asyncio.get_running_loop().time() >= end, within=self._sizes.seconds + 1)
            wanted = self._count_acknowledged() + 5
            await seen(lambda: self._count_acknowledged() >= wanted, within=60)
        finally:
            for worker in self._workers.values():
                await self._end_worker(worker)
        return await self._compare()

    def _create_store(self) -> PostgresStore:
        return PostgresStore(
            lambda: self._cluster.url, self._identity, load_keys=create_test_key, lease_seconds=LEASE_SECONDS
        )

    def _plan_faults(self) -> Iterator[str]:
        sizes = self._sizes
        faults = (
            ["kill"] * sizes.kills + ["stop"] * sizes.stops + ["fail_over"] * sizes.failovers + ["cut"] * sizes.cuts
        )
        random.Random(20261126).shuffle(faults)
        return iter(faults)

    async def _start_worker(self) -> None:
        self._started += 1
        name = f"w{self._started}"
        with (self._folder / f"{name}.err").open("wb") as errors:
            worker = await asyncio.create_subprocess_exec(
                sys.executable, "-W", "error", "-m", "tests.teams.worker", str(self._folder / f"{name}.journal"),
                stdin=asyncio.subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        work = {
            "url": self._url, "identity": [self._identity.tenant, self._identity.user], "sessions": self._sessions,
            "key": create_test_key(), "lease_seconds": LEASE_SECONDS, "name": name, "size": self._sizes.step_bytes,
            "seconds": 600,
        }  # fmt: skip
        assert worker.stdin is not None
        worker.stdin.write(json.dumps(work).encode())
        worker.stdin.close()
        self._workers[name] = worker

    async def _kill(self) -> None:
        await self._end_worker(self._workers.pop(random.choice([*self._workers])))
        await self._start_worker()

    async def _end_worker(self, worker: asyncio.subprocess.Process) -> None:
        assert worker.returncode is None, f"a worker has ended by itself:\n{read_errors(self._folder)}"
        worker.kill()
        await worker.wait()

    async def _stop(self) -> None:
        """Stop a worker until others could have taken its sessions twice."""
        worker = random.choice([*self._workers.values()])
        worker.send_signal(signal.SIGSTOP)
        server = self._cluster.primary
        [(until,)] = server.execute("SELECT clock_timestamp() + make_interval(secs => %s)", 2 * LEASE_SECONDS)
        await seen(lambda: server.execute("SELECT clock_timestamp() > %s", until) == [(True,)], within=60)
        worker.send_signal(signal.SIGCONT)

    async def _fail_over(self) -> None:
        await asyncio.to_thread(self._cluster.fail_over)

    async def _cut(self) -> None:
        self._relay.cut_all()

    def _count_acknowledged(self) -> int:
        return sum(path.read_bytes().count(b'["ack"') for path in self._folder.glob("*.journal"))

    def _read_journals(self) -> Iterator[list[Any]]:
        for path in sorted(self._folder.glob("*.journal")):
            for line in path.read_bytes().splitlines():
                yield json.loads(line)

    async def _compare(self) -> Outcome:
        outcome = Outcome()
        refused: list[tuple[str, str]] = []
        acknowledged: list[tuple[str, str]] = []
        sent: list[str] = []
        for kind, *words in self._read_journals():
            outcome.counts[kind] += 1
            if kind == "ack":
                acknowledged.append((words[0], words[1]))
            elif kind == "lost":
                refused.append((words[0], words[1]))
            elif kind == "sent":
                sent.append(words[1])
            elif kind == "late":
                outcome.called_too_late.append(words[1])
        there = await self._read_markers()
        outcome.acknowledged = [marker for _, marker in acknowledged]
        outcome.lost = [marker for session, marker in acknowledged if not there[session][marker]]
        outcome.doubled = [marker for markers in there.values() for marker, count in markers.items() if count > 1]
        outcome.recorded_although_refused = [marker for session, marker in refused if there[session][marker]]
        server = self._cluster.primary
        intents = {str(edit) for (edit,) in server.execute("SELECT edit FROM ledger")}
        outcome.sent_without_intent = [edit for edit in sent if edit not in intents]
        usage = Counter(str(turn) for (turn,) in server.execute("SELECT turn FROM usage WHERE purpose = 'step'"))
        outcome.doubled += [f"usage of {turn}" for turn, count in usage.items() if count > 1]
        outcome.lost += [f"usage of {marker}" for marker in outcome.acknowledged if not usage[marker]]
        return outcome

    async def _read_markers(self) -> dict[str, Counter[str]]:
        """Return how often each session contains each marker."""
        store = self._create_store()
        try:
            return {key: _count_markers(await store.get(key, None)) for key in self._sessions}
        finally:
            assert store.problems == ()
            await store.aclose()


def _count_markers(session: Session) -> Counter[str]:
    answers = (message.text for message in session.conversation if isinstance(message, AssistantMessage))
    return Counter(marker for text in answers for marker in _MARKER.findall(text[:40]))


def read_errors(folder: Path) -> str:
    """Return what the workers wrote to standard error."""
    return "".join(path.read_text() for path in sorted(folder.glob("*.err")))


def stop_sender(server: PostgresServer) -> None:
    """Stop the process that sends the log to the standby, as a slow network would."""
    [(sender,)] = server.execute("SELECT pid FROM pg_stat_replication")
    os.kill(int(str(sender)), signal.SIGSTOP)
