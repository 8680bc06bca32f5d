"""Chat documents in use: whatever is typed, sent, stopped and undone where and when, nothing that the user wrote is
lost, every answer arrives once, by one edit, and what it leaves behind is read as it was meant."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.lsp.chat_editor import ChatEditor, HeldModel
from tests.support.in_process import connected
from tests.support.sizes import examples
from tests.support.watching import HANG_SECONDS
from thinklsp.core.errors import Overloaded
from thinklsp.engine.connections import build_endpoint
from thinklsp.lsp.chats.chat_outline import parse_chat

Json = Any
NAMES = ("a", "b", "c")
CAPABILITIES = {"workspace": {"applyEdit": True, "workspaceEdit": {"documentChanges": True}}}
ENVIRONMENT = {"THINKLSP_CONFIG": "/nonexistent/config.toml", "ANTHROPIC_API_KEY": "sk-ant-canary-0123456789"}

_names = st.sampled_from(NAMES)
_pieces = st.sampled_from(
    [
        "words ", "🙂", "\n", "\r\n", "\r", "\n\n", "## You\n", "\n## You\n\n", "\n## thinklsp\n", "\\## You\n",
        "```\n", "\n```\n", "~~~~ x\n", "/effort high\n", "\n/clear\n", "/nope\n", "@selection ", "\ufeff", "\u2028",
        "  ", "<!-- thinklsp session: x -->\n",
    ]
)  # fmt: skip
_typed = st.lists(_pieces, min_size=1, max_size=3).map("".join)
_answers = st.lists(_pieces, max_size=4).map("".join)
_places = st.floats(0, 1)


@dataclass
class Sent:
    """A `send` whose turn runs. `typed`: something was written in its document since. `alone`: nothing could be."""

    identity: str
    name: str
    mark: str
    stopped: bool = False
    touched: bool = False


class ChatMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.stack = AsyncExitStack()
        self.count = 0
        self.running: dict[str, Sent] = {}
        self.loop.run_until_complete(self._start())

    def teardown(self) -> None:
        try:
            self.loop.run_until_complete(self._finish())
        finally:
            self.loop.run_until_complete(self.stack.aclose())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    async def _start(self) -> None:
        given = ENVIRONMENT | {"THINKLSP_STATE_DIR": self.stack.enter_context(TemporaryDirectory())}
        self.editor = await self.stack.enter_async_context(connected(ChatEditor(given)))
        await self.editor.initialize(CAPABILITIES)
        assistant = await self.editor.server.load()
        access = await assistant.engine.connections.resolve_access("anthropic")
        assert access is not None
        self.model = HeldModel(self.editor)
        assistant.engine.connections.callers[build_endpoint(access)] = self.model
        for name in NAMES:
            self.editor.open(self.uri(name), "Hello?" if name != "c" else "")

    async def _finish(self) -> None:
        for sent in list(self.running.values()):
            await self._end(sent, "Done.")
        assert self.editor.faults == []

    def uri(self, name: str) -> str:
        return f"file:///nowhere/{name}.chat.md"

    def mark(self) -> str:
        self.count += 1
        return f"<{self.count}>"

    # What the user does

    @rule(name=_names, at=_places, piece=_typed)
    def types(self, name: str, at: float, piece: str) -> None:
        text = self.editor.texts[self.uri(name)].text
        start = self._place(text, at)
        self.editor.write(self.uri(name), start, start, piece.replace("words", self.mark()))
        self._touch(name)

    @rule(name=_names, piece=_typed)
    def types_at_the_end(self, name: str, piece: str) -> None:
        self.types(name, 1.0, piece)

    @rule(name=_names, at=_places, length=st.integers(1, 12))
    def deletes(self, name: str, at: float, length: int) -> None:
        text = self.editor.texts[self.uri(name)].text
        start = self._place(text, at)
        end = self._place(text, min(1.0, (start + length) / max(1, len(text))))
        self.editor.write(self.uri(name), start, max(start, end), "")
        self._touch(name)

    @rule(name=_names)
    def undoes(self, name: str) -> None:
        self.editor.undo(self.uri(name))
        self._touch(name)

    @rule(name=_names)
    def closes_and_opens_again(self, name: str) -> None:
        self.loop.run_until_complete(self._open_again(name))
        self._touch(name)

    async def _open_again(self, name: str) -> None:
        """In the loop, because the server starts a task for each document that is opened."""
        self.editor.open(self.uri(name), self.editor.close(self.uri(name)).text)

    @rule(name=_names)
    def asks_for_lenses(self, name: str) -> None:
        self.loop.run_until_complete(self._lenses(name))

    @rule(piece=_typed)
    def will_type_while_an_edit_arrives(self, piece: str) -> None:
        self.editor.race = [piece]

    @rule(name=_names, piece=_typed)
    def writes_and_sends(self, name: str, piece: str) -> None:
        self.types(name, 1.0, f"{self.mark()} {piece}")
        self.sends(name)

    @rule(name=_names)
    def sends(self, name: str) -> None:
        self.loop.run_until_complete(self._send(name))

    @precondition(lambda self: self.running)
    @rule(text=_answers, which=st.integers(0, 2))
    def is_answered(self, text: str, which: int) -> None:
        self.loop.run_until_complete(self._end(self._chosen(which), text))

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 2))
    def is_failed(self, which: int) -> None:
        self.loop.run_until_complete(self._fail(self._chosen(which)))

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 2))
    def stops(self, which: int) -> None:
        self.loop.run_until_complete(self._stop(self._chosen(which)))

    # What must hold

    @invariant()
    def the_server_has_the_text_of_the_editor(self) -> None:
        for uri, text in self.editor.texts.items():
            document = self.editor.server.state.documents.get(uri)
            assert document is not None
            assert (document.text, document.version) == (text.text, text.version)

    @invariant()
    def nothing_was_taken_from_the_user(self) -> None:
        assert self.editor.faults == []

    # How it is done

    def _place(self, text: str, at: float) -> int:
        start = round(at * len(text))
        return start + 1 if text[start - 1 : start + 1] == "\r\n" else start

    def _touch(self, name: str) -> None:
        for sent in self.running.values():
            sent.touched |= sent.name == name

    def _chosen(self, which: int) -> Sent:
        waiting = list(self.running.values())
        return waiting[which % len(waiting)]

    def _answer_to(self, identity: str) -> Json | None:
        return next((m for m in self.editor.received if "method" not in m and m["id"] == identity), None)

    async def _send(self, name: str) -> None:
        """Either the answer comes at once, or the model is asked and waits."""
        uri, identity, mark = self.uri(name), f"send {self.mark()}", self.mark()
        text, calls = self.editor.texts[uri], len(self.model.waiting)
        before, edits = text.text, len(self.editor.applied.get(uri, []))
        busy = any(sent.name == name for sent in self.running.values())
        params = {"command": "thinklsp.send", "arguments": [{"uri": uri}], "workDoneToken": identity}
        self.editor.request(identity, "workspace/executeCommand", params)
        await self.editor.wait_for(
            lambda: len(self.model.waiting) > calls or self._answer_to(identity), what="a call or an answer"
        )
        if len(self.model.waiting) > calls:
            assert not busy
            self.running[identity] = Sent(identity, name, mark)
            return
        await self._settle()
        answer = self._answer_to(identity)
        if busy or not parse_chat(before).prompt.strip():
            assert answer["error"]["code"] == -32803
            assert text.text == before
            return
        # Slash commands alone: their outcome is the answer, and it came by one edit.
        assert "result" in answer, answer
        assert self.editor.applied[uri][edits:] == ["thinklsp: answer"]
        assert parse_chat(text.text).session_id == answer["result"]["sessionId"]

    async def _end(self, sent: Sent, text: str) -> None:
        document, uri = self.editor.texts[self.uri(sent.name)], self.uri(sent.name)
        edits = len(self.editor.applied.get(uri, []))
        untouched = not sent.touched and not self.editor.race
        self._future(sent).set_result(f"{sent.mark}{text}" if text else sent.mark)
        answer = await self._over(sent)
        assert answer["result"]["stopReason"] == "end_turn"
        assert self.editor.applied[uri][edits:] == ["thinklsp: answer"]
        assert document.text.count(sent.mark) == 1
        assert document.users[document.text.index(sent.mark)] is False
        assert parse_chat(document.text).session_id == answer["result"]["sessionId"]
        if untouched:
            assert parse_chat(document.text).prompt == ""
            assert parse_chat(f"{document.text}Next.").prompt == "Next."

    async def _fail(self, sent: Sent) -> None:
        self._future(sent).set_exception(Overloaded("The service is busy."))
        assert (await self._over(sent))["error"]["code"] == -32803
        self._named(sent)

    async def _stop(self, sent: Sent) -> None:
        self.editor.notify("window/workDoneProgress/cancel", {"token": sent.identity})
        answer = await self._over(sent)
        assert answer["result"]["stopReason"] == "cancelled"
        self._named(sent)

    def _named(self, sent: Sent) -> None:
        """A document without an answer is told its session all the same."""
        text = self.editor.texts[self.uri(sent.name)].text
        assert parse_chat(text).session_id is not None
        assert sent.mark not in text

    def _future(self, sent: Sent) -> asyncio.Future[Any]:
        """The call that waits for this turn: calls and turns came in the same order."""
        return self.model.waiting[list(self.running).index(sent.identity)][1]

    async def _over(self, sent: Sent) -> Json:
        answer = await self.editor.answer(sent.identity)
        del self.running[sent.identity]
        await self._settle()
        return answer

    async def _settle(self) -> None:
        """Everything has ended but the turns whose model is held."""
        state = self.editor.server.state
        await asyncio.sleep(0)  # A task is known to its run from its first step on.
        turns = {run._task for run in self.editor.server.assistant.turns._runs.values()}
        while rest := state.tasks - turns:
            await asyncio.wait(rest, timeout=HANG_SECONDS)
        assert len(turns) == len(self.running)

    async def _lenses(self, name: str) -> None:
        identity = f"lenses {self.mark()}"
        self.editor.request(identity, "textDocument/codeLens", {"textDocument": {"uri": self.uri(name)}})
        lenses = (await self.editor.answer(identity))["result"]
        running = any(sent.name == name for sent in self.running.values())
        assert lenses[0]["command"]["title"] == ("■ stop" if running else "▶ send")
        line = lenses[0]["range"]["start"]["line"]
        assert line < len(re.split(r"\r\n|\r|\n", self.editor.texts[self.uri(name)].text))


TestChatMachine = ChatMachine.TestCase
TestChatMachine.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
