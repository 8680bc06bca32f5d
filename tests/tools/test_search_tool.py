"""`search_text` against a search in plain Python, and against hostile folders."""

import asyncio
import json
import os
import re
import resource
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.sizes import examples
from thinklsp.core.lines import split_lines
from thinklsp.core.text_safety import RESULT_LIMIT
from thinklsp.tools.search import SearchText, SearchTextArguments, find_ripgrep
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

RG = find_ripgrep([])


def hits(text):
    """{path: [line numbers]} of a report."""
    found, path = {}, None
    for line in text.split("\n"):
        number = re.match(r"(\d+): ", line)
        if number:
            found[path].append(int(number[1]))
        elif line and not re.match(r"\d+- |--$|\[|No matches", line):
            path = line
            found[path] = []
    return found


def expected(texts, pattern):
    found = {}
    for name, text in texts.items():
        numbers = [n for n, line in enumerate(split_lines(text), 1) if re.search(pattern, line.rstrip("\r\n"))]
        if numbers:
            found[name] = numbers
    return found


lines = st.lists(st.sampled_from(["foo\n", "bar\r\n", "foo bar\n", "é foo\r\n", "", "\n", " foo", "FOO\n"]), max_size=6)
files = st.dictionaries(st.sampled_from(["a.py", "b.txt", "d/c.py", "d/e/f.md", "g"]), lines.map("".join), max_size=5)
PATTERNS = ["foo", "^foo", "bar$", "fo+ b", "(?i)foo", "é"]


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    disk=files, opened=files, written=files, pattern=st.sampled_from(PATTERNS),
    deleted=st.sets(st.sampled_from(["a.py", "d/c.py", "g"])),
)  # fmt: skip
async def test_it_finds_what_python_finds(bench, disk, opened, written, deleted, pattern):
    for old in bench.path.rglob("*"):
        if old.is_file():
            old.unlink()
    bench.start(disk, opened)
    texts = disk | opened
    await bench.read(*texts)
    for name, text in written.items():
        await bench.ok("write_file", path=name, content=text)
        texts = texts | {name: bench.overlay.read(bench.overlay.view.resolve(name)).text}
    for name in deleted & set(texts):
        await bench.ok("delete_file", path=name)
        texts = {key: text for key, text in texts.items() if key != name}
    found = await bench.ok("search_text", pattern=pattern)
    assert hits(found) == expected(texts, pattern)


IGNORED = {
    "*.{log,tmp}": ["a.log", "a.tmp", "a.{log,tmp}"], "*.log\t": ["a.log", "a.log\t"], "a[[:digit:]]": ["a1", "ab"],
    "?.txt": ["é.txt", "e.txt"], "[é].txt": ["é.txt", "e.txt"], "[!a].txt": ["é.txt", "a.txt", "b.txt"],
    "a\\b": ["ab", "a\\b"], "\\!a": ["!a", "a"], "a**b": ["ab", "a-b"], "d/**": ["d/x"], "[a-c].py": ["a.py", "d.py"],
    "*": ["a"], "*\n!d/\n!*.py": ["d/a.py", "a.txt"], "a[": ["a[", "a"], "*.log  ": ["a.log", "a.log  "],
}  # fmt: skip


@pytest.mark.parametrize("rules", IGNORED)
@pytest.mark.parametrize("folder", ["", "sub/"])
async def test_it_searches_the_files_that_are_listed(bench, rules, folder):
    files = {folder + name: "needle\n" for name in IGNORED[rules]}
    bench.start({f"{folder}.gitignore": rules + "\n", "d/kept.py": "needle\n", "nul.bin": b"needle\0\n", **files})
    listed = set((await bench.ok("list_files")).split("\n"))
    found = await bench.ok("search_text", pattern="needle")
    assert {path for path in hits(found) if path} == listed - {f"{folder}.gitignore", "nul.bin", "No files."}


