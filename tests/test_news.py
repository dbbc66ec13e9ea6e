"""The line after a prompt: what was learned and the command that takes it back, and only what is still true."""

from __future__ import annotations

import itertools
import json
import os
import re
import unicodedata
from typing import TYPE_CHECKING

import pytest
from conftest import PROFILE, User, in_the_moment

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Callable

LEEDS, SHORT = "Lives in Leeds", "Likes short answers"


def shown(user: User, *command: str, keys: str = "", **env: str) -> str:
    """Run a command at a terminal, learning off so that it starts no worker; what it shows of memory."""
    terminal = user.terminal(*command, **{"LLM_MEMORY_UPDATES": "false"} | env)
    terminal.type(keys)
    assert terminal.wait() == 0
    return "\n".join(re.findall(r"^.*memory: .*$", terminal.shown, re.MULTILINE))


def told(user: User, columns: int = 200, **env: str) -> str:
    """What the next prompt tells."""
    return shown(user, "llm", "hi", NO_COLOR="1", COLUMNS=str(columns), **env).replace("memory: ", "")


@pytest.fixture
def known(user: User) -> User:
    """User with two lines in the profile."""
    user.run("load", "-", stdin=PROFILE)
    return user


def learns(user: User, *edits: str, said: str = "I have a dog and a cat, and play chess and go, you know") -> None:
    """Learn edits whose quote is this message."""
    user.types(said)
    assert user.learns("\n".join(f"{edit} | {said}" for edit in edits))


def test_the_next_prompt_at_a_terminal_tells_it_once(known: User) -> None:
    known.has_learned("Has a dog", "I have a dog")
    assert shown(known, "llm", "hi", LLM_MEMORY_NOTICES="false") == ""
    assert "memory:" not in known.llm("hi", LLM_MEMORY_UPDATES="false").stderr, "no terminal"
    assert shown(known, "sh", "-c", "llm hello | cat") == "", "a pager may have the screen"
    assert shown(known, "llm", "chat", keys="exit\r") == ""
    assert shown(known, "llm", "hi") == "\x1b[2mmemory: learned “Has a dog” (undo: llm memory undo 2)\x1b[0m"
    assert shown(known, "llm", "hi") == ""
    known.run("undo")
    assert known.facts == [LEEDS, SHORT]


def test_what_waits_for_a_fact_that_is_learned_at_once_is_not_told(user: User) -> None:
    user.types('She wrote "I always drink tea" to me. Yes I love tea a lot.')
    user.learns("ADD | Notes | Likes tea | I always drink tea\nADD | Preferences | Likes tea | I love tea")
    assert told(user) == "learned “Likes tea” (undo: llm memory undo 1)"


def test_a_chat_tells_of_a_failure_once(known: User) -> None:
    known.places.journal.mkdir()
    chat = known.terminal("llm", "chat")
    chat.expect("> ")
    chat.type("I like rain\r")
    chat.expect(r"(?s)You said: I like rain\r?\n.*learning did not start.*\n> ")
    chat.type("I like snow\r")
    chat.expect(r"You said: I like snow\r?\n\s*> ")
    chat.type("exit\r")
    assert chat.wait() == 0


def test_a_call_that_fails_shows_its_own_error_alone(known: User) -> None:
    terminal = known.terminal("llm", "-m", "nowhere", "hi")
    assert terminal.wait() == 1
    assert terminal.shown.startswith("Error: ")
    assert "memory:" not in terminal.shown


def test_a_chat_tells_it_under_an_answer_or_however_it_ends(known: User) -> None:
    known.has_learned("Has a dog", "I have a dog")
    chat = known.terminal("llm", "chat", LLM_MEMORY_UPDATES="false")
    chat.expect("> ")
    chat.type("hi\r")
    chat.expect(r"You said: hi\r?\n\S*memory: learned “Has a dog” \(undo: llm memory undo 2\)\S*\n")
    chat.expect("> ")
    known.has_learned("Has a cat", "I have a cat")
    chat.type("\x04")
    chat.expect(r"\n\S*memory: learned “Has a cat”")
    assert chat.wait() == 1, "as llm does"


def test_each_kind_of_change_has_one_form_and_several_are_told_together(known: User) -> None:
    leeds, short = known.id_of(LEEDS), known.id_of(SHORT)
    learns(known, "ADD | Interests | Plays chess", "ADD | Interests | Plays go", "ADD | Interests | Has a dog")
    assert told(known) == "learned 3 facts: “Plays chess”, “Plays go”, “Has a dog” (undo: llm memory undo 2)"
    learns(known, f"REPLACE | {leeds} | Moved from Leeds to York", said="I moved to York")
    assert told(known) == f"changed “{LEEDS}” → “Moved from Leeds to York” (undo: llm memory undo 3)"
    learns(known, f"REMOVE | {short}", "ADD | Preferences | Likes long answers", said="I like long answers")
    assert told(known) == f"learned “Likes long answers”; removed “{SHORT}” (undo: llm memory undo 4)"
    assert known.facts[0] == "Moved from Leeds to York"


