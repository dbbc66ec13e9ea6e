"""Learning: what goes into one request, how often a turn is tried, and what happens to it in the end."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

import pytest
from conftest import PATIENCE, User, eventually

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Callable

SAID = "I live in Leeds"
ALSO = "I work as a nurse"
LEEDS = f"ADD | Work | Leeds | {SAID}"


@pytest.fixture
def requests() -> list[tuple[str, list[str]]]:
    """The model of each request, and the messages that it was asked about."""
    return []


@pytest.fixture
def ask(requests: list[tuple[str, list[str]]]) -> memory.Ask:
    """A model that learns nothing."""

    def ask(model: str, request: str) -> str:
        messages = request.partition("</profile>")[2].split("<message-")[1:]
        requests.append((model, [message.split("\n")[1] for message in messages]))
        return "NO_UPDATE"

    return ask


def in_state(user: User, state: str) -> int:
    with user.memory() as opened:
        return opened.turns.how_many(state)


# One request


def test_a_request_is_about_the_oldest_messages_of_one_model_eight_at_most(
    user: User, ask: memory.Ask, requests: list[tuple[str, list[str]]]
) -> None:
    texts = [f"{SAID} and {n}" for n in range(10)]
    user.types(*texts[:4])
    user.types(ALSO, model="scripted-2")
    user.types(*texts[4:])
    while user.learns(ask):
        pass
    assert requests == [("scripted", texts[:8]), ("scripted-2", [ALSO]), ("scripted", texts[8:])]
    assert in_state(user, "done") == 11


def test_long_messages_are_asked_about_in_several_requests(
    user: User, ask: memory.Ask, requests: list[tuple[str, list[str]]]
) -> None:
    user.types(*(f"{n} {'I walk. ' * 400}" for n in range(8)))
    while user.learns(ask):
        pass
    assert len(requests) > 1
    assert sum(len(messages) for _, messages in requests) == 8
    assert all(sum(map(len, messages)) <= memory.CHARACTERS_AT_ONCE for _, messages in requests)


def test_a_model_named_for_all_learning_is_asked_in_place_of_those_that_answered(
    user: User, ask: memory.Ask, requests: list[tuple[str, list[str]]]
) -> None:
    user.types(SAID)
    assert user.learns(ask, model="scripted-2")
    assert requests == [("scripted-2", [SAID])]


def test_messages_that_can_prove_nothing_and_such_as_are_gone_from_the_log_cost_no_request(
    user: User, ask: memory.Ask, requests: list[tuple[str, list[str]]]
) -> None:
    user.types("ok", SAID)
    with user.memory() as opened:
        assert memory.take_in(opened, memory.Log(user.places.logs)) == 2
    with contextlib.closing(sqlite3.connect(user.places.logs)) as log, log:
        log.execute("delete from turn_search where prompt = ?", [SAID])
    result = user.learns(ask)
    assert result
    assert (result.turns, requests) == (2, [])
    assert (in_state(user, "done"), in_state(user, "gone")) == (1, 1)


# Meanwhile


def test_an_edit_that_the_user_makes_while_the_model_thinks_survives(user: User) -> None:
    def edit() -> None:
        user.profile = "# Me\n\n## Work\n- Doctor\n- Tired\n"

    user.profile = "# Me\n\n## Work\n- Nurse\n"
    user.types(SAID)
    assert user.learns(LEEDS, edit)
    assert user.facts == ["Doctor", "Tired", "Leeds"]


def test_a_request_during_which_learning_is_paused_is_no_attempt_and_its_turns_wait(user: User) -> None:
    user.types(SAID, ALSO)
    result = user.learns(LEEDS, lambda: user.run("pause"))
    assert result
    assert result.turns == 0
    assert user.learns(LEEDS) is None
    user.run("resume")
    with user.memory() as opened:
        assert [turn.attempts for turn in opened.turns.due()] == [0, 0]
    assert user.facts == []
    assert user.learns(LEEDS)
    assert user.facts == ["Leeds"]


def test_a_message_that_is_forgotten_while_the_model_thinks_is_not_learned(user: User) -> None:
    user.types(SAID, ALSO)
    assert user.learns(f"{LEEDS}\nADD | Work | Nurse | {ALSO}", lambda: user.run("forget", SAID, "--yes"))
    assert user.facts == []
    assert user.learns(f"{LEEDS}\nADD | Work | Nurse | {ALSO}")
    assert user.facts == ["Nurse"]
    assert in_state(user, "forgotten") == 1


# Attempts


def test_an_update_that_is_cut_short_again_and_again_is_given_up_and_told(user: User) -> None:
    def killed() -> None:
        raise KeyboardInterrupt

    user.types(SAID)
    for _ in range(memory.MOST_ATTEMPTS):
        with pytest.raises(KeyboardInterrupt):
            user.learns(LEEDS, killed)
    assert user.learns(LEEDS)
    assert in_state(user, "aside") == 1
    assert "its update was cut short again and again" in user.run("status")[0]
    user.llm("memory", "update", "--retry")
    assert user.facts == [SAID]


def test_turns_whose_update_failed_for_no_fault_of_the_models_are_put_off(user: User) -> None:
    user.profile = "- Mine\n"
    user.types(SAID)
    with pytest.raises(memory.Problem, match="read-only"):
        user.learns(LEEDS, lambda: user.places.profile.chmod(0o444))
    assert in_state(user, "pending") == 1
    assert "read-only" in user.problems()
    assert user.learns(LEEDS) is None, "it is not due yet"
    user.places.profile.chmod(0o644)
    user.llm("memory", "update")
    assert user.facts == ["Mine", SAID]


# `update`, and two learners


def test_update_learns_all_that_waits_in_the_foreground_and_says_what_changed(user: User) -> None:
    user.llm(SAID, LLM_MEMORY_UPDATE_INTERVAL="600")
    texts = [f"I like colour number {n}" for n in range(20)]
    user.types(*texts)
    assert user.facts == []
    done = user.llm("memory", "update", auto=None)
    assert SAID in done.stdout
    assert done.stderr == ""
    assert user.facts == [SAID, *texts]
    assert user.run("update") == ("", "Nothing new to remember.\n")


def test_an_update_asks_one_by_one_about_messages_that_are_too_long_together(user: User) -> None:
    def small(model: str, request: str) -> str:
        if request.count("</message-") > 1:
            raise memory.ModelFailed("too long", "too long")
        return "NO_UPDATE"

    user.types(SAID, ALSO)
    with user.memory() as opened:
        results = memory.update_now(opened, memory.Log(user.places.logs), memory.Settings(), small)
        assert [result.turns for result in results] == [2, 1, 1]
        assert opened.turns.how_many("done") == 2


def test_an_update_asks_a_model_that_fails_no_second_time_about_the_same_message(user: User) -> None:
    def down(model: str, request: str) -> str:
        raise memory.ModelFailed("down")

    user.types(*(f"{SAID} and {n}" for n in range(10)))
    with user.memory() as opened:
        results = memory.update_now(opened, memory.Log(user.places.logs), memory.Settings(), down)
        assert [result.turns for result in results] == [8, 2]


def test_an_update_that_fails_exits_1_and_names_status(user: User) -> None:
    user.types(SAID, model="scripted-dead")
    out, said = user.run("update", code=1)
    assert out == ""
    assert "the service is down" in said
    assert "llm memory status" in said


def slow_worker(user: User) -> None:
    (user.script / "slow.txt").write_text("NO_UPDATE 2")
    user.llm(SAID)
    eventually(lambda: user.calls(update=True), "the request")


def killed_worker(user: User) -> None:
    (user.script / "slow.txt").write_text("NO_UPDATE 600")
    user.llm(SAID)
    eventually(lambda: user.calls(update=True), "the request")
    user.kill_worker()
    (user.script / "slow.txt").unlink()


@pytest.mark.parametrize(("at_work", "asked"), [(slow_worker, 1), (killed_worker, 2)])
def test_update_waits_for_a_worker_that_thinks_and_takes_over_from_one_that_was_killed(
    user: User, at_work: Callable[[User], None], asked: int
) -> None:
    at_work(user)
    user.llm("memory", "update", auto=None)
    assert user.facts == [SAID]
    assert user.asked_about(SAID) == asked


def test_two_updates_at_the_same_time_ask_about_a_message_once(user: User) -> None:
    user.types(SAID, ALSO)
    (user.script / "slow.txt").write_text("NO_UPDATE 2")
    updates = [user.start("memory", "update") for _ in range(2)]
    assert [update.wait(PATIENCE) for update in updates] == [0, 0]
    assert user.facts == [SAID, ALSO]
    assert user.asked_about(SAID) == 1
