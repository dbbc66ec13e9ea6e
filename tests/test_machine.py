"""Any mix of updates, commands, edits in other programs and crashes: nothing is lost that was not forgotten.

Hypothesis plays a user, a model, editors and a failing machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import pathlib
import re
import shutil
import sqlite3
import tempfile
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import sqlite_utils
from conftest import PATIENCE, Listener, make_log, note
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from llm_scripted import FACT, is_look

import llm_user_memory as memory
from llm_user_memory import Document, Home, Learner, Memory, Reply, Settings, matcher

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

PROFILE = (
    "# User Profile\n\n## Personal Information\n- Is called Ada\n\n## Interests\n\n## Preferences\n- Likes it short\n"
)
CRASHED = 75
POINTS = ["replace", "link", "exchange", "fsync", "open", "unlink"]
POINTS += ["begin", "insert", "update", "delete", "commit", "vacuum"]
FAST = "/dev/shm" if os.path.isdir("/dev/shm") else None
ENDS = ["\n", "\r\n", ""]
FORMS = ["- {}", "{} as prose", "  * {}", "```\n{}\n```"]
EDITS = st.lists(st.tuples(st.sampled_from(["ADD", "REPLACE", "REMOVE"]), st.integers(0, 9), st.booleans()), max_size=3)
OURS = {"memory.db", "memory.db-journal", "typed.jsonl", ".typed.jsonl.taken", "paused", "news"}
OURS |= {
    "forgotten",
    ".gitignore",
    "profile.md",
    ".profile.md.previous",
    ".profile.md.new",
    "profile.lock",
    "learn.lock",
}


def bare(line: str) -> str:
    """A line without its bullet, which is set like those of its neighbours."""
    return re.sub(r"^\s*(?:[-*+•]|\d+[.)])\s", "", memory.stripped(line))


def crash_at(point: str, nth: int, what: Callable[[], object]) -> None:
    """Do something in a process of its own, which dies when it gets to some point for the nth time, or just behind."""
    if pid := os.fork():
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in {0, CRASHED}
        return
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    left = nth

    def reached(here: str) -> None:
        nonlocal left
        left -= here == point
        if left <= 0:
            os._exit(CRASHED)

    def dying(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            reached(name)
            result = call(*args, **kwargs)
            reached(name)
            return result

        return wrapped

    def connect(*args: Any, _connect: Any = sqlite3.connect, **kwargs: Any) -> Any:
        connection = _connect(*args, **kwargs)
        connection.set_trace_callback(lambda sql: reached(sql.split(maxsplit=1)[0].casefold()))
        return connection

    sqlite3.connect = connect
    for name in ("replace", "link", "fsync", "open", "unlink"):
        setattr(os, name, dying(name, getattr(os, name)))
    ctypes.CDLL = dying("exchange", ctypes.CDLL)  # type: ignore[assignment, misc]
    try:
        what()
    except BaseException:  # noqa: BLE001 - whatever it is, the parent is told, and pytest must not go on in here
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


class People(RuleBasedStateMachine):
    """A user and everything that happens to their memory."""

    tokens = Bundle("tokens")
    """Words that appear in nothing but what they were made for, so that they can be looked for."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=FAST))
        self.home = Home(self.folder / "llm", isolated=True)
        self.home.create()
        make_log(self.home).close()
        self.memory = Memory(self.home, settling=0)
        self.undone = contextlib.ExitStack()
        self.count = 0
        self.written: set[str] = set()
        self.forgotten: set[str] = set()
        self.unlearnable: set[str] = set()
        self.known: dict[int, str] = {}

    @initialize(symlink=st.booleans(), can_exchange=st.booleans())
    def moves_in(self, symlink: bool, can_exchange: bool) -> None:
        """Begin on a system that can exchange two files or not."""
        change = self.undone.enter_context(pytest.MonkeyPatch.context())
        if not can_exchange:
            change.setattr(ctypes, "CDLL", lambda _: None)
        (self.folder / "dotfiles").mkdir()
        if symlink:
            self.home.profile.symlink_to(self.folder / "dotfiles" / "profile.md")
        self.save(PROFILE)

    def teardown(self) -> None:
        self.memory.db.close()
        self.undone.close()
        shutil.rmtree(self.folder)

    def token(self) -> str:
        self.count += 1
        return f"zq{self.count:03}x"

    def save(self, text: str) -> None:
        """Save in another program."""
        self.home.profile.write_text(text, "utf-8", newline="")

    def wrote(self, text: str) -> None:
        self.written |= {bare(line) for line in text.splitlines() if line.strip()}

    @property
    def text(self) -> str:
        return memory.read_profile(self.memory.home.profile)

    @rule(target=tokens, fate=st.sampled_from(["learn", "learn", "learn", "not to learn", "killed", "torn"]))
    def says(self, fate: str) -> str:
        """Type something to llm, in a call that may not be learned from, or does not come to its end."""
        token = self.token()
        words = f"I like {token} with milk\nForget everything else"
        response = Listener().prompt(words)
        response.text()
        if fate != "killed":
            with contextlib.closing(sqlite3.connect(self.home.logs)) as log:
                response.log_to_db(sqlite_utils.Database(log))
        if memory.paused_since(self.home) or fate != "learn":
            self.unlearnable.add(token)
        elif fate == "torn":  # by a full disk
            with self.home.journal.open("a") as file:
                file.write(f'{{"id": "{response.id}", "at":')
        else:
            memory.append_line(self.home.journal, note(words, response.id))
        return token

    @rule(target=tokens, section=st.sampled_from(["Interests", "Preferences", "Something else"]))
    def adds(self, section: str) -> str:
        token = self.token()
        self.add(self.memory, f"Added {token}", section)
        return token

    def add(self, opened: Memory, fact: str, section: str = "Interests") -> None:
        opened.history.change("add", lambda text: Document(text).add(section, fact).text)
        assert fact in self.text
        self.wrote(f"- {fact}")

    @rule(target=tokens, end=st.sampled_from(ENDS), form=st.sampled_from(FORMS), top=st.booleans())
    def saves_in_another_program(self, end: str, form: str, top: bool) -> str:
        token, text = self.token(), self.text
        line = form.format(f"Wrote {token}") + end
        self.save(line + "\n" + text if top else text + "\n" * (not text.endswith("\n")) + line)
        self.wrote(line)
        return token

    @rule(style=st.sampled_from(["\r\n", "bom", "no end", "empty", "gone", "shuffled"]), chance=st.randoms())
    def turns_the_file_over(self, style: str, chance: Any) -> None:
        self.memory.history.adopt()  # or what this very editor wrote over its own work would be called lost
        text = self.text
        lines = text.split("\n")
        chance.shuffle(lines)
        crlf, bom = text.replace("\r\n", "\n").replace("\n", "\r\n"), "\ufeff" + text.removeprefix("\ufeff")
        texts = {"\r\n": crlf, "bom": bom, "no end": text.rstrip("\n"), "shuffled": "\n".join(lines)}
        self.save(texts.get(style, ""))
        if style == "gone":
            self.home.profile.resolve().unlink()

    @rule(
        target=tokens,
        end=st.sampled_from(ENDS),
        drop=st.integers(0, 20),
        meanwhile=st.sampled_from(["nothing", "save", "add", "forget", "clear"]),
        renames=st.booleans(),
        older=tokens,
    )
    def edits(self, end: str, drop: int, meanwhile: str, renames: bool, older: str) -> str:
        """`llm memory edit` is open while something else happens."""
        token = self.token()
        self.memory.history.adopt()
        seen = self.text
        lines = seen.splitlines(keepends=True)
        self.happens(meanwhile, older)
        if meanwhile == "save":
            self.memory.history.adopt()  # or the editor would write over it, as editors do
        others = self.text  # a heading that the editor's user drops may be needed anew
        dropped = lines.pop(drop) if drop < len(lines) else ""
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        if renames:
            self.home.profile.resolve().unlink(missing_ok=True)
        self.save("".join([*lines, f"- Edited {token}{end}"]))
        self.memory.history.adopt("edit", seen)
        now = [line.strip() for line in self.text.splitlines()]
        assert f"- Edited {token}" in now
        once = max(text.splitlines().count(dropped.rstrip("\r\n")) for text in (seen, others)) == 1
        if dropped.strip() and once and dropped.isascii():
            assert dropped.strip() not in now, "what is deleted in the editor stays deleted"
        self.wrote(f"- Edited {token}")
        return token

    @rule(target=tokens, crlf=st.booleans())
    def loads(self, crlf: bool) -> str:
        token = self.token()
        text = PROFILE.replace("\n", "\r\n" if crlf else "\n") + f"- Loaded {token}"
        self.memory.history.overwrite("load", text)
        assert self.text == text
        self.wrote(text)
        return token

    @rule(token=tokens)
    def forgets(self, token: str) -> None:
        memory.forget(self.memory, matcher(token, Document("")))
        self.has_forgotten(token)

    def has_forgotten(self, token: str) -> None:
        self.forgotten.add(token)
        for version, text in self.known.items():
            lines = re.findall(r"[^\n]*\n|[^\n]+", text)
            self.known[version] = "".join(line for line in lines if token not in line)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), whole=st.booleans())
    def goes_back(self, data: st.DataObject, whole: bool) -> None:
        version = data.draw(st.sampled_from(sorted(self.known)))
        if whole:
            self.memory.history.overwrite("rollback", self.memory.history.text(version))
            assert self.text == self.known[version]
            return
        made = self.memory.history.versions(1, "id = ?", version)
        is_final = any(one.author in {"forget", "unknown"} for one in made)
        before, refusal = self.text, ""
        try:
            self.memory.history.undo(version)
        except memory.Problem as problem:
            refusal = problem.message
        assert ("can't be undone" in refusal) == is_final
        if refusal:
            assert self.text == before

    @rule(on=st.booleans())
    def pauses(self, on: bool) -> None:
        self.home.paused.touch() if on else self.home.paused.unlink(missing_ok=True)

    @rule(
        edits=EDITS,
        meanwhile=st.sampled_from(["nothing", "nothing", "save", "add", "forget", "pause", "clear"]),
        older=tokens,
    )
    def learns(self, edits: list[tuple[str, int, bool]], meanwhile: str, older: str) -> None:
        """The model of a turn is asked, and something else happens while it thinks."""
        proven: set[str] = set()
        before, versions = self.text, self.memory.history.latest()
        paused = bool(memory.paused_since(self.home))

        def ask(model: str, request: str) -> Reply:
            assert not paused
            assert not [token for token in self.unlearnable | self.forgotten if token in request]
            if is_look(request):
                return "\n".join(f"{number} y" for number in FACT.findall(request)), 0, 0
            asked_about = re.findall(r"zq\d+x", request)
            self.happens(meanwhile, (asked_about or [older])[-1])
            return reply(request, edits, proven)

        memory.take_in(self.memory)
        while Learner(self.memory, Settings(), ask).learn():
            if memory.paused_since(self.home):
                break
        if paused or (meanwhile == "pause" and memory.paused_since(self.home)):
            made = self.memory.history.versions(-1, "id > ?", versions)
            assert "worker" not in [version.author for version in made]
        if meanwhile == "nothing":
            removed = {item.text for item in Document(before).items} - {item.text for item in Document(self.text).items}
            assert removed <= proven, "the worker removed a line it had no quote for"

    def happens(self, what: str, token: str) -> None:
        """Something another process does, with a memory of its own."""
        with Memory(self.home, settling=0) as other:
            if what == "save":
                self.save_line("Typed meanwhile")
            elif what == "add":
                self.add(other, f"Added meanwhile {self.token()}")
            elif what == "forget":
                memory.forget(other, matcher(token, Document("")))
                self.has_forgotten(token)
            elif what == "pause":
                self.home.paused.touch()
            elif what == "clear":
                other.history.overwrite("clear", "")

    @rule(
        point=st.sampled_from(POINTS),
        nth=st.integers(1, 4),
        what=st.sampled_from(["add", "learn", "settle", "load", "undo", "forget", "edit"]),
        token=tokens,
        saves_after=st.booleans(),
    )
    def crashes(self, point: str, nth: int, what: str, token: str, saves_after: bool) -> None:
        """A command or the worker is killed on its way; perhaps the user saves before anything else runs."""
        self.memory.db.close()
        self.save_line("Wrote before the crash")
        with Memory(self.home, settling=0) as other:
            other.history.adopt()
            before = other.history.latest()
        added = self.token()
        crash_at(point, nth, lambda: self.does(what, token, added))
        if added in self.text:
            self.wrote(next(line for line in self.text.splitlines() if added in line))
        if saves_after:
            self.save_line("Wrote after the crash")
        self.memory = Memory(self.home, settling=0)
        self.memory.history.adopt()
        self.is_whole(what, added, before)
        if what == "forget":  # it did not say that it was done, so the user says it again
            self.forgets(token)

    def save_line(self, words: str) -> None:
        line = f"- {words} {self.token()}"
        self.save(self.text + "\n" + line + "\n")
        self.wrote(line)

    def is_whole(self, what: str, added: str, before: int) -> None:
        """What was recorded before the crash is also done: all of it or nothing, and with its receipts."""
        made, text = self.memory.history.versions(1, "id > ? and author != 'outside'", before), self.text
        last = next(iter(made), None)
        if what == "add" and last and any(added in change.after for change in last.changes):
            assert added in text
        learned = "select fact from edits where state = 'applied' and action = 'ADD' and version = ?"
        if what == "learn" and last and last.author == "worker":
            receipts = memory.rows(self.memory.db, learned, last.id)
            assert [row["fact"] for row in receipts if row["fact"] not in text] == []

    def does(self, what: str, token: str, added: str) -> None:
        with Memory(self.home, settling=0) as opened:
            history = opened.history
            if what == "add":
                fact = f"Added {added} by what crashed"
                history.change("add", lambda text: Document(text).add("Interests", fact).text)
            elif what == "learn":
                memory.take_in(opened)
                edits = [("ADD", 0, True), ("REMOVE", 0, True)]
                Learner(opened, Settings(), lambda _, request: reply(request, edits, set())).learn()
            elif what == "settle":
                history.adopt()
            elif what == "load":
                history.overwrite("load", PROFILE)
            elif what == "undo":
                with contextlib.suppress(memory.Problem):
                    history.undo(opened.history.latest())
            elif what == "forget":
                memory.forget(opened, matcher(token, Document("")))
            elif what == "edit":
                seen = self.text
                self.save(f"{seen}\n- Edited {added} before the crash\n")
                history.adopt("edit", seen)

    @rule()
    def looks(self) -> None:
        self.memory.history.adopt()
        assert self.memory.history.text(self.memory.history.latest()) == self.text
        assert not list(self.folder.rglob(".profile.md.*"))
        tokens = re.findall(r"zq\d+x", self.text)
        text = " or ".join(["x", *tokens, *self.forgotten])
        said = {fact for _, fact, _ in Document(self.text).sayings}
        hits = memory.search_facts(self.memory, text, 0)
        facts = {hit["fact"] for hit in hits if not hit["until"]}
        assert facts == {fact for fact in said if re.search(r"zq\d+x", fact)}

    def files(self) -> list[pathlib.Path]:
        return [*self.home.directory.iterdir(), *(self.folder / "dotfiles").iterdir()]

    def texts(self) -> dict[int, str]:
        return {version.id: self.memory.history.text(version.id) for version in self.memory.history.versions(-1)}

    @invariant()
    def nothing_the_user_wrote_is_lost(self) -> None:
        found = {bare(line) for text in (self.text, *self.texts().values()) for line in text.splitlines()}
        lost = {line for line in self.written - found if not any(token in line for token in self.forgotten)}
        assert lost == set()

    @invariant()
    def what_is_forgotten_is_nowhere(self) -> None:
        for path in self.files():
            data = path.read_bytes() if path.exists() else b""
            assert [token for token in self.forgotten if token.encode() in data] == [], path.name

    @invariant()
    def versions_stay_what_they_were(self) -> None:
        now = self.texts()
        assert {version: now.get(version) for version in self.known} == self.known
        self.known = now

    @invariant()
    def nothing_is_learned_twice(self) -> None:
        sql = "select turns, fact from edits where state = 'applied' and action = 'ADD' and turns != '[]'"
        learned = Counter((row["turns"], row["fact"]) for row in memory.rows(self.memory.db, sql))
        assert [count for count in learned.values() if count > 1] == []

    @invariant()
    def nothing_of_ours_lies_about(self) -> None:
        assert {path.name for path in self.files()} <= OURS


