"""Every line has a receipt, and what is held waits for the user, who alone decides."""

from __future__ import annotations

import datetime as dt
import json
import re

from conftest import PROFILE, Clock, User

from llm_user_memory import Document, Edit, Message, Verdict

ADD = Edit("ADD", "Preferences", "Always wants tea", "I always want tea")
IGNORE = Edit("ADD", "Interests", "Ignore rain", "I ignore rain")


# Why


def test_why_shows_the_receipt_of_what_was_learned_and_says_what_the_user_wrote(user: User) -> None:
    user.run("add", "Plays chess", "--section", "Interests")
    user.profile += "- Lives in Leeds"  # and no line end yet
    user.run("history")
    user.has_learned("Has a dog", "I have a dog")
    shown = user.llm("memory", "why", auto=None).stdout
    today = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d %A")
    thread = user.query("select thread_id from turns")
    for explained in (
        f"Lives in Leeds\n    you wrote this yourself, in another program, {today}\n",
        f"Plays chess\n    you wrote this yourself, with llm memory add, {today}\n",
        f"Has a dog\n    what you typed: “I have a dog”\n    {today}, learned with scripted; llm logs -c {thread}\n",
    ):
        assert explained in shown
    found = {proof["text"]: proof for proof in json.loads(user.run("why", "--json")[0])}
    assert found["Lives in Leeds"] == {"text": "Lives in Leeds", "by": "outside", "receipts": [], "before": []}
    assert [receipt["quote"] for receipt in found["Has a dog"]["receipts"]] == ["I have a dog"]
    assert user.run("why", "LEEDS")[0].splitlines()[0] == "Lives in Leeds"
    assert "see: llm memory search" in user.run("why", "Timbuktu", code=1)[1]
    user.run("add", "Plays go", "--section", "Interests")  # gives the line about Leeds its end
    assert "you wrote this yourself, in another program" in user.run("why", "Leeds")[0]
    assert re.fullmatch(r"Lives in Leeds\n    .*, since \S+\n", user.run("search", "Leeds")[0])


def test_why_claims_nothing_about_lines_whose_history_is_gone(user: User) -> None:
    user.has_learned("Has a dog", "I have a dog")
    user.places.database.unlink()
    assert "there is no receipt for this line: it is older than the history" in user.run("why")[0]
    assert json.loads(user.run("why", "--json")[0])[0]["by"] is None
    user.profile += "- Written later\n"
    assert "you wrote this yourself, in another program" in user.run("why", "later")[0]


def changes(user: User, line: str, fact: str, quote: str) -> None:
    """Learn a change to a line, from a message with this quote."""
    user.types(f"{quote}, you know")
    user.learns(f"REPLACE | {user.id_of(line)} | {fact} | {quote}")
    assert fact in user.facts


def explained(user: User, text: str) -> list[str]:
    """Return the lines of `why`, without those that only name the day and the model."""
    return [line for line in user.run("why", text)[0].splitlines() if "learned with" not in line]


def test_why_shows_what_a_changed_line_said_before_and_where_that_came_from(user: User) -> None:
    user.run("add", "Nurse in Leeds")
    changes(user, "Nurse in Leeds", "Nurse, lives in York", "I moved to York")
    changes(user, "Nurse, lives in York", "Head nurse, lives in York", "I am head nurse now")
    *shown, own = explained(user, "York")
    assert shown == [
        "Head nurse, lives in York",
        "    what you typed: “I am head nurse now”",
        "    before that: Nurse, lives in York",
        "        what you typed: “I moved to York”",
        "    before that: Nurse in Leeds",
    ]
    assert own.startswith("        you wrote this yourself, with llm memory add, ")
    (found,) = json.loads(user.run("why", "--json")[0])
    assert [receipt["quote"] for receipt in found["receipts"]] == ["I am head nurse now"]
    assert [said["text"] for said in found["before"]] == ["Nurse, lives in York", "Nurse in Leeds"]
    assert found["before"][0]["receipts"][0]["quote"] == "I moved to York"


