"""Every change of the profile is a version: to be seen, compared, taken back, and brought back."""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from conftest import PROFILE, Clock, User

import llm_user_memory as memory
from llm_user_memory import AUTHORS, Document, Edit, Problem, parse_moment, review, utc_now, waiting_edits

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

NOON = Clock().time


def load(user: User, *texts: str) -> None:
    """Make a version of each of these profiles."""
    for text in texts:
        user.run("load", "-", "--yes", stdin=text)


def add(user: User, *facts: str, section: str = "Interests") -> None:
    """Make a version of each of these facts."""
    for fact in facts:
        user.run("add", fact, "--section", section)


def diff(user: User, *args: str) -> list[str]:
    return user.run("diff", *args)[0].splitlines()


def history(user: User) -> list[dict[str, Any]]:
    """The versions as `history --json` tells them, oldest first."""
    return list(reversed(json.loads(user.run("history", "--json", "-n", "0")[0])))


# Versions


def test_every_change_is_a_version_that_says_by_whom_and_when(user: User) -> None:
    add(user, "Plays chess")
    user.profile = PROFILE
    user.has_learned("Has a dog", "I have a dog")
    user.has_to_review(Edit("ADD", "Preferences", "Always asks for tea", "I always ask for tea"))
    user.run("review", "--accept", "all")
    user.profile = user.profile.replace("Leeds", "York")
    load(user, PROFILE)
    user.run("forget", "short", "--yes")
    user.run("clear", "--yes")
    user.run("rollback", "7")
    user.run("undo")
    authors = ["add", "outside", "worker", "review", "outside", "load", "forget", "clear", "rollback", "undo"]
    versions = history(user)
    assert [version["author"] for version in versions] == authors
    assert [version["id"] for version in versions] == list(range(1, 11))
    assert "Lives in York" in user.text_of(5)
    assert [version["model"] for version in versions if version["author"] == "worker"] == ["scripted"]
    times = [dt.datetime.fromisoformat(version["at"]) for version in versions]
    assert times == sorted(times)
    assert utc_now() - times[0] < dt.timedelta(minutes=5)


def test_looking_at_history_notices_what_an_editor_changed(user: User) -> None:
    load(user, PROFILE, PROFILE)
    user.profile = PROFILE
    user.run("history")
    assert user.authors == ["load"], "a file that was only touched makes no version"
    user.profile = PROFILE + "- From an editor\n"
    shown = user.run("history", "-n", "1")[0]
    assert "saved in the file" in shown
    assert "+ From an editor" in shown
    user.profile = PROFILE
    assert "- From an editor" in diff(user)


def test_history_is_newest_first_with_each_change_as_diff_shows_it(user: User) -> None:
    assert user.run("history")[1] == "No changes yet.\n"
    load(user, PROFILE)
    user.run("add", "-", stdin="Plays chess\nPlays go\nPlays darts\n")
    user.profile = user.profile.replace("Leeds", "York").replace("- Plays go\n", "")
    shown = user.run("history")[0]
    assert [line.split()[0] for line in shown.splitlines() if line.lstrip()[0].isdigit()] == ["3", "2", "1"]
    assert [line.strip() for line in shown.splitlines() if not line.lstrip()[0].isdigit()] == [
        *("+ Lives in York", "- Lives in Leeds", "- Plays go"),
        *("+ Plays chess", "+ Plays go", "+ Plays darts"),
        *("+ Lives in Leeds", "+ Likes short answers"),
    ]
    assert shown.startswith(user.run("history", "-n", "1")[0])
    newest, said = user.run("history", "-n", "1")
    assert "load" not in newest
    assert said == "2 older: llm memory history -n 0\n"
    assert user.run("history", "-n", "0")[0] == shown
    added = history(user)[1]
    section = "Personal Information"
    assert added["changes"] == [
        {"section": section, "before": "", "after": f"Plays {game}"} for game in ("chess", "go", "darts")
    ]


def test_changes_are_paired_by_the_edits_and_none_is_guessed(user: User) -> None:
    load(user, "## Family\n- Has a daughter, Mia\n- Has a cat\n- Lives in Leeds\n")
    user.types("I have two daughters now, Mia and Zoe, our cat died, we moved to York, and I play chess")
    user.learns(
        f"REPLACE | {user.id_of('Has a daughter, Mia')} | Has two daughters, Mia and Zoe | two daughters now\n"
        f"REMOVE | {user.id_of('Has a cat')} | our cat died\n"
        f"REPLACE | {user.id_of('Lives in Leeds')} | Lives in York | we moved to York\n"
        "ADD | Interests | Plays chess | I play chess\n"
    )
    assert diff(user) == [
        "Has a daughter, Mia → Has two daughters, Mia and Zoe",
        "Lives in Leeds → Lives in York",
        "+ Plays chess",
        "- Has a cat",
    ]
    family = {"section": "Family", "before": "Has a daughter, Mia", "after": "Has two daughters, Mia and Zoe"}
    assert json.loads(user.run("diff", "--json")[0])["changes"][0] == family
    user.run("undo")
    user.profile = "Some prose\n\n## Family\n- Has two cats\n"
    assert "+ Has two cats" in diff(user)
    assert "→" not in "".join(diff(user)), "nobody said what became of what"


