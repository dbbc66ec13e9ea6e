"""Every way to keep memory from learning, alone and combined, typed into a real bash or zsh.

uv run python tests/lab/switches.py --tries 200 --seed 0

Before and after, a line without any of them is learned from, or the lab would see nothing.
"""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any, NamedTuple

from lab import Life, run
from terminal import Shell

if TYPE_CHECKING:
    import pathlib
    from collections import Counter

STEPS = 10
MARKER = "Owns a marker"


class Switch(NamedTuple):
    """What keeps learning off: lines typed before and after, settings, options."""

    before: str = ""
    after: str = ""
    settings: str = ""
    options: str = ""
    sends: bool = True  # the profile, all the same
    is_off: bool = False  # memory does nothing at all
    refuses: bool = True  # also what a model proposes with -T UserMemory
    chats: bool = True


HIDDEN = Switch()  # a leading space
SWITCHES = [
    HIDDEN,
    Switch("llm memory pause", "llm memory resume"),
    Switch("llm logs off", "llm logs on"),
    Switch(settings="LLM_MEMORY_DISABLED=1 ", is_off=True),
    Switch("export LLM_MEMORY_DISABLED=true", "unset LLM_MEMORY_DISABLED", is_off=True),
    Switch(settings="LLM_MEMORY_DISABLED=please ", is_off=True),
    Switch(settings="LLM_MEMORY_UPDATES=false "),
    Switch("export LLM_MEMORY_UPDATES=0", "unset LLM_MEMORY_UPDATES"),
    Switch(settings="LLM_MEMORY_AUTO=0 ", sends=False),
    Switch("export LLM_MEMORY_AUTO=off", "unset LLM_MEMORY_AUTO", sends=False),
    Switch(options=" -n", chats=False),
    Switch(options=" --database other.db"),
    Switch(options=" -m scripted-single", refuses=False, chats=False),
]
# Lines whose words are not typed into our function: {llm} with its options, and {words}, which are also in a file.
WITH_US = [
    *('{env}{llm} "$(cat words)"', '{env}{llm} "`cat words`"', 'it=$(cat words); {env}{llm} "$it"'),
    *(
        "cat words | {env}{llm}",
        "{env}{llm} <words",
        "{env}{llm} <<<'{words}'",
        ": '{words}'\r(export {env}X=; . ./script)",
    ),
    *('for it in "$(cat words)"; do {env}{llm} "$it"; done', "(export {env}X=; source ./script)"),
    '(export {env}X=; eval "$(cat script)")',  # zsh exports no setting that stands before eval
    'while read -r it; do {env}{llm} "$it" </dev/null; done <words',
    'ask() {{ {env}{llm} "$1"; }}; ask "$(cat words)"',
]
WITHOUT_US = [
    *("{env}command {llm} '{words}'", "{env}env {llm} '{words}'", "{env}timeout 50 {llm} '{words}'"),
    *("{env}sh ./script", "{env}bash script", "{env}make -s", "{env}xargs -I@ {llm} @ <words"),
    *("{env}find words -exec {llm} '{words}' \\;", "{env}sh -c \"{llm} '{words}'\""),
    "{env}nohup sh script <words >out 2>&1",
    "{env}python3 -c \"import os; os.system('sh ./script')\"",
    'env -i HOME="$HOME" PATH="$PATH" LLM_USER_PATH="$LLM_USER_PATH" {env}sh ./script </dev/null',  # as cron
]
OPTIONS = ["", "", " --sf memory:auto", " -f memory:auto", " -T UserMemory", " -t brief", " -t ask", " -c"]


class Line(NamedTuple):
    kind: str
    typed: str
    words: str
    options: str
    switches: list[Switch]

    @property
    def sends(self) -> bool:
        return self.kind != "without us" and all(one.sends and not one.is_off for one in self.switches)

    @property
    def may_send(self) -> bool:
        if " -c" in self.options:  # llm sends the conversation again, with what it began with
            return True
        by_hand = "memory:auto" in self.options or "-T" in self.options
        return self.sends or (by_hand and not any(one.is_off for one in self.switches))


