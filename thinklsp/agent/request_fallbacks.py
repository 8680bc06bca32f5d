"""Fallbacks, which change later requests after a provider has rejected part of a request, and lost thinking.

If a provider rejects earlier thinking, thinklsp first asks the provider to ignore it and then removes it. If a model
rejects an effort level or a form of thinking, a lower effort or another form replaces it. Each fallback is tried once.
The engine stores fallbacks, and `learn` restores them in another process.

Thinking can be sent back only to the provider, model, address and key that produced it. Other thinking is found before
a request, and the user is told that it is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, assert_never, get_args

from thinklsp.core.bounded_dict import BoundedDict
from thinklsp.core.choices import EFFORTS, Effort
from thinklsp.core.errors import BadRequest, ProviderError
from thinklsp.core.events import Fallback, Notice
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    Message,
    Origin,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    UserMessage,
    strip_opaque_state,
)
from thinklsp.providers.base import HttpRequest, ModelRequest, Thinking
from thinklsp.providers.catalogue import ModelInfo, ThinkingForm
from thinklsp.providers.failures import OutputRejected, OutputTooLong, Remedy, RequestRefused

# Providers that ignore earlier thinking while thinking is off.
_IGNORING_PROVIDERS = ("anthropic", "simulator")
# Google's signed tool calls contain encrypted thinking, even if no thinking is visible in the answer.
_SIGNING_PROVIDER = "google"


@dataclass(frozen=True, slots=True)
class ThinkingLoss:
    """A notice for the user that the model cannot read the thinking in earlier answers.

    `reason` and `conversation_prefix` identify the loss, so that the user sees the notice only once.
    `conversation_prefix` ends with the last answer that contains the thinking.
    """

    reason: str
    text: str
    conversation_prefix: Conversation


def find_losses(conversation: Conversation, request: ModelRequest, target: Origin) -> Iterator[ThinkingLoss]:
    """Yield the losses of earlier thinking in a request.

    `conversation` is the full history. `request` is the request after all fallbacks. The model can read only thinking
    whose origin is `target`.
    """
    issuers = _find_issuers(conversation)
    foreign = {place: _describe_issuer(origin, target) for place, origin in issuers.items() if origin != target}
    if foreign:
        reasons = " and ".join(dict.fromkeys(foreign.values()))
        answers = _format_answer_count(len(foreign))
        text = f"{request.model.id} cannot read the thinking in {answers}, because it came from {reasons}."
        yield ThinkingLoss(f"foreign: {reasons}", text, conversation[: max(foreign) + 1])
    if request.thinking.form == "off" and request.model.provider in _IGNORING_PROVIDERS:
        own = [place for place, origin in _find_issuers(request.conversation).items() if origin == target]
        if own:
            answers = _format_answer_count(len(own))
            text = f"Thinking is off, so {request.model.id} does not read the thinking in {answers}."
            yield ThinkingLoss("off", text, conversation[: own[-1] + 1])


UNSIGNED_NOTICE = (
    "The provider sent thinking without a signature, so the model cannot read that thinking later. A gateway may have "
    "removed the signature."
)
BUDGET_OMITTED_NOTICE = (
    "The running tool calls started without thinking that the model accepts, so the model continues without its "
    "thinking budget until your next prompt."
)


def count_lost_answers(before: Conversation, after: Conversation) -> int:
    """Return the number of answers whose thinking is in `before` but not in `after`."""
    return len(_find_issuers(before)) - len(_find_issuers(after))


def _find_issuers(conversation: Conversation) -> dict[int, Origin]:
    return {
        place: origin
        for place, message in enumerate(conversation)
        if message.role == "assistant" and (origin := find_thinking_origin(message))
    }


def find_thinking_origin(message: Message) -> Origin | None:
    """Return the origin of a message's thinking, or None if the message contains no thinking."""
    for block in message.blocks:
        match block:
            case ThinkingBlock(raw=raw) | RedactedThinkingBlock(raw=raw) if raw is not None:
                return raw.origin
            case ToolUseBlock(raw=raw) if raw is not None and raw.origin.provider == _SIGNING_PROVIDER:
                return raw.origin
            case _:
                pass
    return None


def _describe_issuer(issuer: Origin, target: Origin) -> str:
    if issuer.provider != target.provider:
        return f"another provider ({issuer.provider}, {issuer.model})"
    if issuer.model != target.model:
        return f"another model ({issuer.model})"
    return "another address of the provider" if issuer.host != target.host else "another API key"


def _format_answer_count(count: int) -> str:
    return "an earlier answer" if count == 1 else f"{count} earlier answers"


