"""The profile as a value, and the merge: pure, so tested without any llm."""

from __future__ import annotations

import re
import time

import pytest

from llm_user_memory import DEFAULT_SECTIONS, Document, mask_secrets, merge, says_nothing, without_empty

PROFILE = """\
# User Profile

Written by me, for me.

## Personal Information
- Works as a nurse
- Lives in Leeds

## Current Projects
* Builds a boat

## Interests

## Preferences
- Prefers short answers
"""
PROJECTS = ("Current Projects", "current projects", "## Current Projects:", "[Current Projects]")


def editable(text: str) -> list[str]:
    return [item.text for item in Document(text).items if item.editable]


def changed(text: str, was: str, fact: str) -> str:
    document = Document(text)
    item = document.find(was)
    assert item
    return document.apply(item, item.section, fact).text


# Items


@pytest.mark.parametrize("bullet", ["- ", "* ", "+ ", "• ", "1. ", "12) ", "-   ", "-\t", "  - ", "- [ ] ", "* [x] "])
def test_a_list_entry_of_any_style_is_an_item_and_keeps_its_bullet(bullet: str) -> None:
    text = f"## Work\n{bullet}Nurse\n{bullet}Leeds\n"
    assert editable(text) == ["Nurse", "Leeds"]
    assert changed(text, "Nurse", "Doctor") == f"## Work\n{bullet}Doctor\n{bullet}Leeds\n"


@pytest.mark.parametrize(
    "text",
    [
        "Just prose",
        "## - A heading",
        "-No space",
        "---",
        "* * *",
        "~~~ markdown\n- In a fence\n```\n- Still\n~~~",
        "<!--\n- In a comment\n-->",
        "<!-- - In a comment -->",
        "<!--\n- In a comment\n- that ends here -->\n",
        "```\n" + "- In a fence\n" * 500 + "```\n",
        "<!--\n" + "- In a comment\n" * 500 + "-->\n",
        "Name | Age\n- | -\nEva | 5\n",
        "| Name | Age |\n|:--|--:|\n| 1. Eva | 5 |\n",
        "\ufeff---\ntags:\n  - a\n...\n",
        "Sports I do:\n  - Rowing\n  - Chess\n",
        "Sports I do:\n\n    1. Rowing\n       - at night\n    2. Chess\n",
        "Sports I do:\n      (since school)\n  - Rowing\n",
        "1.5 litres a day",
        "-",
    ],
)
def test_prose_headings_rules_fences_and_comments_contain_no_items(text: str) -> None:
    assert not Document(text).items


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- A\n\n```\n- no\n```\n- B\n<!-- - no -->\n- C\n<!--\n- no\n-->\n- D\n", "A, B, C, D"),
        ("- A\n  goes on\n- B\n", "B"),
        ("- A\n  - nested\n- B\n", "nested, B"),
        ("- A\n  goes on\n  - nested\n    - more\n- B\n", "B"),
        ("- A\n  - nested\n    goes on\n    - deep\n  - next\n- B\n", "next, B"),
        ("Sports:\n  - Rowing\n- B\n## C\n  - D\n", "B, D"),
        ("A few notes:\n - A\n - B\n", "A, B"),
        ("Prose\n- A\n- B\n", "A, B"),
        ("Name | Age\n- | -\nEva | 5\n\n- Pipes a | b\n1. B | c\n", "Pipes a | b, B | c"),
        ("```\nx\n```\n1. A | b\n", "A | b"),
        ("---\ntitle: Me\n---\n- A\n", "A"),
        ("---\n- A\n---\n- B\n", "A, B"),
        ("---\ntitle: nothing closes it\n- B\n", "B"),
        ("- A\n\t1. nested\n- B\n", "nested, B"),
        ("1. A\ngoes on lazily\n2. B\n", "B"),
        ("- A\n  ```\n  code\n  ```\n- B\n", "B"),
        ("- A\n\n  More about A.\n- B\n", "B"),
        ("- A\n\n  - nested\n- B\n", "nested, B"),
        ("- A\n## Next\n- B\n", "A, B"),
        ("- A\n***\n- B\n", "A, B"),
        ("``` ```inline``` is code\n\n- B\n", "B"),
        ("- A\n```\n- Nothing closes it\n<!--\n- C\n", "A, Nothing closes it, C"),
    ],
)
def test_only_entries_of_one_line_are_editable(text: str, expected: str) -> None:
    assert editable(text) == expected.split(", ")


