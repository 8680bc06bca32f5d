"""F-46, F-47, A-24: commands that try to escape the sandbox, and limits that end a command."""

import asyncio
import os
import random
import signal
import socket
import sys
import time
import tomllib
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.epilogue import living_in
from tests.support.shadowing import BOTH, PYTHON, Shadowed, as_it_is, needs_sandbox, shadowed, tree
from tests.support.sizes import sized
from tests.support.watching import seen
from thinklsp.core.errors import ToolFailed
from thinklsp.sandbox.process import CommandLimits
from thinklsp.tools.shadow_runner import ShadowRunner
from thinklsp.workspace.overlay import EditOverlay

pytestmark = [needs_sandbox, pytest.mark.kernel]

TRIES = tomllib.loads((Path(__file__).parent / "sandbox_tries.toml").read_text())
CANARY = "canary-7f3a9b"
MEGABYTE = 1024**2
# Seconds after which only a command that hangs still runs. One command searches the whole disk.
PATIENCE = 600
# The output of a command that has escaped.
THROUGH = "GOT THROUGH"


SECRETS = (
    ".ssh/id_rsa", ".aws/credentials", ".config/thinklsp/config.toml", ".netrc", ".bash_history", "other/secret.py",
    ".local/share/keyrings/login", ".cargo/credentials.toml", "go/src/private/main.go", "project/.git/config",
)  # fmt: skip


@pytest.fixture
def machine(tmp_path):
    """A home folder with secrets, another project, a workspace, and a state folder with a session store."""
    home = tree(tmp_path / "home", dict.fromkeys(SECRETS, CANARY))
    tree(home, {".local/bin/tool": "to be seen", "project/bin/tool": "to be seen"})
    tree(tmp_path / "state", {"sessions/store.db": CANARY})
    tree(tmp_path / "ws", {"a.py": "x = 1\n", ".env": CANARY, ".gitignore": "ignored/\n", "ignored/.env": CANARY})
    path = os.pathsep.join((f"{home}/.local/bin", f"{home}/project/bin", os.environ["PATH"]))
    secrets = {"ANTHROPIC_API_KEY": CANARY, "LD_PRELOAD": "", "SSH_AUTH_SOCK": CANARY}
    return tmp_path, {"HOME": str(home), "PATH": path, **secrets}


def shadow_on(machine: tuple[Path, dict[str, str]], **options: Any) -> AbstractAsyncContextManager[Shadowed]:
    above, environment = machine
    return shadowed(above / "ws", state=above / "state", environment=environment, **options)


@BOTH
async def test_nothing_is_written_read_or_gained_outside(machine, overlays):
    above, _ = machine
    before = as_it_is(above / "home", above / "ws")
    values = {
        "WS": str(above / "ws"), "HOME": str(above / "home"), "STATE": str(above / "state"), "CANARY": CANARY,
        "SERVER": str(os.getpid()), "THROUGH": THROUGH,
    }  # fmt: skip
    head = "import os, sys, ctypes, socket\n" + "".join(f"{key} = {value!r}\n" for key, value in values.items())
    os.environ["THINKLSP_TEST_CANARY"] = CANARY
    try:
        async with shadow_on(machine, overlays=overlays) as shadow:
            for name, one in TRIES.items():
                argv = ("sh", "-c", one["sh"]) if "sh" in one else (PYTHON, "-c", head + one["py"])
                words = [word.replace("$STATE", values["STATE"]).replace("$WS", values["WS"]) for word in argv]
                ran = await shadow.run(*words, seconds=PATIENCE)
                said = ran.output.decode("utf-8", "replace")
                # Python shows the refused line.
                said = "\n".join(line for line in said.splitlines() if not line.startswith(" "))
                assert ran.end_reason == "exit", name
                assert CANARY not in said, (name, said)
                assert THROUGH not in said, (name, said)
    finally:
        del os.environ["THINKLSP_TEST_CANARY"]
    assert as_it_is(above / "home", above / "ws") == before
    for outside in ("/usr", "/etc", "/", "/tmp", "/var/tmp", "/dev/shm", Path.home(), Path.cwd()):  # noqa: S108
        assert not (Path(outside) / "thinklsp-was-here").exists()


