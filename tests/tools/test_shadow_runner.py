"""Commands see the workspace as the turn has it, in both kinds of shadow, and the user's own tree is not touched."""

import asyncio
import json
import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.shadowing import BOTH, PYTHON, as_it_is, needs_sandbox, shadowed, survivors, tree, until
from tests.support.sizes import sized
from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.workspace.overlay import EditOverlay

pytestmark = needs_sandbox

FILES = {
    ".gitignore": "built/\n*.log\n",
    "a.py": "on disk\n",
    "crlf.txt": b"one\r\ntwo\r\n",
    "marked.txt": b"\xef\xbb\xbfmarked\r\n",
    "open_marked.txt": b"\xef\xbb\xbfold\r\n",
    "old_marked.txt": b"\xef\xbb\xbfold\r\n",
    "src/old.py": "old\n",
    "src/gone.py": "gone\n",
    "run.sh": "#!/bin/sh\necho run\n",
}
ALL = """import os, json
paths = [os.path.relpath(os.path.join(above, name)) for above, _, names in os.walk(".") for name in names]
print(json.dumps({path: open(path, "rb").read().hex() for path in paths}))"""


def place(overlay, name):
    return overlay.view.resolve(name)


@pytest.fixture
def ws(tmp_path):
    folder = tree(tmp_path / "ws", FILES)
    (folder / "run.sh").chmod(0o755)
    return folder


@BOTH
async def test_a_command_sees_what_the_turn_has(ws, tmp_path, overlays):
    """Invariant 14: a command sees the turn's files to the byte, and the user's own are as they were."""
    before = as_it_is(ws)
    async with shadowed(ws, state=tmp_path / "state", overlays=overlays) as shadow:
        documents = {"a.py": "in the editor\r\n", "new/untouched.py": "never saved\n", "open_marked.txt": "new\r\n"}
        overlay = EditOverlay(shadow.view(documents))
        overlay.write(place(overlay, "made/deep/er.py"), "made\n")
        overlay.rename(place(overlay, "old_marked.txt"), place(overlay, "renamed_marked.txt"))
        overlay.rename(place(overlay, "src/old.py"), place(overlay, "lib/renamed.py"))
        overlay.delete(place(overlay, "src/gone.py"))
        overlay.write(place(overlay, "crlf.txt"), "three\r\nfour\r\n")
        overlay.write(place(overlay, "marked.txt"), "still marked\r\n")
        seen = json.loads((await shadow.run(PYTHON, "-c", ALL, overlay=overlay)).output)
        assert {name: bytes.fromhex(text) for name, text in seen.items()} == {
            ".gitignore": b"built/\n*.log\n",
            "a.py": b"in the editor\r\n",
            "new/untouched.py": b"never saved\n",
            "made/deep/er.py": b"made\n",
            "lib/renamed.py": b"old\n",
            "crlf.txt": b"three\r\nfour\r\n",
            "marked.txt": b"\xef\xbb\xbfstill marked\r\n",
            "open_marked.txt": b"\xef\xbb\xbfnew\r\n",
            "renamed_marked.txt": b"\xef\xbb\xbfold\r\n",
            "run.sh": b"#!/bin/sh\necho run\n",
        }
        assert await shadow.sh("./run.sh", overlay) == "run\n"
        # As the baseline of a verification sees it: the same documents, none of the edits.
        fresh = json.loads((await shadow.run(PYTHON, "-c", ALL, overlay=EditOverlay(overlay.view))).output)
        assert {name: bytes.fromhex(text) for name, text in fresh.items()} == {
            **{name: data if isinstance(data, bytes) else data.encode() for name, data in FILES.items()},
            "a.py": b"in the editor\r\n",
            "new/untouched.py": b"never saved\n",
            "open_marked.txt": b"\xef\xbb\xbfnew\r\n",
        }
    assert as_it_is(ws) == before


@BOTH
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
        for overlays in (True, False):
            above = tmp_path_factory.mktemp("any")
            folder = tree(above / "ws", disk)
            folder.mkdir(exist_ok=True)
            before = as_it_is(folder)
            async with shadowed(folder, state=above / "state", overlays=overlays) as shadow:
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


@BOTH
async def test_what_a_command_changes_is_told_and_put_back(ws, tmp_path, overlays):
    """Or else tests would pass on what was not proposed. What is new stays: it may have been built for the next one."""
    before = as_it_is(ws)
    async with shadowed(ws, state=tmp_path / "state", overlays=overlays) as shadow:
        for words, *told in CHANGES:
            ran = await shadow.run("sh", "-c", words)
            assert (ran.ended, ran.status, sorted(ran.changed)) == ("exit", 0, told[0 if overlays else -1]), words
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
            assert (ran.clean, ran.output) == (is_clean, built), words
    assert as_it_is(ws) == before


