"""Errors of providers: one table from error texts to errors, with the remedy and the sentence that tells what to do.

A row of `_ROWS` applies to some dialects, statuses and texts, and the first row that matches is used. Error texts are
matched by short fragments, because providers may change the exact wording, and gateways pass on the texts of many
providers. An error inside a stream has no HTTP status, so its code or type determines the status. The texts come from
the providers' error documentation, from LiteLLM 1.106 and its issues, and from recorded answers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from thinklsp.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    ProviderError,
    RateLimited,
    StreamProtocolError,
)
from thinklsp.core.text_safety import make_excerpt
from thinklsp.providers.catalogue import ThinkingForm
from thinklsp.providers.decoding import parse_json_object
from thinklsp.providers.error_reports import DAY_LIMIT, ErrorReport, find_output_room, find_status, read_report

Remedy = Literal["drop", "bare", "never", "form", "effort", "compaction", "cache", "counts"]


class RequestRefused(BadRequest):
    """The error raised when a provider rejects a part of the request that can be changed or left out.

    `remedy` is the change: `form` is another form of thinking, which is `instead`. `effort` is a lower effort.
    `compaction`, `cache` and `counts` leave out the request for compaction, for caching and for token counts while the
    model is thinking. The others concern earlier thinking: the provider can `drop` it because messages before it have
    changed, the request can be sent `bare` of it, or the provider `never` accepts it.
    """

    remedy: Remedy
    instead: ThinkingForm = "unset"


class OutputRejected(StreamProtocolError):
    """The error raised when the provider could not read the model's output. The model can do better if told why."""


class OutputTooLong(ContextWindowExceeded):
    """The error raised when a prompt fits the context window, but not together with the requested output.

    `output_left` is the number of tokens that are left for the output.
    """

    output_left = 0


