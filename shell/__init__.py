"""The lines that make ``llm`` in a shell carry the profile, and the start-up files they go into.

Each shell's lines are a file in this folder; between two marker lines in a start-up file they are the *block*.
Start-up files are edited as bytes, so any encoding and line ending stays.

Read on in order: processes, shells, the block, changes, what is in the way, and what the commands call.
Only these commands import this package; an ordinary call of ``llm`` never does.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from typing import TYPE_CHECKING, NamedTuple

from llm_user_memory import Problem, counted, tilde, write_private

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# -- processes ---------------------------------------------------------------

PATIENCE = 10.0
"""Seconds that a shell gets to start and to answer."""

_MARK = "=== llm-user-memory ==="


def _output(*command: str) -> str:
    """Run a shell without a terminal, end what it leaves running, and return what it printed."""
    # A file, because a child that outlives the shell would keep a pipe open. A session
    # of its own, or an interactive shell takes the terminal away from the user's.
    with contextlib.suppress(OSError), tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL, start_new_session=True
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        with contextlib.suppress(OSError):  # they have gone by themselves
            process.kill() if sys.platform == "win32" else os.killpg(process.pid, 9)
        output.seek(0)
        return os.fsdecode(output.read())
    return ""


def _find_program(names: Iterable[str]) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)


# -- shells ------------------------------------------------------------------


class Kind(NamedTuple):
    """All that differs between shells, but for the places of their files."""

    programs: tuple[str, ...]
    lines: str
    load: str
    """The command that reads a start-up file, ``{}``."""
    unload: str
    meaning: str
    """The command that shows what ``llm`` is."""
    ask: tuple[str, ...]
    """Arguments that start it as for a person and run a command; none if that takes a terminal."""
    own_file: bool = False
    """Start-up files are read from a folder, where the block gets a file of its own."""


_STATUS = "llm memory status --json"
_RUN = ("-i", "-c", _STATUS)
_NU_LINES = "llm.windows.nu" if os.name == "nt" else "llm.nu"
_RUN_POWERSHELL = ("-NoLogo", "-NoExit", "-Command", f"{_STATUS}; exit")
KINDS = {
    "bash": Kind(("bash",), "llm.bash", "source {}", "unset -f llm", "type llm", _RUN),
    "zsh": Kind(("zsh",), "llm.zsh", "source {}", "unset -f llm", "type llm", _RUN),
    "fish": Kind(("fish",), "llm.fish", "source {}", "functions --erase llm", "type llm", _RUN, own_file=True),
    "nushell": Kind(("nu",), _NU_LINES, "source {}", "hide llm", "which llm", (), own_file=True),
    "powershell": Kind(
        ("pwsh", "powershell"),
        "llm.ps1",
        ". {}",
        "Remove-Item Function:llm",
        "Get-Command llm; Get-ExecutionPolicy",
        _RUN_POWERSHELL,
    ),
}


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
        from importlib.resources import files

        return (files(__name__) / self.kind.lines).read_bytes()

    @property
    def load(self) -> str:
        """The command that makes an open shell read the file."""
        path = tilde(self.rc)
        return self.kind.load.format(f"'{self.rc}'" if re.search(r"[^\w~./\\:-]", path) else path)


def home_folder() -> pathlib.Path:
    try:
        return pathlib.Path.home()
    except RuntimeError as error:
        raise Problem("There is no home folder; say where it is: export HOME=…") from error


def _nushell_folder(environ: Mapping[str, str], config: pathlib.Path) -> pathlib.Path:
    import platformdirs

    if environ.get("XDG_CONFIG_HOME") or sys.platform not in {"darwin", "win32"}:
        return config / "nushell"
    return platformdirs.user_config_path("nushell", appauthor=False, roaming=True)


def _powershell_profile(config: pathlib.Path) -> pathlib.Path:
    """Ask for the profile, because Windows' folder of documents is often somewhere else."""
    from urllib.parse import unquote

    program = _find_program(KINDS["powershell"].programs) or "pwsh"
    # Escaped, because Windows PowerShell prints in the code page of the console.
    question = f"'{_MARK}' + [Uri]::EscapeDataString($PROFILE)"
    answer = _output(program, "-NoProfile", "-NonInteractive", "-Command", question).partition(_MARK)[2]
    if pathlib.Path(program).stem == "powershell":  # Windows PowerShell 5.1
        folder = home_folder() / "Documents" / "WindowsPowerShell"
    else:
        folder = home_folder() / "Documents" / "PowerShell" if os.name == "nt" else config / "powershell"
    return pathlib.Path(unquote(answer.strip()) or folder / "Microsoft.PowerShell_profile.ps1")


