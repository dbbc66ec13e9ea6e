"""Every change can be seen and undone, what is forgotten is gone, and what the user wrote survives."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import random
import re
import shlex
import sqlite3
import stat
import sys
import time
from typing import TYPE_CHECKING, Any

import filelock
import llm
import pytest
import sqlite_utils
from click.testing import CliRunner
from conftest import User, eventually
from llm.migrations import migrate

import llm_user_memory
from llm_user_memory import (
    REDACTED,
    TITLE,
    Edit,
    Learner,
    Log,
    Memory,
    Note,
    Outcome,
    Problem,
    ProfileUnreadable,
    Settings,
    Source,
    Verdict,
    digest,
    forget_for_good,
    memory_group,
    parse_moment,
    take_in,
    utc_now,
)

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator

PROFILE = f"{TITLE}\n\n## Personal Information\n- Lives in Leeds\n\n## Preferences\n- Likes short answers\n"
NOON = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.timezone.utc)


class Listener(llm.Model):
    model_id = "listener"

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: Any = None
    ) -> Iterator[str]:
        yield "I see."


def typed(user: User, *texts: str) -> None:
    """Log prompts as llm does, with the notes that calls leave."""
    log = sqlite_utils.Database(user.places.logs)
    migrate(log)
    for text in texts:
        note = Note(command="prompt", learn=True, length=len(text), sha256=digest(text), at=utc_now().isoformat())
        with user.memory() as memory:
            memory.note(note)
        response = Listener().prompt(text)
        response.text()
        response.log_to_db(log)


def learn(user: User, reply: str, meanwhile: Callable[[], object] = lambda: None) -> Outcome | None:
    """Learn from what was typed, with a model that answers so, while something else happens."""

    def ask(model: str, request: str) -> str:
        meanwhile()
        return reply

    with user.memory() as memory:
        take_in(memory, Log(user.places.logs))
        return Learner(memory, Log(user.places.logs), Settings(), ask).learn()


def learned(user: User, fact: str, quote: str) -> None:
    typed(user, f"{quote}, you know")
    assert learn(user, f"ADD | Personal Information | {fact} | {quote}")
    assert fact in user.facts


def run(user: User, *args: str, stdin: str | None = None, code: int = 0) -> tuple[str, str]:
    """Run a command of memory's in this process: what it printed and what it said."""
    done = CliRunner(env=user.env).invoke(memory_group, args, input=stdin, obj=Settings())
    assert done.exit_code == code, (done.output, done.exception)
    return done.stdout, done.stderr


def versions(user: User) -> list[tuple[int, str]]:
    with user.memory() as memory:
        return [(version.id, version.author) for version in memory.versions()][::-1]


def text_of(user: User, version: int) -> str:
    with user.memory() as memory:
        return memory.version_text(version)


def hold(user: User, *edits: Edit, now: dt.datetime | None = None) -> None:
    """Keep edits for review, as learning does."""
    source = Source("Always recommend tea to me", "turn-1", "thread-1", "scripted", "2026-11-20T09:00:00+00:00")
    with Memory(user.places, now=(lambda: now) if now else utc_now) as memory:
        for edit in edits:
            item = edit.target if edit.action != "ADD" else ""
            memory.hold([Verdict(edit, "hold", "it reads as an order to a model", source, item)], "scripted")


def every_byte(user: User) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in user.places.directory.rglob("*") if path.is_file()}


def holding(user: User, word: str) -> list[str]:
    """Our files in which this word can be read."""
    return [name for name, data in every_byte(user).items() if word.casefold().encode() in data.lower()]


# Versions


def test_every_change_is_a_version_that_says_by_whom_and_when(user: User) -> None:
    user.profile = PROFILE
    run(user, "add", "Plays chess", "--section", "Interests")
    learned(user, "Has a dog", "I have a dog")
    hold(user, Edit("ADD", "Preferences", "Always asks for tea", "I always ask for tea"))
    run(user, "review", "--accept", "1")
    user.profile = user.profile.replace("Leeds", "York")
    run(user, "load", "-", stdin=PROFILE)
    run(user, "forget", "short", "--yes")
    run(user, "clear")
    run(user, "rollback", "--steps", "1")
    with user.memory() as memory:
        before = memory.profile()
        memory.replace_text("edit", before, before + "- More\n")
    authors = ["outside", "add", "worker", "review", "outside", "load", "forget", "clear", "rollback", "edit"]
    assert versions(user) == list(enumerate(authors, 1))
    with user.memory() as memory:
        times = [dt.datetime.fromisoformat(version.at) for version in memory.versions()]
        assert [version.model for version in memory.versions() if version.author == "worker"] == ["listener"]
    assert times == sorted(times, reverse=True)
    assert utc_now() - times[-1] < dt.timedelta(minutes=5)


def test_a_change_made_in_any_editor_is_recorded_as_the_users_before_anything_is_applied_to_it(user: User) -> None:
    run(user, "load", "-", stdin=PROFILE)
    edited = PROFILE.replace("Leeds", "York")
    user.profile = edited
    run(user, "add", "Plays chess")
    assert [author for _, author in versions(user)] == ["load", "outside", "add"]
    assert text_of(user, 2) == edited
    user.profile = edited + "- One more line\n"
    learned(user, "Has a dog", "I have a dog")
    assert [author for _, author in versions(user)][3:] == ["outside", "worker"]
    assert text_of(user, 4) == edited + "- One more line\n"


def test_looking_at_history_notices_what_an_editor_did(user: User) -> None:
    run(user, "load", "-", stdin=PROFILE)
    user.profile = PROFILE + "- From an editor\n"
    assert re.search(r" outside +\+1: From an editor$", run(user, "history")[0], re.MULTILINE)
    user.profile = PROFILE
    assert "-- From an editor" in run(user, "diff")[0]


def test_a_profile_that_is_touched_but_not_changed_makes_no_version(user: User) -> None:
    run(user, "load", "-", stdin=PROFILE)
    user.profile = PROFILE
    run(user, "history")
    assert "nothing changed" in run(user, "load", "-", stdin=PROFILE)[1]
    assert len(versions(user)) == 1


def test_history_is_newest_first_one_line_each_with_a_summary_a_person_reads(user: User) -> None:
    assert "no history" in run(user, "history")[1]
    run(user, "load", "-", stdin=PROFILE)
    run(user, "add", "-", stdin="Plays chess\nPlays go\nPlays darts\n", code=0)
    user.profile = user.profile.replace("Leeds", "York").replace("- Plays go\n", "")
    shown = user.llm("memory", "history", auto=None).stdout.splitlines()
    assert [re.split(r"\s{2,}", line.strip(), maxsplit=3)[2:] for line in shown] == [
        ["outside", "~1 -1: Lives in York; Plays go"],
        ["add", "+3: Plays chess; Plays go; …"],
        ["load", "+2: Lives in Leeds; Likes short answers"],
    ]
    assert [line.split()[0] for line in shown] == ["3", "2", "1"]
    assert len(run(user, "history", "-n", "1")[0].splitlines()) == 1
    assert len(run(user, "history", "-n", "0")[0].splitlines()) == 3
    found = json.loads(run(user, "history", "--json")[0])
    assert [version["id"] for version in found] == [3, 2, 1]
    assert found[1] | {"at": ""} == {
        "id": 2,
        "at": "",
        "author": "add",
        "model": "",
        "summary": "+3: Plays chess; Plays go; …",
        "base": 1,
        "size": len(f"{PROFILE}- Plays chess\n- Plays go\n- Plays darts\n"),
    }


def test_diff_shows_the_last_change_or_any_two_versions(user: User) -> None:
    run(user, "load", "-", stdin="- A\n")
    run(user, "load", "-", stdin="- A\n- B\n")
    run(user, "load", "-", stdin="- A\n- B\n- C\n")

    def changed(*args: str) -> list[str]:
        return [line for line in run(user, "diff", *args)[0].splitlines() if re.match(r"[+-]- ", line)]

    assert changed() == ["+- C"]
    assert changed("1") == ["+- B", "+- C"]
    assert changed("0", "2") == ["+- A", "+- B"]
    assert changed("3", "1") == ["-- B", "-- C"]
    assert "There is no version 9; see: llm memory history" in run(user, "diff", "9", code=1)[1]


def test_diff_is_coloured_on_a_terminal_only(user: User) -> None:
    run(user, "load", "-", stdin="- A\n")
    run(user, "load", "-", stdin="- B\n")
    terminal = user.terminal("llm", "memory", "diff", auto=None)
    terminal.expect(re.escape("\x1b[31m-- A"))
    terminal.expect(re.escape("\x1b[32m+- B"))
    assert terminal.wait() == 0
    assert "\x1b" not in user.llm("memory", "diff", auto=None).stdout


# Undo


TEXTS = [
    "",
    "- No newline at the end",
    "# Me\r\n\r\n- Windows\r\n",
    "\ufeff# Me\n- With a byte order mark\n",
    "\ufeff# Me\r\n- Both, no end",
    "\n\n\n- Blank lines first\n\n\n",
    "- Mixed\r\n- ends\n- here\r- and\x0bhere\x0cand\u2028here\n",
    "```\n- code\n```\n\n| a | b |\n|---|---|\n",
    "- Same\n- Same\n\n- Same\n",
    "no Markdown at all, \0 and 👨\u200d👩 and e\u0301",
    PROFILE,
]


def test_every_version_the_user_ever_saw_comes_back_byte_for_byte(user: User) -> None:
    for number, text in enumerate(TEXTS[1:], 1):
        if number % 2:
            user.profile = text
            run(user, "history")
        else:
            with user.memory() as memory:
                memory.overwrite("load", text)
    for number, text in list(enumerate(TEXTS))[::-1]:
        run(user, "rollback", str(number))
        assert user.places.profile.read_bytes() == text.encode()
        assert text_of(user, number) == text


