"""Models that fail, refuse, ramble or are unknown: their turns wait or are set aside, and status names them."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
import json
import re
import sqlite3
from typing import TYPE_CHECKING

import llm
import pytest
from conftest import Clock, User, answering

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        memory.take_in(opened)
        yield memory.Learner(opened, memory.Settings(), ask)


def in_state(learner: memory.Learner, state: str) -> int:
    return int(memory.value(learner.memory.db, "select count(*) from turns where state = ?", state))


def about(request: str) -> str:
    """Return the one message of a request."""
    (text,) = re.findall(f"^{SAID} .*$", request, re.MULTILINE)
    return f"ADD | Work | {text} | {text}"


# Set aside, or put off


@pytest.mark.parametrize(
    ("model", "words", "requests"),
    [
        ("scripted-garbage", "can't keep to the format", 2),
        ("scripted", "too small a context for learning; to learn with another model, set LLM_MEMORY_MODEL", 1),
    ],
)
def test_messages_a_model_cannot_learn_from_are_set_aside_and_learned_with_another(
    here: User, model: str, words: str, requests: int
) -> None:
    here.profile = "- Mine\n"
    error = here.script / "error.txt"
    if model == "scripted":
        error.write_text("Requested tokens (530) exceed context window of 512")
    here.types(SAID, model=model)
    clock = Clock(memory.utc_now())
    with learning(here, clock) as learner:
        while learner.learn():
            clock.advance(seconds=memory.BACK_OFF[-1])
        assert in_state(learner, "aside") == 1
    assert len(here.calls(update=True)) == requests
    status = here.run("status")[0]
    for said in (words, "Set aside    1. To try again", "llm memory update --retry"):
        assert said in status
    assert here.profile == "- Mine\n"
    error.unlink(missing_ok=True)
    assert SAID in here.run("update", "--retry", LLM_MEMORY_MODEL="scripted")[1]
    assert here.facts == ["Mine", SAID]
    assert here.problems() == ""


def test_a_model_without_conversations_is_never_asked_to_learn_and_status_says_so(
    here: User, idle: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle.llm("-m", "scripted-single", SAID)
    assert not idle.places.journal.exists()
    shown = idle.run("status")[0]
    assert re.search("^Not learned with +scripted-single, without conversations$", shown, re.MULTILINE)
    assert "Problem" not in shown
    monkeypatch.setenv("LLM_MODEL", "scripted-single")
    said = "scripted-single has no conversations, so it can't learn"
    with pytest.raises(memory.ModelFailed, match=said):
        memory.ask_model("scripted-single", "NO_UPDATE")
    idle.llm("-m", "scripted-single", SAID, LLM_MEMORY_MODEL="scripted")
    assert idle.learns(memory.ask_model)
    assert [call["model"] for call in idle.calls(update=True)] == ["scripted"]
    assert idle.facts == [SAID]


def test_a_model_that_fails_is_asked_again_later_and_does_not_hold_up_other_models(here: User) -> None:
    here.types(SAID, model="scripted-dead")
    here.types(ALSO)
    assert here.learns(memory.ask_model)
    assert here.learns(memory.ask_model)
    assert here.facts == [ALSO]
    assert here.pending() == 1
    assert "scripted-dead failed" in here.problems(), "a turn still waits because of it"
    here.run("update", LLM_MEMORY_MODEL="scripted")
    assert sorted(here.facts) == [SAID, ALSO]
    assert here.problems() == ""


def test_a_message_that_fails_is_tried_five_times_at_growing_intervals_then_set_aside(user: User) -> None:
    asked = []

    def down(model: str, request: str) -> memory.Reply:
        asked.append(clock.time)
        raise memory.ModelFailed("down")

    user.types(SAID)
    clock = Clock(memory.utc_now())
    with learning(user, clock, down) as learner:
        for _ in range(800):
            learner.learn()
            clock.advance(seconds=1)
        waits = [(b - a).total_seconds() for a, b in itertools.pairwise(asked)]
        assert waits == [5, 30, 120, 600]
        assert in_state(learner, "aside") == 1
        assert "down" in user.run("status")[0]
    user.reply(f"ADD | Work | Leeds | {SAID}")
    user.run("update", "--retry")
    assert user.facts == ["Leeds"]


SERVICES = {
    "asked too often": "Error code: 429 - Too Many Requests",
    "not reached": "<urlopen error [Errno -3] Temporary failure in name resolution>",
    "refused": "[Errno 111] Connection refused",
    "slow": "The read operation timed out",
    "overloaded": "Error code: 529 - overloaded_error",
    "down": "503 Service Unavailable",
    "unpaid": "You exceeded your current quota",
}


@pytest.mark.parametrize("service", SERVICES)
def test_what_may_pass_is_tried_again_ever_more_rarely_and_never_set_aside(user: User, service: str) -> None:
    asked = []

    def away(model: str, request: str) -> memory.Reply:
        asked.append(clock.time)
        raise memory.why_failed(model, RuntimeError(SERVICES[service]))

    user.types(*[f"{SAID} number {n}" for n in range(8)], model="scripted")
    clock = Clock(memory.utc_now())
    with learning(user, clock, away) as learner:
        for _ in range(12):
            assert learner.learn()
            assert learner.learn() is None, "it waits"
            due = memory.value(learner.memory.db, "select max(due) from turns")
            clock.time = dt.datetime.fromtimestamp(due + 1, dt.timezone.utc)
        waits = [(b - a).total_seconds() for a, b in itertools.pairwise(asked)]
        assert waits == sorted(waits)
        assert waits[0] >= 5
        assert waits[-1] > 1_000
        assert in_state(learner, "pending") == 8
        back = memory.Learner(learner.memory, memory.Settings(), answering("NO_UPDATE"))
        assert len(list(iter(back.learn, None))) == 1, "one request, as if nothing had been"
        assert in_state(learner, "done") == 8
    (cost,) = json.loads(user.run("status", "--json")[0])["costs"]
    assert (cost["requests"], cost["failed"]) == (1, 12)


def test_what_may_pass_is_tried_again_within_a_day_however_long_ago_it_was_typed(user: User) -> None:
    def away(model: str, request: str) -> memory.Reply:
        raise memory.ModelFailed("not reached", memory.PASSING)

    clock = Clock(memory.utc_now())
    user.types(SAID, at=(clock.time - dt.timedelta(days=40)).isoformat())
    with learning(user, clock, away) as learner:
        assert learner.learn()
        assert learner.learn() is None, "it waits"
        clock.advance(days=1)
        assert learner.learn()


@pytest.mark.parametrize(
    "quoted", ["connection refused, try again", "how does authentication work", "lost my car, no key"]
)
def test_a_request_that_is_refused_is_set_aside_whatever_words_the_refusal_quotes(user: User, quoted: str) -> None:
    class Refusal(Exception):
        status_code = 400

    def refuses(model: str, request: str) -> memory.Reply:
        raise memory.why_failed(model, Refusal(f"flagged: '{quoted}'"))

    user.types(SAID)
    clock = Clock(memory.utc_now())
    with learning(user, clock, refuses) as learner:
        while learner.learn():
            clock.advance(seconds=600)
        assert in_state(learner, "aside") == 1


def test_a_message_that_a_model_never_takes_keeps_no_other_from_being_learned(user: User) -> None:
    def picky(model: str, request: str) -> str:
        if "number 0" in request:
            raise memory.ModelFailed("content filter")
        return about(request)

    texts = [f"{SAID} number {n}" for n in range(3)]
    user.types(*texts)
    for _ in range(2):
        with user.memory() as opened:
            memory.take_in(opened)
            opened.db.execute("update turns set due = 0")
            list(iter(memory.Learner(opened, memory.Settings(), answering(picky)).learn, None))
    assert user.facts == texts[1:]


# Words of models and their services


def test_a_model_that_does_not_answer_or_is_unknown_is_left_to_a_fresh_worker(
    here: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here.script / "slow.txt").write_text("hang 600")
    for model, timeout, words, kind in (
        ("scripted", 0.1, r"did not answer within 0\.1 s", memory.HUNG),
        ("late", 60, "llm can't load late", memory.HERE),
    ):
        monkeypatch.setattr(memory, "MODEL_TIMEOUT", timeout)
        with pytest.raises(memory.ModelFailed, match=words) as failed:
            memory.ask_model(model, "hang")
        assert failed.value.kind == kind


class Service:
    """A model whose service refuses every request with these words."""

    model_id = "scripted"

    def __init__(self, words: str) -> None:
        self.error: BaseException = RuntimeError(words)

    def prompt(self, request: str, **_: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("429: content flagged: leukaemia", "is busy"),
        ("content flagged: leukaemia", "scripted failed (RuntimeError)"),
        ("GET /chat?q=I%20have%20leukaemia: Connection refused", "can't be reached"),
        ("Your credit balance is too low for leukaemia", "out of credit"),
        ("leukaemia: incorrect API key provided: sk-leukaemia", "llm keys"),
        ("this model's maximum context length is 8192: leukaemia", "has too small a context"),
        ("400: leukaemia, and where is my API key?", "scripted failed"),
        ("leukaemia timed out", "can't be reached"),
        ("leukaemia: how do I roll over my 401 plan", "scripted failed"),
    ],
)
def test_what_a_service_says_is_told_in_words_of_ours(said: str, meant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm, "get_model", lambda _: Service(said))
    with pytest.raises(memory.ModelFailed) as failed:
        memory.ask_model("scripted", "I have leukaemia")
    assert meant in str(failed.value)
    assert "RuntimeError" in str(failed.value)
    assert "leukaemia" not in str(failed.value)


@pytest.mark.parametrize("status", [503, "503 Service Unavailable: leukaemia"])
def test_the_http_status_of_an_error_is_told_and_nothing_else_of_it(
    monkeypatch: pytest.MonkeyPatch, status: object
) -> None:
    service = Service("leukaemia")
    service.error.status_code = status  # type: ignore[attr-defined]
    monkeypatch.setattr(llm, "get_model", lambda _: service)
    with pytest.raises(memory.ModelFailed, match=r"\(RuntimeError 503\)\Z"):
        memory.ask_model("scripted", "hello")


class Refused:
    """A response as `requests` has it."""

    status_code = 401

    def __bool__(self) -> bool:
        return False


def test_the_status_of_a_response_counts_even_if_it_is_false(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service("denied")
    service.error.response = Refused()  # type: ignore[attr-defined]
    monkeypatch.setattr(llm, "get_model", lambda _: service)
    with pytest.raises(memory.ModelFailed, match="has no key"):
        memory.ask_model("scripted", "hello")


@pytest.mark.parametrize("kind", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
def test_an_error_that_would_end_a_thread_is_told_as_any_other(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], kind: type[BaseException]
) -> None:
    service = Service("")
    service.error = kind("leukaemia")
    monkeypatch.setattr(llm, "get_model", lambda _: service)
    with pytest.raises(memory.ModelFailed, match=kind.__name__):
        memory.ask_model("scripted", "hello")
    assert capfd.readouterr().err == ""


class Mute(Exception):
    """An error that can't be printed."""

    def __str__(self) -> str:
        raise ValueError("leukaemia")


