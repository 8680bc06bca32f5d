"""Implausible usage figures of a provider are discarded."""

from __future__ import annotations

import math
from dataclasses import astuple

from hypothesis import given
from hypothesis import strategies as st

from thinklsp.core.usage import Usage, discard_implausible

LARGEST = 10**12
_figures = st.none() | st.integers(-(2**70), 2**70) | st.sampled_from([0, 1, LARGEST, LARGEST + 1, 2**63])
_costs = st.none() | st.floats(allow_nan=True, allow_infinity=True)


@given(st.builds(Usage, *[_figures] * 5, _costs))
def test_only_figures_within_bounds_are_believed(usage: Usage) -> None:
    counted = bool(usage.input_tokens or usage.output_tokens)
    for given_, believed in zip(astuple(usage), astuple(discard_implausible(usage)), strict=True):
        sound = given_ is not None and math.isfinite(given_) and 0 <= given_ <= LARGEST
        assert believed == (given_ if counted and sound else None)
