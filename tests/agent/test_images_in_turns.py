"""Images in a turn: what a compaction keeps of them, how many tokens they count, and models that cannot see them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.agent.test_compaction import FREE, HUGE, made
from tests.support.images import image, png
from tests.support.scripted_model import SCRIPTED, check_sendable, text, tool
from thinklsp.agent.budget import ContextMeter, measure_messages
from thinklsp.agent.summary import extract_prompt, format_transcript, split_turns
from thinklsp.core.images import list_images, parse_image
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    TextBlock,
    ToolResultBlock,
    UserMessage,
    UserPrompt,
)
from thinklsp.core.usage import Usage
from thinklsp.providers.base import ModelRequest, Thinking

SHOT, CAT = image(), image("image/gif", "cat.gif")


def asked(words: str, *images: object) -> UserMessage:
    return UserMessage((*images, TextBlock(words, prompt=UserPrompt(words, words))))  # type: ignore[arg-type]  # images


def answered(words: str) -> AssistantMessage:
    return AssistantMessage((text(words),))


def request_of(conversation: Conversation) -> ModelRequest:
    return ModelRequest(SCRIPTED, "", (), conversation, Thinking(), None)


def test_a_prompt_with_images_begins_a_turn() -> None:
    conversation = (asked("Look.", SHOT), answered("I see."), asked("And?"), answered("No."))
    assert [len(turn) for turn in split_turns(conversation)] == [2, 2]
    assert [block.text for block in extract_prompt(conversation[0])] == ["Look."]


def test_images_of_tools_precede_the_results() -> None:
    result, prompt = ToolResultBlock("c", "Here."), TextBlock("And this?", prompt=UserPrompt("And this?"))
    assert UserMessage((SHOT, result, CAT, prompt)).result_images == (SHOT,)
    assert UserMessage((result, CAT, prompt)).result_images == ()
    assert asked("Look.", SHOT).result_images == ()


def test_summaries_read_a_description() -> None:
    transcript = format_transcript((asked("Look.", SHOT), answered("I see.")), 10_000)
    assert transcript.startswith("USER: [image: shot.png (PNG, 2 × 3 pixels")
    assert "\n\nUSER: Look.\n\nASSISTANT: I see." in transcript


def test_kept_turns_keep_their_images_and_earlier_ones_go() -> None:
    conversation = (asked("Old.", SHOT), answered("Seen."), asked("New.", CAT), answered("Seen."))
    plan = made(conversation, model=FREE, room=replace(HUGE, tail=measure_messages(conversation[2:])))
    assert list_images(plan.build_conversation("summary")) == (CAT,)


@pytest.mark.parametrize("joined", [False, True])
def test_the_running_turn_keeps_the_images_of_its_prompts(*, joined: bool) -> None:
    """Its steps are summarized, because its thinking depends on them."""
    result = ToolResultBlock("a", "text")
    later = UserMessage((result, *asked("Also.", CAT).blocks)) if joined else UserMessage((result,))
    call = AssistantMessage((text("I read."), tool("a", "read_file")))
    conversation = (asked("Old."), answered("Yes."), asked("Look.", SHOT), call, later)
    plan = made(conversation, running=True)
    after = plan.build_conversation("summary")
    assert list_images(after) == ((SHOT, CAT) if joined else (SHOT,))
    assert after[1].blocks[-1].kind == "text"
    check_sendable(after)


def test_images_count_by_their_size_and_never_more_than_a_page() -> None:
    meter = ContextMeter()
    small, large = parse_image("s", png(), "image/png"), parse_image("l", png(8_000, 8_000), "image/png")
    plain = meter.count_tokens([asked("Look.")])
    assert 0 < meter.count_tokens([asked("Look.", small)]) - plain < 20
    assert 4_000 < meter.count_tokens([asked("Look.", large)]) - plain < 6_000


def test_images_do_not_spoil_the_estimate_of_text() -> None:
    """A provider that counts an image with few tokens is no reason to believe that text has few."""
    meter = ContextMeter()
    large = parse_image("l", png(8_000, 8_000), "image/png")
    conversation = (asked("word " * 2_000, *[large] * 9),)
    before = meter.convert_to_tokens(30_000)
    meter.record_usage(request_of(conversation), Usage(5_000, 10))
    assert meter.convert_to_tokens(30_000) == before
    later = (*conversation, answered("Yes."), asked("More."))
    assert meter.estimate_tokens(request_of(later)) < 5_100
