"""One session over LSP and over ACP, in four dialects: each front end shows, continues and undoes the other's work."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acp.conftest import Begin
from tests.acp.talk import Talk, refusal
from tests.support.client.actions import Request, ResponseError
from tests.support.client.raw import RawClient
from tests.support.outside import Connect, check_turn_result, statuses
from tests.support.services import WAYS, Service, Way, sealed_in
from thinklsp.offline.scenario import Scenario

Json = Any
# One way for each dialect.
MAIN = ("anthropic", "openai", "google", "openrouter")
START = "x = 0\n\n\ny = 0\n"


def edit(old: str, new: str) -> Json:
    return {"tool": "edit_file", "input": {"path": "a.py", "old_text": old, "new_text": new}}


def turn(when: str, *calls: Json) -> Json:
    """Return a turn of the scenario: a step with each call, then an answer. Every step has thinking."""
    steps = [{"block": [{"thinking": f"About {when}."}, call]} for call in calls]
    return {"when": when, "step": [*steps, {"block": [{"thinking": "It is done."}, {"text": f"Done: {when}."}]}]}


SCENARIO = Scenario.model_validate(
    {
        "turn": [
            turn("Edit by LSP", {"tool": "read_file", "input": {"path": "a.py"}}, edit("x = 0", "x = 1")),
            turn("Edit by ACP", edit("y = 0", "y = 1")),
            turn("Ask by LSP", {"tool": "read_file", "input": {"path": "a.py"}}),
            turn("Edit again by ACP", edit("y = 0", "y = 2")),
            turn("Go on"),
            # A prompt without an answer is quoted with the next one, so this turn comes last.
            {
                "when": "Take long",
                "step": [{"block": [{"thinking": "Long."}, {"text": "Half"}, {"text": " more", "delay_ms": 60_000}]}],
            },
        ]
    }
)


class Both:
    """A language server and an agent on one workspace. Files are on the disk of both, since neither has one open."""

    def __init__(self, talk: Talk, lsp: RawClient) -> None:
        self.talk = talk
        self.lsp = lsp
        self._turns = 0

    @property
    def file(self) -> str:
        return (self.talk.root / "a.py").read_text()

    def start_lsp(self, prompt: str) -> Request:
        self._turns += 1
        argument = {"prompt": prompt} | ({"sessionId": self.talk.session} if self.talk.session else {})
        return self.lsp.command("thinklsp.chat", argument, token=f"lsp-{self._turns}")

    async def by_lsp(self, prompt: str) -> Json:
        result = await self.start_lsp(prompt)
        check_turn_result(result)
        assert (result["stopReason"], result["text"]) == ("end_turn", f"Done: {prompt}.")
        self.talk.session = result["sessionId"]
        # The client reloads a file that has changed on disk.
        self.talk.peer.buffers.clear()
        return result

    async def by_acp(self, prompt: str) -> None:
        before = len(self.talk.text)
        assert await self.talk.prompt(prompt) == "end_turn"
        assert self.talk.text[before:].startswith(f"Done: {prompt}.")

    async def load(self) -> list[Json]:
        """Load the session over ACP; return what is replayed."""
        params = {"sessionId": self.talk.session, "cwd": str(self.talk.root), "mcpServers": []}
        before = len(self.talk.updates())
        await self.talk.client.request("session/load", params)
        return list(self.talk.updates()[before:])

    async def undo_by_lsp(self) -> None:
        assert (await self.lsp.command("thinklsp.undo"))["applied"] == "all"
        self.talk.peer.buffers.clear()


async def begin_both(begin: Begin, way: Way, service: Service, servers: Connect) -> Both:
    # The name of the model decides the provider, except for a compatible server.
    provider = {"provider": way.provider} if way.provider == "openai-compatible" else {}
    env = {"THINKLSP_MODEL": way.model} | {f"THINKLSP_{name.upper()}": value for name, value in provider.items()}
    talk = await begin(files={"a.py": START}, provider=service, env=env, session=False)
    lsp = await servers(talk.root, talk.outside.variables)
    await lsp.initialize(talk.root, options={"model": way.model} | provider)
    return Both(talk, lsp)


async def finish(both: Both) -> None:
    assert await both.lsp.close() == 0
    assert both.lsp.checker.violations == []
    assert both.lsp.messages() == []
    # Its output is searched for secrets with that of the agent.
    both.talk.outside.past.append(both.lsp)


def words(updates: list[Json], kind: str) -> list[str]:
    return [update["content"]["text"] for update in updates if update["sessionUpdate"] == kind]


@pytest.fixture(params=MAIN)
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


async def test_session_goes_back_and_forth(begin: Begin, servers: Connect, way: Way) -> None:
    service = Service(SCENARIO)
    both = await begin_both(begin, way, service, servers)
    talk = both.talk
    result = await both.by_lsp("Edit by LSP")
    assert (statuses(result), both.file) == ({"a.py": "applied"}, START.replace("x = 0", "x = 1"))
    by_lsp = both.file

    replayed = await both.load()
    assert words(replayed, "user_message_chunk") == ["Edit by LSP"]
    assert words(replayed, "agent_message_chunk") == ["Done: Edit by LSP."]
    titles = [update["title"] for update in replayed if update["sessionUpdate"] == "tool_call"]
    assert len(titles) == 2
    assert all("a.py" in title for title in titles)

    await both.by_acp("Edit by ACP")
    assert both.file == by_lsp.replace("y = 0", "y = 1")
    assert await talk.prompt("/undo") == "end_turn"
    assert both.file == by_lsp

    await both.by_lsp("Ask by LSP")
    assert "Edit by ACP" in service.requests[-1].raw.decode()
    await both.by_acp("Edit again by ACP")
    assert "Ask by LSP" in service.requests[-1].raw.decode()
    assert both.file == by_lsp.replace("y = 0", "y = 2")
    await both.undo_by_lsp()
    assert both.file == by_lsp
    await both.undo_by_lsp()
    assert both.file == START
    await both.by_acp("Go on")
    check_sealed(service, {way.model})
    await finish(both)


async def test_one_turn_at_a_time(begin: Begin, servers: Connect, way: Way) -> None:
    """While one front end runs a turn, the other one says so, and nothing is lost."""
    both = await begin_both(begin, way, Service(SCENARIO), servers)
    talk = both.talk
    await both.by_lsp("Ask by LSP")
    await both.load()
    running = talk.send("Take long")
    await talk.client.wait_for(lambda: talk.text.endswith("Half"))
    with pytest.raises(ResponseError, match="in use by another thinklsp"):
        await both.start_lsp("Go on")
    talk.client.cancel(talk.session)
    assert (await running)["stopReason"] == "cancelled"

    turn = both.start_lsp("Take long")
    await talk.provider.simulator.wait_for(lambda: len(talk.provider.requests) == 4 and talk.provider.requests[-1].raw)
    place = {"sessionId": talk.session, "cwd": str(talk.root), "mcpServers": []}
    for refused in (talk.send("Go on"), talk.client.request("session/load", place)):
        error = await refusal(refused)
        assert (error.code, "in use by another thinklsp" in error.message) == (-32603, True)
    both.lsp.stop("lsp-3")
    assert (await turn)["stopReason"] == "cancelled"
    await both.by_acp("Go on")
    prompts = words(await both.load(), "user_message_chunk")
    assert [text for text in prompts if text in ("Ask by LSP", "Go on")] == ["Ask by LSP", "Go on"]
    assert prompts.count("Take long") == 2
    await both.by_lsp("Go on")
    await finish(both)


async def test_opaque_state_goes_back_to_its_issuer(begin: Begin, servers: Connect) -> None:
    """The front ends take turns, and so do three services."""
    service = Service(SCENARIO)
    both = await begin_both(begin, WAYS["anthropic"], service, servers)
    await both.by_lsp("Go on")
    await both.load()
    for name in ("openai", "google", "anthropic", "openai", "google", "anthropic"):
        choice = {"sessionId": both.talk.session, "configId": "model", "value": WAYS[name].model}
        await both.talk.client.request("session/set_config_option", choice)
        await both.by_acp("Ask by LSP")
        await both.by_lsp("Ask by LSP")
    check_sealed(service, {WAYS[name].model for name in ("anthropic", "openai", "google")})
    both.talk.outside.told()
    await finish(both)


def check_sealed(service: Service, models: set[str]) -> None:
    """Each service gets back all that it has issued so far, and nothing that another one has issued."""
    issued: dict[str, set[str]] = {}
    for request in service.requests:
        host = next(each for each in ("messages", "responses", "Content", "completions") if each in request.path)
        sent = set(sealed_in(request.body))
        assert issued.get(host, set()) <= sent
        assert not sent & set().union(*(texts for other, texts in issued.items() if other != host))
        issued[host] = sent
    assert len(issued) == len(models)
    assert all(issued.values())
