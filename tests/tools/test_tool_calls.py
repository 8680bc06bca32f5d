"""What a model sees of the tools, and what becomes of calls that are wrong."""

import asyncio
import json
import logging
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thinklsp.core.events import PlanEntry
from thinklsp.core.messages import ToolUseBlock
from thinklsp.tools.base import Arguments, Tool, ToolContext, ToolOutput, call, describe, schema_of
from thinklsp.tools.registry import TOOLS, WITH_COMMANDS, tool_specs, tools_for
from thinklsp.tools.shown import RESULT_LIMIT

GOLDEN = Path(__file__).with_name("tool_specs.json")


def as_json(specs):
    listed = [{"name": s.name, "description": s.description, "input_schema": s.input_schema} for s in specs]
    return json.dumps(listed, indent=1, ensure_ascii=False) + "\n"


def test_specs_are_the_agreed_ones():
    """A change here changes every cached prefix: write `as_json(tool_specs(TOOLS))` to the file if it is meant."""
    assert as_json(tool_specs(TOOLS)) == GOLDEN.read_text()
    assert as_json(tool_specs(TOOLS)) == as_json(tool_specs(TOOLS))


def test_schemas_are_plain():
    for spec in tool_specs(TOOLS):
        text = json.dumps(spec.input_schema)
        assert not [word for word in ("$ref", "$defs", '"title"', "anyOf", "null") if word in text], spec.name
        assert spec.input_schema["additionalProperties"] is False
        for schema in spec.input_schema["properties"].values():
            assert schema["description"].endswith((".", "}."))


def test_modes():
    names = {mode: [tool.name for tool in tools_for(mode)] for mode in ("agent", "ask", "plan")}
    assert names["agent"] == [
        "read_file", "list_files", "search_text", "outline", "diagnostics", "definition", "references", "edit_file",
        "write_file", "rename_file", "delete_file", "ask_user", "plan",
    ]  # fmt: skip
    looking = ["read_file", "list_files", "search_text", "outline", "diagnostics", "definition", "references"]
    assert names["ask"] == names["plan"] == [*looking, "ask_user", "plan"]
    assert [tool.name for tool in TOOLS if tool.read_only] == [*looking, "plan"]


WRONG = {
    ("read_file", "{}"): "The argument `path` of `read_file` is missing.",
    ("read_file", '{"path": "x", "start_line": 0}'): "The argument `start_line` of `read_file` is wrong: Input "
    "should be greater than or equal to 1.",
    ("edit_file", '{"path": "x", "old_text": "", "new_text": "", "force": true}'): "The argument `old_text` of "
    "`edit_file` is wrong: String should have at least 1 character. `edit_file` has no argument `force`; its "
    "arguments are: path, old_text, new_text, replace_all.",
    ("plan", '{"entries": [{"text": "a", "status": "begun"}]}'): "The argument `entries.0.status` of `plan` is wrong: "
    "Input should be 'pending', 'in_progress' or 'completed'.",
    ("no_such", "{}"): "There is no tool `no_such` in this turn. The tools are: read_file, list_files, search_text, "
    "outline, diagnostics, definition, references, edit_file, write_file, rename_file, delete_file, ask_user, plan.",
    ("read_file", '{"path": "../x"}'): "`../x` holds `..`; give the path from the workspace folder on.",
    ("read_file", '{"path": "no.py"}'): "`no.py` does not exist; list_files shows the files that do.",
    ("read_file", '{"path": "."}'): "`.` is a folder; list_files shows what is in it.",
    ("diagnostics", '{"path": "no.py"}'): "`no.py` does not exist; list_files shows the files that do.",
    ("diagnostics", '{"path": ".env"}'): "`.env` may hold secrets (`.env*`) and is not read. The user can allow it "
    "in the user's own settings.",
    ("read_file", '{"path": ".env"}'): "`.env` may hold secrets (`.env*`) and is not read. The user can allow it "
    "in the user's own settings.",
    ("write_file", '{"path": ".vscode/tasks.json", "content": ""}'): "`.vscode/tasks.json` is protected "
    "(`.vscode`) and cannot be changed by tools. Tell the user what should stand in it.",
    ("rename_file", '{"path": "a", "new_path": ".git/hooks/x"}'): "`.git/hooks/x` is protected (`.git`) and cannot be "
    "changed by tools. Tell the user what should stand in it.",
    ("delete_file", '{"path": "untitled:9"}'): "No open document has the URI `untitled:9`. The path of a file is "
    "relative to the workspace folder.",
    ("read_file", '{"path": "/a.py"}'): "`/a.py` is outside the workspace folders. The path of a file is relative to "
    "the workspace folder.",
    ("read_file", '{"path": "link"}'): "`link` leads through a symbolic link, and tools do not follow links. If the "
    "file lies in the workspace, name it by its own path.",
    ("write_file", '{"path": "link", "content": ""}'): "`link` is a symbolic link, and tools do not follow links. If "
    "the file lies in the workspace, name it by its own path.",
    ("edit_file", '{"path": "empty", "old_text": "a", "new_text": "b"}'): "`empty` is empty; write_file gives it a "
    "text.",
}  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), WRONG)
async def test_wrong_calls_say_what_to_do(bench, name, arguments):
    bench.start({"a": "x", "empty": ""})
    (bench.path / "link").symlink_to("a")
    assert await bench.fails(name, **json.loads(arguments)) == WRONG[name, arguments]


