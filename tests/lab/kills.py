"""`kill -9` of workers, commands and calls at random moments, and where what was typed stands afterwards.

uv run python tests/lab/kills.py --tries 200 --seed 0

Each of a person's facts has a word that stands nowhere else. What was done before a kill must be there after it, once;
what a call has noted must be learned, once; what is forgotten must be in no file of ours.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections import Counter
from typing import TYPE_CHECKING

from lab import WORD, Life, facts_in, run

if TYPE_CHECKING:
    import pathlib

KILLS = 10
WHOLE = re.compile(r"|#+ [A-Z][\w ]+|- (Added|I like) k\d+")


class Victim(Life):
    """Somebody whose processes are killed."""

    def __init__(self, seed: int, folder: pathlib.Path) -> None:
        super().__init__(seed, folder)
        self.number = 100 * seed
        self.kills = 0
        self.stated: set[str] = set()  # words of what was added or typed, and not forgotten
        self.safe: set[str] = set()  # of these, what was done before any kill
        self.forgotten: set[str] = set()

    def word(self) -> str:
        self.number += 1
        self.stated.add(f"k{self.number}")
        return f"k{self.number}"

    def killed(self, *args: str, within: float) -> bool:
        """Start a command, kill it within so many seconds, and tell whether it had been faster."""
        pid = self.person.start(*args)
        time.sleep(self.chance.random() * within)
        done = self.note(args, self.person.kill(pid))
        is_dead = done.code < 0
        self.kills += is_dead
        self.counts[f"killed: {args[1] if args[0] == 'memory' else 'call'}"] += is_dead
        return done.code == 0

    def step(self) -> None:
        what = self.chance.choice(["call", "call", "add", "add", "update", "worker", "undo", "forget"])
        if what == "call":
            word = self.word()
            if self.killed(f"I like {word}", within=0.3):
                self.safe.add(word)
        elif what == "add":
            word = self.word()
            if self.killed("memory", "add", f"Added {word}", within=0.1):
                self.safe.add(word)
        elif what == "worker":
            self.killed("memory", "worker", within=1)
        elif what == "forget" and self.stated:
            word = self.chance.choice(sorted(self.stated))
            self.safe.discard(word)  # killed, it may have forgotten it or not
            if self.killed("memory", "forget", word, "--yes", within=0.1):
                self.stated.discard(word)
                self.forgotten.add(word)
        else:
            self.killed("memory", what, within=0.1)
        self.look()

    def look(self) -> None:
        text = self.person.text()
        if any(not WHOLE.fullmatch(line) for line in text.splitlines()):
            self.fail("torn", text)
        if self.do("history").code:
            self.fail("unreadable")
        text = self.person.text()
        if any(not WHOLE.fullmatch(line) for line in text.splitlines()):
            self.fail("torn", text)
        said = Counter(fact for fact, _ in facts_in(text))
        if any(times > 1 for times in said.values()):
            self.fail("doubled", text)

    def finish(self) -> None:
        """Learn what waits, forget a word, and see where every word stands."""
        self.person.llm("What is a fjord?")  # llm brings its own log in order, which its kill may have left open
        if self.stated:
            word = min(self.stated)
            self.do("forget", word, "--yes")
            self.stated.discard(word)
            self.safe.discard(word)
            self.forgotten.add(word)
        self.do("update", "--retry")
        self.look()
        came: Counter[str] = Counter()
        for version in self.person.data("history", "-n", "0"):
            if version["author"] in {"add", "worker", "outside"}:
                came.update(WORD.findall(" ".join(change["after"] for change in version["changes"])))
        if missing := {word for word in self.safe if not came[word]}:
            self.fail("lost or not learned", missing)
        if again := {word for word, times in came.items() if times > 1}:
            self.fail("done twice", again)
        self.search()

    def search(self) -> None:
        """See that words stand only where they belong, and forgotten ones in no file of ours."""
        allowed = {"profile.md", "memory.db", "news"}
        for path in self.person.memory.rglob("*"):
            found = set(WORD.findall(path.read_bytes().decode("latin-1"))) if path.is_file() else set()
            if found & self.forgotten:
                self.fail("stands after forget", path.name, found & self.forgotten)
            if found & self.stated and path.name not in allowed:
                self.fail("stands where it must not", path.name, found)
        with sqlite3.connect(self.person.memory / "memory.db") as db:
            if db.execute("pragma integrity_check").fetchone() != ("ok",):
                self.fail("unreadable")
        db.close()


def attempt(seed: int, folder: pathlib.Path) -> tuple[int, Counter[str]]:
    life = Victim(seed, folder)
    with life.person.without_worker():
        life.person.llm("What is a fjord?")  # killed while it makes its log, llm itself never works again
        life.do("add", f"Added {life.word()}")
    while life.kills < KILLS:
        life.step()
    life.finish()
    return life.kills, life.counts


if __name__ == "__main__":
    run(attempt, str(__doc__), 200)
