"""Condensing: learned lines are made shorter, above the budget and on demand, and nothing else is touched."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from conftest import answering

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import User

SAID = "I live in Leeds"
TWINS = ["Works as a nurse in Hull", "Is a nurse, on night shifts", "Plays the oboe"]
LARGE = [f"Fact number {n}, of an ordinary length, about me and Hull" for n in range(200)]


def has_learned(user: User, *facts: str, own: str = "") -> None:
    """Fill a profile with learned lines and the user's own."""
    user.profile = own
    said = memory.Message("As I typed it", "turn-1", "thread-1", "2026-11-20T09:00:00+00:00")
    proofs = [memory.Verdict(memory.Edit("ADD", "Notes", fact, fact), "apply", "", (said,)) for fact in facts]
    with user.memory() as opened:
        opened.history.change(
            "worker",
            lambda text: text + "".join(f"- {fact}\n" for fact in facts),
            lambda version: memory.record_edits(opened, proofs, "scripted", version),
        )


def condense(user: User, reply: str = "NO_UPDATE", **env: str) -> str:
    """Run the command with a model that answers so; return what it says."""
    user.reply(reply)
    return user.llm("memory", "condense", auto=None, check=False, **env).stderr


# On demand


def test_condense_merges_learned_lines_shows_the_change_and_how_to_undo_it(user: User) -> None:
    facts = [*TWINS, *LARGE[:9]]
    has_learned(user, *facts)
    first, second, third = map(user.id_of, TWINS)
    said = condense(
        user,
        f"REPLACE | {first} | Nurse in Hull, on night shifts | Works as a nurse in Hull … on night shifts\n"
        f"REMOVE | {second} | Is a nurse, on night shifts\n"
        f"REMOVE | {third} | Plays the oboe",
    )
    assert user.facts == ["Nurse in Hull, on night shifts", *LARGE[:9]]
    assert "with scripted…" in said
    assert "Changed: “Works as a nurse in Hull” → “Nurse in Hull, on night shifts”\nMerged: “Is a nurse" in said
    (undo,) = re.findall(r"llm memory (undo[ \d]*)", said)
    assert not user.places.news.exists(), "told already"
    (nurse,) = json.loads(user.run("why", "in Hull", "--json")[0])
    assert [line["text"] for line in nurse["before"]] == [TWINS[0], TWINS[1]], "of all lines that it stands for"
    shown = user.run("why", "night")[0]
    assert shown.startswith("Nurse in Hull, on night shifts\n    from lines of the profile; learned with scripted\n")
    assert [line for line in shown.splitlines()[2:] if "learned with" not in line] == [
        "before that: Works as a nurse in Hull",
        "    you typed: “Works as a nurse in Hull”",
        "before that: Is a nurse, on night shifts",
        "    you typed: “Is a nurse, on night shifts”",
    ]
    said = user.run(*undo.split())[1]
    assert user.facts == facts
    assert "Changed: “Nurse in Hull, on night shifts” → “Works as a nurse in Hull”\nAdded: “Is a nurse" in said


def test_why_tells_of_no_line_that_went_into_another(user: User) -> None:
    has_learned(
        user, "Works as a nurse in Hull", "Is on night shifts", "Has a flat in Hull", "Rents it out", *LARGE[:9]
    )
    nurse, nights, flat, rent = map(user.id_of, user.facts[:4])
    condense(
        user,
        f"REPLACE | {nurse} | Nurse in Hull, on night shifts | nurse in Hull … in Hull … on night shifts\n"
        f"REMOVE | {nights} | Is on night shifts\n"
        f"REPLACE | {rent} | Rents out a flat in Hull | Rents it out … Has a flat\n"
        f"REMOVE | {flat} | Has a flat in Hull",
    )
    (line,) = json.loads(user.run("why", "nurse", "--json")[0])
    assert [one["text"] for one in line["before"]] == ["Works as a nurse in Hull", "Is on night shifts"]


def test_the_users_own_line_is_shown_without_an_id_and_can_be_neither_changed_nor_quoted(user: User) -> None:
    has_learned(user, *TWINS, own="# Me\n- Speaks Czech\n")
    oboe = user.id_of("Plays the oboe")
    condense(user, f"REMOVE | {user.id_of('Speaks Czech')} | Speaks Czech\nREPLACE | {oboe} | Oboist | Speaks Czech")
    (call,) = user.calls(update=True)
    assert "\n- Speaks Czech\n" in call["prompt"]
    assert f"[{oboe}] Plays the oboe" in call["prompt"]
    assert user.facts == ["Speaks Czech", *TWINS]


