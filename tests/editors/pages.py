"""What the pages of editors/ tell people to paste: the trials use that very text."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def pasted(page: str, language: str, holds: str) -> str:
    """The one code block of the page in this language that holds the text. Raises LookupError."""
    blocks = re.findall(rf"^```{re.escape(language)}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    found = [block for block in blocks if holds in block]
    if len(found) != 1:
        raise LookupError(f"{page} has {len(found)} {language} blocks with {holds!r}, not one")
    return str(found[0])
