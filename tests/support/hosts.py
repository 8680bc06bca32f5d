"""Hosts that tests speak to: a server of streams, decoys that listen, certificates."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Literal, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Step = bytes | asyncio.Event | Literal["hold", "reset"]


@dataclass(frozen=True)
class Received:
    """One request as it came. Header names are lower case."""

    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def head(status: int = 200, content_type: str = "text/event-stream", **headers: str) -> bytes:
    """The start of an answer; its end is the end of the connection. Underscores in names stand for hyphens."""
    lines = [f"HTTP/1.1 {status} Status", f"content-type: {content_type}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def chunk(data: bytes) -> bytes:
    """One piece of a body sent with `transfer_encoding="chunked"`."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def answer(body: bytes, status: int = 200, content_type: str = "application/json", **headers: str) -> list[Step]:
    return [head(status, content_type, content_length=str(len(body)), **headers), body]


class Host:
    """A server on a free port of this machine. Each connection is served in a task of its own, which ends with it."""

    address = ("127.0.0.1", 0)
    tls: ssl.SSLContext | None = None
    host = ""  # The name, with its port, under which clients find it where that is not the address.
    connections = 0

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[Any]] = set()
        limit = 64 * 1024 * 1024
        self._server = await asyncio.start_server(self._connected, *self.address, limit=limit, ssl=self.tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.host or f'127.0.0.1:{self.port}'}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self.serve(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


@dataclass
class SseServer(Host):
    """Answers the n-th request with the n-th play, the last one from then on.

    Steps of a play: bytes to send, an event to wait for, `hold` (until the client goes away), `reset` (cut hard).
    """

    plays: Sequence[Sequence[Step]]
    received: list[Received] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received.append(await _read_request(reader))
        self.arrived.set()
        for step in self.plays[min(len(self.received), len(self.plays)) - 1]:
            match step:
                case bytes():
                    writer.write(step)
                    await writer.drain()
                case "hold":
                    await reader.read()
                    self.gone.set()
                case "reset":
                    writer.transport.abort()
                    return
                case asyncio.Event():
                    await step.wait()


async def _read_request(reader: asyncio.StreamReader) -> Received:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(lines[0].split()[1], headers, body)


class Decoy(Host):
    """Takes any connection and says nothing. `heard`: every byte that came, in the open where it came by `tls`."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.heard = bytearray()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            self.heard += chunk


class Proxy(Decoy):
    """Tunnels every CONNECT to one port of this machine, or refuses all with `status`. `heard`: its own requests."""

    def __init__(self, port: int, status: int = 200) -> None:
        super().__init__()
        self.to = port
        self.status = status

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard += await reader.readuntil(b"\r\n\r\n")
        end = b"" if self.status == 200 else b"content-length: 0\r\n"
        writer.write(b"HTTP/1.1 %d X\r\n%b\r\n" % (self.status, end))
        if self.status != 200:
            await writer.drain()
            return
        inner, outer = await asyncio.open_connection("127.0.0.1", self.to)
        await asyncio.gather(_pass(reader, outer), _pass(inner, writer))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    writer.close()


DAY = timedelta(days=1)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass
class Authority:
    """`bundle`: the file that makes a client trust it."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name("authority of a test")
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder(self.name, self.name, self._key.public_key(), x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.bundle = self.folder / "authority.pem"
        self.bundle.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, *names: str, expired: bool = False, own: bool = False) -> ssl.SSLContext:
        """For a server with these names. `own`: signed by itself and by nobody else."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject, signer = _name(names[0]), key if own else self._key
        issuer, end = subject if own else self.name, datetime.now(UTC) + (-DAY if expired else DAY)
        certificate = (
            x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(end - 2 * DAY)
            .not_valid_after(end)
            .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
            .sign(signer, hashes.SHA256())
        )
        path = self.folder / f"server-{certificate.serial_number}.pem"
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        private = key.private_bytes(pem, pkcs8, serialization.NoEncryption())
        path.write_bytes(private + certificate.public_bytes(pem))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


def _alternative(name: str) -> x509.GeneralName:
    return x509.IPAddress(IPv4Address(name)) if name[0].isdigit() else x509.DNSName(name)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=signs, crl_sign=signs, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


Cut = Literal["before", "after"]


class CuttingRelay:
    """`cuts`: for the next occurrences of `trigger`, whether the bytes still reach the server. `seen`: how many did."""

    def __init__(self, port: int, trigger: bytes) -> None:
        self._to = port
        self._trigger = trigger
        self.cuts: list[Cut] = []
        self.seen = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                self._open |= {client, server}
                for target, sides in ((self._relay_up, (client, server)), (self._relay_down, (server, client))):
                    self._threads.append(threading.Thread(target=target, args=sides))
                    self._threads[-1].start()

    def _relay_up(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65_536):
                if self._trigger in data:
                    self.seen += 1
                    if self.cuts:
                        if self.cuts.pop(0) == "after":
                            # The client hears nothing more, while the server still gets the bytes.
                            self._end(client)
                            server.sendall(data)
                        break
                server.sendall(data)
        self._end(client, server)
        client.close()

    def _relay_down(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65_536):
                client.sendall(data)
        self._end(client, server)
        server.close()

    def cut_all(self) -> None:
        self._end(*self._open)

    def close(self) -> None:
        self._end(self._listener)
        self._threads[0].join()
        self._listener.close()
        self.cut_all()
        for thread in self._threads:
            thread.join()

    def _end(self, *sides: socket.socket) -> None:
        for side in sides:
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            self._open.discard(side)


@contextmanager
def cutting(port: int, trigger: bytes) -> Iterator[CuttingRelay]:
    relay = CuttingRelay(port, trigger)
    try:
        yield relay
    finally:
        relay.close()
