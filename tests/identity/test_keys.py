"""The rotation of a provider's keys, its outages, and the number of requests to it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.identity_provider import (
    CONFIGURATION,
    IdentityProvider,
    describe_key,
    make_ec_key,
    make_rsa_key,
)
from thinklsp.core.errors import TokenRefused
from thinklsp.identity.jwt_verifier import (
    MAX_AGE_SECONDS,
    MAX_OUTAGE_SECONDS,
    MIN_INTERVAL_SECONDS,
    OidcVerifier,
    parse_key_set,
)
from thinklsp.settings.user_file import NetworkSection

DAY = 24 * 3600.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def verifying(
    provider: IdentityProvider, clock: Callable[[], float], **changes: Any
) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Verify tokens. `clock` measures the age of the keys, and the real clock applies to the tokens."""
    verifier = OidcVerifier(provider.section.model_copy(update=changes), NetworkSection(), key_clock=clock)
    try:
        yield verifier.verify
    finally:
        await verifier.aclose()


async def test_keys_are_fetched_once_in_ten_minutes(provider: IdentityProvider) -> None:
    clock = Clock()
    async with verifying(provider, clock) as verify:
        for _ in range(5):
            await verify(provider.sign())
        await verify(provider.sign(key_id="two"))
        assert provider.count_fetches() == 1
        clock.now += MAX_AGE_SECONDS + 1
        await verify(provider.sign())
        assert provider.count_fetches() == 2


async def test_many_clients_share_a_fetch(provider: IdentityProvider) -> None:
    async with verifying(provider, Clock()) as verify:
        await asyncio.gather(*(verify(provider.sign()) for _ in range(50)))
    assert provider.count_fetches() == 1


async def test_new_key_is_found_at_once(provider: IdentityProvider) -> None:
    """A withdrawn key is valid until the keys are fetched again."""
    clock = Clock()
    async with verifying(provider, clock) as verify:
        old = provider.sign()
        await verify(old)
        provider.keys = {"three": make_rsa_key(3)}
        clock.now += MIN_INTERVAL_SECONDS
        assert (await verify(provider.sign(key_id="three"))).identity.user == "anna"
        with pytest.raises(TokenRefused, match="no such key"):
            await verify(old)
        assert provider.count_fetches() == 2


async def test_flood_of_unknown_keys_fetches_twice_a_minute(provider: IdentityProvider) -> None:
    clock = Clock()
    async with verifying(provider, clock) as verify:
        tokens = [
            provider.sign_raw(json.dumps(provider.make_claims()).encode(), {"alg": "RS256", "kid": f"k{number}"})
            for number in range(60)
        ]
        for token in tokens:
            clock.now += 1
            with pytest.raises(TokenRefused, match="no such key"):
                await verify(token)
            # Nobody else is locked out.
            await verify(provider.sign())
        assert provider.count_fetches() == 2


async def test_outage_is_survived_for_a_day(provider: IdentityProvider) -> None:
    clock = Clock()
    async with verifying(provider, clock) as verify:
        await verify(provider.sign())
        provider.is_down = True
        clock.now += MAX_OUTAGE_SECONDS - 60
        await verify(provider.sign())
        clock.now += 120
        with pytest.raises(TokenRefused, match=r"cannot be reached\. Try again later") as refused:
            await verify(provider.sign())
        assert refused.value.is_outage
        provider.is_down = False
        clock.now += MIN_INTERVAL_SECONDS
        await verify(provider.sign())


async def test_provider_that_is_down_at_the_start(provider: IdentityProvider) -> None:
    clock = Clock()
    provider.is_down = True
    async with verifying(provider, clock) as verify:
        for _ in range(3):
            with pytest.raises(TokenRefused, match="cannot be reached"):
                await verify(provider.sign())
        tried = len(provider.requested)
        provider.is_down = False
        with pytest.raises(TokenRefused, match="cannot be reached"):
            await verify(provider.sign())
        assert len(provider.requested) == tried
        clock.now += MIN_INTERVAL_SECONDS
        await verify(provider.sign())


async def test_client_that_leaves_does_not_cancel_the_fetch(provider: IdentityProvider) -> None:
    async with verifying(provider, Clock()) as verify:
        task = asyncio.create_task(verify(provider.sign()))
        await provider.asked.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await verify(provider.sign())).identity.user == "anna"
    assert provider.count_fetches() == 1


