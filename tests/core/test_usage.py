"""Which figures of a service are believed."""

from __future__ import annotations

import math
from dataclasses import astuple

import pytest
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


@pytest.mark.parametrize(
    "usage", [Usage(), Usage(0, 0), Usage(0, None), Usage(0, 0, 0, 0, 0, 0.0), Usage(0, 0, cost_usd=0.5)], ids=str
)
def test_a_service_that_counts_nothing_does_not_count(usage: Usage) -> None:
    assert discard_implausible(usage) == Usage()


@pytest.mark.parametrize("usage", [Usage(0, 5), Usage(5, 0), Usage(5, 5, 0, 0, 0, 0.0)], ids=str)
def test_a_single_zero_is_a_figure(usage: Usage) -> None:
    assert discard_implausible(usage) == usage
