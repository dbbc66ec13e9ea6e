"""A user with a home of their own, the real `llm`, and scripted models in it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BIN = pathlib.Path(sys.executable).parent
PATIENCE = float(os.environ.get("TEST_PATIENCE", "60"))
"""Seconds that anything in the background may take. Machines are noisy: long, and never slept through."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="run only the fuzzing tests, each for about so long; without it they take a small sample",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Where pytest is started in the background, Ctrl-C would mean nothing to the shells that it starts either.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    fuzz = config.getoption("--fuzz")
    settings.register_profile(
        "memory",
        max_examples=100 * int(fuzz) or (300 if "CI" in os.environ else 60),
        derandomize=not fuzz,  # a failure of the suite is one that its reader can have as well
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    settings.load_profile("memory")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--fuzz"):
        fuzzing = [item for item in items if "fuzz" in getattr(item, "fixturenames", ()) or is_hypothesis_test(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in fuzzing])
        items[:] = fuzzing


def is_hypothesis_test(item: pytest.Item) -> bool:
    return hasattr(getattr(item, "obj", None), "hypothesis")


@pytest.fixture(scope="session")
def fuzz(pytestconfig: pytest.Config) -> float:
    """Seconds for which a fuzzing test may go on; 0 for a small sample."""
    return float(pytestconfig.getoption("--fuzz"))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say how much of what could be fuzzed was."""
    for report in terminalreporter.getreports("passed") if config.getoption("--fuzz") else ():
        for name, value in report.user_properties:
            if name == "fuzzed":
                terminalreporter.write_line(f"{value}: {report.nodeid.rpartition('::')[2]}")


def eventually(condition: Callable[[], Any], what: str = "it", patience: float = PATIENCE) -> Any:
    """Poll until the condition is true, and return its value."""
    deadline = time.monotonic() + patience
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {patience:g} s")
        time.sleep(0.02)


def holder(path: pathlib.Path) -> int | None:
    """The process that has a lock on this file. Its text is of no use: on a full disk there is none."""
    if not path.exists():
        return None
    found = re.search(
        rf" FLOCK +ADVISORY +WRITE (\d+) \S+:{path.stat().st_ino} ", pathlib.Path("/proc/locks").read_text()
    )
    return int(found[1]) if found else None


@dataclass
class User:
    """Someone with a fresh HOME and llm user directory, and a default model of `scripted`."""

    folder: pathlib.Path
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True)
        self.env = {
            "HOME": str(self.home),
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "SHELL": "/bin/bash",
            "LLM_USER_PATH": str(self.user_dir),
            "LLM_MEMORY_UPDATE_INTERVAL": "0.1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TZ": "UTC",
        }
        if "PYTHONPATH" in os.environ:  # a copy of the module, broken on purpose to see a test fail
            self.env["PYTHONPATH"] = os.environ["PYTHONPATH"]
        self.user_dir.mkdir()
        (self.user_dir / "default_model.txt").write_text("scripted")

    @property
    def home(self) -> pathlib.Path:
        return self.folder / "home"

    @property
    def user_dir(self) -> pathlib.Path:
        return self.folder / "llm user"

    @property
    def places(self) -> memory.Home:
        return memory.Home(self.user_dir, isolated=True)

    @property
    def script(self) -> pathlib.Path:
        """The folder of the scripted models' files."""
        folder = self.user_dir / "scripted"
        folder.mkdir(exist_ok=True)
        return folder

    # Running llm

    def llm(
        self,
        *args: str,
        auto: str | None = "1",
        input: str | bytes | None = None,  # noqa: A002
        check: bool = True,
        **env: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run `llm` as the shell function does (`auto=None`: as `command llm` does)."""
        done = self.start(*args, auto=auto, stdin=subprocess.PIPE, **env)
        data = input.encode() if isinstance(input, str) else input
        out, err = done.communicate(data or b"", timeout=PATIENCE)
        result = subprocess.CompletedProcess(
            done.args, done.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
        )
        if check:
            assert result.returncode == 0, result
        return result

    def start(self, *args: str, auto: str | None = "1", stdin: Any = subprocess.DEVNULL, **env: str) -> Any:
        """Start `llm` and return the process."""
        environ = self.env | ({"LLM_MEMORY_AUTO": auto} if auto is not None else {}) | env
        return subprocess.Popen(
            [BIN / "llm", *args],
            env=environ,
            cwd=self.folder,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def terminal(self, *command: str, auto: str | None = "1", **env: str) -> Terminal:
        """Run a command in a pseudo-terminal; `llm …` is the virtual environment's."""
        environ = self.env | ({"LLM_MEMORY_AUTO": auto} if auto is not None else {}) | env
        return Terminal(command, environ, self.folder)

    # What came of it

    def calls(self, *, update: bool | None = None) -> list[dict[str, Any]]:
        """What the scripted models were sent, oldest first."""
        path = self.script / "calls.jsonl"
        if not path.exists():
            return []
        calls = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        return [call for call in calls if update is None or call["update"] == update]

    @property
    def profile(self) -> str:
        return memory.read_profile(self.places.profile)

    @profile.setter
    def profile(self, text: str) -> None:
        self.places.create()
        self.places.profile.write_bytes(text.encode())

    @property
    def facts(self) -> list[str]:
        return [item.text for item in memory.Document(self.profile).items]

    def memory(self) -> memory.Memory:
        return memory.Memory(self.places)

    def status(self, **env: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.llm("memory", "status", "--json", auto=None, check=True, **env).stdout)
        return found

    def reply(self, text: str | None) -> None:
        """What every update request is answered with; `None`: what the scripted model does by itself."""
        if text is None:
            (self.script / "update.txt").unlink(missing_ok=True)
        else:
            (self.script / "update.txt").write_text(text, "utf-8")

    # The worker

    def worker_runs(self) -> bool:
        return memory.worker_runs(self.places)

    def worker_pid(self) -> int:
        """The pid of the running worker, waiting for it to have started."""
        return int(eventually(lambda: holder(self.places.worker_lock), "a worker"))

    def workers(self) -> list[int]:
        """The pids of all worker processes of this user, whether they hold the lock or not."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                command, environ = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
            except OSError:
                continue
            if command.endswith(b"memory\0worker\0") and os.fsencode(self.user_dir) in environ:
                found.append(int(folder.name))
        return found

    def kill_worker(self, how: int = signal.SIGKILL) -> None:
        pid = self.worker_pid()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)
        # One that waited for the lock may take over at once.
        eventually(lambda: holder(self.places.worker_lock) != pid, "the worker's end")

    def settled(self) -> None:
        """Wait until a worker has looked at every logged turn and nothing is waiting."""

        def nothing_waits() -> bool:
            last = self.query("select coalesce(max(id), 0) from turn_search")
            with contextlib.suppress(sqlite3.Error), self.memory() as opened:
                return opened.cursor()[0] >= last and not opened.count_turns("pending")
            return False

        eventually(nothing_waits, "the worker's work")

    def make_log(self) -> None:
        """Create llm's log, with nothing in it."""
        import sqlite_utils
        from llm.migrations import migrate

        with contextlib.closing(sqlite3.connect(self.places.logs)) as db:
            migrate(sqlite_utils.Database(db))
            db.commit()

    def query(self, sql: str, path: pathlib.Path | None = None) -> Any:
        """The first value that a query of llm's log (or another database) gives."""
        with contextlib.closing(sqlite3.connect(path or self.places.logs)) as db:
            return db.execute(sql).fetchone()[0]


class Terminal:
    """A program in a pseudo-terminal: type into it, and wait for what it shows."""

    def __init__(self, command: tuple[str, ...], env: dict[str, str], cwd: pathlib.Path) -> None:
        self.shown = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(command[0], list(command), env)

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def end(self) -> None:
        """Ctrl-D."""
        self.type("\x04")

    def expect(self, pattern: str) -> str:
        """Wait until what was shown since the last match holds the pattern."""
        deadline = time.monotonic() + PATIENCE
        while not (match := re.search(pattern, self.shown, re.DOTALL)):
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(f"{pattern!r} never came; shown: {self.shown!r}")
        before, self.shown = self.shown[: match.end()], self.shown[match.end() :]
        return before

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self.fd], [], [], max(seconds, 0))
        try:
            data = os.read(self.fd, 65536) if ready else b""
        except OSError:
            data = b""
        self.shown += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)

    def wait(self) -> int:
        """Wait for the program's end; its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline - time.monotonic()):
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def user(tmp_path: pathlib.Path) -> Iterator[User]:
    """A new user; their worker ends with the test."""
    someone = User(tmp_path / "user")
    yield someone
    while pids := someone.workers():  # also one that has only just been started
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