ignore_lines = st.text(st.sampled_from("ab./*?![]{},\\-^ \té#"), min_size=1, max_size=6)
odd_names = st.text(st.sampled_from("ab.é*?![{,}-# "), max_size=4).map("a".__add__)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rules=st.lists(ignore_lines, min_size=1, max_size=3), deeper=st.lists(ignore_lines, max_size=1),
    names=st.lists(st.lists(odd_names, min_size=1, max_size=2).map("/".join), min_size=1, max_size=6),
)  # fmt: skip
async def test_it_searches_exactly_the_listed_files(bench, rules, deeper, names):
    for old in sorted(bench.path.rglob("*"), reverse=True):
        old.rmdir() if old.is_dir() else old.unlink()
    (bench.path / ".gitignore").write_text("\n".join(rules))
    for name in names:
        path = bench.path / name
        if not any(each.is_file() for each in path.parents) and not path.is_dir():
            path.parent.mkdir(exist_ok=True)
            path.write_text("needle\n")
            if deeper and path.parent != bench.path:
                (path.parent / ".gitignore").write_text(deeper[0])
    bench.start({}, {})
    listing = await bench.ok("list_files")
    listed = {path for path in listing.split("\n") if not path.endswith(".gitignore") and path != "No files."}
    assert {path for path in hits(await bench.ok("search_text", pattern="needle")) if path} == listed


TREE = {
    "src/a.py": "needle one\nplain\nneedle two\n", "src/b.ts": "needle\n", "src/deep/c.py": "x\nneedle\n",
    "top.md": "needle\n", "build/out.js": "needle\n",
    "a.log": "needle\n", ".gitignore": "build/\n*.log\n", "src/gen/.gitignore": "*\n",
    "src/gen/g.py": "needle\n", ".git/config": "needle\n", ".thinklsp/chat/a.chat.md": "needle\n", ".env": "needle\n",
    ".hidden/h.py": "needle\n", "latin.txt": b"needle \xe9\n", "nul.bin": b"needle\0\n",
    "utf16.txt": "needle\n".encode("utf-16"), "mark.py": b"\xef\xbb\xbfneedle\n",
    "space name/-dash.py": "needle\n", "server.pem": "needle\n", "p[id]/x/{y}.py": "needle\n",
}  # fmt: skip
EVERYWHERE = {
    "src/a.py": [1, 3], "src/b.ts": [1], "src/deep/c.py": [2], "top.md": [1], ".hidden/h.py": [1], "mark.py": [1],
    "space name/-dash.py": [1], "p[id]/x/{y}.py": [1],
}  # fmt: skip
SCOPES = {
    '{}': EVERYWHERE,
    '{"path": "src"}': {name: at for name, at in EVERYWHERE.items() if name.startswith("src/")},
    '{"path": "src/a.py"}': {"src/a.py": [1, 3]},
    '{"glob": "*.py"}': {name: at for name, at in EVERYWHERE.items() if name.endswith(".py")},
    '{"glob": "*.{ts,md}"}': {"src/b.ts": [1], "top.md": [1]},
    '{"glob": "src/**/*.py"}': {"src/a.py": [1, 3], "src/deep/c.py": [2]},
    '{"path": "src", "glob": "deep/*.py"}': {"src/deep/c.py": [2]},
    '{"path": "src", "glob": "src/*.py"}': {"src/a.py": [1, 3]},
    '{"path": "src", "glob": "!*.py"}': {"src/b.ts": [1]},
    '{"glob": "*.log"}': {},
    '{"glob": "./*"}': {"top.md": [1], "mark.py": [1]},
    '{"path": "src", "glob": "./*.py"}': {"src/a.py": [1, 3]},
    '{"glob": "src"}': {name: at for name, at in EVERYWHERE.items() if name.startswith("src/")},
    '{"glob": "deep/"}': {"src/deep/c.py": [2]},
    '{"path": "p[id]", "glob": "x/*.py"}': {"p[id]/x/{y}.py": [1]},
    '{"glob": "p\\\\[id\\\\]/x/\\\\{y\\\\}*"}': {"p[id]/x/{y}.py": [1]},
    '{"path": "build"}': {"build/out.js": [1]},
    '{"path": "src/gen"}': {},
    '{"path": "src/gen/g.py"}': {"src/gen/g.py": [1]},
    '{"path": "space name"}': {"space name/-dash.py": [1]},
}  # fmt: skip


