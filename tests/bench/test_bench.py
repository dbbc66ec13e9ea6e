"""The benchmark runs and has every row that it promises. What it measures is no matter of a test."""

from __future__ import annotations

import pathlib
import subprocess
import sys

ROWS = {
    "calls": [
        "CPU of the whole call",
        "on the clock",
        "importing the plugin",
        "inside our code",
        "starting a worker",
    ],
    "tokens": ["tokens|1 turn: written", "tokens|5 turns at once: price"],
    "poll": [
        "taking in a note, with 10,000 turns",
        "CPU in an hour",
        "memory (RSS)",
        "from the logged turn to the written profile",
    ],
    "history": ["history, with 500", "diff, with 500", "why, with 500", "rollback, with 500", "bytes of memory.db"],
    "facts": ["after 10 updates", "after 50 updates"],
    "secrets": ["prose", "the slowest of"],
    "search": ["a search that finds ten", "a search that finds a tenth", "bytes of memory.db a fact"],
}


def test_a_quick_run_of_the_benchmark_has_every_row(fuzz: float) -> None:
    parts = ROWS if fuzz else {"history": ROWS["history"]}  # the others take a while also on a small scale
    command = [sys.executable, str(pathlib.Path(__file__).parent), "--quick", *parts]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for row in (row for rows in parts.values() for row in rows):
        starts = tuple(row.split("|"))
        assert any(any(start in line for start in starts) for line in lines), f"{row!r} is not in:\n{done.stdout}"
