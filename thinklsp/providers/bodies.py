"""A request's body as bytes that every service reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def json_body(wire: Mapping[str, Any]) -> bytes:
    """UTF-8. Half of a surrogate pair, as models and editors may send one, is no text to any service, and a request
    that holds it is refused now and ever after: it becomes U+FFFD, and two halves that meet become one character."""
    text = json.dumps(wire, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")
