"""Compare recorded answers of real services with what the vendors' SDKs read, and with what is sent back of them.

FOLDER has cassettes of vcrpy, for example a checkout of github.com/pydantic/pydantic-ai. Prints a line for each
difference and a table of counts. The exit code is 1 if there is a difference.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import warnings
from collections import Counter
from pathlib import Path

from tests.recorded.comparison import READERS, compare
from tests.recorded.recordings import read_recordings


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.recorded", description=__doc__)
    parser.add_argument("folder", type=Path)
    counts: Counter[tuple[str, str]] = Counter()
    for recording in read_recordings(parser.parse_args().folder):
        compared = await compare(recording)
        counts[recording.family, "answers"] += 1
        counts[recording.family, "streams"] += recording.is_stream
        if compared is None:
            counts[recording.family, "unread"] += 1
            continue
        counts[recording.family, "opaque"] += bool(compared.opaque)
        counts[recording.family, "strings"] += compared.opaque
        if compared.problem:
            counts[recording.family, "differ"] += 1
            print(f"{recording.family} {recording.name}: {compared.problem}")
    print("service    answers  streams  no good answer  with opaque state  opaque strings  differ")
    for family in READERS:
        names = ("answers", "streams", "unread", "opaque", "strings", "differ")
        figures = [counts[family, name] for name in names]
        print("{:<10} {:>7}  {:>7}  {:>14}  {:>17}  {:>14}  {:>6}".format(family, *figures))
    differing = sum(counts[family, "differ"] for family in READERS)
    return 1 if differing or not counts else 0


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "Pydantic serializer warnings")  # The client's types do not know every item.
    sys.exit(asyncio.run(main()))
