"""The ways out: straight or by a proxy, and whose certificates are trusted on them.

Proxies come from the user's option or the environment and are never used for loopback.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi
import httpcore

from thinklsp.wire.network import Network
from thinklsp.wire.urls import is_loopback

_MOST, _MOST_IDLE, _IDLE_SECONDS = 64, 8, 60.0


@dataclass(frozen=True, slots=True)
class Way:
    """`here`: to this machine, whose certificates only `SSL_CERT_FILE` vouches for. `proxy`: its URL. `tls`: the
    target speaks it, so certificates have to be read."""

    here: bool
    proxy: str | None
    tls: bool


def way_to(target: SplitResult, proxy: str | None) -> Way:
    """`proxy` is the user's option, which stands above the environment."""
    host, tls = target.hostname or "", target.scheme == "https"
    if is_loopback(host):
        return Way(here=True, proxy=None, tls=tls)
    if proxy is None and not proxy_bypass(host):
        named = getproxies()
        proxy = named.get(target.scheme) or named.get("all")
    return Way(here=False, proxy=proxy, tls=tls)


def new_pool(way: Way, ca_bundle: str | None) -> httpcore.AsyncConnectionPool:
    """Raises OSError or ValueError where the proxy or the certificates cannot be used."""
    return httpcore.AsyncConnectionPool(
        ssl_context=_trust(way, ca_bundle) if way.tls else None,
        proxy=None if way.proxy is None else _proxy(way.proxy, ca_bundle),
        max_connections=_MOST,
        max_keepalive_connections=_MOST_IDLE,
        keepalive_expiry=_IDLE_SECONDS,
        network_backend=Network(),
    )


def _trust(way: Way, ca_bundle: str | None) -> ssl.SSLContext:
    file, folder = _named(ca_bundle)
    folder = None if way.here else folder
    return ssl.create_default_context(cafile=file, capath=folder) if file or folder else well_known()


def _named(ca_bundle: str | None) -> tuple[str | None, str | None]:
    """The file, else the folder, of certificates that somebody has named."""
    file = ca_bundle or os.environ.get("SSL_CERT_FILE")
    return file, None if file else os.environ.get("SSL_CERT_DIR")


@cache
def well_known() -> ssl.SSLContext:
    """Trust in the well-known authorities, whatever the environment says. Reading them takes longer than a request."""
    return ssl.create_default_context(cafile=certifi.where())


def _proxy(address: str, ca_bundle: str | None) -> httpcore.Proxy:
    parts = urlsplit(address if "://" in address else f"http://{address}")
    if parts.scheme not in ("http", "https", "socks5", "socks5h") or not parts.hostname:
        raise ValueError("no address of a proxy")
    if parts.scheme.startswith("socks") and find_spec("socksio") is None:
        raise ValueError("proxies of this kind need a library that is not there")
    auth = (unquote(parts.username or "").encode(), unquote(parts.password or "").encode())
    url = httpcore.URL(scheme=parts.scheme, host=parts.hostname, port=parts.port, target="/")
    trust = None
    if parts.scheme == "https":
        # It may be the company's, or a rented one in front of the company's certificates: either is trusted.
        trust = ssl.create_default_context(cafile=certifi.where())
        file, folder = _named(ca_bundle)
        if file or folder:
            trust.load_verify_locations(file, folder)
    return httpcore.Proxy(url, auth=auth if any(auth) else None, ssl_context=trust)
