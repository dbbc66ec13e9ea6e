"""`llm` in real shells, with the block and without it: the same calls, but for what prompts carry.

The shells run in a pseudo-terminal. Where only the shell is in question, a
fake `llm` writes down how it was called; where llm is in question, one process
imports the real one and forks for each call.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import llm_user_memory_shell
import psutil
import pytest
from conftest import PATIENCE, posix_only, state
from shells import Outcome, Place, Session, find, session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from conftest import User

pytestmark = posix_only
ON, OFF, UNSET = "1", "0", "unset"

# Lines to type, by what LLM_MEMORY_AUTO is in the calls of llm that each makes, in the order of their arguments.
Lines = dict[tuple[str, ...], tuple[str, ...]]


COMMON: Lines = {
    (UNSET,): ("^PLAIN hello", "env llm hello", "sh -c 'llm hello'"),
    (UNSET, UNSET): ("sh script.sh", "./script.sh", "printf 'a\\nb\\n' | xargs -n1 llm"),
    (OFF,): ("LLM_MEMORY_AUTO=0 llm off",),
    ("prompt",): ("LLM_MEMORY_AUTO=prompt llm here",),
    (ON, ON): ("llm a | llm b", "llm a; llm b"),
    (ON,): (
        *(
            "llm",
            "llm hello",
            "llm 'two  words' \"a b\"",
            "llm -- -not-an-option",
            "llm --",
            "llm ''",
            "llm 😀 'ж ß 漢'",
        ),
        *("llm --option=value -abc -1 007 1.10 0x10 5kb 2026-11-20 a=b foo:bar", "llm true null NaN 1..3", "llm -"),
        *("llm *.txt", "llm '*.txt' \"~/x\"", "llm ~/x", "llm exit 1", "llm exit 130", "OTHER=1 llm hello"),
        *("printf 'piped' | llm", "printf 'piped' | llm -s summarize", "llm a | cat", "cat out | llm"),
    ),
}
NOT_NU: Lines = {
    (ON, ON): ("llm a && llm b", "llm exit 3 || llm b"),
    (UNSET,): ("nohup llm a >out 2>&1",),
    (ON,): (
        *("llm \"$(printf 'a\\nb\\n\\nc')\" 'it'\\''s \"quoted\"'", 'llm a\\ b \\$HOME "$HOME"x', "llm </dev/null"),
        *("llm <a.txt", "llm <&-", "llm a >out", "llm fail 2>out", "llm fail >out 2>&1", "llm a >>out 2>/dev/null"),
        *("llm a | tee out", "llm fail 2>&1 | cat >out", "! llm exit 3", "llm exit 4 | cat"),
        *("cat a.txt | llm b | cat >out", "eval 'llm a'", "time llm exit 5"),
    ),
}
POSIX: Lines = {
    (ON, ON): (
        *("{ llm a; llm b; } >out", "for i in 1 2; do llm $i; done", "if llm exit 1; then llm yes; else llm no; fi"),
    ),
    (UNSET,): ("bash -c 'llm a'",),
    (OFF,): (
        "export LLM_MEMORY_AUTO=0; llm a; unset LLM_MEMORY_AUTO",
        "LLM_MEMORY_AUTO=0; llm a; unset LLM_MEMORY_AUTO",
    ),
    (ON,): (
        *('x=$(llm a); printf %s "$x" >out', 'printf %s "`llm a`" >out', "x=$(llm exit 6)", "(llm a)"),
        *("(llm exit 7)", "ask() { llm asked \"$@\"; }; ask 'a b'", "llm a & wait", "llm a >out & wait $!"),
        *("llm exit 8 & wait $!", "(llm a &) | cat", "llm <<'END'\rhere\rEND", "llm <<<'a here string'"),
        *("cat <(llm a) >out", "set -o pipefail; llm exit 9 | cat; set +o pipefail"),
        "LLM_MEMORY_AUTO=; llm a; unset LLM_MEMORY_AUTO",
    ),
}
FISH: Lines = {
    (ON, ON): (
        *("begin; llm a; llm b; end >out", "for i in 1 2; llm $i; end", "if llm exit 1; llm yes; else; llm no; end"),
        "not llm exit 1; and llm b",
    ),
    (UNSET,): ("fish -c 'llm a'",),
    (OFF,): (
        "set -x LLM_MEMORY_AUTO 0; llm a; set -e LLM_MEMORY_AUTO",
        "set LLM_MEMORY_AUTO 0; llm a; set -e LLM_MEMORY_AUTO",
    ),
    (ON,): (
        *("set x (llm a); printf %s $x >out", 'printf %s "$(llm a)" >out', "set x (llm exit 6)"),
        *("function ask; llm asked $argv; end; ask 'a b'", "cat (llm a | psub) >out"),
        "set LLM_MEMORY_AUTO ''; llm a; set -e LLM_MEMORY_AUTO",
    ),
}
NU: Lines = {
    (ON, ON): ("try { llm exit 3 } catch { 'b' | llm b }", "do { llm a; llm b }", "for i in 1..2 { llm $i }"),
    (UNSET,): ("nu -c 'llm a'", "nu script.nu"),
    (OFF,): ("$env.LLM_MEMORY_AUTO = '0'; llm a; hide-env LLM_MEMORY_AUTO",),
    (ON,): (
        *('llm "a\\nb" `c d` a"b"c --x="y z"', 'llm ...[x "y z"] $"sum (1 + 1)" (3 + 4)', "llm $env.LANG r#'raw'#"),
        *("llm a out> out", "llm fail err> out", "llm fail o+e> out", "llm fail o+e>| save -f out"),
        *("let x = (llm a); $x | save -f out", "llm a | str upcase | save -f out", "'typed' | llm | save -f out"),
        *("open a.txt | llm", "llm exit 3 | complete | get exit_code | save -f out", "(llm a)"),
        *("def ask [x] { llm asked $x }; ask 'a b'", "timeit { llm a } | describe | save -f out"),
        "$env.LLM_MEMORY_AUTO = ''; llm a; hide-env LLM_MEMORY_AUTO",
    ),
}

PLAIN = {"nushell": "^llm"}


def lines_for(shell: str) -> list[tuple[str, tuple[str, ...]]]:
    tables = {"fish": [COMMON, NOT_NU, FISH], "nushell": [COMMON, NU]}.get(shell, [COMMON, NOT_NU, POSIX])
    if shell in {"bash", "zsh"}:
        tables = [*tables, {(UNSET if shell == "bash" else ON,): ("(exec llm a)",)}]  # zsh's exec knows functions
    rows = [(line, autos) for table in tables for autos, lines in table.items() for line in lines]
    return [(line.replace("^PLAIN", PLAIN.get(shell, "command llm")), autos) for line, autos in rows]


def furnish(place: Place) -> Place:
    """Files that the lines talk about."""
    (place.work / "a.txt").write_text("the text of a\n")
    (place.work / "b.txt").write_text("b")
    (place.work / "script.sh").write_text("#!/bin/sh\nllm one\necho x | llm two\n")
    (place.work / "script.sh").chmod(0o755)
    (place.work / "script.nu").write_text("llm one\n")
    place.write_rc()
    if place.shell == "nushell":
        place.env["PATH"] += f":{pathlib.Path(place.program).parent}"
    return place


def without_and_with(tmp_path: pathlib.Path, shell: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Place, Place]:
    """Two places that differ in nothing but the block."""
    name, _, mode = shell.partition(" ")
    plain = furnish(Place(tmp_path / "plain", name, posix=mode == "--posix"))
    block = furnish(Place(tmp_path / "block", name, posix=mode == "--posix"))
    block.install(monkeypatch)
    return plain, block


def type_all(place: Place, lines: Iterable[str]) -> list[Outcome]:
    with session(place) as shell:
        return [shell.run(line, "typed words\r\x04" if line == "llm" else "") for line in lines]


@pytest.mark.parametrize("shell", ["bash", "bash --posix", "zsh", "fish", "nushell"])
def test_every_typed_line_calls_llm_just_as_without_the_block(
    shell: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, block = without_and_with(tmp_path, shell, monkeypatch)
    lines = lines_for(shell.partition(" ")[0])
    expected, found = (type_all(place, [line for line, _ in lines]) for place in (plain, block))
    for (line, autos), before, after in zip(lines, expected, found, strict=True):
        assert before.records, f"{line!r} did not call llm at all"
        assert after == before, line
        assert after.autos == autos, line
        assert set(before.autos) <= {UNSET, OFF, "prompt", ""}, line


# Jobs

RUNS = (psutil.STATUS_RUNNING, psutil.STATUS_SLEEPING)


def stop_and_go_on(shell: Session) -> list[str]:
    """What Ctrl-C, Ctrl-Z, fg, bg and `&` come to, step by step."""
    seen = []

    def comes_to(pid: int, *states: str) -> None:
        shell.until(lambda: state(pid) in states, f"state {states!r}")

    def types(keys: str, pid: int, *states: str) -> None:
        shell.type(keys)
        seen.append(f"{keys!r}: {shell.finish()}")
        comes_to(pid, *states)

    def interrupts_in_the_foreground(pid: int) -> None:
        shell.type("fg\r")
        shell.until(lambda: os.tcgetpgrp(shell.fd) == os.getpgid(pid), "llm in the foreground")
        types("\x03", pid, "")

    shell.type("llm wait interrupted\r")
    types("\x03", shell.started().pid, "")
    shell.run("llm exit 0")  # fish leaves the code of whatever it ran before
    shell.type("llm wait stopped\r")
    pid = shell.started().pid
    types("\x1a", pid, psutil.STATUS_STOPPED)
    shell.until(lambda: bool(re.search("Stopped|suspended|has stopped", shell.shown)), "a word of the shell about it")
    assert "LLM_MEMORY" not in (shell.run("jobs >out").out or ""), "one's own words, not ours"
    types("bg\r", pid, *RUNS)
    interrupts_in_the_foreground(pid)
    shell.type("llm wait 'in the background; (really) & truly' &\r")
    seen.append(f"&: {shell.finish()}")
    pid = shell.started().pid
    comes_to(pid, *RUNS)
    interrupts_in_the_foreground(pid)
    return seen


@pytest.mark.parametrize("shell", ["bash", "bash --posix", "zsh", "fish"])
def test_jobs_are_interrupted_stopped_and_continued_just_as_without_the_block(
    shell: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for place in without_and_with(tmp_path, shell, monkeypatch):
        with session(place) as opened:
            seen.append(stop_and_go_on(opened))
            assert opened.run("llm afterwards").records[0].arguments == ("afterwards",)
    assert {record.auto for record in place.records()} == {ON}
    assert seen[0] == seen[1]


# Where there is no person at the keyboard


def run(place: Place, command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    """Run a shell that is no terminal's."""
    return subprocess.run(
        command,
        env=place.env | env,
        cwd=place.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "nushell"])
