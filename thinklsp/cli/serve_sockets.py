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
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, NoReturn

from thinklsp.cli.logs import set_up_logs
from thinklsp.core.errors import SettingsError, ThinkLspError, format_install_command
from thinklsp.core.import_context import reduce_gc
from thinklsp.core.server_context import NO_OBSERVER, Observer
from thinklsp.engine.session_stores import open_session_store
from thinklsp.identity.tokens import TokenVerifier
from thinklsp.lsp.transport.sockets import ConnectionRegistry, Listen, ListenConfig, listen_tcp, serve_sockets
from thinklsp.sessions.postgres import PostgresStore, require_packages
from thinklsp.sessions.state_folder import is_owned
from thinklsp.sessions.store import SessionStore
from thinklsp.settings.config_files import explain_unused_paths
from thinklsp.settings.sources import load_user_settings
from thinklsp.settings.user_file import UserSettings
from thinklsp.telemetry import combine_observers

if TYPE_CHECKING:
    from thinklsp.telemetry.metrics import MetricsObserver
    from thinklsp.telemetry.traces import TraceObserver

_MAX_PORT = 65535
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:]+)):(?P<port>[0-9]{1,5})")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s*?#]+")
# A token contains only characters that need no escaping in a header, a query or the name of a subprotocol.
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,512}")

_OIDC = "[serve.oidc] in your config.toml"
_VERIFIER_REQUIREMENT = "pyjwt[crypto]>=2.10.1,<3"
_METRICS_REQUIREMENT = "prometheus-client>=0.21,<1"
_TRACES_REQUIREMENTS = ("opentelemetry-sdk>=1.30,<2", "opentelemetry-exporter-otlp-proto-http>=1.30,<2")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"


class _UsageError(Exception):
    """An error for invalid or contradictory options, with a message for the user."""


def serve(args: argparse.Namespace) -> int:
    """Run the server and return the exit code. Raises SystemExit(2) for wrong usage."""
    try:
        user = _load_settings()
        config, metrics_socket = _parse_options(args, user)
        return _serve(args, config, create_telemetry(metrics_socket, os.environ), user)
    except _UsageError as error:
        args.wrong(str(error))
    except ThinkLspError as error:
        _print(str(error))
    return 1


def _load_settings() -> UserSettings:
    """Return the user's settings, and print problems.

    A file that is not used or has a mistake stops the server, because its limits would be lost. Raises ThinkLspError.
    """
    if unused := explain_unused_paths(os.environ):
        raise ThinkLspError(f"The server was not started: {unused[0]}")
    user = load_user_settings(os.environ)
    for problem in user.problems:
        _print(problem)
    return user


def _serve(args: argparse.Namespace, config: ListenConfig, telemetry: Telemetry, user: UserSettings) -> int:
    set_up_logs()
    with reduce_gc():
        # Import all modules before the first client connects. `reduce_gc` exempts existing objects from garbage
        # collection, but clients' objects must be collected.
        import thinklsp.lsp.commands  # noqa: F401, PLC0415 - loaded here, before the first client

        if isinstance(telemetry.store, PostgresStore):
            require_packages()
        listen: Listen = listen_tcp
        if args.ws is not None:
            from thinklsp.lsp.transport.websocket import listen_ws  # noqa: PLC0415 - only this kind of server needs it

            listen = listen_ws
    return serve_sockets(
        listen,
        config,
        user.file.serve,
        lambda: _announce(args, config),
        observer=telemetry.observer,
        open_monitor=telemetry.open_monitor,
    )


