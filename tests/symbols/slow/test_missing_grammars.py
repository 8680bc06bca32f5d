"""Grammars that are missing or broken, each in a process of its own."""

import json
import subprocess
import sys

import pytest

from thinklsp.symbols.outline import load_languages

HIDDEN = sorted({language.grammar.partition(":")[0] for language in load_languages().values()})
WITHOUT_ONE = """
from thinklsp.symbols.outline import build_outline_rows, explain_missing_grammars, find_definition_rows
from thinklsp.symbols.outline import find_mention_lines, load_languages
for name in load_languages():
    if build_outline_rows("a", name) is None:
        assert find_definition_rows("a", name, "a", 0) is find_mention_lines("a", name, "a") is None
        print(name, end=" ")
print(*(sentence.rpartition("`")[0].rpartition("`")[2] for sentence in explain_missing_grammars()))
"""


BROKEN = [(module, "raise ImportError") for module in HIDDEN]
BROKEN += [("tree_sitter_go", body) for body in ("language = lambda: 1 / 0", "language = 'none'", "", "a syntax error")]


@pytest.mark.parametrize(("module", "body"), BROKEN)
def test_missing_grammar_switches_off_its_language_only(tmp_path, module, body):
    (tmp_path / f"{module}.py").write_text(body)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ONE],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(tmp_path)},
    )
    languages = [name for name, language in load_languages().items() if language.grammar.startswith(f"{module}:")]
    assert done.stdout.split() == [*languages, module.replace("_", "-")]


def test_doctor_names_the_package_of_a_missing_grammar(tmp_path):
    (tmp_path / "tree_sitter_typescript.py").write_text("raise ImportError")
    env = {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path), "THINKLSP_PROVIDER": "simulator"}
    argv = [sys.executable, "-m", "thinklsp", "doctor", "--json"]
    report = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True, env=env).stdout)
    assert [problem for problem in report["problems"] if "the package `tree-sitter-typescript`" in problem]
    assert report["canRun"]
