"""thinklsp's exceptions. Each message tells the user what happened, what was affected and what to do."""

from __future__ import annotations

import shlex
import sys


class ThinkLspError(Exception):
    """The base class for errors whose message is meant for the user. `str(error)` is the message."""


class SettingsError(ThinkLspError):
    """The error raised for an invalid setting. `key` is the setting's dotted name."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class ProviderError(ThinkLspError):
    """The error raised when a model call fails.

    `retryable` is true if the same request may succeed later. None selects the class's default. `retry_after` is the
    delay in seconds that the provider asked for.
    """

    retryable = False

    def __init__(self, message: str, *, retry_after: float | None = None, retryable: bool | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        if retryable is not None:
            self.retryable = retryable


class AuthenticationFailed(ProviderError):
    """HTTP status 401 or 403: the key is missing, wrong or not allowed."""


class BadRequest(ProviderError):
    """The error raised when the provider rejects a request.

    `unexplained` is true if thinklsp does not recognize the provider's reason.
    """

    unexplained = False


class ContextWindowExceeded(ProviderError):
    """The conversation exceeds the model's context window."""


class RateLimited(ProviderError):
    """HTTP status 429. `retry_after` is set if the provider sends it."""

    retryable = True


class Overloaded(ProviderError):
    """The error raised when a provider is temporarily unavailable.

    If `loading` is true, the server is still loading the model, and thinklsp keeps retrying for longer than usual.
    """

    retryable = True
    loading = False


class TransportFailed(ProviderError):
    """The error raised when a connection fails.

    `retryable` is False for certificate errors, redirects and size limits, because a retry cannot help.
    """

    retryable = True


class HeaderRefused(TransportFailed):
    """The error raised when a key or header contains characters that are not allowed in an HTTP request."""


class StreamProtocolError(ProviderError):
    """The provider's stream violated its own protocol."""

    retryable = True


class ToolFailed(ThinkLspError):
    """A tool call failed. The model receives the message as an error result."""


class McpFailed(ThinkLspError):
    """The error raised when an MCP server fails. The message names the server."""


class PathRefused(ThinkLspError):
    """A path or URI that tools must not use."""


class TokenRefused(ThinkLspError):
    """The error raised when a client's token is refused.

    The message never contains a part of the token. `is_outage` is true if the token could not be checked, because the
    identity provider cannot be reached.
    """

    def __init__(self, message: str, *, is_outage: bool = False) -> None:
        super().__init__(message)
        self.is_outage = is_outage


class StaleDocument(ThinkLspError):
    """A range or edit refers to an older version of a document."""


class SessionError(ThinkLspError):
    """An unknown, foreign or busy session."""


class StoreUnreachable(SessionError):
    """Raised if the database of the sessions does not answer."""


class TurnRefused(ThinkLspError):
    """A turn that cannot start, for example without a prompt."""


class ImageRefused(ThinkLspError):
    """Raised for an image that cannot be sent. The message names the image and a way out."""


def format_install_command(*requirements: str) -> str:
    """Return the shell command that installs packages into the running Python environment, for error messages."""
    return " ".join((shlex.quote(sys.executable), "-m pip install", *map(shlex.quote, requirements)))