def test_a_rollback_is_a_version_itself_and_is_undone_by_what_it_says(user: User) -> None:
    run(user, "load", "-", stdin="- A\n")
    run(user, "load", "-", stdin="- B\n")
    said = run(user, "rollback", "1", "--yes")[1]
    assert user.profile == "- A\n"
    assert versions(user)[-1] == (3, "rollback")
    assert "To undo this: llm memory rollback --only 3" in said
    learned(user, "Plays chess", "I play chess")
    run(user, "rollback", "2")
    assert user.profile == "- B\n", "what was learned meanwhile is no reason to go elsewhere"


def test_steps_count_the_changes_made_in_an_editor_too(user: User) -> None:
    run(user, "load", "-", stdin="- A\n")
    run(user, "load", "-", stdin="- B\n")
    user.profile = "- C\n"
    run(user, "rollback", "--steps", "1")
    assert user.profile == "- B\n"
    run(user, "rollback", "--steps", "4")
    assert user.profile == ""
    assert "There is no version 99 changes ago" in run(user, "rollback", "--steps", "99", code=1)[1]


def test_rolling_back_many_steps_does_not_compare_all_versions_between(user: User, monkeypatch: Any) -> None:
    with user.memory() as memory:
        for number in range(40):
            memory.overwrite("load", f"- {number}\n")
        compared: list[object] = []
        real = llm_user_memory.summarised

        def summarised(*documents: llm_user_memory.Document) -> str:
            compared.append(documents)
            return real(*documents)

        monkeypatch.setattr(llm_user_memory, "summarised", summarised)
        assert memory.find_version(steps=39).id == 1
        with pytest.raises(Problem):
            memory.find_version(steps=99)
    assert len(compared) <= 1


def at(user: User, moment: dt.datetime, text: str) -> None:
    with Memory(user.places, now=lambda: moment) as memory:
        memory.overwrite("load", text)


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("2026-11-01", "- Last month\n"),
        ("2026-11-01 08:00", "- Last month\n"),
        ("Nov 1 2026", "- Last month\n"),
        ("2026-10-31T09:00:00Z", "- Long ago\n"),
        ("yesterday", "- Yesterday\n"),
        ("today", "- Just now\n"),
        ("2h", "- This morning\n"),
        ("2 hours ago", "- This morning\n"),
        ("3 days ago", "- Last month\n"),
        ("90 minutes", "- This morning\n"),
        ("30s", "- An hour ago\n"),
        ("1 w", "- Last month\n"),
        ("1 month", "- Long ago\n"),
        ("1y", None),
        ("1999-01-01", None),
    ],
)
def test_rollback_goes_to_what_the_profile_was_at_a_time(user: User, to: str, expected: str | None) -> None:
    hour = dt.timedelta(hours=1)
    at(user, NOON - 60 * 24 * hour, "- Long ago\n")
    at(user, dt.datetime(2026, 11, 1, 7, tzinfo=dt.timezone.utc), "- Last month\n")
    at(user, NOON - 24 * hour, "- Yesterday\n")
    at(user, NOON - 4 * hour, "- This morning\n")
    at(user, NOON - 1 * hour, "- An hour ago\n")
    at(user, NOON - 0.001 * hour, "- Just now\n")
    with Memory(user.places, now=lambda: NOON) as memory:
        if expected is None:
            with pytest.raises(Problem, match="There is no version as old as"):
                memory.find_version(to=to)
        else:
            assert memory.version_text(memory.find_version(to=to).id) == expected


@pytest.mark.parametrize(
    "to",
    [
        "",
        "soon",
        "the day before",
        "-2h",
        "2026-13-45",
        "monday",
        "12",
        "9999 years ago",
        "1e9",
        "2026-11-01 xx",
        "0x10 d",
    ],
)
def test_a_time_that_is_none_is_an_error_that_names_the_forms(user: User, to: str) -> None:
    run(user, "load", "-", stdin=PROFILE)
    with pytest.raises(Problem, match=r"try 2026-11-01, yesterday, 2h or '3 days ago'"):
        parse_moment(to, NOON)
    assert "is no time; try 2026-11-01" in run(user, "rollback", "--to", to, code=1)[1]
    assert user.profile == PROFILE


def test_a_day_ends_at_its_local_midnight_also_in_the_other_half_of_the_year(monkeypatch: Any) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert parse_moment("2026-07-01", NOON).isoformat() == "2026-07-01T23:59:59.999999+02:00"
        assert parse_moment("2026-11-01", NOON).isoformat() == "2026-11-01T23:59:59.999999+01:00"
        assert parse_moment("yesterday", NOON).isoformat() == "2026-11-19T23:59:59.999999+01:00"
        assert parse_moment("2h", NOON) == NOON - dt.timedelta(hours=2)
        assert parse_moment("5 mins ago", NOON) == NOON - dt.timedelta(minutes=5)
        assert parse_moment("5 march", NOON).isoformat() == "2026-03-05T23:59:59.999999+01:00"
        assert parse_moment("12 sep", NOON).isoformat() == "2026-09-12T23:59:59.999999+02:00"
        with pytest.raises(Problem, match="2026-12-03 is still to come; name the year"):
            parse_moment("3 dec", NOON)
        with pytest.raises(Problem, match=r"2099-01-01 is still to come$"):
            parse_moment("2099-01-01", NOON)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "Say which version"),
        (["1", "--steps", "1"], "Say which version"),
        (["--to", "2h", "--steps", "1"], "Say which version"),
        (["99"], "There is no version 99; see: llm memory history"),
    ],
)
def test_rollback_says_what_it_needs(user: User, args: list[str], said: str) -> None:
    run(user, "load", "-", stdin=PROFILE)
    assert said in run(user, "rollback", *args, code=1)[1]
    run(user, "rollback", "--steps", "0", code=2)
    assert user.profile == PROFILE


# Add


def test_add_writes_at_once_under_its_heading_from_an_argument_or_from_stdin(user: User) -> None:
    user.profile = PROFILE
    user.llm("memory", "add", "Plays chess", "--section", "preferences", auto=None)
    user.llm("memory", "add", "--yes", input="- Has two cats\n\n  Works in York  \n", auto=None)
    run(user, "add", "-", "--section", "Boats", stdin="* Owns a dinghy")
    assert user.profile == (
        f"{TITLE}\n\n## Personal Information\n- Lives in Leeds\n- Has two cats\n- Works in York\n\n"
        "## Preferences\n- Likes short answers\n- Plays chess\n\n## Boats\n- Owns a dinghy\n"
    )
    assert "nothing changed" in run(user, "add", "lives in leeds.")[1]
    assert "nothing to add" in run(user, "add", stdin=" \n", code=1)[1]


# Forget


def test_what_is_forgotten_is_in_no_byte_of_any_of_our_files(user: User, monkeypatch: Any) -> None:
    run(user, "load", "-", stdin=PROFILE)
    learned(user, "Lives in Zanzibar", "I live in Zanzibar")
    with user.memory() as memory:  # enough for SQLite to move lines between pages
        for number in range(150):
            memory.overwrite("load", PROFILE + "".join(f"- Zanzibar {number} {n} {'x' * n}\n" for n in range(20)))
    hold(user, Edit("ADD", "Preferences", "Recommend Zanzibar", "I say recommend Zanzibar"))
    hold(user, Edit("ADD", "Preferences", "Recommend tea", "as they say in zanzibar"))
    user.places.database.with_name("memory.db.damaged-1").write_bytes(b"... Zanzibar ...")
    user.places.directory.joinpath("profile.md.edited-1").write_bytes(b"Zanzibar \xff")
    user.profile = "- ZANZIBAR, saved by an editor\n- Stays\n"
    with user.memory() as memory:
        memory.settle()
        # What a crash leaves behind: a file being written, and one that was displaced.
        user.places.directory.joinpath(".profile.md.0a1b2c3d.tmp").write_text("- Zanzibar")
        user.places.directory.joinpath(".profile.md.1-0123456789abcdef-0a1b.swap").write_text("- Zanzibar")
        user.places.profile.write_bytes(b"\xff Zanzibar\n")
        memory.overwrite("rollback", memory.version_text(1) + "- Zanzibar!\n")
    assert len(holding(user, "Zanzibar")) >= 4
    said = user.llm("memory", "forget", "zanzibar", "--yes", auto=None)
    assert said.stderr.startswith("  - Zanzibar!\n")
    assert "Forgotten." in said.stderr
    assert "logs.db" in said.stderr, "what llm's own log still holds, and where"
    assert holding(user, "Zanzibar") == []
    assert user.profile == PROFILE
    assert json.loads(run(user, "review", "--json")[0]) == []
    assert "[forgotten]" in run(user, "diff", "0", "3")[0]


@pytest.mark.parametrize("seed", range(6))
def test_forgetting_leaves_no_pieces_in_the_pages_of_the_database(user: User, seed: int) -> None:
    """SQLite keeps pieces of what it moved between pages, here with some of the seeds, also with secure_delete."""
    chance = random.Random(seed)
    with user.memory() as memory:
        for part in range(3):
            lines = ["".join(chance.choices("abcdefgh ", k=chance.randint(5, 150))) for _ in range(700)]
            lines[7::10] = [f"Zanzibar {part} {n}" for n in range(70)]
            memory.overwrite("load", "".join(f"- {line}\n" for line in lines))
        memory.forget("Zanzibar")
    assert holding(user, "Zanzibar") == []


