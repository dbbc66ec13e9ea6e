"""The lines that make ``llm`` in a shell carry the profile, and the start-up files they go into.

Each shell's lines are a file in this folder; between two marker lines in a start-up file they are the *block*.
Start-up files are edited as bytes, so any encoding and line ending stays. Only commands import this package.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import click

from llm_user_memory import Problem, counted, open_memory, past_messages, say, tilde, write_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# -- shells ------------------------------------------------------------------

PATIENCE = 10.0  # seconds that a shell gets to start and to answer
_MARK = "=== llm-user-memory ==="


def _output(*command: str, env: Mapping[str, str] | None = None) -> str:
    """Run a shell without a terminal, end what it leaves running, and return what it printed."""
    # A file, because a child that outlives the shell would keep a pipe open. A session
    # of its own, or an interactive shell takes the terminal away from the user's.
    with contextlib.suppress(OSError), tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL, start_new_session=True, env=env
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        with contextlib.suppress(OSError):  # they have gone by themselves
            process.kill() if sys.platform == "win32" else os.killpg(process.pid, 9)
        output.seek(0)
        return os.fsdecode(output.read())
    return ""


class Kind(NamedTuple):
    """All that differs between shells, but for the places of their files."""

    programs: tuple[str, ...]
    lines: str
    load: str  # the command that reads a start-up file
    unload: str
    ask: tuple[str, ...]  # arguments that start it as for a person and run a command; none if that takes a terminal

    @property
    def program(self) -> str | None:
        """The path of the program that is installed."""
        return next(filter(None, map(shutil.which, self.programs)), None)


_STATUS = "llm memory status --json"
# An alias that adds options to llm would make this a prompt; with eval, because aliases are expanded early.
_UNALIASED = """case $(alias llm 2>/dev/null) in *"='llm "*) unalias llm; esac;"""
_HIDES = "echo HISTCONTROL=${HISTCONTROL-}; [[ -o hist_ignore_space ]] && echo HISTCONTROL=space"
_RUN_UNALIASED = ("-i", "-c", f"{_UNALIASED} eval '{_STATUS}'; {_HIDES}")
_RUN_POWERSHELL = ("-NoLogo", "-NoExit", "-Command", f"{_STATUS}; exit")
KINDS = {
    "bash": Kind(("bash",), "llm.bash", "source", "unset -f llm", _RUN_UNALIASED),
    "zsh": Kind(("zsh",), "llm.zsh", "source", "unset -f llm", _RUN_UNALIASED),
    "fish": Kind(("fish",), "llm.fish", "source", "functions --erase llm", ("-i", "-c", _STATUS)),
    "nushell": Kind(("nu",), "llm.windows.nu" if os.name == "nt" else "llm.nu", "source", "hide llm", ()),
    "powershell": Kind(("pwsh", "powershell"), "llm.ps1", ".", "Remove-Item Function:llm", _RUN_POWERSHELL),
}
# What keeps a line that begins with a space out of the history.
_TO_HIDE = {"bash": "HISTCONTROL=ignorespace", "zsh": "setopt HIST_IGNORE_SPACE"}
# As llm.bash finds out whether the line was kept out of the history.
_BASH = (
    r"local l=$(history 1); (set -o history; history -s :; [[ $l =~ ^\ *[0-9]+ && $(history 1) == $BASH_REMATCH* ]])"
    " || l=; "
)
_LINE = 'LLM_MEMORY_AUTO=1 LLM_MEMORY_LINE=" {}" command llm {}'
OWN = {
    "bash": _BASH + _LINE.format("$l", '"$@"'),
    "zsh": _LINE.format("${history[$HISTCMD]## *}", '"$@"'),
    "fish": _LINE.format("$(status current-commandline | string match -v ' *')", "$argv"),
    "nushell": "LLM_MEMORY_AUTO=1 ^llm ...$args",
    "powershell": '$env:LLM_MEMORY_AUTO = 1; $env:LLM_MEMORY_LINE = " $($MyInvocation.Line)"; & (Get-Command llm'
    " -Type Application)[0] @args; $env:LLM_MEMORY_AUTO = $env:LLM_MEMORY_LINE = $null",
}
"""What somebody's own function named ``llm`` has to run, to carry the profile."""


