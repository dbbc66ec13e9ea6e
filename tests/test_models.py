"""Models that fail, refuse, ramble or are unknown: their turns wait or are set aside, and status names them."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from typing import TYPE_CHECKING

import llm
import pytest
from conftest import Clock, User, eventually

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAID = "I live in Leeds"
ALSO = "I work as a nurse"


@pytest.fixture
def here(user: User, monkeypatch: pytest.MonkeyPatch) -> User:
    """The user whose scripted models this process asks."""
    monkeypatch.setenv("LLM_USER_PATH", str(user.user_dir))
    return user


@contextlib.contextmanager
def learning(user: User, clock: Clock, ask: memory.Ask = memory.ask_model) -> Iterator[memory.Learner]:
    """Someone who learns by this clock, and has taken in what was typed."""
    with user.memory(now=clock) as opened:
        log = memory.Log(user.places.logs)
        memory.take_in(opened, log)
        yield memory.Learner(opened, log, memory.Settings(), ask)


def news(user: User) -> str:
    return user.places.file("news").read_text("utf-8")


# Set aside, or put off


@pytest.mark.parametrize(
    ("model", "words", "requests"),
    [
        ("scripted-garbage", "does not answer in the form", 2),
        ("scripted-empty", "does not answer in the form", 2),
        ("scripted-small", "context is too small", 1),
        ("uninstalled", "the model uninstalled is not installed", 0),
    ],
)
def test_turns_of_a_model_that_cannot_keep_a_profile_are_set_aside_and_learned_with_another(
    here: User, model: str, words: str, requests: int
) -> None:
    here.profile = "- Mine\n"
    here.types(SAID, model=model)
    clock = Clock(memory.utc_now())
    with learning(here, clock) as learner:
        assert learner.learn()
        clock.advance(seconds=memory.BACK_OFF[0])
        assert bool(learner.learn()) == (model == "uninstalled"), "an unknown model is looked for twice"
        assert learner.memory.turns.how_many("aside") == 1
    assert len(here.calls(update=True)) == requests
    status = here.run("status")[0]
    for said in (words, "1 message", "LLM_MEMORY_MODEL", "llm memory update --retry"):
        assert said in status
    assert news(here) == "1 message not learned from (llm memory status)\n"
    assert here.profile == "- Mine\n"
    done = here.llm("memory", "update", "--retry", auto=None, LLM_MEMORY_MODEL="scripted")
    assert SAID in done.stdout
    assert here.facts == ["Mine", SAID]
    assert here.problems() == ""


def test_a_model_that_fails_is_asked_again_later_and_does_not_block_the_turns_of_others(here: User) -> None:
    here.types(SAID, model="scripted-dead")
    here.types(ALSO)
    assert here.learns(memory.ask_model)
    assert here.learns(memory.ask_model)
    assert here.facts == [ALSO]
    assert here.status()["pending"] == 1
    assert "the service is down" in here.problems(), "a turn still waits because of it"
    here.llm("memory", "update", auto=None, LLM_MEMORY_MODEL="scripted")
    assert sorted(here.facts) == [SAID, ALSO]
    assert here.problems() == ""


def test_a_missing_key_is_named_and_the_turn_learned_once_it_is_there(here: User) -> None:
    here.types(SAID, model="scripted-key")
    assert here.learns(memory.ask_model)
    status = here.run("status")[0]
    assert "scripted-key has no key" in status
    assert "llm keys set" in status
    assert "1 message" in status
    here.llm("memory", "update", auto=None, SCRIPTED_KEY="abc")
    assert here.facts == [SAID]


def test_a_failing_turn_is_tried_five_times_ever_later_then_set_aside_until_a_retry(user: User) -> None:
    asked = []

    def down(model: str, request: str) -> str:
        asked.append(clock.time)
        raise memory.ModelFailed("down")

    user.types(SAID)
    clock = Clock(memory.utc_now())
    with learning(user, clock, down) as learner:
        for _ in range(800):
            learner.learn()
            clock.advance(seconds=1)
        waits = [(b - a).total_seconds() for a, b in itertools.pairwise(asked)]
        assert waits == list(memory.BACK_OFF)
        assert [row["reason"] for row in learner.memory.turns.reasons("aside")] == ["down"]
        learner.memory.turns.retry()
    assert user.learns(f"ADD | Work | Leeds | {SAID}")
    assert user.facts == ["Leeds"]


def test_a_request_that_is_too_long_is_made_again_one_message_at_a_time(user: User) -> None:
    def small(model: str, request: str) -> str:
        if request.count("</message-") > 1:
            raise memory.ModelFailed("too long", "too long")
        (text,) = re.findall(f"^{SAID} .*$", request, re.MULTILINE)
        return f"ADD | Work | {text} | {text}"

    texts = [f"{SAID} number {n}" for n in range(4)]
    user.types(*texts)
    clock = Clock(memory.utc_now())
    with learning(user, clock, small) as learner:
        assert learner.learn()
        clock.advance(seconds=memory.BACK_OFF[0])
        while learner.learn():
            pass
        assert learner.memory.turns.how_many("done") == 4
    assert user.facts == texts


def test_a_model_that_misses_the_form_is_asked_once_a_day_or_after_a_retry(user: User) -> None:
    asked: list[str] = []

    def rambling(model: str, request: str) -> str:
        asked.append(model)
        return "You are great."

    user.types(*(f"{SAID} and {n}" for n in range(7)))
    clock = Clock(memory.utc_now())
    with learning(user, clock, rambling) as learner:
        turns = learner.memory.turns
        for _ in range(5):
            learner.learn(turns.due()[:1])
        assert len(asked) == 6, "twice for each of the first three turns"
        assert turns.how_many("aside") == 5
        clock.advance(days=1, seconds=1)
        learner.learn(turns.due()[:1])
        assert len(asked) == 8
        learner.learn(turns.due()[:1])
        assert len(asked) == 8
        turns.retry()
        learner.learn(turns.due()[:1])
        assert len(asked) == 10
    assert user.facts == []


# Words of models and their services


def test_secrets_in_a_models_error_are_neither_shown_nor_logged(user: User) -> None:
    key = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"
    (user.script / "error.txt").write_text(f"401: Incorrect API key provided: {key}.")
    user.says(SAID)
    eventually(lambda: "401" in user.problems(), "the report")
    eventually(lambda: "401" in user.worker_log, "the log")
    user.kill_worker()
    assert user.files_with(key[8:]) == []
    assert key[8:] not in user.run("status")[0]


def test_a_model_that_does_not_answer_is_given_up(here: User) -> None:
    (here.script / "slow.txt").write_text("hang 3")
    with pytest.raises(memory.ModelFailed, match=r"did not answer within 0\.1 s") as failed:
        memory.ask_model("scripted", "hang", timeout=0.1)
    assert failed.value.kind == "silent"


class Service:
    """A model whose service refuses every request with these words."""

    model_id = "scripted"

    def __init__(self, words: str) -> None:
        self.words = words

    def prompt(self, request: str, **_: object) -> None:
        end = request.partition("<profile>")[2]
        raise RuntimeError(self.words.format(request=end, json=json.dumps(end)))


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Your requests have exceeded the token rate limit of your current tier. Retry after 9 seconds.", ""),
        ("ThrottlingException: Too many tokens, please wait before trying again.", ""),
        ("429: request too large for tokens per minute", ""),
        ("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens", "too long"),
        ("prompt is too long: 210000 tokens > 200000 maximum", "too long"),
        ("Requested tokens (812) exceed context window of 512", "too long"),
    ],
)
def test_a_service_that_is_busy_is_not_a_model_with_a_small_context(
    monkeypatch: pytest.MonkeyPatch, words: str, kind: str
) -> None:
    monkeypatch.setattr(llm, "get_model", lambda _: Service(words))
    with pytest.raises(memory.ModelFailed) as failed:
        memory.ask_model("scripted", "a request")
    assert failed.value.kind == kind


@pytest.mark.parametrize("form", ["{request!r}", "{json}", r"My \"dog\" is called Rex.", r"My cat is Zo\u00eb."])
def test_a_request_that_a_service_quotes_in_its_error_is_not_kept(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    document = memory.Document("## Family\n- Married to   Bluebird\n")
    request = memory.build_request(document, [memory.Message('My "dog" is called Rex.\nMy cat is Zoë.')], "abcdef")
    monkeypatch.setattr(llm, "get_model", lambda _: Service(f"refused by the filter: {form}"))
    with pytest.raises(memory.ModelFailed) as failed:
        memory.ask_model("scripted", request)
    assert str(failed.value) == "scripted: RuntimeError"


# Condensing

FACT = "Fact number {}, of an ordinary length, about me and Hull"
OWN = "My own words about me and Hull, with no receipt"


def condensing(user: User, condensed: Callable[[], str]) -> list[str]:
    """Learn twice with a profile above its budget, whose first line is condensed to this; returns what was asked."""
    asked: list[str] = []

    def ask(model: str, request: str) -> str:
        if "too long" not in request:
            asked.append("update")
            return "NO_UPDATE"
        asked.append("condense")
        fact = condensed()
        ids = {item.text: id_ for id_, item in memory.Document(user.profile).ids.items()}
        return "\n".join(f"REPLACE | {ids[line]} | {fact} | about me and Hull" for line in (FACT.format(0), OWN))

    user.profile = f"# Me\n- {OWN}\n"
    for n in (0, 7, 8):
        user.has_learned(FACT.format(n), FACT.format(n))
    for _ in range(2):
        user.types(SAID)
        user.learns(ask, budget=100)
    assert user.facts[0] == OWN
    return asked


def test_a_line_that_is_forgotten_while_the_profile_is_condensed_does_not_come_back(user: User) -> None:
    facts = ["Facts number 0, number 7, and Hull", "Fact number 0 and Hull"]

    def condensed() -> str:
        if len(facts) == 2:
            user.run("forget", "number 7,", "--yes")
        return facts.pop(0)

    asked = condensing(user, condensed)
    assert user.facts[1] == "Fact number 0 and Hull"
    assert not [fact for fact in user.facts if "number 7," in fact]
    assert asked == ["condense", "update", "condense", "update"], "another text is worth another try"


def test_a_condensing_that_failed_for_a_moment_is_told_and_tried_again(user: User) -> None:
    failures = ["the line was cut"]

    def condensed() -> str:
        if failures:
            raise memory.ModelFailed(failures.pop())
        assert "can't be condensed: the line was cut" in user.problems()
        return "Facts about Hull"

    assert condensing(user, condensed) == ["condense", "update", "condense", "update"]
    assert user.facts[1] == "Facts about Hull"
    assert user.problems() == ""