_MAX_CONVERSATIONS = 16
# An answer gets at least a quarter of `maxTokens`, or this many tokens. With less, the conversation is compacted.
_MIN_OUTPUT_TOKENS, _ENOUGH_OUTPUT_TOKENS = 1_024, 4_096
DROP_NOTICE = (
    "Messages before the model's earlier thinking have changed, so the provider ignores the thinking that no longer "
    "matches. The conversation continues."
)
# For each form of thinking: its name if a model rejects it, its name beside an effort, and what a model does with it.
_FORM_WORDS: Mapping[ThinkingForm, tuple[str, str, str]] = {
    "unset": ("default thinking", "its default thinking", "uses its default thinking"),
    "off": ("disabled thinking", "thinking off", "answers without thinking"),
    "between_tools": (
        "thinking between tool calls only",
        "thinking between tools",
        "thinks between tool calls only",
    ),
    "adaptive": ("adaptive thinking", "adaptive thinking", "uses adaptive thinking"),
    "manual": ("a thinking budget", "a thinking budget", "uses a thinking budget"),
}
NEVER_NOTICE = "The provider does not accept earlier thinking, so thinklsp no longer sends it."
STRIP_NOTICE = "The provider rejected the model's earlier thinking; the conversation continues without it."

_REJECTED_OUTPUT = "Your last answer was discarded and is not part of this conversation."
_FORMS: Mapping[str, ThinkingForm] = {form: form for form in get_args(ThinkingForm)}
# For each part of requests that can be left out: the change to a request, and the notice for the user.
_REFUSED_PARTS: Mapping[Remedy, tuple[Mapping[str, Any], str]] = {
    "compaction": (
        {"compact_at": None},
        "The provider does not compact conversations with {}; thinklsp compacts them instead.",
    ),
    "cache": ({"cache_hints": False}, "The provider rejected prompt cache hints for {}; they are no longer sent."),
    "counts": (
        {"thinking_counts": False},
        "The provider cannot count tokens while {} thinks; the counts are shown afterwards.",
    ),
}


