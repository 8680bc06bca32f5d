"""What other servers say: by the bridge where the editor has it, with code actions where it has not.

An editor that answers nonsense costs a turn nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
from lsprotocol import types

from tests.e2e.acting import begin_file, chat, edit_file, reach, read_file, release, say, start_chat
from tests.e2e.conftest import Begin
from tests.support.client.editor import Refusal, capabilities
from tests.support.client.lsp import diagnostic, named
from tests.support.outside import Outside, said
from tests.support.signing_server import Hold, Thinking, answer, tool

TEXT = "a = 1\nb = nmae  # 🙂\nc = 3\n"
ASK = "thinklsp/editor/diagnostics"
BRIDGE = capabilities(experimental={"thinklsp": {"editor": ["diagnostics", "hover"]}})
PROBLEM = diagnostic(TEXT, "nmae", "nmae is not defined", code="undefined")

ODD = attrs.evolve(PROBLEM, range=types.Range(PROBLEM.range.end, PROBLEM.range.start))


def results(outside: Outside, number: int = -1) -> list[str]:
    """What the tools have answered in a request, the newest one by default; none of it is an error."""
    blocks = outside.provider.requests[number].tool_results()  # type: ignore[attr-defined] # it is the signing one
    assert not any(block.get("is_error") for block in blocks), blocks
    return [str(block["content"]) for block in blocks]


async def test_every_way_to_answer(begin: Begin) -> None:
    names = ("right", "none", "wrong", "error", "older", "odd")
    outside = await begin(
        answer(Thinking(), *(tool("diagnostics", path=f"{name}.py") for name in names)),
        answer(Thinking(), tool("diagnostics")),
        say("Done."),
        say("And again."),
        files={f"{name}.py": TEXT for name in names},
        announce=BRIDGE,
    )
    client, provider = outside.pair
    uris = {outside.open(f"{name}.py"): name for name in names}
    client.change(outside.uri("older.py"), "a = 1", "new = 0\na = 1")

    async def diagnostics(params: Any) -> Any:
        uri = getattr(params, "uri", outside.uri("right.py"))
        match uris[uri]:
            case "error":
                raise Refusal("no")
            case "wrong":
                return {"diagnostics": 3}
            case "odd":
                return [{"uri": uri, "version": 1, "diagnostics": [{"message": "nowhere"}, ODD]}]
        return [{"uri": uri, "version": 1, "diagnostics": [] if uris[uri] == "none" else [PROBLEM]}]

    client.editor.handlers[ASK] = diagnostics
    result = await chat(outside, "What is wrong?")
    # All once more.
    for call in client.calls(ASK):
        client.answer(call.message["id"], [{"uri": outside.uri("none.py"), "version": 1, "diagnostics": [PROBLEM]}])
    assert (result["stopReason"], result["text"]) == ("end_turn", "Done.")

    told = dict(zip(names, results(outside, 1), strict=True))
    by_all = "according to all servers and linters of the editor."
    problem = "line {}: error: nmae is not defined (pyright undefined)"
    assert told["right"] == f"1 problem in 1 file, {by_all}\nright.py\n  {problem.format(2)}"
    assert told["none"] == f"No problems in none.py, {by_all}"
    for name, why in (
        ("wrong", "the editor answered the request for diagnostics in an unexpected format"),
        ("error", "the editor answered the request for diagnostics with an error"),
    ):
        assert told[name].startswith(f"The problems in {name}.py are unknown: {why}. ")
    odd = "odd.py [omitted: 1 problem in an unexpected format]"
    assert told["odd"] == f"1 problem in 1 file, {by_all}\n{odd}\n  {problem.format(2)}"
    # The user had typed before the turn began, and the editor's servers have not looked since.
    assert "older.py [reported for an earlier version of the text" in told["older"]
    assert problem.format(3) in told["older"]
    assert results(outside, 2) == [told["right"]]
    again = await chat(outside, "Go on.", sessionId=result["sessionId"])
    assert again["text"] == "And again."
    assert [request.body["tools"] for request in provider.requests[1:]] == [provider.requests[0].body["tools"]] * 3


async def test_lines_are_those_that_the_turn_reads(begin: Begin) -> None:
    """The editor counts in the text as it stands; the turn reads what stood there when it began, and edits that."""
    hold = Hold()
    outside, client, uri = await begin_file(
        begin,
        TEXT,
        answer(Thinking(), hold, tool("diagnostics", path="app.py"), read_file("app.py")),
        answer(Thinking(), edit_file("app.py", "a = 1\n", "")),
        answer(Thinking(), tool("diagnostics", path="app.py")),
        say("Done."),
        name="app.py",
        announce=BRIDGE,
    )
    client.editor.handlers[ASK] = lambda _: [
        {"uri": uri, "version": client.desk.open[uri].version, "diagnostics": [at_present()]}
    ]

    def at_present() -> Any:
        return diagnostic(client.text(uri) or "", "nmae", "nmae is not defined")

    turn = await reach(hold, start_chat(outside, "What is wrong?", token="turn"))
    client.change(uri, "a = 1", "typed = 0\nmore = 0\na = 1")
    assert at_present().range.start.line == 3
    await release(hold, outside, turn)
    problems, text = results(outside, 1)
    assert "  line 2: error: nmae is not defined (pyright)" in problems
    assert "    2\tb = nmae" in text
    [problems] = results(outside, 3)
    assert "app.py [the editor has not seen the edits from this turn" in problems
    assert "  line 1: error: nmae is not defined (pyright)" in problems


async def test_without_the_bridge_code_actions_tell(begin: Begin) -> None:
    outside, client, uri = await begin_file(
        begin,
        TEXT,
        answer(Thinking(), tool("diagnostics"), tool("diagnostics", path="other.py")),
        say("Seen."),
        answer(Thinking(), tool("diagnostics", path="app.py")),
        say("Gone."),
        name="app.py",
        files={"other.py": TEXT},
    )
    [fix] = named(await client.code_actions(uri, "nmae", diagnostics=[PROBLEM]), "fix")
    client.change(uri, "a = 1", "new = 0\na = 1")
    await outside.result(client.run_action(fix, token="fix"))
    known, other = results(outside)
    assert known.startswith("1 problem in 1 file, from code action requests only, so there may be")
    assert "app.py [reported for an earlier version of the text" in known
    assert "  line 3: error: nmae is not defined (pyright undefined)" in known
    assert other.startswith("The problems in other.py are unknown: the editor reports them with code actions")
    client.change(uri, "nmae", "name")
    await chat(outside, "And now?")
    assert results(outside)[0].startswith("The problems in app.py are unknown: ")
    assert client.calls(ASK) == []


async def test_cancel_while_the_editor_is_asked(begin: Begin) -> None:
    script = (answer(Thinking(), tool("diagnostics", path="app.py")), say("Still here."))
    outside = await begin(*script, files={"app.py": TEXT}, announce=BRIDGE)
    client = outside.client
    outside.open("app.py")
    held = asyncio.Event()
    client.editor.handlers[ASK] = lambda _: held.wait()
    turn = start_chat(outside, "What is wrong?", token="turn")
    await client.wait_for(lambda: client.calls(ASK), what="the request of the bridge")
    client.stop("turn")
    result = await outside.result(turn)
    assert result["stopReason"] == "cancelled"
    [call] = client.calls(ASK)
    assert [r.params for r in client.calls("$/cancelRequest")] == [types.CancelParams(call.message["id"])]
    held.set()
    again = await chat(outside, "Go on.", sessionId=result["sessionId"])
    assert again["text"] == "Still here."
    assert "not defined" not in said(outside.provider.requests[-1].body)
