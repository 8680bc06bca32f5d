"""What a command takes up is measured, however it takes it, and ends the command at the limit."""

import os

import pytest

from tests.support.shadowing import PYTHON, needs_sandbox, shadowed, tree
from thinklsp.core.errors import ToolFailed
from thinklsp.sandbox.process import Limits
from thinklsp.sandbox.usage import size_of

MEGABYTE = 1024**2
SHARED = "import mmap, time\nmmap.mmap(-1, 200 << 20).write(bytes(200 << 20))\ntime.sleep(60)"
MEMFD = "import os, time\nos.write(os.memfd_create('x'), bytes(200 << 20))\ntime.sleep(60)"
CHILD = (
    "import subprocess, sys, threading, time\n"
    "code = 'x = bytearray(200 << 20); import time; time.sleep(60)'\n"
    "threading.Thread(target=lambda: subprocess.run([sys.executable, '-c', code])).start()\ntime.sleep(60)"
)
FILES = "import os, time\n[open(str(n), 'wb').write(bytes(1 << 20)) for n in range(200)]\ntime.sleep(60)"
UNNAMED = (
    "import os, time\nkept = [open('x', 'wb') for _ in range(1)]\nos.unlink('x')\n"
    "kept[0].write(bytes(200 << 20)); kept[0].flush()\ntime.sleep(60)"
)
IN_MEMORY = "import os, time\nopen('/tmp/x', 'wb').write(bytes(30 << 20))\ntime.sleep(60)"
CASES = {
    "shared memory": ("memory", SHARED, {}),
    "memfd": ("memory", MEMFD, {}),
    "child of a thread": ("memory", CHILD, {}),
    "files": ("disk", FILES, {}),
    "file without a name": ("disk", UNNAMED, {}),
    "file in memory": ("disk", IN_MEMORY, {"disk": 20 * MEGABYTE, "memory": 400 * MEGABYTE}),
}


@needs_sandbox
@pytest.mark.parametrize("name", CASES)
async def test_a_limit_holds_however_it_is_used_up(tmp_path, name):
    """H-F7, H-F8."""
    ended, code, more = CASES[name]
    limits = Limits(**{"memory": 120 * MEGABYTE, "disk": 100 * MEGABYTE, "free": 0} | more)
    async with shadowed(tree(tmp_path / "ws", {"a": ""}), state=tmp_path / "state", limits=limits) as shadow:
        ran = await shadow.run(PYTHON, "-I", "-S", "-c", code, seconds=50)
        assert ran.ended == ended
        assert await shadow.sh("echo still there") == "still there\n"


@needs_sandbox
async def test_what_must_stay_free_stays_free(tmp_path):
    """H-F8."""
    limits = Limits(free=2**60)
    async with shadowed(tree(tmp_path / "ws", {"a": ""}), state=tmp_path / "state", limits=limits) as shadow:
        with pytest.raises(ToolFailed, match="are free on the disk that holds"):
            await shadow.run("true")


@needs_sandbox
async def test_nothing_is_written_where_nothing_is_counted(tmp_path):
    words = "echo x > /dev/x; chmod u+w /etc/ssh && echo x > /etc/ssh/x; ls /dev/x /etc/ssh/x"
    async with shadowed(tree(tmp_path / "ws", {"a": ""}), state=tmp_path / "state") as shadow:
        assert (await shadow.run("sh", "-c", words)).status != 0
        assert await shadow.sh("echo x > /dev/null && echo x > /dev/shm/x && cat /dev/shm/x") == "x\n"


def test_a_folder_is_counted_once_and_to_its_depth(tmp_path):
    tree(tmp_path, {"a": "x" * 10_000, "deep/er/b": "x" * 10_000})
    size, complete = size_of(str(tmp_path))
    assert 20_000 <= size < 60_000
    assert complete
    os.link(tmp_path / "a", tmp_path / "same")
    assert size_of(str(tmp_path)) == (size, True)
    assert size_of(str(tmp_path / "a")) == (0, False)
    assert size_of(str(tmp_path / "missing")) == (0, True)
