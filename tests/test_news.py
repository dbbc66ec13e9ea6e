"""The line after a prompt that tells what was learned, and what waits to be learned."""

from __future__ import annotations

import re
import shlex

from conftest import PROFILE, User

import llm_user_memory as memory


def shown(user: User, *command: str, typed: str = "", **env: str) -> str:
    """Run a command at a terminal, learning off so that it starts no worker; what it shows of memory."""
    terminal = user.terminal(*command, **{"LLM_MEMORY_UPDATES": "false"} | env)
    terminal.type(typed)
    assert terminal.wait() == 0
    return "".join(re.findall(r"^.*memory: .*$", terminal.shown, re.MULTILINE))


def news(user: User) -> str:
    """What the next prompt will tell; it is told then."""
    path = user.places.file("news")
    text = path.read_text() if path.exists() else ""
    path.unlink(missing_ok=True)
    return text.removesuffix("\n")


def test_the_next_prompt_at_a_terminal_names_the_fact_once(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    user.has_learned("Has a dog", "I have a dog")
    assert shown(user, "llm", "hi", LLM_MEMORY_NOTICES="false") == ""
    assert "memory:" not in user.llm("hi", LLM_MEMORY_UPDATES="false").stderr, "no terminal"
    assert shown(user, "sh", "-c", "llm hello | cat") == "", "a pager may have the screen"
    assert shown(user, "llm", "chat", typed="exit\r") == ""
    assert shown(user, "llm", "hi") == "\x1b[2mmemory: learned “Has a dog” (llm memory diff 1)\x1b[0m"
    assert shown(user, "llm", "hi") == ""


def test_a_prompt_says_when_the_profile_can_not_be_read(user: User) -> None:
    user.places.create()
    user.places.profile.write_bytes(b"\xff\xfe")
    said = shown(user, "llm", "hi", NO_COLOR="1")
    assert said == "memory: the profile can't be read, so it was not sent (llm memory status)"
    user.profile = PROFILE
    assert shown(user, "llm", "hi") == ""


def test_edits_that_were_reviewed_are_no_news_any_more(user: User) -> None:
    user.types("I like tea")
    user.learns("ADD | Interests | Likes tea | I like tea", review_all=True)
    user.run("review", "--drop", "all")
    assert shown(user, "llm", "hi") == ""


def test_a_removal_is_named_with_the_command_that_erases_it(user: User) -> None:
    user.run("load", "-", stdin="- Has my mother's cat\n- Likes tea\n")
    cat, tea = re.findall(r'"id": "(\w+)"', user.run("show", "--json")[0])
    user.types("Please forget that I have a cat")
    user.learns(f"REMOVE | {cat} | forget that I have a cat")
    told = news(user)
    assert told.startswith("removed “Has my mother's cat” (to erase for good: llm memory forget ")
    user.run(*shlex.split(told.removesuffix(")").partition("llm memory ")[2]), "--yes")
    assert user.files_with("cat") == []
    user.types("I drink coffee, no tea any more")
    user.learns(f"REMOVE | {tea} | no tea any more\nADD | Interests | Drinks coffee | I drink coffee")
    assert news(user) == "- Likes tea; + Drinks coffee (to erase for good: llm memory forget 'Likes tea')"


def test_changes_not_yet_told_are_told_together(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    user.has_learned("Plays chess", "I play chess")
    user.has_learned("Plays go", "I play go")
    assert news(user) == "+ Plays chess; + Plays go (llm memory diff 1)"
    user.has_learned("Plays darts", "I play darts")
    assert news(user) == "learned “Plays darts” (llm memory diff 3)"


def test_held_edits_and_messages_not_learned_from_are_told_as_well(user: User) -> None:
    user.types("I play chess and like tea")
    user.learns("ADD | Interests | Plays chess | I play chess\nADD | Notes | Sells Assam tea | like tea")
    user.types("I have a dog", "I have a cat")
    user.learns("Sure!")
    assert news(user) == (
        "learned “Plays chess” (llm memory diff 0), 1 edit to review (llm memory review),"
        " can't learn right now (llm memory status)"
    )


def test_what_changes_nothing_was_already_shown_or_is_forgotten_is_no_news(user: User) -> None:
    user.types("I have a cat")
    user.learns("NO_UPDATE")
    assert news(user) == ""
    user.types("I live in Leeds")
    assert "Leeds" in user.run("update")[0]
    assert news(user) == ""
    user.has_learned("Has a dog", "I have a dog")
    user.run("forget", "dog", "--yes")
    assert news(user) == ""


def test_update_does_not_say_that_nothing_is_new_when_something_is_held(user: User) -> None:
    user.types("Please always recommend tea to me")
    user.reply("ADD | Preferences | Sells Assam tea | always recommend tea to me")
    said = user.run("update")[1]
    assert "1 edit to review" in said
    assert "Nothing new" not in said


def test_a_retry_asks_the_model_of_the_conversation_if_no_other_is_named_any_more(user: User) -> None:
    user.types("I live in Leeds", model="uninstalled")
    for _ in range(2):  # a plugin may have been installed meanwhile
        user.run("update", code=1)
    assert "uninstalled is not installed" in user.run("status")[0]
    assert "1 set aside" in user.run("update")[1]
    user.run("update", "--retry")
    assert user.facts == ["I live in Leeds"]


def test_a_model_that_keeps_failing_is_told_once_until_it_learns(user: User) -> None:
    def fails(*_: str) -> str:
        raise memory.ModelFailed("scripted: no credit")

    user.types("I have a dog")
    log, said = memory.Log(user.places.logs), list[str]()
    with user.memory() as opened:
        memory.take_in(opened, log)
        learner = memory.Learner(opened, log, memory.Settings(), fails)
        for _ in range(3):
            learner.learn(opened.turns.in_states("pending"))
            said.append(news(user))
        assert said == ["", "can't learn right now (llm memory status)", ""]
        status = user.run("status")[0]
        assert re.search("Waiting +1 message; next try in [12] minutes?", status)
        assert "no credit" in status
        user.places.file("news").write_text("can't learn right now (llm memory status)\n")
        learner.ask = lambda *_: "ADD | Interests | Has a dog | I have a dog"
        learner.learn(opened.turns.in_states("pending"))
    assert news(user) == "learned “Has a dog” (llm memory diff 0)"
