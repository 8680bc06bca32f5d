"""A session over ACP that brings secrets near every output of the agent, and the search for them.

`PLANTED` looks like a key. The model puts it into the arguments of its calls, and a file contains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.acp.talk import Talk, begin_talk
from tests.support.canary import Canary, Leak, is_store
from tests.support.client.actions import ResponseError
from tests.support.outside import Connect
from tests.support.services import KEYS, Service, Way
from thinklsp.offline.scenario import Scenario

Json = Any
PLANTED = "sk-live-canary-Qw7eRt2yUi9oPa4sDf6gHj1kLz8xCv3b"
FILES = {"a.py": "x = 1\n", "notes.txt": f"The key is {PLANTED}.\n"}
COMMANDS = "[commands]\nenabled = true\n"
SLASH = ("/usage", "/sessions", "/help", "/effort high", "/model", "/think", "/review", "/compact", "/undo")


def build_scenario(way: Way) -> Scenario:
    """Return the service's answers: calls with secrets, a question, a command, an edit, and errors with the key."""
    key = KEYS[way.provider]
    search = {"tool": "search_text", "input": {"pattern": PLANTED, "literal": True}}
    read = {"tool": "read_file", "input": {"path": "notes.txt"}}
    edit = {"tool": "edit_file", "input": {"path": "a.py", "old_text": "1", "new_text": "2"}}
    ask = {"tool": "ask_user", "input": {"question": "Which one?", "options": ["This", "That"]}}
    run = {"tool": "run_command", "input": {"argv": ["true"]}}
    calls = [{"block": [{"thinking": "I look."}, call]} for call in (search, read, ask, run, edit)]
    end = {"block": [{"thinking": "So."}, {"text": "Done."}]}
    refusals = [
        {"block": [{"text": "a"}], "fault": {"http_error": {"status": status, "message": f"refused {key} {PLANTED}"}}}
        for status in (401, 400, 403)
    ]
    turns = [{"when": f"Fail {number}", "step": [each]} for number, each in enumerate(refusals)]
    # Failed prompts are quoted with later ones, so the turns after them come first.
    turns = [{"when": "Go on", "step": [end]}, *turns, {"when": "Work", "step": [*calls, end]}, {"step": [end]}]
    return Scenario.model_validate({"turn": turns})


async def begin_course(place: Path, way: Way, connect: Connect) -> Talk:
    variables = {"THINKLSP_PROVIDER": way.provider, "THINKLSP_MODEL": way.model}
    service = Service(build_scenario(way))
    return await begin_talk(
        place, provider=service, connect=connect, files=FILES, own=COMMANDS, env=variables, session=False
    )


async def run_course(talk: Talk) -> None:
    """Take each output of the agent once."""
    client, peer = talk.client, talk.peer
    peer.handlers["elicitation/create"] = lambda params: {"action": "accept", "content": {"answer": "This"}}
    await talk.new_session()
    assert await talk.prompt("Work.") == "end_turn"
    for command in SLASH:
        await try_prompt(talk, command)
    for number in range(3):
        await try_prompt(talk, f"Fail {number}.")
    key = talk.provider.key
    wrong: list[tuple[str, Json]] = [
        ("session/load", {"sessionId": key, "cwd": str(talk.root), "mcpServers": []}),
        ("session/new", {"cwd": f"/{key}", "mcpServers": []}),
        ("session/set_mode", {"sessionId": talk.session, "modeId": key}),
        ("session/set_config_option", {"sessionId": talk.session, "configId": key, "value": key}),
        ("authenticate", {"methodId": key}),
        ("session/list", {"cursor": key}),
    ]
    for method, params in wrong:
        await try_request(talk, method, params)
    await client.request("session/list", {})
    place = {"sessionId": talk.session, "cwd": str(talk.root), "mcpServers": []}
    await client.request("session/load", place)
    assert await talk.prompt("Go on.") == "end_turn"


async def try_prompt(talk: Talk, text: str) -> None:
    await try_request(talk, "session/prompt", {"sessionId": talk.session, "prompt": [{"type": "text", "text": text}]})


async def try_request(talk: Talk, method: str, params: Json) -> None:
    """Send a request that may fail."""
    try:
        await talk.client.request(method, params)
    except ResponseError:
        return


async def find_leaks(talk: Talk, more: Mapping[str, str]) -> list[Leak]:
    """End the agent, and return the secrets in its output, and in the files that it wrote except its database."""
    outside, client = talk.outside, talk.client
    assert await client.close() == 0
    canary = Canary(outside.provider.secrets() | {"planted key": PLANTED} | more)
    files = [path for path in outside.home.rglob("*") if path.is_file() and not is_store(path)]
    return [
        *canary.search(bytes(client.stdout), "stdout"),
        *canary.search(bytes(client.stderr), "stderr"),
        *canary.search_messages([received.message for received in client.received], "messages"),
        *(leak for path in files for leak in canary.search(path.read_bytes(), str(path))),
    ]
