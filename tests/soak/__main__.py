"""Run the soak test with `python -m tests.soak`. The exit code is 1 if a limit is exceeded."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.soak.run import Plan, soak


def main() -> int:
    usual = Plan()
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=usual.minutes)
    parser.add_argument("--rate", type=float, default=usual.rate, help="seconds from one chat to the next")
    parser.add_argument("--every", type=float, default=usual.every, help="seconds between two samples")
    parser.add_argument("--faults", type=float, default=usual.faults, help="the share of chats with a fault")
    parser.add_argument("--seed", type=int, default=usual.seed, help="the seed of the random steps")
    parser.add_argument("--out", type=Path, help="a file for the report; the default is standard output")
    chosen = vars(parser.parse_args())
    out = chosen.pop("out")
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(soak(Path(folder), Plan(**chosen), say=lambda line: print(line, flush=True)))
    if out is None:
        print(report)
    else:
        out.write_text(f"{report}\n", "utf-8")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
