"""The exception tree. Every text is a sentence for the person who reads it: what happened, which thing, what to do.

ThinkLspError
├── SettingsError               a setting or the user's file cannot be used
├── ProviderError               the model's service, or the way to it
│   ├── AuthenticationFailed    401, 403: the key is missing, wrong or not allowed
│   ├── BadRequest              400 and relatives: asking again would not help
│   ├── ContextWindowExceeded   the conversation is longer than the model can read
│   ├── RateLimited             429; `retry_after` in seconds where the service says
│   ├── Overloaded              5xx and 529
│   ├── TransportFailed         no connection, a timeout, a break
│   └── StreamProtocolError     the stream broke the provider's own rules
├── ToolFailed                  told to the model as an error result; never leaves `agent/`
├── PathRefused                 a path or URI that tools may not touch
├── StaleDocument               a range or edit belongs to an older version of a document
├── SessionError                an unknown, foreign or busy session
└── TurnRefused                 a turn that cannot begin: nothing to say, nothing to act on
"""

from __future__ import annotations


class ThinkLspError(Exception):
    """Base of everything that is meant to be read by a person. `str(error)` is the sentence."""


class SettingsError(ThinkLspError):
    """`key` names the setting in dotted form."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class ProviderError(ThinkLspError):
    """`retryable`: the same request may succeed later. `retry_after`: seconds that the service asked for."""

    retryable = False

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AuthenticationFailed(ProviderError):
    pass


class BadRequest(ProviderError):
    """`unexplained`: the service refused the request in words that no rule knows."""

    unexplained = False


class ContextWindowExceeded(ProviderError):
    pass


class RateLimited(ProviderError):
    retryable = True


class Overloaded(ProviderError):
    """`loading`: a server that is not ready yet, and will be; it is waited for longer than others."""

    retryable = True
    loading = False


class TransportFailed(ProviderError):
    """`retryable` False: another try cannot help (certificate, redirect, size limit)."""

    retryable = True

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class HeaderRefused(TransportFailed):
    """No request can be put together with this key and these headers."""


class StreamProtocolError(ProviderError):
    retryable = True


class ToolFailed(ThinkLspError):
    pass


class PathRefused(ThinkLspError):
    pass


class StaleDocument(ThinkLspError):
    pass


class SessionError(ThinkLspError):
    pass


class TurnRefused(ThinkLspError):
    pass