def test_a_line_that_the_user_rewords_in_review_keeps_its_receipts(user: User) -> None:
    user.has_learned("Lives in Leeds", "I live in Leeds")
    user.has_to_review(Edit("REPLACE", "Lives in Leeds", "Must live in York", "I must live in York"))
    user.run("review", stdin="e\nLives in York for now\n")
    assert explained(user, "York") == [
        "Lives in York for now",
        "    what you typed: “I must live in York”",
        "    2026-11-20 Friday, worded by you in llm memory review; llm logs -c thread-1",
        "    before that: Lives in Leeds",
        "        what you typed: “I live in Leeds”",
    ]


def test_a_line_that_comes_back_keeps_its_receipts(user: User) -> None:
    user.has_learned("Lives in Leeds", "I live in Leeds")
    changes(user, "Lives in Leeds", "Lives in York", "I moved to York")
    user.run("rollback", "--only", "2")
    assert explained(user, "Leeds") == ["Lives in Leeds", "    what you typed: “I live in Leeds”"]
    user.run("rollback", "2")
    assert "        what you typed: “I live in Leeds”" in explained(user, "York")
    changes(user, "Lives in York", "Lives in Leeds", "I am back in Leeds")
    assert explained(user, "Leeds")[1:3] == [
        "    what you typed: “I am back in Leeds”",
        "    what you typed: “I live in Leeds”",
    ]
    assert "    before that: Lives in York" in explained(user, "Leeds")


# Not learned


def test_why_lists_what_was_not_learned_with_the_reason(user: User) -> None:
    user.profile = PROFILE
    assert user.run("why", "--refused") == ("", "Nothing was refused.\n")
    user.types("I live in Leeds and my password is hunter2secret9")
    user.learns(
        "ADD | Interests | Plays chess | I play chess\n"
        "ADD | Notes | Password is hunter2secret9 | I live in Leeds and\n"
        "REMOVE | zzzz | I live in Leeds"
    )
    shown = user.run("why", "--refused")[0].splitlines()
    assert shown[::2] == ["+ [a password]", "+ Plays chess"]
    assert [line.partition(": ")[2] for line in shown[1::2]] == [
        "it contains a password",
        "its quote is not in what was typed",
    ]
    assert user.files_with("hunter2") == []
    user.types("And again")
    user.learns("ADD | Interests | Plays chess | I play chess")
    assert len(user.run("why", "--refused")[0].splitlines()) == 4, "each once"
    assert user.run("why", "--refused", "CHESS")[0].splitlines() == shown[-2:]
    refused = json.loads(user.run("why", "--refused", "--json")[0])
    assert (refused[0]["before"], refused[0]["fact"]) == ("", "Plays chess")
    assert "llm memory why --refused" in user.run("why", "Timbuktu", code=1)[1]
    assert "Refused    2 edits in the last 7 days; to see why: llm memory why --refused" in user.run("status")[0]


def test_only_the_newest_refused_edits_are_kept_and_status_counts_the_last_week(user: User) -> None:
    clock = Clock(dt.datetime(2020, 11, 20, tzinfo=dt.timezone.utc))
    said = Message("I like tea", "turn-1", "thread-1", clock.time.isoformat())
    with user.memory(now=clock) as memory:
        for number in range(150):
            edit = Edit("ADD", "Interests", f"Fact {number}", "")
            memory.review.refuse([Verdict(edit, "reject", "it has no quote", said)])
        refused = memory.review.refused()
    assert [edit["fact"] for edit in refused] == [f"Fact {number}" for number in range(149, 49, -1)]
    assert "Refused" not in user.run("status")[0]


# At a terminal


