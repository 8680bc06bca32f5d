"""What stands on a line of code, in the languages that people write."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.support.in_process import item
from thinklsp.lsp.documents.code_locations import (
    CommentTrigger,
    EditSubject,
    find_comment_trigger,
    find_edit_subject,
    has_definition,
    is_unfinished,
)
from thinklsp.lsp.documents.open_documents import Document


def document(text: str, language: str = "python") -> Document:
    return Document(item(text, "file:///a", language=language), "utf-16")


DEFINITIONS: list[tuple[str, str]] = [
    ("python", "def f(x):"),
    ("python", "    async def f(x):"),
    ("python", "class A(B):"),
    ("javascript", "function f() {"),
    ("javascript", "export default async function f() {"),
    ("javascript", "const f = (x) => x + 1"),
    ("javascript", "export const f = async x => {"),
    ("typescript", "export interface Shape {"),
    ("typescript", "const f: Handler = (x: number) => {"),
    ("typescript", "export type A = B | C;"),
    ("rust", "pub(crate) unsafe fn f<T>(x: T) -> U {"),
    ("rust", "impl Display for A {"),
    ("rust", "pub trait T {"),
    ("rust", "macro_rules! m {"),
    ("go", "func (s *Server) Run() error {"),
    ("go", "type A struct {"),
    ("java", "public static void main(String[] args) {"),
    ("java", "    private final List<String> names(int n) throws X {"),
    ("java", "public abstract class A extends B {"),
    ("c", "static int add(int a, int b)"),
    ("c", "char *name(void) {"),
    ("cpp", "std::vector<int> A::f(const B& b) const {"),
    ("cpp", "template_t<A, B> f() {"),
    ("csharp", "public async Task<int> RunAsync(CancellationToken token)"),
    ("csharp", "public record Person(string Name);"),
    ("kotlin", "suspend fun f(x: Int): Int {"),
    ("kotlin", "object Single {"),
    ("swift", "func f(x: Int) -> Int {"),
    ("swift", "protocol P {"),
    ("ruby", "def self.f(x)"),
    ("ruby", "module A"),
    ("php", "public function f($x) {"),
    ("lua", "local function f(x)"),
    ("perl", "sub f {"),
    ("elixir", "defmodule A do"),
    ("elixir", "  defp f(x) do"),
    ("clojure", "(defn f [x]"),
    ("clojure", "(defn- f [x]"),
    ("lisp", "(defun f (x)"),
    ("shellscript", "install() {"),
    ("javascript", "  render(props) {"),
    ("javascript", "  static async *#walk(a, b) {"),
    ("typescript", "  get name(): string {"),
    ("javascript", "function* f() {"),
]

NO_DEFINITIONS: list[tuple[str, str]] = [
    ("python", "return f(x)"),
    ("python", "definition = 1"),
    ("python", "x = lambda y: y"),
    ("python", "classes = []"),
    ("python", ""),
    ("javascript", "if (x) {"),
    ("javascript", "foo(bar)"),
    ("javascript", "  while (x) {"),
    ("javascript", "} else if (x) {"),
    ("javascript", "describe('x', () => {"),
    ("javascript", "items.forEach(function (x) {"),
    ("go", "for i := range f() {"),
    ("lisp", "(classify x)"),
    ("javascript", "functional()"),
    ("c", "return add(a, b);"),
    ("c", "else if (x) {"),
    ("c", "int x = add(1, 2);"),
    ("c", "for (int i = 0; i < n; i++) {"),
    ("java", "throw new Error(x);"),
    ("java", "new Thread(run).start();"),
    ("go", "x := f()"),
    ("rust", "let fn_name = 1;"),
]


@pytest.mark.parametrize(("language", "line"), DEFINITIONS)
def test_definitions(language: str, line: str) -> None:
    assert has_definition(document(f"x\n{line}\nx\n", language), 1)


@pytest.mark.parametrize(("language", "line"), NO_DEFINITIONS)
def test_what_is_no_definition(language: str, line: str) -> None:
    assert not has_definition(document(f"x\n{line}\nx\n", language), 1)


UNFINISHED: list[tuple[str, str, bool]] = [
    ("python", "x = 1  # TODO: more", True),
    ("python", "# FIXME", True),
    ("python", "todos = TODOS", False),
    ("python", "    pass", True),
    ("python", "    ...", True),
    ("python", '    raise NotImplementedError("later")', True),
    ("python", "def f():\n    pass", True),
    ("python", "def f():\n    return 1", False),
    ("python", "password = 1", False),
    ("rust", "    todo!()", True),
    ("rust", '    unimplemented!("x");', True),
    ("rust", "fn f() {}", True),
    ("javascript", "function f() { }", True),
    ("javascript", "const x = {}", False),
    ("c", "int f(void) {}", True),
    ("python", "", False),
]


@pytest.mark.parametrize(("language", "text", "expected"), UNFINISHED)
def test_unfinished_code(language: str, text: str, expected: bool) -> None:
    assert is_unfinished(document(text, language), 0) is expected


# Code; `complete` belongs to the lines that begin with `>`, wherever in them the cursor stands.
BODIES: list[tuple[str, str]] = [
    ("javascript", "x\n>function f() {\n>}\nx"),
    ("javascript", ">export default async function f({ a, b }, c = {}) {\n>\n>  // nothing yet }\n>}\n\n"),
    ("javascript", ">const f = async (x) => {\n>};\ny"),
    ("javascript", "class A {\n>  render(props) {\n>  }\n  x() {\n    return 1\n  }\n}"),
    ("javascript", "const f = (x) => x + 1\n>function g() {\n>}"),
    ("javascript", 'function f() {\n  return "{}"\n}'),
    ("javascript", "const f = () => ({})\nconst y = {\n}"),
    ("typescript", ">function f(\n>  a: string,\n>  b: Map<string, number>,\n>): void {\n>}\n"),
    ("typescript", "declare function f(): void;\n>interface Empty {}\n"),
    ("java", "class A {\n>    public void f(int a) throws X {\n>    }\n\n    int g() {\n        return 1;\n    }\n}"),
    ("java", "interface A {\n    int f();\n    int g();\n}"),
    ("c", "#include <x.h>\n>int f(void)\n>{\n>}\n\nint g(void);\nint h(void)\n{\n    return 1;\n}"),
    ("cpp", ">void A::f(int x)\n>    noexcept\n>{\n>}\nint b;"),
    ("go", "package a\n\n>func (s *Server) Run() error {\n>}\n\n>func g() interface{} {\n>\t// later\n>}\n"),
    ("go", "func f() interface{} {\n\treturn struct{}{}\n}\n"),
    ("rust", ">fn f<'a>(x: &'a str) {\n>\n>}\n"),
    ("rust", ">fn f<T>(x: T) -> u8\n>where\n>    T: Display,\n>{\n>    todo!()\n>}\nstruct A;\nlet x = {};"),
    ("csharp", ">public async Task<int> RunAsync()\n>{\n>}\nint x;"),
    ("kotlin", ">fun f(x: Int): Int {\n>}\nfun g() = 1\n>override fun h() {\n>}"),
    ("php", ">public function f($x): void\n>{\n>}\n"),
    ("shellscript", ">install() {\n>  # later\n>}\n"),
    ("ruby", "class A\n>  def f(x)\n>  end\n\n  def g = 1\nend\n"),
    ("lua", ">local function f(x)\n>  -- later\n>end\n"),
    ("elixir", "defmodule A do\n  def f, do: nil\nend"),
    ("python", "x = 1\n>def f(): pass\n>def g() -> dict[str, int]: ...  # later\ndef h(): return 1\n"),
    ("python", ">def f():\n>    pass\n\nx = 1"),
    ("python", ">class A(B):\n>    ...  # later\nx = 1"),
    ("python", ">def f(x):  # wide: open\n>    # first this\n>    pass\n\n"),
    ("python", ">def f(x):\n>    # first this\n>    # then that\nx = 1"),
    ("python", '>def f(x):\n>    """Halves: it.\n>\n>  As said: (\n>    """\n\nx = 1'),
    ("python", ">def f(x):\n>    'Halves.'\n>    raise NotImplementedError(\"f\")\nx = 1"),
    ("python", ">async def f(\n>    a: int = 1,\n>    *,\n>    b: str = '(',\n>) -> None:\n>    pass\n"),
    ("python", 'def f(x):\n    """Halves."""\n    return x / 2\n'),
    ("python", "class A:\n    def f(self):\n        return 1\n\n>    def g(self):\n>        ...\n\n    x = 1\n"),
    ("python", "def f():\n    if x:\n        return\n>    pass\n"),
    ("python", "x\n>def f():"),
    ("python", "x = {\n}\ny = [\n]\n"),
    ("", ">def f():\n>    pass\n>function f() {\n>}\n"),
]


@pytest.mark.parametrize(("language", "marked"), BODIES)
def test_empty_bodies(language: str, marked: str) -> None:
    lines = marked.split("\n")
    code = document("\n".join(line.removeprefix(">") for line in lines), language)
    empty = [line.startswith(">") for line in lines]
    assert [is_unfinished(code, number) for number in range(len(lines))] == empty
    # Of a selection any line counts.
    either = [is_unfinished(code, number, number + 1) for number in range(len(lines) - 1)]
    assert either == [one or other for one, other in itertools.pairwise(empty)]


def test_a_selection_is_unfinished_where_one_of_its_lines_is() -> None:
    code = document("x = 1\ny = 2  # TODO: more\nz = 3\n")
    for lines in ((0, 1), (1, 2), (0, 99), (1, 0)):
        assert is_unfinished(code, *lines), lines
    for lines in ((2, 3), (0, 0)):
        assert not is_unfinished(code, *lines), lines


@pytest.mark.timing
@pytest.mark.parametrize(
    "line", ["def f():", "def f() ,", "def f(", "def f(x):\n    '''", "x = 1  # '", "{" * 60, "a " * 240 + "("]
)
def test_a_large_selection_is_answered_at_once(line: str) -> None:
    code = document(f"{line}\n" * 20_000)
    start = time.process_time()
    is_unfinished(code, 9_000, 19_000)
    assert time.process_time() - start < 0.1


# language, text, the line that is looked at -> instruction, mark, its lines
TRIGGERS: list[tuple[str, str, int, tuple[str, str, int, int] | None]] = [
    ("python", "# add a docstring AI!", 0, ("add a docstring", "!", 0, 0)),
    ("python", "    # why is this slow? AI?", 0, ("why is this slow?", "?", 0, 0)),
    ("python", "# AI! add a docstring", 0, ("add a docstring", "!", 0, 0)),
    ("python", "# Ai? why", 0, ("why", "?", 0, 0)),
    ("python", "#AI! add a docstring", 0, ("add a docstring", "!", 0, 0)),
    ("python", "#ai! add a docstring", 0, ("add a docstring", "!", 0, 0)),
    ("python", "x = 1  # make it two AI!", 0, ("make it two", "!", 0, 0)),
    ("python", "x = 1#make it two AI!", 0, ("make it two", "!", 0, 0)),
    ("python", "x = '#'  # make it two AI!", 0, ("make it two", "!", 0, 0)),
    ("javascript", "// rename to total AI!  ", 0, ("rename to total", "!", 0, 0)),
    ("javascript", "/* rename to total AI! */", 0, ("rename to total", "!", 0, 0)),
    ("javascript", "x = 1 /* hm AI? */ + 2", 0, ("hm", "?", 0, 0)),
    ("javascript", "foo(); // no magic number AI?", 0, ("no magic number", "?", 0, 0)),
    ("javascript", "{/* wrap this AI! */}", 0, ("wrap this", "!", 0, 0)),
    ("java", "/**\n * rename\n * to total AI!\n */\nint x;", 1, ("rename\nto total", "!", 1, 2)),
    ("c", "/* AI! rename */", 0, ("rename", "!", 0, 0)),
    ("rust", "fn f<'a>(x: &'a str) {} // shorten AI!", 0, ("shorten", "!", 0, 0)),
    ("rust", "/// explain this AI?", 0, ("explain this", "?", 0, 0)),
    ("go", "x := `//` // why AI?", 0, ("why", "?", 0, 0)),
    ("html", "<!-- shorten this AI! -->", 0, ("shorten this", "!", 0, 0)),
    ("markdown", "<!-- shorten this AI! -->", 0, ("shorten this", "!", 0, 0)),
    ("vue", "// shorten this AI!", 0, ("shorten this", "!", 0, 0)),
    ("css", "a { } /* blue AI! */", 0, ("blue", "!", 0, 0)),
    ("sql", "select 'it''s' -- use a join AI!", 0, ("use a join", "!", 0, 0)),
    ("lua", "--[[ use a table AI! ]]", 0, ("use a table", "!", 0, 0)),
    ("lua", "-- use a table AI!", 0, ("use a table", "!", 0, 0)),
    ("haskell", "{- fold AI! -}", 0, ("fold", "!", 0, 0)),
    ("clojure", "(f x) ;; tail call AI!", 0, ("tail call", "!", 0, 0)),
    ("ini", "; sort AI!", 0, ("sort", "!", 0, 0)),
    ("latex", "50\\% of it % cite this AI!", 0, ("cite this", "!", 0, 0)),
    ("erlang", "%% tail call AI!", 0, ("tail call", "!", 0, 0)),
    ("vb", "x = 1 ' make it two AI!", 0, ("make it two", "!", 0, 0)),
    ("vb", "REM make it two AI!", 0, ("make it two", "!", 0, 0)),
    ("vim", '" map to <leader>x AI!', 0, ("map to <leader>x", "!", 0, 0)),
    ("ocaml", "(* fold AI! *)", 0, ("fold", "!", 0, 0)),
    ("fortran", "x = 1 ! make it two AI!", 0, ("make it two", "!", 0, 0)),
    ("bat", "REM make it two AI!", 0, ("make it two", "!", 0, 0)),
    ("bat", ":: make it two AI!", 0, ("make it two", "!", 0, 0)),
    ("shellscript", "echo ${#x} # quote AI!", 0, ("quote", "!", 0, 0)),
    ("php", "$x = 1; # two AI!", 0, ("two", "!", 0, 0)),
    ("yaml", "a: 1  # two AI!", 0, ("two", "!", 0, 0)),
    # A language that nobody has told of.
    ("", "# two AI!", 0, ("two", "!", 0, 0)),
    ("brand-new", "; tail call AI!", 0, ("tail call", "!", 0, 0)),
    ("plaintext", "-- use a join AI!", 0, ("use a join", "!", 0, 0)),
    ("plaintext", " * rename to total AI!", 0, ("rename to total", "!", 0, 0)),
    # Lines of comments that are one instruction, wherever in it one looks.
    ("python", "x\n# make it\n# two AI!\ny", 1, ("make it\ntwo", "!", 1, 2)),
    ("python", "x\n# make it\n# two AI!\ny", 2, ("make it\ntwo", "!", 1, 2)),
    ("python", "x\n# make it\n# two AI!\ny", 3, None),
    ("python", "x\r\n# make it\r\n# two AI!\r\ny", 2, ("make it\ntwo", "!", 1, 2)),
    ("python", "# AI! make it\n# two\n\n# three", 1, ("make it\ntwo", "!", 0, 1)),
    ("python", "# AI! make it\n# two\n\n# three", 3, None),
    ("python", "# make it\n# two\n# AI!", 0, ("make it\ntwo", "!", 0, 2)),
    ("python", "# AI!\n# make it two", 1, ("make it two", "!", 0, 1)),
    ("python", "# one AI!\n# why two AI?", 0, ("one", "!", 0, 0)),
    ("python", "# one AI!\n# why two AI?", 1, ("why two", "?", 1, 1)),
    ("python", "# the license\n#\n# make it two AI!", 2, ("make it two", "!", 2, 2)),
    ("python", "# the license\n#\n# make it two AI!", 0, None),
    ("python", "x = 1  # one\n# make it two AI!", 0, None),
    ("python", "x = 1  # one AI!\ny = 2  # two AI!", 1, ("two", "!", 1, 1)),
    # No instruction.
    ("python", "# AI!", 0, None),
    ("python", "# BONSAI!", 0, None),
    ("python", "# OpenAI!", 0, None),
    ("python", "# see open.ai!", 0, None),
    ("python", "# we use AI", 0, None),
    ("python", "# AI!! is here", 0, None),
    ("python", "# hurray for AI!!!", 0, None),
    ("python", "# the mark AI! in the middle", 0, None),
    ("python", "print('AI!')", 0, None),
    ("python", "x = '# do it AI!'", 0, None),
    ("python", 'x = """\n# do it AI!\n"""', 1, None),
    ("python", "x = a  # it's\n'''\n# do it AI!\n'''", 2, None),
    ("javascript", "x = `\n// do it AI!\n`", 1, None),
    ("javascript", "x = 'http://a AI!'", 0, None),
    ("javascript", "do it AI!", 0, None),
    ("javascript", "# do it AI!", 0, None),
    ("go", "x := `\n// do it AI!\n`", 1, None),
    ("markdown", "# What is AI?", 0, None),
    ("markdown", "This is AI!", 0, None),
    ("html", "<p>// This is AI!</p>", 0, None),
    ("plaintext", "x = a -- b AI!", 0, None),
    ("plaintext", "std::list; do it AI!", 0, None),
    ("lua", "x = [[\n-- do it AI!\n]]", 1, None),
    ("python", "", 0, None),
]


