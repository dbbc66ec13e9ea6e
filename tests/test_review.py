"""Every line has a receipt, and what is held waits for the user, who alone decides."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
import sqlite3

import pytest
from conftest import PROFILE, User

import llm_user_memory as memory
from llm_user_memory import Edit, Message

ADD = Edit("ADD", "Preferences", "Always wants tea", "I always want tea")
# An editor that writes this, in place of what it is given.
WRITES = "sed -i 'c {}'"
SAID = Message("I am", "turn-1", "thread-1", "2026-11-20T09:00:00+00:00")
IGNORE = Edit("ADD", "Interests", "Ignore rain", "I ignore rain")


def test_what_is_forgotten_while_review_asks_stays_forgotten(user: User) -> None:
    user.run("add", "Has a dog called Rex")
    user.has_to_review(Edit("REPLACE", "Has a dog called Rex", "Has a cat", "I have a cat now"))
    with user.memory() as opened:
        asked = memory.waiting_edits(opened)
        assert [edit.before for edit in asked] == ["Has a dog called Rex"]
        user.run("forget", "Rex", "--yes")
        memory.review(opened, accepted=asked)
    assert user.facts == ["Has a cat"]
    assert "Rex" not in user.run("why", "cat")[0]
    assert user.files_with("Rex") == []


def test_a_review_tells_that_learning_has_failed(user: User) -> None:
    user.has_to_review(ADD)
    user.places.news.write_text(f"{memory.FAILED}\n1 edit to review: llm memory review\n")
    said = user.llm("memory", "review", "--accept", "all", auto=None).stderr
    assert memory.FAILED in said
    assert "1 edit" not in said


def test_an_edit_that_its_user_has_made_by_hand_no_longer_waits(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    leeds = "Lives in Leeds"
    user.has_to_review(
        ADD, Edit("REMOVE", leeds, "", "I left Leeds"), Edit("REPLACE", leeds, "Lives in York", "in York")
    )
    user.run("add", ADD.fact)
    assert {str(edit["fact"]) for edit in user.to_review()} == {"", "Lives in York"}
    user.run("remove", "Leeds")
    assert [edit["fact"] for edit in user.to_review()] == ["Lives in York"], "which now adds a line"
    user.run("remove", ADD.fact)
    assert {edit["fact"] for edit in user.to_review()} == {ADD.fact, "Lives in York"}, "as it is gone again"


# Why


def test_why_tells_of_lines_with_words_alone(user: User) -> None:
    user.run("load", "-", stdin="## Work\n- Nurse\n\n---\n```\ncode x\n```\n***\n")
    told = re.findall(r"^\S.*", user.run("why")[0], re.MULTILINE)
    assert told == ["Nurse", "code x"]


def test_why_shows_the_receipt_of_what_was_learned_and_says_what_the_user_wrote(user: User) -> None:
    user.run("add", "Plays chess", "--section", "Interests")
    user.profile += "- Lives in Leeds"  # and no line end yet
    assert "Lives in Leeds" in user.run("why", "LEEDS")[0]
    user.run("history")
    user.has_learned("Has a dog", "I have a dog")
    shown = user.llm("memory", "why", auto=None).stdout
    now = dt.datetime.now(dt.timezone.utc)
    today = f"{now:%A} {now.day} {now:%B %Y}"
    thread = user.query("select thread_id from turns")
    for explained in (
        f"Lives in Leeds\n    written, not learned (saved in the file), {today}\n",
        f"Plays chess\n    written, not learned (add), {today}\n",
        f"Has a dog\n    you typed: “I have a dog”\n    {today}; learned with scripted; llm logs --cid {thread}\n",
    ):
        assert explained in shown
    assert "I have a dog" in user.llm(*explained.split("; llm ")[1].split(), auto=None).stdout, "as it says"
    user.types("I play the cello!")
    user.learns("ADD | Interests | Plays the cello | I play the cello")
    assert "\n    you typed: “I play the cello”\n" in user.run("why", "cello")[0], "this is all of it"
    user.types("By the way, I play whist")
    user.learns("ADD | Interests | Plays whist | I play whist")
    assert "\n    you typed: “I play whist”\n" in user.run("why", "whist")[0]
    user.types("I play the lute\nand  the ‘oud’.")
    user.learns("ADD | Interests | Plays the lute and the oud | I play the lute and the 'oud'")
    assert "\n    you typed: “I play the lute and the 'oud”\n" in user.run("why", "lute")[0], "spaces aside"
    user.types("When should I eat toast?")
    user.learns("ADD | Preferences | Eats toast | I eat toast")
    assert "\n    you typed: “I eat toast”\n" in user.run("why", "toast")[0]
    user.places.logs.rename(user.folder / "moved.db")
    assert "“I play the cello”" in user.run("why", "cello")[0]
    (user.folder / "moved.db").rename(user.places.logs)
    with contextlib.closing(sqlite3.connect(user.places.logs)) as other:
        other.execute("begin exclusive")
        assert "“I play the cello”" in user.run("why", "cello")[0]
    found = {proof["text"]: proof for proof in json.loads(user.run("why", "--json")[0])}
    expected = {"profile": "default", "text": "Lives in Leeds", "by": "outside", "receipts": [], "before": []}
    assert found["Lives in Leeds"] == expected
    assert [receipt["quote"] for receipt in found["Has a dog"]["receipts"]] == ["I have a dog"]
    assert user.run("why", "LEEDS")[0].splitlines()[0] == "Lives in Leeds"
    user.run("add", "Plays go", "--section", "Interests")  # gives the line about Leeds its end
    assert "written, not learned (saved in the file)" in user.run("why", "Leeds")[0]
    assert re.fullmatch(r"Lives in Leeds\n    .*, from \S+\n", user.run("search", "Leeds")[0])


def test_why_says_that_a_line_is_the_users_own_if_they_wrote_it_after_undoing_what_was_learned(user: User) -> None:
    user.has_learned("Has a dog", "I have a dog")
    user.run("undo")
    user.run("add", "Has a dog")
    own, learned = user.run("why", "dog")[0].splitlines()[1:3]
    assert own.startswith("    written, not learned (add)")
    assert learned == "    you typed: “I have a dog”"


def test_why_claims_nothing_about_lines_whose_history_is_gone(user: User) -> None:
    user.has_learned("Has a dog", "I have a dog")
    user.places.database.unlink()
    assert "no receipt: this line is older than the history" in user.run("why")[0]
    assert json.loads(user.run("why", "--json")[0])[0]["by"] is None
    user.profile += "- Written later\n"
    assert "written, not learned (saved in the file)" in user.run("why", "later")[0]
    user.run("add", "Likes tea")
    for _ in range(2):
        user.run("undo", str(user.versions()[-1][0]))
    assert "written, not learned (add)" in user.run("why", "tea")[0], "undo wrote nothing"


def changes(user: User, line: str, fact: str, quote: str) -> None:
    """Learn a change to a line, from a message with this quote."""
    user.types(f"{quote}, you know")
    user.learns(f"REPLACE | {user.id_of(line)} | {fact} | {quote}")
    assert fact in user.facts


def explained(user: User, text: str) -> list[str]:
    """Return the lines of `why`, without those that only name the day and the model."""
    return [line for line in user.run("why", text)[0].splitlines() if "learned with" not in line]


def test_why_names_the_conversation_of_each_fact(user: User) -> None:
    user.types_on("I have a dog and a cat", "I have a hen")
    user.learns(
        "ADD | Interests | Has a dog | a dog\nADD | Interests | Has a cat | a cat\nADD | Interests | Has a hen | a hen"
    )
    user.has_learned("Has a boat", "I have a boat")
    out = user.run("why")[0]
    assert out.count(f"learned with scripted; llm logs --cid {user.thread.id}\n") == 3
    assert out.count("llm logs --cid ") == 4


def test_why_takes_several_ids(user: User) -> None:
    user.run("add", "-", stdin="Plays chess\nPlays go\nPlays darts\n")
    ids = [user.id_of("Plays chess"), user.id_of("Plays darts")]
    shown = user.run("why", *ids)[0]
    assert [game in shown for game in ("chess", "go", "darts")] == [True, False, True]


def test_why_shows_what_a_changed_line_said_before_and_where_that_came_from(user: User) -> None:
    user.run("add", "Nurse in Leeds")
    changes(user, "Nurse in Leeds", "Nurse, lives in York", "I moved to York")
    changes(user, "Nurse, lives in York", "Head nurse, lives in York", "I am head nurse now")
    *shown, own = explained(user, "York")
    assert shown == [
        "Head nurse, lives in York",
        "    you typed: “I am head nurse now”",
        "before that: Nurse, lives in York",
        "    you typed: “I moved to York”",
        "before that: Nurse in Leeds",
    ]
    assert own.startswith("    written, not learned (add), ")
    (found,) = json.loads(user.run("why", "--json")[0])
    assert [receipt["quote"] for receipt in found["receipts"]] == ["I am head nurse now"]
    assert [said["text"] for said in found["before"]] == ["Nurse, lives in York", "Nurse in Leeds"]


def test_a_bullet_in_a_reworded_line_is_no_part_of_it(user: User) -> None:
    waits(user, "Likes tea")
    user.run("review", stdin="e\n", EDITOR=WRITES.format("- Likes green tea"))
    assert user.facts == ["Likes green tea"]


def test_a_line_that_the_user_rewords_in_review_keeps_its_receipts(user: User) -> None:
    user.has_learned("Lives in Leeds", "I live in Leeds")
    user.has_to_review(Edit("REPLACE", "Lives in Leeds", "Must live in York", "I must live in York"))
    user.run("review", stdin="e\n", EDITOR=WRITES.format("Lives in York for now"))
    dated = "    Friday 20 November 2026; learned with scripted, reworded; llm logs --cid thread-1\n"
    assert dated in user.run("why", "York")[0]
    assert explained(user, "York") == [
        "Lives in York for now",
        "    you typed: “I must live in York”",
        "before that: Lives in Leeds",
        "    you typed: “I live in Leeds”",
    ]


def test_a_line_that_comes_back_keeps_its_receipts(user: User) -> None:
    user.has_learned("Lives in Leeds", "I live in Leeds")
    changes(user, "Lives in Leeds", "Lives in York", "I moved to York")
    user.run("undo")
    assert explained(user, "Leeds") == ["Lives in Leeds", "    you typed: “I live in Leeds”"]
    user.run("rollback", "2")
    assert explained(user, "York")[2:] == ["before that: Lives in Leeds", "    you typed: “I live in Leeds”"]
    changes(user, "Lives in York", "Lives in Leeds", "I am back in Leeds")
    assert explained(user, "Leeds")[1:3] == [
        "    you typed: “I am back in Leeds”",
        "    you typed: “I live in Leeds”",
    ]
    assert "before that: Lives in York" in explained(user, "Leeds")


# Not learned


def test_why_tells_what_took_a_line_away(user: User) -> None:
    user.has_learned("Has a boat", "I own a boat")
    user.types("I sold the boat")
    assert user.learns(f"REMOVE | {user.id_of('Has a boat')} | I sold the boat")
    shown = user.run("why", "boat")[0]
    assert shown.startswith("- Has a boat\n    you typed: “I sold the boat”\n")
    (told,) = json.loads(user.run("why", "boat", "--json")[0])
    assert (told["text"], told["receipts"][0]["before"]) == ("", "Has a boat")
    assert "boat" not in "".join(user.run("why")), "all lines are those that are there"
    user.run("undo")
    assert "sold" not in user.run("why", "boat")[0]
    user.run("remove", "boat")
    assert "No line has 'boat'" in user.run("why", "boat", code=1)[1], "the user did, not what they typed"
    user.run("undo")
    user.run("forget", "boat", "--yes")
    assert "No line has 'boat'" in user.run("why", "boat", code=1)[1]


def test_why_tells_the_words_that_took_a_line_away_also_where_it_shows_what_the_line_became(user: User) -> None:
    user.has_learned("Lives in Rome", "I live in Rome")
    user.types("I moved to Leeds now")
    user.learns(f"REPLACE | {user.id_of('Lives in Rome')} | Lives in Leeds, not Rome | I moved to Leeds")
    user.types("I live in Rome too")
    user.learns("ADD | Personal Information | Lives in Rome | I live in Rome too")
    user.types("I have given up Rome for good")
    user.learns(f"REMOVE | {user.id_of('Lives in Rome')} | given up Rome for good")
    shown = user.run("why", "Rome")[0]
    assert "before that: Lives in Rome\n" in shown
    assert "- Lives in Rome\n    you typed: “given up Rome for good”\n" in shown


def test_why_lists_what_was_not_learned_with_the_reason(user: User) -> None:
    user.profile = PROFILE
    assert user.run("why", "--refused") == ("", "Nothing was refused or dropped.\n")
    user.types("I live in Leeds and my password is hunter2secret9")
    user.learns(
        "ADD | Interests | Plays chess | I play chess\nADD | Notes | Password is hunter2secret9 | I live in Leeds and"
    )
    shown = user.run("why", "--refused")[0].splitlines()
    assert shown[::2] == ["+ [secret]", "+ Plays chess"]
    assert "it contains a password" in shown[1]
    assert "its quote" in shown[3]
    assert user.files_with("hunter2") == []
    user.types("And again")
    user.learns("ADD | Interests | Plays chess | I play chess")
    assert user.run("why", "--refused")[0].count("+") == 2, "each once"
    assert user.run("why", "--refused", "CHESS")[0].splitlines() == shown[-2:]
    refused = json.loads(user.run("why", "--refused", "--json")[0])
    assert (refused[-1]["before"], refused[-1]["fact"]) == ("", "Plays chess")
    assert "llm memory why --refused" in user.run("why", "Timbuktu", code=1)[1]


# At a terminal


def test_review_without_a_terminal_names_its_own_options(user: User) -> None:
    user.has_to_review(ADD)
    said = user.run("review", stdin="", code=1)[1]
    assert "--accept IDS or --drop IDS" in said
    assert "--yes" not in said


def test_review_asks_about_one_edit_after_the_other_with_its_quote_date_and_reason(user: User) -> None:
    user.profile = PROFILE
    user.has_to_review(
        ADD,
        Edit("ADD", "Preferences", "Never wants rain", "I never want rain"),
        Edit("REPLACE", "Lives in Leeds", "You must visit Leeds", "You must visit Leeds"),
        Edit("REMOVE", "Likes short answers", "", "I do not like short answers"),
    )
    terminal = user.terminal("llm", "memory", "review", auto=None, EDITOR="sed -i 's/You must visit/Lives near/'")
    terminal.expect(r"You must visit Leeds.*Accept it\?")
    terminal.type("e\r")
    shown = terminal.expect(r"Accept it\? \(y, n, e, a, d, q, s; \? for help\)")
    for words in (
        "3 left",
        "you typed: “I always want tea” (Friday 20 November 2026; llm logs --cid thread-1)",
        "proposed by scripted",
        "you did not type “Rome”",
    ):
        assert words in " ".join(shown.split())
    assert re.search(r"\x1b\[32m\s*\+ Always wants tea", shown), "in the colours of diff"
    terminal.type("?\r")
    terminal.expect(r"d +drop.*2  \+ Never wants rain.*Accept it\?")
    terminal.type("y\r")
    terminal.expect(r"\+ Never wants rain.*Accept it\?")
    terminal.type("n\r")
    terminal.expect(r"- Likes short answers.*Accept it\?")
    terminal.type("\r")
    assert terminal.wait() == 0
    assert user.facts == ["Lives near Leeds", "Likes short answers", "Always wants tea"]
    assert [held["before"] for held in user.to_review()] == ["Likes short answers"]
    assert "“You must visit Leeds”" in user.run("why", "near Leeds")[0]


@pytest.mark.parametrize(
    ("answers", "facts", "waiting"),
    [
        ("n\na\n", ["b", "c"], []),
        ("y\nd\n", ["a"], []),
        ("Y\nno\nyess\ns\n", ["a"], ["c"]),
        ("yes\ns\nYES\n", ["a", "c"], ["b"]),
        ("what?\n \n?\nq\n", [], ["a", "b", "c"]),
        ("s\n\ny\n", ["c"], ["a", "b"]),
    ],
)
def test_an_answer_takes_this_edit_or_all_the_rest(
    user: User, answers: str, facts: list[str], waiting: list[str]
) -> None:
    waits(user, *"abc")
    user.run("review", stdin=answers)
    assert user.facts == facts
    assert [held["fact"] for held in user.to_review()] == waiting


def test_what_is_to_be_reworded_stands_in_the_editor_alone(user: User) -> None:
    waits(user, "Lives in Köln")
    user.run("review", stdin="e\n", EDITOR="sed -i '$s/$/ for now/; 2,$d'")
    assert (user.facts, user.to_review()) == (["Lives in Köln for now"], [])


def test_many_edits_are_reviewed_by_section_and_the_rest_of_one_is_taken_or_left(user: User) -> None:
    for number in range(30):
        waits(user, f"Likes number {number}", section="Preferences")
        waits(user, f"Plays game {number}", section="Interests")
        waits(user, f"Has thing {number}", section="Personal Information")
    listed, said = user.run("review", stdin="?\nn\na\ny\nd\nq\n")
    assert "   2  + Plays game 0\n   5  + Plays game 1\n" in listed, "with the numbers that --accept takes"
    assert said.index("Plays game 29") < said.index("Has thing 0") < said.index("Likes number 0")
    assert set(user.facts) == {"Has thing 0", *(f"Plays game {number}" for number in range(1, 30))}
    assert [held["fact"] for held in user.to_review()] == [f"Likes number {number}" for number in range(30)]
    user.run("review", "--accept", "1-30,88")
    assert len(user.to_review()) == 19
    assert "Likes number 29" in user.facts


def test_what_can_not_be_a_line_or_answers_nothing_changes_nothing(user: User) -> None:
    user.profile = PROFILE
    user.has_to_review(ADD)
    for quits, reason in (("true", "it was not saved"), ("sed -i d", "it says nothing")):
        assert f"Not reworded: {reason}" in user.run("review", stdin="e\n", code=1, EDITOR=quits)[1]
    for wrong in ("# A heading", r"Has a hen\nHas a dog", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"):
        said = user.run("review", stdin="e\n", code=1, EDITOR=WRITES.format(wrong))[1]
        assert "Not reworded: it" in said, wrong
    assert "this is not UTF-8" in user.run("review", stdin="e\n", code=1, EDITOR=WRITES.format(r"Caf\xe9"))[1]
    said = user.run("review", stdin="e\n", code=1, EDITOR="false")[1]
    assert "Not reworded: " in said
    assert "Editing failed" in said
    assert said.count("Accept it?") == 2
    assert re.search("--accept.*--drop", user.run("review", stdin="", code=1)[1]), "there is no terminal"
    assert (user.profile, len(user.to_review())) == (PROFILE, 1)


# By number


def waits(user: User, *facts: str, section: str = "Interests") -> None:
    user.has_to_review(*(Edit("ADD", section, fact, f"I {fact}") for fact in facts))


def test_review_accepts_and_drops_by_id_without_asking(user: User) -> None:
    user.profile = PROFILE
    user.has_to_review(ADD, IGNORE)
    said = user.run("review", "--accept", "1", "--drop", "2")[1]
    assert "To review all dropped again: llm memory learn --again\n" in said
    assert user.facts == ["Lives in Leeds", "Likes short answers", "Always wants tea"]
    assert user.authors[-1] == "review"
    assert "learned with scripted, accepted" in user.run("why", "tea")[0]
    assert "Nothing waits for review" in user.run("review")[1]
    user.has_to_review(ADD)
    assert "Nothing waits" in user.run("review", "--accept", " All")[1], "it was made already"
    assert (user.facts.count("Always wants tea"), user.to_review()) == (1, [])
    user.run("undo")
    assert user.profile == PROFILE


def test_a_replacement_whose_line_is_gone_is_added_and_a_removal_removes_nothing(user: User) -> None:
    user.profile = PROFILE
    user.has_to_review(
        Edit("REPLACE", "Lives in Leeds", "Never leaves Leeds", "I never leave Leeds"),
        Edit("REMOVE", "Lives in Leeds", "", "I do not live in Leeds"),
    )
    user.profile = PROFILE.replace("Lives in Leeds", "Lives in York")
    assert "Added: “Never leaves Leeds”" in user.run("review", "--accept", "1")[1]
    assert "Edit 2 is not waiting" in user.run("review", "--accept", "2", code=1)[1]
    assert user.facts == ["Lives in York", "Never leaves Leeds", "Likes short answers"]
    assert user.to_review() == []


def test_a_replacement_is_shown_as_what_it_would_do_now(user: User) -> None:
    user.profile = PROFILE
    user.has_to_review(Edit("REPLACE", "Lives in Leeds", "Lives in Hull", "I live in Hull"))
    assert "Lives in Leeds → Lives in Hull\n" in user.run("review", stdin="s\n")[1]
    user.profile = PROFILE.replace("Lives in Leeds", "Lives in Bath")
    said = user.run("review", stdin="y\n")[1]
    assert "+ Lives in Hull\n" in said
    assert "; “Lives in Leeds” is gone\n" in said
    assert "before that" not in user.run("why", "Hull")[0]
    assert user.facts == ["Lives in Bath", "Lives in Hull", "Likes short answers"]


def test_a_line_that_comes_back_is_replaced_after_all(user: User) -> None:
    user.profile = PROFILE
    user.has_to_review(Edit("REPLACE", "Lives in Leeds", "Lives in Hull", "I live in Hull"))
    user.run("remove", "Leeds")
    assert json.loads(user.run("review", "--json")[0])[0]["before"] == ""
    user.run("undo")
    user.run("review", "--accept", "all")
    assert user.facts == ["Lives in Hull", "Likes short answers"]


def test_the_second_of_two_edits_of_a_line_is_shown_as_it_would_be_made_after_the_first(user: User) -> None:
    user.profile = PROFILE
    user.has_to_review(Edit("REPLACE", "Lives in Leeds", "Lives in Hull", "I live in Hull"))
    user.has_to_review(Edit("REPLACE", "Lives in Leeds", "Lives in Bath", "I live in Bath"))
    said = user.run("review", stdin="y\nn\n")[1]
    assert "Lives in Leeds → Lives in Hull\n" in said
    assert "+ Lives in Bath\n" in said
    assert "Lives in Leeds → Lives in Bath" not in said
    assert "edit 1, in Personal Information; 2 left" in said
    assert "edit 2, in Personal Information; 1 left" in said


def test_an_entry_of_several_lines_is_not_shown_as_replaced(user: User) -> None:
    user.profile = "- Lives in Leeds\n"
    user.has_to_review(Edit("REPLACE", "Lives in Leeds", "Lives in Hull", "I live in Hull"))
    user.profile = "- Lives in Leeds\n  near the park\n"
    assert "+ Lives in Hull\n" in user.run("review", stdin="y\n")[1]
    assert user.profile.startswith("- Lives in Leeds\n  near the park\n")


def test_many_are_accepted_and_dropped_by_ranges(user: User) -> None:
    waits(user, *"abcdef")
    waits(user, "Likes tea", section="Preferences")
    waits(user, "ghost")
    for wrong in ("9", "2-1", "99", "x", "small", ",", "1,x", "1 and 2", "all but 4"):
        said = user.run("review", "--accept", wrong, code=1)[1]
        assert said.startswith("Error: ")
        assert said.endswith("; see: llm memory review\n")
    assert len(user.to_review()) == 8
    _, said = user.run("review", "--accept", "1–4", "--drop", "3")  # as some keyboards make of two hyphens
    assert user.facts == ["a", "b", "d"]
    assert said.count("llm memory undo") == 1, "all in one version"
    user.run("review", "--drop", "5 - 6,8")
    assert (user.facts, [held["fact"] for held in user.to_review()]) == (["a", "b", "d"], ["Likes tea"])


def test_edits_are_made_in_the_order_in_which_they_were_proposed(user: User) -> None:
    user.profile = "## Interests\n- Chess\n"
    user.has_to_review(Edit("ADD", "Notes", "Has a boat", "q"))
    user.run("add", "Has a boat", "--section", "Interests")
    user.has_to_review(Edit("REPLACE", "Has a boat", "Has sold the boat", "q"))
    user.run("review", "--accept", "all")
    assert user.facts == ["Chess", "Has sold the boat"]


def test_a_heading_of_ours_that_an_accepted_removal_leaves_empty_goes_with_it(user: User) -> None:
    user.profile = "# Me\n\n## Interests\n- Plays chess\n\n## Preferences\n- Likes short answers\n"
    user.has_to_review(Edit("REMOVE", "Plays chess", "", "no more chess"))
    user.run("review", "--accept", "1")
    assert user.profile == "# Me\n\n## Preferences\n- Likes short answers\n"


def test_a_list_shows_what_waits_with_the_numbers_that_accept_takes_and_asks_nothing(user: User) -> None:
    waits(user, "a", section="Preferences")
    waits(user, "b", "c")
    user.run("review", "--drop", "2")
    shown, said = user.run("review", "--list")
    assert shown == "   3  + c\n   1  + a\n", "in the order in which it would ask"
    assert said == "2 edits to review: llm memory review\n"
    user.run("review", "--list", "--accept", "3")
    assert user.facts == ["c"]


def test_however_many_edits_wait_none_is_dropped_for_another(user: User) -> None:
    waits(user, *(f"waits {number}" for number in range(120)))
    user.types("I live in Leeds")
    user.learns("\n".join(f"ADD | Interests | Lives in house {n} | I live in Leeds" for n in range(9)), look="")
    assert len(user.to_review()) == 129
    assert "Dropped:\n  + waits 0\n" in user.run("review", "--drop", "all")[1]


def test_what_was_typed_with_review_switched_on_waits_whoever_learns_it_and_nothing_else_does(idle: User) -> None:
    idle.llm("I like ferns", LLM_MEMORY_REVIEW="all")
    idle.llm("I like mosses")
    idle.run("update", LLM_USER_PATH=str(idle.user_dir))
    assert idle.facts == ["I like mosses"]
    assert [(held["fact"], held["reason"]) for held in idle.to_review()] == [
        ("I like ferns", "LLM_MEMORY_REVIEW=all was set")
    ]
    assert json.loads(idle.run("review", "--json", "--accept", "all")[0]) == []
    assert idle.facts == ["I like mosses", "I like ferns"]


# Which line


def test_a_held_edit_is_of_the_line_in_its_own_section_and_leaves_others_alone(user: User) -> None:
    user.profile = "## Interests\n- Python\n- Tea\n"
    user.has_to_review(Edit("REMOVE", "Python", "", "I gave up Python"))
    user.profile = "## Work\n- Python\n\n## Interests\n- Python\n- Tea\n"
    user.run("review", "--accept", "all")
    assert user.profile == "## Work\n- Python\n\n## Interests\n- Tea\n"
