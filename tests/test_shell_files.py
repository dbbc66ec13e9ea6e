"""install-shell and uninstall-shell: what they do to a person's start-up files, to the byte."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
from typing import TYPE_CHECKING

import click.testing
import llm.cli
import llm_user_memory_shell
import pytest
from conftest import BIN, PATIENCE, User, eventually, posix_only, state, typed
from hypothesis import given
from hypothesis import strategies as st
from llm_user_memory_shell import END, KINDS, OWN, START, find_shell, with_block, without_block
from shells import find

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = posix_only
BLOCK = b"the lines\n"

OLD = b"""
# LLM Memory Plugin Integration
# This function automatically injects memory context into all llm commands
llm() {
    command llm -f memory:auto "$@"
}
"""
"""What llm-user-memory 0.1.1 appended, to the byte."""


# The bytes


MARKERLESS = st.binary().filter(lambda content: b"llm-user-memory" not in content)


@given(MARKERLESS)
def test_removing_the_block_restores_any_bytes(content: bytes) -> None:
    block = with_block(content, BLOCK)
    assert without_block(block) == content
    assert with_block(block, BLOCK) == block


@given(MARKERLESS, MARKERLESS.filter(bool), MARKERLESS)
def test_lines_written_around_the_block_later_stay(before: bytes, content: bytes, after: bytes) -> None:
    before += b"\n" if before and not before.endswith(b"\n") else b""
    full = before + with_block(content, BLOCK) + after
    ended = content + (b"\n" if after and not content.endswith(b"\n") else b"")
    assert without_block(full) == before + ended + after


def test_a_newer_block_replaces_an_older_one_and_one_whose_line_ends_an_editor_changed_is_repaired() -> None:
    older = b"a\n" + with_block(b"b", b"old\n") + b"c\n"
    newer = with_block(older, b"new\n")
    assert newer == older.replace(b"old", b"new")
    assert without_block(newer) == b"a\nb\nc\n"
    crlf = with_block(b"a", BLOCK).replace(b"\n", b"\r\n")
    assert with_block(crlf, BLOCK) == b"a\r\n" + with_block(b"a", BLOCK)[2:]
    assert without_block(crlf) == b"a"


FIRST, LAST = START.decode(), END.decode()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"a\n{FIRST}\nb\n", "line 2"),
        (f"{LAST}\n{FIRST}\n", "line 1, line 2"),
        (f"{FIRST}\nx\n{LAST}\n{FIRST}\nx\n{LAST}\n", "line 1, line 3, line 4, line 6"),
        (f"if true; then\n  {FIRST}\n  x\n  {LAST}\nfi\n", "line 2, line 4"),
    ],
    ids=["no end", "backwards", "twice", "indented"],
)
def test_damaged_markers_are_refused_with_their_lines_and_other_shells_are_cleaned_all_the_same(
    bare_home: Home, text: str, lines: str
) -> None:
    bare_home.bashrc.write_text(text)
    before = bare_home.snapshot()
    bare_home.install(shell="zsh")
    for command in ("install-shell --shell bash", "uninstall-shell"):
        said = bare_home.fails(*command.split())
        assert f"its markers are at {lines}." in said
        assert "~/.bashrc" in said
    assert bare_home.snapshot() == before
    assert "~/.bashrc: its block is damaged" in bare_home.run("status").stdout


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
        """Run `llm memory …`, in this process: most of what a test of its own process would take is starting llm."""
        return click.testing.CliRunner().invoke(llm.cli.cli, ["memory", *args])

    def says(self, *args: str, code: int = 0) -> str:
        """Run a command that succeeds, or fails as a person should see it; what it says."""
        result = self.run(*args)
        assert result.exit_code == code, result.output
        assert code == 0 or isinstance(result.exception, SystemExit)
        return result.stderr

    def fails(self, *args: str) -> str:
        return self.says(*args, code=1)

    def install(self, *args: str, shell: str = "bash") -> str:
        return self.says("install-shell", "--shell", shell, *args)

    def uninstall(self) -> str:
        return self.says("uninstall-shell")

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
    for name in ("XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path / "llm"))
    monkeypatch.setenv("SHELL", "/bin/bash")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return Home(tmp_path / "home")


@pytest.fixture
def home(bare_home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home on a machine with its shells and llm, and with all the time they need."""
    monkeypatch.setenv("PATH", os.pathsep.join([str(BIN), *REAL_PATH, "/usr/bin", "/bin"]))
    monkeypatch.setattr(llm_user_memory_shell, "PATIENCE", PATIENCE)
    return bare_home


