"""The launcher, which prepares the sandbox and starts bubblewrap.

It runs as `python -I launcher.py` and reads its task as JSON from stdin. It mounts overlays, updates the copies of the
workspace, sets limits, and replaces itself with bubblewrap. It never follows links in a copy, because an earlier
command may have created them. If possible, bubblewrap is the first process of a process namespace, so that the kernel
kills all of its children together with it.

The task has these fields:
`overlays`: a list of {lower, upper, work, merged}
`sync`: a list of {folder, writes: [[parts, base64, mode]], deletes: [parts]}
`limits`: a mapping from limit names to numbers
`processes`: the maximum number of processes
`argv`: bubblewrap's command line
`settings`: bubblewrap's options
`filter`: a seccomp program in base64, or an empty string
`status`: the descriptor for status reports, which are `{"failed": …}` after an error and `{"inside": …}` with the id of
the namespace's first process
`parent`: the id of the parent process. The launcher exits together with this process.
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
# Commands run at a lower priority than the editor.
_NICENESS = 10
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    task = json.load(sys.stdin.buffer)
    if os.getppid() != task["parent"]:
        # The parent process exited before the call of `prctl`, so the kernel does not kill this process.
        os._exit(125)
    status: int = task["status"]
    try:
        if _enter_namespaces():
            # Inside a user namespace, the limit does not count the user's other processes.
            _set_limit(resource.RLIMIT_NPROC, task["processes"])
            _fork_first_process(status)
        elif task["overlays"]:
            raise PermissionError(1, "no namespace for the overlay")
        for overlay in task["overlays"]:
            _mount_overlay(overlay)
        for copy in task["sync"]:
            _sync_copy(copy)
        _lower_priority()
        for name, maximum in task["limits"].items():
            _set_limit(getattr(resource, name), maximum)
        settings = b"".join(os.fsencode(setting) + b"\0" for setting in task["settings"])
        argv = [*task["argv"][:1], "--args", str(_store_in_descriptor(settings))]
        argv += ["--seccomp", str(_store_in_descriptor(base64.b64decode(task["filter"])))] if task["filter"] else []
        argv += ["--json-status-fd", str(status), "--", *task["argv"][1:]]
        null_device = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null_device, 0)
        os.execv(argv[0], argv)  # noqa: S606 - starting without a shell is intended
    except (OSError, RecursionError) as error:
        # A RecursionError occurs if an earlier command has created very deeply nested folders.
        reason = error.strerror if isinstance(error, OSError) else None
        os.write(status, json.dumps({"failed": reason or type(error).__name__}).encode())
        os._exit(125)


def _enter_namespaces() -> bool:
    """Create a user namespace, a mount namespace, and a process namespace for future child processes.

    Returns False if the system does not support these namespaces.
    """
    user, group = os.getuid(), os.getgid()
    if _LIBC.unshare(_NEW_USER | _NEW_MOUNTS | _NEW_PROCESSES) != 0:
        return False
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, text.encode())
        os.close(descriptor)
    _check_result(_LIBC.mount(b"none", b"/", None, _PRIVATE | _RECURSIVE, None))
    return True


def _fork_first_process(status: int) -> None:
    """Fork the first process of the namespace. Only the child process returns from this function.

    The parent waits until the child exits. If the parent exits, the kernel kills the child.
    """
    ours, theirs = os.pipe()
    inside = os.fork()
    if inside == 0:
        os.close(theirs)
        _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        # If the parent exited before the call of `prctl`, the kernel does not kill this process.
        if select.select((ours,), (), (), 0)[0]:
            os._exit(125)
        os.close(ours)
        return
    os.write(status, json.dumps({"inside": inside}).encode() + b"\n")
    # Close the descriptors, so that only the processes inside the namespace can write to them.
    for descriptor in (0, 1, 2, status, ours):
        os.close(descriptor)
    os.waitpid(inside, 0)
    os._exit(0)


def _mount_overlay(overlay: dict[str, str]) -> None:
    # Pass descriptors instead of paths, because a path may contain the separator of mount options.
    descriptors = {name: os.open(overlay[name], _FOLDER_FLAGS) for name in ("lower", "upper", "work")}
    options = ",".join(f"{name}dir=/proc/self/fd/{descriptor}" for name, descriptor in descriptors.items())
    _check_result(
        _LIBC.mount(b"overlay", os.fsencode(overlay["merged"]), b"overlay", 0, f"{options},userxattr".encode())
    )
    for descriptor in descriptors.values():
        os.close(descriptor)


def _check_result(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _sync_copy(copy: dict[str, Any]) -> None:
    root = os.open(copy["folder"], _FOLDER_FLAGS)
    # Delete first, because a new folder may have the path of a deleted file.
    for parts in copy["deletes"]:
        _delete(root, list(map(os.fsencode, parts)))
    for parts, text, mode in copy["writes"]:
        _write(root, list(map(os.fsencode, parts)), base64.b64decode(text), mode)
    os.close(root)


def _open_parent(root: int, parts: list[bytes], *, create: bool) -> int | None:
    """Open the parent folder of a path without following links. Return None if the folder does not exist."""
    at = os.dup(root)
    for part in parts[:-1]:
        if create:
            _remove_entry(at, part, unless=stat.S_ISDIR)
            with suppress(FileExistsError):
                os.mkdir(part, 0o777, dir_fd=at)
        try:
            below = os.open(part, _FOLDER_FLAGS, dir_fd=at)
        except OSError:
            os.close(at)
            if create:
                raise
            return None
        os.close(at)
        at = below
    return at


def _remove_entry(at: int, part: bytes, *, unless: Any = None) -> None:
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
    at = _open_parent(root, parts, create=False)
    if at is not None:
        _remove_entry(at, parts[-1])
        os.close(at)


def _write(root: int, parts: list[bytes], data: bytes, mode: int) -> None:
    at = _open_parent(root, parts, create=True)
    if at is None:
        raise FileNotFoundError(2, "a folder was deleted")
    name = parts[-1]
    # Leave unchanged files alone, because a new modification time would cause build tools to rebuild everything.
    if _read_content(at, name, len(data)) != data:
        _remove_entry(at, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=at)
        os.fchmod(descriptor, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    os.close(at)


def _read_content(at: int, name: bytes, length: int) -> bytes | None:
    """Return at most `length` + 1 bytes of a regular file, or None for other files."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(length + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def _lower_priority() -> None:
    """Lower the priority. If memory runs out, the kernel kills this process before other processes of the user."""
    os.nice(_NICENESS)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _set_limit(kind: int, maximum: int) -> None:
    _, hard = resource.getrlimit(kind)
    maximum = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
    resource.setrlimit(kind, (maximum, maximum))


def _store_in_descriptor(data: bytes) -> int:
    """Return a descriptor from which bubblewrap can read the data."""
    descriptor = os.memfd_create("task", 0)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.set_inheritable(descriptor, True)
    return descriptor


if __name__ == "__main__":
    main()
