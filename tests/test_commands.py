"""The commands: stdout is data, stderr is talk, a failure exits 1 and names the next command."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sqlite3
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from llm_user_memory import Edit

if TYPE_CHECKING:
    from conftest import User

PROFILE = "\ufeff# Me\r\n\r\n## Work\r\n- Nurse\r\n* Leeds"
SAID = "I live in Leeds"


def status_of(user: User) -> dict[str, Any]:
    """Look up in this process what status tells."""
    found: dict[str, Any] = json.loads(user.run("status", "--json")[0])
    return found


def test_looking_creates_nothing(user: User) -> None:
    out, said = user.run("show")
    assert (out, "llm memory edit" in said) == ("", True)
    assert user.run("path")[0] == f"{user.places.profile}\n"
    assert "llm memory install-shell" in user.run("status")[0]
    for command in ("history", "why", "review", "diff"):
        assert user.run(command)[0] == ""
    user.run("search", "chess")
    assert not user.places.directory.exists()
    assert not user.places.logs.exists()


# The profile


def test_load_takes_a_file_byte_for_byte_and_show_gives_it_back(user: User) -> None:
    path = user.folder / "mine.md"
    path.write_bytes(PROFILE.encode())
    out, said = user.run("load", str(path))
    assert user.places.profile.read_bytes() == PROFILE.encode()
    assert (out, "To undo this: llm memory rollback" in said) == ("", True)
    found = json.loads(user.run("show", "--json")[0])
    assert (found["path"], found["text"]) == (str(user.places.profile), PROFILE)
    assert [(fact["section"], fact["text"]) for fact in found["facts"]] == [("Work", "Nurse"), ("Work", "Leeds")]
    user.run("load", "-", "--yes", stdin="- From a pipe")
    assert user.run("show")[0] == "- From a pipe\n"
    assert user.profile == "- From a pipe"


def test_loaded_secrets_stay_and_load_and_status_name_their_lines_without_showing_them(user: User) -> None:
    words = "The profile contains {} on line {}; it is sent with every prompt. See: llm memory edit"
    expected = [words.format("a password", 3), words.format("a bank account number", 5)]
    text = "# Me\r\n\r\n- Wifi password is hunter2secret9\r\n- Nurse\r\n- IBAN DE89 3704 0044 0532 0130 00\r\n"
    out, said = user.run("load", "-", stdin=text)
    assert (out, user.profile.replace("\r", "")) == ("", text.replace("\r", ""))
    assert [line for line in said.splitlines() if line.startswith("The profile contains")] == expected
    assert status_of(user)["problems"] == expected
    for shown in (said, *user.run("status"), *user.run("status", "--json")):
        assert "hunter2" not in shown
        assert "0130" not in shown
    assert "The profile contains" not in user.run("load", "-", stdin="- Nurse")[1]
    assert status_of(user)["problems"] == []


def test_input_that_is_not_text_or_not_there_is_an_error_in_words_and_changes_nothing(user: User) -> None:
    user.profile = PROFILE
    path = user.folder / "new.md"
    assert "new.md" in user.run("load", str(path), code=2)[1]
    path.write_bytes(b"\xff\xfe- \x00N\x00")
    assert "save it as UTF-8" in user.run("load", str(path), code=1)[1]
    for command in ("add", "add -", "load -"):
        assert "UTF-8" in user.run(*command.split(), stdin=b"caf\xe9", code=1)[1]
    assert user.profile == PROFILE


def test_clear_names_llms_log_and_is_undone_by_the_command_it_names(user: User) -> None:
    user.profile = PROFILE
    out, said = user.run("clear")
    assert (out, user.profile) == ("", "")
    assert "logs.db" in said
    undo = re.search(r"llm memory (rollback.*)", said)
    assert undo
    user.run(*undo[1].split())
    assert user.places.profile.read_bytes() == PROFILE.encode()


@pytest.mark.parametrize(
    ("editor", "words"),
    [("/no/such/editor", "EDITOR=/no/such/editor"), ("'x", "export EDITOR=nano"), ("false", "false")],
)
def test_an_editor_that_is_not_there_or_fails_is_an_error_in_words(user: User, editor: str, words: str) -> None:
    user.profile = PROFILE
    assert words in user.run("edit", code=1, EDITOR=editor, VISUAL="")[1]
    assert user.profile == PROFILE


def test_a_command_in_a_message_can_be_pasted(user: User) -> None:
    user.profile = "- Nurse\n"
    user.places.profile.chmod(0o444)
    command = re.search(r"to make it writable: (.*)", user.run("add", "Plays chess", code=1)[1])
    assert command
    assert " " in str(user.places.profile)
    assert shlex.split(command[1])[0] == "chmod"
    subprocess.run(command[1], shell=True, check=True, env=user.env)
    user.run("add", "Plays chess")
    assert user.facts == ["Nurse", "Plays chess"]


def test_a_file_gets_all_characters_in_any_locale(user: User) -> None:
    user.profile = "- Likes “tea” in Łódź\n"
    assert user.llm("memory", "show", auto=None, PYTHONIOENCODING="latin-1").stdout == user.profile


@pytest.mark.parametrize(
    ("command", "env"), [("show", {}), ("why", {"NO_COLOR": "1"}), ("search --chats cats", {"NO_COLOR": "1"})]
)
def test_a_terminal_wraps_between_words_but_not_in_commands_and_a_pipe_gets_whole_lines(
    user: User, command: str, env: dict[str, str]
) -> None:
    quote = "I have two cats who sleep on my keyboard whenever there is something to type on it"
    user.has_learned("Has two cats who sleep on the keyboard whenever there is something to type", quote)
    terminal = user.terminal("llm", "memory", *command.split(), auto=None, COLUMNS="60", **env)
    assert terminal.wait() == 0
    shown, whole = re.sub(r"\x1b\[\d*m", "", terminal.shown), user.run(*command.split())[0]
    assert shown.split() == whole.split()
    assert max(map(len, shown.splitlines())) <= 60 < max(map(len, whole.splitlines()))
    assert not re.search(r"llm\n|llm logs( -c)?\n|--cid\n", shown)
    assert ("\x1b[1m" in terminal.shown) == (not env)


@pytest.mark.parametrize("args", ["rollback", "rollback --steps", "rollback --only", "diff", "history -n"])
def test_a_huge_number_is_an_error_in_words(user: User, args: str) -> None:
    user.run("add", "Plays chess")
    assert "--help' for help" in user.run(*args.split(), "99999999999999999999", code=2)[1]


def test_commands_say_what_they_have_done_even_if_it_is_nothing(user: User) -> None:
    assert "There is no history yet." in user.run("diff")[1]
    assert "Nothing was changed" in user.run("clear")[1]
    user.run("add", "Plays chess")
    user.run("add", "Plays go")
    assert re.search(r"Bringing back version 1 from \d{4}-\d\d-\d\d \d\d:\d\d\n", user.run("rollback", "1")[1])
    assert "Name one target" in user.run("rollback", "1", "--steps", "1", code=1)[1]
    assert "The profile now has 2 facts, 12 characters." in user.run("load", "-", stdin="- One\n- Two\n")[1]


# Learning


def test_pause_and_resume_say_so_persist_and_show_in_status(user: User) -> None:
    assert status_of(user)["state"] == "on"
    out, said = user.run("pause")
    assert (out, "llm memory resume" in said) == ("", True)
    since = status_of(user)["paused_since"]
    assert "Already paused, since" in user.run("pause")[1]
    assert status_of(user)["paused_since"] == since
    assert re.search("paused.*llm memory resume", user.run("status")[0], re.DOTALL)
    assert "llm memory resume" in user.run("update", code=1)[1]
    assert "Learning again" in user.run("resume")[1]
    assert status_of(user)["paused_since"] is None
    user.places.file("paused").touch()
    assert "paused" in user.run("status")[0], "a pause made by hand"


def test_update_says_which_variable_has_switched_learning_off(user: User) -> None:
    for name, value in (("LLM_MEMORY_UPDATES", "false"), ("LLM_MEMORY_DISABLED", "true")):
        done = user.llm("memory", "update", auto=None, check=False, **{name: value})
        assert (done.returncode, f"unset {name}" in done.stderr) == (1, True)


def test_update_keeps_news_that_it_did_not_tell(user: User) -> None:
    user.has_learned("Leeds", SAID)
    news = user.places.file("news").read_text("utf-8")
    assert "learned “Leeds”" in news
    assert "Nothing new" in user.run("update")[1]
    assert user.places.file("news").read_text("utf-8") == news
    user.types("I play chess")
    assert "+ I play chess" in user.run("update")[0]
    assert not user.places.file("news").exists()


def test_with_review_of_all_edits_each_waits_and_can_be_accepted_with_json_output_too(user: User) -> None:
    user.types("I like jazz")
    user.learns("ADD | Interests | Likes jazz | I like jazz", review_all=True)
    assert user.facts == []
    assert [(held["fact"], held["reason"]) for held in user.to_review()] == [("Likes jazz", "you review all edits")]
    assert json.loads(user.run("review", "--json", "--accept", "1")[0]) == []
    assert user.facts == ["Likes jazz"]


# Status


def test_status_tells_what_was_learned_how_large_the_profile_is_and_who_works(user: User) -> None:
    user.llm(SAID)
    user.comes_to_know(SAID)
    status = user.status(LLM_MEMORY_MODEL="scripted-2")
    sizes = {"characters": len(user.profile), "budget": 8000, "facts": 1}
    assert status["profile"] == {"path": str(user.places.profile), **sizes}
    assert status["last_learned"]["version"] == user.versions()[-1][0]
    assert (status["pending"], status["set_aside"], status["to_review"], status["problems"]) == (0, [], 0, [])
    assert status["worker"]["running"] is True
    assert status["model"] == "scripted-2"
    assert status["llm_logging"] is True
    user.kill_worker()
    (user.user_dir / "logs-off").touch()
    text = user.run("status")[0]
    for words in ("llm logs on", "not running", SAID):
        assert words in text


def test_the_status_for_a_bug_report_contains_no_fact_and_no_path_below_the_home(user: User) -> None:
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
    elsewhere = user.run("status", "--json", HOME=str(user.folder)[:-1])[0]
    assert json.loads(elsewhere)["profile"]["path"] == str(user.places.profile)
    assert "not a regular file" in broken
    for text in (healthy, broken):
        assert "Leeds" not in text
        assert str(user.folder) not in text
    assert "Lives in Leeds" in user.run("status")[0]


def test_status_counts_messages_that_wait_even_if_no_learner_has_seen_them(user: User) -> None:
    user.types(SAID, "I play chess")
    assert status_of(user)["pending"] == 2
    user.run("update")
    assert status_of(user)["pending"] == 0


def test_status_does_not_claim_to_know_what_it_can_not_see(user: User) -> None:
    user.has_learned("Leeds", SAID)
    with contextlib.closing(sqlite3.connect(user.places.database, isolation_level=None)) as locked:
        locked.execute("begin exclusive")
        text = user.run("status")[0]
    assert not re.search("^(?:Learned|Waiting)", text, re.MULTILINE)
    assert "memory.db can't be used now" in text


def test_status_names_a_folder_that_can_not_be_written_to(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    user.profile = "- Likes tea\n"
    assert "written" not in user.run("status")[0]
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    assert "can't be written to; see: ls -ld" in user.run("status")[0]
