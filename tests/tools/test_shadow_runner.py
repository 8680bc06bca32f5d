"""Commands see the workspace as the turn has it, in both kinds of shadow, and the user's own tree is not touched."""

import json
import os
import socket
from contextlib import ExitStack

import pytest

from tests.support.shadowing import PYTHON, as_it_is, needs_sandbox, shadowed, tree
from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.sandbox.process import CommandLimits
from thinklsp.workspace.overlay import EditOverlay

pytestmark = [pytest.mark.kernel, needs_sandbox]

FILES = {
    ".gitignore": "built/\n*.log\n", "a.py": "on disk\n", "crlf.txt": b"one\r\ntwo\r\n",
    "marked.txt": b"\xef\xbb\xbfmarked\r\n", "open_marked.txt": b"\xef\xbb\xbfold\r\n",
    "old_marked.txt": b"\xef\xbb\xbfold\r\n", "src/old.py": "old\n", "src/gone.py": "gone\n",
    "run.sh": "#!/bin/sh\necho run\n",
}  # fmt: skip
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


@pytest.fixture(params=[True, False], ids=["overlay", "copy"])
def overlays(request):
    return request.param


@pytest.fixture
async def shadow(ws, tmp_path, overlays):
    """A shadow of each kind. The user's own files are afterwards as they were."""
    before = as_it_is(ws)
    async with shadowed(ws, state=tmp_path / "state", overlays=overlays) as made:
        yield made
    assert as_it_is(ws) == before


async def test_a_command_sees_what_the_turn_has(shadow):
    """Invariant 14: a command sees the turn's files to the byte, and the user's own are as they were."""
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


CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
SECRETS = {
    ".env": "SECRET", ".env.local": "SECRET", "deep/er/id_rsa": "SECRET", "certs/server.pem": "SECRET",
    "built/.env": "SECRET", "built/.ssh/id": "SECRET", ".aws/credentials": "SECRET", "a key, with: all\\.pem": "SECRET",
}  # fmt: skip


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


async def test_nobody_listens_behind_a_socket_or_pipe_of_the_workspace(ws, tmp_path, overlays, monkeypatch):
    (ws / "built").mkdir()
    monkeypatch.chdir(ws)
    paths, pipes = ["s.sock", "built/s.sock"], ["p", "built/p"]
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in paths]
        for listener, path in zip(listeners, paths, strict=True):
            listener.bind(path)
            listener.listen()
            listener.setblocking(False)
        for path in pipes:
            os.mkfifo(path)
        ends = [os.open(path, os.O_RDONLY | os.O_NONBLOCK) for path in pipes]
        for end in ends:
            stack.callback(os.close, end)
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


@pytest.mark.parametrize("name", ["ws ,:=", "back\\slash", "-dash", "new\nline", "'quote\"", "é\udcff"])
async def test_any_name_of_a_folder_will_do(tmp_path, overlays, name):
    folder = tree(tmp_path / name, {"a": "a\n", "-b": "b\n", "c\nd": "c\n", "e,:\\": "e\n", "f\udcff": "f\n"})
    async with shadowed(folder, state=tmp_path / "state", overlays=overlays) as shadow:
        assert await shadow.sh("cat ./* && touch x") == "b\na\nc\ne\nf\n"
    assert not (folder / "x").exists()


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
        assert ran.changed_paths == ("other/new",)
        with pytest.raises(ToolFailed, match="no folder"):
            await shadow.run("true", overlay=overlay, folder="other/nowhere")


SENTENCES = [
    (["no-such-program"], "The program no-such-program cannot be run: no such file or directory"),
    (["./a.py"], "The program ./a.py cannot be run: permission denied"), ([""], "must name a program"),
    ([], "must name a program"), (["a\0b"], "NUL"), (["true", "\ud800"], "a lone surrogate"),
    (["true", "x" * 200_000], "too long for the system"), (["true", *["x" * 1000] * 2000], "too long for the system"),
]  # fmt: skip


async def test_what_cannot_be_run_is_said_in_a_sentence(shadow):
    for argv, sentence in SENTENCES:
        with pytest.raises(ToolFailed, match=sentence):
            await shadow.run(*argv)
    assert await shadow.sh("echo still there") == "still there\n"


async def test_no_command_runs_in_home_or_around_private_folders(ws, tmp_path):
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


async def test_a_copy_does_not_count_as_written_by_the_command(tmp_path):
    folder = tree(tmp_path / "ws", {"large": bytes(3 * 1024**2)})
    limits = CommandLimits(max_disk_bytes=2 * 1024**2)
    async with shadowed(folder, state=tmp_path / "state", overlays=False, limits=limits) as shadow:
        assert (await shadow.run("sleep", "1")).end_reason == "exit"