class RequestFallbacks:
    """The fallbacks for a provider endpoint.

    Fallbacks for a single conversation are kept only for the 16 newest conversations.
    """

    def __init__(self) -> None:
        self._conversation_fallbacks: deque[Fallback] = deque(maxlen=_MAX_CONVERSATIONS)
        self._replacement_forms: dict[tuple[str, str], ThinkingForm] = {}
        # The replacement forms that were already tried. Without this record, two forms could replace each other
        # endlessly.
        self._tried_forms: dict[tuple[str, ThinkingForm], set[ThinkingForm]] = {}
        # Pairs of a model id and a rejected effort, in the form `FORM:LEVEL`.
        self._rejected_efforts: set[tuple[str, str]] = set()
        self._limited_models: set[tuple[str, str]] = set()
        # Hash values, so that no conversation is kept in memory only because its thinking was lost.
        self._reported_losses: dict[int, None] = BoundedDict(4 * _MAX_CONVERSATIONS)

    def learn(self, fallback: Fallback) -> None:
        match fallback.kind:
            case "form":
                if fallback.replacement in _FORMS:
                    self._replacement_forms[fallback.model, fallback.rejected_value] = _FORMS[fallback.replacement]
            case "effort":
                self._rejected_efforts.add((fallback.model, fallback.rejected_value))
            case "never" | "compaction" | "cache" | "counts":
                self._limited_models.add((fallback.model, fallback.kind))
            case "told":
                self._reported_losses[_hash_loss(fallback)] = None
            case "drop" | "bare":
                if fallback not in self._conversation_fallbacks:
                    self._conversation_fallbacks.appendleft(fallback)
            case _:
                assert_never(fallback.kind)

    def adjust_request(self, request: ModelRequest) -> ModelRequest:
        """Return the request with all known fallbacks applied."""
        request = replace(request, thinking=self.adjust_thinking(request.model, request.thinking))
        for kind, (changes, _) in _REFUSED_PARTS.items():
            if (request.model.id, kind) in self._limited_models:
                request = replace(request, **changes)
        if (request.model.id, "never") in self._limited_models:
            return _strip_request(request)
        for fallback in self._conversation_fallbacks:
            if request.conversation[: len(fallback.conversation_prefix)] == fallback.conversation_prefix:
                return _apply_fallback(request, fallback)
        return request

    def adjust_thinking(self, model: ModelInfo, thinking: Thinking) -> Thinking:
        """Return the thinking parameters with a form and an effort that the provider accepts."""
        form = self._replacement_forms.get((model.id, thinking.form))
        return self._lower_effort(model, thinking if form is None else replace(thinking, form=form, budget_tokens=None))

    def report_losses(self, losses: Iterable[ThinkingLoss], model: str) -> Iterator[Notice]:
        """Yield a notice for each loss of thinking that the user has not seen yet."""
        for loss in losses:
            fallback = Fallback(model, "told", loss.reason, conversation_prefix=loss.conversation_prefix)
            if _hash_loss(fallback) not in self._reported_losses:
                yield replace(self._record(fallback, loss.text), level="info")

    def find_fallback(
        self, error: ProviderError, full_request: ModelRequest, sent: ModelRequest
    ) -> tuple[ModelRequest, Notice] | None:
        """Return a changed request that the provider may accept, with a notice for the user, or None.

        `sent` is the rejected request. `full_request` is the original request without fallbacks.
        """
        if isinstance(error, OutputTooLong):
            return _shorten_output(error.output_left, full_request, sent)
        if not isinstance(error, RequestRefused):
            return None
        match error.remedy:
            case "drop" | "bare" | "never":
                # Keep the changes that earlier fallbacks have made.
                thinking = replace(sent.thinking, drop_mismatched=full_request.thinking.drop_mismatched)
                full_request = replace(sent, conversation=full_request.conversation, thinking=thinking)
                return self._remove_thinking(error, full_request, sent)
            case "form":
                return self._replace_form(error.instead, full_request, sent)
            case "effort":
                return self._replace_effort(full_request, sent)
            case "compaction" | "cache" | "counts":
                changes, text = _REFUSED_PARTS[error.remedy]
                changed = replace(sent, **changes)
                fallback = Fallback(sent.model.id, error.remedy)
                return None if changed == sent else (changed, self._record(fallback, text.format(sent.model.id)))
            case _:
                assert_never(error.remedy)

    def strip_thinking(
        self, error: ProviderError, sent: ModelRequest, encode: Callable[[ModelRequest], HttpRequest]
    ) -> ModelRequest | None:
        """Return `sent` without earlier thinking, as a last attempt after an unexplained rejection.

        Returns None if the provider explained the error, or if the encoded request would be the same. For example, an
        encoded request does not contain thinking from other providers. If the attempt succeeds, `confirm_stripped`
        records the fallback.
        """
        if not (isinstance(error, BadRequest) and error.unexplained):
            return None
        stripped = _strip_request(sent)
        is_same = stripped == sent or encode(stripped).body == encode(sent).body
        return None if is_same else stripped

    def confirm_stripped(self, full_request: ModelRequest) -> Notice:
        """Record that the provider accepts the conversation without earlier thinking. Return a notice for the user."""
        return self._record(
            Fallback(full_request.model.id, "bare", conversation_prefix=full_request.conversation), STRIP_NOTICE
        )

    def _lower_effort(self, model: ModelInfo, thinking: Thinking) -> Thinking:
        """Lower the effort to the highest level that the model has not rejected.

        The effort is None if the model has rejected every level.
        """
        if thinking.effort is None:
            return thinking
        highest = EFFORTS.index(thinking.effort)
        # For unknown models, all effort levels are possible.
        levels = [*(level for level in model.efforts or EFFORTS if EFFORTS.index(level) < highest), thinking.effort]
        accepted = [each for each in levels if (model.id, f"{thinking.form}:{each}") not in self._rejected_efforts]
        return replace(thinking, effort=accepted[-1] if accepted else None)

    def _replace_effort(self, full_request: ModelRequest, sent: ModelRequest) -> tuple[ModelRequest, Notice] | None:
        rejected = sent.thinking.effort
        if rejected is not None:
            notice = self._record(Fallback(sent.model.id, "effort", f"{sent.thinking.form}:{rejected}"), "")
            lower = replace(sent, thinking=self._lower_effort(sent.model, sent.thinking))
            return lower, replace(notice, text=format_effort_notice(lower, rejected))
        # Some providers use an effort level to disable thinking, and gateways convert every form to an effort level.
        return self._replace_form("adaptive" if sent.thinking.form == "off" else "unset", full_request, sent)

    def _replace_form(
        self, replacement: ThinkingForm, full_request: ModelRequest, sent: ModelRequest
    ) -> tuple[ModelRequest, Notice] | None:
        requested = (full_request.model.id, full_request.thinking.form)
        tried = self._tried_forms.setdefault(requested, set())
        tried |= {full_request.thinking.form, sent.thinking.form}
        if replacement in tried:
            return None
        rejected, now = _FORM_WORDS[sent.thinking.form][0], _FORM_WORDS[replacement][2]
        text = f"{sent.model.id} does not support {rejected}; it now {now}."
        return replace(sent, thinking=replace(sent.thinking, form=replacement, budget_tokens=None)), self._record(
            Fallback(full_request.model.id, "form", full_request.thinking.form, replacement), text
        )

    def _remove_thinking(
        self, error: RequestRefused, full_request: ModelRequest, sent: ModelRequest
    ) -> tuple[ModelRequest, Notice] | None:
        if _strip_request(full_request) == full_request:
            return None
        if error.remedy == "never" and (sent.model.id, "never") not in self._limited_models:
            return _strip_request(full_request), self._record(Fallback(sent.model.id, "never"), NEVER_NOTICE)
        is_unchanged = sent.conversation == full_request.conversation and not sent.thinking.drop_mismatched
        can_drop = error.remedy == "drop" and is_unchanged and sent.thinking.form == "adaptive"
        fallback = Fallback(
            sent.model.id, "drop" if can_drop else "bare", conversation_prefix=full_request.conversation
        )
        adjusted = _apply_fallback(full_request, fallback)
        if adjusted == sent:
            return None
        return adjusted, self._record(fallback, DROP_NOTICE if can_drop else STRIP_NOTICE)

    def _record(self, fallback: Fallback, text: str) -> Notice:
        self.learn(fallback)
        return Notice("warning", text, fallback)