def test_a_moved_line_is_not_shown_nor_one_that_still_stands_elsewhere(user: User) -> None:
    load(user, "## Home\n- Yoga\n- Tea\n\n## Work\n- Yoga\n", "## Home\n\n## Work\n- Yoga\n- Tea\n- Go\n")
    assert diff(user) == ["+ Go"]


def test_two_changes_of_a_section_are_not_shown_as_one_that_rewords(user: User) -> None:
    load(user, "## X\n- Likes tea\n", "## X\n", "## X\n- Plays chess\n", "## X\n- Plays Go\n")
    assert diff(user) == ["Plays chess → Plays Go"]
    assert diff(user, "1", "3") == ["+ Plays chess", "- Likes tea"]


def test_what_is_taken_back_is_shown_as_reworded_once_and_what_was_said_last_counts(user: User) -> None:
    user.profile = "- Nurse\n- Works as a nurse\n- Has a cat\n"
    user.types("I am a nurse in Hull")
    user.learns(f"REPLACE | {user.id_of('Nurse')} | Nurse in Hull | a nurse in Hull")
    said = user.run("undo")[1]
    assert "Changed: “Nurse in Hull” → “Nurse”\n" in said
    user.run("undo", "3")
    user.types("I left Hull, I am just a nurse")
    nurse, works = user.id_of("Nurse in Hull"), user.id_of("Works as a nurse")
    user.learns(f"REPLACE | {works} | Nurse | just a nurse\nREMOVE | {nurse} | I left Hull")
    assert diff(user) == ["Works as a nurse → Nurse", "- Nurse in Hull"]
    user.has_to_review(Edit("REPLACE", "Nurse", "Sails", "q"), Edit("REPLACE", "Has a cat", "Sails", "q"))
    user.run("review", "--accept", "all")
    assert diff(user).count("Has a cat → Sails") == 1
    user.run("undo")
    assert sum("Sails →" in change for change in diff(user)) == 1


def test_a_rollback_rewords_nothing(user: User) -> None:
    load(user, "## X\n- Plays cello\n", "## X\n- Plays flute\n")
    assert user.run("rollback", "1")[1].startswith("Added: “Plays cello”\nRemoved: “Plays flute”\n")


def test_diff_shows_the_last_change_or_any_two_versions(user: User) -> None:
    assert "0 differences" in user.run("diff")[1]
    load(user, "## X\n- A\n", "## X\n- A\n- B\n", "## X\n- A\n- B\n- C\n", "## At X\n* A\n* B\n* C\n")
    assert user.run("diff", "2", "3") == ("+ C\n", "From change 2 to 3: 1 difference\n")
    assert diff(user, "1") == ["+ B", "+ C"]
    assert diff(user, "0", "2") == ["+ A", "+ B"]
    assert diff(user, "3", "1") == ["- B", "- C"]
    for same in (("1", "1"), ()):
        shown, said = user.run("diff", *same)
        assert (shown, ": 0 differences" in said) == ("", True)
    assert user.run("history", "-n", "1")[0].endswith("  load\n")
    for command in (["diff", "9"], ["undo", "9"], ["rollback", "9"]):
        assert "There is no change 9; see: llm memory history" in user.run(*command, code=1)[1]


def test_diff_is_coloured_at_a_terminal(user: User) -> None:
    load(user, "- A\n", "- B\n- C\n")
    terminal = user.terminal("llm", "memory", "diff", auto=None)
    terminal.wait()
    assert re.search(r"\x1b\[31m *- A", terminal.shown)
    assert re.search(r"\x1b\[32m *\+ B", terminal.shown)


# Undo


def test_undo_takes_the_last_change_back_then_the_one_before_until_nothing_is_left(user: User) -> None:
    assert user.run("undo", code=1)[1] == "Error: There is nothing left to undo; see: llm memory history\n"
    load(user, PROFILE)
    user.has_learned("Has a dog", "I have a dog")
    user.profile = user.profile.replace("- Likes short answers\n", "")
    user.run("clear", "--yes")
    expected = [
        ["Lives in Leeds", "Has a dog"],
        ["Lives in Leeds", "Has a dog", "Likes short answers"],
        ["Lives in Leeds", "Likes short answers"],
        [],
    ]
    for facts in expected:
        user.run("undo")
        assert user.facts == facts
    assert "There is nothing left to undo" in user.run("undo", code=1)[1]
    assert user.authors == ["load", "worker", "outside", "clear", *["undo"] * 4]


def test_undo_says_what_it_changed_and_the_command_it_names_brings_that_back(user: User) -> None:
    load(user, PROFILE)
    add(user, "Keeps bees")
    user.has_learned("Has a dog", "I have a dog")
    said = user.run("undo", "2")[1]
    for facts in (["Has a dog"], ["Has a dog", "Keeps bees"], ["Has a dog"]):
        assert "Keeps bees" in said
        assert [fact for fact in user.facts if fact in PROFILE] == ["Lives in Leeds", "Likes short answers"]
        assert sorted(fact for fact in user.facts if fact not in PROFILE) == facts
        (undo,) = re.findall(r"To (?:redo|undo this): llm memory (undo[ \d]*)", said)
        said = user.run(*undo.split())[1]


