"""What commands change in the shadow copy is told and put back, their links lead nowhere, and nothing of them stays."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.shadowing import PYTHON, as_it_is, shadowed, tree
from tests.support.sizes import sized
from tests.tools.test_shadow_runner import ALL, overlays, place, shadow, ws
from thinklsp.core.errors import PathRefused
from thinklsp.workspace.overlay import EditOverlay

pytestmark = pytest.mark.kernel
__all__ = ["overlays", "shadow", "ws"]


async def test_a_file_has_the_mode_bits_of_the_file_that_it_was(ws, tmp_path, overlays):
    (ws / "crlf.txt").chmod(0o444)
    look = "stat -c '%a %n' $(ls -d a.py b.sh c.py crlf.txt run.sh d/new.txt 2>/dev/null)"
    async with shadowed(ws, state=tmp_path / "state", overlays=overlays) as shadow:
        overlay = EditOverlay(shadow.view({"run.sh": "#!/bin/sh\necho typed\n"}))
        assert await shadow.sh("./run.sh", overlay) == "typed\n"
        # What a command takes away or makes in its place is put back.
        await shadow.sh("rm run.sh; echo x > b.sh", overlay)
        assert await shadow.sh("./run.sh", overlay) == "typed\n"
        overlay.rename(place(overlay, "run.sh"), place(overlay, "d/between.sh"))
        overlay.rename(place(overlay, "d/between.sh"), place(overlay, "b.sh"))
        overlay.write(place(overlay, "b.sh"), "#!/bin/sh\necho renamed\n")
        overlay.write(place(overlay, "crlf.txt"), "edited\r\n")
        overlay.write(place(overlay, "d/new.txt"), "new\n")
        assert await shadow.sh("./b.sh", overlay) == "renamed\n"
        assert await shadow.sh(look, overlay) == "644 a.py\n755 b.sh\n444 crlf.txt\n644 d/new.txt\n"
        # Two files that change their names: the editor gets new texts for both.
        overlay.rename(place(overlay, "a.py"), place(overlay, "c.py"))
        overlay.rename(place(overlay, "b.sh"), place(overlay, "a.py"))
        overlay.rename(place(overlay, "c.py"), place(overlay, "run.sh"))
        assert await shadow.sh(look, overlay) == "644 a.py\n444 crlf.txt\n644 d/new.txt\n755 run.sh\n"


NAMES = ["a", "b", "d", "d/c", "d/e/f", "open", "x y", "x y/-z"]


edits = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(NAMES), st.sampled_from(["", "one", "two\r\n", "\ufeffthree"])),
        st.tuples(st.just("rename"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
        st.tuples(st.just("delete"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("look"), st.none(), st.none()),
        st.tuples(st.just("anew"), st.none(), st.none()),
    ),
    max_size=8,
)


EXAMPLES = sized(commit=3, nightly=60, release=600)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    disk=st.dictionaries(st.sampled_from(["a", "b", "d/c", "d/e/f"]), st.sampled_from(["", "x", "y\n"])), steps=edits
)
def test_any_edits_are_seen_as_the_overlay_has_them(tmp_path_factory, disk, steps):
    async def look(shadow, overlay):
        found = {}
        for name in NAMES:
            with suppress(PathRefused):
                text = overlay.read(place(overlay, name))
                if text is not None:
                    found[name] = text.text.encode()
        seen = json.loads((await shadow.run(PYTHON, "-S", "-c", ALL, overlay=overlay)).output)
        assert {name: bytes.fromhex(text) for name, text in seen.items()} == found

    async def course():
        for with_overlays in (True, False):
            above = tmp_path_factory.mktemp("any")
            folder = tree(above / "ws", disk)
            folder.mkdir(exist_ok=True)
            before = as_it_is(folder)
            async with shadowed(folder, state=above / "state", overlays=with_overlays) as shadow:
                overlay = EditOverlay(shadow.view({"open": "in the editor"}))
                for kind, name, more in steps:
                    with suppress(PathRefused):
                        if kind == "write":
                            overlay.write(place(overlay, name), more)
                        elif kind == "rename":
                            overlay.rename(place(overlay, name), place(overlay, more))
                        elif kind == "delete":
                            overlay.delete(place(overlay, name))
                        elif kind == "anew":
                            overlay = EditOverlay(overlay.view)
                        else:
                            await look(shadow, overlay)
                await look(shadow, overlay)
            assert as_it_is(folder) == before

    asyncio.run(course())


CHANGES = [
    # What a command does; what it is said to have changed; with a copy, where that is more.
    ("echo hi > a.py; rm src/old.py; mv crlf.txt b.txt", ["a.py", "b.txt", "crlf.txt", "src/old.py"]),
    ("mkdir -p built __pycache__; echo o | tee built/o x.log __pycache__/c n.txt", ["n.txt"]),
    ("rm -rf src", ["src"], ["src/gone.py", "src/old.py"]),
    ("rm -rf src; mkdir src", ["src"], ["src/gone.py", "src/old.py"]),
    ("rm -rf src; ln -s /etc src", ["src"]),
    ("rm -rf src; echo file > src", ["src"]),
    ("echo 'on disk' > a.py", []),
    ("touch -- -x 'a\nb' $(printf 'q\\377'); ln -s /nowhere link; mkfifo pipe", ["-x", "a\nb", "link", "pipe", "q?"]),
    ("mkdir -p $(printf 'a/%.0s' $(seq 70)) && touch $(printf 'a/%.0s' $(seq 70))f", ["a/" * 70 + "f"]),
]  # fmt: skip


async def test_what_a_command_changes_is_told_and_put_back(shadow, overlays):
    """Or else tests would pass on what was not proposed. What is new stays: it may have been built for the next one."""
    for words, *told in CHANGES:
        ran = await shadow.run("sh", "-c", words)
        expected = ("exit", 0, told[0 if overlays else -1])
        assert (ran.end_reason, ran.status, sorted(ran.changed_paths)) == expected, words
        assert await shadow.sh("cat a.py src/old.py src/gone.py") == "on disk\nold\ngone\n", words
    await shadow.sh("mkdir -p out2; echo built > out2/program")
    assert await shadow.sh("cat out2/program") == "built\n"
    # What must run on what the user will have runs without it, and is told to have done so.
    for fresh, words, is_clean, built in (
        (False, "cat out2/program", False, b"built\n"),
        (True, "cat out2/program 2>&1 | tail -c 5", True, b"tory\n"),
        (False, "mkdir -p built __pycache__; touch built/o x.log __pycache__/c", True, b""),
        (True, "ls built/o", True, b"built/o\n"),
        (True, "touch new", True, b""),
        (False, "ls new", False, b"new\n"),
    ):
        ran = await shadow.run("sh", "-c", words, fresh=fresh)
        assert (ran.is_clean, ran.output) == (is_clean, built), words


async def test_no_link_of_a_command_leads_out(ws, shadow, tmp_path):
    victim = tree(tmp_path / "victim", {"old.py": "mine\n"})
    overlay = EditOverlay(shadow.view())
    for words in (
        f"rm -rf src; ln -s {victim} src", "rm -rf src; ln -s $HOME src", f"rm a.py; ln -s {victim}/old.py a.py",
        f"rm src/old.py; ln {victim}/old.py src/old.py", "rm -rf src; mkfifo src", "rm a.py; mkfifo a.py",
        "rm -rf a.py src; mkdir a.py; mkdir -p src/old.py/below",
    ):  # fmt: skip
        overlay = EditOverlay(overlay.view)
        await shadow.sh(words, overlay)
        overlay.write(place(overlay, "src/old.py"), "of the turn\n")
        overlay.write(place(overlay, "a.py"), "of the turn\n")
        assert await shadow.sh("cat a.py src/old.py", overlay) == "of the turn\n" * 2, words
    assert (victim / "old.py").read_text() == "mine\n"
    assert not (Path.home() / "old.py").exists()


NASTY = [
    "mkdir -p d/e && touch d/e/f && chmod 000 d/e d; mkdir u; chmod 500 u; touch z; chmod u+s z",
    "i=0; while [ $i -lt 40 ]; do mkdir n; cd n; i=$((i+1)); done; touch f",
]


DEEP = "import os\nfor _ in range(1100):\n    os.mkdir('deeper'); os.chdir('deeper')\nopen('x', 'w')"


async def test_all_that_commands_leave_is_removed(shadow):
    for words in NASTY:
        await shadow.sh(words)
    await shadow.py(DEEP)
    overlay = EditOverlay(shadow.view())
    # A file where such a folder is now.
    overlay.write(place(overlay, "deeper"), "a file\n")
    overlay.write(place(overlay, "d"), "a file\n")
    assert await shadow.sh("cat d deeper", overlay) == "a file\n" * 2
