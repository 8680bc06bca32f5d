"""What an agent must keep beyond the shape of each message: order, capabilities, tool calls, sizes.

`AgentChecker` sees every line of the agent and every message of the client, and collects `violations`. Shares no code
with the product.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.acp.schema_check import find_faults, kind_of

Json = Any
MAX_LINE_BYTES = 1 << 20
MAX_CHUNK_BYTES = 32_000
MAX_RAW_INPUT_BYTES = 16_384
CHUNKS = {"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"}
# The method of the agent -> the capability of the client that it needs. None: it needs none.
NEEDED: dict[str, tuple[str, ...] | None] = {
    "session/request_permission": None,
    "fs/read_text_file": ("fs", "readTextFile"),
    "fs/write_text_file": ("fs", "writeTextFile"),
    "elicitation/create": ("elicitation", "form"),
}
KINDS_NEED = {"notice": ("session", "notices")} | dict.fromkeys(
    ("compaction_update", "compaction_summary_chunk"), ("session", "compaction")
)
_STATUSES = ("pending", "in_progress", "completed", "failed")


@dataclass
class Tool:
    """A tool call as the client knows it: what it began with, and each change since."""

    members: Json
    statuses: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        return self.statuses[-1]

    @property
    def has_ended(self) -> bool:
        return self.status in ("completed", "failed")


@dataclass
class SessionView:
    """A session as the client knows it. `costs`: all that were told, in their order."""

    tools: dict[str, Tool] = field(default_factory=dict)
    costs: list[float] = field(default_factory=list)
    prompts: set[Json] = field(default_factory=set)


class AgentChecker:
    """One connection. `capabilities` are those that the client has announced."""

    def __init__(self) -> None:
        self.capabilities: Json = {}
        self.violations: list[str] = []
        self.sessions: dict[str, SessionView] = {}
        self._asked: dict[Json, Json] = {}
        self._loading: dict[Json, str] = {}
        self._open: set[Json] = set()

    def blame(self, what: str) -> None:
        self.violations.append(what)

    def announces(self, path: tuple[str, ...]) -> bool:
        value = self.capabilities
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value is not None and value is not False

    # What the client sends

    def sent(self, message: Json) -> None:
        if not isinstance(message, dict):
            return
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if "method" in message and "id" in message:
            self._asked[message["id"]] = message
            method, session = message["method"], params.get("sessionId")
            if method == "initialize":
                announced = params.get("clientCapabilities")
                self.capabilities = announced if isinstance(announced, dict) else {}
            elif method in ("session/load", "session/resume") and isinstance(session, str):
                self._loading[message["id"]] = session
                if method == "session/load" and not self._is_busy(session):
                    self.sessions[session] = SessionView()
            elif method == "session/prompt" and session in self.sessions:
                self.sessions[session].prompts.add(message["id"])
        elif "id" in message:
            self._open.discard(message["id"])

    def _is_busy(self, session: str) -> bool:
        return session in self.sessions and bool(self.sessions[session].prompts)

    # What the agent sends

    def line(self, line: bytes) -> Json | None:
        """Check a line; return its message, if it has one."""
        if len(line) > MAX_LINE_BYTES:
            self.blame(f"a line of {len(line)} bytes: {line[:80]!r}")
        try:
            message = json.loads(line.decode("utf-8"))
        except ValueError:
            self.blame(f"a line that is not JSON in UTF-8: {line[:200]!r}")
            return None
        if not isinstance(message, dict):
            self.blame(f"a line that is not a message: {line[:200]!r}")
            return None
        kind = kind_of(message)
        asked = self._asked.get(_key(message)) if kind in ("result", "error") else None
        for fault in find_faults(message, asked["method"] if asked else None):
            self.blame(f"{fault} in {json.dumps(message, ensure_ascii=False):.300}")
        if kind in ("result", "error"):
            self._answer(message, asked)
        elif isinstance(message.get("params"), dict):
            (self._request if kind == "request" else self._notification)(message)
        return message

    def _answer(self, message: Json, asked: Json) -> None:
        if "error" in message:
            self._error(message["error"])
        if asked is None:
            if not (message.get("id") is None and "error" in message):
                self.blame(f"an answer that nobody waits for: {message!r:.200}")
            return
        del self._asked[message["id"]]
        params = asked.get("params")
        session = params.get("sessionId") if isinstance(params, dict) else None
        self._loading.pop(message["id"], None)
        result = message.get("result")
        if asked["method"] == "session/prompt" and session in self.sessions:
            self._turn_ended(session, message["id"])
        if not isinstance(result, dict):
            return
        if asked["method"] == "session/new":
            self.sessions[str(result.get("sessionId"))] = SessionView()
        elif asked["method"] in ("session/load", "session/resume"):
            self.sessions.setdefault(str(session), SessionView())
        elif asked["method"] in ("session/close", "session/delete"):
            self.sessions.pop(str(session), None)
        self._options(result.get("configOptions"))

    def _error(self, error: Json) -> None:
        text = str(error.get("message", "")) + json.dumps(error.get("data"))
        for sign in ("Traceback", "site-packages", "Error(", "pydantic", '.py\\"'):
            if sign in text:
                self.blame(f"an error that shows the inside: {text:.300}")

    def _turn_ended(self, session: str, identity: Json) -> None:
        view = self.sessions[session]
        view.prompts.discard(identity)
        running = [tool.members.get("title") for tool in view.tools.values() if not tool.has_ended]
        if running and not view.prompts:
            self.blame(f"tool calls that run on after the turn: {running}")

    def _request(self, message: Json) -> None:
        identity, method, params = _key(message), message["method"], message["params"]
        if identity in self._open:
            self.blame(f"id {identity!r} is in use")
        self._open.add(identity)
        needed = NEEDED.get(method, ("no such capability",))
        if needed is not None and not self.announces(needed):
            self.blame(f"{method}, which the client has not announced")
        session = params.get("sessionId")
        if session is not None and not self._is_busy(session):
            self.blame(f"{method} for a session without a running prompt")
        if method == "session/request_permission":
            self._permission(params)
        path = params.get("path")
        if path is not None and not str(path).startswith("/"):
            self.blame(f"{method} with the path {path!r}")

    def _permission(self, params: Json) -> None:
        options, call = params.get("options", []), params.get("toolCall", {})
        ids = [option.get("optionId") for option in options]
        if not ids or len(set(ids)) < len(ids):
            self.blame(f"the options of a permission: {ids}")
        view = self.sessions.get(params.get("sessionId"), SessionView())
        tool = view.tools.get(call.get("toolCallId"))
        if tool is None:
            self.blame(f"a permission for an unknown tool call: {call!r:.200}")
        elif not call.get("content") and not call.get("rawInput"):
            self.blame(f"a permission that shows nothing: {call!r:.200}")
        kind = None if tool is None else tool.members.get("kind")
        kinds = {option.get("kind") for option in options}
        # Other questions, such as those of the model, have answers of their own.
        if kind in ("edit", "execute") and not {"allow_once", "reject_once"} <= kinds:
            self.blame(f"a permission that cannot be allowed or rejected once: {options}")
        if tool is not None and tool.members.get("kind") == "edit":
            for name in ("content", "locations"):
                if call.get(name) != tool.members.get(name) or not call.get(name):
                    self.blame(f"a permission whose {name} are not those of its tool call")

    def _notification(self, message: Json) -> None:
        if message["method"] != "session/update":
            return
        session, update = message["params"].get("sessionId"), message["params"].get("update", {})
        if session not in self.sessions and session not in self._loading.values():
            self.blame(f"an update of a session that the client does not know: {update!r:.200}")
            return
        view = self.sessions.setdefault(session, SessionView())
        kind = update.get("sessionUpdate")
        if kind in KINDS_NEED and not self.announces(KINDS_NEED[kind]):
            self.blame(f"{kind}, which the client has not announced")
        if kind in CHUNKS:
            self._chunk(update)
        elif kind in ("tool_call", "tool_call_update"):
            self._tool(view, kind, update)
        elif kind == "usage_update" and isinstance(cost := (update.get("cost") or {}).get("amount"), int | float):
            if view.costs and cost < view.costs[-1]:
                self.blame(f"a cost that falls from {view.costs[-1]} to {cost}")
            view.costs.append(cost)
        elif kind == "config_option_update":
            self._options(update.get("configOptions"))

    def _chunk(self, update: Json) -> None:
        text = update.get("content", {}).get("text", "")
        if not update.get("messageId"):
            self.blame(f"a chunk without messageId: {update!r:.200}")
        try:
            size = len(str(text).encode())
        except UnicodeEncodeError:
            self.blame(f"a chunk that ends inside a code point: {update!r:.200}")
            return
        if size > MAX_CHUNK_BYTES or not size:
            self.blame(f"a chunk of {size} bytes")

    def _tool(self, view: SessionView, kind: str, update: Json) -> None:
        identity, status = update.get("toolCallId"), update.get("status")
        if kind == "tool_call":
            if identity in view.tools:
                self.blame(f"a second tool call {identity!r}")
            view.tools[identity] = Tool(dict(update), [status or "pending"])
        elif identity not in view.tools:
            self.blame(f"an update of an unknown tool call {identity!r}")
            return
        tool = view.tools[identity]
        if kind == "tool_call_update":
            if tool.has_ended:
                self.blame(f"an update of a tool call that has ended: {update!r:.200}")
            if status is not None:
                if status in _STATUSES and _STATUSES.index(status) < _STATUSES.index(tool.status):
                    self.blame(f"a tool call goes back from {tool.status} to {status}")
                tool.statuses.append(status)
            tool.members |= {name: value for name, value in update.items() if value is not None}
        self._places(update)
        if len(json.dumps(update.get("rawInput"), ensure_ascii=False).encode()) > MAX_RAW_INPUT_BYTES:
            self.blame(f"rawInput of more than {MAX_RAW_INPUT_BYTES} bytes")

    def _places(self, update: Json) -> None:
        for place in update.get("locations") or []:
            if not str(place.get("path")).startswith("/") or place.get("line", 1) in (0, None):
                self.blame(f"location {place!r}")
        for part in update.get("content") or []:
            if part.get("type") == "diff" and not str(part.get("path")).startswith("/"):
                self.blame(f"a diff of {part.get('path')!r}")

    def _options(self, options: Json) -> None:
        for option in options or []:
            if option.get("type") == "boolean" and not self.announces(("session", "configOptions", "boolean")):
                self.blame(f"a boolean option, which the client has not announced: {option.get('id')}")
            values = [value.get("value") for value in option.get("options", [])]
            if option.get("type") == "select" and option.get("currentValue") not in values:
                self.blame(f"option {option.get('id')} has {option.get('currentValue')!r}, which is not in {values}")

    def finish(self) -> None:
        """Call at the end of a connection that the client has closed in order."""
        for identity, message in self._asked.items():
            self.blame(f"no answer to {message['method']} with id {identity!r}")


def _key(message: Json) -> Json:
    """Return the id, or None for one that no client can have sent."""
    identity = message.get("id")
    return identity if isinstance(identity, str | int) and not isinstance(identity, bool) else None
