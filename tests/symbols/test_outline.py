"""What each language's text defines: a table of small files, and what holds for every text."""

import subprocess
import sys
import tokenize
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sizes import STEP, examples
from tests.symbols.sources import definitions, standard_library
from thinklsp.core.lines import split_lines
from thinklsp.symbols.outline import build_outline, detect_language, find_mentions, load_languages

TABLE = sorted(Path(__file__).with_name("outlines").glob("*.txt"))


def parts(path):
    """File name, source and expected outline."""
    head, _, rest = path.read_text().partition("\n")
    source, _, expected = rest.partition("=== outline\n")
    return head.removeprefix("=== "), source, expected


def drawn(symbols):
    """As the tables write it: kind, name and lines, indented, with the line of the name where it is not the first."""
    rows = []
    for each in symbols:
        at = f" at {each.line}" if each.line != each.first_line else ""
        within = f" of {each.container}" if each.container else ""
        rows.append(f"{'  ' * each.depth}{each.kind} {each.name}{within} {each.first_line}-{each.last_line}{at}\n")
    return "".join(rows)


@pytest.mark.parametrize("path", TABLE, ids=lambda path: path.stem)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
def test_each_language(path, end):
    name, source, expected = parts(path)
    text = source.replace("\n", end)
    language = detect_language(name, text)
    assert language is load_languages()[path.stem]
    assert drawn(build_outline(text, language)) == expected
    assert build_outline("\ufeff" + text, language) == build_outline(text, language)


def test_the_table_has_every_language():
    assert [path.stem for path in TABLE] == sorted(load_languages())


LANGUAGES = {
    ("a/b.py", ""): "python", ("B.PY", ""): "python", ("x.pyi", ""): "python", ("a\\b.rs", ""): "rust",
    ("file:///a/b.go", ""): "go", ("a.tsx", ""): "tsx", ("a.d.ts", ""): "typescript", ("Rakefile", ""): "ruby",
    ("run", "#!/usr/bin/env python3.12\n"): "python", ("run", "\ufeff#! /usr/bin/python -u\n"): "python",
    ("x", "#!/bin/sh"): "bash", ("x", "#!/usr/bin/env -S deno run\n"): "typescript", ("x", "plain #!/bin/sh"): None,
    ("x.txt", "#!/bin/sh"): None, ("untitled:Untitled-1", "#!/bin/bash\n"): "bash", (".bashrc", ""): "bash",
    ("a.h", "int f(void);\n"): "c", ("a.h", "namespace a {}\n"): "cpp", ("a.h", "x = a::b();\n"): "cpp",
    ("a.h", "// the class of it\n"): "c", ("", ""): None, (".", ""): None, ("py", ""): None,
}  # fmt: skip


@pytest.mark.parametrize(("path", "text"), LANGUAGES)
def test_languages_by_name_first_line_and_text(path, text):
    found = detect_language(path, text)
    assert (found and found.name) == LANGUAGES[path, text]


# As the protocol lists them, and as editors say it that send the names of their own.
IDS = {
    "python": "python", "javascript": "javascript", "javascriptreact": "javascript", "typescript": "typescript",
    "typescriptreact": "tsx", "go": "go", "rust": "rust", "java": "java", "c": "c", "cpp": "cpp", "cuda-cpp": "cpp",
    "ruby": "ruby", "php": "php", "csharp": "csharp", "lua": "lua", "shellscript": "bash", "sh": "bash", "bash": "bash",
    "Python": "python", "plaintext": None, "kotlin": None, "": None,
}  # fmt: skip


@pytest.mark.parametrize("language_id", IDS)
def test_editor_language_applies_to_unknown_names(language_id):
    for path in ("untitled:Untitled-1", "bin/tool", "notes.txt"):
        found = detect_language(path, "x\n", language_id)
        assert (found and found.name) == IDS[language_id]
    assert detect_language("a.go", "", language_id).name == "go"
    assert detect_language("tool", "#!/usr/bin/env ruby\n", language_id).name == "ruby"


