"""The worker: one at a time, started by a call, gone when there is nothing to do, and its faults told by status."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import pathlib
import sqlite3
import stat
import subprocess
import sys
import sysconfig
import threading
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from conftest import BIN, PATIENCE, User, eventually, kill, posix_only, state

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAID = "I live in Leeds"
ALSO = "I work as a nurse"
SECRET = "hunter2-" + "Zanzibar"
TYPED = f"My wifi password is {SECRET}, and the quokka Marmaduke lives with my aunt in Ouagadougou"
KEY = "sk-proj-" + "qrstuvwxyz0123456789ABCDEFGHIJ"
MARKERS = (SECRET, KEY[8:], "quokka", "Marmaduke", "Ouagadougou")

IMPATIENT = """
import os, sys
import llm.cli
import llm_user_memory as memory
memory.IDLE_EXIT, memory.MODEL_TIMEOUT = map(float, sys.argv[1:3])
memory.BACK_OFF = (0.1,) * 4
memory.run_worker(memory.Home.in_use()[-1], memory.Settings(os.environ))
"""


@contextlib.contextmanager
def impatient_worker(
    user: User, *, idle: float = 60, timeout: float = 60, **env: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker that is idle, and gives up a model, after so many seconds; and wait for its end."""
    user.places.create()
    # conftest knows a worker by its last words.
    command = [sys.executable, "-c", IMPATIENT, str(idle), str(timeout), "memory", "worker"]
    with subprocess.Popen(command, env=user.env | env, cwd="/") as process:
        try:
            yield process
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


# Beginning


def test_no_worker_learns_where_memory_is_off_however_it_was_started(user: User) -> None:
    user.types("I live in Leeds")
    user.llm("memory", "worker", auto=None, LLM_MEMORY_DISABLED="true")
    user.llm("memory", "worker", auto=None, LLM_MEMORY_UPDATES="false")
    assert user.calls() == []


def test_the_lock_tells_whether_a_worker_runs_and_whether_the_one_before_has_started(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = user.places
    home.create()
    started: list[object] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: started.append(1))  # none that empties the file
    assert not memory.worker_runs(home), "there is no file"
    assert memory.spawn_worker(home) == ""
    assert not memory.worker_runs(home)
    assert memory.spawn_worker(home) == memory.NOT_STARTED, "free, with a text"
    held = memory.take_worker_lock(home)
    assert memory.worker_runs(home)
    with pytest.raises(memory.Busy):
        memory.spawn_worker(home)
    os.ftruncate(held, 0)  # as a worker does
    os.close(held)
    assert not memory.worker_runs(home)
    assert memory.spawn_worker(home) == "", "free and empty"
    assert len(started) == 3


