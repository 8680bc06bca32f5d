"""Which actions are offered where, and in what dress: the contract's table."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import Any

import pytest
from lsprotocol.types import WorkspaceEdit

from tests.support import in_process as typed
from tests.support.in_process import in_process
from thinklsp.agent.prompts import READ_ONLY_ACTIONS
from thinklsp.lsp.documents.tracked_diagnostics import convert_diagnostics, structure_diagnostics
from thinklsp.lsp.editor.client import ClientFeatures
from thinklsp.lsp.edits.edit_ledger import UndoableTurn
from thinklsp.lsp.edits.pending_edits import OfferedEdit
from thinklsp.lsp.features import code_action
from thinklsp.lsp.features.code_action import ActionOffer, OfferContext, find_offers, format_title, is_kind_requested
from thinklsp.lsp.protocol.fast_initialize import COMMANDS, QUICKFIX
from thinklsp.settings.user_file import ActionSection

URI = "file:///ws/a.py"
TEXT = "x = 1\ndef f():\n    pass\nx = 3  # TODO: more\n# make it two AI!\n# why AI?\ny = 2\n"
PLAIN, DEFINITION, BODY, TODO, ORDER, QUESTION = 0, 1, 2, 3, 4, 5
LITERALS = ClientFeatures(code_action_literals=True)


def span(line: int, start: int = 0, end: int = 0) -> dict[str, Any]:
    return {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}


def problem(line: int = 0, message: str = "name 'x' is not defined") -> dict[str, Any]:
    return {"range": span(line, 0, 1), "message": message, "severity": 1, "source": "other"}


def situation(line: int = 0, *, selected: bool = False, **more: Any) -> OfferContext:
    where = typed.span(line, 0, line, 3 if selected else 0)
    document = typed.document(TEXT, uri=URI, version=4)
    diagnostics = structure_diagnostics(more.pop("diagnostics", []))
    return OfferContext(document, where, diagnostics, **({"automatic": False, "is_chat": False} | more))


def dressed(offer: ActionOffer, can: ClientFeatures) -> Any:
    """The offer as the client gets it."""
    return typed.as_json(code_action.build_action(offer, can))


def named(found: OfferContext) -> list[str]:
    return [offer.name for offer in find_offers(found)]


def lines(first: int, end: int) -> OfferContext:
    """Whole lines selected, up to the beginning of the last."""
    return replace(situation(), range=typed.span(first, 0, end, 0))


SELECTED = ["edit", "simplify", "explain", "review"]
HELD = OfferedEdit("t1", "edit a.py", WorkspaceEdit(document_changes=[]))
WRITTEN = UndoableTurn("t0", "fix a.py", "s")

BUSY: dict[str, Any] = {"selected": True, "diagnostics": [problem()], "running": ["t"], "pending_edits": [HELD]}

OFFERED: list[tuple[str, OfferContext, list[str]]] = [
    ("nothing here", situation(PLAIN), ["edit", "review"]),
    ("a selection", situation(PLAIN, selected=True), ["edit", "simplify", "explain", "review"]),
    ("a definition", situation(DEFINITION), ["complete", "document", "test", "edit", "review"]),
    ("an empty body", situation(BODY), ["complete", "edit", "review"]),
    ("a selection of lines with a TODO", lines(BODY + 1, TODO + 1), ["complete", *SELECTED]),
    ("a selection up to a line with a TODO", lines(PLAIN, DEFINITION), SELECTED),
    ("a TODO", situation(TODO), ["complete", "edit", "review"]),
    ("an order", situation(ORDER), ["edit", "review"]),
    ("a question", situation(QUESTION), ["edit", "review"]),
    ("diagnostics", situation(PLAIN, diagnostics=[problem(), problem(6)]), ["fix", "fix", "edit", "review"]),
    ("a running turn", situation(PLAIN, running=["t1", "t2"]), ["stop", "stop", "edit", "review"]),
    ("a held edit", situation(PLAIN, pending_edits=[HELD]), ["apply", "discard", "edit", "review"]),
    ("text of a turn", situation(PLAIN, undoable_turn=WRITTEN), ["undo", "edit", "review"]),
    ("text of a turn, automatically", situation(PLAIN, undoable_turn=WRITTEN, automatic=True), []),
    ("a chat document", situation(DEFINITION, selected=True, is_chat=True), ["send"]),
    ("a chat document with a turn", situation(is_chat=True, running=["t1"]), ["stop", "send"]),
    (
        "everything",
        situation(DEFINITION, undoable_turn=WRITTEN, **BUSY),
        [
            *("fix", "stop", "apply", "discard", "undo"),
            *("edit", "complete", "document", "test", "simplify", "explain", "review"),
        ],
    ),
    ("automatically", situation(DEFINITION, automatic=True, **BUSY), ["fix"]),
    ("automatically without diagnostics", situation(DEFINITION, selected=True, automatic=True), []),
    (
        "disabled",
        situation(DEFINITION, selected=True, diagnostics=[problem()], disabled=frozenset(("fix", "test", "edit"))),
        ["complete", "document", "simplify", "explain", "review"],
    ),
    ("disabled, automatically", situation(diagnostics=[problem()], automatic=True, disabled=frozenset(("fix",))), []),
]


@pytest.mark.parametrize(("found", "names"), [row[1:] for row in OFFERED], ids=[row[0] for row in OFFERED])
def test_what_is_offered(found: OfferContext, names: list[str]) -> None:
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
    "discard": ("refactor.rewrite.thinklsp.discard", "thinklsp: discard: edit a.py"),
    "stop": ("refactor.rewrite.thinklsp.stop", "thinklsp: stop"),
    "undo": ("refactor.rewrite.thinklsp.undo", "thinklsp: undo “fix a.py”"),
}


def everything() -> list[ActionOffer]:
    places = situation(DEFINITION, undoable_turn=WRITTEN, **BUSY), situation(ORDER), situation(QUESTION)
    return [offer for place in (*places, situation(is_chat=True)) for offer in find_offers(place)]


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
        assert action["command"]["command"] in COMMANDS
        assert "\n" not in action["title"]
        assert len(action["command"]["arguments"]) == 1
        assert ("edit" in action) == (offer.name == "apply"), "a look must not cost money"
        assert ("diagnostics" in action) == (offer.name == "fix")
        assert "tags" not in action
        assert not kind.startswith("source")
        # Clients without literal support know nothing but commands.
        assert dressed(offer, ClientFeatures()) == action["command"]
        assert dressed(offer, replace(LITERALS, code_action_tags=frozenset((1,))))["tags"] == [1]
        # Who takes no edits from a server has to bring it in himself.
        assert ("command" in dressed(offer, LITERALS)) == (offer.name != "apply")


def test_a_fix_is_about_its_own_diagnostic() -> None:
    found = [problem(0, "a\n  b"), problem(6, "x" * 200)]
    first, second = (dressed(offer, LITERALS) for offer in [*find_offers(situation(diagnostics=found))][:2])
    assert first["title"] == "thinklsp: fix a b"
    assert len(second["title"]) == 80
    assert second["title"].endswith("…")
    assert second["diagnostics"] == [found[1]]
    assert second["command"]["arguments"] == [
        {"uri": URI, "version": 4, "range": found[1]["range"], "name": "fix", "diagnostics": [found[1]]}
    ]


def test_a_message_in_markup_is_read_as_its_text() -> None:
    marked = problem() | {"message": {"kind": "markdown", "value": "**x**\nis wrong"}}
    fix, *_ = (dressed(offer, LITERALS) for offer in find_offers(situation(diagnostics=[marked])))
    assert fix["title"] == "thinklsp: fix **x** is wrong"
    # The editor gets it back as it told it, and tells it so again when the action is run.
    assert fix["diagnostics"] == fix["command"]["arguments"][0]["diagnostics"] == [marked]
    assert convert_diagnostics(structure_diagnostics([marked]))[0].message == "**x**\nis wrong"


def test_comments_are_instructions() -> None:
    order, *_ = find_offers(situation(ORDER))
    said, _, more = order.arguments["instruction"].partition("\n\n")
    assert (said, order.arguments["name"]) == ("make it two", "edit")
    assert "Remove the comment" in more
    # A question runs what only reads.
    question, *_ = find_offers(situation(QUESTION))
    assert (question.arguments["instruction"], question.arguments["name"]) == ("why", "ask")
    assert "ask" in READ_ONLY_ACTIONS
    # A selection that begins at such a comment is meant by it, and gets no second `edit`.
    assert named(situation(ORDER, selected=True)).count("edit") == 1


def test_edit_at_a_bare_cursor_names_what_it_works_on() -> None:
    for line, title, first, last, end in ((PLAIN, "this line", 0, 0, 5), (BODY, "f()", 1, 2, 8)):
        edit = next(offer for offer in find_offers(situation(line)) if offer.name == "edit")
        assert edit.title == f"edit {title} …"
        assert edit.arguments == {"uri": URI, "version": 4, "name": "edit", "range": typed.span(first, 0, last, end)}


def own(name: str, scope: Any) -> ActionSection:
    return ActionSection(name=name, title=f"  my\n{name}", prompt="Do it.", scope=scope)


OWN = [own("a", "selection"), own("b", "definition"), own("c", "file"), own("d", "staged")]


def test_own_actions_are_offered_by_their_scope() -> None:
    def names(found: OfferContext) -> list[str]:
        return [name for name in named(found) if len(name) == 1]

    assert names(situation(PLAIN, own=OWN)) == ["c", "d"]
    assert names(situation(PLAIN, selected=True, own=OWN)) == ["a", "c", "d"]
    assert names(situation(DEFINITION, own=OWN)) == ["b", "c", "d"]
    assert names(situation(PLAIN, own=OWN, disabled=frozenset("c"))) == ["d"]
    assert names(situation(PLAIN, own=OWN, is_chat=True)) == names(situation(PLAIN, own=OWN, automatic=True)) == []
    first, *_, last = (offer for offer in find_offers(situation(PLAIN, selected=True, own=OWN)) if len(offer.name) == 1)
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
    assert [name for name in ("fix", "edit") if is_kind_requested(DRESS[name][0], only)] == names


async def test_no_action_costs_a_model_call_or_a_look_at_the_disk() -> None:
    """A request is answered from memory, in one go: nothing is opened, no connection made, nothing left running."""
    touched: list[str] = []
    watching = False

    def watch(event: str, args: Any) -> None:
        if watching and event.split(".", maxsplit=1)[0] in ("open", "os", "socket", "subprocess"):
            touched.append(event)

    async with in_process() as editor:
        await editor.initialize({"textDocument": {"codeAction": {"codeActionLiteralSupport": {}}}})
        await editor.server.load()
        # What begins with it looks into the store.
        await asyncio.gather(*editor.server.state.tasks)
        item = {"uri": URI, "languageId": "python", "version": 4, "text": TEXT}
        editor.notify("textDocument/didOpen", {"textDocument": item})
        tasks = asyncio.all_tasks()
        sys.addaudithook(watch)
        watching = True
        try:
            for line in range(7):
                params = {"textDocument": {"uri": URI}, "range": span(line, 0, 3)}
                editor.request(line, "textDocument/codeAction", params | {"context": {"diagnostics": [problem()]}})
        finally:
            watching = False
        assert asyncio.all_tasks() == tasks
        answers = [await editor.answer(line) for line in range(7)]
    assert touched == []
    assert all(QUICKFIX in [action["kind"] for action in answer["result"]] for answer in answers)


MARKS = "\u202e\u2066\u200b\U000e0041\x1b\x00\x85"
ESCAPED = "".join(f"<U+{ord(mark):04X}>" for mark in MARKS[:-1])


def titles(found: OfferContext) -> list[str]:
    return [dressed(offer, LITERALS)["title"] for offer in find_offers(found)]


def test_titles_show_what_a_message_hides() -> None:
    [title, *_] = titles(situation(diagnostics=[problem(message=f"a{MARKS}\nb")]))
    assert title == f"thinklsp: fix a{ESCAPED} b"


@pytest.mark.parametrize(("mark", "words"), [("AI!", "edit as the comment says"), ("AI?", "edit: answer the comment")])
def test_a_comment_that_hides_something_says_so_before_its_words(mark: str, words: str) -> None:
    text = f"# make it\u202e two {'and more ' * 20}\u200b\U000e0041 {mark}\n"
    document = typed.document(text, uri=URI, version=4)
    [title, *_] = titles(replace(situation(0), document=document))
    assert title.startswith(f"thinklsp: {words}: (3 hidden characters) make it<U+202E> two"[:79])
    one = replace(situation(0), document=typed.document(f"# make\u200b it {mark}\n", uri=URI, version=4))
    assert "(1 hidden character) make<U+200B> it" in titles(one)[0]


def test_the_button_of_a_held_edit_shows_what_its_title_hides() -> None:
    assert format_title(f"apply: {MARKS}x\ny" + "z" * 10_000).startswith(f"thinklsp: apply: {ESCAPED}"[:79])
    assert len(format_title("z" * 1_000_000)) == 80
