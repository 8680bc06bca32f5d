"""What stands on a line of code, in the languages that people write."""

from __future__ import annotations

import pytest
from lsprotocol import types

from thinklsp.lsp.documents import Document
from thinklsp.lsp.places import comment_trigger, enclosing_definition, has_definition, is_unfinished


def document(text: str, language: str = "python") -> Document:
    return Document(types.TextDocumentItem("file:///a", language, 1, text), "utf-16")


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


TRIGGERS: list[tuple[str, tuple[str, str] | None]] = [
    ("# add a docstring AI!", ("add a docstring", "!")),
    ("    # why is this slow? AI?", ("why is this slow?", "?")),
    ("// rename to total AI!  ", ("rename to total", "!")),
    ("/* rename to total AI! */", ("rename to total", "!")),
    (" * rename to total AI!", ("rename to total", "!")),
    ("<!-- shorten this AI! -->", ("shorten this", "!")),
    ("-- use a join AI!", ("use a join", "!")),
    ("; tail call AI!", ("tail call", "!")),
    ("% cite this AI!", ("cite this", "!")),
    ('" map to <leader>x AI!', ("map to <leader>x", "!")),
    ("x = 1  # make it two AI!", ("make it two", "!")),
    ("foo(); // no magic number AI?", ("no magic number", "?")),
    ("x = 1 /* hm AI? */", ("hm", "?")),
    ("# AI!", None),
    ("# BONSAI!", None),
    ("# we use AI", None),
    ("# AI! is here", None),
    ("print('AI!')", None),
    ("x = a -- b AI!", None),
    ("", None),
]


@pytest.mark.parametrize(("line", "found"), TRIGGERS)
def test_comment_triggers(line: str, found: tuple[str, str] | None) -> None:
    assert comment_trigger(document(line), 0) == found


def test_places_outside_of_the_document_are_empty() -> None:
    text = document("def f():")
    for line in (-1, 1, 99):
        assert not has_definition(text, line)
        assert not is_unfinished(text, line)
        assert comment_trigger(text, line) is None


@pytest.mark.parametrize("line", ["(" * 5000, "const " * 2000, "a " * 3000 + "(", "# " + "AI" * 3000, "a<" * 3000])
def test_long_lines_are_answered_at_once(line: str) -> None:
    """A line of 6,000 characters in minified code must not keep an editor waiting."""
    text = document(line, "java")
    for look in (has_definition, is_unfinished, comment_trigger):
        look(text, 0)


# A line of a text, and the name of its file -> the definition that people would say it stands in.
PYTHON = "import os\n\nclass Stats:\n    low = 1\n\n    def mean(self):\n        x = 1\n\n        return x\n\ntop = 1\n"
GO = "func (s *Server) Run(ctx Context) {\n\tif x {\n\t\ty()\n\t}\n\tz()\n}\n\nvar q = 1\n"
JAVA = "class Adder {\n    int add(int a, int b) {\n        return a + b;\n    }\n}\n"
SCRIPT = "export const half = (x) => {\n  return x / 2\n}\nfunction (x) {\n  y\n}\n"
ENCLOSING = [
    (PYTHON, "a.py", [None, None, *["Stats"] * 3, *["mean()"] * 5, None]),
    (GO, "a.go", [*["Run()"] * 6, None, None]),
    (JAVA, "A.java", ["Adder", "add()", "add()", "add()", "Adder"]),
    (SCRIPT, "a.js", ["half", "half", "half", None, None, None]),
    ("", "a.py", [None]),
]


@pytest.mark.parametrize(("text", "name", "found"), ENCLOSING)
def test_the_definition_around_a_line(text: str, name: str, found: list[str | None]) -> None:
    lines = text.splitlines(keepends=True)
    assert [enclosing_definition(lines, number, name) for number in range(len(found))] == found
