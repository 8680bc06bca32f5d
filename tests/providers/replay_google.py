"""Conversations, and the contents that generateContent is sent for them."""

from __future__ import annotations

from tests.support.google_samples import (
    DUMMY,
    Json,
    answered,
    call,
    called,
    model,
    paused,
    signature_alone,
    text,
    thought,
    user,
)
from tests.support.samples import asked, result, said
from thinklsp.core.messages import Conversation, TextBlock, ToolUseBlock, UserMessage

A, B, C, E = (UserMessage.from_text(letter) for letter in "abce")
LONG_NAME = f"{('read_file_' * 9)[:47]}-f032e242734a2f7a"
ASK = user({"text": "a"})
EMPTY, GO_ON = {"text": "(no text)"}, {"text": "Continue where you left off."}
ONE = (A, said(call("k1", "S")), asked(result("k1")))
HISTORIES: dict[str, tuple[Conversation, list[Json]]] = {
    "same roles are merged": (
        (
            A,
            B,
            said(text("c")),
            said(text("d", "S")),
            E,
        ),
        [
            user({"text": "a"}, {"text": "b"}),
            model({"text": "c"}, {"text": "d", "thoughtSignature": "S"}),
            user({"text": "e"}),
        ],
    ),
    "answers in the order of the calls, words after them": (
        (
            A,
            said(call("k1", "S"), call("k2"), call("k3")),
            asked(TextBlock("note"), result("k3", "3"), result("k1", "1")),
            asked(result("k2", "2")),
        ),
        [
            ASK,
            model(called("k1", "S"), called("k2"), called("k3")),
            user(answered("k1", "1"), answered("k2", "2"), answered("k3", "3")),
            user({"text": "note"}),
        ],
    ),
    "no id where none was given, the service's own where it differs": (
        (
            A,
            said(call("call-1", "S", wire_id=None), call("call-2", wire_id=None), call("x-2", wire_id="x")),
            asked(result("call-2", "2"), result("call-1", "1"), result("x-2", "3")),
        ),
        [
            ASK,
            model(called(None, "S"), called(None), called("x")),
            user(answered(None, "1"), answered(None, "2"), answered("x", "3")),
        ],
    ),
    "our name for foreign calls on both sides": (
        (A, said(call("t|é", wire_id="x", provider="openai")), asked(result("t|é"))),
        [ASK, model(called("t|é", DUMMY)), user(answered("t|é"))],
    ),
    "foreign names are made fit on both sides": (
        (A, said(ToolUseBlock("t", "read file!" * 9, None)), asked(result("t", ""))),
        [
            ASK,
            model(
                {
                    "functionCall": {"id": "t", "name": LONG_NAME, "args": {}},
                    "thoughtSignature": DUMMY,
                }
            ),
            user(answered("t", "", LONG_NAME)),
        ],
    ),
    "an answer to nothing stays away": (
        (A, said(text("b")), asked(result("gone"), TextBlock("c"))),
        [ASK, model({"text": "b"}), user({"text": "c"})],
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
            A,
            said(call("k1", model="m")),
            asked(result("k1")),
            said(text("b")),
            C,
            said(text("d"), call("k2", model="m"), call("k3", model="m")),
            asked(result("k2"), result("k3")),
            said(call("k4", "S")),
            asked(result("k4")),
            said(call("k5"), call("k6", "S6")),
            asked(result("k5"), result("k6")),
        ),
        [
            ASK,
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
            A,
            said(call("k1")),
            asked(result("k1"), TextBlock("quick")),
            said(call("k2")),
            asked(result("k2")),
        ),
        [
            ASK,
            model(called("k1")),
            user(answered("k1")),
            user({"text": "quick"}),
            model(called("k2", DUMMY)),
            user(answered("k2")),
        ],
    ),
    "signatures of their own go back where they stood": (
        (*ONE, said(text("x"), signature_alone("S2"), thought("y", "S3"), thought("z")), B),
        [
            ASK,
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
            A,
            said(text("b"), paused("T1")),
            said(text("c", "S"), paused("T2")),
            said(text("d")),
            E,
        ),
        [
            ASK,
            model({"text": "b"}, {"text": "c", "thoughtSignature": "S"}, {"text": "d"}),
            user({"text": "e"}),
        ],
    ),
    "calls of a paused answer are answered like any": (
        (
            A,
            said(text("b"), paused("T1")),
            said(call("k1", "S"), paused("T2")),
            asked(result("k1")),
        ),
        [ASK, model({"text": "b"}, called("k1", "S")), user(answered("k1"))],
    ),
    "a pause of somebody else is gone on from in words": (
        (A, said(text("b"), paused("T", model="m"))),
        [ASK, model({"text": "b"}), user(GO_ON)],
    ),
}
