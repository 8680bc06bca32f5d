"""The server for `--tcp` and `--ws`. This module checks the options, listens, and prints the address and the token.

The address goes to standard error, like the log. Only a generated token goes to standard output, so that it does not
appear in the log.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import socket
import stat
import sys
from contextlib import suppress
from ipaddress import ip_address

from thinklsp.cli.client_identification import create_verifier
from thinklsp.cli.logs import set_up_logs
from thinklsp.cli.serve_telemetry import Telemetry, TelemetryError, create_telemetry
from thinklsp.core.errors import SettingsError
from thinklsp.core.import_context import reduce_gc
from thinklsp.lsp.transport.sockets import Listen, ListenConfig, listen_tcp, serve_sockets
from thinklsp.sessions.state_folder import is_owned
from thinklsp.settings.serve_section import ServeSection
from thinklsp.settings.sources import load_user_settings

_MAX_PORT = 65535
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:]+)):(?P<port>[0-9]{1,5})")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s*?#]+")
# A token contains only characters that need no escaping in a header, a query or the name of a subprotocol.
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,512}")


class _UsageError(Exception):
    """An error for invalid or contradictory options, with a message for the user."""


class _ListenError(Exception):
    """An error for a server that cannot listen for clients, with a message for the user."""


def serve(args: argparse.Namespace) -> int:
    """Run the server and return the exit code. Raises SystemExit(2) for wrong usage."""
    try:
        entrance, metrics = _parse_options(args)
        return _serve(args, entrance, create_telemetry(metrics, os.environ), _load_section())
    except _UsageError as error:
        args.wrong(str(error))
    except (_ListenError, SettingsError, TelemetryError) as error:
        sys.stderr.write(f"thinklsp: {error}\n")
    return 1


def _load_section() -> ServeSection:
    """Return `[serve]` of the user's file. A file with a mistake stops the server, because its limits would be lost."""
    return load_user_settings(os.environ).file.serve


def _serve(args: argparse.Namespace, entrance: ListenConfig, telemetry: Telemetry, section: ServeSection) -> int:
    set_up_logs()
    with reduce_gc():
        # Import all modules before the first client connects. `reduce_gc` exempts existing objects from garbage
        # collection, but clients' objects must be collected.
        import thinklsp.lsp.commands  # noqa: F401, PLC0415 - loaded here, before the first client

        listen: Listen = listen_tcp
        if args.ws is not None:
            from thinklsp.lsp.transport.websocket import listen_ws  # noqa: PLC0415 - only this kind of server needs it

            listen = listen_ws

    def announce() -> None:
        _announce(args, entrance)

    return serve_sockets(
        listen, entrance, section, announce, observer=telemetry.observer, open_monitor=telemetry.open_monitor
    )


def _parse_options(args: argparse.Namespace) -> tuple[ListenConfig, socket.socket | None]:
    """Return the configuration of the server, and the socket for metrics if there is one."""
    if args.no_token and args.tcp is None:
        raise _UsageError("--no-token works only with --tcp, because web pages can reach a WebSocket")
    if args.no_token and args.token_file:
        raise _UsageError("--no-token and --token-file are mutually exclusive")
    if args.allow_origin and args.ws is None:
        raise _UsageError("--allow-origin works only with --ws")
    origins = frozenset(origin.lower() for origin in args.allow_origin)
    for origin in sorted(origins):
        if _ORIGIN.fullmatch(origin) is None:
            raise _UsageError(f"{origin!r} is not an origin; use a form like https://ide.example.com")
    family, address = _parse_address(args, args.tcp if args.ws is None else args.ws)
    if args.no_token and not ip_address(address[0]).is_loopback:
        raise _UsageError("--no-token works only with a loopback address")
    metrics = None
    if args.metrics is not None:
        metrics = _parse_address(args, args.metrics if ":" in args.metrics else f"127.0.0.1:{args.metrics}")
    verifier = create_verifier(args, load_user_settings(os.environ))
    token = None if verifier is not None or args.no_token else _choose_token(args)
    config = ListenConfig(_bind_socket(family, address), token, origins, verifier)
    return config, None if metrics is None else _bind_socket(*metrics)


def _choose_token(args: argparse.Namespace) -> str:
    return _read_token(args.token_file) if args.token_file else secrets.token_urlsafe(32)


def _parse_address(args: argparse.Namespace, text: str) -> tuple[socket.AddressFamily, tuple[str, int]]:
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > _MAX_PORT:
        raise _UsageError("invalid address: use HOST:PORT, for example 127.0.0.1:9000 or [::1]:9000")
    family, address = _resolve_address(match["six"] or match["host"], int(match["port"]))
    if not ip_address(address[0]).is_loopback and not args.listen_publicly:
        raise _UsageError(f"other machines can reach {address[0]}; to allow this, add --listen-publicly")
    return family, address


def _resolve_address(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise _ListenError(f"The host {host} has no address.") from None
    return family, (str(address[0]), port)


def _bind_socket(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    try:
        return socket.create_server(address, family=family)
    except OSError as error:
        raise _ListenError(f"Cannot listen on {address[0]}:{address[1]}: {os.strerror(error.errno or 0)}.") from None


def _read_token(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            text = file.read(4096).decode("ascii", "replace").strip() if stat.S_ISREG(status.st_mode) else ""
    except OSError as error:
        raise _ListenError(f"The token file {path} cannot be read: {error.strerror}.") from None
    if not stat.S_ISREG(status.st_mode):
        raise _ListenError(f"The token file {path} is not a regular file.")
    if not is_owned(status):
        raise _ListenError(f"The token file {path} belongs to another user.")
    if status.st_mode & 0o077:
        raise _ListenError(f"Other users can read or change the token file {path}. Run `chmod 600 {path}`.")
    if _TOKEN.fullmatch(text) is None:
        raise _ListenError(
            f"The token file {path} must contain 16 to 512 letters, digits or characters of `._~-`, and nothing else. "
            f"To create a token, run `openssl rand -hex 32 > {path}`."
        )
    return text


def _announce(args: argparse.Namespace, entrance: ListenConfig) -> None:
    """Print the token and then the address. A program that has read the address can therefore also read the token."""
    if entrance.token is not None and not args.token_file:
        print(f"token: {entrance.token}", flush=True)
    # Redirect standard output to standard error, because standard output must contain only the token.
    sys.stdout.flush()
    with suppress(OSError):
        os.dup2(2, 1)
    host, port = entrance.socket.getsockname()[:2]
    shown_host = f"[{host}]" if ":" in host else host
    sys.stderr.write(f"thinklsp: listening on {'tcp' if args.ws is None else 'ws'}://{shown_host}:{port}\n")
    sys.stderr.flush()
