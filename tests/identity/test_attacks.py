"""Forged, foreign, expired, early and malformed tokens, none of which identifies a user."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.identity_provider import (
    IdentityProvider,
    describe_key,
    encode_part,
    make_rsa_key,
)
from thinklsp.core.errors import TokenRefused
from thinklsp.core.server_context import ClientIdentity
from thinklsp.identity.jwt_verifier import OidcVerifier
from thinklsp.identity.tokens import MAX_FAILURES, PERIOD_SECONDS, FailureLimit
from thinklsp.settings.user_file import NetworkSection

Forge = Callable[[IdentityProvider], str]
SIGNATURE, MALFORMED = "signature is invalid", "not a JSON Web Token"
ALGORITHM, UNFIT = "algorithm is not one of RS256, ES256", "algorithm does not fit its key"
EXPIRED, EARLY, MISSING = "has expired", "not valid yet", "a required claim is missing"
NAME, CHARACTERS = "must have 1 to 200", "characters that are not allowed"


def with_claims(**changes: Any) -> Forge:
    return lambda provider: provider.sign(provider.make_claims(**changes))


def with_time(name: str, offset: int) -> Forge:
    def forge(provider: IdentityProvider) -> str:
        now = provider.make_claims()["iat"]
        return provider.sign(provider.make_claims(**{name: now + offset}))

    return forge


def with_header(**changes: Any) -> Forge:
    """Sign with the right key, but send another header, which is signed as well."""
    return lambda provider: provider.sign_raw(
        json.dumps(provider.make_claims()).encode(), {"alg": "RS256", "kid": "one", "typ": "JWT"} | changes
    )


def with_payload(text: str) -> Forge:
    return lambda provider: provider.sign_raw(text.encode())


def unsigned(algorithm: str) -> Forge:
    return lambda provider: f"{encode_part({'alg': algorithm, 'kid': 'one'})}.{encode_part(provider.make_claims())}."


def signed_with_public_key(provider: IdentityProvider) -> str:
    """Use the public key as a shared secret."""
    public = make_rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{encode_part({'alg': 'HS256', 'kid': 'one'})}.{encode_part(provider.make_claims())}"
    return f"{signed}.{encode_part(hmac.new(public, signed.encode(), hashlib.sha256).digest())}"


def signed_by_stranger(provider: IdentityProvider) -> str:
    return jwt.encode(provider.make_claims(), make_rsa_key(9), "RS256", headers={"kid": "one"})


def bringing_its_key(provider: IdentityProvider) -> str:
    key = make_rsa_key(9)
    headers = {"kid": "one", "jwk": describe_key(key), "jku": "http://127.0.0.1:1/keys"}
    return jwt.encode(provider.make_claims(), key, "RS256", headers=headers)


def changed_after_signing(provider: IdentityProvider) -> str:
    head, _, signature = provider.sign().split(".")
    return f"{head}.{encode_part(provider.make_claims(sub='eve'))}.{signature}"


def duplicated(provider: IdentityProvider) -> str:
    """Parsers disagree about which of two values counts."""
    body = json.dumps(provider.make_claims())
    return provider.sign_raw(body.replace('"sub": "anna"', '"sub": "anna", "sub": "eve"').encode())


def duplicated_in_header(provider: IdentityProvider) -> str:
    payload = json.dumps(provider.make_claims()).encode()
    return provider.sign_raw(payload, b'{"alg": "none", "kid": "nine", "alg": "RS256", "kid": "one"}')


ATTACKS: dict[str, tuple[Forge, str]] = {
    "alg none": (unsigned("none"), ALGORITHM),
    "alg None": (unsigned("None"), ALGORITHM),
    "alg RS256 without a signature": (unsigned("RS256"), SIGNATURE),
    "HS256 with the public key": (signed_with_public_key, ALGORITHM),
    "another RSA algorithm": (with_header(alg="RS512"), ALGORITHM),
    "an RSA key with ES256": (with_header(alg="ES256"), UNFIT),
    "an EC key with RS256": (with_header(kid="two"), UNFIT),
    "a list of algorithms": (with_header(alg=["RS256"]), ALGORITHM),
    "no algorithm": (with_header(alg=None), ALGORITHM),
    "a stranger's key": (signed_by_stranger, SIGNATURE),
    "its own key in the header": (bringing_its_key, SIGNATURE),
    "changed after signing": (changed_after_signing, SIGNATURE),
    "an unknown key": (with_header(kid="nine"), "no such key"),
    "no key id": (lambda p: p.sign_raw(json.dumps(p.make_claims()).encode(), {"alg": "RS256"}), "names no key"),
    "null as key id": (with_header(kid=None), MALFORMED),
    "an empty key id": (with_header(kid=""), "names no key"),
    "a number as key id": (with_header(kid=1), MALFORMED),
    "a path as key id": (with_header(kid="../../etc/passwd"), "no such key"),
    "critical extension": (with_header(crit=["b64"], b64=False), MALFORMED),
    "unencoded payload": (with_header(b64=False), MALFORMED),
    "a logout token": (with_header(typ="logout+jwt"), "its type"),
    "another audience": (with_claims(aud="wiki"), "another service"),
    "other audiences": (with_claims(aud=["wiki", "mail"]), "another service"),
    "a part of the audience": (with_claims(aud="think"), "another service"),
    "no audience": (with_claims(aud=None), MISSING),
    "an object as audience": (with_claims(aud={"thinklsp": 1}), "another service"),
    "another issuer": (with_claims(iss="https://login.example.com"), "another provider"),
    "a part of the issuer": (with_claims(iss="http"), "another provider"),
    "issuers": (
        lambda p: p.sign_raw(json.dumps(p.make_claims(iss=[p.issuer])).encode()),
        f"{MALFORMED}|another provider",
    ),
    "no issuer": (with_claims(iss=None), MISSING),
    "expired": (with_time("exp", -61), EXPIRED),
    "expired long ago": (with_claims(exp=1), EXPIRED),
    "no expiry": (with_claims(exp=None), MISSING),
    "expiry as text": (with_claims(exp="9999999999"), "expiry is invalid"),
    "expiry true": (with_claims(exp=True), "expiry is invalid"),
    "expiry without end": (with_claims(exp=float("inf")), "expiry is invalid"),
    "expiry not a number": (with_claims(exp=float("nan")), "expiry is invalid"),
    "expiry too large": (with_claims(exp=1e15), "expiry is invalid"),
    "negative expiry": (with_claims(exp=-1), "expiry is invalid"),
    "not yet valid": (with_time("nbf", 90), EARLY),
    "issued in the future": (with_time("iat", 90), EARLY),
    "nbf not a number": (with_claims(nbf=float("nan")), EARLY),
    "nbf as text": (with_claims(nbf="0"), EARLY),
    "duplicate claims": (duplicated, MALFORMED),
    "duplicate header": (duplicated_in_header, MALFORMED),
    "no user": (with_claims(sub=None), "the name of the user is missing"),
    "an empty user": (with_claims(sub=""), NAME),
    "a number as user": (with_claims(sub=7), f"{NAME}|not a JSON Web Token"),
    "a long user": (with_claims(sub="x" * 201), NAME),
    "a user with a line": (with_claims(sub="anna\nroot"), CHARACTERS),
    "a user with a null": (with_claims(sub="anna\0"), CHARACTERS),
    "a user with spaces around": (with_claims(sub=" anna"), CHARACTERS),
    "a user with a bidi control": (with_claims(sub="anna\u202e"), CHARACTERS),
    "a user with a lone surrogate": (with_payload('{"sub": "\\ud800"}'), f"{MISSING}|{MALFORMED}"),
    "no tenant": (with_claims(org=None), "the name of the tenant is missing"),
    "an empty tenant": (with_claims(org=""), NAME),
    "tenants": (with_claims(org=["red", "blue"]), NAME),
    "a tenant with a separator": (with_claims(org="red\0anna"), CHARACTERS),
    "a tenant with a no-break space": (with_claims(org="red\u00a0"), CHARACTERS),
    "the names of the local user": (with_claims(org="local", sub="local"), "reserved"),
    "a group that is a number": (with_claims(groups=["dev", 7]), NAME),
    "too many groups": (with_claims(groups=[str(number) for number in range(501)]), "more than 500 groups"),
    "groups elsewhere": (with_claims(groups=None, _claim_names={"groups": "src1"}), "too many"),
    "claims that are a list": (with_payload("[]"), MALFORMED),
    "claims that are no JSON": (with_payload("{"), MALFORMED),
    "deeply nested claims": (with_payload("[" * 5000), MALFORMED),
    "a header that is a list": (lambda p: p.sign_raw(b"{}", b"[]"), MALFORMED),
    "a huge token": (with_claims(more="x" * 20_000), "at most 16 KiB"),
    "letters beyond ASCII": (lambda p: p.sign() + "é", "at most 16 KiB"),
    "no token": (lambda _: "", MALFORMED),
    "points": (lambda _: "...", MALFORMED),
    "a token in five parts": (lambda p: p.sign() + ".a.b", MALFORMED),
    "white space": (lambda p: p.sign().replace(".", ".\n"), f"{MALFORMED}|{SIGNATURE}"),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
async def test_attack_is_refused(provider: IdentityProvider, attack: str) -> None:
    forge, reason = ATTACKS[attack]
    token = forge(provider)
    verifier = OidcVerifier(provider.section, NetworkSection())
    try:
        with pytest.raises(TokenRefused) as refused:
            await verifier.verify(token)
        sentence = str(refused.value)
        assert re.search(reason, sentence), sentence
        assert re.fullmatch(r"The token was refused: [^\n]+\.", sentence)
        assert not any(len(part) > 20 and part in sentence for part in token.split("."))
        # The same verifier still accepts a valid token.
        assert (await verifier.verify(provider.sign())).identity.user == "anna"
    finally:
        await verifier.aclose()


VALID: dict[str, tuple[Forge, ClientIdentity]] = {
    "RS256": (lambda p: p.sign(), ClientIdentity("red", "anna", ("dev",))),
    "ES256": (lambda p: p.sign(key_id="two"), ClientIdentity("red", "anna", ("dev",))),
    "access token": (lambda p: p.sign(header={"typ": "at+JWT"}), ClientIdentity("red", "anna", ("dev",))),
    "several audiences": (with_claims(aud=["wiki", "thinklsp"]), ClientIdentity("red", "anna", ("dev",))),
    "expired within the leeway": (with_time("exp", -50), ClientIdentity("red", "anna", ("dev",))),
    "early within the leeway": (with_time("nbf", 50), ClientIdentity("red", "anna", ("dev",))),
    "odd but printable names": (
        with_claims(org="../../röd; DROP TABLE step--", sub="anna@例え.jp|'\"%", groups=["dev", "dev", "ops"]),
        ClientIdentity("../../röd; DROP TABLE step--", "anna@例え.jp|'\"%", ("dev", "ops")),
    ),
    "one group as text": (with_claims(groups="dev"), ClientIdentity("red", "anna", ("dev",))),
    "no groups": (with_claims(groups=None), ClientIdentity("red", "anna", ())),
}


@pytest.mark.parametrize("case", VALID)
async def test_valid_token_identifies_user(provider: IdentityProvider, case: str) -> None:
    make, identity = VALID[case]
    verifier = OidcVerifier(provider.section, NetworkSection())
    try:
        verified = await verifier.verify(make(provider))
    finally:
        await verifier.aclose()
    assert verified.identity == identity


async def test_claims_may_be_nested_and_have_any_name(provider: IdentityProvider) -> None:
    section = provider.section.model_copy(
        update={
            "claim_tenant": "https://example.com/org",
            "claim_user": "account.id",
            "groups": "realm_access.roles",
        }
    )
    claims = provider.make_claims(
        **{"https://example.com/org": "blue", "account": {"id": "u-1"}, "realm_access": {"roles": ["a", "b"]}}
    )
    verifier = OidcVerifier(section, NetworkSection())
    try:
        verified = await verifier.verify(provider.sign(claims))
    finally:
        await verifier.aclose()
    assert verified.identity == ClientIdentity("blue", "u-1", ("a", "b"))
    assert verified.ends_at == claims["exp"] + 60


def test_limit_is_per_address_and_minute() -> None:
    now = 0.0
    limit = FailureLimit(lambda: now)
    for _ in range(MAX_FAILURES):
        assert not limit.is_exceeded("192.0.2.1")
        limit.add("192.0.2.1")
        now += 1
    assert limit.is_exceeded("192.0.2.1")
    assert not limit.is_exceeded("192.0.2.2")
    now = PERIOD_SECONDS
    assert not limit.is_exceeded("192.0.2.1")
    limit.add("192.0.2.1")
    assert limit.is_exceeded("192.0.2.1")


def test_machine_with_many_ipv6_addresses_is_one() -> None:
    limit = FailureLimit(lambda: 0.0)
    for number in range(MAX_FAILURES):
        limit.add(f"2001:db8:1:2::{number:x}")
    assert limit.is_exceeded("2001:db8:1:2:ffff::1")
    assert not limit.is_exceeded("2001:db8:1:3::1")
    for _ in range(MAX_FAILURES):
        limit.add("fe80::1%eth0")
    assert limit.is_exceeded("fe80::2%eth1")


def test_mapped_address_is_the_ipv4_address() -> None:
    limit = FailureLimit(lambda: 0.0)
    for _ in range(MAX_FAILURES):
        limit.add("::ffff:192.0.2.1")
    assert not limit.is_exceeded("::ffff:192.0.2.2")


def test_table_forgets_the_oldest_address() -> None:
    limit = FailureLimit(lambda: 0.0, max_addresses=2)
    for address in ("192.0.2.1", "192.0.2.2"):
        for _ in range(MAX_FAILURES):
            limit.add(address)
    limit.add("192.0.2.3")
    assert not limit.is_exceeded("192.0.2.1")
    assert limit.is_exceeded("192.0.2.2")
    limit.add("not an address")
    assert not limit.is_exceeded("192.0.2.2")
