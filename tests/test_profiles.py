"""Named profiles: each has its own file, history, journal and worker, and nothing crosses over."""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import User, eventually

import llm_user_memory as memory

HOME, WORK = "I live in Leeds", "I work as a nurse"
AT_WORK: dict[str, Any] = {"LLM_MEMORY_PROFILE": "work"}
BOTH: dict[str, Any] = {"LLM_MEMORY_PROFILE": "default+work"}


def facts_of(user: User, name: str) -> list[str]:
    home = user.places._replace(name=name)
    return [item.text for item in memory.Document(memory.read_profile(home.profile)).items]


@pytest.fixture
def both(user: User) -> User:
    """A user with a fact in each of two profiles."""
    user.run("add", HOME)
    user.run("add", WORK, **AT_WORK)
    return user


def test_two_profiles_at_once_learn_each_only_what_was_typed_in_it(user: User) -> None:
    user.make_log()
    said = [(HOME, {}), (WORK, AT_WORK)] * 2
    with ThreadPoolExecutor(2) as terminals:
        list(terminals.map(lambda one: user.llm(one[0], check=False, **one[1]), said))
    eventually(lambda: facts_of(user, "default") and facts_of(user, "work"), "learning")
    user.llm("And now?")
    user.llm("And now?", **AT_WORK)
    home, work = (call["system"] for call in user.calls(update=False)[-2:])
    assert (facts_of(user, "default"), facts_of(user, "work")) == ([HOME], [WORK])
    assert HOME in home
    assert WORK not in home
    assert WORK in work
    assert HOME not in work
    assert not [call for call in user.calls(update=True) if HOME in str(call) and WORK in str(call)]


def test_several_profiles_are_all_sent_and_the_last_one_learns(both: User) -> None:
    both.llm("I play the oboe", **BOTH)
    system = both.calls(update=False)[-1]["system"]
    assert system.count("<user_profile>") == 1
    assert HOME in system
    assert WORK in system
    eventually(lambda: "I play the oboe" in facts_of(both, "work"), "learning")
    assert facts_of(both, "default") == [HOME]
    (both.script / "tool.json").write_text('{"name": "UserMemory_search", "arguments": {"query": "work or live"}}')
    for used in (["-T", "UserMemory", "Where?"], ["-f", "memory:search:work or live", "Where?"]):
        sent = both.llm(*used, **BOTH).stdout + str(both.calls(update=False)[-1])
        assert HOME in sent
        assert WORK in sent
    assert "default and work are sent; new facts go into work" in both.run("status", **BOTH)[0]


def test_a_profile_can_be_named_by_hand_and_learns_then(both: User) -> None:
    def shown(option: str, text: str) -> str:
        terminal = both.terminal("llm", option, "memory:work", text)
        assert terminal.wait() == 0
        sent = str(both.calls(update=False)[-1])
        assert WORK in sent
        assert HOME not in sent
        eventually(lambda: text in facts_of(both, "work"), "learning")
        return terminal.shown

    assert "You said: " in shown("-f", "I play the oboe")
    eventually(both.places._replace(name="work").file("news").exists, "the news")
    assert "(llm memory --profile work diff 1)" in shown("--sf", "I play chess")
    assert facts_of(both, "default") == [HOME]


def test_an_unknown_profile_is_an_error_by_hand_and_created_by_the_variable(user: User) -> None:
    done = user.llm("-f", "memory:wrok", "hi", check=False)
    assert done.returncode == 1
    there = "There is no profile 'wrok' (memory:auto is the one in use)"
    assert f"{there}; to create it: export LLM_MEMORY_PROFILE=wrok" in done.stderr
    user.llm(WORK, LLM_MEMORY_PROFILE="Work")
    eventually(lambda: facts_of(user, "work"), "learning")