def test_forgetting_leaves_everything_else_as_it_was(user: User) -> None:
    run(user, "load", "-", stdin=PROFILE)
    run(user, "add", "Plays chess")
    learned(user, "Has a dog", "I have a dog")
    run(user, "forget", "chess", "--yes")
    assert user.profile == PROFILE.replace("Leeds\n", "Leeds\n- Has a dog\n")
    assert text_of(user, 1) == PROFILE
    assert text_of(user, 2) == PROFILE.replace("Leeds\n", f"Leeds\n{REDACTED}")
    assert "I have a dog" in run(user, "why", "dog")[0]


def test_a_version_that_held_what_is_forgotten_comes_back_without_it(user: User) -> None:
    run(user, "load", "-", stdin=PROFILE)
    run(user, "load", "-", stdin="- Other\n")
    run(user, "forget", "Leeds", "--yes")
    run(user, "rollback", "1")
    assert user.profile == PROFILE.replace("- Lives in Leeds\n", "")


def test_turns_of_what_is_forgotten_are_never_learned_again(user: User) -> None:
    learned(user, "Lives in Leeds", "I live in Leeds")
    typed(user, "I told you that I love Leeds")  # logged, and not looked at yet
    with user.memory() as memory:
        forget_for_good(memory, Log(user.places.logs), "Leeds")
        memory.set("cursor", None)  # as after a log that was restored: all of it is looked at again
        memory.claim("update", aside=True)
        memory.release("update")
    asked: list[str] = []
    assert learn(user, "ADD | Interests | Loves Leeds | I love Leeds", lambda: asked.append("")) is None
    assert asked == []
    assert holding(user, "Leeds") == []


def test_what_is_forgotten_while_the_model_thinks_is_not_learned(user: User) -> None:
    learned(user, "Has a dog", "I have a dog")
    typed(user, "I live in Leeds now")
    learn(
        user,
        "ADD | Interests | Lives in Leeds | I live in Leeds",
        lambda: forget_for_good(user.memory(), Log(user.places.logs), "Leeds"),
    )
    assert user.facts == ["Has a dog"]
    assert holding(user, "Leeds") == []


def test_forgetting_a_condensed_line_forgets_the_turns_of_the_lines_it_was_made_of(user: User) -> None:
    learned(user, "Lives in Leeds", "I live in Leeds")
    source = Source("Lives in Leeds")
    edit = Edit("REPLACE", "", "Resident of a northern city", "Lives in Leeds")
    with user.memory() as memory:
        version, _ = memory.overwrite("worker", "- Resident of a northern city\n")
        assert version
        memory.add_evidence(version.id, [Verdict(edit, "apply", "", source, "Lives in Leeds")], "scripted")
        memory.forget("northern city")
        assert user.query("select count(*) from turns where state = 'forgotten'", user.places.database) == 1


def test_forget_asks_and_takes_no_for_an_answer(user: User) -> None:
    run(user, "load", "-", stdin=PROFILE)
    before = every_byte(user)["profile.md"], versions(user)
    said = run(user, "forget", "Leeds", stdin="n\n", code=1)[1]
    assert "- Lives in Leeds" in said
    assert "Forget it? [y/N]" in said
    assert (every_byte(user)["profile.md"], versions(user)) == before
    run(user, "forget", "Leeds", stdin="y\n")
    assert holding(user, "Leeds") == []


def test_forget_takes_an_id_a_whole_line_as_show_prints_it_or_part_of_one(user: User) -> None:
    run(user, "load", "-", stdin="- Lives in Leeds\n- [ ] Learns Polish\n1. Plays chess\n- Stays\n")
    shown = json.loads(run(user, "show", "--json")[0])["facts"]
    hold(user, Edit("ADD", "Interests", "Plays chess in a club", "I say I play chess in a club"))
    run(user, "forget", f"[{shown[0]['id']}]", "--yes")
    run(user, "forget", "--yes", "--", "- [ ] Learns Polish")
    run(user, "forget", "1. Plays chess", "--yes")
    assert user.profile == "- Stays\n"
    assert holding(user, "Leeds") + holding(user, "Polish") + holding(user, "chess") == []


@pytest.mark.parametrize("text", ["", "   ", "Timbuktu"])
def test_forgetting_what_is_not_there_is_an_error_and_forgets_nothing(user: User, text: str) -> None:
    run(user, "load", "-", stdin=PROFILE)
    assert "see: llm memory show" in run(user, "forget", text, "--yes", code=1)[1]
    assert text_of(user, 1) == user.profile == PROFILE


def test_a_text_that_is_only_a_receipt_can_be_forgotten(user: User) -> None:
    typed(user, "Since I moved to Leeds I play chess")
    learn(user, "ADD | Interests | Plays chess | Since I moved to Leeds I play chess")
    run(user, "forget", "Leeds", "--yes")
    assert user.facts == ["Plays chess"]
    assert holding(user, "Leeds") == []


# Clear


def test_clearing_is_undone_and_purging_leaves_nothing_of_ours(user: User) -> None:
    run(user, "load", "-", stdin=PROFILE)
    typed(user, "Hello")
    run(user, "clear")
    assert user.profile == ""
    run(user, "rollback", "--steps", "1")
    assert user.profile == PROFILE
    before = user.places.logs.read_bytes()
    run(user, "clear", "--purge", stdin="n\n", code=1)
    assert user.profile == PROFILE
    done = user.llm("memory", "clear", "--purge", "--yes", auto=None)
    assert "logs.db" in done.stderr
    assert not user.places.directory.exists()
    assert user.places.logs.read_bytes() == before
    assert "Nothing is remembered" in user.llm("memory", "show", auto=None).stderr


def test_a_purge_while_a_model_thinks_leaves_nothing_of_ours(user: User) -> None:
    learned(user, "Has a dog", "I have a dog")
    typed(user, "I live in Leeds now")
    with pytest.raises(Problem, match="was removed"):
        learn(user, "ADD | Interests | Lives in Leeds | I live in Leeds", lambda: user.memory().purge())
    assert not user.places.directory.exists()


def test_a_purge_takes_a_symlinked_profile_with_it(user: User) -> None:
    real = user.folder / "dotfiles" / "me.md"
    real.parent.mkdir()
    real.write_text(PROFILE)
    user.places.create()
    user.places.profile.symlink_to(real)
    run(user, "add", "Plays chess")
    run(user, "clear", "--purge", "--yes")
    assert list(real.parent.iterdir()) == []
    assert not user.places.directory.exists()


# Why


def test_why_shows_the_receipt_of_what_was_learned_and_says_what_the_user_wrote(user: User) -> None:
    user.profile = "- Lives in Leeds\n"
    run(user, "add", "Plays chess", "--section", "Interests")
    learned(user, "Has a dog", "I have a dog")
    shown = user.llm("memory", "why", auto=None).stdout
    today = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d %A")
    thread = user.query("select thread_id from turns")
    for explained in (
        f"Lives in Leeds\n    you wrote this yourself, in another program, {today}\n",
        f"Plays chess\n    you wrote this yourself, with llm memory add, {today}\n",
        f"Has a dog\n    “I have a dog”\n    {today}, learned with listener; llm logs -c {thread}\n",
    ):
        assert explained in shown
    found = {proof["text"]: proof for proof in json.loads(run(user, "why", "--json")[0])}
    assert found["Lives in Leeds"] == {"text": "Lives in Leeds", "by": "outside", "receipts": []}
    assert [receipt["quote"] for receipt in found["Has a dog"]["receipts"]] == ["I have a dog"]
    assert run(user, "why", "LEEDS")[0].splitlines()[0] == "Lives in Leeds"
    assert "see: llm memory show" in run(user, "why", "Timbuktu", code=1)[1]


def test_why_claims_nothing_about_lines_whose_history_is_gone(user: User) -> None:
    learned(user, "Has a dog", "I have a dog")
    user.places.database.unlink()
    assert "there is no receipt for this line: its history is gone" in run(user, "why")[0]
    assert json.loads(run(user, "why", "--json")[0])[0]["by"] is None
    user.profile += "- Written later\n"
    assert "you wrote this yourself, in another program" in run(user, "why", "later")[0]


# Review

ADD = Edit("ADD", "Preferences", "Always wants tea", "I always want tea")


def test_review_asks_about_each_held_edit_at_a_terminal(user: User) -> None:
    user.profile = PROFILE
    hold(
        user,
        ADD,
        Edit("ADD", "Preferences", "Never wants rain", "I never want rain"),
        Edit("REPLACE", "Lives in Leeds", "You must visit Leeds", "You must visit Leeds"),
        Edit("REMOVE", "Likes short answers", "", "I do not like short answers"),
        Edit("ADD", "Preferences", "Always skipped", "I am always skipped"),
    )
    terminal = user.terminal("llm", "memory", "review", auto=None)
    shown = terminal.expect(r"\[a\]ccept.*: ")
    assert "Add to Preferences: Always wants tea" in shown
    assert "because you typed: “I always want tea” (2026-11-20 Friday, llm logs -c thread-1)" in shown
    assert "proposed by scripted, held because it reads as an order to a model" in shown
    terminal.type("a\r")
    terminal.expect(r"Never wants rain.*\[q\]uit.*: ")
    terminal.type("d\r")
    terminal.expect(r"Change: Lives in Leeds\n.*to: You must visit Leeds.*\[q\]uit.*: ")
    terminal.type("e\r")
    terminal.expect(r"The line .*: ")
    terminal.type("Lives near Leeds\r")
    terminal.expect(r"Remove: Likes short answers.*\[q\]uit.*: ")
    terminal.type("a\r")
    terminal.expect(r"Always skipped.*\[q\]uit.*: ")
    terminal.type("\r")
    assert terminal.wait() == 0
    assert user.facts == ["Lives near Leeds", "Always wants tea"]
    assert [held["fact"] for held in json.loads(run(user, "review", "--json")[0])] == ["Always skipped"]
    assert "“You must visit Leeds”" in run(user, "why", "near Leeds")[0]


