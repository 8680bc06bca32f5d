"""A signature opens only as it was written."""

from __future__ import annotations

import string

import pytest

from thinklsp.simulator.anthropic.replay import Seal, opened, signed
from thinklsp.simulator.state import Sealer


@pytest.mark.parametrize("tokens", range(4))
def test_no_other_spelling_of_a_signature_opens(tokens: int) -> None:
    sealer = Sealer()
    seal = Seal("thinking", "m", "a", 0, None, "p", ("s",), tokens)
    text = signed(seal, sealer)
    assert opened(text, sealer) == seal
    for position in (0, 100, len(text) - 3, len(text) - 2, len(text) - 1):
        for letter in set(string.ascii_letters + "=+/-_ é") - {text[position]}:
            assert opened(text[:position] + letter + text[position + 1 :], sealer) is None
    assert opened(text + "\n", sealer) is None
