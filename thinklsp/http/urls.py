"""Which URLs the transport may speak to. Pure: no look-up of names, no I/O."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from thinklsp.core.errors import TransportFailed


def check_url(url: str) -> SplitResult:
    """The parts of a URL that may be used: https anywhere, http on loopback, no user name in it.

    Raises TransportFailed, not worth a retry, and repeats nothing of the URL but its host.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - reading it raises ValueError where the port is no number
    except ValueError:
        raise _refused("The base URL of the service cannot be read; it should look like https://host.") from None
    host = parts.hostname or ""
    if not host or parts.scheme not in ("https", "http"):
        raise _refused(
            "The base URL of the service must begin with https://, or http:// for this machine, and name a host."
        )
    if "@" in parts.netloc:
        raise _refused(f"The base URL for {host} holds a user name or password; give the key as a key instead.")
    if parts.scheme == "http" and not is_loopback(host):
        raise _refused(
            f"{host} would be spoken to over plain http, where anybody on the way can read along; use https://, or a "
            "tunnel that ends on this machine (ssh -L)."
        )
    return parts


def is_loopback(host: str) -> bool:
    """This machine by address (127.0.0.0/8, ::1) or as `localhost`."""
    return host == "localhost" or (is_address(host) and ip_address(host).is_loopback)


def is_address(host: str) -> bool:
    """And no name, which may have several."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _refused(sentence: str) -> TransportFailed:
    return TransportFailed(sentence, retryable=False)
