"""People with homes of their own, and the installed `llm`, run as their shell runs it.

Nothing of the tests is used but the scripted model. To be quick, a command is a fork of a process that has loaded llm
and its plugins; it reads its person's environment as a new process does.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

import filelock
from llm.cli import cli
from llm.plugins import pm

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Person:
    """Somebody with a fresh home, whose default model is the scripted one."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.user_dir = folder / "llm"
        self.memory = self.user_dir / "memory"
        self.profile = self.memory / "profile.md"
        self.script = self.user_dir / "scripted"
        self.script.mkdir(parents=True)
        self.typed = folder / "typed"  # what a command is given to read
        self.typed.touch()
        self.streams: list[int] = []  # what it reads and writes instead
        self.patience = 0  # seconds until it is killed, if it hangs
        (self.user_dir / "default_model.txt").write_text("scripted")
        self.env = {
            "HOME": str(folder),
            "PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "LLM_USER_PATH": str(self.user_dir),
            "LLM_MEMORY_UPDATE_INTERVAL": "0.1",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),  # a copy of the module, broken on purpose
        }

    def start(self, *args: str, **env: str) -> int:
        """Start `llm` as the shell function does; return the process's id once llm is loaded."""
        loaded, loads = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._become(args, env, loads)
        os.close(loads)
        os.read(loaded, 1)
        os.close(loaded)
        return pid

    def _become(self, args: tuple[str, ...], env: dict[str, str], loads: int) -> None:
        code: object = 1
        try:
            os.setsid()
            self._open_streams()
            os.chdir(self.folder)
            os.environ.clear()
            os.environ.update(self.env | as_typed(args) | env)
            signal.alarm(self.patience)
            time.tzset()
            sys.argv = ["llm", *args]
            pm.hook.register_commands(cli=cli)  # again, in this environment
            os.close(loads)
            cli()
        except SystemExit as ended:
            code = ended.code
        except BaseException:  # noqa: BLE001 - Python would print it after this
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code if isinstance(code, int) else code is not None)

    def _open_streams(self) -> None:
        """Open them as a new process does: what Python knows of the old ones is not true of these."""
        streams = self.streams
        if not streams:
            names = [self.typed, *(self.folder / f"{name}-{os.getpid()}" for name in ("out", "err"))]
            streams = [os.open(name, os.O_RDWR | os.O_CREAT) for name in names]
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115

    def wait(self, pid: int) -> Done:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said = []
        for name in ("out", "err"):
            path = self.folder / f"{name}-{pid}"
            said.append(path.read_text("utf-8", "replace") if path.exists() else "")
            path.unlink(missing_ok=True)
        return Done(code, *said)

    def kill(self, pid: int) -> Done:
        os.kill(pid, signal.SIGKILL)
        return self.wait(pid)

    def llm(self, *args: str, **env: str) -> Done:
        return self.wait(self.start(*args, **env))

    def program(self, *args: str, **env: str) -> Done:
        """Start a new process, which is slower."""
        with self.typed.open("rb") as typed:
            env = self.env | as_typed(args) | env
            ended = subprocess.run(
                ["llm", *args],
                stdin=typed,
                capture_output=True,
                cwd=self.folder,
                env=env,
                timeout=self.patience or None,
                check=False,
            )
        return Done(ended.returncode, *(said.decode("utf-8", "replace") for said in (ended.stdout, ended.stderr)))

    def terminal(self, *args: str, **env: str) -> Done:
        """Run a command in a terminal; all that is said there is its output."""
        ours, theirs = pty.openpty()
        os.write(ours, self.typed.read_bytes()[:1_000] + b"\4" * 9)
        self.streams = [theirs] * 3
        pid = self.start(*args, **env)
        self.streams = []
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # nobody has the terminal open any more
            while piece := os.read(ours, 65_536):
                said += piece
        os.close(ours)
        return Done(self.wait(pid).code, said.decode("utf-8", "replace"), "")

    def data(self, *args: str) -> Any:
        """Run a command of `llm memory` with --json."""
        done = self.llm("memory", *args, "--json")
        return json.loads(done.out)

    @contextlib.contextmanager
    def without_worker(self) -> Iterator[None]:
        """Let no worker start, by holding its lock."""
        self.memory.mkdir(0o700, exist_ok=True)
        with filelock.FileLock(self.memory / "worker.lock"):
            yield

    def text(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self.profile.read_text("utf-8")
        return ""

    def save(self, text: str) -> None:
        """Save as an editor did a while ago."""
        self.memory.mkdir(0o700, exist_ok=True)
        self.profile.write_text(text, "utf-8")
        os.utime(self.profile, (time.time() - 5,) * 2)


def as_typed(args: tuple[str, ...]) -> dict[str, str]:
    """Return what the shell function adds to the environment of a line."""
    return {"LLM_MEMORY_AUTO": "1", "LLM_MEMORY_LINE": f" {shlex.join(['llm', *args])}"[:30_000]}