def test_review_accepts_and_drops_by_id_without_asking(user: User) -> None:
    user.profile = PROFILE
    hold(user, ADD, Edit("ADD", "Interests", "Ignore rain", "I ignore rain"))
    assert [held["id"] for held in json.loads(run(user, "review", "--json")[0])] == [1, 2]
    assert "There is no held edit 7" in run(user, "review", "--accept", "7", code=1)[1]
    run(user, "review", "--accept", "1", "--drop", "2", "--yes")
    assert user.facts == ["Lives in Leeds", "Likes short answers", "Always wants tea"]
    assert versions(user)[-1][1] == "review"
    assert "Nothing is held for review." in run(user, "review")[1]
    run(user, "rollback", "--steps", "1")
    assert user.profile == PROFILE


def test_quitting_a_review_leaves_the_rest_held(user: User) -> None:
    hold(user, ADD, Edit("ADD", "Interests", "Ignore rain", "I ignore rain"))
    run(user, "review", stdin="q\n")
    assert len(json.loads(run(user, "review", "--json")[0])) == 2


def test_an_accepted_edit_is_not_made_twice(user: User) -> None:
    user.profile = "- Always wants tea\n"
    hold(user, ADD)
    assert "nothing changed" in run(user, "review", "--accept", "1")[1]
    assert user.facts == ["Always wants tea"]
    assert json.loads(run(user, "review", "--json")[0]) == []


def test_held_edits_are_dropped_after_30_days(user: User) -> None:
    hold(user, ADD, now=NOON)
    with Memory(user.places, now=lambda: NOON + dt.timedelta(days=29, hours=23)) as memory:
        assert len(memory.held()) == 1
    with Memory(user.places, now=lambda: NOON + dt.timedelta(days=30, hours=1)) as memory:
        assert memory.held() == []
    assert holding(user, "Always wants tea") == []


# Edit and load while others write


def editor(user: User, *lines: str) -> str:
    """An editor that says when it is open, waits to be told to go on, and then does what the lines say."""
    script = user.folder / "editor"
    wait = (
        f"touch '{user.folder}/open'; polls=0;"
        f" until [ -e '{user.folder}/go' ] || [ $polls -gt 3000 ]; do sleep 0.02; polls=$((polls + 1)); done"
    )
    script.write_text("\n".join(["#!/bin/sh", wait, *lines]) + "\n")
    script.chmod(0o700)
    return f"'{script}'"


def edit_while(user: User, meanwhile: Callable[[], object], *lines: str) -> str:
    """What `llm memory edit` says if something happens while the editor is open."""
    process = user.start("memory", "edit", auto=None, EDITOR=editor(user, *lines))
    eventually(lambda: (user.folder / "open").exists() or process.poll() is not None, "the editor")
    meanwhile()
    (user.folder / "go").touch()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return str(err.decode())


def test_what_the_worker_learned_while_the_editor_was_open_is_kept_beside_the_edit(user: User) -> None:
    user.profile = PROFILE
    said = edit_while(
        user,
        lambda: learned(user, "Has a dog", "I have a dog"),
        """sed -i 's/short answers/long answers/' "$1"; echo '- Added at the end' >> "$1" """,
    )
    assert user.facts == ["Lives in Leeds", "Has a dog", "Likes long answers", "Added at the end"]
    assert "same lines" not in said
    assert [author for _, author in versions(user)] == ["outside", "worker", "edit"]


def test_where_both_changed_the_same_line_both_stay_and_it_is_said(user: User) -> None:
    user.profile = PROFILE

    def worker_replaces() -> None:
        typed(user, "I moved to York")
        with user.memory() as memory:
            line = next(iter(llm_user_memory.Document(memory.profile()).ids))
        learn(user, f"REPLACE | {line} | Lives in York | I moved to York")

    said = edit_while(user, worker_replaces, """sed -i 's/Lives in Leeds/Lives in Hull/' "$1" """)
    assert user.facts == ["Lives in York", "Lives in Hull", "Likes short answers"]
    assert "the same lines were changed; both are kept" in said
    assert "llm memory diff" in said


def test_what_is_deleted_in_the_editor_stays_deleted_when_its_neighbour_was_changed(user: User) -> None:
    user.profile = "- Lives in Leeds\n- Likes rain\n- Plays chess\n"
    with user.memory() as memory:
        before = memory.profile()
        memory.change("worker", lambda text: text.replace("Leeds", "York"))
        _, conflict = memory.replace_text("edit", before, before.replace("- Likes rain\n", ""))
    assert user.profile == "- Lives in York\n- Plays chess\n"
    assert not conflict


def test_a_save_in_another_program_while_the_editor_was_open_is_kept_too(user: User) -> None:
    user.profile = PROFILE

    def saves_elsewhere() -> None:
        user.profile = PROFILE + "- Saved elsewhere\n"

    edit_while(user, saves_elsewhere, """sed -i 's/Leeds/Hull/' "$1" """)
    assert user.facts == ["Lives in Hull", "Likes short answers", "Saved elsewhere"]


def test_editing_leaves_line_ends_byte_order_mark_and_missing_newline_as_they_are(user: User) -> None:
    text = "\ufeff# Me\r\n\r\n- Lives in Leeds\r\n- Likes tea"
    user.profile = text
    replace = editor(user, """sed -i 's/Leeds/York/' "$1" """)
    (user.folder / "go").touch()
    run_with_editor(user, replace)
    assert user.places.profile.read_bytes() == text.replace("Leeds", "York").encode()


def run_with_editor(user: User, command: str, code: int = 0) -> str:
    done = CliRunner(env=user.env | {"EDITOR": command}).invoke(memory_group, ["edit"], obj=Settings())
    assert done.exit_code == code, (done.output, done.exception)
    return done.stderr


def test_a_profile_that_cannot_be_written_is_not_opened_in_the_editor_first(user: User) -> None:
    user.profile = PROFILE
    user.places.profile.chmod(0o444)
    (user.folder / "go").touch()
    assert "is read-only" in run_with_editor(user, editor(user), code=1)
    assert not (user.folder / "open").exists()


def test_loading_keeps_what_was_there_in_history(user: User) -> None:
    user.profile = PROFILE
    learned(user, "Has a dog", "I have a dog")
    run(user, "load", "-", stdin="- New\n")
    assert user.profile == "- New\n"
    assert "Has a dog" in text_of(user, 2)
    assert text_of(user, 1) == PROFILE


def test_a_load_while_the_model_thinks_is_what_its_edits_are_made_in(user: User) -> None:
    user.profile = PROFILE
    typed(user, "I have a dog")
    learn(user, "ADD | Interests | Has a dog | I have a dog", lambda: run(user, "load", "-", stdin="- New\n"))
    assert user.facts == ["New", "Has a dog"]


# Saves at the worst moment


@pytest.fixture(params=["exchange", "no exchange"])
def exchange(request: Any, monkeypatch: Any) -> bool:
    """Whether the system can swap two files in one step."""
    can = bool(request.param == "exchange")
    if not can:
        monkeypatch.setattr(llm_user_memory, "exchange_files", lambda *_: False)
    return can


def before_the_exchange(monkeypatch: Any, save: Callable[[], object]) -> None:
    """Save once, between the last look at the profile and the write that displaces it."""
    real = llm_user_memory.exchange_files
    waiting = [save]

    def exchange(one: pathlib.Path, other: pathlib.Path) -> bool:
        if waiting:
            waiting.pop()()
        return real(one, other)

    monkeypatch.setattr(llm_user_memory, "exchange_files", exchange)


def test_writing_works_with_and_without_an_exchange(user: User, exchange: bool) -> None:
    run(user, "load", "-", stdin=PROFILE)
    run(user, "add", "Plays chess")
    assert "Plays chess" in user.facts
    run(user, "rollback", "1")
    assert user.profile == PROFILE
    run(user, "history")
    assert [author for _, author in versions(user)] == ["load", "add", "rollback"]


@pytest.mark.parametrize("style", ["in place", "renamed"])
def test_a_save_between_our_last_look_and_our_write_is_merged(user: User, monkeypatch: Any, style: str) -> None:
    run(user, "load", "-", stdin=PROFILE)
    saved = PROFILE + "- Saved in between\n"

    def save() -> None:
        if style == "renamed":
            aside = user.folder / "aside"
            aside.write_text(saved)
            os.replace(aside, user.places.profile)
        else:
            user.profile = saved

    before_the_exchange(monkeypatch, save)
    run(user, "add", "Plays chess")
    assert user.facts == ["Lives in Leeds", "Plays chess", "Likes short answers", "Saved in between"]
    assert [author for _, author in versions(user)] == ["load", "add", "outside", "merge"]
    assert text_of(user, 3) == saved


def test_an_editor_that_still_has_the_old_file_open_loses_nothing(user: User, exchange: bool) -> None:
    run(user, "load", "-", stdin=PROFILE)
    with user.places.profile.open("r+") as file:
        run(user, "add", "Plays chess")
        run(user, "add", "Plays go")
        file.write(PROFILE + "- Saved late\n")
    run(user, "history")
    assert user.facts == ["Lives in Leeds", "Plays chess", "Plays go", "Likes short answers", "Saved late"]