def test_a_line_that_its_user_wrote_again_is_their_own(user: User) -> None:
    rex = "Has a dog called Rex"
    has_learned(user, rex, *TWINS)
    user.run("remove", rex)
    user.run("add", rex)
    condense(user, f"REMOVE | {user.id_of(rex)} | dog called Rex")
    assert rex in user.facts
    assert "written, not learned (add)" in user.run("why", rex)[0]


def test_a_line_that_its_user_reworded_in_review_is_their_own(user: User) -> None:
    has_learned(user, *TWINS)
    user.has_to_review(memory.Edit("ADD", "Notes", "Speaks Czech", "I speak Czech"))
    user.run("review", stdin="e\n", VISUAL="sed -i 'c Speaks fluent Czech'")
    assert "Speaks fluent Czech" in user.facts
    condense(user, "NO_UPDATE")
    (call,) = user.calls(update=True)
    assert "\n- Speaks fluent Czech\n" in call["prompt"], "without an id"


def test_condense_asks_no_model_where_nothing_was_learned_and_says_so(user: User) -> None:
    user.profile = "- Speaks Czech\n- Speaks some Czech\n"
    assert "Nothing changed" in condense(user)
    assert user.calls() == []
    has_learned(user, "Plays the oboe")
    assert "Nothing changed" in condense(user)


def test_condense_on_a_first_day_says_that_nothing_changed(user: User) -> None:
    assert "Nothing changed." in user.run("condense")[1]


def test_condense_makes_no_edit_without_a_quote_and_leaves_nothing_to_review(user: User) -> None:
    has_learned(user, *TWINS)
    lines = "\n".join(f"REMOVE | {user.id_of(fact)} | I never said that" for fact in TWINS)
    oboe = user.id_of("Plays the oboe")
    lines += "".join(f"\nADD | {section} | Likes tea | Plays the oboe" for section in ("Notes", oboe))
    said = condense(user, lines)
    assert "Nothing changed" in said
    assert (user.facts, user.to_review()) == (TWINS, [])


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("MODEL", "uninstalled", "uninstalled"),
        ("MODEL", "scripted-dead", "scripted-dead failed"),
        ("DISABLED", "1", "Learning is off or paused"),
        ("UPDATES", "0", "Learning is off or paused"),
    ],
)
def test_condense_says_why_it_can_not(user: User, variable: str, value: str, words: str) -> None:
    has_learned(user, *TWINS)
    assert words in condense(user, **{f"LLM_MEMORY_{variable}": value})
    assert not [call for call in user.calls() if call["model"] == "scripted"]
    assert user.facts == TWINS


@pytest.mark.parametrize("line", ["Plays the oboe", "Works as a nurse in Hull"])
def test_what_is_edited_while_it_is_condensed_stays_as_the_user_left_it(user: User, line: str) -> None:
    """Whether it is another line than the one that the model removes, or the same."""

    def ask(model: str, request: str) -> str:
        reply = f"REMOVE | {user.id_of('Plays the oboe')} | Plays the oboe"
        user.profile = user.profile.replace(line, f"{line}, at times")
        return reply

    has_learned(user, *TWINS)
    with user.memory() as opened:
        learner = memory.Learner(opened, memory.Settings(), answering(ask))
        if line == "Plays the oboe":
            with pytest.raises(memory.Problem, match="try again"):
                learner.learn_from(memory.Batch("scripted"))
        else:
            assert learner.learn_from(memory.Batch("scripted")).version
    assert f"{line}, at times" in user.facts
    assert ("Plays the oboe" in user.facts) is False


# Looked at again


def test_a_merge_that_changes_what_the_lines_say_waits_and_takes_no_line_away(user: User) -> None:
    has_learned(user, *TWINS)
    first, second, _ = map(user.id_of, TWINS)
    (user.script / "look.txt").write_text("1 n\n2 y")
    said = condense(
        user,
        f"REPLACE | {first} | Nurse in Leeds | Works as a nurse\nREMOVE | {second} | Is a nurse, on night shifts",
    )
    assert user.facts == TWINS
    assert [edit["reason"] for edit in user.to_review()] == [
        memory.NOT_THE_SAME,
        "a line that was to be merged with it was not changed",
    ]
    assert "2 edits to review" in said
    (look,) = [call["prompt"] for call in user.calls() if call["look"]]
    assert all(line in look for line in TWINS), "the lines as they were"
    assert f"Fact 1: Nurse in Leeds (in place of: {TWINS[0]})\nFact 2: removed: {TWINS[1]}\n" in look


def test_a_line_that_its_user_kept_in_a_review_is_not_condensed_again(user: User) -> None:
    has_learned(user, *TWINS)
    first, _, third = map(user.id_of, TWINS)
    (user.script / "look.txt").write_text("1 n")
    condense(user, f"REMOVE | {first} | Works as a nurse")
    assert user.to_review()
    user.run("review", "--drop", "all")
    (user.script / "look.txt").unlink()
    condense(user, f"REMOVE | {third} | Plays the oboe\nREMOVE | {first} | Works as a nurse")
    assert (user.facts, user.to_review()) == (TWINS[:2], [])


