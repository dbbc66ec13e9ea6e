"""Where a file of ours should be stands a FIFO, a folder, a link or another user's file: nobody waits.

Calls go on, nothing is written through it, and status names it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from conftest import PATIENCE, PROFILE, User, posix_only

from llm_user_memory import Problem, Settings, memory_group

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator

pytestmark = posix_only
NOBODY = 65534
QUICK = min(PATIENCE, 30)
"""Seconds that anything may take here: a FIFO would hold it for ever."""


@pytest.fixture(params=["fifo", "folder", "link", "foreign"])
def put(request: pytest.FixtureRequest, user: User) -> Iterator[Callable[[str], pathlib.Path]]:
    """Put something of this kind in a file's place."""
    kind = request.param
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
        return path

    yield put
    assert victim.read_text() == "precious"


class HungError(BaseException):
    """Something took too long."""


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """Fail if what is done in here hangs."""

    def late(*_: object) -> None:
        raise HungError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, QUICK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("names", ["typed.jsonl news no-system", "paused", "worker.lock"])
def test_a_call_goes_on_without_waiting(user: User, put: Callable[[str], pathlib.Path], names: str) -> None:
    user.profile = PROFILE
    for name in names.split():
        put(name)
    with quickly():
        terminal = user.terminal("llm", "I live in Leeds")
        terminal.expect("You said: I live in Leeds\n")
        assert terminal.wait() == 0
    assert "Traceback" not in terminal.shown
    assert "Lives in Leeds" in user.calls(update=False)[-1]["system"]


LOCKS = ["worker.lock", "profile.lock", "learn.lock"]
FILES = [*LOCKS, "typed.jsonl", ".typed.jsonl.taken", "news", "no-system", "paused", "memory.db", "worker.log"]


@pytest.mark.parametrize("name", [*FILES, ".profile.md.previous"])
def test_status_names_it_and_no_command_or_learner_waits(
    user: User, put: Callable[[str], pathlib.Path], name: str
) -> None:
    user.run("load", "-", stdin=PROFILE)
    user.types("I live in York, you know")
    path = put(name)
    with quickly():
        assert name in user.problems()
        for command in ("show", "add chess", "history", "search Leeds", "pause", "resume", "update", "undo"):
            done = CliRunner(env=user.env).invoke(memory_group, command.split(), obj=Settings())
            assert done.exit_code == 0 or (done.exit_code == 1 and name in done.stderr), (command, done)
        with contextlib.suppress(Problem, OSError):
            user.learns("NO_UPDATE")
    assert "Lives in Leeds" in user.facts
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    user.run("add", "Plays go")
    assert "Plays go" in user.facts