@pytest.mark.parametrize(
    ("ago", "told"),
    [
        ({"seconds": 59}, "a moment ago"),
        ({"minutes": 1}, "1 minute ago"),
        ({"minutes": 20}, "20 minutes ago"),
        ({"hours": 23.9}, "23 hours ago"),
        ({"days": 3}, "3 days ago"),
        ({"days": -1}, "a moment ago"),
    ],
)
def test_undo_says_what_kind_of_change_it_undid_and_when_that_was(user: User, ago: dict[str, float], told: str) -> None:
    user.has_to_review(Edit("ADD", "Preferences", "Always asks for tea", "I always ask for tea"))
    with user.memory(now=lambda: utc_now() - dt.timedelta(**ago)) as opened:
        review(opened, waiting_edits(opened))
    assert user.run("undo")[1].startswith(f"Undid change 1 (review, {told})\n")


def test_every_author_of_a_version_is_called_something(user: User) -> None:
    with user.memory() as opened:
        for number, author in enumerate(AUTHORS):
            opened.history.change(author, functools.partial("{1}- Fact {0}\n".format, number))
    assert user.authors == [*AUTHORS]
    shown = user.run("history", "-n", "0")[0]
    for told in (author.told for author in AUTHORS.values()):
        assert re.search(rf"^ *\d+ .*{told}$", shown, re.MULTILINE)


def test_history_marks_what_is_undone_and_what_undid_it(user: User) -> None:
    add(user, "Plays chess", "Plays go")

    def undone() -> list[int]:
        return [version["id"] for version in history(user) if version["undone"]]

    user.run("undo", "1")
    assert undone() == [1]
    assert [version["undoes"] for version in history(user)] == [[], [], [1]]
    user.run("undo", "3")
    assert undone() == [3], "a change is undone while an undo of it stands"
    assert [version["undoes"] for version in history(user)] == [[], [], [1], [3]]
    shown = user.run("history")[0]
    assert re.findall(r"(\d) .*undo of (\d)(.*undone)?", shown) == [("4", "3", ""), ("3", "1", ", undone")]
    user.run("undo")
    assert user.facts == ["Plays chess"], "neither an undo nor what one took back is undone by a plain undo"
    assert undone() == [2, 3]


def test_history_calls_what_was_undone_so_when_its_fact_was_added_again(user: User) -> None:
    add(user, "Uses vim")
    user.run("undo")
    add(user, "Uses vim")
    assert [version["undone"] for version in history(user)] == [True, False, False]


def test_a_change_whose_line_was_changed_again_stays_whole_and_the_later_one_is_named(user: User) -> None:
    user.has_learned("Lives in Leeds", "I live in Leeds")
    user.types("I moved to York and play chess")
    user.learns(
        f"REPLACE | {user.id_of('Lives in Leeds')} | Lives in York | I moved to York\n"
        "ADD | Interests | Plays chess | play chess"
    )
    user.types("I moved to Hull")
    user.learns(f"REPLACE | {user.id_of('Lives in York')} | Lives in Hull | I moved to Hull")
    facts, versions = user.facts, user.versions()
    said = user.run("undo", "2", code=1)[1]
    assert "Change 3 has since changed the same lines; first: llm memory undo 3\n" in said
    assert (user.facts, user.versions()) == (facts, versions), "nothing is undone by halves"
    user.run("undo", "3")
    user.run("undo", "2")
    assert user.facts == ["Lives in Leeds"]


@pytest.mark.parametrize("back", [["undo 3", "undo 4"], ["rollback 2", "rollback 3"]])
def test_a_later_change_that_is_there_again_is_named_too(user: User, back: list[str]) -> None:
    load(user, "- Lives in Rome\n", "- Lives in Bonn\n", "- Lives in Bern\n")
    for command in back:
        user.run(*command.split())
    said = user.run("undo", "2", code=1)[1]
    assert "Change 3 has since changed the same lines; first: llm memory undo 3\n" in said
    assert user.facts == ["Lives in Bern"]


def test_a_redo_whose_line_a_later_undo_took_is_refused_until_that_is_redone(user: User) -> None:
    load(user, "- Lives in Leeds\n", "- Lives in York\n", "- Lives in Berlin\n")
    user.run("undo")
    user.run("undo")
    said = user.run("undo", "4", code=1)[1]
    assert "Change 5 has since changed the same lines; first: llm memory undo 5\n" in said
    assert user.facts == ["Lives in Leeds"], "not Berlin beside it"
    user.run("undo", "5")
    user.run("undo", "4")
    assert user.facts == ["Lives in Berlin"]


def test_a_later_change_that_was_undone_is_not_named(user: User) -> None:
    load(user, "- Lives in Rome\n", "- Lives in Bonn\n")
    user.run("undo", "2")
    user.run("rollback", "0")
    assert "Change 1 has nothing left to undo" in user.run("undo", "1")[1]


def test_where_nothing_is_left_to_undo_it_says_so_and_makes_no_version(user: User) -> None:
    add(user, "Uses vim")
    add(user, "Vegetarian", section="Preferences")
    add(user, "Plays chess")
    user.run("undo", "2")
    without, versions = user.profile, user.versions()
    assert "Change 2 was undone; to redo it: llm memory undo 4" in user.run("undo", "2", code=1)[1]
    assert (user.profile, user.versions()) == (without, versions)
    add(user, "Vegetarian", section="Preferences")
    user.run("undo", "4")
    assert sorted(user.facts) == ["Plays chess", "Uses vim", "Vegetarian"], "it came back meanwhile, and is not doubled"
    assert user.profile.count("## Preferences") == 1


