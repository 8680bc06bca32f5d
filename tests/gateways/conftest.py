"""The fixture `litellm`: one LiteLLM proxy for all tests of a run, because its start takes longer than a test.

LiteLLM pins its dependencies, so install it in a virtual environment of its own:

    python -m venv litellm && litellm/bin/pip install -r tests/gateways/requirements.txt
    LITELLM=litellm/bin/litellm pytest -m '' tests/gateways -n 0
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import begin
from tests.gateways.litellm_proxy import LiteLlm, program

__all__ = ["begin"]


def pytest_configure() -> None:
    """Report a missing LiteLLM once, not in every test."""
    try:
        program()
    except RuntimeError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.fixture(scope="session")
def litellm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiteLlm]:
    with LiteLlm(tmp_path_factory.mktemp("litellm")) as proxy:
        yield proxy
