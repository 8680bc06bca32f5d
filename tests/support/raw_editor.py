"""How an editor answers a language server: what it announces and what it does with the server's requests.

Workspace edits are really applied, to the open documents and to disk, and refused when they are stale. What no
conforming server sends is written down as a violation. Shares no code with the product.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from tests.support.raw_documents import BadEdit, Desk, Document, StaleEdit
from tests.support.raw_protocol import TrafficChecker

Json = Any

VSCODE: dict[str, Any] = {
    "workspace": {
        "applyEdit": True,
        "workspaceEdit": {
            "documentChanges": True,
            "resourceOperations": ["create", "rename", "delete"],
            "failureHandling": "textOnlyTransactional",
            "normalizesLineEndings": False,
            "changeAnnotationSupport": {"groupsOnLabel": True},
        },
        "configuration": True,
        "didChangeConfiguration": {"dynamicRegistration": True},
        "workspaceFolders": True,
        "executeCommand": {"dynamicRegistration": True},
        "codeLens": {"refreshSupport": True},
    },
    "textDocument": {
        "synchronization": {"dynamicRegistration": True, "didSave": True},
        "codeAction": {
            "dynamicRegistration": True,
            "isPreferredSupport": True,
            "disabledSupport": True,
            "dataSupport": True,
            "resolveSupport": {"properties": ["edit"]},
            "codeActionLiteralSupport": {
                "codeActionKind": {"valueSet": ["", "quickfix", "refactor", "refactor.rewrite", "source"]}
            },
            "tagSupport": {"valueSet": [1]},
        },
    },
    "window": {
        "workDoneProgress": True,
        "showMessage": {"messageActionItem": {"additionalPropertiesSupport": True}},
        "showDocument": {"support": True},
    },
    "general": {"positionEncodings": ["utf-16"]},
}


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
    """

    def __init__(
        self,
        checker: TrafficChecker,
        open_document: Callable[[str], Any],
        change: Callable[[Document, list[Json]], None],
    ) -> None:
        self.checker = checker
        self.desk = Desk()
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