def _start_up_file(name: str, environ: Mapping[str, str]) -> pathlib.Path:
    home = home_folder()
    config = pathlib.Path(environ.get("XDG_CONFIG_HOME", ""))
    config = config if config.is_absolute() else home / ".config"
    if name == "bash":
        return home / ".bashrc"
    if name == "zsh":  # asked, because ZDOTDIR is often set in .zshenv and not exported
        answer = _output("zsh", "-c", f'print -rn -- "{_MARK}${{ZDOTDIR:-$HOME}}"').partition(_MARK)[2]
        return pathlib.Path(answer or environ.get("ZDOTDIR") or home) / ".zshrc"
    if name == "fish":
        return config / "fish" / "conf.d" / "llm-user-memory.fish"
    if name == "nushell":
        return _nushell_folder(environ, config) / "autoload" / "llm-user-memory.nu"
    return _powershell_profile(config)


def _called(name: str) -> str:
    """The shell that is called so, by its own name or its program's; the name itself if none is."""
    return next((shell for shell, kind in KINDS.items() if name in (shell, *kind.programs)), name)


def usual_shell(environ: Mapping[str, str]) -> str:
    """The name of the shell in ``$SHELL``."""
    path = environ.get("SHELL") or ("powershell" if os.name == "nt" else "")
    return _called(pathlib.Path(path).name.removesuffix(".exe"))


def find_shell(name: str | None, environ: Mapping[str, str]) -> Shell:
    """The shell of this name, else the usual one, with its start-up file. Raises ``Problem``."""
    name = _called(name) if name else usual_shell(environ)
    if name not in KINDS:
        function = 'function llm { LLM_MEMORY_AUTO="${LLM_MEMORY_AUTO:-1}" command llm "$@"; }'
        raise Problem(
            f"{name or 'Your shell'} is not a shell that install-shell knows. Choose one: llm memory install-shell"
            f" --shell {'|'.join(KINDS)}. Or add a function like this one to your shell's start-up file:\n{function}"
        )
    return Shell(name, _start_up_file(name, environ))


# -- the block ---------------------------------------------------------------

START = b"# >>> llm-user-memory >>>"
END = b"# <<< llm-user-memory <<<"
_BLOCK = re.compile(b"^" + START + rb"(?P<note>.*)\n(?:.*\n)*?" + END + rb".*\n?", re.MULTILINE)
_NEW_FILE = re.compile(rb" \(new file(?:, (\d+) new folders?)?\)")
_NEW_LINE = b" (line end added)"


def find_block(content: bytes) -> re.Match[bytes] | None:
    """Find the block and its note of what else was added. Raises ``Problem`` if the markers don't match."""
    markers = [match.start() for match in re.finditer(START + b"|" + END, content)]
    block = _BLOCK.search(content)
    if len(markers) == 2 * bool(block):
        return block
    found = ", ".join(f"line {content.count(10, 0, marker) + 1}" for marker in markers)
    raise Problem(
        f"its block is damaged: it should begin once with {START.decode()!r} and end once with {END.decode()!r},"
        f" but these markers are at {found}. Remove them by hand, then run this again"
    )


def with_block(content: bytes | None, lines: bytes, new_folders: int = 0) -> bytes:
    """The file with the block at its end, or where it was; ``None`` is a file that does not exist."""
    body = b"\n" + lines + END + b"\n"
    if content and (block := find_block(content)):
        return content[: block.start()] + START + block["note"].rstrip() + body + content[block.end() :]
    if content is None:
        folders = f", {counted(new_folders, 'new folder')}" if new_folders else ""
        return START + f" (new file{folders})".encode() + body
    if content and not content.endswith(b"\n"):
        return content + b"\n" + START + _NEW_LINE + body
    return content + START + body


def without_block(content: bytes) -> bytes | None:
    """The file as it was without the block; ``None`` if there was no such file."""
    block = find_block(content)
    if not block:
        return content
    before, note, after = content[: block.start()], block["note"], content[block.end() :]
    if note.rstrip() == _NEW_LINE and not after:  # in a file turned to CRLF since, so was this line end
        before = before.removesuffix(b"\r\n" if note.endswith(b"\r") else b"\n")
    return None if _NEW_FILE.match(note) and not before + after else before + after


# -- changes -----------------------------------------------------------------

_BY_HAND = "To add the lines yourself: llm memory install-shell --print"