def test_what_was_written_around_a_line_does_not_keep_it_from_being_undone(user: User) -> None:
    add(user, "Owns a goat", "Owns a hen")
    user.profile = f"{user.profile}no dash\n"
    user.run("history")
    add(user, "Speaks Welsh")
    user.run("undo")
    user.run("undo", "1")
    user.run("undo", "2")
    assert "Owns" not in user.profile
    assert "no dash" in user.profile
    user.run("undo")
    assert "no dash" not in user.profile
    assert "nothing left to undo" in user.run("undo", code=1)[1]
    user.run("undo", "7")
    assert "Owns a hen" in user.profile


def test_undo_brings_back_no_line_that_was_forgotten(user: User) -> None:
    load(user, PROFILE, "- New\n")
    user.run("forget", "Leeds", "--yes")
    user.run("undo")
    assert user.facts == ["Likes short answers"]
    assert "[forgotten]" not in user.profile
    assert user.files_with("Leeds") == []
    user.run("forget", "short", "--yes")
    assert "Change 4 (forget) can't be undone" in user.run("undo", "4", code=1)[1]
    assert user.facts == []
    assert "forgotten" not in "".join(user.run("undo", "1")) + user.profile


def test_undo_stops_at_a_forget_and_names_the_change_before_it_of_which_something_is_left(user: User) -> None:
    add(user, "Plays chess")
    add(user, "Works as a baker", section="Music")
    user.run("forget", "baker", "--yes")
    said = user.run("undo", code=1)[1]
    assert said == "Error: Change 3 (forget) can't be undone; the one before: llm memory undo 1\n"
    assert user.facts == ["Plays chess"]
    user.run("undo", "1")
    assert user.facts == []
    assert "There is nothing left to undo" in user.run("undo", code=1)[1]
    assert "can't be undone" in user.run("undo", "3", code=1)[1]


def test_what_stood_there_before_the_history_is_no_change_to_undo(user: User) -> None:
    user.profile = PROFILE
    add(user, "Plays chess")
    user.run("undo")
    assert "There is nothing left to undo" in user.run("undo", code=1)[1]
    assert "Change 1 (before the history) can't be undone" in user.run("undo", "1", code=1)[1]
    assert user.profile == PROFILE


def test_undoing_the_fact_that_a_heading_came_with_leaves_the_others_below_it(user: User) -> None:
    for fact, section in (("Alpha", "Work"), ("Beta", "Work"), ("Kiwi", "Fruit"), ("Plum", "Fruit")):
        add(user, fact, section=section)
    user.run("undo", "1")
    user.run("undo", "3")
    assert user.profile == "# User Profile\n\n## Work\n- Beta\n\n## Fruit\n- Plum\n"
    assert [(item.text, item.section) for item in Document(user.profile).items] == [("Beta", "Work"), ("Plum", "Fruit")]
    user.run("undo", "5")
    assert sorted(user.facts) == ["Alpha", "Beta", "Plum"]
    assert user.profile.count("## Work") == 1


def test_a_heading_of_ours_goes_with_its_last_line_and_comes_back_with_the_first(user: User) -> None:
    user.run("load", "-", "--yes", stdin="# Me\n")
    add(user, "Owns a dinghy", "Sails")
    user.run("undo", "2")
    user.run("undo", "3")
    assert user.profile.strip() == "# Me"
    user.run("undo", "4")
    assert user.profile.split("\n") == ["# Me", "", "## Interests", "- Owns a dinghy", ""]
    user.run("remove", "dinghy")
    assert user.profile.strip() == "# Me"
    user.run("undo")
    user.run("forget", "dinghy", "--yes")
    assert user.profile.strip() == "# Me"


def test_a_line_comes_back_below_its_heading_where_that_is_now(user: User) -> None:
    add(user, "Owns a dinghy", section="Boats")
    user.run("undo")
    add(user, "Sails", section="Boats")
    add(user, "Nurse", section="Work")
    user.run("undo", "2")
    found = [(item.section, item.text) for item in Document(user.profile).items]
    assert found == [("Boats", "Sails"), ("Boats", "Owns a dinghy"), ("Work", "Nurse")]
    assert user.profile.count("## Boats") == 1


@pytest.mark.parametrize("section", ["Work", "Interests", "Home"])
def test_a_title_of_ours_stands_first_in_whatever_order_changes_are_redone(user: User, section: str) -> None:
    add(user, "Nurse", section="Work")
    user.run("add", "-", "--section", section, stdin="Sails\nPlays chess\n")
    for undo in (["undo"], ["undo"], ["undo", "3"], ["undo", "4"]):
        user.run(*undo)
        assert user.profile == "" or user.profile.startswith("# User Profile\n\n## ")
    add(user, "Short answers", section="Preferences")
    assert user.profile.count("# User Profile") == 1
    found = {item.text: item.section for item in Document(user.profile).items}
    assert found == {"Nurse": "Work", "Sails": section, "Plays chess": section, "Short answers": "Preferences"}


def test_undo_leaves_a_heading_that_others_use_and_what_they_have_put_below_it_as_it_is(user: User) -> None:
    user.run("add", "Lives in Leeds")
    user.run("add", "Plays chess", "--section", "Work")
    below = "\nMy shifts are odd.\n\n| day | shift |\n|---|---|\n| Mon | night |\n\n```\nx = 1\n```\n"
    user.places.profile.write_text(user.profile + below)
    user.run("undo", "2")
    assert user.profile == f"# User Profile\n\n## Personal Information\n- Lives in Leeds\n\n## Work\n{below}"