def test_review_asks_about_held_edits_at_a_terminal_section_by_section(user: User) -> None:
    user.profile = PROFILE
    user.has_to_review(
        ADD,
        Edit("ADD", "Preferences", "Never wants rain", "I never want rain"),
        Edit("REPLACE", "Lives in Leeds", "You must visit Leeds", "You must visit Leeds"),
        Edit("REMOVE", "Likes short answers", "", "I do not like short answers"),
        Edit("ADD", "Preferences", "Always skipped", "I am always skipped"),
    )
    terminal = user.terminal("llm", "memory", "review", auto=None)
    terminal.expect(r"3\. Lives in Leeds → You must visit Leeds.*\[q\]uit.*: ")
    terminal.type("e\r")
    terminal.expect(r"The line.*You must visit Leeds")
    terminal.type("\x15Lives near Leeds\r")
    shown = terminal.expect(r"1\. .*\[a\]ccept.*: ")
    assert re.search(r"Preferences: 4 edits\s+1\. \+ Always wants tea", shown)
    assert "what you typed: “I always want tea” (2026-11-20 Friday, llm logs -c thread-1)" in shown
    assert "proposed by scripted, held because you did not type “Rome”" in shown
    assert "- Likes short answers" in shown
    terminal.type("a 1,4\r")
    terminal.expect(r"Never wants rain.*Always skipped.*\[q\]uit.*: ")
    terminal.type("d2\r")
    terminal.expect(r"Always skipped.*\[q\]uit.*: ")
    terminal.type("\r")
    assert terminal.wait() == 0
    assert user.facts == ["Lives near Leeds", "Always wants tea"]
    assert [held["fact"] for held in user.to_review()] == ["Always skipped"]
    assert "“You must visit Leeds”" in user.run("why", "near Leeds")[0]


def test_a_removal_can_not_be_reworded_and_no_line_can_be_emptied(user: User) -> None:
    user.profile = PROFILE
    user.has_to_review(Edit("REMOVE", "Lives in Leeds", "", "I left Leeds"))
    assert "reword one" in user.run("review", stdin="e\ns\n")[1]
    user.has_to_review(ADD)
    assert "can't be a line of the profile" in user.run("review", stdin="s\ne\n\nq\n")[1]
    assert user.profile == PROFILE
    assert len(user.to_review()) == 2


# By number


def test_review_accepts_and_drops_by_id_without_asking(user: User) -> None:
    user.profile = PROFILE
    user.has_to_review(ADD, IGNORE)
    user.run("review", "--accept", "1", "--drop", "2", "--yes")
    assert user.facts == ["Lives in Leeds", "Likes short answers", "Always wants tea"]
    assert user.authors[-1] == "review"
    assert "learned with scripted" in user.run("why", "tea")[0]
    assert "There is nothing to review." in user.run("review")[1]
    user.has_to_review(ADD)
    assert "Nothing was changed" in user.run("review", "--accept", "all")[1], "it was made already"
    assert (user.facts.count("Always wants tea"), user.to_review()) == (1, [])
    user.run("rollback", "--only", "2")
    assert user.profile == PROFILE


def test_an_edit_whose_line_has_changed_stays_held_and_does_not_stop_the_others(user: User) -> None:
    user.profile = PROFILE
    user.has_to_review(Edit("REPLACE", "Lives in Leeds", "Never leaves Leeds", "I never leave Leeds"), ADD)
    user.profile = PROFILE.replace("Lives in Leeds", "Lives in York")
    _, said = user.run("review", "--accept", "1", "--accept", "2", code=1)
    assert "The line to edit has changed since: Lives in Leeds" in said
    assert "llm memory review --drop 1" in said
    assert user.facts == ["Lives in York", "Likes short answers", "Always wants tea"]
    assert [held["fact"] for held in user.to_review()] == ["Never leaves Leeds"]
    assert user.run("review", stdin="a\nq\n")[1].count("has changed") == 1


# Many


def waits(user: User, *facts: str, section: str = "Interests") -> None:
    user.has_to_review(*(Edit("ADD", section, fact, f"I {fact}") for fact in facts))


def test_an_answer_may_be_a_whole_word_and_what_can_not_be_made_is_not_asked_about_again(user: User) -> None:
    user.profile = PROFILE
    user.has_to_review(Edit("REPLACE", "Lives in Leeds", "Never leaves Leeds", "I never leave Leeds"), ADD)
    user.profile = PROFILE.replace("Lives in Leeds", "Lives in York")
    assert "not a list" not in user.run("review", stdin="skip\nquit\n")[1]
    assert user.run("review", stdin="a\n" * 9)[1].count("has changed") == 1
    assert "accept or drop these" in user.run("review", stdin="all\nq\n")[1]
    assert "not both" in user.run("review", "--accept", "1", "--drop", "1", code=1)[1]
    assert len(user.to_review()) == 1


