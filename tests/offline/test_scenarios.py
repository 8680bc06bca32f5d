"""Scenario files: what is understood, what is refused and how that reads, and which step answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import thinklsp.offline
from tests.offline.talk import TOOLS, OfflineTalk, continued, request
from tests.support.sizes import examples
from thinklsp.offline.scenario import (
    PlaceholderValues,
    ScenarioError,
    list_packaged,
    load_scenario,
    parse_scenario,
    replace_placeholders,
)

DOCUMENT = Path(thinklsp.offline.__file__).parent / "SCENARIOS.md"
EXAMPLES = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
STEP = "[[turn]]\n[[turn.step]]\n"


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_of_the_documentation_play(number: int) -> None:
    status, _ = OfflineTalk(EXAMPLES[number]).ask(request("please fix and review: rename one to two"))
    assert status in (200, 429, 500)
    assert len(EXAMPLES) >= 7


def test_the_document_names_every_packaged_scenario() -> None:
    assert {"sample", "review", "parallel", "refusal", "retry"} <= set(list_packaged())
    for name in list_packaged():
        assert load_scenario(name).name == name
        assert f"`{name}`" in DOCUMENT.read_text("utf-8") or name == "demo"


@pytest.mark.parametrize("name", ["sample", "review", "parallel"])
@pytest.mark.parametrize("tools", [(), ("list_files",), ("list_files", "search_text", "read_file", "write_file")])
def test_packaged_scenarios_come_to_an_end_on_any_workspace(name: str, tools: tuple[str, ...]) -> None:
    talk = OfflineTalk((DOCUMENT.parent / "scenarios" / f"{name}.toml").read_text("utf-8"))
    body = request("Review this", tools=[{**TOOLS[0], "name": tool} for tool in tools])
    for _ in range(6):
        answer = talk.good(body)
        if answer["stop_reason"] == "end_turn":
            break
        body = continued(body, answer)
        for result in body["messages"][-1]["content"]:
            result.update(content="", is_error=True)
    assert answer["stop_reason"] == "end_turn"
    assert answer["content"][-1]["text"].strip()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("turn = ", "The scenario 'x.toml' is not valid TOML: "),
        ("speed = 1", "is invalid: speed: unknown key."),
        ("[[turn]]", "turn 1, step: Field required"),
        ("[[turn]]\nstep = []", "turn 1, step: Tuple should have at least 1 item"),
        (f"{STEP}block=[{{txt='a'}}]", "turn 1, step 1, block 1: must contain exactly one of the keys thinking"),
        (f"{STEP}block=[{{text='a'}}, {{text='a', tool='b'}}]", "turn 1, step 1, block 2: must contain exactly one"),
        (f"{STEP}block=[{{text=''}}]", "turn 1, step 1, block 1, text: String should have at least 1 character"),
        (f"{STEP}block=[{{tool='a b'}}]", "turn 1, step 1, block 1, tool: String should match pattern"),
        (f"{STEP}block=[{{tool='a', input={{b=1}}, input_json='x'}}]", "set either input or input_json, not both"),
        (f"{STEP}block=[{{raw={{a=1}}}}]", "a raw block must contain the key `type`"),
        (f"{STEP}block=[{{text='{{{{user:(}}}}'}}]", "'(' is not a valid regular expression"),
        (f"{STEP}block=[{{text='{{{{result:0}}}}'}}]", "results are numbered from 1"),
        (
            f"{STEP}pacing={{delay_ms=-1}}",
            "turn 1, step 1, pacing.delay_ms: Input should be greater than or equal to 0",
        ),
        (f"{STEP}stop_reason='tired'", "turn 1, step 1, stop_reason: Input should be 'end_turn'"),
        (f"{STEP}refusal={{}}", 'refusal requires stop_reason = "refusal"'),
        (f"{STEP}fault={{times=1}}", "turn 1, step 1, fault: must contain exactly one of http_error"),
        (f"{STEP}fault={{error_event={{}}, cut_after_events=1}}", "must contain exactly one of http_error"),
        (f"{STEP}fault={{http_error={{status=200}}}}", "fault.http_error.status: Input should be greater than"),
        ("[[turn]]\nwhen='('\n[[turn.step]]", "turn 1, when.user: '(' is not a valid regular expression"),
    ],
)
def test_a_wrong_scenario_is_told_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(ScenarioError) as error:
        parse_scenario(text, "x.toml")
    assert str(error.value).startswith("The scenario 'x.toml' ")
    assert sentence in str(error.value)


def test_a_scenario_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"Cannot read the scenario .*one of: .*sample"):
        load_scenario(str(tmp_path / "none.toml"))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ScenarioError, match="not UTF-8"):
        load_scenario(str(binary))
    good = tmp_path / "good.toml"
    good.write_text(f"{STEP}block=[{{text='Hi'}}]", "utf-8")
    assert load_scenario(str(good)).name == "good"


def test_turns_and_steps_follow_from_the_request_alone() -> None:
    scenario = (
        '[[turn]]\n[[turn.step]]\nblock=[{text="first"}]\n'
        '[[turn]]\nwhen="sp[a]rk"\n[[turn.step]]\nblock=[{tool="list_files"}]\n[[turn.step]]\nblock=[{text="spark"}]\n'
        '[[turn]]\n[[turn.step]]\nblock=[{text="second"}]\n'
        '[[turn]]\nwhen={user="tools", tools=["other"]}\n[[turn.step]]\nblock=[{text="other"}]\n'
    )
    talk = OfflineTalk(scenario)
    assert heard(talk, ["hello"]) == "first"
    assert heard(talk, ["a spark"]) == "tool_use"
    assert heard(talk, ["hello", "spark", "tools"]) == "second"
    assert "no turn matches this prompt" in heard(talk, ["a", "b", "c"])
    assert "Your prompt was: c" in heard(OfflineTalk(scenario), ["a", "b", "c"]), "another process answers the same"


def heard(talk: OfflineTalk, prompts: list[str]) -> str:
    messages: list[Any] = []
    for prompt in prompts[:-1]:
        messages += [{"role": "user", "content": prompt}, {"role": "assistant", "content": "ok"}]
    answer = talk.good(request(messages=[*messages, {"role": "user", "content": prompts[-1]}]))
    return str(answer["content"][-1].get("text", answer["stop_reason"]))


@pytest.mark.parametrize(
    ("remark", "text"), [(None, "looped"), ("<note>be quick</note>", "looped"), ("and now the other", "other")]
)
def test_text_beside_tool_results_is_a_prompt_unless_in_tags(remark: str | None, text: str) -> None:
    talk = OfflineTalk(
        '[[turn]]\nwhen="other"\n[[turn.step]]\nblock=[{text="other"}]\n'
        '[[turn]]\nwhen="loop"\n[[turn.step]]\nblock=[{tool="list_files"}]\n[[turn.step]]\nblock=[{text="looped"}]'
    )
    body = request("loop")
    assert talk.good(continued(body, talk.good(body), remark))["content"][-1]["text"] == text


def test_a_note_beside_a_prompt_is_not_part_of_it() -> None:
    talk = OfflineTalk(f'{STEP}block=[{{text="{{{{user}}}}"}}]')
    texts = [{"type": "text", "text": text} for text in ("<note>app.py changed.</note>", "And now?")]
    assert talk.good(request(messages=[{"role": "user", "content": texts}]))["content"][-1]["text"] == "And now?"
    assert talk.good(request("<note>Hello</note>"))["content"][-1]["text"] == "<note>Hello</note>"


def test_a_step_that_is_not_written_gets_the_built_in_answer() -> None:
    talk = OfflineTalk(f'{STEP}block=[{{tool="list_files"}}]')
    body = request("plain")
    assert "turn 1 has no step 2" in talk.good(continued(body, talk.good(body)))["content"][-1]["text"]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{user}}!", "Fix `a.py` and `b.py`\nnow!"),
        ("{{user:`(.*?)`}}", "a.py"),
        ("{{user:^now$}}", "now"),
        ("{{user:missing}}", ""),
        ("{{user:`.{4}}}", "`a.py"),
        ("{{result:2}}{{result:3}}", "two"),
        ("{{result:1:(x)?one}}", ""),
        ("{{ user }} {{other}}", "{{ user }} {{other}}"),
    ],
)
def test_placeholders(template: str, text: str) -> None:
    values = PlaceholderValues("Fix `a.py` and `b.py`\nnow", ("one", "two"))
    assert replace_placeholders({"k": [template, 1]}, values.resolve) == {"k": [text, 1]}


@settings(max_examples=examples(60), deadline=None)
@given(st.text(min_size=1, max_size=60), st.integers(1, 70), st.booleans())
def test_any_chunk_size_gives_the_same_message(text: str, size: int, shown: bool) -> None:
    talk = OfflineTalk(
        f"pacing = {{ chunk_chars = {size} }}\n{STEP}"
        'block=[{thinking="{{user}}"},{text="{{user}} "},{tool="t",input={a="{{user}}",b=[1]}},{tool="t"}]'
    )
    body = request(f"x{text}", thinking={"type": "adaptive", "display": "summarized" if shown else "omitted"})
    streamed = assembled(talk.events(body))
    whole = talk.good(body)["content"]
    for block in (*streamed, *whole):
        block.pop("signature", None)
        block.pop("id", None)
    assert streamed == whole
    assert whole[1] == {"type": "text", "text": f"x{text} "}
    assert whole[2]["input"] == {"a": f"x{text}", "b": [1]}


def assembled(events: list[Any]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    arguments: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            match delta["type"]:
                case "text_delta":
                    block["text"] += delta["text"]
                case "thinking_delta":
                    block["thinking"] += delta["thinking"]
                case "signature_delta":
                    block["signature"] = delta["signature"]
                case "input_json_delta":
                    arguments[event["index"]] = arguments.get(event["index"], "") + delta["partial_json"]
    for index, text in arguments.items():
        blocks[index]["input"] = json.loads(text or "{}")
    return blocks
