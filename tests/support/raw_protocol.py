"""The checker of all traffic between the raw client and the server: what LSP 3.17 forbids, written down as it happens.

It only watches. Violations are sentences in `violations`; a test fails when there is one. Shares no code with the
product.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Json = Any
_BEFORE_INITIALIZE = {"window/showMessage", "window/logMessage", "telemetry/event", "window/showMessageRequest"}


@dataclass
class Token:
    """One progress token. `request` is the id of the client's request that brought it, None if the server made it."""

    request: int | None
    state: Literal["offered", "begun", "ended", "expired"] = "offered"
    percentage: int = -1
    work_done: bool = True


@dataclass
class TrafficChecker:
    violations: list[str] = field(default_factory=list)
    tokens: dict[Any, Token] = field(default_factory=dict)
    open_requests: dict[int, str] = field(default_factory=dict)
    _answered: set[int] = field(default_factory=set)
    _server_ids: set[Any] = field(default_factory=set)
    _creating: dict[Any, Any] = field(default_factory=dict)
    _initialized: bool = False

    def blame(self, sentence: str) -> None:
        self.violations.append(sentence)

    def forget(self) -> None:
        """Tokens that have come to their end."""
        self.tokens = {name: token for name, token in self.tokens.items() if token.state in ("offered", "begun")}

    # What the client sends

    def sent(self, message: Json) -> None:
        if "method" not in message:
            self._answer_sent(message)
        elif "id" in message:
            self.open_requests[message["id"]] = message["method"]
            self._take_tokens(message["id"], message.get("params"))

    def _take_tokens(self, request: int, params: Json) -> None:
        if not isinstance(params, dict):
            return
        arguments = params.get("arguments")
        first = arguments[0] if isinstance(arguments, list) and arguments else None
        for holder in (params, first if isinstance(first, dict) else {}):
            if isinstance(holder.get("workDoneToken"), str | int):
                self.tokens[holder["workDoneToken"]] = Token(request)
            if isinstance(holder.get("partialResultToken"), str | int):
                # A partial result token inside a command's argument outlives the reply: it belongs to the turn.
                bound = request if holder is params else None
                self.tokens[holder["partialResultToken"]] = Token(bound, work_done=False)

    def _answer_sent(self, message: Json) -> None:
        token = self._creating.pop(message["id"], None)
        if token is not None and "error" not in message:
            self.tokens[token] = Token(None)

    # What the server sends

    def received(self, message: Json) -> None:
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            self.blame(f"not a JSON-RPC 2.0 message: {str(message)[:200]}")
        elif "method" in message:
            self._call(message)
        else:
            self._reply(message)

    def _call(self, message: Json) -> None:
        method = message["method"]
        if not self._initialized and method not in _BEFORE_INITIALIZE:
            self.blame(f"{method} before initialize was answered")
        if "id" in message:
            if message["id"] in self._server_ids:
                self.blame(f"the server used the request id {message['id']!r} twice")
            self._server_ids.add(message["id"])
            if method == "window/workDoneProgress/create":
                self._create(message)
        elif method == "$/progress":
            self._progress(message["params"]["token"], message["params"]["value"])

    def _create(self, message: Json) -> None:
        token = message["params"]["token"]
        if token in self.tokens:
            self.blame(f"the token {token!r} is created although it exists")
        self._creating[message["id"]] = token

    def _reply(self, message: Json) -> None:
        identity = message.get("id")
        if ("result" in message) == ("error" in message):
            self.blame(f"an answer needs either result or error: {str(message)[:200]}")
        if identity is None:
            return  # The answer to something that carried no readable id.
        if identity in self._answered:
            self.blame(f"request {identity} was answered twice")
        elif identity not in self.open_requests:
            self.blame(f"an answer to the request {identity!r}, which was never sent")
        else:
            if self.open_requests.pop(identity) == "initialize" and "result" in message:
                self._initialized = True
            self._answered.add(identity)
            self._expire(identity)

    def _expire(self, request: int) -> None:
        for name, token in self.tokens.items():
            if token.request == request:
                if token.state == "begun":
                    self.blame(f"request {request} was answered before the progress of {name!r} had ended")
                token.state = "expired"

    def _progress(self, name: Any, value: Json) -> None:
        token = self.tokens.get(name)
        if token is None:
            self.blame(f"progress for {name!r}, which nobody offered or the client did not accept")
        elif not token.work_done:
            if token.state != "offered":
                self.blame(f"partial result for {name!r} after it was {token.state}")
            if isinstance(value, dict) and value.get("kind") == "finished":
                token.state = "ended"
        else:
            self._work_done(name, token, value)

    def _work_done(self, name: Any, token: Token, value: Json) -> None:
        match value.get("kind"), token.state:
            case "begin", "offered":
                token.state = "begun"
                if not value.get("title"):
                    self.blame(f"progress {name!r} begins without a title")
            case "report", "begun":
                pass
            case "end", "begun":
                token.state = "ended"
            case kind, state:
                self.blame(f"progress {name!r}: {kind!r} while {state}")
        percentage = value.get("percentage")
        if percentage is not None:
            if not token.percentage <= percentage <= 100:
                self.blame(f"progress {name!r}: percentage {percentage} after {token.percentage}")
            token.percentage = percentage

    def finish(self) -> None:
        """Called when the server has gone: what is still open now stays open for ever."""
        for identity, method in self.open_requests.items():
            self.blame(f"request {identity} ({method}) was never answered")
        for name, token in self.tokens.items():
            if token.state == "begun":
                self.blame(f"the progress of {name!r} never ended")
