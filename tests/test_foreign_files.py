"""Where a file of ours should be stands a FIFO, a folder, a link, another user's file or one that is leased: nobody waits.

Calls go on, nothing is written through it, and status names it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from conftest import PROFILE, User, posix_only

from llm_user_memory import Problem, Settings, memory_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A lease would hold each command for 45 seconds, and a FIFO for ever.
pytestmark = [posix_only, pytest.mark.timeout(120)]
NOBODY = 65534

HOLDER = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("leased", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["fifo", "folder", "link", "foreign", "leased"])
def put(request: pytest.FixtureRequest, user: User) -> Iterator[Callable[[str], pathlib.Path]]:
    """Put something of this kind in a file's place."""
    kind, stack = request.param, contextlib.ExitStack()
    victim = user.folder / "precious"
    victim.write_text("precious")
    if kind == "foreign" and os.geteuid():
        pytest.skip("not run: needs root")

    def put(name: str) -> pathlib.Path:
        path = user.places.directory / name
        path.unlink(missing_ok=True)
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(victim)
        else:
            path.write_text("")
        if kind == "foreign":
            os.chown(path, NOBODY, NOBODY)
        if kind == "leased":
            stack.enter_context(leased(path))
        return path

    with stack:
        yield put
        assert victim.read_text() == "precious"


@contextlib.contextmanager
def leased(path: pathlib.Path) -> Iterator[None]:
    """Have another process hold a lease of this file, as a file server does, and not give it up."""
    if sys.platform != "linux":
        pytest.skip("not run: only Linux has leases")
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"leased\n"
        yield
        holder.communicate()


@pytest.mark.parametrize("names", ["typed.jsonl news no-system", "paused", "worker.lock"])
def test_a_call_goes_on_without_waiting(user: User, put: Callable[[str], pathlib.Path], names: str) -> None:
    user.profile = PROFILE
    for name in names.split():
        put(name)
    terminal = user.terminal("llm", "I live in Leeds")
    terminal.expect("You said: I live in Leeds\n")
    assert terminal.wait() == 0
    assert "Traceback" not in terminal.shown
    assert "Lives in Leeds" in user.calls(update=False)[-1]["system"]


LOCKS = ["worker.lock", "profile.lock", "learn.lock"]
FILES = [*LOCKS, "typed.jsonl", ".typed.jsonl.taken", "news", "no-system", "paused", "worker.log"]
FILES += ["memory.db", "memory.db-journal", "memory.db-wal", "forgotten"]


@pytest.mark.parametrize("name", FILES)
def test_status_names_it_and_no_command_or_learner_waits(
    user: User, put: Callable[[str], pathlib.Path], name: str
) -> None:
    user.run("load", "-", stdin=PROFILE)
    user.types("I live in York, you know")
    path = put(name)
    assert name in user.problems()
    for command in ("show", "add chess", "search Leeds", "pause", "resume", "update"):
        done = CliRunner(env=user.env).invoke(memory_group, command.split(), obj=Settings())
        assert done.exit_code == 0 or (done.exit_code == 1 and name in done.stderr), (command, done)
    with contextlib.suppress(Problem, OSError):
        user.learns("NO_UPDATE")
    assert "Lives in Leeds" in user.facts
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    user.run("add", "Plays go")
    assert "Plays go" in user.facts


def set_immutable(path: pathlib.Path) -> None:
    path.touch()
    if subprocess.run(["chattr", "+i", path], capture_output=True, check=False).returncode:
        pytest.skip("not run: this file system or user can't make a file immutable")


def read_only(path: pathlib.Path) -> None:
    path.touch()
    path.chmod(0o400)


def link_to_nowhere(path: pathlib.Path) -> None:
    path.parent.mkdir(exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    path.symlink_to("/nowhere/at/all")


OBSTACLES: dict[str, tuple[str, Callable[[pathlib.Path], object]]] = {
    "a folder that links to nowhere": ("", link_to_nowhere),
    "a file aside that is a folder": (".profile.md.new", pathlib.Path.mkdir),
    "a read-only profile": ("profile.md", read_only),
    "a read-only database": ("memory.db", read_only),
    "an immutable database": ("memory.db", set_immutable),
    "an immutable database journal": ("memory.db-journal", set_immutable),
    "an immutable journal": ("typed.jsonl", set_immutable),
    "a FIFO as the database's journal": ("memory.db-journal", os.mkfifo),
    "a folder as a lock": ("profile.lock", pathlib.Path.mkdir),
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_status_leads_with_what_keeps_memory_from_working_and_no_request_is_paid(user: User, obstacle: str) -> None:
    name, put = OBSTACLES[obstacle]
    user.run("load", "-", stdin=PROFILE)
    user.types("I live in York, you know")
    path = user.places.directory / name
    if name == "profile.lock":
        path.unlink()
    put(path)
    try:
        first, second = user.run("status", LLM_MEMORY_AUTO="1")[0].splitlines()[:2]
        assert first == "Memory is on, but there is a problem"
        assert second.startswith("Problem")
        assert (name or "memory") in second
        assert json.loads(user.run("status", "--json", LLM_MEMORY_AUTO="1")[0])["state"] == "hindered"
        user.llm("memory", "update", auto=None, check=False)
        user.says("I play chess")
        assert user.calls(update=True) == []
    finally:
        subprocess.run(["chattr", "-i", path], capture_output=True, check=False)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_what_was_typed_waits_while_llms_log_is_no_file(user: User, kind: str) -> None:
    user.types("I live in York, you know")
    log = user.places.logs
    kept = log.rename(log.with_name("kept"))
    if kind == "fifo":
        os.mkfifo(log)
    else:
        log.symlink_to(os.devnull)
    assert "logs.db is not a regular file" in user.problems()
    assert "logs.db is not a regular file" in user.run("update", code=1)[1]
    kept.replace(log)
    assert user.learns("ADD | Personal Information | Lives in York | I live in York")
    assert user.facts == ["Lives in York"]


def test_status_says_that_llms_folder_cannot_be_read(user: User) -> None:
    user.run("add", "Plays chess")
    user.user_dir.chmod(0)
    try:
        if os.access(user.user_dir, os.X_OK):
            pytest.skip("not run: root may read anything")
        assert "Permission denied" in user.problems()
    finally:
        user.user_dir.chmod(0o700)
