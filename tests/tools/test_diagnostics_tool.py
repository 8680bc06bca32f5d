"""`diagnostics`: who said it, what is none and what is unknown, and on which lines of the text that the turn reads."""

from dataclasses import dataclass, field

import pytest

from thinklsp.core.check_results import EditorDiagnostic
from thinklsp.core.text_safety import RESULT_LIMIT
from thinklsp.tools.tool import DiagnosedDocument, EditorDiagnostics, NoEditor

ALL = "according to all servers and linters of the editor"
MAY = "There may be some."
SOME = "from code action requests only, so there may be others"
UNSEEN = "[the editor has not seen the edits from this turn; this describes the text before the edits]"
OLDER = "[reported for an earlier version of the text; problems in lines that changed since then are omitted]"
LINES = "one\ntwo\nthree\n"


@dataclass
class Known(NoEditor):
    """An editor that knows this."""

    documents: tuple = ()
    complete: bool = True
    failed: str | None = None
    asked: list = field(default_factory=list)

    async def fetch_diagnostics(self, uri):
        self.asked.append(uri)
        return EditorDiagnostics(self.documents, self.complete, self.failed)


def error(line, message="bad", severity="error", source="ruff", code=""):
    return EditorDiagnostic(line, severity, message, source, code)


def about(bench, name, *problems, text=None, older=False, unread=0):
    return DiagnosedDocument((bench.path / name).as_uri(), problems, text, older, unread)


async def test_grouped_by_file_the_severe_ones_first(bench):
    bench.start({"a.py": LINES, "b.py": LINES, "dir/c.py": LINES}, {"b.py": LINES})
    bench.editor = Known(
        (
            about(bench, "a.py", error(1, "hm", "hint"), error(3, "so so", "warning", "pyright", "W1")),
            about(bench, "b.py", error(2, "worse\n  than that", source=""), text=LINES),
            about(bench, "dir/c.py", error(1, "odd", "unheard of")),
            DiagnosedDocument("file:///elsewhere/x.py", (error(1),)),
            about(bench, ".env", error(1, "SECRET=1 is bad")),
        )
    )
    whole = (
        f"4 problems in 3 files, {ALL}.\n"
        "b.py\n  line 2: error: worse than that\n"
        "a.py\n  line 3: warning: so so (pyright W1)\n  line 1: hint: hm (ruff)\n"
        "dir/c.py\n  line 1: unheard of: odd (ruff)\n"
        "[omitted: 1 file that tools may not read]"
    )
    assert await bench.ok("diagnostics") == whole
    assert await bench.ok("diagnostics", path=".") == whole
    assert await bench.ok("diagnostics", path="dir") == (
        f"1 problem in 1 file, {ALL}.\ndir/c.py\n  line 1: unheard of: odd (ruff)"
    )
    assert "line 2" in await bench.ok("diagnostics", path="b.py")
    assert bench.editor.asked == [None, None, None, (bench.path / "b.py").as_uri()]


