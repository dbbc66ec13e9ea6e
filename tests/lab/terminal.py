"""A person's shell in a terminal, with the function that `install-shell` put there."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import termios
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from person import Person

PATIENCE = 60.0
RC = {
    "bash": "PS1='$ '; unset HISTFILE; HISTCONTROL=ignorespace; PROMPT_COMMAND='echo >>~/prompts'\n",
    "zsh": "PS1='$ '; setopt hist_ignore_space; precmd() { echo >>~/prompts; }\n",
    "fish": (  # not by its prompt, which it shows again when a job in the background ends
        "function fish_prompt; echo '$ '; end; function fish_title; end; set -g fish_greeting\n"
        "function ended --on-event fish_postexec; echo >>~/prompts; end\n"
        "status is-interactive; and echo >>~/prompts\n"
    ),
    "nushell": (
        "$env.config.show_banner = false; $env.PROMPT_COMMAND = {|| '$ '}; $env.PROMPT_COMMAND_RIGHT = ''\n"
        '$env.config.hooks.pre_prompt = [{|| "\\n" | save --append --raw ~/prompts }]\n'
    ),
}
PLACES = {"fish": ".config/fish/config.fish", "nushell": ".config/nushell/config.nu"}
ASKED = {"\x1b[6n": "\x1b[1;1R", "\x1b[c": "\x1b[?62;c", "\x1b[0c": "\x1b[?62;c"}
"""What shells ask a terminal: where is the cursor, what are you?"""

PROMPT, COMMAND_ENDS = "\x1b]133;B", "\x1b]133;D"
"""What nushell tells a terminal."""


class Shell:
    """Type lines into it."""

    def __init__(self, person: Person, name: str, rc: str = "") -> None:
        self.name = name
        self.prompts = person.folder / "prompts"
        place = person.folder / PLACES.get(name, f".{name}rc")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(RC[name] + rc)
        # Or the first fish of a home would make completions of all manual pages, for half a minute.
        (person.folder / ".local/share/fish/generated_completions").mkdir(parents=True, exist_ok=True)
        person.llm("memory", "install-shell", "--shell", name)
        self.prompts.write_text("")  # install-shell has tried a shell
        program = shutil.which({"nushell": "nu"}.get(name, name)) or name
        self.shown = ""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(person.folder)
                path = f"{person.env['PATH']}:{os.path.dirname(program)}"
                os.execvpe(program, [program, "-i"], person.env | {"TERM": "dumb", "SHELL": program, "PATH": path})
            finally:
                os._exit(127)  # or this copy would go on as the lab
        self.until(lambda: self.count() > 0, "a first prompt")

    def count(self) -> int:
        return self.prompts.stat().st_size

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not come; shown is {self.shown[-1000:]!r}")
            self._read(0.02)

    def type(self, line: str, asked: Sequence[tuple[str, str]] = ()) -> None:
        """Type a line, then an answer to each thing asked until the program ends, and wait for the next prompt."""
        known = self.count()
        # Before the shell reads each key itself, the terminal keeps 4096 characters of a line and loses the rest.
        self.until(lambda: not termios.tcgetattr(self.terminal)[3] & termios.ICANON, "the shell's line editor")
        if self.name == "nushell":  # else its last questions are answered to the program that it starts
            self.until(lambda: self.shown.rfind(PROMPT) > self.shown.rfind(COMMAND_ENDS), "a prompt")
            while self._read(0.1):
                pass
        self.shown = ""
        self.keys(line)
        for question, answer in asked:
            self.until(lambda wanted=question: wanted in self.shown or "Error: " in self.shown, question)  # type: ignore[misc]
            if question not in self.shown:  # the model does not chat
                break
            self.shown = ""
            self.keys(answer)
        self.until(lambda: self.count() > known, f"a prompt after {line}")

    def keys(self, text: str) -> None:
        """Type, and read meanwhile: a shell that can't show what it is given takes no more of it."""
        left = f"{text}\r".encode()
        while left:
            left = left[os.write(self.terminal, left[:500]) :]
            self._read(0)

    def _read(self, seconds: float) -> bool:
        """Read what is shown within so many seconds; tell if something was."""
        is_there = bool(select.select([self.terminal], [], [], seconds)[0])
        if is_there:
            shown = os.read(self.terminal, 65_536).decode("utf-8", "replace")
            self.shown += shown
            for question, answer in ASKED.items():
                os.write(self.terminal, (answer * shown.count(question)).encode())
        return is_there

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)
