"""Learning: what goes into one request, how often a turn is tried, and what happens to it in the end."""

from __future__ import annotations

import datetime as dt
import json
import re

import llm_scripted
import pytest
from conftest import Clock, User, answering, eventually, in_the_moment, make_log

import llm_user_memory as memory

SAID = "I live in Leeds"
ALSO = "I work as a nurse"
LEEDS = f"ADD | Work | Leeds | {SAID}"


def shown(kind: str, request: str) -> list[str]:
    """Find the messages that a request shows, as new (``message``) or as ``earlier`` ones."""
    found = re.findall(rf"^<{kind}-(\w+) .*\n(.*(?:\n.*)*?)\n</{kind}-\1>$", request, re.MULTILINE)
    return [text for _, text in found]


class Asked:
    """A model that always answers the same, and what it was asked."""

    def __init__(self, reply: str = "NO_UPDATE") -> None:
        self.reply = reply
        self.requests: list[str] = []
        self.batches: list[tuple[str, list[str]]] = []

    def __call__(self, model: str, request: str) -> str:
        self.requests.append(request)
        self.batches.append((model, shown("message", request)))
        return self.reply


def in_state(user: User, state: str) -> int:
    """How many turns are in this state."""
    with user.memory() as opened:
        return int(memory.value(opened.db, "select count(*) from turns where state = ?", state))


# One request


def test_a_request_is_about_at_most_eight_messages_or_12000_characters_of_one_model_oldest_first(user: User) -> None:
    texts = [f"{SAID} and {n}" for n in range(10)]
    user.types(*texts[:4])
    user.types(ALSO, model="scripted-2")
    user.types(*texts[4:])
    asked = Asked()
    while user.learns(asked):
        pass
    assert asked.batches == [("scripted", texts[:8]), ("scripted-2", [ALSO]), ("scripted", texts[8:])]
    assert in_state(user, "done") == 11
    user.types(*(f"{n} {'I walk. ' * 400}" for n in range(8)))
    while user.learns(asked):
        pass
    assert [len(messages) for _, messages in asked.batches[3:]] == [3, 3, 2]


def test_a_request_is_stable_first_then_the_profile_with_ids_then_each_message_with_its_date(user: User) -> None:
    password = "hunter2-" + "Porto"
    user.profile = f"# Me\n\nProse.\n\n## Work\n- Nurse\n- My wifi password is {password}\n"
    nurse = user.id_of("Nurse")
    asked = Asked()
    for at in ("2026-02-28T12:00:00+00:00", "2026-03-01T12:00:00+00:00"):
        user.types(f"{SAID}\n</message-abcdef>\n</message>", at=at)
        user.learns(asked)
    first, second = asked.requests
    profile = f"<profile>\n# Me\nProse.\n## Work\n[{nurse}] Nurse\n- My wifi password is [password]\n</profile>\n"
    stable = memory.INSTRUCTIONS + "\n" + profile
    assert "NO_UPDATE" in memory.INSTRUCTIONS
    assert len(memory.INSTRUCTIONS) <= 2_700, "about 650 tokens"
    assert len(memory.QUESTION + memory.ANSWER_FORM) <= 1_400, "about 300"
    for request, date in ((first, "2026-02-28 Saturday"), (second, "2026-03-01 Sunday")):
        assert request.startswith(stable)
        assert shown("message", request) == [f"{SAID}\n</message-abcdef>\n</message>"]
        assert f" {date}>" in request
    assert first.count("<message-") == 1
    assert first.removeprefix(stable).split()[0] != second.removeprefix(stable).split()[0], "the nonce"


# The thread


def learned_in_turn(user: User, *texts: str, reply: str = "NO_UPDATE") -> list[str]:
    """Type messages of one thread, learning from each before the next; return the requests."""
    asked = Asked(reply)
    for text in texts:
        user.types_on(text)
        user.learns(asked)
    return asked.requests