REAL_PATH = os.environ["PATH"].split(os.pathsep)

FILES = {
    "bash": ".bashrc",
    "zsh": ".zshrc",
    "fish": ".config/fish/conf.d/llm-user-memory.fish",
    "nushell": ".config/nushell/autoload/llm-user-memory.nu",
    "powershell": ".config/powershell/Microsoft.PowerShell_profile.ps1",
}


@pytest.mark.parametrize("shell", KINDS)
def test_install_and_uninstall_leave_no_trace_where_there_was_nothing(bare_home: Home, shell: str) -> None:
    said = bare_home.install(shell=shell)
    text = (bare_home.folder / FILES[shell]).read_text()
    assert f"~/{FILES[shell]}" in said
    assert len(said.splitlines()) == 2
    assert [line for line in text.splitlines() if line and line in said] == [], (
        "one sentence and the file, not the code"
    )
    assert "llm memory uninstall-shell" in text
    installed = bare_home.snapshot()
    assert "has these lines already" in bare_home.install(shell=shell)
    assert bare_home.snapshot() == installed
    assert f"Removed ~/{FILES[shell]}, which held nothing else. In an open" in bare_home.uninstall()
    assert bare_home.snapshot() == {}
    assert bare_home.uninstall() == "Nothing to remove.\n"
    assert without_block(with_block(None, BLOCK) + b"mine\n") == b"mine\n", "a file of ours that was added to"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_that_is_asked_if_it_works_leaves_nothing_behind_either(home: Home, shell: str) -> None:
    find(shell)
    assert ACTIVE in home.install(shell=shell)
    home.uninstall()
    assert home.snapshot() == {}


def test_no_line_for_another_shell_is_offered(user: User) -> None:
    user.llm("memory", "install-shell", "--shell", "fish", auto=None)
    status = user.run("status", SHELL="/bin/bash")[0].splitlines()[0]
    assert status.endswith("llm-user-memory.fish. For bash: llm memory install-shell --shell bash")
    assert user.run("show", SHELL="/bin/bash")[1].splitlines()[:2] == ["The profile has no facts.", status]
    user.llm("memory", "install-shell", "--shell", "bash", auto=None)
    status = user.run("status", SHELL="/bin/bash")[0].splitlines()[0]
    assert status.endswith(". Open a new bash, or run: source ~/.bashrc")
    assert "llm-user-memory.fish" in status


def test_install_status_and_uninstall_as_a_person_runs_them(user: User) -> None:
    bashrc = user.home / ".bashrc"
    bashrc.write_text("mine\n")
    said = user.llm("memory", "install-shell", auto=None)
    assert said.stdout == ""
    added, checked, to_hide = said.stderr.splitlines()
    assert to_hide.endswith("To hide such lines: HISTCONTROL=ignorespace")
    assert "~/.bashrc" in added
    assert "source ~/.bashrc" in added
    assert ACTIVE in checked
    assert "llm memory uninstall-shell" in said.stderr
    status = user.run("status")[0]
    assert "Memory is off for this call" in status
    assert "only in this terminal" not in user.run("status", LLM_MEMORY_AUTO="1")[0]
    assert (
        "installed in ~/.bashrc. Open a new bash, or run: source ~/.bashrc\nIf you typed “command llm”, that" in status
    )
    assert status.splitlines()[0].endswith("or run: source ~/.bashrc")
    bashrc.write_text(f"{bashrc.read_text()}function llm {{ command llm -m x; }}\n")
    assert OWN["bash"] in user.run("status")[0], "what a function of one's own needs"
    bashrc.write_text(bashrc.read_text().rpartition("function")[0])
    assert user.llm("memory", "status").stdout.startswith("Memory is on")
    assert "Removed lines from ~/.bashrc." in user.llm("memory", "uninstall-shell", auto=None).stderr
    assert "only in this terminal" in user.run("status", LLM_MEMORY_AUTO="1")[0]
    assert (bashrc.read_text(), list(user.home.iterdir())) == ("mine\n", [bashrc])
    assert "llm memory install-shell" in user.run("status")[0]


