""".gitignore as git means it, and globs as tools take them."""

import re
import shutil
import subprocess
import time

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.sizes import examples
from thinklsp.core.errors import PathRefused
from thinklsp.tools.read import GlobFilter, expand_braces
from thinklsp.workspace.ignore import IgnoreRules
from thinklsp.workspace.paths import Listing, Root
from thinklsp.workspace.uri import RelPath

GIT = shutil.which("git")
FILES = [
    "a.py", "a.log", "b/a.py", "b/a.log", "b/keep.log", "b/c/a.py", "build/x", "b/build/x", "docs/build", ".hidden",
]  # fmt: skip
PATTERNS = st.sampled_from(
    ["*.log", "!keep.log", "build/", "/build", "b/c", "/a.py", "**/a.py", "b/**", "!b/c/", "*", "!*/", "!*.py",
     "# a.py", "", "docs/*", "a.*", "**/", "b/*", "!b/keep.log", "/*", "!/b", "\\!x", ".hidden", "c", "[ab].py"]
)  # fmt: skip


def ask_git(folder, *arguments, stdin=""):
    argv = [GIT, "-c", "core.excludesFile=/dev/null", *arguments]
    done = subprocess.run(argv, cwd=folder, input=stdin.encode(), capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.decode().split("\0")


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(top=st.lists(PATTERNS, max_size=5), nested=st.lists(PATTERNS, max_size=3))
def test_git_ignores_the_same_files(tmp_path, top, nested):
    if GIT is None:
        pytest.skip("git is not installed")
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("\n".join(top))
    (tmp_path / "b" / ".gitignore").write_text("\r\n".join(nested))
    if not (tmp_path / ".git").exists():
        subprocess.run([GIT, "init", "-q", "."], cwd=tmp_path, check=True)
    listed = ask_git(tmp_path, "ls-files", "-co", "--exclude-standard", "-z")
    with Root(str(tmp_path)) as root:
        taken = find_taken(IgnoreRules(root), FILES)
        walked = set(_walk(root, IgnoreRules(root)))
    assert taken == [name for name in FILES if name in listed]
    assert walked == set(listed) - {""}


def find_taken(rules, names):
    return [name for name in names if not rules.is_ignored(tuple(name.split("/")))]


def _walk(root, rules, folder=()):
    kept = rules.filter_listing(folder, root.list(RelPath.build(folder)))
    yield from ("/".join((*folder, name)) for name in kept.files)
    for name in kept.directories:
        yield from _walk(root, rules, (*folder, name))


def test_names_that_nobody_looked_at_are_left_out(tmp_path):
    with Root(str(tmp_path)) as root:
        (tmp_path / ".gitignore").write_text("a*")
        listing = Listing(("sub", "other"), (".gitignore", "a.py", "b.py"))
        assert IgnoreRules(root).filter_listing((), listing, lambda: True) == Listing((), ())


def test_comments_do_not_use_up_the_limit_of_patterns(tmp_path):
    (tmp_path / ".gitignore").write_text("# see a/b*\n" * 5_000 + "*.log\n")
    with Root(str(tmp_path)) as root:
        assert find_taken(IgnoreRules(root), ("a.log", "a.py")) == ["a.py"]


def test_a_linked_or_broken_ignore_file_counts_for_nothing(tmp_path):
    (tmp_path / "elsewhere").write_text("*\n")
    ws = tmp_path / "ws"
    ws.mkdir()
    (ws / ".gitignore").symlink_to("../elsewhere")
    (ws / "sub").mkdir()
    (ws / "sub" / ".gitignore").write_bytes(b"\xff\xfe\n!\n[\n[z-a]\n*.tmp\n")
    with Root(str(ws)) as root:
        rules = IgnoreRules(root)
        assert not rules.is_ignored(("x",))
        assert rules.is_ignored(("sub", "x.tmp"))
        assert rules.is_ignored((".git", "config"))
        assert not rules.is_ignored(("sub", "x"))


HOSTILE = {
    "many stars": "*a*a*a*a*a*a*a*a*b\n*a*a*aN\n",
    "numbered stars": "".join(f"*a*a*a{n}\n" for n in range(22_000)),
    "stars at the end": "".join(f"a*a*{n}*a*\n" for n in range(18_000)),
    "folders": "**/a/**/b/**/c/**/d\n" * 10_000,
    "any signs": "".join(f"*?a?*{n}?a\n" for n in range(18_000)),
    "sets": "".join(f"*[ab]*[!c]{n}\n" for n in range(14_000)),
    "open sets": "[" * 250_000,
    "one long line": "*a" * 125_000,
    "slashes": "/*" * 125_000,
}


LONG_NAMES = ("a" * 255, "a" * 254 + "b", "b" * 255)


def loaded_rules(root, text):
    """Return rules that have read their file, which is not part of what is measured."""
    with open(f"{root.path}/.gitignore", "w") as file:
        file.write(text)
    rules = IgnoreRules(root)
    rules.is_ignored(("x",))
    return rules


def list_kept_files(rules):
    return rules.filter_listing(("a",) * 10, Listing((), LONG_NAMES)).files


def processor_seconds(rules):
    began = time.thread_time()
    list_kept_files(rules)
    return time.thread_time() - began


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_patterns_match_as_others_do(tmp_path, kind):
    with Root(str(tmp_path)) as root:
        kept = list_kept_files(loaded_rules(root, HOSTILE[kind]))
    assert kept == (LONG_NAMES[:1] + LONG_NAMES[2:] if kind == "many stars" else LONG_NAMES)


@pytest.mark.timing
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_patterns_take_little_time(tmp_path, kind):
    """A single match keeps the interpreter lock, so the event loop waits for it."""
    assert len(HOSTILE[kind]) <= 256 * 1024
    with Root(str(tmp_path)) as root:
        rules = loaded_rules(root, HOSTILE[kind])
        assert min(processor_seconds(rules) for _ in range(3)) / len(LONG_NAMES) < 0.005


NAMES = [
    "a", "b", "ab", "ba", "aab", "a.b", "-", "]", "*", "a b", "[a]", "A1", "a/b", "a/b/a", "b/a/ab", "ab/a.b/b", "a/-",
]  # fmt: skip
SIGNS = st.sampled_from(
    ["a", "b", "*", "**", "?", "/", "**/", "/**", "[ab]", "[!a]", "[^b-]", "[a-b]", "[]a]", "[b-a]", "[[:alpha:]]",
     "[[:x:]]", "[a", "]", "\\a", "\\*", "\\", "!", "#", " ", "\\ ", ".", "-"]
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(SIGNS, min_size=1, max_size=5).map("".join), min_size=1, max_size=4))
def test_git_reads_the_same_patterns(repository, lines):
    """Ours is git's matching, without its backtracking."""
    # git cuts the plain beginning of a pattern off and takes `**` behind it for a whole name.
    # For us, a slash ends a set, and a range that ends before it begins is none.
    assume(not any(re.search(r"[^/*!]\*\*|\\/|\[[^]]*/|\[[^]]*(?:b-a|-\[)", line) for line in lines))
    (repository / ".gitignore").write_text("\n".join(lines))
    told = ask_git(repository, "check-ignore", "--no-index", "--stdin", "-z", stdin="\0".join(NAMES))
    with Root(str(repository)) as root:
        assert find_taken(IgnoreRules(root), NAMES) == [name for name in NAMES if name not in told]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    if GIT is None:
        pytest.skip("git is not installed")
    folder = tmp_path_factory.mktemp("git")
    subprocess.run([GIT, "init", "-q", "."], cwd=folder, check=True)
    return folder


