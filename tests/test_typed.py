"""Typed or not: words in the command line as the user typed it are learned from, words the shell put in are not."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from conftest import PATIENCE, posix_only
from hypothesis import given
from hypothesis import strategies as st
from llm_user_memory_shell import OWN
from shells import Place, session

import llm_user_memory as memory
from llm_user_memory import is_written_in

if TYPE_CHECKING:
    import pathlib

    from conftest import User

pytestmark = posix_only
SAID = "I live in Leeds"
ALSO = "I work as a nurse"
SPY = "I am a spy"

# Lines to type in a real shell. `ask` is a function that passes its words to llm, `q` an alias for llm.

TYPED = [
    *("llm 'I live in Leeds'", 'llm "I live in Leeds, it\'s nice"', "llm I\\ live\\ in\\ Leeds"),
    *('llm "say \\"hi\\" for \\$5"', "llm 'first\rsecond'", 'llm "first \\\rsecond, broken in the mid\\\rdle"'),
    *("llm -m gpt -o temperature 0.5 'I live in Leeds'", "llm -- '-5 degrees in Leeds'"),
    *("llm '   blanks   around   '", "llm 'ж ß 漢 😀'", "llm 'what is $(date), `date` and $HOME?'"),
    *("X=1 llm 'I live in Leeds'", "q 'I live in Leeds'", "ask 'I live in Leeds'", "llm again", "llm again"),
    *("cat page | llm 'sum this up'", "llm 'sum this up' <page", "llm 'I live in Leeds' | llm 'say it in French'"),
    *("llm one; llm two", "eval 'llm one'", "llm 'I live in Leeds' >/dev/null &"),
    "llm -s \"$(cat page)\" 'I live in Leeds'",
]
NOT_TYPED = [
    *('llm "$(cat page)"', 'llm "Sum up: $(cat page)"', 'llm "$page"', 'llm "What of this: $page"', 'ask "$page"'),
    *("llm pag*", "llm ~", "source ./script", " llm 'I live in Leeds'"),
]
TYPED_POSIX = [
    *("llm 'it'\\''s \"quoted\"'", "llm $'it\\'s\\tone\\nline'", "llm 'sum this up' <<'END'\rhere\rEND"),
    *("llm 'sum this up' <<<'a here string'", "x=$(llm 'I live in Leeds')", "echo `llm one`", "cat <(llm one)"),
    *("(llm 'I live in Leeds')", "{ llm one; llm two; } >/dev/null", "if true\rthen llm 'I live in Leeds'\rfi"),
    *('for drink in tea coffee; do llm "$drink"; done', "other() { llm 'I live in Leeds'; }; other"),
    *("llm 'the same words'", "!!", "llm !$", "!ll", "fc -s"),
    *("llm $'\\x54ea f\\303\\274r \\u6f22'", "llm $'C:\\\\x54 \\U0001f600'"),
]
NOT_TYPED_POSIX = [
    *('llm "Sum up: `cat page`"', 'llm "$(<page)"', 'llm "$((6 * 7)) apples"'),
    *('for file in *; do llm "about $file"; done', 'while read -r line; do llm "$line"; done <page'),
    *('read -r line <page; llm "$line"', 'x=$(cat page); llm "$x"', ". ./script", "other"),
]
TYPED_FISH = [
    *("llm it\\'s\\tone\\nline", "set x (llm 'I live in Leeds')", "begin; llm one; llm two; end >/dev/null"),
    *("if true\rllm 'I live in Leeds'\rend", "for drink in tea coffee; llm $drink; end"),
    *("function other; llm 'I live in Leeds'; end; other", "lx 'I live in Leeds'"),
]
NOT_TYPED_FISH = [
    *('llm "Sum up: "(cat page)', 'for file in *; llm "about $file"; end'),
    *('while read -l line; llm "$line"; end <page', "read -l line <page; llm $line", "set x (cat page); llm $x"),
    "other",
]
HIDDEN = {
    "zsh": "zshaddhistory() { [[ $1 != *Leeds* ]] }\n",
    "zsh, of others": "other_hook() { [[ $1 != *Leeds* ]] }; zshaddhistory_functions=(other_hook)\n",
    "fish": "function fish_should_add_to_history; not string match -q '*Leeds*' -- $argv; end\n",
}
START_UP = {
    "bash": "ask() { llm \"$@\"; }; alias q=llm; page='I am a page'; HISTCONTROL=ignorespace; HISTTIMEFORMAT='%F %T '\n",
    "zsh": "ask() { llm \"$@\"; }; alias q=llm; page='I am a page'; setopt histignorespace histignoredups\n",
    "fish": "function ask; llm $argv; end; alias q=llm; abbr -a lx llm; set page 'I am a page'\n",
}


def learned(user: User) -> list[bool]:
    """Tell for each logged turn if it was noted, to be learned from."""
    noted = user.places.journal.read_text() if user.places.journal.exists() else ""
    turns = json.loads(user.query("select json_group_array(id) from (select id from turns order by id)"))
    return [turn in noted for turn in turns]


def furnished(folder: pathlib.Path, shell: str, monkeypatch: pytest.MonkeyPatch, rc: str = "") -> Place:
    """Make a place with the block installed, and the files that the lines use."""
    name, _, mode = shell.partition(" ")
    place = Place(folder, name, posix=bool(mode))
    place.write_rc(START_UP.get(name, "") + rc)
    place.install(monkeypatch)
    (place.work / "page").write_text("I am a page\n")
    (place.work / "script").write_text(f"llm '{SPY}'\n")
    return place


@pytest.mark.parametrize("shell", ["bash", "bash --posix", "zsh", "fish"])
def test_typed_words_are_told_apart_from_words_the_shell_put_in(
    shell: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = furnished(tmp_path / "place", shell, monkeypatch)
    typed, not_typed = (TYPED_FISH, NOT_TYPED_FISH) if shell == "fish" else (TYPED_POSIX, NOT_TYPED_POSIX)
    wrong = []
    with session(place) as opened:
        for line in [*TYPED, *typed, *NOT_TYPED, *not_typed]:
            calls = opened.run(line).records or [opened.started()]  # one in the background may come later
            assert all(call.line for call in calls), line
            if {is_written_in(call.arguments[-1], call.line) for call in calls} != {line in {*TYPED, *typed}}:
                wrong.append(line)
    assert wrong == []


@pytest.mark.parametrize(
    ("shell", "rc", "arguments", "line", "kept"),
    [
        ("bash", "set +o history\n", [], "llm one", ""),
        ("bash", "HISTSIZE=0\n", [], "llm one", ""),
        ("bash", "HISTIGNORE='llm*'\n", [], "llm one", " "),
        ("bash", "HISTCONTROL=\n", [], " llm one", "llm one"),
        ("zsh", "unsetopt histignorespace\n", [], " llm one", " llm one"),
        ("zsh", "HISTSIZE=0\n", [], "llm one", "llm one"),
        ("zsh", "setopt sharehistory ksharrays nounset errexit\n", [], "llm one", "llm one"),
        ("fish", "", ["--private"], "llm one", " "),
    ],
)
def test_the_line_a_shell_passes_on_depends_on_its_history_settings(
    shell: str,
    rc: str,
    arguments: list[str],
    line: str,
    kept: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = furnished(tmp_path / "place", shell, monkeypatch, rc)
    with session(place, *arguments) as opened:
        opened.run(line)
    (record,) = place.records()
    assert record.line.endswith(kept)
    assert bool(record.line) == bool(kept)
    assert kept.strip() or not record.line.strip()


@pytest.mark.parametrize("kind", HIDDEN)
def test_a_line_that_a_hook_keeps_out_of_the_history_is_hidden_and_no_other(
    kind: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = furnished(tmp_path / "place", kind.partition(",")[0], monkeypatch, HIDDEN[kind])
    with session(place) as opened:
        for line in ("llm one", f"llm '{SAID}'", f"llm '{SAID}'", "llm two", f"llm -T UserMemory '{SAID}'"):
            opened.run(line)
    assert [record.line.strip() for record in place.records()] == ["llm one", "", "", "llm two", ""]
    assert all(record.line for record in place.records())


BEGUN = ["llm chat", "llm chat -c", "q chat", "X=1 llm chat", "llm -T UserMemory 'Likes tea'", "(llm chat)", "llm one"]
BEGUN += ["eval 'llm chat'", ". ./chat", "(eval 'llm chat')", "echo $(llm chat)", "{\rllm chat\r}", "cat <(llm chat)"]


@pytest.mark.parametrize(
    "kept_out", ["ignorespace", "ignoreboth", "ignorespace; shopt -u cmdhist", "; HISTIGNORE=' *'"]
)
@pytest.mark.parametrize("own", [False, True])
def test_what_begins_with_a_line_that_bash_keeps_out_of_the_history_is_hidden_and_nothing_else(
    kept_out: str, own: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = furnished(tmp_path / "place", "bash", monkeypatch, f"HISTCONTROL={kept_out}\nset -u\nIFS=,\n")
    (place.work / "chat").write_text("llm chat\n")
    if own:
        place.rc.write_text(f"llm() {{ {OWN['bash']}; }}\n{place.rc.read_text()}")
    with session(place) as opened:
        for line in BEGUN:
            assert opened.run(line).records[0].line.strip(), line
            assert not opened.run(f" {line}").records[0].line.strip(), line
            opened.run("7z='*'")
            assert not opened.run(f" {line}").records[0].line.strip(), line


@pytest.mark.parametrize(
    ("kept_out", "is_seen"), [("", True), ("ignoredups", True), ("ignorespace", True), ("ignoreboth", False)]
)
def test_a_line_that_repeats_the_one_before_is_hidden_if_bash_cannot_tell_it_from_a_hidden_one(
    kept_out: str, is_seen: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = furnished(tmp_path / "place", "bash", monkeypatch, f"HISTCONTROL={kept_out}\n")
    with session(place) as opened:
        for line in ("llm chat", "llm one", "llm 'two words' | cat"):
            assert opened.run(line).records[0].line.strip(), line
            assert bool(opened.run(line).records[0].line.strip()) == is_seen, line


def test_what_a_key_runs_in_bash_is_not_typed_whatever_the_line_before_says(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = furnished(tmp_path / "place", "bash", monkeypatch, """bind -x '"\\C-xl": . ./script'\n""")
    with session(place) as opened:
        opened.run(f"echo '{SPY}'")
        (call,) = opened.run("\x18l").records
    assert not is_written_in(call.arguments[-1], call.line)


def test_the_history_file_is_not_taken_for_lines_of_this_bash(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = furnished(tmp_path / "place", "bash", monkeypatch)
    place.rc.write_text(f"{place.rc.read_text()}HISTFILE=~/.history\n")
    (place.home / ".history").write_text("ls\nllm chat\n")
    with session(place) as opened:
        assert not opened.run(" llm chat").records[0].line.strip()


def test_a_command_of_several_lines_is_handed_over_whole_in_a_bash_that_keeps_each_line_by_itself(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = furnished(tmp_path / "place", "bash", monkeypatch, "shopt -u cmdhist\n")
    lines = [
        'for drink in tea coffee\rdo\rllm "$drink"\rdone',
        "{\rllm one\rllm two\r} >/dev/null",
        "llm 'first\rsecond'",
        "llm alone",
    ]
    with session(place) as opened:
        for line in lines:
            for each in line.split("\r"):
                opened.type(f"{each}\r")
            opened.until(lambda: len(opened.codes()) > opened.prompts, "the next prompt")
            opened.finish()
    typed = [is_written_in(record.arguments[-1], record.line) for record in place.records()]
    assert typed == [True] * 6
    assert "first" not in place.records()[-1].line


@pytest.mark.parametrize("shell", ["bash", "zsh"])  # fish takes minutes to show such a line
def test_a_line_too_long_for_one_variable_still_calls_llm(
    shell: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = furnished(tmp_path / "place", shell, monkeypatch)
    words = ["漢字" * 11_000] * 2  # what the system takes as arguments, but not as one
    with session(place) as opened:
        assert opened.run(f"\x1b[200~llm {' '.join(words)}\x1b[201~").code == "0"
    (record,) = place.records()
    assert record.arguments == tuple(words)
    assert is_written_in(words[0], record.line)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "nushell"])
def test_a_call_from_a_real_shell_carries_the_profile_and_notes_whether_its_words_were_typed(
    shell: str, tmp_path: pathlib.Path, idle: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = furnished(tmp_path / "place", shell, monkeypatch)
    (place.folder / "bin" / "llm").unlink()
    idle.profile = "- Plays chess\n"
    lines = [f"ask '{SAID}'", 'llm "$(cat page)"']
    if shell == "nushell":
        lines = [f"llm '{SAID}'", "llm (open page)"]
    with session(place, **idle.env | {"HOME": str(place.home)}) as opened:
        assert [opened.run(line).code for line in lines] == ["0"] * len(lines)
        if shell != "nushell":  # what llm does when this plugin has been uninstalled: it loads the others
            assert opened.run("LLM_LOAD_PLUGINS=llm-scripted llm 'good bye'").code == "0"
    assert learned(idle) == [True, False, False][: len(idle.calls())]
    assert ["Plays chess" in call["system"] for call in idle.calls()] == [True, True, False][: len(idle.calls())]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "nushell"])
def test_no_other_program_inherits_the_line(
    shell: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = furnished(tmp_path / "place", shell, monkeypatch)
    env = "^env out> out" if shell == "nushell" else "env >out"
    with session(place) as opened:
        assert opened.run("llm one").records[0].line.endswith("llm one")
        assert "llm one" not in (opened.run(f"{env}; sh -c 'llm two'").out or "llm one")
    assert "LLM_MEMORY" not in (place.work / "out").read_text()
    assert (place.records()[-1].auto, place.records()[-1].line) == ("unset", "")


OWN_FUNCTION = {"bash": "llm() {{ {}; }}", "zsh": "llm() {{ {}; }}", "fish": "function llm; {}; end"}


ESCAPED = [
    ("Tea für 漢😀", "llm $'\\x54ea f\\303\\274r \\u6f22\\U0001f600'"),
    ("Kräfte\tunter\n\\x54", "llm $'Kr\\u00e4fte\\tunter\\n\\\\x54'"),
]


@pytest.mark.parametrize(("words", "line"), ESCAPED)
def test_an_escape_is_the_character_that_the_shell_makes_of_it(words: str, line: str) -> None:
    assert is_written_in(words, line)
    assert not is_written_in(words, "llm $'\\x55'")


@pytest.mark.parametrize("shell", OWN_FUNCTION)
def test_a_function_of_ones_own_carries_the_profile_with_the_line_that_it_is_given(
    shell: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = furnished(tmp_path / "place", shell, monkeypatch)
    place.rc.write_text(f"{OWN_FUNCTION[shell].format(OWN[shell])}\n{place.rc.read_text()}")
    with session(place) as opened:
        for line in ("llm before", f"llm '{SAID}'", 'llm "$(cat page)"', f" llm '{SAID}'"):
            opened.run(line)
    assert [record.auto for record in place.records()] == ["1"] * 4
    assert [is_written_in(call.arguments[-1], call.line) for call in place.records()] == [True, True, False, False]
    assert all(record.line for record in place.records())


# Without a shell


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_any_words_are_found_in_a_line_that_quotes_them(words: str) -> None:
    with_a_letter = f"{words}a"
    assert is_written_in(with_a_letter, f"  501  2026-11-20 12:00 llm -m gpt {shlex.quote(with_a_letter)} | less")
    assert not is_written_in(f"{words}x", f"llm {shlex.quote(words.replace('x', 'y'))}")


def test_words_that_a_plugin_passes_to_llm_in_its_process_are_not_typed(idle: User) -> None:
    code = f"from llm.cli import cli; cli.main(['{SPY}'], standalone_mode=False)"
    env = idle.env | {"LLM_MEMORY_AUTO": "1", "LLM_MEMORY_LINE": f"llm plugin '{SPY}'"}
    subprocess.run([sys.executable, "-c", code], env=env, cwd=idle.folder, timeout=PATIENCE, check=True)
    assert learned(idle) == [False]


@pytest.mark.parametrize("words", ['"', "   ", "\\\\"])
def test_words_of_blanks_and_quotes_alone_are_not_typed(idle: User, words: str) -> None:
    idle.llm(words, auto=None, LLM_MEMORY_AUTO="1", check=False)
    assert not idle.places.journal.exists()


def test_without_a_line_from_the_shell_function_no_words_count_as_typed(idle: User) -> None:
    for env in ({}, {"LLM_MEMORY_AUTO": "1"}, {"LLM_MEMORY_AUTO": "1", "LLM_MEMORY_LINE": ""}):
        for command in (("llm", SPY), ("llm", "--sf", "memory:auto", SPY), ("llm", "-f", "memory:auto", SPY)):
            assert idle.terminal(*command, auto=None, **env).wait() == 0
    assert learned(idle) == [False] * 9


@pytest.mark.parametrize(
    "command",
    [
        ("bash", "-c", f"llm '{SPY}'"),
        ("xargs", "-a", "page", "-d", "\n", "llm", "--sf", "memory:auto"),
        ("find", "page", "-exec", "llm", "--sf", "memory:auto", SPY, ";"),
    ],
    ids=lambda words: words[0],
)
def test_what_another_program_runs_with_what_was_exported_is_not_typed(idle: User, command: tuple[str, ...]) -> None:
    (idle.folder / "page").write_text(f"{SPY}\n")
    assert idle.terminal(*command, auto=None, LLM_MEMORY_AUTO="1").wait() == 0
    assert learned(idle) == [False]


def test_with_memory_off_for_a_call_nothing_is_learned_from_it(idle: User) -> None:
    for words in (("-T", "UserMemory"), ("--sf", "memory:auto"), ()):
        idle.llm(*words, SAID, auto="0")
        idle.llm(*words, SAID, LLM_MEMORY_LINE=" ")
    assert len(learned(idle)) >= 6
    assert not any(learned(idle))


def take_in(user: User) -> list[str]:
    """The words that a learner finds."""
    with user.memory() as opened:
        memory.take_in(opened)
        turns = memory.rows(opened.db, "select id, start, length, state from turns order by id")
    found = memory.logged(user.places, [turn["id"] for turn in turns])
    assert {turn["state"] for turn in turns} <= {"pending"}
    return [found[turn["id"]].text[turn["start"] :][: turn["length"]] for turn in turns]


TEMPLATES = {
    "wraps": "prompt: 'Sum up $input in a line'\n",
    "begins": "prompt: Sum this up\n",
    "only": "system: Be brief\n",
    "hides": "prompt: Hello\nsystem: 'The user says $input'\n",
}


@pytest.mark.parametrize(
    "templates", ["wraps", "begins", "only", "hides", "begins wraps", "only wraps", "wraps begins"]
)
def test_of_a_prompt_in_a_template_what_was_typed_is_learned_from(idle: User, templates: str) -> None:
    folder = idle.user_dir / "templates"
    folder.mkdir()
    for name, text in TEMPLATES.items():
        (folder / f"{name}.yaml").write_text(text)
    options = [word for name in templates.split() for word in ("-t", name)]
    asked = not {"begins"} >= set(
        templates.split()
    )  # llm asks for a prompt if the template has none, or a place for it
    typed = f"{SAID}\n"
    bare = idle.terminal("llm", *options)
    if asked:
        bare.type(typed)
        bare.end()
    assert bare.wait() == 0
    idle.llm(*options, ALSO)
    expected = [typed, ALSO] if asked else [ALSO]
    if len(options) == 2:
        chat = idle.terminal("llm", "chat", *options)
        for text in (SAID, "!multi\nfirst\nsecond\n!end", ALSO):
            chat.expect("> ")
            chat.type(f"{text}\n")
            chat.expect("You said")
        chat.type("quit\n")
        assert chat.wait() == 0
        expected += [SAID, "first\nsecond", ALSO]
    assert take_in(idle) == ([] if templates == "hides" else expected)


def test_a_template_is_not_typed_where_a_model_asks_to_remember_something(idle: User) -> None:
    folder = idle.user_dir / "templates"
    folder.mkdir()
    (folder / "begins.yaml").write_text(f"prompt: {SPY}\n")
    call = {"name": "UserMemory_remember", "arguments": {"fact": "Is a nurse"}}
    (idle.script / "tool.json").write_text(json.dumps(call))
    chat = idle.terminal("llm", "chat", "-t", "begins", "-T", "UserMemory")
    chat.expect("> ")
    chat.type(f"{SAID}\n")
    chat.expect("Added to review")
    chat.type("quit\n")
    assert chat.wait() == 0
    assert [held["quote"] for held in idle.to_review()] == [SAID]
    assert take_in(idle) == [SAID]


def test_a_template_with_no_words_of_the_users_is_not_typed_whoever_else_fills_one_in(idle: User) -> None:
    folder = idle.user_dir / "templates"
    folder.mkdir()
    (folder / "begins.yaml").write_text(f"prompt: {SPY}\n")
    (folder / "wraps.yaml").write_text("prompt: 'Of $input'\n")
    assert idle.terminal("llm", "-t", "begins").wait() == 0
    assert idle.terminal("llm", "-t", "begins", "-t", "only").wait() == 1
    idle.llm("-t", "wraps", input=SPY)
    fills = f"import llm\ndef look():\n    return llm.Template(name='x', prompt='$input').evaluate('{SPY}')\n"
    chat = idle.terminal("llm", "chat", "--functions", fills)
    for text in (SAID, ALSO):
        chat.expect("> ")
        chat.type(f"{text}\n")
        chat.expect("You said")
    chat.type("quit\n")
    assert chat.wait() == 0
    assert SPY not in take_in(idle)
    assert take_in(idle)[0] == SAID


def test_words_typed_into_llm_itself_count_whatever_the_line_says(idle: User) -> None:
    terminal = idle.terminal("llm", LLM_MEMORY_LINE=" llm")
    terminal.type(f"{SAID}\n")
    terminal.end()
    assert terminal.wait() == 0
    chat = idle.terminal("llm", "chat", LLM_MEMORY_LINE=" source ./script")
    chat.expect("> ")
    chat.type(f"{SAID}\nquit\n")
    assert chat.wait() == 0
    assert learned(idle) == [True, True]


def test_a_chat_begun_with_a_line_that_was_kept_out_of_the_history_is_not_learned_from(idle: User) -> None:
    chat = idle.terminal("llm", "chat", LLM_MEMORY_LINE=" ")
    chat.expect("> ")
    chat.type(f"{SAID}\nquit\n")
    assert chat.wait() == 0
    assert learned(idle) == [False]
