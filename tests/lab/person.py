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

    patience = 600.0  # seconds until a command that hangs is killed
    is_bound = False  # by modes and owners, also if this is root

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.user_dir = folder / "llm"
        self.memory = self.user_dir / "memory"
        self.profile = self.memory / "profile.md"
        self.script = self.user_dir / "scripted"
        self.script.mkdir(parents=True)
        self._said: dict[int, list[int]] = {}  # by a process: where its output and its errors can be read
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

    def start(
        self,
        *args: str,
        typed: str = "",
        terminal: bool = False,
        plain: bool = False,
        new: bool = False,
        **env: str,
    ) -> int:
        """Start `llm` as the shell function does; return the process's id once llm is loaded.

        What is ``typed`` is its input. It may run in a ``terminal``, be ``plain``, without memory, or be a ``new``
        process, which is slower.
        """
        streams, said = _in_terminals(typed) if terminal else _in_pipes(typed)
        loaded, loads = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._become(args, env, streams, loads, is_plain=plain, is_new=new)
        for theirs in {*streams, loads}:
            os.close(theirs)
        for file in said:
            os.set_blocking(file, False)
        self._said[pid] = said
        os.read(loaded, 1)
        os.close(loaded)
        return pid

    def _become(
        self,
        args: tuple[str, ...],
        env: dict[str, str],
        streams: list[int],
        loads: int,
        *,
        is_plain: bool,
        is_new: bool,
    ) -> None:
        code: object = 1
        try:
            os.setsid()
            _open_streams(streams)
            os.chdir(self.folder)
            if self.is_bound:
                _give_up_capabilities()
            os.environ.clear()
            os.environ.update(self.env | _as_typed(args) | env)
            if is_new:
                os.execvp("llm", ["llm", *args])
            time.tzset()
            sys.argv = ["llm", *args]
            _load_plugin(is_plain=is_plain)
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

    def wait(self, pid: int) -> Done:
        """Read what a process says until it ends, or is killed when patience is at an end."""
        out, errors = self._said.pop(pid)
        said = {out: b"", errors: b""}
        deadline = time.monotonic() + self.patience
        ended = 0
        while not ended:
            time.sleep(0.002)
            is_late = time.monotonic() > deadline
            if is_late:
                os.killpg(pid, signal.SIGKILL)
            ended, status = os.waitpid(pid, os.WNOHANG)
            for file in said:
                said[file] += _all_there(file)
        done = Done(os.waitstatus_to_exitcode(status), _text(out, said[out]), _text(errors, said[errors]), is_late)
        for file in said:
            os.close(file)
        return done

    def kill(self, pid: int) -> Done:
        os.kill(pid, signal.SIGKILL)
        return self.wait(pid)

    def llm(self, *args: str, **how: Any) -> Done:
        """Run `llm` to its end, started as ``start`` can."""
        return self.wait(self.start(*args, **how))

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


def _as_typed(args: tuple[str, ...]) -> dict[str, str]:
    """Return what the shell function adds to the environment of a line."""
    return {"LLM_MEMORY_AUTO": "1", "LLM_MEMORY_LINE": f" {shlex.join(['llm', *args])}"[:30_000]}


def _in_pipes(typed: str) -> tuple[list[int], list[int]]:
    """Return a process's three streams, and where its output and its errors can be read."""
    given, gives = os.pipe()
    os.write(gives, typed.encode())
    os.close(gives)
    out, prints = os.pipe()
    errors, complains = os.pipe()
    return [given, prints, complains], [out, errors]


def _in_terminals(typed: str) -> tuple[list[int], list[int]]:
    """Return the same; errors have a terminal of their own, or nobody could tell them from the output."""
    screen, terminal = os.openpty()
    os.write(screen, typed.encode() + b"\4" * 9)  # Ctrl-D, for whatever reads on
    errors, complains = os.openpty()
    return [terminal, terminal, complains], [screen, errors]


def _open_streams(streams: list[int]) -> None:
    """Open them as a new process does: what Python knows of the old ones is not true of these."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _load_plugin(*, is_plain: bool) -> None:
    """Have memory's commands made in this environment, or do without memory."""
    for name in ("prompt", "chat"):
        vars(cli.commands[name]).pop("invoke", None)  # what memory put there in another environment
    if is_plain:
        pm.unregister(name="llm_user_memory")
        del cli.commands["memory"]
    else:
        pm.hook.register_commands(cli=cli)


def _give_up_capabilities() -> None:
    """Be bound by modes and owners, and what this starts."""
    library = ctypes.CDLL(None)
    for capability in range(64):
        library.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
    version = struct.pack("Ii", 0x20080522, 0)
    library.capset(version, bytes(24))


def _all_there(file: int) -> bytes:
    """Return what can be read now."""
    found = b""
    with contextlib.suppress(OSError):  # there is no more yet, or nobody has the terminal open any more
        while piece := os.read(file, 65_536):
            found += piece
    return found


def _text(file: int, said: bytes) -> str:
    """Return what was written, to a terminal without the returns that it adds."""
    if os.isatty(file):
        said = said.replace(b"\r\n", b"\n")
    return said.decode("utf-8", "replace")
