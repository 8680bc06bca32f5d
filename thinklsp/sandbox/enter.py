"""The last step before the sandbox, a program of its own: `python -I enter.py`, its task as JSON on standard input.

It mounts an overlay over each folder where it is told to, brings the copies up to date, sets limits, and becomes
bubblewrap. It runs as the user and sees what the user sees, so it follows no link in a copy: what was run there before
could have laid one. It imports nothing of ours.

Where it can, it stays as the keeper of a process namespace whose first process is bubblewrap. That one alone has
moments in which it can be killed without what it has started, and then nobody ends that.

The task: `overlays`: [{lower, upper, work, merged}], `sync`: [{folder, writes: [[parts, base64, mode]], deletes:
[parts]}], `limits`: {name: number}, `processes`: how many there may be, `argv`: bubblewrap's, `settings`: its options,
`filter`: base64 of a seccomp program or empty, `status`: descriptor that is told `{"failed": …}` where it comes to
nothing and `{"inside": …}`, the first process of the namespace; `parent`: process that it must not outlive.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import stat
import sys
from contextlib import suppress
from typing import Any

_NEW_USER, _NEW_MOUNTS, _NEW_PROCESSES = 0x10000000, 0x00020000, 0x20000000
_PRIVATE, _RECURSIVE = 1 << 18, 1 << 14
_DIE_WITH_PARENT = 1
# Commands give way to the editor.
_NICER = 10
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    task = json.load(sys.stdin.buffer)
    if os.getppid() != task["parent"]:
        # It has died before we said that we want to die with it.
        os._exit(125)
    status: int = task["status"]
    try:
        if _own_world():
            # Of this namespace; else it would count all processes of the user.
            _limit(resource.RLIMIT_NPROC, task["processes"])
            _stay_outside(status)
        elif task["overlays"]:
            raise PermissionError(1, "no namespace for the overlay")
        for overlay in task["overlays"]:
            _mount(overlay)
        for copy in task["sync"]:
            _sync(copy)
        _give_way()
        for name, most in task["limits"].items():
            _limit(getattr(resource, name), most)
        argv = [*task["argv"][:1], "--args", str(_kept(task["settings"])), *_filtering(task["filter"])]
        argv += ["--json-status-fd", str(status), "--", *task["argv"][1:]]
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.execv(argv[0], argv)  # noqa: S606 - an argv, and no shell, is what is wanted
    except (OSError, RecursionError) as error:
        # Folders in folders without end are what a command can leave behind, too.
        reason = error.strerror if isinstance(error, OSError) else None
        os.write(status, json.dumps({"failed": reason or type(error).__name__}).encode())
        os._exit(125)


def _own_world() -> bool:
    """A user namespace, in which we are who we are, mounts that nobody else sees, and processes that end together, from
    the next child on. False where the system has no such thing."""
    user, group = os.getuid(), os.getgid()
    if _LIBC.unshare(_NEW_USER | _NEW_MOUNTS | _NEW_PROCESSES) != 0:
        return False
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, text.encode())
        os.close(descriptor)
    _called(_LIBC.mount(b"none", b"/", None, _PRIVATE | _RECURSIVE, None))
    return True


def _stay_outside(status: int) -> None:
    """Returns in the first process of the namespace only, which ends with us."""
    ours, theirs = os.pipe()
    inside = os.fork()
    if inside == 0:
        os.close(theirs)
        _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        # Had we died before that, it would not have been told.
        if select.select((ours,), (), (), 0)[0]:
            os._exit(125)
        os.close(ours)
        return
    os.write(status, json.dumps({"inside": inside}).encode() + b"\n")
    # Only those inside say more.
    for descriptor in (0, 1, 2, status, ours):
        os.close(descriptor)
    os.waitpid(inside, 0)
    os._exit(0)


def _mount(overlay: dict[str, str]) -> None:
    # By descriptor: a path could hold what separates options.
    held = {name: os.open(overlay[name], _FOLDER) for name in ("lower", "upper", "work")}
    options = ",".join(f"{name}dir=/proc/self/fd/{descriptor}" for name, descriptor in held.items()) + ",userxattr"
    _called(_LIBC.mount(b"overlay", os.fsencode(overlay["merged"]), b"overlay", 0, options.encode()))
    for descriptor in held.values():
        os.close(descriptor)


def _called(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _sync(copy: dict[str, Any]) -> None:
    root = os.open(copy["folder"], _FOLDER)
    # What goes makes room for what comes: a file may have become a folder.
    for parts in copy["deletes"]:
        _delete(root, [_name(part) for part in parts])
    for parts, text, mode in copy["writes"]:
        _write(root, [_name(part) for part in parts], base64.b64decode(text), mode)
    os.close(root)


def _name(part: str) -> bytes:
    return os.fsencode(part)


def _folder_of(root: int, parts: list[bytes], *, make: bool) -> int | None:
    """A descriptor of the folder above the last part, reached without a link; None where it is not there."""
    at = os.dup(root)
    for part in parts[:-1]:
        if make:
            _clear(at, part, unless=stat.S_ISDIR)
            with suppress(FileExistsError):
                os.mkdir(part, 0o777, dir_fd=at)
        try:
            below = os.open(part, _FOLDER, dir_fd=at)
        except OSError:
            os.close(at)
            if make:
                raise
            return None
        os.close(at)
        at = below
    return at


def _clear(at: int, part: bytes, *, unless: Any = None) -> None:
    try:
        mode = os.stat(part, dir_fd=at, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if unless is not None and unless(mode):
        return
    if stat.S_ISDIR(mode):
        shutil.rmtree(part, dir_fd=at)
    else:
        os.unlink(part, dir_fd=at)


def _delete(root: int, parts: list[bytes]) -> None:
    at = _folder_of(root, parts, make=False)
    if at is not None:
        _clear(at, parts[-1])
        os.close(at)


def _write(root: int, parts: list[bytes], data: bytes, mode: int) -> None:
    at = _folder_of(root, parts, make=True)
    if at is None:
        raise FileNotFoundError(2, "a folder is gone")
    name = parts[-1]
    # A file that holds this already keeps its time, or everything would be built anew.
    if not _is_regular(at, name) or _content(at, name, len(data)) != data:
        _clear(at, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=at)
        os.fchmod(descriptor, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    os.close(at)


def _is_regular(at: int, name: bytes) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _content(at: int, name: bytes, length: int) -> bytes | None:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(length + 1)


def _give_way() -> None:
    """Where the memory of the machine runs out, the kernel ends this and nothing of the user's."""
    os.nice(_NICER)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def _filtering(encoded: str) -> list[str]:
    return ["--seccomp", str(_held(base64.b64decode(encoded)))] if encoded else []


def _kept(settings: list[str]) -> int:
    return _held(b"".join(os.fsencode(setting) + b"\0" for setting in settings))


def _held(data: bytes) -> int:
    """Bytes as a descriptor that outlives the change into another program."""
    descriptor = os.memfd_create("task", 0)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.set_inheritable(descriptor, True)
    return descriptor


if __name__ == "__main__":
    main()
