"""Lines typed into a real bash, zsh, fish or nushell: words that somebody types are learned from, all others are not.

uv run python tests/lab/lines.py --tries 700 --seed 0

Each line has words of its own. They are typed in it or into a chat, or come from elsewhere, or the line is hidden.
"""

from __future__ import annotations

import json
import time
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from lab import WORD, Life, lived, run
from terminal import Shell
from ways import CHATS, HIDDEN_LINES, NOT_TYPED, OPTIONS, PLAIN, SENTENCES, SETTINGS, SETUP, SHELLS, TYPED, quoted

if TYPE_CHECKING:
    import pathlib
    from collections import Counter
    from collections.abc import Callable

STEPS = 25
PATIENCE = 20.0
SPY = "I am a spy"
"""What others wrote, which is piped in or filled in beside typed words."""


class Line(NamedTuple):
    typed: str
    words: str
    is_chat: bool = False
    before: str = ""  # another line, whose words are typed too


class Typist(Life):
    """Somebody with one shell, who types all kinds of lines into it."""

    def __init__(self, seed: int, folder: pathlib.Path) -> None:
        super().__init__(seed, folder)
        self.name = SHELLS[seed % len(SHELLS)]
        self.number = 1000 * seed
        self.learned: list[str] = []
        self.unlearned = [SPY]
        templates = self.person.user_dir / "templates"
        templates.mkdir()
        (templates / "brief.yaml").write_text("system: Be brief")
        (templates / "ask.yaml").write_text("prompt: 'Say: $input'")
        (folder / "page").write_text(f"{SPY}\n")
        (folder / "names").mkdir()
        self.person.llm("hello", LLM_MEMORY_UPDATES="false")
        self.cid = json.loads(self.person.llm("logs", "--json").out)[0]["conversation_id"]
        self.settings = self.chance.choice(SETTINGS[self.name])
        self.shell = self.opened()
        self.kinds: dict[str, Callable[[], Line]] = {
            "typed": self.a_typed_line,
            "chat": self.a_chat,
            "not typed": self.a_line_not_typed,
            "hidden": self.a_hidden_line,
        }

    def opened(self) -> Shell:
        self.last = ""
        shell = Shell(self.person, self.name, f"{SETUP[self.name]}{self.settings}\n")
        if self.name == "nushell":  # in config.nu, it would be of the llm before ours
            shell.type("alias q = llm")
        return shell

    def words(self, sentence: str = PLAIN) -> str:
        self.number += 1
        return sentence.format(f"k{self.number}")

    def a_typed_line(self) -> Line:
        form = self.chance.choice(TYPED[self.name])
        words = self.words(PLAIN if "{words}" in form else self.chance.choice(SENTENCES))
        return Line(self.filled(form, words), words)

    def a_chat(self) -> Line:
        words = self.words()
        return Line(self.filled(self.chance.choice(CHATS[self.name]), words), words, is_chat=True)

    def a_line_not_typed(self) -> Line:
        words = self.words()
        before = self.chance.choice(["", "", f"echo '{words}'"])
        return Line(self.filled(self.chance.choice(NOT_TYPED[self.name]), words), words, before=before)

    def a_hidden_line(self) -> Line:
        """Return a line with a blank before it; the line before may be the same without the blank."""
        words = self.words()
        is_chat = self.chance.random() < 0.5
        form = self.chance.choice((CHATS if is_chat else HIDDEN_LINES)[self.name])
        typed = self.filled(form, words)
        before = self.chance.choice(["", f"echo '{words}'", typed])
        return Line(f" {typed}", words, is_chat, before)

    def filled(self, form: str, words: str) -> str:
        """Return a form with options and words, which are put into the files too."""
        options = self.chance.choice(OPTIONS).replace("{cid}", self.cid)
        chat_options = self.chance.choice(["", "", " -c", " -t brief", " --sf memory:auto", " -T UserMemory"])
        folder = self.person.folder
        llm = f"llm{options}"
        chat = f"llm chat{chat_options}"
        (folder / "words").write_text(f"{words}\n")
        (folder / "script").write_text(f"{llm} '{words}'\n")
        (folder / "chat").write_text(f"{chat}\n")
        (folder / "Makefile").write_text(f"all:\n\t@{llm} '{words}'\n")
        for old in (folder / "names").iterdir():
            old.unlink()
        if words.isascii() and len(words) < 40:
            (folder / "names" / words).touch()
        env = " ".join(f"{name}={self.person.env[name]}" for name in ("HOME", "PATH", "LLM_USER_PATH"))
        filled = form.replace("{call}", f"{llm} {self.chance.choice(quoted(words, self.name))}")
        filled = filled.replace("{llm}", llm).replace("{chat}", chat).replace("{env}", env)
        return filled.replace("{words}", words)

    def type(self, lines: str, words: str, *, is_chat: bool) -> None:
        """Type lines, each of which may go over several, and what is said in a chat."""
        self.log.append(repr(lines))
        for line in lines.split("\f"):
            answers = [("Type 'exit'", words), ("You said", "exit")] if is_chat else []
            self.shell.type(line.replace("\n", "\r"), answers)

    def notes(self) -> list[str]:
        """Return the digests of what was noted."""
        journal = self.person.memory / "typed.jsonl"
        return [json.loads(line)["sha256"] for line in journal.read_text().splitlines()] if journal.exists() else []

    def asked(self, words: str) -> int:
        """Return how often a model was sent these words."""
        sent = [json.loads(line) for line in (self.person.script / "calls.jsonl").read_text().splitlines()]
        return sum(words in call["prompt"] for call in sent)

    def waits(self, is_so: Callable[[], bool]) -> bool:
        """Wait for what may be done in the background; a shell whose output nobody reads would stop."""
        deadline = time.monotonic() + PATIENCE
        while not is_so() and time.monotonic() < deadline:
            self.shell._read(0.02)
        return is_so()

    def step(self) -> None:
        try:
            self.try_a_line()
        except TimeoutError as error:
            self.fail(f"{self.name}, a line did not end", error)
            self.shell.close()
            self.shell = self.opened()

    def try_a_line(self) -> None:
        """Type a line of some kind, and see what is noted of it."""
        kind = self.chance.choices(list(self.kinds), [3, 2, 3, 2])[0]
        line = self.kinds[kind]()
        if line.before:
            is_chat = line.is_chat and not line.before.startswith("echo")
            self.type(line.before, self.words(), is_chat=is_chat)
        known = self.notes()
        asked = self.asked(line.words)
        self.type(line.typed, line.words, is_chat=line.is_chat)
        if not self.waits(lambda: self.asked(line.words) > asked):
            self.fail(f"{self.name}, no model was asked", line, repr(self.shell.shown))
            return
        self.counts[f"{self.name}, {kind}"] += 1
        if kind in {"typed", "chat"}:
            self.look_if_learned(line, known)
            self.last = line.typed
        else:
            self.last = line.before or self.last
            self.unlearned += [] if line.words in line.before else [line.words]
            if self.notes() != known:
                self.fail(f"{self.name}, {kind}, but noted", self.settings, line)

    def look_if_learned(self, line: Line, known: list[str]) -> None:
        is_noted = self.waits(lambda: self.notes() != known)
        noted = self.notes()[len(known) :]
        if is_noted and noted == [sha256(line.words.encode()).hexdigest()]:
            self.learned.append(line.words)
        elif not is_noted and line.typed == self.last and "ignoreboth" in self.settings:
            self.counts[f"{self.name}, missed, the same as the line before"] += 1
        else:
            self.fail(f"{self.name}, missed", self.settings, line, noted, repr(self.shell.shown))

    def finish(self) -> None:
        """See that memory learned what was typed, and nothing else."""
        for _ in range(STEPS):
            self.do("update")
        profile = self.person.text()
        learned = set(WORD.findall(profile))
        missing = [words for words in self.learned if not learned & set(WORD.findall(words))]
        if missing:
            self.fail(f"{self.name}, typed, but not learned", missing, profile)
        for words in self.unlearned:
            if words in profile:
                self.fail(f"{self.name}, not typed, but learned", words, profile)


def attempt(seed: int, folder: pathlib.Path) -> tuple[int, Counter[str]]:
    life = Typist(seed, folder)
    with life.person.without_worker():
        made = lived(life, STEPS)
        life.finish()
    life.shell.close()
    return made


if __name__ == "__main__":
    run(attempt, str(__doc__), 700)
