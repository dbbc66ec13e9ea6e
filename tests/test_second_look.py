"""The second look: what would be applied is shown to the model again, without the request that it came from."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

import llm_user_memory as memory

if TYPE_CHECKING:
    from conftest import User

DOG, BOAT = "ADD | Family | Has a dog | I have a dog", "ADD | Interests | Owns a boat | I own a boat"


YEAR = memory.utc_now().year  # one that has come, but is not over when a line comes


class Looks:
    """A model that looks at facts again, and answers so; it keeps what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.requests: list[str] = []

    def __call__(self, model: str, request: str) -> str:
        self.requests.append(request)
        return self.answers.pop(0)


def learns(user: User, edits: str, *answers: str, said: str = "I have a dog, and I own a boat, you know") -> Looks:
    user.types(said)
    looks = Looks(*answers)
    assert user.learns(edits, look=looks)
    return looks


def test_what_the_look_confirms_is_applied_and_what_it_denies_waits_with_a_reason(user: User) -> None:
    looks = learns(user, f"{DOG}\n{BOAT}", "1 y\n2 n")
    assert len(looks.requests) == 1, "one for the batch"
    assert user.facts == ["Has a dog"]
    (held,) = user.to_review()
    assert held["fact"] == "Owns a boat"
    assert held["reason"] == "looked at again, you don't seem to have said it about yourself"
    user.run("review", "--accept", "all")
    assert sorted(user.facts) == ["Has a dog", "Owns a boat"]


def test_of_a_secret_nothing_is_kept_but_the_reason(user: User) -> None:
    said = "the code of my garage is 7731"
    learns(user, f"ADD | Notes | Garage code 7731 | {said}", "1 s", said=said)
    assert (user.facts, user.to_review()) == ([], [])
    assert user.files_with("7731") == []
    assert memory.CONFIDENTIAL in user.run("why", "--refused")[0]


def test_the_look_has_the_question_the_proofs_what_was_typed_before_them_and_nothing_else(user: User) -> None:
    user.profile = "# Me\n\n## Family\n- Lives in Leeds\n- Plays the oboe\n"
    user.types_on("we moved last week")
    user.types("what is the capital of France?")
    user.types_on("from Leeds to York, that is", "and what do I pack?")
    leeds, oboe = user.id_of("Lives in Leeds"), user.id_of("Plays the oboe")
    looks = Looks("1 y\n2 y")
    user.learns(
        f"REPLACE | {leeds} | Lives in York | from Leeds to York\nREMOVE | {oboe} | we moved last week", look=looks
    )
    (request,) = looks.requests
    found = re.findall(r"<message-(\w{6}) \d{4}-\d\d-\d\d \w+>\n(.*)\n</message-\1>", request)
    assert [text for _, text in found] == ["we moved last week", "from Leeds to York, that is"]
    assert "Fact 1: Lives in York (in place of: Lives in Leeds)\n" in request
    assert "Fact 2: is over, or to be forgotten: Plays the oboe\n" in request
    assert request.endswith("Answer with one line for each fact: its number, and y, n or s.\n")
    for word in ("# Me", "capital of France", "pack", "NO_UPDATE", "<profile>", memory.INSTRUCTIONS[:40]):
        assert word not in request
    assert user.facts == ["Lives in York"]


def test_both_requests_have_the_lines_that_say_what_not_to_remember(user: User) -> None:
    wish = "Remember nothing about my work"
    user.run("add", wish)
    user.run("add", "Has a hen")
    user.types("I have a dog, and I work as a nurse")
    asked: list[str] = []
    looks = Looks("1 y\n2 n")

    def reply(model: str, request: str) -> str:
        asked.append(request)
        return f"{DOG}\nADD | Personal Information | Works as a nurse | I work as a nurse"

    assert user.learns(reply, look=looks)
    assert f"] {wish}\n" in asked[0]
    assert "what a line already says, or asks not to remember" in asked[0]
    assert f"answer n to each new fact about that:\n- {wish}\n" in looks.requests[0]
    assert "hen" not in looks.requests[0]
    assert "Works as a nurse" not in user.profile


def test_what_would_be_applied_only_since_the_profile_changed_was_not_looked_at_and_waits(user: User) -> None:
    user.profile = "# Me\n\n- Has a dog\n"
    user.types("I have a dog, you know")
    assert user.learns(DOG, lambda: setattr(user, "profile", "# Me\n"), look=Looks())
    assert user.facts == []
    assert [held["reason"] for held in user.to_review()] == ["it could not be looked at again"]


def test_every_look_has_tags_of_its_own(user: User) -> None:
    nonces = {
        re.findall(r"<message-(\w+)", request)[0]
        for text in ("dog", "cat")
        for request in learns(
            user, f"ADD | Family | Has a {text} | I have a {text}", "1 y", said=f"I have a {text}"
        ).requests
    }
    assert len(nonces) == 2


def test_nothing_is_asked_where_nothing_would_be_applied(user: User) -> None:
    assert learns(user, "NO_UPDATE").requests == []
    assert learns(user, "ADD | Family | Has a cat | I never said that").requests == []
    user.types("I have a dog", review=True)
    looks = Looks()
    user.learns(DOG, look=looks)
    assert looks.requests == [], "all of it waits anyway"
    assert [(held["fact"], held["reason"]) for held in user.to_review()] == [
        ("Has a dog", "LLM_MEMORY_REVIEW=all was set")
    ]