def _read(path: pathlib.Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _peek(path: pathlib.Path) -> bytes | None:
    """The bytes of a file that may be out of our reach."""
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return None


def _write(path: pathlib.Path, before: bytes | None, after: bytes) -> None:
    # Into the file, not aside and replaced: so its links, owner, mode and attributes stay.
    # What is written in one go is hardly cut short, and there is a backup by now.
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("wb" if before is None else "r+b") as file:
            file.write(after)
            file.truncate()
    except OSError:  # a full disk, which has room for what was there
        path.unlink() if before is None else path.write_bytes(before)
        raise


class Change(NamedTuple):
    """A start-up file before and after; ``None`` is a file that is not there."""

    path: pathlib.Path
    before: bytes | None
    after: bytes | None

    def write(self) -> None:
        """Make the change, or raise ``Problem`` and change nothing."""
        target = pathlib.Path(os.path.realpath(self.path))
        with _naming(self.path, f"; nothing was changed. {_BY_HAND}"):
            if self.after is None:
                target.unlink()
                self._remove_folders(target)
                return
            backup = self.path.with_name(f"{self.path.name}.before-llm-memory")
            if self.before is not None and START not in self.before:
                backup.unlink(missing_ok=True)
                write_private(backup, self.before)
                shutil.copymode(self.path, backup)
            _write(target, self.before, self.after)
            if START not in self.after and _read(backup) == self.after:
                backup.unlink()

    def _remove_folders(self, target: pathlib.Path) -> None:
        """Remove the folders that were made for the file; not those where something else lives now."""
        made = _NEW_FILE.search(self.before or b"")
        with contextlib.suppress(OSError):
            for folder in target.parents[: int((made and made[1]) or 0)]:
                folder.rmdir()


@contextlib.contextmanager
def _naming(path: pathlib.Path, advice: str = "") -> Iterator[None]:
    """Name the file in the errors that happen inside."""
    try:
        yield
    except Problem as problem:
        raise Problem(f"{tilde(path)}: {problem.message}") from problem
    except OSError as error:
        raise Problem(f"{tilde(path)}: {error.strerror or error}{advice}") from error


def _check_editable(path: pathlib.Path, content: bytes, advice: str) -> None:
    if not path.is_file():  # often a symlink to /dev/null
        raise Problem(f"it is not a regular file. {advice}")
    # The mode too: root may write anything, but someone meant something by it.
    if not os.access(path, os.W_OK) or not path.stat().st_mode & 0o222:
        raise Problem(f"it is read-only. Make it writable, then run this again. {advice}".rstrip())
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Problem(f"it is UTF-16, which can't be added to. Save it as UTF-8, then run this again. {advice}")


def plan_install(shell: Shell) -> Change | None:
    """The change that adds the block to its file; ``None`` if it is there already. Raises ``Problem``."""
    with _naming(shell.rc, f"; nothing was changed. {_BY_HAND}"):
        before = _read(shell.rc)
        if shell.kind.own_file and before and not find_block(before):
            raise Problem(f"this file exists already, and is not ours. Move it away. {_BY_HAND}")
        folders = pathlib.Path(os.path.realpath(shell.rc)).parents
        after = with_block(before, shell.lines, sum(not folder.exists() for folder in folders))
        if after == before:
            return None
        if before is not None:
            _check_editable(shell.rc, before, _BY_HAND)
        return Change(shell.rc, before, after)


def plan_uninstall(shell: Shell) -> Change | None:
    """The change that removes the block from its file; ``None`` if it is not there. Raises ``Problem``."""
    with _naming(shell.rc):
        before = _read(shell.rc)
        if before is None or not find_block(before):
            return None
        _check_editable(shell.rc, before, "")
        return Change(shell.rc, before, without_block(before))


# -- what is in the way ------------------------------------------------------

_OLD_PLACES = (".bashrc", ".bash_profile", ".profile", ".zshrc", ".zprofile", ".config/fish/config.fish")
# This comment and, unless somebody has changed it, the function below it.
_OLD = re.compile(rb"# LLM Memory Plugin Integration(?:.*\n(?:.*\n){,5}?\})?")


def find_old(home: pathlib.Path) -> Iterator[str]:
    """Find the functions that version 0.1.1 left behind; a sentence for each."""
    for path in map(home.joinpath, _OLD_PLACES):
        content = _peek(path) or b""
        for match in _OLD.finditer(content):
            first = content.count(b"\n", 0, match.start()) + 1
            last = first + match[0].count(b"\n")
            lines = f"lines {first}-{last}" if last > first else f"line {first}"
            yield (
                f"{tilde(path)}, {lines}: a function of llm-user-memory 0.1.1, which breaks plain `llm memory`."
                " Remove it by hand; until then, use: command llm memory status"
            )


def login_advice(home: pathlib.Path) -> str:
    """The command that makes login shells of bash read ``.bashrc``; ``""`` if they do."""
    # bash reads the first of these that it can.
    files = [(name, _peek(home / name)) for name in (".bash_profile", ".bash_login", ".profile")]
    name, content = next(((name, found) for name, found in files if found is not None), (".bash_profile", b""))
    if re.search(rb"^[^#\n]*bashrc", content, re.MULTILINE):
        return ""
    line = "[ -f ~/.bashrc ] && . ~/.bashrc"
    if name == ".profile":  # not only bash reads it, and not everyone forgives an error
        line = 'if [ -n "${BASH_VERSION-}" ] && [ -f ~/.bashrc ]; then . ~/.bashrc; fi'
    end = f"echo >> ~/{name}; " if content and not content.endswith(b"\n") else ""
    return f"{end}echo '{line}' >> ~/{name}"


def check_new_shell(shell: Shell) -> bool | None:
    """Start a shell as for a person and ask if memory is active in it; ``None`` if it does not answer.

    It is asked for ``llm memory status``, which for that reason must never call this.
    """
    program = _find_program(shell.kind.programs)
    # Searched, not parsed: start-up files print things of their own.
    status = program and re.search(
        r'"shell": \{.*?"active": (true|false)', _output(program, *shell.kind.ask), re.DOTALL
    )
    return status[1] == "true" if status else None


# -- what the commands call --------------------------------------------------


def block_of(shell: Shell) -> str:
    """The shell's lines between their markers, to print."""
    return with_block(b"", shell.lines).decode()


def _checked(shell: Shell) -> str:
    """A sentence on whether memory is active in a new shell of this kind."""
    if not shell.kind.ask or not _find_program(shell.kind.programs):
        return f"To check, open a new {shell.name} and run: llm memory status"
    active = check_new_shell(shell)
    if active:
        return f"Checked: memory is active in a new {shell.name}."
    return (
        f"Note: in a new {shell.name}, memory {'could not be seen' if active is None else 'is not active'}. Most likely"
        f" another function or alias named llm comes before it. Try there: {shell.kind.meaning}; llm memory status"
    )


def install(shell: Shell) -> Iterator[str]:
    """Add the block to a shell's start-up file and see if it works; yields what to tell the user."""
    if change := plan_install(shell):
        change.write()
        yield f"Added to {tilde(shell.rc)}:\n"
        yield textwrap.indent(block_of(shell), "    ")
        yield f"Every new {shell.name} loads it. To load it into an open one: {shell.load}"
        yield "To remove it: llm memory uninstall-shell"
    else:
        yield f"{tilde(shell.rc)} has it already."
    if shell.name == "bash" and (advice := login_advice(home_folder())):
        yield f"Login shells do not read ~/.bashrc. To make them: {advice}"
    yield from find_old(home_folder())
    yield _checked(shell)


def uninstall(shells: Iterable[Shell]) -> Iterator[str]:
    """Remove the block from start-up files; yields what to tell the user.

    Raises ``Problem`` at the end: one damaged file must not keep the others from being cleaned.
    """
    problems, removed = [], 0
    for shell in shells:
        try:
            if change := plan_uninstall(shell):
                change.write()
                removed += 1
                yield f"Removed from {tilde(shell.rc)}. To remove it from an open {shell.name}: {shell.kind.unload}"
        except Problem as problem:  # noqa: PERF203
            problems.append(problem.message)
    if problems:
        raise Problem("\n".join(problems))
    if not removed:
        yield "Nothing to remove."


class Survey(NamedTuple):
    """Everything that ``status`` tells about shells."""

    installed: list[Shell]
    problems: list[str]

    def how_to_activate(self, environ: Mapping[str, str]) -> str:
        """The next step where it is installed and not active."""
        name = usual_shell(environ)
        for shell in self.installed:
            if shell.name == name:
                return f"open a new {name}, or run: {shell.load}"
        setup = f", or set up {name}: llm memory install-shell --shell {name}" if name in KINDS else ""
        return f"open a new {' or '.join(shell.name for shell in self.installed)}{setup}"


def survey(environ: Mapping[str, str]) -> Survey:
    """Look into every shell's start-up file."""
    found = Survey([], [])
    for name in KINDS:
        try:
            shell = find_shell(name, environ)
            with _naming(shell.rc):
                found.installed.extend([shell] if find_block(_read(shell.rc) or b"") else [])
        except Problem as problem:  # noqa: PERF203
            found.problems.append(problem.message)
    with contextlib.suppress(Problem):
        found.problems.extend(find_old(home_folder()))
    return found._replace(problems=list(dict.fromkeys(found.problems)))
