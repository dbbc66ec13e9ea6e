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
from llm_user_memory import Edit

HOME, WORK = "I live in Leeds", "I work as a nurse"
AT_WORK: dict[str, Any] = {"LLM_MEMORY_PROFILE": "work"}
BOTH: dict[str, Any] = {"LLM_MEMORY_PROFILE": "default+work"}


def named(user: User, name: str) -> memory.Home:
    return memory.Home(user.user_dir, name, isolated=True)


def facts_of(user: User, name: str) -> list[str]:
    return [item.text for item in memory.Document(memory.read_profile(named(user, name).profile)).items]


@pytest.fixture
def both(user: User) -> User:
    """A user with a fact in each of two profiles."""
    user.run("add", HOME)
    user.run("add", WORK, **AT_WORK)
    return user


def test_two_profiles_at_once_learn_each_only_what_was_typed_in_it(user: User) -> None:
    user.make_log()

    def say(prompt: str, env: dict[str, str]) -> None:
        """Say it again while llm fails because another call writes to its log."""
        while "database is locked" in user.llm(prompt, check=False, **env).stderr:
            pass

    with ThreadPoolExecutor(2) as terminals:
        list(terminals.map(say, [HOME, WORK] * 2, [{}, AT_WORK] * 2))
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


def test_a_search_within_a_prompt_looks_into_the_profile_that_was_chosen_before_it(both: User) -> None:
    both.llm("-f", "memory:work", "-f", "memory:search:work or live", "Where?")
    sent = str(both.calls(update=False)[-1])
    assert f"- {WORK} (in " in sent, "found, beside the profile"
    assert HOME not in sent


@pytest.mark.parametrize("command", ["show", "why", "search i"])
def test_show_why_and_search_show_what_is_sent_and_where_it_stands(both: User, command: str) -> None:
    shown, said = both.run(*command.split(), **BOTH)
    assert HOME in shown
    assert WORK in shown
    assert said == "\ndefault:\n\nwork:\n"
    assert WORK not in both.run(*command.split())[0]
    assert json.loads(both.run(*command.split(), "--json", **BOTH)[0])
    assert json.loads(both.run("show", "--json", **BOTH)[0])["facts"][0]["text"] == WORK, "the one that learns"


def test_an_empty_profile_is_named_in_the_commands_that_show_gives_for_it(user: User) -> None:
    user.run("add", WORK, **AT_WORK)
    user.has_to_review(Edit("ADD", "Notes", HOME, HOME))
    said = user.run("show", **BOTH)[1]
    assert "1 edit to review: llm memory --profile default review\n" in said
    assert "llm memory --profile default add" in said
    assert "--profile work" not in said


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
    eventually(named(both, "work").news.exists, "the news")
    assert "(undo: llm memory --profile work undo" in shown("--sf", "I play chess")
    assert facts_of(both, "default") == [HOME]


def test_a_conversation_keeps_the_profile_that_it_began_with(both: User) -> None:
    off: dict[str, Any] = {"LLM_MEMORY_UPDATES": "false"}
    both.llm("first", **off)
    both.run("edit", EDITOR="sed -i s/Leeds/York/")
    both.llm("-c", "second", **off, **AT_WORK)
    sent = str(both.calls(update=False)[-1])
    assert HOME in sent
    assert WORK not in sent


def test_the_notice_names_a_profile_that_only_this_call_used(both: User) -> None:
    both.llm("I play the oboe", **AT_WORK)
    eventually(named(both, "work").news.exists, "the news")
    terminal = both.terminal("llm", "Hello", LLM_MEMORY_UPDATES="false", **AT_WORK)
    assert terminal.wait() == 0
    assert "(undo: llm memory --profile work undo" in terminal.shown
    both.run("undo", **AT_WORK)
    assert facts_of(both, "work") == [WORK]


def test_where_one_of_several_profiles_is_missing_nothing_is_shown_but_that(user: User) -> None:
    user.run("add", HOME)
    for command in ("show", "why", "search live"):
        out, said = user.run(*command.split(), code=1, **BOTH)
        assert (out, said) == (
            "",
            "Error: There is no profile “work” yet; try: default\n",
        ), command


def test_why_in_several_profiles_prints_no_data_where_nothing_is_found(both: User) -> None:
    assert both.run("why", "cello", code=1, **BOTH)[0] == ""


def test_to_resume_what_was_not_paused_begins_no_profile(user: User) -> None:
    assert user.run("resume", **AT_WORK)[1] == "It was not paused.\n"
    assert not named(user, "work").directory.exists()


def test_forget_wants_one_profile_named_where_several_are_in_use(both: User) -> None:
    said = both.run("forget", "live", "--yes", code=1, **BOTH)[1]
    assert "add: --profile NAME" in said
    assert facts_of(both, "default") == [HOME]


def test_an_unknown_profile_is_an_error_by_hand_and_created_by_the_variable(user: User) -> None:
    done = user.llm("-f", "memory:wrok", "hi", check=False)
    assert done.returncode == 1
    assert "There is no profile “wrok” yet; try: default" in done.stderr
    user.llm(WORK, LLM_MEMORY_PROFILE="Work")
    eventually(lambda: facts_of(user, "work"), "learning")


