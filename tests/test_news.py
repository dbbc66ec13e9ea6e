"""The line after a prompt that tells what was learned, and what waits to be learned."""

from __future__ import annotations

import re
import shlex

from conftest import PROFILE, User

import llm_user_memory as memory


def told(user: User, **env: str) -> str:
    """What a prompt at a terminal shows of memory, learning off so that it starts no worker."""
    terminal = user.terminal("llm", "hi", **{"LLM_MEMORY_UPDATES": "false", "NO_COLOR": "1"} | env)
    assert terminal.wait() == 0
    assert "You said: hi" in terminal.shown
    return "".join(re.findall(r"^memory: (.*)$", terminal.shown, re.MULTILINE))


def test_the_next_prompt_at_a_terminal_names_the_fact_once(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    user.has_learned("Has a dog", "I have a dog")
    assert told(user, LLM_MEMORY_NOTICES="false") == ""
    assert "memory:" not in user.llm("hi", LLM_MEMORY_UPDATES="false").stderr, "no terminal"
    piped = user.terminal("sh", "-c", "llm hello | cat", LLM_MEMORY_UPDATES="false")
    assert piped.wait() == 0
    assert "memory:" not in piped.shown, "a pager may have the screen"
    chat = user.terminal("llm", "chat", LLM_MEMORY_UPDATES="false")
    chat.expect("> ")
    chat.type("exit\r")
    assert chat.wait() == 0
    assert "memory:" not in chat.shown
    assert told(user) == "learned “Has a dog” (llm memory diff 1)"
    assert told(user) == ""


def test_a_prompt_says_when_the_profile_can_not_be_read(user: User) -> None:
    user.places.create()
    user.places.profile.write_bytes(b"\xff\xfe")
    assert told(user) == "the profile can't be read, so it was not sent (llm memory status)"
    user.profile = PROFILE
    assert told(user) == ""


def test_edits_that_were_reviewed_are_no_news_any_more(user: User) -> None:
    user.types("I like tea")
    user.learns("ADD | Interests | Likes tea | I like tea", review_all=True)
    user.run("review", "--drop", "all")
    assert told(user) == ""


def test_it_is_dim_where_colours_are_welcome(user: User) -> None:
    user.has_learned("Has a dog", "I have a dog")
    terminal = user.terminal("llm", "hi", LLM_MEMORY_UPDATES="false")
    terminal.expect(re.escape("\x1b[2mmemory: learned “Has a dog” (llm memory diff 0)\x1b[0m"))
    assert terminal.wait() == 0


def news(user: User) -> str:
    """What the next prompt will tell; it is told then."""
    path = user.places.file("news")
    text = path.read_text() if path.exists() else ""
    path.unlink(missing_ok=True)
    return text.removesuffix("\n")


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


def test_several_changes_are_named_since_the_first_version_not_yet_announced(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    user.has_learned("Plays chess", "I play chess")
    user.has_learned("Plays go", "I play go")
    assert news(user) == "+ Plays chess; + Plays go (llm memory diff 1)"
    user.has_learned("Plays darts", "I play darts")
    assert news(user) == "learned “Plays darts” (llm memory diff 3)"


def test_what_is_held_and_what_could_not_be_learned_is_told_as_well(user: User) -> None:
    user.types("I play chess and like tea")
    user.learns("ADD | Interests | Plays chess | I play chess\nADD | Notes | Sells Assam tea | like tea")
    user.types("I have a dog", "I have a cat")
    user.learns("Sure!")
    assert news(user) == (
        "learned “Plays chess” (llm memory diff 0), 1 edit to review (llm memory review),"
        " 2 messages not learned from (llm memory status)"
    )


def test_what_changes_nothing_is_no_news(user: User) -> None:
    user.types("I have a dog")
    user.learns("NO_UPDATE")
    assert news(user) == ""


def test_what_update_has_told_is_no_news_later(user: User) -> None:
    user.types("I live in Leeds")
    assert "Leeds" in user.llm("memory", "update", auto=None).stdout
    assert news(user) == ""


def test_update_does_not_say_that_nothing_is_new_where_something_is_held(user: User) -> None:
    user.types("Please always recommend tea to me")
    user.reply("ADD | Preferences | Sells Assam tea | always recommend tea to me")
    said = user.llm("memory", "update", auto=None).stderr
    assert "1 edit to review" in said
    assert "Nothing new" not in said


def test_what_is_forgotten_is_no_news(user: User) -> None:
    user.has_learned("Has a dog", "I have a dog")
    user.run("forget", "dog", "--yes")
    assert news(user) == ""


def test_show_says_what_is_waiting_to_be_learned(user: User) -> None:
    user.types("I live in Leeds")
    assert "1 message waiting" in user.run("show")[1]
    assert "Waiting    1 message" in user.run("status")[0]


def test_a_retry_asks_the_model_of_the_conversation_where_no_other_is_named_any_more(user: User) -> None:
    user.types("I live in Leeds", model="uninstalled")
    for _ in range(2):  # a plugin may have been installed meanwhile
        user.llm("memory", "update", auto=None, check=False)
    assert "uninstalled is not installed" in user.run("status")[0]
    assert "1 message set aside" in user.llm("memory", "update", auto=None).stderr
    user.llm("memory", "update", "--retry", auto=None)
    assert user.facts == ["I live in Leeds"]


def test_a_model_that_is_named_and_not_there_is_a_problem(user: User) -> None:
    assert "LLM_MEMORY_MODEL=uninstalled is not a model" in "".join(
        user.status(LLM_MEMORY_MODEL="uninstalled")["problems"]
    )


def test_a_model_that_goes_on_failing_is_told_once(user: User) -> None:
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
    assert re.search("Waiting +1 message; next try in 2 minutes|Waiting +1 message; next try in 1 minute", status)
    assert "no credit" in status


def test_that_it_can_not_learn_is_no_news_once_it_has_learned(user: User) -> None:
    test_a_model_that_goes_on_failing_is_told_once(user)
    user.places.file("news").write_text("can't learn right now (llm memory status)\n")
    with user.memory() as opened:
        learner = memory.Learner(
            opened,
            memory.Log(user.places.logs),
            memory.Settings(),
            lambda *_: "ADD | Interests | Has a dog | I have a dog",
        )
        learner.learn(opened.turns.in_states("pending"))
    assert news(user) == "learned “Has a dog” (llm memory diff 0)"
