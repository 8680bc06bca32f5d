"""The verification of JSON Web Tokens with PyJWT, which is loaded only if `[serve.oidc]` is configured.

Each key of the provider can be used with one algorithm only, which depends on the kind of the key. So a token can
choose neither `none` nor an algorithm that would use a public key as a shared secret.

Names in claims are used as they are. They become part of database rows and of environment variables, so control
characters and long names are refused, never shortened or replaced: two users must not get the same name.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.utils import base64url_decode

from thinklsp.core.errors import TokenRefused, TransportFailed
from thinklsp.core.server_context import DEFAULT_TENANT, LOCAL_IDENTITY, ClientIdentity
from thinklsp.http.transport import Timeouts, Transport
from thinklsp.identity.tokens import LEEWAY_SECONDS, VerifiedToken, refuse
from thinklsp.settings.user_file import NetworkSection, OidcSection, find_address_problem

_MAX_NAME_LENGTH = 200
_MAX_GROUPS = 500
# The end of the year 9999, the last one that Python can format.
_MAX_TIME = 253_402_300_799.0
_MAX_BODY_BYTES = 512 * 1024
# The limit for both requests. A WebSocket handshake may take ten seconds.
_SECONDS = 6.0
_HEADERS = {"accept": "application/json"}
_log = logging.getLogger(__name__)
MAX_AGE_SECONDS = 600.0
MAX_OUTAGE_SECONDS = 24 * 3600.0
MIN_INTERVAL_SECONDS = 30.0
_MAX_TOKEN_BYTES = 16 * 1024
_MAX_KEYS = 100
_MIN_RSA_BITS = 2048
_ALGORITHMS = ("RS256", "ES256")
# The types of tokens that may identify a user. A logout token, for example, has another type.
_TOKEN_TYPES = ("jwt", "at+jwt", "application/at+jwt")
_REQUIRED_CLAIMS = ["iss", "aud", "exp"]


def build_identity(claims: Mapping[str, Any], section: OidcSection) -> ClientIdentity:
    """Return the identity that the claims contain. Raises TokenRefused if a configured claim is missing or invalid."""
    user = _check_name(_find_claim(claims, section.claim_user), "the user")
    tenant = DEFAULT_TENANT
    if section.claim_tenant is not None:
        tenant = _check_name(_find_claim(claims, section.claim_tenant), "the tenant")
    identity = ClientIdentity(tenant, user, _read_groups(claims, section.groups))
    if (identity.tenant, identity.user) == (LOCAL_IDENTITY.tenant, LOCAL_IDENTITY.user):
        # These names belong to the user of a server without OIDC.
        raise refuse("its names of tenant and user are reserved")
    return identity


def read_expiry(claims: Mapping[str, Any]) -> float:
    """Return the time at which the token expires, in seconds since the epoch. Raises TokenRefused."""
    expiry: object = claims.get("exp")
    # `true` is an instance of int in Python, and JSON parsers accept NaN.
    if isinstance(expiry, bool) or not isinstance(expiry, int | float) or not 0 < expiry <= _MAX_TIME:
        raise refuse("its time of expiry is invalid")
    return float(expiry)


def _find_claim(claims: Mapping[str, Any], name: str) -> object:
    """Return a claim, or None. A name with dots may also be a path, for example `realm_access.roles`."""
    if name in claims:
        return claims[name]
    value: object = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _check_name(value: object, subject: str) -> str:
    if value is None:
        raise refuse(f"the claim with the name of {subject} is missing")
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_NAME_LENGTH:
        raise refuse(f"the name of {subject} must have 1 to {_MAX_NAME_LENGTH} characters")
    if not value.isprintable() or value != value.strip():
        raise refuse(f"the name of {subject} contains characters that are not allowed")
    return value


def _read_groups(claims: Mapping[str, Any], name: str | None) -> tuple[str, ...]:
    if name is None:
        return ()
    elsewhere = claims.get("_claim_names")
    if isinstance(elsewhere, Mapping) and name in elsewhere:
        # The provider has left out the groups of a user with many groups. Without them, team budgets would not count.
        raise refuse("it does not contain the user's groups, because there are too many")
    value = _find_claim(claims, name)
    groups = [] if value is None else value if isinstance(value, list) else [value]
    if len(groups) > _MAX_GROUPS:
        raise refuse(f"it contains more than {_MAX_GROUPS} groups")
    return tuple(dict.fromkeys(_check_name(group, "a group") for group in groups))


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key and the only algorithm with which it may be used."""

    key: RSAPublicKey | EllipticCurvePublicKey
    algorithm: str


