"""A-26: what models, tools and files say, on its way to people and to models: nothing in it loads, hides or controls.

Markdown is judged by what a preview makes of it: it is rendered as editors do, and the elements are looked at. Other
texts are judged by their characters, against Unicode's own list.
"""

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
from markdown_it import MarkdownIt

from tests.support.hostile_markdown import some_markdown
from tests.support.in_process import in_process
from tests.support.sizes import SEED, sized, tries
from tests.tools.test_visible import IGNORABLE
from thinklsp.core.edits import TextEdit
from thinklsp.core.messages import ToolUseBlock
from thinklsp.lsp.chats.chat_documents import Answer, make_answer_inert, new_document, with_answer, with_exchange
from thinklsp.lsp.edits.hover import hover
from thinklsp.lsp.edits.standing import Written
from thinklsp.lsp.edits.written_text import Origin
from thinklsp.tools import inert as module
from thinklsp.tools.base import ToolContext, call
from thinklsp.tools.inert import Kind
from thinklsp.tools.registry import TOOLS
from thinklsp.tools.shown import told
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

# The shares of the figure, by what they cost.
DOCUMENTS, SENTENCES, TOOL_TEXTS = 0.25, 0.5, 0.25
OWN_PICTURE = "pictures/own.png"

# Elements with the attributes that previews make of Markdown; those of HTML may have none.
MADE = {"a": {"href", "title"}, "code": {"class"}, "ol": {"start"}, "td": {"style"}, "th": {"style"}}
ACTIVE = {
    *("script", "style", "iframe", "object", "embed", "base", "meta", "link", "img", "svg", "image", "video", "audio"),
}
PAGE = re.compile("(?:https?|mailto):", re.IGNORECASE)


class Elements(HTMLParser):
    """What of a rendered text would do something by itself, or something else than open a page."""

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
    """Editors render like this: HTML is let through, and one of them allows any link."""
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


Make = Callable[[Answer], Answer]


def made_inert(answer: Answer) -> Answer:
    return asyncio.run(make_answer_inert(answer))


# How a text of a model gets into a document: new, below what is there, between prompts, as an exchange of another turn.
# The user's own part holds a reference, which words of an answer must not turn into an image of anybody else's.
ID = "0" * 32
OWN = f"[ours]: {OWN_PICTURE}\n\n## You\n\nWhat is this?"


def document(text: str, make: Make, way: int) -> str:
    answer = make(Answer(text, (f"{text[:200]} was not changed",)))
    if way == 0:
        return new_document(ID, answer.text, answer)
    return edited(OWN, with_answer(OWN, ID, answer) if way == 1 else with_exchange(OWN, ID, "a prompt", answer))


def edited(text: str, edits: tuple[TextEdit, ...]) -> str:
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        text = text[: edit.start] + edit.new_text + text[edit.end :]
    return text


def survivors(count: int, rng: random.Random, make: Make = made_inert) -> Iterator[tuple[str, list[str]]]:
    """Texts of which something is left in a document; `count` are tried, in all the ways into one by turns."""
    for number in range(count):
        text = some_markdown(rng)
        if wrong := faults(document(text, make, number % 3)):
            yield text, wrong


def test_what_is_shown_in_documents_loads_nothing(tally: Callable[[str, int], None]) -> None:
    count = tries("A-26", DOCUMENTS)
    assert next(survivors(count, random.Random(SEED)), None) is None
    tally("A-26", count)


def test_answers_one_after_the_other_load_nothing() -> None:
    """What one leaves behind – a reference, an open element, a fence – is nothing that another can use."""
    rng = random.Random(SEED)
    for _ in range(sized(commit=50, nightly=2_000)):
        text = OWN
        for _ in range(4):
            text = edited(text, with_answer(text, ID, made_inert(Answer(some_markdown(rng)))))
        assert faults(text) == [], text


def as_it_came(answer: Answer) -> Answer:
    return answer


def without(kind: Kind) -> Make:
    """The same, with one rule off."""

    def make(answer: Answer) -> Answer:
        text = answer.text.lstrip("\ufeff")
        for _ in range(8):
            found = {one for parser in module._parsers(text) for one in module._dangers(parser, text)}
            others = {one for one in found if one[0] != kind}
            if not others:
                break
            text = module._spelled_out(text, others)
        return Answer(text)

    return make


