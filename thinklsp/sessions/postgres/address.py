"""The address of a PostgreSQL store, with the options that thinklsp adds to it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from thinklsp import __version__
from thinklsp.core.errors import SessionError

# A failed server is noticed within seconds, and only the primary of several hosts is used.
_DEFAULTS: Mapping[str, Any] = {
    "target_session_attrs": "read-write",
    "connect_timeout": 2,
    "tcp_user_timeout": 3000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "application_name": f"thinklsp/{__version__}",
}


def build_conninfo(url: str) -> str:
    """Return the address with the options that it lacks.

    Raises SessionError if the address is invalid, or if it allows a connection to another machine without a verified
    certificate.
    """
    try:
        options = conninfo_to_dict(url)
    except ProgrammingError:
        # The message of the library contains the address with its password.
        raise SessionError(
            "The address of the session store is invalid. Use postgresql://USER@HOST:PORT/DATABASE in [store] url."
        ) from None
    added: dict[str, Any] = {key: value for key, value in _DEFAULTS.items() if key not in options}
    if not all(map(_is_local, _list_hosts(options))):
        mode = options.get("sslmode")
        if mode not in (None, "verify-full"):
            raise SessionError(
                f"The address of the session store sets sslmode={mode}. Use sslmode=verify-full, because the "
                "database is on another machine."
            )
        added["sslmode"] = "verify-full"
        if "sslrootcert" not in options:
            added["sslrootcert"] = "system"
    return make_conninfo(url, **added)


def describe_address(url: str) -> str:
    """Return the hosts and the database of an address, without its user and its password."""
    options = conninfo_to_dict(url)
    ports = str(options.get("port") or 5432).split(",")
    hosts = _list_hosts(options)
    if len(ports) < len(hosts):
        ports *= len(hosts)
    places = ",".join(f"{host or 'localhost'}:{port}" for host, port in zip(hosts, ports, strict=False))
    return f"postgresql://{places}/{options.get('dbname') or ''}"


def _list_hosts(options: Mapping[str, Any]) -> list[str]:
    return str(options.get("host") or "").split(",")


def _is_local(host: str) -> bool:
    """Return True for a Unix socket and for an address of this machine."""
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