class Shell(NamedTuple):
    """A shell to set up, and its start-up file."""

    name: str
    rc: pathlib.Path

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    @property
    def lines(self) -> bytes:
        """The lines that go between the markers."""
        return pathlib.Path(__file__).with_name(self.kind.lines).read_bytes()

    @property
    def block(self) -> str:
        """These lines between their markers, to print."""
        return with_block(b"", self.lines).decode()

    @property
    def backup(self) -> pathlib.Path:
        return self.rc.with_name(f"{self.rc.name}.before-llm-memory")

    @property
    def load(self) -> str:
        """The command that makes an open shell read the file."""
        return f"{self.kind.load} " + (f"'{self.rc}'" if re.search(r"[^\w~./\\:-]", tilde(self.rc)) else tilde(self.rc))


def _home() -> pathlib.Path:
    return pathlib.Path(os.path.expanduser("~"))  # raises nothing where there is none


def _answer(question: str, program: str, *arguments: str) -> str:
    """Ask a shell for a text, ignoring what its start-up files print first."""
    return _output(program, *arguments, question).partition(_MARK)[2].strip()


def _start_up_file(name: str, environ: Mapping[str, str]) -> pathlib.Path:
    home = _home()
    config = pathlib.Path(environ.get("XDG_CONFIG_HOME", ""))
    config = config if config.is_absolute() else home / ".config"
    if name == "bash":
        return home / ".bashrc"
    if name == "zsh":  # asked, because ZDOTDIR is often set in .zshenv and not exported
        answer = _answer(f'print -rn -- "{_MARK}${{ZDOTDIR:-$HOME}}"', "zsh", "-c")
        return pathlib.Path(answer or environ.get("ZDOTDIR") or home) / ".zshrc"
    if name == "fish":
        return config / "fish" / "conf.d" / "llm-user-memory.fish"
    if name == "powershell":  # asked, because Windows often keeps Documents somewhere else
        # Escaped, because Windows PowerShell prints in the code page of the console.
        question = f"'{_MARK}' + [Uri]::EscapeDataString($PROFILE)"
        answer = _answer(question, KINDS[name].program or "pwsh", "-NoProfile", "-NonInteractive", "-Command")
        return pathlib.Path(unquote(answer) or config / "powershell" / "Microsoft.PowerShell_profile.ps1")
    if sys.platform in {"darwin", "win32"} and not environ.get("XDG_CONFIG_HOME"):
        import platformdirs

        config = platformdirs.user_config_path(roaming=True)
    return config / "nushell" / "autoload" / "llm-user-memory.nu"


def _called(name: str | None, environ: Mapping[str, str]) -> str:
    """Return the shell with this name or program, else the one in ``$SHELL``; an unknown name as it is."""
    path = name or environ.get("SHELL") or ("powershell" if os.name == "nt" else "")
    program = pathlib.Path(path).name.removesuffix(".exe")
    return next((shell for shell, kind in KINDS.items() if program in {shell, *kind.programs}), program)


def find_shell(name: str | None, environ: Mapping[str, str]) -> Shell:
    """Find the shell with this name, else the one that llm was started from, or ``$SHELL``. Raises ``Problem``."""
    name = _called(name or _here(), environ)
    if name in KINDS:
        return Shell(name, _start_up_file(name, environ))
    wrong = f"{name} is not a shell that memory knows" if name else "$SHELL is not set"
    context = click.get_current_context(silent=True)
    command = context.info_name if context else "install-shell"
    raise Problem(f"{wrong}. Name yours: llm memory {command} --shell bash (or zsh, fish, nushell, powershell)")


# -- the block ---------------------------------------------------------------

START = b"# >>> llm-user-memory >>>"
END = b"# <<< llm-user-memory <<<"
_NEW_FILE = rb"(?: \(new file, (?P<folders>\d+) new folders?\))?"
_BLOCK = re.compile(b"^" + START + b"(?P<note>" + _NEW_FILE + rb".*)\n(?:.*\n)*?" + END + rb".*\n?", re.MULTILINE)
_NEW_LINE = b" (line end added)"


