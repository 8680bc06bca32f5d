"""Where settings, session, model and workspace become a turn: what is refused before it begins, and what is kept."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from tests.settings.test_sources import NO_FILE
from tests.support.scripted_model import ScriptedModel, check_sendable, connect_to, run_to_end, says, thinking, tool
from thinklsp.core.check_results import EditorDiagnostic, FileDiagnostics
from thinklsp.core.errors import Overloaded, PathRefused, SessionError, SettingsError, ThinkLspError, TurnRefused
from thinklsp.core.events import StepCommitted, TurnEvent, TurnFinished
from thinklsp.core.messages import Message, TextBlock
from thinklsp.core.usage import Usage
from thinklsp.engine import ActionRequest, ChatRequest, Choices, Engine, Reference, Turn, TurnRequest
from thinklsp.engine.turn_config import Preferences
from thinklsp.engine.workspace_sessions import StatusLine, WorkspaceSessions, merge_choices
from thinklsp.providers.catalogue import find_default_model
from thinklsp.settings.sources import EditorSettings
from thinklsp.settings.user_file import ActionSection
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

A = "untitled:a.py"
KEY = "sk-canary-0123456789-abcdefghijkl"
PLAIN = EditorSettings()


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with aclosing(Engine(NO_FILE | {"ANTHROPIC_API_KEY": KEY})) as made:
        yield made


def spec(prompt: str = "Hello.", *, kind: Any = ChatRequest, **more: Any) -> Any:
    """A request about a document of 500 lines."""
    view = WorkspaceView((), [DocumentSnapshot(A, 1, "".join(f"line {n}\n" for n in range(1, 501)))])
    asked = {"prompt": prompt} if kind is ChatRequest else {}
    return kind(view=view, workspace=more.pop("workspace", "w"), **asked, **more)


def action(name: str, place: Reference | None, **more: Any) -> Any:
    return spec(kind=ActionRequest, title=name, name=name, place=place, **more)


def play(turn: Turn, *script: Any) -> ScriptedModel:
    """The turn will talk to a scripted model."""
    model = ScriptedModel(script)

    async def connect(_known: object) -> ScriptedModel:
        return model

    connect_to(turn, connect)
    return model


async def run(turn: Turn) -> list[TurnEvent]:
    seen: list[TurnEvent] = []

    def show(event: TurnEvent) -> None:
        if isinstance(event, StepCommitted):
            # A step is announced only after it has been stored.
            assert turn.session.conversation[-1] in (event.assistant, event.results)
        seen.append(event)

    await run_to_end(turn, show)
    return seen


def first_text(conversation: Sequence[Message]) -> str:
    """The text of the first message, which is its only block."""
    [block] = conversation[0].blocks
    assert isinstance(block, TextBlock)
    return block.text


async def test_a_turn_is_stored_step_by_step_and_frees_its_session(engine: Engine) -> None:
    turn = await engine.start_turn(spec(references=(Reference(A, (2, 3)),)), PLAIN, {})
    with pytest.raises(SessionError, match="busy"):
        await engine.start_turn(spec(session_id=turn.session.id), PLAIN, {})
    model = play(turn, says(thinking(), tool("r", "read_file", {"path": A, "end_line": 2})), says("Done."))
    events = await run(turn)
    assert isinstance(events[-1], TurnFinished)
    stored = await engine.store.get(turn.session.id, "w")
    assert (stored, stored.steps) == (turn.session, 2)
    check_sendable(stored.add_user_message("x").conversation)
    text = first_text(stored.conversation)
    assert "Hello." in text
    assert "2  line 2\n     3  line 3\n" in text
    assert "line 4" not in text
    again = await engine.start_turn(spec("More.", session_id="last"), PLAIN, {})
    assert again.session == stored
    play(again)
    await run(again)
    # History is append-only: earlier messages are the same bytes in the next request.
    assert model.requests[1].conversation == stored.conversation[:3]


@pytest.mark.parametrize("fault", ["error", "cancel"])
async def test_a_turn_that_fails_leaves_its_session_free_and_sendable(engine: Engine, fault: str) -> None:
    turn = await engine.start_turn(spec(), PLAIN, {})
    step = says(tool("r", "read_file", {"path": A}))
    model = play(turn, step, Overloaded("busy"))
    if fault == "cancel":
        task = asyncio.create_task(run(turn))
        async with asyncio.timeout(60):
            while not model.requests:  # noqa: ASYNC110 - a later look would find the turn ended
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
    else:
        with pytest.raises(ThinkLspError):
            await run(turn)
    now = await engine.store.get(turn.session.id, "w")
    check_sendable(now.add_user_message("Again?").conversation)
    following = await engine.start_turn(spec(session_id=turn.session.id), PLAIN, {})
    play(following)
    assert isinstance((await run(following))[-1], TurnFinished)


def place(uri: str = A, first: int = 1) -> Reference:
    return Reference(uri, (first, first))


async def test_what_cannot_begin_is_refused_and_changes_nothing(engine: Engine) -> None:
    wrong: list[tuple[TurnRequest, type[ThinkLspError]]] = [
        (spec(" \n"), TurnRefused),
        (spec(session_id="unknown"), SessionError),
        (spec(session_id="last"), SessionError),
        (spec(references=(Reference("untitled:none"),)), PathRefused),
        (action("fix", place("file:///etc/passwd")), PathRefused),
    ]
    for given, error in wrong:
        with pytest.raises(error) as refused:
            await engine.start_turn(given, PLAIN, {})
        assert str(refused.value).endswith(".")
    with pytest.raises(SessionError):
        await engine.store.find_latest("w")


OVERRIDES: list[tuple[dict[str, str], str]] = [
    ({"effort": "enormous"}, "`effort` must be one of 'auto', 'low', 'medium', 'high', 'xhigh' or 'max'."),
    ({"model": ""}, "`model` must be at least 1 character long."),
    ({"model": "m" * 201, "effort": "low"}, "`model` must be at most 200 characters long."),
]


@pytest.mark.parametrize(("wrong", "said"), OVERRIDES)
async def test_turn_request_with_unknown_value_names_the_field(
    engine: Engine, wrong: dict[str, str], said: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        await engine.start_turn(spec(**wrong), PLAIN, {})
    assert (str(refused.value), refused.value.key) == (said, next(iter(wrong)))


async def test_without_a_key_it_says_what_to_set() -> None:
    engine = Engine(NO_FILE)
    with pytest.raises(SettingsError, match="ANTHROPIC_API_KEY"):
        await engine.start_turn(spec(), PLAIN, {})
    other = PLAIN.apply_configuration({"provider": "simulator"})[0]
    assert (await engine.start_turn(spec(), other, {})).config.model
    await engine.aclose()


async def test_settings_of_a_turn(engine: Engine) -> None:
    model = "claude-opus-4-6"
    editor = PLAIN.apply_configuration({"model": model, "effort": "low", "effortByAction": {"document": "high"}})[0]
    document = action("document", place())

    async def effort(given: TurnRequest, choices: dict[str, object] | None = None) -> str | None:
        turn = await engine.start_turn(given, editor, choices or {})
        turn.release()
        return turn.config.thinking.effort

    assert await effort(spec()) == "low"
    assert await effort(document) == "high"
    assert await effort(spec(), {"effort": "medium"}) == "medium"
    session = await engine.store.create("w")
    await engine.store.update(session.id, lambda now: now.add_choices({"effort": "high"}))
    assert await effort(spec(session_id=session.id), {"effort": "medium"}) == "high"
    assert await effort(spec(session_id=session.id, effort="max"), {"effort": "medium"}) == "max"
    assert await effort(replace(document, effort="medium")) == "medium"


async def test_equal_requests_have_equal_text_with_context_last(engine: Engine) -> None:
    texts = []
    for _ in range(2):
        turn = await engine.start_turn(action("fix", Reference(A)), PLAIN, {})
        model = play(turn)
        await run(turn)
        texts.append((model.requests[0].system, model.requests[0].conversation))
    assert texts[0] == texts[1]
    text = first_text(texts[0][1])
    assert "line 400" in text
    assert "line 401" not in text, "an excerpt is bounded; the model reads further by itself"


async def test_lone_surrogate_reaches_neither_model_nor_store(engine: Engine) -> None:
    turn = await engine.start_turn(spec("a\ud800b \ud83d\ude00 😀"), PLAIN, {})
    play(turn)
    await run(turn)
    stored = await engine.store.get(turn.session.id, "w")
    assert first_text(stored.conversation) == "a\ufffdb 😀 😀"


CHOICES: list[tuple[str, str, dict[str, object]]] = [
    ("effort", "high", {"effort": "high"}),
    ("effort", "auto", {"effort": "auto"}),
    ("thinking", "off", {"thinking.mode": "off"}),
    ("thinking", "normal", {"thinking.mode": "normal"}),
    ("thinking", "ultra", {"thinking.mode": "ultra"}),
    ("thinking", "manual 8000", {"thinking.mode": "manual", "thinking.budgetTokens": 8000}),
    ("model", "claude-opus-4-6", {"model": "claude-opus-4-6"}),
]


def open_sessions(engine: Engine, choices: Choices | None = None) -> WorkspaceSessions:
    return WorkspaceSessions(engine, lambda: "w", Preferences(PLAIN, choices or {}))


@pytest.mark.parametrize(("key", "value", "made"), CHOICES)
async def test_choices(engine: Engine, key: str, value: str, made: dict[str, object]) -> None:
    preferences = Preferences(PLAIN)
    sessions = WorkspaceSessions(engine, lambda: "w", preferences)
    answer = await sessions.choose(key, value, None)
    assert preferences.choices == made
    more = {"provider", "models"} if key == "model" else set()
    assert set(answer) == {"value", "effective", "choices", "notice"} | more
    assert answer["value"] == value
    assert value in answer["choices"] or value.startswith("manual ")
    assert answer["effective"]
    assert answer["choices"]
    told = await sessions.choose(key, None, None)
    assert (told["value"], preferences.choices) == (answer["value"], made)


NO_CHOICES = [
    ("effort", "huge"), ("thinking", "x"), ("thinking", "manual much"), ("thinking", "manual 200000"),
    ("thinking", "manual 12"), ("thinking", "off 8000"), ("model", ""), ("model", "m" * 201),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), NO_CHOICES)
async def test_a_choice_that_is_none_is_refused(engine: Engine, key: str, value: str) -> None:
    with pytest.raises(SettingsError, match=key):
        await open_sessions(engine).choose(key, value, None)


BUDGET: Choices = {"thinking.mode": "manual", "thinking.budgetTokens": 8000, "effort": "high"}
# What was chosen before, what is chosen now, and what counts: a budget goes with the mode that it was chosen for, and
# `ultra` and an effort replace each other.
MERGED: list[tuple[Choices, Choices, Choices]] = [
    (BUDGET, {"thinking.mode": "auto"}, {"thinking.mode": "auto", "effort": "high"}),
    (BUDGET, {"effort": "low"}, BUDGET | {"effort": "low"}),
    ({}, BUDGET, BUDGET),
    ({"effort": "low"}, {"thinking.mode": "ultra"}, {"thinking.mode": "ultra"}),
    ({"thinking.mode": "ultra"}, {"effort": "low"}, {"thinking.mode": "auto", "effort": "low"}),
    ({"model": "claude-opus-4-6"}, {"model": "auto"}, {}),
]


@pytest.mark.parametrize(("before", "now", "expected"), MERGED)
def test_new_choice_replaces_what_it_contradicts(before: Choices, now: Choices, expected: Choices) -> None:
    assert merge_choices(before, now) == expected


async def test_auto_as_a_model_is_the_providers_default(engine: Engine) -> None:
    """In the settings and for one turn, over a model that a weaker source names."""
    editor = PLAIN.apply_configuration({"model": "Auto"})[0]
    settings = engine.resolve_settings(editor, ("choice", {})).settings
    assert engine.resolve_target(settings)[1].id == find_default_model("anthropic")
    turn = await engine.start_turn(spec(model="auto"), PLAIN, {"model": "claude-opus-4-6"})
    assert turn.config.model.id == find_default_model("anthropic")
    turn.release()


# What is chosen before; then in the session; then for the turn: how the mode is told, and the effort that is sent.
PRESETS: list[tuple[Choices, Choices, dict[str, str], tuple[str | None, str | None]]] = [
    ({"thinking.mode": "ultra"}, {}, {}, ("ultra", "max")),
    ({"effort": "low"}, {"thinking.mode": "ultra"}, {}, ("ultra", "max")),
    ({"thinking.mode": "ultra"}, {"effort": "low"}, {}, ("auto", "low")),
    ({"thinking.mode": "ultra"}, {"thinking.mode": "normal"}, {}, ("normal", None)),
    ({"thinking.mode": "off"}, {"thinking.mode": "ultra"}, {}, ("ultra", "max")),
    ({"thinking.mode": "ultra"}, {}, {"effort": "low"}, ("ultra", "low")),
    ({"effort": "low"}, {}, {"thinking": "ultra"}, ("auto", "max")),
    ({"thinking.mode": "ultra"}, {}, {"thinking": "off"}, ("ultra", None)),
    ({"thinking.mode": "off"}, {"effort": "high"}, {"thinking": "normal"}, ("off", "high")),
]


@pytest.mark.parametrize(("connection", "chosen", "command", "expected"), PRESETS)
async def test_the_presets_of_thinking(
    engine: Engine, connection: Choices, chosen: Choices, command: dict[str, str], expected: tuple[str, str]
) -> None:
    """`ultra` is told back under its own name and sends effort max; what is chosen later counts."""
    model: Choices = {"model": "claude-opus-4-6"}
    session = await engine.store.update((await engine.open_session(None, "w")).id, lambda now: now.add_choices(chosen))
    told = await open_sessions(engine, {**connection, **model}).choose("thinking", None, session.id)
    turn = await engine.start_turn(spec(session_id=session.id, **command), PLAIN, connection | model)
    thinking = turn.config.thinking
    turn.release()
    assert (told["value"], thinking.effort) == expected
    assert thinking.form == ("off" if command.get("thinking") == "off" else "adaptive")


@pytest.mark.parametrize(("provider", "cost"), [("anthropic", " (about $0.0"), ("simulator", ".")])
async def test_cache_notice_of_the_offline_model_names_no_cost(engine: Engine, provider: str, cost: str) -> None:
    preferences = Preferences(PLAIN, {"provider": provider, "model": "claude-opus-4-6"})
    turn = await engine.start_turn(spec(), PLAIN, preferences.choices)
    play(turn, says("Yes.", usage=Usage(input_tokens=5_000, output_tokens=5, cache_write_tokens=5_000)))
    await run(turn)
    answer = await WorkspaceSessions(engine, lambda: "w", preferences).choose("effort", "low", None)
    assert f"resends 5,000 cached tokens{cost}" in answer["notice"]


async def test_an_own_action_has_its_own_thinking(engine: Engine) -> None:
    own = ActionSection.model_validate({"name": "own", "title": "Own", "prompt": "Go.", "thinking": "off"})
    asked = action("own", Reference("untitled:a.py", (1, 1)), own_action=own)
    turn = await engine.start_turn(asked, PLAIN, {"model": "claude-opus-4-6"})
    assert turn.config.thinking.form == "off"
    turn.release()


async def test_the_models_are_described(engine: Engine) -> None:
    """What a client can tell people before they choose."""
    answer = await open_sessions(engine).choose("model", None, None)
    assert answer["provider"] == "anthropic"
    by_id = {each["id"]: each for each in answer["models"]}
    assert set(answer["choices"]) - {"auto"} <= set(by_id)
    found = by_id["claude-opus-4-6"]
    assert set(found) == {"id", "provider", "title", "hasKey", "window", "price"}
    assert (found["provider"], found["hasKey"], found["price"]["output"] > 1) == ("anthropic", True, True)
    assert {each["hasKey"] for each in answer["models"] if each["provider"] == "google"} == {False}


async def test_the_provider_of_the_next_turn() -> None:
    """The simulator has the names of real models, and without a key there is no provider."""
    for environment, provider in (({"THINKLSP_PROVIDER": "simulator"}, "simulator"), ({}, None)):
        async with aclosing(Engine(NO_FILE | environment)) as engine:
            assert (await open_sessions(engine).choose("model", None, None))["provider"] == provider


async def test_the_status_is_what_the_next_turn_would_use(engine: Engine) -> None:
    sessions = open_sessions(engine, {"effort": "max"})
    session = await sessions.create()
    for key, value in (("model", "claude-opus-4-6"), ("effort", "low")):
        await sessions.choose(key, value, session.id)
    assert sessions.describe_status(session.id) == StatusLine("claude-opus-4-6", "low", "adaptive")
    await sessions.choose("thinking", "manual 5000", session.id)
    found = sessions.describe_status(session.id)
    assert found is not None
    assert found.thinking == "manual 5000"
    empty = Engine(NO_FILE)
    assert open_sessions(empty).describe_status(None) is None
    await empty.aclose()


async def test_a_claim_keeps_turns_out_and_lets_its_own_in(engine: Engine) -> None:
    session = await engine.open_session(None, "w")
    free = engine.claims.claim(session.id, "work")
    with pytest.raises(SessionError, match="busy"):
        await engine.start_turn(spec(session_id=session.id), PLAIN, {})
    with pytest.raises(SessionError, match="busy"):
        engine.claims.claim(session.id, "other")
    turn = await engine.start_turn(spec(session_id=session.id), PLAIN, {}, turn_id="work")
    assert turn.id == "work"
    turn.release()
    free()
    engine.claims.claim(session.id, "other")()


async def test_diagnostics_stand_between_prompt_and_excerpts(engine: Engine) -> None:
    diagnosed = FileDiagnostics("a.py", (EditorDiagnostic(3, "error", "bad"),))
    turn = await engine.start_turn(spec("Why?", references=(Reference(A, (1, 1)),), diagnosed=diagnosed), PLAIN, {})
    play(turn)
    await run(turn)
    stored = await engine.store.get(turn.session.id, "w")
    expected = "Why?\n\nDiagnostics of a.py:\n- line 3: error: bad\n\nuntitled:a.py, lines 1-1 of 500"
    assert first_text(stored.conversation).startswith(expected)


async def test_unused_conversations_leave_memory(engine: Engine) -> None:
    """What is known of a session's size held its whole conversation, for as long as the process lived."""

    def asked() -> set[str]:
        texts = (one.text for one in gc.get_objects() if isinstance(one, TextBlock))
        return {text for text in texts if text.startswith("Question ")}

    for number in range(50):
        turn = await engine.start_turn(spec(f"Question {number}"), PLAIN, {})
        play(turn, says(thinking(), "Yes.", usage=Usage(input_tokens=5_000, output_tokens=5)))
        await run(turn)
        del turn
    assert "Question 49" in asked()
    assert len(asked()) < 25
    last = await engine.open_session("last", "w")
    meter = engine.get_meter(last.id)
    assert engine.get_meter(last.id) is meter
    engine.forget_session(last.id)
    assert engine.get_meter(last.id) is not meter
