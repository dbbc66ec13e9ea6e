"""Every change of the profile is a version: to be seen, compared, and undone."""

from __future__ import annotations

import datetime as dt
import json
import re
import time

import pytest
from conftest import PROFILE, Clock, User

from llm_user_memory import Document, Edit, Problem, parse_moment, utc_now

NOON = Clock().time


def load(user: User, *texts: str) -> None:
    """Make a version of each of these profiles."""
    for text in texts:
        user.run("load", "-", stdin=text)


def diff(user: User, *args: str) -> list[str]:
    return user.run("diff", *args)[0].splitlines()


# Versions


def test_every_change_is_a_version_that_says_by_whom_and_when(user: User) -> None:
    user.run("add", "Plays chess", "--section", "Interests")
    user.profile = PROFILE
    user.has_learned("Has a dog", "I have a dog")
    user.has_to_review(Edit("ADD", "Preferences", "Always asks for tea", "I always ask for tea"))
    user.run("review", "--accept", "1")
    user.profile = user.profile.replace("Leeds", "York")
    load(user, PROFILE)
    user.run("forget", "short", "--yes")
    user.run("clear")
    user.run("rollback", "7")
    assert user.authors == ["add", "outside", "worker", "review", "outside", "load", "forget", "clear", "rollback"]
    assert "Lives in York" in user.text_of(5)
    with user.memory() as memory:
        versions = memory.history.versions()
    assert [version.id for version in versions] == list(range(9, 0, -1))
    assert [version.model for version in versions if version.author == "worker"] == ["scripted"]
    times = [dt.datetime.fromisoformat(version.at) for version in versions]
    assert times == sorted(times, reverse=True)
    assert utc_now() - times[-1] < dt.timedelta(minutes=5)


def test_looking_at_history_notices_what_an_editor_changed(user: User) -> None:
    load(user, PROFILE, PROFILE)
    user.profile = PROFILE
    user.run("history")
    assert user.authors == ["load"], "a file that was only touched makes no version"
    user.profile = PROFILE + "- From an editor\n"
    assert re.search(r" outside +\+ From an editor$", user.run("history")[0], re.MULTILINE)
    user.profile = PROFILE
    assert "  - From an editor" in diff(user)


def test_history_is_newest_first_one_line_each_with_a_readable_summary(user: User) -> None:
    assert "no history" in user.run("history")[1]
    load(user, PROFILE)
    user.run("add", "-", stdin="Plays chess\nPlays go\nPlays darts\n")
    user.profile = user.profile.replace("Leeds", "York").replace("- Plays go\n", "")
    shown = user.run("history")[0].splitlines()
    assert [re.split(r"\s{2,}", line.strip(), maxsplit=3)[2:] for line in shown] == [
        ["outside", "+ Lives in York; - Lives in Leeds; - Plays go"],
        ["add", "+ Plays chess; + Plays go; + Plays darts"],
        ["load", "+ Lives in Leeds; + Likes short answers"],
    ]
    assert [line.split()[0] for line in shown] == ["3", "2", "1"]
    assert len(user.run("history", "-n", "1")[0].splitlines()) == 1
    assert len(user.run("history", "-n", "0")[0].splitlines()) == 3
    found = json.loads(user.run("history", "--json")[0])
    assert [version["id"] for version in found] == [3, 2, 1]
    added = {"id": 2, "author": "add", "model": "", "summary": "+ Plays chess; + Plays go; + Plays darts"}
    changes = [
        {"section": "Personal Information", "before": "", "after": f"Plays {game}"} for game in ("chess", "go", "darts")
    ]
    assert found[1] == added | {"base": 1, "at": found[1]["at"], "changes": changes}


