"""A user with a home of their own, the real `llm`, and scripted models in it."""

from __future__ import annotations

import atexit
import compileall
import contextlib
import datetime as dt
import functools
import inspect
import json
import os
import pathlib
import random
import re
import select
import shlex
import signal
import sqlite3
import struct
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import filelock
import llm
import llm.cli
import llm_scripted
import llm_user_memory_shell
import psutil
import pytest
import sqlite_utils
from click.testing import CliRunner
from forked import Llm
from hypothesis import HealthCheck, settings
from llm.migrations import migrate

import llm_user_memory as memory
from llm_user_memory import Edit, Reply, Result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BIN = pathlib.Path(sys.executable).parent
PATIENCE = float(os.environ.get("TEST_PATIENCE", "60"))
"""Seconds that anything in the background may take. Machines are noisy: long, and never slept through."""

posix_only = pytest.mark.skipif(os.name != "posix", reason="not run: this system is not POSIX")
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="not run: needs root")

Answer = str | Callable[[str, str], "str | Reply"]
"""A model's reply to every learning request, or a function of its id and the request."""

PROFILE = f"{memory.TITLE}\n\n## Personal Information\n- Lives in Leeds\n\n## Preferences\n- Likes short answers\n"
"""A line in each of two sections."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="run only the fuzzing tests, each for about so long; without it they take a small sample",
    )


def has_room_in_memory(folder: str) -> bool:
    """Tell whether tests can have their files here, and run programs."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize > 1_000_000_000 and not room.f_flag & os.ST_NOEXEC


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a start of llm takes twice as long where Python keeps no compiled code
        for module in (memory, llm_user_memory_shell, llm_scripted):
            compileall.compile_dir(os.path.dirname(inspect.getfile(module)), maxlevels=0, quiet=2)
        compileall.compile_dir(sysconfig.get_path("purelib"), quiet=2, workers=0)
    if sys.platform == "linux" and has_room_in_memory("/dev/shm"):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")  # thousands of small databases wait for no disk
    # Where pytest is started in the background, Ctrl-C would mean nothing to the shells that it starts either.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    fuzz = config.getoption("--fuzz")
    settings.register_profile(
        "memory",
        max_examples=100 * int(fuzz) or (200 if "CI" in os.environ else 40),
        derandomize=not fuzz,  # a failure of the suite is one that its reader can have as well
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    settings.load_profile("memory")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    fuzzing = [item for item in items if "fuzz" in item.fixturenames or hasattr(item.obj, "hypothesis")]
    for item in fuzzing:  # Hypothesis takes up to five minutes to make a failing case smaller
        item.add_marker(pytest.mark.timeout(900 + config.getoption("--fuzz")))
    if config.getoption("--fuzz"):
        config.hook.pytest_deselected(items=[item for item in items if item not in fuzzing])
        items[:] = fuzzing


@pytest.fixture(scope="session")
def fuzz(pytestconfig: pytest.Config) -> float:
    """Seconds for which a fuzzing test may go on; 0 for a small sample."""
    return float(pytestconfig.getoption("--fuzz"))


@pytest.fixture
def chance(pytestconfig: pytest.Config, fuzz: float) -> random.Random:
    """The same in every run of the suite, and of fuzzing with the same --hypothesis-seed."""
    return random.Random(pytestconfig.getoption("--hypothesis-seed") if fuzz else 0)


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
        looked = time.monotonic()
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {patience:g} s")
        time.sleep(max(0.02, 3 * (time.monotonic() - looked)))  # what is waited for needs the processor as well


def state(pid: int) -> str:
    """What a process does, as psutil calls it; `""` if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        status = psutil.Process(pid).status()
        return "" if status == psutil.STATUS_ZOMBIE else status
    return ""


def kill(pid: int) -> None:
    """End a process at once, if it is still there."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).kill()


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, time: dt.datetime = dt.datetime(2026, 11, 20, 12, tzinfo=dt.timezone.utc)) -> None:
        self.time = time

    def __call__(self) -> dt.datetime:
        return self.time

    def advance(self, **span: float) -> None:
        self.time += dt.timedelta(**span)


class Listener(llm.Model):
    """Answers so that llm has something to log."""

    model_id = "scripted"

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: Any = None
    ) -> Iterator[str]:
        yield "I see."


