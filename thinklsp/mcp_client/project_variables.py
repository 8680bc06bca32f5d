"""The variables in the entries of a project's MCP servers.

A project must not be able to read the user's environment. So only names in `[mcp] project_env` have a value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]{0,127})(?::-(.*))?", re.DOTALL)
_MAX_CHARACTERS = 100_000
_MAX_SHOWN_CHARACTERS = 60


class UnusableVariable(Exception):
    """Raised for a variable without a value. The message is part of a sentence."""


@dataclass(frozen=True, slots=True)
class VariableExpander:
    """The variables that entries in a folder may use: `${workspaceFolder}` and the `allowed` names of the environment.

    The value of a variable is not expanded again.
    """

    folder: str
    environment: Mapping[str, str]
    allowed: Collection[str]

    def expand(self, text: str) -> str:
        """Replace the variables `${NAME}`, `${env:NAME}` and `${NAME:-default}`. Raises UnusableVariable."""
        expanded = _VARIABLE.sub(lambda match: self._find_value(match[1]), text)
        if len(expanded) > _MAX_CHARACTERS:
            raise UnusableVariable("one of its values is too long")
        return expanded

    def _find_value(self, variable: str) -> str:
        if variable == "workspaceFolder":
            return self.folder
        shown = "".join(c if c.isprintable() and c != "`" else "?" for c in variable[:_MAX_SHOWN_CHARACTERS])
        match = _NAME.fullmatch(variable)
        if match is None:
            raise UnusableVariable(f"`${{{shown}}}` is not supported")
        name, default = match.groups()
        value = self.environment.get(name) if name in self.allowed else None
        if value or (value is not None and default is None):
            return value
        if default is not None:
            return default
        if name not in self.allowed:
            advice = "to pass it on, add its name to `project_env` of `[mcp]` in your config.toml"
            raise UnusableVariable(f"it uses the variable `{name}`; {advice}")
        raise UnusableVariable(f"it uses the variable `{name}`, which is not set in the environment")
