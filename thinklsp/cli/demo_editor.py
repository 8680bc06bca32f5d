"""The demo's editor: a language client with its own process, open documents, and a screen.

The editor changes files only in the demo's own project. Like a real editor, it checks document versions. On a terminal,
the last lines of the screen are updated in place. They show the streamed text and a status line with the server's
progress. In a file or a pipe, each line is written when it is complete.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import IO, Any, Literal, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.text import Text

from thinklsp import __version__
from thinklsp.cli.terminal import is_live, render_diff, render_plan, render_tool, wrap_paragraph
from thinklsp.core.edits import EditSet, TextEdit, apply_edits, format_diff
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.json_codec import encode_json
from thinklsp.core.lines import split_lines
from thinklsp.core.text_safety import escape_invisible
from thinklsp.jsonrpc.framing import BadFrame, FrameDecoder, build_frame
from thinklsp.workspace.overlay import EditOverlay, apply_to_disk
from thinklsp.workspace.paths import Root
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import WorkspaceView

Json = Mapping[str, Any]
Stream = Literal["text", "thinking"]

_INDENT = 4
_STYLES: Mapping[Stream, str] = {"text": "", "thinking": "dim italic"}
_WORK_DONE_TOKEN, _PARTIAL_RESULT_TOKEN = "demo-work", "demo-partial"
_REQUEST_FAILED = -32803
_WARNING = 2
_SHUTDOWN_SECONDS = 3.0
_CAPABILITIES: Json = {
    "general": {"positionEncodings": ["utf-32"]},
    "window": {"workDoneProgress": True},
    "workspace": {
        "applyEdit": True,
        "workspaceFolders": True,
        "workspaceEdit": {
            "documentChanges": True,
            "resourceOperations": ["create"],
            "changeAnnotationSupport": {},
        },
    },
    "textDocument": {
        "synchronization": {"didSave": True},
        "codeAction": {
            "codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["quickfix", "refactor.rewrite"]}},
        },
    },
}


class DemoFailed(ThinkLspError):
    """A failure of the demo, or an edit that a real editor rejects. The server receives the message of the latter."""


class ServerExited(DemoFailed):
    """A failure caused by a server process that exited too early."""


class LanguageClient:
    """A language client for a single server process.

    `handlers` are called with the parameters of the server's requests and notifications, and return the result. Other
    requests are accepted by responding with null.
    """

    def __init__(self, handlers: Mapping[str, Callable[[Any], object]]) -> None:
        self._handlers = handlers
        self._answers: dict[int, asyncio.Future[Json]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def run_process(
        self, argv: Sequence[str], *, environment: Mapping[str, str], folder: str, log: IO[bytes]
    ) -> AsyncIterator[None]:
        """Start a server and shut it down at the end of the block. `log` receives the server's standard error."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=environment,
            cwd=folder,
            start_new_session=True,  # Ctrl-C must reach only the demo, which then shuts down the server.
        )
        if process.stdin is None or process.stdout is None:
            raise ValueError("the process must be started with pipes")
        self._writer = process.stdin
        self._reading = asyncio.create_task(self._read(process.stdout))
        try:
            yield
            async with asyncio.timeout(_SHUTDOWN_SECONDS):
                await self.request("shutdown", None)
                self.notify("exit", None)
                await process.wait()
        except TimeoutError:
            raise DemoFailed("The server did not exit after `shutdown` and `exit`.") from None
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def request(self, method: str, params: Json | None) -> Any:
        """Send a request and return its result.

        Raises DemoFailed with the server's error message, or ServerExited if the server exits first.
        """
        if self._reading is None:
            raise ValueError("no server has been started")
        number = len(self._answers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._send({"id": number, "method": method, "params": params})
        await asyncio.wait((answer, self._reading), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ServerExited("The server exited before it answered a request.")
        if "error" in answer.result():
            raise DemoFailed(answer.result()["error"]["message"])
        return answer.result()["result"]

    def notify(self, method: str, params: Json | None) -> None:
        self._send({"method": method, "params": params})

    def _send(self, message: Json) -> None:
        if self._writer is not None:
            self._writer.write(build_frame(encode_json({"jsonrpc": "2.0", **message})))

    async def _read(self, stream: asyncio.StreamReader) -> None:
        """Handle all messages of the server. The first invalid message ends the task, and so every open request."""
        decoder = FrameDecoder()
        while data := await stream.read(65_536):
            for body in decoder.feed(data):
                if isinstance(body, BadFrame):
                    raise DemoFailed(body.reason)
                self._receive(json.loads(body))

    def _receive(self, message: Json) -> None:
        if "method" not in message:
            self._answers[message["id"]].set_result(message)
            return
        handler = self._handlers.get(message["method"])
        try:
            reply: Json = {"result": None if handler is None else handler(message.get("params"))}
        except ThinkLspError as refused:
            reply = {"error": {"code": _REQUEST_FAILED, "message": str(refused)}}
        if "id" in message:
            self._send({"id": message["id"], **reply})


class DemoEditor:
    """An editor with one open folder and one server. `edits` contains all received edits, including rejected edits."""

    def __init__(self, root: Root, screen: DemoScreen, *, writes_files: bool) -> None:
        self.screen = screen
        self.client = LanguageClient(
            {
                "workspace/applyEdit": self._apply_edit,
                "window/showMessage": self._show_message,
                "$/progress": self._show_progress,
            }
        )
        self._writes_files = writes_files
        self._uri = path_to_uri(root.path)
        self._view = WorkspaceView([root])
        self._versions: dict[str, int] = {}
        self._turns = 0
        self.edits: list[EditSet] = []

    async def initialize(self) -> str:
        """Initialize the server and return its name and version."""
        params = {
            "processId": os.getpid(),
            "clientInfo": {"name": "thinklsp demo", "version": __version__},
            "rootUri": self._uri,
            "workspaceFolders": [{"uri": self._uri, "name": self._uri.rpartition("/")[2]}],
            "capabilities": _CAPABILITIES,
        }
        server = (await self.client.request("initialize", params))["serverInfo"]
        self.client.notify("initialized", {})
        return f"{server['name']} {server['version']}"

    def open_document(self, name: str) -> str:
        """Open a file in the folder and return the URI of the file."""
        uri = f"{self._uri}/{name}"
        self._versions[uri] = 1
        document = {"uri": uri, "languageId": "python", "version": 1, "text": self._read_text(uri)}
        self.client.notify("textDocument/didOpen", {"textDocument": document})
        return uri

    async def request_actions(self, uri: str, diagnostic: Json) -> Sequence[Json]:
        """Return the code actions that the server offers for a diagnostic."""
        context = {"diagnostics": [diagnostic], "triggerKind": 1}
        params = {"textDocument": {"uri": uri}, "range": diagnostic["range"], "context": context}
        return await self.client.request("textDocument/codeAction", params) or ()

    async def run_turn(self, command: str, argument: Json) -> Json:
        """Run a command that starts a turn, and return the TurnResult. The screen shows the progress."""
        self._turns += 1
        work, partial = f"{_WORK_DONE_TOKEN}-{self._turns}", f"{_PARTIAL_RESULT_TOKEN}-{self._turns}"
        arguments = [{**argument, "partialResultToken": partial}]
        params = {"command": command, "arguments": arguments, "workDoneToken": work}
        try:
            result: Json = await self.client.request("workspace/executeCommand", params)
        finally:
            self.screen.finish_turn()
        changed = {file.uri for edit_set in self.edits for file in edit_set.files} if self._writes_files else set()
        for uri in sorted(changed & self._versions.keys()):
            self._send_change(uri)
        return result

    def _show_message(self, params: Json) -> None:
        self.screen.print_note(params["message"], warning=params["type"] <= _WARNING)

    def _show_progress(self, params: Json) -> None:
        value: Json = params["value"]
        if str(params["token"]).startswith(_WORK_DONE_TOKEN):
            if value["kind"] == "end":
                self.screen.finish_turn()
            else:
                self.screen.show_status(value.get("message") or "")
            return
        match value["kind"]:
            case "text" | "thinking" as kind:
                self.screen.stream_text(kind, value["delta"])
            case "restart":
                self.screen.discard()
            case "tool":
                self.screen.show_tool(value["title"], value["status"])
            case "plan":
                self.screen.print_lines(render_plan((entry["text"], entry["status"]) for entry in value["entries"]))
            case "notice":
                self.screen.print_note(value["text"], warning=value["level"] == "warning")
            case _:
                pass

    def _apply_edit(self, params: Json) -> Json:
        """Show the edit. Apply it only if the folder is the demo's own project. Raises ThinkLspError if it is wrong."""
        edit_set = build_edit_set(params["edit"], self._view, self._versions)
        self.edits.append(edit_set)
        self.screen.show_edit(edit_set, count_unconfirmed(params["edit"]), applied=self._writes_files)
        if not self._writes_files:
            return {"applied": False, "failureReason": "the demo only shows the change"}
        failed = [outcome.reason for outcome in apply_to_disk(edit_set, self._view) if outcome.reason is not None]
        return {"applied": False, "failureReason": failed[0]} if failed else {"applied": True}

    def _read_text(self, uri: str) -> str:
        file = self._view.read(self._view.resolve(uri))
        if file is None:
            raise DemoFailed(f"The file {uri} does not exist.")
        return file.text

    def _send_change(self, uri: str) -> None:
        self._versions[uri] += 1
        document = {"uri": uri, "version": self._versions[uri]}
        changes = [{"text": self._read_text(uri)}]
        self.client.notify("textDocument/didChange", {"textDocument": document, "contentChanges": changes})
        self.client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})


