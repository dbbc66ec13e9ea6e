"""Files of ours that are damaged, emptied, replaced or lost while somebody types and runs commands.

uv run python tests/lab/damages.py --tries 250 --seed 0

A damaged profile is mended with `rollback`, as status says. Nobody can tell what stood in a file that is gone, empty or
an older one: messages that waited there may be lost without a word, all others must be learned or said to be lost.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING

from harm import WAYS
from lab import WORD, run
from words import START, Words

if TYPE_CHECKING:
    import pathlib
    from collections import Counter

DAMAGES = 4
SIDE_FILES = ["memory.db-journal", "memory.db-wal", "memory.db-shm"]
FILES = ["profile.md", "memory.db", "memory.db", "typed.jsonl", "typed.jsonl", ".typed.jsonl.taken", "forgotten"]
MARKS = ["news", "paused", "greeted", "no-system"]
FILES += [*MARKS, *SIDE_FILES]
JOURNALS = {"memory.db", "typed.jsonl", ".typed.jsonl.taken"}  # where messages wait


class Damaged(Words):
    """Somebody whose files are damaged now and then."""

    def __init__(self, seed: int, folder: pathlib.Path) -> None:
        super().__init__(seed, folder)
        self.person.patience = 30
        self.backups: dict[str, bytes] = {}
        self.damaged: set[str] = set()  # files
        self.excused: set[str] = set()  # words that may be lost without a word
        self.endangered: set[str] = set()  # words that may be lost if that is said

    def type(self) -> None:
        is_paused = os.path.lexists(self.person.memory / "paused")
        self.is_sound = not is_paused
        word = self.call()
        if is_paused:
            self.never.add(word)

    def step(self) -> None:
        steps = [self.type] * 4 + [self.add, self.forget, self.update, self.looking, self.looking, self.back_up]
        steps += [lambda: self.command("pause"), lambda: self.command("resume")]
        if not {"memory.db", "profile.md"} & self.damaged:  # else it may bring back what a damage has made
            steps.append(self.undo)
        self.chance.choice(steps)()

    def update(self) -> bool:
        """Learn; the command that finds a damage fails once."""
        return super().update() or super().update()

    def back_up(self) -> None:
        self.backups = {}
        for name in FILES:
            with contextlib.suppress(FileNotFoundError):
                self.backups[name] = (self.person.memory / name).read_bytes()

    def damage(self) -> bool:
        """Damage a file, and look what comes of it; tell whether there was one."""
        name = self.chance.choice(FILES)
        how = self.chance.choice([*WAYS, "older", "gone"])
        path = self.person.memory / name
        data = path.read_bytes() if path.is_file() else b""
        if name in SIDE_FILES:
            data = data or self.backups.get("memory.db", b"")
        elif name in MARKS:
            data = data or b"2026-11-27\n"
        missing = {"gone": not path.exists(), "older": name not in self.backups}
        if not data or missing.get(how):
            return False
        newest = 0
        if name == "profile.md":
            self.update()
            newest = self.newest()
        before = self.person.text()
        self.log.append(f"-- {name}: {how}")
        self.counts[f"{name}: {how}"] += 1
        if how == "gone":
            path.unlink()
        else:
            path.write_bytes(self.backups[name] if how == "older" else WAYS[how](data, self.chance))
        self.damaged.add(name)
        if name == "profile.md":
            self.mend(before, newest)
        else:
            is_silent = how in {"emptied", "gone", "older"} or path.read_bytes()[-1:] == b"\n"  # cut behind a line
            self.go_on(name, before, is_silent=is_silent)
        return True

    def go_on(self, name: str, before: str, *, is_silent: bool) -> None:
        """Live on with a damaged file, which leaves the profile as it is."""
        if name in JOURNALS:
            waiting = self.typed - self.there
            self.endangered |= waiting
            if is_silent:
                self.excused |= waiting
        self.command("status")
        self.looking()
        lines = iter(self.person.text().splitlines())
        if not all(line in lines for line in before.splitlines()):
            self.fail("the profile was changed", before, self.person.text())

    def newest(self) -> int:
        done = self.person.llm("memory", "history", "-n", "1", "--json")
        versions = json.loads(done.out or "[]")
        return versions[0]["id"] if versions else 0

    def mend(self, before: str, newest: int) -> None:
        """Live on with a damaged profile, then go back."""
        damaged = self.person.profile.read_bytes() if self.person.profile.exists() else b""
        typed = set(self.typed)
        self.call()
        self.looking()
        self.command("add", f"Added {self.word()}")
        self.update()
        if "memory.db" in self.damaged or not newest:  # what is in the history may be damaged, too
            self.person.save(before)
            self.command("show")
        else:
            self.command("rollback", str(newest))
        if self.person.text() != before:
            self.fail("not gone back to", before, self.person.text())
        self.typed = typed
        self.never -= set(WORD.findall(damaged.decode("utf-8", "replace")))  # an older copy says it again
        is_kept = any(path.read_bytes() == damaged for path in self.person.memory.glob("profile.md.unreadable-*"))
        if not is_text(damaged) and "memory.db" not in self.damaged and not is_kept:
            self.fail("not kept", damaged)

    def end(self) -> None:
        self.command("resume")
        with contextlib.suppress(FileNotFoundError):
            (self.person.memory / "paused").unlink()
        self.command("update", "--retry")
        self.state()
        learned = set(WORD.findall(self.person.text()))
        lost = self.typed - learned
        may_be_lost = self.excused | (self.endangered if self.tells_loss else set())
        if silent := lost - may_be_lost:
            self.fail("lost without a word", silent, self.problems)
        self.counts["messages lost, and said"] += len(lost - self.excused)
        self.counts["messages lost, and not to be known"] += len(lost & self.excused)
        self.typed -= lost
        self.command("learn", "--yes")
        review = self.note(("review",), self.person.llm("memory", "review", "--json"))
        if "Traceback" in review.err:
            self.fail("traceback", review.err)
        offered = set(WORD.findall(review.out))
        if again := offered & self.never & self.forgotten:
            self.fail("offered again", again)
        self.finish()


def is_text(data: bytes) -> bool:
    with contextlib.suppress(UnicodeDecodeError):
        data.decode()
        return True
    return False


def attempt(seed: int, folder: pathlib.Path) -> tuple[int, Counter[str]]:
    life = Damaged(seed, folder)
    life.person.save(START)
    made = 0
    with contextlib.ExitStack() as stack:
        if life.chance.random() < 0.7:
            stack.enter_context(life.person.without_worker())
        life.type()
        life.back_up()
        for _ in range(60):
            life.step()
            life.look()
            if life.chance.random() < 0.4:
                made += life.damage()
            if made == DAMAGES:
                break
        life.end()
    return made, life.counts


if __name__ == "__main__":
    run(attempt, str(__doc__), 250)
