"""A word that is typed, then one thing that breaks, and where the word stands afterwards: only where it belongs.

uv run python tests/lab/marker.py --tries 300 --seed 0

Once it is forgotten, it stands nowhere, in no form, also not in free pages, and is not learned again. In some tries a
password is typed, too, which must never stand in a file of ours.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import sqlite3
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import unkind
from breakages import WAYS, a_file
from in_the_way import IS_ROOT, Skipped
from lab import run
from llm.plugins import pm
from marked import PASSWORDS, Marked

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

BELONGS = re.compile(
    r"\.?profile\.md(\.new|~|\.sw\w|\.bak|\.~1~|\.un~)?|#profile\.md#|memory\.db(-journal|-wal)?|\.?news(\.\d+)?"
    r"|\.?(profile\.md|memory\.db)(\.new)?\.(unreadable|damaged)-.*"
)
NOT_OURS = re.compile(
    r"llm/(scripted/.*|logs\.db.*|keys\.json)|export\.json|notes\.md|editor|edited|kept-by-the-lab|filling"
)
PATIENCE = 15  # seconds that a worker has


class Searched(Marked):
    """Somebody whose files are searched for it."""

    def look(self, *, forgotten: bool = False) -> None:
        """See that it stands only where it belongs, or nowhere."""
        for path in self.person.folder.rglob("*"):
            name = str(path.relative_to(self.person.folder))
            if path.is_symlink() or not path.is_file() or NOT_OURS.search(name):
                continue
            if path.suffix == ".db" and not self.is_readable:
                continue
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue
            if path.name == "memory.db":
                self.look_into(path, data, forgotten=forgotten)
            if forgotten or not BELONGS.fullmatch(path.name):
                self.must_not_say(f"{path.name}{' after forget' if forgotten else ''}", data)
            elif self.secret.encode() in data and ".damaged" not in path.name:
                self.fail(f"a password: {path.name}")
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environ = (process / "environ").read_bytes()
                if f"HOME={self.person.folder}\0".encode() in environ:
                    self.must_not_say("a process", environ + (process / "cmdline").read_bytes())

    def look_into(self, path: pathlib.Path, data: bytes, *, forgotten: bool) -> None:
        """See in which tables it stands."""
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path, 5)) as db:
            tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
            said = {name: repr(db.execute(f"select * from {name}").fetchall()).encode() for name in tables}
            for table in ("state", "turns", "requests"):
                self.must_not_say(table, said.get(table, b""))
            # An index shares the beginnings of words.
            db.execute("create virtual table temp.vocabulary using fts5vocab(main, lines_fts, row)")
            if forgotten:
                self.must_not_say("index", repr(db.execute("select term from vocabulary").fetchall()).encode())
            if not any(needle in said.get("lines", b"") + said.get("edits", b"") for needle in self.needles):
                self.must_not_say("free pages", data)

    def forget(self) -> None:
        for profile in self.profiles:
            for _ in range(20):
                done = self.do("--profile", profile, "forget", self.marker, "--yes")
                if "llm logs status" in done.err:  # what it names: it finishes what a killed llm has begun to write
                    self.person.llm("logs", "status")
                    self.counts["llm's log had to be finished by llm"] += 1
                elif "try again" not in done.err:  # a worker reads a database that was put into WAL mode
                    break
                time.sleep(0.1)
            if done.code and "No line has" not in done.err:
                self.fail("not forgotten", done.err)
        self.look(forgotten=True)

    def knows(self, word: str) -> bool:
        path = self.memory / "profile.md"
        return path.exists() and word in path.read_text("utf-8", "replace")

    def requests(self) -> int:
        calls = (self.person.script / "calls.jsonl").read_bytes().splitlines()
        learning = [call for call in calls if b'"update": true' in call or b'"look": true' in call]
        return sum(any(needle in call for needle in self.needles) for call in learning)

    def stay_forgotten(self) -> None:
        """See that nothing learns it again, by hand or in the background."""
        before = self.requests()
        self.do("resume")
        for words in ("update --retry", "learn --yes", "learn --again --yes", "update"):
            self.do(*words.split())
        if self.has_read_export:
            self.do("learn", "export.json", "--yes")
        self.call("-c", "I like figs")
        deadline = time.monotonic() + PATIENCE
        while not self.knows("figs") and time.monotonic() < deadline:
            time.sleep(0.1)
        self.counts["a worker learned afterwards"] += time.monotonic() < deadline
        self.do("review", "--accept", "all", "--yes")
        self.look(forgotten=True)
        if self.requests() > before:
            self.fail("asked about it again")


@contextlib.contextmanager
def small_disk(life: Searched) -> Iterator[None]:
    life.person.memory.mkdir(0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", life.person.memory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", life.person.memory], check=True)


def attempt(seed: int, folder: pathlib.Path) -> tuple[int, Counter[str]]:
    life = Searched(seed, folder)
    sys.path[:] = [*(path for path in sys.path if "memory-lab-" not in path), str(folder / "plugins")]
    chance = life.chance
    with contextlib.ExitStack() as stack:
        has_small_disk = IS_ROOT and chance.random() < 0.1
        if has_small_disk:
            stack.enter_context(small_disk(life))
        if chance.random() < 0.3:
            life.do("install-shell")
        with contextlib.ExitStack() as resting:
            if chance.random() < 0.6:
                resting.enter_context(life.person.without_worker())
            life.call("I like tea")
            for _ in range(chance.randrange(3)):
                life.call(chance.choice([life.sentence, life.sentence, "What is a fjord?"]))
                life.step()
            life.do("update")
            way = a_file if has_small_disk else chance.choice(WAYS)
            try:
                with way(life):
                    life.counts[f"ways: {way.__name__}"] += 1
                    life.call(life.sentence)
                    if chance.random() < 0.3:
                        life.call(chance.choice(PASSWORDS).format(life.secret))
                    if chance.random() < 0.8:
                        life.do("update")
                    life.look()
                    for _ in range(chance.randint(1, 4)):
                        life.step()
                    life.look()
            except Skipped:
                life.counts["skipped"] += 1
                return 0, life.counts
            finally:
                life.is_readable = True
            life.log.append("-- repaired")
            life.look()
            life.forget()
        life.stay_forgotten()
    return 1, life.counts


pm.register(unkind, "unkind")  # for forks; a worker finds it among its plugins

if __name__ == "__main__":
    run(attempt, str(__doc__), 300)