NOTHING = {
    "a file, looked at": ("a.py", True, True, False, f"No problems in a.py, {ALL}."),
    "a file, not looked at": (
        "a.py", True, False, False,
        f"The problems in a.py are unknown: servers may still be checking. {MAY}",
    ),
    "a file, looked at long ago": (
        "a.py", True, True, True,
        f"The problems in a.py are unknown: servers may still be checking. {MAY}\na.py {OLDER}",
    ),
    "a file, without a plugin": (
        "a.py", False, False, False,
        f"The problems in a.py are unknown: the editor reports them with code actions only. {MAY}",
    ),
    "everything, looked at": (
        None, True, True, False, f"No problems in these files, {ALL}: a.py. Other files may have some.",
    ),
    "everything, not looked at": (
        None, True, False, False,
        f"The problems here are unknown: servers may still be checking. {MAY}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NOTHING)
async def test_none_is_not_unknown(bench, case):
    path, complete, looked_at, older, expected = NOTHING[case]
    bench.start({"a.py": LINES}, {"a.py": LINES})
    bench.editor = Known((about(bench, "a.py", text=LINES, older=older),) if looked_at else (), complete)
    assert await bench.ok("diagnostics", **({"path": path} if path else {})) == expected


FAILED = {
    "silent": "the editor did not answer the request for diagnostics",
    "refused": "the editor answered the request for diagnostics with an error",
    "unreadable": "the editor answered the request for diagnostics in an unexpected format",
}


@pytest.mark.parametrize("failed", FAILED)
async def test_an_editor_that_should_know_and_does_not_say(bench, failed):
    bench.start({"a.py": LINES}, {"a.py": LINES})
    bench.editor = Known((), False, failed)
    assert await bench.ok("diagnostics", path="a.py") == (f"The problems in a.py are unknown: {FAILED[failed]}. {MAY}")
    bench.editor = Known((about(bench, "a.py", error(2), text=LINES),), False, failed)
    assert await bench.ok("diagnostics") == (
        f"1 problem in 1 file, {SOME}.\na.py\n  line 2: error: bad (ruff)\n[{FAILED[failed]}]"
    )


async def test_what_cannot_be_read_is_told_and_is_not_none(bench):
    bench.start({"b.py": LINES, "c.py": LINES}, {"a.py": LINES})
    bench.editor = Known(
        (about(bench, "a.py", text=LINES), about(bench, "b.py", error(2), unread=2), about(bench, "c.py", unread=1))
    )
    unread = "in an unexpected format]"
    assert await bench.ok("diagnostics") == (
        f"1 problem in 1 file, {ALL}.\n"
        f"b.py [omitted: 2 problems {unread}\n  line 2: error: bad (ruff)\nc.py [omitted: 1 problem {unread}"
    )
    assert await bench.ok("diagnostics", path="c.py") == (
        "The problems in c.py are unknown: the editor reported them in an unexpected format. "
        f"{MAY}\nc.py [omitted: 1 problem {unread}"
    )


async def test_lines_are_those_that_the_turn_reads(bench):
    """The user has typed since the turn began, and the turn has edited: the editor knows of the first only."""
    bench.start({"closed.py": LINES, "gone.py": LINES}, {"a.py": LINES})
    live = "typed\none\ntwo\nthree\n"
    bench.editor = Known(
        (
            about(bench, "a.py", error(1, "of the typed"), error(3, "of two"), error(4, "of three"), text=live),
            about(bench, "closed.py", error(1, "of one"), error(3, "of three")),
            about(bench, "gone.py", error(1)),
        )
    )
    assert await bench.ok("diagnostics", path="a.py") == (
        f"2 problems in 1 file, {ALL}.\n"
        "a.py [omitted: 1 problem in lines that changed]\n"
        "  line 2: error: of two (ruff)\n  line 3: error: of three (ruff)"
    )
    await bench.ok("edit_file", path="a.py", old_text="one\ntwo\n", new_text="zero\none\n2\n")
    await bench.ok("edit_file", path="closed.py", old_text="one\n", new_text="")
    await bench.read("a.py", "gone.py")
    await bench.ok("delete_file", path="gone.py")
    assert await bench.ok("diagnostics") == (
        f"2 problems in 2 files, {ALL}.\n"
        f"a.py {UNSEEN} [omitted: 2 problems in lines that this turn changed]\n"
        "  line 4: error: of three (ruff)\n"
        f"closed.py {UNSEEN} [omitted: 1 problem in lines that this turn changed]\n"
        "  line 2: error: of three (ruff)"
    )
    await bench.ok("write_file", path="a.py", content="other\n")
    assert await bench.ok("diagnostics", path="a.py") == (
        f"No problems in a.py, {ALL}.\na.py {UNSEEN} [omitted: 3 problems in lines that this turn changed]"
    )


async def test_the_result_is_bounded(bench):
    many = tuple(error(number, "x" * 10_000) for number in range(1, 300))
    bench.start({"a.py": "", "b.py": ""})
    bench.editor = Known((about(bench, "a.py", *many), about(bench, "b.py", *many)))
    text = await bench.ok("diagnostics")
    assert len(text) <= RESULT_LIMIT
    assert text.startswith(f"598 problems in 2 files, {ALL}.\na.py\n  line 1: error: {'x' * 500}… (ruff)\n  line 2")
    bench.editor = Known((about(bench, "a.py", *(error(n) for n in range(1, 300))), about(bench, "b.py", error(1))))
    text = await bench.ok("diagnostics")
    assert text.endswith("  [cut: 99 more problems in this file; give a path to see other files]")
