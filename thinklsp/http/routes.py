"""Routes to a service: straight or through a proxy, and whose certificates are trusted on them.

Proxies come from the user's option or the environment and are never used for this machine itself.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any
from urllib.parse import SplitResult
from urllib.request import getproxies, proxy_bypass

import certifi
import httpx

from thinklsp import __version__
from thinklsp.http.gathering import GatheringNetwork
from thinklsp.http.urls import is_loopback

_LIMITS = httpx.Limits(max_connections=64, max_keepalive_connections=8, keepalive_expiry=60.0)


@dataclass(frozen=True, slots=True)
class Route:
    """`here`: to this machine, whose certificates only `SSL_CERT_FILE` vouches for. `proxy`: its URL. `tls`: the
    target speaks it, so certificates have to be read."""

    here: bool
    proxy: str | None
    tls: bool


def find_route(target: SplitResult, proxy: str | None) -> Route:
    """Return the route to a URL. `proxy` is the user's option and goes before the environment.

    The environment is read as `urllib` does. httpx has rules of its own: it knows loopback by name only, and no
    `proxy_bypass` of the operating system.
    """
    host, tls = target.hostname or "", target.scheme == "https"
    if is_loopback(host):
        return Route(here=True, proxy=None, tls=tls)
    if proxy is None and not proxy_bypass(host):
        named = getproxies()
        proxy = named.get(target.scheme) or named.get("all")
    return Route(here=False, proxy=proxy, tls=tls)


def open_client(route: Route, ca_bundle: str | None) -> httpx.AsyncClient:
    """Return the client of one route. Raises OSError, ValueError or httpx.InvalidURL if the proxy or the certificates
    cannot be used."""
    transport = _GatheringTransport(
        verify=_make_trust(route, ca_bundle) if route.tls else False,
        trust_env=False,
        limits=_LIMITS,
        proxy=None if route.proxy is None else _make_proxy(route.proxy, ca_bundle),
    )
    headers = {"user-agent": f"thinklsp/{__version__}", "accept-encoding": "identity"}
    return httpx.AsyncClient(transport=transport, trust_env=False, follow_redirects=False, headers=headers)


class _GatheringTransport(httpx.AsyncHTTPTransport):
    """httpx has no public option for how connections read; a test holds this private one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._pool._network_backend = GatheringNetwork()  # noqa: SLF001 - see above


def _make_trust(route: Route, ca_bundle: str | None) -> ssl.SSLContext:
    file, folder = _named_certificates(ca_bundle)
    folder = None if route.here else folder
    return ssl.create_default_context(cafile=file, capath=folder) if file or folder else well_known()


def _named_certificates(ca_bundle: str | None) -> tuple[str | None, str | None]:
    """Return the file, else the folder, of certificates that the user has named."""
    file = ca_bundle or os.environ.get("SSL_CERT_FILE")
    return file, None if file else os.environ.get("SSL_CERT_DIR")


@cache
def well_known() -> ssl.SSLContext:
    """Trust the well-known authorities, whatever the environment says. Reading them takes longer than a request."""
    return ssl.create_default_context(cafile=certifi.where())


def _make_proxy(address: str, ca_bundle: str | None) -> httpx.Proxy:
    url = httpx.URL(address if "://" in address else f"http://{address}")
    if url.scheme.startswith("socks") and find_spec("socksio") is None:
        raise ValueError("proxies of this kind need a library that is not there")
    if not url.host:
        raise ValueError("no address of a proxy")
    if url.scheme != "https":
        return httpx.Proxy(url)
    # It may be the company's, or a rented one in front of the company's certificates: either is trusted.
    trust = ssl.create_default_context(cafile=certifi.where())
    file, folder = _named_certificates(ca_bundle)
    if file or folder:
        trust.load_verify_locations(file, folder)
    return httpx.Proxy(url, ssl_context=trust)
