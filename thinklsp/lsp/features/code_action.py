"""Code actions, which are answered from memory without I/O or model calls.

Only the `apply` action contains an edit. A turn has already finished that edit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from lsprotocol.types import Diagnostic, Range

from thinklsp.core.prompt_syntax import COMMENT_NOTE
from thinklsp.core.text_safety import count_invisible, to_one_line
from thinklsp.lsp.documents.code_locations import (
    CommentTrigger,
    find_comment_trigger,
    find_edit_subject,
    has_definition,
    is_unfinished,
)
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.documents.tracked_diagnostics import track_diagnostics
from thinklsp.lsp.editor.client import ClientFeatures
from thinklsp.lsp.editor.connection_state import ActionContext
from thinklsp.lsp.protocol.fast_initialize import QUICKFIX, REWRITE
from thinklsp.lsp.server import ThinkLspServer
from thinklsp.settings.startup_settings import MenuAction

if TYPE_CHECKING:
    # Importing these modules at run time delays the first code action.
    from thinklsp.lsp.edits.edit_ledger import UndoableTurn
    from thinklsp.lsp.edits.pending_edits import OfferedEdit
    from thinklsp.settings.user_file import ActionSection

_MAX_TITLE_LENGTH = 80
_MAX_MESSAGE_LENGTH = 1_000

_LLM = types.CodeActionTag.LlmGenerated

ClientAction = types.CodeAction | types.Command


def register(server: ThinkLspServer) -> None:
    options = types.CodeActionOptions(code_action_kinds=[QUICKFIX, REWRITE])

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, options)
    def answer_code_actions(params: types.CodeActionParams) -> list[ClientAction]:
        uri, can = params.text_document.uri, server.state.client.features
        if (document := server.workspace.get(uri)) is not None:
            _record_location(server, document, params)
            if server.assistant is not None:
                server.assistant.schedule_refresh()
            offers = find_offers(_build_context(server, document, params))
        else:
            offers = _find_new_file_offers(server, uri)
        return [
            build_action(offer, can)
            for offer in offers
            if is_kind_requested(offer.kind, params.context.only) and can_be_shown(offer, can)
        ]


def _find_new_file_offers(server: ThinkLspServer, uri: str) -> Iterator[ActionOffer]:
    """Yield the offers for a file that does not exist yet, so that an editor can show its text before it is created."""
    if server.assistant is not None:
        for pending in server.assistant.edit_applier.pending_edits.find_new_file_offers(uri):
            yield from _build_pending_offers(pending)


def _record_location(server: ThinkLspServer, document: Document, params: types.CodeActionParams) -> None:
    """Remember the user's position for commands without arguments."""
    state = server.state
    state.documents.mark_used(document)
    diagnostics = track_diagnostics(document, params.range, params.context.diagnostics)
    state.last_action = ActionContext(document.uri, document.version, params.range, diagnostics)
    if not server.is_chat(document.uri):
        state.last_location = state.last_action


def _build_context(server: ThinkLspServer, document: Document, params: types.CodeActionParams) -> OfferContext:
    context, is_chat = params.context, server.is_chat(document.uri)
    automatic = context.trigger_kind is types.CodeActionTriggerKind.Automatic
    request = OfferContext(document, params.range, context.diagnostics, automatic=automatic, is_chat=is_chat)
    if (assistant := server.assistant) is None:
        return replace(request, disabled=server.early_settings.disabled_actions, own=server.early_settings.own_actions)
    return replace(
        request,
        pending_edits=assistant.find_pending_edits(document.uri),
        undoable_turn=assistant.ledger.find_undoable_turn(document.uri),
        running=assistant.turns.find_for_document(document.uri),
        disabled=frozenset(assistant.settings.actions.disabled),
        own=assistant.engine.user.file.actions,
        not_sent=(assistant.chat.explain_unsendable(document) or "") if is_chat else "",
    )


@dataclass(frozen=True, slots=True)
class ActionOffer:
    """A code action before its conversion to a type that the client supports.

    `arguments` are the arguments of `command`. Only the `apply` action has an `edit`. `disabled` is the reason why the
    action cannot run now.
    """

    name: str
    title: str
    kind: str
    command: str
    arguments: Mapping[str, Any]
    diagnostics: tuple[Diagnostic, ...] = ()
    edit: types.WorkspaceEdit | None = None
    disabled: str = ""