@pytest.mark.parametrize(("language", "text", "line", "found"), TRIGGERS)
def test_comment_triggers(language: str, text: str, line: int, found: tuple[str, str, int, int] | None) -> None:
    assert find_comment_trigger(document(text, language), line) == (None if found is None else CommentTrigger(*found))


FAR_DOWN = 'x = "a # b"  # c\n' * 20_000 + "# make it two AI!\n"


def test_a_trigger_far_down_a_large_file_is_found() -> None:
    found = find_comment_trigger(document(FAR_DOWN), 20_000)
    assert found == CommentTrigger("make it two", "!", 20_000, 20_000)


@pytest.mark.timing
def test_a_trigger_far_down_a_large_file_is_found_at_once() -> None:
    text = document(FAR_DOWN)
    start = time.monotonic()
    find_comment_trigger(text, 20_000)
    assert time.monotonic() - start < 0.1


def test_places_outside_of_the_document_are_empty() -> None:
    text = document("def f():")
    for line in (-1, 1, 99):
        assert not has_definition(text, line)
        assert not is_unfinished(text, line)
        assert find_comment_trigger(text, line) is None


LONG = (
    "(" * 5000, "const " * 2000, "a " * 3000 + "(", "// " + "AI" * 3000, "a<" * 3000, "// AI! " * 900,
    "'" * 6001 + " AI!", "/* " * 2000 + "AI!",
)  # fmt: skip