def test_headings_are_read_without_their_closing_marks_and_each_item_knows_its_own() -> None:
    document = Document("# Me #\n## Work ##  \n##\n### C#\n## #\n#none\n")
    assert document.headings == {0: "Me", 1: "Work", 2: "", 3: "C#", 4: ""}
    items = Document("- Before\n# Title\n- Top\n## Work ##\n- Nurse\n### Deeper\n- Ward 4\n").items
    assert [item.section for item in items] == ["", "Title", "Work", "Deeper"]


# Ids


def test_each_item_has_an_id_of_its_own_that_comes_from_its_text_and_stays_when_others_move() -> None:
    before, after = Document(PROFILE), Document(PROFILE.replace("- Works as a nurse\n", "- New\n- Newer\n"))
    ids = [next(id for id, item in one.ids.items() if item.text == "Lives in Leeds") for one in (before, after)]
    assert ids[0] == ids[1]
    assert re.fullmatch("[a-z]{3,4}", ids[0])
    many = Document("".join(f"- Fact {n % 1500}\n" for n in range(3000)))
    assert [item.line for item in many.ids.values()] == list(range(1500)), "one id for what is said twice"


@pytest.mark.parametrize("value", ["Wrote zq004x", "4711", "Hunter2!", "Rides route 12345678901"])
def test_no_id_makes_its_line_look_like_a_secret(value: str) -> None:
    many = Document("".join(f"- Fact {n}\n" for n in range(4000)))
    lines = "\n".join(f"[{id}] {value}" for id in many.ids)
    assert mask_secrets(lines) == lines


# Bytes that stay


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["", "newline"])
def test_line_ends_and_bom_stay_as_they_are_and_a_missing_final_newline_is_added(
    newline: str, bom: str, end: str
) -> None:
    lines = [
        "# User Profile",
        "",
        "## Work",
        "- Nurse",
        "\t-  Odd  ",
        "prose \u2028 \x0c here",
        "",
        "## Tea",
        "* Green",
    ]

    def written(*lines: str, end: str = newline) -> str:
        return bom + newline.join(lines) + end

    final = newline if end else ""
    text = written(*lines, end=final)
    assert changed(text, "Green", "Black") == written(*lines[:-1], "* Black")
    assert Document(text).add("Tea", "Oolong").text == written(*lines, "* Oolong")
    assert Document(text).add("Work", "Leeds").text == written(*lines[:6], "- Leeds", *lines[6:], end=final)
    assert Document(text).add("Interests", "Chess").text == written(*lines, "", "## Interests", "- Chess")
    tea = Document(written("## Tea", "* Black", "* Green", end=""))
    assert tea.apply(tea.items[0], "", "").text == written("## Tea", "* Green", end="")


# Where a new fact goes


@pytest.mark.parametrize(
    ("text", "section", "fact", "after"),
    [
        *((PROFILE, name, "Sails", PROFILE.replace("boat\n", "boat\n* Sails\n")) for name in PROJECTS),
        *((blank, "Interests", "Tea", "{}# User Profile\n\n## Interests\n- Tea\n") for blank in ("", "\n", "  \n")),
        (" ", "Interests", "Tea", " \n# User Profile\n\n## Interests\n- Tea\n"),
        ("# Me\n\n## Hobbies\n- Chess\n", "", "Is a lion", "{}\n## Notes\n- Is a lion\n"),
        ("# Me\n\n## Hobbies\n- Chess\n", "preferences", "Short", "{}\n## Preferences\n- Short\n"),
        ("## INTERESTS\n- Tea\n", "Interests", "Chess", "{}- Chess\n"),
        ("## Work\n- Nurse\n\n", "Interests", "Tea", "{}## Interests\n- Tea\n"),
        ("## Work\n- Nurse\n\n## Tea\n- Green\n\n## Work\n- B\n", "Work", "C", "{}- C\n"),
        ("# Me\n\n## Work\n- Nurse\n\n### Clients\n- Acme\n", "Interests", "Tea", "{}\n## Interests\n- Tea\n"),
        ("## Work\n1. A\n2. B\n", "Work", "C", "{}- C\n"),
        ("## Work\n- [x] A\n", "Work", "C", "{}- C\n"),
        ("## Work\n* A\n  + deep\n", "Work", "C", "{}* C\n"),
        ("## Work\n  - A\nProse\n", "Work", "C", "{}- C\n"),
        ("## Work\nMy jobs:\n    * Nurse\n", "Work", "C", "{}- C\n"),
        ("---\ntags:\n  + x\n---\n", "Interests", "C", "{}\n## Interests\n- C\n"),
    ],
)
def test_a_new_fact_goes_to_its_section_in_the_style_of_that(text: str, section: str, fact: str, after: str) -> None:
    assert Document(text).add(section, fact).text == after.format(text)


