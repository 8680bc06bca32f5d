"""How an editor answers a language server: what it announces and what it does with the server's requests.

Workspace edits are really applied, to the open documents and to disk, and refused when they are stale. What no
conforming server sends is written down as a violation. Shares no code with the product.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal

from tests.support.client.documents import BadEdit, Desk, OnChange, StaleEdit

Json = Any

_SHIPPED = resources.files("pytest_lsp.clients") / "visual_studio_code_v1.65.2.json"
# What VS Code announces, and since then the tags of actions.
VSCODE: dict[str, Any] = json.loads(_SHIPPED.read_text("utf-8"))["capabilities"]
VSCODE["textDocument"]["codeAction"]["tagSupport"] = {"valueSet": [1]}


def capabilities(**changes: Any) -> dict[str, Any]:
    """VS Code's, changed by dotted path with `__` for the dot; None removes: `window__workDoneProgress=False`."""
    result = json.loads(json.dumps(VSCODE))
    for path, value in changes.items():
        *parents, name = path.split("__")
        place = result
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is None:
            place.pop(name, None)
        else:
            place[name] = value
    return dict(result)


class Refusal(Exception):
    """Raised by a handler of a test: the server's request is answered with an error."""


class Editor:
    """`open_document` and `change` are the client's: both tell the server what has happened.

    `settings`: the answer to `workspace/configuration` for the section `thinklsp`. `handlers`: a function of the
    params (plain or async) per method, instead of the built-in answer. `message_answers`: the titles to choose in
    `window/showMessageRequest`, in order; with none left it is dismissed. `applied`: the outcome of each edit.
    `name`: what the client calls itself.
    """

    def __init__(self, checker: TrafficChecker, open_document: Callable[[str], Any], change: OnChange) -> None:
        self.checker = checker
        self.desk = Desk()
        self.name = "VSCodium"  # It confirms annotated operations on files.
        self.capabilities: Json = {}
        self.settings: Json = {}
        self.handlers: dict[str, Callable[[Json], Any]] = {}
        self.message_answers: list[str | None] = []
        self.registrations: list[Json] = []
        self.applied: list[bool] = []
        self._open_document = open_document
        self._change = change
        self._built_in: dict[str, Callable[[Json], Any]] = {
            "workspace/configuration": self._configuration,
            "workspace/applyEdit": self.apply_edit,
            "client/registerCapability": self._register,
            "client/unregisterCapability": self._unregister,
            "window/workDoneProgress/create": self._create_progress,
            "window/showMessageRequest": self._show_message_request,
            "window/showDocument": self._show_document,
            "workspace/codeLens/refresh": self._refresh_lenses,
        }

    async def answer(self, method: str, params: Json) -> Json:
        """The rest of the answer: `{"result": …}` or `{"error": …}`."""
        if method.startswith("thinklsp/editor/") and method.rpartition("/")[2] not in self._own():
            self.checker.blame(f"{method} for a client that does not announce it")
        handler = self.handlers.get(method) or self._built_in.get(method)
        if handler is None:
            return {"error": {"code": -32601, "message": f"no method {method}"}}
        try:
            result = handler(params)
            if inspect.isawaitable(result):
                result = await result
        except Refusal as refusal:
            return {"error": {"code": -32803, "message": str(refusal)}}
        return {"result": result}

    def _own(self) -> list[str]:
        """What it announces beyond LSP."""
        return list(self.capabilities.get("experimental", {}).get("thinklsp", {}).get("editor", []))

    def apply_edit(self, params: Json) -> Json:
        """Applies for real; also for handlers that first do something else."""
        try:
            self._check_form(params["edit"])
            self.desk.apply(params["edit"], self._change)
        except (StaleEdit, BadEdit) as refused:
            if isinstance(refused, BadEdit):
                self.checker.blame(f"applyEdit: {refused}")
            self.applied.append(False)
            return {"applied": False, "failureReason": str(refused)}
        self.applied.append(True)
        return {"applied": True}

    def _check_form(self, edit: Json) -> None:
        workspace = self.capabilities.get("workspace", {})
        announced = workspace.get("workspaceEdit", {})
        if not workspace.get("applyEdit"):
            raise BadEdit("sent to a client that does not announce workspace.applyEdit")
        if "documentChanges" in edit and not announced.get("documentChanges"):
            raise BadEdit("documentChanges for a client that does not announce them")
        kinds = {change["kind"] for change in edit.get("documentChanges", []) if "kind" in change}
        if kinds - set(announced.get("resourceOperations", [])):
            raise BadEdit(f"resource operations that were not announced: {kinds}")
        if edit.get("changeAnnotations") and "changeAnnotationSupport" not in announced:
            raise BadEdit("change annotations for a client that does not announce them")

    def _configuration(self, params: Json) -> list[Json]:
        return [self._section(item.get("section") or "") for item in params["items"]]

    def _section(self, section: str) -> Json:
        value: Json = {"thinklsp": self.settings}
        for name in filter(None, section.split(".")):
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def _register(self, params: Json) -> None:
        self.registrations += params["registrations"]

    def _unregister(self, params: Json) -> None:
        gone = {item["id"] for item in params["unregisterations"]}
        self.registrations = [r for r in self.registrations if r["id"] not in gone]

    def _create_progress(self, params: Json) -> None:
        if not self.capabilities.get("window", {}).get("workDoneProgress"):
            self.checker.blame("a progress token is created for a client that does not announce progress")

    def _refresh_lenses(self, params: Json) -> None:
        if not self.capabilities.get("workspace", {}).get("codeLens", {}).get("refreshSupport"):
            self.checker.blame("lenses are refreshed for a client that does not announce it")
        if params is not None:
            self.checker.blame(f"workspace/codeLens/refresh takes no params: {params!r}")

    def _show_message_request(self, params: Json) -> Json:
        title = self.message_answers.pop(0) if self.message_answers else None
        chosen = [action for action in params.get("actions") or [] if action["title"] == title]
        if title is not None and not chosen:
            self.checker.blame(f"{title!r} is not among the answers of {params}")
        return chosen[0] if chosen else None

    def _show_document(self, params: Json) -> Json:
        if not self.capabilities.get("window", {}).get("showDocument", {}).get("support"):
            self.checker.blame("showDocument for a client that does not announce it")
        if params["uri"] not in self.desk.open:
            self._open_document(params["uri"])
        return {"success": True}


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
    is_shutting_down: bool = False
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
            self.is_shutting_down |= message["method"] == "shutdown"
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
