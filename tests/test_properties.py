"""Promises that hold for any reply, any profile and any message."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
from typing import TYPE_CHECKING

import pytest
from conftest import judge
from hypothesis import assume, given
from hypothesis import strategies as st

import llm_user_memory as memory
from llm_user_memory import Document, Edit, History, Message, Problem

if TYPE_CHECKING:
    import pathlib

# Lines as people and other programs write them, and lines made to trip a parser.
SAID = "Likes tea;likes TEA.;Lives in Porto;می\u200cخواهم;東京;<b>;👨\u200d👩;x;[ ] todo;a | b;--;1. one"
BULLETS = "- ;* ;+ ;• ;1. ;2) ;  - ;\t* ;- [x] ;;    ;> "
ODD = (
    "# User Profile;## Interests;## Preferences ##;###;#;## ;```;~~~~;```py;<!--;-->;<!-- x -->;---;- - -;; ;\t;\ufeff;"
    "\x0c;\u2028;\r;</user_profile>;<user_profile>;< /USER_PROFILE;</profile>;-;- ;•"
)
WORDS = st.sampled_from(SAID.split(";"))
LINES = st.builds("{}{}".format, st.sampled_from(BULLETS.split(";")), WORDS) | st.sampled_from(ODD.split(";"))
LINES |= st.text(max_size=20).filter(lambda text: "\n" not in text)
ENDS = st.sampled_from(["\n", "\n", "\n", "\r\n"])
PROFILES = st.builds(
    lambda bom, lines, last: bom + "".join(line + end for line, end in lines) + last,
    st.sampled_from(["", "", "\ufeff"]),
    st.lists(st.tuples(LINES, ENDS), max_size=14),
    st.one_of(st.just(""), LINES),
)
SECTIONS = st.sampled_from(["Interests", "preferences", "Notes", "User Profile", "", "**Interest**"])
SECTIONS |= st.text(max_size=10)
FACTS = WORDS | st.builds("Likes {}".format, st.text(max_size=20)) | st.text(max_size=30) | st.just("x" * 201)
FACTS = FACTS.map(str.strip)
TYPED = "I like tea and I live in Porto since 2019, 東京に住む before"
QUOTES = st.sampled_from(["I like tea", "live in porto", "東京に住む", "like", "I hate tea", ""]) | st.text(max_size=15)
EDIT_LINES = st.one_of(
    st.builds("ADD | {} | {} | {}".format, SECTIONS, FACTS, QUOTES),
    st.builds("- **add** |{}| {} |“{}”".format, SECTIONS, FACTS, QUOTES),
    st.sampled_from(["NO_UPDATE", "```", "<think>", "</think>", "|", "ADD", "REMOVE |", "REPLACE | | |", "ADD || |"]),
    st.text(max_size=30),
)
REPLIES = st.one_of(st.text(), st.lists(EDIT_LINES, max_size=12).map("\n".join))


@st.composite
def edits(draw: st.DrawFn, document: Document) -> list[Edit]:
    """Edits that mean lines of this document, and some that do not."""
    targets = st.sampled_from([*document.ids, "zzzz"])
    one = st.one_of(
        st.builds(Edit, st.just("ADD"), SECTIONS, FACTS, QUOTES),
        st.builds(Edit, st.just("REPLACE"), targets, FACTS, QUOTES),
        st.builds(Edit, st.just("REMOVE"), targets, st.just(""), QUOTES),
    )
    return draw(st.lists(one, max_size=6))


def lines(text: str) -> list[str]:
    """The lines as they are told apart, without their ends and a byte order mark."""
    return [line.rstrip("\r\n").removeprefix("\ufeff") for line in re.findall(r"[^\n]*\n|[^\n]+", text)]


def is_subsequence(few: list[str], many: list[str]) -> bool:
    rest = iter(many)
    return all(any(line == other for other in rest) for line in few)


@given(PROFILES, REPLIES)
def test_any_reply_to_any_profile_is_judged_without_an_exception(profile: str, reply: str) -> None:
    document = Document(profile)
    found = memory.parse_reply(reply) or []
    assert not any("\n" in edit.fact + edit.target + edit.quote for edit in found)
    judgement = judge(found, document, document, [Message(TYPED)])
    assert len(judgement.verdicts) == len(found)
    assert {verdict.outcome for verdict in judgement.verdicts} <= {"apply", "hold", "reject"}
    assert all(verdict.reason for verdict in judgement.verdicts if verdict.outcome != "apply")
    if not judgement.of("apply"):
        assert judgement.document.text == profile


@given(st.data(), PROFILES)
def test_only_the_lines_that_an_edit_names_change_and_a_new_one_has_a_quote(data: st.DataObject, profile: str) -> None:
    document = Document(profile)
    judgement = judge(data.draw(edits(document)), document, document, [Message(TYPED)])
    named = {verdict.item.text for verdict in judgement.of("apply") if verdict.item}
    # An item may change or go whose text an edit names; every other line stays, byte for byte and in order.
    changed = {item.line for item in document.items if item.text in named and item.editable}
    kept = [line for index, line in enumerate(lines(profile)) if index not in changed]
    assert is_subsequence(kept, lines(judgement.document.text))
    proven = {v.edit.fact: v.edit.quote for v in judgement.of("apply")}
    for fact in {item.text for item in judgement.document.items} - {item.text for item in document.items}:
        assert memory.normalised(proven[fact]) in memory.normalised(TYPED)
        assert not memory.why_unfit(fact)
        assert not memory.why_hidden(fact)


@given(PROFILES, SECTIONS, FACTS)
def test_an_added_fact_is_an_item_that_can_be_found_again(profile: str, section: str, fact: str) -> None:
    assume(not memory.why_unfit(fact))
    document = Document(profile)
    after = judge([Edit("ADD", section, fact, "I like tea")], document, document, [Message(TYPED)]).document
    if after.text != profile:
        assert fact in [item.text for item in after.items]
        again = judge([Edit("ADD", section, fact, "I like tea")], after, after, [Message(TYPED)])
        assert again.document.text == after.text
        assert Document(after.text).ids == after.ids
        if "\r" not in profile:
            assert "\r" not in after.text


@given(PROFILES)
def test_a_document_is_its_text_and_each_of_its_lines_has_a_short_id(profile: str) -> None:
    document = Document(profile)
    assert "".join(document.lines) == profile
    for item in document.items:
        assert item.text in document.lines[item.line]
    ids = document.ids
    assert sorted(item.text for item in ids.values()) == sorted({item.text for item in document.items if item.editable})
    assert all(re.fullmatch("[a-z]{3,}", id_) for id_ in ids)
    assert len({item.line for item in ids.values()}) == len(ids)


@given(PROFILES, PROFILES, PROFILES)
def test_merging_loses_no_line_that_either_side_added_and_takes_the_other_side_of_one_that_changed_nothing(
    base: str, ours: str, theirs: str
) -> None:
    merged = lines(memory.merge(base, ours, theirs))
    assert (set(lines(ours)) | set(lines(theirs))) - set(lines(base)) <= set(merged) | {""}
    assert [memory.merge(base, *sides) for sides in ((base, ours), (ours, base), (ours, ours))] == [ours] * 3


@given(PROFILES)
def test_a_sent_profile_has_one_frame_and_nothing_hidden_and_facts_in_ascii_as_they_are(profile: str) -> None:
    sent = memory.FRAME.format(memory.disarmed(profile))
    assert sent.count("</user_profile>") == sent.count("<user_profile>") == 1
    assert sent.endswith("\n</user_profile>")
    assert not memory.why_hidden(sent.translate({9: " ", 10: " ", 13: " "}))
    ascii_ = "".join(c for c in profile if c == "\n" or (c.isascii() and c.isprintable())).replace("<", "")
    sent = memory.FRAME.format(memory.disarmed(ascii_))
    assert [line for line in ascii_.splitlines() if not memory.says_nothing(line) and line.strip() not in sent] == []


RARE = st.sampled_from("a\u200c\u200d\ufe0f\u17b4\u2800❤👩\u0645東\U000e0100\U0001f3f4\U000e0067")


@given(st.text(RARE | st.characters(), max_size=12))
def test_removing_hidden_characters_leaves_none(text: str) -> None:
    visible = memory.printable(text.translate({9: None, 10: None, 13: None}))
    assert memory.why_hidden(visible) == ""
    assert memory.printable(visible) == visible


@given(PROFILES, st.lists(st.one_of(st.text(max_size=60), LINES), max_size=3))
def test_a_request_closes_its_tags_once_whatever_is_in_it(profile: str, messages: list[str]) -> None:
    typed = [Message(text, at="2026-11-20T12:00:00") for text in messages]
    request = memory.build_request(Document(profile), memory.Batch("", typed))
    tags = re.findall(r"^</(message-\w+)>$", request, re.MULTILINE)
    assert len(tags) == len(messages)
    assert all(request.count(f"</{tag}>") == len(messages) for tag in tags)
    assert request.partition("<message-")[0].count("</profile>") == 1


def changed(document: Document, index: int, fact: str) -> Document:
    """Put a fact in the place of a line, or remove the line; a fact that is there already is not added again."""
    if not document.items:
        return document.add("Interests", fact) if fact else document
    item = document.items[index % len(document.items)]
    return document.apply(item, item.section, "" if document.has(fact) else fact)


def act(history: History, action: str, index: int, fact: str) -> None:
    document, version = Document(history.text(history.latest())), index % (history.latest() + 1)
    if action == "add" and not document.has(fact):
        history.change("add", lambda _: document.add("Interests", fact).text)
    elif action == "edit":
        history.change("edit", lambda _: changed(document, index, fact).text)
    elif action == "prose":
        at = index % (len(document.lines) + 1)
        history.change("edit", lambda _: "".join([*document.lines[:at], f"{fact}, in prose\n", *document.lines[at:]]))
    elif action == "rollback":
        history.overwrite("rollback", history.text(version))
    elif action == "undo" and version:
        with contextlib.suppress(Problem):  # a later change has touched its lines
            history.undo(version)


@pytest.mark.parametrize("lines", [("- a\n", "- b\n"), ("- a\n", "p\n"), ("p\n", "  - d\n")])
def test_undo_takes_out_the_facts_of_its_change_and_no_other(lines: tuple[str, str]) -> None:
    texts = ["".join(some) for count in range(4) for some in itertools.product(lines, repeat=count)]
    for old, new, now in itertools.product(texts, repeat=3):
        before, after, here = (Document(text).places().keys() for text in (old, new, now))
        expected = before if now == new else (here - (after - before)) | (before - after)
        assert Document(memory.revert(old, new, now)).places().keys() == expected, (old, new, now)


TEA_AND_RAIN = {"tea": "- tea\n", "rain": "rain\n"}  # an item, and prose


def placed(places: dict[str, str]) -> str:
    """Write a profile with these lines under these headings; "" leaves a line out."""
    text = ""
    for section in ("Work", "Garden"):
        lines = [TEA_AND_RAIN[name] for name, its in places.items() if its == section]
        if lines:
            text += f"## {section}\n{''.join(lines)}\n"
    return text


PLACES = [
    dict(zip(TEA_AND_RAIN, sections, strict=True)) for sections in itertools.product(("", "Work", "Garden"), repeat=2)
]


@pytest.mark.parametrize("old", PLACES, ids=str)
def test_undo_brings_back_each_line_once_and_under_its_own_heading(old: dict[str, str]) -> None:
    for new, now in itertools.product(PLACES, repeat=2):
        document = Document(memory.revert(placed(old), placed(new), placed(now)))
        for name in TEA_AND_RAIN:
            was, became, here = old[name], new[name], now[name]
            expected = was if here == became or now == new else here  # unless somebody has moved it since
            if became and not was:
                expected = ""  # the change brought it
            found = [section for _, fact, section in document.sayings if fact == name]
            assert found == ([expected] if expected else []), (name, old, new, now)


@pytest.mark.parametrize("seed", range(40))
def test_undo_again_and_again_takes_back_all_that_was_added(seed: int, tmp_path: pathlib.Path) -> None:
    any_of = random.Random(seed)
    with memory.Memory(memory.Home(tmp_path)) as opened:
        history, undone = opened.history, 0
        for _ in range(any_of.randint(2, 10)):
            action = any_of.choice(["add", "add", "edit", "prose", "rollback", "undo"])
            act(history, action, any_of.randint(0, 9), any_of.choice(["Likes tea", "Plays chess", "Has a cat"]))
        while True:
            try:
                version = history.next_undo()
            except Problem:
                break
            assert history.undo(version)
            undone += 1
            assert undone < 50
        assert [fact for _, fact, _ in Document(history.text(history.latest())).sayings if fact] == []
