"""All hostile folders in a network of its own, or with `planted` programs that contact somebody. Prints JSON."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import sys
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.slow.hostile_ground import Hostile, ground, make
from tests.slow.hostile_repositories import HOSTILE
from tests.slow.lonely_world import World
from tests.slow.running import running
from tests.slow.test_hostile_repositories import ACTIVITIES, Scene, server_argv
from tests.support.client.actions import ResponseError
from tests.support.forking import Nursery
from tests.support.outside import Connect, Json, server_by
from tests.support.signing_server import Text, Thinking, answer
from tests.support.sizes import lots

AT_ONCE = 6
# Hosts that a folder asks for: a metadata service, a name, a proxy, a local model server.
CALLERS = (
    "http://169.254.169.254", "http://metadata.google.internal", "http://10.11.12.13:3128", "http://127.0.0.1:11434",
    "http://attacker.example:8080", "https://203.0.113.9",
)  # fmt: skip
PROXIES = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"), "http://10.11.12.13:3128")
SAID = "See ![a]({0}/a.png) [b]({0}/b) <img src='{0}/c'> \\\\attacker\\share\\d.png file://attacker/e `curl {0}/f`"


async def model_output(scene: Scene, decoy: str) -> None:
    for command, argument in (("chat", {"prompt": "Go."}), ("action", {"name": "explain"})):
        scene.says(answer(Thinking(), Text(SAID.format(decoy))))
        with suppress(ResponseError):
            uri = scene.outside.uri("main.py")
            await scene.outside.turn(f"thinklsp.{command}", {"uri": uri} | argument)
        scene.outside.provider.script.clear()
    for command in ("doctor", "usage", "sessions"):
        await scene.outside.client.command(f"thinklsp.{command}")


async def folder(place: Path, row: Hostile, decoy: str, nursery: Nursery, world: World) -> None:
    at = ground(place, decoy, empty=True)

    async def connect(root: Path, variables: Any) -> Any:
        make(row, at)
        world.free.add(int(variables["ANTHROPIC_BASE_URL"].rpartition(":")[2]))
        start: Connect = server_by(server_argv(row)) if row.module else nursery.connect
        return await start(root, {**variables, **PROXIES, **row.environment(at)})

    async with running(place, connect=connect, options=row.settings(at), finish=False) as outside:
        scene = Scene(outside, row)
        for activity in ACTIVITIES:
            await activity(scene)
        await model_output(scene, decoy)
        await outside.client.close()


def _get(url: str, proxy: str = "") -> None:
    handler = urllib.request.ProxyHandler({"http": proxy} if proxy else {})
    with suppress(OSError):
        urllib.request.build_opener(handler).open(url, timeout=1)


def _say(kind: socket.SocketKind, host: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind) as reaching, suppress(OSError):
        reaching.settimeout(1)
        reaching.connect((host, port))
        reaching.send(b"hello")


PLANTED: dict[str, Callable[[], None]] = {
    "tcp 169.254.169.254:80": lambda: _get("http://169.254.169.254/latest/meta-data"),
    "udp 198.51.100.53:53": lambda: _get("http://metadata.google.internal/"),
    "tcp 10.11.12.13:3128": lambda: _get("http://elsewhere.example/", "http://10.11.12.13:3128"),
    "udp 8.8.8.8:53": lambda: _say(socket.SOCK_DGRAM, "8.8.8.8", 53),
    "tcp 192.0.2.1:4444": lambda: _say(socket.SOCK_STREAM, "192.0.2.1", 4444),
    "tcp 203.0.113.5:445": lambda: _say(socket.SOCK_STREAM, "203.0.113.5", 445),
    "tcp 127.0.0.1:11434": lambda: _get("http://127.0.0.1:11434/api/tags"),
    "tcp ::1:8080": lambda: _say(socket.SOCK_STREAM, "::1", 8080),
}


async def main(place: Path, planted: bool) -> Json:
    courses = 0
    with Nursery() as nursery:
        async with World() as world:
            if planted:
                for reach in PLANTED.values():
                    await asyncio.to_thread(reach)
            for some in [] if planted else lots(len(HOSTILE), AT_ONCE):
                rows = list(enumerate(HOSTILE))[courses : courses + some]
                callers = itertools.cycle(CALLERS)
                await asyncio.gather(*(folder(place / str(n), row, next(callers), nursery, world) for n, row in rows))
                courses += some
    heard = {port: data.decode("latin-1") for port, data in world.heard.items()}
    return {"courses": courses, "packets": world.packets, "heard": heard}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(Path(sys.argv[1]), "planted" in sys.argv))))
