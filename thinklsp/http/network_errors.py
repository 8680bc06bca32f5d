"""Error messages for network failures. Each message names the cause and the host, and suggests a solution if possible.

The messages never include the text of an exception, because it may contain a URL. Only the exception's type and the
types of its causes are used.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from errno import EMFILE, ENFILE
from urllib.parse import SplitResult

import httpx

from thinklsp.core.errors import HeaderRefused, TransportFailed

NETWORK_ERRORS = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError)


def format_host(parts: SplitResult) -> str:
    """Format the host and the port, if any, for error messages."""
    host = parts.hostname or "the provider"
    return f"{host}:{parts.port}" if parts.port else host


def to_transport_error(error: Exception, host: str, *, uses_proxy: bool = False) -> TransportFailed:
    """Convert one of `NETWORK_ERRORS` to a TransportFailed error with a message for the user."""
    cause = _explain_cause(error, host, is_connecting=isinstance(error, httpx.ConnectError), uses_proxy=uses_proxy)
    if cause is not None:
        return cause
    match error:
        case httpx.ConnectTimeout():
            return TransportFailed(f"Connecting to {host} timed out; check your network.")
        case httpx.WriteTimeout():
            return TransportFailed(f"Sending the request to {host} timed out.")
        case httpx.PoolTimeout():
            return TransportFailed(f"Other turns are using all connections to {host}; try again later.")
        case httpx.ReadTimeout():
            return TransportFailed(f"{host} did not answer in time.")
        case httpx.ProxyError():
            return _build_proxy_error(str(error)[:3], host)
        case httpx.ConnectError():
            return TransportFailed(f"Cannot connect to {host}; check your network.")
        case httpx.LocalProtocolError():
            return build_header_error()
        case httpx.UnsupportedProtocol() | httpx.InvalidURL():
            return build_address_error(host)
        case _:
            return TransportFailed(f"The connection to {host} was lost.")


def build_header_error() -> HeaderRefused:
    return HeaderRefused(
        "The request could not be created: your API key or a configured header contains a character that HTTP does not "
        "allow.",
        retryable=False,
    )


def build_address_error(host: str) -> TransportFailed:
    return TransportFailed(f"The address of {host} is invalid; check the base URL.", retryable=False)


def _explain_cause(
    error: Exception, host: str, *, is_connecting: bool, uses_proxy: bool = False
) -> TransportFailed | None:
    """Return an error if an operating system or TLS error caused the failure, or None otherwise.

    `uses_proxy` is true if the connection goes to a proxy instead of the host itself.
    """
    if (full := explain_file_limit(error)) is not None:
        return full
    causes = list(_iterate_causes(error))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        owner = f"{host}, or for the proxy in front of it," if uses_proxy else host
        return TransportFailed(
            f"The certificate for {owner} could not be verified. For a self-signed or company certificate, set "
            "`SSL_CERT_FILE`, or `ca_bundle` under [network] in your config.toml, to the file with the "
            "certificates to trust.",
            retryable=False,
        )
    if is_connecting and any(_is_tls_rejection(cause) for cause in causes):
        return TransportFailed(f"Cannot open a secure connection to {host}: the TLS handshake failed.", retryable=False)
    if uses_proxy and any(isinstance(cause, socket.gaierror | ConnectionRefusedError) for cause in causes):
        return TransportFailed(
            f"The proxy for {host} is unreachable. Check that it is running, and check `HTTPS_PROXY` or `proxy` under "
            "[network] in your config.toml."
        )
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return TransportFailed(f"The host name {host} could not be resolved; check the network and the base URL.")
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return TransportFailed(
            f"{host} refused the connection. Check that the server is running, that no firewall blocks it, and that "
            "the base URL is correct."
        )
    return None


def _build_proxy_error(status: str, host: str) -> TransportFailed:
    """Return the error for a proxy failure.

    `status` is the HTTP status that the proxy returned, as text.
    """
    proxy = f"The proxy for {host}"
    if status == "407":
        return TransportFailed(
            f"{proxy} requires a user name and password, or rejected the given credentials. Put them in the proxy's "
            "address, as in http://name:password@proxy:port, in `HTTPS_PROXY` or `proxy` under [network] in your "
            "config.toml.",
            retryable=False,
        )
    status_note = f" (status {status})" if status.isdigit() else ""
    return TransportFailed(
        f"{proxy} refused to connect{status_note}. Check that it allows this host, and check `HTTPS_PROXY` or `proxy` "
        "under [network] in your config.toml.",
        retryable=not status.startswith("4"),
    )


def explain_file_limit(error: Exception) -> TransportFailed | None:
    """Return an error if too many files are open in the process or on the machine, or None otherwise."""
    if any(isinstance(cause, OSError) and cause.errno in (EMFILE, ENFILE) for cause in _iterate_causes(error)):
        return TransportFailed("Too many files and connections are open; wait until other turns have ended.")
    return None


def _is_tls_rejection(cause: BaseException) -> bool:
    """Return whether the server rejected the TLS handshake. A timeout or a lost connection is not a rejection."""
    transient = (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
    return isinstance(cause, ssl.SSLError) and not isinstance(cause, transient)


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and all of its causes."""
    pending: list[BaseException] = [error]
    visited: set[int] = set()
    while pending:
        cause = pending.pop()
        if id(cause) in visited:
            continue
        visited.add(id(cause))
        yield cause
        pending += [link for link in (cause.__cause__, cause.__context__) if link is not None]
        if isinstance(cause, BaseExceptionGroup):
            pending += cause.exceptions