@BOTH
async def test_no_link_of_a_command_leads_out(ws, tmp_path, overlays):
    victim = tree(tmp_path / "victim", {"old.py": "mine\n"})
    async with shadowed(ws, state=tmp_path / "state", overlays=overlays) as shadow:
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


CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
SECRETS = {
    ".env": "SECRET", ".env.local": "SECRET", "deep/er/id_rsa": "SECRET", "certs/server.pem": "SECRET",
    "built/.env": "SECRET", "built/.ssh/id": "SECRET", ".aws/credentials": "SECRET", "a key, with: all\\.pem": "SECRET",
}  # fmt: skip


@BOTH
async def test_secrets_are_not_there(ws, tmp_path, overlays):
    tree(ws, {**SECRETS, "env/pyvenv.cfg": "", "env/lib/certifi/cacert.pem": CERTIFICATE})
    certificates = tree(ws, {".venv/lib/python3/site-packages/certifi/cacert.pem": CERTIFICATE})
    (certificates / ".gitignore").write_text("built/\n.venv/\n")
    async with shadowed(ws, state=tmp_path / "state", overlays=overlays) as shadow:
        overlay = EditOverlay(shadow.view({".env": "SECRET typed", "new/.env": "SECRET typed"}))
        assert "SECRET" not in await shadow.sh("grep -rs SECRET . ; cat .env new/.env built/.env", overlay)
        assert await shadow.sh("cat .venv/lib/python3/site-packages/certifi/cacert.pem", overlay) == CERTIFICATE
        # One that the user makes while the turn runs.
        tree(ws, {"late/.env": "SECRET", "built/late.key": "SECRET"})
        assert "SECRET" not in await shadow.sh("grep -rs SECRET .", overlay)


@BOTH
async def test_nobody_listens_behind_a_socket_or_pipe_of_the_workspace(ws, tmp_path, overlays):
    (ws / "built").mkdir()
    os.chdir(ws)
    paths = ["s.sock", "built/s.sock"]
    listeners = [socket.socket(socket.AF_UNIX) for _ in paths]
    for listener, path in zip(listeners, paths, strict=True):
        listener.bind(path)
        listener.listen()
        listener.setblocking(False)
    pipes = ["p", "built/p"]
    for path in pipes:
        os.mkfifo(path)
    ends = [os.open(path, os.O_RDONLY | os.O_NONBLOCK) for path in pipes]
    try:
        async with shadowed(ws, state=tmp_path / "state", overlays=overlays) as shadow:
            await shadow.py(
                f"import socket, os\nfor p in {paths}:\n"
                "    try: s = socket.socket(1); s.connect(p); s.send(b'x')\n    except OSError: pass\n"
                f"for p in {pipes}:\n    try: os.write(os.open(p, os.O_WRONLY | os.O_NONBLOCK), b'x')\n"
                "    except OSError: pass\n"
            )
        for listener in listeners:
            with pytest.raises(BlockingIOError):
                listener.accept()
        assert [os.read(end, 1) for end in ends] == [b"", b""]
    finally:
        for listener in listeners:
            listener.close()
        for end in ends:
            os.close(end)


@BOTH
@pytest.mark.parametrize("name", ["ws ,:=", "back\\slash", "-dash", "new\nline", "'quote\"", "é\udcff"])
async def test_any_name_of_a_folder_will_do(tmp_path, overlays, name):
    folder = tree(tmp_path / name, {"a": "a\n", "-b": "b\n", "c\nd": "c\n", "e,:\\": "e\n", "f\udcff": "f\n"})
    async with shadowed(folder, state=tmp_path / "state", overlays=overlays) as shadow:
        assert await shadow.sh("cat ./* && touch x") == "b\na\nc\ne\nf\n"
    assert not (folder / "x").exists()


@BOTH
async def test_two_folders_one_in_the_other(tmp_path, overlays):
    outer = tree(tmp_path / "outer", {"a": "outer\n", "sub/b": "disk\n", "sub/.env": "SECRET"})
    other = tree(tmp_path / "other", {"c": "other\n"})
    async with shadowed(outer, outer / "sub", other, state=tmp_path / "state", overlays=overlays) as shadow:
        overlay = EditOverlay(shadow.view())
        overlay.write(place(overlay, "sub/b"), "edited\n")
        overlay.write(place(overlay, "other/c"), "edited, too\n")
        words = f"cat a sub/b sub/.env {other}/c 2>/dev/null; pwd"
        assert await shadow.sh(words, overlay) == f"outer\nedited\nedited, too\n{outer}\n"
        assert await shadow.sh("pwd; cat b", overlay, folder="sub") == f"{outer}/sub\nedited\n"
        ran = await shadow.run("sh", "-c", f"echo x > {other}/new", overlay=overlay)
        assert ran.changed == ("other/new",)
        with pytest.raises(ToolFailed, match="no folder"):
            await shadow.run("true", overlay=overlay, folder="other/nowhere")


