"""The verification of JSON Web Tokens with PyJWT, which is loaded only if `[serve.oidc]` is configured.

Each key of the provider can be used with one algorithm only, which depends on the kind of the key. So a token can
choose neither `none` nor an algorithm that would use a public key as a shared secret.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.utils import base64url_decode

from thinklsp.core.errors import TokenRefused
from thinklsp.identity.claims import build_identity, read_expiry
from thinklsp.identity.key_fetcher import KeyFetcher
from thinklsp.identity.signing_keys import SigningKeys
from thinklsp.identity.tokens import LEEWAY_SECONDS, VerifiedToken, refuse
from thinklsp.settings.user_file import NetworkSection, OidcSection

_MAX_TOKEN_BYTES = 16 * 1024
_MAX_KEYS = 100
_MIN_RSA_BITS = 2048
_ALGORITHMS = ("RS256", "ES256")
# The types of tokens that may identify a user. A logout token, for example, has another type.
_TOKEN_TYPES = ("jwt", "at+jwt", "application/at+jwt")
_REQUIRED_CLAIMS = ["iss", "aud", "exp"]


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key and the only algorithm with which it may be used."""

    key: RSAPublicKey | EllipticCurvePublicKey
    algorithm: str


class JwtVerifier:
    """The verifier of tokens of one identity provider. `clock` returns seconds since the epoch."""

    def __init__(
        self, section: OidcSection, keys: SigningKeys[SigningKey], clock: Callable[[], float] = time.time
    ) -> None:
        self._section = section
        self._keys = keys
        self._clock = clock

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


class OidcVerifier:
    """The verifier for `[serve.oidc]`, with the connections to the identity provider. Call `aclose` at the end."""

    def __init__(self, section: OidcSection, network: NetworkSection) -> None:
        self._fetcher = KeyFetcher(section, network)
        self._keys = SigningKeys(self._fetch_keys)
        self.verify = JwtVerifier(section, self._keys).verify

    async def _fetch_keys(self) -> Mapping[str, SigningKey]:
        return parse_key_set(await self._fetcher.fetch_key_set())

    async def aclose(self) -> None:
        await self._keys.aclose()
        await self._fetcher.aclose()
