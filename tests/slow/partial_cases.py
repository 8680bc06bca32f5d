"""Random turns of which an editor applies random parts, and a model of the resulting texts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.e2e.acting import read_before
from tests.support.client.documents import apply_text_edits
from tests.support.line_edits import BOM, Block, Case, blocks, lines_of, merged
from tests.support.outside import Outside
from tests.support.signing_server import Text, Tool, answer, tool

Kind = Literal["change", "create", "rename", "delete"]
KINDS: tuple[Kind, ...] = ("change", "change", "change", "create", "rename", "delete")
DONE = answer(Text("Done."))


@dataclass
class PartialCase(Case):
    """One file of a turn. `now`: its expected text, None if it does not exist. `part`: what the turn has written so
    far, without the typing of the user. `moved`: it has its new name."""

    kind: Kind = "change"
    is_open: bool = False
    moved: bool = False
    now: str | None = None
    part: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kind = self.chance.choice(KINDS)
        self.is_open = self.kind == "change" and self.chance.random() < 0.5
        if not self.is_open:
            self.base, self.ours = self.base.removeprefix(BOM), self.ours.removeprefix(BOM)
        self.now = self.part = None if self.kind == "create" else self.base

    @property
    def new_name(self) -> str:
        return f"deep/{self.name}" if self.kind == "rename" else self.name

    @property
    def place(self) -> str:
        return self.new_name if self.moved else self.name

    @property
    def whole(self) -> str | None:
        return None if self.kind == "delete" else self.ours

    @property
    def left(self) -> bool:
        return self.part != self.whole or (self.kind == "rename" and not self.moved)

    @property
    def tool_calls(self) -> list[Tool]:
        if self.kind == "create":
            return [tool("write_file", path=self.name, content=self.ours)]
        if self.kind == "delete":
            return [tool("delete_file", path=self.name)]
        rename = [tool("rename_file", path=self.name, new_path=self.new_name)] if self.kind == "rename" else []
        return [*self.calls, *rename]

    def accept(self, hunks: set[int], *, operation: bool) -> None:
        """Apply some hunks of the waiting edit and maybe the operation on the file."""
        if self.kind == "delete":
            self.now = self.part = None if operation and self.now == self.base else self.now
            return
        if self.part is None:
            self.now = self.part = (self.ours if hunks else "") if operation else None
            return
        self.moved |= self.kind == "rename" and operation
        old = lines_of(self.part)
        part = list(old)
        for number, block in reversed([*enumerate(blocks(old, lines_of(self.ours)))]):
            if number in hunks:
                part[block.start : block.end] = block.lines
        typed = merged(self.part, "".join(part), self.now or "")
        assert typed is not None, self
        self.now, self.part = typed, "".join(part)

    def waiting(self) -> list[Block]:
        return blocks(lines_of(self.part or ""), lines_of(self.ours))

    def type(self) -> None:
        lines = lines_of((self.now or "").removeprefix(BOM))
        if self.now and lines and self.chance.random() < 0.6:
            old, new = self._change(self.chance.choice(lines))
            self.now = self.now.replace(old, new)

    def applied(self) -> bool:
        """Apply everything that waits. Return False for a conflict with the user's typing, which changes nothing."""
        if self.kind == "delete":
            fits = self.now == self.base
            self.now, self.part = (None, None) if fits else (self.now, self.part)
            return fits
        if not self.part:
            fits = not self.now
            self.now = self.part = self.ours
            return fits
        found = merged(self.part, self.ours, self.now or "")
        if found is None:
            return False
        self.now, self.part, self.moved = found, self.ours, self.kind == "rename"
        return True

    def undone(self) -> bool:
        if self.kind in ("create", "delete"):
            fits = self.now == self.part
            self.now = (None if self.kind == "create" else self.base) if fits else self.now
            return fits
        found = merged(self.part or "", self.base, self.now or "")
        if found is None:
            return False
        self.now, self.moved = found, False
        return True

    @property
    def is_changed(self) -> bool:
        return self.moved or self.part != (None if self.kind == "create" else self.base)