def find_block(content: bytes) -> re.Match[bytes] | None:
    """Find the block and its note of what else was added. Raises ``Problem`` if the markers don't match."""
    markers = [match.start() for match in re.finditer(START + b"|" + END, content)]
    block = _BLOCK.search(content)
    if len(markers) == 2 * bool(block):
        return block
    found = ", ".join(f"line {content.count(10, 0, marker) + 1}" for marker in markers)
    wanted = f"it should begin once with {START.decode()!r} and end once with {END.decode()!r}"
    raise Problem(f"its block is damaged: {wanted}; its markers are at {found}. Delete it all, then run this again")


def with_block(content: bytes | None, lines: bytes, new_folders: int = 0) -> bytes:
    """Return the file with the block at its end, or where it was; ``None`` is a file that does not exist."""
    body = b"\n" + lines + END + b"\n"
    if content is None:
        return START + f" (new file, {counted(new_folders, 'new folder')})".encode() + body
    if block := find_block(content):
        return content[: block.start()] + START + block["note"].rstrip() + body + content[block.end() :]
    if content and not content.endswith(b"\n"):
        return content + b"\n" + START + _NEW_LINE + body
    return content + START + body


def without_block(content: bytes) -> bytes | None:
    """Return the file as it was without the block; ``None`` if there was no such file."""
    block = find_block(content)
    if not block:
        return content
    before, note, after = content[: block.start()], block["note"], content[block.end() :]
    if note.rstrip() == _NEW_LINE and not after:  # in a file turned to CRLF since, so was this line end
        before = before.removesuffix(b"\r\n" if note.endswith(b"\r") else b"\n")
    return None if block["folders"] and not before + after else before + after


# -- changes -----------------------------------------------------------------


@contextlib.contextmanager
def _naming(path: pathlib.Path, advice: str = "") -> Iterator[None]:
    """Name the file in the errors that happen inside."""
    try:
        yield
    except Problem as problem:
        raise Problem(f"{tilde(path)}: {problem.message}{advice}") from problem
    except OSError as error:
        raise Problem(f"{tilde(path)}: {error.strerror or error}; nothing was changed{advice}") from error


