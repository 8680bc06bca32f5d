"""The editor's own review: hunks that the user keeps before an edit is sent, and hunks that the user undoes later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.client.documents import apply_text_edits
from tests.support.client.editor import Refusal, capabilities
from tests.support.client.lsp import named
from tests.support.outside import Outside, said, statuses
from tests.support.signing_server import Text, answer, tool

Json = Any
REVIEW = "thinklsp/editor/review"
OWN = capabilities(experimental={"thinklsp": {"editor": ["review", "kept"]}})
APP = "def one():\n    return 1\n\n\n" + "x = 0\n" * 5 + "def two():\n    return 2\n"
FIRST, SECOND = APP.replace("return 1", "return 11"), APP.replace("return 2", "return 22")
BOTH = FIRST.replace("return 2", "return 22")
CALLS = (
    tool("edit_file", path="app.py", old_text="return 1", new_text="return 11"),
    tool("edit_file", path="app.py", old_text="return 2", new_text="return 22"),
    tool("edit_file", path="b.py", old_text="b = 1", new_text="b = 2"),
)
RANGE = {"start": {"line": 0, "character": 0}, "end": {"line": 2, "character": 0}}
DONE = answer(Text("Done."))


def plain(value: Any) -> Any:
    """Params outside of the protocol arrive as objects with attributes."""
    if hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


class Reviewer:
    """The user in the editor's review. `choose` gets the file name and returns the hunks to keep, or None for all."""

    def __init__(self, outside: Outside, choose: Any) -> None:
        self.params: list[Json] = []
        self.choose = choose
        outside.client.editor.handlers[REVIEW] = self.review

    async def review(self, params: Any) -> Json:
        self.params.append(asked := plain(params))
        files = []
        for change in asked["edit"]["documentChanges"]:
            if "textDocument" in change:
                uri = change["textDocument"]["uri"]
                kept = self.choose(uri.rpartition("/")[2])
                files.append({"uri": uri, "kept": list(range(len(change["edits"]))) if kept is None else kept})
        return {"files": files}


async def start(begin: Begin, choose: Any, *script: Any, review: str = "auto") -> tuple[Outside, str, Reviewer]:
    outside = await begin(
        answer(*CALLS),
        DONE,
        *script,
        files={"app.py": APP, "b.py": "b = 1\n"},
        options={"edits": {"review": review}},
        announce=OWN,
    )
    return outside, outside.open("app.py"), Reviewer(outside, choose)


async def change(outside: Outside, uri: str) -> Any:
    return await outside.edit(uri, "Return more.", range=RANGE, version=1)


async def test_the_editor_gets_the_edit_and_the_reasons(begin: Begin) -> None:
    outside, uri, reviewer = await start(begin, lambda _: None)
    result = await change(outside, uri)
    assert result["edits"]["applied"] == "all"
    [asked] = reviewer.params
    assert (asked["turnId"], asked["label"]) == (result["turnId"], "thinklsp: edit app.py")
    assert asked["reasons"] == [
        {"uri": uri, "hunk": 1, "reason": "outside the requested lines"},
        {"uri": outside.uri("b.py"), "hunk": 0, "reason": "in a different file"},
    ]
    [app, _] = asked["edit"]["documentChanges"]
    assert apply_text_edits(APP, app["edits"]) == BOTH
    [sent] = outside.client.edits()
    assert sent.edit.change_annotations is None
    assert outside.client.text(uri) == BOTH


# The kept hunks of app.py and b.py, the text of app.py, and the statuses and hunk counts of both files.
CHOICES: dict[str, tuple[list[int], list[int], str, dict[str, str], list[tuple[int, int]]]] = {
    "one hunk": ([0], [], FIRST, {"app.py": "some", "b.py": "held"}, [(1, 1), (0, 1)]),
    "the other hunk": ([1], [], SECOND, {"app.py": "some", "b.py": "held"}, [(1, 1), (0, 1)]),
    "one file": ([0, 1], [], BOTH, {"app.py": "applied", "b.py": "held"}, [(2, 0), (0, 1)]),
    "nothing": ([], [], APP, {"app.py": "held", "b.py": "held"}, [(0, 2), (0, 1)]),
    "hunks that do not exist": ([7, -1], [1], APP, {"app.py": "held", "b.py": "held"}, [(0, 2), (0, 1)]),
}


