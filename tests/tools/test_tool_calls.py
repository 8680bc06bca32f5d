"""What a model sees of the tools, and what becomes of calls that are wrong."""

import json
import logging
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.generated import ADVICE
from tests.support.sizes import examples
from thinklsp.core.events import PlanEntry
from thinklsp.core.messages import ToolUseBlock
from thinklsp.core.text_safety import RESULT_LIMIT, sanitize_message
from thinklsp.core.tool_type import ToolOutput
from thinklsp.tools.registry import TOOLS, TOOLS_WITH_COMMANDS, build_tool_specs
from thinklsp.tools.tool import Arguments, Tool, ToolContext, build_arguments_schema, call, describe

GOLDEN = Path(__file__).with_name("tool_specs.json")


def as_json(specs):
    listed = [{"name": s.name, "description": s.description, "input_schema": s.input_schema} for s in specs]
    return json.dumps(listed, indent=1, ensure_ascii=False) + "\n"


def test_specs_are_the_agreed_ones():
    """A change invalidates every prompt cache."""
    assert as_json(build_tool_specs(TOOLS)) == GOLDEN.read_text(), ADVICE
    assert as_json(build_tool_specs(TOOLS)) == as_json(build_tool_specs(TOOLS))


def test_schemas_are_plain():
    for spec in build_tool_specs(TOOLS):
        text = json.dumps(spec.input_schema)
        assert not [word for word in ("$ref", "$defs", '"title"', "anyOf", "null") if word in text], spec.name
        assert spec.input_schema["additionalProperties"] is False
        for schema in spec.input_schema["properties"].values():
            assert schema["description"].endswith((".", "}."))


SECRET = "`.env` may contain secrets (`.env*`). The user can let tools read it with `allow_protected`."
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
    ("read_file", '{"path": "../x"}'): "`../x` contains `..`; give a path relative to the workspace folder.",
    ("read_file", '{"path": "no.py"}'): "`no.py` does not exist; use list_files to find files.",
    ("read_file", '{"path": "."}'): "`.` is a folder; use list_files to list it.",
    ("diagnostics", '{"path": "no.py"}'): "`no.py` does not exist; use list_files to find files.",
    ("diagnostics", '{"path": ".env"}'): SECRET,
    ("read_file", '{"path": ".env"}'): SECRET,
    ("write_file", '{"path": ".vscode/tasks.json", "content": ""}'): "`.vscode/tasks.json` is protected "
    "(`.vscode`) and cannot be changed by tools. Tell the user which change to make.",
    ("rename_file", '{"path": "a", "new_path": ".git/hooks/x"}'): "`.git/hooks/x` is protected (`.git`) and cannot be "
    "changed by tools. Tell the user which change to make.",
    ("delete_file", '{"path": "untitled:9"}'): "No open document has the URI `untitled:9`. The path of a file is "
    "relative to the workspace folder.",
    ("read_file", '{"path": "/a.py"}'): "`/a.py` is outside the workspace folders. The path of a file is relative to "
    "the workspace folder.",
    ("read_file", '{"path": "link"}'): "`link` leads through a symbolic link, and tools do not follow links. If the "
    "file is in the workspace, use its own path.",
    ("write_file", '{"path": "link", "content": ""}'): "`link` is a symbolic link, and tools do not follow links. If "
    "the file is in the workspace, use its own path.",
    ("edit_file", '{"path": "empty", "old_text": "a", "new_text": "b"}'): "`empty` is empty; use write_file to write "
    "it.",
}  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), WRONG)
async def test_wrong_calls_say_what_to_do(bench, name, arguments):
    bench.start({"a": "x", "empty": ""})
    (bench.path / "link").symlink_to("a")
    assert await bench.fails(name, **json.loads(arguments)) == WRONG[name, arguments]


@pytest.mark.parametrize("tool", TOOLS_WITH_COMMANDS, ids=lambda tool: tool.name)
async def test_null_stands_for_an_argument_that_is_not_given(bench, tool):
    properties = build_arguments_schema(tool.arguments)["properties"]
    required = build_arguments_schema(tool.arguments).get("required", [])
    bench.tools = TOOLS_WITH_COMMANDS
    plain = {"string": "a", "integer": 1, "array": []}
    given = {name: plain[properties[name]["type"]] for name in required}
    nulls = dict.fromkeys(properties.keys() - given.keys())
    one, other = [await bench.start({"a": "x\n"}).call(tool.name, **given, **more) for more in (nulls, {})]
    assert one == other
    assert describe(ToolUseBlock("1", tool.name, given | nulls), TOOLS_WITH_COMMANDS) == describe(
        ToolUseBlock("1", tool.name, given), TOOLS_WITH_COMMANDS
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


KEY = "sk-ant-" + "a1B2" * 10
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


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", {"path": KEY}),
        ("run_command", {"argv": ["curl", "-H", f"x-api-key: {KEY}"]}),
        ("search_text", {"pattern": "x" * 95 + f" {KEY}"}),
        (KEY, {}),
        (KEY, None),
    ],
)
def test_titles_show_no_keys(name, arguments):
    title = describe(ToolUseBlock("1", name, arguments), TOOLS_WITH_COMMANDS)
    assert KEY[:8] not in title
    assert "[hid" in title


