"""Which provider and model a turn goes to where the user leaves that open, and what a compatible server is asked."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tests.engine.test_engine import run, spec
from tests.settings.test_sources import NO_FILE
from tests.support.hosts import SseServer, Step, answer, head
from thinklsp.core import errors
from thinklsp.core.events import Notice, TurnEvent, TurnFinished
from thinklsp.engine import Engine
from thinklsp.engine.turn_config import Preferences
from thinklsp.engine.workspace_sessions import WorkspaceSessions
from thinklsp.providers.catalogue import find_default_model, list_models
from thinklsp.sessions.sqlite_store import MemoryStore
from thinklsp.settings.sources import EditorSettings

PLAIN = EditorSettings()
KEYS = {
    "anthropic": {"ANTHROPIC_API_KEY": "sk-ant-canary-0123456789"},
    "openai": {"OPENAI_API_KEY": "sk-proj-canary-0123456789"},
    "google": {"GEMINI_API_KEY": "AIza-canary-0123456789"},
    "openai-compatible": {"THINKLSP_COMPATIBLE_BASE_URL": "http://localhost:9/v1"},
}
SAID = {"choices": [{"index": 0, "delta": {"content": "Hello."}, "finish_reason": "stop"}]}
ANSWER: list[Step] = [head(), f"data: {json.dumps(SAID)}\n\ndata: [DONE]\n\n".encode()]


def engine_with(environment: dict[str, str], store: MemoryStore | None = None) -> aclosing[Engine]:
    return aclosing(Engine(NO_FILE | environment, store))


def listing(*ids: str) -> list[Step]:
    return answer(json.dumps({"object": "list", "data": [{"id": one} for one in ids]}).encode())


def said(events: list[TurnEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice)]


def at(url: str, **more: str) -> dict[str, str]:
    return {"THINKLSP_COMPATIBLE_BASE_URL": f"{url}/v1", **more}


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_the_first_model_of_the_server_is_used_and_said_once(count: int) -> None:
    names = ("qwen3:8b", "gpt-oss:20b", "llama3")[:count]
    async with SseServer([listing(*names), ANSWER]) as server, engine_with(at(server.url)) as engine:
        first = await run(await engine.start_turn(spec(), PLAIN, {}))
        second = await run(await engine.start_turn(spec("Again.", session_id="last"), PLAIN, {}))
        third = await run(await engine.start_turn(spec("A new session."), PLAIN, {}))
        requests = [(request.target, request.json["model"] if request.body else None) for request in server.received]
    (notice,) = said(first)
    assert notice.startswith("No model is set, so the server's first model is used: qwen3:8b.")
    assert ("To choose one, set `thinklsp.model`" in notice) is (count > 1)
    assert (f"{count - 1} more" in notice) is (count > 1)
    assert (said(second), said(third)) == ([], [])
    assert all(isinstance(events[-1], TurnFinished) for events in (first, second, third))
    assert requests == [("/v1/models", None), *[("/v1/chat/completions", "qwen3:8b")] * 3]


async def test_a_model_that_is_set_needs_no_list() -> None:
    """It is asked for all the same, once, since it may tell how much the model reads."""
    odd = [answer(b"<html>", content_type="text/html"), answer(b"no", 404), listing(), answer(b"{}", 503), ["reset"]]
    more = {"THINKLSP_MODEL": "my-model", "THINKLSP_COMPATIBLE_API_KEY": "k"}
    for play in odd:
        async with SseServer([play, ANSWER]) as server, engine_with(at(server.url, **more)) as engine:
            assert said(await run(await engine.start_turn(spec(), PLAIN, {}))) == []
            listed, request = server.received
            assert listed.target == "/v1/models"
            assert request.json["model"] == "my-model"
            assert {one.headers["authorization"] for one in server.received} == {"Bearer k"}


# What servers tell in their lists, and the window that is reckoned with.
WINDOWS: list[tuple[Any, int | None]] = [
    ({"max_model_len": 65_536}, 65_536),
    ({"meta": {"n_ctx": 8_192, "n_ctx_train": 131_072}}, 8_192),
    ({"context_length": 200_000, "top_provider": {"context_length": 100_000}}, 200_000),
    ({"loaded_context_length": 4_096, "max_context_length": 131_072}, 4_096),
    ({"context_window": 131_072}, 131_072),
    ({"max_model_len": 65_536, "meta": None}, 65_536),
    ({"max_model_len": "much", "meta": []}, None),
    ({"max_model_len": -1}, None),
    ({"meta": {"n_ctx_train": 131_072}}, None),
    ({}, None),
]


@pytest.mark.parametrize(("told", "window"), WINDOWS)
@pytest.mark.parametrize("named", [True, False])
async def test_the_window_that_the_server_tells_counts(told: Any, window: int | None, *, named: bool) -> None:
    listed = answer(json.dumps({"data": [{"id": "mine", **told}, {"id": "other", "max_model_len": 1}]}).encode())
    chosen = {"THINKLSP_MODEL": "mine"} if named else {}
    async with SseServer([listed, ANSWER]) as server, engine_with(at(server.url, **chosen)) as engine:
        first = await engine.start_turn(spec(), PLAIN, {})
        await run(first)
        second = await engine.start_turn(spec("Again.", session_id="last"), PLAIN, {})
        await run(second)
        targets = [request.target for request in server.received]
    assert (first.config.model.id, first.config.model.context_window) == ("mine", window)
    assert second.config.model.context_window == window
    assert targets == ["/v1/models", *["/v1/chat/completions"] * 2]


async def test_user_window_overrides_the_server_window(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[models.openai-compatible."mine"]\ncontext_window = 5000\n')
    config.chmod(0o600)
    more = {"THINKLSP_MODEL": "mine", "THINKLSP_CONFIG": str(config)}
    async with SseServer([ANSWER]) as server, engine_with(at(server.url, **more)) as engine:
        turn = await engine.start_turn(spec(), PLAIN, {})
        await run(turn)
        assert [request.target for request in server.received] == ["/v1/chat/completions"]
    assert turn.config.model.context_window == 5_000


REFUSALS: dict[str, tuple[list[Step], type[errors.ThinkLspError], str]] = {
    "no models": (listing(), errors.TurnRefused, "has no models. Load a model on the server."),
    "nothing pulled": (answer(b'{"object": "list", "data": null}'), errors.TurnRefused, "has no models"),
    "no list": (answer(b'{"data": null}'), errors.TurnRefused, "did not return a list of models. Check the base URL"),
    "a page": (answer(b"<html>", content_type="text/html"), errors.TurnRefused, "did not return a list of models"),
    "a key is needed": (answer(b"{}", 401), errors.AuthenticationFailed, "set `THINKLSP_COMPATIBLE_API_KEY`"),
    "no such address": (answer(b"404 page not found", 404), errors.ProviderError, "check `model` and the base URL"),
    "trouble": (answer(b'{"error": "loading"}', 503), errors.ProviderError, "503"),
    "broken off": (["reset"], errors.TransportFailed, "127.0.0.1"),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_missing_model_list_is_explained_and_retried(name: str) -> None:
    play, kind, words = REFUSALS[name]
    async with SseServer([play, listing("qwen3:8b"), ANSWER]) as server, engine_with(at(server.url)) as engine:
        turn = await engine.start_turn(spec(), PLAIN, {})
        with pytest.raises(kind) as refused:
            await run(turn)
        assert words in str(refused.value)
        events = await run(await engine.start_turn(spec(session_id="last"), PLAIN, {}))
        assert len(said(events)) == 1
        assert isinstance(events[-1], TurnFinished)


async def test_a_turn_that_waits_for_the_list_can_be_stopped() -> None:
    async with SseServer([["hold"], listing("a"), ANSWER]) as server, engine_with(at(server.url)) as engine:
        turn = asyncio.create_task(run(await engine.start_turn(spec(), PLAIN, {})))
        async with asyncio.timeout(60):
            await server.arrived.wait()
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn
            await server.gone.wait()
        assert isinstance((await run(await engine.start_turn(spec(session_id="last"), PLAIN, {})))[-1], TurnFinished)


async def test_each_host_is_asked_for_models_with_its_own_key() -> None:
    """As when the user moves a session from one machine to another."""
    store = MemoryStore()
    async with (
        SseServer([listing("one"), ANSWER]) as first,
        SseServer([listing("two"), ANSWER]) as second,
        engine_with(at(first.url, THINKLSP_COMPATIBLE_API_KEY="key-1"), store) as here,
        engine_with(at(second.url, THINKLSP_COMPATIBLE_API_KEY="key-2"), store) as there,
    ):
        for engine, model in ((here, "one"), (there, "two"), (here, None), (there, None)):
            known = (await store.find_latest("w")).id if engine is not here or model is None else None
            events = await run(await engine.start_turn(spec(session_id=known), PLAIN, {}))
            assert [model in notice for notice in said(events) if model] == ([True] if model else [])
        for server, key in ((first, "key-1"), (second, "key-2")):
            assert {request.headers["authorization"] for request in server.received} == {f"Bearer {key}"}
            assert [bool(request.body) for request in server.received] == [False, True, True]
        assert [len(request.json["messages"]) for request in second.received[1:]] == [4, 8]


CHOSEN: list[tuple[tuple[str, ...], str | None, str]] = [
    # Whose keys there are; the model that the user names; who is asked.
    (("anthropic", "openai", "google", "openai-compatible"), None, "anthropic"),
    (("openai", "google"), None, "openai"),
    (("google", "openai-compatible"), None, "google"),
    (("openai-compatible",), None, "openai-compatible"),
    (("anthropic", "openai", "google"), "gpt-6-sol", "openai"),
    (("anthropic", "openai", "google"), "gpt-5-2025-08-07", "openai"),
    (("anthropic", "openai", "google"), "gemini-4-argon", "google"),
    (("anthropic", "openai", "google"), "models/gemini-4-argon", "google"),
    (("openai", "google", "anthropic"), "claude-opus-5-5", "anthropic"),
    (("anthropic", "openai-compatible"), "deepseek-v4-pro", "openai-compatible"),
    # Nobody lists it, or only somebody without a key: the first one is asked.
    (("anthropic", "openai", "google"), "brand-new-1", "anthropic"),
    (("openai", "google"), "claude-opus-5-5", "openai"),
    (("openai-compatible",), "gpt-6-sol", "openai-compatible"),
]


@pytest.mark.parametrize(("keyed", "model", "provider"), CHOSEN)
async def test_auto_goes_where_the_model_is_listed(keyed: tuple[str, ...], model: str | None, provider: str) -> None:
    environment = {name: value for one in keyed for name, value in KEYS[one].items()}
    async with engine_with(environment | ({"THINKLSP_MODEL": model} if model else {})) as engine:
        settings = engine.resolve_settings(PLAIN).settings
        found, info = engine.resolve_target(settings)
        assert found == provider
        assert info.id == (model or find_default_model(provider))
        assert info.provider == provider
        told = await WorkspaceSessions(engine, lambda: "w", Preferences(PLAIN)).choose("model", None, None)
        assert told["effective"] == (info.id or None)
        assert set(told["choices"]) == {"auto"} | {name for one in keyed for name in list_models(one)}


async def test_who_is_named_is_asked_whatever_the_model() -> None:
    environment = {name: value for one in KEYS.values() for name, value in one.items()}
    async with engine_with(environment) as engine:
        for provider in KEYS:
            settings = engine.resolve_settings(PLAIN, ("choice", {"provider": provider, "model": "gpt-6-sol"})).settings
            assert engine.resolve_target(settings)[0] == provider


async def test_a_provider_without_a_key_is_refused_with_what_to_set() -> None:
    async with engine_with({}) as engine:
        for provider, variables in KEYS.items():
            with pytest.raises(errors.SettingsError, match=next(iter(variables))):
                await engine.start_turn(spec(), PLAIN, {"provider": provider})
