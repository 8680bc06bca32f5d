"""`python -m thinklsp` and the `thinklsp` command. Without a subcommand it is the language server."""

from __future__ import annotations

import sys


def main() -> int:
    from thinklsp.cli import run  # noqa: PLC0415 - nothing is imported before the command is known

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
