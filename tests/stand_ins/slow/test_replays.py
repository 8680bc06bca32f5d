"""What only its issuer may read comes back unmodified, in order and complete, or is refused."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.stand_ins.slow.talk import Talk
from thinklsp.settings.model import Provider

Items = list[Any]
Change = Callable[[Items], object]


def bend(index: int, key: str, place: int = 100) -> Change:
    """Change one letter."""

    def change(items: Items) -> None:
        text = items[index][key]
        items[index][key] = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]

    return change


def update(index: int, **values: Any) -> Change:
    return lambda items: items[index].update(values)


def keep(*indexes: int, count: int) -> Change:
    """Put the first `count` items in this order, which may repeat or leave out some."""
    return lambda items: items.__setitem__(slice(count), [dict(items[index]) for index in indexes])


def drop(*indexes: int) -> Change:
    return lambda items: items.__setitem__(slice(None), [each for n, each in enumerate(items) if n not in indexes])


def drop_thinking(items: Items) -> None:
    items[:] = [block for block in items if "thinking" not in block["type"]]


MODIFIED = "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified."
# Of the first answer: thinking, redacted thinking, text, and two calls.
MESSAGES: dict[str, tuple[Change, str]] = {
    "signature": (bend(0, "signature"), "Invalid `signature` in `thinking` block"),
    "signature, cut": (update(0, signature="Eq"), "Invalid `signature` in `thinking` block"),
    "data": (bend(1, "data"), "Invalid `data` in `redacted_thinking` block"),
    "text": (update(0, thinking="Else."), MODIFIED),
    "redacted dropped": (drop(1), MODIFIED),
    "first dropped": (drop(0), MODIFIED),
    "all dropped": (drop_thinking, MODIFIED),
    "swapped": (keep(1, 0, count=2), MODIFIED),
    "doubled": (keep(0, 0, 1, count=2), MODIFIED),
    "behind the calls": (lambda blocks: blocks.append(blocks.pop(0)), MODIFIED),
}


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("model", ["claude-opus-4-8", "claude-opus-5-5"])
def test_changed_thinking_is_refused(name: str, model: str) -> None:
    change, words = MESSAGES[name]
    talk = Talk("anthropic", model)
    body = talk.in_loop()
    assert talk.good(body)["stop_reason"] == "end_turn"
    assert "Invalid `signature`" in Talk("anthropic", model).refused(body), "another process has other signatures"
    change(body["messages"][1]["content"])
    refusal = talk.refused(body)
    assert words in refusal or (model == "claude-opus-5-5" and "bound to a different conversation" in refusal)


# Changes of a request in a tool loop, and whether thinking that is bound to its prefix survives them.
PREFIXES: dict[str, tuple[Callable[[Any], object], bool]] = {
    "same": (lambda body: None, True),
    "effort": (lambda body: body.update(output_config={"effort": "low"}), True),
    "mark": (lambda body: body["tools"][-1].pop("cache_control"), True),
    "block as text": (lambda body: body["messages"][0].update(content="loop"), True),
    "system": (lambda body: body["system"][0].update(text="You help. Today is Friday."), False),
    "tools": (lambda body: body["tools"].reverse(), False),
    "prompt": (lambda body: body["messages"][0].update(content="loop, please"), False),
    "result": (lambda body: body["messages"][2]["content"][0].update(content="another"), False),
}


@pytest.mark.parametrize("name", PREFIXES)
def test_bound_thinking_wants_the_same_prefix(name: str) -> None:
    change, survives = PREFIXES[name]
    talk = Talk("anthropic")
    body = talk.in_loop()
    change(body)
    if survives:
        talk.good(body)
        return
    assert "The block is bound to a different conversation." in talk.refused(body)
    beta = {"anthropic_beta": "thinking-binding-controls-2026-08-01"}
    binding = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    dropped = talk.good({**body, "thinking": binding}, **beta)["input_transformations"]
    assert {entry["reason"] for entry in dropped} == {"prefix_binding_mismatch"}
    for message in body["messages"][1::2]:
        drop_thinking(message["content"])
    talk.good(body)


def test_budget_wants_thinking_at_the_start_of_the_loop() -> None:
    talk = Talk("anthropic", "claude-sonnet-4-5")
    body = talk.in_loop()
    drop_thinking(body["messages"][1]["content"])
    assert "cannot be modified" in talk.refused(body)


@pytest.mark.parametrize("provider", ["anthropic", "google"])
def test_paused_answer_goes_on(provider: Provider) -> None:
    talk = Talk(provider)
    talk.say("pause")
    body = talk.go_on()
    talk.good(body)
    assert "Found." in str(talk.go_on())
    if provider == "google":
        body["contents"][0]["parts"][0]["text"] = "pause, please"
        assert "another request" in talk.refused(body)


NOT_READABLE = "could not be verified. Reason: Encrypted content could not be decrypted or parsed."
NOT_FOLLOWED, NOT_REASONED = "without its required following item", "without its required 'reasoning' item"
# Of the request: the system prompt, the prompt, three reasoning items, a message, two calls and their outputs.
FIRST, SECOND, _THIRD, SAID, CALL = range(2, 7)
RESPONSES: dict[str, tuple[Change, str]] = {
    "content": (bend(FIRST, "encrypted_content"), NOT_READABLE),
    "content, last letter": (bend(SECOND, "encrypted_content", -1), NOT_READABLE),
    "summary": (update(FIRST, summary=[]), NOT_READABLE),
    "id": (update(FIRST, id="rs_made_up"), "item_id did not match the target item id"),
    "first dropped": (drop(FIRST), NOT_REASONED),
    "second dropped": (drop(SECOND), NOT_FOLLOWED),
    "both dropped": (drop(FIRST, SECOND), NOT_REASONED),
    "message dropped": (drop(SAID), NOT_FOLLOWED),
    "swapped": (keep(0, 1, SECOND, FIRST, count=4), NOT_REASONED),
    "prompt between": (lambda items: items.insert(SECOND, dict(items[1])), NOT_FOLLOWED),
    "made up message": (update(SAID, id="msg_made_up"), NOT_FOLLOWED),
    "made up call": (update(CALL, id="fc_made_up"), "Item with id 'fc_made_up' not found."),
    "doubled": (lambda items: items.insert(FIRST, dict(items[FIRST])), "Duplicate item found"),
    "output dropped": (drop(8), "No tool output found for function call"),
}


@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("model", ["gpt-6-sol", "gpt-5.6-sol", "gpt-6.2-sol"])
def test_changed_reasoning_is_refused(name: str, model: str) -> None:
    change, words = RESPONSES[name]
    talk = Talk("openai", model)
    body = talk.in_loop()
    assert talk.good(body)["output"][-1]["content"][0]["text"] == "Done with result 1."
    assert "could not be verified" in Talk("openai", model).refused(body), "another process has other keys"
    if model != "gpt-6.2-sol":
        assert "organization_id did not match" in talk.refused(body, key="another")
    change(body["input"])
    assert words in talk.refused(body)


# Changes of a request in a tool loop, and how many of its four reasoning items still fit where they are bound.
BOUND: dict[str, tuple[Callable[[Any], object], int]] = {
    "same": (lambda body: None, 4),
    "effort": (lambda body: body.update(reasoning={"effort": "low"}), 4),
    "tools": (lambda body: body["tools"].reverse(), 0),
    "prompt": (lambda body: body["input"][1].update(content="loop, please"), 0),
    "output": (lambda body: body["input"][8].update(output="another"), 3),
    "model": (lambda body: body.update(model="gpt-6.2-luna"), 0),
}


@pytest.mark.parametrize("name", BOUND)
def test_bound_reasoning_that_no_longer_fits_is_dropped(name: str) -> None:
    change, kept = BOUND[name]
    talk = Talk("openai", "gpt-6.2-sol")
    body = talk.in_loop()
    ids = [item["id"] for item in body["input"] if item["type"] == "reasoning"]
    change(body)
    assert [entry["id"] for entry in talk.good(body)["input_transformations"]] == ids[kept:]


def test_note_of_a_compaction_replaces_what_is_before_it() -> None:
    talk = Talk("openai")
    talk.request = replace(talk.request, compact_at=100)
    used = talk.good(talk.say("plain " * 4000))["usage"]["input_tokens"]
    talk.go_on()
    again = talk.say("plain")
    assert talk.good(again)["usage"]["input_tokens"] < used
    [place] = [place for place, item in enumerate(again["input"]) if item["type"] == "compaction"]
    bend(place, "encrypted_content")(again["input"])
    assert NOT_READABLE in talk.refused(again)


MUST = "The reasoning_content in the thinking mode must be passed back to the API"
ROUTED = ["anthropic/claude-opus-5.5", "google/gemini-4-argon", "openai/gpt-6-sol"]


def bend_last(details: Items) -> None:
    bend(-1, "signature" if "signature" in details[-1] else "data", 50)(details)


DETAILS: dict[str, Change] = {
    "swapped": lambda details: details.reverse(),
    "cut": lambda details: details.pop(),
    "beheaded": lambda details: details.pop(0),
    "edited": lambda details: details[0].update({"summary" if "summary" in details[0] else "text": "Else."}),
    "bent": bend_last,
    "doubled": lambda details: details.extend([*details]),
}


@pytest.mark.parametrize("name", DETAILS)
@pytest.mark.parametrize("model", ROUTED)
def test_changed_details_are_refused(name: str, model: str) -> None:
    talk = Talk("openai-compatible", model)
    body = talk.in_loop(1)
    talk.good(body)
    assert "Provider returned error" in talk.refused(body, key="another")
    DETAILS[name](body["messages"][2]["reasoning_details"])
    assert "Provider returned error" in talk.refused(body)


def test_deepseek_wants_its_reasoning_back_in_the_current_turn() -> None:
    talk = Talk("openai-compatible", "deepseek-reasoner")
    body = talk.in_loop(1)
    answer = body["messages"][2]
    answer.pop("reasoning_content")
    assert talk.refused(body) == MUST
    answer["reasoning_content"] = "Else."
    assert talk.refused(body) == MUST
    talk.go_on()
    talk.go_on()
    body = talk.say("plain")
    body["messages"][2].pop("reasoning_content")
    talk.good(body)


def test_strict_gateway_refuses_any_echo() -> None:
    talk = Talk("openai-compatible", "strict-1")
    body = talk.in_loop(1)
    talk.good(body)
    body["messages"][2]["reasoning_content"] = "First I think."
    assert "Extra inputs are not permitted" in talk.refused(body)


MISSING = "Function call is missing a thought_signature in functionCall parts."
DUMMY = "skip_thought_signature_validator"
CORRUPTED, MISPLACED = "Corrupted thought signature.", "Invalid thought signature."


def find_calls(parts: Items) -> Items:
    return [part for part in parts if "functionCall" in part]


def sign(change: Callable[[str], str]) -> Change:
    """Change the signature of the first call, which alone has one."""
    return lambda parts: find_calls(parts)[0].update(thoughtSignature=change(find_calls(parts)[0]["thoughtSignature"]))


def encode_urlsafe(signature: str) -> str:
    return base64.urlsafe_b64encode(base64.b64decode(signature)).decode().rstrip("=")


# Changes of the first answer, and the refusal; None: there is none.
CONTENTS: dict[str, tuple[Change, str | None]] = {
    "url-safe": (sign(encode_urlsafe), None),
    "dummy": (sign(lambda _: DUMMY), None),
    "no signature": (lambda parts: find_calls(parts)[0].pop("thoughtSignature"), MISSING),
    "letter": (sign(lambda text: text[:60] + ("A" if text[60] != "A" else "B") + text[61:]), CORRUPTED),
    "cut": (sign(lambda text: text[:-4]), CORRUPTED),
    "foreign": (sign(lambda _: base64.b64encode(b"made by somebody else").decode()), CORRUPTED),
    "arguments": (lambda parts: find_calls(parts)[0]["functionCall"]["args"].update(path="b"), MISPLACED),
    "text": (lambda parts: parts.insert(-2, {"text": "Hm."}), MISPLACED),
    "text behind": (lambda parts: parts.append({"text": "That is all."}), MISPLACED),
    "dummy on the second": (lambda parts: find_calls(parts)[1].update(thoughtSignature=DUMMY), MISPLACED),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_changed_signature_is_refused(name: str) -> None:
    change, words = CONTENTS[name]
    talk = Talk("google")
    body = talk.in_loop()
    assert talk.refused(body, key="another") == CORRUPTED
    assert Talk("google").refused(body) == CORRUPTED
    change(body["contents"][1]["parts"])
    if words is None:
        talk.good(body)
    else:
        assert words in talk.refused(body)