GLOBS = {
    "*.py": (["a.py", "b/c/a.py"], ["a.pyc", "py"]),
    "src/**/*.ts": (["src/a.ts", "src/x/y/a.ts"], ["lib/src/a.ts", "a.ts"]),
    "src/**/**/a.ts": (["src/a.ts", "src/x/y/a.ts"], ["lib/src/a.ts", "a.ts"]),
    "src/*.{ts,tsx}": (["src/a.ts", "src/a.tsx"], ["src/x/a.ts", "src/a.js"]),
    "!*.md": (["a.py"], ["a.md", "b/a.md"]),
    "tests": (["tests/a.py", "x/tests"], ["test/a"]),
    "#x": (["#x"], ["x"]),
    "src/*": (["src/a"], ["src/x/a", "a"]),
    "src/*/": (["src/x/a", "src/x/y/a"], ["src/a"]),
    "src/**": (["src/a", "src/x/a"], ["x/src/a"]),
    "!src/*": (["a", "x/src/a"], ["src/a", "src/x/a"]),
    r"a\*": (["a*", "a*/b"], ["ab", "ab/c"]),
    "./*.py": (["a.py"], ["b/a.py"]),
    ".//./b/a.py": (["b/a.py"], ["a.py", "x/b/a.py"]),
    "!./{a,b}.py": (["x/a.py"], ["a.py", "b.py"]),
    "{./a,./b}/*.py": (["a/x.py", "b/x.py"], ["c/a/x.py"]),
    r"\[id\]/[*]*.py": (["[id]/*x.py"], ["i/*x.py", "[id]/x.py"]),
    r"\{a,b\}.[]}p]": (["{a,b}.p", "{a,b}.}"], ["a.p", "{a.p"]),
    "{a,b{c,d}}.txt": (["a.txt", "bc.txt", "bd.txt"], ["b.txt"]),
}


@pytest.mark.parametrize("glob", GLOBS)
def test_globs(glob):
    takes = GlobFilter(glob).includes
    yes, no = GLOBS[glob]
    assert [path for path in yes if not takes(path.split("/"))] == []
    assert [path for path in no if takes(path.split("/"))] == []


USELESS = {
    "!": "is empty", "/": "is empty", "": "is empty", "./": "is empty", "{a,}": "is empty",
    "../a.py": "contains `..`",
    "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}": "more than 64 alternatives",
    "[": "a `[` in it has no `]`", "src/[a/*.py": "a `[` in it has no `]`", "{a": "a `{` in it has no `}`",
    "*.{ts,{tsx}": "a `{` in it has no `}`", "*.py}": "a `}` in it has no `{`",
    "[]": "no file can match", "[[:x:]]": "no file can match", "a\\": "no file can match",
}  # fmt: skip


@pytest.mark.parametrize("glob", USELESS)
def test_useless_globs_are_refused(glob):
    with pytest.raises(PathRefused, match=re.escape(USELESS[glob])):
        GlobFilter(glob)


@given(st.text(alphabet="{},ab*", max_size=14))
def test_braces_end(glob):
    try:
        patterns = expand_braces(glob)
    except PathRefused:
        return
    assert 1 <= len(patterns) <= 64
