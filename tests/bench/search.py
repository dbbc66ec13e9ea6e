"""What a search costs with a hundred thousand facts, against a thousand."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import people
from poll import clocked
from table import Row, alone, compared

import llm_user_memory as memory

if TYPE_CHECKING:
    import pathlib


def with_facts(folder: pathlib.Path, count: int) -> memory.Memory:
    """A memory of so many facts that it has no more, and a word in ten of them."""
    opened = memory.Memory(people.home(folder, ""))
    chance, syllables = random.Random(count), ["ba", "de", "ki", "lo", "mu", "ras", "ten", "vi", "zor"]
    lines = [
        f"- Fact {number}{' about chess' * (number % (count // 10) == 0)}{' yearly' * (number % 10 == 0)}: "
        + " ".join("".join(chance.choices(syllables, k=3)) for _ in range(8))
        for number in range(count)
    ]
    with opened.db.atomic():
        for at in range(0, count, 1000):
            opened.history._add("load", "## Notes\n" + "\n".join(lines[at : at + 1000]) + "\n")
    return opened


def run(quick: bool, folder: pathlib.Path) -> tuple[str, list[Row]]:
    few, many = (100, 1_000) if quick else (1_000, 100_000)
    memories = [with_facts(folder / str(count), count) for count in (many, few)]
    rows = []
    for what, words, most in (("ten", "chess", 2), ("a tenth of all", "yearly", None)):
        searches = [lambda each=each, words=words: memory.search_facts(each, words, 10) for each in memories]
        name = f"a search that finds {what}, with {many:,} facts, against {few:,}"
        rows.append(compared(name, clocked(3 if quick else 50, *searches), most, " µs", 0))
    size = memories[0].home.database.stat().st_size / many
    for each in memories:
        each.db.close()
    return "Search", [*rows, alone(f"bytes of memory.db a fact, of {many:,}", [size], None, "", 0)]
