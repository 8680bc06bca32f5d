"""What a signature on thinking is about, and its short name."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Literal

from thinklsp.simulator.seals import Sealer


@dataclass(frozen=True, slots=True)
class Seal:
    """What one signed block is about.

    `answer`: id of the model answer it stands in. `text`: digest of the thinking as it was shown, None where it was
    omitted. `prefix`: digest of everything before the answer but thinking. `seen`: marks of the thinking before it.
    """

    kind: Literal["thinking", "redacted_thinking"]
    model: str
    answer: str
    place: int
    text: str | None
    prefix: str
    seen: tuple[str, ...]
    tokens: int


def signed(seal: Seal, sealer: Sealer) -> str:
    return sealer.close(asdict(seal), seal.tokens)


def opened(signature: str, sealer: Sealer) -> Seal | None:
    """None for anything that this process did not sign exactly so."""
    content = sealer.open(signature)
    return None if content is None else Seal(**{**content, "seen": tuple(content["seen"])})


def mark_of(signature: str) -> str:
    """A short name of a signed block, by which others remember having seen it."""
    return hashlib.sha256(signature.encode("utf-8", "surrogatepass")).hexdigest()[:12]
