"""Files of ours, or llm's log, that are in a way they should not be while somebody types and runs commands.

uv run python tests/lab/obstacles.py --tries 550 --seed 0

Each person lives at an odd place. With root, half of them are bound by modes and owners, and a fourth have
a small disk that fills up; what can't be put in the way here is skipped, and counted.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
from typing import TYPE_CHECKING

from in_the_way import IS_ROOT, KINDS, PUT, Skipped
from lab import run
from words import START, Words

if TYPE_CHECKING:
    import pathlib
    from collections import Counter
    from collections.abc import Iterator

NAMES = ["plain", "with spaces", "quo'te \"d", "new\nline", "ünïcödé 日本 🦊", "-rf", "per%20cent%", "$HOME `x`"]
NAMES += ["back\\slash", "a?b#c&d=e", "; false &", "*[ab]?", "{}", "\x1b]0;title\x07", os.fsdecode(b"\xff\xfe"), "a:b"]
NAMES += ["/".join(["long" * 10] * 6), "/".join(["very" * 60] * 8), "~", "long", "long", "tab\t", "memory", "{0[path]}"]
WAYS = ["absolute", "relative", "dotted", "slash", "link", "memory is a link", "profile is a link", "no LLM_USER_PATH"]
PATHS = {"relative": "llm", "dotted": "dotfiles/../llm", "link": "link"}
FILES = ["profile.md", "memory.db", "memory.db-journal", "memory.db-wal", "memory.db-shm", "typed.jsonl"]
FILES += [".typed.jsonl.taken", "news", "greeted", "paused", "forgotten", "no-system", "profile.lock", "learn.lock"]
FILES += ["worker.lock", "worker.log", ".profile.md.new", ".memory.db.new", ".gitignore", ".", "..", "../logs.db"]
FILES += ["profile.md", "memory.db", "typed.jsonl", ".", "..", "../logs.db"]  # twice as often


class Obstructed(Words):
    """Somebody at an odd place, with an obstacle now and then."""

    def __init__(self, seed: int, folder: pathlib.Path) -> None:
        chance = random.Random(seed)
        name = NAMES[seed % len(NAMES)]
        if name == "long":  # about as long as SQLite can take
            name = "/".join(["d" * 99] * 5)[: chance.randint(380, 490)].rstrip("/")
        super().__init__(seed, folder / name)
        self.root = folder
        self.has_small_disk = IS_ROOT and chance.random() < 0.25
        self.way = chance.choice(WAYS)
        person = self.person
        self.is_hopeless = len(str(person.memory)) > 480  # SQLite opens no place of more than 512
        person.is_bound = chance.random() < 0.5
        person.env["SCRIPTED_DIR"] = str(folder / "script")
        self.log.append(ascii(f"at {name!r}, {self.way}, bound: {person.is_bound}"))

    @contextlib.contextmanager
    def settled(self) -> Iterator[None]:
        """Make the place odd, and write the profile by hand."""
        person = self.person
        home = person.folder
        for path in (self.root / "script", home / "dotfiles", home / ".config", person.memory):
            path.mkdir(0o700)
        if self.has_small_disk:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", person.memory], check=True)
        elif self.way == "memory is a link":
            person.memory.rmdir()
            person.memory.symlink_to(home / "dotfiles")
        (home / "link").symlink_to("llm")
        (home / ".config" / "io.datasette.llm").symlink_to(person.user_dir)
        if self.way == "profile is a link":
            person.profile.symlink_to(home / "dotfiles" / "me.md")
        elif self.way == "no LLM_USER_PATH":
            del person.env["LLM_USER_PATH"]
        elif self.way == "slash":
            person.env["LLM_USER_PATH"] += "/"
        elif self.way in PATHS:
            person.env["LLM_USER_PATH"] = PATHS[self.way]
        person.save(START)
        try:
            yield
        finally:
            if self.has_small_disk:
                for path in person.memory.iterdir():
                    path.unlink()  # so that its worker ends
                subprocess.run(["umount", "-l", person.memory], check=True)

    def meet(self) -> bool:
        """Go on with an obstacle in the way; tell whether one could be put there."""
        kind = "full" if self.has_small_disk and self.chance.random() < 0.6 else self.chance.choice([*KINDS])
        name = "." if kind == "full" else self.chance.choice(FILES)
        path = self.person.memory / name
        is_folder = name in {".", ".."}
        if is_folder:
            path = self.person.memory if name == "." else self.person.user_dir
        if kind in PUT and (path.is_mount() or name == ".."):
            return False
        if self.chance.random() < 0.5:
            self.call()
        if kind in PUT and name in {".", "profile.md", "memory.db", "../logs.db"}:
            self.update()  # what waits there goes with it
        self.log.append(f"-- {name}: {kind}")
        try:
            with KINDS[kind](path):
                self.live_with(kind, name)
        except Skipped:
            self.counts[f"skipped: {kind}"] += 1
            self.log.append("-- skipped")
            return False
        self.log.append("-- gone")
        self.counts[f"obstacle: {kind}"] += 1
        self.is_sound = True
        self.command("resume")
        self.look()
        return True

    def live_with(self, kind: str, name: str) -> None:
        """Type, run commands, and see that status names what keeps memory from learning."""
        self.is_sound = False
        self.person.patience = 60 if kind == "held" else 20  # each lock is waited for, ten seconds
        steps = [self.looking, self.looking]
        # What is written meanwhile goes when the file comes back.
        goes = kind == "missing" or (kind, name) in {("folder", "."), ("link to nowhere", "profile.md")}
        if not goes:
            steps += [self.add, self.undo, self.forget, self.pause]
        word = self.call()
        if self.state() == "on" and word and not goes:
            self.typed.add(word)
        self.is_paused = False
        self.chance.choice(steps)()
        if (kind, name) != ("held", "learn.lock"):  # else `update` waits, and says so
            has_learned = self.update()
            # Meanwhile a worker may have got rid of the obstacle.
            if kind != "held" and self.state() == "on" and not (has_learned or self.update()):
                self.fail("said that it learns")
        if self.chance.random() < 0.5:
            word = self.call()
            if self.is_paused and word:
                self.never.add(word)


def attempt(seed: int, folder: pathlib.Path) -> tuple[int, Counter[str]]:
    life = Obstructed(seed, folder)
    life.counts["odd places"] = 1
    made = 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(life.settled())
        if life.chance.random() < 0.7:
            stack.enter_context(life.person.without_worker())
        life.call()
        life.update()
        life.look()
        while not made:
            made += life.meet()
        life.finish()
        life.search()
    return made, life.counts


if __name__ == "__main__":
    run(attempt, str(__doc__), 550)
