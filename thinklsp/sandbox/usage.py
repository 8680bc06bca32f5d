"""What a running command takes up: processes, memory, and disk.

Everything is read from `/proc` and from the folder that the command writes to. Nothing inside the sandbox is asked, so
no command can give wrong figures.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

# A name takes room even if the file is empty.
_NAME_BYTES = 1024
_BLOCK_BYTES = 512
# The files are counted again after this time, or after so many times the time that the last count took.
_COUNT_SECONDS = 1.0
_COUNT_SHARE = 20
_MEMFD = "/memfd:"


@dataclass(frozen=True, slots=True)
class Writable:
    """Where a command can write: `folders` on one disk, which held `given` bytes before the first command, and
    `in_memory`, the file systems that the sandbox mounts."""

    folders: Sequence[str]
    in_memory: Sequence[str] = ()
    given: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """`memory` and `disk` in bytes; `free`: bytes left on the disk that holds the folder."""

    processes: int
    memory: int
    disk: int
    free: int


class Meter:
    """Measures one command, again and again. `pid`: the process that was started for the command."""

    def __init__(self, pid: int, writable: Writable) -> None:
        self._pid = pid
        self._writable = writable
        self._files = _Files(writable.folders)

    def read(self, most_processes: int, most_disk: int) -> Usage:
        """Stop at the first process above `most_processes`; the other figures are then incomplete."""
        processes: list[int] = []
        for pid in _tree(self._pid):
            processes.append(pid)
            if len(processes) > most_processes:
                return Usage(len(processes), 0, 0, sys.maxsize)
        in_memory, devices = _in_memory(processes, self._writable.in_memory)
        unnamed = _unnamed_files(processes, devices)
        memory = sum(map(_memory_of, processes)) + in_memory + unnamed.memory
        other = in_memory + unnamed.disk - self._writable.given
        free = min(map(free_bytes, self._writable.folders), default=sys.maxsize)
        return Usage(len(processes), memory, self._files.size(free, most_disk - other) + other, free)


def free_bytes(folder: str) -> int:
    """Return what a user may still write to the disk that holds `folder`."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def children(pid: int) -> list[int]:
    """Return the processes that any thread of `pid` has started and that still run."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError, ValueError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def _tree(pid: int) -> Iterator[int]:
    waiting = [pid]
    while waiting:
        at = waiting.pop()
        yield at
        waiting += children(at)


def _memory_of(pid: int) -> int:
    """Return the proportional set size: a page that several processes share counts once in all of them together."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            rows = (line.split() for line in file)
            return 1024 * sum(int(row[1]) for row in rows if row[0] in (b"Pss:", b"SwapPss:"))
    except (OSError, ValueError, IndexError):
        return _resident(pid)


def _resident(pid: int) -> int:
    """Return all resident pages: more than its share, for a process whose share the kernel does not tell."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _in_memory(processes: Sequence[int], places: Iterable[str]) -> tuple[int, set[int]]:
    """Return the bytes in the file systems at `places` and their devices, as the innermost process sees them."""
    outside = _identity("/")
    for pid in reversed(processes):
        root = f"/proc/{pid}/root"
        if _identity(root) in (None, outside):
            continue
        found = {device: size for place in places if (seen := _mounted(root + place)) for device, size in (seen,)}
        if found:
            return sum(found.values()), set(found)
    return 0, set()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _mounted(place: str) -> tuple[int, int] | None:
    """Return device and bytes of a file system in memory."""
    try:
        device, found = os.stat(place).st_dev, os.statvfs(place)
    except OSError:
        return None
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    return device, used + (found.f_files - found.f_ffree) * _NAME_BYTES


@dataclass(frozen=True, slots=True)
class _Unnamed:
    memory: int
    disk: int


def _unnamed_files(processes: Iterable[int], in_memory: set[int]) -> _Unnamed:
    """Return the bytes of open files that have no name any more, or never had one. Those of the file systems
    `in_memory` are counted there."""
    memory: dict[tuple[int, int], int] = {}
    disk: dict[tuple[int, int], int] = {}
    for pid in processes:
        for path in _descriptors(pid):
            with suppress(OSError):
                found = os.stat(path)
                if not stat.S_ISREG(found.st_mode) or found.st_nlink or found.st_dev in in_memory:
                    continue
                kind = memory if os.readlink(path).startswith(_MEMFD) else disk
                kind[found.st_dev, found.st_ino] = found.st_blocks * _BLOCK_BYTES
    return _Unnamed(sum(memory.values()), sum(disk.values()))


def _descriptors(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            yield f"/proc/{pid}/fd/{number}"


@dataclass(slots=True)
class _Files:
    """The size of all files in `folders`. To count takes long if there are many, so between two counts the size is
    estimated by what the disk has lost since the last one."""

    folders: Sequence[str]
    _counted: int = 0
    _free: int | None = None
    _next: float = 0.0

    def size(self, free: int, most: int) -> int:
        """Return at least the size. More than `most` is not an estimate."""
        before = free if self._free is None else self._free
        estimate = self._counted + max(0, before - free)
        if self._free is not None and estimate <= most and time.monotonic() < self._next:
            return estimate
        began = time.monotonic()
        sizes = [size_of(folder) for folder in self.folders]
        self._counted = sum(size for size, _ in sizes)
        if not all(complete for _, complete in sizes):
            # Files that cannot be counted are taken for what the disk has lost.
            self._counted = max(self._counted, estimate)
        self._free, now = free, time.monotonic()
        self._next = now + max(_COUNT_SECONDS, _COUNT_SHARE * (now - began))
        return self._counted


def size_of(folder: str) -> tuple[int, bool]:
    """Return the bytes on disk of all files in a folder, and whether every folder could be looked into."""
    total, complete = 0, True
    linked: set[int] = set()
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append(entry.path)
                    elif found.st_nlink > 1:
                        if found.st_ino in linked:
                            continue
                        linked.add(found.st_ino)
                    total += found.st_blocks * _BLOCK_BYTES + _NAME_BYTES
        except FileNotFoundError:
            # Deleted in the meantime; what is left of the folder is seen at the next count.
            continue
        except OSError:
            complete = False
    return total, complete
