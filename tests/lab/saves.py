"""Editors that save the profile just when a worker and commands write to it.

uv run python tests/lab/saves.py --tries 3000 --seed 0

Torn is a line that nobody wrote; lost a save that is in no version; doubled a save that stands in the profile twice.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
import sys
import time
import traceback
from collections import Counter
from typing import TYPE_CHECKING

from lab import run
from person import Person

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

SAVES = 40
WHOLE = re.compile(r"|#+ [A-Z][\w ]+|- (Saved|Added|I like) k\d+( by \w+)?")
OURS = {"profile.md", "profile.lock", "learn.lock", "worker.lock", "memory.db", "typed.jsonl", "news", "worker.log"}
OURS |= {".typed.jsonl.taken", ".news.told", "memory.db-journal", ".gitignore", "forgotten"}
START = "# User Profile\n\n## Interests\n- Added k0\n\n## Preferences\n- Added k1\n"


# How programs save: a place, its new text, and the line that is new.


def renamed(path: pathlib.Path, text: str, line: str) -> None:
    """As vim and emacs do."""
    aside = path.with_name("4913.tmp")
    aside.write_text(text)
    os.replace(aside, path)


def in_place(path: pathlib.Path, text: str, line: str) -> None:
    """As nano and VS Code do."""
    path.write_text(text)


def appended(path: pathlib.Path, text: str, line: str) -> None:
    with path.open("a") as file:
        file.write(line)


def by_sed(path: pathlib.Path, text: str, line: str) -> None:
    subprocess.run(["sed", "-i", f"3a {line.strip()}", path], check=True)


def by_git(path: pathlib.Path, text: str, line: str) -> None:
    git = ["git", "-C", str(path.parent)]
    added = subprocess.run([*git, "hash-object", "-w", "--stdin"], input=text.encode(), capture_output=True, check=True)
    entry = f"100644,{added.stdout.decode().strip()},{path.name}"
    subprocess.run([*git, "update-index", "--add", "--cacheinfo", entry], check=True)
    while subprocess.run([*git, "checkout-index", "-f", path.name], check=False, capture_output=True).returncode:
        pass  # memory made the file that git had just removed: git says so, and its user tries again


EDITORS: list[Callable[[pathlib.Path, str, str], None]] = [renamed, in_place, appended, by_sed, by_git]


def identity(path: pathlib.Path) -> tuple[int, int]:
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        return status.st_ino, status.st_mtime_ns
    return 0, 0


def edit(path: pathlib.Path, chance: random.Random) -> None:
    """Save many times, most of them right behind a write of somebody else."""
    for number in range(100, 100 + SAVES):
        seen = identity(path)
        deadline = time.monotonic() + chance.choice([0, 0.3, 2, 4])
        while identity(path) == seen and time.monotonic() < deadline:
            time.sleep(0.001)
        text = path.read_text()
        lines = text.splitlines(keepends=True)
        # sed adds nothing to an empty file.
        save = chance.choice(EDITORS) if len(lines) >= 3 else in_place
        line = f"- Saved k{number} by {save.__name__}\n"
        lines.insert(chance.randint(min(3, len(lines)), len(lines)), line)
        save(path, "".join(lines), line)


def command(person: Person, chance: random.Random, number: int) -> None:
    what = chance.choice(["add", "add", "undo", "show", "call", "call"])
    if what == "call":
        person.llm(f"I like k{number}")
    elif what == "add":
        person.llm("memory", "add", f"Added k{number}", "--section", "Interests")
    else:
        person.llm("memory", what)


def torn(text: str) -> int:
    return sum(not WHOLE.fullmatch(line) for line in text.splitlines())


def attempt(seed: int, folder: pathlib.Path) -> tuple[int, Counter[str]]:
    chance = random.Random(seed)
    person = Person(folder)
    person.memory.mkdir(0o700)
    real = person.profile
    if seed % 2:
        (folder / "dotfiles").mkdir()
        real = folder / "dotfiles" / "me.md"
        person.profile.symlink_to(real)
    real.write_text(START)
    subprocess.run(["git", "init", "-q", real.parent], check=True)
    person.llm("memory", "show")
    worker = person.start("memory", "worker")
    editor = os.fork()
    if editor == 0:
        status = 1
        try:
            edit(real, chance)
            status = 0
        except BaseException:  # noqa: BLE001 - Python would print it after this
            traceback.print_exc()
        finally:
            os._exit(status)
    counts = Counter(torn=0, lost=0, doubled=0, left_behind=0, looks=0, commands=0, failed_editors=0)
    number = 1000
    ended = False
    while not ended:
        number += 1
        command(person, chance, number)
        counts["commands"] += 1
        for _ in range(50):
            counts["looks"] += 1
            counts["torn"] += torn(person.text())
        pid, status = os.waitpid(editor, os.WNOHANG)
        ended = pid != 0
    counts["failed_editors"] += status != 0
    person.kill(worker)
    check(person, real, seed, counts)
    return SAVES, counts


def check(person: Person, real: pathlib.Path, seed: int, counts: Counter[str]) -> None:
    changes = [change for version in person.data("history", "-n", "0") for change in version["changes"]]
    recorded = {change["after"] for change in changes}
    saved = {fact.partition(" by ")[0] for fact in recorded if fact.startswith("Saved")}
    lost = {f"Saved k{number}" for number in range(100, 100 + SAVES)} - saved
    lines = [line for line in person.text().splitlines() if line.startswith("- ")]
    doubled = {line for line, times in Counter(lines).items() if times > 1}
    places = {*person.memory.iterdir(), *real.parent.iterdir()}
    left = {path.name for path in places} - OURS - {".git", real.name}
    counts["lost"] += len(lost)
    counts["doubled"] += len(doubled)
    counts["left_behind"] += len(left)
    counts["torn"] += sum(torn(f"- {fact}") for fact in recorded if fact)
    counts["versions"] = len(person.data("history", "-n", "0"))
    if lost or doubled or left or counts["torn"] or counts["failed_editors"]:
        print(f"--- seed {seed}:", lost, doubled, left, counts, person.text(), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    run(attempt, str(__doc__), 3000)
