"""What a request needs since the service refused the thinking in it, or the way in which it asked for something.

Where thinking is bound to everything before it and that has changed, the service is asked to leave out what no longer
fits. Otherwise the thinking so far stays away whole: a gap in the middle would be refused just as well. Either is tried
once and then kept for the conversation; a refusal after both is the end. A service that takes no thinking back at all
is not sent any again. A form of thinking or a level of effort that the model does not take, because the catalogue was
wrong about it, is changed and the change kept for the model: another form replaces a refused one, the next lower level
of effort a refused one. No refused form or level is tried again.
Nor is a service asked again to shorten what a model reads once it has refused to.
What is found out goes up with its notice, and comes back by `learn` in another process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import assert_never, get_args

from thinklsp.agent.thinking_losses import Loss
from thinklsp.core.bare import bare_message
from thinklsp.core.choices import EFFORTS, Effort
from thinklsp.core.errors import BadRequest, ProviderError
from thinklsp.core.events import Notice
from thinklsp.core.messages import AssistantMessage, Conversation
from thinklsp.core.remedies import Remedy
from thinklsp.providers.base import ModelRequest, Thinking, ThinkingForm
from thinklsp.providers.model_info import ModelInfo
from thinklsp.providers.service_errors import (
    CacheHintRefused,
    CompactionRefused,
    EffortRefused,
    ThinkingCountsRefused,
    ThinkingFormRefused,
    ThinkingRejected,
)

_REMEMBERED = 16
DROPPING = (
    "Something before the model's earlier thinking has changed, so the service leaves out the thinking that no longer "
    "fits. The conversation goes on."
)
_NAMES: Mapping[ThinkingForm, str] = {
    "unset": "thinking",
    "off": "thinking switched off",
    "between_tools": "thinking between tools alone",
    "adaptive": "adaptive thinking",
    "manual": "a thinking budget",
}
_FORM_NAMES: Mapping[ThinkingForm, str] = {
    "unset": "its default thinking",
    "off": "thinking off",
    "between_tools": "thinking between tools",
    "adaptive": "adaptive thinking",
    "manual": "a thinking budget",
}
_THEN: Mapping[ThinkingForm, str] = {
    "unset": "answers as it does by itself",
    "off": "answers without thinking",
    "between_tools": "thinks between tool calls only",
    "adaptive": "thinks adaptively",
    "manual": "thinks with a budget",
}
NEVER = "The service takes no thinking back; it is not sent any from now on."
BARE = "The service no longer takes the model's earlier thinking; the conversation goes on without it."


_FORMS: Mapping[str, ThinkingForm] = {form: form for form in get_args(ThinkingForm)}


class Remedies:
    """What one service has refused. Remembers the newest sixteen conversations."""

    def __init__(self) -> None:
        self._known: deque[Remedy] = deque(maxlen=_REMEMBERED)
        self._forms: dict[tuple[str, str], ThinkingForm] = {}
        # What was tried where a form was asked for, so that refusals that point at each other are no circle.
        self._tried: dict[tuple[str, ThinkingForm], set[ThinkingForm]] = {}
        # Model, and form of thinking with level.
        self._refused_efforts: set[tuple[str, str]] = set()
        self._bare: set[str] = set()
        self._uncompacted: set[str] = set()
        self._without_cache_hints: set[str] = set()
        self._without_counts: set[str] = set()
        self._told: deque[Remedy] = deque(maxlen=4 * _REMEMBERED)

    def learn(self, remedy: Remedy) -> None:
        match remedy.kind:
            case "form":
                if remedy.instead in _FORMS:
                    self._forms[remedy.model, remedy.refused] = _FORMS[remedy.instead]
            case "effort":
                self._refused_efforts.add((remedy.model, remedy.refused))
            case "never":
                self._bare.add(remedy.model)
            case "compaction":
                self._uncompacted.add(remedy.model)
            case "cache":
                self._without_cache_hints.add(remedy.model)
            case "counts":
                self._without_counts.add(remedy.model)
            case "told":
                if remedy not in self._told:
                    self._told.append(remedy)
            case "drop" | "bare":
                if remedy not in self._known:
                    self._known.appendleft(remedy)
            case _:
                assert_never(remedy.kind)

    def applied(self, request: ModelRequest) -> ModelRequest:
        """The request as it can be sent, as far as that is known."""
        request = replace(request, thinking=self.accepted(request.model, request.thinking))
        if request.model.id in self._uncompacted:
            request = replace(request, compact_at=None)
        if request.model.id in self._without_cache_hints:
            request = replace(request, cache_hints=False)
        if request.model.id in self._without_counts:
            request = replace(request, thinking_counts=False)
        if request.model.id in self._bare:
            return _bare(request)
        for remedy in self._known:
            if request.conversation[: len(remedy.beginning)] == remedy.beginning:
                return _treated(request, remedy)
        return request

    def accepted(self, model: ModelInfo, thinking: Thinking) -> Thinking:
        """Return the thinking as the service is sent it: in the form that replaces a refused one, and with an accepted
        effort."""
        form = self._forms.get((model.id, thinking.form))
        return self._with_accepted_effort(model, thinking if form is None else _in_form(thinking, form))

    def untold(self, losses: Iterable[Loss], model: str) -> Iterator[Notice]:
        """Yield a notice for each loss of thinking that the user has not been told of."""
        for loss in losses:
            remedy = Remedy(model, "told", loss.reason, beginning=loss.beginning)
            if remedy not in self._told:
                yield replace(self._learned(remedy, loss.text), level="info")

    def after(
        self, error: ProviderError, whole: ModelRequest, sent: ModelRequest
    ) -> tuple[ModelRequest, Notice] | None:
        """What to send instead of `sent`, and the sentence for the user. None when there is nothing left to try.

        `whole` is the request as it was before anything was left out of it.
        """
        if isinstance(error, ThinkingRejected):
            # Keep what was learned since: the form and the fields that the model accepts.
            asked = replace(sent.thinking, drop_mismatched=whole.thinking.drop_mismatched)
            whole = replace(
                whole,
                thinking=asked,
                compact_at=sent.compact_at,
                cache_hints=sent.cache_hints,
                thinking_counts=sent.thinking_counts,
            )
            return self._after_rejection(error, whole, sent)
        if isinstance(error, ThinkingFormRefused):
            return self._after_form(error.instead, whole, sent)
        if isinstance(error, EffortRefused):
            return self._after_effort(whole, sent)
        if isinstance(error, CompactionRefused) and sent.compact_at is not None:
            said = f"The service does not shorten conversations with {sent.model.id}; thinklsp does it when it is due."
            return replace(sent, compact_at=None), self._learned(Remedy(sent.model.id, "compaction"), said)
        if isinstance(error, CacheHintRefused) and sent.cache_hints:
            said = f"The service does not accept hints for its prompt cache with {sent.model.id}; none are sent."
            return replace(sent, cache_hints=False), self._learned(Remedy(sent.model.id, "cache"), said)
        if isinstance(error, ThinkingCountsRefused) and sent.thinking_counts:
            said = f"The service does not count tokens while {sent.model.id} thinks; progress shows them afterwards."
            return replace(sent, thinking_counts=False), self._learned(Remedy(sent.model.id, "counts"), said)
        return None

    def without_opaque_state(self, error: ProviderError, sent: ModelRequest) -> ModelRequest | None:
        """Return the request to try once after a refusal that nothing explains: `sent` without earlier thinking.

        None if the error is explained or the request carries no earlier thinking. Nothing is remembered before
        `confirm` says that the attempt succeeded.
        """
        if not (isinstance(error, BadRequest) and error.unexplained):
            return None
        bare = _bare(sent)
        return None if bare == sent else bare

    def confirm(self, whole: ModelRequest) -> Notice:
        """Remember that the service accepts the conversation without its earlier thinking, and return the notice."""
        return self._learned(Remedy(whole.model.id, "bare", beginning=whole.conversation), BARE)

    def _with_accepted_effort(self, model: ModelInfo, thinking: Thinking) -> Thinking:
        """Return it with the highest level at or below the wanted one that was not refused, None if there is none."""
        effort = thinking.effort
        while effort is not None and (model.id, f"{thinking.form}:{effort}") in self._refused_efforts:
            effort = _next_lower(model, effort)
        return replace(thinking, effort=effort)

    def _after_effort(self, whole: ModelRequest, sent: ModelRequest) -> tuple[ModelRequest, Notice] | None:
        refused = sent.thinking.effort
        if refused is not None:
            learned = self._learned(Remedy(sent.model.id, "effort", f"{sent.thinking.form}:{refused}"), "")
            lower = replace(sent, thinking=self._with_accepted_effort(sent.model, sent.thinking))
            return lower, replace(learned, text=effort_notice(lower, refused))
        # Some services switch thinking off by a level, and gateways translate every form into one.
        return self._after_form("adaptive" if sent.thinking.form == "off" else "unset", whole, sent)

    def _after_form(
        self, instead: ThinkingForm, whole: ModelRequest, sent: ModelRequest
    ) -> tuple[ModelRequest, Notice] | None:
        asked = (whole.model.id, whole.thinking.form)
        tried = self._tried.setdefault(asked, set())
        tried |= {whole.thinking.form, sent.thinking.form}
        if instead in tried:
            return None
        said = f"{sent.model.id} does not take {_NAMES[sent.thinking.form]}; it {_THEN[instead]}."
        return replace(sent, thinking=_in_form(sent.thinking, instead)), self._learned(
            Remedy(whole.model.id, "form", whole.thinking.form, instead), said
        )

    def _after_rejection(
        self, error: ThinkingRejected, whole: ModelRequest, sent: ModelRequest
    ) -> tuple[ModelRequest, Notice] | None:
        if _bare(whole) == whole:
            # There is no thinking that could be left out.
            return None
        if error.never and sent.model.id not in self._bare:
            return _bare(whole), self._learned(Remedy(sent.model.id, "never"), NEVER)
        untouched = sent.conversation == whole.conversation and not sent.thinking.drop_mismatched
        binds = error.bound and untouched and sent.thinking.form == "adaptive"
        remedy = Remedy(sent.model.id, "drop" if binds else "bare", beginning=whole.conversation)
        treated = _treated(whole, remedy)
        if treated == sent:
            return None
        return treated, self._learned(remedy, DROPPING if binds else BARE)

    def _learned(self, remedy: Remedy, said: str) -> Notice:
        self.learn(remedy)
        return Notice("warning", said, remedy)


def _in_form(thinking: Thinking, form: ThinkingForm) -> Thinking:
    """Levels of effort stay: they have a refusal of their own."""
    return replace(thinking, form=form, budget_tokens=None)


def effort_notice(sent: ModelRequest, refused: Effort | None) -> str:
    """Say which level is sent instead of one that the service refused."""
    used = sent.thinking.effort
    instead = f"effort {used} is used" if used is not None else "it chooses its own effort"
    return f"{sent.model.id} does not accept effort {refused} with {_FORM_NAMES[sent.thinking.form]}; {instead}."


def _next_lower(model: ModelInfo, effort: Effort) -> Effort | None:
    """Return the level below, of those that the model is known to have, else of the whole scale."""
    levels = [level for level in model.efforts or EFFORTS if EFFORTS.index(level) < EFFORTS.index(effort)]
    return levels[-1] if levels else None


def _bare(request: ModelRequest) -> ModelRequest:
    return _treated(request, Remedy(request.model.id, "bare", beginning=request.conversation))


def _treated(request: ModelRequest, remedy: Remedy) -> ModelRequest:
    if remedy.kind == "drop":
        return replace(request, thinking=replace(request.thinking, drop_mismatched=True))
    count = len(remedy.beginning)
    conversation: Conversation = tuple(
        bare_message(message) if isinstance(message, AssistantMessage) and index < count else message
        for index, message in enumerate(request.conversation)
    )
    return replace(request, conversation=conversation)
