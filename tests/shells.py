"""Real shells in a pseudo-terminal, and an `llm` that only writes down how it was called."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from conftest import PATIENCE, Terminal, kill
from llm_user_memory_shell import Shell, add_block, find_shell

if TYPE_CHECKING:
    from collections.abc import Iterator

FAKE_LLM = r"""#!/bin/sh
# Writes down: pid, LLM_MEMORY_AUTO, LLM_MEMORY_LINE, which of its streams are terminals, what it was given to read, its arguments.
ttys=; for fd in 0 1 2; do [ -t $fd ] && ttys=$ttys$fd; done
if [ -t 0 ]; then
  input=; [ "$#" = 0 ] && { echo "Type your prompt"; input=$(cat; echo .); }
else
  input=$(cat 2>/dev/null; echo .)
fi
record=$$$(printf '\037')${LLM_MEMORY_AUTO-unset}$(printf '\037')${LLM_MEMORY_LINE-}$(printf '\037')$ttys$(printf '\037')$input
for argument; do record=$record$(printf '\037')$argument; done
printf '%s\036' "$record" >>"$RECORDS"
case ${1-} in
  exit) exit "$2" ;;
  wait) exec sleep 1000 ;;
  fail) echo trouble >&2 ;;
esac
echo "answer $*"
"""


@dataclass(frozen=True)
class Record:
    """One call of the fake `llm`: equal to another that was called in the same way, whatever memory adds."""

    arguments: tuple[str, ...]
    ttys: str
    input: str
    auto: str = field(compare=False)
    line: str = field(compare=False)
    pid: int = field(compare=False)


@dataclass(frozen=True)
class Outcome:
    """What one typed line came to."""

    code: str
    records: list[Record]
    out: str | None
    """What is in the file `out` afterwards."""

    @property
    def autos(self) -> tuple[str, ...]:
        return tuple(record.auto for record in self.records)


def find(shell: str) -> str:
    """The program of a shell, or a skipped test that names the shell."""
    program = shutil.which({"nushell": "nu", "powershell": "pwsh"}.get(shell, shell))
    if program is None:
        pytest.skip(f"not run: {shell} is not on this machine")
    real = pathlib.Path(os.path.realpath(program))
    if real.suffix == ".js":  # npm's wrapper would stand between the terminal and nushell
        return str(next(real.parents[2].glob("@nushell/*/bin/nu")))
    return program


# What each shell needs to say when a command is over, and with which code.
HARNESS = {
    "bash": 'PS1=\'$ \'; unset HISTFILE; PROMPT_COMMAND=\'printf "%s\\n" "$?" >>"$DONE"\'\n',
    "zsh": "PS1='$ '; precmd() { printf '%s\\n' \"$?\" >>\"$DONE\"; }\n",
    "fish": (
        "function _ready --on-event fish_prompt; functions --erase _ready; echo ready >>$DONE; end\n"
        "function _done --on-event fish_postexec; echo $status >>$DONE; end\n"
        "function fish_prompt; echo '$ '; end; function fish_title; end; set -g fish_greeting\n"
    ),
    "nushell": (
        "$env.config.show_banner = false; $env.PROMPT_COMMAND = {|| '$ '}; $env.PROMPT_COMMAND_RIGHT = ''\n"
        "$env.config.history.file_format = 'plaintext'\n"
        '$env.config.hooks.pre_prompt = [{|| $"($env.LAST_EXIT_CODE)\\n" | save --append --raw $env.DONE }]\n'
    ),
}


@dataclass
class Place:
    """A home with a fake `llm` in front of PATH, and one shell's start-up files."""

    folder: pathlib.Path
    shell: str
    posix: bool = False
    program: str = ""
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.program = find(self.shell)
        self.home.mkdir(parents=True)
        self.work.mkdir()
        self.env = {
            "HOME": str(self.home),
            "PATH": f"{self.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "SHELL": self.program,
            "DONE": str(self.folder / "done"),
            "RECORDS": str(self.folder / "records"),
            "XDG_DATA_HOME": str(self.folder / "data"),
        }
        fake = self.folder / "bin" / "llm"
        fake.parent.mkdir()
        fake.write_text(FAKE_LLM)
        fake.chmod(0o755)
        # Or the first fish of a home would make completions of all manual pages, for half a minute.
        (self.folder / "data" / "fish" / "generated_completions").mkdir(parents=True)
        if self.posix:
            self.env["ENV"] = str(self.home / ".bashrc")

    @property
    def home(self) -> pathlib.Path:
        return self.folder / "home"

    @property
    def work(self) -> pathlib.Path:
        return self.folder / "work folder"

    @property
    def rc(self) -> pathlib.Path:
        """The start-up file that a person keeps for this shell."""
        names = {"fish": ".config/fish/config.fish", "nushell": ".config/nushell/config.nu"}
        return self.home / names.get(self.shell, f".{self.shell}rc")

    def write_rc(self, text: str = "") -> None:
        self.rc.parent.mkdir(parents=True, exist_ok=True)
        self.rc.write_text(text + HARNESS[self.shell])

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Shell:
        """Put the block in, as install-shell does."""
        with monkeypatch.context() as patch:
            patch.setenv("HOME", str(self.home))
            patch.delenv("XDG_CONFIG_HOME", raising=False)
            patch.delenv("ZDOTDIR", raising=False)
            shell = find_shell(self.shell, os.environ)
            assert add_block(shell)
        return shell

    def records(self) -> list[Record]:
        """What the fake `llm` wrote down, oldest first."""
        path = self.folder / "records"
        if not path.exists():
            return []
        found = []
        for record in path.read_text("utf-8").split("\x1e")[:-1]:
            pid, auto, line, ttys, text, *arguments = record.replace(str(self.home), "/home").split("\x1f")
            found.append(Record(tuple(arguments), ttys, text, auto, line, int(pid)))
        return found


