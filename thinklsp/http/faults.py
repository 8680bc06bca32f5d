"""Failures of the network as sentences for people: what happened, with which host, what to do about it.

The texts of libraries are not passed on: they may hold URLs. Only types are read, of an error and all behind it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from errno import EMFILE, ENFILE
from urllib.parse import SplitResult

import httpx

from thinklsp.core.errors import HeaderRefused, TransportFailed

FAULTS = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError)


def spoken_host(parts: SplitResult) -> str:
    """The host for sentences, with its port where the URL names one."""
    host = parts.hostname or "the service"
    return f"{host}:{parts.port}" if parts.port else host


def explain(fault: Exception, host: str, *, proxied: bool = False) -> TransportFailed:
    """What one of `FAULTS` means."""
    known = _explain_cause(fault, host, connecting=isinstance(fault, httpx.ConnectError), proxied=proxied)
    if known is not None:
        return known
    match fault:
        case httpx.ConnectTimeout():
            return TransportFailed(f"No connection to {host} came about in time: check the network.")
        case httpx.WriteTimeout():
            return TransportFailed(f"{host} took in the request too slowly: sending it timed out.")
        case httpx.PoolTimeout():
            return TransportFailed(f"All connections to {host} are in use by other turns.")
        case httpx.ReadTimeout():
            return TransportFailed(f"{host} did not answer in time.")
        case httpx.ProxyError():
            return _refused_by_proxy(str(fault)[:3], host)
        case httpx.ConnectError():
            return TransportFailed(f"No connection to {host}: check the network.")
        case httpx.LocalProtocolError():
            return bad_header()
        case httpx.UnsupportedProtocol() | httpx.InvalidURL():
            return bad_address(host)
        case _:
            return TransportFailed(f"The connection to {host} broke off.")


def bad_header() -> HeaderRefused:
    return HeaderRefused(
        "The request could not be put together: the key or a header of the user's configuration holds a character "
        "that HTTP does not allow.",
        retryable=False,
    )


def bad_address(host: str) -> TransportFailed:
    return TransportFailed(f"The address of {host} cannot be used; check the base URL.", retryable=False)


def _explain_cause(fault: Exception, host: str, *, connecting: bool, proxied: bool = False) -> TransportFailed | None:
    """What the operating system or the TLS library said behind the error; None when they said nothing telling.

    `proxied`: what was looked for and connected to is a proxy, and not the host.
    """
    if (full := explain_full(fault)) is not None:
        return full
    causes = list(_causes(fault))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        whose = f"{host}, or of the proxy on the way to it," if proxied else host
        return TransportFailed(
            f"The certificate of {whose} could not be verified. Where it is the server's own or a company proxy's, set "
            "SSL_CERT_FILE, or `ca_bundle` under [network] in your config.toml, to the certificates to trust.",
            retryable=False,
        )
    if connecting and any(_is_tls_refusal(cause) for cause in causes):
        return TransportFailed(f"No secure connection to {host}: the TLS handshake failed.", retryable=False)
    if proxied and any(isinstance(cause, socket.gaierror | ConnectionRefusedError) for cause in causes):
        return TransportFailed(
            f"The proxy on the way to {host} could not be reached: check that it runs, and HTTPS_PROXY or `proxy` "
            "under [network] in your config.toml."
        )
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return TransportFailed(f"The name {host} could not be found: check the network and the base URL.")
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return TransportFailed(
            f"{host} refused the connection: nothing listens there, or a firewall is in the way. Check that the server "
            "runs, and the base URL."
        )
    return None


def _refused_by_proxy(status: str, host: str) -> TransportFailed:
    """`status`: that of its answer, where it speaks HTTP; the library tells it in its text alone."""
    proxy = f"The proxy on the way to {host}"
    if status == "407":
        return TransportFailed(
            f"{proxy} asks for a name and a password, or does not take those that it was given. They belong into its "
            "address, as in http://name:password@proxy:port, in HTTPS_PROXY or `proxy` under [network] in your "
            "config.toml.",
            retryable=False,
        )
    told = f" (status {status})" if status.isdigit() else ""
    return TransportFailed(
        f"{proxy} would not connect{told}: check that it lets you reach this host, and HTTPS_PROXY or `proxy` under "
        "[network] in your config.toml.",
        retryable=not status.startswith("4"),
    )


def explain_full(fault: Exception) -> TransportFailed | None:
    """Where the process may open no more files and sockets; else None."""
    if any(isinstance(cause, OSError) and cause.errno in (EMFILE, ENFILE) for cause in _causes(fault)):
        return TransportFailed("Too many files and connections are open; wait for other turns to end.")
    return None


def _is_tls_refusal(cause: BaseException) -> bool:
    """A handshake that ran out of time or was cut is no refusal: the next one may succeed."""
    passing = (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
    return isinstance(cause, ssl.SSLError) and not isinstance(cause, passing)


def _causes(fault: BaseException) -> Iterator[BaseException]:
    """The error and everything behind it, members of groups included."""
    pending: list[BaseException] = [fault]
    seen: set[int] = set()
    while pending:
        cause = pending.pop()
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        pending += [link for link in (cause.__cause__, cause.__context__) if link is not None]
        if isinstance(cause, BaseExceptionGroup):
            pending += cause.exceptions
