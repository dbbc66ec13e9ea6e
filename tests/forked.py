"""Start `llm` quickly: a process that has the libraries of others imported forks for each call.

llm, its plugins and our module are imported afresh by each call, in the environment and folder of that call, and it ends
as any Python program does. Only the libraries, which take most of the time of a start, are there already.
"""

from __future__ import annotations

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
    """Fork for each request and tell the exit code. Returns in the fork, which then is the call."""
    for library in ("click", "openai", "pydantic", "sqlite_utils"):
        importlib.import_module(library)
    while True:
        said, streams, _, _ = socket.recv_fds(asked, 1 << 20, 3)
        if not said:
            os._exit(0)
        if (pid := os.fork()) == 0:
            request = json.loads(said)
            asked.close()
            os.setsid()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            os.chdir(request["cwd"])
            os.environ.clear()
            os.environ.update(request["env"])
            time.tzset()
            sys.argv, sys.path[0] = request["args"], os.path.dirname(sys.executable)
            return
        for stream in streams:
            os.close(stream)
        asked.sendall(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


class Llm:
    """Runs `llm` in forks of one process, one call after another."""

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
        """Run a call to its end: its exit code, output and errors."""
        file = tempfile.TemporaryFile
        with self.lock, file() as into, file() as out, file() as err:
            into.write(typed)
            into.seek(0)
            request = json.dumps({"args": args, "env": env, "cwd": str(cwd)}).encode()
            self.ours.settimeout(patience)
            socket.send_fds(self.ours, [request], [into.fileno(), out.fileno(), err.fileno()])
            try:
                code = int(self.ours.recv(20))
            except TimeoutError:
                self.process.kill()  # or the next call would be told how this one ended
                raise
            out.seek(0)
            err.seek(0)
            return code, out.read(), err.read()

    def close(self) -> None:
        self.ours.close()
        self.process.wait()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
    from llm.cli import cli

    sys.exit(cli())