def test_what_is_saved_into_a_displaced_file_and_is_no_text_is_kept_and_told(user: User) -> None:
    run(user, "load", "-", stdin=PROFILE)
    with user.places.profile.open("rb+") as file:
        run(user, "add", "Plays chess")
        file.write(b"\xff\xfe is no UTF-8")
    run(user, "history")
    kept = list(user.places.directory.glob("profile.md.*displaced"))
    assert [path.read_bytes()[:2] for path in kept] == [b"\xff\xfe"]
    assert any(str(kept[0]) in problem for problem in user.status()["problems"])
    assert "Plays chess" in user.facts


def test_what_a_crash_left_unwritten_is_written_beside_what_was_saved_since(user: User, monkeypatch: Any) -> None:
    run(user, "load", "-", stdin=PROFILE)
    with monkeypatch.context() as patched:
        patched.setattr(Memory, "_put_in_place", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt), user.memory() as memory:
            memory.add(["Plays chess"], "Preferences")
    assert user.profile == PROFILE
    user.profile = PROFILE.replace("Leeds", "York")
    run(user, "history")
    assert user.facts == ["Lives in York", "Likes short answers", "Plays chess"]
    assert [author for _, author in versions(user)] == ["load", "add", "outside", "merge"]


@pytest.mark.parametrize("at", ["before the exchange", "after the exchange"])
def test_a_crash_around_the_write_brings_nothing_back_later(user: User, monkeypatch: Any, at: str) -> None:
    run(user, "load", "-", stdin=PROFILE)
    real = llm_user_memory.exchange_files

    def crash(one: pathlib.Path, other: pathlib.Path) -> bool:
        if at == "after the exchange":
            real(one, other)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(llm_user_memory, "exchange_files", crash)
        with pytest.raises(KeyboardInterrupt), user.memory() as memory:
            memory.add(["Plays chess"], "Preferences")
    run(user, "history")
    assert "Plays chess" in user.facts
    run(user, "clear")
    run(user, "history")
    assert user.profile == ""
    assert [author for _, author in versions(user)] == ["load", "add", "clear"]


def test_an_abandoned_half_written_file_is_swept_away(user: User) -> None:
    run(user, "load", "-", stdin=PROFILE)
    user.places.directory.joinpath(".profile.md.0a1b2c3d.tmp").write_text("half of it")
    run(user, "add", "Plays chess")
    names = set(every_byte(user))
    assert {name for name in names if name.endswith(".tmp")} == set()


def test_displaced_files_do_not_pile_up(user: User) -> None:
    with user.memory() as memory:
        for number in range(30):
            memory.overwrite("load", f"- {number}\n")
    assert len([name for name in every_byte(user) if name.endswith(".swap")]) <= llm_user_memory.DISPLACED_MOST + 1
    for path in user.places.directory.glob(".*.swap"):
        os.utime(path)
    with user.memory() as memory:
        assert [author for _, author in versions(user)] == ["load"] * 30


# The notice


def test_the_next_interactive_call_says_once_and_dimly_that_something_was_learned(user: User) -> None:
    typed(user, "I have a dog and a cat")
    learn(user, "ADD | Interests | Has a dog | I have a dog\nADD | Interests | Has a cat | I have a dog and a cat")
    user.env["LLM_MEMORY_UPDATES"] = "true"
    off = user.terminal("llm", "hi", LLM_MEMORY_NOTICES="false")
    assert off.wait() == 0
    assert "memory:" not in off.shown
    assert "memory:" not in user.llm("hi").stderr, "no terminal"
    chat = user.terminal("llm", "chat")
    chat.expect("> ")
    chat.type("hi\r")
    chat.expect("You said: hi.*> ")
    chat.type("exit\r")
    assert chat.wait() == 0
    assert "memory:" not in chat.shown
    terminal = user.terminal("llm", "hi")
    terminal.expect("You said: hi")
    terminal.expect(re.escape("\x1b[2mmemory: 2 changes from earlier prompts (llm memory diff 0)\x1b[0m"))
    assert terminal.wait() == 0
    again = user.terminal("llm", "hi")
    assert again.wait() == 0
    assert "memory:" not in again.shown


# The file the user has


@pytest.mark.parametrize("dangling", [False, True])
def test_a_symlinked_profile_stays_a_symlink(user: User, dangling: bool) -> None:
    real = user.folder / "dotfiles" / "me [1].md"
    real.parent.mkdir()
    if not dangling:
        real.write_text(PROFILE)
    user.places.create()
    user.places.profile.symlink_to(real)
    run(user, "add", "Plays chess")
    run(user, "load", "-", stdin="- New\n")
    run(user, "rollback", "--steps", "1")
    assert user.places.profile.is_symlink()
    assert "Plays chess" in real.read_text()
    assert [path.name for path in real.parent.iterdir() if not path.name.endswith(".swap")] == ["me [1].md"]


def test_a_symlink_into_a_folder_that_is_gone_is_a_clear_error(user: User) -> None:
    user.places.create()
    user.places.profile.symlink_to(user.folder / "gone" / "me.md")
    said = run(user, "add", "Plays chess", code=1)[1]
    assert "gone can't be written to" in said
    assert user.places.profile.is_symlink()


def refused(user: User, said: str) -> None:
    """Every command that writes fails with these words, and leaves everything as it was."""
    before = user.places.profile.read_bytes(), user.places.profile.stat().st_ino
    for args in (["add", "Plays chess"], ["load", "-"], ["clear"], ["forget", "Leeds", "--yes"], ["rollback", "0"]):
        assert re.search(said, run(user, *args, stdin="- New\n", code=1)[1])
    typed(user, "I have a dog")
    with pytest.raises(Problem, match=said):
        learn(user, "ADD | Interests | Has a dog | I have a dog")
    assert (user.places.profile.read_bytes(), user.places.profile.stat().st_ino) == before
    assert {author for _, author in versions(user)} <= {"outside"}
    with user.memory() as memory:
        assert memory.count_turns("pending") == 1, "still to be learned, when the file can be written again"


def test_a_read_only_profile_is_never_replaced(user: User) -> None:
    user.profile = PROFILE
    user.places.profile.chmod(0o444)
    refused(user, "is read-only; to let it be changed: chmod u.w")
    assert stat.S_IMODE(user.places.profile.stat().st_mode) == 0o444
    assert "Lives in Leeds" in run(user, "show")[0]
    user.places.profile.chmod(0o600)
    assert learn(user, "ADD | Interests | Has a dog | I have a dog")
    assert "Has a dog" in user.facts


def test_a_hard_linked_profile_is_not_cut_from_its_other_name(user: User) -> None:
    user.profile = PROFILE
    other = user.folder / "backup.md"
    os.link(user.places.profile, other)
    refused(user, "is a hard link")
    assert other.stat().st_nlink == 2
    other.unlink()
    run(user, "add", "Plays chess")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
def test_a_profile_of_another_user_is_not_taken_from_them(user: User) -> None:
    user.profile = PROFILE
    os.chown(user.places.profile, 65534, -1)
    refused(user, "belongs to another user")
    assert user.places.profile.stat().st_uid == 65534


@contextlib.contextmanager
def unprivileged(folder: pathlib.Path) -> Iterator[None]:
    """As someone who may not read everything, who owns this folder."""
    if os.geteuid() != 0:
        yield
        return
    opened = [path for path in folder.parents if not path.stat().st_mode & 0o001]
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, 65534, 65534)
    for path in opened:
        path.chmod(path.stat().st_mode | 0o011)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        for path in opened:
            path.chmod(path.stat().st_mode & ~0o011)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no such modes here")
def test_a_profile_that_cannot_be_read_is_a_clear_error_and_stays(user: User) -> None:
    user.profile = PROFILE
    with user.memory() as memory:
        memory.settle()
    with unprivileged(user.folder):
        user.places.profile.chmod(0)
        with (
            pytest.raises(ProfileUnreadable, match=r"can't be read: Permission denied; see: ls -l "),
            user.memory() as m,
        ):
            m.add(["Plays chess"], "Interests")
        user.places.profile.chmod(0o600)
        assert user.profile == PROFILE


def test_a_folder_in_the_profiles_place_is_a_clear_error(user: User) -> None:
    user.places.profile.mkdir(parents=True)
    assert "can't be read: Is a directory" in run(user, "add", "Plays chess", code=1)[1]
    assert user.places.profile.is_dir()


def test_a_profile_that_is_no_utf_8_is_named_kept_and_replaced_only_on_request(user: User) -> None:
    user.profile = PROFILE
    run(user, "history")
    broken = b"- Caf\xe9\n"
    user.places.profile.write_bytes(broken)
    for args in (["add", "x y"], ["show"], ["why"]):
        assert "is not valid UTF-8 (line 1)" in run(user, *args, code=1)[1]
    for args in (["history"], ["search", "Leeds"], ["diff"]):
        out, said = run(user, *args)
        assert "Leeds" in out, "what the way out is found with"
        assert "llm memory rollback VERSION" in said
    assert user.places.profile.read_bytes() == broken
    said = run(user, "rollback", "1")[1]
    assert user.profile == PROFILE
    kept = list(user.places.directory.glob("profile.md.unreadable-*"))
    assert [path.read_bytes() for path in kept] == [broken]
    assert kept[0].name in said


def test_what_we_write_is_for_its_owner_only(user: User) -> None:
    run(user, "add", "Plays chess")
    user.places.profile.chmod(0o644)
    run(user, "add", "Plays go")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in user.places.directory.iterdir()}
    assert {modes[name] for name in ("profile.md", "memory.db", "profile.lock")} == {0o600}
    assert stat.S_IMODE(user.places.directory.stat().st_mode) == 0o700


# Without memory.db


def damage_start(data: bytes) -> bytes:
    return b"\0garbage" * 20 + data[160:]


