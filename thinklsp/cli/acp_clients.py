"""The settings of clients of the Agent Client Protocol, and the report of `thinklsp doctor --acp`.

`docs/acp.md` shows the same settings; a test compares them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from rich.console import Console
from rich.text import Text

from thinklsp.cli.key_setup import describe_hidden_config
from thinklsp.cli.setup.machine import Machine, find_server
from thinklsp.cli.terminal import sanitize_text
from thinklsp.settings.access import list_key_variables, list_keyed_providers, resolve_access
from thinklsp.settings.sources import load_user_settings, resolve_settings
from thinklsp.settings.user_file import UserSettings

_SHELL_ENVIRONMENT = "It passes the environment of the editor, so start the editor where your key is set."
_WIDTH = 10


@dataclass(frozen=True, slots=True)
class AcpClient:
    """`place` is the file for the settings, and `environment` says which variables reach thinklsp.

    In `template`, `$program` is the program, and `$args` its arguments, each as a string in double quotes.
    `separator` stands between the arguments.
    """

    title: str
    place: str
    environment: str
    template: str
    separator: str = ", "

    def build_settings(self, command: Sequence[str]) -> str:
        # JSON's strings are strings of Lua and of Emacs Lisp, too.
        program, *args = (json.dumps(word, ensure_ascii=False) for word in command)
        return Template(self.template).substitute(program=program, args=self.separator.join(args)).strip("\n")


CLIENTS = (
    AcpClient(
        "Zed",
        "settings.json, or run `thinklsp setup zed`",
        _SHELL_ENVIRONMENT,
        """
{
  "agent_servers": {
    "thinklsp": { "type": "custom", "command": $program, "args": [$args], "env": {} }
  }
}
""",
    ),
    AcpClient(
        "JetBrains IDEs",
        "~/.jetbrains/acp.json, or run `thinklsp setup jetbrains`",
        "An IDE that was started from a desktop menu lacks the variables of your shell.",
        """
{
  "agent_servers": {
    "thinklsp": { "command": $program, "args": [$args], "env": {} }
  }
}
""",
    ),
    AcpClient(
        "codecompanion.nvim",
        "init.lua",
        _SHELL_ENVIRONMENT,
        """
require("codecompanion").setup({
  adapters = {
    acp = {
      thinklsp = function()
        return require("codecompanion.adapters").extend("opencode", {
          name = "thinklsp",
          formatted_name = "thinklsp",
          commands = { default = { $program, $args } },
        })
      end,
    },
  },
  interactions = { chat = { adapter = "thinklsp" } },
})
""",
    ),
    AcpClient(
        "avante.nvim",
        "init.lua",
        "It passes PATH and the variables in `env`, and not even HOME: a key of your shell does not reach thinklsp.",
        """
require("avante").setup({
  provider = "thinklsp",
  acp_providers = {
    thinklsp = { command = $program, args = { $args }, env = {} },
  },
})
""",
    ),
    AcpClient(
        "agent-shell (Emacs)",
        "init.el",
        "Without `:inherit-env t`, few variables and no key of your shell reach thinklsp.",
        """
(with-eval-after-load 'agent-shell
  (add-to-list 'agent-shell-agent-configs
               (agent-shell-make-agent-config
                :identifier 'thinklsp
                :mode-line-name "thinklsp"
                :buffer-name "thinklsp"
                :shell-prompt "thinklsp> "
                :shell-prompt-regexp "thinklsp> "
                :client-maker
                (lambda (buffer)
                  (agent-shell--make-acp-client
                   :command $program
                   :command-params '($args)
                   :environment-variables (agent-shell-make-environment-variables :inherit-env t)
                   :context-buffer buffer)))))
""",
        " ",
    ),
)


def print_report(console: Console) -> int:
    """Print the command, the key and the settings of each client. Return 0 if a key is found.

    Raises ThinkLspError if the user's file is invalid.
    """
    user = load_user_settings(os.environ)
    # The editors' files, which an installation may lack, are not needed.
    command = Machine(dict(os.environ), sys.platform, find_server(os.environ), Path()).acp_command
    _print_row(console, "command", " ".join(command), "")
    keys = list(_list_keys(user))
    for value, source in keys or [("none", "no provider has a key")]:
        _print_row(console, "key", value, source)
    for note in _build_notes(user, has_key=bool(keys)):
        console.print(Text(f"! {sanitize_text(note)}", style="yellow"), soft_wrap=True)
    for client in CLIENTS:
        console.print()
        console.print(Text(client.title, style="bold").append(f" – {client.place}", style="not bold"), soft_wrap=True)
        console.print(Text(client.environment, style="dim"), soft_wrap=True)
        for line in sanitize_text(client.build_settings(command)).splitlines():
            console.print(f"  {line}", soft_wrap=True)
    return 0 if keys else 1


def _print_row(console: Console, name: str, value: str, source: str) -> None:
    line = Text(f"{name:<{_WIDTH}} ").append(sanitize_text(value), style="bold")
    console.print(line.append(f"   {sanitize_text(source)}" if source else "", style="not bold dim"), soft_wrap=True)


def _list_keys(user: UserSettings) -> Iterator[tuple[str, str]]:
    """Yield each provider that the settings allow and that has a key, with the source of its key."""
    chosen = resolve_settings(user).settings.provider
    if chosen == "simulator":
        yield chosen, "the offline simulator needs no key"
    for name in list_keyed_providers(user):
        if chosen in ("auto", name):
            yield name, resolve_access(name, user).source


def _build_notes(user: UserSettings, *, has_key: bool) -> Iterator[str]:
    if not has_key:
        yield "Run `thinklsp acp --setup` to store a key that every client finds."
    elif any(user.environment.get(variable, "").strip() for variable in _list_variables(user)):
        yield (
            "A key of the environment does not reach clients that pass few variables. To store it for them, run "
            "`thinklsp acp --setup`."
        )
    if (hidden := describe_hidden_config()) is not None:
        yield hidden


def _list_variables(user: UserSettings) -> Iterator[str]:
    for name in list_keyed_providers(user):
        yield from list_key_variables(name, user)
