"""Bubblewrap on this machine: whether it can make a sandbox, and the filter of system calls that it applies there."""

from __future__ import annotations

import errno
import struct
import subprocess
import sys
from functools import lru_cache

_SECONDS = 5.0
_INSTALL = (
    "Install bubblewrap (Debian and Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap; Arch: pacman -S "
    "bubblewrap)."
)
_NAMESPACES = (
    "This system does not let users make namespaces, which the sandbox is made of. Let it: sysctl "
    "kernel.unprivileged_userns_clone=1 (Debian), sysctl kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor "
    "profile for bwrap (Ubuntu), user.max_user_namespaces above 0 (RHEL); inside a container, start that with leave to."
)

# A classic BPF program, as the kernel takes it, with numbers from the kernel's own tables. It refuses system calls that
# nothing in the sandbox needs and that lead out of it, or deep into the kernel. Above all it leaves out sockets of
# unusual families: a network namespace does not contain all of them (vsock).
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
# Another way of numbering calls on the same machine.
_X32 = 0x40000000

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_FAMILIES = {"unix": 1, "inet": 2, "inet6": 10, "netlink": 16}
# add_key, request_key, keyctl, bpf, userfaultfd, perf_event_open, io_uring_setup, _enter, _register, process_vm_readv,
# _writev, kexec_load, kexec_file_load, open_by_handle_at, init_module, finit_module, delete_module, swapon, swapoff.
_REFUSED = {
    "x86_64": (248, 249, 250, 321, 323, 298, 425, 426, 427, 310, 311, 246, 320, 304, 175, 313, 176, 167, 168),
    "aarch64": (217, 218, 219, 280, 282, 241, 425, 426, 427, 270, 271, 104, 294, 265, 105, 273, 106, 224, 225),
}


@lru_cache(maxsize=8)
def why_not(program: str | None) -> str | None:
    """Why commands cannot be run in a sandbox here, in sentences that say what to do; None where they can. `program`:
    bubblewrap, None where it was not found. It is tried once, which takes some milliseconds."""
    if sys.platform != "linux":
        return "Commands run on Linux only: there is no sandbox for other systems yet."
    if program is None:
        return f"The program bwrap was not found outside of the workspace. {_INSTALL}"
    tried = _has_room(program)
    if tried is None:
        return f"The program {program} could not be run. {_INSTALL}"
    return None if tried else _NAMESPACES


@lru_cache(maxsize=8)
def is_deep(program: str) -> bool:
    """Whether it can switch off user namespaces inside: from 0.8 on, and not where it only has them by being setuid."""
    return _has_room(program, "--unshare-user", "--disable-userns") is True


def _has_room(program: str, *more: str) -> bool | None:
    """None where it does not even start."""
    room = ("--unshare-all", *more, "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
    try:
        tried = subprocess.run(
            (program, *room, "--", "/bin/true"), capture_output=True, timeout=_SECONDS, check=False, env={}, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return tried.returncode == 0


def build_filter(machine: str) -> bytes:
    """Build the filter for a value of `os.uname().machine`; return no bytes for an unknown machine."""
    if machine not in _ARCHITECTURES:
        return b""
    refused = _REFUSED[machine]
    # Each step: code, how many to jump over if so, if not, and its number.
    head = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, _ARCHITECTURES[machine]), _failing(errno.ENOSYS)]
    head += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), _failing(errno.ENOSYS)]
    calls = [step for number in refused for step in ((_EQUAL, 0, 1, number), _failing(errno.EPERM))]
    sockets = [(_EQUAL, 1, 0, _SOCKET[machine]), _passing(), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    for family in _FAMILIES.values():
        sockets += [(_EQUAL, 0, 1, family), _passing()]
    steps = [*head, *calls, *sockets, _failing(errno.EAFNOSUPPORT)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _failing(number: int) -> tuple[int, int, int, int]:
    return _RETURN, 0, 0, _ERROR | number


def _passing() -> tuple[int, int, int, int]:
    return _RETURN, 0, 0, _ALLOW
