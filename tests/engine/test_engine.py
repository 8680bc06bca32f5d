"""Where settings, session, model and workspace become a turn: what is refused before it begins, and what is kept."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from tests.settings.test_sources import NO_FILE
from tests.support.scripted_model import ScriptedModel, check_sendable, says, thinking, tool
from thinklsp.core.errors import Overloaded, PathRefused, SessionError, SettingsError, ThinkLspError, TurnRefused
from thinklsp.core.events import Notice, StepCommitted, TurnEvent, TurnFinished
from thinklsp.core.messages import TextBlock, UserMessage
from thinklsp.core.problems import Diagnosed, Problem
from thinklsp.core.usage import Usage
from thinklsp.engine import ActionTask, ChatTask, Choices, Engine, Reference, Turn, TurnSpec
from thinklsp.engine.choices import Status, choose, merged, status
from thinklsp.engine.doctor import report
from thinklsp.providers.catalog import default_model
from thinklsp.settings import EditorSettings
from thinklsp.settings.own_actions import ActionSection
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

A = "untitled:a.py"
KEY = "sk-canary-0123456789-abcdefghijkl"
PLAIN = EditorSettings()


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine(NO_FILE | {"ANTHROPIC_API_KEY": KEY})
    yield made
    await made.aclose()


def spec(prompt: str = "Hello.", **more: Any) -> TurnSpec:
    view = WorkspaceView((), [DocumentSnapshot(A, 1, "".join(f"line {n}\n" for n in range(1, 501)))])
    task = more.pop("task", None) or ChatTask(prompt, more.pop("references", ()), more.pop("mode", "agent"))
    return TurnSpec("chat", task, view, more.pop("workspace", "w"), **more)


def play(turn: Turn, *script: Any) -> ScriptedModel:
    """The turn will talk to a scripted model."""
    model = ScriptedModel(script)

    async def connect(_known: object) -> ScriptedModel:
        return model

    turn.connect = connect
    return model


async def run(turn: Turn) -> list[TurnEvent]:
    async def ask(question: str, options: tuple[str, ...]) -> str | None:
        return None

    async def budget(said: str) -> Any:
        return "stop"

    seen = []
    with turn:
        async with aclosing(turn.events(ask, budget)) as events:
            async for event in events:
                if isinstance(event, StepCommitted):
                    # A step is announced only after it has been stored.
                    assert turn.session.conversation[-1] in (event.assistant, event.results)
                seen.append(event)
    return seen


async def test_a_turn_is_stored_step_by_step_and_frees_its_session(engine: Engine) -> None:
    turn = await engine.begin(spec(references=(Reference(A, (2, 3)),)), PLAIN, {})
    with pytest.raises(SessionError, match="busy"):
        await engine.begin(spec(session_id=turn.session.id), PLAIN, {})
    model = play(turn, says(thinking(), tool("r", "read_file", {"path": A, "end_line": 2})), says("Done."))
    events = await run(turn)
    assert isinstance(events[-1], TurnFinished)
    stored = await engine.store.get(turn.session.id, "w")
    assert (stored, stored.steps) == (turn.session, 2)
    check_sendable(stored.with_user("x").conversation)
    first = stored.conversation[0].blocks[0]
    assert isinstance(first, TextBlock)
    assert "Hello." in first.text
    assert "2  line 2\n     3  line 3\n" in first.text
    assert "line 4" not in first.text
    again = await engine.begin(spec("More.", session_id="last"), PLAIN, {})
    assert again.session == stored
    play(again)
    await run(again)
    # History is append-only: earlier messages are the same bytes in the next request.
    assert model.requests[1].conversation == stored.conversation[:3]


@pytest.mark.parametrize("fault", ["error", "cancel"])
async def test_a_turn_that_fails_leaves_its_session_free_and_sendable(engine: Engine, fault: str) -> None:
    turn = await engine.begin(spec(), PLAIN, {})
    step = says(tool("r", "read_file", {"path": A}))
    model = play(turn, step, Overloaded("busy"))
    if fault == "cancel":
        task = asyncio.create_task(run(turn))
        for _ in range(5):
            await asyncio.sleep(0)
        assert model.requests
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
    else:
        with pytest.raises(ThinkLspError):
            await run(turn)
    now = await engine.store.get(turn.session.id, "w")
    check_sendable(now.with_user("Again?").conversation)
    following = await engine.begin(spec(session_id=turn.session.id), PLAIN, {})
    play(following)
    assert isinstance((await run(following))[-1], TurnFinished)


def place(uri: str = A, first: int = 1) -> Reference:
    return Reference(uri, (first, first))


async def test_what_cannot_begin_is_refused_and_changes_nothing(engine: Engine) -> None:
    wrong: list[tuple[TurnSpec, type[ThinkLspError]]] = [
        (spec(" \n"), TurnRefused),
        (spec(session_id="unknown"), SessionError),
        (spec(session_id="last"), SessionError),
        (spec(references=(Reference("untitled:none"),)), PathRefused),
        (spec(task=ActionTask("fix", place("file:///etc/passwd"))), PathRefused),
    ]
    for given, error in wrong:
        with pytest.raises(error) as refused:
            await engine.begin(given, PLAIN, {})
        assert str(refused.value).endswith(".")
    with pytest.raises(SessionError):
        await engine.store.latest("w")


OVERRIDES: list[tuple[dict[str, str], str]] = [
    ({"effort": "enormous"}, "The effort must be one of 'auto', 'low', 'medium', 'high', 'xhigh' or 'max'."),
    ({"model": ""}, "The model must be at least 1 character long."),
    ({"model": "m" * 201, "effort": "low"}, "The model must be at most 200 characters long."),
]


@pytest.mark.parametrize(("wrong", "said"), OVERRIDES)
async def test_a_turn_that_asks_for_what_there_is_not_is_told_which_field(
    engine: Engine, wrong: dict[str, str], said: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        await engine.begin(spec(**wrong), PLAIN, {})
    assert (str(refused.value), refused.value.key) == (said, next(iter(wrong)))


async def test_without_a_key_it_says_what_to_set() -> None:
    engine = Engine(NO_FILE)
    with pytest.raises(TurnRefused, match="ANTHROPIC_API_KEY"):
        await engine.begin(spec(), PLAIN, {})
    other = PLAIN.updated({"provider": "simulator"})[0]
    assert (await engine.begin(spec(), other, {})).config.model
    await engine.aclose()


async def test_settings_of_a_turn(engine: Engine) -> None:
    model = "claude-opus-4-6"
    editor = PLAIN.updated({"model": model, "effort": "low", "effortByAction": {"document": "high"}})[0]
    document = spec(task=ActionTask("document", place()))

    async def effort(given: TurnSpec, choices: dict[str, object] | None = None) -> str | None:
        turn = await engine.begin(given, editor, choices or {})
        turn.release()
        return turn.config.thinking.effort

    assert await effort(spec()) == "low"
    assert await effort(document) == "high"
    assert await effort(spec(), {"effort": "medium"}) == "medium"
    session = await engine.store.create("w")
    await engine.store.update(session.id, lambda now: now.with_choices({"effort": "high"}))
    assert await effort(spec(session_id=session.id), {"effort": "medium"}) == "high"
    assert await effort(spec(session_id=session.id, effort="max"), {"effort": "medium"}) == "max"
    assert await effort(replace(document, effort="medium")) == "medium"


@pytest.mark.parametrize(
    ("task", "mode"),
    [
        (ChatTask("x"), "agent"),
        (ChatTask("x", mode="plan"), "plan"),
        (ActionTask("fix", place()), "agent"),
        (ActionTask("explain", place()), "ask"),
    ],
)
async def test_modes(engine: Engine, task: Any, mode: str) -> None:
    assert (await engine.begin(spec(task=task), PLAIN, {})).config.mode == mode


async def test_the_same_spec_is_the_same_text_and_volatile_context_goes_to_the_end(engine: Engine) -> None:
    texts = []
    for _ in range(2):
        turn = await engine.begin(spec(task=ActionTask("fix", Reference(A))), PLAIN, {})
        model = play(turn)
        await run(turn)
        texts.append((model.requests[0].system, model.requests[0].conversation))
    assert texts[0] == texts[1]
    [message] = texts[0][1]
    assert isinstance(message, UserMessage)
    [block] = message.blocks
    assert isinstance(block, TextBlock)
    assert "line 400" in block.text
    assert "line 401" not in block.text, "an excerpt is bounded; the model reads further by itself"


async def test_half_of_a_character_pair_reaches_neither_model_nor_store(engine: Engine) -> None:
    turn = await engine.begin(spec("a\ud800b \ud83d\ude00 😀"), PLAIN, {})
    play(turn)
    await run(turn)
    stored = await engine.store.get(turn.session.id, "w")
    [block] = stored.conversation[0].blocks
    assert isinstance(block, TextBlock)
    assert block.text == "a\ufffdb 😀 😀"


async def test_notices_of_the_plan_are_told_first(engine: Engine) -> None:
    editor = PLAIN.updated({"model": "claude-sonnet-4-5", "effort": "max"})[0]
    turn = await engine.begin(spec(), editor, {})
    play(turn)
    events = await run(turn)
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert notices == turn.said
    assert len(notices) == len(turn.notices)


CHOICES: list[tuple[str, str, dict[str, object]]] = [
    ("effort", "high", {"effort": "high"}),
    ("effort", "auto", {"effort": "auto"}),
    ("thinking", "off", {"thinking.mode": "off"}),
    ("thinking", "normal", {"thinking.mode": "normal"}),
    ("thinking", "ultra", {"thinking.mode": "ultra"}),
    ("thinking", "manual 8000", {"thinking.mode": "manual", "thinking.budgetTokens": 8000}),
    ("model", "claude-opus-4-6", {"model": "claude-opus-4-6"}),
]


@pytest.mark.parametrize(("key", "value", "made"), CHOICES)
async def test_choices(engine: Engine, key: str, value: str, made: dict[str, object]) -> None:
    answer, kept = choose(engine, PLAIN, key, value, connection={}, session=None)
    assert kept == made
    assert set(answer) == {"value", "effective", "choices", "notice"} | ({"models"} if key == "model" else set())
    assert answer["value"] == value
    assert value in answer["choices"] or value.startswith("manual ")
    assert answer["effective"]
    assert answer["choices"]
    told, nothing = choose(engine, PLAIN, key, None, connection=kept, session=None)
    assert (told["value"], nothing) == (answer["value"], {})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("effort", "huge"),
        ("thinking", "x"),
        ("thinking", "manual much"),
        ("thinking", "manual 200000"),
        ("thinking", "manual 12"),
        ("thinking", "off 8000"),
        ("model", ""),
        ("model", "m" * 201),
    ],
)
async def test_a_choice_that_is_none_is_refused(engine: Engine, key: str, value: str) -> None:
    with pytest.raises(SettingsError, match=key):
        choose(engine, PLAIN, key, value, connection={}, session=None)


def test_a_budget_goes_with_the_mode_that_it_was_chosen_for() -> None:
    manual: Choices = {"thinking.mode": "manual", "thinking.budgetTokens": 8000, "effort": "high"}
    assert merged(manual, {"thinking.mode": "auto"}) == {"thinking.mode": "auto", "effort": "high"}
    assert merged(manual, {"effort": "low"}) == manual | {"effort": "low"}
    assert merged({}, manual) == manual


@pytest.mark.parametrize("spelling", ["auto", "Auto", " AUTO "])
async def test_auto_takes_the_choice_of_a_model_back(engine: Engine, spelling: str) -> None:
    """A-8: the service was asked for a model of that name."""
    answer, made = choose(engine, PLAIN, "model", spelling, connection={"model": "claude-opus-4-6"}, session=None)
    assert merged({"model": "claude-opus-4-6"}, made) == {}
    assert (answer["value"], answer["effective"]) == ("auto", default_model("anthropic"))
    assert answer["choices"][0] == "auto"


async def test_auto_as_a_model_is_the_providers_default(engine: Engine) -> None:
    """A-8: in the settings and for one turn, over a model that a weaker source names."""
    editor = PLAIN.updated({"model": "Auto"})[0]
    settings = engine.resolved(editor, ("choice", {})).settings
    assert engine.target(settings)[1].id == default_model("anthropic")
    turn = await engine.begin(spec(model="auto"), PLAIN, {"model": "claude-opus-4-6"})
    assert turn.config.model.id == default_model("anthropic")
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
    """A-15: `ultra` is told back under its own name and sends effort max; what is chosen later counts."""
    model: Choices = {"model": "claude-opus-4-6"}
    session = await engine.store.update((await engine.session(None, "w")).id, lambda now: now.with_choices(chosen))
    told, _ = choose(engine, PLAIN, "thinking", None, connection=connection | model, session=session)
    turn = await engine.begin(spec(session_id=session.id, **command), PLAIN, connection | model)
    thinking = turn.config.thinking
    turn.release()
    assert (told["value"], thinking.effort) == expected
    assert thinking.form == ("off" if command.get("thinking") == "off" else "adaptive")


def test_choices_of_ultra_and_effort_replace_each_other() -> None:
    assert merged({"effort": "low"}, {"thinking.mode": "ultra"}) == {"thinking.mode": "ultra"}
    assert merged({"thinking.mode": "ultra"}, {"effort": "low"}) == {"thinking.mode": "auto", "effort": "low"}


async def test_ultra_as_a_setting(engine: Engine) -> None:
    """A-15: an editor that sends all its settings sends `effort: auto` beside it."""
    editor = PLAIN.updated({"thinking": {"mode": "ultra"}, "effort": "auto", "model": "claude-opus-4-6"})[0]
    told, _ = choose(engine, editor, "thinking", None, connection={}, session=None)
    turn = await engine.begin(spec(), editor, {})
    assert (told["value"], turn.config.thinking.form, turn.config.thinking.effort) == ("ultra", "adaptive", "max")
    turn.release()


async def test_an_own_action_has_its_own_thinking(engine: Engine) -> None:
    """A-15."""
    own = ActionSection.model_validate({"name": "own", "title": "Own", "prompt": "Go.", "thinking": "off"})
    task = ActionTask("own", Reference("untitled:a.py", (1, 1)), own=own)
    turn = await engine.begin(spec(task=task), PLAIN, {"model": "claude-opus-4-6"})
    assert turn.config.thinking.form == "off"
    turn.release()


async def test_the_models_are_described(engine: Engine) -> None:
    """Contract §5: what a client can tell people before they choose."""
    answer, _ = choose(engine, PLAIN, "model", None, connection={}, session=None)
    by_id = {each["id"]: each for each in answer["models"]}
    assert set(answer["choices"]) - {"auto"} <= set(by_id)
    found = by_id["claude-opus-4-6"]
    assert set(found) == {"id", "provider", "title", "hasKey", "window", "price"}
    assert (found["provider"], found["hasKey"], found["price"]["output"] > 1) == ("anthropic", True, True)
    assert {each["hasKey"] for each in answer["models"] if each["provider"] == "google"} == {False}


async def test_the_status_is_what_the_next_turn_would_use(engine: Engine) -> None:
    found = status(engine, PLAIN, {"effort": "max"}, {"model": "claude-opus-4-6", "effort": "low"})
    assert found == Status("claude-opus-4-6", "low", "adaptive")
    manual: Choices = {"model": "claude-opus-4-6", "thinking.mode": "manual", "thinking.budgetTokens": 5000}
    found = status(engine, PLAIN, {}, manual)
    assert found is not None
    assert found.thinking == "manual 5000"
    empty = Engine(NO_FILE)
    assert status(empty, PLAIN, {}, {}) is None
    await empty.aclose()


async def test_a_claim_keeps_turns_out_and_lets_its_own_in(engine: Engine) -> None:
    session = await engine.session(None, "w")
    free = engine.claim(session.id, "work")
    with pytest.raises(SessionError, match="busy"):
        await engine.begin(spec(session_id=session.id), PLAIN, {})
    with pytest.raises(SessionError, match="busy"):
        engine.claim(session.id, "other")
    turn = await engine.begin(spec(session_id=session.id), PLAIN, {}, turn_id="work")
    assert turn.id == "work"
    turn.release()
    free()
    engine.claim(session.id, "other")()


async def test_diagnostics_stand_between_prompt_and_excerpts(engine: Engine) -> None:
    task = ChatTask("Why?", (Reference(A, (1, 1)),), diagnosed=Diagnosed("a.py", (Problem(3, "error", "bad"),)))
    turn = await engine.begin(spec(task=task), PLAIN, {})
    play(turn)
    await run(turn)
    stored = await engine.store.get(turn.session.id, "w")
    [block] = stored.conversation[0].blocks
    assert isinstance(block, TextBlock)
    assert block.text.startswith(
        "Why?\n\nDiagnostics of a.py:\n- line 3: error: bad\n\nuntitled:a.py, lines 1-1 of 500"
    )


async def test_the_report_says_what_would_be_used_and_never_the_key(engine: Engine) -> None:
    found = await report(engine, PLAIN, {"effort": "high"}, probe=False)
    assert found["model"]["provider"] == "anthropic"
    assert "ANTHROPIC_API_KEY" in found["model"]["keySource"]
    assert KEY not in str(found)
    assert found["settings"]["sources"] == {"effort": "choice"}
    empty = Engine(NO_FILE)
    without = await report(empty, PLAIN, {}, probe=False)
    assert without["model"] is None
    assert any("ANTHROPIC_API_KEY" in problem for problem in without["problems"])
    await empty.aclose()


async def test_conversations_that_are_not_used_any_more_do_not_stay_in_memory(engine: Engine) -> None:
    """A-31: what is known of a session's size held its whole conversation, for as long as the process lived."""

    def asked() -> set[str]:
        texts = (one.text for one in gc.get_objects() if isinstance(one, TextBlock))
        return {text for text in texts if text.startswith("Question ")}

    for number in range(50):
        turn = await engine.begin(spec(f"Question {number}"), PLAIN, {})
        play(turn, says(thinking(), "Yes.", usage=Usage(input_tokens=5_000, output_tokens=5)))
        await run(turn)
        del turn
    assert "Question 49" in asked()
    assert len(asked()) < 25
    last = await engine.session("last", "w")
    meter = engine.meter(last.id)
    assert engine.meter(last.id) is meter
    engine.forget(last.id)
    assert engine.meter(last.id) is not meter
