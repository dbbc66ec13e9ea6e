"""A person's shell in a terminal, with the function that `install-shell` put there."""

from __future__ import annotations

import os
import pty
import select
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from person import Person

PATIENCE = 60.0
RC = {
    "bash": "PS1='$ '; unset HISTFILE; HISTCONTROL=ignorespace; PROMPT_COMMAND='echo >>~/prompts'\n",
    "zsh": "PS1='$ '; setopt hist_ignore_space; precmd() { echo >>~/prompts; }\n",
}


class Shell:
    """Type lines into it."""

    def __init__(self, person: Person, program: str) -> None:
        self.prompts = person.folder / "prompts"
        self.prompts.touch()
        (person.folder / f".{program}rc").write_text(RC[program])
        person.llm("memory", "install-shell", "--shell", program)
        self.shown = ""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(person.folder)
            os.execvpe(program, [program, "-i"], person.env | {"TERM": "dumb", "SHELL": program})
        self.until(lambda: self.count() > 0, "a first prompt")

    def count(self) -> int:
        return self.prompts.stat().st_size

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not come; shown is {self.shown[-1000:]!r}")
            if select.select([self.terminal], [], [], 0.02)[0]:
                self.shown += os.read(self.terminal, 65_536).decode("utf-8", "replace")

    def type(self, line: str, asked: Sequence[tuple[str, str]] = ()) -> None:
        """Type a line, then an answer to each thing asked, and wait for the next prompt."""
        known = self.count()
        self.shown = ""
        self.keys(line)
        for question, answer in asked:
            self.until(lambda wanted=question: wanted in self.shown, question)  # type: ignore[misc]
            self.shown = ""
            self.keys(answer)
        self.until(lambda: self.count() > known, f"a prompt after {line}")

    def keys(self, text: str) -> None:
        os.write(self.terminal, f"{text}\r".encode())

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)