def learns_of_the_family(user: User) -> None:
    """Make a version with each kind of change; the removed line is next to changed ones."""
    load(user, "## Family\n- Has a daughter, Mia\n- Has a cat\n- Lives in Leeds\n")
    user.types("Mia got a sister, Zoe, our cat died, we moved to York, and I play chess")
    user.learns(
        f"REPLACE | {user.id_of('Has a daughter, Mia')} | Has two daughters, Mia and Zoe | Mia got a sister, Zoe\n"
        f"REMOVE | {user.id_of('Has a cat')} | our cat died\n"
        f"REPLACE | {user.id_of('Lives in Leeds')} | Lives in York | we moved to York\n"
        "ADD | Interests | Plays chess | I play chess\n"
    )


def test_changes_are_paired_by_the_evidence_and_removed_lines_are_named(user: User) -> None:
    learns_of_the_family(user)
    said = "+ Plays chess; - Has a cat; Has a daughter, Mia → Has two daughters, Mia and Zoe; Lives in Leeds → Lives in York"
    assert user.run("history", "-n", "1")[0].rstrip().endswith(f"worker    {said}")
    assert diff(user) == [
        *("Interests", "  + Plays chess"),
        *("Family", "  - Has a cat"),
        "  Has a daughter, Mia → Has two daughters, Mia and Zoe",
        "  Lives in Leeds → Lives in York",
    ]
    assert json.loads(user.run("diff", "--json")[0])["changes"][1:3] == [
        {"section": "Family", "before": "Has a cat", "after": ""},
        {"section": "Family", "before": "Has a daughter, Mia", "after": "Has two daughters, Mia and Zoe"},
    ]
    user.types("We moved on to Hull")
    user.learns(f"REPLACE | {user.id_of('Lives in York')} | Lives in Hull | We moved on to Hull")
    assert "  Lives in York → Lives in Hull" in diff(user)
    assert "  Lives in Leeds → Lives in Hull" in diff(user, "1")
    assert "  Lives in Hull → Lives in Leeds" in diff(user, "3", "1")


def test_no_pairs_are_guessed_where_there_is_no_evidence(user: User) -> None:
    learns_of_the_family(user)
    user.run("rollback", "1")
    assert "→" not in user.run("history", "-n", "1")[0] + user.run("diff")[0]
    user.profile = "Some prose\n\n## Family\n- Has two cats\n"
    assert diff(user) == [
        "  + Some prose",
        *("Family", "  + Has two cats"),
        *("  - Has a daughter, Mia", "  - Has a cat", "  - Lives in Leeds"),
    ]


def test_a_line_in_two_sections_is_shown_where_it_changed_and_a_moved_line_not_at_all(user: User) -> None:
    load(user, "## Home\n- Yoga\n- Tea\n\n## Work\n- Yoga\n", "## Home\n\n## Work\n- Yoga\n- Tea\n")
    assert diff(user) == ["Home", "  - Yoga"]


def test_a_long_summary_names_removed_lines_before_new_ones(user: User) -> None:
    load(user, "".join(f"- Gone {number}\n" for number in range(4)))
    load(user, "".join(f"- New {number}\n" for number in range(40)))
    summary = user.run("history", "-n", "1")[0]
    assert all(f"- Gone {number}" in summary for number in range(4))
    assert summary.rstrip().endswith("; and 34 more")
    assert len(diff(user)) == 44


def test_diff_shows_the_last_change_or_any_two_versions(user: User) -> None:
    assert "There is no history yet" in user.run("diff")[1]
    load(user, "- A\n", "- A\n- B\n", "- A\n- B\n- C\n")
    assert diff(user) == ["  + C"]
    assert diff(user, "1") == ["  + B", "  + C"]
    assert diff(user, "0", "2") == ["  + A", "  + B"]
    assert diff(user, "3", "1") == ["  - B", "  - C"]
    assert "There is no version 9; see: llm memory history" in user.run("diff", "9", code=1)[1]
    assert user.run("diff", "1", "1") == ("", "No fact has changed.\n")


def test_a_change_of_no_fact_is_said_to_be_one(user: User) -> None:
    load(user, "## Home\n- A\n", "## At home\n* A\n")
    assert user.run("history", "-n", "1")[0].rstrip().endswith("no facts changed")
    assert user.run("diff") == ("", "No fact has changed.\n")