def test_a_worker_that_can_not_be_started_leaves_the_lock_free(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    user.places.create()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            memory.spawn_worker(user.places)
    assert not memory.worker_runs(user.places)


def test_a_profile_that_can_not_be_read_costs_no_attempt(user: User) -> None:
    user.types(SAID)
    user.places.profile.write_bytes(b"\xff\xfe")
    for _ in range(6):
        assert "not valid UTF-8" in user.run("update", code=1)[1]
    user.places.profile.unlink()
    user.run("update")
    assert user.facts == [SAID]


@pytest.mark.skipif(sys.platform != "linux", reason="not run: no /proc, which tells what files a process has open")
def test_a_call_ends_while_its_worker_goes_on_and_shares_no_file_with_it(user: User) -> None:
    (user.script / "slow.txt").write_text("NO_UPDATE 600")
    command = f'said=$("$0" "{SAID}"); "$0" "And now?" | cat >/dev/null; echo "$said"'
    line = f" x=$(llm '{SAID}'); llm 'And now?' | cat"
    done = subprocess.run(
        ["sh", "-c", command, BIN / "llm"],
        env=user.env | {"LLM_MEMORY_AUTO": "1", "LLM_MEMORY_LINE": line},
        cwd=user.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    assert (done.stdout, done.stderr) == (f"You said: {SAID}\n".encode(), b"")
    process = pathlib.Path(f"/proc/{user.worker_pid()}")
    assert {os.readlink(process / "fd" / n) for n in "012"} == {"/dev/null"}
    assert not [link for fd in (process / "fd").iterdir() if (link := os.readlink(fd)).startswith("pipe:")]
    assert os.readlink(process / "cwd") == "/"
    assert os.getsid(int(process.name)) == int(process.name)
    assert b"LLM_MEMORY_AUTO" not in (process / "environ").read_bytes()


def test_the_settings_of_the_latest_call_hold_not_those_of_the_one_that_started_the_worker(user: User) -> None:
    user.profile = f"- {'Likes rain. ' * 10}\n"
    user.llm(SAID, LLM_MEMORY_BUDGET="100")
    eventually(lambda: user.to_review() != [], "an edit that waits, as the profile is full")
    first = user.worker_pid()
    user.llm(ALSO)
    eventually(lambda: ALSO in user.facts, "a fact that waits no more")
    user.llm("I play the cello", LLM_MEMORY_UPDATE_INTERVAL="86400")
    eventually(lambda: not user.places.journal.exists(), "the note's being taken in")
    assert user.worker_pid() == first
    assert "Pending      1 to learn" in user.run("status")[0]
    user.llm("I like tea")
    eventually(lambda: {"I play the cello", "I like tea"} <= set(user.facts), "what had been put off")


def test_of_thirty_calls_at_once_one_starts_a_worker_and_none_waits(user: User) -> None:
    user.places.create()
    begin = threading.Barrier(30)
    started = []

    def call() -> None:
        begin.wait()
        with contextlib.suppress(memory.Busy):
            started.append(memory.spawn_worker(user.places))

    calls = [threading.Thread(target=call) for _ in range(30)]
    for thread in calls:
        thread.start()
    for thread in calls:
        thread.join()
    assert user.worker_runs()
    assert started == [""]
    eventually(lambda: user.places.lock_file("worker").read_bytes() == b"", "its beginning")
    kill(user.worker_pid())


BARE = """
import site, sys
site.addsitedir({folder!r})
{more}
from llm.cli import cli
cli()
"""


def bare_llm(user: User, more: str = "") -> list[str]:
    """An `llm` for a Python without llm, which adds the folder of its modules itself."""
    script = user.folder / "llm"
    script.write_text(BARE.format(folder=sysconfig.get_path("purelib"), more=more))
    return [getattr(sys, "_base_executable", sys.executable), str(script)]


def test_a_worker_is_started_with_the_modules_that_its_llm_has_found(user: User) -> None:
    env = user.env | {"LLM_MEMORY_AUTO": "1", "LLM_MEMORY_LINE": f" llm '{SAID}'"}
    subprocess.run([*bare_llm(user), SAID], env=env, cwd=user.folder, check=True, timeout=PATIENCE)
    user.comes_to_know(SAID)


def test_a_worker_that_ends_as_soon_as_it_is_started_is_told_by_the_next_call_and_status(user: User) -> None:
    command = bare_llm(user, "sys.executable = '/bin/false'")
    for said, told in ((SAID, ""), (ALSO, "memory: The background process could not start")):
        terminal = user.terminal(*command, said, LLM_MEMORY_LINE=f" llm '{said}'")
        terminal.expect(f"You said: {said}\n")
        assert terminal.wait() == 0
        assert told in terminal.shown
        assert bool(told) == ("background process" in terminal.shown)
        eventually(lambda: not user.worker_runs(), "its end")
    assert "could not start" in user.problems()
    assert "2 to learn from; now: llm memory update" in user.run("status")[0]
    user.llm("I play the cello")
    user.comes_to_know(SAID, ALSO, "I play the cello")
    assert user.problems() == ""


# The end


def test_a_worker_with_nothing_to_do_exits_and_loses_nothing(user: User) -> None:
    user.types(SAID)
    user.run("pause")
    with impatient_worker(user, idle=0.3, LLM_MEMORY_UPDATE_INTERVAL="0.05"):
        pass
    assert not user.worker_runs()
    assert user.facts == []
    assert "paused" in user.run("update", code=1)[1]
    user.run("resume")
    user.llm("memory", "update")
    assert user.facts == [SAID]


def test_a_worker_stays_for_an_interval_of_any_length(user: User) -> None:
    settings = memory.Settings()
    at = memory.utc_now() - dt.timedelta(hours=23)
    user.types(SAID, interval=86_400.0, at=at.isoformat())
    assert memory._poll(user.places, settings)
    assert memory._poll(user.places, settings), "also once the note is taken in"
    assert user.facts == []


def test_what_a_clock_that_was_ahead_has_noted_does_not_wait_until_then(user: User) -> None:
    at = memory.utc_now() + dt.timedelta(minutes=30)
    user.types(SAID, interval=3_600.0, at=at.isoformat())
    assert memory._poll(user.places, memory.Settings(user.env))
    assert user.facts == [SAID]


def test_a_worker_stays_for_what_is_tried_again_soon(user: User) -> None:
    user.types(SAID, model="scripted-dead")
    with impatient_worker(user, idle=0.05, LLM_MEMORY_UPDATE_INTERVAL="0.01"):
        pass
    assert any("scripted-dead failed" in problem for problem in user.status()["problems"])


def test_a_worker_does_not_stay_for_what_is_tried_again_much_later(user: User) -> None:
    user.types(SAID)
    with user.memory() as opened:
        memory.take_in(opened)
        for minutes, stays in ((30, True), (90, False)):
            due = opened.now().timestamp() + 60 * minutes
            opened.db.execute("update turns set due = ?", [due])
            assert memory._poll(user.places, memory.Settings(user.env)) == stays


FINDS_A_NOTE = """
import os, sys
import llm.cli
import llm_user_memory as memory
memory.IDLE_EXIT = 0
looks = []
def poll(home, settings):
    looks.append(home)
    print("looked", flush=True)
    return len(looks) == 1
memory._poll = poll
memory.run_worker(memory.Home.in_use()[-1], memory.Settings({"LLM_MEMORY_UPDATE_INTERVAL": "0.01"}))
"""


def test_a_worker_that_finds_something_when_it_looks_once_more_goes_on(user: User) -> None:
    """What was typed just before may share its request with others, so it is not learned at this look."""
    user.places.create()
    done = subprocess.run(
        [sys.executable, "-c", FINDS_A_NOTE], env=user.env, capture_output=True, timeout=PATIENCE, check=True
    )
    assert done.stdout.split() == [b"looked", b"looked"]


def test_a_worker_exits_when_its_home_vanishes_and_does_not_recreate_it(user: User) -> None:
    user.llm(SAID, LLM_MEMORY_UPDATE_INTERVAL="3600")
    pid = user.worker_pid()
    user.places.directory.rename(user.folder / "gone")
    eventually(lambda: not state(pid), "the worker's end")
    assert not user.places.directory.exists()


def test_a_purge_while_a_model_is_asked_stays_one(user: User) -> None:
    (user.script / "slow.txt").write_text("NO_UPDATE 2")
    user.llm(SAID)
    pid = user.worker_pid()
    eventually(lambda: user.calls(update=True), "a request")
    user.run("clear", "--purge", "--yes")
    eventually(lambda: not state(pid), "the worker's end")
    assert not user.places.directory.exists()


def test_a_model_that_hangs_ends_the_worker_and_a_fresh_one_takes_over(user: User) -> None:
    (user.script / "stuck.txt").touch()
    user.types(SAID, model="scripted-executor")
    with impatient_worker(user, timeout=0.5) as worker:
        pass
    (user.script / "stuck.txt").unlink()
    assert user.worker_pid() != worker.pid
    assert "did not answer within 0.5 s" in user.worker_log
    user.types(ALSO)
    user.comes_to_know(SAID, ALSO)


def test_a_worker_without_a_key_counts_nothing_and_makes_way_for_one_that_has_it(user: User) -> None:
    user.types(SAID, model="scripted-key")
    with impatient_worker(user, LLM_MEMORY_UPDATE_INTERVAL="0.05"):
        pass
    assert "scripted-key has no key" in user.problems()
    assert user.query("select attempts from turns", user.places.database) == 0
    user.llm(ALSO, SCRIPTED_KEY="k")
    user.comes_to_know(SAID, ALSO)
    assert user.problems() == ""


def test_a_worker_without_a_key_stays_for_what_it_can_still_learn(user: User) -> None:
    earlier = (memory.utc_now() - dt.timedelta(minutes=1)).isoformat()
    user.types(SAID, model="scripted-key", at=earlier)
    user.types_on(ALSO, at=earlier)
    with user.memory() as opened:
        memory.take_in(opened)
        opened.db.execute("update turns set due = ? where model = 'scripted'", [opened.now().timestamp() + 60])
        memory._learn_due(opened, memory.Settings(user.env))
        opened.db.execute("update turns set state = 'done' where model = 'scripted'")
        opened.db.execute("update turns set due = 0")
        with pytest.raises(memory.ModelFailed, match="no key"):
            memory._learn_due(opened, memory.Settings(user.env))


# Faults


def test_a_locked_log_is_reported_and_read_once_it_is_free(user: User) -> None:
    user.types(TYPED)
    with contextlib.closing(sqlite3.connect(user.places.logs, isolation_level=None)) as db:
        db.execute("begin exclusive")
        subprocess.Popen([BIN / "llm", "memory", "worker"], env=user.env, cwd="/")
        eventually(lambda: "can't be read now" in user.problems(), "the report")
        assert [word for word in MARKERS if user.files_with(word) or word in user.problems()] == []
    user.types(SAID)
    user.comes_to_know(SAID)
    eventually(lambda: user.problems() == "", "the all-clear")


def test_a_problem_that_was_mended_after_the_worker_has_ended_is_told_no_more(user: User) -> None:
    user.types(SAID)
    user.places.profile.write_bytes(b"- \xff\n")
    with impatient_worker(user, idle=0.3, LLM_MEMORY_UPDATE_INTERVAL="0.05"):
        pass
    assert "is not valid UTF-8" in user.problems()
    user.profile = "- Mine\n"
    assert user.problems() == ""


def test_a_worker_that_can_not_open_its_database_ends_and_starts_no_other(user: User) -> None:
    user.types(SAID)
    user.places.database.mkdir()
    with impatient_worker(user, idle=0.05, LLM_MEMORY_UPDATE_INTERVAL="0.01"):
        pass
    assert user.places.journal.exists(), "what another would be started for"
    assert not user.worker_runs()


# Privacy


def spoil(path: pathlib.Path) -> None:
    """Damage a database in the middle."""
    data = path.read_bytes()
    path.write_bytes(data[:100] + TYPED.encode() + b"\xff" * 2_000 + data[3_000:])


def make_invalid(user: User, column: str) -> None:
    with contextlib.closing(sqlite3.connect(user.places.logs)) as log, log:
        table = "turns" if column == "model" else "turn_search"
        log.execute(f"update {table} set {column} = cast(cast({column} as blob) || x'fffe' as text)")


def fail(user: User, words: str) -> int:
    """Have the model fail with these words."""
    return (user.script / "error.txt").write_text(words)


def make_log_folder(user: User) -> None:
    user.places.logs.unlink()
    user.places.logs.mkdir()


BROKEN: dict[str, Callable[[User], object]] = {
    "an error that quotes the request": lambda user: fail(user, f"400: {TYPED!r}; no quokka"),
    "an error that quotes the request and a key": lambda user: fail(user, f"401: {TYPED!r}; no quokka; key: {KEY}."),
    "a reply out of form": lambda user: user.reply(TYPED),
    "a reply that is refused": lambda user: user.reply(f"ADD | {TYPED} | {TYPED} | {SECRET}\nREMOVE | {TYPED} | x"),
    "a row that is not UTF-8": lambda user: make_invalid(user, "prompt"),
    "a model that is not UTF-8": lambda user: make_invalid(user, "model"),
    "a damaged log": lambda user: spoil(user.places.logs),
    "a log that is a folder": make_log_folder,
    "a damaged database": lambda user: spoil(user.places.database),
    "a cut journal": lambda user: os.truncate(user.places.journal, user.places.journal.stat().st_size // 2),
    "a profile that is read-only": lambda user: user.places.profile.chmod(0o444),
    "a profile that is not UTF-8": lambda user: user.places.profile.write_bytes(b"- \xff\n"),
}


@posix_only
@pytest.mark.parametrize("broken", BROKEN)
def test_no_file_of_ours_and_no_error_shows_a_word_that_was_typed_whatever_breaks(user: User, broken: str) -> None:
    user.profile = "- Mine\n"
    user.run("add", "Yours")
    user.reply("NO_UPDATE")
    user.types(TYPED)
    BROKEN[broken](user)
    with impatient_worker(user, idle=0.3, LLM_MEMORY_UPDATE_INTERVAL="0.05"):
        pass
    said = ""
    for command in ("status", "update --retry", "search --chats Mine", "learn --yes", "status --json"):
        done = CliRunner(env=user.env).invoke(memory.memory_group, command.split(), obj=memory.Settings())
        assert isinstance(done.exception, (SystemExit, type(None))), done.exc_info
        said += done.output
    assert "Traceback" not in said
    for path in user.places.directory.glob("memory.db.unreadable-*"):  # which had the words before us
        path.unlink()
    assert [(word, user.files_with(word)) for word in MARKERS if user.files_with(word) or word in said] == []
    assert ("hunter2" in said, "hunter2" in user.worker_log) == (False, False)


def test_a_row_of_the_log_that_is_not_utf_8_hurts_no_other(user: User) -> None:
    user.types(TYPED)
    for column in ("prompt", "model"):
        make_invalid(user, column)
    user.types(SAID, ALSO)
    user.llm("memory", "update", auto=None, check=False)
    assert set(user.facts) >= {SAID, ALSO}
    assert SAID in user.run("search", "--chats", "Leeds")[0]
    assert user.llm("memory", "learn", "--yes", auto=None).returncode == 0


def test_no_file_of_ours_is_readable_by_others_whatever_the_umask(user: User) -> None:
    config = user.home / ".config" / "io.datasette.llm"
    config.mkdir(parents=True)
    del user.env["LLM_USER_PATH"]
    user.env |= {"LLM_MODEL": "scripted", "SCRIPTED_DIR": str(user.script), "XDG_CONFIG_HOME": str(config.parent)}
    home = memory.Home(config)
    env = user.env | {"LLM_MEMORY_AUTO": "1", "LLM_MEMORY_LINE": f" llm '{SAID}'"}
    before = os.umask(0)
    try:
        subprocess.run([BIN / "llm", SAID], env=env, check=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
        eventually(lambda: "Leeds" in memory.read_profile(home.profile), "learning")
        home.directory.chmod(0o755)
        user.run("pause")
        eventually(lambda: list(user.home.rglob("worker-*.log")), "the worker's log")
    finally:
        os.umask(before)
        for pid in user.workers():
            kill(pid)
    ours = [*home.directory.rglob("*"), home.directory, *user.home.rglob("worker-*.log")]
    ours += user.home.rglob("llm-user-memory")
    assert {home.profile, home.database, home.lock_file("worker"), home.paused} <= set(ours)
    assert [(path, oct(stat.S_IMODE(path.stat().st_mode))) for path in ours if path.stat().st_mode & 0o077] == []