@dataclass
class Round:
    """A turn over several files. `acceptances` counts the files whose edit the editor was asked to apply."""

    outside: Outside
    cases: list[PartialCase]
    chance: random.Random
    acceptances: int = 0
    whole: bool = False
    _accepted: dict[str, tuple[set[int], bool]] = field(default_factory=dict)

    async def play(self) -> None:
        self._prepare()
        client = self.outside.client
        client.editor.handlers["workspace/applyEdit"] = self._apply_a_part
        calls = [call for case in self.cases for call in case.tool_calls]
        self.outside.provider.say(*read_before(*calls), answer(*calls), DONE)
        result = await self.outside.turn("thinklsp.chat", {"prompt": "Edit all of them."})
        self._take(result["edits"]["files"])
        self._check("after the turn")
        self._type()
        await self._read(result["sessionId"])
        if any(case.left for case in self.cases) and self.chance.random() < 0.7:
            await self._apply(result["turnId"])
        if any(case.is_changed for case in self.cases):
            await self._undo(result["turnId"])
        for case in self.cases:
            if self.outside.uri(case.place) in client.desk.open:
                client.close_document(self.outside.uri(case.place))

    def _prepare(self) -> None:
        for case in self.cases:
            if case.kind != "create":
                (self.outside.root / case.name).write_bytes(case.base.encode())
            if case.is_open:
                self.outside.open(case.name, case.base)

    def _apply_a_part(self, params: Any) -> Any:
        """Apply a part of the edit, as a preview with unchecked boxes does, and report all of it as applied."""
        kept = []
        self._accepted = {}
        for change in params["edit"]["documentChanges"]:
            uri = change.get("oldUri") or change.get("uri") or change["textDocument"]["uri"]
            hunks, operation = self._accepted.setdefault(uri, (set(), False))
            if "kind" in change:
                if self._chooses():
                    self._accepted[uri] = (hunks, True)
                    kept.append(change)
                continue
            hunks |= {number for number in range(len(change["edits"])) if self._chooses()}
            exists = self.outside.client.text(uri) is not None or operation
            if not exists:
                hunks.clear()
            if hunks:
                kept.append(
                    {**change, "edits": [edit for number, edit in enumerate(change["edits"]) if number in hunks]}
                )
        left = [change for change in kept if not self._opened(change)]
        return self.outside.client.editor.apply_edit({"edit": {**params["edit"], "documentChanges": left}})

    def _chooses(self) -> bool:
        return self.whole or self.chance.random() < 0.5

    def _opened(self, change: Any) -> bool:
        """Some editors open a closed file, change its text and do not save it."""
        uri = change.get("textDocument", {}).get("uri")
        client = self.outside.client
        case = next((case for case in self.cases if uri == self.outside.uri(case.name)), None)
        if case is None or case.kind != "change" or uri in client.desk.open or self.chance.random() < 0.5:
            return False
        text = apply_text_edits(client.text(uri) or "", change["edits"], client.desk.encoding)
        client.open(uri, text)
        return True

    def _take(self, files: list[Any]) -> None:
        told = {file["uri"]: file for file in files}
        for case in self.cases:
            file = told.get(self.outside.uri(case.place))
            if file is None:
                assert not case.left or case.kind == "rename", case
                continue
            hunks, operation = self._accepted.get(file["uri"], (set(), False))
            case.accept(hunks, operation=operation)
            self.acceptances += 1
            status = "applied" if not case.left else "some" if hunks or operation else "refused"
            assert file["status"] == status, (file, case)
            if case.kind in ("change", "rename") and not file["hunks"]["waiting"]:
                assert not case.left, case
            if case.kind == "change":
                assert file["hunks"] == {"applied": len(hunks), "waiting": len(case.waiting())}, (file, case)

    def _check(self, when: str) -> None:
        for case in self.cases:
            other = case.name if case.moved else case.new_name
            assert self.outside.client.text(self.outside.uri(case.place)) == case.now, (when, case)
            assert other == case.place or self.outside.client.text(self.outside.uri(other)) is None, (when, case)

    def _type(self) -> None:
        client = self.outside.client
        for case in self.cases:
            before, uri = case.now, self.outside.uri(case.place)
            if case.kind == "create" and case.part != case.ours:
                continue
            case.type()
            if case.now == before or case.now is None:
                continue
            if uri in client.desk.open:
                client.replace(uri, 0, len(before or ""), case.now)
            else:
                Path(uri.removeprefix("file://")).write_bytes(case.now.encode())

    async def _read(self, session: str) -> None:
        provider = self.outside.provider
        places = [name for case in self.cases for name in {case.name, case.new_name}]
        provider.say(answer(*(tool("read_file", path=place) for place in places)), DONE)
        await self.outside.turn("thinklsp.chat", {"prompt": "Read them.", "sessionId": session})
        texts = dict(zip(places, map(str, provider.requests[-1].tool_results()), strict=True))
        for case in self.cases:
            assert (case.now is None) == ("does not exist" in texts[case.place]), (texts[case.place], case)
            for number in range(1, case._made + 1):
                mark = f"<{case.name} {number}>"
                assert (mark in texts[case.place]) == (mark in (case.now or "")), (mark, case)

    async def _apply(self, turn: str) -> None:
        self.whole = True
        result = await self.outside.client.command("thinklsp.apply", {"turnId": turn})
        told = {file["uri"]: file["status"] for file in result["files"]}
        for case in self.cases:
            uri = self.outside.uri(case.place)
            if case.left:
                assert told[uri] == ("applied" if case.applied() else "conflict"), (uri, case)
        self._check("after apply")

    async def _undo(self, turn: str) -> None:
        self.whole = True
        result = await self.outside.client.command("thinklsp.undo", {"turnId": turn})
        told = {file["uri"]: file["status"] for file in result["files"]}
        for case in self.cases:
            if case.is_changed:
                uri = self.outside.uri(case.place)
                status, expected = told.pop(uri), "applied" if case.undone() else "conflict"
                assert status == expected, (status, expected, case)
        assert told == {}
        self._check("after undo")
        # The editor keeps the files open that an edit has opened.
        assert all(text.startswith("Changed but not saved: ") for text in self.outside.told())
