"""A process that writes sessions in PostgreSQL until it is killed, and notes each answer in a journal.

`python -m tests.teams.worker JOURNAL`, with its work as JSON on standard input. A line of the journal is a JSON list:
`["ack", session, marker]` for a step that the store has acknowledged, `["lost", …]` for a step that it has refused
because the lease was lost, `["unknown", …]` for every other failure, `["sent", session, edit]` for an edit that would
now be sent, and `["late", session, marker]` for a model call that would begin although the own lease had ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from thinklsp.core.errors import SessionError
from thinklsp.core.messages import AssistantMessage, TextBlock
from thinklsp.core.server_context import ClientIdentity
from thinklsp.core.usage import Usage
from thinklsp.sessions.ledger import PlannedWrite
from thinklsp.sessions.postgres import PostgresStore
from thinklsp.sessions.postgres.database import PostgresLeases
from thinklsp.sessions.session import Session
from thinklsp.sessions.spending import CallUsage

STEPS_PER_TURN = 4


def add_step(marker: str, size: int, session: Session) -> Session:
    answer = AssistantMessage((TextBlock(marker + " " + "x" * size),))
    return session.add_user_message(f"prompt of {marker}").add_step(answer, None, Usage(input_tokens=1))


class Worker:
    def __init__(self, store: PostgresStore, sessions: Sequence[str], journal: int, name: str, size: int) -> None:
        self._store, self._sessions, self._journal, self._name, self._size = store, sessions, journal, name, size
        self._count = 0

    def note(self, kind: str, *words: str) -> None:
        # One write to the kernel survives kill -9.
        os.write(self._journal, json.dumps([kind, *words]).encode() + b"\n")

    async def run(self, seconds: float) -> None:
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            session_id = random.choice(self._sessions)
            try:
                await self._run_turn(session_id)
            finally:
                # The store is not open yet if the database failed while it opened.
                with suppress(SessionError):
                    await self._store.release(session_id)
        self.note("end", self._name)

    async def _run_turn(self, session_id: str) -> None:
        for _ in range(STEPS_PER_TURN):
            self._count += 1
            marker = f"<{self._name}.{self._count}>"
            if not await self._try_step(session_id, marker):
                return
        try:
            intent = await self._store.record_intent(
                session_id, "w", marker, [PlannedWrite("file:///a", "a", "1", "2")]
            )
        except SessionError:
            return
        self.note("sent", session_id, intent.id)
        try:
            await self._store.settle_edit(intent, {"file:///a": "applied"})
        except SessionError:
            self.note("unsettled", session_id, intent.id)

    async def _try_step(self, session_id: str, marker: str) -> bool:
        try:
            moment = time.monotonic()
            await self._store.check_lease(session_id)
            self.note("late" if self._was_lease_over(session_id, moment) else "try", session_id, marker)
            call = CallUsage(marker, "p", "m", Usage(input_tokens=1))
            await self._store.update(session_id, partial(add_step, marker, self._size), call)
        except SessionError as error:
            is_lost = "taken over" in str(error) or "in use by" in str(error)
            self.note("lost" if is_lost else "unknown", session_id, marker, str(error))
            return False
        self.note("ack", session_id, marker)
        return True

    def _was_lease_over(self, session_id: str, moment: float) -> bool:
        """Return True if the lease had ended before the check, although the check passed."""
        leases = self._store._leases
        assert isinstance(leases, PostgresLeases)
        held = leases._held.get(session_id)
        # The first step of a turn acquires the lease.
        return held is not None and moment >= held.valid_until


async def main() -> None:
    # Standard error is for faults; psycopg and its pool warn of broken connections.
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    work = json.load(sys.stdin)
    journal = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    random.seed(work["name"])
    identity = ClientIdentity(*work["identity"])
    store = PostgresStore(
        lambda: work["url"], identity, load_keys=lambda: work["key"], lease_seconds=work["lease_seconds"]
    )
    worker = Worker(store, work["sessions"], journal, work["name"], work["size"])
    try:
        await worker.run(work["seconds"])
    finally:
        await store.aclose()


if __name__ == "__main__":
    asyncio.run(main())