CALLER = """
import socket
for family, kind, address in {addresses!r}:
    try:
        with socket.socket(family, kind) as caller:
            caller.settimeout(1)
            if kind == socket.SOCK_DGRAM:
                caller.sendto(b"out", address)
            else:
                caller.connect(address)
                caller.sendall(b"out")
    except OSError as error:
        print(error)
for name in ("example.com", "localhost.example"):
    try:
        socket.getaddrinfo(name, 80)
        print("GOT THROUGH")
    except OSError as error:
        print(error)
"""


@BOTH
async def test_no_word_reaches_anybody_who_listens(machine, overlays):
    above, _ = machine
    own = next((found[4][0] for found in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)), "127.0.0.1")
    with ExitStack() as stack:
        listeners = []
        for family, kind, address in (
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)), (socket.AF_INET, socket.SOCK_STREAM, (own, 0)),
            (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)), (socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
            (socket.AF_UNIX, socket.SOCK_STREAM, f"{above}/s"), (socket.AF_UNIX, socket.SOCK_DGRAM, f"{above}/d"),
            (socket.AF_UNIX, socket.SOCK_STREAM, f"\0{above}"),
            (socket.AF_VSOCK, socket.SOCK_STREAM, (socket.VMADDR_CID_ANY, socket.VMADDR_PORT_ANY)),
        ):  # fmt: skip
            with suppress(OSError):
                listener = stack.enter_context(socket.socket(family, kind))
                listener.bind(address)
                listener.setblocking(False)
                if kind == socket.SOCK_STREAM:
                    listener.listen()
                listeners.append((family, kind, listener))
        assert len(listeners) >= 5
        addresses = []
        for family, kind, listener in listeners:
            name = listener.getsockname()
            addresses.append((int(family), int(kind), (1, name[1]) if family == socket.AF_VSOCK else name))
        async with shadow_on(machine, overlays=overlays) as shadow:
            ran = await shadow.run(PYTHON, "-c", CALLER.format(addresses=addresses), seconds=PATIENCE)
        assert THROUGH.encode() not in ran.output
        assert ran.end_reason == "exit"
        for _, kind, listener in listeners:
            with pytest.raises(BlockingIOError):
                listener.accept() if kind == socket.SOCK_STREAM else listener.recv(1)


DEAF = """import os, signal, time
for number in (1, 2, 15):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    os.fork()
    os.closerange(0, 9)
time.sleep(100)"""
TRACED = """import ctypes, os, time
if os.fork() == 0:
    ctypes.CDLL(None).ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), 19)
time.sleep(100)"""
BAD = {
    "fork bomb": ("sh", "b() { b | b & }; b; sleep 100"),
    "setsid daemon": ("sh", "setsid sh -c 'sleep 100' <&- >&- 2>&- & sleep 100"),
    "deaf double fork": ("py", DEAF),
    "stopped": ("sh", "kill -STOP $$; sleep 100"),
    "says nothing, closes all": ("sh", "exec <&- >&- 2>&-; sleep 100"),
    "traced": ("py", TRACED),
}  # fmt: skip


@pytest.mark.timing
@BOTH
@pytest.mark.parametrize("name", BAD)
async def test_deadline_kills_every_process_in_two_seconds(machine, overlays, name):
    kind, words = BAD[name]
    if name == "fork bomb" and os.getuid() == 0:
        pytest.skip("NO FORK BOMB AS ROOT, whom the kernel holds to no number of processes: run this as a user, too")
    mark = f"mark-{random.getrandbits(64)}"
    argv = ("sh", "-c", words, mark) if kind == "sh" else (PYTHON, "-c", words, mark)
    limits = CommandLimits(max_processes=200)
    async with shadow_on(machine, overlays=overlays, limits=limits) as shadow:
        begun = time.monotonic()
        ran = await shadow.run(*argv, seconds=1.5)
        taken = time.monotonic() - begun
        assert living_in(mark) == []
        assert ran.end_reason in ("timeout", "processes")
        assert taken < 3.5
        assert await shadow.sh("echo still there") == "still there\n"


