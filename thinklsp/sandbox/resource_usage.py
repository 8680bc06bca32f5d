"""Measurement of the processes, memory and disk space that a running command uses.

The command cannot falsify the figures, because they come from `/proc` and from the folders to which the command writes.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

# The disk space for a file name. Even an empty file needs it.
_NAME_BYTES = 1024
_BLOCK_BYTES = 512
# The minimum interval between two counts of files. It is longer if the last count took a long time.
_COUNT_SECONDS = 1.0
_COUNT_SHARE = 20
_MEMFD = "/memfd:"


@dataclass(frozen=True, slots=True)
class WritableStorage:
    """The locations to which a command can write.

    `folders` are on the same disk, and contained `initial_bytes` before the first command. `memory_folders` are the
    in-memory file systems of the sandbox.
    """

    folders: Sequence[str]
    memory_folders: Sequence[str] = ()
    initial_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """The resources that a command uses. `free_bytes` is the free space on the disk to which it writes."""

    processes: int
    memory_bytes: int
    disk_bytes: int
    free_bytes: int


class ResourceMeter:
    """A meter for the resources of a command. `pid` is the first process of the command."""

    def __init__(self, pid: int, writable: WritableStorage) -> None:
        self._pid = pid
        self._writable = writable
        self._files = _FileSizes(writable.folders)

    def measure(self, max_processes: int, max_disk_bytes: int) -> ResourceUsage:
        """Measure the resources. If there are more than `max_processes` processes, only their number is measured."""
        processes: list[int] = []
        for pid in _iterate_tree(self._pid):
            processes.append(pid)
            if len(processes) > max_processes:
                return ResourceUsage(len(processes), 0, 0, sys.maxsize)
        in_memory, devices = _measure_memory_folders(processes, self._writable.memory_folders)
        unnamed, unnamed_on_disk = _measure_unnamed_files(processes, devices)
        memory = sum(map(_measure_memory, processes)) + in_memory + unnamed
        other = in_memory + unnamed_on_disk - self._writable.initial_bytes
        free = min(map(measure_free_bytes, self._writable.folders), default=sys.maxsize)
        return ResourceUsage(len(processes), memory, self._files.measure(free, max_disk_bytes - other) + other, free)


def measure_free_bytes(folder: str) -> int:
    """Return the number of bytes that an unprivileged user can still write to the disk with this folder."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def list_children(pid: int) -> list[int]:
    """Return the running child processes of a process, including those that its threads started."""
    pids: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError, ValueError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                pids += map(int, file.read().split())
    return pids


def _iterate_tree(pid: int) -> Iterator[int]:
    waiting = [pid]
    while waiting:
        at = waiting.pop()
        yield at
        waiting += list_children(at)


def _measure_memory(pid: int) -> int:
    """Return the proportional set size, which divides shared memory between the processes that share it."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            rows = (line.split() for line in file)
            return 1024 * sum(int(row[1]) for row in rows if row[0] in (b"Pss:", b"SwapPss:"))
    except (OSError, ValueError, IndexError):
        return _measure_resident_memory(pid)


def _measure_resident_memory(pid: int) -> int:
    """Return the resident set size of a process in bytes, or 0 if it is unknown.

    It is larger than the proportional set size, which some kernels do not report.
    """
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _measure_memory_folders(processes: Sequence[int], places: Iterable[str]) -> tuple[int, set[int]]:
    """Return the used bytes and the devices of the in-memory file systems, as the innermost process sees them."""
    outside = _identify_file("/")
    for pid in reversed(processes):
        root = f"/proc/{pid}/root"
        if _identify_file(root) in (None, outside):
            continue
        sizes = {
            device: size
            for place in places
            if (entry := _measure_memory_folder(root + place))
            for device, size in (entry,)
        }
        if sizes:
            return sum(sizes.values()), set(sizes)
    return 0, set()


def _identify_file(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _measure_memory_folder(place: str) -> tuple[int, int] | None:
    """Return the device and the used bytes of an in-memory file system, or None if it does not exist."""
    try:
        device, status = os.stat(place).st_dev, os.statvfs(place)
    except OSError:
        return None
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    return device, used + (status.f_files - status.f_ffree) * _NAME_BYTES


def _measure_unnamed_files(processes: Iterable[int], memory_devices: set[int]) -> tuple[int, int]:
    """Return the bytes in memory and on disk used by open files that have no name.

    Files on `memory_devices` are excluded, because the sizes of these file systems already include them.
    """
    memory: dict[tuple[int, int], int] = {}
    disk: dict[tuple[int, int], int] = {}
    for pid in processes:
        for path in _list_descriptors(pid):
            with suppress(OSError):
                status = os.stat(path)
                if not stat.S_ISREG(status.st_mode) or status.st_nlink or status.st_dev in memory_devices:
                    continue
                kind = memory if os.readlink(path).startswith(_MEMFD) else disk
                kind[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK_BYTES
    return sum(memory.values()), sum(disk.values())


def _list_descriptors(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            yield f"/proc/{pid}/fd/{number}"


@dataclass(slots=True)
class _FileSizes:
    """The total size of all files in `folders`.

    Counting files is slow. Between two counts, the size is estimated from the decrease in free disk space.
    """

    folders: Sequence[str]
    _counted_bytes: int = 0
    _last_free_bytes: int | None = None
    _next_count_at: float = 0.0

    def measure(self, free_bytes: int, max_bytes: int) -> int:
        """Return the exact size or an upper estimate. A result above `max_bytes` is always exact."""
        before = free_bytes if self._last_free_bytes is None else self._last_free_bytes
        estimate = self._counted_bytes + max(0, before - free_bytes)
        if self._last_free_bytes is not None and estimate <= max_bytes and time.monotonic() < self._next_count_at:
            return estimate
        started_at = time.monotonic()
        sizes = [measure_folder(folder) for folder in self.folders]
        self._counted_bytes = sum(size for size, _ in sizes)
        if not all(complete for _, complete in sizes):
            # If some files cannot be counted, the size must not be smaller than the estimate.
            self._counted_bytes = max(self._counted_bytes, estimate)
        self._last_free_bytes, now = free_bytes, time.monotonic()
        self._next_count_at = now + max(_COUNT_SECONDS, _COUNT_SHARE * (now - started_at))
        return self._counted_bytes


def measure_folder(folder: str) -> tuple[int, bool]:
    """Return the disk space that all files in a folder use, and True if every subfolder was readable."""
    total, complete = 0, True
    linked: set[int] = set()
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(entry.path)
                    elif status.st_nlink > 1:
                        if status.st_ino in linked:
                            continue
                        linked.add(status.st_ino)
                    total += status.st_blocks * _BLOCK_BYTES + _NAME_BYTES
        except FileNotFoundError:
            # The command has deleted this file or folder. The next count includes the remaining files.
            continue
        except OSError:
            complete = False
    return total, complete
