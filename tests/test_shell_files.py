"""install-shell and uninstall-shell: what they do to a person's start-up files, to the byte."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shlex
import signal
import stat
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

import click.testing
import pytest
from conftest import User, eventually
from hypothesis import given
from hypothesis import strategies as st
from shells import find

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = b"the lines\n"

CONTENTS = {
    "empty": b"",
    "ordinary": b"export A=1\nalias x=y\n",
    "no final newline": b"export A=1",
    "CRLF": b"export A=1\r\nalias x=y\r\n",
    "CRLF, no final newline": b"export A=1\r\nalias x=y",
    "latin-1": b"# caf\xe9\nexport A=1\n",
    "no text at all": b"\x00\xff\xfe\n\x80",
    "blank lines at the end": b"a\n\n\n",
    "one newline": b"\n",
    "lone carriage return": b"a\rb\r",
    "form feed and line separator": "a\x0cb\u2028c\n".encode(),
    "byte order mark": b"\xef\xbb\xbfa\n",
    "backslash at the end": b"echo a \\\n",
}

OLD = b"""
# LLM Memory Plugin Integration
# This function automatically injects memory context into all llm commands
llm() {
    command llm -f memory:auto "$@"
}
"""
"""What llm-user-memory 0.1.1 appended, to the byte."""


# The bytes


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_taking_the_block_out_leaves_the_bytes_that_were_there(content: bytes) -> None:
    assert memory.without_block(memory.with_block(content, BLOCK)) == content


MARKERLESS = st.binary().filter(lambda content: b"llm-user-memory" not in content)


@given(MARKERLESS)
def test_taking_the_block_out_leaves_any_bytes_that_were_there(content: bytes) -> None:
    block = memory.with_block(content, BLOCK)
    assert memory.without_block(block) == content
    assert memory.with_block(block, BLOCK) == block


@given(MARKERLESS, MARKERLESS.filter(bool), MARKERLESS)
def test_lines_written_around_the_block_later_stay(before: bytes, content: bytes, after: bytes) -> None:
    before += b"\n" if before and not before.endswith(b"\n") else b""
    full = before + memory.with_block(content, BLOCK) + after
    ended = content + (b"\n" if after and not content.endswith(b"\n") else b"")
    assert memory.without_block(full) == before + ended + after


def test_a_file_that_install_made_is_gone_again_unless_something_was_added() -> None:
    made = memory.with_block(None, BLOCK)
    assert memory.without_block(made) is None
    assert memory.without_block(made + b"mine\n") == b"mine\n"


def test_a_newer_block_takes_the_place_of_an_older_one_where_it_stands() -> None:
    older = b"a\n" + memory.with_block(b"b", b"old\n") + b"c\n"
    newer = memory.with_block(older, b"new\n")
    assert newer == older.replace(b"old", b"new")
    assert memory.without_block(newer) == b"a\nb\nc\n"


def test_a_block_whose_line_ends_an_editor_changed_is_put_right_and_taken_out() -> None:
    crlf = memory.with_block(b"a", BLOCK).replace(b"\n", b"\r\n")
    assert memory.with_block(crlf, BLOCK) == b"a\r\n" + memory.with_block(b"a", BLOCK)[2:]
    assert memory.without_block(crlf) == b"a"


START, END = memory.START.decode(), memory.END.decode()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"a\n{START}\nb\n", "line 2"),
        (f"a\n\n{END}\n", "line 3"),
        (f"{END}\n{START}\n", "line 1, line 2"),
        (f"{START}\nx\n{END}\n{START}\nx\n{END}\n", "line 1, line 3, line 4, line 6"),
        (f"{START}\n{START}\nx\n{END}\n", "line 1, line 2, line 4"),
        (f"if true; then\n  {START}\n  x\n  {END}\nfi\n", "line 2, line 4"),
        (f"a\rb\n# {START}\nx\n{END}\n", "line 2, line 4"),
    ],
    ids=["no end", "no start", "backwards", "twice", "two starts", "indented", "commented out"],
)
def test_damaged_markers_are_refused_with_their_lines_and_nothing_is_changed(home: Home, text: str, lines: str) -> None:
    home.bashrc.write_text(text)
    before = home.snapshot()
    for command in ("install-shell", "uninstall-shell"):
        said = home.fails(command, "--shell", "bash")
        assert f"these markers are at {lines}." in said
        assert "~/.bashrc" in said
    assert home.snapshot() == before


# Files


class Home:
    """A HOME of its own, and the commands run in it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir()

    @property
    def bashrc(self) -> pathlib.Path:
        return self.folder / ".bashrc"

    def run(self, *args: str) -> click.testing.Result:
        return click.testing.CliRunner().invoke(memory.memory_group, list(args), obj=memory.Settings())

    def says(self, *args: str) -> str:
        """Run a command that succeeds; what it says."""
        result = self.run(*args)
        assert result.exit_code == 0, result.output
        return result.stderr

    def fails(self, *args: str) -> str:
        """Run a command that fails as a person should see it; what it says."""
        result = self.run(*args)
        assert result.exit_code == 1, result.output
        assert isinstance(result.exception, SystemExit)
        return result.stderr

    def install(self, *args: str, shell: str = "bash") -> str:
        return self.says("install-shell", "--shell", shell, *args)

    def uninstall(self, *args: str) -> str:
        return self.says("uninstall-shell", *args)

    def status(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.run("status", "--json").stdout)
        return found

    def snapshot(self) -> dict[str, object]:
        """Everything below HOME: content, link or kind, mode, owner."""
        found: dict[str, object] = {}
        for path in sorted(self.folder.rglob("*")):
            status = path.lstat()
            content: object = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            found[str(path.relative_to(self.folder))] = (content, stat.S_IMODE(status.st_mode), status.st_uid)
        return found