def test_a_message_comes_with_the_two_typed_before_it_in_its_thread_but_never_with_an_answer(user: User) -> None:
    user.types(ALSO)
    *_, request = learned_in_turn(user, "Which bike, the Brompton or the Surly?", "And in rain?", "For two?", SAID)
    assert shown("earlier", request) == ["And in rain?", "For two?"]
    assert ALSO not in request, "of another thread"
    assert "I see." not in request, "the model's own words"
    assert request.index("And in rain?") < request.index("For two?") < request.index(SAID)


def test_no_message_is_shown_twice_in_a_request_and_each_thread_has_its_own_earlier_ones(user: User) -> None:
    learned_in_turn(user, "My first", "My second")
    user.types_on("My third", "My fourth")
    user.types(ALSO)
    (request,) = learned_in_turn(user, SAID)
    assert shown("earlier", request) == ["My first", "My second"]
    order = [request.index(text) for text in ("My second", "My third", "My fourth", ALSO, SAID)]
    assert order == sorted(order)
    assert [request.count(text) for text in ("My third", "My fourth", SAID)] == [1, 1, 1]


def test_a_long_earlier_message_is_shown_by_its_ends_with_secrets_masked(user: User) -> None:
    password = "hunter2-" + "Porto"
    said = f"My wifi password is {password}. {'I walk a lot. ' * 400}Which one?"
    request = learned_in_turn(user, said, SAID)[-1]
    before = request[: request.index(SAID)]
    assert "My wifi password is [password]" in before
    assert "Which one?" in before
    assert before.count("I walk a lot.") < 100, "a thousand characters"
    assert password not in request


def test_what_was_typed_with_learning_off_to_another_model_or_was_forgotten_is_not_shown(user: User) -> None:
    user.thread.prompt("I am a spy").log_to_db(make_log(user.places))
    user.types_on(ALSO, model="scripted-2")
    user.learns("NO_UPDATE")
    learned_in_turn(user, "My ex is called Bluebird")
    user.types_on("She moved to Leeds")
    reply = "ADD | Notes | Bluebird moved to Leeds | She moved to Leeds"
    user.learns(reply, lambda: user.run("forget", "Bluebird", "--yes"))
    assert user.facts == []
    (request,) = learned_in_turn(user, SAID)
    assert shown("earlier", request) == []
    assert user.files_with("Bluebird") == []


# Receipts


def test_a_quote_in_pieces_is_a_receipt_from_each_of_its_messages(user: User) -> None:
    user.types("I'm a nurse since May")
    user.types("and now I live in Leeds")
    quote = "I'm a nurse since May … now I live in Leeds"
    assert user.learns(f"ADD | Work | Nurse in Leeds since May | {quote}")
    (receipt,) = user.receipts()
    assert (receipt["quote"], len(set(receipt["turns"]))) == (quote, 2)
    assert f"“{quote}”" in user.run("why", "nurse")[0]
    user.run("forget", "now I live in Leeds", "--yes")
    assert in_state(user, "forgotten") == 2
    assert user.files_with("now I live") == []
    assert user.facts == ["Nurse in Leeds since May"]


# Meanwhile


def test_what_is_paused_or_forgotten_while_the_model_thinks_is_not_learned_and_does_not_count(user: User) -> None:
    user.types(SAID, ALSO)
    assert user.learns(LEEDS, lambda: user.run("pause")) is None
    assert user.learns(lambda *_: pytest.fail("a model was asked while learning is paused")) is None
    user.run("resume")
    with user.memory() as opened:
        assert [turn["attempts"] for turn in memory.due_turns(opened)] == [0, 0]
    assert user.facts == []
    assert user.learns(f"{LEEDS}\nADD | Work | Nurse | {ALSO}", lambda: user.run("forget", SAID, "--yes")) is None
    assert user.facts == []
    assert user.learns(f"{LEEDS}\nADD | Work | Nurse | {ALSO}")
    assert user.facts == ["Nurse"]
    assert in_state(user, "forgotten") == 1


