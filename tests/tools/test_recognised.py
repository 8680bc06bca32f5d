"""Which command tests what a turn has changed."""

from __future__ import annotations

import pytest

from thinklsp.tools.runners import find_tests
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import WorkspaceView

PYTEST = ("python3 -m pytest", "python -m pytest", "pytest")
UNITTEST = ("python3 -m unittest", "python -m unittest")
PLAIN = "def test_a(): pass\n"
CASES = "import unittest\n"

# Files, the file that the turn changes, the spellings of its tests, and where they run.
PROJECTS = [
    ({"pytest.ini": ""}, "a.py", PYTEST, None),
    ({"conftest.py": ""}, "a.py", PYTEST, None),
    ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "a.py", PYTEST, None),
    ({"setup.cfg": "[tool:pytest]\n"}, "a.py", PYTEST, None),
    ({"tox.ini": "[pytest]\n"}, "a.py", PYTEST, None),
    ({"pyproject.toml": "not = toml = at all"}, "a.py", None, None),
    ({"pyproject.toml": "[project]\n"}, "a.py", None, None),
    ({"tests/test_a.py": PLAIN}, "a.py", PYTEST, None),
    ({"test_a.py": PLAIN}, "a.py", PYTEST, None),
    ({"tests/test_a.py": CASES, "tests/__init__.py": ""}, "a.py", UNITTEST, None),
    ({"tests/test_a.py": CASES}, "a.py", tuple(f"{each} discover -s tests" for each in UNITTEST), None),
    ({"test_a.py": CASES}, "a.py", UNITTEST, None),
    ({"test_a.py": CASES, "test_b.py": PLAIN}, "a.py", PYTEST, None),
    ({"test_a.py": CASES + "import pytest\n"}, "a.py", PYTEST, None),
    ({"conftest.py": "", ".venv/bin/python": ""}, "a.py", (".venv/bin/python -m pytest",), None),
    ({"conftest.py": "", "venv/bin/python": ""}, "a.py", ("venv/bin/python -m pytest",), None),
    ({}, "test_new.py", PYTEST, None),
    ({"Cargo.toml": ""}, "src/lib.rs", ("cargo test",), None),
    ({"go.mod": ""}, "x/y/a.go", ("go test ./...",), None),
    ({"package.json": '{"scripts": {"test": "jest"}}'}, "a.js", ("npm test",), None),
    ({"package.json": '{"scripts": {"test": "x"}}', "pnpm-lock.yaml": ""}, "a.js", ("pnpm test",), None),
    ({"package.json": '{"scripts": {"test": "x"}}', "yarn.lock": ""}, "a.js", ("yarn test",), None),
    ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'}, "a.js", None, None),
    ({"package.json": '{"scripts": []}'}, "a.js", None, None),
    ({"package.json": "[" * 100_000}, "a.js", None, None),
    ({"Makefile": "all: x\n\ntest: all\n\tx\n"}, "a.c", ("make test",), None),
    ({"Makefile": "test := x\n"}, "a.c", None, None),
    # Of several the one that speaks the language of the change, of several folders the nearest.
    ({"conftest.py": "", "package.json": '{"scripts": {"test": "x"}}'}, "a.ts", ("npm test",), None),
    ({"conftest.py": "", "package.json": '{"scripts": {"test": "x"}}'}, "a.py", PYTEST, None),
    ({"conftest.py": "", "Makefile": "test:\n"}, "a.md", PYTEST, None),
    ({"conftest.py": "", "web/package.json": '{"scripts": {"test": "x"}}'}, "web/src/a.ts", ("npm test",), "web"),
    ({"conftest.py": "", "web/index.html": ""}, "web/a.py", PYTEST, None),
    ({}, "a.py", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("files", "changed", "expected", "folder"), PROJECTS)
def test_a_project_is_recognised_by_its_files(bench, files, changed, expected, folder):
    bench.start({"readme.txt": "", **files})
    bench.overlay.write(bench.overlay.view.resolve(changed), "# changed\n" + PLAIN * changed.startswith("test_"))
    found = find_tests(bench.overlay)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert (tuple(" ".join(argv) for argv in found.commands), found.folder) == (expected, folder)


def test_several_folders_are_named(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "two/go.mod").write_text("")
    with Root(str(tmp_path / "one")) as one, Root(str(tmp_path / "two")) as two:
        overlay = EditOverlay(WorkspaceView([one, two]))
        overlay.write(overlay.view.resolve("one/a.go"), "x")
        overlay.write(overlay.view.resolve("two/sub/a.go"), "x")
        assert find_tests(overlay).folder == "two"
        assert [place.label for place in overlay.view.resolve_folder("two")] == ["two"]