@pytest.mark.parametrize("answers", [("1 y",), ("", "1 y"), ("Sure!", "What?")])
def test_a_look_out_of_form_is_asked_once_more_then_all_of_it_waits(user: User, answers: tuple[str, ...]) -> None:
    looks = learns(user, DOG, *answers)
    assert len(looks.requests) == len(answers)
    if answers[-1] == "1 y":
        assert user.facts == ["Has a dog"]
    else:
        assert user.facts == []
        assert [held["reason"] for held in user.to_review()] == ["it could not be looked at again"]


def test_a_look_that_fails_is_the_failure_of_its_batch_which_is_tried_again_later(user: User) -> None:
    def fails(*_: str) -> str:
        raise memory.ModelFailed("the service is down")

    user.types("I have a dog, you know")
    result = user.learns(DOG, look=fails)
    assert result
    assert str(result.failure) == "the service is down"
    assert (user.facts, user.to_review(), user.pending()) == ([], [], 1)
    with user.memory() as opened:
        assert memory.due_turns(opened) == [], "not at once"
        opened.db.execute("update turns set due = 0")
    user.learns(DOG, look="1 y")
    assert (user.facts, user.pending()) == (["Has a dog"], 0)


@pytest.mark.parametrize("command", [["forget", "dog", "--yes"], ["clear", "--yes"], ["pause"]])
def test_what_is_taken_back_during_the_first_request_is_not_sent_in_a_second(user: User, command: list[str]) -> None:
    looks = Looks()
    user.types("I have a dog, you know")
    assert user.learns(DOG, lambda: user.run(*command), look=looks) is None
    assert looks.requests == []
    assert user.facts == []


def test_a_line_that_changes_while_the_look_is_asked_is_looked_at_again(user: User) -> None:
    user.profile = "# Me\n\n- Has a cat\n"

    def meanwhile(*_: str) -> str:
        user.profile = "# Me\n\n- Has a fat cat\n"
        return "1 y"

    user.types("our cat died, you know")
    assert user.learns(f"REMOVE | {user.id_of('Has a cat')} | our cat died", look=meanwhile) is None
    assert (user.facts, user.pending()) == (["Has a fat cat"], 1)


def test_a_date_that_was_over_when_its_line_came_proves_nothing(user: User) -> None:
    line = "Worked in Rome until 2019"
    user.has_learned(line, "I worked in Rome until 2019")
    user.types("what is a leek?")
    assert user.learns(f"REMOVE | {user.id_of(line)} | {line}", look="1 y")
    assert user.facts == [line]


def test_a_line_whose_date_has_passed_is_looked_at_with_the_newest_message(user: User) -> None:
    line = f"Cooks for one; for four from March {YEAR}"
    user.profile = f"# Me\n\n- {line}\n"
    looks = learns(
        user,
        f"REPLACE | {user.id_of(line)} | Cooks for four | for four from March {YEAR}",
        "1 y",
        said="what is a leek?",
    )
    assert "what is a leek?" in looks.requests[0]
    assert f"Fact 1: Cooks for four (in place of: {line})" in looks.requests[0]
    assert user.facts == ["Cooks for four"]
    shown = user.run("why", "four")[0]
    assert "its date had passed" in shown
    assert f"before that: {line}" in shown


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_line_that_its_user_brought_back_is_not_removed_for_its_date(user: User, by_hand: bool) -> None:
    line = f"Trains for a run in March {YEAR}"
    user.profile = f"## Interests\n\n- {line}\n- Plays chess\n"
    removal = f"REMOVE | {user.id_of(line)} | {line}"
    if by_hand:
        user.run("remove", "Trains")
    else:
        learns(user, removal, "1 y", said="what is a leek?")
    assert user.facts == ["Plays chess"]
    user.run("undo")
    user.types("what is a pear?")
    assert user.learns(removal, look="1 y")
    assert user.facts == [line, "Plays chess"]


def test_a_line_that_its_user_kept_in_a_review_is_not_removed_for_its_date(user: User) -> None:
    line = f"Trains for a run in March {YEAR}"
    user.profile = f"- {line}\n"
    removal = f"REMOVE | {user.id_of(line)} | {line}"
    learns(user, removal, "1 n", said="what is a leek?")
    user.run("review", "--drop", "all")
    user.types("what is a pear?")
    assert user.learns(removal, look="1 y")
    assert user.facts == [line]


def test_the_notice_tells_that_a_line_went_for_its_date(user: User) -> None:
    line = f"Trains for a run in March {YEAR}"
    user.profile = f"- {line}\n"
    learns(user, f"REMOVE | {user.id_of(line)} | {line}", "1 y", said="what is a leek?")
    assert user.places.news.read_text() == f"removed “{line}” (its date had passed) (undo: llm memory undo 2)\n"


def test_through_llm_itself_the_worker_asks_twice(user: User) -> None:
    user.says("I have a dog")
    user.comes_to_know("I have a dog")
    kinds = [("update" if call["update"] else "look") for call in user.calls() if call["update"] or call["look"]]
    assert kinds == ["update", "look"]
    (cost,) = json.loads(user.run("status", "--json")[0])["costs"]
    assert (cost["requests"], cost["looks"]) == (1, 1)
