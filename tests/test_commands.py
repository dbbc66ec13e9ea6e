"""The commands: stdout is data, stderr is talk, a failure exits 1 and names the next command."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import sqlite3
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from conftest import eventually, posix_only

import llm_user_memory as memory
from llm_user_memory import Document, Edit

if TYPE_CHECKING:
    from conftest import User

PROFILE = "\ufeff# Me\r\n\r\n## Work\r\n- Nurse\r\n* Leeds"
SAID = "I live in Leeds"
ON: dict[str, Any] = {"LLM_MEMORY_AUTO": "1"}


def status_of(user: User, **env: Any) -> dict[str, Any]:
    """Look up in this process what status tells."""
    found: dict[str, Any] = json.loads(user.run("status", "--json", **env)[0])
    return found


# The first minutes


def test_looking_creates_nothing(user: User) -> None:
    for command in ("show", "history", "why", "review", "diff", "search chess", "profiles", "status"):
        user.run(*command.split())
        assert user.run(*command.split(), "--json")[0], command
    assert user.run("path")[0] == f"{user.places.profile}\n"
    assert not user.places.directory.exists()
    assert not user.places.logs.exists()


def test_show_says_on_a_first_day_what_is_going_on_and_what_to_do(user: User) -> None:
    assert "llm memory install-shell" in user.run("show")[1]
    assert "llm memory add" in user.run("show", **ON)[1]
    user.types("I play chess")
    assert "Pending: 1 to learn from" in user.run("show", **ON)[1]
    user.run("pause")
    out, said = user.run("show", **ON)
    assert out == ""
    assert re.search(r"The profile has no facts\.\n.*llm memory resume\n.*llm memory add", said)
    user.run("resume")
    user.has_to_review(Edit("ADD", "Interests", "Plays chess", "I play chess"))
    assert "1 edit to review: llm memory review" in user.run("show", **ON)[1]
    assert "llm memory show" in user.run("why")[1]
    user.types(SAID)
    user.run("update")
    assert user.run("show", **ON) == (user.profile, "")


MEANT = {
    "list": "show",
    "rm": "remove",
    "delete": "remove",
    "log": "history",
    "purge": "clear",
    "unpause": "resume",
    "get": "show",
    "disable": "pause",
    "enable": "resume",
    "cat": "show",
    "redo": "undo NUMBER",
}


def test_an_unknown_command_is_answered_with_the_one_that_was_meant(user: User) -> None:
    for typed, meant in MEANT.items():
        assert f"Did you mean {meant!r}? (see: llm memory --help)" in user.run(typed, "x", code=2)[1]
    for typed, meant in {"udno": "undo", "serach": "search", "xyzzy": "--help"}.items():
        assert meant in user.run(typed, "x", code=2)[1]


def test_why_names_search_for_a_fact_that_is_gone_and_it_says_when_it_held_but_nothing_of_a_forgotten_one(
    user: User,
) -> None:
    user.run("add", "-", stdin="Plays chess\nHas a boat\n")
    user.run("remove", "chess")
    assert "see: llm memory show --ids, or llm memory search chess" in user.run("why", "chess", code=1)[1]
    assert re.search(r"Plays chess\n    in Personal Information, from .* until ", user.run("search", "chess")[0])
    user.run("forget", "boat", "--yes")
    assert user.run("search", "boat")[0] == ""


@pytest.mark.parametrize("command", ["add", "forget", "remove", "why", "search"])
def test_a_text_needs_no_quotes_and_may_begin_with_a_bullet_and_an_unknown_option_is_none(
    user: User, command: str
) -> None:
    user.run("add", "- Plays chess on Sundays")
    words = ["- Plays", "chess", "on", "Sundays"]
    user.run(command, *words, *(["--yes"] if command == "forget" else []))
    assert user.facts == ([] if command in {"forget", "remove"} else ["Plays chess on Sundays"])
    assert "--nonsense" in user.run(command, *words, "--nonsense", code=2)[1]


# The profile


def test_an_empty_file_empties_the_profile_only_if_the_user_says_so(user: User) -> None:
    user.run("add", "Nurse")
    assert "add --yes" in user.run("load", "-", stdin=" \n", code=1)[1]
    assert user.facts == ["Nurse"]


def test_load_takes_a_file_byte_for_byte_show_gives_it_back_and_clearing_it_is_undone(user: User) -> None:
    path = user.folder / "mine.md"
    path.write_bytes(PROFILE.encode())
    out, said = user.run("load", str(path))
    assert user.places.profile.read_bytes() == PROFILE.encode()
    assert (out, "To undo this: llm memory undo" in said) == ("", True)
    found = json.loads(user.run("show", "--json")[0])
    assert (found["path"], found["text"]) == (str(user.places.profile), PROFILE)
    assert [(fact["section"], fact["text"]) for fact in found["facts"]] == [("Work", "Nurse"), ("Work", "Leeds")]
    out, said = user.run("clear", "--yes")
    assert (out, user.profile) == ("", "")
    undo = re.search(r"llm memory (undo.*)", said)
    assert undo
    user.run(*undo[1].split())
    assert user.places.profile.read_bytes() == PROFILE.encode()
    user.run("load", "-", "--yes", stdin="- From a pipe")
    assert user.run("show")[0] == "- From a pipe"
    assert user.profile == "- From a pipe"
    assert "condense or edit" in user.run("load", "-", "--yes", stdin="- A long walk\n" * 9, LLM_MEMORY_BUDGET="100")[1]


def test_load_asks_before_it_replaces_lines(user: User) -> None:
    user.run("load", "-", stdin="# Me\n\n- Nurse\n- Leeds\n")
    path = user.folder / "mine.md"
    path.write_text("## Work\n- Leeds\n- Plays chess\n")
    said = user.run("load", str(path), code=1)[1]
    assert said.startswith("This removes:\n  Nurse\nReplace the profile? [y/N]: ")
    assert "add --yes" in said
    assert user.run("load", str(path), stdin="n\n", code=1)[1].endswith("[y/N]: n\nNothing changed.\n")
    assert user.facts == ["Nurse", "Leeds"]
    assert "[y/N]: y\nAdded: “Plays chess”\nRemoved: “Nurse”\n" in user.run("load", str(path), stdin="y\n")[1]
    assert user.facts == ["Leeds", "Plays chess"]
    path.write_text("- Leeds\n- Plays chess\n- Nurse\n")
    assert "?" not in user.run("load", str(path))[1], "no line goes"
    path.write_text("- Leeds\n")
    assert user.run("load", str(path), "--yes")[1].count("Nurse") == 1, "told once"


@pytest.mark.parametrize("words", ["history -n", "add --section", "undo twelve", "search -n 2 --cuont 3", "diff 1 2 3"])
def test_what_was_mistyped_names_the_help_of_its_command(user: User, words: str) -> None:
    command, *others = words.split()
    assert user.run(command, *others, code=2)[1].endswith(f"(see: llm memory {command} --help)\n")
    assert user.run("shwo", code=2)[1].endswith("(see: llm memory --help)\n")


def test_load_refuses_what_add_refuses_unless_forced(user: User) -> None:
    text = "- Nurse\n\t- Le\u202eeds\n"
    said = user.run("load", "-", stdin=text, code=1)[1]
    assert "line 2 has invisible characters" in said
    assert "to take it: --force" in said
    user.run("load", "-", "--force", stdin=text)
    assert user.profile == text


def test_of_a_change_that_holds_a_password_the_rest_is_shown(user: User) -> None:
    user.run("add", "Has two cats")
    user.profile = user.profile.replace("cats", "cats; door password: hunter2secret")
    said = user.run("undo")[1]
    assert "Added: “Has two cats”\nRemoved: “Has two cats; door password: [password]”\n" in said


def test_loaded_secrets_stay_and_load_and_status_name_their_lines_without_showing_them(user: User) -> None:
    text = "# Me\r\n\r\n- Wifi password is hunter2secret9\r\n- Nurse\r\n- IBAN DE89 3704 0044 0532 0130 00\r\n"
    assert "line 3 looks like a password; to take it: --force" in user.run("load", "-", stdin=text, code=1)[1]
    assert user.versions() == []
    out, said = user.run("load", "-", "--force", stdin=text)
    assert (out, user.profile.replace("\r", "")) == ("", text.replace("\r", ""))
    for told in (said, "\n".join(status_of(user)["problems"])):
        assert re.search("line 3 looks like a password.*llm memory edit.*llm memory forget", told)
        assert "line 5 looks like a bank account number" in told
    for shown in (said, *user.run("status"), *user.run("status", "--json")):
        assert "hunter2" not in shown
        assert "0130" not in shown
    assert "llm memory edit" not in user.run("load", "-", "--yes", stdin="- Nurse")[1]
    assert status_of(user)["problems"] == []


def test_input_that_is_not_text_or_not_there_is_an_error_in_words_and_changes_nothing(user: User) -> None:
    user.profile = PROFILE
    path = user.folder / "new.md"
    assert re.search(r"Error: .*new\.md': No such file", user.run("load", str(path), code=2)[1])
    path.write_bytes(b"\xff\xfe- \x00N\x00")
    for command in ("load", "learn"):
        assert "is not valid UTF-8" in user.run(command, str(path), code=1)[1]
    for command in ("add", "add -", "load -"):
        done = user.llm("memory", *command.split(), input=b"caf\xe9", check=False)
        assert (done.returncode, "UTF-8" in done.stderr) == (1, True)
    assert user.profile == PROFILE


def test_an_editor_that_is_not_there_or_fails_is_an_error_in_words(user: User) -> None:
    user.profile = PROFILE
    for editor in ("/no/such/editor", "false"):
        said = user.run("edit", code=1, EDITOR=editor, VISUAL="")[1]
        assert editor in said
        assert "export VISUAL=" in said
        assert "Errno" not in said
    assert user.profile == PROFILE


def test_a_command_in_a_message_can_be_pasted(user: User) -> None:
    user.profile = "- Nurse\n"
    user.places.profile.chmod(0o444)
    command = re.search(r"; see: (.*)", user.run("add", "Plays chess", code=1)[1])
    assert command
    assert " " in str(user.places.profile)
    done = subprocess.run(command[1], shell=True, check=True, env=user.env, capture_output=True, text=True)
    assert done.stdout.startswith("-r--r--r--")


def test_a_command_that_begins_with_a_setting_is_not_broken_either(user: User) -> None:
    user.types("I live in Leeds", model="scripted-garbage")
    user.run("update", code=1)
    terminal = user.terminal("llm", "memory", "status", auto=None, COLUMNS="40")
    terminal.wait()
    assert "LLM_MEMORY_MODEL=NAME llm memory update --retry" in terminal.shown


def test_a_command_that_the_user_writes_down_as_a_fact_is_not_reworded(user: User) -> None:
    fact = "Teaches llm memory undo to colleagues"
    assert f"Added: “{fact}”\n" in user.run("add", fact, LLM_MEMORY_PROFILE="work")[1]


def test_why_explains_free_text_that_show_prints(user: User) -> None:
    user.run("add", "Plays chess")
    user.profile = "# Me\nI am a nurse in Leeds.\n"
    out = user.run("why", "nurse")[0]
    assert out.startswith("I am a nurse in Leeds.\n")
    assert "saved in the file" in out


# At a terminal and in a script


def test_a_file_gets_all_characters_in_any_locale(user: User) -> None:
    user.profile = "- Likes “tea” in Łódź\n"
    assert user.llm("memory", "show", auto=None, PYTHONIOENCODING="latin-1").stdout == user.profile


SHOWN = "# Me\r\n\n##   Work ##\n- Nurse in Łódź\n| a | b |\n\tmake\t" + "x " * 60 + "\n```\n# code\n```\n- 家族と犬"


def test_show_at_a_terminal_is_for_looking_and_piped_it_is_the_file(user: User) -> None:
    user.profile = SHOWN
    assert user.llm("memory", "show", auto=None).stdout == SHOWN
    user.run("history")
    user.has_learned("Has a cat", "I have a cat")
    ago = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=70)
    with user.memory() as opened:
        opened.db.execute("update versions set at = ? where author = 'worker'", [ago.isoformat()])
    user.run("add", "Plays chess", "--section", "Work")
    terminal = user.terminal("llm", "memory", "show", auto=None, COLUMNS="60")
    assert terminal.wait() == 0
    lines = terminal.shown.splitlines()
    assert lines[0] == "\x1b[1mMe\x1b[0m"
    assert lines[2] == "\x1b[1mWork\x1b[0m"
    assert lines[3:9] == ["- Nurse in Łódź", "| a | b |", "\tmake\t" + "x " * 60, "```", "# code", "```"]
    assert "- Plays chess" + " " * 35 + "\x1b[2ma moment ago\x1b[0m" in lines
    assert "- Has a cat" + " " * 37 + "\x1b[2m2 months ago\x1b[0m" in lines
    plain = user.terminal("llm", "memory", "show", auto=None, COLUMNS="17", NO_COLOR="1")
    assert plain.wait() == 0
    assert {"# Me", "- Plays chess", "- Has a cat"} <= set(plain.shown.splitlines()), "no room, and no colours"


def test_show_at_a_terminal_leaves_out_headings_of_ours_that_have_no_line(user: User) -> None:
    user.profile = "## Interests\n\n## Boats\n\n## Notes\n- Sails\n"
    assert user.run("show")[0] == user.profile
    terminal = user.terminal("llm", "memory", "show", "--ids", auto=None, NO_COLOR="1")
    assert terminal.wait() == 0
    lines = [line.split("  ")[0] for line in terminal.shown.splitlines() if line]
    assert lines == ["## Boats", "## Notes", f"[{user.id_of('Sails')}] - Sails"]


def test_a_long_fact_has_its_age_on_its_last_row(user: User) -> None:
    user.run("add", "Plays chess on Mondays, and cooks for four on Fridays")
    terminal = user.terminal("llm", "memory", "show", auto=None, COLUMNS="40", NO_COLOR="1")
    assert terminal.wait() == 0
    assert "  four on Fridays           a moment ago" in terminal.shown.splitlines()


def test_a_long_fact_goes_on_below_its_first_word_also_behind_an_id(user: User) -> None:
    user.profile = "- Plays chess, and\u00adcooks for four on Fridays\n"
    user.run("history")
    terminal = user.terminal("llm", "memory", "show", "--ids", auto=None, COLUMNS="30", NO_COLOR="1")
    assert terminal.wait() == 0
    (id,) = Document(user.profile).ids
    assert terminal.shown.splitlines() == [f"[{id}] - Plays chess, and cooks", "        for four on Fridays"]


def test_a_number_that_is_none_is_called_so(user: User) -> None:
    assert "'oven' is not a valid number" in user.run("undo", "oven", code=2)[1]


def test_a_fact_that_sounds_like_a_command_is_broken_like_any_other(user: User) -> None:
    user.profile = "- Uses llm for drafts, and open source tools\n- Can unset the alarm of an old house in Leeds\n"
    user.run("history")
    terminal = user.terminal("llm", "memory", "show", auto=None, COLUMNS="36", NO_COLOR="1")
    terminal.wait()
    assert terminal.shown.splitlines() == [
        "- Uses llm for drafts, and open",
        "  source tools",
        "- Can unset the alarm of an old",
        "  house in Leeds",
    ]


def test_show_at_a_terminal_breaks_a_long_fact_between_words_and_nothing_else(user: User) -> None:
    prose = "What stands here was written by hand, and is longer than a line."
    user.profile = f"# Me\n{prose}\n\n- Plays chess on Mondays, and cooks for four on Fridays\n"
    terminal = user.terminal("llm", "memory", "show", auto=None, COLUMNS="40", NO_COLOR="1")
    assert terminal.wait() == 0
    broken = ["- Plays chess on Mondays, and cooks for", "  four on Fridays"]
    assert terminal.shown.splitlines() == ["# Me", prose, "", *broken]


def test_show_works_without_the_history_that_knows_how_old_its_lines_are(user: User) -> None:
    user.run("add", "Plays chess")
    user.places.database.write_bytes(b"no database" * 100)
    terminal = user.terminal("llm", "memory", "show", auto=None)
    assert terminal.wait() == 0
    assert "- Plays chess" in terminal.shown


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (0, "a moment ago"),
        (1, "1 day ago"),
        (13, "1 week ago"),
        (40, "1 month ago"),
        (364, "12 months ago"),
        (800, "2 years ago"),
    ],
)
def test_an_age_is_said_in_its_largest_unit(days: int, said: str) -> None:
    now = dt.datetime(2026, 11, 20, 12, tzinfo=dt.timezone.utc)
    assert memory.age_of((now - dt.timedelta(days=days)).isoformat(), now) == said


def test_ctrl_c_in_a_question_ends_its_line_and_without_a_terminal_the_option_is_named(user: User) -> None:
    user.run("add", "Plays chess")
    terminal = user.terminal("llm", "memory", "clear", "--purge", auto=None)
    terminal.expect(r"\[y/N\]")

    def aborted() -> bool:
        terminal.type("\x03")  # again, if Python was not reading yet
        with contextlib.suppress(AssertionError):
            return bool(terminal.expect(r"\^C\n+Aborted!\n", 1))
        return False

    eventually(aborted, "the end")
    assert terminal.wait() == 1
    for command in ("clear --purge", "forget chess"):
        assert "--yes" in user.run(*command.split(), stdin="", code=1)[1]
    assert user.facts == ["Plays chess"]


def test_a_number_that_is_none_is_an_error_in_words(user: User) -> None:
    for number in ("abc", "99999999999999999999"):
        for command in ("rollback", "undo", "diff", "history -n"):
            assert "--help" in user.run(*command.split(), number, code=2)[1]
    assert "There is no change 0; see: llm memory history" in user.run("undo", "0", code=1)[1]


# Learning


def test_long_lines_break_between_words_but_a_command_stays_whole(user: User) -> None:
    terminal = user.terminal("llm", "memory", "show", auto=None, COLUMNS="45", NO_COLOR="1")
    terminal.wait()
    assert terminal.shown.splitlines() == [
        "The profile has no facts.",
        "Memory is off; to turn it on:",
        "llm memory install-shell",
        "To add a fact:",
        "llm memory add 'Lives in Leeds'",
    ]


def test_json_at_a_terminal_is_as_it_is_piped(user: User) -> None:
    user.run("add", "Collects words that are long enough for a second line of this terminal")
    terminal = user.terminal("llm", "memory", "history", "--json", auto=None, COLUMNS="40")
    terminal.wait()
    assert terminal.shown == user.run("history", "--json")[0]


def test_a_place_that_can_not_be_is_an_error_in_words(user: User) -> None:
    said = user.run("add", "Plays chess", code=1, LLM_USER_PATH="/dev/null/nowhere")[1]
    assert "Traceback" not in said
    assert "Not a directory" in said


def test_a_line_that_comes_again_is_as_old_as_it_was_last_written(user: User) -> None:
    for command in (("add", "Plays chess"), ("add", "Plays go"), ("remove", "chess"), ("remove", "go"), ("undo",)):
        user.run(*command)
    with user.memory() as opened:
        opened.db.execute("update versions set at = '2020-01-01T00:00:00+00:00' where author = 'add'")
    user.run("add", "Plays chess")
    terminal = user.terminal("llm", "memory", "show", auto=None, NO_COLOR="1")
    terminal.wait()
    assert re.search(r"Plays chess +a moment", terminal.shown)
    assert re.search(r"Plays go +\d years", terminal.shown), "an undo writes nothing"


def test_pause_and_resume_persist_and_show_in_status(user: User) -> None:
    assert status_of(user, **ON)["state"] == "on"
    out, said = user.run("pause")
    assert (out, "llm memory resume" in said) == ("", True)
    status = status_of(user, **ON)
    assert status["state"] == "paused"
    user.run("pause")
    assert status_of(user, **ON) == status, "since then"
    assert re.search("paused.*llm memory resume", user.run("status", **ON)[0], re.DOTALL)
    assert "llm memory status" in user.run("update", code=1)[1]
    assert user.run("resume")[1].startswith("Resumed.")
    assert user.run("resume")[1].startswith("It was not paused.")
    assert status_of(user, **ON)["state"] == "on"
    (user.user_dir / "logs-off").touch()
    assert "llm logs on" in user.run("status", **ON)[0], "nothing can be learned then"
    user.places.paused.touch()
    assert status_of(user, **ON)["state"] == "paused", "a pause made by hand"


# Status


def test_status_tells_how_large_the_profile_is_and_what_waits(user: User) -> None:
    user.has_learned("Has a dog", SAID)
    status = status_of(user)
    sizes = {"characters": len(user.profile), "budget": 8000, "facts": 1}
    assert status["profile"] == {"path": str(user.places.profile), **sizes}
    assert (status["pending"], status["to_review"], status["problems"]) == (0, 0, [])


def test_status_is_green_where_nothing_is_wrong(user: User) -> None:
    terminal = user.terminal("llm", "memory", "status", auto=None, **ON)
    assert terminal.wait() == 0
    assert re.match(r"\x1b\[32m.*tells models what\s+it knows", terminal.shown, re.DOTALL)


@pytest.mark.parametrize(
    ("env", "words", "colour"),
    [
        (ON, "Memory is on, but there is a problem", "31"),
        ({}, "llm memory install-shell", "33"),
        ({"LLM_MEMORY_AUTO": "0"}, "off here by LLM_MEMORY_AUTO", "33"),
        ({**ON, "LLM_MEMORY_DISABLED": "1"}, "disabled by LLM_MEMORY_DISABLED", "33"),
        ({**ON, "LLM_MEMORY_UPDATES": "0"}, "but LLM_MEMORY_UPDATES stops learning", "33"),
    ],
)
def test_status_begins_with_one_coloured_verdict_and_then_the_problems(
    user: User, env: dict[str, str], words: str, colour: str
) -> None:
    terminal = user.terminal("llm", "memory", "status", auto=None, LLM_MEMORY_BUDGET="few", **env)
    assert terminal.wait() == 0
    verdict, _, rest = terminal.shown.partition("Problem")
    assert f"\x1b[{colour}m" in verdict
    assert words in " ".join(verdict.split())
    assert "LLM_MEMORY_BUDGET='few'" in rest
    assert not re.search(r"\bworker\b|outside", re.sub(r"\S*/\S*", "", terminal.shown)), "no jargon"


def test_status_tells_before_it_has_failed_that_llm_does_not_know_the_model(user: User) -> None:
    (user.user_dir / "default_model.txt").write_text("nosuch")
    assert "llm models" in "\n".join(status_of(user)["problems"])
    assert status_of(user, LLM_MEMORY_MODEL="scripted")["problems"] == []


def test_the_status_for_a_bug_report_contains_no_fact(user: User) -> None:
    user.env["HOME"] = str(user.folder)
    user.has_learned("Lives in Leeds", SAID)
    user.has_to_review(Edit("ADD", "Preferences", "Moves to Leeds", SAID))
    user.types(SAID, model="uninstalled")
    user.learns("ADD | Interests | Leeds | not typed")
    healthy = user.run("status", "--json")[0]
    user.places.profile.unlink()
    user.places.profile.mkdir()
    broken = user.run("status", "--json")[0]
    assert json.loads(healthy)["profile"]["path"] == "~/llm user/memory/profile.md"
    user.places.profile.rmdir()
    elsewhere = user.run("status", "--json", HOME=str(user.folder)[:-1])[0]
    assert json.loads(elsewhere)["profile"]["path"] == str(user.places.profile)
    assert "not a regular file" in broken
    for text in (healthy, broken):
        assert "Leeds" not in text


def test_status_is_of_the_profile_that_is_named_or_else_of_the_one_in_use(user: User) -> None:
    user.run("add", "Has a boss", LLM_MEMORY_PROFILE="work")
    for in_use, shown in (
        ("", "default: 0 facts, 0 % full\n"),
        ("work", "work: 1 fact, 0 % full\n"),
        ("default+work", "work: 1 fact, 0 % full\n"),
    ):
        env = {**ON, "LLM_MEMORY_PROFILE": in_use}
        out = user.run("status", **env)[0]
        assert out.startswith("Memory is on: it learns")
        assert shown in out
        assert json.loads(user.run("status", "--json", **env)[0])["profile"]["facts"] == ("work" in in_use)
        named = user.llm("memory", "--profile", "home", "status", check=True, **env).stdout
        assert "home: not created yet\n" in named
        assert "work" not in named


def test_status_does_not_claim_to_know_what_it_can_not_see(user: User) -> None:
    user.has_learned("Leeds", SAID)
    with contextlib.closing(sqlite3.connect(user.places.database, isolation_level=None)) as locked:
        locked.execute("begin exclusive")
        status = status_of(user)
    assert {"last_learned", "pending"}.isdisjoint(key for key, value in status.items() if value is not None)
    assert "can't be used now" in "\n".join(status["problems"])


def test_a_folder_that_can_not_be_written_to_is_named_and_not_blamed_on_sudo(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.profile = "- Likes tea\n"
    assert "written" not in user.run("status")[0]
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    for said in (user.run("status")[0], user.run("forget", "tea", "--yes", code=1)[1]):
        assert "can't be written to; see: ls -ld" in said
        assert "sudo" not in said
    assert user.facts == ["Likes tea"]


@posix_only
@pytest.mark.parametrize("command", ["show", "why"])
@pytest.mark.parametrize("start", ["$env:", "LLM_MEMORY_AUTO=1 "])
def test_a_line_that_looks_like_code_sends_no_escapes_to_a_terminal(user: User, command: str, start: str) -> None:
    user.profile = f"- {start}x \x1b]0;owned\x07\n"
    terminal = user.terminal("llm", "memory", command)
    assert terminal.wait() == 0
    assert "owned" in terminal.shown
    assert "\x1b]0;" not in terminal.shown


LAYOUT = "| a | b |\n|---|---|\n| 1 |\tand a cell that is so long that the row has no room on the line of a terminal at all |\n"


def test_show_at_a_terminal_breaks_no_line_of_a_table_or_of_code_and_keeps_tabs(user: User) -> None:
    user.profile = f"{LAYOUT}\n```\nfor x in   y:\n\tprint({'x' * 30}, {'y' * 60})\n```\n- Likes\ttea\n"
    terminal = user.terminal("llm", "memory", "show", auto=None, COLUMNS="60", NO_COLOR="1")
    assert terminal.wait() == 0
    assert terminal.shown.replace("\r", "") == user.profile


OWN = "Teaches llm memory undo, and llm memory forget"
AT_WORK: dict[str, Any] = {"LLM_MEMORY_PROFILE": "work"}


def test_a_fact_that_contains_a_command_is_shown_as_it_is_in_a_named_profile(user: User) -> None:
    user.run("add", OWN, "--section", OWN, **AT_WORK)
    for command in (("show",), ("why",), ("search", "teaches"), ("history",), ("diff", "0"), ("show", "--ids")):
        assert OWN in user.run(*command, **AT_WORK)[0]
    said = [
        user.run("why", f"{OWN}!", code=1, **AT_WORK),
        user.run("forget", f"{OWN}!", code=1, **AT_WORK),
        user.run("forget", OWN, "--yes", **AT_WORK),
    ]
    for _, talk in said:
        assert OWN in talk
        assert "llm memory --profile work" in talk


@pytest.mark.parametrize("command", ["setopt HIST_IGNORE_SPACE", "llm memory undo 2"])
def test_a_command_to_copy_is_not_broken(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    for before in range(15, 40):
        assert command in memory._wrapped(f"{'x' * before} {command}", 0)