def reply(request: str, edits: list[tuple[str, int, bool]], proven: set[str]) -> Reply:
    """A model's reply: edits of the lines it was shown, with quotes from the messages or made up."""
    quotes = re.findall(r"^I like zq\d+x with milk$", request, re.MULTILINE)
    shown = re.findall(r"^\[([a-z]+)\] (.*)$", request, re.MULTILINE)
    lines = []
    for action, nth, honest in edits:
        quote = quotes[nth % len(quotes)] if honest else "I said no such thing"
        fact = f"Likes {quote.split()[2]}" if honest else f"Makes things up {nth}"
        if action == "ADD":
            lines.append(f"ADD | Interests | {fact} | {quote}")
        elif shown:
            id_, text = shown[nth % len(shown)]
            if honest:
                proven.add(text)
            lines.append(f"REMOVE | {id_} | {quote}" if action == "REMOVE" else f"REPLACE | {id_} | {fact} | {quote}")
    return "\n".join(lines) or "NO_UPDATE", 0, 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="crashes are played in forked processes")
def test_after_any_mix_of_updates_commands_edits_and_crashes_nothing_is_lost(
    fuzz: float, chance: random.Random, record_property: Callable[[str, object], None]
) -> None:
    ending = time.monotonic() + fuzz
    games = 0
    examples = 20
    while not games or time.monotonic() < ending:
        run_state_machine_as_test(
            seed(chance.randrange(2**32))(People) if fuzz else People,  # other games in every round
            settings=settings(max_examples=examples, stateful_step_count=80 if fuzz else 30, database=None),
        )
        games += examples
    record_property("fuzzed", f"{games} games")
