"""People with homes of their own, and the installed `llm`, run as their shell runs it.

Nothing of the tests is used but the scripted model. To be quick, a command is a fork of a process that has loaded llm
and its plugins; it reads its person's environment as a new process does.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shlex
import signal
import struct
import sys
import tempfile
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
    hung: bool = False


class Person:
    """Somebody with a fresh home, whose default model is the scripted one."""

    patience = 600.0  # seconds for a command, which is then killed
    is_bound = False  # by modes and owners, also if this is root

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._said: dict[int, list[int]] = {}  # files of what a process prints
        self.user_dir = folder / "llm"
        self.memory = self.user_dir / "memory"
        self.profile = self.memory / "profile.md"
        self.script = self.user_dir / "scripted"
        self.script.mkdir(parents=True)
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

    def start(self, *args: str, terminal: bool = False, plain: bool = False, **env: str) -> int:
        """Start `llm` as the shell function does; return the process's id once llm is loaded.

        It may print to a ``terminal``, or be ``plain``: without memory.
        """
        if terminal:
            pairs = [os.openpty(), os.openpty()]
        else:
            pairs = [_new_file(), _new_file()]
        loaded, loads = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(loaded)
            self._become(args, env, loads, [print_to for _, print_to in pairs], is_plain=plain)
        for given in (loads, *(print_to for _, print_to in pairs)):
            os.close(given)
        self._said[pid] = [file for file, _ in pairs]
        os.read(loaded, 1)
        os.close(loaded)
        return pid

    def _become(
        self, args: tuple[str, ...], env: dict[str, str], loads: int, said: list[int], *, is_plain: bool
    ) -> None:
        code: object = 1
        try:
            os.setsid()
            for number, file in enumerate([os.open(os.devnull, os.O_RDWR), *said]):
                os.dup2(file, number)
            sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
            sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
            os.chdir(self.folder)
            if self.is_bound:
                _give_up_capabilities()
            os.environ.clear()
            line = f" {shlex.join(['llm', *args])}"
            os.environ.update(self.env | {"LLM_MEMORY_AUTO": "1", "LLM_MEMORY_LINE": line} | env)
            time.tzset()
            sys.argv = ["llm", *args]
            for name in ("prompt", "chat"):
                vars(cli.commands[name]).pop("invoke", None)  # what memory put there in another environment
            if is_plain:
                pm.unregister(name="llm_user_memory")
                del cli.commands["memory"]
            else:
                pm.hook.register_commands(cli=cli)
            os.close(loads)
            cli()
        except SystemExit as ended:
            code = ended.code
        except BaseException:  # noqa: BLE001 - Python would print it after this
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            os._exit(code if isinstance(code, int) else code is not None)

    def wait(self, pid: int) -> Done:
        deadline = time.monotonic() + self.patience
        ended, status = os.waitpid(pid, os.WNOHANG)
        while not ended and time.monotonic() < deadline:
            time.sleep(0.002)
            ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            os.killpg(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
        said = [_all_in(file) for file in self._said.pop(pid)]
        return Done(os.waitstatus_to_exitcode(status), said[0], said[1], not ended)

    def kill(self, pid: int) -> Done:
        os.kill(pid, signal.SIGKILL)
        return self.wait(pid)

    def llm(self, *args: str, terminal: bool = False, plain: bool = False, **env: str) -> Done:
        return self.wait(self.start(*args, terminal=terminal, plain=plain, **env))

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


def _give_up_capabilities() -> None:
    """Be bound by modes and owners, and what this starts."""
    library = ctypes.CDLL(None)
    for capability in range(64):
        library.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
    version = struct.pack("Ii", 0x20080522, 0)
    library.capset(version, bytes(24))


def _new_file() -> tuple[int, int]:
    """Return a file without a name, twice."""
    with tempfile.TemporaryFile() as made:
        return os.dup(made.fileno()), os.dup(made.fileno())


def _all_in(file: int) -> str:
    """Return what was printed to a file or a terminal, and close it."""
    said = b""
    with contextlib.suppress(OSError):
        os.lseek(file, 0, os.SEEK_SET)
    with contextlib.suppress(OSError):  # a terminal that nobody has open any more
        while piece := os.read(file, 65536):
            said += piece
    os.close(file)
    return said.decode("utf-8", "replace").replace("\r\n", "\n")
