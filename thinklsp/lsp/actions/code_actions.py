"""Which actions are offered where. A pure look at memory: no I/O, no model, no edit inside – except `apply`, which
carries the edit that a turn has already made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thinklsp.lsp.announced import QUICKFIX, REWRITE
from thinklsp.lsp.documents.diagnostics import message_of
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.documents.places import Trigger, comment_trigger, has_definition
from thinklsp.lsp.documents.unfinished import is_unfinished
from thinklsp.lsp.editor.client import Abilities
from thinklsp.lsp.edits.standing import Held, Written
from thinklsp.lsp.protocol.forms import Range
from thinklsp.settings.early import EarlyAction
from thinklsp.tools.shown import hidden_count, one_line

if TYPE_CHECKING:
    # It checks the user's file, and code actions are answered before that is loaded.
    from thinklsp.settings.own_actions import ActionSection

_TITLE_LENGTH = 80
_LONGEST_LOOKED_AT = 1_000
_REMOVE_COMMENT = (
    "(A comment at this place says so and is addressed to you: remove it, the mark AI! with it, with the change.)"
)
_LLM_GENERATED = 1


@dataclass(frozen=True, slots=True)
class Offer:
    """One action before it is dressed for the client. `arguments` go to `command`; `edit` only with `apply`.
    `disabled`: why it cannot run now."""

    name: str
    title: str
    kind: str
    command: str
    arguments: Mapping[str, Any]
    diagnostics: tuple[Any, ...] = ()
    edit: Mapping[str, Any] | None = None
    disabled: str = ""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a code-action request is answered from. `running` are turns that work for this document,
    `written` is the newest turn that wrote to it, `own` are the user's own actions. `not_sent`: why a chat
    document has nothing to send now."""

    document: Document
    range: Range
    diagnostics: Sequence[Mapping[str, Any]]
    automatic: bool
    held: Sequence[Held]
    written: Written | None
    running: Sequence[str]
    is_chat: bool
    disabled: frozenset[str]
    own: Sequence[EarlyAction | ActionSection] = ()
    not_sent: str = ""


def offers(situation: Situation) -> Iterator[Offer]:
    found = _fixes(situation) if situation.automatic else _all(situation)
    return (offer for offer in found if offer.name not in situation.disabled)


def _all(situation: Situation) -> Iterator[Offer]:
    yield from _fixes(situation)
    yield from _running(situation)
    if situation.is_chat:
        where = {"uri": situation.document.uri}
        yield Offer("send", "send", f"{REWRITE}.thinklsp.send", "thinklsp.send", where, disabled=situation.not_sent)
        return
    document, line = situation.document, situation.range.start.line
    selected = situation.range.start != situation.range.end
    trigger = comment_trigger(document, line)
    if trigger is not None:
        yield _asked_by_comment(trigger, situation)
    elif selected:
        yield _rewrite("edit", "edit the selection …", situation)
    end = situation.range.end
    # A range that ends at the start of a line does not hold that line.
    if is_unfinished(document, line, end.line - 1 if end.character == 0 and end.line > line else end.line):
        yield _rewrite("complete", "complete this code", situation)
    if has_definition(document, line):
        yield _rewrite("document", "document this definition", situation)
        yield _rewrite("test", "write tests for this definition", situation)
    if selected:
        yield _rewrite("simplify", "simplify the selection", situation)
        yield _rewrite("explain", "explain the selection", situation)
    review = {"name": "review", "uri": document.uri}
    yield Offer("review", "review this file", f"{REWRITE}.thinklsp.review", "thinklsp.action", review)
    yield from _own(situation, selected=selected)


def _asked_by_comment(trigger: Trigger, situation: Situation) -> Offer:
    """Both are `edit` to whoever looks for actions; what is only to be answered changes nothing."""
    words = trigger.text
    if hidden := hidden_count(" ".join(words.split())):
        # Named first: the words may be cut.
        words = f"({hidden} hidden character{'s' if hidden > 1 else ''}) {words}"
    if trigger.mark == "?":
        return _rewrite("edit", f"edit: answer the comment: {words}", situation, runs="ask", instruction=trigger.text)
    said = f"{trigger.text}\n\n{_REMOVE_COMMENT}"
    return _rewrite("edit", f"edit as the comment says: {words}", situation, instruction=said)