def _shorten_output(left: int, full_request: ModelRequest, sent: ModelRequest) -> tuple[ModelRequest, Notice] | None:
    """Limit the output to the tokens that are left in the context window. Return None if they are too few.

    The limit is not recorded, because the next prompt has another length.
    """
    limit, thinking = sent.max_tokens, sent.thinking
    if limit is None or limit != full_request.max_tokens or left >= limit:
        return None
    if left <= max(_MIN_OUTPUT_TOKENS, min(_ENOUGH_OUTPUT_TOKENS, limit // 4)):
        return None
    if thinking.budget_tokens is not None and thinking.budget_tokens >= left:
        thinking = replace(thinking, budget_tokens=max(sent.model.budget_least, left // 2))
    text = (
        f"`maxTokens` {limit:,} and the conversation together exceed the context window of {sent.model.id}; the answer "
        "gets the tokens that are left."
    )
    return replace(sent, max_tokens=left, thinking=thinking), Notice("warning", text)


def format_effort_notice(sent: ModelRequest, rejected: Effort | None) -> str:
    """Return a notice for the user that another effort replaces the rejected effort."""
    effort = sent.thinking.effort
    replacement = f"effort {effort} is used" if effort is not None else "it chooses its own effort"
    return (
        f"{sent.model.id} does not accept effort {rejected} with {_FORM_WORDS[sent.thinking.form][1]}; {replacement}."
    )


def _hash_loss(fallback: Fallback) -> int:
    """Hash a loss. The last message of its prefix contains lost thinking, so the hash needs only two messages."""
    prefix = fallback.conversation_prefix
    return hash((fallback.model, fallback.rejected_value, len(prefix), prefix[:1], prefix[-1:]))


def _strip_request(request: ModelRequest) -> ModelRequest:
    return _apply_fallback(request, Fallback(request.model.id, "bare", conversation_prefix=request.conversation))


def _apply_fallback(request: ModelRequest, fallback: Fallback) -> ModelRequest:
    if fallback.kind == "drop":
        return replace(request, thinking=replace(request.thinking, drop_mismatched=True))
    count = len(fallback.conversation_prefix)
    conversation: Conversation = tuple(
        strip_opaque_state(message) if isinstance(message, AssistantMessage) and index < count else message
        for index, message in enumerate(request.conversation)
    )
    return replace(request, conversation=conversation)


def explain_rejection(request: ModelRequest, error: OutputRejected) -> ModelRequest:
    """Add the reason why the model's last answer was discarded to the end of the request, once.

    A model whose thinking is bound to the messages before it gets the same request again. Otherwise, the provider would
    reject the thinking of the next answer later, because the session does not contain the reason.
    """
    note = f"{_REJECTED_OUTPUT} {error} Answer again, and call tools only with valid names and arguments."
    *before, last = request.conversation
    if request.model.prefix_bound or not isinstance(last, UserMessage):
        return request
    is_note = any(isinstance(b, TextBlock) and b.text.startswith(_REJECTED_OUTPUT) for b in last.blocks)
    return replace(request, conversation=(*before, *([] if is_note else [last]), UserMessage.from_text(note)))
