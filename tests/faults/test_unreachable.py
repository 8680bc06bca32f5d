"""Providers that are not where they should be, or not who they say: nobody but the right one ever hears the key."""

from __future__ import annotations

import secrets
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority
from tests.support.decoys import Decoy, Proxy
from tests.support.epilogue import clock, faulty
from tests.support.outside import Outside, check_sentence
from tests.support.raw_client import ResponseError
from tests.support.signing_script import Text, answer
from tests.support.signing_server import SigningServer

Json = Any
HOST = "api.example.test"


async def failure(outside: Outside) -> str:
    """A turn that cannot succeed: its sentence, checked."""
    token = outside.token()
    with pytest.raises(ResponseError) as failed:
        await outside.client.command("thinklsp.chat", {"prompt": "x"}, token=token)
    assert failed.value.code == -32803
    check_sentence(failed.value.message)
    assert outside.client.progress_kinds(token)[-1] == "end"
    return failed.value.message


def retries(outside: Outside, token: str = "turn-1") -> int:
    """How often the progress has said anew that it is waiting for another try. `partial` tells each one."""
    return sum(value["kind"] == "notice" for value in outside.client.progress(f"partial-{token}"))


async def told_failure(outside: Outside) -> tuple[str, int]:
    """The sentence, and how many tries were announced after the first."""
    token = outside.token()
    argument = {"prompt": "x", "partialResultToken": f"partial-{token}"}
    with pytest.raises(ResponseError) as failed:
        await outside.client.command("thinklsp.chat", argument, token=token)
    assert failed.value.code == -32803
    check_sentence(failed.value.message)
    assert outside.client.progress_kinds(token)[-1] == "end"
    # The last notice is the failure itself.
    return failed.value.message, retries(outside, token) - 1


async def test_nobody_listens(tmp_path: Path) -> None:
    """F-01"""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        env = clock(50) | {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}"}
        async with faulty(tmp_path, env=env) as outside:
            said, more = await told_failure(outside)
            assert f"127.0.0.1:{port} refused the connection" in said
            assert "tried 4 times" in said
            assert more == 3


async def test_a_name_that_nobody_knows(tmp_path: Path) -> None:
    """F-02"""
    env = clock(50) | {"ANTHROPIC_BASE_URL": "https://thinklsp.invalid"}
    async with faulty(tmp_path, env=env) as outside:
        at = time.monotonic()
        said, more = await told_failure(outside)
        assert time.monotonic() - at < 60
        assert "thinklsp.invalid" in said
        assert more == 3


CERTIFICATES: dict[str, Callable[[Authority], ssl.SSLContext]] = {
    "expired": lambda authority: authority.server("127.0.0.1", expired=True),
    "of another host": lambda authority: authority.server("other.example.test"),
    "signed by itself": lambda authority: authority.server("127.0.0.1", own=True),
}


def provider_with(tls: ssl.SSLContext, *script: Any, host: str = "") -> SigningServer:
    return SigningServer(f"sk-ant-canary-{secrets.token_hex(24)}", *script, tls=tls, host=host)


@pytest.mark.parametrize("kind", CERTIFICATES)
async def test_certificates(tmp_path: Path, kind: str) -> None:
    """F-03"""
    authority = Authority(tmp_path / "authority")
    provider = provider_with(CERTIFICATES[kind](authority))
    env = {"SSL_CERT_FILE": str(authority.bundle)}
    async with faulty(tmp_path, env=env, provider=provider) as outside:
        said, more = await told_failure(outside)
        assert "certificate" in said
        assert "could not be verified" in said
        assert more == 0
        assert provider.requests == []


async def test_a_certificate_that_is_in_order(tmp_path: Path) -> None:
    """The control of F-03."""
    authority = Authority(tmp_path / "authority")
    provider = provider_with(authority.server("127.0.0.1"), answer(Text("Here.")))
    env = {"SSL_CERT_FILE": str(authority.bundle)}
    async with faulty(tmp_path, env=env, provider=provider) as outside:
        assert (await outside.turn("thinklsp.chat", {"prompt": "x"}))["text"] == "Here."


def proxied(authority: Authority, port: int) -> dict[str, str]:
    return {"SSL_CERT_FILE": str(authority.bundle), "HTTPS_PROXY": f"http://127.0.0.1:{port}"}


async def test_a_proxy_that_works_hears_no_key(tmp_path: Path) -> None:
    """The control of F-50: the provider is spoken to through it, and by TLS."""
    authority = Authority(tmp_path / "authority")
    provider = provider_with(authority.server(HOST), answer(Text("Here.")), host=HOST)
    async with provider, Proxy(provider.port) as proxy:
        env = proxied(authority, proxy.port) | {"ANTHROPIC_BASE_URL": f"https://{HOST}"}
        async with faulty(tmp_path, env=env) as outside:
            await check_through(outside, provider, proxy)


async def check_through(outside: Outside, provider: SigningServer, proxy: Proxy) -> None:
    """The server's key is that of `outside`; the provider behind the proxy knows another one and refuses it."""
    said = await failure(outside)
    assert "401" in said or "400" in said
    assert len(provider.requests) == 1
    key: str = outside.provider.key  # type: ignore[attr-defined] # a signing server
    assert provider.requests[0].headers["x-api-key"] == key
    assert bytes(proxy.heard).startswith(b"CONNECT api.example.test:443 ")
    assert key.encode() not in bytes(proxy.heard)


@pytest.mark.parametrize("kind", ["down", "407", "502"])
async def test_a_proxy_that_does_not_work(tmp_path: Path, kind: str) -> None:
    """F-50"""
    authority = Authority(tmp_path / "authority")
    async with Proxy(1, int(kind) if kind.isdigit() else 200) as proxy:
        port = proxy.port
        if kind == "down":
            await proxy.__aexit__()
        env = clock(50) | proxied(authority, port) | {"ANTHROPIC_BASE_URL": f"https://{HOST}"}
        async with faulty(tmp_path, env=env) as outside:
            said = await failure(outside)
            assert "proxy" in said.lower(), said
            key: str = outside.provider.key  # type: ignore[attr-defined] # a signing server
            assert key.encode() not in bytes(proxy.heard)


async def test_plain_http_goes_to_no_proxy(tmp_path: Path) -> None:
    """F-50: loopback is never proxied, and a host elsewhere is not spoken to in the open."""
    async with Decoy() as decoy:
        env = dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"), decoy.url)
        async with faulty(tmp_path / "here", answer(Text("Here.")), env=env) as outside:
            assert (await outside.turn("thinklsp.chat", {"prompt": "x"}))["text"] == "Here."
        async with faulty(tmp_path / "there", env=env | {"ANTHROPIC_BASE_URL": f"http://{HOST}"}) as outside:
            assert "plain http" in await failure(outside)
        assert (decoy.connections, bytes(decoy.heard)) == (0, b"")