@pytest.fixture
def bare_home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home on a machine where no shell can be asked anything."""
    for name in ("XDG_CONFIG_HOME", "ZDOTDIR", "LLM_MEMORY_AUTO"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path / "llm"))
    monkeypatch.setenv("SHELL", "/bin/bash")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return Home(tmp_path / "home")


@pytest.fixture
def home(bare_home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home on a machine with its shells."""
    monkeypatch.setenv("PATH", os.pathsep.join([*REAL_PATH, "/usr/bin", "/bin"]))
    return bare_home


REAL_PATH = os.environ["PATH"].split(os.pathsep)

FILES = {
    "bash": ".bashrc",
    "zsh": ".zshrc",
    "fish": ".config/fish/conf.d/llm-user-memory.fish",
    "nushell": ".config/nushell/autoload/llm-user-memory.nu",
    "powershell": ".config/powershell/Microsoft.PowerShell_profile.ps1",
}


@pytest.mark.parametrize("shell", memory.SHELLS)
def test_install_and_uninstall_leave_no_trace_where_there_was_nothing(bare_home: Home, shell: str) -> None:
    before = bare_home.snapshot()
    said = bare_home.install(shell=shell)
    path = bare_home.folder / FILES[shell]
    content = path.read_text()
    assert f"~/{FILES[shell]}" in said
    lines = [line for line in content.splitlines() if line and not line.startswith("# >>>")]
    assert [line for line in lines if line not in said] == []  # shown, all of them
    installed = bare_home.snapshot()
    assert "has it already" in bare_home.install(shell=shell)
    assert bare_home.snapshot() == installed
    bare_home.uninstall()
    assert bare_home.snapshot() == before
    assert "nothing to remove" in bare_home.uninstall()


@pytest.mark.parametrize("shell", ["bash", "zsh", "powershell"])
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_install_and_uninstall_leave_a_file_as_it_was(bare_home: Home, shell: str, content: bytes) -> None:
    path = bare_home.folder / FILES[shell]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o640)
    before = bare_home.snapshot()
    bare_home.install(shell=shell)
    assert path.read_bytes().startswith(content)
    assert path.read_bytes().count(memory.START) == 1
    bare_home.uninstall("--shell", shell)
    assert bare_home.snapshot() == before


def test_what_is_printed_is_what_is_written_and_print_writes_nothing(bare_home: Home) -> None:
    printed = bare_home.run("install-shell", "--shell", "bash", "--print")
    assert bare_home.snapshot() == {}
    assert "~/.bashrc" in printed.stderr
    bare_home.bashrc.write_bytes(b"")
    bare_home.install()
    assert bare_home.bashrc.read_text() == printed.stdout