@pytest.mark.parametrize("scope", SCOPES)
async def test_scopes(bench, scope):
    bench.start(TREE)
    found = await bench.ok("search_text", pattern="needle", **json.loads(scope))
    assert hits(found) == SCOPES[scope]


SEVERAL = ["ws/a.py", "ws/b.md", "ws/sub/a.py", "ws/sub/deep/c.py", "ws-2/a.py", "ws-2/sub/d.py"]
IN_SEVERAL = {
    "*.py": [name for name in SEVERAL if name.endswith(".py")],
    "sub/*.py": ["ws/sub/a.py", "ws-2/sub/d.py"],
    "ws/sub/*.py": ["ws/sub/a.py"],
    "/ws/*": ["ws/a.py", "ws/b.md"],
    "./ws-2/**/*.py": ["ws-2/a.py", "ws-2/sub/d.py"],
    "ws{,-2}/a.py": ["ws/a.py", "ws-2/a.py"],
    "*/*.py": ["ws/a.py", "ws/sub/a.py", "ws-2/a.py", "ws-2/sub/d.py"],
    "**/ws/*.py": ["ws/a.py"],
    "ws-2": ["ws-2/a.py", "ws-2/sub/d.py"],
    "ws/": [name for name in SEVERAL if name.startswith("ws/")],
    "!ws/**": ["ws-2/a.py", "ws-2/sub/d.py"],
    "!ws*/sub": ["ws/a.py", "ws/b.md", "ws-2/a.py"],
}


@pytest.mark.parametrize("glob", IN_SEVERAL)
async def test_globs_match_displayed_paths_of_several_folders(bench, tmp_path, glob):
    """The last file is open alone, and a glob is also meant from the folder on."""
    other = tmp_path / "other"
    for name in SEVERAL[:-1]:
        folder, _, path = name.partition("/")
        target = (other if folder == "ws-2" else bench.path) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("needle\n")
    with Root(str(other), name="ws") as root:
        documents = [DocumentSnapshot((other / "sub/d.py").as_uri(), 1, "needle\n")]
        bench.overlay = EditOverlay(WorkspaceView([bench.root, root], documents))
        assert sorted((await bench.ok("list_files", glob=glob)).split("\n")) == sorted(IN_SEVERAL[glob])
        found = hits(await bench.ok("search_text", pattern="needle", glob=glob))
        assert sorted(found) == sorted(IN_SEVERAL[glob])
        within = [name for name in IN_SEVERAL[glob] if name.startswith("ws/sub/")]
        found = hits(await bench.ok("search_text", pattern="needle", path="ws/sub", glob=glob))
        assert set(within) <= set(found) <= {"ws/sub/a.py", "ws/sub/deep/c.py"}


async def test_the_report(bench):
    bench.start({"a.py": "one\ntwo foo\nthree\nfour\nfive\nsix foo\u202e\n", "x\ny.py": "foo" + "x" * 900})
    text = await bench.ok("search_text", pattern="foo", context=1)
    assert text == (
        "a.py\n1- one\n2: two foo\n3- three\n--\n5- five\n6: six foo<U+202E>\n\n"
        '"x\\ny.py"\n1: foo' + "x" * 497 + " [line cut]"
    )
    assert (await bench.ok("search_text", pattern="absent")).startswith("No matches.")


@pytest.mark.parametrize("pattern", ["--files", "-e", "--pre=sh", "-f/etc/passwd", "a.c(", "[x", "$(id)", "*"])
async def test_patterns_are_data(bench, pattern):
    bench.start({"f": "x --files -e --pre=sh -f/etc/passwd a.c( [x $(id) *\n", "abc": "abc\n"})
    assert hits(await bench.ok("search_text", pattern=pattern, literal=True)) == {"f": [1]}


SEVERAL_LINES = "The pattern contains a line ending, but the search works line by line. Search for one of its lines."
WRONG_PATTERNS = [
    *((pattern, "") for pattern in ("a(", "[", "(?P<x>", "*")),
    *((pattern, SEVERAL_LINES) for pattern in ("a\nb", r"a\nb", r"a\\\nb", r"(\r\n|$)", r"\r")),
]