@dataclass(frozen=True, slots=True)
class OfferContext:
    """A code action request and the state of its document.

    `automatic` is True if the editor sent the request without user action. `pending_edits` contains the edits waiting
    to be applied to the document. `undoable_turn` is the newest turn that wrote to the document, and `running` contains
    the turns that are working on it. `own` contains the user's custom actions. `not_sent` is the reason why a chat
    document cannot be sent now.
    """

    document: Document
    range: Range
    diagnostics: Sequence[Diagnostic]
    automatic: bool
    is_chat: bool
    pending_edits: Sequence[OfferedEdit] = ()
    undoable_turn: UndoableTurn | None = None
    running: Sequence[str] = ()
    disabled: frozenset[str] = frozenset()
    own: Sequence[MenuAction | ActionSection] = ()
    not_sent: str = ""


def find_offers(context: OfferContext) -> Iterator[ActionOffer]:
    # The undo is last: who chooses the first entry from habit does not want it.
    all_offers = _find_fixes(context) if context.automatic else (*_find_all(context), *_find_undo(context))
    return (offer for offer in all_offers if offer.name not in context.disabled)


def _find_all(context: OfferContext) -> Iterator[ActionOffer]:
    yield from _find_fixes(context)
    yield from _find_turn_actions(context)
    if context.is_chat:
        arguments = {"uri": context.document.uri}
        yield ActionOffer(
            "send", "send", f"{REWRITE}.thinklsp.send", "thinklsp.send", arguments, disabled=context.not_sent
        )
        return
    document, line = context.document, context.range.start.line
    is_selection = context.range.start != context.range.end
    trigger = find_comment_trigger(document, line)
    if trigger is not None:
        yield _build_comment_offer(trigger, context)
    elif is_selection:
        yield _build_rewrite("edit", "edit the selection …", context)
    else:
        yield _build_cursor_offer(context)
    end = context.range.end
    # A range that ends at the start of a line excludes that line.
    if is_unfinished(document, line, end.line - 1 if end.character == 0 and end.line > line else end.line):
        yield _build_rewrite("complete", "complete this code", context)
    if has_definition(document, line):
        yield _build_rewrite("document", "document this definition", context)
        yield _build_rewrite("test", "write tests for this definition", context)
    if is_selection:
        yield _build_rewrite("simplify", "simplify the selection", context)
        yield _build_rewrite("explain", "explain the selection", context)
    review = {"name": "review", "uri": document.uri}
    yield ActionOffer("review", "review this file", f"{REWRITE}.thinklsp.review", "thinklsp.action", review)
    yield from _find_own_actions(context, is_selection=is_selection)


def _build_cursor_offer(context: OfferContext) -> ActionOffer:
    """Build the offer to edit the definition around the cursor, or else the cursor's line."""
    subject = find_edit_subject(context.document, context.range.start.line)
    located = replace(context, range=subject.to_range(context.document))
    return _build_rewrite("edit", f"edit {subject.name or 'this line'} …", located)


def _build_comment_offer(trigger: CommentTrigger, context: OfferContext) -> ActionOffer:
    """Build the offer for an instruction comment. Its name is always `edit`, but `AI?` runs the action `ask`."""
    words = trigger.text
    if hidden := count_invisible(" ".join(words.split())):
        # Put the number of hidden characters first, because the end of the text may be cut off.
        words = f"({hidden} hidden character{'s' if hidden > 1 else ''}) {words}"
    if trigger.mark == "?":
        return _build_rewrite(
            "edit", f"edit: answer the comment: {words}", context, action="ask", instruction=trigger.text
        )
    title, instruction = f"edit as the comment says: {words}", trigger.text + COMMENT_NOTE
    return _build_rewrite("edit", title, context, instruction=instruction)


def _find_own_actions(context: OfferContext, *, is_selection: bool) -> Iterator[ActionOffer]:
    is_definition = has_definition(context.document, context.range.start.line)
    for action in context.own:
        places = {"selection": is_selection, "definition": is_definition}
        if places.get(action.scope, True):
            is_whole = action.scope in ("file", "staged")
            yield _build_rewrite(action.name, action.title, context, is_whole=is_whole)


