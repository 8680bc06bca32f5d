"""Certificates and proxies: who is believed on the way out, against real sockets on loopback."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.fetching import QUICK, fetch
from tests.support.sse_server import SseServer, answer
from thinklsp.core.errors import TransportFailed
from thinklsp.http.transport import Transport


async def test_no_tls_on_the_other_side(transport: Transport) -> None:
    async def speak_first(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(speak_first, "127.0.0.1", 0)
    with pytest.raises(TransportFailed, match="TLS handshake") as caught:
        await fetch(transport, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert not caught.value.retryable
    server.close()
    await server.wait_closed()


async def test_a_handshake_that_does_not_come_about_may_be_tried_again() -> None:
    transport = Transport(timeouts=replace(QUICK, connect=0.2))
    for cut, sentence in ((False, "in time"), (True, "No connection|broke off")):
        writers: list[asyncio.StreamWriter] = []

        def accept(
            _reader: asyncio.StreamReader,
            writer: asyncio.StreamWriter,
            cut: bool = cut,
            writers: list[asyncio.StreamWriter] = writers,
        ) -> None:
            writers.append(writer)
            if cut:
                writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        with pytest.raises(TransportFailed, match=sentence) as caught:
            await fetch(transport, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        assert caught.value.retryable
        for writer in writers:
            writer.close()
        server.close()
        await server.wait_closed()
    await transport.aclose()


async def test_an_untrusted_certificate(transport: Transport, untrusted_tls: ssl.SSLContext) -> None:
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0, ssl=untrusted_tls)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(TransportFailed, match="certificate of localhost") as caught:
        await fetch(transport, f"https://localhost:{port}")
    assert not caught.value.retryable
    server.close()
    await server.wait_closed()


async def test_a_server_on_this_machine_with_a_certificate_of_its_own(
    transport: Transport, untrusted_tls: ssl.SSLContext, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=untrusted_tls)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert await fetch(transport, f"https://localhost:{port}") == b"hi"
    server.close()
    await server.wait_closed()


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

    server = await asyncio.start_server(refuse, "127.0.0.1", 0, ssl=untrusted_tls)
    port = server.sockets[0].getsockname()[1]
    for ca_bundle, sentence in (
        (None, "or of the proxy on the way to it"),
        (str(certificate), "would not connect"),
    ):
        transport = Transport(timeouts=QUICK, proxy=f"https://name:secret@localhost:{port}", ca_bundle=ca_bundle)
        with pytest.raises(TransportFailed, match=sentence) as caught:
            await fetch(transport, "https://api.example", x_key="secret")
        assert "secret" not in str(caught.value)
        await transport.aclose()
    [request] = asked
    assert request.startswith(b"CONNECT api.example:443 ")
    assert b"secret" not in request
    server.close()
    await server.wait_closed()


# status of the proxy's answer -> a part of the sentence, whether it may be tried again
REFUSALS = [("407 Proxy Authentication Required", "name:password@", False), ("403 No", "status 403", False)]
REFUSALS += [("502 Bad Gateway", "status 502", True), ("503 Later", "status 503", True)]


@pytest.mark.parametrize(("status", "sentence", "retryable"), REFUSALS)
async def test_a_proxy_that_refuses_is_told_as_such(status: str, sentence: str, retryable: bool) -> None:
    refusal = f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode()
    async with SseServer([[refusal]]) as proxy:
        transport = Transport(timeouts=QUICK, proxy=proxy.url.replace("//", "//name:secret@"))
        with pytest.raises(TransportFailed, match=r"The proxy on the way to api\.example") as caught:
            await fetch(transport, "https://api.example")
        await transport.aclose()
    assert sentence in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.retryable is retryable


@pytest.mark.parametrize("options", [{"ca_bundle": "/nowhere/secret.pem"}, {"proxy": "nonsense://secret"}])
async def test_unusable_options_are_named_without_their_value(options: dict[str, str]) -> None:
    transport = Transport(**options)
    with pytest.raises(TransportFailed, match="ca_bundle") as caught:
        await fetch(transport, "https://api.example")
    assert "secret" not in str(caught.value)