def test_diff_is_coloured_on_a_terminal_only(user: User) -> None:
    load(user, "- A\n", "- B\n")
    terminal = user.terminal("llm", "memory", "diff", auto=None)
    terminal.wait()
    assert "\x1b[31m  - A" in terminal.shown
    assert "\x1b[32m  + B" in terminal.shown
    assert diff(user) == ["  + B", "  - A"]


# Undo


def test_undoing_the_fact_that_a_heading_came_with_leaves_the_others_below_it(user: User) -> None:
    for fact, section in (("Alpha", "Work"), ("Beta", "Work"), ("Kiwi", "Fruit"), ("Plum", "Fruit")):
        user.run("add", fact, "--section", section)
    user.run("rollback", "--only", "1")
    user.run("rollback", "--only", "3")
    assert [(item.text, item.section) for item in Document(user.profile).items] == [("Beta", "Work"), ("Plum", "Fruit")]
    user.run("rollback", "--only", "5")
    assert sorted(user.facts) == ["Alpha", "Beta", "Plum"]
    assert user.profile.count("## Work") == 1


TEXTS = [
    "",
    "- No newline at the end",
    "# Me\r\n\r\n- Windows\r\n",
    "\ufeff# Me\n- With a byte order mark\n",
    "\ufeff# Me\r\n- Both, no end",
    "\n\n\n- Blank lines first\n\n\n",
    "- Mixed\r\n- ends\n- here\r- and\x0bhere\x0cand\u2028here\n",
    "```\n- code\n```\n\n| a | b |\n|---|---|\n",
    "- Same\n- Same\n\n- Same\n",
    "no Markdown at all, \0 and 👨\u200d👩 and e\u0301",
    PROFILE,
]


def test_every_version_the_user_ever_saw_comes_back_byte_for_byte(user: User) -> None:
    for number, text in enumerate(TEXTS[1:], 1):
        if number % 2:
            user.profile = text
            user.run("history")
        else:
            with user.memory() as memory:
                memory.history.overwrite("load", text)
    for number, text in list(enumerate(TEXTS))[::-1]:
        user.run("rollback", str(number))
        assert user.places.profile.read_bytes() == text.encode()
        assert user.text_of(number) == text


def test_a_rollback_is_a_version_itself_and_can_be_undone_like_any_other(user: User) -> None:
    load(user, "- A\n", "- B\n")
    said = user.run("rollback", "1", "--yes")[1]
    assert user.profile == "- A\n"
    assert user.versions()[-1] == (3, "rollback")
    assert "To undo this: llm memory rollback --only 3" in said
    user.has_learned("Plays chess", "I play chess")
    user.run("rollback", "2")
    assert user.profile == "- B\n", "whatever was learned meanwhile"


def test_one_change_is_undone_and_redone_as_it_says_while_those_made_since_stay(user: User) -> None:
    load(user, PROFILE)
    said = user.run("add", "Keeps bees", "--section", "Personal Information")[1]
    user.has_learned("Has a dog", "I have a dog")
    for facts in (["Has a dog"], ["Keeps bees", "Has a dog"]):
        (undo,) = re.findall(r"llm memory (rollback --only \d+)", said)
        said = user.run(*undo.split())[1]
        assert "Keeps bees" in said
        assert user.facts == ["Lives in Leeds", *facts, "Likes short answers"]


def test_undoing_a_change_whose_lines_have_changed_since_keeps_both(user: User) -> None:
    load(user, *(PROFILE.replace("Leeds", town) for town in ("Leeds", "York", "Hull")))
    user.run("rollback", "--only", "2")
    assert user.facts == ["Lives in Hull", "Lives in Leeds", "Likes short answers"]


def test_rollback_says_what_it_needs(user: User) -> None:
    load(user, PROFILE)
    for args, said in (
        ("", "Name one target"),
        ("1 --only 1", "Name one target"),
        ("--to 2h 1", "Name one target"),
        ("--to soon", "'soon' is not a time"),
        ("99", "There is no version 99; see: llm memory history"),
    ):
        assert said in user.run("rollback", *args.split(), code=1)[1]
    assert user.profile == PROFILE


