"""Which actions are offered where, and in what dress: the contract's table."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.support.in_process import in_process
from thinklsp.agent.prompts import READING
from thinklsp.lsp.actions import code_actions
from thinklsp.lsp.actions.code_actions import (
    Held,
    Offer,
    Situation,
    Written,
    dressed,
    offers,
    title_of,
    wanted,
)
from thinklsp.lsp.documents.diagnostics import problem_of
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.editor.client import Abilities
from thinklsp.lsp.protocol.forms import Opened, Position, Range
from thinklsp.settings.own_actions import ActionSection

URI = "file:///ws/a.py"
TEXT = "x = 1\ndef f():\n    pass\nx = 3  # TODO: more\n# make it two AI!\n# why AI?\ny = 2\n"
PLAIN, DEFINITION, BODY, TODO, ORDER, QUESTION = 0, 1, 2, 3, 4, 5
LITERALS = Abilities(code_action_literals=True)


def span(line: int, start: int = 0, end: int = 0) -> dict[str, Any]:
    return {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}


def problem(line: int = 0, message: str = "name 'x' is not defined") -> dict[str, Any]:
    return {"range": span(line, 0, 1), "message": message, "severity": 1, "source": "other"}


def situation(line: int = 0, *, selected: bool = False, **more: Any) -> Situation:
    where = Range(Position(line, 0), Position(line, 3 if selected else 0))
    document = Document(Opened(URI, "python", 4, TEXT), "utf-16")
    given = {
        "diagnostics": [],
        "automatic": False,
        "held": [],
        "written": None,
        "running": [],
        "is_chat": False,
        "disabled": frozenset(),
    }
    return Situation(document=document, range=where, **(given | more))


def named(found: Situation) -> list[str]:
    return [offer.name for offer in offers(found)]


def lines(first: int, end: int) -> Situation:
    """Whole lines selected, up to the beginning of the last."""
    return replace(situation(), range=Range(Position(first, 0), Position(end, 0)))


SELECTED = ["edit", "simplify", "explain", "review"]
HELD = Held("t1", "edit a.py", {"documentChanges": []})
WRITTEN = Written("t0", "fix a.py", "s")

OFFERED: list[tuple[str, Situation, list[str]]] = [
    ("nothing here", situation(PLAIN), ["review"]),
    ("a selection", situation(PLAIN, selected=True), ["edit", "simplify", "explain", "review"]),
    ("a definition", situation(DEFINITION), ["complete", "document", "test", "review"]),
    ("an empty body", situation(BODY), ["complete", "review"]),
    ("a selection of lines with a TODO", lines(BODY + 1, TODO + 1), ["complete", *SELECTED]),
    ("a selection up to a line with a TODO", lines(PLAIN, DEFINITION), SELECTED),
    ("a TODO", situation(TODO), ["complete", "review"]),
    ("an order", situation(ORDER), ["edit", "review"]),
    ("a question", situation(QUESTION), ["edit", "review"]),
    ("diagnostics", situation(PLAIN, diagnostics=[problem(), problem(6)]), ["fix", "fix", "review"]),
    ("a running turn", situation(PLAIN, running=["t1", "t2"]), ["stop", "stop", "review"]),
    ("a held edit", situation(PLAIN, held=[HELD]), ["apply", "review"]),
    ("text of a turn", situation(PLAIN, written=WRITTEN), ["undo", "review"]),
    ("text of a turn, automatically", situation(PLAIN, written=WRITTEN, automatic=True), []),
    ("a chat document", situation(DEFINITION, selected=True, is_chat=True), ["send"]),
    ("a chat document with a turn", situation(is_chat=True, running=["t1"]), ["stop", "send"]),
    (
        "everything",
        situation(DEFINITION, selected=True, diagnostics=[problem()], running=["t"], held=[HELD], written=WRITTEN),
        ["fix", "stop", "apply", "undo", "edit", "complete", "document", "test", "simplify", "explain", "review"],
    ),
    (
        "automatically",
        situation(DEFINITION, selected=True, diagnostics=[problem()], running=["t"], held=[HELD], automatic=True),
        ["fix"],
    ),
    ("automatically without diagnostics", situation(DEFINITION, selected=True, automatic=True), []),
    (
        "disabled",
        situation(DEFINITION, selected=True, diagnostics=[problem()], disabled=frozenset(("fix", "test", "edit"))),
        ["complete", "document", "simplify", "explain", "review"],
    ),
    ("disabled, automatically", situation(diagnostics=[problem()], automatic=True, disabled=frozenset(("fix",))), []),
]


@pytest.mark.parametrize(("found", "names"), [row[1:] for row in OFFERED], ids=[row[0] for row in OFFERED])
def test_what_is_offered(found: Situation, names: list[str]) -> None:
    assert sorted(named(found)) == sorted(names)


# name -> kind and the beginning of the title.
DRESS: dict[str, tuple[str, str]] = {
    "fix": ("quickfix", "thinklsp: fix name 'x' is not defined"),
    "edit": ("refactor.rewrite.thinklsp.edit", "thinklsp: edit"),
    "complete": ("refactor.rewrite.thinklsp.complete", "thinklsp: complete"),
    "document": ("refactor.rewrite.thinklsp.document", "thinklsp: document"),
    "test": ("refactor.rewrite.thinklsp.test", "thinklsp: write tests"),
    "simplify": ("refactor.rewrite.thinklsp.simplify", "thinklsp: simplify"),
    "explain": ("refactor.rewrite.thinklsp.explain", "thinklsp: explain"),
    "review": ("refactor.rewrite.thinklsp.review", "thinklsp: review"),
    "send": ("refactor.rewrite.thinklsp.send", "thinklsp: send"),
    "apply": ("refactor.rewrite.thinklsp.apply", "thinklsp: apply"),
    "stop": ("refactor.rewrite.thinklsp.stop", "thinklsp: stop"),
    "undo": ("refactor.rewrite.thinklsp.undo", "thinklsp: undo: fix a.py"),
}


def everything() -> list[Offer]:
    found = situation(DEFINITION, selected=True, diagnostics=[problem()], running=["t"], held=[HELD], written=WRITTEN)
    chat = situation(is_chat=True)
    return [*offers(found), *offers(situation(ORDER)), *offers(situation(QUESTION)), *offers(chat)]


def test_every_action_in_its_dress() -> None:
    assert {offer.name for offer in everything()} == set(DRESS)
    for offer in everything():
        kind, title = DRESS[offer.name]
        action = dressed(offer, replace(LITERALS, apply_edit=True))
        assert action["kind"] == kind
        assert action["title"].startswith(title)
        assert len(action["title"]) <= 80
        assert action["isPreferred"] is False
        assert action["command"]["title"] == action["title"]
        assert action["command"]["command"].startswith("thinklsp.")
        assert len(action["command"]["arguments"]) == 1
        assert ("edit" in action) == (offer.name == "apply"), "a look must not cost money"
        assert ("diagnostics" in action) == (offer.name == "fix")
        assert "tags" not in action
        assert not kind.startswith("source")
        # Clients without literal support know nothing but commands.
        plain = dressed(offer, Abilities())
        assert plain == action["command"]
        tagged = dressed(offer, replace(LITERALS, code_action_tags=frozenset((1,))))
        assert tagged["tags"] == [1]
        # Who takes no edits from a server has to bring it in himself.
        assert ("command" in dressed(offer, LITERALS)) == (offer.name != "apply")


def test_a_fix_is_about_its_own_diagnostic() -> None:
    found = [problem(0, "a\n  b"), problem(6, "x" * 200)]
    first, second = (dressed(offer, LITERALS) for offer in [*offers(situation(diagnostics=found))][:2])
    assert first["title"] == "thinklsp: fix a b"
    assert len(second["title"]) == 80
    assert second["title"].endswith("…")
    assert second["diagnostics"] == [found[1]]
    assert second["command"]["arguments"] == [
        {"uri": URI, "version": 4, "range": found[1]["range"], "name": "fix", "diagnostics": [found[1]]}
    ]


def test_a_message_in_markup_is_read_as_its_text() -> None:
    marked = problem() | {"message": {"kind": "markdown", "value": "**x**\nis wrong"}}
    fix, *_ = (dressed(offer, LITERALS) for offer in offers(situation(diagnostics=[marked])))
    assert fix["title"] == "thinklsp: fix **x** is wrong"
    # The editor gets it back as it told it, and tells it so again when the action is run.
    assert fix["diagnostics"] == fix["command"]["arguments"][0]["diagnostics"] == [marked]
    assert problem_of(marked).message == "**x**\nis wrong"


def test_comments_are_instructions() -> None:
    order, *_ = offers(situation(ORDER))
    said, _, more = order.arguments["instruction"].partition("\n\n")
    assert (said, order.arguments["name"]) == ("make it two", "edit")
    assert "remove it" in more
    # A question runs what only reads.
    question, *_ = offers(situation(QUESTION))
    assert (question.arguments["instruction"], question.arguments["name"]) == ("why", "ask")
    assert "ask" in READING
    # A selection that begins at such a comment is meant by it, and gets no second `edit`.
    assert named(situation(ORDER, selected=True)).count("edit") == 1


def own(name: str, scope: Any) -> ActionSection:
    return ActionSection(name=name, title=f"  my\n{name}", prompt="Do it.", scope=scope)


OWN = [own("a", "selection"), own("b", "definition"), own("c", "file"), own("d", "staged")]


def test_own_actions_are_offered_by_their_scope() -> None:
    def names(found: Situation) -> list[str]:
        return [name for name in named(found) if len(name) == 1]

    assert names(situation(PLAIN, own=OWN)) == ["c", "d"]
    assert names(situation(PLAIN, selected=True, own=OWN)) == ["a", "c", "d"]
    assert names(situation(DEFINITION, own=OWN)) == ["b", "c", "d"]
    assert names(situation(PLAIN, own=OWN, disabled=frozenset("c"))) == ["d"]
    assert names(situation(PLAIN, own=OWN, is_chat=True)) == names(situation(PLAIN, own=OWN, automatic=True)) == []
    first, *_, last = (offer for offer in offers(situation(PLAIN, selected=True, own=OWN)) if len(offer.name) == 1)
    action = dressed(first, LITERALS)
    assert (action["title"], action["kind"]) == ("thinklsp: my a", "refactor.rewrite.thinklsp.a")
    assert action["command"]["arguments"] == [{"uri": URI, "version": 4, "range": span(0, 0, 3), "name": "a"}]
    # What is about the whole document names no place in it.
    assert last.arguments == {"uri": URI, "version": 4, "name": "d"}


ONLY: list[tuple[list[str] | None, list[str]]] = [
    (None, ["fix", "edit"]),
    ([], []),
    (["quickfix"], ["fix"]),
    (["refactor"], ["edit"]),
    (["refactor.rewrite"], ["edit"]),
    (["refactor.rewrite.thinklsp"], ["edit"]),
    (["refactor.rewrite.thinklsp.edit"], ["edit"]),
    (["refactor.rewrite.thinklsp.edi"], []),
    (["refactor.rewrite.thinklsp.edit.more"], []),
    (["refactor.extract"], []),
    (["source", "source.fixAll"], []),
    (["", "quickfix"], ["fix", "edit"]),
    (["quickfix", "refactor"], ["fix", "edit"]),
]


@pytest.mark.parametrize(("only", "names"), ONLY)
def test_kinds_are_hierarchical(only: list[str] | None, names: list[str]) -> None:
    assert [name for name in ("fix", "edit") if wanted(DRESS[name][0], only)] == names


async def test_no_action_costs_a_model_call_or_a_look_at_the_disk() -> None:
    """A request is answered from memory, in one go: nothing is opened, no connection made, nothing left running."""
    touched: list[str] = []
    watching = False

    def watch(event: str, args: Any) -> None:
        if watching and event.split(".", maxsplit=1)[0] in ("open", "os", "socket", "subprocess"):
            touched.append(event)

    async with in_process() as editor:
        await editor.initialize({"textDocument": {"codeAction": {"codeActionLiteralSupport": {}}}})
        await editor.server.state.load_face()
        # What begins with it looks into the store.
        await asyncio.gather(*editor.server.state.tasks)
        item = {"uri": URI, "languageId": "python", "version": 4, "text": TEXT}
        editor.notify("textDocument/didOpen", {"textDocument": item})
        tasks = asyncio.all_tasks()
        sys.addaudithook(watch)
        watching = True
        try:
            for line in range(7):
                params = {
                    "textDocument": {"uri": URI},
                    "range": span(line, 0, 3),
                    "context": {"diagnostics": [problem()]},
                }
                editor.request(line, "textDocument/codeAction", params)
        finally:
            watching = False
        assert asyncio.all_tasks() == tasks
        answers = [await editor.answer(line) for line in range(7)]
    assert touched == []
    assert all(code_actions.QUICKFIX in [action["kind"] for action in answer["result"]] for answer in answers)


MARKS = "\u202e\u2066\u200b\U000e0041\x1b\x00\x85"
ESCAPED = "".join(f"<U+{ord(mark):04X}>" for mark in MARKS[:-1])


def titles(found: Situation) -> list[str]:
    return [dressed(offer, LITERALS)["title"] for offer in offers(found)]


def test_titles_show_what_a_message_hides() -> None:
    """H-F13."""
    [title, *_] = titles(situation(diagnostics=[problem(message=f"a{MARKS}\nb")]))
    assert title == f"thinklsp: fix a{ESCAPED} b"


@pytest.mark.parametrize(("mark", "words"), [("AI!", "edit as the comment says"), ("AI?", "edit: answer the comment")])
def test_a_comment_that_hides_something_says_so_before_its_words(mark: str, words: str) -> None:
    """H-F13."""
    text = f"# make it\u202e two {'and more ' * 20}\u200b\U000e0041 {mark}\n"
    document = Document(Opened(URI, "python", 4, text), "utf-16")
    [title, *_] = titles(replace(situation(0), document=document))
    assert title.startswith(f"thinklsp: {words}: (3 hidden characters) make it<U+202E> two"[:79])
    one = replace(situation(0), document=Document(Opened(URI, "python", 4, f"# make\u200b it {mark}\n"), "utf-16"))
    assert "(1 hidden character) make<U+200B> it" in titles(one)[0]


def test_the_button_of_a_held_edit_shows_what_its_title_hides() -> None:
    """H-F13."""
    assert title_of(f"apply: {MARKS}x\ny" + "z" * 10_000).startswith(f"thinklsp: apply: {ESCAPED}"[:79])
    assert len(title_of("z" * 1_000_000)) == 80
