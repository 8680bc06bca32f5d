"""Opens the door for `--tcp` and `--ws`: the address, the token, and who is told of them.

The address goes to standard error, where the log goes too. A token that is made here goes to standard output, alone,
so that no log of the server ever holds it.
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

from thinklsp.cli.logs import set_up_logs
from thinklsp.core.loading import uncollected
from thinklsp.lsp.serving.sockets import Entrance, serve_sockets
from thinklsp.sessions.state_folder import is_mine

_HIGHEST_PORT = 65535
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:]+)):(?P<port>[0-9]{1,5})")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s*?#]+")
# What a header, a query and the name of a subprotocol can hold as it is.
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,512}")


class _Wrong(Exception):
    """Options that do not go together, or that nobody can read. `str(error)` says so."""


class _Closed(Exception):
    """Nobody can come in. `str(error)` is the sentence."""


def serve(args: argparse.Namespace) -> int:
    """Wrong usage raises SystemExit(2)."""
    try:
        return _serve(args, _entrance(args))
    except _Wrong as error:
        args.wrong(str(error))
    except _Closed as error:
        sys.stderr.write(f"thinklsp: {error}\n")
    return 1


def _serve(args: argparse.Namespace, entrance: Entrance) -> int:
    set_up_logs()
    with uncollected():
        # Before anybody comes in: nothing of a client may be left out of collection.
        import thinklsp.lsp.face  # noqa: PLC0415 - see above
        import thinklsp.lsp.protocol.whole  # noqa: F401, PLC0415 - see above

        if args.ws is not None:
            # Its library is imported by those alone who need it.
            from thinklsp.lsp.serving.websocket import listening  # noqa: PLC0415 - see above
        else:
            from thinklsp.lsp.serving.tcp import listening  # noqa: PLC0415 - see above
    return serve_sockets(listening, entrance, lambda: _tell(args, entrance))


def _entrance(args: argparse.Namespace) -> Entrance:
    if args.no_token and args.tcp is None:
        raise _Wrong("--no-token goes with --tcp alone: pages in a browser can reach a WebSocket")
    if args.no_token and args.token_file:
        raise _Wrong("--no-token excludes --token-file: leave one of them out")
    if args.allow_origin and args.ws is None:
        raise _Wrong("--allow-origin goes with --ws")
    origins = frozenset(origin.lower() for origin in args.allow_origin)
    for origin in sorted(origins):
        if _ORIGIN.fullmatch(origin) is None:
            raise _Wrong(f"{origin!r} is no origin; write it as browsers do, such as https://ide.example.com")
    match = _ADDRESS.fullmatch(args.tcp if args.ws is None else args.ws)
    if match is None or int(match["port"]) > _HIGHEST_PORT:
        raise _Wrong("an address is HOST:PORT, such as 127.0.0.1:9000 or [::1]:9000")
    family, address = _resolved(match["six"] or match["host"], int(match["port"]))
    if not ip_address(address[0]).is_loopback:
        if not args.listen_publicly:
            raise _Wrong(f"other machines can reach {address[0]}; if that is what you want, add --listen-publicly")
        if args.no_token:
            raise _Wrong("--no-token goes with an address of this machine alone")
    token = None if args.no_token else _token_in(args.token_file) if args.token_file else secrets.token_urlsafe(32)
    return Entrance(_bound(family, address), token, origins)


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise _Closed(f"There is no address for {host}.") from None
    return family, (str(address[0]), port)


def _bound(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    try:
        return socket.create_server(address, family=family)
    except OSError as error:
        raise _Closed(f"{address[0]}:{address[1]} cannot be listened on: {os.strerror(error.errno or 0)}.") from None


def _token_in(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            text = file.read(4096).decode("ascii", "replace").strip() if stat.S_ISREG(status.st_mode) else ""
    except OSError as error:
        raise _Closed(f"The token file {path} cannot be read: {error.strerror}.") from None
    if not stat.S_ISREG(status.st_mode):
        raise _Closed(f"The token file {path} is not a file.")
    if not is_mine(status):
        raise _Closed(f"The token file {path} belongs to another user.")
    if status.st_mode & 0o077:
        raise _Closed(f"The token file {path} can be read or changed by others. Run chmod 600 {path}.")
    if _TOKEN.fullmatch(text) is None:
        raise _Closed(
            f"The token file {path} must hold 16 to 512 letters, digits and . _ ~ -, and nothing else. To make one: "
            f"openssl rand -hex 32 > {path}"
        )
    return text


def _tell(args: argparse.Namespace, entrance: Entrance) -> None:
    """The token goes first: whoever has read the address can read it too."""
    if entrance.token is not None and not args.token_file:
        print(f"token: {entrance.token}", flush=True)
    # Whatever else prints goes to the log.
    sys.stdout.flush()
    with suppress(OSError):
        os.dup2(2, 1)
    host, port = entrance.socket.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    sys.stderr.write(f"thinklsp: listening on {'tcp' if args.ws is None else 'ws'}://{shown}:{port}\n")
    sys.stderr.flush()
