"""Any mix of updates, commands, edits in other programs and crashes: nothing is lost that was not forgotten.

Hypothesis plays a user, a model, an editor and a failing machine.
"""

from __future__ import annotations

import functools
import os
import pathlib
import random
import re
import shutil
import sqlite3
import tempfile
import time
from typing import TYPE_CHECKING, Any

import llm
import pytest
import sqlite_utils
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from llm.migrations import migrate

import llm_user_memory
from llm_user_memory import (
    NO_VERSION,
    REDACTED,
    Document,
    Home,
    Learner,
    Log,
    Memory,
    Note,
    Settings,
    digest,
    forget_for_good,
    take_in,
    utc_now,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROFILE = (
    "# User Profile\n\n## Personal Information\n- Is called Ada\n\n## Interests\n\n## Preferences\n- Likes it short\n"
)
CRASHED = 75
POINTS = ["replace", "exchange", "fsync", "open", "unlink", "begin", "insert", "update", "delete", "commit", "vacuum"]
FAST = "/dev/shm" if os.path.isdir("/dev/shm") else None
ENDS = ["\n", "\r\n", ""]


class Listener(llm.Model):
    """Answers so that llm has something to log."""

    model_id = "listener"

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: Any = None
    ) -> Iterator[str]:
        yield "I see."


@functools.cache
def empty_log() -> pathlib.Path:
    path = pathlib.Path(tempfile.mkdtemp(dir=FAST)) / "logs.db"
    migrate(sqlite_utils.Database(path))
    return path


def bare(line: str) -> str:
    """A line without its bullet, which is set like those of its neighbours."""
    return re.sub(r"^\s*(?:[-*+•]|\d+[.)])\s", "", line.strip("\ufeff \t\r\n"))


def crash_at(point: str, nth: int, what: Callable[[], object]) -> None:
    """Do something in a process of its own, which dies when it gets to some point for the nth time, or just behind."""
    if pid := os.fork():
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in {0, CRASHED}
        return
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
    for name in ("replace", "fsync", "open", "unlink"):
        setattr(os, name, dying(name, getattr(os, name)))
    llm_user_memory.exchange_files = dying("exchange", llm_user_memory.exchange_files)
    try:
        what()
    except BaseException:  # noqa: BLE001 - whatever it is, the parent is told, and pytest must not go on in here
        os._exit(1)
    os._exit(0)


