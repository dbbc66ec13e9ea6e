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


def test_several_profiles_are_all_sent_and_the_last_one_learns(user: User) -> None:
    user.llm("memory", "add", HOME)
    user.llm("memory", "add", WORK, "--profile", "work")
    user.llm("I play the oboe", **BOTH)
    system = user.calls(update=False)[-1]["system"]
    assert system.count("<user_profile>") == 1
    assert HOME in system
    assert WORK in system
    eventually(lambda: "I play the oboe" in facts_of(user, "work"), "learning")
    assert facts_of(user, "default") == [HOME]
    (user.script / "tool.json").write_text('{"name": "UserMemory_search", "arguments": {"query": "work or live"}}')
    for used in (["-T", "UserMemory", "Where?"], ["-f", "memory:search:work or live", "Where?"]):
        sent = user.llm(*used, **BOTH).stdout + str(user.calls(update=False)[-1])
        assert HOME in sent
        assert WORK in sent
    shown = user.llm("memory", "status", **BOTH).stdout
    assert "default and work are sent; new facts go into work" in shown


@pytest.mark.parametrize("option", ["-f", "--sf"])
def test_a_profile_can_be_named_by_hand_and_learns_then(user: User, option: str) -> None:
    user.llm("memory", "add", HOME)
    user.llm("memory", "add", WORK, "--profile", "work")
    terminal = user.terminal("llm", option, "memory:work", "I play the oboe", LLM_MEMORY_NOTICES="0")
    terminal.expect("You said: ")
    assert terminal.wait() == 0
    sent = str(user.calls(update=False)[-1])
    assert WORK in sent
    assert HOME not in sent
    eventually(lambda: "I play the oboe" in facts_of(user, "work"), "learning")
    assert facts_of(user, "default") == [HOME]
    terminal = user.terminal("llm", option, "memory:work", "And now?")
    terminal.expect(r"learned “I play the oboe” \(llm memory --profile work diff 1\)")
    assert terminal.wait() == 0


def test_a_profile_that_is_not_there_is_an_error_by_hand_and_begun_by_the_variable(user: User) -> None:
    done = user.llm("-f", "memory:wrok", "hi", check=False)
    assert done.returncode == 1
    assert (
        "There is no profile 'wrok' (memory:auto is the one in use); to create it: export LLM_MEMORY_PROFILE=wrok"
        in done.stderr
    )
    user.llm(WORK, LLM_MEMORY_PROFILE="Work")
    eventually(lambda: facts_of(user, "work"), "learning")


@pytest.mark.parametrize("name", ["../work", "a b", "auto", "work+", ".hidden", "x" * 33])
def test_a_name_that_can_be_none_sends_and_learns_nothing_and_commands_say_why(user: User, name: str) -> None:
    user.llm("memory", "add", HOME)
    user.says(WORK, LLM_MEMORY_PROFILE=name)
    assert not user.calls(update=False)[-1]["system"]
    assert not user.places.file("typed.jsonl").exists()
    done = user.llm("memory", "status", LLM_MEMORY_PROFILE=name, check=False)
    assert (done.returncode, "is not a valid profile name" in done.stderr) == (1, True)


def test_commands_work_on_the_profile_that_is_named_and_name_it_in_what_they_advise(user: User) -> None:
    added = user.llm("memory", "add", WORK, "--profile", "work")
    assert "llm memory --profile work rollback --only 1" in added.stderr
    assert user.llm("memory", "--profile", "work", "show").stdout.endswith(f"- {WORK}\n")
    assert user.llm("memory", "show", **AT_WORK).stdout.endswith(f"- {WORK}\n")
    assert "llm memory --profile work show" in user.llm("memory", "why", "xyz", "--profile", "work", check=False).stderr
    assert user.llm("memory", "show").stdout == ""


def test_what_was_typed_in_one_profile_is_found_in_no_other_also_after_it_was_forgotten(user: User) -> None:
    user.types("I see a therapist called Brunhilde")
    user.run("add", "Has a dog")
    cid = user.query("select thread_id from turns")
    (user.script / "tool.json").write_text(
        json.dumps({"name": "UserMemory_recall", "arguments": {"query": "Brunhilde"}})
    )
    work = [["memory", "search", "--chats", "Brunhilde"], ["-T", "UserMemory", "Who was it?"]]
    work += [["memory", "learn", "--cid", cid, "--yes"], ["memory", "review", "--json"]]
    for forgotten in (False, True):
        if forgotten:
            user.run("forget", "Brunhilde", "--yes")
        for command in work:
            assert "Brunhilde" not in user.llm(*command, **AT_WORK).stdout


def test_a_file_among_the_profiles_is_none(user: User) -> None:
    user.llm("memory", "add", WORK, "--profile", "work")
    (user.places.named_profiles / "readme").touch()
    assert "readme" not in user.run("profiles")[0]


def test_profiles_are_listed_with_their_facts_and_last_use(user: User) -> None:
    user.llm("memory", "add", WORK, "--profile", "work")
    assert user.llm("memory", "profiles", **BOTH).stdout == (
        "* default  0 facts, never used\n* work     1 fact, used just now\n"
    )
    default, work = json.loads(user.llm("memory", "profiles", "--json").stdout)
    assert (default["in_use"], work["in_use"], work["facts"]) == (True, False, 1)


def test_a_named_profile_is_readable_by_its_owner_only_even_if_it_is_the_first(user: User) -> None:
    before = os.umask(0)
    try:
        user.llm("memory", "add", WORK, "--profile", "work")
    finally:
        os.umask(before)
    home = user.places._replace(name="work").directory
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (home, *list(home.parents)[:2])] == [0o700] * 3


def test_purging_one_profile_leaves_the_others(user: User) -> None:
    user.llm("memory", "add", HOME)
    user.llm("memory", "add", WORK, "--profile", "work")
    said = user.llm("memory", "clear", "--purge", "--yes").stderr
    assert "Other profiles stay: work." in said
    assert os.listdir(user.places.directory) == ["profiles"]
    assert facts_of(user, "work") == [WORK]
    user.llm("memory", "clear", "--purge", "--yes", "--profile", "work")
    assert os.listdir(user.places.named_profiles) == []