@pytest.mark.parametrize(
    "block",
    [
        "```sh\nls -l\n  cd /\n```\n",
        "| day | shift |\n|---|---|\n| Mon | night |\n",
        "I work in shifts,\nand sail.\n",
        "---\nI sail.\n",
    ],
)
def test_what_is_no_list_comes_back_as_it_was_also_where_its_heading_has_gone(user: User, block: str) -> None:
    user.run("load", "-", "--yes", stdin=f"## Work\n- Nurse\n\n{block}\n## Home\n- Leeds\n")
    user.run("load", "-", "--yes", stdin="## Work\n- Nurse\n\n## Home\n- Leeds\n")
    user.run("load", "-", "--yes", stdin="## Job\n- Nurse\n\n## Home\n- Leeds\n")
    user.run("undo", "2")
    assert f"## Work\n{block}" in user.profile
    assert user.facts == ["Nurse", "Leeds"]


@pytest.mark.parametrize(
    ("before", "gone"),
    [
        ("## Notes\n- Likes tea\n\n```\nalias\n```\n", "\n```\nalias\n```\n"),
        ("## Notes\n- [x] Pack bags\n- [ ] Call Ann\n", "- [x] Pack bags\n"),
        ("## Notes\n- Tea\n  - Green\n- Rice\n", "  - Green\n"),
        ("## A\n- Tea\n\n## Notes\n- Tea\n", "- Tea\n\n"),
        ("- Likes tea\n- Has a cat\n\n## Notes\n- Rice\n", "- Likes tea\n"),
        ("## Notes\n- One\n- Two\n- Three\n", "- Two\n"),
    ],
)
def test_what_an_older_change_took_comes_back_where_it_stood(user: User, before: str, gone: str) -> None:
    user.run("load", "-", "--yes", stdin=before)
    user.run("load", "-", "--yes", stdin=before.replace(gone, "", 1))
    add(user, "Zebra", section="Notes")
    user.run("undo", "2")
    assert user.profile.replace("- Zebra\n", "") == before


def test_an_undo_that_would_hide_lines_in_code_is_refused(user: User) -> None:
    user.run("load", "-", "--yes", stdin="```\n## Work\n```\n")
    user.run("load", "-", "--yes", stdin="```\n")
    user.run("load", "-", "--yes", stdin="- Nurse\n")
    assert "llm memory rollback NUMBER" in user.run("undo", "2", code=1)[1]
    assert user.facts == ["Nurse"]


def test_facts_that_come_back_below_the_same_heading_stand_together_in_whatever_order(user: User) -> None:
    for fact, section in (("Alpha", "Work"), ("Beta", "Work"), ("Kiwi", "Fruit")):
        add(user, fact, section=section)
    for _ in range(3):
        user.run("undo")
    for number in (5, 6, 4):
        user.run("undo", str(number))
    assert user.profile == "# User Profile\n\n## Work\n- Beta\n- Alpha\n\n## Fruit\n- Kiwi\n"


def test_an_entry_comes_back_as_it_was_also_where_its_heading_has_gone(user: User) -> None:
    user.run("load", "-", "--yes", stdin="## Plans\n* [x] Buys an oven\n* [ ] Sails\n")
    user.run("load", "-", "--yes", stdin="## Plans\n* [ ] Sails\n")
    user.run("load", "-", "--yes", stdin="- Sails\n")
    user.run("undo", "2")
    assert user.profile == "- Sails\n\n## Plans\n* [x] Buys an oven\n"


def test_a_bullet_in_code_comes_back_as_text_where_the_code_has_gone(user: User) -> None:
    user.run("load", "-", "--yes", stdin="## Home\n~~~\n* tea\n~~~\n")
    user.run("load", "-", "--yes", stdin="## Home\n~~~\n")
    user.run("load", "-", "--yes", stdin="\n")
    user.run("undo", "2")
    assert user.profile.endswith("## Home\n- * tea\n")


def test_the_title_stays_when_the_change_that_brought_it_is_undone_before_others(user: User) -> None:
    add(user, "Nurse", section="Work")
    add(user, "Leeds", section="Home")
    user.run("undo", "1")
    assert user.profile == "# User Profile\n\n## Home\n- Leeds\n"
    user.run("undo", "2")
    assert user.profile == ""


def test_no_title_comes_back_without_a_fact(user: User) -> None:
    add(user, "Nurse", "Sails")
    user.run("rollback", "0")
    assert "nothing left to undo" in user.run("undo", "2")[1]
    assert user.profile == ""


def test_a_title_comes_back_above_what_came_without_one(user: User) -> None:
    add(user, "Nurse", section="Work")
    user.run("undo")
    user.profile = "- Sails\n"
    user.run("undo", "2")
    assert user.profile == "# User Profile\n- Sails\n\n## Work\n- Nurse\n"
    add(user, "Plays chess")
    without = user.profile.replace("# User Profile\n", "")
    user.profile = without
    user.run("undo", "5")
    assert user.profile == without.partition("\n\n## Interests")[0] + "\n", "who has removed it gets no other"