def test_a_removal_that_stands_before_its_merge_waits_with_it(user: User) -> None:
    has_learned(user, *TWINS)
    first, second, _ = map(user.id_of, TWINS)
    (user.script / "look.txt").write_text("1 n\n2 y")
    condense(
        user,
        f"REMOVE | {second} | Is a nurse, on night shifts\nREPLACE | {first} | Nurse in Leeds | Works as a nurse",
    )
    assert user.facts == TWINS


def test_a_removal_alone_is_told_as_such(user: User) -> None:
    has_learned(user, *TWINS, *LARGE[:9])
    assert "Removed: “Plays the oboe”" in condense(user, f"REMOVE | {user.id_of('Plays the oboe')} | Plays the oboe")


def test_why_takes_no_line_for_merged_that_an_older_receipt_happens_to_quote(user: User) -> None:
    has_learned(user, "Nurse in Hull", *LARGE[:9])
    user.types("I am a nurse by trade, in Hull still. My friend Nora is also a nurse in Hull")
    user.learns(
        f"REPLACE | {user.id_of('Nurse in Hull')} | Works as a nurse in Hull | a nurse by trade\n"
        "ADD | Notes | Nora is a nurse in Hull | Nora is also a nurse in Hull"
    )
    nurse, nora = user.id_of("Works as a nurse in Hull"), user.id_of("Nora is a nurse in Hull")
    said = condense(user, f"REPLACE | {nurse} | Nurse in Hull | nurse in Hull\nREMOVE | {nora} | Nora is a nurse")
    assert "Removed: “Nora" in said
    (line,) = json.loads(user.run("why", "Nurse in Hull", "--json")[0])[:1]
    assert [one["text"] for one in line["before"]] == ["Works as a nurse in Hull"]


@pytest.mark.parametrize(
    ("quote", "look"),
    [("Owns a flat … flat in Hull", "1 y\n2 n\n3 y\n4 y"), ("Owns a flat … lets it", "1 y\n2 y\n3 y")],
    ids=["denied, and quotes what other lines say too", "not word for word"],
)
def test_no_line_goes_whose_own_merge_was_not_made(user: User, quote: str, look: str) -> None:
    facts = ["Works as a nurse", "Nurse in Hull", "Owns a flat in Hull", "Lets the flat in Hull to students"]
    has_learned(user, *facts, *LARGE[:9])
    nurse, hull, flat, students = map(user.id_of, facts)
    (user.script / "look.txt").write_text(look)
    condense(
        user,
        f"REPLACE | {nurse} | Works as a nurse in Hull | Works as a nurse … in Hull\n"
        f"REPLACE | {flat} | Owns a flat in Hull, let to students | {quote}\n"
        f"REMOVE | {hull} | Nurse in Hull\n"
        f"REMOVE | {students} | Lets the flat in Hull to students",
    )
    assert user.facts[:4] == ["Works as a nurse in Hull", *facts[1:]]


@pytest.mark.parametrize("dots", ["…", "..."])
def test_a_merge_that_waits_holds_up_no_other(user: User, dots: str) -> None:
    has_learned(user, "Is a nurse in Hull", "Is on night shifts", "Has a flat", "Rents out a flat", "Sails", *LARGE[:9])
    nurse, nights, flat, rent, sails = map(user.id_of, user.facts[:5])
    (user.script / "look.txt").write_text("1 n\n2 y\n3 y\n4 y\n5 y")
    condense(
        user,
        f"REPLACE | {nurse} | Nurse in Hull, on nights | Is a nurse in Hull … on night shifts\n"
        f"REMOVE | {nights} | Is on night shifts\n"
        f"REPLACE | {flat} | Has a flat, and rents it out | Has a flat {dots} Rents out\n"
        f"REMOVE | {rent} | Rents out a flat\n"
        f"REMOVE | {sails} | Sails",
    )
    assert user.facts[:4] == ["Is a nurse in Hull", "Is on night shifts", "Has a flat, and rents it out", "Sails"]
    assert [edit["before"] for edit in user.to_review()] == ["Is a nurse in Hull", "Is on night shifts", "Sails"]


# Above the budget


