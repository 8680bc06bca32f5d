"""Used-up budgets of gateways: one sentence with the gateway's own words, and no retry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.providers.families import FAMILIES
from thinklsp.core.errors import BadRequest, ProviderError, RateLimited
from thinklsp.http.retry import CallHistory, RetryPolicy, plan_retry
from thinklsp.providers.failures import BudgetExceeded, classify_event

OVER = "Budget has been exceeded! Current cost: 14.2, Max budget: 10.0"
RESET = "spend limit reached (daily; resets 2026-11-27 00:00 UTC)"


def error(message: str, kind: str | None, code: object = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


BUDGETS: dict[str, tuple[int, Any, dict[str, str]]] = {
    "LiteLLM": (429, error(OVER, "budget_exceeded", "429"), {}),
    "LiteLLM with its own sentence": (429, error("Ask Berta for more.", "budget_exceeded", "429"), {}),
    "older LiteLLM": (400, error(OVER, "budget_exceeded", "400"), {}),
    "LiteLLM without a type": (400, error(OVER, None, "400"), {}),
    "LiteLLM as a failed login": (401, error(OVER, "auth_error", 401), {}),
    "a user of LiteLLM": (400, error("ExceededBudget: End User=anna over budget. Spend=2, Budget=1", "auth_error"), {}),
    "a model of LiteLLM": (429, error("LiteLLM User: anna, exceeded budget for model=m", None, "429"), {}),
    "a deployment of LiteLLM": (429, error("No deployments available - crossed budget: Exceeded budget", None), {}),
    "a limit of LiteLLM": (429, {"error": "Max budget limit reached."}, {}),
    "Claude apps gateway": (429, error(RESET, "billing_error"), {"x-should-retry": "false", "retry-after": "18000"}),
    "a gateway that says retry": (429, error(OVER, "budget_exceeded"), {"x-should-retry": "true"}),
    "a budget as forbidden": (403, error("Your team is over budget.", "budget_exceeded"), {}),
}


def fail(family: str, status: int, body: Any, headers: dict[str, str]) -> ProviderError:
    return FAMILIES[family].adapter.parse_failure(status, headers, json.dumps(body).encode(), "")


def decide(failure: ProviderError) -> str | None:
    """Return the last sentence of an error that is not retried, or None."""
    plan = plan_retry(RetryPolicy(), failure, history=CallHistory(), has_content=False, jitter=0.5)
    return plan if isinstance(plan, str) else None


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", BUDGETS)
def test_budget_ends_the_turn_at_once(family: str, case: str) -> None:
    status, body, headers = BUDGETS[case]
    failure = fail(family, status, body, headers)
    assert isinstance(failure, BudgetExceeded)
    content = body["error"]
    said = content if isinstance(content, str) else content["message"]
    assert str(failure).startswith(f"Your budget at this service is used up ({status}): ")
    assert str(failure).endswith(said if said.endswith(".") else f"{said}.")
    waits = "Try again in 5 hours." if "retry-after" in headers else ""
    assert decide(failure) == waits


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("retry", ["true", "false", None])
def test_account_without_credit_is_not_retried(family: str, retry: str | None) -> None:
    failure = fail(
        family, 402, error("Pay first.", "billing_error"), {} if retry is None else {"x-should-retry": retry}
    )
    assert isinstance(failure, BadRequest)
    assert "no credit left (402)" in str(failure)
    assert str(failure).endswith("The provider says: Pay first.")
    assert decide(failure) == ""


@pytest.mark.parametrize("family", FAMILIES)
def test_limit_that_forbids_a_retry_says_when_it_ends(family: str) -> None:
    body, headers = error("Too many requests.", "rate_limit_error"), {"x-should-retry": "false", "retry-after": "90"}
    failure = fail(family, 429, body, headers)
    assert isinstance(failure, RateLimited)
    assert "Too many requests." in str(failure)
    assert decide(failure) == "Try again in 90 seconds."
    assert decide(fail(family, 429, body, {"retry-after": "90"})) is None


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "thinking.budget_tokens: budget exceeded the maximum"),
        (400, "The thinking budget 99 is invalid."),
        (500, "Budget has been exceeded!"),
        (429, "Rate limit reached for requests"),
    ],
)
def test_other_errors_are_not_budgets(family: str, status: int, message: str) -> None:
    assert not isinstance(fail(family, status, error(message, None), {}), BudgetExceeded)


@pytest.mark.parametrize("family", ["chat", "openai"])
def test_budget_that_ends_in_mid_stream(family: str) -> None:
    body: dict[str, Any] = {**error(OVER, "budget_exceeded"), "type": "error"}
    with pytest.raises(BudgetExceeded, match="Your budget at this service"):
        FAMILIES[family].samples.run(FAMILIES[family].samples.as_events(body))


def test_budget_that_ends_in_mid_stream_of_messages() -> None:
    for kind in ("budget_exceeded", "billing_error", "rate_limit_error"):
        assert isinstance(classify_event("anthropic", {"type": "error", **error(RESET, kind)}), BudgetExceeded)
