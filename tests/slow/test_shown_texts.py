"""A-26: nothing in texts of models, tools and files loads, hides or controls anything."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest
from lsprotocol.types import MarkupKind, WorkDoneProgressEnd
from markdown_it import MarkdownIt

from tests.core.test_visible import IGNORABLE
from tests.slow.hostile_markdown import some_markdown
from tests.slow.running import Tally, refuse_question
from tests.support.in_process import as_json, in_process
from tests.support.sizes import SEED, sized, tries
from thinklsp.core.edits import TextEdit
from thinklsp.core.messages import ToolUseBlock
from thinklsp.core.text_safety import sanitize_message
from thinklsp.lsp.chats import chat_documents as documents
from thinklsp.lsp.chats.chat_documents import ChatAnswer, prepare_text
from thinklsp.lsp.edits.edit_ledger import Attribution, UndoableTurn
from thinklsp.lsp.features.hover import build_hover
from thinklsp.tools import markdown_sanitizer as module
from thinklsp.tools.markdown_sanitizer import ActiveKind
from thinklsp.tools.registry import TOOLS
from thinklsp.tools.tool import ToolContext, call
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

DOCUMENTS, SENTENCES, TOOL_TEXTS = 0.25, 0.5, 0.25
OWN_PICTURE = "pictures/own.png"

# Elements and attributes that previews create from Markdown.
MADE = {"a": {"href", "title"}, "code": {"class"}, "ol": {"start"}, "td": {"style"}, "th": {"style"}}
ACTIVE = {
    *("script", "style", "iframe", "object", "embed", "base", "meta", "link", "img", "svg", "image", "video", "audio")
}
PAGE = re.compile("(?:https?|mailto):", re.IGNORECASE)


class Elements(HTMLParser):
    """Finds elements that act by themselves or do more than open a page."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        names = {name for name, _ in attrs}
        if tag == "img" and dict(attrs).get("src") == OWN_PICTURE:
            return
        if tag in ACTIVE or not names <= MADE.get(tag, set()):
            self.wrong.append(f"<{tag} {attrs}>")
        for name, value in attrs:
            if name == "href" and ":" in re.split("[/?#]", value or "")[0] and not PAGE.match(value or ""):
                self.wrong.append(f"leads to {value}")
            if name == "style" and not re.fullmatch(r"text-align:(left|right|center)", value or ""):
                self.wrong.append(f"style {value}")


class Trusting(MarkdownIt):
    def validateLink(self, url: str) -> bool:  # noqa: N802 - the name is the library's.
        return True


def previews() -> Iterator[MarkdownIt]:
    """Editors let HTML through, and one of them allows any link."""
    yield MarkdownIt("commonmark", {"maxNesting": 100})
    yield MarkdownIt("js-default", {"html": True, "linkify": False})
    yield Trusting("commonmark", {"maxNesting": 100}).enable(["table", "strikethrough"])


PREVIEWS = list(previews())
DIAGRAM = re.compile(r'class="language-[^\w"]*(?:mermaid|vega)[^"]*">((?:(?!</code>).)*)', re.IGNORECASE | re.DOTALL)


def faults(text: str) -> list[str]:
    found = []
    for preview in PREVIEWS:
        html, judge = preview.render(text), Elements()
        judge.feed(html)
        found += judge.wrong
        found += [f"diagram {drawn[:60]}" for drawn in DIAGRAM.findall(html) if "//" in drawn or "@{" in drawn]
    return found


Make = Callable[[ChatAnswer], ChatAnswer]


def made_inert(answer: ChatAnswer) -> ChatAnswer:
    return asyncio.run(documents.sanitize_answer(answer))


# Answers enter a document in three ways: as a new one, below its text, and as an exchange of another turn. The user's
# part has a reference, which an answer must not use for another image.
ID = "0" * 32
OWN = f"[ours]: {OWN_PICTURE}\n\n## You\n\nWhat is this?"


def document(text: str, make: Make, way: int) -> str:
    answer = make(ChatAnswer(text, (f"{text[:200]} was not changed",)))
    if way == 0:
        return documents.build_document(ID, answer.text, answer)
    edits = documents.plan_answer_edits(OWN, ID, answer)
    if way == 2:
        edits = documents.plan_exchange_edits(OWN, ID, prepare_text("a prompt"), answer)
    return edited(OWN, edits)


def edited(text: str, edits: tuple[TextEdit, ...]) -> str:
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        text = text[: edit.start] + edit.new_text + text[edit.end :]
    return text


def survivors(count: int, rng: random.Random, make: Make = made_inert) -> Iterator[tuple[str, list[str]]]:
    """Return texts of which something active is left in a document."""
    for number in range(count):
        text = some_markdown(rng)
        if wrong := faults(document(text, make, number % 3)):
            yield text, wrong


def test_what_is_shown_in_documents_loads_nothing(tally: Tally) -> None:
    count = tries("A-26", DOCUMENTS)
    assert next(survivors(count, random.Random(SEED)), None) is None
    tally("A-26", count)


def test_answers_one_after_the_other_load_nothing() -> None:
    """An answer leaves nothing that another one can use: no reference, open element or fence."""
    rng = random.Random(SEED)
    for _ in range(sized(commit=50, nightly=2_000)):
        text = OWN
        for _ in range(4):
            text = edited(text, documents.plan_answer_edits(text, ID, made_inert(ChatAnswer(some_markdown(rng)))))
        assert faults(text) == [], text


