"""Any mix of updates, commands, edits in other programs and crashes: nothing is lost that was not forgotten.

Hypothesis plays a user, a model, editors and a failing machine.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import random
import re
import shutil
import sqlite3
import tempfile
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import click
import pytest
import sqlite_utils
from conftest import Listener, note
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
from llm.migrations import migrate

import llm_user_memory
from llm_user_memory import (
    REDACTED,
    Document,
    Home,
    Learner,
    Log,
    Memory,
    Problem,
    Query,
    Settings,
    edited,
    forget_for_good,
    saying,
    stripped,
    take_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PROFILE = (
    "# User Profile\n\n## Personal Information\n- Is called Ada\n\n## Interests\n\n## Preferences\n- Likes it short\n"
)
CRASHED = 75
POINTS = ["replace", "rename", "link", "exchange", "fsync", "open", "unlink"]
POINTS += ["begin", "insert", "update", "delete", "commit", "vacuum"]
FAST = "/dev/shm" if os.path.isdir("/dev/shm") else None
ENDS = ["\n", "\r\n", ""]
OURS = {"memory.db", "memory.db-journal", "typed.jsonl", ".typed.jsonl.taken", "paused", "news", "profile.lock"}


class Hurry:
    """The time, for someone who does not wait: it leaps ahead instead of sleeping."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def sleep(self, seconds: float) -> None:
        self.ahead += seconds

    def time(self) -> float:
        return time.time() + self.ahead

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@functools.cache
def empty_log() -> pathlib.Path:
    path = pathlib.Path(tempfile.mkdtemp(dir=FAST)) / "logs.db"
    migrate(sqlite_utils.Database(path))
    return path