@pytest.mark.parametrize("line", LONG)
def test_long_lines_are_answered_at_once(line: str) -> None:
    """A line of 6,000 characters in minified code must not keep an editor waiting."""
    text = document(line, "java")
    for look in (has_definition, is_unfinished, find_comment_trigger):
        look(text, 0)


# A text; of the lines that begin with `>`, each means all of them as what an edit at a cursor works on.
SUBJECTS: list[tuple[str, str, str]] = [
    ("python", "x = 1\n>def mean(values):\n>    total = 1\n>\n>    return total\n\ny = 2\n", "mean()"),
    ("python", ">@cache\n>@other(1)\n>async def f(\n>    a,\n>) -> int:\n>    return 1\n@x\ndef g(): ...\n", "f()"),
    ("python", "class A:\n    x = 1\n\n>    def f(self):\n>        return 1\n\n    def g(self): ...\n", "f()"),
    ("python", ">import os", ""),
    ("python", "def f():\n    return 1\n>\nx = 1\n", ""),
    ("python", "def f():\n    return 1\n\n>x = 1\n", ""),
    ("python", ">", ""),
    ("python", "def f():\n    return 1\n>", ""),
    ("python", "def f():\n    return 1\n\n>@x", ""),
    ("go", "package a\n>func (s *Server) Run() {\n>\tif x {\n>\t}\n>}\n\nvar q = 1\n", "Run()"),
    ("csharp", ">public int Run(int a)\n>{\n>    return a;\n>}\nint x;\n", "Run()"),
    ("rust", ">#[test]\n>fn f<'a>(\n>    x: &'a str,\n>) -> u8 {\n>    1\n>}\nstruct A;", "f"),
    ("javascript", "a()\n>export const half = (x) => {\n>  return x / 2\n>}\nhalf(1)", "half"),
    ("ruby", "class A\n>  def f(x)\n>    1\n>  end\n\n  def g = 1\nend\n", "f()"),
    ("lua", ">local function f(x)\n>  return 1\n>end\nprint(1)", "f()"),
]


@pytest.mark.parametrize(("language", "marked", "name"), SUBJECTS)
def test_subject_of_an_edit_at_a_cursor(language: str, marked: str, name: str) -> None:
    lines = marked.split("\n")
    text = document("\n".join(line.removeprefix(">") for line in lines), language)
    numbers = [number for number, line in enumerate(lines) if line.startswith(">")]
    for number in numbers:
        assert find_edit_subject(text, number) == EditSubject(numbers[0], numbers[-1], name), number


@pytest.mark.timing
@pytest.mark.parametrize("line", [*LONG, "    x = 1", "@a", "}", "", "x" * 2**20])
def test_subject_in_a_large_file_is_found_at_once(line: str) -> None:
    text = document(f"{line}\n" * (3 if len(line) > 9_999 else 5_000), "java")
    stairs = document("".join(" " * at + "a " * 50 + "(\n" for at in range(400)) + "\n" * 4_000 + "x", "java")
    for each, at in ((text, 2), (text, text.line_count - 2), (stairs, 399), (stairs, 400), (stairs, 4_000)):
        start = time.process_time()
        find_edit_subject(each, at)
        assert time.process_time() - start < 0.01
