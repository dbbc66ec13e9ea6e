"""A call in unusual places: whatever is locked, broken, full or closed, it goes on as it would without memory."""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
import sqlite3
import subprocess
from typing import TYPE_CHECKING

import filelock
import llm.cli
import pytest
from click.testing import CliRunner
from conftest import BIN, PATIENCE, User, eventually, posix_only

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAID = "I live in Leeds"
ALSO = "I work as a nurse"


# What a call opens


@pytest.fixture
def strace() -> None:
    works = (
        shutil.which("strace")
        and not subprocess.run(["strace", "-qq", "-e", "trace=none", "true"], check=False).returncode
    )
    if not works:
        pytest.skip("strace is not installed, or may not trace here")


def traced(user: User, *args: str) -> list[str]:
    """Run a call, and return the system calls with which its own process used files in memory's directory."""
    trace = user.folder / "trace"
    calls = "trace=openat,open,creat,read,pread64,mmap,write,pwrite64,rename,unlink,flock,fcntl"
    done = subprocess.run(
        # Detached from what the call starts: the worker may open whatever it likes.
        ["strace", "-f", "--detach-on=execve", "-y", "-e", calls, "-o", trace, BIN / "llm", *args],
        env=user.env | {"LLM_MEMORY_AUTO": "1"},
        cwd=user.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout == f"You said: {args[-1]}\n"
    lines = trace.read_text("utf-8", "replace").splitlines()
    return [line for line in lines if f"{user.places.directory}/" in line]


def opened(calls: list[str], user: User) -> list[str]:
    """The names of the files below memory's directory that were opened, or tried to be."""
    names = [re.search(r'(?:openat|open|creat)\([^"]*"([^"]*)"', call) for call in calls]
    return sorted(str(pathlib.Path(n[1]).relative_to(user.places.directory)) for n in names if n)


@contextlib.contextmanager
def everything_locked(user: User) -> Iterator[None]:
    """Have another process hold the database and each of our locks, as for a long time."""
    with contextlib.ExitStack() as held:
        for name in ("worker", "profile", "learn"):
            held.enter_context(filelock.FileLock(user.places.lock(name)))
        db = held.enter_context(contextlib.closing(sqlite3.connect(user.places.database, isolation_level=None)))
        db.execute("begin exclusive")
        yield


@contextlib.contextmanager
def a_worker(user: User) -> Iterator[None]:
    with filelock.FileLock(user.places.lock("worker")):
        yield


@contextlib.contextmanager
def nothing(user: User) -> Iterator[None]:
    yield


@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize("known", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("others", [nothing, a_worker, everything_locked])
def test_a_call_reads_one_profile_appends_one_line_and_opens_neither_the_database_nor_a_lock(
    user: User, others: Callable[[User], contextlib.AbstractContextManager[None]], *, known: bool
) -> None:
    journal = user.places.file("typed.jsonl")
    if known or others is not nothing:
        user.places.create()
    if known:
        user.has_learned("Plays chess", "I play chess")
    before = journal.read_bytes() if journal.exists() else b""
    with others(user):
        calls = traced(user, SAID)
    # The lock of the worker is looked at, not waited for.
    assert opened(calls, user) == ["profile.md", "typed.jsonl", "worker.lock"]
    assert all("LOCK_NB" in call for call in calls if "LOCK_" in call)
    if others is not nothing:  # else its worker may have taken the line in
        assert journal.read_bytes().startswith(before)
        assert journal.read_bytes()[len(before) :].count(b"\n") == 1
    assert len([call for call in calls if "write" in call]) == 1
    assert ("Plays chess" in str(user.calls(update=False)[-1]["system"])) == known


@pytest.mark.usefixtures("strace")
def test_a_profile_that_is_too_large_is_not_read_and_told_by_status(user: User) -> None:
    user.profile = "- A fact about me\n" * 120_000
    with a_worker(user):
        calls = traced(user, SAID)
    assert [call for call in calls if "profile.md>" in call and re.search(r"\b(read|pread64|mmap)\(", call)] == []
    assert [call for call in calls if "profile.md>" in call], "the trace does not name files"
    assert user.calls()[-1]["messages"] == [["user", SAID]]
    assert "too large" in user.problems()
    assert "llm memory edit" in user.problems()


def test_what_is_typed_while_the_database_is_locked_is_learned_later_by_one_worker(user: User) -> None:
    user.has_learned("Plays chess", "I play chess")
    texts = [f"I like colour number {n}" for n in range(3)]
    with contextlib.closing(sqlite3.connect(user.places.database, isolation_level=None)) as db:
        db.execute("begin exclusive")
        for text in texts:
            user.says(text)
        # A second one, started before the first had its lock, goes at once.
        eventually(lambda: len(user.workers()) <= 1, "one worker")
        assert user.facts == ["Plays chess"]
    user.comes_to_know("Plays chess", *texts)


# The profile and its folder


def undecodable(path: pathlib.Path) -> None:
    path.write_bytes(b"# Me\n- Caf\xe9\n")


def directory(path: pathlib.Path) -> None:
    path.mkdir()
    (path / "kept").touch()


@pytest.mark.parametrize(
    ("spoil", "words"), [(undecodable, "not valid UTF-8 (line 2)"), (directory, "is not a regular file")]
)
def test_a_profile_that_cannot_be_read_is_left_alone_named_and_learning_waits_for_it(
    user: User, spoil: Callable[[pathlib.Path], None], words: str
) -> None:
    user.places.create()
    spoil(user.places.profile)
    user.says(SAID)
    assert user.calls(update=False)[-1]["messages"] == [["user", SAID]]
    eventually(lambda: words in user.worker_log, "the worker's report")
    assert words in user.problems()
    assert words in user.run("show", code=1)[1]
    if spoil is undecodable:
        assert user.places.profile.read_bytes() == b"# Me\n- Caf\xe9\n"
        user.places.profile.unlink()
    else:
        assert (user.places.profile / "kept").exists()
        shutil.rmtree(user.places.profile)
    user.profile = "# Me\n- Café\n"
    user.comes_to_know("Café", SAID)
    eventually(lambda: user.problems() == "", "the all-clear")


def test_a_memory_directory_that_cannot_be_made_does_not_disturb_a_call(user: User) -> None:
    user.places.directory.write_text("in the way")
    user.says(SAID)
    assert user.run("status")[0].startswith("Here")
    for command in ("pause", "clear"):
        assert str(user.places.directory) in user.run(command, code=1)[1]
    assert user.places.directory.read_text() == "in the way"


@pytest.fixture
def wrapped() -> Iterator[None]:
    """llm's `prompt` in this process, with memory."""
    command = llm.cli.cli.commands["prompt"]
    memory.inject_into(llm.cli.cli, memory.Settings(auto="system", updates=False))
    yield
    for command in (llm.cli.cli.commands["prompt"], llm.cli.cli.commands["chat"]):
        del command.invoke


@pytest.mark.usefixtures("wrapped")
def test_a_call_in_a_folder_that_its_user_may_not_search_is_unaffected(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `su` in the other's folder: llm itself looks whether a fragment is a file, and is refused."""
    exists = pathlib.Path.exists

    def refused(path: pathlib.Path) -> bool:
        if str(path).startswith("memory:"):
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    with monkeypatch.context() as closed:
        closed.setattr(pathlib.Path, "exists", refused)
        done = CliRunner(env=user.env).invoke(llm.cli.cli, ["prompt", "hello"])
    assert (done.exit_code, done.output) == (0, "You said: hello\n")
    assert "Permission denied" in user.problems()


# Mistakes of ours, and streams that are closed


@pytest.mark.usefixtures("wrapped")
def test_a_mistake_of_ours_leaves_the_call_as_it_would_be_and_is_told_by_status(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.profile = f"- {SAID}\n"

    def mistaken(text: str) -> str:
        raise ZeroDivisionError("nobody thought of this")

    monkeypatch.setattr(memory, "framed", mistaken)
    done = CliRunner(env=user.env).invoke(llm.cli.cli, ["prompt", "-n", "hello"])
    assert (done.exit_code, done.output) == (0, "You said: hello\n")
    assert "nobody thought of this" in user.problems()
    monkeypatch.undo()
    assert CliRunner(env=user.env).invoke(llm.cli.cli, ["prompt", "hello"]).exit_code == 0
    assert user.problems() == "", "it works again, and is still told"


@posix_only
def test_a_call_whose_standard_error_is_closed_or_full_is_answered_and_learned(user: User) -> None:
    for redirection, fact in (("2>&-", SAID), ("2>/dev/full", ALSO)):
        done = subprocess.run(
            ["sh", "-c", f'"$0" "$1" {redirection}', BIN / "llm", fact],
            env=user.env | {"LLM_MEMORY_AUTO": "1", "LLM_MEMORY_DEBUG": "1"},
            cwd=user.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, f"You said: {fact}\n")
    user.comes_to_know(SAID, ALSO)
    assert user.problems() == ""