def as_it_came(answer: ChatAnswer) -> ChatAnswer:
    return ChatAnswer(prepare_text(answer.text), answer.notices)


def without(kind: ActiveKind) -> Make:
    """Turn one rule off."""

    def make(answer: ChatAnswer) -> ChatAnswer:
        text = answer.text.lstrip("\ufeff")
        for _ in range(8):
            found = {
                one for parser in module._choose_parsers(text) for one in module._find_active_content(parser, text)
            }
            others = {one for one in found if one[0] != kind}
            if not others:
                break
            text = module._escape_active_content(text, others)
        return ChatAnswer(prepare_text(text))

    return make


def by_one_parser(answer: ChatAnswer) -> ChatAnswer:
    """Ignore the other ways to read the text."""
    text = answer.text
    for _ in range(8):
        text = module._escape_active_content(text, {*module._find_active_content(module._build_parser(), text)})
    return ChatAnswer(prepare_text(text))


@pytest.mark.parametrize("make", [as_it_came, by_one_parser, *map(without, get_args(ActiveKind))])
def test_a_rule_that_is_off_is_found(make: Make) -> None:
    assert next(survivors(3_000, random.Random(SEED), make), None) is not None


TRICKS = (
    *("\u202e", "\u2066", "\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u034f", "\u3164", "\U000e0041", "\ufe0f"),
    *("\x1b[31m", "\x1b]8;;https://evil\x07", "\x9b2J", "\b", "\r", "\n", "\r\n", "\t", "\0", "\x7f", "\x85", "\u2028"),
    *("[run](command:x)", "[x", "](", "]", "(", "] (", "👩\u200d💻", "❤\ufe0f", "word ", "<U+202E>", "é", "\ud800"),
)  # fmt: skip
HIDDEN = {chr(code) for code in IGNORABLE}
PICTURE = "[\u2600-\u27bf\U0001f300-\U0001faff]"
EMOJI = re.compile(f"(?<={PICTURE})\ufe0f?\u200d(?={PICTURE})|(?<={PICTURE})\ufe0f")


def some_text(rng: random.Random) -> str:
    tricks = rng.choices(TRICKS, k=rng.randrange(1, 12))
    # Any ignorable character, not only well-known ones.
    return "".join(rng.choice((trick, trick, trick, trick + chr(rng.choice(IGNORABLE)))) for trick in tricks)


def hidden(text: str) -> set[str]:
    return HIDDEN & set(EMOJI.sub("", text))


def test_sentences_hide_nothing_and_lead_nowhere(tally: Tally) -> None:
    rng, count = random.Random(SEED), tries("A-26", SENTENCES)
    for _ in range(count):
        text = some_text(rng)
        assert hidden(sanitize_message(text)) == set(), text
        assert "](" not in sanitize_message(text), text
    tally("A-26", count)


async def test_every_sentence_takes_that_way(tmp_path: Path) -> None:
    said, shown = "[run](command:x)\u202e", "[run] (command:x)<U+202E>"
    async with in_process() as editor:
        await editor.initialize({"window": {"workDoneProgress": True}}, root=tmp_path)
        client = editor.server.state.client
        client.show_message("info", said)
        client.send_progress("t", WorkDoneProgressEnd(message=said))
        asking = asyncio.create_task(client.ask_user(said, ("yes",)))
        await editor.wait_for(lambda: sum(shown in str(message) for message in editor.received) == 3, what="all three")
        assert "](" not in str(editor.received)
        asking.cancel()


async def test_a_model_is_shown_nothing_hidden(tally: Tally) -> None:
    rng, count = random.Random(SEED), tries("A-26", TOOL_TEXTS)
    for _ in range(count):
        name, text = "untitled:" + some_text(rng), some_text(rng)
        view = WorkspaceView((), [DocumentSnapshot(name, 1, text)])
        context = ToolContext(EditOverlay(view), refuse_question)
        calls = (
            ("read_file", {"path": name}),
            ("read_file", {"path": some_text(rng)}),
            ("edit_file", {"path": name, "old_text": some_text(rng), "new_text": some_text(rng)}),
        )
        for tool, arguments in calls:
            output = await call(ToolUseBlock("1", tool, arguments), TOOLS, context)
            assert hidden(output.text) == set(), (tool, arguments)
    tally("A-26", count)


@pytest.mark.parametrize("careless", [str, lambda text: re.sub(r"[\u200b-\u200f\u202a-\u202e]|\x1b\[\d*m", "", text)])
def test_a_filter_of_known_characters_is_found(careless: Callable[[str], str]) -> None:
    rng = random.Random(SEED)
    assert any(hidden(careless(some_text(rng))) for _ in range(200))


def test_a_hover_renders_no_markup_of_others() -> None:
    rng = random.Random(SEED)
    for _ in range(sized(commit=100, nightly=5_000)):
        why = rng.choice((some_markdown, some_text))(rng).encode("utf-8", "replace").decode()
        turn = UndoableTurn("turn", some_markdown(rng), "session")
        origin = Attribution(turn, why, some_text(rng), datetime(2026, 11, 22, tzinfo=UTC))
        assert hidden(as_json(build_hover(origin, MarkupKind.PlainText))["contents"]["value"]) == set()
        text = as_json(build_hover(origin, MarkupKind.Markdown))["contents"]["value"]
        for preview in PREVIEWS:
            judge = Elements()
            judge.feed(preview.render(text))
            assert set(judge.seen) <= {"p", "strong", "code"}, text