def test_print_shows_what_would_be_written_and_writes_nothing(bare_home: Home) -> None:
    printed = bare_home.run("install-shell", "--shell", "bash", "--print")
    assert bare_home.snapshot() == {}
    assert "~/.bashrc" in printed.stderr
    bare_home.bashrc.write_bytes(b"caf\xe9 \\")
    bare_home.install()
    assert bare_home.bashrc.read_bytes().startswith(b"caf\xe9 \\\n")
    assert printed.stdout.splitlines()[1:] == bare_home.bashrc.read_text("latin-1").splitlines()[2:]


@pytest.mark.parametrize("there", ["file", "folder", "nothing"])
def test_a_symlink_stays_and_what_it_leads_to_is_restored(bare_home: Home, there: str) -> None:
    target = "dotfiles/of mine/bashrc"
    file = bare_home.folder / target
    if there != "nothing":
        file.parent.mkdir(parents=True)
    if there == "file":
        file.write_text("mine\n")
    bare_home.bashrc.symlink_to(target)
    before = bare_home.snapshot()
    bare_home.install()
    assert os.readlink(bare_home.bashrc) == target
    assert START in file.read_bytes()
    bare_home.uninstall()
    assert bare_home.snapshot() == before


def test_a_full_disk_leaves_the_file_as_it_was(bare_home: Home) -> None:
    import resource  # not on Windows

    bare_home.bashrc.write_bytes(b"export A=1\n" * 370)
    before = bare_home.bashrc.read_bytes()
    _, hard = limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # the size that a file may have
    try:
        said = bare_home.fails("install-shell")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert "~/.bashrc: File too large; nothing was changed. To add the lines yourself: " in said
    assert bare_home.bashrc.read_bytes() == before


@pytest.mark.parametrize(
    ("shell", "content", "words"),
    [
        ("bash", pathlib.Path("/dev/null"), "not a regular file"),
        ("bash", pathlib.Path(".bashrc"), "Too many levels of symbolic links"),
        ("powershell", "$x = 1\n".encode("utf-16"), "it is UTF-16"),
        ("fish", b"someone else's\n", "not ours"),
    ],
)
def test_what_can_not_be_edited_or_is_not_ours_is_refused_with_an_error_in_words(
    bare_home: Home, shell: str, content: bytes | pathlib.Path, words: str
) -> None:
    path = bare_home.folder / FILES[shell]
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.symlink_to(content)
    before = bare_home.snapshot()
    said = bare_home.fails("install-shell", "--shell", shell)
    assert f"~/{FILES[shell]}: " in said
    assert words in said
    assert bare_home.snapshot() == before
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_mode_owner_and_hard_links_stay_and_the_backup_is_no_easier_to_read(bare_home: Home) -> None:
    mode = 0o640
    other = bare_home.folder / "other"
    other.write_text("SECRET=1, and long enough to be cut\n")
    other.chmod(mode)
    if os.geteuid() == 0:  # nobody else may give a file away
        os.chown(other, 4321, 4322)
    bare_home.bashrc.hardlink_to(other)
    before = bare_home.snapshot()
    bare_home.install()
    assert other.samefile(bare_home.bashrc)
    assert START in other.read_bytes()
    assert stat.S_IMODE(bare_home.bashrc.stat().st_mode) == mode
    assert stat.S_IMODE((bare_home.folder / ".bashrc.before-llm-memory").stat().st_mode) == mode
    bare_home.uninstall()
    assert other.samefile(bare_home.bashrc)
    assert bare_home.snapshot() == before


def test_a_read_only_file_is_an_error_that_names_it_and_nothing_is_changed(bare_home: Home) -> None:
    bare_home.bashrc.write_text("mine\n")
    for command in ("install-shell", "uninstall-shell"):
        bare_home.bashrc.chmod(0o444)
        before = bare_home.snapshot()
        assert "~/.bashrc: it is read-only" in bare_home.fails(command, "--shell", "bash")
        assert bare_home.snapshot() == before
        bare_home.bashrc.chmod(0o644)
        bare_home.install()