@pytest.mark.parametrize(("app", "other", "text", "told", "counts"), CHOICES.values(), ids=CHOICES)
async def test_only_kept_hunks_are_written(
    begin: Begin,
    app: list[int],
    other: list[int],
    text: str,
    told: dict[str, str],
    counts: list[tuple[int, int]],
) -> None:
    outside, uri, reviewer = await start(begin, lambda name: app if name == "app.py" else other, DONE)
    result = await change(outside, uri)
    assert statuses(result) == told
    hunks = {file["uri"]: file["hunks"] for file in result["edits"]["files"]}
    places = (uri, outside.uri("b.py"))
    assert [(hunks[place]["applied"], hunks[place]["waiting"]) for place in places] == counts
    assert (outside.client.text(uri), outside.client.text(places[1])) == (text, "b = 1\n")
    # The model learns what the user did not keep, and the user can apply it later, without a second review.
    await outside.turn("thinklsp.chat", {"prompt": "And now?", "sessionId": result["sessionId"]})
    assert "b.py (1 change, at line 1)" in said(outside.provider.requests[-1].body)
    assert (await outside.client.command("thinklsp.apply", {"turnId": result["turnId"]}))["applied"] == "all"
    assert outside.client.text(uri) == BOTH
    assert len(reviewer.params) == 1
    await outside.client.command("thinklsp.undo", {"turnId": result["turnId"]})
    assert outside.client.text(uri) == APP


@pytest.mark.parametrize("reply", ["an error", "nonsense"])
async def test_an_editor_that_fails_keeps_nothing(begin: Begin, reply: str) -> None:
    outside, uri, reviewer = await start(begin, lambda _: None, review="always")

    def fail(_: Any) -> Any:
        if reply == "an error":
            raise Refusal("no")
        return {"files": 3}

    outside.client.editor.handlers[REVIEW] = fail
    result = await change(outside, uri)
    assert set(statuses(result).values()) == {"held"}
    assert (outside.client.text(uri), outside.client.edits()) == (APP, [])
    assert reviewer.params == []


async def test_typing_during_the_review_is_merged(begin: Begin) -> None:
    outside, uri, reviewer = await start(begin, lambda name: [0] if name == "app.py" else [])

    def choose(name: str) -> list[int]:
        if name == "app.py":
            outside.client.change(uri, "x = 0", "x = 1")
        return [0] if name == "app.py" else []

    reviewer.choose = choose
    result = await change(outside, uri)
    typed = APP.replace("x = 0", "x = 1", 1)
    assert outside.client.text(uri) == typed.replace("return 1", "return 11")
    assert (await outside.client.command("thinklsp.apply", {"turnId": result["turnId"]}))["applied"] == "all"
    assert outside.client.text(uri) == typed.replace("return 1", "return 11").replace("return 2", "return 22")


async def test_a_conflict_during_the_review_loses_no_hunk(begin: Begin) -> None:
    outside, uri, reviewer = await start(begin, lambda _: None)

    def choose(name: str) -> list[int]:
        if name == "app.py":
            outside.client.change(uri, "return 1", "return 7")
        return [0] if name == "app.py" else []

    reviewer.choose = choose
    result = await change(outside, uri)
    assert statuses(result) == {"app.py": "conflict", "b.py": "held"}
    assert (await outside.client.command("thinklsp.apply", {"turnId": result["turnId"]}))["applied"] == "all"
    assert outside.client.text(uri) == BOTH


async def test_a_cancel_during_the_review_holds_the_edit(begin: Begin) -> None:
    outside, uri, _ = await start(begin, lambda _: None)
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(_: Any) -> Any:
        asked.set()
        await cancelled.wait()
        return {"files": []}

    outside.client.editor.handlers[REVIEW] = wait
    running = asyncio.ensure_future(change(outside, uri))
    await asked.wait()
    await outside.client.command("thinklsp.cancel")
    result = await running
    cancelled.set()
    assert (result["stopReason"], set(statuses(result).values())) == ("cancelled", {"held"})
    assert outside.client.text(uri) == APP


def report(outside: Outside, turn_id: str, *files: tuple[str, list[int]]) -> None:
    reported = [{"uri": uri, "kept": [], "undone": undone} for uri, undone in files]
    outside.client.notify("thinklsp/editor/kept", {"turnId": turn_id, "files": reported})