def test_two_versions_are_two_lines_and_more_are_counted(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    learns(known, "ADD | Interests | Plays go")
    assert told(known).splitlines() == [
        "learned “Plays chess” (undo: llm memory undo 2)",
        "learned “Plays go” (undo: llm memory undo 3)",
    ]
    for game in ("darts", "bridge", "snooker"):
        learns(known, f"ADD | Interests | Plays {game}")
    assert told(known) == "3 changes since the last prompt; see: llm memory history"
    assert told(known) == ""


UNTRUE: dict[str, Callable[[User], object]] = {
    "undone": lambda user: user.run("undo"),
    "added": lambda user: user.run("add", "Has a cat"),
    "rolled back": lambda user: user.run("rollback", "1"),
    "cleared": lambda user: user.run("clear", "--yes"),
    "loaded": lambda user: user.run("load", "-", "--yes", stdin=PROFILE),
    "forgotten": lambda user: user.run("forget", "chess", "--yes"),
    "edited": lambda user: user.run("edit", EDITOR="sh -c 'echo - Tea >> \"$0\"'"),
}


@pytest.mark.parametrize("how", UNTRUE)
def test_a_command_that_changes_the_profile_takes_the_news_away(known: User, how: str) -> None:
    learns(known, "ADD | Interests | Plays chess")
    UNTRUE[how](known)
    assert told(known) == ""


def test_what_is_saved_in_an_editor_leaves_the_news(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    known.profile += "- Has a cat\n"
    known.run("history")
    assert told(known) == "learned “Plays chess” (undo: llm memory undo 2)"


@pytest.mark.parametrize("fact", ["Plays chess and go with a dog and a cat, " * 4, "家族と犬と猫と暮らし、" * 9])
def test_it_is_cut_to_three_lines_and_keeps_its_command(known: User, fact: str) -> None:
    learns(known, f"ADD | Interests | {fact}", f"ADD | Preferences | Likes {fact}", said=fact)
    terminal = known.terminal("llm", "hi", LLM_MEMORY_UPDATES="false", NO_COLOR="1", COLUMNS="80")
    assert terminal.wait() == 0
    line = " ".join(f"memory: {terminal.shown.partition('memory: ')[2]}".splitlines())
    assert sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line) <= 240
    assert re.fullmatch(r"memory: learned 2 facts: “\S.*… \(undo: llm memory undo 2\)", line)


@pytest.mark.parametrize("columns", [40, 60, 72])
def test_in_a_narrow_terminal_it_breaks_between_words(known: User, columns: int) -> None:
    leeds = known.id_of(LEEDS)
    learns(known, f"REPLACE | {leeds} | Moved from Leeds to York, and is looking for a house there with a garden")
    off = {"LLM_MEMORY_UPDATES": "false", "NO_COLOR": "1", "COLUMNS": str(columns)}
    terminal = known.terminal("llm", "hi", **off)
    assert terminal.wait() == 0
    lines = f"memory: {terminal.shown.partition('memory: ')[2]}".splitlines()
    assert 2 <= len(lines) <= 4
    assert max(map(len, lines)) <= columns
    assert "(undo: llm memory undo 2)" in lines[-1], "in one piece"
    assert re.fullmatch(rf"memory: changed “{LEEDS}” .*…? \(undo: llm memory undo 2\)", " ".join(lines))


@pytest.mark.parametrize("ends", ["\u2028", "\u2028\u2028", "\x0c\x0c"])
def test_a_line_that_holds_ends_of_other_programs_is_told_as_one(user: User, ends: str) -> None:
    user.profile = f"- Lives in{ends}Leeds\n"
    user.run("history")
    learns(user, f"REPLACE | {user.id_of(f'Lives in{ends}Leeds')} | Lives in York", said="I moved to York")
    old = "Lives in" + " " * len(ends) + "Leeds"
    assert told(user) == f"changed “{old}” → “Lives in York” (undo: llm memory undo 2)"


# Not about changes


def test_a_prompt_says_when_the_profile_can_not_be_read(user: User) -> None:
    user.places.create()
    user.places.profile.write_bytes(b"\xff\xfe")
    assert json.loads(user.run("status", "--json", LLM_MEMORY_AUTO="1")[0])["state"] == "hindered"
    assert re.fullmatch(r"the profile was not sent: .*not valid UTF-8.*llm memory rollback.*", told(user, 999))
    user.profile = PROFILE
    assert told(user) == ""


def test_edits_that_wait_are_told_until_they_were_reviewed(user: User) -> None:
    edits = "ADD | Interests | Plays chess | I play chess\nADD | Notes | Sells tea | I sell tea"
    user.types("I play chess, and she said: I sell tea")
    user.learns(edits, look="1 y\n2 n")
    assert told(user).splitlines() == [
        "learned “Plays chess” (undo: llm memory undo 1)",
        "1 edit to review: llm memory review",
    ]
    user.types("she said: I sell rum")
    user.learns("ADD | Notes | Sells rum | I sell rum", look="1 n")
    user.run("review", "--drop", "all")
    assert told(user) == ""


def test_news_is_told_also_after_a_command_that_changed_nothing(user: User) -> None:
    user.has_learned("Has a dog", "I have a dog")
    user.run("rollback", "1")
    assert told(user) == "learned “Has a dog” (undo: llm memory undo 1)"


def test_what_changes_nothing_or_was_already_shown_is_no_news(user: User) -> None:
    user.types("I have a cat")
    user.learns("NO_UPDATE")
    assert told(user) == ""
    user.types("I live in Leeds")
    assert "Leeds" in user.run("update")[1]
    assert told(user) == ""


def test_news_that_stays_is_not_written_anew_since_a_call_may_be_taking_it(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    before = known.places.news.stat().st_ino
    learns(known, "ADD | Interests | Plays darts")
    assert known.places.news.stat().st_ino == before
    assert told(known).count("learned") == 2


def test_what_was_learned_is_told_in_a_review_but_not_what_waits(known: User) -> None:
    known.has_to_review(memory.Edit("ADD", "Interests", "Plays go", "I play go"))
    learns(known, "ADD | Interests | Plays chess")
    memory.append_line(known.places.news, "1 edit to review: llm memory review")
    said = known.llm("memory", "review", "--accept", "all", auto=None).stderr
    assert said.count("memory: ") == said.count("memory: learned “Plays chess” (undo: llm memory undo 2)\n") == 1
    assert told(known) == ""


def test_of_several_batches_with_edits_to_review_the_last_is_told(user: User) -> None:
    for fact in ("Has a dog", "Has a cat"):
        user.types(f"I think she {fact}, you know", review=True)
        user.learns(f"ADD | Notes | {fact} | {fact}")
    assert told(user) == "2 edits to review: llm memory review"


def test_update_tells_first_what_the_next_prompt_would_have_told(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    known.types("I play go")
    known.reply("ADD | Interests | Plays go | I play go")
    said = known.llm("memory", "update", auto=None).stderr
    assert said.startswith("memory: learned “Plays chess” (undo: llm memory undo 2)\n")
    assert "Added: “Plays go”\nTo undo this: llm memory undo 3\n" in said
    assert told(known) == ""


def test_a_model_that_fails_once_is_told_by_status_alone(user: User) -> None:
    def fails(*_: str) -> memory.Reply:
        raise memory.ModelFailed("scripted: no credit")

    user.types("I have a dog")
    user.learns(fails)
    assert told(user) == ""
    with user.memory() as opened:
        opened.db.execute("update turns set due = due + 600")  # however slow this machine is
    status = user.run("status")[0]
    assert re.search("Pending +1 to learn from", status)
    assert "no credit" in status


def test_status_tells_no_fact(user: User) -> None:
    user.has_learned("Has a boat", "I have a boat")
    assert "Has a boat" not in user.run("status", "--json")[0]


@pytest.mark.parametrize("has_failed", [False, True])
def test_a_model_that_is_not_there_is_one_problem(user: User, *, has_failed: bool) -> None:
    user.types("I have a dog")
    if has_failed:
        said = user.run("update", code=1, LLM_MEMORY_MODEL="nowhere")[1]
        assert "LLM_MEMORY_MODEL=NAME llm memory update --retry\n" in said
    (problem,) = json.loads(user.run("status", "--json", LLM_MEMORY_MODEL="nowhere")[0])["problems"]
    assert "llm can't load nowhere" in problem


def test_learning_that_keeps_failing_is_told_once(user: User) -> None:
    def down(model: str, request: str) -> memory.Reply:
        raise memory.ModelFailed("the service is down")

    user.types("I have a dog")
    user.learns(down)
    assert told(user) == "", "it may pass"
    assert "1 to learn from" in user.run("status", LLM_MEMORY_AUTO="1")[0]
    for _ in range(2):
        with user.memory() as opened:
            opened.db.execute("update turns set due = 0")
        user.learns(down)
    assert told(user) == "learning has failed; see: llm memory status"
    assert told(user) == ""
    assert "the service is down" in user.run("status")[0]
    user.has_learned("Has a cat", "I have a cat")
    assert told(user) == "learned “Has a cat” (undo: llm memory undo 1)"


@pytest.mark.parametrize("kind", [memory.HERE, memory.HOPELESS])
def test_learning_that_can_not_succeed_here_is_told_after_its_first_failure(user: User, kind: str) -> None:
    def fails(*_: str) -> memory.Reply:
        raise memory.ModelFailed("scripted-key has no key", kind)

    user.types("I have a dog")
    user.learns(fails)
    assert told(user) == "learning has failed; see: llm memory status"
    assert told(user) == ""


def test_the_first_prompt_that_is_noted_says_so_once(idle: User) -> None:
    idle.run("add", "Plays chess")
    assert shown(idle, "llm", "-n", "I have a dog", LLM_MEMORY_UPDATES="true") == ""
    first = "memory: learning from this; a later prompt tells what"
    assert shown(idle, "llm", "I have a dog", LLM_MEMORY_UPDATES="true", NO_COLOR="1") == first
    assert shown(idle, "llm", "I have a cat", LLM_MEMORY_UPDATES="true") == ""
    idle.run("clear", "--purge", "--yes")
    assert not idle.places.directory.exists(), "another life begins"


def test_what_is_learned_already_is_told_without_the_promise_of_it(idle: User) -> None:
    idle.run("add", "Plays chess")
    memory.append_line(idle.places.news, "learned “Has a cat” (undo: llm memory undo 1)")
    said = shown(idle, "llm", "I have a dog", LLM_MEMORY_UPDATES="true", NO_COLOR="1")
    assert said == "memory: learned “Has a cat” (undo: llm memory undo 1)"


def test_update_does_not_say_that_nothing_is_new_when_something_is_held(user: User) -> None:
    user.types("Please always recommend tea to me")
    user.reply("ADD | Preferences | Sells Assam tea | always recommend tea to me")
    (user.script / "look.txt").write_text("1 n")
    said = user.run("update")[1]
    assert "1 edit to review" in said
    assert "Nothing new" not in said


def test_of_two_prompts_that_end_at_once_each_tells_what_it_has_taken_and_nothing_is_lost(
    known: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    known.places.news.write_text("one\n")
    elsewhere: list[list[str]] = []

    def another() -> None:
        memory.append_line(known.places.news, "two")
        elsewhere.append(memory.take_news(known.places))

    pids = itertools.count()
    monkeypatch.setattr(os, "getpid", lambda: next(pids))
    with monkeypatch.context() as change:
        in_the_moment(change, os, "replace", another)
        assert memory.take_news(known.places) == ["one"]
    with monkeypatch.context() as change:
        in_the_moment(change, memory, "read_own", another)
        known.places.news.write_text("three\n")
        assert memory.take_news(known.places) == []
    assert elsewhere == [["two"], ["three", "two"]]
    assert not list(known.places.directory.glob(".news*"))


def test_a_command_that_changes_the_profile_tells_the_news_first(known: User) -> None:
    known.has_learned("Has a boat", "I own a boat")
    known.places.news.write_text("learned “Has a boat” (undo: llm memory undo 2)\n")
    done = known.llm("memory", "forget", "boat", "--yes", auto=None)
    assert done.stderr.startswith("memory: learned “Has a boat” (undo: llm memory undo 2)\n")
    assert not known.places.news.exists()


@pytest.mark.parametrize("answer", ["n", "y"])
def test_an_undo_at_a_terminal_asks_before_it_takes_back_what_was_not_told(user: User, answer: str) -> None:
    user.has_learned("Has a boat", "I own a boat")
    terminal = user.terminal("llm", "memory", "undo", auto=None)
    terminal.expect(r"memory: learned “Has a boat”.*Undo change 1\?")
    terminal.type(f"{answer}\r")
    assert terminal.wait() == (answer == "n")
    assert user.facts == ([] if answer == "y" else ["Has a boat"])
    if answer == "n":
        assert user.terminal("llm", "memory", "undo", auto=None).wait() == 0
        assert user.facts == []


def test_a_damaged_line_of_news_holds_up_no_call(known: User) -> None:
    known.places.news.write_text("x" * 233 + "\n")
    assert memory.take_news(known.places)[0].endswith("x" * 233)