def test_no_heading_is_left_whose_only_other_line_was_forgotten(user: User) -> None:
    add(user, "Likes chess", section="Interests")
    add(user, "Sails", section="Interests")
    user.run("forget", "chess", "--yes")
    user.run("undo", "2")
    assert user.profile.strip() == "# User Profile"


def test_a_heading_of_the_users_own_stays(user: User) -> None:
    user.profile = "# Me\n\n## Boats\n- Owns a dinghy\n"
    user.run("remove", "dinghy")
    assert user.profile == "# Me\n\n## Boats\n"
    add(user, "Sails", section="Boats")
    user.run("undo")
    assert user.profile == "# Me\n\n## Boats\n"


def test_a_line_that_stood_below_no_heading_is_brought_back(user: User) -> None:
    user.run("load", "-", stdin="- Likes tea\n- Has a dog\n")
    user.run("load", "-", "--yes", stdin="- Has a dog\n")
    user.run("add", "Plays chess")
    user.run("undo", "2")
    assert sorted(user.facts) == ["Has a dog", "Likes tea", "Plays chess"]


# Undo and rollback alike


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
    "## At home\n* Same, but for the looks\n",
    "## Home\n- Same, but for the looks\n",
]


@pytest.mark.parametrize("back", [lambda version: ["rollback", str(version)], lambda _: ["undo"]], ids=["to", "undo"])
def test_every_text_the_user_ever_saw_comes_back_byte_for_byte(user: User, back: Callable[[int], list[str]]) -> None:
    for number, text in enumerate(TEXTS[1:], 1):
        if number % 2:
            with user.memory() as memory:
                memory.history.overwrite("load", text)
        else:
            user.profile = text
            user.run("history")
    for number, text in list(enumerate(TEXTS))[-2::-1]:
        user.run(*back(number))
        assert user.places.profile.read_bytes() == text.encode()
        assert user.text_of(number) == text


def test_a_rollback_is_a_version_itself_and_is_undone_like_any_other(user: User) -> None:
    load(user, "- A\n", "- B\n")
    said = user.run("rollback", "1")[1]
    assert user.profile == "- A\n"
    assert user.versions()[-1] == (3, "rollback")
    assert "To undo this: llm memory undo 3\n" in said
    user.has_learned("Plays chess", "I play chess")
    user.run("undo", "3")
    assert sorted(user.facts) == ["B", "Plays chess"]
    user.run("rollback", "2")
    assert user.profile == "- B\n", "whatever was learned meanwhile"


def test_undoing_undos_in_any_order_brings_every_fact_back_once(user: User) -> None:
    user.run("add", "Nurse")
    user.run("add", "Likes tea", "--section", "Interests")
    for command in ("undo", "undo", "undo 3", "undo 4"):
        user.run(*command.split())
    assert sorted(user.facts) == ["Likes tea", "Nurse"]
    assert user.profile.count("## ") == 2


def test_undo_of_what_is_undone_leaves_the_same_line_of_a_later_version(user: User) -> None:
    add(user, "Plays chess", "Plays bridge")
    path = user.places.profile
    for old, new in (("chess", "go"), ("bridge", "go")):
        path.write_text(path.read_text().replace(old, new))
        user.run("history")
        if old == "chess":
            user.run("undo")
    assert sorted(user.facts) == ["Plays chess", "Plays go"]
    assert "Change 3 was undone; to redo it: llm memory undo 4" in user.run("undo", "3", code=1)[1]
    assert sorted(user.facts) == ["Plays chess", "Plays go"]
    user.run("undo", "5")
    assert sorted(user.facts) == ["Plays bridge", "Plays chess"]


def test_undo_of_a_spelling_brings_the_old_one_back(user: User) -> None:
    add(user, "Works at ikea")
    user.types("I work at IKEA")
    user.learns(f"REPLACE | {user.id_of('Works at ikea')} | Works at IKEA | I work at IKEA")
    add(user, "Has a cat")
    user.run("undo", "2")
    assert user.facts == ["Works at ikea", "Has a cat"]


def test_undo_of_what_was_added_undone_and_added_again_leaves_it(user: User) -> None:
    add(user, "Likes tea")
    user.run("undo")
    add(user, "Likes tea")
    assert "Change 1 was undone; to redo it: llm memory undo 2" in user.run("undo", "1", code=1)[1]
    assert user.facts == ["Likes tea"]


def test_undo_of_a_change_and_of_its_undo_leaves_every_other_fact(user: User) -> None:
    add(user, "Likes tea", "Has a cat", "Plays go")
    user.run("undo", "3")
    user.run("undo", "4")
    user.run("undo", "3")
    assert sorted(user.facts) == ["Has a cat", "Likes tea"]


def test_a_fact_that_was_added_again_is_the_later_changes(user: User) -> None:
    add(user, "Likes tea")
    user.profile = user.profile.replace("- Likes tea\n", "")
    add(user, "Likes tea")
    assert "Change 3 has since changed the same lines" in user.run("undo", "1", code=1)[1]
    assert user.facts == ["Likes tea"]


def test_undo_takes_a_fact_out_wherever_it_was_moved(user: User) -> None:
    load(user, "- Plays go\n\n## Garden\n- Grows leeks\n")
    add(user, "Likes tea", "Has a cat")
    user.profile = "# User Profile\n- Has a cat\n- Likes tea\n\n## Garden\n- Grows leeks\n- Plays go\n"
    user.run("undo", "2")
    user.run("undo", "3")
    assert user.facts == ["Grows leeks", "Plays go"]