@pytest.mark.parametrize("target", ["dotfiles/bashrc", "../outside"])
def test_a_symlink_stays_and_its_file_is_restored(bare_home: Home, target: str) -> None:
    file = bare_home.folder / target
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine\n")
    bare_home.bashrc.symlink_to(target)
    before = bare_home.snapshot()
    bare_home.install()
    assert os.readlink(bare_home.bashrc) == target
    assert file.read_bytes().startswith(b"mine\n" + memory.START)
    bare_home.uninstall()
    assert bare_home.snapshot() == before
    assert file.read_text() == "mine\n"


def test_a_dangling_symlink_dangles_again_afterwards(bare_home: Home) -> None:
    (bare_home.folder / "dotfiles").mkdir()
    bare_home.bashrc.symlink_to("dotfiles/bashrc")
    before = bare_home.snapshot()
    bare_home.install()
    assert os.readlink(bare_home.bashrc) == "dotfiles/bashrc"
    assert memory.START in (bare_home.folder / "dotfiles/bashrc").read_bytes()
    bare_home.uninstall()
    assert bare_home.snapshot() == before


def test_a_symlink_to_the_null_device_is_refused(bare_home: Home) -> None:
    bare_home.bashrc.symlink_to("/dev/null")
    assert "not a regular file" in bare_home.fails("install-shell", "--shell", "bash")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_symlink_in_a_circle_and_a_folder_are_errors_in_words(bare_home: Home) -> None:
    bare_home.bashrc.symlink_to(".bashrc")
    assert "~/.bashrc: Too many levels of symbolic links" in bare_home.fails("install-shell", "--shell", "bash")
    bare_home.bashrc.unlink()
    bare_home.bashrc.mkdir()
    assert "~/.bashrc: Is a directory" in bare_home.fails("install-shell", "--shell", "bash")
    assert list(bare_home.snapshot()) == [".bashrc"]