def condensing(
    user: User, condensed: Callable[[], str], *, review: bool = False, own: str = ""
) -> Callable[[], list[str]]:
    """Make a profile above its budget; return what learns, condensing its first line to this, and tells its requests."""
    asked: list[str] = []

    def ask(model: str, request: str) -> str:
        if "ADD |" in request:
            asked.append("update")
            return "NO_UPDATE"
        asked.append("condense")
        assert "] Speaks Czech" not in request, "own lines have no id"
        return f"REPLACE | {user.id_of(LARGE[0])} | {condensed()} | {LARGE[0]}"

    def learn() -> list[str]:
        asked.clear()
        user.types(SAID, review=review)
        user.learns(ask)
        return list(asked)

    has_learned(user, *LARGE, own=own)
    return learn


def test_a_line_that_is_forgotten_while_the_profile_is_condensed_does_not_come_back(user: User) -> None:
    facts = ["Fact number 0 and number 7, of me and Hull", "Fact number 0, about me and Hull"]

    def condensed() -> str:
        if len(facts) == 2:
            user.run("forget", "number 7,", "--yes")
        return facts.pop(0)

    learn = condensing(user, condensed)
    assert learn() == ["condense"]
    assert learn() == ["condense", "update"], "another text is worth another try"
    assert user.facts[0] == "Fact number 0, about me and Hull"
    assert "number 7," not in user.profile


def test_a_profile_condensed_as_far_as_possible_is_left_alone(user: User) -> None:
    learn = condensing(user, lambda: "Fact number 0")
    assert [learn(), learn()] == [["condense", "update"], ["update"]]


def test_what_was_condensed_by_itself_and_undone_is_condensed_again_only_on_demand(user: User) -> None:
    learn = condensing(user, lambda: "Fact number 0")
    assert learn() == ["condense", "update"]
    user.run("undo")
    assert learn() == ["update"]
    user.run("add", "Speaks Czech")
    assert learn() == ["update"]
    condense(user, f"REPLACE | {user.id_of(LARGE[1])} | Fact number 1 | Fact number 1")
    assert learn() == ["condense", "update"]


def test_above_the_budget_what_is_to_be_reviewed_is_condensed_only_in_review(user: User) -> None:
    learn = condensing(user, lambda: "Fact number 0", review=True)
    assert learn() == ["condense", "update"]
    assert user.facts == LARGE
    assert [held["fact"] for held in user.to_review()] == ["Fact number 0"]


def test_what_is_condensed_by_itself_is_told_and_a_line_that_was_only_proposed_is_the_users_own(user: User) -> None:
    learn = condensing(user, lambda: "Fact number 0", own="# Me\n- Speaks Czech\n")
    user.has_to_review(memory.Edit("ADD", "Notes", "Speaks Czech", "I speak Czech"))
    assert learn() == ["condense", "update"]
    assert "Fact number 0" in user.places.news.read_text("utf-8")
    assert "Speaks Czech" in user.facts


@pytest.mark.parametrize("kind", [memory.REFUSED, memory.HOPELESS])
def test_a_failure_to_condense_hinders_no_learning_and_is_not_repeated_for_the_same_text(user: User, kind: str) -> None:
    failures = ["the line was cut"]

    def condensed() -> str:
        if failures:
            raise memory.ModelFailed(failures.pop(), kind)
        return "Fact about me and Hull"

    learn = condensing(user, condensed)
    assert learn() == ["condense", "update"]
    assert learn() == ["update"]
    assert LARGE[0] in user.facts
    user.run("add", "Plays the harp")
    assert learn() == ["condense", "update"], "another text is worth another try"
    assert user.facts[0] == "Fact about me and Hull"


@pytest.mark.parametrize(
    ("failure", "then"),
    [
        (memory.ModelFailed("there is no network", memory.PASSING), ["condense", "update"]),
        (memory.ModelFailed("there is no key", memory.HERE), ["condense", "update"]),
        (memory.ModelFailed("it did not answer", memory.HUNG), ["update"]),  # it would hang again
    ],
)
def test_what_may_pass_keeps_no_profile_from_being_condensed_later(
    user: User, failure: Exception, then: list[str]
) -> None:
    failures = [failure]

    def condensed() -> str:
        if failures:
            raise failures.pop()
        return "Fact about me and Hull"

    learn = condensing(user, condensed)
    assert learn() == ["condense"]
    with user.memory() as opened:
        opened.db.execute("update turns set due = 0")
    assert learn() == then


def test_what_is_condensed_is_not_condensed_again_because_learning_was_broken_off(user: User) -> None:
    asked: list[str] = []

    def ask(model: str, request: str) -> str:
        asked.append("update" if "ADD |" in request else "condense")
        if asked == ["condense", "update"]:
            user.run("pause")
        first = user.facts[0]
        return "NO_UPDATE" if asked[-1] == "update" else f"REPLACE | {user.id_of(first)} | Fact number 0 | {first}"

    has_learned(user, *LARGE)
    user.types(SAID)
    assert user.learns(ask) is None
    user.run("resume")
    assert user.learns(ask)
    assert asked == ["condense", "update", "update"]
