"""Tools that let a model use memory: they write what the user typed, and ask for the rest."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from typing import TYPE_CHECKING

import filelock
import pytest

import llm_user_memory as memory

if TYPE_CHECKING:
    from conftest import User

pytestmark = pytest.mark.usefixtures("idle")

KNOWN = "# User Profile\n\n## Personal Information\n- Lives in Leeds\n- Has a cat called Tom\n"
SAID = "Remember that I am allergic to nuts"


def will_call(user: User, tool: str, **arguments: str) -> None:
    """Let the model call this tool next."""
    (user.script / "tool.json").write_text(json.dumps({"name": f"UserMemory_{tool}", "arguments": arguments}))


def asks(user: User, tool: str, *args: str, said: str = SAID, auto: str | None = "1", **arguments: str) -> str:
    """The result of a tool call that the model makes after the user typed something."""
    will_call(user, tool, **arguments)
    return user.llm("-T", "UserMemory", *args, said, auto=auto).stdout


def remembers(user: User, *args: str, fact: str = "Is allergic to nuts", said: str = SAID) -> str:
    return asks(user, "remember", *args, fact=fact, said=said)


def test_what_a_model_would_remember_waits_with_what_the_user_typed_beside_it(user: User) -> None:
    user.profile = KNOWN
    user.run("history")
    with filelock.FileLock(user.places.lock_file("profile")):  # a tool waits for nobody
        assert "Added to review: llm memory review" in remembers(user)
    assert user.profile == KNOWN
    (held,) = user.to_review()
    assert (held["quote"], held["reason"], held["model"]) == (SAID, "a model asked for it", "scripted")
    user.run("review", "--accept", "all")
    (receipt,) = [one for one in user.receipts() if one["fact"] == "Is allergic to nuts"]
    assert receipt["quote"] == SAID
    assert receipt["thread"] == user.query("select thread_id from turns")
    user.run("undo")
    assert user.profile == KNOWN


def test_what_can_be_no_line_is_not_remembered(user: User) -> None:
    assert "Not remembered: it contains HTML" in remembers(user, fact="Trusts <b>acme")
    assert user.to_review() == []


def test_neither_piped_text_nor_a_secret_is_remembered(user: User) -> None:
    will_call(user, "remember", fact="Is allergic to nuts")
    user.llm("-T", "UserMemory", "Sum this up", input=SAID)
    assert [held["quote"] for held in user.to_review()] == ["Sum this up"]
    assert user.facts == []
    user.run("review", "--drop", "all")
    said = "Remember my password: hunter2-Xk9!"
    assert "Not remembered" in remembers(user, fact=said, said=said)
    assert (user.facts, user.to_review()) == ([], [])


def test_why_says_that_a_model_proposed_what_nobody_typed(user: User) -> None:
    will_call(user, "remember", fact="Is allergic to nuts")
    user.llm("-T", "UserMemory", input=SAID)
    user.run("review", "--accept", "all")
    assert "proposed with scripted" in user.run("why", "nuts")[0]


def test_what_a_tool_prompts_within_a_call_is_not_typed_also_if_it_says_the_same(user: User) -> None:
    user.profile = KNOWN
    (user.script / "tool.json").write_text(json.dumps({"name": "ask_again", "arguments": {"text": SAID}}))
    done = user.llm("-T", "ask_again", SAID)
    assert f"You said: {SAID}" in done.stdout
    asked, within = user.calls()[:2]
    assert "Lives in Leeds" in asked["system"]
    assert (within["model"], within["system"] or "") == ("scripted-2", ""), "nor is the profile sent"
    assert len(user.places.journal.read_text().splitlines()) == 1


def test_while_learning_is_off_a_tool_writes_nothing(user: User) -> None:
    assert "Error: " in remembers(user, "-n")
    user.run("pause")
    assert "Error: " in remembers(user)
    user.run("resume")
    user.env["LLM_MEMORY_UPDATES"] = "false"
    assert "Error: " in remembers(user)
    assert (user.facts, user.to_review()) == ([], [])


def test_what_a_tool_would_forget_waits_for_the_user(user: User) -> None:
    user.profile = KNOWN
    said = asks(user, "forget", text="Tom", said="Tom died")
    assert "Added to review: llm memory review" in said
    assert "Has a cat called Tom" in user.facts
    assert [held["quote"] for held in user.to_review()] == ["Tom died"]
    user.run("review", "--accept", "all")
    assert user.facts == ["Lives in Leeds"]


def test_a_model_can_see_and_search_what_is_known(user: User) -> None:
    user.profile = KNOWN
    user.run("history")
    user.profile = KNOWN.replace("Leeds", "York")
    assert "Lives in York" in asks(user, "show", auto=None)
    user.run("history")  # a call takes no lock of ours to bring in what an editor has just saved
    assert not user.places.journal.exists(), "memory takes no other part without the shell function"
    found = asks(user, "search", query="lives")
    assert "Lives in York" in found
    assert "Lives in Leeds" in found, "also what was known before"


def test_a_model_that_recalls_waits_for_a_locked_database_only_as_long_as_a_call_may(user: User) -> None:
    user.run("history")
    with contextlib.closing(sqlite3.connect(user.places.database, isolation_level=None)) as locked:
        locked.execute("begin exclusive")
        began = time.monotonic()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            memory.known_turns(user.places)
        assert time.monotonic() - began < 8, "it was ten seconds, and is two"


def test_a_model_can_recall_past_conversations_but_not_forgotten_ones(user: User) -> None:
    user.make_log()
    user.types("How do I bake rye bread?", "I have a secret dog")
    assert "How do I bake rye bread? (llm --cid " in asks(user, "recall", query="bake")
    assert not user.places.database.exists(), "to look creates nothing"
    user.types("to bake, log in: password=hunter2-porto")
    assert "password=[password] (llm --cid " in asks(user, "recall", query="log")
    user.run("forget", "secret dog", "--yes")
    assert asks(user, "recall", query="secret", said="hello").strip() == "Nothing found."


def test_a_tool_that_writes_where_memory_is_off_sends_no_profile(user: User) -> None:
    user.profile = KNOWN
    user.make_log()
    will_call(user, "remember", fact="Plays chess")
    user.llm("chat", "-T", "UserMemory", auto=None, input="I play chess\nsecond\nquit\n")
    assert "user_profile" not in json.dumps(user.calls())