def test_many_are_accepted_and_dropped_by_ranges(user: User) -> None:
    waits(user, *"abcdef")
    waits(user, "Likes tea", section="Preferences")
    waits(user, "ghost")
    for wrong, said in (("9", "no edit 9 to review"), ("2-1", "no edit 2-1 to review"), ("1,x", "try 3, 1-5,8 or all")):
        assert said in user.run("review", "--accept", wrong, code=1)[1]
    _, said = user.run("review", "--accept", "1-2,4", "--drop", "3")
    assert user.facts == ["a", "b", "d"]
    assert said.count("llm memory rollback --only") == 1, "all in one version"
    user.run("review", "--drop", "5-6,8", "--yes")
    assert (user.facts, user.to_review()) == (["a", "b", "d", "Likes tea"], [])


def test_a_space_separates_numbers_and_several_are_dropped_only_when_confirmed(user: User) -> None:
    waits(user, *"abcdefghijklmn")
    user.run("review", "--drop", "1 4, 6 - 7")
    assert [held["id"] for held in user.to_review()] == [2, 3, 5, *range(8, 15)]
    assert "There is no edit 99 to review" in user.run("review", "--accept", "2 99", code=1)[1]
    user.run("review", stdin="d 2 3\nn\nq\n")
    assert len(user.to_review()) == 10
    assert "add --help" in user.run("review", stdin="", code=1)[1], "no terminal to ask at"


def test_what_was_typed_with_review_switched_on_waits_whoever_learns_it(idle: User) -> None:
    idle.llm("I like ferns", LLM_MEMORY_REVIEW="all")
    idle.run("update", LLM_USER_PATH=str(idle.user_dir))
    assert idle.facts == []
    assert [held["fact"] for held in idle.to_review()] == ["I like ferns"]
    idle.llm("I like mosses")
    idle.run("update", LLM_USER_PATH=str(idle.user_dir))
    assert idle.facts == ["I like mosses"]


def test_at_a_prompt_an_answer_is_for_a_page_or_some_of_it_or_all_of_a_section(user: User) -> None:
    waits(user, *"abc")
    waits(user, "Likes tea", "Likes rain", section="Preferences")
    waits(user, *"defghi")
    _, said = user.run("review", stdin="?\nx\na 2-3\nd6,99\nd 6\nA all\nD\nn\nD\ny\n")
    first = re.search(r"\nInterests: (\d) of 9 edits\n1\. \+ a\n(?:.*\n)*?2\. \+ b\n", said)
    second = re.search(r"\nInterests: \d of 7 edits\n1\. \+ a\n(?:.*\n)*?6\. \+ d\n", said)
    assert first
    assert second
    page = said[first.start() : second.start()]
    assert page.count("what you typed") == int(first[1]), "a page of what fits, shown once whatever is answered"
    assert said.count("accept or drop these") == 2
    assert "no edit 99 to review" in said
    assert user.facts == ["b", "c", "a", "e", "f", "g", "h", "i"]
    assert user.to_review() == []


def test_a_blank_answer_skips_and_a_range_takes_only_what_was_shown(user: User) -> None:
    waits(user, "a")
    waits(user, "Likes tea", section="Preferences")
    waits(user, "b")
    user.run("review", stdin=" \n\u00a0\n")
    assert len(user.to_review()) == 3
    _, said = user.run("review", stdin="d 1-3\ny\nq\n")
    assert "Dropped 1, 3." in said
    assert [held["fact"] for held in user.to_review()] == ["Likes tea"]


# Facts whose date has passed