ON_WHAT_IS_THERE = ("undo", "rollback 0", "history", "diff", "remove x", "forget x", "clear", "review")


@pytest.mark.parametrize("command", [*ON_WHAT_IS_THERE, "condense", "update", "pause"])
def test_a_command_on_a_profile_that_is_not_there_says_so_and_does_not_begin_it(user: User, command: str) -> None:
    said = user.run(*command.split(), code=1, **AT_WORK)[1]
    assert said == "Error: There is no profile “work” yet; try: default\n"
    assert not named(user, "work").directory.exists()


def test_the_first_prompt_in_a_profile_says_for_which_it_learns(user: User) -> None:
    terminal = user.terminal("llm", WORK, **AT_WORK)
    assert terminal.wait() == 0
    assert "memory: learning from this into profile work; a later prompt tells what" in terminal.shown


def test_a_command_that_begins_a_profile_says_so(user: User) -> None:
    assert user.run("add", "Alpha", **AT_WORK)[1].startswith("New profile: work\nAdded: “Alpha”\n")
    assert "New profile" not in user.run("add", "Beta", **AT_WORK)[1] + user.run("add", "Gamma")[1]


@pytest.mark.parametrize("name", ["../work", "my work", "auto", "work+", ".hidden", "x" * 33])
def test_an_invalid_name_sends_and_learns_nothing_and_is_told_with_a_command_that_works(user: User, name: str) -> None:
    user.run("add", HOME)
    invalid: dict[str, Any] = {"LLM_MEMORY_PROFILE": name}
    user.says(WORK, **invalid)  # nobody is there to read anything else
    assert not user.calls(update=False)[-1]["system"]
    for command in ("status", "profiles"):
        said = user.run(command, code=1, **invalid)[1]
        assert "is not a valid profile name" in said
        assert "llm memory" not in said, "that would fail in the same way"
    assert not user.places.journal.exists()
    terminal = user.terminal("llm", "I like tea", **invalid)
    assert terminal.wait() == 0
    assert "the profile was not sent: " in terminal.shown


def test_commands_work_on_the_profile_in_use_and_name_it_in_what_they_advise(user: User) -> None:
    assert "llm memory --profile work undo" in user.llm("memory", "add", WORK, "--profile", "work").stderr
    assert "llm memory --profile work undo" in user.run("add", "Alpha", **AT_WORK)[1]
    assert user.llm("memory", "--profile", "work", "show").stdout.endswith(f"- {WORK}\n- Alpha\n")
    missing = user.llm("memory", "why", "xyz", "--profile", "work", check=False).stderr
    assert "llm memory --profile work why --refused" in missing
    assert user.run("show")[0] == ""
    assert "--profile" not in user.run("add", "Beta")[1]
    assert "llm memory --profile default undo" in user.run("add", "Gamma", "--profile", "default", **AT_WORK)[1]


def test_what_was_typed_in_one_profile_is_never_found_in_another_even_once_forgotten(user: User) -> None:
    user.types("I see a therapist called Brunhilde")
    user.run("add", "Has a dog")
    call = {"name": "UserMemory_recall", "arguments": {"query": "Brunhilde"}}
    (user.script / "tool.json").write_text(json.dumps(call))
    for command in ("show", "forget Brunhilde --yes"):
        user.run(*command.split())
        found = user.run("search", "--chats", "Brunhilde", **AT_WORK)[0]
        found += user.llm("-T", "UserMemory", "Who was it?", **AT_WORK).stdout
        learned = user.llm("memory", "learn", "--yes", **AT_WORK)
        assert "There is nothing new to learn from." in learned.stderr
        found += learned.stdout
        assert "Brunhilde" not in found + user.run("review", "--json", **AT_WORK)[0]


def test_profiles_are_listed_with_their_facts(user: User) -> None:
    user.run("add", WORK, **AT_WORK)
    default, work = (" ".join(line.split()) for line in user.run("profiles", **BOTH)[0].splitlines())
    assert (default, work) == ("* default 0 facts", "* work 1 fact")
    default, work = json.loads(user.run("profiles", "--json")[0])
    assert (default["in_use"], work["in_use"], work["facts"]) == (True, False, 1)


def test_a_named_profile_is_readable_by_its_owner_only_even_if_it_is_the_first(user: User) -> None:
    before = os.umask(0)
    try:
        user.run("add", WORK, **AT_WORK)
    finally:
        os.umask(before)
    home = named(user, "work").directory
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (home, *list(home.parents)[:2])] == [0o700] * 3


def test_purging_one_profile_leaves_the_others(both: User) -> None:
    assert "all else of profile default" in both.run("clear", "--purge", "--yes")[1]
    assert sorted(os.listdir(both.places.directory)) == [".gitignore", "profiles"]
    assert facts_of(both, "work") == [WORK]
    both.run("clear", "--purge", "--yes", **AT_WORK)
    assert not both.places.directory.exists()
