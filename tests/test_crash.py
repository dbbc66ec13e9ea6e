"""Killed, starved of disk, robbed of files: old or new, never a mix; nothing twice; nothing unlearned.

Everything that a fault is put into runs in a process of its own, forked from a
server that has llm loaded: a whole call takes 30 ms instead of a second, so
there can be many. It is the real `llm` command, the real log and the real
worker; only the start of the interpreter is saved.

Faults come from strace, which attaches to such a process and spoils one chosen
system call. Which there are, a first run without a fault tells. By default a
sample of them is spoiled; with --fuzz, as many as there is time for.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import json
import mmap
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from conftest import PATIENCE, User, eventually, fill, make_log, posix_only, state, typed
from llm_scripted import FACT, is_look

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = posix_only

SAMPLE = 5
"""System calls that one test spoils by default."""
HERE = pathlib.Path(__file__).parent

OURS = {"memory.db", "profile.lock", "learn.lock", "profile.md", "typed.jsonl", ".typed.jsonl.taken", "news"}
OURS |= {".memory.db.new", ".gitignore", "forgotten"}
OLD = "# User Profile\n\n## Interests\n- Plays the oboe\n- Likes tea\n"
FACTS = ["Plays the oboe", "Likes tea"]


# -- the server: processes that cost nothing to start --------------------------


def serve() -> None:
    """Fork a child for each line on stdin, which says what it is to do; tell its pid, or how it ended."""
    import llm.cli

    home = memory.Home(pathlib.Path(os.environ["WARM_UP"]), isolated=True)
    known_home(home)
    typed(home, "I live in Leeds")
    for what in ("write", "update", "undo"):
        operate(what, home)  # once, so that no import is among the system calls of a child
    # Of twenty plain calls at once, llm 0.36 alone fails sixteen with "database is locked". Here
    # they log one after the other, so that where one is locked out after all, it is by memory.
    for place, name in ((llm.cli, "migrate"), (llm.Response, "log_to_db")):
        setattr(place, name, one_at_a_time(getattr(place, name)))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    gc.freeze()
    for line in sys.stdin:
        task = json.loads(line)
        if task["do"] == "wait":
            answer = os.waitstatus_to_exitcode(os.waitpid(task["pid"], 0)[1])
        elif not (answer := os.fork()):
            os._exit(run_child(task, llm.cli.cli))
        print(answer, flush=True)


def run_child(task: dict[str, Any], cli: Any) -> int:
    """Do what the task says; the exit code tells whether it was done (0), or failed as it may (3)."""
    signal.alarm(int(PATIENCE))  # a child that hangs ends by this signal, and nobody waits for it for ever
    with open(task["output"], "ab", buffering=0) as output:
        for fd, file in enumerate((os.open(os.devnull, os.O_RDONLY), output.fileno(), output.fileno())):
            os.dup2(file, fd)
    os.environ |= task["env"]
    memory.IDLE_EXIT = task.get("idle", memory.IDLE_EXIT)
    linger_at_the_end(task.get("ponder", 0))
    if "gate" in task:
        pathlib.Path(task["gate"]).touch()
        signal.sigwait([signal.SIGUSR1])
    try:
        if task["do"] == "llm":
            memory.spawn_worker = fork_worker
            sys.argv = ["llm", *task["args"]]
            memory.memory_group.context_settings["obj"].line = f" llm {shlex.join(task['args'])}"
            cli.main(task["args"], standalone_mode=False)
            sys.stdout.flush()
        else:
            operate(task["do"], memory.Home.in_use()[-1])
    except BaseException as error:  # noqa: BLE001 - no failure may leave a child that goes on as the server
        import traceback

        with contextlib.suppress(OSError):  # the fault may be one of every write
            os.write(1, traceback.format_exc().encode())
        return 3 if isinstance(error, (OSError, sqlite3.Error, memory.Problem)) else 4
    return 0


def linger_at_the_end(seconds: float) -> None:
    """Have a worker take its time between its last look and giving up its lock."""
    poll = memory._poll_until_idle

    def poll_and_linger(*args: Any) -> str:
        stopped = poll(*args)
        time.sleep(seconds)
        with open(os.path.join(os.environ["LLM_USER_PATH"], "ended"), "a") as file:
            file.write("a worker\n")
        return stopped

    memory._poll_until_idle = poll_and_linger  # type: ignore[assignment]


def one_at_a_time(function: Any) -> Any:
    @functools.wraps(function)
    def alone(*args: Any, **kwargs: Any) -> Any:
        import fcntl

        with open(os.path.join(os.environ["LLM_USER_PATH"], "turnstile"), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return function(*args, **kwargs)

    return alone


def fork_worker(home: memory.Home) -> str:
    """Do what `spawn_worker` does."""
    if os.fork():
        return ""
    os.setsid()
    try:
        memory.run_worker(home, memory.Settings(os.environ))
    finally:
        os._exit(0)


def operate(what: str, home: memory.Home) -> None:
    """One of the things that change a profile."""
    with memory.Memory(home) as opened, pytest.MonkeyPatch.context() as change:
        if what == "write without exchange":
            change.setattr(ctypes, "CDLL", None)
        if what.startswith("write"):
            add(opened, "Plays chess")
        elif what == "undo":
            opened.history.undo(opened.history.latest())
        else:
            memory.take_in(opened)
            opened.db.execute("update turns set due = 0")
            list(iter(memory.Learner(opened, memory.Settings(), Asked(home)).learn, None))


def add(opened: memory.Memory, fact: str) -> None:
    def make(text: str) -> str:
        document = memory.Document(text)
        return text if document.has(fact) else document.add("Interests", fact).text

    opened.history.change("add", make)


class Asked:
    """The model. Counts in mapped memory how often it was asked, which takes no system call that could be spoiled."""

    def __init__(self, home: memory.Home) -> None:
        path = home.user_dir / "asked"
        if not path.exists():
            path.write_bytes(b"\0")
        with path.open("r+b") as file:
            self.count = mmap.mmap(file.fileno(), 1)

    def __call__(self, model: str, request: str) -> memory.Reply:
        if is_look(request):
            return "\n".join(f"{number} y" for number in FACT.findall(request)), 0, 0
        self.count[0] += 1
        facts = re.findall(r"^(I [a-z]+ .*)$", request, re.MULTILINE)
        # Ids come from the text: this one is of "Likes tea", which the first message takes back.
        changed = memory.Document("- Likes tea\n").ids
        edits = [f"ADD | Interests | {fact} | {fact}" for fact in facts]
        return ("\n".join(edits + [f"REMOVE | {id} | {facts[0]}" for id in changed]), 0, 0)


class Server:
    """The other end of `serve`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, **task: object) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(task), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def wait(self, pid: int) -> int:
        return self.ask(do="wait", pid=pid)

    def start(self, user: User, do: str, *, output: str = "output", **task: object) -> int:
        return self.ask(do=do, env=user.env, output=str(user.folder / output), **task)

    def llm(self, user: User, text: str, *, idle: float = 60.0) -> None:
        """A call that must go well and say nothing but the model's answer."""
        (user.folder / "output").unlink(missing_ok=True)
        code = self.wait(self.start(user, "llm", args=[text], idle=idle))
        assert (code, output(user)) == (0, f"You said: {text}\n")


