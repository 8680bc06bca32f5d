"""The hover for text that a turn wrote. It says what changed the text, when and why, and how to undo the turn.

In Markdown, names from models, files and users are escaped, so that they render no links, images or HTML.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lsprotocol import types

from thinklsp.core.text_safety import escape_invisible
from thinklsp.lsp.server import ThinkLspServer

if TYPE_CHECKING:
    from thinklsp.lsp.edits.edit_ledger import Attribution

_MAX_EXPLANATION_LENGTH, _MAX_SENTENCES = 300, 3
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_CODE_SPAN = re.compile(r"(?<!`)(`[^`]+`)(?!`)")
# Characters that can begin markup within a line or at its beginning, and URLs that editors turn into links.
_MARKUP = re.compile(
    r"(?P<sign>[\\`*\[\]<>&~@$]|(?<!\w)_|_(?!\w)|(?<=:)/(?=/)|(?<=www)\.|^[-+#=]|(?<=^\d)[.)]|(?<=^\d\d)[.)])",
    re.IGNORECASE,
)


def register(server: ThinkLspServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def answer_hover(params: types.HoverParams) -> types.Hover | None:
        document, assistant = server.workspace.get(params.text_document.uri), server.assistant
        if document is None or assistant is None:
            return None
        # Another process may have written to the document. The next hover shows what is found.
        assistant.ledger.request_lookup(document.uri)
        origin = assistant.ledger.attribution.find_attribution(
            document, params.position.line, params.position.character
        )
        takes_markdown = server.state.client.features.hover_markdown
        form = types.MarkupKind.Markdown if takes_markdown else types.MarkupKind.PlainText
        return None if origin is None else build_hover(origin, form)


def build_hover(attribution: Attribution, form: types.MarkupKind) -> types.Hover:
    title, *details = (_join_lines(text) for text in list_facts(attribution))
    undo = _join_lines(attribution.turn.undo_title)
    when = format_moment(attribution.written_at, datetime.now().astimezone())
    if form is types.MarkupKind.PlainText:
        lines = (f"thinklsp changed this text {when}: {title}", *details, f"To undo: code action “thinklsp: {undo}”")
        return types.Hover(types.MarkupContent(form, "\n".join(filter(None, lines))))
    marked = (
        f"**thinklsp** changed this text {when}: **{escape_markup(title)}**",
        *map(escape_markup, details),
        f"To undo: code action **thinklsp: {escape_markup(undo)}**",
    )
    return types.Hover(types.MarkupContent(form, "\n\n".join(filter(None, marked))))


def list_facts(attribution: Attribution) -> tuple[str, ...]:
    """Return the title of the turn, its first sentences, its model and the outcome of its tests."""
    return (
        attribution.turn.title,
        extract_first_sentences(attribution.explanation),
        attribution.model and f"Model: {attribution.model}",
        attribution.turn.verified,
    )


def format_moment(moment: datetime, now: datetime) -> str:
    """Return a time in words, such as `today at 14:03`."""
    days = {now.date(): "today", now.date() - timedelta(days=1): "yesterday"}
    day = days.get(moment.date()) or f"on {moment.day} {moment:%B %Y}"
    return f"{day} at {moment:%H:%M}"


def escape_markup(line: str) -> str:
    """Escape the Markdown in a line, except code spans."""
    pieces = _CODE_SPAN.split(line)
    return "".join(piece if number % 2 else _MARKUP.sub(r"\\\g<sign>", piece) for number, piece in enumerate(pieces))


def extract_first_sentences(text: str) -> str:
    """Return the first sentences of a turn's answer on one line."""
    beginning = " ".join(_SENTENCE_END.split(_join_lines(text))[:_MAX_SENTENCES])
    return (
        beginning
        if len(beginning) <= _MAX_EXPLANATION_LENGTH
        else beginning[: _MAX_EXPLANATION_LENGTH - 1].rstrip() + "…"
    )


def _join_lines(text: str) -> str:
    return " ".join(escape_invisible(text).split())
