"""Whatever breaks, the user's call is unaffected, nothing is lost, and `status` names it."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import filelock
import llm
import llm.cli
import pytest
from click.testing import CliRunner
from conftest import User, eventually

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAID = "I live in Leeds"


def unaffected(user: User, text: str = SAID, *args: str, **env: str) -> None:
    """Prompt, and see that the call is as it would be without memory."""
    done = user.llm(*args, text, check=True, **env)
    assert (done.stdout, done.stderr) == (f"You said: {text}\n", "")


def problems(user: User) -> str:
    """What the worker and the calls reported until now; `""` while memory.db can't be read."""
    with contextlib.suppress(sqlite3.Error, OSError), memory.Memory(user.places, patience=0.1) as opened:
        return "\n".join(error["message"] for error in opened.errors())
    return ""


def aside(user: User) -> list[str]:
    with user.memory() as opened:
        return [row["reason"] for row in opened.aside()]


def told(user: User) -> str:
    return user.llm("memory", "status", auto=None).stdout


# Models


@pytest.mark.parametrize(
    ("args", "env", "words", "requests"),
    [
        (("-m", "scripted-garbage"), {}, "does not answer in the form", 2),
        (("-m", "scripted-empty"), {}, "does not answer in the form", 2),
        (("-m", "scripted-small"), {}, "context is too small", 1),
        ((), {"LLM_MEMORY_MODEL": "uninstalled"}, "uninstalled is not installed", 0),
    ],
    ids=["garbage", "empty reply", "small context", "not installed"],
)
def test_turns_of_a_model_that_cannot_keep_a_profile_are_set_aside_and_learned_with_another(
    user: User, args: tuple[str, ...], env: dict[str, str], words: str, requests: int
) -> None:
    user.profile = "- Mine\n"
    unaffected(user, SAID, *args, **env)
    eventually(lambda: aside(user), "setting aside")
    assert len(user.calls(update=True)) == requests
    status = told(user)
    assert words in status
    assert "LLM_MEMORY_MODEL" in status
    assert "llm memory update --retry" in status
    assert user.profile == "- Mine\n"
    done = user.llm("memory", "update", "--retry", auto=None, LLM_MEMORY_MODEL="scripted")
    assert SAID in done.stdout
    assert user.facts == ["Mine", SAID]
    assert problems(user) == ""


def test_a_dead_model_is_asked_again_later_and_does_not_block_other_turns(user: User) -> None:
    unaffected(user, SAID, "-m", "scripted-dead")
    eventually(lambda: "the service is down" in problems(user), "the report")
    unaffected(user, "I work as a nurse")
    eventually(lambda: user.facts == ["I work as a nurse"], "learning from the other model's turn")
    status = user.status()
    assert status["pending"] == 1
    assert "the service is down" in str(status), "a turn still waits because of it"
    user.llm("memory", "update", auto=None, LLM_MEMORY_MODEL="scripted")
    assert sorted(user.facts) == [SAID, "I work as a nurse"]


def test_a_missing_key_is_named_and_the_turn_learned_once_it_is_there(user: User) -> None:
    unaffected(user, SAID, "-m", "scripted-key", "--key", "abc")
    eventually(lambda: "scripted-key has no key" in problems(user), "the report")
    status = told(user)
    assert "llm keys set scripted" in status
    assert "1 message" in status
    user.llm("memory", "update", auto=None, SCRIPTED_KEY="abc")
    assert user.facts == [SAID]


def test_secrets_in_a_models_error_are_neither_shown_nor_logged(user: User) -> None:
    key = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"
    (user.script / "error.txt").write_text(f"401: Incorrect API key provided: {key}.")
    unaffected(user, LLM_MEMORY_DEBUG="")
    eventually(lambda: "401" in problems(user), "the report")
    assert "401" in told(user)
    eventually(lambda: "401" in user.places.worker_log.read_text("utf-8"), "the log")
    user.kill_worker()
    ours = [path for path in user.places.directory.rglob("*") if path.is_file()]
    assert user.places.worker_log in ours
    assert [path for path in ours if key[8:].encode() in path.read_bytes()] == []


