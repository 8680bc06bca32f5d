"""Random sessions in which a user, a second program and the model change the same files.

Each line of the user or of the second program ends with a mark of its own. The oracle compares the marks in the editor
and on disk with the marks in the requests to the provider: what the product does may remove only marks that the model
was shown. Shares no code with the product.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from tests.support.client.actions import Request, ResponseError
from tests.support.client.editor import capabilities
from tests.support.outside import Outside
from tests.support.signing_server import Answer, Hold, Text, Thinking, Tool, answer, tool

Json = Any
NAMES = ("a.py", "b.py", "c.txt", "deep/d.py")
_MARK = re.compile(r"u\d+\.\d+;")
_CHAT = re.compile(r"chat-(\d+)")
_NUMBERED = re.compile(r"^ *\d+\t(.*)$", re.MULTILINE)
_WORDS = ("value = 1", "return value", "pass", "", "text = 'x'", "# note")
# Tool results show these words marked up or cut, except the third: it is a text that looks like a mark.
_ODD_WORDS = ("a\u200bb", "\f", "<U+200B>", "word " * 900)
_RESULT_MARKS = re.compile(r"<U\+(?!200B>)[0-9A-F]+>|\[line cut|\[cut at")
_CHANGES = ("type", "type", "type", "save", "open", "close", "write", "write", "replace", "create", "remove", "rename")
# While an edit is on its way, nobody else writes a closed file: an editor cannot know that the edit is outdated.
_CHANGES_OF_DOCUMENTS = ("type", "type", "save")
_CALLS = ("read", "read", "lines", "search", "edit", "edit", "write", "write", "delete", "rename")
_BETWEEN = ("restart", "undo", "undo", "undo", "undo in the editor", "apply", "compact", "fork")

# The ways in which editors let the user decide: change annotations, questions of the server, a review of their own.
EDITORS: dict[str, Json] = {
    "annotations": {},
    "questions": {"client_name": "Helix"},
    "own review": {"announce": capabilities(experimental={"thinklsp": {"editor": ["review"]}})},
}


@dataclass
class Chat:
    """A session of the product. `shown`: the marks in its requests. `read`: the lines of each file as last read.

    `steps`: the messages with tool calls that the model still sends in the running turn.
    """

    id: str | None = None
    shown: set[str] = field(default_factory=set)
    read: dict[str, list[str]] = field(default_factory=dict)
    steps: int = 0


@dataclass
class Turn:
    """A turn that has ended. `before`: the documents that were open at its start. `left`: the marks at its end, which
    a forced apply after a conflict may replace."""

    id: str
    chat: Chat
    before: dict[str, str]
    left: set[str]


@dataclass
class SharedFiles:
    """The files of one random session, and everyone who changes them.

    `standing`: the marks that must still be there. `trace` is the report of a failure.
    """

    outside: Outside
    number: int
    chance: Random
    standing: set[str] = field(default_factory=set)
    chats: list[Chat] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    _made: int = 0
    _running: int = 0
    _hold: Hold | None = None
    _asked: asyncio.Event | None = None

    async def play(self) -> None:
        """Play a session of two to four rounds, and check after each step of the product."""
        self._attend()
        with self._by_others():
            for name in self.chance.sample(NAMES, 3):
                self._write_disk(name, self._make_text())
                if self._happens(0.5):
                    self._open(name)
        for _ in range(self.chance.randint(2, 4)):
            for _ in range(self.chance.randint(0, 3)):
                self._change_something()
            await self._take_turns()
            if self.turns and self._happens(0.5):
                await self._do_between(self.chance.choice(_BETWEEN), self.chance.choice(self.turns))
        self._leave()

    def _attend(self) -> None:
        provider = self.outside.provider
        # After a compaction, earlier answers come back without their thinking.
        provider.conversations.elsewhere = True
        self.outside.client.editor.handlers |= {
            "workspace/applyEdit": self._answer_edit,
            "window/showMessageRequest": self._answer_question,
            "thinklsp/editor/review": self._answer_review,
        }

    def _leave(self) -> None:
        for name in self._list_open():
            self.outside.client.close_document(self._uri(name))
        # The checks of the provider would take ever longer.
        for kept in (self.outside.provider.conversations.issued, self.outside.provider.requests, self.outside.results):
            kept.clear()
        self.outside.provider.script.clear()
        self.outside.forget()

    def _happens(self, probability: float) -> bool:
        return self.chance.random() < probability

    # The editor and the disk

    def _path(self, name: str) -> Path:
        return self.outside.root / f"s{self.number}" / name

    def _uri(self, name: str) -> str:
        return self._path(name).as_uri()

    def _list_open(self) -> list[str]:
        return [name for name in NAMES if self._uri(name) in self.outside.client.desk.open]

    def _read(self, name: str) -> str | None:
        text: str | None = self.outside.client.text(self._uri(name))
        return text

    def _find_marks(self) -> set[str]:
        return {mark for name in NAMES for mark in _MARK.findall(self._read(name) or "")}

    @contextmanager
    def _by_others(self) -> Iterator[None]:
        """Let the user or the second program add and remove marks."""
        before = self._find_marks()
        yield
        after = self._find_marks()
        self.standing = (self.standing - (before - after)) | (after - before)

    def _check(self, what: str, shown: set[str]) -> None:
        """Check that the product removed only marks in `shown`, and that no mark of a tool result is in a file."""
        there = self._find_marks()
        report = "\n".join((what, *self.trace))
        assert self.standing - there - shown == set(), report
        assert [name for name in NAMES if _RESULT_MARKS.search(self._read(name) or "")] == [], report
        self.standing = there

    # The user and the second program

    def _make_line(self, end: str = "\n") -> str:
        self._made += 1
        words = self.chance.choice(_ODD_WORDS if self._happens(0.02) else _WORDS)
        return f"{words}  # u{self.number}.{self._made};{end}"

    def _make_text(self) -> str:
        end = self.chance.choice(("\n", "\n", "\n", "\r\n"))
        return "".join(self._make_line(end) for _ in range(self.chance.choice((0, 1, 3, 8, 8, 20))))

    def _change_text(self, text: str) -> str:
        """Return the text with one or two new lines, which may replace a line."""
        lines = re.findall(r"[^\n]*\n|[^\n]+\Z", text)
        at = self.chance.randint(0, len(lines))
        if at == len(lines) and lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        end = "\r\n" if "\r\n" in text else "\n"
        new = [self._make_line(end) for _ in range(self.chance.choice((1, 1, 2)))]
        return "".join((*lines[:at], *new, *lines[at + self.chance.choice((0, 0, 1)) :]))

    def _change_something(self, kinds: Sequence[str] = _CHANGES) -> None:
        """Let the user or the second program do one thing, if it is possible."""
        kind, opened = self.chance.choice(kinds), self._list_open()
        name = self.chance.choice(opened if kind in ("type", "save", "close") and opened else NAMES)
        path, is_open = self._path(name), name in opened
        with self._by_others():
            match kind, is_open, path.is_file():
                case "type", True, _:
                    self._type(name, self._change_text(self._read(name) or ""))
                case "save", True, _:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes((self._read(name) or "").encode())
                    self.outside.client.save(self._uri(name))
                case "close", True, _:
                    self.outside.client.close_document(self._uri(name))
                case "open", False, True:
                    self._open(name)
                case "write", _, True:
                    self._write_disk(name, self._change_text(path.read_bytes().decode()))
                case ("replace", _, True) | ("create", _, False):
                    self._write_disk(name, self._make_text())
                case "remove", False, True:
                    path.unlink()
                case "rename", False, True:
                    new = self.chance.choice([other for other in NAMES if other != name])
                    if new not in opened and not self._path(new).exists():
                        self._path(new).parent.mkdir(parents=True, exist_ok=True)
                        path.rename(self._path(new))
                case _:
                    return
            self.trace.append(f"others: {kind} {name}")

    def _change_while_running(self) -> None:
        if self._happens(0.3):
            self._change_something(_CHANGES if self._running == 1 else _CHANGES_OF_DOCUMENTS)

    def _open(self, name: str) -> None:
        self.outside.client.open(self._uri(name), self._path(name).read_bytes().decode())

    def _type(self, name: str, text: str) -> None:
        uri = self._uri(name)
        self.outside.client.replace(uri, 0, len(self._read(name) or ""), text)

    def _write_disk(self, name: str, text: str) -> None:
        """Write a file. An editor reloads a document without unsaved text."""
        path = self._path(name)
        old = path.read_bytes().decode() if path.is_file() else None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        if name in self._list_open() and self._read(name) == old:
            self._type(name, text)

    # The model

    def _answer_request(self, body: Json) -> Answer:
        """Return the model's next message. Others may change a file in the meantime."""
        messages = json.dumps(body["messages"], ensure_ascii=False)
        chat = self.chats[int(_CHAT.findall(messages)[-1])]
        chat.shown |= {*_MARK.findall(messages)}
        self._remember(chat, body["messages"][-1]["content"])
        self._change_while_running()
        if chat.steps == 0:
            return answer(Thinking(), *([self._hold] if self._hold else []), Text("Done."))
        chat.steps -= 1
        calls = [self._make_call(chat) for _ in range(self.chance.choice((1, 1, 1, 2, 3)))]
        self.trace += [f"model of chat {self.chats.index(chat)}: {call.name} {str(call.input)[:300]}" for call in calls]
        return answer(Thinking(), *(replace(call, letters=200) for call in calls))

    def _remember(self, chat: Chat, content: Json) -> None:
        for block in content if isinstance(content, list) else []:
            if block["type"] == "tool_result":
                text = block["content"] if isinstance(block["content"], str) else block["content"][0]["text"]
                for name in NAMES:
                    if text.startswith(f"s{self.number}/{name}, lines"):
                        chat.read[name] = _NUMBERED.findall(text)
                self.trace += [f"  {text[:200]}"] if block.get("is_error") else []

    def _make_call(self, chat: Chat) -> Tool:
        name, folder = self.chance.choice(NAMES), f"s{self.number}"
        path = self._uri(name) if self._happens(0.1) else f"{folder}/{name}"
        known = chat.read.get(name, [])
        match self.chance.choice(_CALLS):
            case "read":
                return tool("read_file", path=path)
            case "lines":
                first = self.chance.randint(1, 4)
                return tool("read_file", path=path, start_line=first, end_line=first + self.chance.randint(0, 9))
            case "search":
                return tool("search_text", pattern=self.chance.choice(("value", "note", "pass")), path=folder)
            case "edit" if known and self._happens(0.9):
                at = self.chance.randrange(len(known))
                old = "\n".join(known[at : at + self.chance.randint(1, 3)])
                new = self.chance.choice(("", "mine = 2", f"{old}\nmine = 3", f"mine = 4\n{old}"))
                return tool("edit_file", path=path, old_text=old, new_text=new)
            case "edit":
                return tool("edit_file", path=path, old_text="value", new_text="other", replace_all=True)
            case "write":
                kept = [line for line in known if self._happens(0.6)]
                return tool("write_file", path=path, content="\n".join((*kept, "mine = 1", "")))
            case "delete":
                return tool("delete_file", path=path)
            case _:
                return tool("rename_file", path=path, new_path=f"{folder}/{self.chance.choice(NAMES)}")

    # The product

    async def _answer_edit(self, params: Json) -> Json:
        """Answer an edit as an editor whose user may type first or say no."""
        opened = self._list_open()
        if self._happens(0.15):
            self._change_something(_CHANGES_OF_DOCUMENTS)
        result = {"applied": False} if self._happens(0.1) else self.outside.client.editor.apply_edit(params)
        self.trace.append(f"editor: {result}")
        for name in {*opened} - {*self._list_open()}:
            self.outside.client.close_document(self._uri(name))
        if self._asked is not None:
            self._asked.set()
            await asyncio.Event().wait()
        return result

    def _answer_question(self, params: Json) -> Json:
        """Answer a question of the server, or dismiss it. Others may change a file before."""
        self._change_while_running()
        return self.chance.choice((None, *(params.get("actions") or ())))

    def _answer_review(self, params: Json) -> Json:
        """Keep some of the changes that the server shows in the editor's own review."""
        self._change_while_running()
        counts: dict[str, int] = {}
        created: set[str] = set()
        for change in params["edit"]["documentChanges"]:
            uri = change.get("oldUri") or change.get("uri") or change["textDocument"]["uri"]
            created |= {uri} if change.get("kind") == "create" else set()
            if "kind" in change or uri not in created:
                counts[uri] = counts.get(uri, 0) + (1 if "kind" in change else len(change["edits"]))
        kept = {uri: [number for number in range(count) if self._happens(0.7)] for uri, count in counts.items()}
        self.trace.append(f"review: {kept}")
        return {"files": [{"uri": uri, "kept": numbers} for uri, numbers in kept.items()]}

    async def _take_turns(self) -> None:
        """Take one turn, or turns of two chats at once, or a turn in which the server is killed."""
        if not self.chats or self._happens(0.25):
            self.chats.append(Chat())
        chats = self.chance.sample(self.chats, 2 if len(self.chats) > 1 and self._happens(0.3) else 1)
        self._running = len(chats)
        self.outside.provider.script[:] = [self._answer_request] * 30
        kind = self.chance.choice(("held", "asked", *["ends"] * 14)) if len(chats) == 1 else "ends"
        before = {name: self._read(name) or "" for name in self._list_open()}
        if kind != "ends":
            await self._kill_during(self._start_turn(chats[0]), kind)
        else:
            requests = [self._start_turn(chat) for chat in chats]
            results = [await self.outside.result(request) for request in requests]
            for chat, result in zip(chats, results, strict=True):
                chat.id = result["sessionId"]
                self.trace.append(f"  {result['turnId']}: {json.dumps(result['edits'])}")
                self.turns.append(Turn(result["turnId"], chat, before, self._find_marks()))
        self._check("a turn", set.union(*(chat.shown for chat in chats)))

    def _start_turn(self, chat: Chat) -> Request:
        chat.steps = self.chance.randint(1, 5)
        number = self.chats.index(chat)
        self.trace.append(f"turn in chat {number}")
        argument: Json = {"prompt": f"chat-{number}: change them." + " please" * self.chance.choice((0, 0, 2_000))}
        if chat.id is not None:
            argument["sessionId"] = chat.id
        if self._happens(0.2) and (names := [name for name in NAMES if self._read(name) is not None]):
            argument["references"] = [self._uri(self.chance.choice(names))]
        request: Request = self.outside.client.command("thinklsp.chat", argument, token=self.outside.token())
        return request

    async def _kill_during(self, request: Request, kind: str) -> None:
        """Kill the server before its last message has come, or before it has the editor's answer to an edit."""
        self._hold, self._asked = (Hold(), None) if kind == "held" else (None, asyncio.Event())
        event = self._asked if self._hold is None else self._hold.reached
        assert event is not None
        reached, ended = asyncio.ensure_future(event.wait()), asyncio.ensure_future(_wait_for(request))
        await asyncio.wait({reached, ended}, return_when=asyncio.FIRST_COMPLETED)
        await self._restart(kill=True)
        reached.cancel()
        await asyncio.gather(reached, ended, return_exceptions=True)
        self._hold = self._asked = None

    async def _restart(self, *, kill: bool) -> None:
        self.trace.append(f"restart, killed: {kill}")
        texts = {name: self._read(name) or "" for name in self._list_open()}
        self.outside.told()
        await self.outside.restart(kill=kill)
        self.outside.past.clear()
        self._attend()
        for name, text in texts.items():
            self.outside.client.open(self._uri(name), text)

    async def _do_between(self, kind: str, turn: Turn) -> None:
        self.trace.append(f"between: {kind} {turn.id}")
        match kind:
            case "restart":
                await self._restart(kill=False)
            case "undo in the editor":
                with self._by_others():
                    for name in {*turn.before} & {*self._list_open()}:
                        self._type(name, turn.before[name])
            case "undo" | "apply":
                await self._run_command(f"thinklsp.{kind}", {"turnId": turn.id})
                self._check(kind, turn.chat.shown | (turn.left if kind == "apply" else set()))
            case "fork":
                argument = {"op": "fork", "sessionId": turn.chat.id}
                if (forked := await self._run_command("thinklsp.sessions", argument)) is not None:
                    self.chats.append(Chat(forked["sessionId"], {*turn.chat.shown}, dict(turn.chat.read)))
            case _:
                self.outside.provider.script[:] = [answer(Text('{"decisions_done": ["Read it."]}'))] * 4
                token = self.outside.token()
                await self._run_command("thinklsp.compact", {"sessionId": turn.chat.id}, token=token)

    async def _run_command(self, name: str, argument: Json, *, token: str | None = None) -> Json:
        """Run a command, and return its answer, or None if it is refused."""
        try:
            answered = await self.outside.client.command(name, argument, token=token)
        except ResponseError as refusal:
            answered = None
            self.trace.append(f"  {refusal}")
        self.trace.append(f"  {answered}")
        return answered


async def _wait_for(request: Request) -> Json:
    return await request


async def play_sessions(outside: Outside, seed: int, numbers: range) -> None:
    """Play random sessions one after the other on one server."""
    for number in numbers:
        await SharedFiles(outside, number, Random(f"{seed}-{number}")).play()
