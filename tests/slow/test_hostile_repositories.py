"""Hostile folders get nothing: no process, no connection, no write outside the state folder.

The real server runs under strace with a hostile model. It may start only our search and git with safe options, and
reach only the provider. A feature that acts in a folder is a row of `ACTIVITIES`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import unicodedata
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.slow.hostile_ground import MAIN, SECRET, Ground, Hostile, ground, make
from tests.slow.hostile_repositories import HOSTILE
from tests.slow.running import Tally, running
from tests.slow.tracing import Started, Trace, read_trace, traced, why_not
from tests.support.client.actions import ResponseError
from tests.support.client.raw import RawClient
from tests.support.hosts import Decoy
from tests.support.outside import ROOT, Connect, Json, Outside, diagnostic, named
from tests.support.signing_server import Text, Thinking, Tool, answer, tool

SAFE_OPTIONS = {"--no-config", "--no-follow"}
UNSAFE_OPTIONS = ("--pre", "--search-zip", "-z", "--hostname-bin", "--follow", "-L")
WORKER = ["-I", "-S", str(ROOT / "thinklsp/workers/child.py")]
BARE_ENVIRONMENT = {"PATH", "LANG", "LC_ALL"}
GIT_OPTIONS = {"--no-pager", "--no-optional-locks", "core.fsmonitor=false", "core.hooksPath=/dev/null"}
GIT_VARIABLES = {"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_NO_LAZY_FETCH=1"}
GIT_COMMANDS = {"rev-parse", "diff-index", "ls-files", "cat-file"}

traceable = pytest.mark.skipif(why_not() is not None, reason=f"HOSTILE FOLDERS ARE NOT TESTED: {why_not()}")
if why_not() is not None:
    warnings.warn(f"hostile folders are not tested: {why_not()}", pytest.PytestWarning, stacklevel=1)


@dataclass
class Scene:
    outside: Outside
    row: Hostile

    def says(self, *answers: Any) -> None:
        self.outside.provider.say(*answers)


async def open_documents(scene: Scene) -> None:
    scene.outside.open("main.py")
    for name in scene.row.opens:
        scene.outside.open(name)


async def ask_for_code_actions(scene: Scene) -> None:
    client, uri = scene.outside.client, scene.outside.uri("main.py")
    assert named(await client.code_actions(uri, "nmae"), "edit")
    assert scene.outside.provider.connections == 0


async def fix(scene: Scene) -> None:
    client, uri = scene.outside.client, scene.outside.uri("main.py")
    [action] = named(await client.code_actions(uri, "nmae", diagnostics=[diagnostic(MAIN, "nmae", "undefined")]), "fix")
    scene.says(
        answer(Thinking(), tool("read_file", path="main.py"), tool("search_text", pattern="nmae")),
        answer(
            tool("edit_file", path="main.py", old_text="nmae", new_text="name"),
            *(tool("write_file", path=name, content="taken\n") for name in scene.row.writes),
        ),
        answer(Thinking(), Text("Fixed.")),
    )
    result = await scene.outside.result(client.run_action(action, token="fix"))
    assert client.text(uri) == MAIN.replace("nmae", "name")
    assert [file["uri"] for file in result["edits"]["files"]] in ([uri], [uri, *map(scene.outside.uri, FREE)])


async def chat(scene: Scene) -> None:
    reads: list[Tool] = [tool("read_file", path=name) for name in scene.row.reads]
    folders = sorted({name.rpartition("/")[0] for name in scene.row.reads} - {""})
    scene.says(
        answer(Thinking(), tool("list_files"), tool("search_text", pattern="nmae|Hello", context=1)),
        answer(Thinking(), tool("list_files", glob="*.py"), tool("search_text", pattern="root:|canary", literal=False)),
        answer(*reads, *(tool("list_files", path=name) for name in folders), tool("read_file", path="main.py")),
        answer(Thinking(), Text("That is all.")),
    )
    before = len(scene.outside.provider.requests)
    result = await scene.outside.turn("thinklsp.chat", {"prompt": "Look around.", "uri": scene.outside.uri("main.py")})
    assert result["stopReason"] == "end_turn"
    listing, search = scene.outside.provider.requests[before + 1].tool_results()
    assert ("main.py" in text_of(listing), "Hello" in text_of(search)) == (True, True), (listing, search)


async def review(scene: Scene) -> None:
    for place in (scene.outside.uri("main.py"), scene.outside.root.as_uri()):
        scene.says(answer(Thinking(), Text("Reviewed.")))
        with suppress(ResponseError):
            await scene.outside.turn("thinklsp.action", {"name": "review", "uri": place})
        scene.outside.provider.script.clear()


async def send_chat_documents(scene: Scene) -> None:
    for name in scene.row.opens:
        if name.endswith(".chat.md"):
            scene.says(answer(Thinking(), Text("Read.")))
            with suppress(ResponseError):
                await scene.outside.turn("thinklsp.send", {"uri": scene.outside.uri(name)})
            scene.outside.provider.script.clear()


Activity = Callable[[Scene], Awaitable[None]]
ACTIVITIES: list[Activity] = [open_documents, ask_for_code_actions, fix, chat, review, send_chat_documents]
# Permitted names, which only matter together with settings elsewhere.
FREE = ("hooks/post-checkout",)


@dataclass(frozen=True)
class Bounds:
    """`may_write`: folders. `address`: the provider's. `ripgrep`: the path of our own."""

    may_write: tuple[Path, ...]
    address: str
    ripgrep: str