@pytest.mark.parametrize("tool", WITH_COMMANDS, ids=lambda tool: tool.name)
async def test_null_stands_for_an_argument_that_is_not_given(bench, tool):
    properties = schema_of(tool.arguments)["properties"]
    required = schema_of(tool.arguments).get("required", [])
    bench.tools = WITH_COMMANDS
    plain = {"string": "a", "integer": 1, "array": []}
    given = {name: plain[properties[name]["type"]] for name in required}
    nulls = dict.fromkeys(properties.keys() - given.keys())
    one, other = [await bench.start({"a": "x\n"}).call(tool.name, **given, **more) for more in (nulls, {})]
    assert one == other
    assert describe(ToolUseBlock("1", tool.name, given | nulls), WITH_COMMANDS) == describe(
        ToolUseBlock("1", tool.name, given), WITH_COMMANDS
    )
    for name in required:
        assert f"`{name}` of `{tool.name}` is wrong" in await bench.fails(tool.name, **given | {name: None})
    assert "has no argument `force`" in await bench.fails(tool.name, **given, force=None)


async def test_arguments_that_were_no_json(bench):
    context = ToolContext(bench.start().overlay, bench._ask)
    output = await call(ToolUseBlock("1", "plan", None), TOOLS, context)
    assert (output.is_error, output.text) == (
        True, "The arguments of `plan` were not valid JSON. Send them again as one JSON object.",
    )  # fmt: skip
    assert describe(ToolUseBlock("1", "plan", None), TOOLS) == "plan"


TITLES = {
    ("read_file", '{"path": "src/app.py"}'): "read src/app.py",
    ("read_file", '{"path": "a", "start_line": 3, "end_line": 9}'): "read a:3-9",
    ("search_text", '{"pattern": "foo", "path": "src"}'): 'search "foo" in src',
    ("list_files", '{"glob": "*.py"}'): "list files *.py",
    ("rename_file", '{"path": "a", "new_path": "b"}'): "rename a to b",
    ("outline", '{"path": "src/app.py"}'): "outline src/app.py",
    ("diagnostics", '{"path": "src"}'): "check diagnostics of src",
    ("definition", '{"path": "a.py", "line": 3, "symbol": "run"}'): "definition of run (a.py:3)",
    ("references", '{"path": "a.py", "line": 3, "symbol": "run"}'): "references of run (a.py:3)",
    ("edit_file", '{"path": "a\\nb\\u202e", "old_text": "x", "new_text": "y"}'): "edit a b<U+202E>",
    ("ask_user", '{"question": "Q?", "options": ["a"]}'): "ask: Q?",
    ("read_file", '{"nonsense": 1}'): "read_file",
    ("unknown", "{}"): "unknown",
    ("delete_file", '{"path": "' + "x" * 200 + '"}'): "delete " + "x" * 112 + "…",
}