def test_the_class_of_an_error_counts_also_where_it_can_not_be_printed() -> None:
    class NeedsKey(Mute):
        pass

    assert memory.why_failed("scripted", NeedsKey()).kind == memory.HERE


def test_an_error_that_can_not_be_printed_is_told_as_any_other(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    service = Service("")
    service.error = Mute()
    monkeypatch.setattr(llm, "get_model", lambda _: service)
    with pytest.raises(memory.ModelFailed, match="Mute"):
        memory.ask_model("scripted", "hello")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (sqlite3.OperationalError('near "hunter2": syntax error'), "the database can't be used now"),
        (OSError(28, "No space left on device"), "a file: No space left on device"),
        (OSError(13, "Permission denied", "/srv/\udcff/x"), "/srv/\\udcff/x: Permission denied"),
        (ValueError("hunter2"), "ValueError"),
        (UnicodeDecodeError("utf-8", b"hunter2 \xe9", 8, 9, "invalid"), "this is not UTF-8"),
        (memory.Problem("\udcff can't be read"), "\\udcff can't be read"),
    ],
    ids=range(6),
)
def test_any_error_becomes_words_that_can_be_kept_and_shown(error: Exception, words: str) -> None:
    assert memory.in_words(error).startswith(words)
    assert "hunter2" not in memory.in_words(error)
    memory.in_words(error).encode()


# llm itself


def test_status_tells_in_one_line_what_is_broken_in_llm(here: User) -> None:
    models = here.user_dir / "extra-openai-models.yaml"
    models.write_text("- model_id: [\n")
    done = here.llm("memory", "status", auto=None)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("(ParserError); see: llm models") == 1
    here.types(SAID)
    assert "llm can't load scripted" in here.run("update", code=1)[1]
    models.unlink()
    keys = here.user_dir / "keys.json"
    keys.write_text("{")
    told = here.llm("memory", "status", auto=None, LLM_MODEL="scripted-key").stdout
    assert "llm can't read its keys" in told or "llm can't load scripted" in told
    keys.unlink()
    here.run("update")
    assert here.facts == [SAID]
    assert here.problems() == ""