def check(text, language):
    """All that holds for whatever text."""
    symbols = build_outline(text, language)
    assert symbols == build_outline(text, language)
    lines = max(len(split_lines(text)), 1)
    within = []
    for each in symbols:
        assert each.name
        assert 1 <= each.first_line <= each.last_line <= lines
        assert each.first_line <= each.line <= lines
        assert each.depth <= len(within)
        del within[each.depth :]
        if within:
            assert within[-1].first_line <= each.first_line <= each.last_line <= within[-1].last_line
            assert each.container
        within.append(each)
    for one, other in pairwise(symbols):
        assert other.depth or other.first_line >= one.first_line
    return symbols


SOURCES = {path.stem: parts(path)[1] for path in TABLE}
junk = st.text(st.characters(codec=None) | st.sampled_from("\0\ud800\ufeff\r\n\t{}()[]\"'`#/*:;<>=\\"), max_size=30)


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(sorted(SOURCES)), st.data())
def test_broken_texts_have_outlines_too(name, data):
    """Pieces of a text taken out, doubled, and junk put between them."""
    text = SOURCES[name]
    for _ in range(data.draw(st.integers(1, 4))):
        a, b = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        text = text[:a] + data.draw(junk | st.just(text[a:b] * 2) | st.just("")) + text[b:]
    check(text, load_languages()[name])


INDENTED = "".join(" " * depth + "if x:\n" for depth in range(600))
NESTED = {
    "python": ["(" * 5_000, "[" * 5_000 + "]" * 5_000, "x = " + "-" * 5_000 + "1", INDENTED],
    "javascript": ["function f() {" * 5_000, "{" * 10_000, "`${" * 5_000, "a=>" * 10_000, "<a>" * 5_000],
    "cpp": ["namespace a {" * 5_000, "a<" * 2_000, "((((" * 3_000, "struct s { " * 10_000 + "};" * 10_000],
    "rust": ["mod a {" * 10_000, "impl A { fn f() {" * 5_000, "&" * 10_000],
    "bash": ["$(" * 3_000, "a() {" * 3_000],
    "ruby": ["class A\n" * 10_000, "#{" * 10_000],
    "lua": ["{" * 10_000, "function f() " * 10_000],
    "go": ["func() {" * 10_000],
}


@pytest.mark.parametrize("name", NESTED)
def test_deep_nesting_is_no_recursion(name):
    for text in NESTED[name]:
        check(text, load_languages()[name])


def test_python_as_python_itself_sees_it():
    """Compare every 40th file of the standard library, or more of them in larger runs."""
    compared = 0
    for path in standard_library()[:: {"quick": 40, "commit": 3}.get(STEP, 1)]:
        source = path.read_bytes()
        expected = definitions(source)
        if expected is not None:
            text = source.decode(tokenize.detect_encoding(BytesIO(source).readline)[0])
            assert as_python_says(text) == expected, path
            compared += 1
    assert compared > 30


def as_python_says(text):
    rows = [
        (s.kind, s.name, s.first_line, s.last_line, s.depth) for s in build_outline(text, load_languages()["python"])
    ]
    return sorted(rows, key=lambda row: row[2:])


MENTIONS = {
    ("python", "a = 1 # a\n'a'\nb.a(f'{a}', 'a')\naa\n"): (1, 3),
    ("go", "// a\nvar a = \"a\"\n/* a */ a()\n"): (2, 3),
    ("javascript", "a\n`a ${a}`\n`a`\n$a\na$\n{ a: 1 }\n"): (1, 2, 6),
    ("bash", "a() { echo \"a\"; }\n# a\na\n"): (1, 3),
    ("c", "#include \"a\"\nint a; /* a */\nchar c = 'a';\n"): (2,), ("rust", "//! a\nlet s = r#\"a\"#;\na!()\n"): (3,),
    ("python", "é.a\naé\n"): (1,), ("python", "x\r\na\rb\na\r"): (2, 4),
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), MENTIONS)
def test_a_name_is_mentioned_where_it_is_code(name, text):
    assert find_mentions(text, load_languages()[name], "a") == MENTIONS[name, text]


def test_nothing_native_is_loaded_before_a_symbol_is_asked_for():
    script = "import sys, thinklsp.tools.registry; print([name for name in sys.modules if 'tree_sitter' in name])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