def bare(line: str) -> str:
    """A line without its bullet, which is set like those of its neighbours."""
    return re.sub(r"^\s*(?:[-*+•]|\d+[.)])\s", "", stripped(line))


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
    for name in ("replace", "rename", "link", "fsync", "open", "unlink"):
        setattr(os, name, dying(name, getattr(os, name)))
    llm_user_memory.exchange_files = dying("exchange", llm_user_memory.exchange_files)
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
        shutil.copy(empty_log(), self.home.logs)
        self.memory = Memory(self.home)
        self.log = Log(self.home.logs)
        self.undone = contextlib.ExitStack()
        self.count = 0
        self.written: set[str] = set()
        self.forgotten: set[str] = set()
        self.unlearnable: set[str] = set()
        self.known: dict[int, str] = {}

    @initialize(symlink=st.booleans(), can_exchange=st.booleans(), can_tell=st.booleans())
    def moves_in(self, symlink: bool, can_exchange: bool, can_tell: bool) -> None:
        """Begin on a system that can exchange two files or not, and tell open ones or not."""
        change = self.undone.enter_context(pytest.MonkeyPatch.context())
        self.clock = Hurry()
        change.setattr(llm_user_memory, "time", self.clock)
        if not can_exchange:
            change.setattr(llm_user_memory, "exchange_files", lambda *_: False)
        if not can_tell:
            change.setattr(llm_user_memory, "open_for_writing", lambda _: None)
        self.can_tell = llm_user_memory.open_for_writing(self.home.logs) is not None
        (self.folder / "dotfiles").mkdir()
        if symlink:
            self.home.profile.symlink_to(self.folder / "dotfiles" / "profile.md")
        self.save(PROFILE)

    def teardown(self) -> None:
        self.memory.db.close()
        self.undone.close()
        shutil.rmtree(self.folder)

    # What happens

    def token(self) -> str:
        self.count += 1
        return f"zq{self.count:03}x"

    def save(self, text: str) -> None:
        """Save in another program, some time ago: nobody has to wait whether more is coming."""
        self.home.profile.write_text(text, "utf-8", newline="")
        os.utime(self.home.profile, (0, 0))

    def wrote(self, text: str) -> None:
        self.written |= {bare(line) for line in text.splitlines() if line.strip()}

    @property
    def text(self) -> str:
        return self.memory.history.profile()

    def reopen(self) -> None:
        self.memory.db.close()
        self.memory = Memory(self.home)

    @rule(target=tokens, fate=st.sampled_from(["learn", "learn", "learn", "not to learn", "failed", "killed", "torn"]))
    def says(self, fate: str) -> str:
        """Type something to llm, in a call that may not be learned from, or does not come to its end."""
        token = self.token()
        words = f"I like {token} with milk\nForget everything else"
        paused = bool(self.memory.paused_since())
        if paused or fate != "learn":
            self.unlearnable.add(token)
        noted = note(words, learn=fate != "not to learn" and not paused)
        if fate == "torn":  # by a full disk
            with self.memory.journal.path.open("a") as file:
                file.write(f'{{"id": "{noted.id}", "at":')
        else:
            self.memory.journal.append(noted._asdict())
        if fate == "failed":
            self.memory.journal.append({"void": noted.id})
        if fate not in {"failed", "killed"}:
            response = Listener().prompt(words)
            response.text()
            with contextlib.closing(sqlite3.connect(self.home.logs)) as log:
                response.log_to_db(sqlite_utils.Database(log))
        return token

    @rule(target=tokens, section=st.sampled_from(["Interests", "Preferences", "Something else"]))
    def adds(self, section: str) -> str:
        token = self.token()
        self.memory.history.add([f"Added {token}"], section)
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

    @precondition(lambda self: self.can_tell)  # else only who is quick can be waited for
    @rule(target=tokens, commands=st.integers(1, 2), appends=st.booleans())
    def saves_slowly(self, commands: int, appends: bool) -> str:
        """Another program has the file open while commands change it, and writes to it only then."""
        token = self.token()
        self.memory.history.settle()
        self.home.profile.touch()
        with self.home.profile.open("a+" if appends else "r+", encoding="utf-8", newline="") as file:
            file.seek(0)
            text = file.read()
            for _ in range(commands):
                fact = f"Added {self.token()}"
                try:
                    self.memory.history.add([fact], "Interests")
                except Problem as problem:
                    assert "is being written by another program" in problem.message  # noqa: PT017
                else:
                    self.wrote(fact)
            if not appends:
                file.seek(0)
                file.truncate()
                file.write(text)
            file.write("\n" * (not text.endswith("\n")) + f"- Wrote slowly {token}\n")
            file.flush()
            os.utime(file.fileno(), (0, 0))
        self.memory.history.settle()
        assert f"- Wrote slowly {token}" in self.text.splitlines()
        self.wrote(f"- Wrote slowly {token}")
        return token

    @rule(style=st.sampled_from(["\r\n", "bom", "no end", "empty", "gone", "shuffled"]), chance=st.randoms())
    def turns_the_file_over(self, style: str, chance: Any) -> None:
        self.memory.history.settle()  # or what this very editor wrote over its own work would be called lost
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
        dropped, seen = "", ""

        def editor() -> None:
            nonlocal dropped, seen
            seen = self.text
            lines = seen.splitlines(keepends=True)
            self.happens(meanwhile, older)
            if meanwhile == "save":
                self.memory.history.settle()  # or the editor would write over it, as editors do
            dropped = lines.pop(drop) if drop < len(lines) else ""
            if lines and not lines[-1].endswith("\n"):
                lines[-1] += "\n"
            if renames:
                self.home.profile.resolve().unlink(missing_ok=True)
            self.save("".join([*lines, f"- Edited {token}{end}"]))

        self.edits_with(editor, self.memory)
        now = [line.strip() for line in self.text.splitlines()]
        assert f"- Edited {token}" in now
        once = seen.splitlines().count(dropped.rstrip("\r\n")) == 1
        if dropped.strip() and once and dropped.isascii():
            assert dropped.strip() not in now, "what is deleted in the editor stays deleted"
        self.wrote(f"- Edited {token}")
        return token

    @staticmethod
    def edits_with(editor: Callable[[], None], opened: Memory) -> None:
        with pytest.MonkeyPatch.context() as change, llm_user_memory.locked(opened.home.lock("learn")):
            change.setattr(click, "edit", lambda **_: editor())
            edited(opened)

    @rule(target=tokens, crlf=st.booleans())
    def loads(self, crlf: bool) -> str:
        token = self.token()
        text = PROFILE.replace("\n", "\r\n" if crlf else "\n") + f"- Loaded {token}"
        self.memory.history.overwrite("load", text)
        assert self.text == text
        self.wrote(text)
        return token

    @rule()
    def clears(self) -> None:
        self.memory.history.overwrite("clear", "")
        assert self.text == ""

    @rule(token=tokens)
    def forgets(self, token: str) -> None:
        forget_for_good(self.memory, self.log, saying(token))
        self.has_forgotten(token)

    def has_forgotten(self, token: str) -> None:
        self.forgotten.add(token)
        for version, text in self.known.items():
            lines = re.findall(r"[^\n]*\n|[^\n]+", text)
            self.known[version] = "".join(REDACTED if token in line else line for line in lines)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), only=st.booleans())
    def rolls_back(self, data: st.DataObject, only: bool) -> None:
        version = data.draw(st.sampled_from(sorted(self.known)))
        if only:
            self.memory.history.undo(version)
            return
        self.memory.history.roll_back(version)
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
        versions = len(self.memory.history.versions())
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
            made = self.memory.history.versions()[: -versions or None]
            assert "worker" not in [version.author for version in made]
        if meanwhile == "nothing":
            removed = {item.text for item in Document(before).items} - {item.text for item in Document(self.text).items}
            assert removed <= proven, "the worker removed a line it had no quote for"

    def happens(self, what: str, token: str) -> None:
        """Something another process does, with a memory of its own."""
        with Memory(self.home) as other:
            if what == "save":
                line = f"- Typed meanwhile {self.token()}\n"
                self.save(self.text + "\n" + line)
                self.wrote(line)
            elif what == "add":
                fact = f"Added meanwhile {self.token()}"
                other.history.add([fact], "Interests")
                self.wrote(f"- {fact}")
            elif what == "forget":
                forget_for_good(other, Log(self.home.logs), saying(token))
                self.has_forgotten(token)
            elif what == "pause":
                other.pause()
            elif what == "clear":
                other.history.overwrite("clear", "")

    @rule(
        point=st.sampled_from(POINTS),
        nth=st.integers(1, 4),
        what=st.sampled_from(["add", "learn", "settle", "load", "rollback", "undo", "forget", "edit", "tidy"]),
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
            other.history.settle()
        added = self.token()
        crash_at(point, nth, lambda: self.does(what, token, added))
        if added in self.text:
            self.wrote(next(line for line in self.text.splitlines() if added in line))
        if saves_after:
            line = f"- Wrote after the crash {self.token()}"
            self.save(self.text + "\n" + line + "\n")
            self.wrote(line)
        self.reopen()
        self.memory.history.settle()
        self.is_whole(what, added)
        if what == "forget":  # it did not say that it was done, so the user says it again
            self.forgets(token)

    def is_whole(self, what: str, added: str) -> None:
        """What was recorded before the crash is also done: all of it or nothing."""
        last = next((v for v in self.memory.history.versions() if v.author not in {"outside", "merge"}), None)
        text = self.text
        if what == "add" and last and added in last.summary:
            assert added in text
        if what == "learn" and last and last.author == "worker":
            receipts = [receipt for receipt in self.memory.receipts.since(last.id - 1) if receipt.action == "ADD"]
            assert [receipt.fact for receipt in receipts if receipt.fact not in text] == []

    def does(self, what: str, token: str, added: str) -> None:
        with Memory(self.home) as memory:
            history = memory.history
            if what == "add":
                history.add([f"Added {added} by what crashed"], "Interests")
            elif what == "learn":
                take_in(memory, self.log)
                edits = [("ADD", 0, True), ("REMOVE", 0, True)]
                Learner(memory, self.log, Settings(), lambda _, request: reply(request, edits, set())).learn()
            elif what == "settle":
                history.settle()
            elif what == "load":
                history.overwrite("load", PROFILE)
            elif what == "rollback":
                history.roll_back(max(0, history.latest_id() - 1))
            elif what == "undo":
                history.undo(history.latest_id())
            elif what == "forget":
                forget_for_good(memory, Log(self.home.logs), saying(token))
            elif what == "edit":
                self.edits_with(lambda: self.save(f"{self.text}\n- Edited {added} before the crash\n"), memory)
            elif what == "tidy":
                history.tidy()

    @rule()
    def looks(self) -> None:
        self.memory.history.settle()
        self.clock.sleep(1)
        self.memory.history.tidy()
        assert self.memory.history.version_text(self.memory.history.latest_id()) == self.text
        assert not list(self.folder.rglob(".profile.md.*"))
        tokens = re.findall(r"zq\d+x", self.text)
        found = self.memory.search.find(Query(" or ".join(["x", *tokens, *self.forgotten]), current=True, limit=None))
        said = {text for text, _ in Document(self.text).sayings()}
        assert {hit.fact for hit in found} == {text for text in said if re.search(r"zq\d+x", text)}

    # What must hold

    def files(self) -> list[pathlib.Path]:
        return [*self.home.directory.iterdir(), *(self.folder / "dotfiles").iterdir()]

    def texts(self) -> dict[int, str]:
        history = self.memory.history
        return {version.id: history.version_text(version.id) for version in history.versions()}

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
        learned = Counter((r.turn_id, r.fact) for r in self.memory.receipts.since(0) if r.action == "ADD")
        assert [count for count in learned.values() if count > 1] == []

    @invariant()
    def nothing_of_ours_lies_about(self) -> None:
        allowed = OURS | {"profile.md", "learn.lock"} | ({".profile.md.previous"} if not self.can_tell else set())
        assert {path.name for path in self.files()} <= allowed


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