class BudgetExceeded(RateLimited):
    """The error raised when a budget is used up. `retry_after` is the time until it is reset, if the service says."""

    retryable = False


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What an error text means: the error, its sentence, and attributes that are set on the error.

    The sentence may contain `{status}` and the named groups of the row's pattern. If `is_quoted` is true, the
    provider's message follows.
    """

    error: type[ProviderError]
    sentence: str
    attributes: Mapping[str, Any]
    is_quoted: bool


def _mean(error: type[ProviderError], sentence: str, *, is_quoted: bool = True, **attributes: Any) -> _Meaning:
    return _Meaning(error, sentence, attributes, is_quoted)


_BUDGET = _mean(
    BudgetExceeded,
    "Your budget at this service is used up ({status}): wait until it is reset, or ask the administrator of the "
    "service to raise it.",
)
_KEY = _mean(
    AuthenticationFailed,
    "The provider rejected the API key ({status}): check the source of the key (environment variable, keyring or "
    "command) and that the key belongs to this provider.",
)
_SERVER_KEY = _mean(
    AuthenticationFailed,
    "The server requires a valid API key (401): set `THINKLSP_COMPATIBLE_API_KEY`, or check the key that is configured "
    "for this server.",
)
_NO_CREDIT = _mean(
    BadRequest, "The API key's account has no credit left ({status}): add credit in the provider's console."
)
_SPEND_LIMIT = _mean(
    RateLimited,
    "The account has reached its spend limit ({status}): raise the limit in the provider's console or wait until it is "
    "reset.",
    retryable=False,
)
_REQUEST_SIZE = _mean(
    RateLimited,
    "The request exceeds the account's rate limit on its own (429): compact the conversation, start a new session, or "
    "raise the limit in the provider's console.",
    retryable=False,
)
_NO_QUOTA = _mean(
    RateLimited,
    "This account has no quota for this model ({status}): choose another model, or enable billing in the provider's "
    "console.",
    retryable=False,
)
_DAY_QUOTA = "This model's daily quota is used up ({status}): choose another model, raise the quota in the provider's "
_UNTIL_TOMORROW = _mean(RateLimited, f"{_DAY_QUOTA}console, or wait until tomorrow.", retryable=False)
_WINDOW = "The conversation exceeds the model's context window: compact it or start a new session."
_OUTPUT = (
    "The conversation and `maxTokens` together exceed the model's context window: lower `maxTokens`, or compact the "
    "conversation."
)
_TOO_LONG = _mean(ContextWindowExceeded, _WINDOW)
_TOO_LONG_HERE = _mean(ContextWindowExceeded, f"{_WINDOW} On your own server, you can also raise the context length.")
_EARLIER_THINKING = (
    "The provider rejected the earlier thinking in this conversation: compact it or start a new session."
)
_BARE = _mean(RequestRefused, _EARLIER_THINKING, is_quoted=False, remedy="bare")
_NEVER = _mean(
    RequestRefused,
    'The server rejects the model\'s earlier thinking: set `reasoning = "none"` under '
    "`[providers.openai-compatible]` in your config.toml.",
    remedy="never",
)
_NO_COMPACTION = _mean(
    RequestRefused,
    "The provider does not offer compaction for this model: set `compaction.by` to `thinklsp`.",
    remedy="compaction",
)
_NO_SUMMARIES = _mean(
    BadRequest,
    "The provider offers no readable thinking summaries for this account or this model: set `thinking.display` to "
    "`status`, or verify the organization in the provider's console.",
)
_FORM = "The model rejected this form of thinking: change `thinking.mode`."
_UNSET, _OFF, _ADAPTIVE, _BETWEEN_TOOLS = (
    _mean(RequestRefused, _FORM, remedy="form", instead=instead)
    for instead in ("unset", "off", "adaptive", "between_tools")
)
_NO_OFF = _mean(
    RequestRefused,
    "The model cannot turn thinking off: set `thinking.mode` to `auto`.",
    remedy="form",
    instead="adaptive",
)
_EFFORT = _mean(RequestRefused, "The model rejected this effort: change `effort`.", remedy="effort")
_NO_TOOLS = _mean(BadRequest, "{model} cannot call tools, which thinklsp needs: choose another model with `model`.")
_NOT_FETCHED = _mean(
    BadRequest,
    "The server has no model {model}: choose another model with `model` or download it first (`ollama pull {model}`).",
)
_LOADING = _mean(Overloaded, "The server is still loading its model (503).", loading=True, retry_after=10.0)

_ANY = range(1_000)
# The statuses of rejected requests. Some servers respond with status 404 if an item in the conversation is missing.
# Servers of Chat Completions use different statuses for the same error.
_REJECTED = (400, 404, 422)
_CHAT = "chat"


class _Row(NamedTuple):
    """The meaning of the responses that match.

    `dialects` are the names of dialects or kinds of server, or an empty string for all of them. If `statuses` is None,
    the row applies to statuses of rejected requests. `pattern` is searched in the error's names and its message. If
    `has_wait` is set, the row applies only if the provider names a delay, or only if it does not.
    """

    dialects: str
    statuses: Collection[int] | None
    pattern: str
    meaning: _Meaning
    has_wait: bool | None = None

    def match(self, report: ErrorReport, dialects: Collection[str]) -> re.Match[str] | None:
        statuses = self.statuses or (_ANY if _CHAT in dialects else _REJECTED)
        if report.status not in statuses or self.has_wait not in (None, report.wait_seconds is not None):
            return None
        is_own = not self.dialects or not set(dialects).isdisjoint(self.dialects.split())
        return re.search(self.pattern, report.text, re.IGNORECASE | re.DOTALL) if is_own else None


def _require_both(one: str, other: str) -> str:
    """Return a pattern for texts that match both patterns, in any order."""
    return f"^(?=.*(?:{one})).*(?:{other})"


_TOO_LONG_TEXTS = (
    r"context_length_exceeded|exceed_context_size|available context size|max(?:imum)? context length"
    r"|maximum model length|(?:exceeds|greater than) the context length|context the overflows|exceed context limit"
    r"|exceeded model token limit|prompt is too long|`max_new_tokens` must be <=|context window"
    r"|exceeds the maximum number of tokens|input token count|request payload size exceeds"
)
_THINKING_TEXTS = (
    r"invalid `?signature`? in `?thinking|thinking`? blocks .*cannot be modified|bound to a different conversation"
    r"|expected `?thinking`? or `?redacted_thinking|must be passed back|encrypted[ _]content\b.*could not be verified"
    r"|was provided without its required|item with id '[^']*' not found|thought[_ ]?signature|continuation[_ ]token"
)
_UNKNOWN_FIELD = (
    r"extra inputs are not permitted|extra_forbidden|unknown parameter|unsupported[ _]parameter"
    r"|unrecognized request argument|additional properties|unknown field|unknown name|is unsupported"
)
_THINKING_FIELD = r"\breasoning(?:[_.]effort)?\b|\bthinking\b|\bchat_template_kwargs\b|\bthinking_token_budget\b"
_REASONING_FIELD = r"\breasoning(?:_content|_details)\b|\bmessages\b.*\breasoning\b"
_NO_THINKING = (
    r"(?:thinking|reasoning) is not supported|does not support (?:thinking|reasoning)\b|reasoning is mandatory"
    r"|thinking is not enabled for this model|include_thoughts is only enabled when thinking is"
)
_LEVEL_REFUSED = _require_both(
    r"\breasoning(?:[_. ]effort| value)\b", "invalid|unsupported|not support|must be|should be"
)
_NONE_REFUSED = r"""(?:does not support|value:?|'input':|"input":) ?['"]none['"]"""
_NO_MODEL = (
    r"model_not_found|model not exist|not found the model|not a valid model|no models loaded|no endpoints found for"
    r"|\bmodel \S+ (?:is |was )?(?:not found|does not exist)|\bmodel \S+, try pulling|invalid model name"
)
_OVER_BUDGET = (
    "budget has been exceeded|exceeded ?budget|over budget|crossed budget|max budget limit|spend limit reached"
)
_LOADING_TEXTS = r"\bloading (?:the )?model\b|\bmodel\b.*\b(?:is|still|currently|being) load(?:ing|ed)\b"
_NO_CREDIT_TEXTS = (
    "insufficient_quota|billing_not_active|insufficient balance|exceeded_current_quota|credit balance is too low"
)
_QUOTED_MODEL = r"""\bmodel ["'`](?P<model>[^"'`]+)["'`]"""

_NO_ADDRESS = (
    "The server has no such address or model ({status}): check `model` and the base URL, which usually ends in `/v1`."
)
_TOO_LARGE = "The conversation is too large for one request to this provider (413): compact it or start a new session."
_NOT_FOUND = "The provider does not recognize this model or address (404): check `model` and the base URL."

_ROWS = (
    # Gateways report budgets with different statuses, so the name and the text of the error are checked.
    _Row("", _ANY, r"\bbudget_exceeded\b", _BUDGET),
    _Row("", [429], r"^[^\n]*\bbilling_error\b", _BUDGET),
    _Row("", range(400, 500), _OVER_BUDGET, _BUDGET),
    # Output of the model that the provider could not read, which it reports like a fault of the request.
    _Row(
        "",
        {*_ANY} - {401, 403, 429},
        "(?P<fault>tool_use_failed|json_validate_failed|output_parse_failed|tool call validation failed"
        "|error parsing tool call)",
        _mean(OutputRejected, "The provider could not read the model's tool call ({fault})."),
    ),
    _Row(_CHAT, [401], "", _SERVER_KEY),
    _Row("", None, "api key not valid|api key expired|api_key_invalid", _KEY),
    _Row("", [429], "request too large", _REQUEST_SIZE),
    # A text about compaction may also mention the context window.
    _Row("responses", None, "param=context_management|'context_management", _NO_COMPACTION),
    _Row("responses", _ANY, "context_length_exceeded", _TOO_LONG),
    _Row(_CHAT, None, _TOO_LONG_TEXTS, _TOO_LONG_HERE),
    _Row("", None, _TOO_LONG_TEXTS, _TOO_LONG),
    # Earlier thinking that is missing, changed, damaged or from another provider.
    _Row("anthropic", None, "bound to a different conversation", replace(_BARE, attributes={"remedy": "drop"})),
    _Row("", _ANY, "invalid_encrypted_content", _BARE),
    _Row("", None, _THINKING_TEXTS, _BARE),
    _Row(_CHAT, None, _require_both(_UNKNOWN_FIELD, _REASONING_FIELD), _NEVER),
    # Other parts of a request.
    _Row(
        "",
        None,
        _require_both(
            "prompt_cache_key|cache_control", f"not support|not permitted|unsupported|unexpected|{_UNKNOWN_FIELD}"
        ),
        _mean(RequestRefused, "The provider does not accept prompt cache hints.", remedy="cache"),
    ),
    _Row(
        "anthropic",
        None,
        "thinking-token-count",
        _mean(RequestRefused, "The provider does not count tokens while the model thinks.", remedy="counts"),
    ),
    _Row("responses", None, r"reasoning\.summary|reasoning summaries", _NO_SUMMARIES),
    # The form of thinking, and the form that the model accepts instead.
    _Row("anthropic", None, '"type": "between_tools"} instead of', _BETWEEN_TOOLS),
    _Row("anthropic", None, r'"thinking\.type\.(?:enabled|disabled)" is not supported', _ADAPTIVE),
    _Row("anthropic", None, r'"thinking\.type\.between_tools" is not supported', _OFF),
    _Row("anthropic", None, r"thinking: input tag|thinking\.(?:adaptive|between_tools)\.", _UNSET),
    _Row("", None, _NO_THINKING, _UNSET),
    _Row("google", None, "budget 0 is invalid|only works in thinking mode|thinking[ _]?budget", _ADAPTIVE),
    _Row("chat responses", None, _require_both(_UNKNOWN_FIELD, _THINKING_FIELD), _UNSET),
    _Row(
        _CHAT,
        None,
        _require_both(_LEVEL_REFUSED, "/v1/responses"),
        _mean(BadRequest, "This model supports tools only in the Responses API: set `provider` to `openai`."),
    ),
    _Row(_CHAT, None, _require_both(_LEVEL_REFUSED, _NONE_REFUSED), _UNSET),
    _Row("responses", None, _require_both(r"reasoning\.effort", _NONE_REFUSED), _NO_OFF),
    # Gateways use other providers' field names for the effort.
    _Row("anthropic", None, r"output_config|effort parameter|reasoning[._]effort", _EFFORT),
    _Row("google", None, "thinking[ _]?level", _EFFORT),
    _Row(_CHAT, None, _LEVEL_REFUSED, _EFFORT),
    _Row("responses", None, r"reasoning\.effort", _EFFORT),
    _Row("responses", None, "param=reasoning|encrypted content is not supported", _UNSET),
    # The model has no tools, or does not exist.
    _Row(
        "",
        None,
        r"(?:(?P<model>\S{1,200}) )?does not support (?:tools?|function calling)\b|support tool use",
        _NO_TOOLS,
    ),
    _Row(
        "",
        None,
        r"function calling is not (?:enabled|supported)(?: for (?:models/)?(?P<model>[\w.-]*\w))?",
        _NO_TOOLS,
    ),
    _Row(
        _CHAT,
        None,
        "(?P<flags>--jinja|--enable-auto-tool-choice and --tool-call-parser)",
        _mean(BadRequest, "The server was started without support for tools: start it with {flags}."),
    ),
    _Row("ollama", None, _require_both(_NO_MODEL, _QUOTED_MODEL), _NOT_FETCHED),
    _Row(_CHAT, None, _require_both("try pulling", _QUOTED_MODEL), _NOT_FETCHED),
    _Row(
        _CHAT,
        None,
        _require_both(_NO_MODEL, _QUOTED_MODEL),
        _mean(BadRequest, "The server has no model {model}: choose another model with `model`."),
    ),
    _Row(_CHAT, None, _NO_MODEL, _mean(BadRequest, "The server has no such model: choose another model with `model`.")),
    _Row(_CHAT, [503], _LOADING_TEXTS, _LOADING),
    # Credit and limits of the account.
    _Row("", [402], "", _NO_CREDIT),
    _Row("", _ANY, _NO_CREDIT_TEXTS, _NO_CREDIT),
    _Row("", _ANY, "billing_hard_limit_reached|reached your specified api usage limits", _SPEND_LIMIT),
    _Row("", [429], "enforced_spend_limit_reached", _SPEND_LIMIT, has_wait=False),
    _Row("", [429], r"\blimit: 0(?![\d.]*\d)", _NO_QUOTA),
    # The delay beside Google's daily limit is that of the limit of the minute.
    _Row("google", [429], r"^[^\n]*PerDay", _UNTIL_TOMORROW),
    _Row("", [429], DAY_LIMIT, _UNTIL_TOMORROW, has_wait=False),
    _Row("", [429], DAY_LIMIT, _mean(RateLimited, f"{_DAY_QUOTA}console.")),
    # The status alone.
    _Row("", [401], "", _KEY),
    _Row("", [403], "", _mean(AuthenticationFailed, "The API key is not allowed to do this (403).")),
    _Row(_CHAT, [404, 405], "", _mean(BadRequest, _NO_ADDRESS)),
    _Row("", [404], "", _mean(BadRequest, _NOT_FOUND)),
    _Row("", [408, 409, 499], "", _mean(Overloaded, "The provider could not complete the request ({status}).")),
    _Row("", [413], "", _mean(ContextWindowExceeded, _TOO_LARGE)),
    _Row("", [429], "", _mean(RateLimited, "This account has reached the provider's rate limit (429).")),
    _Row(_CHAT, [501], "", _mean(BadRequest, "The server does not support this request (501).")),
    _Row("", [503, 529], "", _mean(Overloaded, "The provider is overloaded ({status}).")),
    _Row("", range(500, 1_000), "", _mean(Overloaded, "The provider has an internal error ({status}).")),
    _Row("", range(400), "", _mean(BadRequest, "The response was not a model answer ({status}): check the base URL.")),
    # thinklsp does not recognize the provider's reason.
    _Row("", [400, 422], "", _mean(BadRequest, "The provider rejected the request ({status}).", unexplained=True)),
    _Row("", _ANY, "", _mean(BadRequest, "The provider rejected the request ({status}).")),
)


def classify(report: ErrorReport, dialects: Collection[str]) -> ProviderError:
    """Return the error of the first row that matches the report."""
    matches = ((row.meaning, row.match(report, dialects)) for row in _ROWS)
    meaning, match = next((meaning, match) for meaning, match in matches if match is not None)
    kind, sentence, left = meaning.error, meaning.sentence, find_output_room(report.message)
    if kind is ContextWindowExceeded and left is not None:
        kind, sentence = OutputTooLong, sentence.replace(_WINDOW, _OUTPUT)
    # A name in a text may be the path of a model. Ollama adds the address of its library.
    found = {name: (value or "").rsplit("/library/", 1)[-1][:200] for name, value in match.groupdict().items()}
    words = {name: make_excerpt(value, report.model) or "This model" for name, value in found.items()}
    text = sentence.format(status=report.status, **words)
    error = kind(text + (report.quotation if meaning.is_quoted else ""))
    for name, value in meaning.attributes.items():
        setattr(error, name, value)
    if isinstance(error, OutputTooLong):
        error.output_left = left or 0
    if report.wait_seconds is not None and (error.retryable or isinstance(error, BudgetExceeded)):
        error.retry_after = report.wait_seconds
    return error


def classify_response(
    dialects: Collection[str], status: int, headers: Mapping[str, str], body: bytes, model: str
) -> ProviderError:
    """Return the error for a non-streaming HTTP response. Header names are lowercase."""
    content = parse_json_object(body)
    plain = "" if content else body[:10_000].decode("utf-8", "replace")
    error = classify(read_report(status, content, headers, plain, model), dialects)
    override = {"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower())
    # A retry does not help before the budget is raised or paid.
    if override is not None and status != 402 and not isinstance(error, BudgetExceeded):
        error.retryable = override
    return error


def classify_event(dialect: str, content: Mapping[str, Any]) -> ProviderError:
    """Return the error for an error event, or for an error object in a response with status 200."""
    return classify(read_report(find_status(content), content), (dialect,))


def name_address(error: ProviderError, status: int, url: str, model: str) -> ProviderError:
    """Add the address and the model to the error if the address or the model was not found."""
    if status == 404:
        error.args = (f"{error} The request for {model or 'no model'} went to {url}.",)
    return error
