"""What stands in the sandbox, as values, and that what is sealed is sealed for root, too."""

import os
import struct

import pytest

from tests.support.shadowing import BOTH, needs_sandbox, shadowed, tree
from thinklsp.sandbox.bubblewrap import build_filter
from thinklsp.sandbox.room import Folder, Machine, options, variables


def shown(machine, *folders):
    made = options(machine, folders, "/", memory=2**20, deep=True)
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
    machine = Machine(environment, str(home), "/nothing", (f"{home}/tools",), (str(tmp_path / "state"),))
    below = {place.removeprefix(f"{home}/") for place in shown(machine) if place.startswith(str(tmp_path))}
    assert below == {".local/bin", "project/bin", "tools", ".cargo", "go/pkg"}
    assert "KEY" not in variables(machine)


def test_a_workspace_is_never_shown_as_it_is(home):
    machine = Machine({"PATH": f"{home}/tools/bin"}, str(home), "/nothing")
    assert f"{home}/tools" not in shown(machine, Folder(f"{home}/tools", "/copy"))
    assert f"{home}/tools" not in shown(machine, Folder(f"{home}/tools/lib", "/copy"))


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


@needs_sandbox
@BOTH
async def test_not_even_root_sets_the_machine(tmp_path, overlays):
    async with shadowed(tree(tmp_path / "ws", {"a": ""}), state=tmp_path / "state", overlays=overlays) as shadow:
        assert await shadow.py(TRIES) == ""
        assert "NoNewPrivs:\t1" in await shadow.sh("cat /proc/self/status")
        assert (await shadow.sh("grep ^Cap /proc/self/status | cut -f2 | sort -u")).strip() == "0" * 16