def _parse_options(args: argparse.Namespace, user: UserSettings) -> tuple[ListenConfig, socket.socket | None]:
    """Return the configuration of the server, and the socket for metrics if there is one."""
    origins = frozenset(origin.lower() for origin in args.allow_origin)
    wrong_origin = next((origin for origin in sorted(origins) if _ORIGIN.fullmatch(origin) is None), None)
    for is_wrong, problem in (
        (
            args.no_token and args.tcp is None,
            "--no-token works only with --tcp, because web pages can reach a WebSocket",
        ),
        (args.no_token and args.token_file, "--no-token and --token-file are mutually exclusive"),
        (args.allow_origin and args.ws is None, "--allow-origin works only with --ws"),
        (wrong_origin, f"{wrong_origin!r} is not an origin; use a form like https://ide.example.com"),
    ):
        if is_wrong:
            raise _UsageError(problem)
    family, address = _parse_address(args, args.tcp if args.ws is None else args.ws)
    if args.no_token and not ip_address(address[0]).is_loopback:
        raise _UsageError("--no-token works only with a loopback address")
    metrics = None
    if args.metrics is not None:
        metrics = _parse_address(args, args.metrics if ":" in args.metrics else f"127.0.0.1:{args.metrics}")
    verifier = _create_verifier(args, user)
    token = None
    if verifier is None and not args.no_token:
        token = _read_token(args.token_file) if args.token_file else secrets.token_urlsafe(32)
    config = ListenConfig(_bind_socket(family, address), token, origins, verifier)
    return config, None if metrics is None else _bind_socket(*metrics)


def _parse_address(args: argparse.Namespace, text: str) -> tuple[socket.AddressFamily, tuple[str, int]]:
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > _MAX_PORT:
        raise _UsageError("invalid address: use HOST:PORT, for example 127.0.0.1:9000 or [::1]:9000")
    host = match["six"] or match["host"]
    try:
        family, _, _, _, address = socket.getaddrinfo(host, int(match["port"]), type=socket.SOCK_STREAM)[0]
    except OSError:
        raise ThinkLspError(f"The host {host} has no address.") from None
    if not ip_address(address[0]).is_loopback and not args.listen_publicly:
        raise _UsageError(f"other machines can reach {address[0]}; to allow this, add --listen-publicly")
    return family, (str(address[0]), int(address[1]))