def by_one_parser(answer: Answer) -> Answer:
    """Without the other ways to read it."""
    text = answer.text
    for _ in range(8):
        text = module._spelled_out(text, {*module._dangers(module._parser(), text)})
    return Answer(text)


@pytest.mark.parametrize("make", [as_it_came, by_one_parser, *map(without, get_args(Kind))])
def test_a_rule_that_is_off_is_found(make: Make) -> None:
    assert next(survivors(3_000, random.Random(SEED), make), None) is not None


# Characters that hide, turn round or control; and what makes a link or colours of a line.
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
    # Any ignorable character, not only those with a name in the news.
    return "".join(rng.choice((trick, trick, trick, trick + chr(rng.choice(IGNORABLE)))) for trick in tricks)


def hidden(text: str) -> set[str]:
    return HIDDEN & set(EMOJI.sub("", text))


def test_sentences_hide_nothing_and_lead_nowhere(tally: Callable[[str, int], None]) -> None:
    rng, count = random.Random(SEED), tries("A-26", SENTENCES)
    for _ in range(count):
        text = some_text(rng)
        assert hidden(told(text)) == set(), text
        assert "](" not in told(text), text
    tally("A-26", count)


async def test_every_sentence_takes_that_way(tmp_path: Path) -> None:
    """Messages, questions and progress, as they leave the server."""
    said, shown = "[run](command:x)\u202e", "[run] (command:x)<U+202E>"
    async with in_process() as editor:
        await editor.initialize({"window": {"workDoneProgress": True}}, root=tmp_path)
        client = editor.server.state.client
        client.show_message("info", said)
        client.progress("t", {"kind": "end", "message": said})
        asking = asyncio.create_task(client.question(said, ("yes",)))
        await editor.wait_for(lambda: sum(shown in str(message) for message in editor.received) == 3, what="all three")
        assert "](" not in str(editor.received)
        asking.cancel()


async def test_a_model_is_shown_nothing_hidden(tally: Callable[[str, int], None]) -> None:
    """By what tools answer: texts, names, and errors that repeat either."""
    rng, count = random.Random(SEED), tries("A-26", TOOL_TEXTS)
    for _ in range(count):
        name, text = "untitled:" + some_text(rng), some_text(rng)
        view = WorkspaceView((), [DocumentSnapshot(name, 1, text)])
        context = ToolContext(EditOverlay(view), nobody)
        calls = (
            ("read_file", {"path": name}),
            ("read_file", {"path": some_text(rng)}),
            ("edit_file", {"path": name, "old_text": some_text(rng), "new_text": some_text(rng)}),
        )
        for tool, arguments in calls:
            output = await call(ToolUseBlock("1", tool, arguments), TOOLS, context)
            assert hidden(output.text) == set(), (tool, arguments)
    tally("A-26", count)


async def nobody(_question: str, _options: tuple[str, ...]) -> str | None:
    raise AssertionError


@pytest.mark.parametrize("careless", [str, lambda text: re.sub(r"[\u200b-\u200f\u202a-\u202e]|\x1b\[\d*m", "", text)])
def test_a_filter_of_known_characters_is_found(careless: Callable[[str], str]) -> None:
    rng = random.Random(SEED)
    assert any(hidden(careless(some_text(rng))) for _ in range(200))


def test_a_hover_is_one_block_of_text() -> None:
    rng = random.Random(SEED)
    for _ in range(sized(commit=100, nightly=5_000)):
        why = rng.choice((some_markdown, some_text))(rng).encode("utf-8", "replace").decode()
        turn = Written("turn", some_markdown(rng), "session")
        origin = Origin(turn, why, some_text(rng), "", datetime(2026, 11, 22, tzinfo=UTC))
        # Before it is wrapped, which may part an emoji.
        assert hidden(hover(origin, "plaintext")["contents"]["value"]) == set()
        text = hover(origin, "markdown")["contents"]["value"]
        for preview in PREVIEWS:
            judge = Elements()
            judge.feed(preview.render(text))
            assert judge.seen == ["pre", "code"], text
