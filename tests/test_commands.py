"""The commands: stdout is data, stderr is talk, a failure exits 1 and names the next command."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sqlite3
import subprocess

import filelock
import pytest
from conftest import User, eventually

from llm_user_memory import Settings

PROFILE = "\ufeff# Me\r\n\r\n## Work\r\n- Nurse\r\n* Leeds"


def test_looking_creates_nothing(user: User) -> None:
    show = user.llm("memory", "show", auto=None)
    assert (show.stdout, "llm memory edit" in show.stderr) == ("", True)
    assert user.llm("memory", "path", auto=None).stdout == f"{user.places.profile}\n"
    status = user.llm("memory", "status", auto=None).stdout
    assert "llm memory install-shell" in status
    assert not user.places.directory.exists()
    assert not user.places.logs.exists()


def test_load_takes_a_file_byte_for_byte_and_show_gives_it_back(user: User) -> None:
    (user.folder / "mine.md").write_bytes(PROFILE.encode())
    done = user.llm("memory", "load", "mine.md", auto=None)
    assert user.places.profile.read_bytes() == PROFILE.encode()
    assert done.stdout == ""
    assert "To undo this: llm memory rollback" in done.stderr
    found = json.loads(user.llm("memory", "show", "--json", auto=None).stdout)
    assert (found["path"], found["text"]) == (str(user.places.profile), PROFILE)
    assert [(fact["section"], fact["text"]) for fact in found["facts"]] == [("Work", "Nurse"), ("Work", "Leeds")]
    user.llm("memory", "load", "-", "--yes", input="- From a pipe", auto=None)
    assert user.llm("memory", "show", auto=None).stdout == "- From a pipe\n"
    assert user.profile == "- From a pipe"


@pytest.mark.parametrize("content", [b"\xff\xfe- \x00N\x00", None])
def test_a_file_that_is_no_text_or_not_there_is_not_loaded(user: User, content: bytes | None) -> None:
    user.profile = PROFILE
    if content:
        (user.folder / "new.md").write_bytes(content)
    done = user.llm("memory", "load", "new.md", auto=None, check=False)
    assert done.returncode in ({1} if content else {1, 2})
    assert "new.md" in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert user.profile == PROFILE


def editor(user: User, script: str) -> str:
    path = user.folder / "an editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"'{path}'"


def test_edit_opens_the_editor_and_keeps_what_was_saved(user: User) -> None:
    save = editor(user, 'test -z "$(sed -n "/Current Projects/p" "$1")" && exit 9; echo "- Edited" >> "$1"')
    done = user.llm("memory", "edit", auto=None, EDITOR=save)
    assert user.facts == ["Edited"]
    assert "To undo this: llm memory rollback" in done.stderr
    done = user.llm("memory", "edit", auto=None, EDITOR=editor(user, "true"))
    assert user.facts == ["Edited"]
    assert "rollback" not in done.stderr


def test_what_is_written_while_the_editor_is_open_is_kept_too(user: User) -> None:
    user.profile = "# Me\n- A\n- B\n"
    meanwhile = editor(
        user, f"printf '# Me\\n- A\\n- B\\n- Learned\\n' > '{user.places.profile}'; sed -i 's/- A/- Mine/' \"$1\""
    )
    user.llm("memory", "edit", auto=None, EDITOR=meanwhile)
    assert user.profile == "# Me\n- Mine\n- B\n- Learned\n"


def test_an_editor_that_fails_changes_nothing_and_is_a_failure(user: User) -> None:
    user.profile = PROFILE
    done = user.llm("memory", "edit", auto=None, check=False, EDITOR=editor(user, 'echo no >> "$1"; exit 1'))
    assert done.returncode == 1
    assert user.profile == PROFILE


def test_clear_does_not_ask_names_llms_log_and_is_undone_by_the_command_it_names(user: User) -> None:
    user.profile = PROFILE
    done = user.llm("memory", "clear", auto=None)
    assert user.profile == ""
    assert done.stdout == ""
    assert "logs.db" in done.stderr
    undo = re.search(r"llm (memory rollback.*)", done.stderr)
    assert undo
    user.llm(*undo[1].split(), auto=None)
    assert user.places.profile.read_bytes() == PROFILE.encode()


def test_pause_and_resume_say_so_persist_and_show_in_status(user: User) -> None:
    assert user.status()["state"] == "on"
    done = user.llm("memory", "pause", auto=None)
    assert (done.stdout, "llm memory resume" in done.stderr) == ("", True)
    user.llm("memory", "pause", auto=None)
    status = user.llm("memory", "status", auto=None).stdout
    assert "paused" in status
    assert "llm memory resume" in status
    done = user.llm("memory", "update", auto=None, check=False)
    assert (done.returncode, "llm memory resume" in done.stderr) == (1, True)
    user.llm("memory", "resume", auto=None)
    assert user.status()["paused_since"] is None


def test_status_tells_what_was_learned_how_large_the_profile_is_and_who_works(user: User) -> None:
    user.llm("I live in Leeds")
    eventually(lambda: user.facts, "learning")
    user.settled()
    status = user.status(LLM_MEMORY_MODEL="scripted-2")
    assert status["profile"] == {
        "path": str(user.places.profile),
        "characters": len(user.profile),
        "budget": 8000,
        "facts": 1,
    }
    assert "I live in Leeds" in status["last_learned"]["summary"]
    assert (status["pending"], status["set_aside"], status["held"], status["problems"]) == (0, [], 0, [])
    assert status["worker"]["running"] is True
    assert status["model"] == "scripted-2"
    assert status["llm_logging"] is True
    user.kill_worker()
    (user.user_dir / "logs-off").touch()
    text = user.llm("memory", "status", auto=None).stdout
    assert "llm logs on" in text
    assert "not running" in text
    assert "I live in Leeds" in text


def test_status_tells_of_a_worker_that_has_just_started_or_could_not_write_who_it_is(user: User) -> None:
    user.places.create()
    with filelock.FileLock(user.places.worker_lock):
        assert "running\n" in user.llm("memory", "status", auto=None).stdout
        user.places.worker_lock.write_text("4321 1.0\n")
        assert "running (pid 4321)\n" in user.llm("memory", "status", auto=None).stdout


def test_status_does_not_claim_to_know_what_it_can_not_see(user: User) -> None:
    user.llm("I live in Leeds")
    eventually(lambda: user.facts, "learning")
    user.settled()
    user.kill_worker()
    with contextlib.closing(sqlite3.connect(user.places.database, isolation_level=None)) as locked:
        locked.execute("begin exclusive")
        text = user.llm("memory", "status", auto=None).stdout
    assert re.findall(r"^(?:Learned|Waiting) +(.*)$", text, re.MULTILINE) == ["not known now"] * 2
    assert "memory.db can't be used now" in text


def test_an_editor_that_is_not_there_is_named_with_the_way_to_another(user: User) -> None:
    done = user.llm("memory", "edit", auto=None, check=False, EDITOR="/no/such/editor")
    assert done.returncode == 1
    assert "/no/such/editor" in done.stderr
    assert "export EDITOR=" in done.stderr


def test_update_learns_in_the_foreground_and_says_what_changed(user: User) -> None:
    user.llm("I live in Leeds", LLM_MEMORY_UPDATE_INTERVAL="600")
    assert user.facts == []
    done = user.llm("memory", "update", auto=None)
    assert "I live in Leeds" in done.stdout
    assert done.stderr == ""
    assert user.facts == ["I live in Leeds"]
    done = user.llm("memory", "update", auto=None)
    assert (done.stdout, done.stderr) == ("", "Nothing new to remember.\n")


def test_an_update_that_fails_exits_1_and_names_status(user: User) -> None:
    user.llm("-m", "scripted-dead", "I live in Leeds", LLM_MEMORY_UPDATE_INTERVAL="600")
    done = user.llm("memory", "update", auto=None, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the service is down" in done.stderr
    assert "llm memory status" in done.stderr
    done = user.llm("memory", "update", auto=None, check=False, LLM_MEMORY_UPDATES="false")
    assert done.returncode == 1
    assert "LLM_MEMORY_UPDATES" in done.stderr


# Settings


def test_status_reports_settings_it_cannot_understand(user: User) -> None:
    names = ["AUTO", "DISABLED", "UPDATES", "UPDATE_INTERVAL", "DEBUG"]
    status = user.status(**{f"LLM_MEMORY_{name}": "perhaps" for name in names})
    assert [any(f"LLM_MEMORY_{name}='perhaps'" in p for p in status["problems"]) for name in names] == [True] * 5
    assert status["state"].startswith("disabled")
    assert status["shell"]["active"] is False


@pytest.mark.parametrize("text", ["1", "true", "YES", " On "])
def test_yes_is_understood_in_every_way_to_write_it(text: str) -> None:
    settings = Settings.from_env({f"LLM_MEMORY_{n}": text for n in ("AUTO", "DISABLED", "UPDATES", "DEBUG")})
    assert (settings.auto, settings.disabled, settings.updates, settings.debug) == ("system", True, True, True)
    assert settings.complaints == ()


@pytest.mark.parametrize("text", ["0", "false", "NO", " Off "])
def test_no_is_understood_in_every_way_to_write_it(text: str) -> None:
    settings = Settings.from_env({f"LLM_MEMORY_{n}": text for n in ("AUTO", "DISABLED", "UPDATES", "DEBUG")})
    assert (settings.auto, settings.disabled, settings.updates, settings.debug) == ("", False, False, False)
    assert settings.complaints == ()


def test_nonsense_is_taken_as_the_safe_value() -> None:
    settings = Settings.from_env({f"LLM_MEMORY_{n}": "perhaps" for n in ("AUTO", "DISABLED", "UPDATES", "DEBUG")})
    assert (settings.auto, settings.disabled, settings.updates, settings.debug) == ("", True, False, False)
    assert len(settings.complaints) == 4


def test_what_is_not_set_or_empty_is_the_default() -> None:
    assert (
        Settings.from_env({}) == Settings.from_env({"LLM_MEMORY_DISABLED": "", "LLM_MEMORY_UPDATES": " "}) == Settings()
    )


@pytest.mark.parametrize(("text", "interval"), [("0.5", 0.5), ("30", 30.0), (" 2 ", 2.0)])
def test_the_interval_is_seconds_fractions_allowed(text: str, interval: float) -> None:
    settings = Settings.from_env({"LLM_MEMORY_UPDATE_INTERVAL": text})
    assert (settings.interval, settings.complaints) == (interval, ())


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf", "5s"])
def test_an_interval_that_is_none_becomes_five_seconds_and_a_complaint(text: str) -> None:
    settings = Settings.from_env({"LLM_MEMORY_UPDATE_INTERVAL": text})
    assert settings.interval == 5.0
    assert len(settings.complaints) == 1


# Unusual terminals, folders and words


def test_paths_in_commands_can_be_pasted(user: User) -> None:
    user.places.create()
    folder = user.places.directory / "edit-abc"  # of an edit that was killed, before there was a memory.db
    folder.mkdir()
    (folder / "profile.md").write_text("- Plays chess\n")
    status = user.llm("memory", "status", auto=None).stdout
    command = re.search(r"To save it: llm (memory load .*?); to be rid of it: (.*)", status)
    assert command
    assert " " in str(folder)
    user.llm(*shlex.split(command[1]), auto=None)
    assert user.facts == ["Plays chess"]
    subprocess.run(command[2], shell=True, check=True, env=user.env)
    assert not folder.exists()


@pytest.mark.parametrize("ending", ["exec >/dev/null 2>&1; kill -INT $PPID; sleep 1", "exit 3"])
def test_what_was_saved_in_an_editor_that_came_to_a_bad_end_is_kept(user: User, ending: str) -> None:
    user.profile = "- Nurse\n"
    script = user.folder / "editor"
    script.write_text(f'#!/bin/sh\necho "- Plays chess" >> "$1"\n{ending}\n')
    script.chmod(0o755)
    done = user.llm("memory", "edit", auto=None, check=False, EDITOR=str(script))
    assert done.returncode == 1
    command = re.search(r"llm (memory load .*)", done.stderr)
    assert command
    assert user.facts == ["Nurse"]
    user.llm(*shlex.split(command[1]), auto=None)
    assert user.facts == ["Nurse", "Plays chess"]


def test_an_unclosed_quote_in_the_editors_name_is_an_error_in_words(user: User) -> None:
    done = user.llm("memory", "edit", auto=None, check=False, EDITOR="'x")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)


def test_a_terminal_shows_what_characters_it_can_and_a_file_gets_all_of_them(user: User) -> None:
    user.profile = "- Likes “tea” in Łódź\n"
    for command in ("show", "why"):
        terminal = user.terminal("llm", "memory", command, PYTHONIOENCODING="latin-1")
        assert terminal.wait() == 0
        assert r"Likes \u201ctea\u201d in \u0141" in terminal.shown
    assert user.llm("memory", "show", auto=None, PYTHONIOENCODING="latin-1").stdout == user.profile


@pytest.mark.parametrize(
    ("args", "given"),
    [
        (["rollback", "99999999999999999999"], None),
        (["rollback", "--steps", "99999999999999999999"], None),
        (["diff", "99999999999999999999"], None),
        (["history", "-n", "99999999999999999999"], None),
        (["add", "-"], b"caf\xe9"),
        (["add"], b"caf\xe9"),
    ],
)
def test_nonsense_is_an_error_in_words(user: User, args: list[str], given: bytes | None) -> None:
    done = user.llm("memory", *args, auto=None, check=False, input=given, PYTHONIOENCODING="utf-8:strict")
    assert done.returncode in {1, 2}
    assert "Error:" in done.stderr
    assert "Traceback" not in done.stderr


def test_review_does_what_it_is_told_also_where_it_prints_json(user: User) -> None:
    user.llm("Please always recommend tea to me", LLM_MEMORY_UPDATE_INTERVAL="3600")
    user.reply("ADD | Preferences | Always recommend tea | always recommend tea to me")
    user.llm("memory", "update", auto=None)
    done = user.llm("memory", "review", "--json", "--accept", "1", auto=None)
    assert json.loads(done.stdout) == []
    assert user.facts == ["Always recommend tea"]


def test_update_takes_no_news_that_it_does_not_tell(user: User) -> None:
    user.llm("I live in Leeds")
    eventually(lambda: user.facts, "learning")
    user.settled()
    assert "Nothing new" in user.llm("memory", "update", auto=None).stderr
    with user.memory() as opened:
        assert opened.take_news() == "1 change from earlier prompts (llm memory diff 0)"