def respond(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = (f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", "")
    return "\r\n".join(lines).encode() + body


BAD_ANSWERS: dict[str, tuple[str, bytes]] = {
    "configuration of another issuer": (CONFIGURATION, respond(b'{"issuer": "https://evil", "jwks_uri": "http://127.0.0.1:1/"}')),
    "configuration without keys": (CONFIGURATION, respond(b'{"issuer": "ISSUER"}')),
    "configuration is a list": (CONFIGURATION, respond(b"[]")),
    "configuration is HTML": (CONFIGURATION, respond(b"<html>")),
    "configuration is missing": (CONFIGURATION, respond(b"", "404 Not Found")),
    "keys are elsewhere": (CONFIGURATION, respond(b'{"issuer": "ISSUER", "jwks_uri": "file:///etc/passwd"}')),
    "keys on plain HTTP": (CONFIGURATION, respond(b'{"issuer": "ISSUER", "jwks_uri": "http://keys.example.com/"}')),
    "redirect": ("/keys", respond(b"", "302 Found", "location: http://127.0.0.1:1/keys")),
    "keys without a list": ("/keys", respond(b'{"keys": {"one": 1}}')),
    "no keys": ("/keys", respond(b"{}")),
    "too large": ("/keys", respond(b'{"keys": ["' + b"x" * 600_000 + b'"]}')),
    "deeply nested": ("/keys", respond(b"[" * 100_000)),
    "error": ("/keys", respond(b"oops", "500 Internal Server Error")),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ANSWERS)
async def test_bad_answer_keeps_the_keys(
    provider: IdentityProvider, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, answer = BAD_ANSWERS[case]
    clock = Clock()
    async with verifying(provider, clock) as verify:
        await verify(provider.sign())
        body = answer.replace(b"ISSUER", provider.issuer.encode())
        head, _, rest = body.partition(b"\r\n\r\n")
        fixed = head.replace(head.split(b"content-length: ")[1].split(b"\r\n")[0], str(len(rest)).encode(), 1)
        provider.answers[f"/team{path}" if path == CONFIGURATION else path] = fixed + b"\r\n\r\n" + rest
        clock.now += MAX_AGE_SECONDS + 1
        assert (await verify(provider.sign())).identity.user == "anna"
        assert "the keys of the identity provider cannot be fetched" in caplog.text
        assert ("http is allowed only for this machine" in caplog.text) == (case == "keys on plain HTTP")
        with pytest.raises(TokenRefused, match="no such key"):
            await verify(provider.sign_raw(b"{}", {"alg": "RS256", "kid": "nine"}))


async def test_address_of_keys_can_be_set(provider: IdentityProvider) -> None:
    async with verifying(provider, Clock(), jwks_url=f"http://127.0.0.1:{provider.port}/keys") as verify:
        await verify(provider.sign())
    assert provider.requested == ["/keys"]


def test_only_keys_for_signatures_are_used() -> None:
    curve = ec.generate_private_key(ec.SECP384R1())
    entries = [
        describe_key(make_rsa_key(), kid="rsa"),
        describe_key(make_ec_key(), kid="ec"),
        describe_key(make_rsa_key(), kid="encrypting", use="enc"),
        describe_key(make_rsa_key(), kid="other algorithm", alg="PS256"),
        describe_key(make_rsa_key(5, bits=1024), kid="short"),
        describe_key(curve, kid="curve"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret", "alg": "HS256"},
        {"kty": "RSA", "n": "AQAB", "e": "%", "kid": "broken"},
        {"kty": "EC", "kid": "empty"},
        {**describe_key(make_rsa_key()), "kid": 7},
        "text",
        None,
    ]
    assert sorted(parse_key_set({"keys": entries})) == ["ec", "rsa"]
    assert parse_key_set({"keys": [describe_key(make_ec_key(), kid=str(n)) for n in range(500)]}).keys() == {
        str(number) for number in range(100)
    }


async def test_verification_uses_its_clock(provider: IdentityProvider) -> None:
    now = time.time()
    moment = now
    verifier = OidcVerifier(provider.section, NetworkSection(), lambda: moment)
    token = provider.sign(provider.make_claims(exp=int(now) + 10))
    assert (await verifier.verify(token)).ends_at == int(now) + 70
    moment = int(now) + 69
    await verifier.verify(token)
    moment += 2
    with pytest.raises(TokenRefused, match="has expired"):
        await verifier.verify(token)
    await verifier.aclose()
