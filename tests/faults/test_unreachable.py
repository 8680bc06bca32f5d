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

from tests.support.client.actions import ResponseError
from tests.support.epilogue import clock, faulty
from tests.support.hosts import Authority, Decoy, Proxy
from tests.support.outside import Outside, check_sentence
from tests.support.signing_server import SigningServer, Text, answer

HOST = "api.example.test"


async def failure(outside: Outside) -> tuple[str, bool]:
    """Return the sentence of a turn that fails, and whether it was tried more than once."""
    token = outside.token()
    argument = {"prompt": "x", "partialResultToken": f"partial-{token}"}
    with pytest.raises(ResponseError) as failed:
        await outside.client.command("thinklsp.chat", argument, token=token)
    assert failed.value.code == -32803
    check_sentence(failed.value.message)
    assert outside.client.progress_kinds(token)[-1] == "end"
    # The sentence comes once: the partial results have it in `finished`, and no notice.
    assert "notice" not in outside.client.progress_kinds(f"partial-{token}")
    return failed.value.message, "All 4 attempts failed" in failed.value.message


async def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        env = clock(50) | {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}"}
        async with faulty(tmp_path, env=env) as outside:
            said, again = await failure(outside)
            assert f"127.0.0.1:{port} refused the connection" in said
            assert "All 4 attempts failed" in said
            assert again


@pytest.mark.timing
async def test_a_name_that_nobody_knows(tmp_path: Path) -> None:
    env = clock(50) | {"ANTHROPIC_BASE_URL": "https://thinklsp.invalid"}
    async with faulty(tmp_path, env=env) as outside:
        at = time.monotonic()
        said, again = await failure(outside)
        assert time.monotonic() - at < 60
        assert "thinklsp.invalid" in said
        assert again


CERTIFICATES: dict[str, Callable[[Authority], ssl.SSLContext]] = {
    "expired": lambda authority: authority.server("127.0.0.1", expired=True),
    "of another host": lambda authority: authority.server("other.example.test"),
    "signed by itself": lambda authority: authority.server("127.0.0.1", own=True),
}


def provider_with(tls: ssl.SSLContext, *script: Any, host: str = "") -> SigningServer:
    return SigningServer(f"sk-ant-canary-{secrets.token_hex(24)}", *script, tls=tls, host=host)


def with_certificate(place: Path, make: Callable[[Authority], ssl.SSLContext], *script: Any) -> Any:
    authority = Authority(place / "authority")
    env = {"SSL_CERT_FILE": str(authority.bundle)}
    return faulty(place, env=env, provider=provider_with(make(authority), *script))


@pytest.mark.parametrize("kind", CERTIFICATES)
async def test_certificates(tmp_path: Path, kind: str) -> None:
    async with with_certificate(tmp_path, CERTIFICATES[kind]) as outside:
        said, again = await failure(outside)
        assert "certificate" in said
        assert "could not be verified" in said
        assert not again
        assert outside.provider.requests == []


async def test_a_certificate_that_is_in_order(tmp_path: Path) -> None:
    right = answer(Text("Here."))
    async with with_certificate(tmp_path, lambda authority: authority.server("127.0.0.1"), right) as outside:
        assert (await outside.turn("thinklsp.chat", {"prompt": "x"}))["text"] == "Here."


def proxied(authority: Authority, port: int) -> dict[str, str]:
    return {"SSL_CERT_FILE": str(authority.bundle), "HTTPS_PROXY": f"http://127.0.0.1:{port}"}


async def test_a_proxy_that_works_hears_no_key(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    provider = provider_with(authority.server(HOST), answer(Text("Here.")), host=HOST)
    async with provider, Proxy(provider.port) as proxy:
        env = proxied(authority, proxy.port) | {"ANTHROPIC_BASE_URL": f"https://{HOST}"}
        async with faulty(tmp_path, env=env) as outside:
            await check_through(outside, provider, proxy)


async def check_through(outside: Outside, provider: SigningServer, proxy: Proxy) -> None:
    said, _ = await failure(outside)
    assert "401" in said or "400" in said
    assert len(provider.requests) == 1
    key: str = outside.provider.key
    assert provider.requests[0].headers["x-api-key"] == key
    assert bytes(proxy.heard).startswith(b"CONNECT api.example.test:443 ")
    assert key.encode() not in bytes(proxy.heard)


@pytest.mark.parametrize("kind", ["down", "407", "502"])
async def test_a_proxy_that_does_not_work(tmp_path: Path, kind: str) -> None:
    authority = Authority(tmp_path / "authority")
    async with Proxy(1, int(kind) if kind.isdigit() else 200) as proxy:
        port = proxy.port
        if kind == "down":
            await proxy.__aexit__()
        env = clock(50) | proxied(authority, port) | {"ANTHROPIC_BASE_URL": f"https://{HOST}"}
        async with faulty(tmp_path, env=env) as outside:
            said, _ = await failure(outside)
            assert "proxy" in said.lower(), said
            key: str = outside.provider.key
            assert key.encode() not in bytes(proxy.heard)


async def test_plain_http_goes_to_no_proxy(tmp_path: Path) -> None:
    async with Decoy() as decoy:
        env = dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"), decoy.url)
        async with faulty(tmp_path / "here", answer(Text("Here.")), env=env) as outside:
            assert (await outside.turn("thinklsp.chat", {"prompt": "x"}))["text"] == "Here."
        async with faulty(tmp_path / "there", env=env | {"ANTHROPIC_BASE_URL": f"http://{HOST}"}) as outside:
            assert "plain HTTP" in (await failure(outside))[0]
        assert (decoy.connections, bytes(decoy.heard)) == (0, b"")