def test_undo_of_a_line_copied_in_order_to_move_it_leaves_every_other_fact(user: User) -> None:
    add(user, "Likes tea")
    for text in ("- Likes tea\n- Has a dog\n- Likes tea\n", "- Has a dog\n- Likes tea\n"):
        user.profile = text
        user.run("history")
    user.run("undo", "2")
    assert user.facts == ["Likes tea"]


def test_undo_turns_no_heading_into_a_comment(user: User) -> None:
    load(user, "## A\n-->\n## B\n- y\n", "## A\n## B\n- y\n", "<!--\n## A\n## B\n- y\n")
    assert "can't be taken out" in user.run("undo", "2", code=1)[1]
    assert user.profile == "<!--\n## A\n## B\n- y\n"


def test_undo_takes_out_prose_wherever_it_was_moved(user: User) -> None:
    load(user, "## Pets\n- Has a cat\n- Has a dog\n", "## Pets\n- Has a cat\n- Has a dog\n\nRather tall.\n")
    user.profile = "Rather tall.\n\n## Pets\n- Has a cat\n- Has a dog\n- Has a fish\n"
    user.run("undo", "2")
    assert "Rather tall" not in user.profile


def test_undo_of_a_move_brings_back_no_line_that_was_removed_since(user: User) -> None:
    load(user, "## Pets\n- Has a cat\n- Has a dog\n", "## Pets\n- Has a dog\n\n## Notes\n- Has a cat\n")
    user.profile = "## Pets\n- Has a dog\n\n## Notes\n"
    user.run("undo", "2")
    assert user.facts == ["Has a dog"]


def test_undo_brings_back_what_stood_in_place_of_a_line_that_was_forgotten(user: User) -> None:
    add(user, "Likes coffee")
    user.types("I like tea")
    user.learns(f"REPLACE | {user.id_of('Likes coffee')} | Likes tea | I like tea")
    user.run("undo")
    user.run("forget", "coffee", "--yes")
    user.run("undo", "3")
    assert user.facts == ["Likes tea"]


def test_a_fact_comes_back_under_its_heading_also_if_that_has_gone_meanwhile(user: User) -> None:
    add(user, "Likes tea", section="Personal Information")
    user.profile = user.profile.replace("tea", "coffee")
    user.run("add", "Plays go", "--section", "Interests")
    user.run("undo", "2")
    user.run("undo", "1")
    user.run("undo", "4")
    assert "## Personal Information\n- Likes coffee\n" in user.profile
    assert "## Interests\n- Plays go\n" in user.profile


def test_rollback_wants_a_number_and_0_is_the_empty_profile(user: User) -> None:
    load(user, PROFILE)
    assert "Missing argument 'NUMBER'. (see: llm memory rollback --help)" in user.run("rollback", code=2)[1]
    assert user.profile == PROFILE
    user.run("rollback", "0")
    assert user.profile == ""


# Times


BASIC: dict[str, str] = {}
if sys.version_info >= (3, 11):  # Python 3.10 reads neither
    BASIC = {"20260701": "2026-07-01T00:00:00+02:00", "2026-10-31T09:00:00Z": "2026-10-31T10:00:00+01:00"}


def test_a_time_is_in_the_users_zone_and_a_day_begins_at_its_midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as in_berlin:
        in_berlin.setenv("TZ", "Europe/Berlin")
        time.tzset()
        for text, moment in {
            "2026-07-01": "2026-07-01T00:00:00+02:00",
            "2026-11-01": "2026-11-01T00:00:00+01:00",
            "yesterday": "2026-11-19T00:00:00+01:00",
            "2026-07-01 08:30": "2026-07-01T08:30:00+02:00",
            "2026-10-31T09:00:00+00:00": "2026-10-31T10:00:00+01:00",
            "2h": "2026-11-20T11:00:00+01:00",
            "5 mins ago": "2026-11-20T12:55:00+01:00",
            "3 days ago": "2026-11-17T13:00:00+01:00",
            "1 w": "2026-11-13T13:00:00+01:00",
            **BASIC,
        }.items():
            assert dt.datetime.fromisoformat(parse_moment(text, NOON)) == dt.datetime.fromisoformat(moment)
    time.tzset()


@pytest.mark.parametrize("text", ["", "soon", "-2h", "2026-13-45", "2.11.2026", "1.5h", "12", "999999 weeks ago"])
def test_nonsense_for_a_time_is_an_error_that_names_the_forms(text: str) -> None:
    with pytest.raises(Problem, match="is not a time; try 2026-11-01, yesterday or 2h"):
        parse_moment(text, NOON)


# Interrupted


class Killed(BaseException):
    """What stops a change where a test wants it."""


class Step(NamedTuple):
    owner: object
    name: str
    after: bool
    """Whether the process dies when the function has done its work, not before."""
    is_recorded: bool
    call: int = 1


STEPS = {
    "before the text is aside": Step(memory, "write_aside", after=False, is_recorded=False),
    "after the text is aside": Step(memory, "write_aside", after=True, is_recorded=False),
    "while the version is recorded": Step(memory.History, "_add", after=True, is_recorded=False),
    "before the exchange": Step(memory, "exchange", after=False, is_recorded=True),
    "after the exchange": Step(memory, "exchange", after=True, is_recorded=True),
    "after it is marked written": Step(memory, "read_settled", after=False, is_recorded=True, call=2),
}


