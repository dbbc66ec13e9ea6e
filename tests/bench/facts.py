"""Facts that are left after many updates by a model that is careless with one line in twenty that it writes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from table import Row

import llm_user_memory as memory

if TYPE_CHECKING:
    import pathlib

KEPT = [f"Has told the assistant lasting fact number {n} about their life" for n in range(40)]
CARELESS = 1 / 20


def carelessly(lines: list[str], chance: random.Random) -> list[str]:
    """The lines as such a model writes them: one in twenty forgotten, or two of its words swapped."""
    written = []
    for line in lines:
        if chance.random() >= CARELESS:
            written.append(line)
        elif chance.random() < 0.5:
            words = line.split(" ")
            if len(words) == 1:
                continue
            a, b = chance.sample(range(len(words)), 2)
            words[a], words[b] = words[b], words[a]
            written.append(" ".join(words))
    return written


def by_edits(updates: int, chance: random.Random) -> memory.Document:
    """Ours: the model writes edits, code judges them and changes what they name."""
    document = start()
    for number in range(updates):
        said = f"I am now working on project {number}"
        message = memory.Message(said, at="2026-11-20T12:00:00+00:00")
        current = [id for id, item in document.ids.items() if item.text not in KEPT]
        reply = [f"REPLACE | {current[0]} | Is working on project {number} | {said}"] if current else []
        reply = reply or [f"ADD | Current Projects | Is working on project {number} | {said}"]
        edits = memory.parse_reply("\n".join(carelessly(reply, chance))) or []
        _, document = memory.judge(edits, document, document, memory.Batch("", [message]))
    return document


def by_rewriting(updates: int, chance: random.Random) -> memory.Document:
    """The usual design: the model writes the whole profile, and that is the profile."""
    document = start()
    for number in range(updates):
        lines = [line for line in document.text.splitlines() if "working on project" not in line]
        lines.append(f"- Is working on project {number}")
        document = memory.Document("\n".join(carelessly(lines, chance)) + "\n")
    return document


def start() -> memory.Document:
    document = memory.Document("")
    for fact in KEPT:
        document = document.add("Personal Information", fact)
    return document


def run(quick: bool, folder: pathlib.Path) -> tuple[str, list[Row]]:
    rows = []
    for updates in (10, 50) if quick else (10, 100, 1_000):
        seeds = range(1 if quick else 3)
        left = [
            [
                sum(fact in {item.text for item in design(updates, random.Random(seed)).items} for fact in KEPT)
                for seed in seeds
            ]
            for design in (by_edits, by_rewriting)
        ]
        ours, other = (sum(counts) / len(counts) / len(KEPT) for counts in left)
        rows.append(Row(f"after {updates:,} updates", f"{ours:.0%}", f"{other:.0%}", target="100%", met=ours == 1))
    return "Facts still there word for word, against having the model write the profile again", rows
