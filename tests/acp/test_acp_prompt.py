"""A prompt: what goes to the model, what the client sees of the turn, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acp.conftest import Begin
from tests.acp.fake_zed import FilePeer, NoFiles
from tests.acp.talk import SUMMARIES, Talk, refusal
from tests.e2e.acting import read_file, say
from tests.support.outside import MODEL, said
from tests.support.signing_server import Cut, Failure, Hold, Redacted, Text, Thinking, Tool, answer, tool

Json = Any
FILES = {"a.py": "x = 1\n", "b.py": "y = 2\n", ".env": "PASSWORD=hunter2-canary-value\n"}
LONG = "Zażółć 🙂👩‍👩‍👧 e\u0301 \u2028 " * 4_000


def link(uri: str, name: str = "a") -> Json:
    return {"type": "resource_link", "uri": uri, "name": name}


def embedded(uri: str, text: str) -> Json:
    return {"type": "resource", "resource": {"uri": uri, "text": text, "mimeType": "text/plain"}}


async def test_turn_with_thoughts_tools_and_text(begin: Begin) -> None:
    talk = await begin(
        answer(Thinking("I look."), Redacted(), Text("I read it."), read_file("a.py")),
        answer(Thinking("I see."), Text("It is 1.")),
        files=FILES,
        env=SUMMARIES,
    )
    assert await talk.prompt("What is x?") == "end_turn"
    assert talk.client.text(talk.session, "agent_thought_chunk") == "I look.I see."
    assert talk.text == "I read it.It is 1."
    order = [kind for kind in talk.kinds() if kind.endswith("_chunk") or kind == "tool_call"]
    runs = [kind for n, kind in enumerate(order) if n == 0 or order[n - 1] != kind]
    half = ["agent_thought_chunk", "agent_message_chunk"]
    assert runs == [*half, "tool_call", *half]
    ids = {update["messageId"] for update in talk.updates("agent_message_chunk")}
    assert len(ids) == 2
    [call] = talk.tools()
    assert call.members["kind"] == "read"
    assert call.members["locations"][0]["path"] == str(talk.root / "a.py")
    assert call.statuses == ["pending", "in_progress", "completed"]
    assert "user_message_chunk" not in talk.kinds()


async def test_interrupted_answer_is_marked(begin: Begin) -> None:
    """A client cannot take back the text that it has shown."""
    hold = Hold()
    talk = await begin(answer(Text("One, in"), hold, Cut()), say("Two."))
    running = talk.send("a")
    await talk.client.wait_for(lambda: talk.text == "One, in")
    hold.release()
    assert (await running)["stopReason"] == "end_turn"
    assert talk.text == "One, in\n\n*The answer was interrupted and starts again:*\n\nTwo."


async def test_long_ids_of_calls_are_shown_as_digests(begin: Begin) -> None:
    """LiteLLM puts the signature of a thought into the id."""
    signature = "Sig1" * 100
    call = Tool("read_file", {"path": "a.py"}, id=f"call_1__thought__{signature}")
    talk = await begin(answer(call), say("It is 1."), files=FILES)
    assert await talk.prompt("What is x?") == "end_turn"
    assert [shown.statuses for shown in talk.tools()] == [["pending", "in_progress", "completed"]]
    assert "Sig1" not in str(talk.updates())


@pytest.mark.parametrize("letters", [1, 7, 200_000])
async def test_text_arrives_whole(begin: Begin, letters: int) -> None:
    """The checker looks at the size of each chunk, and for halves of code points."""
    text = LONG[: 2_000 * letters]
    talk = await begin(answer(Text(text), letters=letters))
    assert await talk.prompt("Tell me.") == "end_turn"
    assert talk.text == text


async def test_usage_comes_after_every_model_call(begin: Begin) -> None:
    talk = await begin(answer(read_file("a.py")), say("1."), say("2."), files=FILES)
    await talk.prompt("a")
    assert len(talk.updates("usage_update")) == 2
    await talk.prompt("b")
    updates = talk.updates("usage_update")
    assert len(updates) == 3
    for update in updates:
        assert 0 < update["used"] <= update["size"]
        assert update["cost"]["currency"] == "USD"
    costs = [update["cost"]["amount"] for update in updates]
    assert 0 < costs[0] < costs[1] < costs[2]


async def test_the_meter_measures_the_longest_prompt(begin: Begin) -> None:
    talk = await begin(say("Hi."), own=f'[models.anthropic."{MODEL}"]\ninput_limit = 12_345\n')
    await talk.prompt("Hello.")
    assert [update["size"] for update in talk.updates("usage_update")] == [12_345]


async def test_title_comes_after_the_first_turn(begin: Begin) -> None:
    talk = await begin(say("Hi."))
    await talk.prompt("What is the answer?")
    await talk.client.wait_for(lambda: talk.updates("session_info_update"))
    assert talk.updates("session_info_update")[-1]["title"]


async def test_plan_is_whole_every_time(begin: Begin) -> None:
    steps = [{"text": "Read.", "status": "in_progress"}, {"text": "Write.", "status": "pending"}]
    later = [{"text": "Read.", "status": "completed"}, {"text": "Write.", "status": "in_progress"}]
    plans = [answer(tool("plan", entries=entries)) for entries in (steps, later)]
    talk = await begin(*plans, say("Done."))
    assert await talk.prompt("Plan it.") == "end_turn"
    told = [[(e["content"], e["status"]) for e in u["entries"]] for u in talk.updates("plan")]
    assert told == [[(entry["text"], entry["status"]) for entry in entries] for entries in (steps, later)]


async def test_reads_see_unsaved_text(begin: Begin) -> None:
    talk = await begin(answer(read_file("a.py")), say("7."), files=FILES)
    talk.peer.open("a.py", "x = 7\n")
    await talk.prompt("What is x?")
    assert "x = 7" in said(talk.provider.requests[1].body)
    assert {read["path"] for read in talk.peer.reads} == {str(talk.root / "a.py")}


async def test_client_without_files_is_not_asked(begin: Begin) -> None:
    talk = await begin(answer(read_file("a.py")), say("1."), files=FILES, peer=NoFiles)
    await talk.prompt("What is x?")
    assert "x = 1" in said(talk.provider.requests[1].body)
    assert talk.client.asked == []


async def test_links_to_files_are_read(begin: Begin) -> None:
    talk = await begin(say("1 and 2."), files=FILES)
    talk.peer.open("b.py", "y = 9\n")
    blocks = [link((talk.root / name).as_uri(), name) for name in ("a.py", "b.py")]
    assert await talk.prompt("What are x and y?", *blocks) == "end_turn"
    sent = said(talk.provider.requests[0].body)
    assert "x = 1" in sent
    assert "y = 9" in sent
    assert "y = 2" not in sent


async def test_protected_files_never_leave(begin: Begin) -> None:
    talk = await begin(answer(read_file(".env")), say("No."), files=FILES)
    uri = (talk.root / ".env").as_uri()
    for words, *links in (["Read @.env"], ["Read", link(uri, ".env")]):
        error = await refusal(talk.send(words, *links))
        assert "`.env` may contain secrets" in error.message
    assert await talk.prompt("Read it.", link("file:///etc/hostname", "hostname")) == "end_turn"
    talk.outside.told()
    assert talk.peer.reads == []
    for request in talk.provider.requests:
        assert "hunter2-canary-value" not in said(request.body)


async def test_embedded_text_is_sent(begin: Begin) -> None:
    talk = await begin(say("I see."))
    uri = (talk.root / "c.py").as_uri()
    assert await talk.prompt("Look.", embedded(uri, "z = 3"), embedded("zed:///selection", "chosen text")) == "end_turn"
    sent = said(talk.provider.requests[0].body)
    assert "z = 3" in sent
    assert "chosen text" in sent


ENDS: dict[str, tuple[list[Any], dict[str, str], str]] = {
    "end_turn": ([say("Hi.")], {}, "end_turn"),
    "max_tokens": ([answer(Text("And then"), stop_reason="max_tokens")] * 9, {}, "max_tokens"),
    "refusal": ([answer(Text("No."), stop_reason="refusal")], {}, "refusal"),
    "steps": ([answer(read_file("a.py"))] * 2, {"THINKLSP_MAX_STEPS": "2"}, "max_turn_requests"),
    "budget": ([answer(read_file("a.py"))] * 9, {"THINKLSP_BUDGET_TOKENS_PER_TURN": "1"}, "max_turn_requests"),
}


@pytest.mark.parametrize("name", ENDS)
async def test_stop_reason(begin: Begin, name: str) -> None:
    script, env, expected = ENDS[name]
    talk = await begin(*script, files=FILES, env=env)
    talk.peer.choices = ["reject_once"]
    assert await talk.prompt("Go.") == expected
    talk.outside.told()


async def test_failure_of_the_service_is_a_sentence(begin: Begin) -> None:
    talk = await begin(Failure(403, "permission_error", "Not for you."), say("Hi."))
    error = await refusal(talk.send("Hello."))
    assert error.code == -32603
    assert await talk.prompt("Again.") == "end_turn"
    talk.outside.told()


async def test_second_prompt_is_refused_while_one_runs(begin: Begin) -> None:
    hold = Hold()
    talk = await begin(answer(Text("Hello"), hold, Text(".")), say("Other."), say("Next."))
    running = talk.send("a")
    await hold.reached.wait()
    error = await refusal(talk.send("b"))
    assert (error.code, "turn is running" in error.message) == (-32600, True)
    other = Talk(talk.outside)
    await other.new_session()
    assert await other.prompt("c") == "end_turn"
    hold.release()
    assert (await running)["stopReason"] == "end_turn"
    assert await talk.prompt("d") == "end_turn"


async def test_clients_that_know_notices_have_them(begin: Begin) -> None:
    """The others read them as text, at the end of the turn."""
    for capabilities, kind in (({"session": {"notices": {}}}, "notice"), ({}, "agent_message_chunk")):
        talk = await begin(*[answer(read_file("a.py"))] * 2, files=FILES, env={"THINKLSP_MAX_STEPS": "2"},
                           announce=FilePeer.capabilities | capabilities)  # fmt: skip
        await talk.prompt("Go.")
        told = talk.outside.told()
        assert all(u["sessionUpdate"] == kind for u in talk.updates() if "Note:" in str(u) or "severity" in u)
        assert told or kind == "notice"


async def test_question_of_the_model_ends(begin: Begin) -> None:
    """Zed here cancels the form; a client without forms is asked by other means or not at all."""
    question = answer(tool("ask_user", question="Which one?", options=["The first", "The second"]))
    for peer in (None, NoFiles):
        talk = await begin(question, say("I choose."), **({} if peer is None else {"peer": peer}))
        assert await talk.prompt("Choose.") == "end_turn"
        talk.outside.told()