class SigningKeys:
    """The cached public keys of an identity provider, by id. `clock` returns seconds that never go back.

    The keys are fetched again when they are ten minutes old, and when a token names an unknown key, which happens after
    the provider has replaced its keys. While the provider cannot be reached, the cached keys stay valid for a day.
    Fetches are at least 30 seconds apart, so that forged tokens cannot make the server flood the provider.
    """

    def __init__(self, section: OidcSection, network: NetworkSection, clock: Callable[[], float]) -> None:
        self._section = section
        self._clock = clock
        self._transport = Transport(
            timeouts=Timeouts(connect=_SECONDS, first_byte=_SECONDS, first_byte_local=_SECONDS, idle=_SECONDS),
            proxy=network.proxy,
            ca_bundle=network.ca_bundle,
            max_response_bytes=_MAX_BODY_BYTES,
        )
        self._keys: Mapping[str, SigningKey] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._fetch_task: asyncio.Task[None] | None = None

    async def find(self, key_id: str) -> SigningKey:
        """Return the key with this id. Raises TokenRefused if the provider has no such key or cannot be reached."""
        if self._is_older_than(MAX_AGE_SECONDS) or key_id not in self._keys:
            await self.refresh()
        if self._is_older_than(MAX_OUTAGE_SECONDS):
            raise TokenRefused(
                "The token could not be checked, because the identity provider cannot be reached. Try again later.",
                is_outage=True,
            )
        if key_id not in self._keys:
            raise refuse("the identity provider has no such key")
        return self._keys[key_id]

    async def refresh(self) -> None:
        """Fetch the keys, unless the last attempt was less than 30 seconds ago. A failure is logged.

        Simultaneous callers share one fetch. If a caller is cancelled, the fetch continues, because a client could
        otherwise use up the only attempt of these 30 seconds by closing its connection.
        """
        if self._fetch_task is None or self._fetch_task.done():
            if self._tried_at is not None and self._clock() - self._tried_at < MIN_INTERVAL_SECONDS:
                return
            self._tried_at = self._clock()
            self._fetch_task = asyncio.create_task(self._replace_keys())
        await asyncio.shield(self._fetch_task)

    async def aclose(self) -> None:
        """Cancel a running fetch, and close the connections."""
        if self._fetch_task is not None:
            self._fetch_task.cancel()
            await asyncio.gather(self._fetch_task, return_exceptions=True)
        await self._transport.aclose()

    def _is_older_than(self, seconds: float) -> bool:
        return self._fetched_at is None or self._clock() - self._fetched_at > seconds

    async def _replace_keys(self) -> None:
        try:
            self._keys = parse_key_set(await self._fetch_key_set())
        except TransportFailed as error:
            _log.warning("the keys of the identity provider cannot be fetched: %s", error)
        else:
            self._fetched_at = self._clock()

    async def _fetch_key_set(self) -> Mapping[str, Any]:
        """Return the provider's key set, a JSON object with the list `keys`. Raises TransportFailed."""
        try:
            async with asyncio.timeout(_SECONDS):
                key_set = await self._fetch_object(self._section.jwks_url or await self._discover_address())
        except TimeoutError:
            raise TransportFailed(f"the identity provider sent no answer within {_SECONDS:g} seconds.") from None
        if not isinstance(key_set.get("keys"), list):
            raise TransportFailed("the answer contains no list of keys.")
        return key_set

    async def _discover_address(self) -> str:
        """Return the address of the keys from the provider's configuration, which must name the same issuer."""
        issuer = self._section.issuer
        found = await self._fetch_object(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise TransportFailed("the identity provider's configuration names another issuer. Check `issuer`.")
        address = found.get("jwks_uri")
        if not isinstance(address, str):
            raise TransportFailed("the identity provider's configuration names no `jwks_uri`.")
        if (problem := find_address_problem(address)) is not None:
            raise TransportFailed(f"the `jwks_uri` of the identity provider cannot be used: {problem}.")
        return address

    async def _fetch_object(self, url: str) -> Mapping[str, Any]:
        async with self._transport.get(url, _HEADERS) as answer:
            body = await answer.read(_MAX_BODY_BYTES)
            if answer.status != 200:
                raise TransportFailed(f"the identity provider answered with status {answer.status}.")
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise TransportFailed("the identity provider's answer is not a JSON object.")
        return content


class OidcVerifier:
    """The verifier of tokens of one identity provider, for `[serve.oidc]`. Call `aclose` at the end.

    `clock` returns seconds since the epoch, and `key_clock` the age of the keys.
    """

    def __init__(
        self,
        section: OidcSection,
        network: NetworkSection,
        clock: Callable[[], float] = time.time,
        key_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._section = section
        self._clock = clock
        self._keys = SigningKeys(section, network, key_clock)

    async def aclose(self) -> None:
        await self._keys.aclose()

    async def verify(self, token: str) -> VerifiedToken:
        """Return the identity in a token. Raises TokenRefused with a message that contains no part of the token."""
        if not token.isascii() or len(token) > _MAX_TOKEN_BYTES:
            raise refuse(f"it is not a token of at most {_MAX_TOKEN_BYTES // 1024} KiB")
        key_id, algorithm = _read_header(token)
        key = await self._keys.find(key_id)
        if algorithm != key.algorithm:
            raise refuse("its algorithm does not fit its key")
        claims = self._decode(token, key)
        expiry = read_expiry(claims)
        self._check_times(claims, expiry)
        return VerifiedToken(build_identity(claims, self._section), expiry + LEEWAY_SECONDS)

    def _decode(self, token: str, key: SigningKey) -> Mapping[str, Any]:
        # `_check_times` checks the times, because PyJWT reads the clock itself.
        options: Any = {"require": _REQUIRED_CLAIMS, "verify_exp": False, "verify_nbf": False, "verify_iat": False}
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm],
                audience=self._section.audience,
                issuer=self._section.issuer,
                options=options,
            )
            _check_names(token)
        except jwt.InvalidSignatureError:
            raise refuse("its signature is invalid") from None
        except jwt.MissingRequiredClaimError:
            raise refuse("a required claim is missing") from None
        except jwt.InvalidIssuerError:
            raise refuse("another provider has issued it") from None
        except jwt.InvalidAudienceError:
            raise refuse("it is meant for another service") from None
        except Exception:  # noqa: BLE001 - a token is hostile input; whatever it causes, the token is refused
            raise _build_malformed_error() from None
        return claims

    def _check_times(self, claims: Mapping[str, Any], expiry: float) -> None:
        now = self._clock()
        if now >= expiry + LEEWAY_SECONDS:
            raise refuse("it has expired")
        for name in ("nbf", "iat"):
            begin = claims.get(name)
            if begin is None:
                continue
            if type(begin) not in (int, float) or not now + LEEWAY_SECONDS >= begin:
                raise refuse("it is not valid yet")


