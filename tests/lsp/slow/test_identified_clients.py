"""Clients on a WebSocket that identifies them by tokens: who is admitted, who is refused, and when a token ends."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import pytest
from websockets.datastructures import Headers

from tests.support.client.raw import HandshakeRefused, WebSocketWire
from tests.support.identity_provider import IdentityProvider, providing
from tests.support.watching import HANG_SECONDS, seen
from thinklsp.core.server_context import LOCAL_IDENTITY, TENANT_VARIABLE, USER_VARIABLE, ClientIdentity
from thinklsp.identity.jwt_verifier import OidcVerifier
from thinklsp.identity.tokens import LEEWAY_SECONDS, MAX_FAILURES, ClientAccess
from thinklsp.lsp.editor.connection_state import build_client_environment, list_private_folders
from thinklsp.lsp.transport import websocket
from thinklsp.lsp.transport.connection import create_server
from thinklsp.lsp.transport.sockets import ConnectionRegistry, ListenConfig
from thinklsp.lsp.transport.websocket import LoginRefusal, TokenGate
from thinklsp.settings.user_file import NetworkSection

NOBODY = {"processId": None, "rootUri": None, "capabilities": {}}


@dataclass
class Door:
    provider: IdentityProvider
    port: int
    clients: list[Client] = field(default_factory=list)

    async def enter(self, *headers: str, target: str = "/") -> Client:
        self.clients.append(Client(await WebSocketWire.upgraded(self.port, *headers, target=target)))
        return self.clients[-1]

    async def show(self, token: str) -> Client:
        return await self.enter(f"Authorization: Bearer {token}")

    async def refused(self, *headers: str, target: str = "/") -> tuple[int, str]:
        with pytest.raises(HandshakeRefused) as refused:
            await self.enter(*headers, target=target)
        assert refused.value.text.count("\n") == 1
        return refused.value.status, refused.value.text

    def sign_ending(self, seconds: int, **more: Any) -> str:
        """Return a token that is accepted for these seconds, which lie within the leeway."""
        return self.provider.sign(self.provider.make_claims(exp=int(time.time()) + seconds - LEEWAY_SECONDS, **more))


class Client:
    def __init__(self, wire: WebSocketWire) -> None:
        self.wire = wire
        self._number = 0

    async def ask(self, method: str, params: Any = None) -> Any:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.wire.write(json.dumps(message).encode())
        async with asyncio.timeout(HANG_SECONDS):
            while framed := await self.wire.read():
                answer = json.loads(framed.partition(b"\r\n\r\n")[2])
                if answer.get("id") == self._number and "method" not in answer:
                    return answer
        raise AssertionError(f"closed with {self.wire.closed}")

    async def initialize(self) -> Any:
        return (await self.ask("initialize", NOBODY))["result"]["capabilities"]

    async def until_closed(self) -> int | None:
        async with asyncio.timeout(HANG_SECONDS):
            while await self.wire.read():
                pass
        return self.wire.closed


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with opened() as door:
        yield door


@asynccontextmanager
async def opened() -> AsyncIterator[Door]:
    registry = ConnectionRegistry()
    async with providing() as provider:
        verifier = OidcVerifier(provider.section, NetworkSection())
        listening = socket.create_server(("127.0.0.1", 0))
        async with websocket.listen_ws(ListenConfig(listening, None, frozenset(), verifier), registry):
            door = Door(provider, listening.getsockname()[1])
            yield door
        for client in door.clients:
            client.wire.close()
        await registry.close_all()
        await seen(lambda: listening.fileno() < 0)
        await verifier.aclose()


async def test_token_in_header_or_subprotocol_is_accepted(door: Door) -> None:
    token = door.provider.sign()
    subprotocols = f"Sec-WebSocket-Protocol: lsp, thinklsp.bearer.{token}"
    for headers in (
        [f"Authorization: bearer {token}"],
        [subprotocols],
        [subprotocols, f"Authorization: Bearer {token}"],
    ):
        client = await door.enter(*headers)
        assert (await client.initialize())["experimental"] == {"thinklsp": {"renewToken": True}}
        # The token is never sent back as the chosen subprotocol.
        assert client.wire.protocol in (None, "lsp")


async def test_refusals_are_one_sentence_with_a_status(door: Door) -> None:
    token, other = door.provider.sign(), door.provider.sign(door.provider.make_claims(sub="berta"))
    status, text = await door.refused()
    assert (status, "`Authorization: Bearer …`" in text, "`thinklsp.bearer.…`" in text) == (401, True, True)
    # Proxies log addresses.
    assert (await door.refused(target=f"/?token={token}"))[0] == 401
    assert (await door.refused(f"Sec-WebSocket-Protocol: lsp, token.{token}"))[0] == 401
    assert (await door.refused(f"Authorization: Basic {token}"))[0] == 401
    assert await door.refused(
        f"Sec-WebSocket-Protocol: lsp, thinklsp.bearer.{other}", f"Authorization: Bearer {token}"
    ) == (401, "The request contains several tokens. Send only one.\n")
    expired = door.provider.sign(door.provider.make_claims(exp=1000))
    assert await door.refused(f"Authorization: Bearer {expired}") == (401, "The token was refused: it has expired.\n")
    status, text = await door.refused(f"Authorization: Bearer {token}", "Origin: https://evil.example")
    assert (status, "origin" in text) == (403, True)
    # A token that does not fit into a line of a header.
    with pytest.raises(HandshakeRefused) as refused:
        await door.show("x" * 20_000)
    assert refused.value.status in (0, 400, 431)


async def test_address_with_many_failures_is_slowed_down(door: Door) -> None:
    bad = "Authorization: Bearer a.b.c"
    statuses = [(await door.refused(bad))[0] for _ in range(MAX_FAILURES + 3)]
    assert statuses == [401] * MAX_FAILURES + [429] * 3
    # Behind a proxy, another client may have the same address.
    assert await (await door.show(door.provider.sign())).initialize()


async def test_outage_of_the_provider_is_no_failure_of_the_client(door: Door) -> None:
    door.provider.is_down = True
    token = door.provider.sign()
    for _ in range(MAX_FAILURES + 2):
        status, text = await door.refused(f"Authorization: Bearer {token}")
        assert (status, "cannot be reached. Try again later" in text) == (503, True)


async def test_refusals_have_headers() -> None:
    async with providing() as provider:
        verifier = OidcVerifier(provider.section, NetworkSection())
        gate = TokenGate(verifier)
        refused = await gate.check_headers(Headers(), "192.0.2.1")
        provider.is_down = True
        outage = await gate.check_headers(Headers({"Authorization": f"Bearer {provider.sign()}"}), "192.0.2.1")
        for _ in range(MAX_FAILURES):
            limited = await gate.check_headers(Headers(), "192.0.2.1")
        await verifier.aclose()
    assert isinstance(refused, LoginRefusal)
    assert isinstance(outage, LoginRefusal)
    assert isinstance(limited, LoginRefusal)
    assert refused.headers == (("WWW-Authenticate", "Bearer"),)
    assert (outage.status, outage.headers) == (HTTPStatus.SERVICE_UNAVAILABLE, (("Retry-After", "30"),))
    assert (limited.status, limited.headers) == (HTTPStatus.TOO_MANY_REQUESTS, (("Retry-After", "60"),))


async def test_expired_token_closes_the_connection_unless_renewed(door: Door) -> None:
    token = door.sign_ending(5)
    leaving, staying = await door.show(token), await door.show(token)
    await leaving.initialize()
    await staying.initialize()
    renewed = await staying.ask("thinklsp/renewToken", {"token": door.provider.sign()})
    assert 600 < renewed["result"]["expiresInSeconds"] <= 600 + LEEWAY_SECONDS
    assert await leaving.until_closed() == 4401
    # The other connection has outlived the same token.
    assert (await staying.ask("shutdown"))["result"] is None


async def test_renewal_needs_a_valid_token_of_the_same_user(door: Door) -> None:
    client = await door.show(door.sign_ending(6))
    await client.initialize()
    make = door.provider.make_claims
    for params, words in (
        ({"token": door.provider.sign(make(sub="berta"))}, "belongs to another user"),
        ({"token": door.provider.sign(make(org="blue"))}, "belongs to another user"),
        ({"token": door.provider.sign(make(exp=1000))}, "has expired"),
        ({"token": "a.b.c"}, "not a JSON Web Token"),
        ({"token": 7}, "`token` must be a string"),
        ({}, "`token` must be a string"),
        (None, "`token` must be a string"),
        ([], "`token` must be a string"),
    ):
        error = (await client.ask("thinklsp/renewToken", params))["error"]
        assert (words in error["message"], error["code"]) == (True, -32602 if "must be" in words else -32803), error
    # None of them has extended the access.
    assert await client.until_closed() == 4401


async def test_local_client_has_nothing_to_renew() -> None:
    registry, token = ConnectionRegistry(), "x" * 40
    listening = socket.create_server(("127.0.0.1", 0))
    async with websocket.listen_ws(ListenConfig(listening, token), registry):
        wire = await WebSocketWire.upgraded(listening.getsockname()[1], f"Authorization: Bearer {token}")
        client = Client(wire)
        assert "experimental" not in await client.initialize()
        assert (await client.ask("thinklsp/renewToken", {"token": "x"}))["error"]["code"] == -32601
        wire.close()
    await registry.close_all()
    await seen(lambda: listening.fileno() < 0)


async def test_server_of_a_client_has_its_identity(door: Door) -> None:
    verifier = OidcVerifier(door.provider.section, NetworkSection())
    access = ClientAccess(verifier, await verifier.verify(door.provider.sign()))
    server = create_server(access=access)
    assert server.state.identity == ClientIdentity("red", "anna", ("dev",))
    assert server.state.environment[USER_VARIABLE] == "anna"
    assert len(server.state.private_folders) == 2
    await server.close()
    await verifier.aclose()


@pytest.mark.timing
async def test_access_ends_by_the_clock_of_the_machine(door: Door) -> None:
    """A machine that was suspended does not keep a client longer."""
    verifier = OidcVerifier(door.provider.section, NetworkSection())
    now = time.time()
    access = ClientAccess(verifier, await verifier.verify(door.provider.sign()), lambda: now)
    ending = asyncio.create_task(access.wait_for_end())
    assert await access.renew(door.provider.sign()) > 600
    now += 10_000
    await access.renew(door.provider.sign())
    async with asyncio.timeout(HANG_SECONDS):
        await ending
    await verifier.aclose()


@pytest.mark.parametrize(
    "other",
    [
        ClientIdentity("red", "berta"),
        ClientIdentity("blue", "anna"),
        ClientIdentity("reda", "nna"),
        ClientIdentity("red", "Anna"),
        ClientIdentity("../../red", "anna"),
    ],
)
def test_each_user_has_a_state_folder_of_their_own(other: ClientIdentity) -> None:
    given = {"THINKLSP_STATE_DIR": "/state", USER_VARIABLE: "root", TENANT_VARIABLE: "root"}
    anna = build_client_environment(given, ClientIdentity("red", "anna", ("dev",)))
    again = build_client_environment(given, ClientIdentity("red", "anna", ("ops",)))
    others = build_client_environment(given, other)
    assert anna == again
    assert anna["THINKLSP_STATE_DIR"] != others["THINKLSP_STATE_DIR"]
    folder = others["THINKLSP_STATE_DIR"].removeprefix("/state/users/")
    assert len(folder) == 64
    assert folder.isalnum()
    assert (others[TENANT_VARIABLE], others[USER_VARIABLE]) == (other.tenant, other.user)


def test_local_user_keeps_the_environment() -> None:
    given = {"THINKLSP_STATE_DIR": "/state", "THINKLSP_CONFIG": "/config/config.toml"}
    assert build_client_environment(given, LOCAL_IDENTITY) == given
    assert list_private_folders(given, LOCAL_IDENTITY) == ()
    assert list_private_folders(given, ClientIdentity("red", "anna")) == ("/state", "/config")