def test_the_users_name_for_a_section_is_taken_as_it_is() -> None:
    for own, wanted in (("Wealth", "Health"), ("Child 1", "Child 2"), ("Preferences", "Preference")):
        mine = Document(f"## {own}\n- A\n")
        assert mine.add(wanted, "B").text == f"## {own}\n- A\n\n## {wanted}\n- B\n"
        assert mine.section(f"## {own.upper()}:") == own
        assert mine.section(wanted) == "Notes"


def test_a_heading_that_ends_in_a_sign_is_found_by_its_name() -> None:
    profile = Document("## C\n- A\n## C#\n- B\n## Work:\n- C\n## [Books]\n- D\n")
    for heading in ("C#", "C", "Work:", "[Books]"):
        assert profile.section(heading) == heading
    assert [profile.section(name) for name in ("## c#", "work", "**Books**")] == ["C#", "Work:", "[Books]"]


def test_a_profile_of_headings_only_is_empty() -> None:
    assert says_nothing("\ufeff# User Profile\r\n\r\n" + "\n".join(f"## {name}" for name in DEFAULT_SECTIONS))
    for text in (PROFILE, "prose", "    # code\n"):
        assert not says_nothing(text)


def test_a_fact_counts_as_there_whatever_its_case_spacing_quotes_and_full_stop() -> None:
    document = Document("- Likes “green”  tea.\n")
    assert document.has('likes "green" tea')
    assert not document.has("Likes black tea")


def test_prose_below_a_blank_line_belongs_to_no_entry() -> None:
    assert [item.editable for item in Document("- A\n\nI sail.\n").items] == [True]
    assert [item.editable for item in Document("- A\nand B.\n").items] == [False]
    assert Document("## X\n- A\n").add("X", "I sail.", "I sail.\n").text == "## X\n- A\n\nI sail.\n"


# Merging


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        ("- A\n- B\n- C\n", "- A2\n- B\n- C\n", "- A\n- B\n- C\n- D\n", "- A2\n- B\n- C\n- D\n"),
        ("- A\n- B\n- C\n", "- A\n- C\n", "- A\n- B\n- C\n- D\n", "- A\n- C\n- D\n"),
        ("- A\n- B\n", "- A2\n- B\n", "- A\n- B2\n", "- A2\n- B2\n"),
        ("- A\n- B\n", "- B\n", "- A\n- B2\n", "- B2\n"),
        ("- A\n", "- A\n- B\n", "- A\n- B\n", "- A\n- B\n"),
        ("- A\n- B", "- A\n- B\n- C\n", "- A2\n- B", "- A2\n- B\n- C\n"),
        ("- A\n- B\n", "- A\n- B", "- A2\n- B\n", "- A2\n- B\n"),
        ("- A\n", "", "- A\n- B\n", "- B\n"),
        ("- A\n- B\n", "- A\n- Mine\n", "- A\n- Theirs\n", "- A\n- Mine\n- Theirs\n"),
        ("- A\r\n- B", "- A\r\n", "- A\r\n- B\r\n- C", "- A\r\n- C\r\n"),
        ("- A\r\n- B\r\n", "- A\r\n- B", "- A2\r\n- B\r\n", "- A2\r\n- B\r\n"),
        ("- A\r\n- B", "- A\r\n- B\n- C\n", "- A\r\n", "- A\r\n- C\n"),
        ("- A\r\n- B\n- C\r\n", "- A\r\n- B\n- C\r\n- D\n", "- A2\n- B\n- C\r\n", "- A2\r\n- B\n- C\r\n- D\n"),
        ("- A\n- B\n- C\n", "- A\r\n- B\r\n- C\r\n", "- A\n- C\n- D\n", "- A\r\n- C\r\n- D\r\n"),
        ("- A\n- B\n", "- A\n- X\n- B\n", "- A\n- B\n- X\n", "- A\n- X\n- B\n"),
        ("- A\n", "- A\n## X\n- B\n", "## X\n- C\n- A\n", "- C\n- A\n## X\n- B\n"),
        ("", "# T\n\n## X\n- A\n", "# T\n\n## Y\n- B\n", "# T\n\n## X\n- A\n\n## Y\n- B\n"),
        ("- A\n", "- A\nI sail.\n- B\n", "- A\nI sail.\n- C\n", "- A\nI sail.\n- B\n- C\n"),
    ],
    ids=[
        *("both", "removed", "neighbours", "beside", "same", "no newline", "newline cut", "emptied", "same line"),
        *("CRLF, removed", "CRLF, newline cut", "another end, removed", "mixed ends", "LF to CRLF, removed"),
        *("added in two places", "a heading in two places", "a blank line above a heading", "the same prose"),
    ],
)
def test_changes_of_both_sides_are_kept(base: str, ours: str, theirs: str, merged: str) -> None:
    assert merge(base, ours, theirs) == merged


