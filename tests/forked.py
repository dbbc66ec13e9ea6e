"""Start `llm` quickly: a process that has imported third-party libraries forks for each call.

Each call imports llm, its plugins and our module afresh, in its own environment and folder, and ends as any Python
program does. Only the libraries, which take most of the time of a start, are already imported.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LIBRARIES = ("click", "click_default_group", "condense_json", "openai", "puremagic", "sqlite_utils", "ulid", "yaml")


def serve(asked: socket.socket) -> None:
    """Fork for each request and report its exit code. Returns in the fork, which then is the call."""
    for library in LIBRARIES:
        importlib.import_module(library)
    gc.freeze()  # or each call would collect, and so copy, all of this memory
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready in select.select([asked.fileno(), *running], [], [])[0]:
            if ready in running:
                pid, told = running.pop(ready)
                with contextlib.suppress(BrokenPipeError):  # it was waited for no longer
                    os.write(told, b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(told)
                os.close(ready)
                continue
            _, files, _, _ = socket.recv_fds(asked, 1, 5)
            if not files:
                os._exit(0)
            if (pid := os.fork()) == 0:
                asked.close()
                become(*files)
                return
            running[os.pidfd_open(pid)] = pid, files.pop()
            for file in files:
                os.close(file)


def become(stdin: int, stdout: int, stderr: int, request: int, told: int) -> None:
    """Turn this fork into the call that was asked for."""
    os.close(told)
    os.setsid()
    with open(request, encoding="utf-8") as file:
        call = json.load(file)
    for number, (name, stream) in enumerate((("stdin", stdin), ("stdout", stdout), ("stderr", stderr))):
        os.dup2(stream, number)
        os.close(stream)
        # Opened anew, as Python does when it starts: what is known of the old file is not true of this one.
        mode, errors = "w" if number else "r", getattr(sys, name).errors
        setattr(sys, name, open(number, mode, -1 if number < 2 else 1, errors=errors, closefd=False))  # noqa: SIM115
    if os.isatty(0):
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(call["cwd"])
    os.environ.clear()
    os.environ.update(call["env"])
    time.tzset()
    sys.argv, sys.path[0] = call["args"], os.path.dirname(sys.executable)


class Llm:
    """Run `llm` in forks of one process."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"LANG": "C.UTF-8"},
        )
        theirs.close()

    def start(self, args: Sequence[str], env: dict[str, str], cwd: Any, *streams: int) -> Callable[[float], int]:
        """Start a call with these streams; returns what waits so many seconds for its end and gives its exit code."""
        told, tells = os.pipe()
        with tempfile.TemporaryFile() as request:
            request.write(json.dumps({"args": args, "env": env, "cwd": str(cwd)}).encode())
            request.seek(0)
            socket.send_fds(self.ours, [b"?"], [*streams, request.fileno(), tells])
        os.close(tells)

        def wait(patience: float) -> int:
            with open(told, "rb", buffering=0) as code:
                if not select.select([code], [], [], patience)[0]:
                    raise TimeoutError(f"{args} did not end within {patience:g} s")
                return int(code.read(20))  # other calls may have this pipe as well, and so it does not end

        return wait

    def __call__(
        self, args: list[str], env: dict[str, str], cwd: Any, typed: bytes, patience: float
    ) -> tuple[int, bytes, bytes]:
        """Run a call to its end; return its exit code, output and errors."""
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            files[0].write(typed)
            files[0].seek(0)
            code = self.start(args, env, cwd, *(file.fileno() for file in files))(patience)
            for file in files[1:]:
                file.seek(0)
            return code, files[1].read(), files[2].read()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
    from llm.cli import cli

    sys.exit(cli())
