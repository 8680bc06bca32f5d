"""Errors for a user, a team or a key whose budget at a gateway or provider is used up.

Gateways report a budget with different statuses, so the name and the text of the error are checked. A retry cannot help
before the budget is raised or reset. The texts come from the documentation and the issues of LiteLLM and of Claude apps
gateway.
"""

from __future__ import annotations

import re

from thinklsp.providers.failures import BudgetExceeded, ErrorReport

_NAME, _BILLING_NAME = "budget_exceeded", "billing_error"
_TEXT = re.compile(
    r"budget has been exceeded|exceeded ?budget|over budget|crossed budget|max budget limit|spend limit reached"
)


def find_budget_error(report: ErrorReport) -> BudgetExceeded | None:
    """Return the error for a used-up budget, or None if the report is about something else."""
    if not _is_budget(report):
        return None
    return BudgetExceeded(
        f"Your budget at this service is used up ({report.status}): wait until it is reset, or ask the administrator "
        f"of the service to raise it.{report.quotation}",
        retry_after=report.wait_seconds,
    )


def _is_budget(report: ErrorReport) -> bool:
    names = {report.kind.lower(), *report.code.lower().split()}
    # With status 402, `billing_error` means that the account has no credit.
    if _NAME in names or (_BILLING_NAME in names and report.status == 429):
        return True
    return 400 <= report.status < 500 and _TEXT.search(report.message.lower()) is not None