def test_a_model_call_that_hangs_is_abandoned(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_USER_PATH", str(user.user_dir))
    (user.script / "slow.txt").write_text("hang 3")
    with pytest.raises(memory.ModelFailed, match=r"did not answer within 0\.1 s") as failed:
        memory.ask_model("scripted", "hang", timeout=0.1)
    assert not failed.value.hopeless


class Typed(memory.Log):
    """A log whose turns all say the same."""

    def __init__(self) -> None:
        super().__init__(pathlib.Path("nowhere"))

    def prompt(self, turn_id: str) -> str | None:
        return f"{SAID} and {turn_id}"


class Clock:
    def __init__(self) -> None:
        self.time = dt.datetime(2026, 11, 20, tzinfo=dt.timezone.utc)

    def __call__(self) -> dt.datetime:
        return self.time


def ledger(user: User, clock: Clock, turns: int) -> memory.Memory:
    """A memory in which so many turns wait."""
    opened = memory.Memory(user.places, now=clock)
    for n in range(turns):
        note = memory.Note("prompt", learn=True, length=len(f"{SAID} and turn {n}"), sha256="")
        turn = memory.Turn(n + 1, f"turn {n}", "thread", "scripted", clock().isoformat())
        opened.take_in([(turn, note, 0)], opened.cursor(), (n + 1, turn.id))
    return opened


def test_a_failing_turn_is_tried_five_times_ever_later_then_set_aside_until_a_retry(user: User) -> None:
    asked = []

    def ask(model: str, request: str) -> str:
        asked.append(clock.time)
        raise memory.ModelFailed("down")

    clock = Clock()
    with ledger(user, clock, 1) as opened:
        learner = memory.Learner(opened, Typed(), memory.Settings(), ask)
        for _ in range(4000):
            learner.learn()
            clock.time += dt.timedelta(seconds=1)
        waits = [int((b - a).total_seconds()) for a, b in itertools.pairwise(asked)]
        assert len(asked) == 5
        assert waits == sorted(waits)
        assert 5 <= waits[0] <= 6
        assert waits[-1] <= 601
        assert [row["reason"] for row in opened.aside()] == ["down"]
        learner.ask = lambda *_: f"ADD | Work | Leeds | {SAID}"
        assert learner.learn(opened.claim("worker", aside=True))
    assert user.facts == ["Leeds"]


def test_a_request_too_long_for_the_model_is_halved_and_every_turn_still_learned(user: User) -> None:
    def ask(model: str, request: str) -> str:
        if request.count("</message-") > 2:
            raise memory.ModelFailed("too long", hopeless=True, too_long=True)
        names = [f"turn {n}" for n in range(7) if f"turn {n}\n" in request]
        return "\n".join(f"ADD | Work | {name} | {SAID} and {name}" for name in names)

    with ledger(user, Clock(), 7) as opened:
        learner = memory.Learner(opened, Typed(), memory.Settings(), ask)
        while learner.learn():
            pass
        assert opened.count_turns("done") == 7
    assert sorted(user.facts) == [f"turn {n}" for n in range(7)]


def test_a_model_that_cannot_follow_the_form_is_not_asked_for_ever_but_again_after_a_retry_or_a_day(user: User) -> None:
    asked: list[str] = []

    def rambling(model: str, request: str) -> str:
        asked.append(model)
        return "You are great."

    clock = Clock()
    with ledger(user, clock, 6) as opened:
        learner = memory.Learner(opened, Typed(), memory.Settings(), rambling)
        turns = opened.due(6)
        for turn in turns[:5]:
            learner.learn([turn])
        assert len(asked) == 6, "twice for each of the first three turns"
        assert opened.count_turns("aside") == 5
        clock.time += dt.timedelta(days=1, seconds=1)
        learner.learn([turns[5]])
        assert len(asked) == 8
        learner.learn(opened.claim("worker", aside=True)[:1])
        assert len(asked) == 10
    assert user.facts == []


# Locked databases


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("begin exclusive")
        yield
        db.execute("rollback")


def test_a_log_that_is_locked_is_named_and_read_when_it_is_free(user: User) -> None:
    unaffected(user, LLM_MEMORY_UPDATE_INTERVAL="2")
    with locked(user.places.logs):
        eventually(lambda: "locked" in problems(user), "the report")
        status = user.status()
        assert any("locked" in problem and "log" in problem for problem in status["problems"]), status["problems"]
    eventually(lambda: user.facts == [SAID], "learning")
    eventually(lambda: problems(user) == "", "the all-clear")


def test_a_memory_that_is_locked_during_a_call_loses_nothing(user: User) -> None:
    with user.memory() as opened:
        opened.resume()
    with locked(user.places.database):
        unaffected(user)
    eventually(lambda: user.facts == [SAID], "learning")


# The profile


def undecodable(path: pathlib.Path) -> None:
    path.write_bytes(b"# Me\n- Caf\xe9\n")


def directory(path: pathlib.Path) -> None:
    path.mkdir()
    (path / "kept").touch()


@pytest.mark.parametrize(("spoil", "words"), [(undecodable, "not valid UTF-8 (line 2)"), (directory, "irectory")])
def test_a_profile_that_cannot_be_read_is_left_alone_named_and_learning_waits_for_it(
    user: User, spoil: Callable[[pathlib.Path], None], words: str
) -> None:
    user.places.create()
    spoil(user.places.profile)
    unaffected(user)
    assert user.calls(update=False)[-1]["messages"] == [["user", SAID]]
    eventually(lambda: user.worker_runs() and words in problems(user), "the report")
    assert words in told(user)
    done = user.llm("memory", "show", auto=None, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    if spoil is undecodable:
        assert user.places.profile.read_bytes() == b"# Me\n- Caf\xe9\n"
        user.places.profile.unlink()
    else:
        assert (user.places.profile / "kept").exists()
        shutil.rmtree(user.places.profile)
    user.profile = "# Me\n- Café\n"
    eventually(lambda: SAID in user.facts, "learning")
    assert user.facts == ["Café", SAID]
    user.llm("And now?")
    eventually(lambda: problems(user) == "", "the all-clear")


@pytest.mark.parametrize("command", ["load", "clear", "edit"])
def test_a_command_that_puts_another_text_in_an_unreadable_profiles_place_keeps_it(user: User, command: str) -> None:
    user.places.create()
    undecodable(user.places.profile)
    before = user.places.profile.read_bytes()
    (user.folder / "new.md").write_text("- New\n")
    args = [command, "new.md"] if command == "load" else [command]
    done = user.llm("memory", *args, auto=None, check=False, EDITOR="true")
    kept = [path for path in user.places.directory.iterdir() if path.read_bytes() == before]
    assert kept, "what was there is gone"
    if done.returncode == 0 and kept != [user.places.profile]:
        assert kept[0].name in done.stderr, "the file was moved away without a word"
    assert "Traceback" not in done.stderr


# The database and the disk


def garbage(path: pathlib.Path) -> None:
    path.write_bytes(b"This is no database. " * 1000)


def broken_pages(path: pathlib.Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xde\xad" * ((len(content) - 4096) // 2))


def truncated(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:6000])


@pytest.mark.parametrize("spoil", [garbage, broken_pages, truncated])
def test_a_damaged_memory_is_put_aside_and_learning_goes_on(user: User, spoil: Callable[[pathlib.Path], None]) -> None:
    user.profile = "- Mine\n"
    with user.memory() as opened:
        opened.change("load", lambda text: text + "- Kept\n")
    spoil(user.places.database)
    damage = user.places.database.read_bytes()
    unaffected(user)
    unaffected(user, "I work as a nurse")
    eventually(lambda: "I work as a nurse" in user.facts, "learning")
    assert set(user.facts) >= {"Mine", "Kept"}
    assert SAID in user.facts, "the note of the call that met the damage was lost"
    (kept,) = user.places.directory.glob("memory.db.damaged-*")
    assert kept.read_bytes() == damage
    assert "damaged" in told(user)


def test_a_memory_directory_that_cannot_be_made_does_not_disturb_a_call(user: User) -> None:
    user.places.directory.write_text("in the way")
    unaffected(user)
    done = user.llm("memory", "status", auto=None, check=False)
    assert "Traceback" not in done.stderr
    assert "memory" in done.stdout + done.stderr
    for command in ("pause", "clear"):
        done = user.llm("memory", command, auto=None, check=False)
        assert done.returncode == 1
        assert str(user.places.directory) in done.stderr
        assert "Traceback" not in done.stderr
    assert user.places.directory.read_text() == "in the way"


@contextlib.contextmanager
def small_disk(folder: pathlib.Path) -> Iterator[None]:
    folder.mkdir(mode=0o700)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder], capture_output=True, check=False
    ).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        folder.chmod(0o700)
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(path: pathlib.Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(b"x" * 512):
            pass


def test_a_full_disk_is_named_and_what_was_typed_meanwhile_learned_when_there_is_room(user: User) -> None:
    with small_disk(user.places.directory):
        user.profile = "# Me\n- Mine\n"
        unaffected(user, "I play the oboe")
        eventually(lambda: "I play the oboe" in user.facts, "learning")
        before = user.places.profile.read_bytes()
        fill(user.places.directory / "filler")
        unaffected(user)
        assert "- I play the oboe" in user.calls(update=False)[-1]["system"]
        with contextlib.suppress(AssertionError):
            # Whoever was started with the note has tried to write it by then.
            eventually(lambda: len(user.workers()) <= 1, patience=5)
        status = told(user)
        assert user.places.profile.read_bytes() == before
        (user.places.directory / "filler").unlink()
        unaffected(user, "I work as a nurse")
        eventually(lambda: {SAID, "I work as a nurse"} <= set(user.facts), "learning")
        user.settled()
        while user.worker_runs():  # the one that was started with the note may take over
            user.kill_worker()
        facts = user.facts
    assert "full" in status.lower() or "space" in status.lower()
    assert sorted(facts) == sorted(["Mine", "I play the oboe", SAID, "I work as a nurse"])


def test_calls_while_the_memory_is_locked_start_one_worker_and_are_all_learned_later(user: User) -> None:
    with user.memory() as opened:
        opened.resume()
    texts = [f"I like colour number {n}" for n in range(3)]
    with locked(user.places.database):
        for text in texts:
            unaffected(user, text)
        assert len(user.workers()) <= 1
    user.llm("I live in Leeds")
    eventually(lambda: {*texts, SAID} <= set(user.facts), "learning")
    user.settled()
    assert sorted(user.facts) == sorted([*texts, SAID])


def test_a_late_note_is_taken_in_once_whatever_was_cut_short_before_it(user: User) -> None:
    note = memory.Note("prompt", learn=True, length=len(SAID), sha256=memory.digest(SAID), at="2026-11-20")
    with user.memory() as opened:
        opened.resume()
        with user.places.late_notes.open("ab") as file:
            file.write(b'\n{"command": "prompt", "le')
        memory.keep_late_note(user.places, note)
        with user.places.late_notes.open("ab") as file:
            file.write(b'\n{"command')
        for _ in range(2):
            opened.take_late_notes()
            assert [found._replace(id=0) for found in opened.open_notes()] == [note]
        memory.keep_late_note(user.places, note._replace(length=7))
        opened.take_late_notes()
        assert [found.length for found in opened.open_notes()] == [len(SAID), 7]


def test_late_notes_that_were_taken_in_are_gone_after_a_day(user: User) -> None:
    note = memory.Note("prompt", learn=True, length=len(SAID), sha256=memory.digest(SAID), at="2026-11-20")
    with user.memory() as opened:
        opened.resume()
        memory.keep_late_note(user.places, note)
        opened.take_late_notes()
        os.utime(user.places.late_notes, (1e9, 1e9))
        opened.take_late_notes()
        assert user.places.late_notes.read_bytes() == b"\n"
        memory.keep_late_note(user.places, note._replace(length=16))  # as many bytes as the first
        opened.take_late_notes()
        assert [found.length for found in opened.open_notes()] == [len(SAID), 16]


def test_a_request_that_is_interrupted_is_no_attempt_and_its_turns_are_due_at_once(user: User) -> None:
    with ledger(user, Clock(), 3) as opened:

        def ask(model: str, request: str) -> str:
            opened.pause()
            return f"ADD | Work | Leeds | {SAID}"

        learner = memory.Learner(opened, Typed(), memory.Settings(), ask)
        assert learner.learn()
        opened.resume()
        assert [(turn.turn_id, turn.attempts) for turn in opened.due(8)] == [(f"turn {n}", 0) for n in range(3)]
        assert not opened.claimed("worker")
    assert user.facts == []


def test_halves_of_a_request_are_one_outcome_and_one_attempt(user: User) -> None:
    def ask(model: str, request: str) -> str:
        if request.count("</message-") > 1:
            raise memory.ModelFailed("too long", hopeless=True, too_long=True)
        if "turn 2\n" in request:
            raise memory.ModelFailed("down")
        return f"ADD | Work | Leeds {request.count('[')} | {SAID}"

    with ledger(user, Clock(), 4) as opened:
        outcome = memory.Learner(opened, Typed(), memory.Settings(), ask).learn()
        assert outcome is not None
        assert (outcome.turns, len(outcome.verdicts), outcome.failure) == (4, 3, "down")
        rows = opened.db.execute("select id, attempts from turns where state = 'pending'").fetchall()
        assert [tuple(row) for row in rows] == [("turn 2", 1)]


LARGE = "# Me\n" + "".join(f"- Fact number {n}, of an ordinary length, about me and Hull\n" for n in range(200))


def condensing(user: User, condensed: Callable[[], str]) -> list[str]:
    """Learn with a profile above its budget, whose first line is condensed to this; what the model was asked to do."""
    asked: list[str] = []

    def ask(model: str, request: str) -> str:
        if "too long" not in request:
            asked.append("update")
            return "NO_UPDATE"
        asked.append("condense")
        fact = condensed()
        return f"REPLACE | {next(iter(memory.Document(LARGE).ids))} | {fact} | Fact number 0, of an ordinary"

    clock = Clock()
    with ledger(user, clock, 2) as opened:
        learner = memory.Learner(opened, Typed(), memory.Settings(), ask)
        for turn in opened.due(2):
            learner.learn([turn])
    return asked


def test_what_is_forgotten_while_a_profile_is_condensed_does_not_come_back(user: User) -> None:
    user.profile = LARGE

    facts = ["Facts number 0, number 7, and others", "Facts number 0 and others"]

    def condensed() -> str:
        with user.memory() as other:
            memory.forget_for_good(other, memory.Log(user.places.logs), "number 7,")
        return facts.pop(0)

    asked = condensing(user, condensed)
    assert user.facts[0] == "Facts number 0 and others"
    assert not [fact for fact in user.facts if "number 7," in fact]
    assert asked == ["condense", "update", "condense", "update"], "another text is worth another try"


def test_a_condensing_that_failed_for_a_moment_is_tried_again(user: User) -> None:
    user.profile = LARGE
    failures = ["the line was cut"]

    def condensed() -> str:
        if failures:
            raise memory.ModelFailed(failures.pop())
        return "Facts about Hull"

    assert condensing(user, condensed) == ["condense", "update", "condense", "update"]
    assert user.facts[0] == "Facts about Hull"


def test_a_full_disk_is_not_called_a_log_that_can_not_be_read(user: User) -> None:
    worker = memory.Worker(user.places, memory.Settings())
    worker._report(sqlite3.OperationalError("database or disk is full"))
    assert "llm's log" not in problems(user)
    assert "disk is full" in problems(user)
    worker.memory.close()


# What models' services say


class Service:
    """A model whose service refuses every request with these words."""

    model_id = "scripted"

    def __init__(self, words: str) -> None:
        self.words = words

    def prompt(self, request: str, **_: object) -> None:
        end = request.partition("<profile>")[2]
        raise RuntimeError(self.words.format(request=end, json=json.dumps(end)))


@pytest.mark.parametrize(
    ("words", "hopeless"),
    [
        (
            "Your requests have exceeded the token rate limit of your current pricing tier. Retry after 9 seconds.",
            False,
        ),
        ("ThrottlingException: Too many tokens, please wait before trying again.", False),
        ("429: request too large for tokens per minute", False),
        ("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens", True),
        ("prompt is too long: 210000 tokens > 200000 maximum", True),
        ("Requested tokens (812) exceed context window of 512", True),
    ],
)
def test_a_service_that_is_busy_is_not_a_model_with_a_small_context(
    monkeypatch: pytest.MonkeyPatch, words: str, *, hopeless: bool
) -> None:
    monkeypatch.setattr(llm, "get_model", lambda _: Service(words))
    with pytest.raises(memory.ModelFailed) as failed:
        memory.ask_model("scripted", "a request")
    assert (failed.value.hopeless, failed.value.too_long) == (hopeless, hopeless)


def test_what_a_service_quotes_of_a_request_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm, "get_model", lambda _: Service("refused by the filter: {request!r}"))
    document = memory.Document("## Family\n- Married to   Bluebird\n")
    request = memory.build_request(document, [memory.Source('My "dog" is called Rex.\nMy cat is Zoë.')], "abcdef")
    with pytest.raises(memory.ModelFailed) as failed:
        memory.ask_model("scripted", request)
    assert "refused by the filter" in str(failed.value)
    assert not re.search("Bluebird|Rex|Zo", str(failed.value))
    monkeypatch.setattr(llm, "get_model", lambda _: Service("refused by the filter: {json}"))
    with pytest.raises(memory.ModelFailed) as failed:
        memory.ask_model("scripted", request)
    assert not re.search("Bluebird|Rex|Zo", str(failed.value))