@pytest.mark.timing
@BOTH
async def test_a_daemon_does_not_outlive_the_command_that_left_it(machine, overlays):
    mark = f"mark-{random.getrandbits(64)}"
    async with shadow_on(machine, overlays=overlays) as shadow:
        begun = time.monotonic()
        for closed in ("", "<&- >&- 2>&-"):
            ran = await shadow.run("sh", "-c", f"setsid sleep 1000 {mark} {closed} & true", seconds=30)
            assert (ran.end_reason, ran.status) == ("exit", 0)
            assert living_in(mark) == []
        assert time.monotonic() - begun < 5


HOGS = "import os, time\nfor _ in range(7): os.fork()\nx = bytearray(20 * 1024**2)\ntime.sleep(20)"
CROWD = "import os, time\nfor _ in range(1000):\n    os.fork() or time.sleep(20)\ntime.sleep(20)"
SHARED = "import mmap, time\nmmap.mmap(-1, 900 << 20).write(bytes(900 << 20))\ntime.sleep(20)"
MEMFD = """import mmap, os, time
fd = os.memfd_create("x")
os.truncate(fd, 900 << 20)
if {mapped}:
    mapped = mmap.mmap(fd, 900 << 20)
    os.close(fd)
for at in range(900):
    mapped.write(bytes(1 << 20)) if {mapped} else os.write(fd, bytes(1 << 20))
time.sleep(20)"""
THREAD = """import subprocess, sys, threading, time
code = "x = bytearray(900 << 20); import time; time.sleep(20)"
threading.Thread(target=lambda: subprocess.run([sys.executable, "-c", code])).start()
time.sleep(20)"""
UNREADABLE = "import ctypes\nctypes.CDLL(None).prctl(4, 0)\nx = bytearray(900 << 20)\nimport time\ntime.sleep(20)"
FILES = "n = 0\nwhile True:\n    open(f'f{n}', 'wb').write(bytes(1 << 20))\n    n += 1"
IN_MEMORY = "import time\nopen('/tmp/x', 'wb').write(bytes(60 << 20))\ntime.sleep(20)"
UNNAMED = """import os
kept = []
while True:
    kept.append(open("x", "wb", 0))
    os.unlink("x")
    kept[-1].write(bytes(20 << 20))"""
DEEP = """import os
for n in range(1000):
    os.mkdir("d" * 100)
    os.chdir("d" * 100)
while True:
    open(f"f{n}", "wb").write(bytes(1 << 20))
    n += 1"""
CLOSED = "import os\nos.mkdir('d')\nos.chdir('d')\nos.chmod('.', 0o300)\n" + FILES
TINY = "n = 0\nwhile True:\n    open(f'{n}', 'w').close()\n    n += 1"
GREEDY = {
    "shared memory": ("memory", SHARED),
    "memfd": ("memory", MEMFD.format(mapped=False)),
    "mapped memfd": ("memory", MEMFD.format(mapped=True)),
    "child of a thread": ("memory", THREAD),
    "not dumpable": ("memory", UNREADABLE),
    "files without end": ("disk", FILES),
    "files without a name": ("disk", UNNAMED),
    "files in memory": ("disk", IN_MEMORY),
    "deep files": ("disk", DEEP),
    "files in a closed folder": ("disk", CLOSED),
    "empty files without end": ("disk", TINY),
    "one hog": ("memory", "x = bytearray(3000 * 1024**2)\nimport time\ntime.sleep(20)"),
    "many hogs": ("memory", HOGS),
    "1 GB of words": ("output", "import os\nwhile True: os.write(1, b'x' * 65536)"),
    "1,000 processes": ("processes", CROWD),
}  # fmt: skip