def test_a_fact_whose_date_has_passed_is_offered_for_removal_once(user: User) -> None:
    user.profile = "- On leave until December 2019\n- In Rome until May 2999\n- Bis 2020 in Kur\n"
    assert "Passed     2 facts with a date that has passed: llm memory review" in user.run("status")[0]
    assert json.loads(user.run("status", "--json")[0])["passed"] == 2
    user.run("review", "--yes")
    assert len(user.facts) == 3, "what was never shown is not accepted with the rest"
    _, said = user.run("review", stdin="a1\nd\n")
    assert "1. - On leave until December 2019\n   held because its date, 2019-12-31, has passed" in said
    assert user.facts == ["In Rome until May 2999", "Bis 2020 in Kur"]
    assert "nothing to review" in user.run("review")[1]
    assert json.loads(user.run("status", "--json")[0])["passed"] == 0


def test_learning_offers_to_remove_what_has_passed(user: User) -> None:
    user.profile = "- On leave until December 2019\n"
    user.types("Thank you very much")
    user.learns("NO_UPDATE")
    assert "1 edit to review" in user.places.file("news").read_text("utf-8")
    user.profile += "- Bis 2020 in Kur\n"
    user.types("And thank you again")
    user.learns("NO_UPDATE")
    with user.memory() as memory:
        assert [held.before for held in memory.review.edits()] == ["On leave until December 2019", "Bis 2020 in Kur"]


# Which line


def test_a_held_edit_is_of_the_line_in_its_own_section(user: User) -> None:
    user.profile = "## Interests\n- Python\n- Tea\n"
    user.has_to_review(Edit("REMOVE", "Python", "", "I gave up Python"))
    user.profile = "## Work\n- Python\n\n## Interests\n- Python\n- Tea\n"
    user.run("review", "--yes")
    assert user.profile == "## Work\n- Python\n\n## Interests\n- Tea\n"


def test_a_held_change_to_what_another_line_says_leaves_that_line_alone(user: User) -> None:
    user.profile = "- Lives in Leeds\n- Lives in York\n"
    user.has_to_review(Edit("REPLACE", "Lives in Leeds", "Lives in York", "I live in York"))
    user.run("review", "--yes")
    assert user.profile == "- Lives in York\n"


def test_of_lines_that_say_the_same_only_those_that_were_named_are_changed(user: User) -> None:
    user.profile = "## Week\n- Yoga\n- Choir\n- Yoga\n- Chess\n\n## Holidays\n- Yoga\n- Tea\n- Yoga\n"
    ids = list(Document(user.profile).ids)
    user.types("I do pilates on Sundays now, and no yoga")
    user.learns(
        f"REPLACE | {ids[0]} | Pilates | I do pilates on Sundays now\n"
        f"REMOVE | {ids[2]} | no yoga\n"
        f"REPLACE | {ids[6]} | Pilates on Sundays | I do pilates on Sundays now"
    )
    assert user.profile == "## Week\n- Pilates\n- Choir\n- Chess\n\n## Holidays\n- Yoga\n- Tea\n- Pilates on Sundays\n"


def test_a_line_that_the_user_rewords_while_the_model_thinks_is_shown_to_it_again(user: User) -> None:
    user.profile = PROFILE
    user.types("I moved to York")

    def replace(line: str) -> str:
        return f"REPLACE | {user.id_of(line)} | Lives in York | I moved to York"

    def reword() -> None:
        user.profile = PROFILE.replace("Lives in Leeds", "Lives in the north of Leeds")

    first = user.learns(replace("Lives in Leeds"), reword)
    assert first is not None
    assert first.verdicts == ()
    assert user.pending() == 1
    assert "Lives in the north of Leeds" in user.facts
    user.learns(replace("Lives in the north of Leeds"))
    assert user.facts == ["Lives in York", "Likes short answers"]


def test_a_line_with_a_secret_is_shown_masked_and_can_not_be_edited_by_a_model(user: User) -> None:
    user.profile = "- Wifi password is hunter2secret9 at home in Leeds\n- Likes tea\n"

    def ask(_: str, request: str) -> str:
        assert "hunter2" not in request
        assert re.findall(r"^\[[a-z]+\] (.*)$", request, re.MULTILINE) == ["Likes tea"]
        return "NO_UPDATE"

    user.types("I moved to Leeds")
    assert user.learns(ask)