@pytest.mark.parametrize(("pattern", "sentence"), WRONG_PATTERNS)
async def test_wrong_patterns_are_told(bench, pattern, sentence):
    bench.start({"f": "a\nb\n"})
    text = await bench.fails("search_text", pattern=pattern)
    assert str(bench.path) not in text
    assert sentence in ("", text)


@pytest.mark.parametrize("pattern", [r"a\x0ab", "(?=Considered)b", r"(a)\1", r"[\n]"])
async def test_no_option_of_ripgrep_is_advised(bench, pattern):
    bench.start({"f": "a\nb\n"})
    text = await bench.fails("search_text", pattern=pattern)
    assert "--" not in text
    assert "Consider " not in text
    assert ("Considered" in text) == ("Considered" in pattern)


async def test_results_are_bounded(bench):
    bench.start(
        {f"f{n}": "needle in a long line of hay, " * 4 + "\n" for n in range(1, 300)} | {"many": "needle\n" * 5000}
    )
    text = await bench.ok("search_text", pattern="needle")
    assert len(text) <= RESULT_LIMIT
    assert "[stopped at 1000 lines" in text
    assert 1 <= sum(map(len, hits(text).values())) <= 1000


async def test_links_and_special_files_lead_nowhere(bench, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.py").write_text("needle\n")
    bench.start({"in.py": "needle\n", ".ripgreprc": "--follow\n", ".ignore": "in.py\n", ".rgignore": "in.py\n"})
    for name, target in (("link.py", outside / "secret.py"), ("dir", outside), (".gitignore", outside / "secret.py")):
        (bench.path / name).symlink_to(target)
    os.mkfifo(bench.path / "fifo")
    assert hits(await bench.ok("search_text", pattern="needle")) == {"in.py": [1]}
    for path in ("link.py", "dir", "dir/secret.py", "fifo", "no.py"):
        await bench.fails("search_text", pattern="needle", path=path)


async def test_without_a_folder_open_documents_are_searched(bench):
    bench.start(documents={"untitled:1": "x\nneedle\n", "untitled:2": "hay\n"})
    bench.overlay = type(bench.overlay)(type(bench.overlay.view)(documents=bench.overlay.view.documents))
    assert hits(await bench.ok("search_text", pattern="needle")) == {"untitled:1": [2]}


def plant(folder, script):
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "rg"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def use_program(bench, folder, script):
    """Let searches run this script in the place of ripgrep."""
    program = plant(folder, script)
    bench.tools = (SearchText(lambda _: [str(program)]),)
    return program


def test_a_planted_program_is_not_found(tmp_path):
    ws, system = tmp_path / "ws", tmp_path / "system"
    plant(ws / "bin", "exit 1")
    honest = plant(system, "exit 1")
    (ws / "linked").symlink_to(ws / "bin")
    (ws / "out").mkdir()
    (ws / "out" / "rg").symlink_to("/bin/sh")
    (tmp_path / "into").mkdir()
    (tmp_path / "into" / "rg").symlink_to(ws / "bin" / "rg")
    traps = [str(ws / "bin"), str(ws / "linked"), str(ws / "out"), str(tmp_path / "into"), "", ".", "bin", "ws/bin"]
    own = Path(sys.executable).with_name("rg")
    ours = (str(own),) if own.exists() else ()
    assert find_ripgrep([str(ws)], os.pathsep.join(traps)) == ours
    assert find_ripgrep([str(ws)], os.pathsep.join([*traps, str(system)])) == (str(honest), *ours)


async def test_output_that_lies_is_not_shown(bench, tmp_path):
    """A program that prints paths and lines of its own: only what the gate reads there is shown."""
    (tmp_path / "secret").write_text("stolen\n")
    bench.start({"a.py": "real\nother\n", ".env": "stolen\n"})
    (bench.path / "link").symlink_to(tmp_path / "secret")
    lies = ("../secret", "./link", "./.env", "./a.py", "./no", ".", "", "./a.py/../../secret")
    paths = [str(tmp_path / "secret"), *lies]
    said = [
        f'{{"type":"match","data":{{"path":{{"text":"{path}"}},"lines":{{"text":"{line}\\n"}},"line_number":1,'
        '"submatches":[{"match":{"text":"x"},"start":0,"end":1}]}}'
        for path in paths
        for line in ("stolen", "made up")
    ]
    honest = said[-1].replace(paths[-1], "./a.py").replace("made up", "real")
    wrong = (honest.replace('"line_number":1', f'"line_number":{number}') for number in (2, 3, 99))
    said += (honest, *wrong)
    use_program(bench, tmp_path, "cat <<'END'\n" + "\n".join(said) + "\nEND")
    assert await bench.ok("search_text", pattern="x") == "a.py\n1: real"


async def test_an_old_ripgrep_is_not_used(bench, tmp_path):
    bench.start({"a.py": "needle\n"})
    program = use_program(bench, tmp_path, "echo 'error: Found argument --no-require-git' >&2\nexit 2")
    assert "needs ripgrep 14 or later" in await bench.fails("search_text", pattern="needle")
    # As a program for another platform or another C library.
    program.write_text("#!/no/such/interpreter\n")
    assert "needs ripgrep 14 or later" in await bench.fails("search_text", pattern="needle")
    bench.tools = (SearchText(lambda _: [str(program), *RG]),)
    assert await bench.ok("search_text", pattern="needle") == "a.py\n1: needle"


async def test_cancel_ends_the_child(bench, tmp_path):
    pid_file = tmp_path / "pid"
    os.mkfifo(pid_file)
    use_program(bench.start({"a.py": "x"}), tmp_path, f"echo $$ > {pid_file}\nexec sleep 60")
    task = asyncio.create_task(bench.call("search_text", pattern="x"))
    with await asyncio.to_thread(open, pid_file) as pipe:
        pid = int(pipe.read())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_children_see_no_environment(bench, tmp_path, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "RIPGREP_CONFIG_PATH", "LD_PRELOAD_X"):
        monkeypatch.setenv(name, "canary")
    use_program(bench.start({"a.py": "x"}), tmp_path, f"env > {tmp_path}/env\ncat > {tmp_path}/stdin\nexit 1")
    assert await bench.ok("search_text", pattern="x") == "No matches."
    assert "canary" not in (tmp_path / "env").read_text()
    assert (tmp_path / "stdin").read_text() == ""


async def search_with_an_endless_list(bench):
    """Search a clone that brings an endless list of ignored files. ripgrep follows the link to it."""
    bench.start({"a.py": "foo\n", "sub/b.py": "foo\n", ".gitignore": "c.py\n", "c.py": "foo\n"})
    (bench.path / "sub/.gitignore").symlink_to("/dev/zero")
    return await bench.ok("search_text", pattern="foo")


async def test_a_list_of_ignored_files_that_never_ends_is_left_out(bench):
    """If the system stops ripgrep, the files are listed without it."""
    assert hits(await search_with_an_endless_list(bench)) == {"a.py": [1], "sub/b.py": [1]}


@pytest.mark.timing
@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory in another unit")
async def test_a_list_of_ignored_files_that_never_ends_takes_no_memory(bench):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    await search_with_an_endless_list(bench)
    # Until it runs its own program, a child counts as large as this process.
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= max(before, own, 700_000)


MATCHING = {"a line": ("a " * 200_000, 1), "returns": ("a\r" * 200_000, 1), "no text": ("a\x01" * 200_000, 1)}


@pytest.mark.parametrize("kind", MATCHING)
async def test_a_line_that_matches_everywhere(tmp_path, kind):
    """ripgrep writes 45 bytes for each match, which kept the event loop while they were read."""
    text, count = MATCHING[kind]
    (tmp_path / "a.txt").write_text(text, newline="")
    with Root(str(tmp_path)) as root:
        document = DocumentSnapshot((tmp_path / "a.txt").as_uri(), 1, text + "b")
        for documents in ([], [document]):
            overlay = EditOverlay(WorkspaceView([root], documents))
            found = await SearchText().find(SearchTextArguments(pattern="a"), overlay)
            assert found.total >= count