def _bind_socket(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    try:
        return socket.create_server(address, family=family)
    except OSError as error:
        raise ThinkLspError(f"Cannot listen on {address[0]}:{address[1]}: {os.strerror(error.errno or 0)}.") from None


def _read_token(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            text = file.read(4096).decode("ascii", "replace").strip() if stat.S_ISREG(status.st_mode) else ""
    except OSError as error:
        raise ThinkLspError(f"The token file {path} cannot be read: {error.strerror}.") from None
    content = "must contain 16 to 512 letters, digits or characters of `._~-`, and nothing else"
    for is_wrong, problem in (
        (not stat.S_ISREG(status.st_mode), "is not a regular file."),
        (not is_owned(status), "belongs to another user."),
        (status.st_mode & 0o077, f"can be read or changed by other users. Run `chmod 600 {path}`."),
        (_TOKEN.fullmatch(text) is None, f"{content}. To create a token, run `openssl rand -hex 32 > {path}`."),
    ):
        if is_wrong:
            raise ThinkLspError(f"The token file {path} {problem}")
    return text


def _create_verifier(args: argparse.Namespace, user: UserSettings) -> TokenVerifier | None:
    """Return the verifier of users' tokens, or None if one user's token protects the server. Raises SettingsError.

    The section never loses its effect silently, because the server would then serve its clients as one user.
    """
    section = user.file.serve.oidc
    if section is None:
        return None
    if args.ws is None:
        raise SettingsError("serve.oidc", f"{_OIDC} identifies users only on a WebSocket. Use --ws.")
    if args.token_file:
        raise SettingsError("serve.oidc", f"{_OIDC} and --token-file are mutually exclusive. Remove one of them.")
    try:
        from thinklsp.identity.jwt_verifier import OidcVerifier  # noqa: PLC0415 - only a server with OIDC needs it
    except ImportError:
        _refuse_missing(_OIDC, _VERIFIER_REQUIREMENT)
    return OidcVerifier(section, user.file.network)


@dataclass(frozen=True)
class Telemetry:
    """The observers of a server: metrics with `--metrics`, and traces if the environment names a receiver."""

    listening: socket.socket | None
    metrics: MetricsObserver | None
    traces: TraceObserver | None
    store: SessionStore

    @property
    def observer(self) -> Observer:
        observers = [observer for observer in (self.metrics, self.traces) if observer is not None]
        return combine_observers(observers) if len(observers) > 1 else next(iter(observers), NO_OBSERVER)

    @asynccontextmanager
    async def open_monitor(self, registry: ConnectionRegistry) -> AsyncIterator[None]:
        """Serve health and metrics until the context is exited. Then send the remaining spans."""
        async with AsyncExitStack() as stack:
            if self.traces is not None:
                stack.push_async_callback(self.traces.flush)
            if self.listening is not None and self.metrics is not None:
                from thinklsp.telemetry.health import serve_health  # noqa: PLC0415 - only with metrics

                health = serve_health(self.listening, self.metrics, registry.explain_unready, self.store)
                await stack.enter_async_context(health)
                _print(f"metrics on http://{_format_address(self.listening)}/metrics")
            yield


def create_telemetry(listening: socket.socket | None, environment: Mapping[str, str]) -> Telemetry:
    """Return the telemetry of the process. `listening` is the socket for metrics. Raises ThinkLspError.

    Neither `prometheus_client` nor `opentelemetry` is imported unless it is needed.
    """
    metrics = None
    if listening is not None:
        try:
            from thinklsp.telemetry.metrics import MetricsObserver  # noqa: PLC0415 - only with metrics
        except ImportError:
            _refuse_missing("--metrics", _METRICS_REQUIREMENT)
        metrics = MetricsObserver()
    traces = _create_traces(environment) if has_trace_receiver(environment) else None
    # The probe of the store has a store of its own, as each client has.
    return Telemetry(listening, metrics, traces, open_session_store(environment))


def has_trace_receiver(environment: Mapping[str, str]) -> bool:
    """Return whether the environment variables of OpenTelemetry name a receiver of traces."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = [name.strip() for name in environment.get("OTEL_TRACES_EXPORTER", "otlp").split(",")]
    return "otlp" in exporters and any(environment.get(name, "").strip() for name in _ENDPOINTS)


def _create_traces(environment: Mapping[str, str]) -> TraceObserver | None:
    """Return the observer, or None after a warning. The variables may be meant for another program."""
    protocol = next((environment[name].strip() for name in _PROTOCOLS if environment.get(name)), _PROTOCOL)
    if protocol != _PROTOCOL:
        _print(f"no traces are sent, because thinklsp cannot use {protocol!r}. Set {_PROTOCOLS[1]}={_PROTOCOL}.")
        return None
    try:
        from thinklsp.telemetry.traces import create_observer  # noqa: PLC0415 - only with traces
    except ImportError:
        _print(f"no traces are sent. To send them, run {format_install_command(*_TRACES_REQUIREMENTS)}.")
        return None
    return create_observer(environment)


def _announce(args: argparse.Namespace, config: ListenConfig) -> None:
    """Print the token and then the address. A program that has read the address can therefore also read the token."""
    if config.token is not None and not args.token_file:
        print(f"token: {config.token}", flush=True)
    # Redirect standard output to standard error, because standard output must contain only the token.
    sys.stdout.flush()
    with suppress(OSError):
        os.dup2(2, 1)
    _print(f"listening on {'tcp' if args.ws is None else 'ws'}://{_format_address(config.socket)}")


def _format_address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _print(sentence: str) -> None:
    sys.stderr.write(f"thinklsp: {sentence}\n")
    sys.stderr.flush()


def _refuse_missing(subject: str, requirement: str) -> NoReturn:
    raise ThinkLspError(f"{subject} needs one more package. Run {format_install_command(requirement)}.") from None