def test_an_invalid_name_sends_and_learns_nothing_and_commands_say_why(user: User) -> None:
    user.run("add", HOME)
    for name in ("../work", "a b", "auto", "work+", ".hidden", "x" * 33):
        user.says(WORK, LLM_MEMORY_PROFILE=name)
        assert not user.calls(update=False)[-1]["system"]
        assert "is not a valid profile name" in user.run("status", code=1, LLM_MEMORY_PROFILE=name)[1]
    assert not user.places.file("typed.jsonl").exists()


def test_commands_work_on_the_profile_that_is_named_and_name_it_in_what_they_advise(user: User) -> None:
    added = user.llm("memory", "add", WORK, "--profile", "work")
    assert "llm memory --profile work rollback --only 1" in added.stderr
    assert user.llm("memory", "--profile", "work", "show").stdout.endswith(f"- {WORK}\n")
    assert user.run("show", **AT_WORK)[0].endswith(f"- {WORK}\n")
    assert (
        "llm memory --profile work search" in user.llm("memory", "why", "xyz", "--profile", "work", check=False).stderr
    )
    assert user.run("show")[0] == ""


def test_a_hint_names_the_profile_however_that_was_chosen(user: User) -> None:
    _, said = user.run("add", "Alpha", LLM_MEMORY_PROFILE="work")
    assert "To undo this: llm memory --profile work rollback --only 1" in said
    assert "llm memory --profile wrok edit" in user.run("show", LLM_MEMORY_PROFILE="wrok")[1]
    assert "--profile" not in user.run("add", "Beta")[1]


def test_what_was_typed_in_one_profile_is_never_found_in_another_even_once_forgotten(user: User) -> None:
    user.types("I see a therapist called Brunhilde")
    user.run("add", "Has a dog")
    cid = user.query("select thread_id from turns")
    call = {"name": "UserMemory_recall", "arguments": {"query": "Brunhilde"}}
    (user.script / "tool.json").write_text(json.dumps(call))
    for command in ("show", "forget Brunhilde --yes"):
        user.run(*command.split())
        found = user.run("search", "--chats", "Brunhilde", **AT_WORK)[0]
        found += user.llm("-T", "UserMemory", "Who was it?", **AT_WORK).stdout
        found += user.llm("memory", "learn", "--cid", cid, "--yes", **AT_WORK).stdout
        assert "Brunhilde" not in found + user.run("review", "--json", **AT_WORK)[0]


def test_profiles_are_listed_with_their_facts_and_last_use(user: User) -> None:
    user.run("add", WORK, **AT_WORK)
    (user.places.named_profiles / "readme").touch()
    assert user.run("profiles", **BOTH)[0] == "* default  0 facts, never used\n* work     1 fact, used just now\n"
    default, work = json.loads(user.run("profiles", "--json")[0])
    assert (default["in_use"], work["in_use"], work["facts"]) == (True, False, 1)


def test_a_named_profile_is_readable_by_its_owner_only_even_if_it_is_the_first(user: User) -> None:
    before = os.umask(0)
    try:
        user.run("add", WORK, **AT_WORK)
    finally:
        os.umask(before)
    home = user.places._replace(name="work").directory
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (home, *list(home.parents)[:2])] == [0o700] * 3


def test_purging_one_profile_leaves_the_others(both: User) -> None:
    assert "Other profiles stay: work." in both.run("clear", "--purge", "--yes")[1]
    assert os.listdir(both.places.directory) == ["profiles"]
    assert facts_of(both, "work") == [WORK]
    both.run("clear", "--purge", "--yes", **AT_WORK)
    assert os.listdir(both.places.named_profiles) == []


def test_a_profile_name_that_is_not_valid_is_told_after_each_prompt(user: User) -> None:
    terminal = user.terminal("llm", "I like tea", LLM_MEMORY_PROFILE="a b")
    assert terminal.wait() == 0
    assert "memory: " in terminal.shown
    assert "nothing was sent or learned" in terminal.shown
    assert user.llm("I like tea", LLM_MEMORY_PROFILE="a b").stderr == "", "nobody is there to read it"
