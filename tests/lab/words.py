"""Somebody whose facts each have a word that stands nowhere else, so that it can be told what became of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING

from lab import WORD, Life, facts_in

if TYPE_CHECKING:
    import pathlib

    from person import Done

START = "# User Profile\n\nMüller’s notes, by hand.\n\n## Interests\n* Added k0\n"
WHOLE = re.compile(r"|#+ [A-Z][\w ]+|[-*] (Added|I like) k\d+|Müller’s notes, by hand\.")
NEXT = re.compile(r"\b(llm [a-z]+ [a-z]|ls -ld|df -h|rm -r|try again)")
"""The command that the message of a failure names."""
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]|\x1b\]")
LOOKING = ["show", "history", "diff", "profiles", "path", "review", "status"]


class Words(Life):
    """What somebody types, adds and forgets, and where its words should stand."""

    def __init__(self, seed: int, folder: pathlib.Path) -> None:
        super().__init__(seed, folder)
        self.number = 0
        self.used = {"k0"}
        self.there = {"k0"}  # must stand in the profile
        self.typed: set[str] = set()  # must have been learned in the end
        self.forgotten: set[str] = set()
        self.never: set[str] = set()  # forgotten, or typed while learning was off
        self.is_sound = True  # what is typed now must have been learned in the end
        self.said = ""  # by the last command, on stderr
        self.is_paused = False
        self.problems: list[str] = []  # of the last status, but for damaged files that were kept
        self.tells_loss = False  # of messages, or a damaged file
        self.is_hopeless = False  # neither llm nor memory can work here

    def word(self) -> str:
        self.number += 1
        self.used.add(f"k{self.number}")
        return f"k{self.number}"

    def fail(self, what: str, *why: object) -> None:
        super().fail(what, *map(ascii, why))

    def run(self, *args: str, plain: bool = False) -> Done:
        """Run llm at a terminal or not, and see that it ends and shows nothing that it must not."""
        at_terminal = self.chance.random() < 0.4
        done = self.note(args, self.person.llm(*args, terminal=at_terminal, plain=plain))
        if args[0] == "memory" and done.hung:
            self.fail("hung")
        if not plain and CONTROL.search(done.out + done.err if at_terminal else done.err):
            self.fail("showed control characters")
        return done

    def note(self, args: tuple[str, ...], done: Done) -> Done:
        self.log.append(ascii(f"{args} -> {done.code} {done.out[-200:]!r} {done.err[-200:].strip()!r}"))
        self.counts["calls and commands"] += 1
        return done

    def command(self, *args: str) -> bool:
        """Run a command of `llm memory`; tell whether it did what it says."""
        done = self.run("memory", *args)
        self.said = done.err
        if "Traceback" in done.err:
            self.fail("traceback", done.err)
        if done.code not in {0, 1} and not done.hung:
            self.fail("an exit of its own", done.code)
        if done.code == 1 and not NEXT.search(" ".join(done.err.split())):
            self.fail("named no next command", done.err)
        return done.code == 0

    def call(self) -> str:
        """Type a fact, and see that llm answers as it does without memory; return its word if it did."""
        word = self.word()
        done = {}
        for is_plain in self.chance.sample([True, False], 2):
            done[is_plain] = self.run(f"I like {word}", plain=is_plain)
        plain = done[True]
        ours = done[False]
        if ours.hung and not plain.hung:
            self.fail("hung")
        if plain[:2] != ours[:2]:
            self.fail("not as plain llm", plain, ours)
        if "Traceback" in ours.err and "Traceback" not in plain.err:
            self.fail("traceback", ours.err)
        if self.is_sound and ours.code == 0:
            self.typed.add(word)
        return word if ours.code == 0 else ""

    def state(self) -> str:
        """Return what status says; keep which problems it names."""
        args = ("memory", "status", "--json")
        done = self.note(args, self.person.llm(*args))
        if done.code or "Traceback" in done.err:
            self.fail("status failed", done.err)
            return ""
        data = json.loads(done.out)
        self.problems = [problem for problem in data["problems"] if " is kept; to remove it" not in problem]
        self.tells_loss = bool(data.get("lost")) or len(self.problems) < len(data["problems"])
        return str(data["state"])

    def add(self) -> None:
        word = self.word()
        if self.command("add", f"Added {word}", "--section", "Interests"):
            self.there.add(word)

    def undo(self) -> None:
        self.command("undo")
        changed = set(WORD.findall(self.said))
        self.there -= changed
        self.typed -= changed

    def pause(self) -> None:
        self.is_paused = self.command("pause")

    def forget(self) -> None:
        known = self.there | self.typed
        if not known:
            return
        word = self.chance.choice(sorted(known))
        self.there.discard(word)
        self.typed.discard(word)
        if self.command("forget", word, "--yes"):
            self.never.add(word)
            self.forgotten.add(word)

    def update(self) -> bool:
        return self.command("update", "--retry")

    def looking(self) -> None:
        what = self.chance.choice([*LOOKING, "why", "search"])
        self.command(what, *([min(self.used)] if what in {"why", "search"} else []))

    def look(self) -> None:
        """See that the profile says what it should."""
        text = self.person.text()
        now = set(WORD.findall(text))
        if any(not WHOLE.fullmatch(line) for line in text.splitlines()):
            self.fail("torn", text)
        if any(times > 1 for times in Counter(fact for fact, _ in facts_in(text)).values()):
            self.fail("doubled", text)
        if lost := self.there - now:
            self.fail("lost", lost, text)
        if strange := now - self.used:
            self.fail("said by nobody", strange)
        if again := now & self.never:
            self.fail("learned what it must not", again)
        self.there = now

    def finish(self) -> None:
        """Learn what waits, and see that it was learned."""
        self.is_sound = True
        self.command("resume")
        self.call()
        self.update()
        self.look()
        if self.is_hopeless:
            return
        if lost := self.typed - self.there:
            self.fail("not learned", lost, self.person.text())
        if self.state() != "on":
            self.call()  # a worker that an obstacle has ended is told of until the next call starts one
        if self.state() != "on" and self.problems:
            self.fail("still hindered", self.problems)

    def search(self) -> None:
        """See that what must never be learned is in no file of ours."""
        for path in self.person.memory.rglob("*"):
            found = set(WORD.findall(path.read_bytes().decode("latin-1"))) if path.is_file() else set()
            if found & self.never:
                self.fail("stands after forget", path.name, found & self.never)
