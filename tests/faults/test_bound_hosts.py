"""A key is for one host: whoever else is named, by a redirect or by the editor, never hears a byte of it."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.slow.running import Tally
from tests.support.canary import Canary
from tests.support.client.actions import ResponseError
from tests.support.epilogue import faulty
from tests.support.forking import Nursery
from tests.support.hosts import Authority, Decoy
from tests.support.outside import Outside, check_sentence
from tests.support.signing_server import Failure, SigningServer, Text, answer
from tests.support.sizes import tries
from tests.support.watching import seen

STATUSES = (301, 302, 303, 307, 308)
# `{other}` and `{tls}` are hosts that listen.
TARGETS = {
    "the same host": "/v1/elsewhere",
    "another port": "{other}/v1/messages",
    "another host": "http://localhost:{port}/v1/messages",
    "another host, by TLS": "{tls}/v1/messages",
    "from TLS to plain HTTP": "{other}/v1/messages",
}
SETTINGS = ("baseUrl", "base_url", "anthropic.baseUrl", "providers.anthropic.base_url", "network.proxy", "proxy")
# Settings that name a host; an empty name is an argument of a command.
NAMED = {
    **{f"the setting {name}": name for name in SETTINGS},
    **{f"the setting thinklsp.{name}": f"thinklsp.{name}" for name in ("baseUrl", "proxy")},
    **dict.fromkeys(("a model", "a prompt", "a whole request"), ""),
    **{f"{name} and a key": name for name in ("apiKey", "api_key", "apiKeyCommand", "headers")},
}
WRONG = ("a model", "a whole request")


@dataclass
class Stage:
    """`here` is the service of the server, `decoys` are hosts that it must not contact."""

    outside: Outside
    here: SigningServer
    decoys: tuple[Decoy, ...]

    def place(self, target: str) -> str:
        plain, tls = self.decoys
        return target.format(other=plain.url, port=plain.port, tls=tls.url)

    def heard(self) -> bytes:
        return b"".join(bytes(decoy.heard) for decoy in self.decoys)


@asynccontextmanager
async def stage(place: Path, servers: Any, *, tls: bool = False) -> AsyncIterator[Stage]:
    authority = Authority(place / "authority")
    context = authority.server("127.0.0.1") if tls else None
    here = SigningServer(f"sk-ant-canary-{secrets.token_hex(24)}", tls=context)
    env: dict[str, str | None] = {"SSL_CERT_FILE": str(authority.bundle)}
    tls_decoy = Decoy(authority.server("127.0.0.1"))
    begun = faulty(place / "x", env=env, provider=here, connect=servers)
    async with Decoy() as plain, tls_decoy as other, begun as outside:
        yield Stage(outside, here, (plain, other))


async def refused(at: Stage, status: int, target: str) -> None:
    before = len(at.here.requests)
    at.here.say(Failure(status, "moved", "Go there.", {"location": at.place(target)}))
    with pytest.raises(ResponseError) as failed:
        await at.outside.client.command("thinklsp.chat", {"prompt": "x"}, token=at.outside.token())
    check_sentence(failed.value.message)
    assert "redirect" in failed.value.message.lower()
    assert len(at.here.requests) == before + 1


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_redirects(tmp_path: Path, servers: Any, tls: bool, tally: Tally) -> None:
    targets = [target for name, target in TARGETS.items() if ("TLS" in name) == tls or name == "the same host"]
    async with stage(tmp_path, servers, tls=tls) as at:
        for status, target in itertools.product(STATUSES, [*targets, "//[nonsense"]):
            await refused(at, status, target)
        assert ([decoy.connections for decoy in at.decoys], at.heard()) == ([0, 0], b"")
        at.here.say(answer(Text("Here.")))
        assert (await at.outside.turn("thinklsp.chat", {"prompt": "x"}))["text"] == "Here."
    tally("A-28", len(STATUSES) * len(targets))


async def test_hosts_that_an_editor_names(tmp_path: Path, servers: Any, tally: Tally) -> None:
    """The key goes only to the configured host, whatever pushed or pulled settings and command arguments name."""
    async with stage(tmp_path, servers) as at:
        client, url = at.outside.client, at.decoys[0].url
        for name, key in NAMED.items():
            at.here.say(answer(Text("Here.")))
            argument: dict[str, Any] = {"prompt": f"Ask {url}/v1/messages."}
            if key:
                value: Any = {"x-to": url} if key == "headers" else url
                for part in reversed(key.split(".")):
                    value = {part: value}
                client.editor.settings = {"model": "claude-opus-5-5", **value}
                client.configure({"thinklsp": client.editor.settings})
            elif name == "a model":
                argument["model"] = f"{url}/v1/messages"
            elif name == "a whole request":
                argument |= {"baseUrl": url, "providers": {"anthropic": {"baseUrl": url}}}
            refused = pytest.raises(ResponseError) if name in WRONG else nullcontext()
            with refused:
                await at.outside.client.command("thinklsp.chat", argument, token=at.outside.token())
            at.here.script.clear()
        at.outside.told()
        at.here.violations.clear()
        assert ([decoy.connections for decoy in at.decoys], at.heard()) == ([0, 0], b"")
    tally("A-28", len(NAMED))


def test_the_row_says_how_many_there_are() -> None:
    redirects = len(STATUSES) * (len(TARGETS) + 1)
    assert tries("A-28") == redirects + len(NAMED)


async def test_a_server_that_follows_is_heard(tmp_path: Path) -> None:
    with Nursery("tests.faults.following") as nursery:
        async with stage(tmp_path, nursery.connect) as at:
            at.here.say(Failure(307, "moved", "Go there.", {"location": at.place("{other}/v1/messages")}))
            turn = at.outside.client.command("thinklsp.chat", {"prompt": "x"}, token=at.outside.token())
            await seen(lambda: at.here.key.encode() in at.heard())
            assert Canary({"api key": at.here.key}).search(at.heard(), "decoy")
            await at.outside.client.command("thinklsp.cancel")
            assert (await turn)["stopReason"] == "cancelled"