class People(RuleBasedStateMachine):
    """A user and everything that happens to their memory."""

    tokens = Bundle("tokens")
    """Words that appear in nothing but what they were made for, so that they can be looked for."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=FAST))
        self.home = Home(self.folder, isolated=True)
        shutil.copy(empty_log(), self.home.logs)
        self.memory = Memory(self.home)
        self.log = Log(self.home.logs)
        self.count = 0
        self.written: set[str] = set()
        self.forgotten: set[str] = set()
        self.unlearnable: set[str] = set()
        self.known: dict[int, str] = {}
        self.save(PROFILE)

    def teardown(self) -> None:
        self.memory.close()
        self.log.close()
        shutil.rmtree(self.folder)

    # What happens

    def token(self) -> str:
        self.count += 1
        return f"zq{self.count:03}x"

    def save(self, text: str) -> None:
        """Save in another program, some time ago: nobody has to wait whether more is coming."""
        self.home.create()
        self.home.profile.write_text(text, "utf-8", newline="")
        os.utime(self.home.profile, (0, 0))

    def wrote(self, text: str) -> None:
        self.written |= {bare(line) for line in text.splitlines() if line.strip()}

    @property
    def text(self) -> str:
        return self.memory.profile()

    def reopen(self) -> None:
        self.memory.close()
        self.memory = Memory(self.home)

    @rule(target=tokens, learn=st.booleans())
    def says(self, learn: bool) -> str:
        token = self.token()
        typed = f"I like {token} with milk"
        if self.memory.paused_since() or not learn:
            self.unlearnable.add(token)
        at = utc_now().isoformat()
        note = Note(command="prompt", learn=learn, length=len(typed), sha256=digest(typed), at=at)
        self.memory.note(note)
        response = Listener().prompt(typed)
        response.text()
        response.log_to_db(sqlite_utils.Database(self.home.logs))
        return token

    @rule(
        target=tokens,
        section=st.sampled_from(["Interests", "Preferences", "Something else"]),
    )
    def adds(self, section: str) -> str:
        token = self.token()
        self.memory.add([f"Added {token}"], section)
        assert f"Added {token}" in self.text
        self.wrote(f"- Added {token}")
        return token

    @rule(
        target=tokens,
        end=st.sampled_from(ENDS),
        form=st.sampled_from(["- {}", "{} as prose", "  * {}", "```\n{}\n```"]),
        top=st.booleans(),
    )
    def saves_in_another_program(self, end: str, form: str, top: bool) -> str:
        token = self.token()
        line = form.format(f"Wrote {token}") + end
        text = self.text
        self.save(line + "\n" + text if top else text + "\n" * (not text.endswith("\n")) + line)
        self.wrote(line)
        return token

    @rule(style=st.sampled_from(["\r\n", "bom", "no end", "empty", "gone", "shuffled"]), chance=st.randoms())
    def turns_the_file_over(self, style: str, chance: Any) -> None:
        self.memory.settle()  # or what this very editor wrote over its own work would be called lost
        text = self.text
        lines = text.splitlines(keepends=True)
        chance.shuffle(lines)
        self.save(
            {
                "\r\n": text.replace("\r\n", "\n").replace("\n", "\r\n"),
                "bom": "\ufeff" + text.removeprefix("\ufeff"),
                "no end": text.rstrip("\n"),
                "empty": "",
                "gone": "",
                "shuffled": "".join(lines),
            }[style]
        )
        if style == "gone":
            self.home.profile.unlink()

    @rule(
        target=tokens,
        end=st.sampled_from(ENDS),
        drop=st.integers(0, 20),
        meanwhile=st.sampled_from(["nothing", "learn", "save", "forget"]),
        older=tokens,
    )
    def edits(self, end: str, drop: int, meanwhile: str, older: str) -> str:
        """An editor is open while something else happens."""
        token = self.token()
        before = self.text
        lines = before.splitlines(keepends=True)
        dropped = lines.pop(drop) if drop < len(lines) else ""
        if lines:
            lines[-1] = lines[-1].rstrip("\n") + "\n"
        after = "".join([*lines, f"- Edited {token}{end}"])
        elsewhere = f"- Saved meanwhile {self.token()}"
        if meanwhile == "learn":
            self.learns([("ADD", 0, True)], "nothing", older)
        elif meanwhile == "save":
            self.save(f"{before}\n{elsewhere}\n")
        elif meanwhile == "forget":
            self.forgets(older)
        self.memory.replace_text("edit", before, after)
        now = [line.strip() for line in self.text.splitlines()]
        assert f"- Edited {token}" in now
        if meanwhile == "save":
            assert elsewhere in now
        if dropped.strip() and before.splitlines().count(dropped.rstrip("\r\n")) == 1 and dropped.isascii():
            assert dropped.strip() not in now, "what is deleted in the editor stays deleted"
        self.wrote(f"- Edited {token}")
        return token

    @rule(target=tokens, crlf=st.booleans())
    def loads(self, crlf: bool) -> str:
        token = self.token()
        text = PROFILE.replace("\n", "\r\n" if crlf else "\n") + f"- Loaded {token}"
        self.memory.overwrite("load", text)
        assert self.text == text
        self.wrote(text)
        return token

    @rule()
    def clears(self) -> None:
        self.memory.overwrite("clear", "")
        assert self.text == ""

    @rule(token=tokens)
    def forgets(self, token: str) -> None:
        forget_for_good(self.memory, self.log, token)
        self.has_forgotten(token)

    def has_forgotten(self, token: str) -> None:
        self.forgotten.add(token)
        for version, text in self.known.items():
            lines = re.findall(r"[^\n]*\n|[^\n]+", text)
            self.known[version] = "".join(REDACTED if token in line else line for line in lines)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def rolls_back(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(sorted(self.known)))
        self.memory.overwrite("rollback", self.memory.version_text(version))
        assert self.text == self.known[version].replace(REDACTED, "")

    @rule()
    def pauses(self) -> None:
        self.memory.pause()

    @rule()
    def resumes(self) -> None:
        self.memory.resume()

    @rule(
        edits=st.lists(
            st.tuples(st.sampled_from(["ADD", "REPLACE", "REMOVE"]), st.integers(0, 9), st.booleans()), max_size=3
        ),
        meanwhile=st.sampled_from(["nothing", "nothing", "save", "add", "forget", "pause", "clear"]),
        older=tokens,
    )
    def learns(self, edits: list[tuple[str, int, bool]], meanwhile: str, older: str) -> None:
        """The model of a turn is asked, and something else happens while it thinks."""
        proven: set[str] = set()
        before = self.text
        versions = len(self.memory.versions())
        paused = bool(self.memory.paused_since())

        def ask(model: str, request: str) -> str:
            assert not paused
            assert not [token for token in self.unlearnable | self.forgotten if token in request]
            asked_about = re.findall(r"zq\d+x", request)
            self.happens(meanwhile, (asked_about or [older])[-1])
            return reply(request, edits, proven)

        take_in(self.memory, self.log)
        while Learner(self.memory, self.log, Settings(), ask).learn():
            if self.memory.paused_since():
                break
        if paused or (meanwhile == "pause" and self.memory.paused_since()):
            assert "worker" not in [version.author for version in self.memory.versions()[: -versions or None]]
        if meanwhile == "nothing":
            removed = {item.text for item in Document(before).items} - {item.text for item in Document(self.text).items}
            assert removed <= proven, "the worker removed a line it had no quote for"

    def happens(self, what: str, token: str) -> None:
        """Something another process does, with a memory of its own."""
        with Memory(self.home) as other:
            if what == "save":
                line = f"- Typed while the model thought {self.token()}\n"
                self.save(self.text + "\n" + line)
                self.wrote(line)
            elif what == "add":
                fact = f"Added while the model thought {self.token()}"
                other.add([fact], "Interests")
                self.wrote(f"- {fact}")
            elif what == "forget":
                forget_for_good(other, Log(self.home.logs), token)
                self.has_forgotten(token)
            elif what == "pause":
                other.pause()
            elif what == "clear":
                other.overwrite("clear", "")

    @rule(
        point=st.sampled_from(POINTS),
        nth=st.integers(1, 4),
        what=st.sampled_from(["add", "learn", "settle", "load", "rollback", "forget"]),
        token=tokens,
        saves_after=st.booleans(),
    )
    def crashes(self, point: str, nth: int, what: str, token: str, saves_after: bool) -> None:
        """A command or the worker is killed on its way; perhaps the user saves before anything else runs."""
        self.reopen()
        line = f"- Wrote before the crash {self.token()}"
        self.save(self.text + "\n" + line + "\n")
        self.wrote(line)
        with Memory(self.home) as other:
            other.settle()
        added = self.token()
        crash_at(point, nth, lambda: self.does(what, token, added))
        if saves_after:
            line = f"- Wrote after the crash {self.token()}"
            self.save(self.text + "\n" + line + "\n")
            self.wrote(line)
        self.reopen()
        self.memory.settle()
        self.is_whole(what, added)
        if what == "forget":  # it did not say that it was done, so the user says it again
            self.forgets(token)

    def is_whole(self, what: str, added: str) -> None:
        """What was recorded before the crash is also done: all of it or nothing."""
        last = next((v for v in self.memory.versions() if v.author not in {"outside", "merge"}), NO_VERSION)
        text = self.text
        if what == "add" and added in last.summary:
            assert added in text
        if what == "learn" and last.author == "worker":
            sql = "select fact from evidence where version = ? and action = 'ADD'"
            assert [row[0] for row in self.memory.db.execute(sql, [last.id]) if row[0] not in text] == []

    def does(self, what: str, token: str, added: str) -> None:
        with Memory(self.home) as memory:
            if what == "add":
                memory.add([f"Added {added} by what crashed"], "Interests")
            elif what == "learn":
                take_in(memory, self.log)
                edits = [("ADD", 0, True), ("REMOVE", 0, True)]
                Learner(memory, self.log, Settings(), lambda _, request: reply(request, edits, set())).learn()
            elif what == "settle":
                memory.settle()
            elif what == "load":
                memory.overwrite("load", PROFILE)
            elif what == "rollback":
                memory.overwrite("rollback", memory.version_text(memory.find_version(steps=1).id))
            elif what == "forget":
                forget_for_good(memory, Log(self.home.logs), token)

    @rule()
    def looks(self) -> None:
        self.memory.settle()
        assert self.memory.version_text(self.memory.find_version(steps=0).id) == self.text

    # What must hold

    @invariant()
    def nothing_the_user_wrote_is_lost(self) -> None:
        kept = [self.text, *(self.memory.version_text(version.id) for version in self.memory.versions())]
        kept += [path.read_text("utf-8", "replace") for path in self.home.directory.glob("profile.md.*")]
        found = {bare(line) for text in kept for line in text.splitlines()}
        lost = {line for line in self.written - found if not any(token in line for token in self.forgotten)}
        assert lost == set()

    @invariant()
    def what_is_forgotten_is_nowhere(self) -> None:
        for path in self.home.directory.iterdir():
            data = path.read_bytes()
            assert [token for token in self.forgotten if token.encode() in data] == [], path.name

    @invariant()
    def versions_stay_what_they_were(self) -> None:
        now = {version.id: self.memory.version_text(version.id) for version in self.memory.versions()}
        assert {version: now.get(version) for version in self.known} == self.known
        self.known = now

    @invariant()
    def nothing_is_learned_twice(self) -> None:
        sql = "select turn_id from evidence where action = 'ADD' group by turn_id, fact having count(*) > 1"
        assert self.memory.db.execute(sql).fetchall() == []

    @invariant()
    def nothing_of_ours_lies_about(self) -> None:
        names = {path.name for path in self.home.directory.iterdir()}
        assert {name for name in names if not name.endswith((".swap", ".tmp"))} <= {
            "profile.md",
            "profile.lock",
            "memory.db",
            "memory.db-journal",
            "notes.late",
        }


def reply(request: str, edits: list[tuple[str, int, bool]], proven: set[str]) -> str:
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
    return "\n".join(lines) or "NO_UPDATE"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="crashes are played in forked processes")
def test_after_any_mix_of_updates_commands_edits_and_crashes_nothing_is_lost(
    fuzz: float, record_property: Callable[[str, object], None]
) -> None:
    ending = time.monotonic() + fuzz
    games = 0
    while not games or time.monotonic() < ending:
        run_state_machine_as_test(
            seed(random.SystemRandom().randrange(2**32))(People) if fuzz else People,  # other games in every round
            settings=settings(
                max_examples=20 if fuzz else 40,
                stateful_step_count=80 if fuzz else 30,
                database=None,
            ),
        )
        games += 20 if fuzz else 40
    record_property("fuzzed", f"{games} games")