@pytest.mark.parametrize(("name", "arguments"), TITLES)
def test_titles_are_one_short_line(name, arguments):
    assert describe(ToolUseBlock("1", name, json.loads(arguments)), TOOLS) == TITLES[name, arguments]


class Faulty(Tool[Arguments]):
    name: ClassVar[str] = "faulty"
    description: ClassVar[str] = "Fails."
    arguments = Arguments

    def title(self, args):
        return "fail"

    async def run(self, args, context):
        raise ValueError("secret content")


class Loud(Faulty):
    name: ClassVar[str] = "loud"

    async def run(self, args, context):
        return ToolOutput("\x1b" * RESULT_LIMIT)


class Waiting(Faulty):
    name: ClassVar[str] = "waiting"

    async def run(self, args, context):
        self.begun.set()
        await asyncio.Event().wait()


async def test_a_fault_in_a_tool_is_a_result_and_its_log_is_silent_about_content(bench, caplog):
    bench.start().tools = (Faulty(),)
    with caplog.at_level(logging.DEBUG):
        text = await bench.fails("faulty")
    assert text == "`faulty` failed because of a fault in thinklsp. Try another way."
    # What the log makes of the fault itself is the subject of cli/test_logs.py.
    [record] = caplog.records
    assert record.getMessage() == "tool faulty failed"
    assert record.exc_info is not None


async def test_every_result_is_bounded(bench):
    bench.start().tools = (Loud(),)
    text = await bench.ok("loud")
    assert len(text) <= RESULT_LIMIT
    assert text.startswith("<U+001B>")
    assert text.endswith("of which this is the beginning]")


async def test_cancellation_passes_through(bench):
    waiting = Waiting()
    waiting.begun = asyncio.Event()
    bench.start().tools = (waiting,)
    task = asyncio.create_task(bench.call("waiting"))
    await waiting.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_plan_and_question(bench):
    bench.start()
    output = await bench.call(
        "plan", entries=[{"text": "one", "status": "completed"}, {"text": "two", "status": "pending"}]
    )
    assert output.plan == (PlanEntry("one", "completed"), PlanEntry("two", "pending"))
    arguments = {"question": "Which?", "options": ["A", "B"]}
    for bench.answer, expected in ((None, True), ("C", True), ("B", False)):
        output = await bench.call("ask_user", **arguments)
        assert output.is_error == expected
    assert output.text == "The user chose: B"
    assert bench.asked == [("The model asks: Which?", ("A", "B"))] * 3
    for options in (["A", "A "], ["A", " "], ["A\nB", "A B"]):
        assert "distinct" in await bench.fails("ask_user", question="Which?", options=options)


async def test_options_hide_nothing_and_are_short(bench):
    """H-F14."""
    bench.start()
    hostile = "Don't\u202e run\nit\x1b\u200b"
    bench.answer = "Don't<U+202E> run it<U+001B><U+200B>"
    output = await bench.call("ask_user", question="Run once?", options=[hostile, "x" * 60])
    assert bench.asked[-1] == ("The model asks: Run once?", (bench.answer, "x" * 60))
    assert output.text == "The user chose: " + "Don't<U+202E> run\nit<U+001B><U+200B>"
    assert "60 characters" in await bench.fails("ask_user", question="?", options=["x" * 61])
    assert "60 characters" in await bench.fails("ask_user", question="?", options=["\u202e" * 8])


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from(sorted({key for tool in TOOLS for key in tool.arguments.model_fields})) | st.text(max_size=6)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from([tool.name for tool in TOOLS]), arguments=st.dictionaries(keys, values, max_size=4))
async def test_no_arguments_break_a_call(bench, name, arguments):
    bench.start({"a": "x"})
    output = await call(ToolUseBlock("1", name, arguments), TOOLS, ToolContext(bench.overlay, bench._ask))
    assert "fault in thinklsp" not in output.text
    assert describe(ToolUseBlock("1", name, arguments), TOOLS)
    output.text.encode()
