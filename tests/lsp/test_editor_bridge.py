"""What an editor is asked by `thinklsp/editor/…`, and what becomes of its answers: right, wrong, late, twice, never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.in_process import InProcess, in_process
from tests.support.sizes import examples
from thinklsp.core.check_results import EditorDiagnostic
from thinklsp.lsp.editor.bridge import EditorBridge, parse_hover, parse_reports, parse_symbols, parse_targets
from thinklsp.tools.tool import DiagnosedDocument, EditorDiagnostics, NamedTarget, NamedTargets, Point, Target

A, B = "file:///ws/a%20b.py", "file:///ws/b.py"
TEXT = "import os\n🙂 = name\nlast\n"
NAMES = ["definition", "references", "diagnostics", "hover", "symbols"]
Json = Any


def at(first: int, start: int, last: int, end: int) -> Json:
    return {"start": {"line": first, "character": start}, "end": {"line": last, "character": end}}


def diagnostic(line: int, message: Json = "bad", **more: Json) -> Json:
    return {"range": at(line, 0, line, 4), "severity": 2, "source": "ruff", "code": "F401", "message": message, **more}


def warning(line: int, message: str = "bad") -> EditorDiagnostic:
    return EditorDiagnostic(line, "warning", message, "ruff", "F401")


@dataclass
class Seat:
    """The bridge, and the editor at its other end."""

    editor: InProcess
    bridge: EditorBridge

    def asked(self, method: str = "thinklsp/editor/") -> list[Json]:
        return [m for m in self.editor.received if "id" in m and m.get("method", "").startswith(method)]

    def cancelled(self) -> list[Json]:
        return [m["params"]["id"] for m in self.editor.received if m.get("method") == "$/cancelRequest"]

    async def request(self, number: int = 1) -> Json:
        """The so-manieth request of the bridge."""
        await self.editor.wait_for(lambda: len(self.asked()) >= number, what=f"request {number}")
        return self.asked()[number - 1]

    def answer(self, request: Json, result: Json) -> None:
        self.editor.send({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def answered(self, work: Coroutine[Any, Any, Any], answer: Json) -> Any:
        """Return what the bridge makes of this answer to its next request."""
        number, asking = len(self.asked()) + 1, asyncio.create_task(work)
        self.answer(await self.request(number), answer)
        return await asking

    def refuse(self, request: Json) -> None:
        self.editor.send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32603, "message": "no"}})

    def open(self, uri: str = A, text: str = TEXT, version: int = 1) -> None:
        item = {"uri": uri, "languageId": "python", "version": version, "text": text}
        self.editor.notify("textDocument/didOpen", {"textDocument": item})

    def change(self, version: int, where: Json, text: str, uri: str = A) -> None:
        changed = {"textDocument": {"uri": uri, "version": version}, "contentChanges": [{"range": where, "text": text}]}
        self.editor.notify("textDocument/didChange", changed)

    async def code_actions(self, where: Json, *diagnostics: Json, uri: str = A) -> None:
        context = {"diagnostics": diagnostics, "triggerKind": 2}
        name = f"actions {len(self.editor.received)}"
        params = {"textDocument": {"uri": uri}, "range": where, "context": context}
        self.editor.request(name, "textDocument/codeAction", params)
        await self.editor.answer(name)


@asynccontextmanager
async def seated(names: Json = NAMES, encoding: str = "utf-16") -> AsyncIterator[Seat]:
    async with in_process() as editor:
        general = {"positionEncodings": [encoding]}
        await editor.initialize({"general": general, "experimental": {"thinklsp": {"editor": names}}})
        seat = Seat(editor, EditorBridge(editor.server.state))
        seat.open()
        yield seat


def point(line: int = 2, column: int = 4, text: str = TEXT, uri: str = A) -> Point:
    return Point(uri, text, line, column)


ANSWERS: dict[str, tuple[Json, tuple[Target, ...] | None]] = {
    "a location": ({"uri": B, "range": at(2, 4, 2, 9)}, (Target(B, 3, 3),)),
    "locations, one twice": (
        [{"uri": B, "range": at(0, 0, 3, 1)}, {"uri": A, "range": at(7, 0, 9, 0)}, {"uri": B, "range": at(0, 0, 3, 2)}],
        (Target(B, 1, 4), Target(A, 8, 9)),
    ),
    "links": (
        [{"targetUri": B, "targetRange": at(4, 0, 9, 1), "targetSelectionRange": at(4, 4, 4, 8)}],
        (Target(B, 5, 10),),
    ),
    "nowhere": (None, ()),
    "no places": ([], ()),
    "a number": (7, None),
    "a text": ("a.py:7", None),
    "one of them wrong": ([{"uri": B, "range": at(0, 0, 0, 1)}, {"uri": B}], None),
    "a line before the first": ([{"uri": B, "range": at(-1, 0, 0, 1)}], (Target(B, 1, 1),)),
    "a line that is true": ([{"uri": B, "range": {"start": {"line": True, "character": 0}, "end": {}}}], None),
    "an end before its start": ([{"uri": B, "range": at(3, 0, 2, 0)}], None),
    "no URI": ([{"uri": 3, "range": at(0, 0, 0, 1)}], None),
    "a URI without end": ([{"uri": "file:///" + "x" * 5000, "range": at(0, 0, 0, 1)}], None),
    "more than anybody reads": (
        [{"uri": B, "range": at(line, 0, line, 1)} for line in range(2000)],
        tuple(Target(B, line + 1, line + 1) for line in range(500)),
    ),
}


async def test_what_is_read_from_answers() -> None:
    async with seated() as seat:
        for number, (case, (answer, expected)) in enumerate(ANSWERS.items(), start=1):
            asking = asyncio.create_task(seat.bridge.find_definition(point()))
            request = await seat.request(number)
            assert request["method"] == "thinklsp/editor/definition"
            seat.answer(request, answer)
            # The second answer, and one that nobody asked for, change nothing.
            seat.answer(request, {"uri": "file:///twice", "range": at(0, 0, 0, 0)})
            seat.answer({"id": 10_000 + number}, None)
            assert await asking == expected, case


@pytest.mark.parametrize(("encoding", "character"), [("utf-8", 7), ("utf-16", 5), ("utf-32", 4)])
async def test_the_place_is_told_as_the_editor_counts(encoding: str, character: int) -> None:
    async with seated(encoding=encoding) as seat:
        asking = asyncio.create_task(seat.bridge.find_references(point()))
        request = await seat.request()
        # However the caller spells the document, the editor hears its own spelling.
        assert request["method"] == "thinklsp/editor/references"
        assert request["params"] == {"textDocument": {"uri": A}, "position": {"line": 1, "character": character}}
        seat.refuse(request)
        assert await asking is None


async def test_an_editor_that_sees_another_text_is_not_asked() -> None:
    async with seated() as seat:
        assert await seat.bridge.find_definition(point(text="other\n")) is None
        assert await seat.bridge.find_definition(point(uri=B)) is None
        seat.change(1, at(0, 0, 0, 0), "same version")
        assert await seat.bridge.find_definition(point(text=f"same version{TEXT}")) is None
        assert seat.asked() == []
    for names in (None, "definition", {"definition": True}, ["hover", 3]):
        async with seated(names) as seat:
            assert await seat.bridge.find_definition(point()) is None
            assert await seat.bridge.fetch_diagnostics(None) == EditorDiagnostics((), is_complete=False)
            assert seat.asked() == []


async def test_bridge_request_for_closed_file_uses_disk_text() -> None:
    async with seated() as seat:
        on_disk = Point(B, "a\x0cb\r\n🙂 = x\n", 2, 4, is_open=False)
        bridge = seat.bridge
        place = {"textDocument": {"uri": B}, "position": {"line": 1, "character": 5}}
        asks: list[tuple[Any, Json, Any]] = [
            (bridge.find_definition, place, ()),
            (bridge.find_references, place, ()),
            (bridge.fetch_hover, place, None),
            (bridge.fetch_outline, {"uri": B}, NamedTargets(())),
        ]
        for ask, params, nothing in asks:
            assert await seat.answered(ask(on_disk), None) == nothing
            assert seat.asked()[-1]["params"] == params
        # It was opened meanwhile, with this text or another.
        asking = asyncio.create_task(seat.bridge.fetch_hover(on_disk))
        request = await seat.request(5)
        seat.open(B)
        seat.answer(request, {"contents": "old"})
        assert await asking is None
        assert await seat.bridge.fetch_outline(on_disk) is None
        assert len(seat.asked()) == 5


async def test_bridge_answer_for_changed_text_is_discarded() -> None:
    async with seated() as seat:
        asking = asyncio.create_task(seat.bridge.find_definition(point(uri="file:///ws/a b.py")))
        request = await seat.request()
        seat.change(2, at(0, 0, 0, 0), "# new\n")
        seat.answer(request, [{"uri": A, "range": at(0, 0, 0, 1)}])
        assert await asking is None


async def test_no_answer_is_waited_for_and_a_late_one_ignored() -> None:
    async with seated() as seat:
        seat.editor.server.state.client.bridge_seconds = 0.2
        await seat.code_actions(at(0, 0, 0, 9), diagnostic(0))
        bridge = seat.bridge
        work = bridge.find_definition(point()), bridge.find_references(point()), bridge.fetch_diagnostics(A)
        asking = asyncio.ensure_future(asyncio.gather(*work))
        await seat.request(3)
        requests = seat.asked()
        definition, references, diagnostics = await asking
        assert (definition, references) == (None, None)
        await seat.editor.settled()
        known = (DiagnosedDocument(A, (warning(1),), TEXT),)
        assert diagnostics == EditorDiagnostics(known, is_complete=False, failure="silent")
        assert sorted(seat.cancelled()) == sorted(request["id"] for request in requests)
        for request in requests:
            seat.answer(request, [])
        assert [m for m in await seat.editor.settled() if "error" in m] == []


async def test_cancel_ends_what_is_asked_and_what_waits_to_be_asked() -> None:
    async with seated() as seat:
        asking = [asyncio.create_task(seat.bridge.find_definition(point(column=number))) for number in range(6)]
        await seat.request(4)
        await seat.editor.settled()
        assert len(seat.asked()) == 4, "no more of them at once"
        seat.answer(seat.asked()[0], None)
        assert await asking[0] == ()
        await seat.request(5)
        for task in asking[1:]:
            task.cancel()
        ends = await asyncio.gather(*asking[1:], return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        await seat.editor.settled()
        assert seat.cancelled() == [request["id"] for request in seat.asked()[1:]]
        for request in seat.asked():
            seat.answer(request, [])
        # There is room again.
        assert await seat.answered(seat.bridge.find_definition(point()), None) == ()


NEW = f"# new\n{TEXT}"


def told(*diagnostics: Json, version: Json = 2, uri: Json = A) -> Json:
    return {"uri": uri, "version": version, "diagnostics": [*diagnostics]}


def seen(*problems: EditorDiagnostic, **more: Any) -> DiagnosedDocument:
    return DiagnosedDocument(A, problems, NEW, **more)


TOLD: dict[str, tuple[Json, tuple[DiagnosedDocument, ...]]] = {
    "of the present version": ([told(diagnostic(1))], (seen(warning(2)),)),
    "spelled in another way, and none": ([told(uri="file:///ws/a b.py")], (seen(),)),
    "of an earlier version": (
        [told(diagnostic(0), diagnostic(2, "of the last"), version=1)],
        (seen(warning(2), warning(4, "of the last"), is_outdated=True),),
    ),
    "of a version that nobody knows": ([told(diagnostic(1), version=None)], (seen(warning(2), is_outdated=True),)),
    "none, of a version that nobody knows": ([{"uri": A, "diagnostics": []}], ()),
    "of a file that is not open": (
        [told(diagnostic(6), version=None, uri=B), {"uri": "file:///ws/c.py", "diagnostics": []}],
        (DiagnosedDocument(B, (warning(7),)),),
    ),
    "in markup": ([told(diagnostic(1, {"kind": "markdown", "value": "*bad*"}))], (seen(warning(2, "*bad*")),)),
    "one whose end is before its start": ([told(diagnostic(1) | {"range": at(1, 4, 0, 0)})], (seen(warning(2)),)),
    "some that nobody can read, and others": (
        [
            told(3, {"message": "no range"}, diagnostic(1, 3), diagnostic(1)),
            {"uri": B, "diagnostics": [{"range": at(-1, 0, 0, 0), "message": "no line"}]},
        ],
        (
            seen(warning(2, ""), warning(2), unreadable_count=2),
            DiagnosedDocument(B, (EditorDiagnostic(1, "error", "no line"),)),
        ),
    ),
    "documents that nobody can read, and another": (
        [None, {"uri": 3, "diagnostics": []}, told(), {"uri": B}], (seen(),),
    ),
    "of a version that is none": (
        [told(diagnostic(1), version=version) for version in ("2", -1)], (seen(warning(2), is_outdated=True),) * 2,
    ),
    "of none": ([], ()),
    "with little in it": (
        [told({"range": at(0, 0, 0, 0), "message": "", "severity": "x"})], (seen(EditorDiagnostic(1, "error", "")),),
    ),
}  # fmt: skip
WRONG: list[Json] = [
    None, {}, "none", 3, [A], [{"uri": A}], [{"uri": A, "diagnostics": {}}], [{"diagnostics": [diagnostic(1)]}],
]  # fmt: skip


async def test_diagnostics_are_told_with_their_version() -> None:
    async with seated() as seat:
        seat.change(2, at(0, 0, 0, 0), "# new\n")
        await seat.code_actions(at(3, 0, 3, 4), diagnostic(3, "seen"))
        for number, (case, (answer, expected)) in enumerate(TOLD.items()):
            found = await seat.answered(seat.bridge.fetch_diagnostics(None if number % 2 else A), answer)
            assert found == EditorDiagnostics(expected, is_complete=True), case
            assert seat.asked()[-1]["params"] == ({} if number % 2 else {"uri": A})
        known = (seen(warning(4, "seen")),)
        for answer in WRONG:
            found = await seat.answered(seat.bridge.fetch_diagnostics(None), answer)
            assert found == EditorDiagnostics(known, is_complete=False, failure="unreadable"), answer
        asking = asyncio.create_task(seat.bridge.fetch_diagnostics(B))
        seat.refuse(await seat.request(len(seat.asked()) + 1))
        assert await asking == EditorDiagnostics((), is_complete=False, failure="refused")


async def test_diagnostics_of_another_version_are_old_or_waited_for() -> None:
    async with seated() as seat:
        # The editor's server has not looked since the user typed.
        asking = asyncio.create_task(seat.bridge.fetch_diagnostics(A))
        request = await seat.request()
        seat.change(2, at(0, 0, 0, 0), "# new\n")
        seat.answer(request, [told(diagnostic(0, "old"), version=1)])
        assert await asking == EditorDiagnostics((seen(warning(2, "old"), is_outdated=True),), is_complete=True)

        # An editor may answer before it tells of what was typed.
        asking = asyncio.create_task(seat.bridge.fetch_diagnostics(A))
        seat.answer(await seat.request(2), [told(diagnostic(2, "newest"), version=3)])
        await seat.editor.settled()
        assert not asking.done()
        seat.change(3, at(0, 0, 0, 0), "# newer\n")
        newest = (DiagnosedDocument(A, (warning(3, "newest"),), f"# newer\n{NEW}"),)
        assert await asking == EditorDiagnostics(newest, is_complete=True)


async def test_without_the_bridge_it_is_what_came_with_code_actions() -> None:
    async with seated([]) as seat:
        seat.open(B)

        async def known(uri: str | None = A) -> list[tuple[str, int, str, bool]]:
            found = await seat.bridge.fetch_diagnostics(uri)
            assert found.is_complete is False
            return [(d.uri, p.line, p.message, d.is_outdated) for d in found.documents for p in d.problems]

        assert await known() == []
        await seat.code_actions(at(0, 0, 0, 9), diagnostic(0, "one"))
        await seat.code_actions(at(2, 0, 2, 2), diagnostic(2, "three"))
        await seat.code_actions(at(0, 0, 0, 0), diagnostic(0, "other"), uri=B)
        assert await known() == [(A, 3, "three", False), (A, 1, "one", False)]
        assert await known(None) == [*await known(), (B, 1, "other", False)]
        # A line in front moves them; a change of their own line takes them away.
        seat.change(2, at(0, 0, 0, 0), "# new\n")
        assert await known() == [(A, 4, "three", True), (A, 2, "one", True)]
        seat.change(3, at(1, 7, 1, 9), "sys")
        assert await known() == [(A, 4, "three", True)]
        # Told again they are present; and where the editor tells of none any more there is none.
        await seat.code_actions(at(3, 1, 3, 1), diagnostic(3, "three"))
        assert await known() == [(A, 4, "three", False)]
        await seat.code_actions(at(3, 1, 3, 1))
        assert await known() == []
        await seat.code_actions(at(0, 0, 9, 0), *(diagnostic(0, str(number)) for number in range(1000)))
        assert len(await known()) == 50
        seat.editor.notify("textDocument/didClose", {"textDocument": {"uri": A}})
        seat.open()
        assert await known() == []


HOVERS: dict[str, tuple[Json, str | None]] = {
    "markup": ({"contents": {"kind": "markdown", "value": " *x*\n"}}, "*x*"),
    "a text": ({"contents": "x", "range": 3}, "x"),
    "marked strings, some empty, some wrong": (
        {"contents": [{"language": "c", "value": "int x"}, "", 3, None, {"value": []}, "of it"]},
        "int x\n\nof it",
    ),
    "a megabyte": ({"contents": "x" * 1_000_000}, "x" * 2_994 + " [cut]"),
    "a megabyte of parts": ({"contents": ["x"] * 500_000}, "\n\n".join(["x"] * 50)),
    "blank": ({"contents": " \n"}, None),
    "nothing": (None, None),
    "no contents": ({}, None),
    "a number": ({"contents": 3}, None),
    "a list": (["x"], None),
}
BOX = {"name": "box", "kind": 5, "range": at(0, 0, 4, 0), "selectionRange": at(0, 0, 0, 3)}
LID = {"name": "lid", "kind": 26, "containerName": "box", "location": {"uri": A, "range": at(1, 0, 1, 2)}}
NAMED_BOX, NAMED_LID = (
    NamedTarget("box", "class", Target(A, 1, 4)),
    NamedTarget("lid", "type parameter", Target(A, 2, 2), "box"),
)
UNREADABLE: list[Json] = [{"name": ""}, {"range": at(2, 0, 1, 0)}]
NESTED = (("in", "class", Target(A, 1, 4), "box", 1), ("box", "class", Target(A, 1, 4), "in", 2))
SYMBOLS: dict[str, tuple[Json, NamedTargets | None]] = {
    "nested": (
        [BOX | {"children": [BOX | {"name": "in", "children": [BOX]}]}],
        NamedTargets((NAMED_BOX, *(NamedTarget(*row) for row in NESTED))),
    ),
    "flat, one of another document": (
        [LID, *(LID | {"location": {"uri": uri, "range": at(1, 0, 1, 2)}} for uri in (B, "file:///ws/a b.py"))],
        NamedTargets((NAMED_LID, NamedTarget("lid", "type parameter", Target("file:///ws/a b.py", 2, 2), "box"))),
    ),
    "kinds that nobody knows": (
        [BOX | {"kind": kind} for kind in (0, 27, None, "5", True, -1, 2**40)],
        NamedTargets((NamedTarget("box", "symbol", Target(A, 1, 4)),) * 7),
    ),
    "some that cannot be read": (
        [None, *(BOX | odd for odd in UNREADABLE), {"name": "x", "location": {"uri": A}}, BOX | {"children": [3]}],
        NamedTargets((NAMED_BOX,), unreadable_count=5),
    ),
    "none of them can be read": ([3, {}], None),
    "a name without end": (
        [BOX | {"name": "x" * 1_000_000}],
        NamedTargets((NamedTarget("x" * 200, "class", Target(A, 1, 4)),)),
    ),
    "a megabyte": ([BOX] * 20_000, NamedTargets((NAMED_BOX,) * 2_000, is_cut=True)),
    "a megabyte of nothing": ([0] * 500_000, None),
    "children that are none": ([BOX | {"children": {"name": "x"}}], NamedTargets((NAMED_BOX,))),
    "none": ([], NamedTargets(())),
    "null": (None, NamedTargets(())),
    "a mapping": (BOX, None),
    "a number": (7, None),
}


def test_hovers_and_symbols_of_any_size_are_parsed() -> None:
    for case, (answer, text) in HOVERS.items():
        assert parse_hover(answer) == text, case
    for case, (answer, expected) in SYMBOLS.items():
        assert parse_symbols(answer, A) == expected, case
    # Those of the workspace have a place of their own.
    assert parse_symbols([LID, BOX], None) == NamedTargets((NAMED_LID,), unreadable_count=1)
    deep = BOX
    for _ in range(5_000):
        deep = BOX | {"children": [deep]}
    found = parse_symbols([deep], A)
    assert found is not None
    assert (len(found.symbols), found.is_cut) == (2_000, True)


KEYS = (
    "uri", "range", "start", "end", "line", "character", "version", "diagnostics", "message", "x", "name", "location",
    "children", "contents", "value",
)  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(300), deadline=None)
@given(answer=json_values)
def test_no_answer_breaks_anything(answer: Json) -> None:
    for read in (parse_targets(answer), parse_reports(answer)):
        assert read is None or isinstance(read, tuple)
    assert isinstance(parse_hover(answer), str | None)
    assert isinstance(parse_symbols(answer, A), NamedTargets | None)