def test_a_heading_of_ours_goes_with_its_last_line_and_one_that_had_none_stays() -> None:
    assert without_empty("## Interests\n- Chess\n", "## Interests\n") == ""
    assert without_empty(PROFILE, PROFILE) == PROFILE


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("## Notes\n\n### Boat\n- Sails\n", "## Notes\n\n### Boat\n- Sails\n"),
        ("## Notes\n### Interests\n#### Boat\n- Sails\n", "## Notes\n### Interests\n#### Boat\n- Sails\n"),
        ("## Notes\n### Interests\n### Boat\n- Sails\n", "## Notes\n### Boat\n- Sails\n"),
        ("## Notes\n### Interests\n## Boat\n- Sails\n", "## Boat\n- Sails\n"),
    ],
)
def test_a_heading_with_a_deeper_one_that_stays_stays(text: str, left: str) -> None:
    had_lines = text.replace("Notes\n", "Notes\n- A\n").replace("Interests\n", "Interests\n- B\n")
    assert without_empty(had_lines, text) == left


@pytest.mark.parametrize("blank", ["\n", " \n", "\r\n", "\n\n"])
def test_an_entry_that_both_have_added_stands_once_also_below_a_blank_line(blank: str) -> None:
    merged = merge("", "## Home\n- Nurse\n", f"## Home\n{blank}- Nurse\n- Sails\n")
    assert merged.count("- Nurse") == merged.count("- Sails") == merged.count("## Home") == 1
    assert merge("", "- Nurse\n", " \n- Nurse\n") == "- Nurse\n \n", "spaces are not nothing"


def test_what_any_line_says_is_known_also_in_prose_and_below_it() -> None:
    document = Document("I play chess.\nSports:\n  - Rowing\n")
    assert document.has("Rowing")
    assert document.has("I play chess")


@pytest.mark.parametrize("line", ["- A\n", "- A\n\n", "- A\n- B\n- C\n"])
def test_thousands_of_lines_that_say_the_same_are_merged_in_no_time(line: str) -> None:
    base = line * (7_000 // line.count("\n"))
    began = time.process_time()
    assert merge(base, f"- Mine\n{base}- Mine\n", f"{base}- Theirs\n") == f"- Mine\n{base}- Mine\n- Theirs\n"
    assert merge(base, base.replace(line, "", 1), f"{base}- Theirs\n") == base.replace(line, "", 1) + "- Theirs\n"
    assert time.process_time() - began < 5, "it was half a minute once, with the profile locked"


@pytest.mark.parametrize(
    "line", ["```a\n", "<!-- a\n", "~~~~ x\n", "- | -\n", "a | b\n- | -\n", "    - x\n", "x\n  - y\n"]
)
def test_a_profile_of_whatever_lines_is_read_in_no_time(line: str) -> None:
    began = time.process_time()
    text = line * (99_000 // len(line))
    assert Document(text).add("Notes", "A").text == f"{text}\n## Notes\n- A\n"
    assert time.process_time() - began < 5
