"""A process that stores steps in PostgreSQL at a steady rate, as a server with many working users does.

`python -m tests.teams.paced_worker`: the first line of standard input is its work as JSON. It answers `ready`, begins
with the next line, and prints a JSON list with the milliseconds of all steps.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from random import Random

from tests.bench.store_rows import build_step
from tests.support.stored_sessions import USAGE
from thinklsp.core.messages import AssistantMessage, UserMessage
from thinklsp.core.server_context import ClientIdentity
from thinklsp.sessions.postgres import PostgresStore
from thinklsp.sessions.session import Session

STEP_BYTES = 20_000
USERS = 25
# A model call takes some seconds, so a user who never rests stores a step every six seconds.
STEPS_PER_SECOND = 4


class User:
    def __init__(self, store: PostgresStore, session_id: str, random: Random) -> None:
        self._store, self._session_id, self._random, self._count = store, session_id, random, 0

    async def add_step(self) -> float:
        """Store a step. Return the milliseconds that it took."""
        self._count += 1
        answer, results = build_step(Session("s", "w"), self._count, self._random, STEP_BYTES).conversation
        assert isinstance(answer, AssistantMessage)
        assert isinstance(results, UserMessage)
        began = time.perf_counter()
        await self._store.update(self._session_id, lambda now: now.add_step(answer, results, USAGE))
        return 1000 * (time.perf_counter() - began)


async def main() -> None:
    work = json.loads(sys.stdin.readline())
    random, users = Random(work["name"]), []
    for number in range(USERS):
        identity = ClientIdentity("tenant", f"{work['name']}-{number}")
        store = PostgresStore(lambda: work["url"], identity, load_keys=lambda: work["key"])
        session = await store.update((await store.create("w")).id, lambda new: new.add_user_message("Go."))
        users.append(User(store, session.id, random))
    _say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    loop = asyncio.get_running_loop()
    # Workers do not begin their steps at the same moments.
    start = loop.time() + random.random() / STEPS_PER_SECOND
    steps = []
    for number in range(STEPS_PER_SECOND * work["seconds"]):
        await asyncio.sleep(start + number / STEPS_PER_SECOND - loop.time())
        steps.append(asyncio.create_task(users[number % USERS].add_step()))
    _say(json.dumps(await asyncio.gather(*steps)))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