@functools.cache
def empty_log() -> sqlite_utils.Database:
    """llm's log with nothing in it, made by llm, which takes 0.1 s."""
    log = sqlite_utils.Database(memory=True)
    migrate(log)
    return log


def make_log(home: memory.Home) -> sqlite_utils.Database:
    """llm's log, as llm makes it if it is not there."""
    home.user_dir.mkdir(parents=True, exist_ok=True)
    fresh = not home.logs.exists()
    log = sqlite_utils.Database(home.logs)
    if fresh:
        empty_log().conn.backup(log.conn)
    migrate(log)
    return log


def note(text: str, turn: str, **fields: Any) -> str:
    """The note that a call leaves of words typed now."""
    given = {"id": turn, "at": memory.utc_now().isoformat(), "length": len(text), "sha256": memory.digest(text)}
    return json.dumps({**given, "model": "", "review": False, **fields})


def typed(home: memory.Home, *texts: str, thread: llm.Conversation | None = None, **fields: Any) -> None:
    """What calls leave behind: a turn in llm's log for each, written by llm, and a line in the journal."""
    home.create()
    for text in texts:
        response = (thread or Listener()).prompt(text)
        response.text()
        response.log_to_db(make_log(home))
        memory.append_line(home.journal, note(text, response.id, **fields))


def look_reply(model: str, request: str) -> str:
    """Say of each fact, in a second look, that the user says it."""
    return "\n".join(f"{number} y" for number in llm_scripted.FACT.findall(request))


def answering(reply: Answer, meanwhile: Callable[[], object] = lambda: None, look: Answer = look_reply) -> memory.Ask:
    """A model that gives this reply, or what this function returns, while something else happens."""

    def ask(model: str, request: str) -> Reply:
        answer = look if llm_scripted.is_look(request) else reply
        if not llm_scripted.is_look(request):
            meanwhile()
        said = answer if isinstance(answer, str) else answer(model, request)
        return (said, len(request) // 4, len(said) // 4) if isinstance(said, str) else said

    return ask


def learn(
    home: memory.Home,
    reply: Answer,
    meanwhile: Callable[[], object] = lambda: None,
    look: Answer = look_reply,
) -> memory.Result | None:
    """Learn one batch of what was typed, with a model that answers so, while something else happens."""
    with memory.Memory(home) as opened:
        opened.history.adopt()
        memory.take_in(opened)
        return memory.Learner(opened, memory.Settings(), answering(reply, meanwhile, look)).learn()


class Judgement(NamedTuple):
    """The verdicts on some edits, and the document with the good ones."""

    verdicts: list[memory.Verdict]
    document: memory.Document

    def of(self, outcome: str) -> list[memory.Verdict]:
        return [verdict for verdict in self.verdicts if verdict.outcome == outcome]


def judge(
    edits: Sequence[memory.Edit],
    seen: memory.Document,
    now: memory.Document,
    messages: Sequence[memory.Message],
    doubts: Sequence[str] = (),
    *,
    review_all: bool = False,
    **given: Any,
) -> Judgement:
    """Judge edits; a doubt of the second look stands in the place of its edit."""
    batch = memory.Batch("", messages or [memory.Message("")], review_all=review_all)
    given["doubts"] = dict(zip(edits, doubts, strict=False))
    return Judgement(*memory.judge(edits, seen, now, batch, **given))


def can_fork(environ: dict[str, str]) -> bool:
    """Tell whether a fork will do as `llm`: Python looks at its own variables only when it starts."""
    python = {name: value for name, value in environ.items() if name.startswith("PYTHON")}
    return sys.platform == "linux" and python.items() <= (os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}).items()


@functools.cache
def forked_llm() -> Llm:
    """Return what runs `llm` for this process of pytest."""
    server = Llm()
    atexit.register(server.close)
    return server


def fill(folder: pathlib.Path, free: int = 0) -> pathlib.Path:
    """Leave only so many bytes of this file system; returns the file that takes the rest."""
    filler = folder / "filler"
    room = os.statvfs(folder)
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        file.write(b"x" * max(room.f_bavail * room.f_frsize - free, 0))
    return filler