def test_the_backup_is_kept_only_if_the_file_was_changed_since_and_folders_that_are_used_stay(bare_home: Home) -> None:
    bare_home.bashrc.write_text("mine\n")
    backup = bare_home.folder / ".bashrc.before-llm-memory"
    assert f"(as it was: {backup.name})" in bare_home.install().replace("~/", "")
    assert backup.read_text() == "mine\n"
    bare_home.uninstall()
    assert not backup.exists()
    bare_home.install()
    bare_home.bashrc.write_bytes(b"more\n" + bare_home.bashrc.read_bytes())
    bare_home.uninstall()
    assert (bare_home.bashrc.read_text(), backup.read_text()) == ("more\nmine\n", "mine\n")
    bare_home.bashrc.unlink()
    assert "as it was" not in bare_home.install(), "the copy is an older one's"
    bare_home.uninstall()
    backup.unlink()
    assert "as it was" not in bare_home.install(), "there was no file"
    bare_home.uninstall()
    bare_home.bashrc.write_text("more\nmine\n")
    bare_home.install(shell="fish")
    (bare_home.folder / ".config/fish/config.fish").write_text("mine\n")
    bare_home.uninstall()
    assert [path for path in bare_home.snapshot() if "fish" in path] == [".config/fish", ".config/fish/config.fish"]


