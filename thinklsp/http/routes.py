"""Routes to providers.

A route consists of the direct connection or the proxy, and the trusted certificates. The proxy comes from the user's
configuration or the environment, and is never used for connections to this machine.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi
import httpx

from thinklsp import __version__
from thinklsp.core.errors import TransportFailed
from thinklsp.http.read_batching import BatchingNetwork

_POOL_LIMITS = httpx.Limits(max_connections=64, max_keepalive_connections=8, keepalive_expiry=60.0)


@dataclass(frozen=True, slots=True)
class Route:
    """The route to a host.

    `is_local` is true if the host is this machine, in which case `SSL_CERT_DIR` is ignored. `proxy` is the proxy's URL.
    `uses_tls` is true if the URL's scheme is `https`, so that certificates must be loaded.
    """

    is_local: bool
    proxy: str | None
    uses_tls: bool


def check_url(url: str) -> SplitResult:
    """Parse a URL and check that it is allowed.

    HTTPS is allowed for any host, and HTTP only for this machine. User names are not allowed.

    Raises TransportFailed with a message that contains the URL's host but no other part of the URL. The error is not
    retryable.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - reading the property raises ValueError if the port is invalid
    except ValueError:
        raise _build_error("The provider's base URL is invalid; it should look like https://host.") from None
    host = parts.hostname or ""
    if not host or parts.scheme not in ("https", "http"):
        raise _build_error(
            "The provider's base URL must start with https://, or http:// for this machine, and contain a host name."
        )
    if "@" in parts.netloc:
        raise _build_error(
            f"The base URL for {host} contains a user name or password; set the API key separately instead."
        )
    if parts.scheme == "http" and not is_loopback(host):
        raise _build_error(
            f"Refusing plain HTTP to {host}, because anyone on the network could read the traffic. Use https://, or a "
            "tunnel that ends on this machine (ssh -L)."
        )
    return parts


def is_loopback(host: str) -> bool:
    """Return whether the host is `localhost` or a loopback address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _build_error(message: str) -> TransportFailed:
    return TransportFailed(message, retryable=False)


def find_route(target: SplitResult, proxy: str | None) -> Route:
    """Return the route to a URL. `proxy` comes from the user's configuration and overrides the environment.

    The environment is read with `urllib`, because httpx does not recognize all loopback addresses and ignores the
    operating system's proxy exceptions.
    """
    host, tls = target.hostname or "", target.scheme == "https"
    if is_loopback(host):
        return Route(is_local=True, proxy=None, uses_tls=tls)
    if proxy is None and not proxy_bypass(host):
        proxies = getproxies()
        proxy = proxies.get(target.scheme) or proxies.get("all")
    return Route(is_local=False, proxy=proxy, uses_tls=tls)


def open_client(route: Route, ca_bundle: str | None) -> httpx.AsyncClient:
    """Return a new HTTP client for a route.

    Raises OSError, ValueError or httpx.InvalidURL if the proxy or the certificates are invalid.
    """
    transport = _BatchingTransport(
        verify=build_trust(route, ca_bundle) if route.uses_tls else False,
        trust_env=False,
        limits=_POOL_LIMITS,
        proxy=None if route.proxy is None else _make_proxy(route.proxy, ca_bundle),
    )
    headers = {"user-agent": f"thinklsp/{__version__}", "accept-encoding": "identity"}
    return httpx.AsyncClient(transport=transport, trust_env=False, follow_redirects=False, headers=headers)


class _BatchingTransport(httpx.AsyncHTTPTransport):
    """A transport that batches reads.

    httpx has no public option for a network backend. A test checks that the private attribute still exists.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._pool._network_backend = BatchingNetwork()  # noqa: SLF001 - see the class docstring


def build_trust(route: Route, ca_bundle: str | None) -> ssl.SSLContext:
    """Return the TLS context for a route. Raises OSError or ValueError if the user's certificates are invalid."""
    file, folder = _find_user_certificates(ca_bundle)
    folder = None if route.is_local else folder
    return ssl.create_default_context(cafile=file, capath=folder) if file or folder else load_default_trust()


def _find_user_certificates(ca_bundle: str | None) -> tuple[str | None, str | None]:
    """Return the user's certificate file, or the user's certificate folder if no file is configured."""
    file = ca_bundle or os.environ.get("SSL_CERT_FILE")
    return file, None if file else os.environ.get("SSL_CERT_DIR")


@cache
def load_default_trust() -> ssl.SSLContext:
    """Return a TLS context that trusts the well-known certificate authorities.

    The context is cached, because loading the certificates takes longer than a request.
    """
    return ssl.create_default_context(cafile=certifi.where())


def _make_proxy(address: str, ca_bundle: str | None) -> httpx.Proxy:
    url, trust = resolve_proxy(address, ca_bundle)
    return httpx.Proxy(url, ssl_context=trust)


def resolve_proxy(address: str, ca_bundle: str | None) -> tuple[str, ssl.SSLContext | None]:
    """Return the URL of a proxy and the TLS context for the connection to the proxy, if the connection uses TLS.

    Raises OSError or ValueError if the proxy or the certificates are invalid.
    """
    try:
        url = httpx.URL(address if "://" in address else f"http://{address}")
    except httpx.InvalidURL:
        raise ValueError("the proxy address is invalid") from None
    if url.scheme.startswith("socks") and find_spec("socksio") is None:
        raise ValueError("this kind of proxy requires the package `socksio`, which is not installed")
    if not url.host:
        raise ValueError("the proxy address has no host")
    if url.scheme != "https":
        return str(url), None
    # A proxy's certificate may come from a well-known authority or from the user's own authority, so trust both.
    trust = ssl.create_default_context(cafile=certifi.where())
    file, folder = _find_user_certificates(ca_bundle)
    if file or folder:
        trust.load_verify_locations(file, folder)
    return str(url), trust
