"""`begin` and `environment` as in the end-to-end tests."""

from tests.e2e.conftest import begin, environment

__all__ = ["begin", "environment"]