def _read_header(token: str) -> tuple[str, str]:
    """Return the key id and the algorithm in the header, which is not verified yet. Raises TokenRefused."""
    try:
        header = jwt.get_unverified_header(token)
    except Exception:  # noqa: BLE001 - a token is hostile input; whatever it causes, the token is refused
        raise _build_malformed_error() from None
    key_id, algorithm, kind = header.get("kid"), header.get("alg"), header.get("typ", "JWT")
    if algorithm not in _ALGORITHMS:
        raise refuse(f"its algorithm is not one of {', '.join(_ALGORITHMS)}")
    if not isinstance(kind, str) or kind.lower() not in _TOKEN_TYPES:
        raise refuse("its type is not that of a token for users")
    if "crit" in header or "b64" in header:
        raise refuse("it needs an extension that is not supported")
    if not isinstance(key_id, str) or not key_id:
        raise refuse("it names no key (`kid`)")
    return key_id, str(algorithm)


def _check_names(token: str) -> None:
    """Raise ValueError if an object in the token has two values of one name. Readers would disagree about the value."""

    def build(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a name is used twice")
        return dict(pairs)

    for part in token.split(".")[:2]:
        json.loads(base64url_decode(part), object_pairs_hook=build)


def _build_malformed_error() -> TokenRefused:
    return refuse("it is not a JSON Web Token")


def parse_key_set(key_set: Mapping[str, Any]) -> dict[str, SigningKey]:
    """Return the keys of a key set that can verify RS256 or ES256 signatures. Other keys are ignored."""
    keys: dict[str, SigningKey] = {}
    for entry in key_set["keys"][:_MAX_KEYS]:
        if isinstance(entry, dict) and isinstance(key_id := entry.get("kid"), str):
            key = _parse_key(entry)
            if key is not None:
                keys[key_id] = key
    return keys


def _parse_key(entry: dict[str, Any]) -> SigningKey | None:
    algorithm = {"RSA": "RS256", "EC": "ES256"}.get(str(entry.get("kty")))
    if algorithm is None or entry.get("use", "sig") != "sig" or entry.get("alg", algorithm) != algorithm:
        return None
    try:
        key = jwt.PyJWK.from_dict(entry, algorithm).key
    except Exception:  # noqa: BLE001 - PyJWT and cryptography raise many types for an invalid key
        return None
    if isinstance(key, RSAPublicKey) and key.key_size >= _MIN_RSA_BITS:
        return SigningKey(key, algorithm)
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return SigningKey(key, algorithm)
    return None
