"""Mutated lines over real pipes: every usable id has one answer, and the agent keeps running."""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.acp.client import AcpClient
from tests.acp.fake_zed import FakeZed
from tests.acp.talk import Talk, begin_talk
from tests.e2e.acting import say
from tests.slow.mutating import mutated, usable_id
from tests.slow.running import Tally
from tests.slow.running import say as tell
from tests.support.forking import Nursery
from tests.support.sizes import SEED, lots, tries

PER_AGENT, AT_ONCE = 2_500, 50
Json = Any
INSIDE = re.compile(rb"Traceback|\b\w+Error\b|/thinklsp/|pydantic")


def source(session: str, root: Path) -> list[Json]:
    """Return the messages of a client, with the ids and folders of a real session."""
    place = {"cwd": str(root), "mcpServers": []}
    ours = {"sessionId": session}
    text = {"type": "text", "text": "Hello."}
    link = {"type": "resource_link", "uri": (root / "a.py").as_uri(), "name": "a.py", "size": 7}
    resource = {"type": "resource", "resource": {"uri": "file:///b.py", "text": "y", "mimeType": "text/plain"}}
    server = {"name": "a", "command": "/bin/false", "args": [], "env": [{"name": "A", "value": "b"}]}
    capabilities = FakeZed.capabilities
    info = {"name": "zed", "title": "Zed", "version": "1"}
    requests: list[tuple[str, Json]] = [
        ("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": info}),
        ("authenticate", {"methodId": "settings"}),
        ("session/new", place | {"additionalDirectories": [str(root)], "_meta": {"a": 1}}),
        ("session/new", place | {"mcpServers": [server]}),
        ("session/load", ours | place),
        ("session/resume", ours | place),
        ("session/list", {"cwd": str(root), "cursor": None}),
        ("session/delete", {"sessionId": "none"}),
        ("session/close", {"sessionId": "none"}),
        ("session/prompt", ours | {"prompt": [text, link, resource], "_meta": {}}),
        ("session/set_mode", ours | {"modeId": "ask"}),
        ("session/set_config_option", ours | {"configId": "effort", "value": "low"}),
    ]
    notes: list[tuple[str, Json]] = [
        ("session/cancel", ours), ("$/cancel_request", {"requestId": 7}), ("_a/b", {"c": [1]}),
    ]  # fmt: skip
    asked = [{"jsonrpc": "2.0", "id": 0, "method": method, "params": params} for method, params in requests]
    answers = [{"jsonrpc": "2.0", "id": 0, "result": {"outcome": {"outcome": "selected", "optionId": "allow_once"}}}]
    return asked + [{"jsonrpc": "2.0", "method": method, "params": params} for method, params in notes] + answers


def answers(client: AcpClient) -> Counter[str]:
    """Return how often each id was answered, by its JSON."""
    found = [r.message for r in client.received if "method" not in r.message]
    return Counter(json.dumps(message.get("id")) for message in found)


def expected_id(line: bytes) -> str | None:
    """Return the id that must be answered. Ids beyond 64 bits are not of this protocol."""
    identity = usable_id(line)
    if identity is None or (isinstance(identity, int) and not -(2**63) <= identity < 2**63):
        return None
    return json.dumps(identity)


async def send_mutated(
    client: AcpClient, messages: list[Json], chance: random.Random, total: int, *, patience: float = 60.0
) -> Counter[str]:
    """Send `total` lines, and wait after each lot until all its ids are answered. Return how often each id was sent."""
    sent = answers(client)

    def list_unanswered() -> list[bytes]:
        """Return the lines of the last lot that lack an answer."""
        waiting = sent - answers(client)
        return [line[:1_000] for line in lines if expected_id(line) in waiting]

    for number, count in enumerate(lots(total, AT_ONCE)):
        lines = [mutated(chance, messages, number * AT_ONCE + n).replace(b"\n", b" ") for n in range(count)]
        lines.append(json.dumps({"jsonrpc": "2.0", "id": f"probe-{number}", "method": "session/nothing"}).encode())
        sent.update(identity for line in lines if (identity := expected_id(line)) is not None)
        for line in lines:
            client.send_line(line)
        await client.process.stdin.drain()
        try:
            await client.wait_for(lambda: not sent - answers(client), within=patience, what="an answer to every id")
        except TimeoutError as missing:
            missing.add_note(f"unanswered in lot {number}: {list_unanswered()}")
            raise
    return sent


async def fuzz(talk: Talk, chance: random.Random, total: int) -> None:
    client = talk.client
    sent = await send_mutated(client, source(talk.session, talk.root), chance, total)
    found = answers(client)
    found.pop("null", None)
    # An id beyond 64 bits may be repeated or be none.
    lone = {identity for identity in set(found) - set(sent) if not re.fullmatch(r"-?\d{19,}", identity)}
    wrong = {identity: (count, found[identity]) for identity, count in sent.items() if found[identity] != count}
    assert wrong == {}, "ids with the numbers of their requests and answers"
    assert lone == set(), "ids that nobody sent"
    assert INSIDE.findall(bytes(client.stdout)) == []
    assert INSIDE.findall(bytes(client.stderr)) == []
    assert [fault for fault in client.checker.violations if "not JSON" in fault or "a line of" in fault] == []


async def test_mutated_lines(tmp_path: Path, nursery: Nursery | None, tally: Tally) -> None:
    total = tries("A-40")
    for number, count in enumerate(lots(total, PER_AGENT)):
        place = tmp_path / str(number)
        script = [lambda body: say("Done.")] * 10_000
        talk = await begin_talk(place, *script, nursery=nursery, files={"a.py": "x = 1\n"})
        try:
            await fuzz(talk, random.Random(f"{SEED} {number}"), count)
            talk.client.process.stdin.close()
            assert await talk.client.gone() == 0
            assert [str(leak) for leak in talk.outside.leaks()] == []
            talk.outside.judge_loop()
        except Exception as failure:
            failure.add_note(
                f"agent {number} with SLOW_SEED={SEED}; its stderr: {bytes(talk.client.stderr[-3_000:])!r}"
            )
            raise
        finally:
            await talk.outside.stop()
    tell(f"{total} mutated lines")
    tally("A-40", total)


# Answers every request but each seventh, or each seventh twice.
PLANTED = """
import json, sys
for number, line in enumerate(sys.stdin):
    try:
        identity = json.loads(line)["id"]
    except Exception:
        continue
    times = {times} if number % 7 == 6 else 1
    for _ in range(times):
        print(json.dumps(dict(jsonrpc="2.0", id=identity, error=dict(code=-32601, message="No."))), flush=True)
"""


async def test_agent_that_answers_too_little_or_twice_is_found(tmp_path: Path) -> None:
    for times in (0, 2):
        argv = [sys.executable, "-c", PLANTED.replace("{times}", str(times))]
        client = await AcpClient.start(argv, cwd=tmp_path, env={})
        try:
            if times == 0:
                with pytest.raises(TimeoutError) as missing:
                    await send_mutated(client, source("s", tmp_path), random.Random(SEED), 50, patience=2.0)
                [note] = missing.value.__notes__
                assert "unanswered in lot 0: [b'{" in note
            else:
                sent = await send_mutated(client, source("s", tmp_path), random.Random(SEED), 50)
                assert answers(client) - sent
        finally:
            client.kill()
            await client.gone()