def build_edit_set(edit: Json, view: WorkspaceView, versions: Mapping[str, int]) -> EditSet:
    """Apply all changes in the edit to the files in `view`. `versions` contains the versions of the open documents.

    Raises DemoFailed for a stale or invalid edit, and PathRefused for a file that must not be changed.
    """
    overlay = EditOverlay(view)
    for change in edit["documentChanges"]:
        place = view.resolve(change["uri"] if "kind" in change else change["textDocument"]["uri"])
        file = overlay.read(place)
        if (change.get("kind") == "create") != (file is None):
            raise DemoFailed(f"{place.label} {'does not exist' if file is None else 'already exists'}.")
        overlay.write(place, "" if file is None else _edit_text(file.text, change, versions, place.label))
    return overlay.build_edit_set()


def _edit_text(text: str, change: Json, versions: Mapping[str, int], label: str) -> str:
    uri, version = change["textDocument"]["uri"], change["textDocument"]["version"]
    if version is not None and versions.get(uri) != version:
        raise DemoFailed(f"The edit is for version {version} of {label}, but another version is open.")
    spans = ((edit["range"]["start"], edit["range"]["end"], edit["newText"]) for edit in change["edits"])
    try:
        return apply_edits(text, [TextEdit(find_offset(text, a), find_offset(text, b), new) for a, b, new in spans])
    except ValueError as error:
        raise DemoFailed(f"The edit of {label} cannot be applied: {error}.") from None


