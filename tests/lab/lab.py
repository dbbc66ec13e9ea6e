"""What the labs share: attempts with a seed and a folder of their own, what is noted of each, and what people say."""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import re
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from person import Done, Person

if TYPE_CHECKING:
    from collections.abc import Callable

WORD = re.compile(r"\bk\d+\b")
"""The word that tells facts apart."""

UNSEEN = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u202d\u202e\ud800-\udfff]")
"""What must not reach a terminal: it could move the cursor, recolour, or turn text round."""


class Life:
    """One person, what happens to them, and what goes wrong."""

    def __init__(self, seed: int, folder: pathlib.Path) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.person = Person(folder)
        self.counts: Counter[str] = Counter()
        self.log: list[str] = []

    def fail(self, what: str, *why: object) -> None:
        self.counts[what] += 1
        print(f"--- seed {self.seed}: {what}", *why, *self.log, sep="\n    ", file=sys.stderr, flush=True)

    def do(self, *args: str) -> Done:
        """Run a command of `llm memory`."""
        return self.note(("memory", *args), self.person.llm("memory", *args))

    def note(self, args: tuple[str, ...], done: Done) -> Done:
        self.log.append(f"{str(args)[:300]} -> {done.code} {done.err[-300:].strip()!r}")
        if "Traceback" in done.out + done.err or "could not be read" in done.err:
            self.fail("crashed or unreadable", done.err)
        return done


def facts_in(text: str) -> list[tuple[str, str]]:
    """Return what a profile's lines say, without bullets, and their headings."""
    found = []
    section = ""
    for line in text.splitlines():
        if line.startswith("#"):
            section = line.strip("# ")
        elif line.strip():
            found.append((line.strip().removeprefix("- "), section))
    return found


def run(attempt: Callable[[int, pathlib.Path], tuple[int, Counter[str]]], description: str, tries: int) -> None:
    """Make attempts with seeds of their own until there were so many tries, and print what failed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--tries", type=int, default=tries)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    made = 0
    seed = options.seed
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        while made < options.tries:
            seeds = range(seed, seed + options.jobs)
            for number, found in pool.map(in_a_folder, [attempt] * len(seeds), seeds):
                made += number
                counts.update(found)
            seed += options.jobs
    print(f"{made:,} tries, seeds {options.seed} to {seed - 1}")
    for name, count in sorted(counts.items()):
        print(f"  {name:<40} {count:,}")


def lived(life: Any, steps: int) -> tuple[int, Counter[str]]:
    """Take so many steps of a life, each of which is a try."""
    for _ in range(steps):
        life.step()
    return steps, life.counts


def in_a_folder(attempt: Callable[[int, pathlib.Path], Any], seed: int) -> Any:
    with tempfile.TemporaryDirectory(prefix="memory-lab-", ignore_cleanup_errors=True) as folder:
        return attempt(seed, pathlib.Path(folder))


def fact(chance: random.Random, known: list[str]) -> str:
    """Return a fact that nobody has stated before, or now and then one of the ``known``."""
    if known and chance.random() < 0.3:
        return chance.choice(known)
    verb = chance.choice(["Likes", "Has", "Plays", "Avoids"])
    thing = chance.choice(["tea", "chess", "bees", "maps"])
    return f"{verb} {thing} k{chance.randrange(10**6)}"


def edited(text: str, chance: random.Random) -> str:
    """Return a profile as somebody may leave it in an editor."""
    lines = text.splitlines() or ["# User Profile", "", "## Notes"]
    at = chance.randint(min(3, len(lines)), len(lines))
    bullets = [number for number, line in enumerate(lines) if line.startswith("- ")]
    what = chance.choice(["add", "prose", "change", "remove", "move", "heading"])
    new = fact(chance, [])
    if what == "heading":
        lines += ["", f"## {chance.choice(['Garden', 'Boat'])}", f"- {new}"]
    elif what in {"add", "prose"} or not bullets:
        lines.insert(at, f"- {new}" if what == "add" else f"\n{new}\n")
    else:
        chosen = chance.choice(bullets)
        old = lines.pop(chosen)
        if what == "change":
            lines.insert(chosen, f"- {new}")
        elif what == "move":
            lines.insert(chance.randint(min(3, len(lines)), len(lines)), old)
    return "\n".join(lines) + "\n"
