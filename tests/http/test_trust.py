"""Certificates and proxies: who is believed on the way out, against real sockets on loopback."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import aclosing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.http.fetching import QUICK, fetch, serve
from tests.support.hosts import SseServer, answer
from thinklsp.core.errors import TransportFailed
from thinklsp.http.transport import Transport


async def test_no_tls_on_the_other_side(transport: Transport) -> None:
    async def speak_first(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with serve(speak_first) as port:
        with pytest.raises(TransportFailed, match="TLS handshake") as caught:
            await fetch(transport, f"https://127.0.0.1:{port}")
    assert not caught.value.retryable


@pytest.mark.parametrize(("cut", "sentence"), [(False, "timed out"), (True, "Cannot connect|was lost")])
async def test_a_handshake_that_does_not_come_about_may_be_tried_again(cut: bool, sentence: str) -> None:
    writers: list[asyncio.StreamWriter] = []

    def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if cut:
            writer.close()

    timeouts = QUICK if cut else replace(QUICK, connect=0.2)
    async with serve(accept) as port, aclosing(Transport(timeouts=timeouts)) as transport:
        with pytest.raises(TransportFailed, match=sentence) as caught:
            await fetch(transport, f"https://127.0.0.1:{port}")
        for writer in writers:
            writer.close()
    assert caught.value.retryable


async def test_an_untrusted_certificate(transport: Transport, untrusted_tls: ssl.SSLContext) -> None:
    async with serve(lambda _r, w: w.close(), untrusted_tls) as port:
        with pytest.raises(TransportFailed, match="certificate for localhost") as caught:
            await fetch(transport, f"https://localhost:{port}")
    assert not caught.value.retryable


async def test_a_server_on_this_machine_with_a_certificate_of_its_own(
    transport: Transport, untrusted_tls: ssl.SSLContext, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
        writer.close()

    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with serve(answer, untrusted_tls) as port:
        assert await fetch(transport, f"https://localhost:{port}") == b"hi"


async def test_proxies_of_the_environment_never_see_loopback(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SseServer([answer(b"proxy")]) as proxy, SseServer([answer(b"direct")]) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert await fetch(transport, server.url) == b"direct"
        assert await fetch(transport, server.url.replace("127.0.0.1", "localhost")) == b"direct"
        explicit = Transport(timeouts=QUICK, proxy=proxy.url)
        assert await fetch(explicit, server.url) == b"direct"
        assert not proxy.received
        for sender in (transport, explicit):
            with pytest.raises(TransportFailed):
                await fetch(sender, "https://api.example")
        assert [request.target for request in proxy.received] == ["api.example:443"] * 2
        await explicit.aclose()


async def test_a_proxy_by_tls_may_have_a_certificate_of_its_own(
    untrusted_tls: ssl.SSLContext, certificate: Path
) -> None:
    asked: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with serve(refuse, untrusted_tls) as port:
        for bundle, sentence in ((None, "or for the proxy in front of it"), (str(certificate), "refused to connect")):
            transport = Transport(timeouts=QUICK, proxy=f"https://name:secret@localhost:{port}", ca_bundle=bundle)
            with pytest.raises(TransportFailed, match=sentence) as caught:
                await fetch(transport, "https://api.example", x_key="secret")
            assert "secret" not in str(caught.value)
            await transport.aclose()
    [request] = asked
    assert request.startswith(b"CONNECT api.example:443 ")
    assert b"secret" not in request


# status of the proxy's answer -> a part of the sentence, whether it may be tried again
REFUSALS = [("407 Proxy Authentication Required", "name:password@", False), ("403 No", "status 403", False)]
REFUSALS += [("502 Bad Gateway", "status 502", True), ("503 Later", "status 503", True)]


@pytest.mark.parametrize(("status", "sentence", "retryable"), REFUSALS)
async def test_a_proxy_that_refuses_is_told_as_such(status: str, sentence: str, retryable: bool) -> None:
    refusal = f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode()
    async with SseServer([[refusal]]) as proxy:
        transport = Transport(timeouts=QUICK, proxy=proxy.url.replace("//", "//name:secret@"))
        with pytest.raises(TransportFailed, match=r"The proxy for api\.example") as caught:
            await fetch(transport, "https://api.example")
        await transport.aclose()
    assert sentence in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.retryable is retryable


@pytest.mark.skipif(find_spec("socksio") is not None, reason="socksio is installed")
async def test_a_socks_proxy_without_its_package_names_the_command() -> None:
    transport = Transport(proxy="socks5://secret@127.0.0.1:9")
    with pytest.raises(TransportFailed, match=r"^A SOCKS proxy .* -m pip install 'socksio>=1,<2'\.$") as caught:
        await fetch(transport, "https://api.example")
    assert not caught.value.retryable


@pytest.mark.parametrize("options", [{"ca_bundle": "/nowhere/secret.pem"}, {"proxy": "nonsense://secret"}])
async def test_unusable_options_are_named_without_their_value(options: dict[str, str]) -> None:
    transport = Transport(**options)
    with pytest.raises(TransportFailed, match="ca_bundle") as caught:
        await fetch(transport, "https://api.example")
    assert "secret" not in str(caught.value)