def test_scripts_cron_and_ssh_commands_get_the_plain_llm(
    shell: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, place = without_and_with(tmp_path, shell, monkeypatch)
    rc = str(place.rc)
    # As root's /etc/profile sets PATH anew.
    (place.home / ".bash_profile").write_text(f"PATH='{place.env['PATH']}'\n. ~/.bashrc\n")
    source = [["-c", f"source '{place.rc}'; llm sourced"]] if shell != "nushell" else []
    commands = [["-c", "llm plain"], ["-l", "-c", "llm login"], *source]
    for arguments in commands:
        for env in ({}, {"BASH_ENV": rc, "SSH_CLIENT": "1.2.3.4 5 6", "SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 0"}):
            assert run(place, [place.program, *arguments], **env).stderr == ""
    calls = place.records()
    assert len(calls) == 2 * len(commands)
    assert {record.auto for record in calls} == {UNSET}


def test_dash_reads_the_file_and_ignores_the_block(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path / "place", "bash", posix=True)
    place.install(monkeypatch)
    command = [find("dash"), "-eui", "-c", ". ~/.bashrc; llm a; command -v llm"]
    done = run(place, command)
    assert done.stdout == f"answer a\n{place.folder / 'bin' / 'llm'}\n"
    assert [line for line in done.stderr.splitlines() if "can't access tty" not in line] == []
    assert [record.auto for record in place.records()] == [UNSET]


@pytest.mark.parametrize("shell", ["bash", "bash --posix", "zsh"])
def test_the_block_does_not_end_a_shell_that_stops_at_errors(
    shell: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _, mode = shell.partition(" ")
    place = Place(tmp_path / "place", name, posix=bool(mode))
    place.write_rc("set -eu\n")
    place.install(monkeypatch)
    place.rc.write_text(place.rc.read_text() + "reached=yes\n")
    with session(place) as opened:
        assert opened.run('llm "$reached"').autos == (ON,)
        assert opened.run('. "$HOME"/' + place.rc.name).code == "0"
        assert opened.run("llm again").records[0].ttys == "012"


MINE, GPT = ("mine", "hi"), ("-m", "gpt", "hi")
FUNCTION, ALIAS = 'llm() { command llm mine "$@"; }\n', "alias llm='llm -m gpt'\n"
FISH_FUNCTION = "function llm; command llm mine $argv; end\n"


@pytest.mark.parametrize(
    ("shell", "file", "text", "arguments", "auto"),
    [
        ("bash", ".bashrc", ALIAS, GPT, ON),
        ("bash", ".bashrc", FUNCTION, MINE, UNSET),
        ("zsh", ".zshrc", ALIAS, GPT, ON),
        ("zsh", ".zshrc", FUNCTION, MINE, UNSET),
        ("fish", "config.fish", ALIAS, GPT, UNSET),
        ("fish", "functions/llm.fish", FISH_FUNCTION, MINE, UNSET),
    ],
)
def test_an_alias_or_a_function_of_the_users_own_does_what_it_did(
    shell: str,
    file: str,
    text: str,
    arguments: tuple[str, ...],
    auto: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(tmp_path / "place", shell)
    place.write_rc()
    own = place.rc.parent / file
    own.parent.mkdir(exist_ok=True)
    with own.open("a") as opened:
        opened.write(text)
    place.install(monkeypatch)
    with session(place) as typing:
        outcome = typing.run("llm hi")
    assert outcome.records[0].arguments == arguments
    assert outcome.autos == (auto,)


# The real llm


DRIVER = r"""
import gc, glob, json, os, shutil, signal, sys
from llm.cli import cli

gc.freeze()
calls, template, user_dir, answer = json.loads(sys.argv[1]), *sys.argv[2:]
streams = [f"{user_dir}/{name}" for name in ("stdin", "out", "err")]
results = []


def read(path):
    with open(path, errors="replace") as file:
        return file.read()


for arguments, stdin in calls:
    shutil.rmtree(user_dir, ignore_errors=True)
    shutil.copytree(template, user_dir)
    with open(streams[0], "w") as file:
        file.write(stdin or "")
    if (pid := os.fork()) == 0:
        break
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    asked = user_dir + "/scripted/calls.jsonl"
    results.append({
        "code": code,
        "shown": [read(path) for path in streams[1:]],
        "templates": [read(path) for path in sorted(glob.glob(user_dir + "/templates/*"))],
        "asked": [json.loads(line) for line in read(asked).splitlines()] if os.path.exists(asked) else [],
    })
else:
    with open(answer, "w") as file:
        json.dump(results, file)
    sys.exit()

# A fork, which is the call.
signal.alarm(30)
sys.excepthook = lambda kind, error, trace: print(repr(error), file=sys.stderr)  # llm fails where stdin is closed
for number, path in enumerate(streams):
    os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
if stdin is None:
    os.close(0)
    sys.stdin = None
cli.main(arguments, prog_name="llm")
"""

PROFILE = "# User Profile\n\n- Lives in Leeds\n"

Calls = list[tuple[list[str], str | None]]


def calls(stdin: str | None, *lines: str) -> Calls:
    return [(shlex.split(line), stdin) for line in lines]


# Calls that ask a model, and so carry the profile, with what they are given to read.
PROMPTS = [
    *calls("", "hello", "''", "prompt hello", "-t brief hello", "-n hello", "'logs are nice'", "--no-stream hello"),
    *calls("", "-s 'be brief' \"two  words\nand 'quotes' too 😀\"", "-m scripted-2 -o temperature 0.5 hello"),
    *calls("", "-x hello", "--schema 'answer str' hello", "--async hello"),
    *calls("piped text", "", "summarize", "chat"),
]
# Calls that ask no model, besides every subcommand: memory must not show in them at all.
OTHERS = [
    *calls(None, "", "hello"),  # standard input is closed
    *calls("", "--version", "-- --version", "--help", "-h", "prompt --help", "chat -h", "--save t 'say $input'"),
    *calls(
        "", "--save t -s 'be brief' -m scripted-2", "-m no-such-model hello", "--no-such-option", "-f no-such hello"
    ),
    *calls("", "logs -n 3", "logs --json", "logs list -q earlier", "models list --options", "templates show brief"),
    *calls("", "fragments show memory:auto", "keys set name --value x", "aliases set short scripted", "memory show"),
    *calls("", "memory show --json", "memory path", "memory no-such-command"),
]
LISTING = {"--help", "-h", "plugins", "tools", "tools list", "fragments loaders", "templates loaders"}
"""Commands that list what is installed, this plugin as well."""


def subcommands() -> Calls:
    """Every subcommand that llm has, bare and asked for help."""
    import click
    from llm.cli import cli

    found: Calls = []
    for name, command in sorted(cli.commands.items()):
        nested = sorted(command.commands) if isinstance(command, click.Group) and name != "memory" else []
        for words in [[name], *([name, each] for each in nested)]:
            if len(words) == 1:
                found.append(([*words, "--help"], ""))
            if words[0] not in {"install", "uninstall", "chat", "prompt"}:  # pip; those that ask models are above
                found.append((words, ""))
    return found


def drive(user: User, calls: Calls, template: pathlib.Path, **env: str) -> Any:
    """Run the real llm once for each of the calls, each in its own copy of a user directory."""
    answer = user.folder / "answer.json"
    command = [sys.executable, "-c", DRIVER, json.dumps(calls), str(template), str(user.user_dir), str(answer)]
    environ = user.env | {"LLM_MEMORY_UPDATES": "false", "EDITOR": "true"} | env
    subprocess.run(command, env=environ, cwd=user.home, timeout=5 * PATIENCE, check=True)
    return json.loads(answer.read_text())


def steady(result: object, arguments: list[str]) -> str:
    """A result without what differs from one call to the next: ids, times, sizes, durations."""
    text = str(result)
    text = re.sub(r"\b[0-9a-z]{26}\b", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)?", "TIME", text)
    text = re.sub(r'"duration_ms": \d+|[\d.]+ ?[KMG]?B\b', "N", text)
    # llm lists plugins in an order of the moment.
    return "".join(sorted(text)) if arguments[:1] == ["plugins"] else text


def test_every_command_of_the_real_llm_is_the_same_but_for_what_prompts_carry(user: User, fuzz: float) -> None:
    """With ``--fuzz`` all subcommands, else every fourth."""
    user.profile = PROFILE
    user.llm("an earlier prompt", auto=None, LLM_MEMORY_UPDATES="false")
    templates = user.user_dir / "templates"
    templates.mkdir()
    (templates / "brief.yaml").write_text("system: be brief\n")
    (user.script / "calls.jsonl").unlink()
    template = user.folder / "template"
    shutil.copytree(user.user_dir, template)
    every = PROMPTS + OTHERS + (subcommands() if fuzz else subcommands()[::4])
    assert len(every) >= (100 if fuzz else 50)
    without = drive(user, every, template, LLM_LOAD_PLUGINS="llm-scripted")
    installed: dict[str, Any] = {"LLM_LOAD_PLUGINS": "llm-scripted,llm-user-memory"}
    off, on = drive(user, every, template, **installed), drive(user, every, template, LLM_MEMORY_AUTO="1", **installed)
    for (arguments, stdin), bare, before, after in zip(every, without, off, on, strict=True):
        call = f"llm {arguments} with {stdin!r} to read"
        if "memory" not in " ".join(arguments) and " ".join(arguments) not in LISTING:
            assert steady(before, arguments) == steady(bare, arguments), call
        carries = (arguments, stdin) in PROMPTS
        asked = before.pop("asked")
        assert bool(asked) == carries, call
        assert [without_profile(each) for each in after.pop("asked")] == [(each, carries) for each in asked], call
        assert steady(after, arguments) == steady(before, arguments), call


def without_profile(asked: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """What a model was asked, its system prompt as it would be without the profile, and whether it carried that."""
    head, found, tail = (asked["system"] or "").partition("</user_profile>")
    if not found or "Lives in Leeds" not in head:
        return asked, False
    rest = tail.strip()
    messages = [[role, text] for role, text in asked["messages"] if role != "system"]
    if rest:
        messages.insert(0, ["system", rest])
    return asked | {"system": rest, "messages": messages}, True


# Linting: each shell reads its file without a word


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (["shellcheck", "-s", "bash"], "llm.bash"),
        (["bash", "-n"], "llm.bash"),
        (["dash", "-n"], "llm.bash"),
        (["zsh", "-n"], "llm.zsh"),
        (["fish", "--no-execute"], "llm.fish"),
        (["nushell", "--ide-check", "10"], "llm.nu"),
        (["nushell", "--ide-check", "10"], "llm.windows.nu"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_the_lines_are_clean(command: list[str], file: str) -> None:
    path = pathlib.Path(llm_user_memory_shell.__file__).with_name(file)
    command = [find(command[0]), *command[1:], str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    # Nushell's check also prints hints about types.
    errors = [line for line in done.stdout.splitlines() if '"type":"hint"' not in line]
    assert (done.returncode, errors, done.stderr) == (0, [], "")