def _read(path: pathlib.Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _check_editable(path: pathlib.Path, content: bytes) -> None:
    if not path.is_file():  # often a symlink to /dev/null
        raise Problem("it is not a regular file")
    # The mode too: root may write anything, but someone meant something by it.
    if not os.access(path, os.W_OK) or not path.stat().st_mode & 0o222:
        raise Problem("it is read-only. Make it writable, then run this again")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Problem("it is UTF-16, which can't be added to. Save it as UTF-8, then run this again")


def _write(path: pathlib.Path, before: bytes | None, after: bytes) -> None:
    # Into the file, not aside and replaced: so its links, owner, mode and attributes stay.
    # What is written in one go is rarely cut short, and there is a backup by now.
    try:
        with path.open("wb" if before is None else "r+b") as file:
            file.write(after)
            file.truncate()
    except OSError:  # a full disk, which has room for what was there
        path.unlink(missing_ok=True) if before is None else path.write_bytes(before)
        raise


def add_block(shell: Shell) -> bool:
    """Add the block to its start-up file, and keep a copy of that; ``False`` if it is there. Raises ``Problem``."""
    with _naming(shell.rc, f". To add the lines yourself: llm memory install-shell --shell {shell.name} --print"):
        before, target = _read(shell.rc), pathlib.Path(os.path.realpath(shell.rc))
        after = with_block(before, shell.lines, sum(not folder.exists() for folder in target.parents))
        if after == before:
            return False
        if before is not None:
            _check_editable(shell.rc, before)
        if before and START not in before:
            if shell.rc.stem == "llm-user-memory":
                raise Problem("this file exists already, and is not ours. Move it away")
            shell.backup.unlink(missing_ok=True)
            write_private(shell.backup, before)
            shutil.copymode(target, shell.backup)
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(target, before, after)
        return True


def remove_block(shell: Shell) -> bool:
    """Remove the block from its start-up file; ``False`` if it is not there. Raises ``Problem``."""
    with _naming(shell.rc):
        before, target = _read(shell.rc), pathlib.Path(os.path.realpath(shell.rc))
        if before is None or not (block := find_block(before)):
            return False
        _check_editable(shell.rc, before)
        if (after := without_block(before)) is not None:
            _write(target, before, after)
            if _read(shell.backup) == after:
                shell.backup.unlink()
            return True
        target.unlink()
        with contextlib.suppress(OSError):  # something else lives there now
            for folder in target.parents[: int(block["folders"])]:
                folder.rmdir()
        return True


# -- what is in the way ------------------------------------------------------

_OLD_PLACES = (".bashrc", ".bash_profile", ".profile", ".zshrc", ".zprofile", ".config/fish/config.fish")
_OLD = re.compile(rb"# LLM Memory Plugin Integration(?:.*\n(?!\}|end\b)){0,8}(?:.*\n(?:\}|end\b))?")


def find_old() -> Iterator[str]:
    """Find functions that version 0.1.1 left behind, by the comment above each; yield a sentence for each."""
    for path in map(_home().joinpath, _OLD_PLACES):
        content = path.read_bytes() if os.access(path, os.R_OK) and path.is_file() else b""
        for found in _OLD.finditer(content):
            first = content.count(b"\n", 0, found.start()) + 1
            last = first + found[0].rstrip().count(b"\n")
            what = "a function of llm-user-memory 0.1.1, which breaks plain `llm memory`. Delete them; until then"
            yield f"{tilde(path)}, lines {first} to {last}: {what}: command llm memory status"


def _here() -> str:
    """Return the shell that llm was started from; ``""`` if it was something else."""
    program = _output("ps", "-o", "comm=", "-p", str(os.getppid())).strip()
    return name if (name := _called(program.removeprefix("-"), {})) in KINDS else ""


def login_advice() -> str:
    """Return the command that makes login shells of bash read ``.bashrc``; ``""`` if they do, or if this is none."""
    started = _output("ps", "-o", "command=", "-p", str(os.getppid()))
    if sys.platform != "darwin" and not re.match(r"-|\S+ .*(?:-l\b|--login)", started):
        return ""
    # bash reads the first of these that it can. Others read the last too, and not everyone forgives an error.
    names = (".bash_profile", ".bash_login", ".profile")
    name = next((name for name in names if os.access(_home() / name, os.R_OK)), names[0])
    if re.search(rb"^[^#\n]*bashrc", _read(_home() / name) or b"", re.MULTILINE):
        return ""
    line = 'if [ -n "${BASH_VERSION-}" ] && [ -f ~/.bashrc ]; then . ~/.bashrc; fi'
    return f"printf '\\n%s\\n' '{line}' >> ~/{name}"


# -- what the commands call --------------------------------------------------


def _checked(shell: Shell) -> str:
    """Start a shell as for a person and say if memory is on in it. It runs status, which must never call this."""
    if not shell.kind.ask or not (program := shell.kind.program):
        return f"To check, open a new {shell.name} and run: llm memory status"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as data:  # where fish makes folders when it starts
        began = time.monotonic()
        said = _output(program, *shell.kind.ask, env=os.environ | {"XDG_DATA_HOME": data})
        took = time.monotonic() - began
    found = re.search(r'"shell": \{.*?"active": (true|false)', said, re.DOTALL)  # among what start-up files print
    if found and found[1] == "true":
        learns = "learns from what you type"
        hint = ""
        if '"only_chats": true' in said:
            learns = "learns only from chats, because this shell keeps no history of lines"
        elif shell.name == "bash" and re.search("HISTCONTROL=.*(both|space.*dups|dups.*space)", said):
            learns += " (with your HISTCONTROL, not from a line that begins with a space or that you repeat)"
        elif shell.name == "fish" or re.search("HISTCONTROL=.*space", said):
            learns += " (not from a line that begins with a space)"
        elif shell.name in _TO_HIDE:
            hint = f"\nIt learns from a line that begins with a space, too. To hide such lines: {_TO_HIDE[shell.name]}"
        does = f"it sends your profile with each prompt you type and {learns}"
        checked = f"Checked: memory is on in a new {shell.name}: {does}"
        return f"{checked}. To remove the lines: llm memory uninstall-shell{hint}"
    if found:
        return f"But in a new {shell.name}, memory is off. {_own(shell)}"
    unseen = f"In a new {shell.name}, memory could not be checked"
    if took >= PATIENCE:
        return f"{unseen}, as it takes long to start. To check, run there: llm memory status"
    return f"{unseen}. To check, run there: llm memory status\n{_own(shell)}"


def _own(shell: Shell) -> str:
    return f"If you have your own llm function, it must run:\n{OWN[shell.name]}"


def print_lines(name: str | None) -> None:
    shell = find_shell(name, os.environ)
    click.echo(shell.block, nl=False)
    say(f"For {tilde(shell.rc)}")


def install(name: str | None) -> None:
    """Add the block to a shell's start-up file, see if it works, and tell what else there is to do."""
    shell = find_shell(name, os.environ)
    place, lines = tilde(shell.rc), counted(shell.block.count("\n"), "line")
    if add_block(shell):
        was = without_block(shell.rc.read_bytes())
        is_kept = was is not None and was == _read(shell.backup)  # else the copy is an older one's
        copy = f" (as it was: {tilde(shell.backup)})" if is_kept else ""
        say(f"Added {lines} to {place}{copy}. In an open {shell.name}, run: {shell.load}")
    else:
        say(f"{place} has these lines already.")
    old = list(find_old())
    for line in old or [_checked(shell)]:
        say(line)
    if shell.name == "bash" and not old and (advice := login_advice()):
        say("Login shells like this one do not read ~/.bashrc. To make them:")
        click.echo(advice, err=True)  # to be copied: a break would end the quoted line
    login = _called(None, os.environ)
    if not name and login in KINDS and login != shell.name:
        say(f"For your login shell, {login}, too: llm memory install-shell --shell {login}")
    with contextlib.suppress(Problem, sqlite3.Error), open_memory() as memory:
        unread = [message for message, reason in past_messages(memory) if not reason]
        if unread:
            say(f"llm's log has {counted(len(unread), 'older prompt')}; to learn: llm memory learn")


def uninstall(name: str | None) -> None:
    """Remove the block from the start-up file of one shell, or of all.

    Raises ``Problem`` at the end: one damaged file must not keep the others from being cleaned.
    """
    problems, removed = [], False
    for each in [name] if name else KINDS:
        shell = find_shell(each, os.environ)
        try:
            if remove_block(shell):
                removed = True
                place = tilde(shell.rc)
                removed_from = f"lines from {place}" if shell.rc.exists() else f"{place}, which held nothing else"
                say(f"Removed {removed_from}. In an open {shell.name}, memory stays on until: {shell.kind.unload}")
        except Problem as problem:
            problems.append(problem.message)
    if problems:
        raise Problem("\n".join(problems))
    if not removed:
        say("Nothing to remove.")


def survey() -> tuple[list[Shell], list[str]]:
    """Look into every shell's start-up file; return where the block is, and the problems."""
    installed, problems = [], []
    for name in KINDS:
        try:
            shell = find_shell(name, os.environ)
            with _naming(shell.rc):
                installed += [shell] if find_block(_read(shell.rc) or b"") else []
        except Problem as problem:  # noqa: PERF203
            problems.append(problem.message)
    return installed, [*problems, *find_old()]


def how_to_activate() -> str:
    """Say that memory is off, and how to turn it on."""
    installed, _ = survey()
    if not installed:
        return "off; to turn it on: llm memory install-shell"
    here = _here() or _called(None, os.environ)
    installed_in = f"off for this call, but installed in {', '.join(tilde(shell.rc) for shell in installed)}"
    mine = next((shell for shell in installed if shell.name == here), None)
    if not mine:  # what loads one shell's lines breaks in another
        return f"{installed_in}. For {here or 'this shell'}: llm memory install-shell --shell {here or 'NAME'}"
    own = f"\n{_own(mine)}" if re.search(rb"\bllm\b", without_block(_read(mine.rc) or b"") or b"") else ""
    return f"{installed_in}. Open a new {here}, or run: {mine.load}\nIf you typed “command llm”, that is why.{own}"
