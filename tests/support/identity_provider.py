"""An identity provider on loopback with real keys: a configuration, a key set, and tokens that it signs."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests.support.watching import seen
from thinklsp.settings.user_file import OidcSection

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
AUDIENCE = "thinklsp"
CONFIGURATION = "/.well-known/openid-configuration"


@cache
def make_rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return the same key for the same arguments, because making a key takes long."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def make_ec_key(number: int = 0) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def encode_part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def describe_key(key: PrivateKey, **more: str) -> dict[str, Any]:
    public = key.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        return {**RSAAlgorithm.to_jwk(public, as_dict=True), "use": "sig", "alg": "RS256", **more}
    return {**ECAlgorithm.to_jwk(public, as_dict=True), "use": "sig", "alg": "ES256", **more}


class IdentityProvider:
    """`keys` are the private keys by id. `requested` are the paths that were asked for. The first sets `asked`.

    While `is_down` is true, connections are closed without an answer. `answers` replaces answers by path.
    """

    def __init__(self) -> None:
        self.keys: dict[str, PrivateKey] = {"one": make_rsa_key(), "two": make_ec_key()}
        self.more_keys: list[Any] = []
        self.requested: list[str] = []
        self.asked = asyncio.Event()
        self.answers: dict[str, bytes] = {}
        self.is_down = False
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}/team"

    @property
    def section(self) -> OidcSection:
        return OidcSection(issuer=self.issuer, audience=AUDIENCE, claim_tenant="org", groups="groups")

    def count_fetches(self) -> int:
        return self.requested.count("/keys")

    def make_claims(self, **more: Any) -> dict[str, Any]:
        """Return valid claims. A value of None leaves a claim out."""
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": AUDIENCE, "sub": "anna", "org": "red", "groups": ["dev"], "iat": now}
        return {name: value for name, value in ({**claims, "exp": now + 600} | more).items() if value is not None}

    def sign(
        self, claims: Mapping[str, Any] | None = None, *, key_id: str = "one", header: Mapping[str, Any] | None = None
    ) -> str:
        key = self.keys[key_id]
        algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
        body = self.make_claims() if claims is None else dict(claims)
        return jwt.encode(body, key, algorithm, headers={"kid": key_id, **(header or {})})

    def sign_raw(self, payload: bytes, header: Mapping[str, Any] | bytes | None = None) -> str:
        """Sign any bytes, which PyJWT would not encode."""
        head = {"alg": "RS256", "kid": "one"} if header is None else header
        signed = f"{encode_part(head)}.{encode_part(payload)}"
        key = make_rsa_key()
        signature = RSAAlgorithm(RSAAlgorithm.SHA256).sign(signed.encode(), key)
        return f"{signed}.{encode_part(signature)}"

    def _answer(self, path: str) -> bytes:
        if path in self.answers:
            return self.answers[path]
        if path == f"/team{CONFIGURATION}":
            return _respond({"issuer": self.issuer, "jwks_uri": f"http://127.0.0.1:{self.port}/keys"})
        if path == "/keys":
            keys = [describe_key(key, kid=key_id) for key_id, key in self.keys.items()]
            return _respond({"keys": [*self.more_keys, *keys]})
        return _respond({}, "404 Not Found")

    async def hang_up(self) -> None:
        """End the connections that clients have left open."""
        for writer in self._writers:
            writer.close()
        await seen(lambda: not self._writers, what="the end of the connections")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode()
                self.requested.append(path)
                self.asked.set()
                if self.is_down:
                    break
                writer.write(self._answer(path))
                await writer.drain()
        writer.close()
        self._writers.discard(writer)


def _respond(content: Any, status: str = "200 OK") -> bytes:
    body = json.dumps(content).encode()
    return f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def providing() -> AsyncIterator[IdentityProvider]:
    provider = IdentityProvider()
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    provider.port = server.sockets[0].getsockname()[1]
    try:
        yield provider
    finally:
        server.close()
        await provider.hang_up()