def count_unconfirmed(edit: Json) -> int:
    """Count the changes that the user must confirm."""
    marks = edit.get("changeAnnotations", {})
    asking = {name for name, mark in marks.items() if mark.get("needsConfirmation")}
    parts = (part for change in edit.get("documentChanges", ()) for part in change.get("edits", (change,)))
    return sum(part.get("annotationId") in asking for part in parts)


def find_offset(text: str, position: Json) -> int:
    """Convert an LSP position, which counts code points, to an offset."""
    lines = split_lines(text)[: position["line"]]
    return min(sum(map(len, lines)) + int(position["character"]), len(text))


class DemoScreen:
    """A context manager for the demo's output. It restores the terminal on exit."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._kind: Stream = "text"
        self._pending = ""
        self._spinner: Spinner | None = None
        self._live = Live(get_renderable=self._render_tail, console=console, transient=True, refresh_per_second=15)

    def __enter__(self) -> Self:
        if is_live(self._console):
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish_turn()
        self._live.stop()

    def print_title(self, text: str, *, subtitle: str = "") -> None:
        self._print(Text(text, style="bold").append(f"   {subtitle}" if subtitle else "", style="not bold dim"))

    def print_heading(self, number: int, text: str) -> None:
        self._print(Text(), Text(f"{number}  ", style="bold cyan").append(text, style="bold default"))

    def print_text(self, text: str = "", *, style: str = "") -> None:
        """Print a paragraph, or a blank line if the text is empty."""
        self._print(*wrap_paragraph(self._console, text, style=style, indent=_INDENT))

    def print_note(self, text: str, *, warning: bool = False) -> None:
        self.print_text(f"! {text}" if warning else text, style="yellow" if warning else "dim")

    def print_lines(self, lines: Sequence[Text]) -> None:
        self._print(*(Text(" " * _INDENT).append_text(line) for line in lines))

    def print_command(self, words: str, lines: Sequence[str], *, good: bool) -> None:
        """Print a command and its output."""
        self.print_lines([Text(f"$ {words}", style="bold")])
        for line in lines:
            self.print_text(line, style="green" if good else "red")

    def show_tool(self, title: str, status: str) -> None:
        """Print a tool call that has finished. While a call is running, it appears only in the status line."""
        self.print_lines([] if status == "in_progress" else [render_tool(title, is_error=status == "failed")])

    def show_edit(self, edit_set: EditSet, to_confirm: int, *, applied: bool) -> None:
        """Print the diff of a received edit."""
        count = len(edit_set.files)
        state = "The editor receives one edit" if applied else "The edit is shown but not written"
        self.print_text()
        self.print_text(f"{state}: {'1 file' if count == 1 else f'{count} files'}", style="bold")
        if to_confirm:
            self.print_note("outside the requested lines, so an editor asks the user to confirm the edit")
        self._print(Text(), *render_diff(format_diff(edit_set), indent=_INDENT))

    def stream_text(self, kind: Stream, delta: str) -> None:
        if kind != self._kind:
            self._print()
            self._kind = kind
        self._pending += delta

    def discard(self) -> None:
        """Discard streamed text that has not been printed yet. This happens if the model call is retried."""
        self._pending = ""

    def show_status(self, message: str) -> None:
        """Show a message in the status line. Only a terminal has a status line."""
        text = Text(" ".join(escape_invisible(message).split()), style="cyan")
        # Leave space for the spinner and for a possible ^C, because a wrapped line cannot be erased.
        text.truncate(max(10, self._console.width - _INDENT - 8), overflow="ellipsis")
        if self._spinner is None:
            self._spinner = Spinner("dots", text=text, style="cyan")
        else:
            self._spinner.update(text=text)

    def finish_turn(self) -> None:
        """Print the remaining text of a finished turn, and remove the status line."""
        self._print()
        self._spinner = None

    def _wrap_pending(self) -> list[Text]:
        if not self._pending.strip():
            return []
        return wrap_paragraph(self._console, self._pending, style=_STYLES[self._kind], indent=_INDENT)

    def _render_tail(self) -> RenderableType:
        """Return the lines that are updated in place, which are the streamed text and the status line."""
        lines: list[RenderableType] = [*self._wrap_pending()[-max(1, self._console.height - 3) :]]
        if self._spinner is not None:
            lines.append(Padding(self._spinner, (0, 0, 0, _INDENT)))
        return Group(*lines)

    def _print(self, *lines: Text) -> None:
        """Print the streamed text, and then the lines."""
        streamed, self._pending = self._wrap_pending(), ""
        for line in (*streamed, *lines):
            self._console.print(line, soft_wrap=True)