NASTY = [
    "mkdir -p d/e && touch d/e/f && chmod 000 d/e d; mkdir u; chmod 500 u; touch z; chmod u+s z",
    "i=0; while [ $i -lt 40 ]; do mkdir n; cd n; i=$((i+1)); done; touch f",
]
DEEP = "import os\nfor _ in range(1100):\n    os.mkdir('deeper'); os.chdir('deeper')\nopen('x', 'w')"


@BOTH
async def test_all_that_commands_leave_is_removed(ws, tmp_path, overlays):
    async with shadowed(ws, state=tmp_path / "state", overlays=overlays) as shadow:
        for words in NASTY:
            await shadow.sh(words)
        await shadow.py(DEEP)
        overlay = EditOverlay(shadow.view())
        # A file where such a folder is now.
        overlay.write(place(overlay, "deeper"), "a file\n")
        overlay.write(place(overlay, "d"), "a file\n")
        assert await shadow.sh("cat d deeper", overlay) == "a file\n" * 2


HOLDER = """
import asyncio, os, sys
sys.path.insert(0, {here!r})
from pathlib import Path
from tests.support.shadowing import shadowed
async def main():
    async with shadowed(Path({ws!r}), state=Path({state!r})) as shadow:
        await shadow.sh("true")
        await shadow.run("sleep", "1000." + "{marker}", seconds=1000)
asyncio.run(main())
"""


async def test_a_killed_server_leaves_no_process_and_its_folder_to_the_next(ws, tmp_path):
    # The helper's own words hold it, too, but not in one piece.
    marker = str(os.getpid())
    code = HOLDER.format(here=str(Path(__file__).parents[2]), ws=str(ws), state=str(tmp_path / "state"), marker=marker)
    helper = await asyncio.create_subprocess_exec(PYTHON, "-c", code)
    try:
        await until(lambda: bool(survivors(f"1000.{marker}")), within=20)
    finally:
        helper.kill()
        await helper.wait()
    await until(lambda: not survivors(f"1000.{marker}"), within=2)
    assert len([name for name in os.listdir(tmp_path / "state" / "shadow") if name != "lock"]) == 1
    async with shadowed(ws, state=tmp_path / "state") as shadow:
        await shadow.sh("true")
        assert len(shadow.left()) == 1


SENTENCES = [
    (["no-such-program"], "The program no-such-program cannot be run: no such file or directory"),
    (["./a.py"], "The program ./a.py cannot be run: permission denied"),
    ([""], "must name a program"),
    ([], "must name a program"),
    (["a\0b"], "NUL"),
    (["true", "\ud800"], "half a character"),
    (["true", "x" * 200_000], "too long for the system"),
    (["true", *["x" * 1000] * 2000], "too long for the system"),
]


@BOTH
async def test_what_cannot_be_run_is_said_in_a_sentence(ws, tmp_path, overlays):
    async with shadowed(ws, state=tmp_path / "state", overlays=overlays) as shadow:
        for argv, sentence in SENTENCES:
            with pytest.raises(ToolFailed, match=sentence):
                await shadow.run(*argv)
        assert await shadow.sh("echo still there") == "still there\n"


async def test_no_command_where_the_workspace_is_home_or_holds_our_own_folder(ws, tmp_path):
    async with shadowed(ws, state=ws / "state") as shadow:
        with pytest.raises(PathRefused, match="own folder"):
            await shadow.sh("true")
    environment = {"HOME": str(ws / "src"), "PATH": os.defpath}
    async with shadowed(ws, state=tmp_path / "state", environment=environment) as shadow:
        with pytest.raises(PathRefused, match="home folder"):
            await shadow.sh("true")


@pytest.mark.parametrize("home", [None, "", "/", "relative", "/nonexistent/home"])
async def test_any_home_will_do(ws, tmp_path, home):
    environment = {"PATH": os.environ["PATH"], **({} if home is None else {"HOME": home})}
    async with shadowed(ws, state=tmp_path / "state", environment=environment) as shadow:
        assert await shadow.sh("touch $HOME/x && cat a.py") == "on disk\n"


@BOTH
async def test_cancelled_at_any_moment_nothing_is_left(ws, tmp_path, overlays):
    marker = f"{tmp_path}-cancelled"
    tree(ws, {f"many/{number}": "x" for number in range(200)})
    for pause in (0, 0.002, 0.02, 0.05, 0.1):
        async with shadowed(ws, state=tmp_path / "state", overlays=overlays) as shadow:
            running = asyncio.create_task(shadow.run("sh", "-c", "sleep 100; true " + marker, seconds=100))
            await asyncio.wait((running,), timeout=pause)
            running.cancel()
            await asyncio.wait((running,), timeout=0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await shadow.runner.aclose()
            assert survivors(marker) == [], pause
