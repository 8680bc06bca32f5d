"""What goes back to generateContent: own parts as they came, foreign ones rebuilt, in a shape that it takes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.google_cases import ENDPOINT, cases, expected, run, stream
from tests.support.google_requests import (
    BUDGET,
    LEVELS,
    PLAIN,
    UNKNOWN,
    asked,
    call,
    loop,
    paused,
    result,
    said,
    sealed,
    signature_alone,
    text,
    thought,
)
from tests.support.google_wire import (
    ADAPTER,
    DUMMY,
    Json,
    answered,
    body_of,
    broken_rules,
    called,
    contents_of,
    model,
    user,
)
from thinklsp.core.calls import with_unique_calls
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    OpaqueBlock,
    RedactedThinkingBlock,
    ServerToolBlock,
    TextBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.providers.model_info import ModelInfo

FOREIGN = [{"model": "gemini-4-argon"}, {"host": "https://other.example"}, {"key": "0" * 16}, {"provider": "openai"}]
EMPTY, GO_ON = {"text": "(no text)"}, {"text": "Go on where you stopped."}


@pytest.mark.parametrize("case", [case for case in cases(failing=False) if expected(case)["blocks"]])
def test_recorded_answers_survive_the_round_trip(case: str) -> None:
    answer, _, _ = run(stream(case))
    answer = with_unique_calls(answer, ())
    results = asked(*(result(call.id) for call in answer.tool_uses))
    sent = contents_of((UserMessage.of("x"), answer, results, UserMessage.of("y")))[1]["parts"]
    wanted = [
        part
        for part in expected(case)["blocks"]
        if part.get("type") != "continuation" and (part.get("thoughtSignature") or not part.get("thought"))
    ]
    assert sent == wanted


@pytest.mark.parametrize("origin", FOREIGN, ids=lambda origin: next(iter(origin)))
def test_foreign_state_is_dropped_whole_and_words_and_calls_are_kept(origin: dict[str, str]) -> None:
    conversation = loop(**origin)
    sent = bytes(ADAPTER.encode(replace(PLAIN, conversation=conversation), ENDPOINT).body).decode()
    for secret in ("Sig1", "Sig2", "Sig3", "Hm.", "So."):
        assert secret not in sent
    contents = contents_of(conversation)
    assert contents[1] == model({"text": "Looking."}, called("k1", DUMMY))
    assert contents[3] == model(called("k2", DUMMY), called("k3"))


def test_blocks_without_words_of_ours_stay_with_their_issuer() -> None:
    blocks = [
        signature_alone("S", model="m"),
        ServerToolBlock("web_search", sealed({"type": "server_tool_use"}, provider="anthropic")),
        RedactedThinkingBlock(sealed({"type": "redacted_thinking", "data": "Rd"}, provider="anthropic")),
        OpaqueBlock("executableCode", sealed({"executableCode": {"code": "x"}}, host="https://other.example")),
        paused("T", key="0" * 16),
        TextBlock("  "),
    ]
    assert contents_of((UserMessage.of("a"), said(*blocks), UserMessage.of("b"))) == [
        user({"text": "a"}, {"text": "b"}),
    ]


ONE = (UserMessage.of("a"), said(call("k1", "S")), asked(result("k1")))
SHAPES: dict[str, tuple[Conversation, list[Json]]] = {
    "same roles are merged": (
        (UserMessage.of("a"), UserMessage.of("b"), said(text("c")), said(text("d", "S")), UserMessage.of("e")),
        [
            user({"text": "a"}, {"text": "b"}),
            model({"text": "c"}, {"text": "d", "thoughtSignature": "S"}),
            user({"text": "e"}),
        ],
    ),
    "answers in the order of the calls, words after them": (
        (
            UserMessage.of("a"),
            said(call("k1", "S"), call("k2"), call("k3")),
            asked(TextBlock("note"), result("k3", "3"), result("k1", "1")),
            asked(result("k2", "2")),
        ),
        [
            user({"text": "a"}),
            model(called("k1", "S"), called("k2"), called("k3")),
            user(answered("k1", "1"), answered("k2", "2"), answered("k3", "3")),
            user({"text": "note"}),
        ],
    ),
    "no id where none was given, the service's own where it differs": (
        (
            UserMessage.of("a"),
            said(call("call-1", "S", wire_id=None), call("call-2", wire_id=None), call("x-2", wire_id="x")),
            asked(result("call-2", "2"), result("call-1", "1"), result("x-2", "3")),
        ),
        [
            user({"text": "a"}),
            model(called(None, "S"), called(None), called("x")),
            user(answered(None, "1"), answered(None, "2"), answered("x", "3")),
        ],
    ),
    "our name for foreign calls on both sides": (
        (UserMessage.of("a"), said(call("t|é", wire_id="x", provider="openai")), asked(result("t|é"))),
        [user({"text": "a"}), model(called("t|é", DUMMY)), user(answered("t|é"))],
    ),
    "foreign names are made fit on both sides": (
        (UserMessage.of("a"), said(ToolUseBlock("t", "read file!" * 9, None)), asked(result("t", ""))),
        [
            user({"text": "a"}),
            model(
                {
                    "functionCall": {"id": "t", "name": ("read_file_" * 9)[:64], "args": {}},
                    "thoughtSignature": DUMMY,
                }
            ),
            user(answered("t", "", ("read_file_" * 9)[:64])),
        ],
    ),
    "an answer to nothing stays away": (
        (UserMessage.of("a"), said(text("b")), asked(result("gone"), TextBlock("c"))),
        [user({"text": "a"}), model({"text": "b"}), user({"text": "c"})],
    ),
    "nothing is empty": (
        (asked(TextBlock(""), TextBlock(" \n")), said(thought("x"), text("")), asked(), said(text("b")), asked()),
        [user(EMPTY), model({"text": "b"}), user(EMPTY)],
    ),
    "nothing at all": ((), [user(EMPTY)]),
    "the user has the first and the last word": (
        (said(text("a")), said(TextBlock("b"))),
        [user(EMPTY), model({"text": "a"}, {"text": "b"}), user(GO_ON)],
    ),
    "earlier turns get no stand-in, the running one does": (
        (
            UserMessage.of("a"),
            said(call("k1", model="m")),
            asked(result("k1")),
            said(text("b")),
            UserMessage.of("c"),
            said(text("d"), call("k2", model="m"), call("k3", model="m")),
            asked(result("k2"), result("k3")),
            said(call("k4", "S")),
            asked(result("k4")),
            said(call("k5"), call("k6", "S6")),
            asked(result("k5"), result("k6")),
        ),
        [
            user({"text": "a"}),
            model(called("k1")),
            user(answered("k1")),
            model({"text": "b"}),
            user({"text": "c"}),
            model({"text": "d"}, called("k2", DUMMY), called("k3")),
            user(answered("k2"), answered("k3")),
            model(called("k4", "S")),
            user(answered("k4")),
            model(called("k5", DUMMY), called("k6", "S6")),
            user(answered("k5"), answered("k6")),
        ],
    ),
    "words beside the answers begin a turn": (
        (
            UserMessage.of("a"),
            said(call("k1")),
            asked(result("k1"), TextBlock("quick")),
            said(call("k2")),
            asked(result("k2")),
        ),
        [
            user({"text": "a"}),
            model(called("k1")),
            user(answered("k1")),
            user({"text": "quick"}),
            model(called("k2", DUMMY)),
            user(answered("k2")),
        ],
    ),
    "signatures of their own go back where they stood": (
        (*ONE, said(text("x"), signature_alone("S2"), thought("y", "S3"), thought("z")), UserMessage.of("b")),
        [
            user({"text": "a"}),
            model(called("k1", "S")),
            user(answered("k1")),
            model(
                {"text": "x"},
                {"text": "", "thoughtSignature": "S2"},
                {"text": "y", "thought": True, "thoughtSignature": "S3"},
            ),
            user({"text": "b"}),
        ],
    ),
    "pieces of a paused answer are one content": (
        (
            UserMessage.of("a"),
            said(text("b"), paused("T1")),
            said(text("c", "S"), paused("T2")),
            said(text("d")),
            UserMessage.of("e"),
        ),
        [
            user({"text": "a"}),
            model({"text": "b"}, {"text": "c", "thoughtSignature": "S"}, {"text": "d"}),
            user({"text": "e"}),
        ],
    ),
    "calls of a paused answer are answered like any": (
        (
            UserMessage.of("a"),
            said(text("b"), paused("T1")),
            said(call("k1", "S"), paused("T2")),
            asked(result("k1")),
        ),
        [user({"text": "a"}), model({"text": "b"}, called("k1", "S")), user(answered("k1"))],
    ),
    "a pause of somebody else is gone on from in words": (
        (UserMessage.of("a"), said(text("b"), paused("T", model="m"))),
        [user({"text": "a"}), model({"text": "b"}), user(GO_ON)],
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_contents(name: str) -> None:
    conversation, wire = SHAPES[name]
    assert contents_of(conversation) == wire
    assert broken_rules(wire, signed_calls=True) == []


@pytest.mark.parametrize(
    ("info", "demanded"), [(LEVELS, True), (UNKNOWN, True), (replace(UNKNOWN, efforts=()), True), (BUDGET, False)]
)
def test_models_before_the_levels_get_no_stand_in(info: ModelInfo, demanded: bool) -> None:
    sent = contents_of(loop(provider="openai"), model=info)
    assert json.dumps(sent).count(DUMMY) == (2 if demanded else 0)
    assert broken_rules(sent, signed_calls=demanded) == []


@pytest.mark.parametrize("tokens", [("T1",), ("T1", "T2"), ("T1", "T2", "T3")])
def test_a_paused_answer_is_the_same_request_with_its_newest_token(tokens: tuple[str, ...]) -> None:
    before = replace(PLAIN, conversation=(*loop(), UserMessage.of("b")))
    pieces = tuple(said(text(f"part {token}", "S"), paused(token)) for token in tokens)
    body = body_of(replace(before, conversation=(*before.conversation, *pieces)))
    assert body.pop("continuationToken") == tokens[-1]
    assert body == body_of(before)


def test_words_without_a_signature_go_back_only_as_words() -> None:
    """Neutral blocks, as after everything sealed was stripped."""
    bare = tuple(
        replace(
            message,
            blocks=tuple(
                replace(block, raw=None) for block in message.blocks if isinstance(block, TextBlock | ToolUseBlock)
            ),
        )
        if isinstance(message, AssistantMessage)
        else message
        for message in loop()
    )
    sent = contents_of(bare)
    assert sent == contents_of(loop(model="other"))
    assert broken_rules(sent, signed_calls=True) == []