@pytest.fixture
def in_login_bash(bare_home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home whose user types into a login shell, on a machine that can be asked what it runs and no more."""
    (bare_home.folder.parent / "nothing").mkdir()
    (bare_home.folder.parent / "nothing" / "ps").symlink_to(shutil.which("ps", path="/usr/bin:/bin") or "/bin/ps")
    with subprocess.Popen(["/bin/bash", "-l"], stdin=subprocess.PIPE) as login:
        monkeypatch.setattr(os, "getppid", lambda: login.pid)
        yield bare_home
        login.kill()


def run(*command: str) -> str:
    """Run a program, far from the terminal of whoever runs the tests: an interactive shell would take it away."""
    return subprocess.run(
        command,
        env=os.environ | {"PATH": f"{BIN}:/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
        start_new_session=True,
    ).stdout


@pytest.mark.parametrize(
    ("files", "changed", "shown"),
    [
        ({}, ".bash_profile", "A=\nllm\n"),
        ({".profile": "# . ~/.bashrc\nexport A='no line end'"}, ".profile", "A=no line end\nllm\n"),
        ({".profile": ". ~/.bashrc\n", ".bash_login": "export A=1\n"}, ".bash_login", "A=1\nllm\n"),  # read first
    ],
)
def test_a_login_bash_that_does_not_read_bashrc_gets_the_command_that_changes_it(
    in_login_bash: Home, files: dict[str, str], changed: str, shown: str
) -> None:
    home = in_login_bash
    for name, text in files.items():
        (home.folder / name).write_text(text)
    said = home.install()
    assert {path.name: path.read_text() for path in home.folder.iterdir() if path.name in files} == files
    run("bash", "-c", said.partition("do not read ~/.bashrc. To make them:\n")[2].partition("\n")[0])
    assert run("bash", "-l", "-i", "-c", "echo A=$A; declare -F llm") == shown
    assert (home.folder / changed).read_text().startswith(files.get(changed, ""))
    assert "login shells" not in home.install().casefold()
    if changed == ".profile":  # not bash's alone
        home.bashrc.write_text("mine=(no other shell reads this)\n")
        run("sh", "-euc", ". ~/.profile")


def test_login_shells_are_not_mentioned_where_they_read_bashrc_or_this_is_none(
    in_login_bash: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    (in_login_bash.folder / ".profile").write_text('[ -f ~/.bashrc ] && . "$HOME/.bashrc"\n')
    assert "login shells" not in in_login_bash.install().casefold()
    (in_login_bash.folder / ".profile").unlink()
    monkeypatch.setattr(os, "getppid", os.getpid)
    assert "login shells" not in in_login_bash.install().casefold()


def test_memory_is_turned_on_in_the_shell_that_one_sits_in_and_the_login_shell_is_named(
    in_login_bash: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    said = in_login_bash.says("install-shell")
    assert ".bashrc" in said
    assert "For your login shell, zsh, too: llm memory install-shell --shell zsh" in said
    assert "For your login shell" not in in_login_bash.install(shell="zsh"), "it was asked for"
    monkeypatch.setattr(os, "getppid", os.getpid)
    assert ".zshrc" in in_login_bash.says("install-shell"), "run by a program"


# Which file


def test_zsh_is_asked_where_its_files_are(home: Home) -> None:
    find("zsh")
    (home.folder / "z dir").mkdir()
    (home.folder / ".zshenv").write_text('print noise\nZDOTDIR="$HOME/z dir"\n')  # not exported, and talkative
    said = home.install(shell="zsh")
    assert (home.folder / "z dir" / ".zshrc").exists()
    assert f"source '{home.folder}/z dir/.zshrc'" in said
    assert "Checked: memory is on in a new zsh:" in said
    assert json.loads(home.run("status", "--json").stdout)["shell"]["installed"] == ["~/z dir/.zshrc"]


@pytest.mark.parametrize(("config", "folder"), [("elsewhere", "elsewhere"), ("", ".config")])
def test_xdg_config_home_is_respected_if_it_is_absolute(
    bare_home: Home, config: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(bare_home.folder / config) if config else "not/absolute")
    for shell in ("fish", "nushell", "powershell"):
        assert find_shell(shell, os.environ).rc == bare_home.folder / FILES[shell].replace(".config", folder)


@pytest.mark.parametrize(
    ("path", "name"), [("/opt/nu", "nushell"), ("C:\\Git\\usr/bin/bash.exe", "bash"), ("pwsh", "powershell")]
)
def test_without_a_name_the_shell_is_taken_from_the_environment(
    bare_home: Home, path: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", path)
    assert f"~/{FILES[name]}" in bare_home.says("install-shell")
    assert find_shell(pathlib.PureWindowsPath(path).stem, os.environ).name == name


def test_an_unknown_shell_is_answered_with_what_to_type_and_no_pipe(
    bare_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "")
    for said in (bare_home.fails("install-shell"), bare_home.fails("install-shell", "--shell", "xonsh")):
        assert re.search(r"^Error: (?:\$SHELL is not set|xonsh is not a shell that memory knows)", said)
        assert "llm memory install-shell --shell bash" in said
        assert "|" not in said
        assert [name for name in KINDS if name not in said] == []
    assert "llm memory uninstall-shell --shell bash" in bare_home.fails("uninstall-shell", "--shell", "xonsh")


# What 0.1.1 left behind


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        (".bashrc", b"mine\n" + OLD.replace(b"\n", b"\r\n") + b"more\n", ["lines 3 to 7"]),
        (".zprofile", OLD[1:] + OLD[1:], ["lines 1 to 5", "lines 6 to 10"]),
        (".config/fish/config.fish", b"mine\n# LLM Memory Plugin Integration\n", ["2"]),
    ],
)
def test_install_and_status_name_what_0_1_1_left_with_its_lines_and_leave_it_alone(
    bare_home: Home, name: str, content: bytes, lines: list[str]
) -> None:
    path = bare_home.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    problems = json.loads(bare_home.run("status", "--json").stdout)["problems"]
    said = bare_home.install()
    for line in lines:
        (problem,) = (one for one in problems if one.startswith(f"~/{name}, ") and line in one)
        assert "a function of llm-user-memory 0.1.1" in problem
        assert "command llm memory" in problem
        assert problem in said.splitlines()
    assert "your own llm function" not in said
    bare_home.uninstall()
    assert path.read_bytes() == content


# What `llm` is afterwards


ACTIVE, INACTIVE, UNSEEN = "Checked: memory is on in", "memory is off", "memory could not be checked"
MEANINGS = [
    ("bash", "set -eu\necho '{noise'; printf more; echo more >&2\n", "printf '{'\n", ACTIVE),
    ("bash", "alias llm='llm -m gpt'\n", "", ACTIVE),
    ("bash", 'llm() { command llm "$@"; }\n', "", INACTIVE),
    ("bash", "", "\nllm() { :; }\n", UNSEEN),
    ("bash", "exit 3\n", "", UNSEEN),
    ("zsh", "", "alias llm=/opt/llm\n", UNSEEN),
]


@pytest.mark.parametrize(("shell", "before", "after", "found"), MEANINGS)
def test_a_new_shell_is_asked_if_memory_is_active_in_it(
    home: Home, shell: str, before: str, after: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find(shell)
    rc = home.folder / FILES[shell]
    rc.write_text(before)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        assert f"To check, open a new {shell} and run: llm memory status\n" in home.install(shell=shell)
    rc.write_text(rc.read_text() + after)
    said = home.install(shell=shell)
    assert found in said
    # A function of one's own wins: the line that it needs is in test_typed.py.
    assert ("LLM_MEMORY_AUTO=1 LLM_MEMORY_LINE=" in said) == (found != ACTIVE)


def test_install_shell_says_what_will_happen_and_what_else_could_be_learned_from(home: Home) -> None:
    places = memory.Home(home.folder.parent / "llm", isolated=True)
    typed(places, "I have a dog", "I have a cat")
    places.journal.unlink()
    typed(places, "I have a hen")  # which is learned from by itself
    said = home.install()
    assert (
        "memory is on in a new bash: it sends your profile with each prompt you type and learns from what you type"
        in said
    )
    assert "llm's log has 2 older prompts; to learn: llm memory learn\n" in said
    assert "that you repeat" not in said
    assert "begins with a space, too. To hide such lines: HISTCONTROL=ignorespace\n" in said
    block = home.bashrc.read_text()
    home.bashrc.write_text(f"HISTCONTROL=ignorespace\n{block}")
    assert "learns from what you type (not from a line that begins with a space)." in home.install()
    home.bashrc.write_text(f"HISTCONTROL=ignoreboth\n{block}")
    assert "(with your HISTCONTROL, not from a line that begins with a space or that you repeat)" in home.install()
    home.bashrc.write_text(f"set +o history\n{block}")
    said = home.install()
    assert "learns only from chats, because this shell keeps no history of lines" in said


@pytest.mark.parametrize(("rc", "found"), [("; wait", "could not be checked"), ("", "Checked: memory is on")])
def test_a_shell_that_hangs_at_its_start_is_killed_and_so_is_what_it_leaves_running(
    home: Home, monkeypatch: pytest.MonkeyPatch, rc: str, found: str
) -> None:
    if rc:
        monkeypatch.setattr(llm_user_memory_shell, "PATIENCE", 0.5)
    home.bashrc.write_text(f'echo $$ >"$HOME/pids"; sleep 1000 & echo $! >>"$HOME/pids"{rc}\n')
    assert found in home.install()
    pids = [*map(int, (home.folder / "pids").read_text().split())]
    eventually(lambda: not any(map(state, pids)), "their end")


def test_status_starts_no_interactive_shell(bare_home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join(REAL_PATH))
    for name in (".bashrc", ".zshrc", ".config/fish/config.fish"):
        (bare_home.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (bare_home.folder / name).write_text('echo started >>"$HOME/started"; exit\n')
    bare_home.install()
    assert (bare_home.folder / "started").read_text() == "started\n"  # install does
    bare_home.run("status")
    assert (bare_home.folder / "started").read_text() == "started\n"


# What is shipped


@pytest.mark.parametrize("before", ["set -aeu\nalias llm='llm -m gpt'\n", "set -a; set -o posix\n"])
def test_the_function_of_bash_is_not_exported_to_scripts_unless_it_is_the_users_own(
    bare_home: Home, before: str
) -> None:
    bare_home.bashrc.write_text(before)
    bare_home.install()
    asked = "declare -F llm; env; bash -c 'type -t llm'; sh -c 'command -v llm'"
    lines = run("bash", "-i", "-c", asked).splitlines()
    assert (lines[0], lines[-2:]) == ("llm", ["file", str(BIN / "llm")])
    assert not any("LLM_MEMORY_AUTO" in line for line in lines)
    bare_home.bashrc.write_text("llm() { :; }\nexport -f llm\n" + bare_home.bashrc.read_text())
    assert run("bash", "-i", "-c", "bash -c 'type -t llm'") == "function\n"


def test_the_lines_of_powershell_work_in_powershell(home: Home) -> None:
    find("powershell")
    assert ACTIVE in home.install(shell="powershell")
