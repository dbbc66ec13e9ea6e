"""Learning from llm's past log and the user's notes: everything found waits for review, nothing twice."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
import sqlite_utils
from conftest import Listener, User, eventually, make_log
from llm.migrations import MIGRATIONS, migrate

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@pytest.fixture
def here(user: User, monkeypatch: pytest.MonkeyPatch) -> User:
    """The user whose scripted models this process asks."""
    monkeypatch.setenv("LLM_USER_PATH", str(user.user_dir))
    return user


def logged(user: User, *texts: str) -> None:
    """Log prompts as llm did before there was a memory."""
    for text in texts:
        response = Listener().prompt(text)
        response.text()
        response.log_to_db(make_log(user.places))


def found(user: User) -> list[str]:
    """The edits that wait for review, as changes."""
    return [str(memory.Change("", held["before"], held["fact"])) for held in user.to_review()]


def asked(user: User) -> list[list[str]]:
    """The messages of each request."""
    pattern = r"^<message-(\w+) .*\n(.*(?:\n.*)*?)\n</message-\1>$"
    requests = [call["messages"][-1][1] for call in user.calls(update=True)]
    return [[text for _, text in re.findall(pattern, request, re.MULTILINE)] for request in requests]


def learn(user: User, *options: str, **settings: Any) -> tuple[str, str]:
    return user.run("learn", "--yes", *options, **settings)


# What is read


def test_what_is_found_in_the_past_waits_for_review_with_its_quote_and_changes_nothing(here: User) -> None:
    logged(here, "I live in Leeds. What is the weather?", "How tall is Ben Nevis?")
    _, said = learn(here)
    assert "2 messages in 1 request to scripted, which will read about" in said
    assert "2 of 2 messages read; 1 edit to review: llm memory review" in said
    (held,) = here.to_review()
    assert (held["fact"], held["quote"]) == ("I live in Leeds", "I live in Leeds")
    assert held["reason"] == "it was found in your past conversations"
    assert held["thread_id"]
    assert here.facts == []
    here.run("review", "--yes")
    assert here.facts == ["I live in Leeds"]
    assert "“I live in Leeds”" in here.run("why", "Leeds")[0]


def test_a_receipt_from_the_past_does_not_claim_that_its_words_were_typed(here: User) -> None:
    logged(here, "I am a pirate")
    learn(here)
    assert "in a past prompt, typed or piped in: “I am a pirate”" in here.run("review", stdin="a\n")[1]
    assert "in a past prompt, typed or piped in: “I am a pirate”" in here.run("why")[0]
    here.run("learn", "--yes", "-", stdin="I have a parrot\n")
    here.run("review", "--yes")
    assert "in your notes: “I have a parrot”" in here.run("why", "parrot")[0]


def test_only_what_may_have_been_typed_is_read_and_the_rest_is_counted(here: User) -> None:
    typed = ["I have a dog, Rex (a beagle). Any tips?", "My class is on Mondays; can you plan my week?"]
    logged(
        here,
        *typed,
        "I like " + "x" * 1_000,
        '{"name": "Anna"}\nsum this up',
        "name,age,city\nAnna,3,Rome\nBob,4,Leeds",
        "import os\nprint(1)",
        "2024-05-01 12:00:01 ERROR failed\nwhat is this?",
        "yes",
        "",
    )
    _, said = learn(here)
    assert asked(here) == [typed]
    for skipped in ("1 too long to have been typed", "4 with pasted text or data", "2 with one word or none"):
        assert skipped in said


def test_turns_that_memory_knows_are_not_read_again(here: User) -> None:
    logged(here, "I have a dog")
    here.types("I live in Leeds")
    here.types("I play chess", learn=False)  # as while paused
    here.types("I am still waiting")
    with here.memory() as opened:
        memory.take_in(opened, memory.Log(here.places.logs))
        first = opened.turns.due()[0]
        opened.turns.forget([first.turn_id])
    here.types("I like tea, typed a moment ago")
    _, said = learn(here)
    assert asked(here) == [["I have a dog"]]
    assert "4 already known" in said


def test_what_was_typed_while_memory_was_off_or_in_another_profile_is_not_the_past(here: User) -> None:
    logged(here, "I live in Leeds. How are you?")
    here.types("I play the oboe")
    logged(here, "I am a spy. What now?")
    assert "1 typed with memory off" in here.run("learn", "--dry-run")[1], "also where no learner has seen a message"
    here.learns("NO_UPDATE")
    assert "1 typed with memory off" in learn(here)[1]
    assert [edit["fact"] for edit in here.to_review()] == ["I live in Leeds"]
    shown = here.run("learn", "--dry-run", LLM_MEMORY_PROFILE="work")[1]
    assert "2 typed with memory off" in shown
    assert "1 message in 1 request" in shown
    spy = here.query("select thread_id from turns order by id desc limit 1")
    named = here.run("learn", "--dry-run", "--conversation", spy, LLM_MEMORY_PROFILE="work")[1]
    assert "1 message in 1 request" in named, "what is named is read"


def test_all_that_a_request_finds_is_kept_and_a_long_note_is_read_whole(here: User) -> None:
    many = [f"I have {n} kinds of tea. I like {n} songs." for n in range(40, 60)]
    long = f"{'Once upon a time. ' * 300}I like the colour teal. {'The end. ' * 600}"
    (here.folder / "notes.txt").write_text("\n\n".join([*many, long]))
    learn(here, str(here.folder / "notes.txt"))
    facts = [edit["fact"] for edit in here.to_review()]
    assert len(facts) == 41
    assert "I like the colour teal" in facts


def test_options_choose_what_is_read(here: User) -> None:
    log = make_log(here.places)
    for day in range(1, 5):
        logged(here, f"I am on day {day} now")
        log.execute(
            "update turns set datetime_utc = ? where id = (select max(id) from turns)",
            [f"2026-01-0{day}T12:00:00+00:00"],
        )
    log.conn.commit()
    thread = here.query("select thread_id from turns order by id limit 1")
    for options, days in (
        (["--since", "2026-01-02", "--until", "2026-01-03"], "23"),
        (["-n", "1"], "4"),
        (["--conversation", thread], "1"),
        (["--until", "2026-01-03", "-n", "2"], "23"),
    ):
        assert f"{len(days)} message" in learn(here, *options, "--dry-run")[1]
    assert here.calls() == []
    assert "1 edit to review" in learn(here, "--until", "2026-01-03", "-n", "1")[1]
    assert asked(here) == [["I am on day 3 now"]]
    assert "nonsense is not installed" in here.run("learn", "-m", "nonsense", "--yes", code=1)[1]


def test_a_log_of_an_older_llm_is_read_whether_it_was_migrated_or_not(here: User) -> None:
    log = sqlite_utils.Database(here.places.logs)
    for migration in MIGRATIONS:
        if migration.__name__ < "m021":  # what llm 0.26 had
            migration(log)
            log.table("_llm_migrations").insert({"name": migration.__name__, "applied_at": ""})
    rows = [(f"01jt{at:022}", text) for at, text in enumerate(("I live in Leeds", "I have a cat"))]
    log.table("responses").insert_all(
        {"id": id, "model": "gpt", "prompt": text, "conversation_id": "old", "datetime_utc": "2025-05-01T09:00:00"}
        for id, text in rows
    )
    assert "2 messages" in learn(here, "--dry-run")[1]
    migrate(log)
    logged(here, "I play chess")
    log.table("turns").insert(
        {"id": rows[0][0], "thread_id": None, "model": "gpt", "datetime_utc": "2025-05-01T09:00:00"}
    )
    log.table("turn_search").insert({"turn_id": rows[0][0], "prompt": rows[0][1]})
    learn(here)
    assert asked(here) == [["I live in Leeds", "I have a cat", "I play chess"]]
    assert [(held["thread_id"], held["at"][:10]) for held in here.to_review()][1] == ("old", "2025-05-01")


# One's own notes


def test_notes_are_learned_from_in_the_same_way_and_never_twice(here: User) -> None:
    notes = here.folder / "about me.md"
    notes.write_text("# Me\n\n- I live in Leeds\n- I have two\n  cats\n\nI play chess, and\nI like tea.\n")
    learn(here, str(notes))
    assert asked(here) == [["# Me", "- I live in Leeds", "- I have two\n  cats", "I play chess, and\nI like tea."]]
    held = here.to_review()[0]
    assert (held["thread_id"], held["reason"]) == ("about me.md", "it was found in about me.md")
    here.run("review", "--accept", "1", "--drop", "2-9")
    assert re.search(r"“I live in Leeds”\n.*; about me\.md", here.run("why")[0])
    notes.write_text(f"{notes.read_text()}\n- I speak Welsh\n")
    assert "4 already known" in learn(here, str(notes))[1]
    assert asked(here)[1:] == [["- I speak Welsh"]]
    assert "nothing new to learn from" in learn(here, str(notes))[1]
    assert found(here) == ["+ I speak Welsh"]
    learn(here, "-", stdin="I have a parrot")
    assert found(here)[1:] == ["+ I have a parrot"]


def test_notes_that_can_not_be_read_are_an_error_in_words(here: User) -> None:
    notes = here.folder / "notes.md"
    notes.write_bytes(b"\xff\xfe")
    assert "not valid UTF-8" in learn(here, str(notes), code=1)[1]
    notes.write_bytes(b" \n")
    assert "nothing new to learn from" in learn(here, str(notes))[1]
    assert "not from files" in learn(here, str(notes), "--since", "yesterday", code=2)[1]
    assert here.calls() == []


# The draft


def recalls(user: User, replies: Mapping[str, str], meanwhile: Callable[[], object] = int) -> None:
    """Learn from messages of the past, one in a request, with these replies, where {a line} stands for its id."""
    left = iter(replies.values())

    def ask(_: str, request: str) -> str:
        meanwhile()
        ids = {line: id for id, line in re.findall(r"^\[([a-z]+)\] (.*)$", request, re.MULTILINE)}
        return next(left).format_map(ids)

    with user.memory() as opened:
        learner = memory.Learner(opened, memory.Log(user.places.logs), memory.Settings(), ask)
        for at, text in enumerate(replies, 1):
            message = memory.Message(text, f"turn-{at}", "thread-1", f"2026-01-0{at}T12:00:00+00:00")
            assert memory.learn_past(learner, "scripted", [message]) == (meanwhile is int)


def test_later_messages_correct_what_was_found_in_earlier_ones(user: User) -> None:
    user.profile = "- Has a cat\n- Lives in Rome\n"
    replies = {
        "I have a dog, and I live in York": (
            "ADD | Interests | Has a dog | I have a dog\nREPLACE | {Lives in Rome} | Lives in York | I live in York"
        ),
        "I play chess": "ADD | Interests | Plays chess | I play chess\nADD | Interests | Has a dog | I play chess",
        "I live in Leeds now": "REPLACE | {Lives in York} | Lives in Leeds | I live in Leeds now",
        "We gave the dog and the cat away": (
            "REMOVE | {Has a dog} | We gave the dog\nREMOVE | {Has a cat} | and the cat away"
        ),
    }
    recalls(user, replies)
    assert found(user) == ["Lives in Rome → Lives in Leeds", "+ Plays chess", "- Has a cat"]
    assert user.to_review()[0]["quote"] == "I live in Leeds now"
    user.run("review", "--yes")
    assert user.facts == ["Lives in Leeds", "Plays chess"]


def test_a_doubtful_change_of_what_was_found_waits_beside_it(user: User) -> None:
    replies = {
        "I have a dog": "ADD | Interests | Has a dog | I have a dog",
        "My dog is old": "REPLACE | {Has a dog} | Has a dog called Bluebird | My dog is old",
        "Is it going to rain?": "REMOVE | {Has a dog} | Is it going to rain?",
    }
    recalls(user, replies)
    assert found(user) == ["+ Has a dog", "+ Has a dog called Bluebird"]
    assert user.to_review()[1]["reason"] == "the user did not type “Bluebird”"


def test_what_is_forgotten_while_the_model_thinks_is_not_offered(user: User) -> None:
    def forget() -> None:
        with user.memory() as other:
            other.turns.forget(["turn-1"])

    recalls(user, {"I live in Leeds": "ADD | Interests | Lives in Leeds | I live in Leeds"}, forget)
    assert found(user) == []


def test_what_was_dropped_is_not_offered_again(here: User) -> None:
    logged(here, "I live in Leeds. As you know")
    learn(here)
    here.run("review", "--drop", "all")
    assert "1 already known" in learn(here)[1]
    logged(here, "I live in Leeds. Have I said that?")
    learn(here)
    assert len(asked(here)) == 2
    assert found(here) == []


def test_however_much_is_found_in_the_past_none_of_it_or_of_what_learning_holds_is_dropped(user: User) -> None:
    edits = [memory.Edit("ADD", "Notes", f"Likes the number {number}", "I like") for number in range(150)]
    verdicts = [memory.Verdict(edit, "apply", "", memory.Message("I like")) for edit in edits]
    with user.memory() as opened:
        for at in range(0, 150, 30):
            opened.review.hold_past(verdicts[at : at + 30], "scripted")
        opened.review.hold([verdicts[0]._replace(edit=edits[0]._replace(fact="Likes tea"))], "scripted")
        assert len(opened.review.edits()) == 151
        assert opened.review.draft("").has("Likes the number 149")


# Interrupted


@pytest.fixture
def one_by_one(here: User, monkeypatch: pytest.MonkeyPatch) -> Callable[[memory.Ask], None]:
    """Send one message in a request; the function given sets who is asked."""
    monkeypatch.setattr(memory, "PAST_AT_ONCE", 1)
    return lambda ask: monkeypatch.setattr(memory.Learner.__init__, "__defaults__", (ask,))


def test_a_request_that_fails_is_left_for_the_next_run(here: User, one_by_one: Callable[[memory.Ask], None]) -> None:
    def ask(model: str, request: str) -> str:
        if "failing" in request:
            raise memory.ModelFailed("it failed")
        return memory.ask_model(model, request)

    logged(here, "I live in Leeds", "I am failing now", "I have a dog")
    one_by_one(ask)
    _, said = learn(here)
    assert "2 of 3 messages read; 2 edits to review" in said
    assert "run the same command again (it failed)" in said
    one_by_one(memory.ask_model)
    learn(here)
    assert found(here) == ["+ I live in Leeds", "+ I have a dog", "+ I am failing now"]


@pytest.mark.parametrize(("kind", "requests"), [("keyless", 1), ("", 5)])
def test_learning_from_the_past_stops_with_a_model_that_can_not_answer(
    here: User, one_by_one: Callable[[memory.Ask], None], kind: str, requests: int
) -> None:
    asked: list[str] = []

    def ask(_: str, request: str) -> str:
        asked.append(request)
        raise memory.ModelFailed("it failed", kind)

    logged(here, *(f"I live in house {number}" for number in range(8)))
    one_by_one(ask)
    assert "To read the rest, run the same command again (it failed)" in learn(here, code=1)[1]
    assert len(asked) == requests


def test_a_run_that_was_killed_continues_where_it_was(here: User) -> None:
    logged(here, *(f"I like number {number}, not so much" for number in range(90)))
    (here.script / "slow.txt").write_text("number 60 60")
    run = here.start("memory", "learn", "--yes", auto=None)
    eventually(lambda: len(here.calls(update=True)) == 3, "the third request")
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    (here.script / "slow.txt").unlink()
    assert "60 already known" in learn(here)[1]
    assert [len(messages) for messages in asked(here)] == [30, 30, 30, 30]
    assert asked(here)[2] == asked(here)[3]
    assert len(found(here)) == 90


def test_ctrl_c_says_how_far_it_got_and_how_to_go_on(here: User) -> None:
    logged(here, *(f"I like number {number}, not so much" for number in range(40)))
    (here.script / "slow.txt").write_text("number 30 60")
    terminal = here.terminal("llm", "memory", "learn", auto=None)
    terminal.expect(r"Learn from them\?.*: ")
    terminal.type("y\r")
    eventually(lambda: len(here.calls(update=True)) == 2, "the second request")
    terminal.expect("30 to review")
    terminal.type("\x03")
    terminal.expect(r"30 of 40 messages read; 30 edits to review: llm memory review.*run the same\s+command again")
    assert terminal.wait() == 1
