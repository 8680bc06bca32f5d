"""Settings reach the wire of the next turn; wrong ones are refused by name; power does not come from the editor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.acting import chat, never_answer, read_choices, refused, say, start_chat
from tests.e2e.conftest import Begin
from tests.support.client.editor import capabilities
from tests.support.outside import Outside
from tests.support.signing_server import Failure, Text, Thinking, answer

MODEL = "claude-opus-4-6"  # Takes adaptive and manual thinking.
DECOY_KEY = "sk-decoy-0123456789-0123456789-abcdef"


async def wire(outside: Outside) -> tuple[Any, Any]:
    """Thinking and effort of one more turn, as the provider sees them."""
    outside.provider.say(answer(Thinking(), Text("Yes.")))
    await chat(outside, "Ready?")
    return read_choices(outside)


@pytest.mark.parametrize("outer", [True, False], ids=["outer key", "bare"])
async def test_pushed_settings_count_from_the_next_turn(begin: Begin, outer: bool) -> None:
    announce = capabilities(workspace__configuration=None)
    outside = await begin(options={"model": MODEL, "effort": "low"}, announce=announce)

    def push(settings: dict[str, Any]) -> None:
        outside.client.configure({"thinklsp": settings} if outer else settings)

    manual = {"mode": "manual", "budgetTokens": 2048}
    assert await wire(outside) == ({"type": "adaptive"}, "low")
    push({"model": MODEL, "effort": "high", "thinking": manual})
    assert await wire(outside) == ({"type": "enabled", "budget_tokens": 2048}, "high")
    push({"model": MODEL, "effort": "high", "thinking": manual | {"budgetTokens": 512}})
    await outside.until_told("thinking.budgetTokens", "1024")
    assert await wire(outside) == ({"type": "enabled", "budget_tokens": 2048}, "high")
    # A pushed configuration replaces the former one whole.
    push({"model": MODEL})
    assert await wire(outside) == ({"type": "adaptive"}, None)
    push({"model": MODEL, "thinking": {"mode": "off"}})
    thinking, _ = await wire(outside)
    assert thinking in ({"type": "disabled"}, {})
    assert outside.client.calls("workspace/configuration") == []


async def test_a_changed_setting_replaces_the_choice_of_before(begin: Begin) -> None:
    announce = capabilities(workspace__configuration=None)
    client = (outside := await begin(options={"model": MODEL, "effort": "low"}, announce=announce)).client
    await client.command("thinklsp.effort", {"value": "max"})
    await client.command("thinklsp.thinking", {"value": "manual 2048"})
    client.configure({"model": MODEL, "effort": "low", "maxSteps": 9})
    manual = {"type": "enabled", "budget_tokens": 2048}
    assert await wire(outside) == (manual, "max")
    client.configure({"model": MODEL, "effort": "high"})
    assert await wire(outside) == (manual, "high")


async def test_pulled_settings_count_from_the_next_turn(begin: Begin) -> None:
    outside = await begin(options={"model": MODEL, "effort": "low"})
    client = outside.client
    assert await wire(outside) == ({"type": "adaptive"}, "low")
    manual = {"mode": "manual", "budgetTokens": 3000}
    client.editor.settings = {"model": MODEL, "effort": "medium", "thinking": manual}
    before = len(client.calls("workspace/configuration"))
    client.configure(None)
    await client.wait_for(lambda: len(client.calls("workspace/configuration")) > before, what="the pull")
    assert await wire(outside) == ({"type": "enabled", "budget_tokens": 3000}, "medium")


async def test_late_configuration_does_not_replace_newer_one(begin: Begin) -> None:
    outside = await begin(options={"model": MODEL})
    client = outside.client

    def asked() -> list[Any]:
        return client.calls("workspace/configuration")

    await client.wait_for(lambda: len(asked()) == 1, what="the first pull")
    client.editor.handlers["workspace/configuration"] = never_answer
    for count in (2, 3, 4):
        client.configure(None)
        await client.wait_for(lambda count=count: len(asked()) == count, what="a pull")
    first, second, third = (call.message["id"] for call in asked()[1:])
    for identity, effort, counts in ((second, "max", "max"), (first, "medium", "max"), (third, "low", "low")):
        client.answer(identity, [{"model": MODEL, "effort": effort}])
        assert await wire(outside) == ({"type": "adaptive"}, counts)


async def test_settings_are_asked_for_beside_being_told_of_changes(begin: Begin) -> None:
    outside = await begin(initialize=False)
    client = outside.client
    client.editor.settings = {"model": MODEL, "effort": "low"}
    client.editor.handlers["client/registerCapability"] = never_answer
    await client.initialize(outside.root, options={"model": MODEL})
    await client.wait_for(lambda: client.calls("workspace/configuration"), what="the pull")
    assert await wire(outside) == ({"type": "adaptive"}, "low")
    # What changes after the answer is told of: the wish for that was sent before.
    asked = [call.message["method"] for call in client.received if "id" in call.message and "method" in call.message]
    assert asked.index("client/registerCapability") < asked.index("workspace/configuration")


# The command and its fields -> the model, the form of thinking and the effort of this turn.
ONE_TURN: list[tuple[str, dict[str, str], tuple[str, str, str | None]]] = [
    ("chat", {"effort": "max"}, (MODEL, "adaptive", "max")),
    ("action", {}, (MODEL, "adaptive", "high")),
    ("chat", {"model": "claude-sonnet-4-5"}, ("claude-sonnet-4-5", "enabled", None)),
    ("chat", {"thinking": "ultra"}, (MODEL, "adaptive", "max")),
    ("chat", {"thinking": "off"}, (MODEL, "disabled", "low")),
    ("action", {"thinking": "off"}, (MODEL, "disabled", "high")),
]


async def test_what_is_asked_for_one_turn_beats_the_settings(begin: Begin) -> None:
    outside = await begin(options={"model": MODEL, "effort": "low", "effortByAction": {"explain": "high"}})
    explain, prompt = {"name": "explain", "uri": outside.open("a.py", "x = 1\n")}, {"prompt": "?"}
    for command, fields, expected in ONE_TURN:
        outside.provider.say(answer(Thinking(), Text("Yes.")))
        await outside.turn(f"thinklsp.{command}", (explain if command == "action" else prompt) | fields)
        body = outside.provider.requests[-1].body
        effort = body.get("output_config", {}).get("effort")
        assert (body["model"], body["thinking"]["type"], effort) == expected, fields
    await refused(chat(outside, "?", thinking="on"), -32602, match="thinking")


async def test_a_choice_tells_what_it_costs_of_the_cache(begin: Begin) -> None:
    prompt = "Look. " + "These are the rules that you follow. " * 400
    outside = await begin(answer(Thinking(), Text("Seen.")), options={"model": MODEL, "effort": "high"})
    session = {"sessionId": (await chat(outside, prompt))["sessionId"]}

    async def choose(name: str, value: str) -> str:
        return (await outside.client.command(f"thinklsp.{name}", {"value": value} | session))["notice"] or ""

    assert "cached tokens" not in await choose("effort", "high")
    assert "cached tokens (about $" in await choose("effort", "low")
    assert "cached tokens (about $" in await choose("thinking", "off")
    assert "cached tokens (about $" in await choose("model", "claude-sonnet-4-5")


NO_BUDGET = Failure(400, "invalid_request_error", '"thinking.type.enabled" is not supported for this model.')
NO_EFFORT = Failure(400, "invalid_request_error", "output_config.effort: Input should be 'low', 'medium' or 'max'")


async def test_what_a_service_refuses_is_not_told_as_effective(begin: Begin) -> None:
    """`effective` is what is sent, each turn says why it is not what was chosen, and a restart forgets neither."""
    chosen = {"model": "claude-sonnet-4-6", "effort": "high", "thinking": {"mode": "manual"}}
    outside = await begin(NO_BUDGET, NO_EFFORT, *(answer(Thinking(), Text("Yes.")) for _ in range(3)), options=chosen)

    async def told() -> tuple[str, str]:
        effort, thinking = [(await outside.client.command(f"thinklsp.{key}", {})) for key in ("effort", "thinking")]
        assert (effort["value"], thinking["value"]) == ("high", "manual")
        return effort["effective"], thinking["effective"]

    assert await told() == ("high", "manual")
    for number in range(3):
        result = await chat(outside, "Ready?")
        body = outside.provider.requests[-1].body
        assert (body["output_config"]["effort"], body["thinking"]["type"]) == ("medium", "adaptive")
        assert "does not accept effort high with adaptive thinking; effort medium is used." in " ".join(
            result["notices"]
        )
        if number == 1:
            await outside.restart()
        assert await told() == ("medium", "adaptive")


WRONG: list[tuple[Any, str]] = [
    ({"effort": "enormous"}, "effort"),
    ({"maxSteps": "many"}, "maxSteps"),
    ({"thinking": {"mode": 7}}, "thinking.mode"),
    ({"thinking.budgetTokens": 512}, "thinking.budgetTokens"),
    ({"thinking": {"summary": "brief"}}, "thinking.summary"),
    ({"compaction": {"by": "nobody"}}, "compaction.by"),
]


async def test_a_wrong_value_is_named_and_the_rest_still_counts(begin: Begin) -> None:
    outside = await begin(options={"model": MODEL}, announce=capabilities(workspace__configuration=None))
    for number, (settings, key) in enumerate(WRONG):
        model = ["claude-sonnet-4-6", MODEL][number % 2]
        outside.client.configure({"thinklsp": {"model": model} | settings})
        await outside.until_told(key)
        assert await wire(outside) == ({"type": "adaptive"}, None)
        assert outside.provider.requests[-1].body["model"] == model


async def test_an_unknown_key_is_named_once_and_in_the_report(begin: Begin) -> None:
    """`efort` and `temperature` were ignored without a word."""
    strange = {"model": MODEL, "efort": "low", "temperature": 1}
    announce = capabilities(workspace__configuration=None)
    outside = await begin(options=strange, announce=announce, env={"THINKLSP_MAXTOKENS": "5000"})
    await outside.until_told("Unknown setting `temperature`.")
    assert [text.partition(".")[2] for text in outside.told()] == [
        " Did you mean `THINKLSP_MAX_TOKENS`?",
        " Did you mean `effort`?",
    ]
    outside.client.configure({"thinklsp": strange})
    assert await wire(outside) == ({"type": "adaptive"}, None)
    assert outside.told() == []
    problems = (await outside.client.command("thinklsp.doctor"))["problems"]
    for name in ("`efort`", "`temperature`", "`THINKLSP_MAXTOKENS`"):
        assert [name in problem for problem in problems].count(True) == 1


async def test_what_would_loosen_is_ignored_and_told_once(begin: Begin) -> None:
    loose = {"model": MODEL, "maxSteps": 99, "edits": {"review": "never"}}
    outside = await begin(options=loose, announce=capabilities(workspace__configuration=None))
    await outside.until_told("maxSteps", "edits.review")
    outside.client.configure({"thinklsp": loose})
    assert await wire(outside) == ({"type": "adaptive"}, None)
    assert outside.told() == []


async def test_a_refused_value_is_told_once_until_it_was_right(begin: Begin) -> None:
    """Most editors send their settings twice when they start: with `initialize`, and when they are asked."""
    wrong = {"model": MODEL, "budget": {"usdPerTurn": "lots"}}
    outside = await begin(options=wrong)
    client = outside.client
    await outside.until_told("budget.usdPerTurn")
    assert await wire(outside) == ({"type": "adaptive"}, None)
    assert len(client.calls("workspace/configuration")) == 1

    async def changed(settings: dict[str, Any]) -> None:
        client.editor.settings = settings
        before = len(client.calls("workspace/configuration"))
        client.configure(None)
        await client.wait_for(lambda: len(client.calls("workspace/configuration")) > before, what="the pull")
        await wire(outside)

    await changed(wrong | {"effort": "low"})
    assert outside.told() == []
    await changed({"model": MODEL})
    await changed(wrong)
    await outside.until_told("budget.usdPerTurn")
    assert outside.told() == []


@pytest.fixture
async def decoy() -> AsyncIterator[tuple[str, bytearray]]:
    """A host that the repository would like to hear from: its URL, and every byte that reached it."""
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(b"!" + await reader.read(65536))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard
    server.close()
    await server.wait_closed()


async def test_hosts_and_keys_do_not_come_from_the_editor(begin: Begin, decoy: tuple[str, bytearray]) -> None:
    url, heard = decoy
    evil = {
        "model": MODEL,
        "baseUrl": url,
        "apiKey": DECOY_KEY,
        "anthropic": {"base_url": url, "apiKey": DECOY_KEY},
        "providers": {"anthropic": {"baseUrl": url}},
        "commands": {"enabled": True},
        "proxy": url,
    }
    outside = await begin(options=evil, announce=capabilities(workspace__configuration=None))
    message = await outside.until_told("baseUrl", "base_url", "apiKey", "commands", "proxy")
    assert await wire(outside) == ({"type": "adaptive"}, None)
    outside.client.configure({"thinklsp": evil})
    assert await wire(outside) == ({"type": "adaptive"}, None)
    assert outside.told() == []  # Once is enough.
    assert bytes(heard) == b""
    seen = bytes(outside.client.stdout + outside.client.stderr) + message.encode()
    assert DECOY_KEY.encode() not in seen
    assert url.encode() not in seen
    tools = {tool["name"] for tool in outside.provider.requests[0].body["tools"]}
    assert "run_command" not in tools


BROKEN = {
    "open to others": ('effort = "low"', 0o666, "Run chmod 600"),
    "no TOML": ("effort = ", 0o600, "not valid TOML"),
    "a level that there is not": ('[log]\nlevel = "loud"', 0o600, "log.level"),
}


@pytest.mark.parametrize(("text", "mode", "words"), BROKEN.values(), ids=BROKEN)
async def test_broken_user_file_is_reported_and_fixed_without_restart(
    begin: Begin, tmp_path: Path, text: str, mode: int, words: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    path.chmod(mode)
    outside = await begin(say("Yes."), env={"THINKLSP_CONFIG": str(path)})
    client = outside.client
    assert "No turn runs until this is fixed" in await outside.until_told(words)
    for _ in range(2):
        report = await client.command("thinklsp.doctor")
        assert (report["canRun"], report["settings"], report["model"]) == (False, None, None)
        assert words in report["problems"][0]
        await refused(start_chat(outside, "?", token=outside.token()), match=words)
    await refused(client.command("thinklsp.doctor", {"loud": True}), -32602)
    assert client.stderr == b""
    path.write_text('effort = "low"')
    path.chmod(0o600)
    assert await wire(outside) == ({"type": "adaptive"}, "low")
    report = await client.command("thinklsp.doctor")
    assert report["settings"]["sources"]["effort"] == "user file"
