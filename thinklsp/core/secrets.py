"""Functions that hide secrets in text: the process's own secrets, and any text that looks like a secret."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from urllib.parse import quote

HIDDEN = "[hidden]"
# The minimum length of a secret to hide. Shorter keys are placeholders for local servers and may be ordinary words.
_MIN_SECRET_LENGTH = 6
# The length of the pieces of a secret to hide. Shorter pieces also occur in ordinary text.
_PIECE_LENGTH = 8
# The minimum length of a secret whose pieces are hidden. Shorter secrets may be placeholders made of ordinary words.
_MIN_LONG_SECRET_LENGTH = 16
_MAX_EXCERPT_LENGTH = 300
# Matches keys with a vendor prefix, bearer tokens and long runs of hexadecimal digits.
_KEY_PATTERN = re.compile(r"\bsk[-_][\w-]{8,}|\bAIza[\w-]{16,}|(?i:\bbearer)\s+\S+|\b[0-9a-fA-F]{32,}\b")
# Matches long runs of base64 characters, such as signatures and encrypted blocks.
_BASE64_PATTERN = re.compile(r"[A-Za-z0-9+/=_-]{24,}")
# Matches the separators between the parts of a name. The parts of a name are usually shorter than those of base64 text.
_PART_SEPARATOR = re.compile(r"[-_/=]")
_MAX_PART_LENGTH = 12
_CAMEL_CASE = re.compile(r"[a-z]{0,12}(?:[A-Z]{1,5}[a-z]{2,14})+")
# The minimum length of a model ID that is not masked. Shorter IDs may occur in a key by chance.
_MIN_MODEL_LENGTH = 8
_MAX_SHOWN_ID_LENGTH = 64


def format_call_id(call_id: str) -> str:
    """Return the id of a tool call to show to clients.

    LiteLLM puts Gemini's signature into ids, so a digest replaces a long id.
    """
    if len(call_id) <= _MAX_SHOWN_ID_LENGTH:
        return call_id
    return f"call_{sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def hide_secrets(text: str, secrets: Iterable[str]) -> str:
    """Hide secrets, their URL-encoded forms and pieces of long secrets in the text. The search takes linear time."""
    for secret in secrets:
        for spelling in {secret, quote(secret, safe="")}:
            if len(spelling) >= _MIN_SECRET_LENGTH:
                text = text.replace(spelling, HIDDEN)
            if len(spelling) >= _MIN_LONG_SECRET_LENGTH:
                text = _hide_pieces(text, spelling)
    return text


def _hide_pieces(text: str, secret: str) -> str:
    secret_pieces = {secret[at : at + _PIECE_LENGTH] for at in range(len(secret) - _PIECE_LENGTH + 1)}
    output: list[str] = []
    at = 0
    while at < len(text):
        end = at
        while text[end : end + _PIECE_LENGTH] in secret_pieces:
            end += 1
        if end > at:
            output.append(HIDDEN)
            at = end + _PIECE_LENGTH - 1
        else:
            output.append(text[at])
            at += 1
    return "".join(output).replace(HIDDEN * 2, HIDDEN)


def mask(text: str, model: str = "") -> str:
    """Mask any text that looks like a key, a signature or encrypted thinking.

    `model` is the requested model ID, which is never masked. Use `hide_secrets` to hide the process's own keys.
    """
    return _BASE64_PATTERN.sub(lambda run: _mask_run(run[0], model), _KEY_PATTERN.sub(HIDDEN, text))


def mask_keys(text: str) -> str:
    """Mask any text that looks like a key. Unlike `mask`, keep signatures, because code contains similar text."""
    return _KEY_PATTERN.sub(HIDDEN, text)


def make_excerpt(text: str, model: str = "") -> str:
    """Return the text as one printable line of at most 300 characters for the user, with secrets masked.

    Return an empty string for HTML.
    """
    if text.lstrip()[:1] == "<":
        return ""
    # Limit the length first to limit the cost. Remove invisible characters before masking, because they can hide a key.
    # Truncate last, so that no part of a key remains unmasked.
    line = " ".join(text[: 20 * _MAX_EXCERPT_LENGTH].split())
    line = mask("".join(char for char in line if char.isprintable()), model)
    return line if len(line) <= _MAX_EXCERPT_LENGTH else line[: _MAX_EXCERPT_LENGTH - 1] + "…"


def _mask_run(run: str, model: str) -> str:
    if len(model) >= _MIN_MODEL_LENGTH and model in run:
        return model.join(_BASE64_PATTERN.sub(lambda part: _mask_run(part[0], ""), part) for part in run.split(model))
    return run if _is_name(run) else HIDDEN


def _is_name(run: str) -> bool:
    """Return whether a run of characters is an identifier, model ID or host name.

    Unlike names, base64 text mixes upper case, lower case and digits.
    """
    if run.islower() or run.isupper() or run.isdigit() or _CAMEL_CASE.fullmatch(run) is not None:
        return True
    return all(len(part) <= _MAX_PART_LENGTH for part in _PART_SEPARATOR.split(run))