# Times


def test_rollback_goes_to_what_the_profile_was_at_a_time(user: User) -> None:
    clock, day = Clock(), 24.0
    with user.memory(now=clock) as memory:
        for hours, text in {
            60 * day: "Long ago",
            19 * day + 5: "Last month",
            day: "Yesterday",
            4: "This morning",
            1: "An hour ago",
            0.001: "Just now",
        }.items():
            clock.time = NOON - dt.timedelta(hours=hours)
            memory.history.overwrite("load", text)
        clock.time = NOON
        for to, expected in {
            "2026-11-01": "Last month",
            "2026-11-01 08:00": "Last month",
            "2026-10-31T09:00:00+00:00": "Long ago",
            "yesterday": "Yesterday",
            "today": "Just now",
            "2h": "This morning",
            "2 hours ago": "This morning",
            "3 days ago": "Last month",
            "90 minutes": "This morning",
            "30s": "An hour ago",
            "1 w": "Last month",
        }.items():
            assert memory.history.version_text(memory.history.find_version(to=to)) == expected, to
        for to in ("9999 days", "1999-01-01"):
            with pytest.raises(Problem, match="There is no version as old as"):
                memory.history.find_version(to=to)


@pytest.mark.parametrize(
    "text",
    ["", "soon", "-2h", "2026-13-45", "2.11.2026", "1.5h", "12", "999999 weeks ago", "1e9", "2026-11-01 xx", "0x10 d"],
)
def test_nonsense_for_a_time_is_an_error_that_names_the_forms(text: str) -> None:
    with pytest.raises(Problem, match="is not a time; try 2026-11-01, '2026-11-01 14:30', monday or 2h"):
        parse_moment(text, NOON)


def test_a_day_ends_at_its_local_midnight_in_summer_and_winter_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as in_berlin:
        in_berlin.setenv("TZ", "Europe/Berlin")
        time.tzset()
        for text, moment in {
            "2026-07-01": "2026-07-01T23:59:59.999999+02:00",
            "2026-11-01": "2026-11-01T23:59:59.999999+01:00",
            "yesterday": "2026-11-19T23:59:59.999999+01:00",
            "2026-07-01 08:30": "2026-07-01T08:30:00+02:00",
            "monday": "2026-11-16T23:59:59.999999+01:00",
            "friday": "2026-11-13T23:59:59.999999+01:00",
            "2h": "2026-11-20T11:00:00+01:00",
            "5 mins ago": "2026-11-20T12:55:00+01:00",
        }.items():
            assert parse_moment(text, NOON).isoformat() == moment
        with pytest.raises(Problem, match=r"2099-01-01 is in the future; see: llm memory history"):
            parse_moment("2099-01-01", NOON)
    time.tzset()


def test_undoing_what_came_back_meanwhile_or_was_undone_before_changes_nothing(user: User) -> None:
    user.run("add", "Uses vim")
    user.run("add", "Vegetarian", "--section", "Preferences")
    user.run("add", "Plays chess", "--section", "Interests")
    user.run("rollback", "--only", "2")
    without = user.profile
    assert "Nothing was changed" in user.run("rollback", "--only", "2")[1]
    assert user.profile == without
    user.run("add", "Vegetarian", "--section", "Preferences")
    assert "Nothing was changed" in user.run("rollback", "--only", "4")[1]
    assert user.facts == ["Uses vim", "Plays chess", "Vegetarian"]
    assert user.profile.count("## Preferences") == 1


def test_one_step_back_from_a_profile_that_can_not_be_read_is_the_last_good_one(user: User) -> None:
    user.run("add", "Uses vim")
    user.places.profile.write_bytes(b"\xff\xfe")
    user.run("rollback", "--steps", "1")
    assert user.facts == ["Uses vim"]