@pytest.mark.timing
@BOTH
@pytest.mark.parametrize("name", GREEDY)
async def test_a_limit_ends_it(machine, overlays, name):
    ended, words = GREEDY[name]
    # Creating files takes longest.
    disk = (50 if name in ("empty files without end", "files in memory") else 200) * MEGABYTE
    limits = CommandLimits(400 * MEGABYTE, 300 if "hogs" in name else 100, MEGABYTE, max_disk_bytes=disk)
    async with shadow_on(machine, overlays=overlays, limits=limits) as shadow:
        begun = time.monotonic()
        ran = await shadow.run(PYTHON, "-c", words, seconds=40 if name == "empty files without end" else 20)
        assert name == "empty files without end" or time.monotonic() - begun < 10
        # For other users than root, the kernel refuses more processes first.
        assert ran.end_reason == ended or (ended == "processes" and ran.end_reason in ("exit", "memory"))
        assert len(ran.output) <= MEGABYTE
        if ended == "output":
            assert ran.omitted_bytes > 8 * MEGABYTE


@BOTH
async def test_many_files_and_a_sparse_one(machine, overlays):
    async with shadow_on(machine, overlays=overlays) as shadow:
        code = f"for n in range({sized(commit=20_000, nightly=100_000)}): open(f'f{{n}}', 'w').close()"
        ran = await shadow.run(PYTHON, "-c", code, seconds=PATIENCE)
        assert (ran.end_reason, ran.status, len(ran.changed_paths)) == ("exit", 0, 50)
        assert await shadow.sh("ls | wc -l") == "2\n"
        ran = await shadow.run("truncate", "-s", "10G", "sparse", seconds=PATIENCE)
        assert ran.status != 0
        assert (await shadow.run("truncate", "-s", "1G", "sparse", seconds=PATIENCE)).changed_paths == ("sparse",)


@BOTH
async def test_it_reads_nothing_and_says_nothing_to_the_server(machine, overlays):
    async with shadow_on(machine, overlays=overlays) as shadow:
        assert await shadow.sh("cat; read x; ls -l /proc/self/fd | wc -l; echo $(env | wc -l)", seconds=PATIENCE) != ""
        listed = await shadow.py("import os; print(sorted(os.listdir('/proc/self/fd')))")
        assert listed == "['0', '1', '2', '3']\n"
        assert await shadow.sh("cat | wc -c") == "0\n"


@pytest.mark.timing
@BOTH
async def test_cancelled_at_random_moments_nobody_survives(machine, overlays):
    above, _ = machine
    tree(above / "ws", {f"many/{number}": "x" for number in range(500)})
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    for number in range(sized(commit=15, nightly=40)):
        mark = f"mark-{seed}-{number}"
        async with shadow_on(machine, overlays=overlays) as shadow:
            words = f"setsid sleep 1000 {mark} <&- >&- 2>&- & sleep 1000"
            running = asyncio.create_task(shadow.run("sh", "-c", words, mark, seconds=100))
            await asyncio.wait((running,), timeout=dice.uniform(0, 0.25))
            begun = time.monotonic()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            assert time.monotonic() - begun < 2, seed
            assert living_in(mark) == [], (seed, number)


HOLDER = """
import asyncio, sys
from pathlib import Path
from tests.support.shadowing import shadowed
async def main():
    async with shadowed(Path(sys.argv[1]), state=Path(sys.argv[2]), overlays=sys.argv[3] == "1") as shadow:
        words = "setsid sleep 1000 " + "mark-" + sys.argv[4] + " <&- >&- 2>&- & sleep 1000"
        await shadow.run("sh", "-c", words, "mark-" + sys.argv[4], seconds=100)
asyncio.run(main())
"""