def output(user: User) -> str:
    path = user.folder / "output"
    return path.read_text("utf-8") if path.exists() else ""


def learners(user: User) -> set[str]:
    """The pids of all workers that have learned something."""
    return set(re.findall(r" (\d+) [1-9]\d* edits?$", user.worker_log, re.MULTILINE))


@pytest.fixture
def user(user: User) -> Iterator[User]:
    """User whose forked workers, which look like their server, end with the test too."""
    yield user
    user.places.lock_file("worker").unlink(missing_ok=True)  # a worker without it ends


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    user = User(folder / "user")
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(HERE)])
    env = user.env | {"LLM_MEMORY_AUTO": "1", "PYTHONPATH": path, "WARM_UP": str(user.user_dir)}
    process = subprocess.Popen(
        [sys.executable, "-c", "import test_crash; test_crash.serve()"],
        env=env,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield Server(process)
        process.kill()  # it may still wait for a child


# -- a user without an llm ------------------------------------------------------


def known_home(home: memory.Home) -> None:
    """A home with a profile of two versions, and a log."""
    home.create()
    with memory.Memory(home) as opened:
        opened.history.change("load", lambda _: OLD.replace("- Likes tea\n", ""))
        opened.history.change("load", lambda _: OLD)
    make_log(home)
    Asked(home)


# -- every system call, spoiled -------------------------------------------------

FILES = re.compile(
    r"openat|p?writev?(64)?|readv?|f(data)?sync|rename(at2?)?|link(at)?|unlink(at)?|ftruncate|fallocate|mkdir(at)?"
    r"|f?chmod(at)?|flock|fcntl|newfstatat|statx?|fstat|getdents64|readlink(at)?|access|faccessat2?"
)
GROWING = re.compile(r"openat|p?writev?(64)?|f(data)?sync|rename(at2?)?|link(at)?|ftruncate|fallocate|mkdir(at)?")

FAULTS = {
    "killed": (re.compile(".*"), "signal=SIGKILL:when={}"),
    "one EIO": (FILES, "error=EIO:when={}"),
    "EIO from then on": (FILES, "error=EIO:when={}+"),
    "one ENOSPC": (GROWING, "error=ENOSPC:when={}"),
    "ENOSPC from then on": (GROWING, "error=ENOSPC:when={}+"),
}


@pytest.fixture(scope="module")
def strace() -> None:
    if not shutil.which("strace"):
        pytest.skip("not run: strace is not installed")
    # To a process that it has not started itself: many systems allow only root that.
    with subprocess.Popen(["sleep", "60"]) as process:
        command = ["strace", "-e", "trace=none", "-p", str(process.pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as attaching:
            assert attaching.stderr is not None
            said = attaching.stderr.readline()
            process.kill()
    if "attached" not in said:
        pytest.skip("not run: strace may not trace here")


def traced(server: Server, user: User, what: str, *options: str) -> int:
    """Run an operation under strace; its exit code, negative for a signal."""
    gate = user.folder / "gate"
    pid = server.start(user, what, gate=str(gate))
    eventually(gate.exists, "getting ready")
    trace = user.folder / "trace"
    strace = subprocess.Popen(
        ["strace", "-f", "-o", trace, *options, "-p", str(pid)],
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )
    with strace:
        try:
            assert strace.stderr is not None
            attached = strace.stderr.readline()
            assert "attached" in attached, attached
            os.kill(pid, signal.SIGUSR1)
            code = server.wait(pid)
            strace.wait(PATIENCE)  # until the trace is written
        finally:
            strace.kill()  # or leaving this `with` would wait for it
    return code


def system_calls(server: Server, user: User, what: str) -> list[tuple[str, int]]:
    """What a run without a fault calls: each system call, and how often it was called before, from 1."""
    assert traced(server, user, what) == 0, output(user)
    seen: dict[str, int] = {}
    calls = []
    names = re.findall(r"^\d+ +([a-z_]\w+)\(", (user.folder / "trace").read_text("utf-8", "replace"), re.MULTILINE)
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        calls.append((name, seen[name]))
    # What comes before is the signal that starts it; what comes behind is the interpreter's end.
    return [call for call in calls if call[0] not in {"exit_group", "exit", "rt_sigtimedwait"}]


def in_random_order(calls: list[tuple[str, int]], chance: random.Random) -> list[tuple[str, int]]:
    """The calls to spoil, those that change files more often among the first ``SAMPLE`` of them."""
    changing = [call for call in calls if GROWING.fullmatch(call[0]) or call[0].startswith("unlink")]
    first = chance.sample(changing, min(len(changing), SAMPLE * 2 // 3))
    rest = [call for call in calls if call not in first]
    return first + chance.sample(rest, len(rest))


@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("what", ["first write", "write", "write without exchange", "update", "undo"])
def test_a_fault_at_any_system_call_leaves_the_old_or_the_new_and_the_next_run_completes_it(
    server: Server,
    tmp_path: pathlib.Path,
    record_property: Callable[[str, object], None],
    fuzz: float,
    chance: random.Random,
    what: str,
    fault: str,
) -> None:
    pattern, injection = FAULTS[fault]
    model = User(tmp_path / "model")
    if what == "first write":
        model.places.create()
        model.profile = OLD
    else:
        known_home(model.places)
        typed(model.places, "I prefer coffee to tea now", "I live in Leeds")
    doing = what.removeprefix("first ")
    called = system_calls(server, a_copy(model, tmp_path / "whole"), doing)
    calls = in_random_order([call for call in called if pattern.fullmatch(call[0])], chance)
    ending = time.monotonic() + fuzz
    whole = a_copy(model, tmp_path / "expected")
    operate(doing, whole.places)
    new = whole.places.profile.read_bytes()
    old = model.places.profile.read_bytes()
    assert new != old
    ends = []
    for number, (name, when) in enumerate(calls):
        if number >= SAMPLE and time.monotonic() > ending:
            break
        user = a_copy(model, tmp_path / str(number))
        code = traced(server, user, doing, "-e", f"trace={name}", "-e", f"inject={name}:{injection.format(when)}")
        ends.append(code)
        try:
            check_what_is_left(user, doing, code, old, new)
        except Exception as error:
            trace = (user.folder / "trace").read_text("utf-8", "replace")[-2000:]
            raise AssertionError(
                f"{fault} at {name} number {when}, ended with {code}: {output(user)}\n{trace}"
            ) from error
        shutil.rmtree(user.folder)
    record_property("fuzzed", f"{len(ends)} of {len(calls)} system calls")
    assert set(ends) - {0}, "no fault had any effect"


def a_copy(model: User, folder: pathlib.Path) -> User:
    user = User(folder)
    shutil.copytree(model.user_dir, user.user_dir, dirs_exist_ok=True)
    return user


def check_what_is_left(user: User, what: str, code: int, old: bytes, new: bytes) -> None:
    home = user.places
    assert code in {0, 3, -9}, "a failure with no name"
    left = home.profile.read_bytes()
    assert left in {old, new}, "a mix"
    if code == 0:
        assert left == new, "it said it was done"
    # The next run
    if what == "update":
        operate(what, home)
    with user.memory() as opened:
        opened.history.adopt()
        settled = home.profile.read_bytes()
        assert settled in ({new} if what == "update" else {old, new})
        assert settled == new or left == old, "what was there has gone"
        texts = [opened.history.text(number).encode() for number in range(1, opened.history.latest() + 1)]
        assert texts[-1] == settled, "history knows another text"
        assert old in texts, "the old text can't be brought back"
        assert len(texts) == len(set(texts)) or what == "undo", "a version twice"
        assert user.query("pragma integrity_check", home.database) == "ok"
    if what == "update":
        assert sorted(user.facts) == sorted(["Plays the oboe", "I prefer coffee to tea now", "I live in Leeds"])
        assert user.query("select count(*) from edits where state = 'applied'", home.database) == 3, "a receipt twice"
        assert user.query("select count(*) from turns where state = 'done'", home.database) == 2
        asked = (home.user_dir / "asked").read_bytes()[0]
        assert asked <= 3, "after a request that failed each message is asked about once more"
    elif settled != new or what != "undo":
        # Whether it was done or not, doing it now does it, once.
        operate(what, home)
        assert home.profile.read_bytes() == new
    with user.memory() as opened:
        memory.set_state(opened.db, "a write", "")  # SQLite clears a dead journal away when it next writes
        opened.history.adopt()
    # What could not be read when it was looked at is kept, and said to be; what could not take its place, until the next write.
    kept = r"\.profile\.md\.new(\.unreadable-.*)?"
    assert [
        path for path in home.directory.iterdir() if path.name not in OURS and not re.fullmatch(kept, path.name)
    ] == []


# -- a disk that is really full --------------------------------------------------


@contextlib.contextmanager
def mounted(folder: pathlib.Path, *options: str) -> Iterator[None]:
    folder.mkdir(mode=0o700, exist_ok=True)
    if subprocess.run(["mount", *options, folder], capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_takes_no_note_and_disturbs_no_call(server: Server, user: User) -> None:
    with mounted(user.places.directory, "-t", "tmpfs", "-o", "size=400k,mode=700", "tmpfs"):
        known_home(user.places)
        user.profile = OLD
        filler = fill(user.places.directory, 0)
        server.llm(user, "I live in Leeds", idle=3)
        assert "is full; see: df -h" in user.problems()
        terminal = user.terminal("llm", "I play chess")
        terminal.expect("memory: learning did not start: .* No space left on device")
        assert terminal.wait() == 0
        filler.unlink()
        server.llm(user, "I work as a nurse", idle=3)
        learned(user, *FACTS, "I work as a nurse")
        eventually(lambda: not user.worker_runs(), "the worker's end")


def test_a_full_disk_is_said_where_the_profile_itself_is_on_another(user: User) -> None:
    elsewhere = user.folder / "me.md"
    elsewhere.write_text(OLD)
    with mounted(user.places.directory, "-t", "tmpfs", "-o", "size=400k,mode=700", "tmpfs"):
        user.places.profile.symlink_to(elsewhere)
        user.run("add", "Plays chess")
        fill(user.places.directory, 0)
        assert f"{user.places.directory.name} is full; see: df -h" in user.problems()


def test_a_home_that_cannot_be_written_to_changes_no_call_and_the_profile_is_still_sent(user: User) -> None:
    user.profile = OLD
    user.run("add", "Plays chess")
    make_log(user.places)
    scripted = user.folder / "scripted"
    scripted.mkdir()

    def said(*args: str, auto: str | None) -> tuple[int, str, str]:
        done = user.llm(*args, auto=auto, check=False, SCRIPTED_DIR=str(scripted))
        # Where llm itself fails, its last words count: the traceback shows that there is a plugin.
        return done.returncode, done.stdout, done.stderr.strip().rpartition("\n")[2]

    with mounted(user.user_dir, "--bind", str(user.user_dir)):
        subprocess.run(["mount", "-o", "remount,bind,ro", user.user_dir], check=True)
        for args in (("I live in Leeds",), ("-n", "I live in Leeds")):
            assert said(*args, auto="1") == said(*args, auto=None)
        for words in ("history", "diff", "why", "search chess", "show"):
            assert "Plays chess" in user.run(*words.split())[0]
        user.run("status")
        for words in ("add go", "edit", "undo"):
            told = user.run(*words.split(), code=1, EDITOR="true")[1]
            assert re.search("Read-only file system|can't be written to", told), words
    calls = [json.loads(line) for line in (scripted / "calls.jsonl").read_text("utf-8").splitlines()]
    assert sum("Plays the oboe" in str(call["system"]) for call in calls) == 2
    assert "Plays chess" in user.profile


# -- the databases, handled as people and programs do ------------------------------


def learned(user: User, *expected: str, times: int = 1) -> None:
    """Wait until the profile has these facts and no other, none twice, and no message was sent more often."""
    eventually(lambda: set(expected) <= set(user.facts), f"learning {expected}; {output(user)}")
    user.settled()
    assert sorted(user.facts) == sorted(expected)
    requests = [call["messages"][-1][1] for call in user.calls(update=True)]
    for fact in set(expected) - set(FACTS):
        assert 1 <= sum(request.count(f"\n{fact}\n</message") for request in requests) <= times, (
            f"{fact} was sent again"
        )


def in_wal_mode(path: pathlib.Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("pragma journal_mode = wal")


SPOILS: dict[str, Callable[[pathlib.Path, pathlib.Path], object]] = {
    "deleted": lambda path, _: path.unlink(),
    "restored": lambda path, backup: os.replace(backup, path),
    "in WAL mode": lambda path, _: in_wal_mode(path),
}
"""What people and programs do to a database, of which there is a backup."""


@pytest.mark.parametrize("database", ["logs.db", "memory.db"])
@pytest.mark.parametrize("spoil", SPOILS)
def test_what_is_typed_after_a_database_was_tampered_with_is_learned_and_nothing_twice(
    server: Server, user: User, spoil: str, database: str
) -> None:
    ours = database == "memory.db"
    path = user.places.database if ours else user.places.logs
    user.profile = OLD
    server.llm(user, "I live in Leeds")
    learned(user, *FACTS, "I live in Leeds")
    backup = user.folder / "backup"
    shutil.copy(path, backup)
    server.llm(user, "I work as a nurse")
    learned(user, *FACTS, "I live in Leeds", "I work as a nurse")
    SPOILS[spoil](path, backup)
    server.llm(user, "I play chess")
    # A new or an older database of ours does not know that what is still in the journal was learned.
    learned(user, *FACTS, "I live in Leeds", "I work as a nurse", "I play chess", times=1 + ours)
    with user.memory() as opened:
        if ours:
            opened.history.adopt()
            assert opened.history.text(opened.history.latest()) == user.profile
            assert user.query("pragma integrity_check", path) == "ok"
        else:
            assert len(learners(user)) == 1, "the worker did not survive it"
            assert "I work as a nurse" in opened.history.text(opened.history.latest() - 1)


# -- many at once ------------------------------------------------------------------


def test_twenty_first_calls_at_once_are_all_answered_and_learned_by_one_worker(server: Server, user: User) -> None:
    texts = [f"I like colour number {n}" for n in range(20)]
    make_log(user.places)
    pids = [
        server.start(user, "llm", output=text, args=[text], gate=str(user.folder / f"gate of {text}")) for text in texts
    ]
    eventually(lambda: len(list(user.folder.glob("gate of *"))) == len(texts), "all getting ready")
    for pid in pids:
        os.kill(pid, signal.SIGUSR1)
    assert [server.wait(pid) for pid in pids] == [0] * 20
    assert [(user.folder / text).read_text("utf-8") for text in texts] == [f"You said: {text}\n" for text in texts]
    learned(user, *texts)
    assert len(eventually(lambda: learners(user), "the log")) == 1
    assert "locked" not in user.worker_log


def test_no_call_is_overlooked_by_a_worker_that_is_about_to_exit(
    server: Server, tmp_path: pathlib.Path, fuzz: float
) -> None:
    """Each call comes at a random moment of a worker with a short life, and must be learned without another call.

    The dangerous moment lasts a millisecond; here it is made longer than the worker's life.
    """
    chance = random.Random(1)
    rounds = 30 if fuzz else 6
    users = [User(tmp_path / str(n)) for n in range(10 if fuzz else 6)]
    for user in users:
        make_log(user.places)
        user.env["LLM_MEMORY_UPDATE_INTERVAL"] = "0.03"

    def all_call(text: str) -> None:
        pids = [server.start(user, "llm", args=[text], idle=chance.uniform(0, 0.2), ponder=0.2) for user in users]
        for user, pid in zip(users, pids, strict=True):
            assert server.wait(pid) == 0, output(user)
        eventually(lambda: all(text in user.facts for user in users), f"learning {text}")

    texts = [f"I like colour number {number}" for number in range(rounds)]
    for text in texts:
        all_call(text)
    eventually(lambda: not any(user.worker_runs() for user in users), "the workers' end")
    ends = 0
    for user in users:
        learned(user, *texts)
        ends += (user.user_dir / "ended").read_text().count("a worker")
    assert ends > len(users) * rounds / 4, "workers seldom came to an end"


# -- the plugin goes while a worker runs -------------------------------------------------


def test_a_worker_whose_plugin_is_replaced_while_the_model_thinks_learns_once_and_makes_way(
    user: User, tmp_path: pathlib.Path
) -> None:
    copied = tmp_path / "site" / "llm_user_memory.py"
    copied.parent.mkdir()
    shutil.copy(memory.__file__, copied)
    user.env["PYTHONPATH"] = str(copied.parent)  # before the installed one
    (user.script / "slow.txt").write_text("NO_UPDATE 0.5")
    user.llm("I live in Leeds")
    eventually(lambda: user.calls(update=True), "the request")
    first = user.worker_pid()
    new = copied.with_name("new.py")
    shutil.copy(copied, new)
    os.replace(new, copied)
    learned(user, "I live in Leeds")
    eventually(lambda: not state(first), "its end")
    user.llm("I work as a nurse")
    learned(user, "I live in Leeds", "I work as a nurse")
