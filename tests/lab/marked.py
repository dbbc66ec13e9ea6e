"""Somebody who types a word that stands nowhere else, and maybe a password, while something breaks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
import unicodedata
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lab import Life

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from person import Done

MARKERS = ["leukaemia", "Leukämie", "Лейкоз", "naïveté"]
SAID = ["I have {} since May", "I am afraid of {}. What helps?", "I live with {}, you know", "What is {}?", "He has {}"]
PASSWORDS = ["My wifi password is {}-Tr0ub4dor", "api_key = 'q{}zz9'", "Why does https://me:{}pw@example.org fail?"]
PASSWORDS += ["I use ghp_16C7e42F292c6912E7710c838347A{} here", "The PIN is hard, the password: hunter2{}"]
TEMPLATES = [
    *("update", "update", "update --retry", "learn --yes", "learn export.json --yes", "learn --again --yes", "status"),
    *("status --json", "why M", "why --refused", "history --json", "show --json", "review --json", "diff", "search M"),
    *(
        "search --chats M",
        "search --semantic M",
        "condense",
        "review --accept all --yes",
        "review --drop all",
        "clear --yes",
    ),
    *("undo", "rollback 1", "remove M --yes", "add M", "load notes.md --yes", "edit", "resume", "forget M --yes"),
]
CALLS = ["-c M", "-T UserMemory M", "-f memory:search:M Hello", "chat", "-t none M"]
OURS = re.compile(r"llm_user_memory\.py\", line .+\n(?: {4}.+\n)+(?! )")
"""The innermost frame of a traceback."""


def forms_of(text: str) -> set[bytes]:
    """Return the ways in which a text may be written."""
    written = {text, text.casefold(), text.upper(), unicodedata.normalize("NFD", text)}
    written |= {quote(one) for one in written} | {json.dumps(one)[1:-1] for one in written}
    return {one.encode(coding, "ignore") for one in written for coding in ("utf-8", "utf-16-le", "utf-16-be")}


class Marked(Life):
    """Somebody who types a marker, and maybe a password."""

    def __init__(self, seed: int, folder: pathlib.Path) -> None:
        super().__init__(seed, folder)
        chance = self.chance
        number = str(chance.randrange(10**7, 10**8))
        self.marker = f"{chance.choice(MARKERS)}-k{number}"
        self.secret = str(chance.randrange(10**7, 10**8))
        self.sentence = chance.choice(SAID).format(self.marker)
        self.needles = forms_of(self.marker) | forms_of(f"k{number}") | forms_of(self.marker.partition("-")[0])
        self.is_readable = True  # the database, without harm
        self.has_read_export = False
        person = self.person
        person.is_bound = chance.random() < 0.3
        self.profiles = chance.choice([["default"]] * 4 + [["work"], ["default", "work"]])
        self.memory = person.memory
        if self.profiles[-1] == "work":
            self.memory = person.memory / "profiles" / "work"
            person.env["LLM_MEMORY_PROFILE"] = "+".join(self.profiles)
        person.patience = 60
        (folder / "tmp").mkdir()
        (folder / "plugins" / "unkind-1.dist-info").mkdir(parents=True)
        (folder / "plugins" / "unkind-1.dist-info" / "METADATA").write_text("Name: unkind\nVersion: 1\n")
        (folder / "plugins" / "unkind-1.dist-info" / "entry_points.txt").write_text("[llm]\nunkind = unkind\n")
        (folder / "edited").write_text(f"# Me\n\n## Notes\n- Has {self.marker}\n- Likes tea\n")
        (folder / "editor").write_text(f'#!/bin/sh\ncp "{folder}/edited" "$1"\n')
        (folder / "editor").chmod(0o700)
        (folder / "notes.md").write_text(f"# Me\n\n## Notes\n- {self.sentence}\n- Likes maps\n")
        told = {"sender": "human", "text": self.sentence, "created_at": "2026-01-01T00:00:00Z", "uuid": "m1"}
        (folder / "export.json").write_text(json.dumps([{"name": self.marker, "chat_messages": [told]}]))
        person.env |= {"TMPDIR": str(folder / "tmp"), "VISUAL": str(folder / "editor"), "SHELL": "/bin/bash"}
        (person.user_dir / "default_model.txt").write_text("unkind")
        (person.user_dir / "default_embedding_model.txt").write_text("scripted-embed")
        if chance.random() < 0.3:  # the worker's log has a place of its own
            (folder / ".config").mkdir()
            (folder / ".config" / "io.datasette.llm").symlink_to(person.user_dir)
            del person.env["LLM_USER_PATH"]

    def note(self, args: tuple[str, ...], done: Done) -> Done:
        self.log.append(ascii(f"{args} -> {done.code} {done.out[-200:]!r} {done.err[-300:].strip()!r}"))
        self.counts["calls and commands"] += 1
        if done.hung and not any("-- hangs" in line for line in self.log):
            self.fail("hung")
        if "Traceback" in done.err and (args[0] == "memory" or OURS.search(done.err)):
            self.fail("traceback", done.err)
        return done

    def named(self, name: str, way: AbstractContextManager[None], what: object = "") -> AbstractContextManager[None]:
        self.log.append(ascii(f"-- {name} {what}"))
        self.counts[f"way: {name.strip()!r}"] += 1
        return way

    @contextlib.contextmanager
    def set(self, **env: str) -> Iterator[None]:
        before = dict(self.person.env)
        self.person.env |= env
        yield
        self.person.env = before

    def call(self, *args: str, **how: Any) -> None:
        self.note(args, self.person.llm(*args, terminal=self.chance.random() < 0.4, **how))

    def interrupt(self, *args: str, terminal: bool) -> None:
        pid = self.person.start("memory", *args, terminal=terminal)
        time.sleep(self.chance.random() * self.chance.choice([0.1, 0.6]))
        os.kill(pid, self.chance.choice([signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGKILL]))
        done = self.person.wait(pid)
        self.log.append(ascii(f"interrupted {args} -> {done.code} {done.err[-200:]!r}"))

    def step(self) -> None:
        """Run a command, type something, or wait for the worker."""
        what = self.chance.random()
        if what < 0.1:
            time.sleep(0.7)
        elif what < 0.3:
            words = self.chance.choice(CALLS).split()
            self.propose()
            typed = f"{self.sentence}\nexit\n" if words == ["chat"] else ""
            said = [self.sentence if word == "M" else word.replace("M", self.marker) for word in words]
            self.call(*said, typed=typed)
        else:
            words = self.chance.choice(TEMPLATES).split()
            done = self.do(*[self.marker if word == "M" else word for word in words])
            if words[0] in {"status", "update", "condense", "learn"}:
                told = done.out + done.err if words[0] == "status" else done.err.rpartition("Error: ")[2]
                if done.code != 0 or words[0] == "status":
                    self.must_not_say("told", told.encode())
            self.has_read_export |= "export.json" in words and not done.code

    def propose(self) -> None:
        """Have the model, given tools, propose to remember or to forget it."""
        tools = [("remember", "fact"), ("forget", "text"), ("recall", "query"), ("search", "query")]
        name, key = self.chance.choice(tools)
        tool = {"name": f"UserMemory_{name}", "arguments": {key: f"Has {self.marker}"}}
        (self.person.script / "tool.json").write_text(json.dumps(tool))

    def must_not_say(self, where: str, data: bytes) -> None:
        if found := [needle for needle in self.needles if needle in data]:
            self.fail(f"stands where it must not: {where}", found)
        if self.secret.encode() in data:
            self.fail(f"a password: {where}")
