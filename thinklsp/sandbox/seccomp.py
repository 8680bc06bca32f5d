"""System calls that nothing in the sandbox needs and that lead out of it, or deep into the kernel.

Sockets of other families than the usual ones are left out above all: not all of them (vsock) are kept in by a network
namespace of one's own. A classic BPF program, as the kernel takes it; numbers from the kernel's own tables.
"""

from __future__ import annotations

import errno
import struct

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


def program(machine: str) -> bytes:
    """The filter for `os.uname().machine`; empty where it is none that we know."""
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
