"""A conversation outgrows a small window again and again: never refused, its cost bounded, its goal kept."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted_model import check_sendable, run_to_end
from tests.support.services import WAYS, Service
from thinklsp.agent.budget import measure_messages
from thinklsp.agent.summary import is_summary_message
from thinklsp.core.events import ContextCompacted, TurnEvent
from thinklsp.core.messages import AssistantMessage, Conversation, ThinkingBlock, find_compaction_origin
from thinklsp.engine import ChatRequest, Engine
from thinklsp.offline.scenario import Scenario
from thinklsp.providers.anthropic import AnthropicAdapter
from thinklsp.providers.base import Endpoint, ModelRequest, Thinking
from thinklsp.providers.catalogue import find_model
from thinklsp.settings.sources import EditorSettings
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

GOAL = "Rewrite “parse” so that 1 < 2 & nothing else changes."
DECISIONS = ("Kept the old name: callers know it.", "The cache stays out.")
_DOCUMENT = "untitled:long.py"


@dataclass
class Long:
    """What came of it. `inputs`: tokens that each turn has read, all its calls together. `size`: bytes ever said."""

    inputs: list[int] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    compactions: list[ContextCompacted] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    thoughts: list[bool] = field(default_factory=list)
    largest: int = 0
    size: int = 0
    choices: dict[str, Any] = field(default_factory=dict)
    conversation: Conversation = ()


async def hold(
    folder: Path,
    way: str,
    turns: int,
    *,
    window: int,
    words: int,
    settings: dict[str, Any] | None = None,
    reads: int = 1,
) -> Long:
    """`turns` turns with `way`; each reads a document, in `reads` steps, and answers, `words` bytes in all.

    Raises AssertionError where a conversation could not be stored or sent."""
    long, chosen = Long(), WAYS[way]
    choices = {"provider": chosen.provider, "model": chosen.model, "thinking.display": "summary", **(settings or {})}
    config = folder / "config.toml"
    config.write_text(f'[models.{chosen.provider}."{chosen.model}"]\ncontext_window = {window}\n')
    config.chmod(0o600)
    async with Service(_scenario(window, words, reads)) as service:
        engine = Engine(chosen.environment(service.url) | {"THINKLSP_CONFIG": str(config)})
        try:
            session_id: str | None = None
            for number in range(turns):
                session_id = await _turn(engine, choices, session_id, number, words, long)
        finally:
            await engine.aclose()
        # That a compatible server does not know how to be asked for no thinking is learned by asking.
        bodies = [request.body for request in service.requests if request.status != 200]
        long.refused = [str(body)[-500:] for body in bodies if body.get("reasoning_effort") != "none"]
    return long


async def _turn(
    engine: Engine, choices: dict[str, Any], session_id: str | None, number: int, words: int, long: Long
) -> str:
    # Every turn finds another document, so that each reading is new.
    view = WorkspaceView((), [DocumentSnapshot(_DOCUMENT, 1, _lines(number, words // 2))])
    prompt = GOAL if number == 0 else f"Now look at part {number}."
    request = ChatRequest(prompt=prompt, view=view, workspace="w", session_id=session_id)
    turn = await engine.start_turn(request, EditorSettings(), choices)

    def show(event: TurnEvent) -> None:
        if isinstance(event, ContextCompacted):
            _check(event, long)

    long.outcomes.append((await run_to_end(turn, show)).stop_reason)
    session = await engine.store.get(turn.session.id, "w")
    check_sendable(session.add_user_message("More.").conversation)
    long.inputs.append(turn.usage.total.input_tokens or 0)
    answers = [message for message in session.conversation if isinstance(message, AssistantMessage)]
    long.thoughts.append(any(isinstance(block, ThinkingBlock) for message in answers[-1:] for block in message.blocks))
    long.size += words
    long.largest = max(long.largest, measure_messages(session.conversation))
    long.choices, long.conversation = dict(session.choices), session.conversation
    return session.id


def _check(event: ContextCompacted, long: Long) -> None:
    long.compactions.append(event)
    assert is_summary_message(event.after[0])
    summary = event.after[0].blocks[0].text  # type: ignore[union-attr]  # That is what makes it a summary.
    assert f"<goal>\n{GOAL}\n</goal>" in summary
    assert "\n".join(f"- {decision}" for decision in DECISIONS) in summary


def _lines(number: int, size: int) -> str:
    line = f"value_{number} = compute(first, second, third)  # a line of the document\n"
    return line * max(1, size // (len(line) + 6))


def _scenario(window: int, words: int, reads: int) -> Scenario:
    first = {"block": [{"text": json.dumps({"decisions_done": DECISIONS, "next_action": "Go on."})}]}
    later = {"block": [{"text": json.dumps({"notes": "nothing of use", "goal": "another"})}]}
    calls = [{"tool": "read_file", "input": {"path": _DOCUMENT, "start_line": n + 1}} for n in range(reads)]
    read = [{"block": [{"thinking": "I read it."}, call]} for call in calls]
    answer = {"block": [{"thinking": "I have read it."}, {"text": "It is as it should be. " * (words // 46)}]}
    turns = [
        {"when": r"\A<transcript>", "step": [first]},
        {"when": r"\A<summary_so_far>", "step": [later]},
        {"when": r"Your steps so far were compacted", "step": [answer]},
        {"when": r"Rewrite|part \d+", "step": [*read, answer]},
    ]
    return Scenario.model_validate({"turn": turns, "context_window": window, "pacing": {"chunk_chars": 4_000}})


WINDOW = 20_000


@pytest.mark.parametrize("way", ["anthropic", "openai", "google", "deepseek"])
async def test_it_is_never_refused_and_costs_no_more_at_its_end(tmp_path: Path, way: str) -> None:
    long = await hold(tmp_path, way, 30, window=WINDOW, words=6_000)
    assert long.refused == []
    assert long.outcomes == ["end_turn"] * 30
    assert len(long.compactions) >= 2
    assert long.size > 2 * long.largest
    # Two calls, and a compaction at most; the simulator has seen that no call alone was larger than the window.
    assert max(long.inputs) <= 3 * WINDOW
    assert all(long.thoughts)
    assert "thinking.mode" not in long.choices


@pytest.mark.parametrize("way", ["anthropic", "openai", "google", "deepseek"])
async def test_one_turn_that_is_larger_than_the_window_ends_well(tmp_path: Path, way: str) -> None:
    long = await hold(tmp_path, way, 3, window=WINDOW, words=24_000, reads=10)
    assert long.refused == []
    assert long.outcomes == ["end_turn"] * 3
    folded = [event for event in long.compactions if "<note>Your steps" in str(event.after[1])]
    assert len(folded) >= 3
    # The results that no call has held stay, as text if the model binds its thinking.
    for event in folded:
        kept = "\n".join(getattr(block, "text", "") for block in event.after[-1].blocks)
        assert all(block.text in kept for block in event.before[-1].blocks)


async def test_provider_compaction_keeps_the_whole_session(tmp_path: Path) -> None:
    long = await hold(tmp_path, "openai", 30, window=WINDOW, words=6_000, settings={"compaction.by": "provider"})
    assert (long.refused, long.compactions) == ([], [])
    assert long.outcomes == ["end_turn"] * 30
    assert max(long.inputs) <= 3 * WINDOW
    notes = [message for message in long.conversation if find_compaction_origin(message) is not None]
    assert len(notes) >= 2
    # Another service is sent every word, and nothing of the notes.
    model = find_model("anthropic", "claude-opus-5-5")
    request = ModelRequest(model, "", (), long.conversation, Thinking(), None)
    body = AnthropicAdapter().encode(request, Endpoint("anthropic", "http://localhost", "k")).body.decode()
    assert GOAL in json.loads(body)["messages"][0]["content"][0]["text"]
    assert all(f"part {number}." in body for number in range(1, 30))
    assert not any(word in body for word in ("encrypted_content", "compaction", "cmp_"))
