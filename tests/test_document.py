"""The profile as a value, and the merge: pure, so tested without any llm."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llm_user_memory import DEFAULT_SECTIONS, Document, Edit, Message, judge, merge, says_nothing

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


def texts(text: str) -> list[str]:
    return [item.text for item in Document(text).items]


def editable(text: str) -> list[str]:
    return [item.text for item in Document(text).items if item.editable]


def changed(text: str, was: str, fact: str) -> str:
    document = Document(text)
    item = document.find(was)
    assert item
    return document.replace(item, fact).text


def removed(text: str, was: str) -> str:
    document = Document(text)
    item = document.find(was)
    assert item
    return document.remove(item).text


# What is an item


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
        "- - -",
        "```\n- In a fence\n```",
        "~~~ markdown\n- In a fence\n```\n- Still\n~~~",
        "   ````\n- In a fence\n```\n- Still\n````",
        "<!--\n- In a comment\n-->",
        "<!-- - In a comment -->",
        "```\n- In a fence that never closes",
        "- ```py\n  - In a fence\n  ```",
        "1.5 litres a day",
        "-",
        "- ",
    ],
)
def test_prose_headings_rules_fences_and_comments_hold_no_items(text: str) -> None:
    assert texts(text) == []


def test_code_inside_a_line_opens_no_fence() -> None:
    for line in ("``` ```inline``` is code", "- ~~~ is how I mark code", "- ```x``` is code"):
        document = Document(f"{line}\n\n- Stays editable\n")
        assert document.items[-1].editable
        assert document.unclosed is None


def test_headings_are_read_without_their_closing_marks() -> None:
    document = Document("# Me #\n## Work ##  \n##\n### C#\n## #\n#none\n")
    assert document.headings == [(0, 1, "Me"), (1, 2, "Work"), (2, 2, ""), (3, 3, "C#"), (4, 2, "")]


def test_items_resume_after_a_fence_or_a_comment() -> None:
    assert editable("- A\n\n```\n- no\n```\n- B\n<!-- - no -->\n- C\n<!--\n- no\n-->\n- D\n") == ["A", "B", "C", "D"]


def test_an_entry_that_goes_on_below_is_not_editable() -> None:
    assert editable("- A\n  goes on\n- B\n") == ["B"]
    assert editable("- A\n  - nested\n- B\n") == ["nested", "B"]
    assert editable("- A\n\t1. nested\n- B\n") == ["nested", "B"]
    assert editable("1. A\ngoes on lazily\n2. B\n") == ["B"]


def test_an_entry_with_a_code_block_of_its_own_is_not_editable() -> None:
    assert editable("- A\n  ```\n  code\n  ```\n- B\n") == ["B"]


def test_an_entry_with_a_paragraph_or_list_of_its_own_after_a_blank_line_is_not_editable() -> None:
    assert editable("- A\n\n  More about A.\n- B\n") == ["B"]
    assert editable("- A\n\n  - nested\n- B\n") == ["nested", "B"]


def test_an_entry_above_a_rule_or_heading_is_editable() -> None:
    assert editable("- A\n## Next\n- B\n") == ["A", "B"]
    assert editable("- A\n***\n- B\n") == ["A", "B"]


def test_each_item_knows_its_section() -> None:
    text = "- Before\n# Title\n- Top\n## Work ##\n- Nurse\n### Deeper\n- Ward 4\n"
    assert [(item.section, item.text) for item in Document(text).items] == [
        ("", "Before"),
        ("Title", "Top"),
        ("Work", "Nurse"),
        ("Deeper", "Ward 4"),
    ]


# Ids


def test_ids_are_short_come_from_the_text_and_do_not_move_with_other_lines() -> None:
    before, after = Document(PROFILE), Document(PROFILE.replace("- Works as a nurse\n", "- New\n- Newer\n"))
    ids = {item.text: id for id, item in before.ids.items()}
    assert all(3 <= len(id) <= 4 and set(id) <= set("abcdefghijklmnopqrstuvwxyz234567") for id in ids.values())
    assert {item.text: id for id, item in after.ids.items()}["Lives in Leeds"] == ids["Lives in Leeds"]


def test_every_item_has_an_id_of_its_own_however_many_there_are() -> None:
    document = Document("".join(f"- Fact {n % 1500}\n" for n in range(3000)))
    assert len(document.ids) == 3000
    assert {item.line for item in document.ids.values()} == set(range(3000))


def test_an_edit_changes_the_line_it_named_also_where_another_says_the_same() -> None:
    document = Document("## Work\n- Python\n\n## Hobbies\n- Python\n")
    second = next(id for id, item in document.ids.items() if item.section == "Hobbies")
    said = [Message("Python is no hobby of mine")]
    judged = judge([Edit("REMOVE", second, "", "Python is no hobby of mine")], document, document, said)
    assert judged.document.text == "## Work\n- Python\n\n## Hobbies\n"


@pytest.mark.parametrize("nth", [0, 1])
def test_of_two_identical_lines_in_one_section_the_named_one_changes(nth: int) -> None:
    document = Document("- Python\n- Rust\n- Python\n- Go\n")
    named = [id for id, item in document.ids.items() if item.text == "Python"][nth]
    said = [Message("I use Ruby now")]
    judged = judge([Edit("REPLACE", named, "Ruby", "I use Ruby now")], document, document, said)
    assert texts(judged.document.text) == [["Ruby", "Rust", "Python", "Go"], ["Python", "Rust", "Ruby", "Go"]][nth]


def test_both_of_two_identical_lines_can_be_changed_in_one_reply() -> None:
    document = Document("- Python\n- Rust\n- Python\n")
    first, second = (id for id, item in document.ids.items() if item.text == "Python")
    said = [Message("I use Ruby now, no Python")]
    edits = [Edit("REPLACE", first, "Ruby", "I use Ruby now"), Edit("REMOVE", second, "", "no Python")]
    assert texts(judge(edits, document, document, said).document.text) == ["Ruby", "Rust"]


# Bytes that stay


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["", "newline"])
def test_line_ends_bom_and_a_missing_final_newline_stay_as_they_are(newline: str, bom: str, end: str) -> None:
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
    final = newline if end else ""

    def written(*lines: str) -> str:
        return bom + newline.join(lines) + final

    text = written(*lines)
    assert changed(text, "Green", "Black") == written(*lines[:-1], "* Black")
    assert Document(text).add("Tea", "Oolong").text == written(*lines, "* Oolong")
    assert Document(text).add("Work", "Leeds").text == written(*lines[:6], "- Leeds", *lines[6:])
    assert Document(text).add("Interests", "Chess").text == written(*lines, "", "## Interests", "* Chess")
    assert removed(written("## Tea", "* Black", "* Green"), "Black") == written("## Tea", "* Green")


def test_a_bom_stays_when_the_first_line_goes() -> None:
    assert removed("\ufeff- A\n- B\n", "A") == "\ufeff- B\n"


LINES = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("- Fact", "* Fact", "  - nested", "1. One", "2) Two", "• dot", "- [ ] task", "prose", "  prose"),
                *("# Title", "## Work", "### Interests", "", " ", "---", "```", "~~~", "<!--", "-->", "<!-- x -->"),
                *("\ufeff", "- Fact  ", "-\tTab", "Notes", "    code", "\u2028", "\x0c", "- Überfakt 🎉", "|a|b|"),
            ]
        ),
        st.sampled_from(["\n", "\n", "\r\n"]),
    ),
    max_size=14,
).map(lambda pairs: "".join(line + end for line, end in pairs))


@given(st.sampled_from(["", "\ufeff"]), LINES, st.sampled_from(["", "- Last", "last", "## Last", " "]))
@example("\ufeff", "", "")
@example("", "", " ")
@example("", "", "last")
@example("", "# User Profile\n\n## Work\n", "- Last")
def test_an_added_fact_is_one_line_more_and_no_other_line_changes(bom: str, head: str, tail: str) -> None:
    text = bom + head + tail
    for section in ("Work", "Interests", "Something else"):
        after = Document(text).add(section, "A new fact")
        assert [item.text for item in after.items].count("A new fact") == 1
        _assert_only_insertions(text, after.text)


def _assert_only_insertions(before: str, after: str) -> None:
    """Each line of `before` is there in `after`, in order, its bytes the same; only the last may have got its newline."""
    rest = iter(after.removeprefix("\ufeff").splitlines(keepends=True))
    for line in before.removeprefix("\ufeff").splitlines(keepends=True):
        assert any(line == other or (not line.endswith("\n") and other.rstrip("\r\n") == line) for other in rest), line
    assert before.startswith("\ufeff") == after.startswith("\ufeff")


@given(st.sampled_from(["", "\ufeff"]), LINES, st.sampled_from(["", "- Last", "last"]))
def test_replacing_and_removing_touch_exactly_the_named_line(bom: str, head: str, tail: str) -> None:
    document = Document(bom + head + tail)
    for item in document.ids.values():
        lines = list(document.lines)
        replaced = document.replace(item, "Other")
        assert len(replaced.lines) == len(lines)
        assert [n for n, (a, b) in enumerate(zip(lines, replaced.lines, strict=True)) if a != b] in ([item.line], [])
        assert replaced.lines[item.line].rstrip("\r\n").endswith("Other")
        kept = lines[: item.line] + lines[item.line + 1 :]
        assert document.remove(item).text == document.bom + "".join(kept)


# Where a new fact goes


def test_a_section_is_found_without_case_and_by_close_match() -> None:
    for wanted in (
        "Current Projects",
        "current projects",
        "Current Project",
        "## Current Projects:",
        "[Current Projects]",
    ):
        assert "* Builds a boat\n* Sails it\n" in Document(PROFILE).add(wanted, "Sails it").text


def test_an_unknown_section_becomes_notes_and_a_missing_default_one_is_made() -> None:
    mine = "# Me\n\n## Hobbies\n- Chess\n"
    assert Document(mine).section("hobby") == "Notes"
    assert Document(mine).add("Astrology", "Is a lion").text == mine + "\n## Notes\n- Is a lion\n"
    assert Document(mine).add("preferences", "Short").text == mine + "\n## Preferences\n- Short\n"


def test_the_users_own_heading_wins_over_a_default_of_the_same_name() -> None:
    assert Document("## INTERESTS\n- Tea\n").add("Interests", "Chess").text == "## INTERESTS\n- Tea\n- Chess\n"


@pytest.mark.parametrize(
    ("own", "wanted"), [("Wealth", "Health"), ("Child 1", "Child 2"), ("Preferences", "Preference")]
)
def test_the_users_word_for_a_new_section_is_taken_as_it_is(own: str, wanted: str) -> None:
    mine = Document(f"## {own}\n- A\n")
    assert mine.add(wanted, "B", new_section=True).text == f"## {own}\n- A\n\n## {wanted}\n- B\n"
    assert mine.section(f"## {own.upper()}:", new=True) == own


def test_the_title_of_the_document_is_no_section() -> None:
    assert Document("# User Profile\n\n## Work\n- Nurse\n").section("User Profile") == "Notes"


def test_a_new_section_is_none_of_the_last_ones_parts() -> None:
    text = "# Me\n\n## Work\n- Nurse\n\n### Clients\n- Acme\n"
    assert Document(text).add("Interests", "Tea").text == f"{text}\n## Interests\n- Tea\n"


def test_a_mark_of_byte_order_counts_at_the_beginning_alone() -> None:
    assert editable(Document("\ufeff").add("Interests", "Tea").text) == ["Tea"]
    assert editable(Document("## Interests\n\ufeff").add("Interests", "Tea").text) == ["Tea"]


def test_an_empty_profile_gets_a_title_and_the_first_section() -> None:
    for text in ("", "\n", "  \n"):
        assert Document(text).add("Interests", "Tea").text.strip() == "# User Profile\n\n## Interests\n- Tea"


def test_a_new_fact_follows_the_sections_style_and_counts_on() -> None:
    assert Document("## Work\n1. A\n2. B\n").add("Work", "C").text == "## Work\n1. A\n2. B\n3. C\n"
    assert Document("## Work\n- [x] A\n").add("Work", "C").text == "## Work\n- [x] A\n- C\n"
    assert Document("## Work\n* A\n  + deep\n").add("Work", "C").text == "## Work\n* A\n  + deep\n* C\n"


def test_a_new_fact_is_not_put_into_a_fence_or_comment_that_never_closes() -> None:
    for opening in ("```\n- code", "<!--\n- hidden"):
        text = f"## Work\n- Nurse\n{opening}\n"
        for section in ("Work", "Interests"):
            assert "A new fact" in editable(Document(text).add(section, "A new fact").text)


def test_a_profile_of_headings_only_is_empty() -> None:
    assert says_nothing("\ufeff# User Profile\r\n\r\n" + "\n".join(f"## {name}" for name in DEFAULT_SECTIONS))
    assert not says_nothing(PROFILE)
    assert not says_nothing("prose")
    assert not says_nothing("    # code\n")


def test_a_fact_counts_as_there_whatever_its_case_spacing_quotes_and_full_stop() -> None:
    document = Document("- Likes “green”  tea.\n")
    assert document.has('likes "green" tea')
    assert not document.has("Likes black tea")


# Merging


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        (
            "# Me\n- A\n- B\n- C\n",
            "# Me\n- A2\n- B\n- C\n",
            "# Me\n- A\n- B\n- C\n- D\n",
            "# Me\n- A2\n- B\n- C\n- D\n",
        ),
        ("- A\n- B\n- C\n", "- A\n- C\n", "- A\n- B\n- C\n- D\n", "- A\n- C\n- D\n"),
        ("- A\n- B\n", "- A2\n- B\n", "- A\n- B2\n", "- A2\n- B2\n"),
        ("- A\n- B\n", "- B\n", "- A\n- B2\n", "- B2\n"),
        ("- A\n", "- A\n- B\n", "- A\n- B\n", "- A\n- B\n"),
        ("- A\n- B", "- A\n- B\n- C\n", "- A2\n- B", "- A2\n- B\n- C\n"),
        ("- A\n- B\n", "- A\n- B", "- A2\n- B\n", "- A2\n- B"),
        ("- A\n", "", "- A\n- B\n", "- B\n"),
    ],
    ids=[
        "both changed",
        "one removed",
        "neighbours",
        "removed beside a change",
        "same",
        "no newline",
        "cut",
        "emptied",
    ],
)
def test_changes_of_both_sides_are_kept(base: str, ours: str, theirs: str, merged: str) -> None:
    assert merge(base, ours, theirs) == merged


def test_where_both_changed_the_same_line_both_stay() -> None:
    assert merge("- A\n- B\n", "- A\n- Mine\n", "- A\n- Theirs\n") == "- A\n- Mine\n- Theirs\n"


LIST = st.lists(st.sampled_from(["- A\n", "- B\n", "- C\n", "\n", "x\r\n"]), max_size=6).map("".join)


@given(LIST, LIST)
def test_merging_with_an_unchanged_side_gives_the_other(base: str, other: str) -> None:
    assert merge(base, other, base) == other
    assert merge(base, base, other) == other
    assert merge(base, other, other) == other
