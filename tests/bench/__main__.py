"""What memory costs, measured side by side with what it is compared with: uv run python tests/bench

Without arguments everything is measured, which takes about five minutes; name
parts to measure only those. --quick runs everything on a small scale, to see
that it works: its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import pathlib
import platform
import tempfile

import calls
import facts
import history
import poll
import search
import secrets_
import tokens_
from table import printed

PARTS = {
    "calls": calls.run,
    "tokens": tokens_.run,
    "poll": poll.run,
    "history": history.run,
    "facts": facts.run,
    "secrets": secrets_.run,
    "search": search.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="on a small scale, for a test")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    print("Medians, with the middle half in brackets; a ratio is the median of those of neighbours in time.")
    print(f"Python {platform.python_version()}, {platform.system()}.")
    for name in options.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="memory-bench-") as folder:
            title, rows = PARTS[name](options.quick, pathlib.Path(folder))
        print(printed(title, rows), flush=True)


if __name__ == "__main__":
    main()
