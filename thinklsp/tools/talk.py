"""`plan` and `ask_user`: what a model shows to the user and asks of them."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from thinklsp.core.errors import ToolFailed
from thinklsp.core.events import PlanEntry
from thinklsp.tools.base import Arguments, Tool, ToolContext, ToolOutput
from thinklsp.tools.shown import one_line

# What fits on a button.
_LONGEST_OPTION = 60


class PlanStep(Arguments):
    text: str = Field(min_length=1, max_length=500, description="What is to be done.")
    status: Literal["pending", "in_progress", "completed"] = Field(description="How far it is.")


class PlanArguments(Arguments):
    entries: list[PlanStep] = Field(max_length=100, description="The whole plan, in order; it replaces the former one.")


class Plan(Tool[PlanArguments]):
    name: ClassVar[str] = "plan"
    description: ClassVar[str] = (
        "Show the user a plan of the steps and how far each is. Use it for work of several steps, and send it again "
        "when a step begins or is done."
    )
    read_only: ClassVar[bool] = True
    arguments = PlanArguments

    def title(self, args: PlanArguments) -> str:
        done = sum(entry.status == "completed" for entry in args.entries)
        return f"plan ({done} of {len(args.entries)} done)"

    async def run(self, args: PlanArguments, context: ToolContext) -> ToolOutput:  # noqa: ARG002 - every tool has it.
        return ToolOutput(
            "The plan is shown.", plan=tuple(PlanEntry(entry.text, entry.status) for entry in args.entries)
        )


class AskUserArguments(Arguments):
    question: str = Field(min_length=1, max_length=2000, description="One question that can be answered by a choice.")
    options: list[str] = Field(
        min_length=1, max_length=8, description="The answers to choose from, distinct, at most 60 characters each."
    )


class AskUser(Tool[AskUserArguments]):
    """Not read-only: questions come one after the other."""

    name: ClassVar[str] = "ask_user"
    description: ClassVar[str] = (
        "Ask the user to choose between options. Use it only where the request can be read in ways that lead to "
        "different results. It may stay unanswered."
    )
    arguments = AskUserArguments

    def title(self, args: AskUserArguments) -> str:
        return f"ask: {args.question}"

    async def run(self, args: AskUserArguments, context: ToolContext) -> ToolOutput:
        options = {one_line(option): option.strip() for option in args.options}
        if not all(options) or len(options) != len(args.options):
            raise ToolFailed("The options must be distinct and not empty.")
        if max(map(len, options)) > _LONGEST_OPTION:
            raise ToolFailed(f"An option is longer than {_LONGEST_OPTION} characters. Shorten it and ask again.")
        answer = await context.ask(f"The model asks: {args.question}", tuple(options))
        if answer is None or answer not in options:
            raise ToolFailed(
                "The user gave no answer. Choose the safest reading yourself and say so, or end with the question."
            )
        return ToolOutput(f"The user chose: {options[answer]}")