@pytest.mark.timing
@BOTH
async def test_killed_at_random_moments_nobody_survives(machine, overlays):
    above, _ = machine
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    for number in range(sized(commit=10, nightly=25)):
        mark = f"{seed}-{number}"
        words = (str(above / "ws"), str(above / "state"), str(int(overlays)), mark)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(Path.cwd()), *sys.path[1:]))}
        helper = await asyncio.create_subprocess_exec(PYTHON, "-c", HOLDER, *words, env=env)
        if number % 2:
            await seen(lambda mark=mark: bool(living_in(f"mark-{mark}")), within=60)
            await asyncio.sleep(dice.uniform(0, 0.1))
        else:
            folder = above / "state" / "shadow"
            await seen(lambda folder=folder: folder.exists() and len(os.listdir(folder)) > 1, within=60)
            await asyncio.sleep(dice.uniform(0, 0.15))
        helper.send_signal(signal.SIGKILL)
        await helper.wait()
        await seen(lambda mark=mark: not living_in(f"mark-{mark}"), within=2)
    async with shadowed(above / "ws", state=above / "state", overlays=overlays) as shadow:
        await shadow.sh("true")
        assert len(shadow.left()) == 1


def planted(folder, text):
    tree(folder, {"bwrap": f"#!/bin/sh\n{text}\n"})
    (folder / "bwrap").chmod(0o755)
    return str(folder)


FAILING = {
    "missing": (None, "was not found outside the workspace.*apt install bubblewrap"),
    "fails": ("echo bwrap: no >&2; exit 1", "does not allow user namespaces"),
    "no program": ("\0", "could not be"),
    "works, then fails": ('case "$*" in *--args*) echo bwrap: Creating new namespace failed >&2; exit 1;; esac',
                          "could not be started: Creating new namespace failed"),
    "works, then lies": ('case "$*" in *--args*) exec sh -c "touch $PLANTED"; esac', "could not be started"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
async def test_missing_sandbox_helper_is_reported_and_nothing_runs(machine, monkeypatch, name):
    above, _ = machine
    text, sentence = FAILING[name]
    path = str(above / "empty") if text is None else planted(above / "planted", text)
    monkeypatch.setenv("PATH", path)
    before = as_it_is(above / "ws")
    async with shadow_on(machine) as shadow:
        with pytest.raises(ToolFailed, match=sentence):
            await shadow.run("/bin/sh", "-c", "echo ran > a.py")
    assert as_it_is(above / "ws") == before


async def test_a_helper_in_the_workspace_is_not_run(machine, monkeypatch):
    """S-30."""
    above, _ = machine
    monkeypatch.setenv("PATH", planted(above / "ws" / "bin", f"touch {above}/planted-ran"))
    async with shadow_on(machine) as shadow:
        with pytest.raises(ToolFailed, match="not found outside"):
            await shadow.run("/bin/true")
    assert not (above / "planted-ran").exists()


async def test_where_the_state_folder_cannot_be_used_that_is_said(machine):
    above, environment = machine
    (above / "file").write_text("")
    async with shadow_on(machine) as shadow:
        runner = ShadowRunner(environment, str(above / "file"), CommandLimits())
        with pytest.raises(ToolFailed, match="could not be copied"):
            await runner.run(["true"], EditOverlay(shadow.view()), folder=None, seconds=5)
        await runner.aclose()


NESTED = """
import asyncio, sys
from pathlib import Path
from tests.support.shadowing import shadowed
async def main():
    ws, state = map(Path, sys.argv[1:])
    async with shadowed(ws, state=state) as shadow:
        seen = await shadow.sh("cat seen")
        ran = await shadow.run("sh", "-c", "echo changed > seen")
        print([seen, *ran.changed_paths, *(path.name for path in state.glob("shadow/*/0/*"))])
asyncio.run(main())
"""


async def test_files_are_copied_if_the_state_folder_is_an_overlay(machine):
    above, _ = machine
    tree(above / "ws", {"seen": "on disk"})
    for name in ("lower", "upper", "work", "nested"):
        (above / name).mkdir()
    script = (
        'cd "$1" && mount -t overlay o -o lowerdir=lower,upperdir=upper,workdir=work,userxattr nested && cd "$2" &&'
    )
    script += ' exec "$3" -c "$4" "$1/ws" "$1/nested"'
    words = ("unshare", "-Urm", "sh", "-c", script, "sh", str(above), str(Path.cwd()), PYTHON, NESTED)
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert output.decode() == "['on disk', 'seen', 'copy']\n"