async def test_undone_hunks_wait_and_the_model_is_told(begin: Begin) -> None:
    outside, uri, _ = await start(begin, lambda _: None, DONE)
    result = await change(outside, uri)
    for old, new in (("return 22", "return 2"), ("return 11", "return 1")):
        outside.client.change(uri, old, new)
    report(outside, result["turnId"], (uri, [1]))
    report(outside, result["turnId"], (uri, [0]), ("file:///nowhere.py", [0]))
    report(outside, "unknown", (uri, [0]))
    await outside.turn("thinklsp.chat", {"prompt": "And now?", "sessionId": result["sessionId"]})
    prompt = said(outside.provider.requests[-1].body)
    assert "app.py (2 changes, at line 2, 11)" in prompt
    assert "b.py" not in prompt.partition("Not applied")[2].partition("</note>")[0]
    [apply] = named(await outside.client.code_actions(uri, RANGE), "apply")
    await outside.client.run_action(apply)
    assert outside.client.text(uri) == BOTH


async def test_a_file_with_all_hunks_undone_has_nothing_to_undo(begin: Begin) -> None:
    outside, uri, _ = await start(begin, lambda name: None if name == "app.py" else [])
    result = await change(outside, uri)
    for old, new in (("return 22", "return 2"), ("return 11", "return 1")):
        outside.client.change(uri, old, new)
    assert named(await outside.client.code_actions(uri, RANGE), "undo") != []
    report(outside, result["turnId"], (uri, [0, 1]))
    await outside.client.command("thinklsp.doctor")
    assert named(await outside.client.code_actions(uri, RANGE), "undo") == []


@pytest.mark.parametrize("params", [None, 7, {"turnId": 3}, {"turnId": "x", "files": [{"uri": None}]}])
async def test_a_nonsensical_report_is_ignored(begin: Begin, params: Any) -> None:
    outside, uri, _ = await start(begin, lambda _: None)
    await change(outside, uri)
    outside.client.notify("thinklsp/editor/kept", params)
    assert (await outside.client.command("thinklsp.undo"))["applied"] == "all"


# The tools edit files of at most 1 MiB.
LARGE = "".join(f"value_{number} = {number % 100}\n" + "# filler " * 9 + "\n" for number in range(10_000))
NAMES = tuple(f"large{number}.py" for number in range(2))


@pytest.mark.timing
async def test_large_files_are_reviewed_while_the_server_answers(begin: Begin) -> None:
    """A review of hundreds of hunks in 2 MB, half of them kept, and half of these undone later."""
    calls = (tool("edit_file", path=name, old_text=" = 3\n", new_text=" = three\n", replace_all=True) for name in NAMES)
    outside = await begin(
        answer(*calls),
        *[DONE] * 2,
        files={**dict.fromkeys(NAMES, LARGE), "b.py": "b = 1\n"},
        options={"edits": {"review": "always"}},
        announce=OWN,
    )
    client = outside.client
    uris, other = [outside.open(name) for name in NAMES], outside.open("b.py")
    hunks = LARGE.count(" = 3\n")
    reviewer = Reviewer(outside, lambda _: list(range(0, hunks, 2)))
    took: list[float] = []

    async def answer_others(until: Awaitable[Any]) -> Any:
        waiting = asyncio.ensure_future(until)
        while not waiting.done():
            began = time.monotonic()
            await client.code_actions(other, "b")
            took.append(time.monotonic() - began)
        return await waiting

    result = await answer_others(outside.edit(uris[0], "Use 33.", range=RANGE, version=1))
    assert len(reviewer.params) == 1
    assert statuses(result) == dict.fromkeys(NAMES, "some")
    assert [client.text(uri).count(" = three\n") for uri in uris] == [len(range(0, hunks, 2))] * len(NAMES)
    report(outside, result["turnId"], *((uri, list(range(0, hunks, 4))) for uri in uris))
    again = outside.turn("thinklsp.chat", {"prompt": "And now?", "sessionId": result["sessionId"]})
    assert (await answer_others(again))["text"] == "Done."
    assert NAMES[0] in said(outside.provider.requests[-1].body).partition("Not applied")[2]
    assert max(took) < 1