class Quiet(Life):
    """Somebody who does not want to be learned from."""

    def __init__(self, seed: int, folder: pathlib.Path) -> None:
        super().__init__(seed, folder)
        self.person.save(f"# User Profile\n\n## Notes\n- {MARKER}\n")
        templates = self.person.user_dir / "templates"
        templates.mkdir()
        (templates / "brief.yaml").write_text("system: Be brief")
        (templates / "ask.yaml").write_text("prompt: 'Say: $input'")
        self.number = 100 * seed
        self.quiet: set[str] = set()  # what must not be learned
        self.shell = Shell(self.person, self.chance.choice(["bash", "zsh"]))

    def words(self) -> str:
        self.number += 1
        return f"I like k{self.number} a lot"

    def control(self, llm: str) -> None:
        """See that an ordinary line is learned from."""
        words = self.words()
        self.shell.type(f"{llm} '{words}'")
        self.do("update")
        if f"- {words}" not in self.person.text():
            self.fail("an ordinary line was not learned from", self.shell.shown, self.person.text())

    def known(self) -> list[Any]:
        """Return what memory has: the profile, edits but those that only a model proposed, and turns."""
        with sqlite3.connect(self.person.memory / "memory.db") as db:
            edits = db.execute("select fact from edits where reason != 'a model asked for it'").fetchall()
            turns = db.execute("select id from turns where length > 0").fetchall()
        db.close()
        return [self.person.text(), edits, turns]

    def calls(self, words: str) -> list[dict[str, Any]]:
        lines = (self.person.script / "calls.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines if words in line]

    def choose(self) -> Line:
        chance = self.chance
        kind = chance.choice(["typed", "typed", "chat", "with us", "without us"])
        forms = {
            "typed": ["{env}{llm} '{words}'"],
            "chat": ["{env}{llm}"],
            "with us": WITH_US,
            "without us": WITHOUT_US,
        }
        form = chance.choice(forms[kind])
        fitting = [one for one in SWITCHES if one.chats or kind != "chat"]
        if form.startswith("env -i"):
            fitting = [one for one in fitting if "export" not in one.before]
        fewest = 1 if kind in {"typed", "chat"} else 0
        switches = chance.sample(fitting, chance.choice([fewest, 1, 2]))
        options = chance.choice(OPTIONS) + "".join(one.options for one in switches)
        words = self.words()
        llm = f"llm{' chat' if kind == 'chat' else ''}{options}"
        (self.person.folder / "words").write_text(words)
        (self.person.folder / "script").write_text(f'{llm} "$(cat words)"\n')
        (self.person.folder / "Makefile").write_text(f'all:\n\t@{llm} "$$(cat words)"\n')
        settings = "".join(one.settings for one in switches)
        typed = form.format(env=settings, llm=llm, words=words)
        if HIDDEN in switches:
            typed = f" {typed}"
        return Line(kind, typed, words, options, switches)

    def step(self) -> bool:
        """Type a line that must not be learned from; return whether a model got it."""
        line = self.choose()
        tool = self.person.script / "tool.json"
        tool.unlink(missing_ok=True)
        if line.kind != "chat" and self.chance.random() < 0.5:
            tool.write_text(json.dumps({"name": "UserMemory_remember", "arguments": {"fact": f"Likes {line.words}"}}))
        known = self.known()
        proposed = self.person.data("review")
        for before in filter(None, (one.before for one in line.switches)):
            self.shell.type(before)
        for typed in line.typed.split("\r"):
            self.shell.type(typed, [("> ", line.words), ("You said", "exit")] if line.kind == "chat" else [])
        for after in filter(None, (one.after for one in line.switches)):
            self.shell.type(after)
        self.log.append(f"{line} {self.shell.shown[-300:]!r}")
        is_asked = bool(self.calls(line.words))
        self.counts[f"{line.kind}: {'asked' if is_asked else 'no model was asked'}"] += 1
        if is_asked:
            self.look(line, known, proposed)
        return is_asked

    def look(self, line: Line, known: list[Any], proposed: list[Any]) -> None:
        """See that nothing is learned of a line, even now, and that the profile went only where it may."""
        self.quiet.add(line.words)
        if self.do("update").code:
            self.fail("update failed")
        if self.known() != known:
            self.fail("learned", known, self.known())
        proposals = self.person.data("review")[len(proposed) :]
        if proposals and any(one.refuses for one in line.switches):
            self.fail("proposed", proposals)
        calls = self.calls(line.words)
        is_sent = any(MARKER in json.dumps(call) for call in calls)
        if is_sent and not line.may_send:
            self.fail("sent", calls)
        if line.sends and not is_sent:
            self.fail("not sent", calls)

    def finish(self) -> None:
        """See that what was kept from memory is neither found later nor given with what is learned."""
        self.do("learn", "--yes")
        self.control("llm -c -m scripted")
        for words in self.quiet:
            if any(call["update"] or call["look"] for call in self.calls(words)):
                self.fail("a model was asked about it", words)


def attempt(seed: int, folder: pathlib.Path) -> tuple[int, Counter[str]]:
    life = Quiet(seed, folder)
    with life.person.without_worker():
        life.control("llm")
        made = sum(life.step() for _ in range(STEPS))
        life.finish()
    life.shell.close()
    return made, life.counts


if __name__ == "__main__":
    run(attempt, str(__doc__), 200)
