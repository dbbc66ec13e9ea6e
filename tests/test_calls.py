"""A call in unusual places: whatever is locked, broken, full or closed, it goes on as it would without memory."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import re
import shlex
import shutil
import sqlite3
import subprocess
from typing import TYPE_CHECKING

import click
import filelock
import llm.cli
import psutil
import pytest
from click.testing import CliRunner
from conftest import BIN, PATIENCE, User, eventually, posix_only

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Iterator

SAID = "I live in Leeds"
ALSO = "I work as a nurse"


# What a call opens


def traced(user: User, *args: str) -> list[str]:
    """Run a call, and return the system calls with which its own process used memory's directory."""
    strace = ["strace", "-qq", "-e", "trace=none", "true"]
    if not shutil.which("strace") or subprocess.run(strace, timeout=PATIENCE, check=False).returncode:
        pytest.skip("strace is not installed, or may not trace here")
    trace = user.folder / "trace"
    calls = "trace=%file,read,pread64,mmap,write,pwrite64,flock,fcntl"
    done = subprocess.run(
        # Detached from what the call starts: the worker may open whatever it likes.
        ["strace", "-f", "--detach-on=execve", "-y", "-e", calls, "-o", trace, BIN / "llm", *args],
        env=user.env | {"LLM_MEMORY_AUTO": "1", "LLM_MEMORY_LINE": f" llm {shlex.join(args)}"},
        cwd=user.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout == f"You said: {args[-1]}\n"
    lines = trace.read_text("utf-8", "replace").splitlines()
    return [line for line in lines if str(user.places.directory) in line]


@contextlib.contextmanager
def locked_database(user: User) -> Iterator[None]:
    """Hold the database, as another process might for a long time."""
    with contextlib.closing(sqlite3.connect(user.places.database, isolation_level=None)) as db:
        db.execute("begin exclusive")
        yield


@pytest.mark.parametrize("first", [True, False])
def test_a_call_reads_one_profile_appends_one_line_and_opens_neither_the_database_nor_a_lock(
    user: User, first: bool
) -> None:
    with contextlib.ExitStack() as held:
        if not first:
            user.has_learned("Plays chess", "I play chess")
            for name in ("worker", "profile", "learn"):
                held.enter_context(filelock.FileLock(user.places.lock_file(name)))
            held.enter_context(locked_database(user))
        calls = traced(user, SAID)
    paths = [call for call in calls if re.search(rf'\("?[^"]*"{re.escape(str(user.places.directory))}', call)]
    opened = [pathlib.Path(call.split('"')[1]) for call in paths if re.match(r"\d+ +(?:openat|open|creat)\(", call)]
    # The lock of the worker is looked at, not waited for.
    files = {user.places.profile, user.places.journal, user.places.lock_file("worker")}
    if first:
        files.add(user.places.directory / ".gitignore")
    assert set(opened) - {user.places.directory} == files
    assert all("LOCK_NB" in call for call in calls if "LOCK_" in call)
    assert len([call for call in calls if "write" in call and "typed.jsonl" in call]) == 1
    if not first:  # else its worker may have taken the line in
        assert len(opened) - opened.count(user.places.directory) == 3
        assert len(paths) <= 8, paths
        assert user.places.journal.read_bytes().count(b"\n") == 1
        assert "Plays chess" in user.calls(update=False)[-1]["system"]


def test_messages_typed_while_the_database_is_locked_are_learned_later_by_one_worker(user: User) -> None:
    user.has_learned("Plays chess", "I play chess")
    texts = [f"I like colour number {n}" for n in range(3)]
    with locked_database(user):
        for text in texts:
            user.says(text)
        # A second one, started before the first had its lock, goes at once.
        eventually(lambda: len(user.workers()) <= 1, "one worker")
        assert user.facts == ["Plays chess"]
    user.comes_to_know("Plays chess", *texts)


@posix_only
def test_a_chat_starts_one_worker_leaves_no_zombie_and_replaces_a_worker_that_was_killed(user: User) -> None:
    chat = user.terminal("llm", "chat")

    def says(text: str) -> None:
        chat.type(f"{text}\r")
        chat.expect(f"You said: {text}")
        chat.expect("> ")  # it is noted by now

    chat.expect("> ")
    texts = [f"I like colour number {n}" for n in range(6)]
    for text in texts[:5]:
        says(text)
    worker = psutil.Process(user.worker_pid())
    talking = worker.parent()
    assert talking
    assert talking.children() == [worker], "the others that it has started would still be there, if only as zombies"
    user.kill_worker()
    says(texts[5])
    assert user.worker_pid() != worker.pid
    assert len(talking.children()) == 1
    chat.type("quit\r")
    assert chat.wait() == 0
    user.comes_to_know(*texts)


# The profile and its folder


def test_a_memory_directory_that_cannot_be_created_does_not_disturb_a_call(user: User) -> None:
    user.places.directory.write_text("in the way")
    user.says(SAID)
    for command, code in (("status", 0), ("pause", 1), ("clear --yes", 1)):
        assert str(user.places.directory) in "".join(user.run(*command.split(), code=code)), command
    assert user.places.directory.read_text() == "in the way"


# Bugs of ours, and streams that are closed


def test_a_bug_of_ours_leaves_the_call_as_it_would_be_and_is_shown_by_status_until_a_call_works(
    idle: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle.profile = f"- {SAID}\n"
    for command in (llm.cli.cli.commands["prompt"], llm.cli.cli.commands["chat"]):
        monkeypatch.setattr(command, "invoke", functools.partial(click.Command.invoke, command))
    monkeypatch.setenv("LLM_MEMORY_AUTO", "1")
    monkeypatch.setenv("LLM_MEMORY_LINE", " llm hello")
    memory.register_commands(llm.cli.cli)
    monkeypatch.setattr("sys.argv", ["llm", "hello"])
    with monkeypatch.context() as broken:
        broken.setattr(memory, "disarmed", lambda _: 1 // 0)
        done = CliRunner(env=idle.env).invoke(llm.cli.cli, ["prompt", "hello"])
        assert (done.exit_code, done.output) == (0, "You said: hello\n")
    wanted = "the profile was not sent: ZeroDivisionError"
    assert idle.problems() == wanted, "its text might quote what was typed"
    assert CliRunner(env=idle.env).invoke(llm.cli.cli, ["prompt", "hello"]).exit_code == 0
    assert idle.problems() == "", "it works again, and is still told"


@posix_only
def test_a_call_whose_standard_error_is_closed_or_full_is_answered_and_learned(user: User) -> None:
    for redirection, fact in (("2>&-", SAID), ("2>/dev/full", ALSO)):
        done = subprocess.run(
            ["sh", "-c", f'"$0" "$1" {redirection}', BIN / "llm", fact],
            env=user.env | {"LLM_MEMORY_AUTO": "1", "LLM_MEMORY_LINE": f" llm '{fact}'", "LLM_MEMORY_DEBUG": "1"},
            cwd=user.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, f"You said: {fact}\n")
    user.comes_to_know(SAID, ALSO)
    assert user.problems() == ""