def long_saved(path: pathlib.Path) -> None:
    """Let a file be one that was saved so long ago that nobody is still writing it."""
    ago = time.time() - 2
    os.utime(path, (ago, ago))


def in_the_moment(change: pytest.MonkeyPatch, place: object, name: str, what: Callable[[], object]) -> None:
    """Do something right after the first call of this function."""
    function, happened = getattr(place, name), False

    def wrapped(*args: object, **kwargs: object) -> object:
        nonlocal happened
        result = function(*args, **kwargs)
        if not happened:
            happened = True
            what()
        return result

    change.setattr(place, name, wrapped)


@dataclass
class User:
    """Someone with a fresh HOME and llm user directory, and a default model of `scripted`."""

    folder: pathlib.Path
    env: dict[str, str] = field(default_factory=dict)
    thread: llm.Conversation = field(default_factory=lambda: Listener().conversation())

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True)
        self.env = {
            "HOME": str(self.home),
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" if os.name == "posix" else os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "SHELL": "/bin/bash",
            "LLM_USER_PATH": str(self.user_dir),
            "LLM_MEMORY_UPDATE_INTERVAL": "0.1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TZ": "UTC",
        }
        if sys.platform == "win32":  # what Python itself and a temporary folder need there
            names = ("SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP", "TMP")
            self.env |= {name: os.environ[name] for name in names if name in os.environ} | {
                "USERPROFILE": str(self.home)
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
        data = (input.encode() if isinstance(input, str) else input) or b""
        command, environ = [str(BIN / "llm"), *args], self._environ(auto, env, ("llm", *args))
        if can_fork(environ):
            code, out, err = forked_llm()(command, environ, self.folder, data, PATIENCE)
        else:
            done = self.start(*args, auto=auto, stdin=subprocess.PIPE, **env)
            out, err = done.communicate(data, timeout=PATIENCE)
            code = done.returncode
        result = subprocess.CompletedProcess(
            command, code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
        )
        if check:
            assert result.returncode == 0, result
        return result

    def start(self, *args: str, auto: str | None = "1", stdin: Any = subprocess.DEVNULL, **env: str) -> Any:
        """Start `llm` and return the process."""
        return subprocess.Popen(
            [BIN / "llm", *args],
            env=self._environ(auto, env, ("llm", *args)),
            cwd=self.folder,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def says(self, text: str, *args: str, **env: Any) -> None:
        """Prompt, and see that the call is as it would be without memory."""
        done = self.llm(*args, text, **env)
        assert (done.stdout, done.stderr) == (f"You said: {text}\n", "")

    def terminal(self, *command: str, auto: str | None = "1", **env: str) -> Terminal:
        """Run a command in a pseudo-terminal; `llm …` is the virtual environment's, and a fork where it can be."""
        return Terminal(command, self._environ(auto, {"COLUMNS": "100"} | env, command), self.folder)

    def _environ(self, auto: str | None, env: dict[str, str], command: Sequence[str]) -> dict[str, str]:
        """The environment of a command; with `auto`, as the shell function calls it with the line that was typed."""
        line = f" {shlex.join(command)}"[:30_000]
        given = {"LLM_MEMORY_AUTO": auto, "LLM_MEMORY_LINE": line} if auto is not None else {}
        return self.env | given | env

    # What came of it

    def calls(self, *, update: bool | None = None) -> list[dict[str, Any]]:
        """What the scripted models were sent, oldest first."""
        path = self.script / "calls.jsonl"
        if not path.exists():
            return []
        calls = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        return [call for call in calls if update is None or (call["update"] == update and not call["look"])]

    @property
    def profile(self) -> str:
        return memory.read_profile(self.places.profile)

    @profile.setter
    def profile(self, text: str) -> None:
        """Save the profile in another program, a moment ago: nobody has to wait for the rest of it."""
        self.places.create()
        self.places.profile.write_bytes(text.encode())
        long_saved(self.places.profile)

    @property
    def facts(self) -> list[str]:
        return [item.text for item in memory.Document(self.profile).items]

    def id_of(self, fact: str) -> str:
        """The id of the first line that says this."""
        return next(id for id, item in memory.Document(self.profile).ids.items() if item.text == fact)

    def memory(self, **options: Any) -> memory.Memory:
        return memory.Memory(self.places, **options)

    def run(self, *args: str, stdin: str | bytes | None = None, code: int = 0, **env: str) -> tuple[str, str]:
        """Run a command of memory's in this process, which is quicker: what it printed and what it said."""
        settings = memory.Settings(env)
        done = CliRunner(env=self.env | env).invoke(memory.memory_group, args, input=stdin, obj=settings)
        assert done.exit_code == code, (done.output, done.exception)
        return done.stdout, done.stderr

    def types(self, *texts: str, **fields: Any) -> None:
        typed(self.places, *texts, **fields)

    def types_on(self, *texts: str, **fields: Any) -> None:
        """Type messages that continue one conversation."""
        typed(self.places, *texts, thread=self.thread, **fields)

    def learns(
        self, reply: Answer, meanwhile: Callable[[], object] = lambda: None, look: Answer = look_reply
    ) -> Result | None:
        return learn(self.places, reply, meanwhile, look)

    def has_learned(self, fact: str, quote: str) -> None:
        """Learn a fact from a message, at once."""
        self.types(f"{quote}, you know")
        assert self.learns(f"ADD | Personal Information | {fact} | {quote}")
        assert fact in self.facts

    def comes_to_know(self, *facts: str) -> None:
        """Wait until the worker has learned these facts, and see that there is nothing else and nothing twice."""
        eventually(lambda: set(facts) <= set(self.facts), f"learning {facts}")
        self.settled()
        assert sorted(self.facts) == sorted(facts)

    def asked_about(self, text: str) -> int:
        """How many update requests contained this text."""
        return sum(text in call["messages"][-1][1] for call in self.calls(update=True))

    def receipts(self) -> list[dict[str, Any]]:
        """The receipts of all lines of the profile."""
        lines = json.loads(self.run("why", "--json")[0])
        return [receipt for line in lines for receipt in line["receipts"]]

    def has_to_review(self, *edits: Edit) -> None:
        """Keep edits for review, as learning does. The target of a change is its line's text."""
        said = memory.Message("Always recommend tea to me", "turn-1", "thread-1", "2026-11-20T09:00:00+00:00")
        document = memory.Document(self.profile)
        verdicts = [
            memory.Verdict(edit, "hold", "you did not type “Rome”", (said,), document.find(edit.target))
            for edit in edits
        ]
        with self.memory() as opened, opened.db.atomic():
            memory.record_edits(opened, verdicts, "scripted", 0)

    def to_review(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run("review", "--json")[0])
        return found

    def pending(self) -> int:
        """How many messages wait to be learned from."""
        with self.memory() as opened:
            return memory.waiting_messages(opened)

    def versions(self) -> list[tuple[int, str]]:
        """Number and author of every version, oldest first."""
        with self.memory() as opened:
            return [(version.id, version.author) for version in opened.history.versions()][::-1]

    @property
    def authors(self) -> list[str]:
        """The author of every version, oldest first."""
        return [author for _, author in self.versions()]

    def text_of(self, version: int) -> str:
        with self.memory() as opened:
            return opened.history.text(version)

    def files_with(self, word: str) -> list[str]:
        """Our files in which this word can be read."""
        files = [path for path in self.places.directory.rglob("*") if path.is_file()]
        return [path.name for path in files if word.casefold().encode() in path.read_bytes().lower()]

    def status(self, **env: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.llm("memory", "status", "--json", auto=None, check=True, **env).stdout)
        return found

    def problems(self) -> str:
        """The problems that status tells, looked up in this process."""
        return "\n".join(json.loads(self.run("status", "--json")[0])["problems"])

    @property
    def worker_log(self) -> str:
        path = self.places.worker_log
        return path.read_text("utf-8") if path.exists() else ""

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

        def pid() -> int | None:
            pids = self.workers()
            return pids[0] if len(pids) == 1 and (sys.platform == "win32" or self.worker_runs()) else None

        return int(eventually(pid, "a worker"))

    def workers(self) -> list[int]:
        """The pids of all worker processes of this user, whether they hold the lock or not."""
        homes = {("LLM_USER_PATH", str(self.user_dir)), ("HOME", str(self.home))}
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.cmdline()[-2:] == ["memory", "worker"] and homes & process.environ().items():
                    found.append(process)
        # On Windows, the python of a virtual environment starts another one and waits for it.
        launchers = {process.ppid() for process in found} if sys.platform == "win32" else set()
        return [process.pid for process in found if process.pid not in launchers]

    def kill_worker(self) -> None:
        pid = self.worker_pid()
        kill(pid)
        # Its other threads may hold the lock a moment longer.
        eventually(lambda: not (state(pid) or self.worker_runs()), "the worker's end")

    def settled(self) -> None:
        """Wait until a worker has taken in every note and nothing is waiting."""

        def nothing_waits() -> bool:
            with contextlib.suppress(sqlite3.Error), self.memory() as opened:
                return not memory.waiting_messages(opened)
            return False

        eventually(nothing_waits, "the worker's work")

    def make_log(self) -> None:
        """Create llm's log, with nothing in it."""
        make_log(self.places)

    def query(self, sql: str, path: pathlib.Path | None = None) -> Any:
        """The first value that a query of llm's log (or another database) gives."""
        with contextlib.closing(sqlite3.connect(path or self.places.logs)) as db:
            return db.execute(sql).fetchone()[0]


class Terminal:
    """A program in a pseudo-terminal of 200 columns: type into it, and wait for what it shows."""

    def __init__(self, command: Sequence[str], env: dict[str, str], cwd: pathlib.Path) -> None:
        pty = pytest.importorskip("pty", reason="not run: this system has no pseudo-terminals", exc_type=ImportError)
        import fcntl
        import termios

        self.shown = ""
        self.fd, terminal = pty.openpty()
        os.set_blocking(self.fd, False)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        if command[0] == "llm" and can_fork(env):
            self.ended = forked_llm().start([str(BIN / "llm"), *command[1:]], env, cwd, *[terminal] * 3)
        else:
            self.process = subprocess.Popen(
                command,
                env=env,
                cwd=cwd,
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - only a system call
            )
            self.ended = self.process.wait
        os.close(terminal)

    def type(self, text: str) -> None:
        """Type, and read meanwhile: a program that can't show what it is given takes no more of it."""
        deadline = time.monotonic() + PATIENCE
        left = text.encode()
        while left:
            _, takes, _ = select.select([], [self.fd], [], 0.01)
            if takes:
                left = left[os.write(self.fd, left) :]
            elif time.monotonic() > deadline or not self._read(0):
                raise AssertionError(f"{text[:100]!r} could not be typed; shown: {self.shown[-2000:]!r}")

    def end(self) -> None:
        """Ctrl-D."""
        self.type("\x04")

    def until(self, condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
        """Read what is shown until the condition is true, and return its value."""
        deadline = time.monotonic() + patience
        goes_on = True
        while not (value := condition()):
            if not goes_on or time.monotonic() > deadline:
                raise AssertionError(f"{what} never came; shown: {self.shown[-2000:]!r}")
            goes_on = self._read(0.01)
        return value

    def expect(self, pattern: str, patience: float = PATIENCE) -> str:
        """Wait until what was shown since the last match holds the pattern."""
        match = self.until(lambda: re.search(pattern, self.shown, re.DOTALL), repr(pattern), patience)
        before, self.shown = self.shown[: match.end()], self.shown[match.end() :]
        return before

    def _read(self, seconds: float) -> bool:
        """Read what is shown within so many seconds; tell whether there may be more."""
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            data = b""
        self.shown += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)

    def wait(self) -> int:
        """Wait for the program's end; its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(0.1) and time.monotonic() < deadline:
            pass
        code = self.ended(max(deadline - time.monotonic(), 1))
        os.close(self.fd)
        return code


@pytest.fixture
def user(tmp_path: pathlib.Path) -> Iterator[User]:
    """A new user; their worker ends with the test."""
    someone = User(tmp_path / "user")
    yield someone

    def has_no_worker() -> bool:
        if not any(someone.folder.rglob("worker.lock")):  # the first thing of each, and quicker to look for
            return True
        workers = someone.workers()
        for pid in workers:
            kill(pid)
        return not workers  # also none that had only just been started

    eventually(has_no_worker, "the worker's end")


@pytest.fixture
def idle(user: User) -> Iterator[User]:
    """User whose calls start no worker, so that the journal stays."""
    user.places.create()
    with filelock.FileLock(user.places.lock_file("worker")):
        yield user
