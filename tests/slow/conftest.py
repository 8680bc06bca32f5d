"""Servers, editors and providers as the end-to-end tests have them."""

from tests.e2e.conftest import begin, environment, listening

__all__ = ["begin", "environment", "listening"]
