"""Compare the catalogue of models with the ids of the vendors' SDKs and two public price tables.

Prints what is missing or differs. accepted.toml lists the differences that are right, and why. The exit code is 1 if
there is another difference, or if an accepted one is gone.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.catalogue.comparison import Accepted, compare
from tests.catalogue.sources import download_litellm, list_genai_prices, list_litellm, list_sdk_ids, read_litellm
from thinklsp.providers.catalogue import Catalogue


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.catalogue", description=__doc__)
    words = "LiteLLM's wheel or price table; without it, pip downloads the wheel"
    parser.add_argument("--litellm", type=Path, help=words)
    chosen = parser.parse_args().litellm
    day = datetime.now(UTC).date()
    table = download_litellm() if chosen is None else read_litellm(chosen)
    facts = [*list_sdk_ids(), *list_genai_prices(day), *list_litellm(table)]
    differences = list(compare(facts, Catalogue(), day))
    rest, unused = Accepted.read().split(differences)
    for line in sorted({*map(str, rest)}):
        print(line)
    for pattern in unused:
        print(f"accepted.toml: nothing differs any more at {pattern}")
    print(f"{len(facts)} rows compared, {len(differences) - len(rest)} differences accepted, {len(rest)} not.")
    return 1 if rest or unused else 0


if __name__ == "__main__":
    sys.exit(main())