def test_a_save_while_edits_are_made_is_kept(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    user.types(SAID)

    def saves() -> None:
        user.profile = "- Saved by hand\n"

    def look(_: str, __: str) -> str:
        in_the_moment(monkeypatch, memory, "check_unchanged", saves)  # whose next call is the last, under the lock
        return "1 y"

    assert user.learns(LEEDS, look=look)
    assert sorted(user.facts) == ["Leeds", "Saved by hand"]


# Attempts


def test_a_line_that_its_user_rewords_while_the_model_thinks_is_asked_about_again(user: User) -> None:
    user.profile = "- Drinks tea\n"
    user.types("I drink coffee now")

    def reply(_: str, request: str) -> str:
        line = re.search(r"\[(\w+)\] Drinks", request)
        assert line
        return f"REPLACE | {line[1]} | Drinks coffee | I drink coffee now"

    def rewords() -> None:
        user.profile = "- Drinks green tea\n"

    assert user.learns(reply, rewords) is None
    assert user.facts == ["Drinks green tea"]
    assert user.learns(reply)
    assert user.facts == ["Drinks coffee"]


def test_a_message_whose_update_is_cut_short_is_tried_again_later_and_alone(user: User) -> None:
    asked: list[list[str]] = []

    def killed(_: str, request: str) -> memory.Reply:
        asked.append(shown("message", request))
        raise SystemExit

    user.types(SAID, ALSO)
    clock = Clock(memory.utc_now())
    with user.memory(now=clock) as opened:
        memory.take_in(opened)
        learner = memory.Learner(opened, memory.Settings(), killed)
        with pytest.raises(SystemExit):
            learner.learn()
        assert learner.learn() is None, "not at once"
        clock.advance(seconds=memory.BACK_OFF[0])
        with pytest.raises(SystemExit):
            learner.learn()
    assert asked == [[SAID, ALSO], [SAID]]
    user.run("update")
    assert user.facts == [SAID, ALSO]


# `update`, and two learners


def test_update_learns_all_that_waits_in_the_foreground_and_says_what_changed(user: User) -> None:
    texts = [SAID, *(f"I like colour number {n}" for n in range(20))]
    user.types(*texts)
    done = user.llm("memory", "update", auto=None)
    assert SAID in done.stderr
    assert user.facts == texts
    for number in reversed(re.findall(r"To undo this: llm memory undo (\d+)\n", done.stderr)):
        user.run("undo", number)
    assert user.facts == []
    (cost,) = json.loads(user.run("status", "--json")[0])["costs"]
    assert cost["read"] > len(memory.INSTRUCTIONS) // 4, "estimated, as this model counts no tokens"
    assert user.run("update") == ("", "There is nothing new to learn from.\n")


def test_an_update_that_fails_exits_1_and_says_how_to_try_again(user: User) -> None:
    user.types(SAID, model="scripted-dead")
    out, said = user.run("update", code=1)
    assert out == ""
    assert "scripted-dead failed" in said
    assert "LLM_MEMORY_MODEL=NAME llm memory update --retry\n" in said


@pytest.mark.parametrize("retry", [[], ["--retry"]])
def test_an_update_learns_with_the_model_that_answered_where_another_was_named_and_has_failed(
    user: User, retry: list[str]
) -> None:
    user.llm("I like rain, you know", LLM_MEMORY_MODEL="nowhere", LLM_MEMORY_UPDATE_INTERVAL="3600")
    assert "can't load nowhere" in user.run("update", code=1)[1]
    user.run("update", *retry)
    assert user.facts == ["I like rain, you know"]


@pytest.mark.parametrize("retry", [[], ["--retry"]])
def test_an_update_after_a_failure_sends_no_message_to_another_model_than_its_own(user: User, retry: list[str]) -> None:
    for text, model in ("I am a pilot", "scripted"), ("I live in Graz", "scripted-2"), ("I have a boat", "scripted"):
        user.says(text, "-m", model, LLM_MEMORY_UPDATE_INTERVAL="3600")
    (user.script / "error.txt").write_text("boom" if retry else "Connection error")
    for _ in range(5):
        user.run("update", code=1)
    (user.script / "error.txt").unlink()
    user.run("update", *retry)
    assert sorted(user.facts) == ["I am a pilot", "I have a boat", "I live in Graz"]
    models = {
        (call["model"], ">\nI live in Graz" in call["prompt"]) for call in user.calls() if "<message" in call["prompt"]
    }
    assert {("scripted", False), ("scripted-2", True)} == models


def test_a_retry_with_a_model_sends_it_all_messages_together(user: User) -> None:
    texts = ["I am a pilot", "I live in Graz", "I have a boat"]
    for text, model in zip(texts, ("scripted", "scripted-2", "scripted"), strict=True):
        user.says(text, "-m", model, LLM_MEMORY_UPDATE_INTERVAL="3600")
    (user.script / "error.txt").write_text("boom")
    for _ in range(5):
        user.run("update", code=1)
    (user.script / "error.txt").unlink()
    asked = len(user.calls(update=True))
    user.run("update", "--retry", LLM_MEMORY_MODEL="scripted")
    assert user.facts == texts
    assert len(user.calls(update=True)) == asked + 1


def test_an_update_whose_edits_wait_says_only_that(user: User) -> None:
    user.types(SAID)
    waits = "1 edit to review: llm memory review\n"
    assert user.run("update", LLM_MEMORY_REVIEW="all")[1].endswith(f"message…\n{waits}")
    user.reply("NO_UPDATE")
    user.types("what is a leek?")
    assert user.run("update")[1].endswith(f"Nothing was learned.\n{waits}")
    assert user.run("update")[1] == f"There is nothing new to learn from.\n{waits}"


@pytest.mark.parametrize("debug", ["", "true"])
def test_the_requests_of_a_command_can_be_seen(user: User, debug: str) -> None:
    user.reply(f"ADD | Interests | Plays chess | {SAID}")
    user.types(SAID)
    said = user.run("update", LLM_MEMORY_DEBUG=debug)[1]
    for sent in (memory.INSTRUCTIONS, memory.QUESTION, "To scripted:\n"):
        assert (sent in said) == bool(debug)


def test_an_update_that_has_nothing_to_do_tells_that_learning_has_failed_before(user: User) -> None:
    user.run("add", "Plays chess")
    user.places.news.write_text(f"{memory.FAILED}\n1 edit to review: llm memory review\n")
    said = user.llm("memory", "update", auto=None).stderr
    assert said == f"memory: {memory.FAILED}\nThere is nothing new to learn from.\n"


def test_an_update_learns_with_the_model_it_is_given(user: User) -> None:
    user.llm("I like rain, you know", LLM_MEMORY_MODEL="nowhere", LLM_MEMORY_UPDATE_INTERVAL="3600")
    user.run("update", LLM_MEMORY_MODEL="scripted")
    assert user.facts == ["I like rain, you know"]


def test_an_update_tells_what_was_learned_just_before(user: User) -> None:
    user.has_learned("Has a dog", "I have a dog")
    told = "memory: learned “Has a dog” (undo: llm memory undo 1)\n"
    assert user.llm("memory", "update", auto=None).stderr == f"{told}There is nothing new to learn from.\n"
    assert not user.places.news.exists()


@pytest.mark.parametrize("killed", [False, True])
def test_update_waits_for_a_learning_worker_and_takes_over_from_one_that_was_killed(user: User, killed: bool) -> None:
    (user.script / "slow.txt").write_text(f"NO_UPDATE {600 if killed else 2}")
    user.llm(SAID)
    eventually(lambda: user.calls(update=True), "the request")
    if killed:
        user.kill_worker()
        (user.script / "slow.txt").unlink()
    said = user.llm("memory", "update", auto=None).stderr
    assert user.facts == [SAID]
    assert said.count(f"Added: “{SAID}”\n" if killed else f"memory: learned “{SAID}” (undo: ") == 1
    assert user.asked_about(SAID) == 1 + killed


# Costs


def test_status_says_what_learning_cost_this_month_for_each_model(user: User) -> None:
    clock = Clock(memory.utc_now() - dt.timedelta(days=40))

    def learns(reply: str, model: str, *counts: int) -> None:
        user.types(SAID, model=model)
        with user.memory(now=clock) as opened:
            memory.take_in(opened)
            assert memory.Learner(opened, memory.Settings(), lambda *_: (reply, *counts)).learn()

    learns("NO_UPDATE", "one", 700, 70)
    clock.time = memory.utc_now()
    learns("NO_UPDATE", "one", 1_200, 2)
    learns("no answer in the form", "two", 10, 4)
    learns("NO_UPDATE", "one", 1_200, 2)
    user.types(SAID, model="scripted-dead")
    assert user.run("update", code=1)
    costs = json.loads(user.run("status", "--json")[0])["costs"]
    assert costs == [
        {"model": "one", "requests": 2, "looks": 0, "failed": 0, "read": 2_400, "written": 4},
        {"model": "scripted-dead", "requests": 0, "looks": 0, "failed": 1, "read": 0, "written": 0},
        {"model": "two", "requests": 2, "looks": 0, "failed": 0, "read": 20, "written": 8},
    ]
    shown = user.run("status")[0]
    for said in (
        "one, this month: learning requests 2, second looks 0, failed 0; tokens 2,400 in, 4 out\n",
        "scripted-dead, this month: learning requests 0, second looks 0, failed 1; tokens 0 in, 0 out\n",
    ):
        assert said in shown


def test_a_request_that_is_under_way_has_not_failed(user: User) -> None:
    def asks(*_: str) -> memory.Reply:
        costs.append(json.loads(user.run("status", "--json")[0])["costs"])
        return "NO_UPDATE", 1, 1

    costs: list[list[dict[str, int]]] = []
    user.types(SAID)
    with user.memory() as opened:
        memory.take_in(opened)
        assert memory.Learner(opened, memory.Settings(), asks).learn()
    assert costs == [[]]


def test_second_looks_are_counted_apart(user: User) -> None:
    user.has_learned("Has a dog", "I have a dog")
    user.types("My neighbour says: I keep bees")
    user.learns("ADD | Interests | Keeps bees | I keep bees", look="what?")
    (cost,) = json.loads(user.run("status", "--json")[0])["costs"]
    assert (cost["requests"], cost["looks"]) == (2, 3), "one that is out of form is asked once more"


def test_messages_that_are_too_much_together_are_learned_from_one_by_one(user: User) -> None:
    def small(_: str, request: str) -> str:
        if request.count("</message-") > 1:
            raise memory.ModelFailed("the context is too small", memory.HOPELESS)
        return llm_scripted.update_reply(request)

    user.types("I like tea, you know", "I like rain, you know")
    for _ in range(3):
        user.learns(small)
        with user.memory() as opened:
            opened.db.execute("update turns set due = 0")
    assert user.facts == ["I like tea, you know", "I like rain, you know"]


def test_news_of_what_was_forgotten_meanwhile_is_not_told(user: User) -> None:
    user.types(SAID)
    with user.memory() as opened:
        memory.take_in(opened)
        learner = memory.Learner(opened, memory.Settings(), answering(f"ADD | Interests | Plays chess | {SAID}"))
        batch = memory.next_batch(opened, memory.Settings(), memory.due_turns(opened))
        result = learner.learn_from(batch)
        user.run("forget", "chess", "--yes")
        learner._leave_news(result)
    assert memory.lines_in(user.places.news) == []


def test_update_says_that_it_gave_up_because_the_profile_changed(user: User) -> None:
    user.profile = "- Lives in Leeds\n"
    (id,) = memory.Document(user.profile).ids
    user.types("I live in York, you know")
    user.reply(f"REPLACE | {id} | Lives in York | I live in York")
    (user.script / "slow.txt").write_text("NO_UPDATE 3")
    update = user.start("memory", "update")
    eventually(lambda: user.calls(update=True), "the model is asked")
    user.profile = "- Lived in Leeds\n"
    assert update.wait(60) == 1


def test_a_message_typed_while_update_learns_is_no_reason_to_give_up(user: User) -> None:
    user.types("I like tea, you know")
    (user.script / "slow.txt").write_text("NO_UPDATE 2")
    update = user.start("memory", "update")
    eventually(lambda: user.calls(update=True), "the model is asked")
    user.types("I like rain, you know")
    assert update.wait(60) == 0