def killed_at(monkeypatch: pytest.MonkeyPatch, step: Step) -> None:
    """Let a function of the module end as if the process was killed in it."""
    function = getattr(step.owner, step.name)
    calls = itertools.count(1)

    def dies(*args: Any) -> Any:
        if next(calls) != step.call:
            return function(*args)
        if step.after:
            function(*args)
        raise Killed

    monkeypatch.setattr(step.owner, step.name, dies)


def dies(user: User, monkeypatch: pytest.MonkeyPatch, step: Step, act: Callable[[memory.Memory], object]) -> None:
    with monkeypatch.context() as dying, user.memory(settling=0) as opened:
        killed_at(dying, step)
        with pytest.raises(Killed):
            act(opened)


def add_chess(opened: memory.Memory) -> None:
    opened.history.change("add", lambda text: f"{text}- Plays chess\n")


def forget_chess(opened: memory.Memory) -> None:
    memory.forget(opened, lambda line: "chess" in line)


@pytest.mark.parametrize("saved", ["", "- Has a cat\n"], ids=["alone", "beside an editor"])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_change_that_is_killed_is_made_or_not_and_no_save_is_lost(
    user: User, monkeypatch: pytest.MonkeyPatch, step: Step, saved: str
) -> None:
    load(user, "- Likes tea\n")
    dies(user, monkeypatch, step, add_chess)
    with user.places.profile.open("a") as editor:
        editor.write(saved)
    with user.memory(settling=0) as opened:
        text = opened.history.adopt()
    assert user.profile == text
    assert ("Plays chess" in user.facts) == step.is_recorded
    assert ("Has a cat" in user.facts) == bool(saved)
    assert "Likes tea" in user.facts
    assert [path.name for path in user.places.directory.glob(".*")] == [".gitignore"]


def test_a_line_that_its_user_deletes_after_a_kill_does_not_come_back(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(user, "- Likes tea\n")
    dies(user, monkeypatch, STEPS["after it is marked written"], add_chess)
    assert "Plays chess" in user.facts
    user.profile = "- Likes tea\n"
    user.run("history")
    assert user.facts == ["Likes tea"]


@pytest.mark.parametrize("name", [name for name, step in STEPS.items() if step.name == "exchange"])
def test_a_forget_that_is_killed_is_finished(user: User, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    load(user, "- Likes tea\n- Plays chess\n")
    dies(user, monkeypatch, STEPS[name], forget_chess)
    user.run("history")
    assert user.profile == "- Likes tea\n"
    assert not [path for path in user.places.directory.iterdir() if b"chess" in path.read_bytes()]


def test_after_a_forget_that_is_killed_an_unreadable_profile_can_be_replaced(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(user, "- Likes tea\n- Plays chess\n")
    dies(user, monkeypatch, STEPS["after the exchange"], forget_chess)
    user.places.profile.write_bytes(b"\xff")
    user.run("rollback", "1")
    assert user.profile == "- Likes tea\n"


def test_a_merge_that_is_too_large_leaves_a_way_back(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    known = "".join(f"- Fact {number:02} {'x' * 1_838}\n" for number in range(50))
    load(user, known)
    exchange = memory.exchange

    def late(*places: Any) -> None:
        monkeypatch.setattr(memory, "exchange", exchange)
        with user.places.profile.open("a") as editor:
            editor.write(f"- {'y' * 7_000}\n")
        exchange(*places)

    monkeypatch.setattr(memory, "exchange", late)
    assert "too large" in user.run("add", "z" * 900, code=1)[1]
    user.run("rollback", "1")
    assert user.profile == known
    user.run("add", "Plays chess")
    assert user.facts[-1] == "Plays chess"


def test_a_change_that_1_0_has_undone_with_another_is_told_by_which(user: User) -> None:
    for fact in ("Likes tea", "Plays go"):
        user.run("add", fact)
    user.run("undo", "2")
    with user.memory() as opened:
        opened.db.execute("update versions set undoes = '[1, 2]' where id = 3")
    for number in ("1", "2"):
        assert f"Change {number} was undone; to redo it: llm memory undo 3" in user.run("undo", number, code=1)[1]


def test_what_an_editor_saved_while_a_change_was_written_is_recorded_before_it_is_removed(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a kill, or a full disk, between the two would lose it."""
    user.profile = "- Likes tea\n"
    user.run("history")
    exchange = memory.exchange
    read_settled = memory.read_settled

    def exchange_with_a_save_begun(place: pathlib.Path, aside: pathlib.Path) -> None:
        place.write_text("")
        exchange(place, aside)

    def settle(path: pathlib.Path, *others: Any) -> str:
        if path == memory.place_aside(user.places):
            path.write_text("- Likes tea\n- Saved meanwhile\n")
            monkeypatch.setattr(memory, "write_aside", fail)
        return read_settled(path, *others)

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(memory, "exchange", exchange_with_a_save_begun)
    monkeypatch.setattr(memory, "read_settled", settle)
    with user.memory() as opened:
        with pytest.raises(OSError, match="full"):
            opened.history.change("add", lambda text: f"{text}- Plays go\n")
        assert Document(opened.history.text(opened.history.latest())).places().keys() == {
            "Likes tea",
            "Plays go",
            "Saved meanwhile",
        }
