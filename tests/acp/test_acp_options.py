"""Modes and config options: what is offered, what a change does, and that a client can only choose or tighten."""

from __future__ import annotations

from typing import Any

from tests.acp.conftest import Begin
from tests.acp.talk import Talk
from tests.e2e.acting import edit_file, read_file, say
from tests.support.signing_server import Hold, Text, answer

Json = Any
AUTO = "[acp]\nallow_auto = true\n"
FILES = {"a.py": "x = 1\n"}
SWITCHABLE = "claude-opus-4-6"


def by_id(options: list[Json]) -> dict[str, Json]:
    return {option["id"]: option for option in options}


def values(option: Json) -> list[str]:
    """Return the values of an option, also of one whose options are grouped."""
    groups = [o.get("options", [o]) for o in option["options"]]
    return [value["value"] for group in groups for value in group]


async def choose(talk: Talk, option: str, value: str) -> dict[str, Json]:
    params = {"sessionId": talk.session, "configId": option, "value": value}
    result = await talk.client.request("session/set_config_option", params)
    assert set(result) == {"configOptions"}
    return by_id(result["configOptions"])


async def test_options_and_modes_say_the_same(begin: Begin) -> None:
    talk = await begin(session=False)
    result = await talk.new_session()
    options = by_id(result["configOptions"])
    assert [option["id"] for option in result["configOptions"]][:3] == ["mode", "model", "effort"]
    assert {name: option["category"] for name, option in options.items()} | {
        "mode": "mode", "model": "model", "effort": "thought_level",
    } == {name: option["category"] for name, option in options.items()}  # fmt: skip
    assert values(options["mode"]) == ["ask", "edit"]
    assert "off" in values(options["effort"])
    modes = result["modes"]
    assert modes["currentModeId"] == options["mode"]["currentValue"] == "edit"
    assert [mode["id"] for mode in modes["availableModes"]] == values(options["mode"])
    assert talk.outside.variables["THINKLSP_MODEL"] == options["model"]["currentValue"]


async def test_auto_is_offered_only_by_the_users_own_file(begin: Begin) -> None:
    for own, offered in (("", False), (AUTO, True), ("[acp]\nallow_auto = false\n", False)):
        talk = await begin(session=False, own=own)
        result = await talk.new_session()
        assert ("auto" in values(by_id(result["configOptions"])["mode"])) is offered
        assert ("auto" in [mode["id"] for mode in result["modes"]["availableModes"]]) is offered
        assert result["modes"]["currentModeId"] == "edit"
        if offered:
            assert (await choose(talk, "mode", "auto"))["mode"]["currentValue"] == "auto"
            continue
        for method, params in (
            ("session/set_mode", {"modeId": "auto"}),
            ("session/set_config_option", {"configId": "mode", "value": "auto"}),
        ):
            error = await talk.refused(method, {"sessionId": talk.session} | params)
            assert error.code == -32602


async def test_ask_runs_no_tool_that_writes(begin: Begin) -> None:
    """The tools of a request stay the same in every mode, so that the provider's prompt cache is not lost."""
    talk = await begin(say("a"), answer(edit_file("a.py", "x = 1", "x = 2")), say("b"), files=FILES)
    await talk.prompt("a")
    assert await talk.client.request("session/set_mode", {"sessionId": talk.session, "modeId": "ask"}) == {}
    await talk.prompt("b")
    assert [tool.status for tool in talk.tools("edit")] == ["failed"]
    assert talk.edit_statuses() == []
    assert (await choose(talk, "effort", "low"))["mode"]["currentValue"] == "ask"


async def test_mode_and_option_are_one(begin: Begin) -> None:
    talk = await begin()
    await talk.client.request("session/set_mode", {"sessionId": talk.session, "modeId": "ask"})
    assert (await choose(talk, "effort", "low"))["mode"]["currentValue"] == "ask"
    [update] = talk.updates("config_option_update")
    assert by_id(update["configOptions"])["mode"]["currentValue"] == "ask"
    assert (await choose(talk, "mode", "edit"))["mode"]["currentValue"] == "edit"
    await talk.client.wait_for(lambda: talk.updates("current_mode_update"))
    assert [update["currentModeId"] for update in talk.updates("current_mode_update")] == ["edit"]


async def test_effort_reaches_the_model(begin: Begin) -> None:
    talk = await begin(say("a"), say("b"))
    await choose(talk, "effort", "low")
    await talk.prompt("a")
    assert talk.provider.requests[-1].body["output_config"]["effort"] == "low"
    await choose(talk, "effort", "max")
    await talk.prompt("b")
    assert talk.provider.requests[-1].body["output_config"]["effort"] == "max"


async def test_effort_off_switches_thinking_off(begin: Begin) -> None:
    talk = await begin(say("a"), env={"THINKLSP_MODEL": SWITCHABLE})
    assert (await choose(talk, "effort", "off"))["effort"]["currentValue"] == "off"
    await talk.prompt("a")
    thinking = talk.provider.requests[-1].body.get("thinking", {"type": "unset"})
    assert thinking["type"] in ("disabled", "unset")


async def test_model_is_chosen_for_this_session(begin: Begin) -> None:
    talk = await begin(say("a"), say("b"))
    first = talk.session
    options = by_id((await talk.new_session())["configOptions"])
    assert SWITCHABLE in values(options["model"])
    await choose(talk, "model", SWITCHABLE)
    await talk.prompt("a")
    assert talk.provider.requests[-1].body["model"] == SWITCHABLE
    await talk.prompt("b", session=first)
    assert talk.provider.requests[-1].body["model"] == talk.outside.variables["THINKLSP_MODEL"]


async def test_change_during_a_turn_counts_from_the_next_turn(begin: Begin) -> None:
    """Within one turn the thinking stays the same, because providers reject a change in the middle of a tool loop."""
    hold = Hold()
    talk = await begin(answer(Text("I read."), hold, read_file("a.py")), say("1."), say("2."), files=FILES)
    running = talk.send("What is x?")
    await hold.reached.wait()
    await choose(talk, "effort", "low")
    hold.release()
    assert (await running)["stopReason"] == "end_turn"
    await talk.prompt("And again?")
    assert [r.body.get("output_config", {}).get("effort") for r in talk.provider.requests] == [None, None, "low"]


async def test_options_of_a_loaded_session_are_those_that_were_chosen(begin: Begin) -> None:
    talk = await begin(say("a"))
    await talk.prompt("a")
    await choose(talk, "mode", "ask")
    await choose(talk, "effort", "low")
    params = {"sessionId": talk.session, "cwd": str(talk.root), "mcpServers": []}
    result = await talk.client.request("session/load", params)
    assert result["modes"]["currentModeId"] == by_id(result["configOptions"])["mode"]["currentValue"]


async def test_auto_writes_without_a_question(begin: Begin) -> None:
    talk = await begin(answer(edit_file("a.py", "1", "2")), say("Done."), files=FILES, own=AUTO)
    talk.peer.open("a.py")
    await choose(talk, "mode", "auto")
    assert await talk.prompt("Two.") == "end_turn"
    assert talk.client.requests("session/request_permission") == []
    assert talk.peer.text("a.py") == "x = 2\n"
