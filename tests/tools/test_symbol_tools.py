"""`outline`, `definition` and `references`: from the editor where it knows, else by syntax over what the model sees."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field

import pytest

from thinklsp.core.messages import ToolUseBlock
from thinklsp.core.text_safety import RESULT_LIMIT
from thinklsp.tools.registry import TOOLS
from thinklsp.tools.tool import NamedTarget, NamedTargets, NoEditor, Point, Target, ToolContext, call


@dataclass
class KnowingEditor(NoEditor):
    """`texts`: what it has open or on disk, by URI; where the asked text differs the answer is None."""

    texts: dict[str, str]
    answers: tuple[Target, ...] | None = None
    shown: str | None = None
    named: NamedTargets | None = None
    asked: list[tuple[int, int]] = field(default_factory=list)

    async def fetch_hover(self, point: Point) -> str | None:
        return self.shown if self.texts.get(point.uri) == point.text else None

    async def fetch_outline(self, document: Point) -> NamedTargets | None:
        return self.named if self.texts.get(document.uri) == document.text else None

    async def find_symbols(self, query: str) -> NamedTargets | None:
        return self.named

    async def find_definition(self, point: Point) -> tuple[Target, ...] | None:
        self.asked.append((point.line, point.column))
        return self.answers if self.texts.get(point.uri) == point.text else None

    find_references = find_definition


TREE = {
    "geo/shapes.py": "class Circle:\n    def area(self):\n        return 1\n\n\nclass Square:\n    def area(self):\n"
    "        return 2\n",
    "app.py": "from geo.shapes import Circle\n\n\ndef main():\n    def local():\n        pass\n    local()\n"
    "    return Circle.area(Circle())  # area\n",
    "other/local.py": "def local():\n    pass\n",
    "web/area.ts": "export function area() {}\n",
    "notes.md": "Circle\n",
    "build/gen.py": "class Circle: pass\n",
    ".gitignore": "build/\n",
    "latin.txt": b"Circle \xe9\n",
}


async def ask(bench, editor, name, **arguments):
    return await call(ToolUseBlock("1", name, arguments), TOOLS, ToolContext(bench.overlay, bench._ask, editor))


async def told(bench, name, path, line, symbol, editor=None):
    output = await ask(bench, editor or NoEditor(), name, path=path, line=line, symbol=symbol)
    assert not output.is_error, output.text
    return output.text


async def test_outline_of_what_the_model_sees(bench):
    bench.start({"a.py": "x = 1\n"}, {"a.py": "class A:\n  def f(self):\n    pass\n"})
    assert await bench.ok("outline", path="a.py") == "a.py, python, 3 lines\nclass A 1-3\n  method f 2-3"
    await bench.ok("edit_file", path="a.py", old_text="def f", new_text="async def g")
    assert "  method g 2-3" in await bench.ok("outline", path="a.py")
    bench.start({"s.go": "package s\nfunc (t *T) Run() {}\n", "empty.py": "", "t.txt": "x"})
    assert await bench.ok("outline", path="s.go") == "s.go, go, 2 lines\nmethod T.Run 2"
    assert await bench.ok("outline", path="empty.py") == "empty.py, python, 0 lines\nNo definitions."
    assert "No grammar can read `t.txt`; use search_text to find names" in await bench.fails("outline", path="t.txt")


async def test_a_long_outline_is_bounded(bench):
    bench.start({"a.py": "".join(f"def function_{n}(): pass\n" for n in range(5_000))})
    text = await bench.ok("outline", path="a.py")
    assert len(text) <= RESULT_LIMIT
    assert text.endswith(" of 5000 entries]")


DEFINITIONS = {
    ("app.py", 8, "Circle"): ["geo/shapes.py:1-3 (class)"],
    ("app.py", 8, "Circle.area"): ["geo/shapes.py:2-3 (method in Circle)", "geo/shapes.py:7-8 (method in Square)"],
    ("app.py", 7, "local"): ["app.py:5-6 (function in main)", "other/local.py:1-2 (function)"],
    ("geo/shapes.py", 7, "area"): ["geo/shapes.py:7-8 (method in Square)", "geo/shapes.py:2-3 (method in Circle)"],
    ("web/area.ts", 1, "area"): ["web/area.ts:1 (function)"],
}


@pytest.mark.parametrize(("path", "line", "symbol"), DEFINITIONS)
async def test_definitions_by_syntax(bench, path, line, symbol):
    text = await told(bench.start(TREE), "definition", path, line, symbol)
    assert "by syntax, names only: check the hits" in text
    assert re.findall(r"^\S+:\d.*$", text, re.MULTILINE) == DEFINITIONS[path, line, symbol]


async def test_references_by_syntax_skip_comments(bench):
    text = await told(bench.start(TREE), "references", "app.py", 8, "area")
    assert text == (
        "3 references of `area` (by syntax, names only: check the hits)\n"
        "app.py:8: return Circle.area(Circle())  # area\n"
        "geo/shapes.py:2: def area(self):\ngeo/shapes.py:7: def area(self):"
    )
    assert "notes.md:1: Circle" in await told(bench, "references", "app.py", 8, "Circle")


async def test_unnamed_documents_have_the_editor_language(bench):
    new, script = "untitled:Untitled-1", "bin/tool"
    text = "def foo():  # foo\n    pass\n"
    opened = {new: text, script: "foo()  # foo\n"}
    bench.start({script: "", "a.py": text, "a.ts": "foo()\n"}, opened, {new: "python", script: "python"})
    assert await bench.ok("outline", path=new) == f"{new}, python, 2 lines\nfunction foo 1-2"
    assert re.findall(r"\S+:\d.*\)", await told(bench, "definition", new, 1, "foo")) == [
        f"{new}:1-2 (function)", "a.py:1-2 (function)",
    ]  # fmt: skip
    # Not the comments, and nothing of another language.
    assert (await told(bench, "references", script, 1, "foo")).split("\n")[1:] == [
        "bin/tool:1: foo()  # foo", "a.py:1: def foo():  # foo",
    ]  # fmt: skip
    await bench.ok("rename_file", path=script, new_path="run")
    assert await bench.ok("outline", path="run") == "run, python, 1 lines\nNo definitions."


async def test_the_editor_is_asked_first_where_its_text_is_the_models(bench):
    bench.start(TREE)
    uri, outside = (bench.path / "app.py").as_uri(), "file:///usr/lib/python3/typing.py"
    answers = (Target((bench.path / "geo/shapes.py").as_uri(), 1, 3), Target(outside, 7, 7))
    editor = KnowingEditor({uri: TREE["app.py"]}, answers)
    text = await told(bench, "definition", "app.py", 8, "Circle", editor)
    assert editor.asked == [(8, 11), (8, 23)]
    assert text == (
        "2 definitions of `Circle` (from the editor's language server)\ngeo/shapes.py:1\n1\tclass Circle:\n"
        "2\t    def area(self):\n3\t        return 1\n4\t\n"
        "/usr/lib/python3/typing.py:7 [not in the workspace; not read]"
    )
    text = await told(bench, "references", "app.py", 8, "Circle", editor)
    assert "geo/shapes.py:1: class Circle:" in text
    editor.answers = ()
    assert "by syntax" in await told(bench, "definition", "app.py", 8, "Circle", editor)
    editor.answers, editor.asked = answers, []
    await bench.ok("edit_file", path="geo/shapes.py", old_text="class Circle", new_text="\nclass Circle")
    text = await told(bench, "references", "app.py", 8, "Circle", editor)
    assert "geo/shapes.py:1: class Circle: [line numbers before this turn's edits]" in text
    editor.asked = []
    await bench.ok("edit_file", path="app.py", old_text="def main", new_text="def start")
    assert "by syntax" in await told(bench, "definition", "app.py", 8, "Circle", editor)
    assert editor.asked == []


async def test_what_the_editor_shows_goes_with_every_definition(bench):
    bench.start(TREE)
    uri = (bench.path / "app.py").as_uri()
    editor = KnowingEditor({uri: TREE["app.py"]}, (Target(uri, 4, 4),), "(function) def main() -> int\n\nDoes it.")
    shown = "The editor shows:\n| (function) def main() -> int\n| \n| Does it.\n"
    text = await told(bench, "definition", "app.py", 4, "main", editor)
    assert text.startswith(f"1 definition of `main` (from the editor's language server)\n{shown}app.py:4\n")
    editor.answers = None
    text = await told(bench, "definition", "app.py", 4, "main", editor)
    assert text.startswith(
        f"1 definition of `main` (by syntax, names only: check the hits)\n{shown}app.py:4-8 (function)\n"
    )
    text = await told(bench, "definition", "app.py", 4, "def", editor)
    assert text.startswith("No definition of `def` was found; ")
    assert text.endswith(shown.rstrip())


async def test_symbols_of_the_editor_where_no_grammar_finds_any(bench):
    bench.start(TREE | {"a.zz": "box\n  lid\n", "empty.py": "", "use.py": "import lib\nlib.Pump()\n"})
    uris = {name: (bench.path / name).as_uri() for name in ("a.zz", "empty.py", "use.py")}
    uri = uris["a.zz"]
    named = NamedTargets(
        (
            NamedTarget("box", "class", Target(uri, 1, 2)),
            NamedTarget("lid\u202e", "field", Target(uri, 2, 2), "box", 1),
            NamedTarget("flat", "function", Target(uri, 2, 2), "box"),
        ),
        unreadable_count=2,
        is_cut=True,
    )
    editor = KnowingEditor({uri: "box\n  lid\n", uris["empty.py"]: ""}, named=named)
    expected = (
        "a.zz, from the editor's language server\n[omitted: 2 in an unexpected format]\nclass box 1-2\n"
        "  field lid<U+202E> 2\nfunction box.flat 2\n[there are more]"
    )
    output = await ask(bench, editor, "outline", path="a.zz")
    assert output.text == expected
    assert "class box 1-2" in (await ask(bench, editor, "outline", path="empty.py")).text
    assert "class Circle 1-3" in (await ask(bench, editor, "outline", path="geo/shapes.py")).text
    for named in (None, NamedTargets(())):
        editor.named = named
        output = await ask(bench, editor, "outline", path="a.zz")
        assert output.text == "No grammar can read `a.zz`; use search_text to find names in it."
        assert output.is_error
        assert (await ask(bench, editor, "outline", path="empty.py")).text.endswith("No definitions.")

    library = "file:///usr/lib/lib.py"
    names = ("Pump", "lib.Pump", "Pump(int)", "ns::Pump", "Pumps", "pump", "a.Pumper()")
    found = [NamedTarget(name, "class", Target(library, line, line)) for line, name in enumerate(names, start=1)]
    editor.named = NamedTargets(tuple(found))
    text = await told(bench, "definition", "use.py", 2, "lib.Pump", editor)
    assert text.startswith("4 definitions of `Pump` (symbols of that name from the editor's language servers: check")
    assert re.findall(r"lib.py:(\d)", text) == ["1", "2", "3", "4"]
    # What this turn has changed, the editor has not seen; its own syntax is found first.
    await bench.ok("edit_file", path="a.zz", old_text="lid", new_text="top")
    assert (await ask(bench, editor, "outline", path="a.zz")).is_error
    assert "by syntax" in await told(bench, "definition", "app.py", 8, "Circle", editor)


async def test_what_the_editor_names_is_read_through_the_gate_alone(bench, tmp_path):
    (tmp_path / "outside.py").write_text("secret")
    bench.start(TREE | {".env": "secret"})
    uris = [(bench.path / ".env").as_uri(), (tmp_path / "outside.py").as_uri(), "jdt://x/secret%00.class", "nonsense"]
    answers = tuple(Target(uri, 1, 1) for uri in uris)
    editor = KnowingEditor({(bench.path / "app.py").as_uri(): TREE["app.py"]}, answers)
    for name in ("definition", "references"):
        text = await told(bench, name, "app.py", 8, "Circle", editor)
        assert "1\tsecret" not in text
        assert ": secret" not in text


WRONG = {
    ("app.py", 99, "x"): "`app.py` has 8 lines; line 99 does not exist.",
    ("app.py", 4, "Circle"): "`Circle` is not on line 4 of `app.py`. It is on line 1, 8.",
    ("app.py", 4, "mai"): "`mai` is not on line 4 of `app.py`. It does not occur in the file; use search_text to find "
    "it elsewhere.",
    ("no.py", 1, "x"): "`no.py` does not exist; use list_files to find files.",
}


@pytest.mark.parametrize(("path", "line", "symbol"), WRONG)
async def test_wrong_places_are_told(bench, path, line, symbol):
    for name in ("definition", "references"):
        assert await bench.start(TREE).fails(name, path=path, line=line, symbol=symbol) == WRONG[path, line, symbol]


@pytest.mark.parametrize("symbol", ["$x", "@a", "f?", "a b", "(", "::", ".", "é", "x\ny", " ", "\\b", "a.", "\0"])
async def test_any_symbol_is_data(bench, symbol):
    bench.start({"a.rb": f"{symbol}\n$x @a f? a b ( :: . é \\b a.\n"})
    for name in ("definition", "references"):
        output = await ask(bench, NoEditor(), name, path="a.rb", line=2, symbol=symbol)
        assert "fault in thinklsp" not in output.text


def start_large_outline(bench):
    bench.start({"a.py": "def f(a, b):\n    return a + b\n" * 5_000})
    return asyncio.create_task(bench.call("outline", path="a.py"))


@pytest.mark.timing
async def test_the_event_loop_goes_on_meanwhile(bench):
    """The parser lets other threads run: a loop that only counts comes round often while a large file is parsed."""
    task = start_large_outline(bench)
    rounds = 0
    while not task.done():
        await asyncio.sleep(0)
        rounds += 1
    assert rounds > 5