def breaches(trace: Trace, bounds: Bounds) -> list[str]:
    first, *others = trace.started
    free = (*(f"{folder}/" for folder in bounds.may_write), *map(str, bounds.may_write))
    found = [f"process: {other.argv}" for other in others if not is_our_own(other, bounds.ripgrep)]
    if trace.forked != len({other.process for other in others} - {first.process}):
        found.append(f"process: {trace.forked} came into being, and {len(others)} programs were started")
    found += [
        f"socket: {r.call} {r.address}" for r in trace.reached if (r.call, r.address) != ("connect", bounds.address)
    ]
    found += [
        f"write: {o.call} {o.path}"
        for o in trace.changed
        if o.path != "/dev/null" and not (o.path in bounds.may_write or o.path.startswith(free))
    ]
    return found


def is_our_own(program: Started, ripgrep: str) -> bool:
    """Check for the real path, and for no setting or variable that could make the program run or follow anything."""
    first, *rest = program.argv
    if first == program.program == os.path.realpath(shutil.which("git") or "git"):
        return is_our_git(rest, set(program.environment))
    if first != program.program or {entry.partition("=")[0] for entry in program.environment} != BARE_ENVIRONMENT:
        return False
    if Path(first).parent == Path(sys.executable).parent and Path(first).name.startswith("python"):
        return rest == WORKER
    options = rest[: rest.index("--")] if "--" in rest else rest
    return first == ripgrep and set(options) >= SAFE_OPTIONS and not any(o.startswith(UNSAFE_OPTIONS) for o in options)


def is_our_git(arguments: Sequence[str], environment: set[str]) -> bool:
    names = {entry.partition("=")[0] for entry in environment if not entry.startswith("GIT_")}
    safe = names == BARE_ENVIRONMENT and environment >= GIT_VARIABLES and set(arguments) >= GIT_OPTIONS
    return safe and not GIT_COMMANDS.isdisjoint(arguments)


def our_ripgrep() -> str:
    """Find ripgrep without the product: on our own PATH, or beside our interpreter."""
    found = shutil.which("rg") or shutil.which("rg", path=str(Path(sys.executable).parent))
    assert found is not None
    return os.path.realpath(found)


def text_of(result: Json) -> str:
    content = result["content"]
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


