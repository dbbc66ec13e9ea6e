"""Whatever breaks, the user's call is unaffected, nothing is lost, and `status` names it."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import pathlib
import shutil
import sqlite3
import subprocess
from typing import TYPE_CHECKING

import pytest
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
    user.kill_worker()
    ours = [path for path in user.places.directory.rglob("*") if path.is_file()]
    assert user.places.worker_log in ours
    assert [path for path in ours if key[8:].encode() in path.read_bytes()] == []
    assert b"401" in user.places.worker_log.read_bytes()


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
    note = memory.Note("prompt", learn=True, length=len(SAID), sha256=memory.digest(SAID))
    for n in range(turns):
        turn = memory.Turn(n + 1, f"turn {n}", "thread", "scripted", clock().isoformat())
        opened.take_in([(turn, note, (0, len(f"{SAID} and turn {n}")))], opened.cursor(), (n + 1, turn.id))
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
