"""The offline model over HTTP on 127.0.0.1, for other programs that use Anthropic's Messages API."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from thinklsp.core.errors import ThinkLspError
from thinklsp.offline.answer import OfflineResponse
from thinklsp.offline.service import OfflineService

_HOST = "127.0.0.1"
_MAX_BODY_BYTES = 32 * 1024 * 1024


class OfflineServer(ThreadingHTTPServer):
    """An HTTP server for an offline service. `report` receives a line of text for each request.

    Raises ThinkLspError if the port is in use.
    """

    daemon_threads = True

    def __init__(self, service: OfflineService, port: int, report: Callable[[str], None]) -> None:
        try:
            super().__init__((_HOST, port), _RequestHandler)
        except OSError as error:
            raise ThinkLspError(f"The simulator cannot listen on {_HOST}:{port}: {error.strerror}.") from None
        self.service = service
        self.report = report

    @property
    def base_url(self) -> str:
        return f"http://{_HOST}:{self.server_port}"


class _RequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OfflineServer

    def _respond(self) -> None:
        length = self.headers.get("content-length", "")
        # Python refuses to convert very long numbers.
        is_fair = length.isdecimal() and len(length) < 10 and int(length) <= _MAX_BODY_BYTES
        if self.command == "POST" and not is_fair:
            self.send_error(413, f"The request needs a Content-Length of at most {_MAX_BODY_BYTES} bytes")
            return
        body = self.rfile.read(int(length)) if self.command == "POST" else b""
        headers = {name.lower(): value for name, value in self.headers.items()}
        response = self.server.service.respond(self.command, urlsplit(self.path).path, headers, body)
        outcome = str(response.status)
        try:
            self._send(response)
        except ConnectionError:
            outcome = "interrupted" if response.breaks else "the client disconnected"
            self.close_connection = True
        self.server.report(
            f"{self.command} {self.path}: {outcome}" + (f" ({response.label})" if response.label else "")
        )

    def _send(self, response: OfflineResponse) -> None:
        time.sleep(response.pacing.delay_ms / 1000)
        self.send_response(response.status)
        for name, value in {**response.headers, "transfer-encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()
        for wait, data in response.play():
            time.sleep(wait)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = _respond  # noqa: N815 - the names of `http.server`

    def log_message(self, *_: object) -> None:
        """Write nothing to standard error."""
