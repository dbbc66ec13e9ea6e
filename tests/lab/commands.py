"""Random commands of `llm memory` with random options and arguments, on random profiles.

uv run python tests/lab/commands.py --tries 7000 --seed 0

Whatever a command is given, it ends with 0, 1 or 2; one that fails says what to do next, and nothing else; one that
reads changes nothing; nothing goes away but by a command that takes away; each change can be undone byte for byte. One
in ten is a new process, three in ten run in a terminal.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections import Counter
from typing import TYPE_CHECKING

import odd
from lab import UNSEEN, Life, edited, lived, run
from llm.cli import cli

if TYPE_CHECKING:
    import click
    from person import Done

STEPS = 30
COMMANDS: dict[str, click.Command] = cli.commands["memory"].commands
NAMES = sorted(set(COMMANDS) - {"worker"})  # which runs for a minute
READ = {"show", "why", "search", "history", "diff", "status", "path", "profiles"}
TAKE = {"load", "clear", "undo", "rollback", "edit", "review", "update", "condense"}
TAKE_WHAT_IS_NAMED = {"remove", "forget"}
MODELS_OWN = {"llm/scripted/calls.jsonl", "llm/scripted/embedded.jsonl"}
NEXT = re.compile(
    r"\bllm [a-z]|--\w|\b(ls -|rm -|export |VISUAL=)|save it as|use up to|what can be read|at most|[Tt]ry:? |Nothing changed"
)
STYLES = re.compile(r"\x1b\[([0124]|3\d)m|\r?\x1b\[\?25[lh]|\rLearning")


class Typist(Life):
    """Somebody who types anything."""

    def __init__(self, seed: int, folder: pathlib.Path) -> None:
        super().__init__(seed, folder)
        self.person.patience = 60
        editor = folder / "editor"
        editor.write_text(f'#!/bin/sh\ncp "{folder}/edited" "$1"\n')
        editor.chmod(0o700)
        self.person.env["VISUAL"] = self.chance.choice([str(editor), str(editor), "true", "false", "no-such-editor"])
        (folder / ".bashrc").write_bytes(self.chance.choice([b"", b"alias x=y", b"a\r\nb\r\n", b"\xff\n"]))
        (folder / "notes.txt").write_text("I like figs. I use vim.\n")
        (folder / "bytes").write_bytes(b"\xff\xfe\0")
        said = {"sender": "human", "text": "I like maps", "created_at": "2026-01-01T00:00:00Z"}
        (folder / "export.json").write_text(json.dumps([{"chat_messages": [said]}]))
        if self.chance.random() < 0.5:
            (self.person.user_dir / "default_embedding_model.txt").write_text("scripted-embed")
        if self.chance.random() < 0.9:
            self.person.save(odd.profile(self.chance))

    def text_of(self, profile: str) -> str:
        if not re.fullmatch("[a-z]{1,32}", profile):
            return ""
        place = self.person.memory if profile == "default" else self.person.memory / "profiles" / profile
        with_text = place / "profile.md"
        return with_text.read_bytes().decode() if with_text.exists() else ""

    def disk(self) -> dict[str, bytes]:
        files = filter(pathlib.Path.is_file, self.person.folder.rglob("*"))
        return {str(path.relative_to(self.person.folder)): path.read_bytes() for path in files}

    def prepare(self) -> None:
        """Let something happen to the profile before the command."""
        if self.chance.random() < 0.15:
            with self.person.without_worker():
                self.person.llm(
                    f"I like k{self.chance.randrange(10**6)}", LLM_MEMORY_REVIEW=self.chance.choice(["all", ""])
                )
        if self.chance.random() < 0.1:
            self.person.save(edited(self.person.text(), self.chance))
        (self.person.folder / "edited").write_text(edited(self.person.text(), self.chance), "utf-8")

    def step(self) -> None:
        self.prepare()
        name = self.chance.choice(NAMES)
        ids = {one["id"]: one["text"] for one in self.person.data("show")["facts"]}
        options, words = odd.arguments(COMMANDS[name], self.chance, self.person.text(), ids)
        args = [name, *options, *words]
        named = options[options.index("--profile") + 1] if "--profile" in options else "default"
        profile = named.casefold().rpartition("+")[2].strip() or "default"
        how = self.chance.choice(["new process", *["terminal"] * 3, *["fork"] * 6])
        is_terminal = how == "terminal"
        typed = self.chance.choice(odd.TYPED[:5] if is_terminal else odd.TYPED)
        before = self.disk()
        text = self.text_of(profile)

        done = self.person.llm("memory", *args, typed=typed, terminal=is_terminal, new=how == "new process")
        self.note(("memory", *args), done)
        now = self.text_of(profile)
        self.counts[f"{how}: exit {done.code}"] += 1
        self.look(args, done, is_terminal=is_terminal)
        self.look_at_disk(name, before, profile)
        gone = list((Counter(text.splitlines()) - Counter(now.splitlines())).elements())
        if name in TAKE_WHAT_IS_NAMED:
            said = re.sub(r"\A\W+|\W+\Z", "", " ".join(words)).casefold()
            named_lines = {ids.get(said, said).casefold(), said}
            gone = [
                line
                for line in gone
                if line and line[0] != "#" and not any(one in line.casefold() for one in named_lines)
            ]
        if gone and name not in TAKE:
            self.fail("took away what it should not", gone)
        if now != text and name != "forget" and "--purge" not in args:
            self.undo(profile, text, now, done)

    def look(self, args: list[str], done: Done, *, is_terminal: bool) -> None:
        """See that it ended as a command should, and said what it should."""
        if done.code not in {0, 1, 2}:
            self.fail("ended otherwise", done)
        if is_terminal:
            shown = done.out + done.err
            if UNSEEN.search(STYLES.sub("", shown)):
                self.fail("control character in a terminal", repr(shown))
        elif done.code and (done.out or not NEXT.search(done.err)):
            self.fail("failed without a next step, or with data", done)
        elif UNSEEN.search(done.err):
            self.fail("control character in a message", repr(done.err))
        elif not done.code and "--json" in args and not {"--help", "--"} & set(args):
            try:
                json.loads(done.out)
            except ValueError:
                self.fail("no JSON", done)

    def look_at_disk(self, name: str, before: dict[str, bytes], profile: str) -> None:
        """See that nothing changed but what may."""
        after = self.disk()
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        folder = "llm/memory" if profile == "default" else f"llm/memory/profiles/{re.escape(profile)}"
        may = rf"llm/memory/\.gitignore|{folder}/[^/]+"
        if name in READ:
            is_there = any(path.startswith("llm/memory/") for path in before)
            may = r"llm/memory/(.+/)?(memory\.db(-\w+)?|\w+\.lock)" if is_there else "nothing"
        elif name.endswith("-shell"):
            may = r"(?!llm/).+|llm/memory/(memory\.db|\w+\.lock)"
        if changed := {path for path in changed - MODELS_OWN - {"edited"} if not re.fullmatch(may, path)}:
            self.fail("changed something else", changed)

    def undo(self, profile: str, text: str, now: str, done: Done) -> None:
        """See that a change can be taken back, byte for byte, and that be taken back too."""
        told = re.findall(r"\bundo (\d+)", done.out + done.err)
        backs: list[str] = []
        for number in reversed(told):
            undone = self.do("--profile", profile, "undo", number)
            backs += re.findall(r"\bundo (\d+)", undone.err)[-1:]
        if self.text_of(profile) != text:
            self.fail("could not be undone", repr(text), repr(now), repr(self.text_of(profile)))
        self.counts["undone"] += 1
        if self.chance.random() < 0.7:
            for number in reversed(backs):
                self.do("--profile", profile, "undo", number)
            if self.text_of(profile) != now:
                self.fail("could not be redone", repr(text), repr(now), repr(self.text_of(profile)))


def attempt(seed: int, folder: pathlib.Path) -> tuple[int, Counter[str]]:
    return lived(Typist(seed, folder), STEPS)


if __name__ == "__main__":
    run(attempt, str(__doc__), 7000)