# Claims


def test_turns_claimed_by_a_process_that_was_killed_are_due_again_after_the_clock_was_set_back(user: User) -> None:
    clock = Clock()
    with ledger(user, clock, 1) as opened:
        opened.begin(opened.due(1), "update")
        clock.time -= dt.timedelta(hours=2)
        learner = memory.Learner(opened, Typed(), memory.Settings(), lambda *_: f"ADD | Work | Leeds | {SAID}")
        outcomes = [learner.learn(), learner.learn()]
        assert [outcome and outcome.turns for outcome in outcomes] == [1, None]
    assert user.facts == ["Leeds"]


def test_update_takes_over_what_a_killed_worker_was_at(user: User) -> None:
    (user.script / "slow.txt").write_text("NO_UPDATE 600")
    user.llm(SAID)
    eventually(lambda: user.calls(update=True), "the request")
    user.kill_worker()
    (user.script / "slow.txt").unlink()
    user.llm("memory", "update", auto=None)
    assert user.facts == [SAID]


def test_turns_whose_update_failed_for_no_fault_of_the_models_are_put_off_and_not_claimed(user: User) -> None:
    class Full(memory.Memory):
        def change(self, *_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

    with ledger(user, Clock(), 1), Full(user.places, now=Clock()) as opened:
        learner = memory.Learner(opened, Typed(), memory.Settings(), lambda *_: f"ADD | Work | Leeds | {SAID}")
        with pytest.raises(OSError, match="No space"):
            learner.learn()
        assert not opened.claimed("worker")
        assert opened.count_turns("pending") == 1
        assert "No space left" in opened.errors()[0]["message"]


# Notes


def test_a_late_note_of_the_pause_before_the_last_is_not_learned(user: User) -> None:
    clock = Clock()
    with memory.Memory(user.places, now=clock) as opened:
        opened.pause()
        late = memory.Note("prompt", learn=True, length=3, sha256=memory.digest("spy"), at=clock().isoformat())
        memory.keep_late_note(user.places, late)
        for _ in range(2):
            clock.time += dt.timedelta(minutes=1)
            opened.resume()
            clock.time += dt.timedelta(minutes=1)
            opened.pause()
        opened.resume()
        assert [note.learn for note in opened.open_notes()] == [False]


def test_notes_do_not_pile_up_where_nothing_is_ever_learned(user: User) -> None:
    clock = Clock()
    with memory.Memory(user.places, now=clock) as opened:
        for _ in range(300):
            opened.note(memory.Note("prompt", learn=False, length=3, sha256=memory.digest("spy")))
            clock.time += dt.timedelta(days=1)
        assert len(opened.open_notes()) <= 130


# The worker's sleep


def test_a_worker_that_looks_seldom_ends_at_once_when_its_home_is_gone(user: User) -> None:
    user.llm(SAID, LLM_MEMORY_UPDATE_INTERVAL="3600")
    pid = user.worker_pid()
    user.places.directory.rename(user.folder / "gone")
    eventually(lambda: pid not in user.workers(), "the worker's end")


# Calls in unusual places


def test_a_call_in_a_folder_that_its_user_may_not_search_is_unaffected(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `su` in the other's folder: llm itself looks whether a fragment is a file, and is refused."""
    command = llm.cli.cli.commands["prompt"]
    memory._wrap(command, "system")
    exists = pathlib.Path.exists

    def refused(path: pathlib.Path) -> bool:
        if str(path).startswith("memory:"):
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    try:
        with monkeypatch.context() as closed:
            closed.setattr(pathlib.Path, "exists", refused)
            done = CliRunner(env=user.env).invoke(llm.cli.cli, ["prompt", "hello"])
        assert (done.exit_code, done.stdout) == (0, "You said: hello\n")
    finally:
        del command.invoke
    assert "Permission denied" in problems(user)


def test_a_mistake_of_ours_leaves_the_call_as_it_would_be_and_is_told_by_status(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.profile = f"- {SAID}\n"
    command = llm.cli.cli.commands["prompt"]
    memory._wrap(command, "system")

    def mistaken(text: str) -> str:
        raise ZeroDivisionError("nobody thought of this")

    try:
        monkeypatch.setattr(memory, "framed", mistaken)
        done = CliRunner(env=user.env).invoke(llm.cli.cli, ["prompt", "-n", "hello"])
    finally:
        del command.invoke
    assert (done.exit_code, done.output) == (0, "You said: hello\n")
    assert "nobody thought of this" in problems(user)


def test_a_call_whose_standard_error_is_closed_or_full_is_answered_and_learned(user: User) -> None:
    for redirection, fact in (("2>&-", SAID), ("2>/dev/full", "I work as a nurse")):
        done = subprocess.run(
            ["sh", "-c", f'"$0" "$1" {redirection}', pathlib.Path(sys.executable).with_name("llm"), fact],
            env=user.env | {"LLM_MEMORY_AUTO": "1", "LLM_MEMORY_DEBUG": "1"},
            cwd=user.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, f"You said: {fact}\n")
    eventually(lambda: sorted(user.facts) == sorted([SAID, "I work as a nurse"]), "learning")
    user.settled()
    assert "NoneType" not in problems(user)


def test_what_is_typed_for_one_model_is_not_sent_to_one_named_in_another_terminal(user: User) -> None:
    user.llm(SAID, LLM_MEMORY_MODEL="scripted-2", LLM_MEMORY_UPDATE_INTERVAL="1")
    user.llm("I work as a nurse")
    eventually(lambda: len(user.facts) == 2, "learning")
    asked = {call["model"]: call["messages"][-1][1] for call in user.calls(update=True)}
    assert set(asked) == {"scripted", "scripted-2"}
    assert "nurse" not in asked["scripted-2"]


def test_a_worker_that_can_only_fail_ends(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "IDLE_EXIT", 0.3)
    user.profile = "- A\n"
    user.places.profile.chmod(0o444)
    with filelock.FileLock(user.places.worker_lock):
        user.llm(SAID)
    worker = memory.Worker(user.places, memory.Settings(interval=0.05))
    worker.run()
    assert not user.worker_runs()
    with user.memory() as opened:
        assert opened.count_turns("pending") == 1
    assert "read-only" in problems(user)


def test_words_that_a_tool_gives_to_an_llm_inside_llm_are_not_learned(user: User) -> None:
    code = (
        "def inner() -> str:\n    from llm.cli import cli\n"
        "    cli.main(['I am a spy'], standalone_mode=False)\n    return 'done'\n"
    )
    user.llm("--functions", code, f"{SAID}; call inner")
    eventually(lambda: user.facts, "learning")
    user.settled()
    assert user.query("select count(*) from turn_search where prompt like '%spy%'") == 1
    assert not any("spy" in call["messages"][-1][1] for call in user.calls(update=True))


def test_a_worker_that_fails_for_a_moment_still_looks_for_work_before_it_ends(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "IDLE_EXIT", 0.5)

    class Worker(memory.Worker):
        ticks = 0

        def _tick(self) -> bool:
            self.ticks += 1
            if self.ticks == 12:  # it has been idle for long enough, and could end now
                user.llm(SAID)
                raise memory.LogUnreadable("locked for this moment")
            return super()._tick()

    worker = Worker(user.places, memory.Settings(interval=0.04))
    worker.run()
    assert worker.ticks > 12
    assert user.facts == [SAID]


def test_a_note_is_kept_where_a_damaged_database_can_not_be_put_aside_now(user: User) -> None:
    user.llm("memory", "add", "Plays chess", auto=None)
    user.places.database.write_bytes(b"This is no database. " * 1000)
    with filelock.FileLock(user.places.profile_lock):
        user.llm(SAID, LLM_MEMORY_UPDATE_INTERVAL="3600")
    user.llm("memory", "update", auto=None)
    assert user.facts == ["Plays chess", SAID]