class Session(Terminal):
    """An interactive shell: type lines into it."""

    def __init__(self, place: Place, command: list[str], env: dict[str, str]) -> None:
        self.place = place
        self.seen = len(place.records())
        self.prompts = len(self.codes())
        super().__init__(command, env, place.work)

    def codes(self) -> list[str]:
        """The exit codes of the lines so far, the first entry being the shell's start."""
        path = pathlib.Path(self.place.env["DONE"])
        return path.read_text().splitlines() if path.exists() else []

    def _read(self, seconds: float) -> bool:
        known = len(self.shown)
        goes_on = super()._read(seconds)
        # What shells ask a terminal: where is the cursor, what are you?
        for question, answer in (("\x1b[6n", "\x1b[1;1R"), ("\x1b[c", "\x1b[?62;c"), ("\x1b[0c", "\x1b[?62;c")):
            if times := self.shown.count(question, known):
                os.write(self.fd, answer.encode() * times)
        return goes_on

    def finish(self) -> str:
        """Wait for the prompt behind a line; its exit code."""
        import termios

        self.until(lambda: len(self.codes()) > self.prompts, "the next prompt")
        # Before the shell reads each key itself, the terminal keeps 4096 characters of a line and loses the rest.
        self.until(lambda: not termios.tcgetattr(self.fd)[3] & termios.ICANON, "the shell's line editor")
        self.prompts += 1
        return self.codes()[self.prompts - 1]

    def run(self, line: str, asked: str = "") -> Outcome:
        """Type a line, and what llm then asks for; tell what it came to."""
        out = self.place.work / "out"
        out.unlink(missing_ok=True)
        self.type(line + "\r")
        if asked:
            self.expect("Type your prompt")
            self.type(asked)
        code = self.finish()
        records = self.place.records()[self.seen :]
        self.seen += len(records)
        records.sort(key=lambda record: record.arguments)
        return Outcome(code, records, out.read_text("utf-8") if out.exists() else None)

    def started(self) -> Record:
        """Wait for the next call of the fake `llm`."""
        self.until(lambda: len(self.place.records()) > self.seen, "a call of llm")
        self.seen += 1
        return self.place.records()[self.seen - 1]

    def close(self) -> None:
        for record in self.place.records():
            if record.arguments[:1] == ("wait",):
                kill(record.pid)
        self.process.kill()
        self.process.wait(PATIENCE)
        os.close(self.fd)


@contextlib.contextmanager
def session(place: Place, *arguments: str, **env: str) -> Iterator[Session]:
    """An interactive shell at its first prompt, ended afterwards."""
    posix = ["--posix"] if place.posix else []
    opened = Session(place, [place.program, *arguments, *posix], place.env | env)
    try:
        opened.finish()
        yield opened
    finally:
        opened.close()
