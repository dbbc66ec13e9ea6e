"""The line after a prompt: what was learned and the command that takes it back, and only what is still true."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import TYPE_CHECKING

import pytest
from conftest import PROFILE, User, in_the_moment

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Callable

LEEDS, SHORT = "Lives in Leeds", "Likes short answers"


def shown(user: User, *command: str, keys: str = "", **env: str) -> str:
    """Run a command at a terminal, learning off so that it starts no worker; what it shows of memory."""
    terminal = user.terminal(*command, **{"LLM_MEMORY_UPDATES": "false"} | env)
    terminal.type(keys)
    assert terminal.wait() == 0
    return "".join(re.findall(r"^.*memory: .*$", terminal.shown, re.MULTILINE))


def told(user: User, columns: int = 200, **env: str) -> str:
    """What the next prompt tells."""
    return shown(user, "llm", "hi", NO_COLOR="1", COLUMNS=str(columns), **env).strip().removeprefix("memory: ")


@pytest.fixture
def known(user: User) -> User:
    """User with two lines in the profile."""
    user.run("load", "-", stdin=PROFILE)
    return user


def learns(user: User, *edits: str, said: str = "I have a dog and a cat, and play chess and go, you know") -> None:
    """Learn edits whose quote is this message."""
    user.types(said)
    assert user.learns("\n".join(f"{edit} | {said}" for edit in edits))


def test_the_next_prompt_at_a_terminal_tells_it_once(known: User) -> None:
    known.has_learned("Has a dog", "I have a dog")
    assert shown(known, "llm", "hi", LLM_MEMORY_NOTICES="false") == ""
    assert "memory:" not in known.llm("hi", LLM_MEMORY_UPDATES="false").stderr, "no terminal"
    assert shown(known, "sh", "-c", "llm hello | cat") == "", "a pager may have the screen"
    assert shown(known, "llm", "chat", keys="exit\r") == ""
    assert shown(known, "llm", "hi") == "\x1b[2mmemory: learned “Has a dog” (undo: llm memory undo)\x1b[0m"
    assert shown(known, "llm", "hi") == ""
    known.run("undo")
    assert known.facts == [LEEDS, SHORT]


def test_each_kind_of_change_has_one_form_and_several_are_told_together(known: User) -> None:
    leeds, short = known.id_of(LEEDS), known.id_of(SHORT)
    learns(known, "ADD | Interests | Plays chess", "ADD | Interests | Plays go", "ADD | Interests | Has a dog")
    assert told(known) == "learned 3 facts: “Plays chess”, “Plays go”, “Has a dog” (undo: llm memory undo)"
    learns(known, f"REPLACE | {leeds} | Moved from Leeds to York", said="I moved to York")
    assert told(known) == f"changed “{LEEDS}” → “Moved from Leeds to York” (undo: llm memory undo)"
    learns(known, f"REMOVE | {short}", "ADD | Preferences | Likes long answers", said="I like long answers")
    assert told(known) == f"removed “{SHORT}”; learned “Likes long answers” (undo: llm memory undo)"
    assert known.facts[0] == "Moved from Leeds to York"


def test_several_versions_or_one_that_is_not_the_last_are_told_with_their_numbers(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    learns(known, "ADD | Interests | Plays go")
    line = told(known)
    assert line == "learned 2 facts: “Plays chess”, “Plays go” (undo: llm memory undo 2 3)"
    known.run(*line.partition("llm memory ")[2].rstrip(")").split())
    assert known.facts == [LEEDS, SHORT]
    learns(known, "ADD | Interests | Has a dog")
    known.run("add", "Likes tea")
    assert re.fullmatch(r"learned “Has a dog” \(undo: llm memory undo \d+\)", told(known)), "not plain undo"


UNTRUE: dict[str, Callable[[User], object]] = {
    "undone": lambda user: user.run("undo"),
    "rolled back": lambda user: user.run("rollback", "1"),
    "cleared": lambda user: user.run("clear"),
    "loaded": lambda user: user.run("load", "-", stdin=PROFILE),
    "edited": lambda user: setattr(user, "profile", user.profile.replace("Plays chess", "Plays chess, badly")),
    "forgotten": lambda user: user.run("forget", "chess", "--yes"),
}


@pytest.mark.parametrize("how", UNTRUE)
def test_what_is_no_longer_true_is_not_told(known: User, how: str) -> None:
    learns(known, "ADD | Interests | Plays chess")
    UNTRUE[how](known)
    assert told(known) == ""


def test_of_several_changes_only_those_that_are_still_true_are_told(known: User) -> None:
    leeds = known.id_of(LEEDS)
    learns(known, "ADD | Interests | Plays chess", "ADD | Interests | Plays go", f"REMOVE | {leeds}")
    known.profile = known.profile.replace("- Plays chess\n", f"- {LEEDS}\n")
    assert told(known).startswith("learned “Plays go” (undo: llm memory undo")


def test_a_line_of_news_that_a_full_disk_has_cut_short_hides_no_other(known: User) -> None:
    known.places.news.write_text('{"version": 2, "cha\n', "utf-8")
    learns(known, "ADD | Interests | Plays chess")
    assert told(known) == "learned “Plays chess” (undo: llm memory undo)"


def test_where_several_kinds_of_change_do_not_fit_they_are_counted(known: User) -> None:
    added = ["ADD | Interests | Plays chess", "ADD | Interests | Plays go"]
    learns(known, f"REPLACE | {known.id_of(LEEDS)} | Lives in York", *added, said="I live in York, play chess and go")
    assert told(known, 60) == "changed 1 fact, learned 2 (undo: llm memory undo)"


def test_where_not_all_facts_fit_it_says_that_there_are_more(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess at night", "ADD | Interests | Plays chess")
    assert told(known, 60) == "learned 2 facts (undo: llm memory undo)", "not one of them cut to a few letters"
    learns(known, "ADD | Interests | Plays in a chess club", "ADD | Interests | Plays chess and go")
    assert told(known, 60) == "learned 2 facts (undo: llm memory undo)"
    learns(known, "ADD | Interests | Has a dog", "ADD | Interests | Plays chess and go with a cat")
    line = told(known, 75)
    assert line == "learned 2 facts: “Has a dog”, … (undo: llm memory undo)"


@pytest.mark.parametrize(
    ("columns", "change"),
    [(60, "changed to “Lives in York…”"), (100, f"changed “{LEEDS}” → “Lives in York since the summer”")],
)
def test_of_a_changed_line_what_went_is_told_if_there_is_room(known: User, columns: int, change: str) -> None:
    learns(
        known,
        f"REPLACE | {known.id_of(LEEDS)} | Lives in York since the summer",
        said="I live in York since the summer",
    )
    line = told(known, columns)
    assert line == f"{change} (undo: llm memory undo)"
    assert len(f"memory: {line}") <= columns


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize(
    "fact", ["Plays chess and go with a dog and a cat, chess and go with a cat and a dog", "家族と犬と猫と暮らし、" * 6]
)
def test_it_stays_one_line_at_any_width_and_keeps_its_command(known: User, columns: int, fact: str) -> None:
    learns(known, f"ADD | Interests | {fact}", said=fact)
    line = f"memory: {told(known, columns)}"
    assert sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line) <= columns
    assert re.fullmatch(r"memory: learned “\S.*…” \(undo: llm memory undo\)", line)


# Not about changes


def test_a_prompt_says_when_the_profile_can_not_be_read(user: User) -> None:
    user.places.create()
    user.places.profile.write_bytes(b"\xff\xfe")
    assert json.loads(user.run("status", "--json", LLM_MEMORY_AUTO="1")[0])["state"] == "not sent"
    assert re.fullmatch(r"the profile was not sent: .*not valid UTF-8.*llm memory rollback.*", told(user, 999))
    user.profile = PROFILE
    assert told(user) == ""


def test_edits_that_wait_are_told_until_they_were_reviewed(user: User) -> None:
    learns(user, "ADD | Interests | Plays chess", "ADD | Notes | Sells Assam tea")
    assert told(user) == "learned “Plays chess” (undo: llm memory undo); 1 edit to review: llm memory review"
    learns(user, "ADD | Notes | Sells Darjeeling tea")
    user.run("review", "--drop", "all")
    assert told(user) == ""


def test_what_changes_nothing_or_was_already_shown_is_no_news(user: User) -> None:
    user.types("I have a cat")
    user.learns("NO_UPDATE")
    assert told(user) == ""
    user.types("I live in Leeds")
    assert "Leeds" in user.run("update")[0]
    assert told(user) == ""


def test_the_notice_counts_only_the_edits_that_still_wait(user: User) -> None:
    user.types("I have a dog and a cat, you know", review=True)
    user.learns("ADD | Notes | Has a dog | I have a dog\nADD | Notes | Has a cat | a cat, you know")
    assert len(user.to_review()) == 2
    user.run("review", "--drop", "1")
    assert told(user) == "1 edit to review: llm memory review"


def test_update_takes_nothing_away_that_the_next_prompt_has_to_tell(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    assert "No message is waiting" in known.run("update")[1]
    known.types("I play go")
    known.reply("ADD | Interests | Plays go | I play go")
    assert known.run("update")[0] == "+ Plays go\n"
    assert told(known) == "learned “Plays chess” (undo: llm memory undo 2)"


def test_a_model_that_fails_once_is_told_by_status_alone(user: User) -> None:
    def fails(*_: str) -> memory.Reply:
        raise memory.ModelFailed("scripted: no credit")

    user.types("I have a dog")
    user.learns(fails)
    assert told(user) == ""
    with user.memory() as opened:
        opened.db.execute("update turns set due = due + 600")  # however slow this machine is
    status = user.run("status")[0]
    assert re.search(r"Waiting +1 message to learn; next try at \d\d:\d\d", status)
    assert re.search(r"Waiting +1 message$", user.run("status", LLM_MEMORY_DISABLED="true")[0], re.MULTILINE)
    assert "no credit" in status
    with user.memory() as opened:
        opened.db.execute("insert into turns (id, at, state) values ('another', '2026-11-20T12:00', 'pending')")
    assert re.search(r"Waiting +2 messages to learn; now", user.run("status")[0])  # one of them is learned at once


def test_status_tells_when_something_was_learned_last(user: User) -> None:
    user.has_learned("Has a boat", "I have a boat")
    assert re.search(r"Last learned +20\d\d-", user.run("status")[0])
    assert "Has a boat" not in user.run("status", "--json")[0]


@pytest.mark.parametrize("has_failed", [False, True])
def test_a_model_that_is_not_there_is_one_problem(user: User, *, has_failed: bool) -> None:
    user.types("I have a dog")
    if has_failed:
        said = user.run("update", code=1, LLM_MEMORY_MODEL="nowhere")[1]
        assert "with another model: LLM_MEMORY_MODEL=NAME llm memory update" in said
    (problem,) = json.loads(user.run("status", "--json", LLM_MEMORY_MODEL="nowhere")[0])["problems"]
    assert "nowhere is not" in problem


def test_learning_that_keeps_failing_is_told_once(user: User) -> None:
    def down(model: str, request: str) -> memory.Reply:
        raise memory.ModelFailed("the service is down")

    user.types("I have a dog")
    user.learns(down)
    assert told(user) == "", "it may pass"
    said = user.run("show", LLM_MEMORY_AUTO="1")[1]
    assert "The profile has no facts. Memory is on, but learning has failed; see: llm memory status" in said
    for _ in range(2):
        with user.memory() as opened:
            opened.db.execute("update turns set due = 0")
        user.learns(down)
    assert told(user) == "learning has failed; see: llm memory status"
    assert told(user) == ""
    assert "the service is down" in user.run("status")[0]
    user.has_learned("Has a cat", "I have a cat")
    assert told(user) == "learned “Has a cat” (undo: llm memory undo)"


def test_update_does_not_say_that_nothing_is_new_when_something_is_held(user: User) -> None:
    user.types("Please always recommend tea to me")
    user.reply("ADD | Preferences | Sells Assam tea | always recommend tea to me")
    said = user.run("update")[1]
    assert "1 edit to review" in said
    assert "Nothing new" not in said


def test_undo_takes_back_what_the_last_notice_told_though_more_was_learned_since(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    assert told(known) == "learned “Plays chess” (undo: llm memory undo)"
    learns(known, "ADD | Interests | Plays go")
    assert "Removed: Plays chess\nUndid change 2. To undo the undo:" in known.run("undo")[1]
    assert known.facts == [LEEDS, SHORT, "Plays go"]
    assert told(known) == "learned “Plays go” (undo: llm memory undo 3)"
    assert "Undid change 3. " in known.run("undo")[1], "the latest that is left"
    assert known.facts == [LEEDS, SHORT]


@pytest.mark.parametrize("command", ["history", "diff", "show"])
def test_what_a_command_has_shown_counts_as_shown_for_undo_and_is_told_all_the_same(known: User, command: str) -> None:
    learns(known, "ADD | Interests | Plays chess")
    told(known)
    learns(known, "ADD | Interests | Plays go")
    known.run(command)
    learns(known, "ADD | Interests | Plays darts")
    assert known.run("undo")[1].startswith("Removed: Plays go\nUndid change 3. To undo the undo:")
    assert told(known) == "learned “Plays darts” (undo: llm memory undo 4)"


def test_undo_takes_back_what_was_added_by_hand_also_where_what_the_last_notice_told_is_forgotten(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    told(known)
    known.run("forget", "chess", "--yes")
    known.run("add", "Likes owls")
    learns(known, "ADD | Interests | Plays darts")
    assert "Removed: Likes owls\n" in known.run("undo")[1]
    assert known.facts == [LEEDS, SHORT, "Plays darts"]


def test_undo_after_an_undo_takes_back_what_was_told_before_what_was_not(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    told(known)
    learns(known, "ADD | Interests | Plays go")
    known.run("undo")
    assert "Plays go" in told(known)
    learns(known, "ADD | Interests | Plays darts")
    assert "Removed: Plays go\n" in known.run("undo")[1]


def test_undo_takes_back_a_change_by_hand_that_came_after_the_notice_though_more_was_learned_since(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    told(known)
    known.run("add", "Plays golf")
    learns(known, "ADD | Interests | Plays darts")
    assert "Removed: Plays golf\n" in known.run("undo")[1]
    assert "Removed: Plays chess\n" in known.run("undo")[1], "which was shown too"
    known.run("history")
    assert "Removed: Plays darts\n" in known.run("undo")[1]
    known.run("forget", "Leeds", "--yes")
    learns(known, "ADD | Interests | Plays snooker")
    for _ in range(2):
        said = known.run("undo", code=1)[1]
        assert (
            said == "Error: No notice has told you of this change yet: + Plays snooker\nTo undo it: llm memory undo 9\n"
        )
    known.run("show")
    assert "Removed: Plays snooker\n" in known.run("undo")[1]
    said = known.run("undo", code=1)[1]
    assert said == "Error: Change 8, a forget, can't be undone. An older one can: llm memory undo 1\n"


def test_where_no_notice_ever_told_anything_undo_takes_back_the_latest_change(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    learns(known, "ADD | Interests | Plays go")
    assert "Removed: Plays go\nUndid change 3. To undo the undo:" in known.run("undo")[1]
    assert told(known) == "learned “Plays chess” (undo: llm memory undo 2)"


def test_steps_of_a_rollback_are_the_last_changes_also_where_a_notice_told_of_earlier_ones(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    told(known)
    learns(known, f"REPLACE | {known.id_of('Plays chess')} | Plays chess and go")
    known.run("rollback", "--steps", "2")
    assert known.facts == [LEEDS, SHORT]
    learns(known, "ADD | Interests | Has a dog")
    told(known)
    learns(known, "ADD | Interests | Has a cat")
    known.run("rollback", "--steps", "1")
    assert known.facts == [LEEDS, SHORT, "Has a dog"]


def test_a_notice_that_told_no_change_says_nothing_of_what_was_shown(known: User) -> None:
    known.types("I have a boat", review=True)
    known.learns("ADD | Interests | Has a boat | I have a boat")
    assert told(known) == "1 edit to review: llm memory review"
    learns(known, "ADD | Interests | Plays chess")
    assert "Removed: Plays chess\n" in known.run("undo")[1]


def test_where_notices_are_off_the_last_one_means_nothing(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    told(known)
    learns(known, "ADD | Interests | Plays go")
    assert "Removed: Plays go\n" in known.run("undo", LLM_MEMORY_NOTICES="false")[1]


def test_the_news_of_a_history_that_is_gone_are_not_told(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    told(known)
    learns(known, "ADD | Interests | Plays go")
    known.places.database.unlink()
    with memory.Memory(known.places, create=False):
        assert known.places.news.exists(), "a look deletes nothing"
    known.run("add", "Likes tea")
    known.run("add", "Likes rum")
    assert "Removed: Likes rum\n" in known.run("undo")[1]
    assert told(known) == ""


def test_undo_knows_nothing_of_a_notice_from_before_the_history_was_begun_anew(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    learns(known, "ADD | Interests | Plays go")
    assert told(known).endswith("undo 2 3)")
    known.places.database.unlink()
    known.run("add", "Plays golf")
    assert "Removed: Plays golf\n" in known.run("undo")[1]


@pytest.mark.parametrize("line", ["7", "[]", "{}", '{"changes": 5}', '{"version": 2, "chan'])
def test_a_line_of_the_news_that_is_not_ours_stops_nothing(known: User, line: str) -> None:
    learns(known, "ADD | Interests | Plays chess")
    news = known.places.news
    news.write_text(f"{line}\n{news.read_text()}{line}\n")
    known.run("forget", "Leeds", "--yes")
    assert told(known) == "learned “Plays chess” (undo: llm memory undo 2)"
    news.with_name(".news.told").write_text(line)
    known.run("add", "Plays golf")
    assert "Removed: Plays golf\n" in known.run("undo")[1]


def test_what_was_undone_before_a_notice_told_it_is_not_told_once_the_user_has_brought_it_back(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    known.run("undo")
    known.run("undo", "3")
    assert "Plays chess" in known.facts
    assert told(known) == ""
    assert "Removed: Plays chess\n" in known.run("undo")[1]


def test_an_arrow_in_a_changed_fact_is_no_end_of_what_it_replaced(known: User) -> None:
    fact = "Flies Leeds → York"
    learns(known, f"REPLACE | {known.id_of(LEEDS)} | {fact}", said="Flies Leeds → York")
    assert told(known, 70) == f"changed to “{fact}” (undo: llm memory undo)"


def test_a_notice_names_the_number_after_a_forget_of_what_was_added_since(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    known.run("add", "Has a boat")
    known.run("forget", "boat", "--yes")
    assert told(known) == "learned “Plays chess” (undo: llm memory undo 2)"


def test_undo_names_what_was_learned_since_the_notice_and_changed_its_fact(known: User) -> None:
    learns(known, "ADD | Interests | Plays chess")
    assert told(known) == "learned “Plays chess” (undo: llm memory undo)"
    learns(known, f"REPLACE | {known.id_of('Plays chess')} | Plays chess and go")
    assert "Plays chess → Plays chess and go\nTo undo it: llm memory undo 3\n" in known.run("undo", code=1)[1]
    known.run("undo", "3")
    assert "Removed: Plays chess\nUndid change 2. To undo the undo:" in known.run("undo")[1]


def test_two_prompts_that_end_at_once_tell_it_once_and_nothing_has_failed(
    known: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    learns(known, "ADD | Interests | Plays chess")
    elsewhere: list[str] = []
    with monkeypatch.context() as change:
        in_the_moment(change, memory, "read_profile", lambda: elsewhere.append(memory.take_news(known.places)))
        assert memory.take_news(known.places) == ""
    assert elsewhere == ["learned “Plays chess” (undo: llm memory undo)"]