def test_both_names_of_a_hard_link_stay_one_file(bare_home: Home) -> None:
    other = bare_home.folder / "other"
    other.write_text("mine, and long enough to be cut\n")
    bare_home.bashrc.hardlink_to(other)
    before = bare_home.snapshot()
    bare_home.install()
    assert other.samefile(bare_home.bashrc)
    assert memory.START in other.read_bytes()
    bare_home.uninstall()
    assert other.samefile(bare_home.bashrc)
    assert bare_home.snapshot() == before


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664, 0o755])
def test_the_mode_stays_and_the_backup_is_no_easier_to_read(bare_home: Home, mode: int) -> None:
    bare_home.bashrc.write_text("SECRET=1\n")
    bare_home.bashrc.chmod(mode)
    bare_home.install()
    assert stat.S_IMODE(bare_home.bashrc.stat().st_mode) == mode
    assert stat.S_IMODE((bare_home.folder / ".bashrc.before-llm-memory").stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_stays(bare_home: Home) -> None:
    bare_home.bashrc.write_text("mine\n")
    os.chown(bare_home.bashrc, 4321, 4322)
    bare_home.install()
    assert (bare_home.bashrc.stat().st_uid, bare_home.bashrc.stat().st_gid) == (4321, 4322)
    bare_home.uninstall()
    assert (bare_home.bashrc.stat().st_uid, bare_home.bashrc.stat().st_gid) == (4321, 4322)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user to make such a folder")
def test_a_file_in_a_folder_that_takes_no_new_ones_is_written_into() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        rc = pathlib.Path(folder) / ".bashrc"
        rc.write_text("mine\n")
        os.chown(rc, 4321, 4321)
        pid = os.fork()
        if pid == 0:  # as that other user, who may write the file and not the folder
            os.setgid(4321)
            os.setuid(4321)
            with contextlib.suppress(BaseException):
                memory.write_rc(rc, b"longer than before\n")
                memory.write_rc(rc, b"new\n")
            os._exit(0)
        os.waitpid(pid, 0)
        assert rc.read_text() == "new\n"
        assert os.listdir(folder) == [".bashrc"]


def test_a_read_only_file_is_an_error_that_names_it_and_nothing_is_changed(bare_home: Home) -> None:
    bare_home.bashrc.write_text("mine\n")
    bare_home.bashrc.chmod(0o444)
    before = bare_home.snapshot()
    said = bare_home.fails("install-shell", "--shell", "bash")
    assert "~/.bashrc: it is read-only" in said
    assert "llm memory install-shell --print" in said
    assert bare_home.snapshot() == before
    bare_home.bashrc.chmod(0o644)
    bare_home.install()
    bare_home.bashrc.chmod(0o444)
    before = bare_home.snapshot()
    assert "~/.bashrc: it is read-only" in bare_home.fails("uninstall-shell")
    assert bare_home.snapshot() == before


def test_a_utf_16_profile_is_refused(bare_home: Home) -> None:
    path = bare_home.folder / FILES["powershell"]
    path.parent.mkdir(parents=True)
    path.write_bytes("$x = 1\n".encode("utf-16"))
    assert "it is UTF-16" in bare_home.fails("install-shell", "--shell", "powershell")
    assert path.read_bytes() == "$x = 1\n".encode("utf-16")


@pytest.mark.parametrize("shell", ["fish", "nushell"])
def test_a_file_of_that_name_that_is_not_ours_is_refused(bare_home: Home, shell: str) -> None:
    path = bare_home.folder / FILES[shell]
    path.parent.mkdir(parents=True)
    path.write_text("someone else's\n")
    before = bare_home.snapshot()
    assert "not ours" in bare_home.fails("install-shell", "--shell", shell)
    assert "nothing to remove" in bare_home.uninstall()
    assert bare_home.snapshot() == before


def test_folders_that_are_used_by_something_else_meanwhile_stay(bare_home: Home) -> None:
    bare_home.install(shell="fish")
    (bare_home.folder / ".config/fish/config.fish").write_text("mine\n")
    bare_home.uninstall()
    assert set(bare_home.snapshot()) == {".config", ".config/fish", ".config/fish/config.fish"}


def test_the_backup_is_the_file_before_and_stays_only_if_the_file_was_changed_since(bare_home: Home) -> None:
    bare_home.bashrc.write_text("mine\n")
    backup = bare_home.folder / ".bashrc.before-llm-memory"
    bare_home.install()
    assert backup.read_text() == "mine\n"
    bare_home.uninstall()
    assert not backup.exists()
    bare_home.install()
    bare_home.bashrc.write_bytes(b"more\n" + bare_home.bashrc.read_bytes())
    bare_home.uninstall()
    assert (bare_home.bashrc.read_text(), backup.read_text()) == ("more\nmine\n", "mine\n")
    bare_home.install()
    assert backup.read_text() == "more\nmine\n"


def test_login_files_of_bash_are_neither_made_nor_changed_but_talked_about(bare_home: Home) -> None:
    warning = "login shells will not have it"
    assert warning in bare_home.install()
    assert list(bare_home.snapshot()) == [".bashrc"]
    for name, text, warned in [
        (".profile", "PATH=x\n", True),
        (".profile", "# . ~/.bashrc\n", True),
        (".profile", '[ -f ~/.bashrc ] && . "$HOME/.bashrc"\n', False),
        (".bash_login", "PATH=x\n", True),  # read in place of .profile
        (".bash_profile", "source ~/.bashrc\n", False),
    ]:
        (bare_home.folder / name).write_text(text)
        assert (warning in bare_home.install()) == warned, (name, text)
        assert (bare_home.folder / name).read_text() == text


def test_one_damaged_file_does_not_keep_the_other_shells_from_being_cleaned(bare_home: Home) -> None:
    bare_home.install(shell="zsh")
    bare_home.bashrc.write_bytes(memory.START + b"\n")
    assert "~/.bashrc" in bare_home.fails("uninstall-shell")
    assert list(bare_home.snapshot()) == [".bashrc"]


# Which file


def test_zsh_is_asked_where_its_files_are(home: Home) -> None:
    find("zsh")
    (home.folder / "z dir").mkdir()
    (home.folder / ".zshenv").write_text('print noise\nZDOTDIR="$HOME/z dir"\n')  # not exported, and talkative
    said = home.install(shell="zsh")
    assert (home.folder / "z dir" / ".zshrc").exists()
    assert f"source '{home.folder}/z dir/.zshrc'" in said
    assert "Checked: in a new zsh, llm carries the profile." in said


@pytest.mark.parametrize("shell", ["fish", "nushell", "powershell"])
def test_the_config_home_is_respected_where_it_is_one(
    bare_home: Home, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(bare_home.folder / "elsewhere"))
    expected = bare_home.folder / FILES[shell].replace(".config", "elsewhere")
    assert memory.find_shell(shell, os.environ).rc == expected
    monkeypatch.setenv("XDG_CONFIG_HOME", "not/absolute")
    assert memory.find_shell(shell, os.environ).rc == bare_home.folder / FILES[shell]


def test_the_profile_of_powershell_is_where_it_says(bare_home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    # A stand-in: PowerShell itself is on few of the machines that run this.
    pwsh = bare_home.folder / "pwsh"
    pwsh.write_text("#!/bin/sh\nfor last; do :; done\neval \"printf '%s\\n' ${last%% +*}/moved/profile.ps1\"\n")
    pwsh.chmod(0o755)
    monkeypatch.setenv("PATH", str(bare_home.folder))
    assert memory.find_shell("pwsh", os.environ).rc == pathlib.Path("/moved/profile.ps1")


@pytest.mark.parametrize(("name", "shell"), [("nu", "nushell"), ("pwsh", "powershell"), ("bash", "bash")])
def test_a_shell_may_be_called_by_its_programs_name(bare_home: Home, name: str, shell: str) -> None:
    assert memory.find_shell(name, os.environ).name == shell


def test_a_shell_that_is_not_known_gets_the_lines_to_add(bare_home: Home) -> None:
    said = bare_home.fails("install-shell", "--shell", "xonsh")
    assert "xonsh is not one that can be set up by itself" in said
    assert "--shell bash|zsh|fish|nushell|powershell" in said
    assert "LLM_MEMORY_AUTO" in said


def descendant(command: str, shell: str, home: pathlib.Path) -> Iterator[int]:
    """The pid of a process that a shell started."""
    marker = f"{9_000_000 + os.getpid()}"
    run = [find(shell), "-c", command.format(f"sleep {marker}")]
    process = subprocess.Popen(run, env=os.environ | {"HOME": str(home)}, start_new_session=True)

    def sleeper() -> int | None:
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # gone meanwhile
                if path.read_bytes() == f"sleep\0{marker}\0".encode():
                    return int(path.parent.name)
        return None

    try:
        yield eventually(sleeper, "the sleeping process")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(
    ("shell", "command"),
    [("bash", "{}; :"), ("zsh", "{}; :"), ("fish", "{}; true"), ("zsh", "sh -c '{}; :'; :"), ("bash", "env sh -c '{}; :'; :")],
)  # fmt: skip
def test_the_shell_around_us_is_found_past_scripts(shell: str, command: str, tmp_path: pathlib.Path) -> None:
    for pid in descendant(command, shell, tmp_path):
        assert memory.parent_shell(pid) == shell


def test_where_no_shell_is_around_us_it_is_the_login_shell() -> None:
    inside, outside = os.pipe()
    if os.fork() == 0:
        middle = os.getpid()
        if os.fork() == 0:  # soon an orphan, whose parent is init
            eventually(lambda: os.getppid() != middle, "the parent's end")
            os.write(outside, memory.find_shell(None, {"SHELL": "/usr/local/bin/fish"}).name.encode())
        os._exit(0)
    os.wait()
    os.close(outside)
    with open(inside, "rb") as answer:
        assert answer.read().decode() == (memory.parent_shell(1) or "fish")


# What 0.1.1 left behind


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("after", [b"", b"export LATER=1\n"])
def test_the_function_of_0_1_1_is_taken_out_to_the_byte(content: bytes, after: bytes) -> None:
    ended = content if not after or not content or content.endswith(b"\n") else content + b"\n"
    assert memory.without_old(content + OLD + after) == ended + after


def test_an_old_function_is_offered_for_removal_and_removed_only_on_a_yes(bare_home: Home) -> None:
    bare_home.bashrc.write_bytes(b"mine\n" + OLD + b"more\n")
    said = bare_home.install()
    assert "~/.bashrc, lines 3-7: left as it is" in said
    assert OLD in bare_home.bashrc.read_bytes()
    said = bare_home.install("--yes")
    assert "~/.bashrc, lines 3-7: taking out" in said
    assert OLD not in bare_home.bashrc.read_bytes()
    assert (bare_home.folder / ".bashrc.before-llm-memory").read_bytes().startswith(b"mine\n" + OLD)
    bare_home.uninstall()
    assert bare_home.bashrc.read_bytes() == b"mine\nmore\n"


def test_uninstall_takes_the_old_function_out_of_every_file_it_was_put_in(bare_home: Home) -> None:
    files = [".bash_profile", ".zprofile", ".config/fish/config.fish"]
    for name in files:
        path = bare_home.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"mine\n" + OLD)
    bare_home.uninstall("--yes")
    assert [(bare_home.folder / name).read_bytes() for name in files] == [b"mine\n"] * 3


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        (".bashrc", b"mine\n" + OLD.replace(b"auto", b"mine"), "lines 3-3"),
        (".bashrc", b"mine\n" + OLD.replace(b"\n}\n", b"\n  echo more\n}\n"), "lines 3-3"),
        (".bashrc", b"# LLM Memory Plugin Integration\n", "lines 1-1"),
        (".profile", b"mine\n" + OLD, "lines 3-7"),
    ],
    ids=["changed", "longer", "only the marker", "in .profile"],
)
def test_what_can_not_be_told_apart_for_sure_is_only_pointed_at(
    bare_home: Home, name: str, content: bytes, line: str
) -> None:
    (bare_home.folder / name).write_bytes(content)
    said = bare_home.install("--yes")
    assert f"~/{name}, {line}: this is of llm-user-memory 0.1.1" in said
    assert "by hand" in said
    assert (bare_home.folder / name).read_bytes().startswith(content)