def unseen(text: str) -> set[str]:
    return {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Co", "Cs") and char not in "\n\t"}


def server_argv(row: Hostile) -> list[str]:
    own = Path(sys.executable).with_name("thinklsp")
    if row.module:
        return [sys.executable, "-m", "thinklsp"]
    return [str(own)] if own.exists() else [sys.executable, "-P", "-m", "thinklsp"]


def traced_in(at: Ground, row: Hostile, folder: Path) -> Connect:
    """Start the server in the folder after it has been created."""

    async def connect(root: Path, variables: Mapping[str, str]) -> RawClient:
        await asyncio.to_thread(make, row, at)
        # Bytecode files beside our sources are no writes of the server.
        env = {**variables, "PYTHONDONTWRITEBYTECODE": "1", **row.environment(at)}
        return await RawClient.start(traced(server_argv(row), folder), cwd=root, env=env)

    return connect


@pytest.mark.kernel
@traceable
@pytest.mark.parametrize("row", HOSTILE, ids=lambda row: row.name)
async def test_a_hostile_folder_gets_nothing(tmp_path: Path, row: Hostile, tally: Tally) -> None:
    async with Decoy() as decoy:
        url = decoy.url
        at = ground(tmp_path / "x", url, empty=True)
        connect = traced_in(at, row, tmp_path / "trace")
        async with running(tmp_path / "x", connect=connect, options=row.settings(at), finish=False) as outside:
            for activity in ACTIVITIES:
                await activity(Scene(outside, row))
            assert await outside.client.close() == 0
        trace = await asyncio.to_thread(read_trace, tmp_path / "trace", at.root)
        provider = outside.provider
        bounds = Bounds((outside.home / "state",), f"127.0.0.1:{provider.port}", our_ripgrep())
        assert breaches(trace, bounds) == []
        assert (decoy.connections, os.listdir(at.marks)) == (0, [])
    assert any(reached.address == bounds.address for reached in trace.reached)
    assert any(is_our_own(program, bounds.ripgrep) for program in trace.started)
    assert (outside.client.checker.violations, provider.violations) == ([], [])
    results = [text_of(result) for seen in provider.requests for result in seen.tool_results()]
    assert [text for text in results if unseen(text) or SECRET in text or "root:x:" in text] == []
    assert SECRET not in repr([seen.body for seen in provider.requests])
    assert url not in "".join(outside.client.messages())
    shutil.rmtree(tmp_path)
    tally("A-23", 1)


CARELESS = [row for row in HOSTILE if row.careless]


@pytest.mark.parametrize("row", CARELESS, ids=lambda row: row.name)
def test_the_trap_of_a_folder_works(tmp_path: Path, row: Hostile) -> None:
    at = ground(tmp_path)
    make(row, at)
    env = {"PATH": os.environ["PATH"], "HOME": str(at.home), **row.environment(at)}
    if shutil.which(row.careless[0]) is None:
        pytest.skip(f"{row.careless[0]} is not installed")
    subprocess.run(row.careless, cwd=at.root, env=env, capture_output=True, timeout=60, check=False)
    assert os.listdir(at.marks) != []


BREACHES: dict[str, tuple[str, str]] = {
    "a program": ("process: ('/bin/true',)", "subprocess.run(['/bin/true'])"),
    "a program of the folder by its name": ("process: ('git', 'status')", "subprocess.run(['git', 'status'])"),
    "a fork": ("process: 1 came into being", "os.fork() or os._exit(0)"),
    "our ripgrep with a variable": ("process: ('{rg}'", "subprocess.run(['{rg}', '--no-config', '--no-follow', 'x'])"),
    "our ripgrep with a filter": (
        "process: ('{rg}'",
        "run_bare('{rg} --no-config --no-follow --no-ignore-global --pre=/bin/true -- x')",
    ),
    "our Python with another script": ("process: ", "run_bare(sys.executable + ' -I -S main.py')"),
    "a connection": ("socket: connect 127.0.0.1:9", "socket.socket().connect_ex(('127.0.0.1', 9))"),
    "a connection by IPv6": ("socket: connect ::1:9", "socket.socket(socket.AF_INET6).connect_ex(('::1', 9))"),
    "a datagram": ("socket: sendto 127.0.0.1:53", "socket.socket(type=2).sendto(b'?', ('127.0.0.1', 53))"),
    "a local socket": ("socket: connect {{sa_family=AF_UNIX", "socket.socket(socket.AF_UNIX).connect_ex('x')"),
    "a listener": ("socket: bind 127.0.0.1:0", "socket.socket().bind(('127.0.0.1', 0))"),
    "a file of the folder": ("write: openat {root}/new", "open('new', 'w')"),
    "a file in another folder": ("write: openat {root}/sub/new", "os.chdir('sub'); open('new', 'a')"),
    "a file by a link in the state folder": ("write: openat {root}/new", "open(r'{state}/link', 'w')"),
    "a folder": ("write: mkdir {root}/new", "os.mkdir('new')"),
    "a folder by descriptor": ("write: mkdirat {root}/sub/new", "os.mkdir('new', dir_fd=os.open('sub', os.O_RDONLY))"),
    "a file taken away": ("write: unlink {root}/main.py", "os.unlink('main.py')"),
    "a file moved out of the state folder": ("write: rename {root}/x", "os.rename(r'{state}/file', 'x')"),
    "a link": ("write: symlink {root}/x", "os.symlink('/', 'x')"),
    "a mode": ("write: chmod {root}/main.py", "os.chmod('main.py', 0o777)"),
    "a mode by descriptor": ("write: fchmod {root}/main.py", "os.fchmod(os.open('main.py', os.O_RDONLY), 0o777)"),
    "a time": ("write: utimensat {root}/main.py", "os.utime('main.py')"),
    "a write that fails": ("write: openat /proc/nothing", "open('/proc/nothing', 'w')"),
    "a thread's write": ("write: openat {root}/new", "threading.Thread(target=open, args=('new', 'w')).start()"),
}
PROGRAM = """
import os, socket, subprocess, sys, threading
def run_bare(words):
    subprocess.run(words.split(), env=dict.fromkeys({names}, ''))
try:
    {code}
except OSError:
    pass
"""


@pytest.mark.kernel
@traceable
@pytest.mark.parametrize("name", BREACHES)
def test_every_kind_of_breach_is_found(tmp_path: Path, name: str) -> None:
    at = ground(tmp_path)
    make(Hostile(name, lambda at: None), at)
    state = tmp_path / "state"
    for folder in (at.root / "sub", state):
        folder.mkdir()
    (state / "file").touch()
    (state / "link").symlink_to(at.root / "new")
    known = {"rg": our_ripgrep(), "root": at.root, "state": state}
    expected, code = (part.format(**known) for part in BREACHES[name])
    program = PROGRAM.format(names=sorted(BARE_ENVIRONMENT), code=code)
    argv = traced([sys.executable, "-I", "-B", "-c", program], tmp_path / "trace")
    subprocess.run(argv, cwd=at.root, capture_output=True, timeout=60, check=True)
    bounds = Bounds((state,), "127.0.0.1:1", known["rg"])
    found = breaches(read_trace(tmp_path / "trace", at.root), bounds)
    assert [breach for breach in found if breach.startswith(expected)] != [], found
    assert {breach.partition(":")[0] for breach in found} == {expected.partition(":")[0]}