def _find_fixes(context: OfferContext) -> Iterator[ActionOffer]:
    for diagnostic in context.diagnostics:
        arguments = {**_build_location(context, diagnostic.range), "name": "fix", "diagnostics": [diagnostic]}
        title = f"fix {diagnostic.message or 'this problem'}"
        yield ActionOffer("fix", title, QUICKFIX, "thinklsp.action", arguments, (diagnostic,))


def _find_turn_actions(context: OfferContext) -> Iterator[ActionOffer]:
    for turn_id in context.running:
        yield ActionOffer("stop", "stop", f"{REWRITE}.thinklsp.stop", "thinklsp.cancel", {"turnId": turn_id})
    for held in context.pending_edits:
        yield from _build_pending_offers(held)


def _find_undo(context: OfferContext) -> Iterator[ActionOffer]:
    if (turn := context.undoable_turn) is not None:
        kind = f"{REWRITE}.thinklsp.undo"
        yield ActionOffer("undo", turn.undo_title, kind, "thinklsp.undo", {"turnId": turn.turn_id})


def _build_pending_offers(pending: OfferedEdit) -> Iterator[ActionOffer]:
    for name, edit in (("apply", pending.edit), ("discard", None)):
        title, kind = f"{name}: {pending.title}", f"{REWRITE}.thinklsp.{name}"
        yield ActionOffer(name, title, kind, f"thinklsp.{name}", {"turnId": pending.turn_id}, edit=edit)


def _build_rewrite(
    name: str, title: str, context: OfferContext, *, action: str = "", is_whole: bool = False, **extra: Any
) -> ActionOffer:
    """Build an offer for `thinklsp.action`.

    `action` is the action to run if it differs from `name`. If `is_whole` is True, the offer has no range.
    """
    arguments = {**_build_location(context), "name": action or name, **extra}
    if is_whole:
        del arguments["range"]
    return ActionOffer(name, title, f"{REWRITE}.thinklsp.{name}", "thinklsp.action", arguments)


def _build_location(context: OfferContext, range_: Range | None = None) -> dict[str, Any]:
    document = context.document
    return {"uri": document.uri, "version": document.version, "range": range_ or context.range}


def is_kind_requested(kind: str, only: Sequence[str] | None) -> bool:
    """Return whether the client requested a kind. Kinds are hierarchical: `refactor` includes `refactor.rewrite`."""
    if only is None:
        return True
    return any(not requested or kind == requested or kind.startswith(requested + ".") for requested in only)


def can_be_shown(offer: ActionOffer, features: ClientFeatures) -> bool:
    """Return whether the client can show an offer. A disabled offer requires a client that can show the reason."""
    if offer.name == "apply" and not features.accepts_edits:
        return False  # The answer of the turn contains the new text.
    return not offer.disabled or (features.code_action_literals and features.code_actions_disabled)


def build_action(offer: ActionOffer, features: ClientFeatures) -> ClientAction:
    """Return an offer as a CodeAction, or as a Command for clients without CodeAction literal support."""
    title = format_title(offer.title)
    command = types.Command(title, offer.command, arguments=[dict(offer.arguments)])
    if not features.code_action_literals:
        return command
    # The command runs after the edit and changes the other files. It is omitted if the client accepts no edits from a
    # server, because ALE runs the command instead of the edit.
    runs_command = offer.edit is None or features.apply_edit
    return types.CodeAction(
        title,
        kind=offer.kind,
        diagnostics=offer.diagnostics or None,
        is_preferred=False,
        disabled=types.CodeActionDisabled(offer.disabled) if offer.disabled else None,
        edit=offer.edit,
        command=command if runs_command else None,
        tags=[_LLM] if _LLM in features.code_action_tags else None,
    )


def format_title(words: str) -> str:
    """Return an action's title as a single line without hidden characters, short enough for a menu."""
    # Truncate the text first, because a diagnostic message can be a megabyte long.
    title = to_one_line(f"thinklsp: {words[:_MAX_MESSAGE_LENGTH]}")
    return title if len(title) <= _MAX_TITLE_LENGTH else title[: _MAX_TITLE_LENGTH - 1] + "…"