def test_status_tells_of_an_old_function(bare_home: Home) -> None:
    bare_home.bashrc.write_bytes(OLD)
    problems = bare_home.status()["problems"]
    assert isinstance(problems, list)
    assert len(problems) == 1
    assert "~/.bashrc, lines 2-6" in problems[0]


@pytest.mark.parametrize(("answer", "removed"), [("y", True), ("n", False)])
def test_a_person_is_asked_about_an_old_function(user: User, answer: str, removed: bool) -> None:
    (user.home / ".bashrc").write_bytes(OLD)
    terminal = user.terminal("llm", "memory", "uninstall-shell", "--shell", "bash", auto=None)
    terminal.expect(r"~/.bashrc, lines 2-6: take out what version 0.1.1 added\? \[y/N\]")
    terminal.type(answer + "\n")
    terminal.wait()
    assert (user.home / ".bashrc").read_bytes() == (b"" if removed else OLD)


# What `llm` is afterwards


SHADOWS = [
    ("bash", "", "", ""),
    ("bash", "alias llm='llm -m gpt'\n", "", ""),
    ("bash", "", "alias llm='X=1 llm'\n", ""),
    ("bash", "alias llm='command llm'\n", "", "the alias llm='command llm' comes before it"),
    ("bash", "llm() { :; }\n", "", "another function llm (line 1 of ~/.bashrc) comes before it"),
    ("bash", "", "\nllm() { :; }\n", "another function llm"),
    ("bash", "return\n", "", "it is not reached"),
    ("bash", "exit 3\n", "", None),
    ("bash", "if true\n", "", "it is not reached"),
    ("bash", "set -eu\necho noise; echo more >&2\n", "", ""),
    ("bash", OLD.decode(), "", "the function of llm-user-memory 0.1.1 comes before it"),
    ("zsh", "", "", ""),
    ("zsh", "alias llm='llm -m gpt'\n", "", ""),
    ("zsh", "", "alias llm=/opt/llm\n", "the alias llm=/opt/llm comes before it"),
    ("zsh", "", "alias llm='noglob llm'\n", ""),
    ("zsh", "", "function llm { : }\n", "another function llm (~/.zshrc) comes before it"),
    ("zsh", "set -eu\n", "", ""),
    ("fish", "", "", ""),
    ("fish", "alias llm 'llm -m gpt'\n", "", "another function llm"),
    ("fish", "function llm; end\n", "", "another function llm (~/.config/fish/config.fish) comes before it"),
    ("nushell", "", "", ""),
]


