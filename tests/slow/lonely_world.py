"""A network in which every address is this machine: it records all contacts except those with permitted ports.

`lonely(argv)` is `argv` in a network namespace of its own, with a name server that nobody runs. Use `async with
World():` inside; `free` lists the permitted ports.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import struct
import subprocess
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import Self

from tests.support.hosts import Decoy

NAMESERVER = "198.51.100.53"
# Ports on which a service elsewhere might answer.
LISTENED = (22, 53, 80, 139, 443, 445, 1080, 1234, 3128, 5000, 8000, 8080, 8443, 8888, 9050, 11434)
_SETTLE = (
    "ip link set lo up && ip route add local 0.0.0.0/0 dev lo && ip -6 route add local ::/0 dev lo 2>/dev/null;"
    ' mount --bind "$0" /etc/resolv.conf && exec "$@"'
)
_EVERYTHING = 0x0003
_TCP, _UDP = 6, 17


def lonely(argv: Sequence[str], folder: Path) -> list[str]:
    names = folder / "resolv.conf"
    names.write_text(f"nameserver {NAMESERVER}\noptions timeout:1 attempts:1\n")
    return ["unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "-c", _SETTLE, str(names), *argv]


@cache
def why_not() -> str | None:
    missing = [name for name in ("unshare", "ip", "mount") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} is not installed"
    argv = ["unshare", "--user", "--map-root-user", "--net", "--mount", "ip", "link", "set", "lo", "up"]
    tried = subprocess.run(argv, capture_output=True, check=False)
    return None if tried.returncode == 0 else f"no network of one's own here: {tried.stderr.decode()[:200]}"


class World:
    """`heard`: the bytes that each listener got. `packets`: all other traffic, such as `udp 8.8.8.8:53`, in bytes."""

    def __init__(self) -> None:
        self.free: set[int] = set()
        self._decoys = [_Everywhere(port) for port in LISTENED]
        self.packets: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        for decoy in self._decoys:
            await self._stack.enter_async_context(decoy)
        self._wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_EVERYTHING))
        self._wire.bind(("lo", _EVERYTHING))
        self._wire.setblocking(False)
        asyncio.get_running_loop().add_reader(self._wire, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._read()
        asyncio.get_running_loop().remove_reader(self._wire)
        self._wire.close()
        await self._stack.aclose()

    @property
    def heard(self) -> dict[int, bytes]:
        return {decoy.port: bytes(decoy.heard) for decoy in self._decoys if decoy.connections}

    def _read(self) -> None:
        while True:
            try:
                packet = self._wire.recv(65536)
            except BlockingIOError:
                return
            if (spoken := _spoken(packet)) is not None:
                kind, host, source, target = spoken
                if not self.free & {source, target}:
                    name = f"{kind} {host}:{target}"
                    self.packets[name] = self.packets.get(name, 0) + len(packet)


class _Everywhere(Decoy):
    def __init__(self, port: int) -> None:
        super().__init__()
        self.address = ("0.0.0.0", port)  # noqa: S104 - of a world alone


def _spoken(packet: bytes) -> tuple[str, str, int, int] | None:
    version = packet[0] >> 4
    if version == 4:
        size, kind = (packet[0] & 15) * 4, packet[9]
        host = socket.inet_ntop(socket.AF_INET, packet[16:20])
    elif version == 6:
        size, kind = 40, packet[6]
        host = socket.inet_ntop(socket.AF_INET6, packet[24:40])
    else:
        return None
    if kind not in (_TCP, _UDP) or len(packet) < size + 4:
        return None
    source, target = struct.unpack("!HH", packet[size : size + 4])
    return ("tcp" if kind == _TCP else "udp", host, source, target)