class Playing(Tool[Arguments]):
    """A tool that does what a test says."""

    name: ClassVar[str] = "playing"
    description: ClassVar[str] = "Plays."
    arguments = Arguments

    def __init__(self, play):
        self.play = play

    def title(self, args):
        return "play"

    async def run(self, args, context):
        return await self.play()


async def test_tool_failure_is_a_result_without_content_in_the_log(bench, caplog):
    async def fail():
        raise ValueError("secret content")

    bench.start().tools = (Playing(fail),)
    with caplog.at_level(logging.DEBUG):
        text = await bench.fails("playing")
    assert text == "`playing` failed because of a bug in thinklsp. Try another way."
    # What the log makes of the fault itself is the subject of cli/test_logs.py.
    [record] = caplog.records
    assert record.getMessage() == "tool playing failed"
    assert record.exc_info is not None


async def test_every_result_is_bounded(bench):
    async def shout():
        return ToolOutput("\x1b" * RESULT_LIMIT)

    bench.start().tools = (Playing(shout),)
    text = await bench.ok("playing")
    assert len(text) <= RESULT_LIMIT
    assert text.startswith("<U+001B>")
    assert text.endswith("this is the beginning]")


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
    bench.start()
    hostile = "Don't\u202e run\nit\x1b\u200b"
    bench.answer = "Don't<U+202E> run it<U+001B><U+200B>"
    output = await bench.call("ask_user", question="Run once?", options=[hostile, "x" * 60])
    assert bench.asked[-1] == ("The model asks: Run once?", (bench.answer, "x" * 60))
    assert output.text == "The user chose: " + "Don't<U+202E> run\nit<U+001B><U+200B>"
    assert "60 characters" in await bench.fails("ask_user", question="?", options=["x" * 61])
    assert "60 characters" in await bench.fails("ask_user", question="?", options=["\u202e" * 8])


ACTIVE = [
    "[x](https://e.example)", "![x](https://e.example/?d=1)", "[x](command:y)", "<img src=https://e.example>",
    "<a href=u>x", "<https://e.example>", "<javascript:x>", "[![x](u)](v)", "[x]\n\n[x]: https://e.example",
    "<svg/onload=x>", "![x][y]",
]  # fmt: skip


def find_active_content(text):
    """Return the kinds of Markdown content in a text that a client could load, run or offer to click."""
    tokens = MarkdownIt("commonmark").parse(text)
    kinds = {token.type for block in tokens for token in (block, *(block.children or ()))}
    return kinds & {"link_open", "image", "html_inline", "html_block"}


@pytest.mark.parametrize("text", ACTIVE)
async def test_titles_options_and_plans_are_plain_text(bench, text):
    bench.start()
    output = await bench.call("plan", entries=[{"text": f"a {text}", "status": "pending"}])
    bench.answer = f"a {text}"
    await bench.call("ask_user", question=f"a {text}", options=[f"a {text}"])
    question, (option,) = bench.asked[-1]
    title = describe(ToolUseBlock("1", "search_text", {"pattern": f"a {text}"}), TOOLS)
    shown = (output.plan[0].text, option, sanitize_message(question), title, sanitize_message(f"a {text}"))
    assert [find_active_content(each) for each in shown] == [set()] * 5, shown
    assert all(sanitize_message(each) == each for each in shown)


PLAIN = [
    "List<int> x",
    "vector<std::string>",
    "a[0] (b)",
    "x < y",
    "Dict[str, int]: see a.py",
    "`a` *b*",
    "<b>bold</b>",
]


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_stays_as_it_is(text):
    assert sanitize_message(text) == text


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from(sorted({key for tool in TOOLS for key in tool.arguments.model_fields})) | st.text(max_size=6)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from([tool.name for tool in TOOLS]), arguments=st.dictionaries(keys, values, max_size=4))
async def test_no_arguments_break_a_call(bench, name, arguments):
    bench.start({"a": "x"})
    output = await call(ToolUseBlock("1", name, arguments), TOOLS, ToolContext(bench.overlay, bench._ask))
    assert "fault in thinklsp" not in output.text
    assert describe(ToolUseBlock("1", name, arguments), TOOLS)
    output.text.encode()