@pytest.mark.parametrize(("shell", "before", "after", "problem"), SHADOWS)
def test_it_is_looked_at_what_llm_is_in_a_new_shell(
    home: Home, shell: str, before: str, after: str, problem: str | None
) -> None:
    find(shell)
    rc = home.folder / {"fish": ".config/fish/config.fish", "nushell": ".config/nushell/config.nu"}.get(
        shell, FILES[shell]
    )
    rc.parent.mkdir(parents=True, exist_ok=True)
    rc.write_text(before)
    home.install(shell=shell)
    rc.write_text(rc.read_text() + after)
    said = home.install(shell=shell)
    if problem is None:
        assert "could not be seen from here" in said
    elif problem:
        assert f"Note: in a new {shell} it does not work yet: {problem}" in said
    else:
        assert f"Checked: in a new {shell}, llm carries the profile." in said


def test_an_alias_of_the_users_own_is_not_hidden_in_nushell(home: Home) -> None:
    find("nushell")
    config = home.folder / ".config/nushell/config.nu"
    config.parent.mkdir(parents=True)
    config.write_text("alias llm = ^llm -m gpt\n")
    assert "would hide: ^llm -m gpt" in home.fails("install-shell", "--shell", "nushell")
    assert not (home.folder / FILES["nushell"]).exists()