def _own(situation: Situation, *, selected: bool) -> Iterator[Offer]:
    for action in situation.own:
        match action.scope:
            case "selection":
                is_offered = selected
            case "definition":
                is_offered = has_definition(situation.document, situation.range.start.line)
            case _:
                is_offered = True
        if is_offered:
            whole = action.scope in ("file", "staged")
            yield _rewrite(action.name, action.title, situation, whole=whole)


def _fixes(situation: Situation) -> Iterator[Offer]:
    for diagnostic in situation.diagnostics:
        message = message_of(diagnostic)
        arguments = {**_place(situation, diagnostic.get("range")), "name": "fix", "diagnostics": [diagnostic]}
        yield Offer("fix", f"fix {message}", QUICKFIX, "thinklsp.action", arguments, (diagnostic,))


def _running(situation: Situation) -> Iterator[Offer]:
    for turn_id in situation.running:
        yield Offer("stop", "stop", f"{REWRITE}.thinklsp.stop", "thinklsp.cancel", {"turnId": turn_id})
    for held in situation.held:
        title = f"apply: {held.title}"
        yield Offer(
            "apply",
            title,
            f"{REWRITE}.thinklsp.apply",
            "thinklsp.apply",
            {"turnId": held.turn_id},
            edit=held.edit,
        )
    if (written := situation.written) is not None:
        kind = f"{REWRITE}.thinklsp.undo"
        yield Offer("undo", f"undo: {written.title}", kind, "thinklsp.undo", {"turnId": written.turn_id})


def _rewrite(
    name: str, title: str, situation: Situation, *, runs: str = "", whole: bool = False, **extra: Any
) -> Offer:
    """`runs`: the action that is run, where it goes by another name; `whole`: it is about the whole document."""
    arguments = {**_place(situation), "name": runs or name, **extra}
    if whole:
        del arguments["range"]
    return Offer(name, title, f"{REWRITE}.thinklsp.{name}", "thinklsp.action", arguments)


def _place(situation: Situation, where: Any = None) -> dict[str, Any]:
    document, range_ = situation.document, situation.range
    if not isinstance(where, Mapping):
        where = {
            "start": {"line": range_.start.line, "character": range_.start.character},
            "end": {"line": range_.end.line, "character": range_.end.character},
        }
    return {"uri": document.uri, "version": document.version, "range": where}


def wanted(kind: str, only: Sequence[str] | None) -> bool:
    """Kinds are hierarchical: `refactor` asks for `refactor.rewrite` too. An empty text asks for any kind."""
    if only is None:
        return True
    return any(not asked or kind == asked or kind.startswith(f"{asked}.") for asked in only)


def can_be_shown(offer: Offer, can: Abilities) -> bool:
    """One that cannot run is shown with its reason, or not at all."""
    return not offer.disabled or (can.code_action_literals and can.code_actions_disabled)


def dressed(offer: Offer, can: Abilities) -> dict[str, Any]:
    """The offer as the client takes it: a CodeAction, or a plain Command for clients that know no other."""
    title = title_of(offer.title)
    command = {"title": title, "command": offer.command, "arguments": [dict(offer.arguments)]}
    if not can.code_action_literals:
        return command
    action: dict[str, Any] = {"title": title, "kind": offer.kind, "isPreferred": False}
    if offer.edit is not None:
        action["edit"] = dict(offer.edit)
    if offer.edit is None or can.apply_edit:
        # After an edit, which brings this document up to date, the command brings the other files, if there are any.
        # A client that takes no edits from a server has no use for it, and ALE would run it in the edit's place.
        action["command"] = command
    if offer.disabled:
        action["disabled"] = {"reason": offer.disabled}
    if offer.diagnostics:
        action["diagnostics"] = [dict(diagnostic) for diagnostic in offer.diagnostics]
    if _LLM_GENERATED in can.code_action_tags:
        action["tags"] = [_LLM_GENERATED]
    return action


def title_of(words: str) -> str:
    """A title that shows what is in `words`: one line, nothing hidden, and no more than a menu has room for."""
    # Cut before, too: a message can be a megabyte.
    title = one_line(f"thinklsp: {words[:_LONGEST_LOOKED_AT]}")
    return title if len(title) <= _TITLE_LENGTH else title[: _TITLE_LENGTH - 1] + "…"
