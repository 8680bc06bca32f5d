"""What is visible and writable in the sandbox, for root too, and the system call filter."""

import os
import struct

import pytest

from tests.support.shadowing import BOTH, needs_sandbox, shadowed, tree
from thinklsp.core.errors import ToolFailed
from thinklsp.sandbox.bubblewrap import SandboxFolder, SandboxHost, build_environment, build_filter, build_options
from thinklsp.sandbox.process import CommandLimits, measure_folder


def shown(machine, *folders):
    made = build_options(machine, folders, "/", memory_bytes=2**20, disable_namespaces=True)
    return {made[at + 2] for at, word in enumerate(made) if word == "--ro-bind" and made[at + 1] == made[at + 2]}


@pytest.fixture
def home(tmp_path):
    names = (".local/bin/a", ".local/share/keyrings/k", "project/.git/x", "project/bin/a", "tools/bin/a", "tools/lib/a",
             ".cargo/bin/a", "go/src/private/a", "go/pkg/a", ".ssh/a", "bin/a")  # fmt: skip
    return tree(tmp_path / "home", dict.fromkeys(names, ""))


def test_of_the_home_folder_only_tools_are_shown(home, tmp_path):
    entries = (".local/bin", "project/bin", "tools/bin", "bin", "../home/.cargo/bin")
    path = os.pathsep.join((*(f"{home}/{entry}" for entry in entries), "relative/bin", ""))
    environment = {"PATH": path, "GOPATH": f"{home}/go", "JAVA_HOME": str(home), "KEY": "secret"}
    machine = SandboxHost(environment, str(home), "/nothing", (f"{home}/tools",), (str(tmp_path / "state"),))
    below = {place.removeprefix(f"{home}/") for place in shown(machine) if place.startswith(str(tmp_path))}
    assert below == {".local/bin", "project/bin", "tools", ".cargo", "go/pkg"}
    assert "KEY" not in build_environment(machine)


def test_a_workspace_is_never_shown_as_it_is(home):
    machine = SandboxHost({"PATH": f"{home}/tools/bin"}, str(home), "/nothing")
    assert f"{home}/tools" not in shown(machine, SandboxFolder(f"{home}/tools", "/copy"))
    assert f"{home}/tools" not in shown(machine, SandboxFolder(f"{home}/tools/lib", "/copy"))


def verdict(code, architecture, number, argument=0):
    """A classic BPF machine, as far as the program uses it."""
    data = struct.pack("=IIQQ", number, architecture, 0, argument)
    steps = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    at, value = 0, 0
    while True:
        kind, yes, no, k = steps[at]
        at += 1
        if kind == 0x20:
            value = struct.unpack_from("=I", data, k)[0]
        elif kind == 0x15:
            at += yes if value == k else no
        elif kind == 0x35:
            at += yes if value >= k else no
        else:
            return "allow" if k == 0x7FFF0000 else k & 0xFFFF


@pytest.mark.parametrize(
    ("machine", "architecture", "socket", "keyctl", "read"),
    [("x86_64", 0xC000003E, 41, 250, 0), ("aarch64", 0xC00000B7, 198, 219, 63)],
)
def test_the_filter(machine, architecture, socket, keyctl, read):
    code = build_filter(machine)
    assert verdict(code, architecture, read) == "allow"
    assert verdict(code, architecture, keyctl) == 1
    assert {family for family in range(64) if verdict(code, architecture, socket, family) == "allow"} == {1, 2, 10, 16}
    assert verdict(code, architecture, read | 0x40000000) == 38
    assert verdict(code, 0x40000003, read) == 38
    assert build_filter("mips") == b""


TRIES = """
import os
for name in ("kernel/core_pattern", "kernel/modprobe", "vm/drop_caches", "kernel/hostname", "user/max_user_namespaces"):
    try:
        # Opened only: where that were possible, no harm is to be done.
        os.close(os.open("/proc/sys/" + name, os.O_WRONLY))
        print(name)
    except OSError:
        pass
for name in ("/proc/sysrq-trigger", "/", "/usr", "/etc", "/proc"):
    if os.access(name, os.W_OK):
        print(name)
"""


@pytest.mark.kernel
@needs_sandbox
@BOTH
async def test_not_even_root_sets_the_machine(tmp_path, overlays):
    async with shadowed(tree(tmp_path / "ws", {"a": ""}), state=tmp_path / "state", overlays=overlays) as shadow:
        assert await shadow.py(TRIES) == ""
        assert "NoNewPrivs:\t1" in await shadow.sh("cat /proc/self/status")
        assert (await shadow.sh("grep ^Cap /proc/self/status | cut -f2 | sort -u")).strip() == "0" * 16


@pytest.mark.kernel
@needs_sandbox
async def test_what_must_stay_free_stays_free(tmp_path):
    limits = CommandLimits(min_free_bytes=2**60)
    async with shadowed(tree(tmp_path / "ws", {"a": ""}), state=tmp_path / "state", limits=limits) as shadow:
        with pytest.raises(ToolFailed, match="are free on the disk of"):
            await shadow.run("true")


@pytest.mark.kernel
@needs_sandbox
async def test_nothing_is_written_where_nothing_is_counted(tmp_path):
    words = "echo x > /dev/x; chmod u+w /etc/ssh && echo x > /etc/ssh/x; ls /dev/x /etc/ssh/x"
    async with shadowed(tree(tmp_path / "ws", {"a": ""}), state=tmp_path / "state") as shadow:
        assert (await shadow.run("sh", "-c", words)).status != 0
        assert await shadow.sh("echo x > /dev/null && echo x > /dev/shm/x && cat /dev/shm/x") == "x\n"


def test_a_folder_is_counted_once_and_to_its_depth(tmp_path):
    tree(tmp_path, {"a": "x" * 10_000, "deep/er/b": "x" * 10_000})
    size, complete = measure_folder(str(tmp_path))
    assert 20_000 <= size < 60_000
    assert complete
    os.link(tmp_path / "a", tmp_path / "same")
    assert measure_folder(str(tmp_path)) == (size, True)
    assert measure_folder(str(tmp_path / "a")) == (0, False)
    assert measure_folder(str(tmp_path / "missing")) == (0, True)