def test_a_shell_that_does_not_come_up_is_left_behind_in_time(home: Home) -> None:
    home.bashrc.write_text('sleep 1000 & echo $! >"$HOME/pids"; echo $$ >>"$HOME/pids"; wait\n')
    assert memory.ask_shell(memory.find_shell("bash", os.environ), patience=0.5) is None
    for pid in (home.folder / "pids").read_text().split():
        eventually(lambda pid=pid: not alive(int(pid)), "the shell's end")  # type: ignore[misc]


def alive(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_the_start_up_files_leave_running_holds_nothing_up(home: Home) -> None:
    home.bashrc.write_text('sleep 1000 & echo $! >"$HOME/pid"\n')
    started = time.monotonic()
    meaning = memory.ask_shell(memory.find_shell("bash", os.environ), patience=30)
    assert time.monotonic() - started < 20
    os.kill(int((home.folder / "pid").read_text()), signal.SIGKILL)
    assert meaning is not None
    assert meaning.problem() != ""


def test_status_tells_where_it_is_installed_and_what_is_in_its_way(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 0)  # no shell around us: it is $SHELL's
    assert home.status()["shell"] == {"installed": [], "active": False, "shadowed_by": None}
    home.install()
    assert home.status()["shell"] == {"installed": [str(home.bashrc)], "active": False, "shadowed_by": None}
    assert "installed in ~/.bashrc, not active in this shell; open a new one" in home.run("status").stdout
    home.bashrc.write_bytes(home.bashrc.read_bytes() + b"alias llm='command llm'\n")
    assert "not active in this shell: the alias llm='command llm' comes before it" in home.run("status").stdout
    home.bashrc.write_bytes(memory.START)
    assert "~/.bashrc: its block is damaged" in home.run("status").stdout


# What is shipped


def test_every_shell_has_its_lines_and_they_say_how_to_take_them_out() -> None:
    for name in memory.SHELLS:
        lines = memory.Shell(name, pathlib.Path("x")).block.decode()
        assert "llm memory uninstall-shell" in lines.splitlines()[0]
        assert "LLM_MEMORY_AUTO" in lines
        assert lines.endswith("\n")
        assert "\r" not in lines


def test_the_lines_of_powershell_keep_to_what_they_must() -> None:
    # Read, not run: PowerShell can't be had everywhere. Where it can, the next test runs it.
    lines = memory.Shell("powershell", pathlib.Path("x")).block.decode()
    assert lines.isascii() or "…" in lines
    assert "function global:llm" in lines
    assert "Test-Path Function:llm" in lines  # one's own function stays
    assert "GetCommandLineArgs" in lines  # not in scripts
    assert "-CommandType Application" in lines  # the program, not ourselves again
    assert lines.count("{") == lines.count("}")
    assert lines.count("(") == lines.count(")")
    assert "finally" in lines  # the variable does not stay behind


def test_the_lines_of_powershell_work_in_powershell(home: Home) -> None:
    find("powershell")
    assert "Checked: in a new powershell, llm carries the profile." in home.install(shell="powershell")


def test_a_path_with_a_space_or_a_quote_can_be_pasted(bare_home: Home) -> None:
    folder = bare_home.folder / "z dir"
    shell = memory.Shell("zsh", folder / ".zshrc")
    assert shlex.split(shell.load) == ["source", str(folder / ".zshrc")]
