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
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any


def serve(asked: socket.socket) -> None:
    """Fork for each request and report its exit code. Returns in the fork, which then is the call."""
    for library in ("click", "openai", "pydantic", "sqlite_utils"):
        importlib.import_module(library)
    gc.freeze()  # or each call would collect, and so copy, all of this memory
    while True:
        _, files, _, _ = socket.recv_fds(asked, 1, 4)
        if not files:
            os._exit(0)
        if (pid := os.fork()) == 0:
            asked.close()
            os.setsid()
            with open(files.pop(), encoding="utf-8") as file:
                call = json.load(file)
            for number, stream in enumerate(files):
                os.dup2(stream, number)
                os.close(stream)
            os.chdir(call["cwd"])
            os.environ.clear()
            os.environ.update(call["env"])
            time.tzset()
            sys.argv, sys.path[0] = call["args"], os.path.dirname(sys.executable)
            return
        for stream in files:
            os.close(stream)
        asked.sendall(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


class Llm:
    """Run `llm` in forks of one process, one call after another."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
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

    def __call__(
        self, args: list[str], env: dict[str, str], cwd: Any, typed: bytes, patience: float
    ) -> tuple[int, bytes, bytes]:
        """Run a call to its end; return its exit code, output and errors."""
        with self.lock, contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(4)]
            call = {"args": args, "env": env, "cwd": str(cwd)}
            for file, data in ((files[0], typed), (files[3], json.dumps(call).encode())):
                file.write(data)
                file.seek(0)
            self.ours.settimeout(patience)
            socket.send_fds(self.ours, [b"?"], [file.fileno() for file in files])
            try:
                code = int(self.ours.recv(20))
            except TimeoutError:
                self.process.kill()  # or the next call would get this one's exit code
                raise
            for file in files[1:3]:
                file.seek(0)
            return code, files[1].read(), files[2].read()

    def close(self) -> None:
        self.ours.close()
        self.process.wait()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
    from llm.cli import cli

    sys.exit(cli())