def damage_middle(data: bytes) -> bytes:
    return data[:4096] + b"\xa5" * (len(data) - 4096)


def truncate(data: bytes) -> bytes:
    return data[: len(data) // 2]


def text(data: bytes) -> bytes:
    return b"This is no database.\n"


@pytest.mark.parametrize("damage", [damage_start, damage_middle, truncate, text])
def test_a_damaged_database_loses_history_only_and_is_kept(user: User, damage: Callable[[bytes], bytes]) -> None:
    run(user, "load", "-", stdin=PROFILE)
    learned(user, "Has a dog", "I have a dog")
    text_before = user.profile
    broken = damage(user.places.database.read_bytes())
    user.places.database.write_bytes(broken)
    with contextlib.suppress(AssertionError):  # the first command may say that it has put it aside
        run(user, "history")
    kept = list(user.places.directory.glob("memory.db.damaged-*"))
    assert [path.read_bytes() for path in kept] == [broken]
    assert user.profile == text_before
    run(user, "add", "Plays chess")
    assert "Plays chess" in user.facts
    assert "Has a dog" in user.facts
    run(user, "rollback", "--steps", "1")
    assert user.profile == text_before
    assert any("was damaged and is kept as" in problem for problem in user.status()["problems"])
    typed(user, "I have a cat")
    assert learn(user, "ADD | Interests | Has a cat | I have a cat")
    assert "Has a cat" in user.facts


def test_pause_and_what_is_not_to_be_learned_outlive_a_damaged_database(user: User) -> None:
    learned(user, "Has a dog", "I have a dog")
    run(user, "forget", "dog", "--yes")
    run(user, "pause")
    with user.memory() as memory:
        for number in range(300):
            memory.overwrite("load", f"- {number} {'x' * 200}\n")
    data = user.places.database.read_bytes()
    page = data.rindex(b"x" * 200) // 4096 * 4096  # of lines, far from the rest
    user.places.database.write_bytes(data[:page] + b"\xa5" * 4096 + data[page + 4096 :])
    with user.memory() as memory:
        memory.set_aside_damaged()
        assert memory.versions() == []
        assert memory.paused_since()
        assert user.query("select count(*) from turns where state = 'forgotten'", user.places.database) == 1


@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_a_database_that_is_gone_loses_history_only_and_status_says_so(user: User, how: str) -> None:
    run(user, "load", "-", stdin=PROFILE)
    run(user, "load", "-", stdin="- New\n")
    if how == "removed":
        user.places.database.unlink()
    else:
        user.places.database.write_bytes(b"")
    run(user, "add", "Plays chess")
    assert user.facts == ["New", "Plays chess"], "and nothing that was displaced comes back"
    assert [author for _, author in versions(user)] == ["unknown", "add"]
    assert any("memory.db was gone" in problem for problem in user.status()["problems"])


def test_a_first_use_is_not_taken_for_a_loss(user: User) -> None:
    user.profile = PROFILE
    run(user, "history")
    assert user.status()["problems"] == []
    assert versions(user) == [(1, "outside")]


def test_who_has_the_database_open_notices_that_it_is_another_one(user: User) -> None:
    run(user, "load", "-", stdin=PROFILE)
    with user.memory() as memory:
        memory.settle()
        user.places.database.unlink()
        run(user, "add", "Plays chess")
        memory.add(["Plays go"], "Interests")
        assert [version.author for version in memory.versions()] == ["add", "add", "unknown"]
    assert [author for _, author in versions(user)] == ["unknown", "add", "add"]


def test_forget_takes_an_id_in_brackets_for_that_line_alone_and_a_word_for_a_text(user: User) -> None:
    document = llm_user_memory.Document(f"{PROFILE}- Lives in Leeds on weekends\n")
    of = {item.text: id for id, item in document.ids.items()}
    word = of["Likes short answers"]
    user.profile = document.text + f"- Plays {word}ball\n"
    run(user, "forget", word, "--yes")
    assert "Likes short answers" in user.facts
    assert f"Plays {word}ball" not in user.facts
    run(user, "forget", word, "--yes", code=1)
    run(user, "forget", f"[{word}]", "--yes")
    assert user.facts == ["Lives in Leeds", "Lives in Leeds on weekends"]
    run(user, "forget", f"[{of['Lives in Leeds']}]", "--yes")
    assert user.facts == ["Lives in Leeds on weekends"]
    assert holding(user, "Lives in Leeds on weekends")


def test_a_held_edit_whose_line_has_changed_stays_held_and_says_so(user: User) -> None:
    user.profile = PROFILE
    hold(user, Edit("REPLACE", "Lives in Leeds", "Never leaves Leeds", "I never leave Leeds"))
    user.profile = PROFILE.replace("Lives in Leeds", "Lives in York")
    _, said = run(user, "review", "--accept", "1", code=1)
    assert "has changed" in said
    assert "llm memory review --drop 1" in said
    with user.memory() as memory:
        assert [held.fact for held in memory.held()] == ["Never leaves Leeds"]
    assert run(user, "review", stdin="a\n")[1].count("has changed") == 1


def test_why_knows_a_line_that_had_no_line_end_when_it_was_written(user: User) -> None:
    user.profile = f"{TITLE}\n\n## Personal Information\n- Lives in Leeds"
    run(user, "history")
    run(user, "add", "Plays chess")
    assert "you wrote this yourself, in another program" in run(user, "why", "Leeds")[0]
    assert run(user, "search", "Leeds")[0].count("Lives in Leeds") == 1
    assert "(gone)" not in run(user, "search", "Leeds")[0]


def test_purging_a_symlinked_directory_leaves_nothing_of_ours(user: User) -> None:
    elsewhere = user.folder / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    user.places.directory.symlink_to(elsewhere)
    user.profile = PROFILE
    run(user, "add", "Plays chess")
    run(user, "clear", "--purge", "--yes")
    assert not elsewhere.exists()
    assert not user.places.directory.is_symlink()


def test_an_edit_that_is_cut_short_is_kept_told_and_forgotten_with_its_text(user: User) -> None:
    user.profile = PROFILE
    script = user.folder / "editor"
    script.write_text(f'#!/bin/sh\necho "- Has a secret twin" >> "$1"; touch "{user.folder}/saved"; exec sleep 100\n')
    script.chmod(0o755)
    editing = user.start("memory", "edit", auto=None, EDITOR=str(script))
    eventually((user.folder / "saved").exists, "saving")
    with user.memory() as memory:
        assert memory.cut_short() == []
        forget_for_good(memory, Log(user.places.logs), "no such thing")
    assert list(user.places.directory.glob("edit-*/profile.md")), "an open editor keeps its file"
    os.killpg(editing.pid, 9)
    editing.wait()
    said = run(user, "status")[0]
    assert "An edit was cut short" in said
    kept = next(user.places.directory.glob("edit-*/profile.md"))
    assert f"llm memory load {shlex.quote(str(kept))}" in said
    run(user, "load", str(kept))
    assert "Has a secret twin" in user.facts
    run(user, "forget", "secret twin", "--yes")
    assert holding(user, "secret twin") == []
    assert "cut short" not in run(user, "status")[0]


def test_an_editor_that_deletes_its_file_leaves_the_profile_as_it_was(user: User) -> None:
    user.profile = PROFILE
    script = user.folder / "editor"
    script.write_text('#!/bin/sh\nrm "$1"\n')
    script.chmod(0o755)
    done = user.llm("memory", "edit", auto=None, check=False, EDITOR=str(script))
    assert (done.returncode, user.profile) == (1, PROFILE)
    assert "left no file" in done.stderr


def test_update_does_not_say_that_nothing_is_new_where_something_is_held(user: User) -> None:
    user.llm("Please always recommend tea to me", LLM_MEMORY_UPDATE_INTERVAL="3600")
    user.reply("ADD | Preferences | Always recommend tea | always recommend tea to me")
    done = user.llm("memory", "update", auto=None)
    assert "1 edit held for you" in done.stderr
    assert "Nothing new" not in done.stderr


def test_forgetting_reaches_what_lay_beside_a_profile_before_it_became_a_symlink(user: User) -> None:
    user.profile = PROFILE
    run(user, "add", "Has a secret twin")
    run(user, "add", "Plays chess")
    elsewhere = user.folder / "dots" / "me.md"
    elsewhere.parent.mkdir()
    os.rename(user.places.profile, elsewhere)
    user.places.profile.symlink_to(elsewhere)
    assert holding(user, "secret twin")
    run(user, "forget", "secret twin", "--yes")
    assert holding(user, "secret twin") == []
    assert [path for path in elsewhere.parent.iterdir() if b"secret twin" in path.read_bytes()] == []


def test_a_receipt_says_that_a_held_edit_was_worded_by_the_user(user: User) -> None:
    user.profile = PROFILE
    hold(user, Edit("ADD", "Preferences", "Always recommend tea", "Always recommend tea to me"))
    run(user, "review", stdin="e\nLikes tea\n")
    assert "worded by you in llm memory review" in run(user, "why", "Likes tea")[0]
    hold(user, Edit("ADD", "Preferences", "Always recommend oats", "Always recommend tea to me"))
    run(user, "review", "--yes")
    assert "learned with scripted" in run(user, "why", "oats")[0]


def test_review_refuses_to_accept_and_drop_the_same_edit(user: User) -> None:
    hold(user, Edit("ADD", "Preferences", "Always recommend tea", "Always recommend tea to me"))
    _, said = run(user, "review", "--accept", "1", "--drop", "1", code=1)
    assert "--accept 1 or --drop 1" in said
    with user.memory() as memory:
        assert len(memory.held()) == 1


def test_the_question_before_a_purge_names_what_a_symlink_leads_to(user: User) -> None:
    elsewhere = user.folder / "me.md"
    elsewhere.write_text(PROFILE)
    user.places.create()
    user.places.profile.symlink_to(elsewhere)
    _, said = run(user, "clear", "--purge", stdin="n\n", code=1)
    assert str(elsewhere) in said
    assert elsewhere.read_text() == PROFILE


def test_a_text_may_begin_with_a_dash(user: User) -> None:
    run(user, "add", "- Likes tea")
    run(user, "add", "-1 is their favourite number")
    assert user.facts == ["Likes tea", "-1 is their favourite number"]
    run(user, "forget", "- Likes tea", "--yes")
    assert user.facts == ["-1 is their favourite number"]
    assert "No such option" in run(user, "add", "--sektion", code=2)[1]


@pytest.mark.parametrize("section", ["A\nB", "#", " ", "x\u200by"])
def test_a_section_that_is_none_is_refused(user: User, section: str) -> None:
    _, said = run(user, "add", "Likes tea", "--section", section, code=1)
    assert "one line of text" in said
    assert user.profile == ""


def test_a_section_may_be_named_as_it_stands_in_the_profile(user: User) -> None:
    run(user, "add", "Likes tea", "--section", "## Drinks")
    assert "## Drinks\n- Likes tea\n" in user.profile


def test_who_loads_a_profile_above_the_budget_is_told(user: User) -> None:
    _, said = run(user, "load", "-", stdin="- Likes tea\n" * 1000)
    assert "12,000 characters" in said
    assert "8,000" in said


def test_a_retry_asks_the_model_of_the_conversation_where_no_other_is_named_any_more(user: User) -> None:
    user.llm("I live in Leeds", LLM_MEMORY_MODEL="uninstalled")
    eventually(lambda: "uninstalled is not installed" in run(user, "status")[0], "being set aside")
    assert (
        "LLM_MEMORY_MODEL=uninstalled is not a model"
        in user.llm("memory", "status", auto=None, LLM_MEMORY_MODEL="uninstalled").stdout
    )
    done = user.llm("memory", "update", auto=None)
    assert "1 message set aside" in done.stderr
    user.llm("memory", "update", "--retry", auto=None)
    assert user.facts == ["I live in Leeds"]


def test_show_says_what_is_waiting_to_be_learned(user: User) -> None:
    user.llm("I live in Leeds", LLM_MEMORY_UPDATE_INTERVAL="3600")
    assert "1 message waiting" in run(user, "show")[1]


def test_what_update_has_told_is_no_news_later(user: User) -> None:
    user.llm("I live in Leeds", LLM_MEMORY_UPDATE_INTERVAL="3600")
    user.kill_worker()
    assert "Leeds" in user.llm("memory", "update", auto=None).stdout
    with user.memory() as memory:
        assert memory.take_news() == ""


def test_news_counts_from_the_first_version_that_was_not_told(user: User) -> None:
    run(user, "load", "-", stdin=PROFILE)
    learned(user, "Plays chess", "I play chess")
    learned(user, "Plays go", "I play go")
    with user.memory() as memory:
        assert memory.take_news() == "2 changes from earlier prompts (llm memory diff 1)"
        assert memory.take_news() == ""


def test_news_tells_what_is_held_and_what_could_not_be_learned(user: User) -> None:
    typed(user, "I play chess and always recommend tea")
    learn(
        user,
        "ADD | Interests | Plays chess | I play chess\nADD | Notes | Always recommend tea | always recommend tea",
    )
    typed(user, "I have a dog", "I have a cat")
    learn(user, "Sure!")
    with user.memory() as memory:
        assert memory.take_news() == (
            "1 change from earlier prompts (llm memory diff 0), 1 edit held for you (llm memory review),"
            " 2 messages could not be learned from (llm memory status)"
        )
        assert memory.take_news() == ""


def test_a_line_that_the_user_rewords_while_the_model_thinks_is_shown_to_it_again(user: User) -> None:
    user.profile = PROFILE
    typed(user, "I moved to York")
    reply = "REPLACE | {} | Lives in York | I moved to York"
    ids = {item.text: id for id, item in llm_user_memory.Document(PROFILE).ids.items()}

    def reword() -> None:
        user.profile = PROFILE.replace("Lives in Leeds", "Lives in the north of Leeds")

    first = learn(user, reply.format(ids["Lives in Leeds"]), reword)
    assert first is not None
    assert first.verdicts == ()
    with user.memory() as memory:
        assert memory.count_turns("pending") == 1
    assert "Lives in the north of Leeds" in user.facts
    ids = {item.text: id for id, item in llm_user_memory.Document(user.profile).ids.items()}
    learn(user, reply.format(ids["Lives in the north of Leeds"]))
    assert user.facts == ["Lives in York", "Likes short answers"]


def test_one_change_is_undone_and_those_made_since_stay(user: User) -> None:
    user.profile = PROFILE
    run(user, "add", "Plays chess", "--section", "Preferences")
    said = run(user, "add", "Keeps bees", "--section", "Personal Information")[1]
    learned(user, "Has a dog", "I have a dog")
    undo = re.search(r"llm memory (rollback --only \d+)", said)
    assert undo
    said = run(user, *undo[1].split())[1]
    assert "Keeps bees" in said
    assert user.facts == ["Lives in Leeds", "Has a dog", "Likes short answers", "Plays chess"]
    again = re.search(r"llm memory (rollback --only \d+)", said)
    assert again
    run(user, *again[1].split())
    assert "Keeps bees" in user.facts
    assert "nothing changed" in run(user, "rollback", "--only", "2")[1] or "Plays chess" not in user.facts


def test_undoing_a_change_whose_lines_have_changed_since_keeps_both_and_says_so(user: User) -> None:
    user.profile = PROFILE
    run(user, "history")
    user.profile = PROFILE.replace("Leeds", "York")
    run(user, "history")
    user.profile = PROFILE.replace("Leeds", "Hull")
    said = run(user, "rollback", "--only", "2")[1]
    assert "were changed since" in said
    assert user.facts == ["Lives in Hull", "Lives in Leeds", "Likes short answers"]


def test_undoing_what_came_before_a_forget_does_not_bring_back_a_mark(user: User) -> None:
    user.profile = PROFILE
    run(user, "history")
    run(user, "clear")
    run(user, "forget", "Leeds", "--yes")
    run(user, "rollback", "--only", "2")
    assert user.profile == PROFILE.replace("- Lives in Leeds\n", "")


def test_what_is_saved_beside_a_profile_that_became_a_symlink_is_merged_and_swept_away(
    user: User, monkeypatch: Any
) -> None:
    user.profile = PROFILE
    run(user, "add", "Plays chess")
    (displaced,) = user.places.directory.glob(".profile.md.*.swap")
    elsewhere = user.folder / "me.md"
    os.rename(user.places.profile, elsewhere)
    user.places.profile.symlink_to(elsewhere)
    displaced.write_text(displaced.read_text() + "- Has a secret twin\n")
    run(user, "history")
    assert {"Plays chess", "Has a secret twin"} <= set(user.facts)
    monkeypatch.setattr(llm_user_memory, "DISPLACED_SECONDS", -1.0)
    run(user, "forget", "secret twin", "--yes")
    run(user, "history")
    assert holding(user, "secret twin") == []
    assert not list(user.places.directory.glob(".*.swap"))
    assert not list(elsewhere.parent.glob(".*.swap"))


# Forgetting while something else goes on


def test_what_a_model_was_shown_and_is_forgotten_while_it_thinks_does_not_come_back(user: User) -> None:
    user.profile = PROFILE.replace("Lives in Leeds", "Works at Acme")
    typed(user, "I got promoted to team lead")

    def forget() -> None:
        if "Works at Acme" in user.facts:
            forget_for_good(user.memory(), Log(user.places.logs), "Acme")

    learn(user, "ADD | Notes | Team lead at Acme | I got promoted to team lead", forget)
    assert user.facts == ["Likes short answers"]
    assert holding(user, "Acme") == []
    assert learn(user, "ADD | Notes | Team lead | I got promoted to team lead"), "the message itself still counts"
    assert user.facts == ["Likes short answers", "Team lead"]


def test_turns_are_forgotten_before_lines_so_that_nobody_learns_them_in_between(user: User) -> None:
    learned(user, "Has a dog", "I have a dog")
    typed(user, "I live in Leeds now")

    class Slow(Memory):
        def forget(self, text: str, *, whole: bool = False) -> None:
            learn(user, "ADD | Interests | Lives in Leeds | I live in Leeds")
            super().forget(text, whole=whole)
            learn(user, "ADD | Interests | Lives in Leeds | I live in Leeds")

    with Slow(user.places) as memory:
        forget_for_good(memory, Log(user.places.logs), "Leeds")
    assert user.facts == ["Has a dog"]
    assert holding(user, "Leeds") == []


def test_nothing_is_called_forgotten_while_the_log_can_not_be_read(user: User) -> None:
    user.profile = PROFILE
    typed(user, "I live in Leeds now")
    with contextlib.closing(sqlite3.connect(user.places.logs, isolation_level=None)) as locked:
        locked.execute("begin exclusive")
        _, said = run(user, "forget", "Leeds", "--yes", code=1)
    assert "Nothing is forgotten yet" in said
    assert "Forgotten." not in said
    assert "Lives in Leeds" in user.facts
    run(user, "forget", "Leeds", "--yes")
    assert learn(user, "ADD | Interests | Lives in Leeds | I live in Leeds") is None
    assert user.facts == ["Likes short answers"]


def test_a_text_that_is_only_in_a_message_still_to_be_learned_can_be_forgotten(user: User) -> None:
    typed(user, "My ex is called Bluebird")
    said = run(user, "forget", "Bluebird", "--yes")[1]
    assert "Forgotten." in said
    assert learn(user, "ADD | Notes | Knows Bluebird | My ex is called Bluebird") is None


def test_where_memory_can_not_be_tidied_forgetting_says_so_and_can_be_done_again(user: User) -> None:
    user.profile = PROFILE

    class Hindered(Memory):
        def _tidy(self) -> None:
            with contextlib.closing(sqlite3.connect(self.home.database, isolation_level=None)) as reader:
                reader.execute("begin")
                reader.execute("select * from state").fetchall()
                super()._tidy()

    with Hindered(user.places, patience=0.1) as memory, pytest.raises(Problem, match="pieces of it may be left"):
        forget_for_good(memory, Log(user.places.logs), "Leeds")
    assert user.facts == ["Likes short answers"]
    run(user, "forget", "Leeds", "--yes")
    assert "No line holds" in run(user, "forget", "Leeds", "--yes", code=1)[1]


def test_an_edit_that_is_forgotten_while_it_is_reviewed_is_not_made(user: User) -> None:
    user.profile = PROFILE
    hold(user, Edit("ADD", "Preferences", "Always asks Bluebird", "I always ask Bluebird"))
    with user.memory() as memory:
        (held,) = memory.held()
        run(user, "forget", "Bluebird", "--yes")
        with pytest.raises(llm_user_memory.Outdated, match="not held any more"):
            memory.accept(held)
    assert holding(user, "Bluebird") == []


def test_an_error_that_quotes_what_is_forgotten_is_forgotten_too(user: User) -> None:
    typed(user, "My ex is called Bluebird", "I have a dog")
    with user.memory() as memory:
        take_in(memory, Log(user.places.logs))
        for turn in memory.due(8):
            memory.put_off([turn], "refused: 'ex is called Bluebird'")
        memory.report("condense", "refused: 'ex is called Bluebird'")
        memory.report("log", "refused: Zoë")
    run(user, "add", "Knows Zoë")
    run(user, "forget", "Zoë", "--yes")
    with user.memory() as memory:
        assert not any("Zoë" in error["message"] for error in memory.errors())
    assert holding(user, "Bluebird")
    run(user, "forget", "Bluebird", "--yes")
    assert holding(user, "Bluebird") == []
    with user.memory() as memory:
        assert memory.count_turns("pending") == 1, "the dog's"


def test_a_heading_is_the_users_to_rename_and_then_goes_out_of_history(user: User) -> None:
    text = f"{TITLE}\n\n## Project Bluebird\n- Writes Go\n```\n# Bluebird, the code\n```\n"
    user.profile = text
    said = run(user, "forget", "Bluebird", "--yes")[1]
    assert "“Project Bluebird” still says it" in said
    assert user.profile == text.replace("# Bluebird, the code\n", "")
    assert "Only the heading “Project Bluebird”" in run(user, "forget", "Bluebird", "--yes", code=1)[1]
    user.profile = user.profile.replace("Project Bluebird", "Projects")
    run(user, "forget", "Bluebird", "--yes")
    assert holding(user, "Bluebird") == []
    user.profile = "\ufeff# Anna's profile\n- Anna plays chess\n"
    run(user, "forget", "anna", "--yes")
    assert text_of(user, versions(user)[-1][0]) == user.profile == "\ufeff# Anna's profile\n"
    run(user, "add", "Plays chess", "--section", "Interests")
    run(user, "clear")
    run(user, "forget", "interests", "--yes", code=1)
    assert "## Interests" in text_of(user, versions(user)[-2][0])


def test_a_line_that_stays_keeps_its_receipt_without_what_is_forgotten(user: User) -> None:
    user.profile = PROFILE
    typed(user, "I moved to York")
    id = next(id for id, item in llm_user_memory.Document(PROFILE).ids.items() if "Leeds" in item.text)
    learn(user, f"REPLACE | {id} | Lives in York | I moved to York")
    run(user, "forget", "Leeds", "--yes")
    assert "I moved to York" in run(user, "why", "York")[0]
    assert holding(user, "Leeds") == []


# Review


def test_a_held_edit_is_of_the_line_in_its_own_section(user: User) -> None:
    user.profile = "## Work\n- Python\n\n## Interests\n- Python\n- Tea\n"
    source = Source("I gave up Python", "turn-1", "thread-1", "scripted", "2026-11-20T09:00:00+00:00")
    edit = Edit("REMOVE", "abc", "", "I gave up Python")
    with user.memory() as memory:
        memory.hold([Verdict(edit, "hold", "too much", source, "Python", "Interests")], "scripted")
    run(user, "review", "--yes")
    assert user.profile == "## Work\n- Python\n\n## Interests\n- Tea\n"


def test_a_held_change_to_what_another_line_says_leaves_that_line_alone(user: User) -> None:
    user.profile = "- Lives in Leeds\n- Lives in York\n"
    hold(user, Edit("REPLACE", "Lives in Leeds", "Lives in York", "I live in York"))
    run(user, "review", "--yes")
    assert user.profile == "- Lives in York\n"


def test_a_removal_can_not_be_reworded_and_no_line_can_be_emptied(user: User) -> None:
    user.profile = PROFILE
    hold(user, Edit("REMOVE", "Lives in Leeds", "", "I left Leeds"))
    said = run(user, "review", stdin="e\ns\n")[1]
    assert "[e]dit" not in said
    hold(user, Edit("ADD", "Interests", "Always asks for tea", "I always ask for tea"))
    said = run(user, "review", stdin="s\ne\n \n")[1]
    assert "can't be a line of the profile" in said
    assert user.profile == PROFILE
    with user.memory() as memory:
        assert len(memory.held()) == 2


# Files and clocks


def test_a_link_that_a_write_left_when_it_was_cut_short_does_not_lock_the_profile(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, where files can't be exchanged, and not replaced while someone reads them."""
    user.profile = PROFILE
    run(user, "history")
    monkeypatch.setattr(llm_user_memory, "exchange_files", lambda *_: False)
    replace = os.replace

    def failing(source: Any, target: Any) -> None:
        if str(target) == str(user.places.profile):
            raise PermissionError(13, "someone reads it", str(target))
        replace(source, target)

    with monkeypatch.context() as windows:
        windows.setattr(os, "replace", failing)
        assert "someone reads it" in run(user, "add", "Plays chess", code=1)[1]
    assert user.places.profile.stat().st_nlink == 1
    os.link(user.places.profile, user.places.directory / ".profile.md.1-0123456789abcdef-aaaa.swap")  # one was killed
    learned(user, "Has a dog", "I have a dog")
    assert user.facts == ["Lives in Leeds", "Plays chess", "Has a dog", "Likes short answers"]


def test_a_profile_of_very_many_lines_has_a_history(user: User) -> None:
    text = "".join(f"- Fact {n}\n" for n in range(2_000))
    with user.memory() as memory:
        if sys.version_info >= (3, 11):
            memory.db.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)
        version, _ = memory.overwrite("load", text)
        assert version
        assert memory.version_text(version.id) == text


def test_a_database_of_an_earlier_version_is_brought_up_to_date(user: User) -> None:
    user.places.create()
    with contextlib.closing(sqlite3.connect(user.places.database, isolation_level=None)) as db:
        migrations = llm_user_memory._migrations()
        migrations.apply(sqlite_utils.Database(db), stop_before="m002_held_sections_and_news")
        db.execute("pragma user_version = 1")
        db.execute("insert into state values ('news', '2 3')")
        db.execute(
            "insert into held (held_at, action, target, before, fact, quote, reason, turn_id, thread_id, model, at)"
            " values (?, 'ADD', 'Interests', '', 'Always asks for tea', 'always tea', '', 't', 't', 'm', ?)",
            [utc_now().isoformat()] * 2,
        )
    with user.memory() as memory:
        assert [(held.fact, held.section) for held in memory.held()] == [("Always asks for tea", None)]
        assert memory.take_news() == ""
    run(user, "review", "--yes")
    assert user.facts == ["Always asks for tea"]


def test_the_news_is_not_told_where_a_pager_has_the_screen_and_plainly_where_colours_are_unwelcome(user: User) -> None:
    learned(user, "Has a dog", "I have a dog")
    piped = user.terminal("sh", "-c", "llm hello | cat", LLM_MEMORY_UPDATES="false")
    assert piped.wait() == 0
    assert "memory:" not in piped.shown
    plain = user.terminal("llm", "hello", LLM_MEMORY_UPDATES="false", NO_COLOR="1")
    assert plain.wait() == 0
    assert "\nmemory: 1 change from earlier prompts (llm memory diff 0)\n" in plain.shown


def test_a_damaged_database_is_waited_for_no_longer_than_was_asked(user: User) -> None:
    run(user, "add", "Plays chess")
    user.places.database.write_bytes(b"This is no database. " * 1000)
    with (
        filelock.FileLock(user.places.profile_lock),
        Memory(user.places, patience=0.1) as memory,
        pytest.raises(Problem, match=r"held by another process for 0\.1 s"),
    ):
        memory.paused_since()


def test_a_line_with_a_secret_is_shown_masked_and_can_not_be_edited_by_a_model(user: User) -> None:
    user.profile = "- Wifi password is hunter2secret9 at home in Leeds\n- Likes tea\n"
    document = llm_user_memory.Document(user.profile)
    request = llm_user_memory.build_request(document, [Source("I moved to York")], "abcdef")
    assert "hunter2" not in request
    assert re.findall(r"^\[[a-z]+\] (.*)$", request, re.MULTILINE) == ["Likes tea"]
