"""The reply grammar and the gates: what a model may answer, and what becomes of it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from attacks import INNOCENT, PROFILE
from conftest import Judgement, judge

import llm_user_memory as memory
from llm_user_memory import Document, Edit, Message, parse_reply

NOW = Document(PROFILE)
ID = {item.text: id_ for id_, item in NOW.ids.items()}
SAID = Message("I moved to Rome and I like opera, ok?", turn_id="t1")
FORTY = Document("".join(f"- Likes the opera number {n} of very many\n" for n in range(40)))


def add(fact: str, quote: str = "I like opera", section: str = "Interests") -> Edit:
    return Edit("ADD", section, fact, memory._bare_quote(quote))  # as from a reply


def replace(line: str, fact: str, quote: str = "I moved to Rome") -> Edit:
    return Edit("REPLACE", ID.get(line, "zzzz"), fact, quote)


def remove(line: str, quote: str = "I like opera") -> Edit:
    return Edit("REMOVE", ID.get(line, "zzzz"), "", quote)


def numbered(count: int) -> list[Edit]:
    return [add(f"Likes opera {n}") for n in range(count)]


def verdict(edit: Edit, *messages: Message, now: Document = NOW, **given: Any) -> memory.Verdict:
    (found,) = judge([edit], NOW, now, messages or [SAID], **given).verdicts
    return found


def outcome(edit: Edit, *messages: Message, now: Document = NOW, **given: Any) -> tuple[str, str]:
    found = verdict(edit, *messages, now=now, **given)
    return found.outcome, found.reason


def says(text: str, fact: str) -> tuple[str, str]:
    """Judge a fact whose quote is the whole message."""
    return outcome(add(fact, text), Message(text, at="2026-11-20T12:00"))


def outcomes(judgement: Judgement) -> list[str]:
    return [found.outcome for found in judgement.verdicts]


def test_of_two_lines_with_the_same_words_only_the_one_that_was_named_changes() -> None:
    seen = Document("- Likes tea\n- Likes tea\n  - Likes milk\n")
    ids = {item.text: id for id, item in seen.ids.items()}
    edits = [
        Edit("REMOVE", ids["Likes tea"], "", "I like opera"),
        Edit("REMOVE", ids["Likes milk"], "", "I like opera"),
        Edit("REPLACE", ids["Likes tea"], "Likes opera", "I like opera"),
    ]
    judgement = judge(edits, seen, seen, [SAID])
    assert outcomes(judgement) == ["apply", "apply", "reject"]
    assert judgement.document.text == "- Likes tea\n"


# The reply


@pytest.mark.parametrize(
    "reply",
    [
        "  2. add|Interests|Likes opera|I like opera  ",
        "| ADD | Interests | Likes opera | I like opera |",
        "ADD |Interests | Likes opera | I like opera",
        "**ADD** | Interests | Likes opera | “I like opera”",
        "> * `ADD | Interests | - Likes opera | \"'I like opera'\"`",
        "```\nADD | Interests | Likes opera | I like opera\n```",
        "Here are the edits:\n\nADD | Interests | Likes opera | «I like opera»  \r\n\nHope that helps!",
        "<think>ADD | X | Y | I like opera\n</think>\n\nADD | Interests | Likes opera | I like opera",
        "I think so.\n</think>\nADD | Interests | Likes opera | I like opera",
        "NO_UPDATE\nADD | Interests | Likes opera | I like opera",
        "ADD | Interests\nFOO | a | b | c\nADD | Interests | Likes opera | I like opera",
        "ADD | Interests | Likes opera | I like opera\n" * 9,
    ],
)
def test_an_edit_is_read_in_whatever_formatting_it_comes(reply: str) -> None:
    assert parse_reply(reply) == [add("Likes opera")]


@pytest.mark.parametrize(
    ("line", "edit"),
    [
        ("REPLACE | [aBc] | Likes jazz | I like jazz", Edit("REPLACE", "abc", "Likes jazz", "I like jazz")),
        ("remove | `ABC` | “I hate jazz”", Edit("REMOVE", "abc", "", "I hate jazz")),
        ("REMOVE | abc", Edit("REMOVE", "abc", "", "")),
        ("ADD|Tools|Likes sh|I like sh", Edit("ADD", "Tools", "Likes sh", "I like sh")),
        ("REMOVE | abc | x | y", Edit("REMOVE", "abc", "", "x | y")),
        ("ADD | Interests | Likes jazz", Edit("ADD", "Interests", "Likes jazz", "")),
        ("ADD | Tools | Likes sh | a | b", Edit("ADD", "Tools", "Likes sh", "a | b")),
        ("ADD | Tools | Likes a|b | a | b", Edit("ADD", "Tools", "Likes a|b", "a | b")),
        ("ADD | Tools | Likes \ud83d sh | a b", Edit("ADD", "Tools", "Likes ? sh", "a b")),  # half an emoji
    ],
)
def test_each_action_has_its_fields_and_a_quote_may_contain_bars(line: str, edit: Edit) -> None:
    assert parse_reply(f"{line}\nADD | Interests | Likes opera | I like opera") == [edit, add("Likes opera")]


@pytest.mark.parametrize("heading", ["Interests", "Music of mine"])
def test_a_heading_in_a_replacement_is_no_part_of_its_fact(heading: str) -> None:
    now = Document("# Me\n\n## Music of mine\n- Plays the oboe\n")
    (id_,) = now.ids
    (edit,) = parse_reply(f"REPLACE | {id_} | {heading} | - Plays the harp | I play the harp") or []
    judgement = judge([edit], now, now, [Message("I play the harp")])
    assert judgement.document.text == now.text.replace("oboe", "harp")


@pytest.mark.parametrize(
    ("fact", "quote", "typed"),
    [
        ("Likes pipes", "cat x | sort | uniq", "my line is cat x | sort | uniq"),
        ("Uses `a|b`", "I use a | b", "I use a | b a lot"),
    ],
)
def test_what_stands_between_fields_may_also_stand_in_a_quote_and_without_spaces_in_a_fact(
    fact: str, quote: str, typed: str
) -> None:
    for reply, now in ((f"ADD | Interests | {fact} | {quote}", NOW), (f"REPLACE | abcd | {fact} | {quote}", NOW)):
        (edit,) = parse_reply(reply) or [add("")]
        edit = edit._replace(target=ID["Plays chess"]) if edit.action == "REPLACE" else edit
        found = verdict(edit, Message(typed, "t"), now=now)
        assert (found.outcome, found.edit.fact, found.edit.quote) == ("apply", fact, quote.strip("`| "))


def test_a_reply_is_edits_or_no_update_and_anything_else_is_out_of_form() -> None:
    declined = (
        *("NO_UPDATE", "no update.", "- **NO_UPDATE**", "`NO_UPDATE`", "Well:\n\n```\nNO_UPDATE\n```\n"),
        *("NO_UPDATE: it is a question", "NO_UPDATE (nothing lasting)"),
    )
    assert [reply for reply in declined if parse_reply(reply) != []] == []
    neither = (
        *("", "   \n", "ADD", "ADD | x", "ADD Work: nurse", "DELETE | abc | x y", "there is NO_UPDATE to make"),
        *("Sure! Here is your profile.", "# User Profile\n- Likes opera", "<think>\nNO_UPDATE\n</think>"),
    )
    assert [reply for reply in neither if parse_reply(reply) is not None] == []


def test_a_reply_is_read_up_to_200_edits_or_64_kilobytes() -> None:
    edits = [f"ADD | Interests | Likes opera {n} | I like opera\n" for n in range(1_000)]
    assert len(parse_reply("".join(edits)) or ()) == 200
    assert len(parse_reply((" " * 1_000).join(edits)) or ()) < 70


def test_a_section_is_a_heading_of_the_profile_or_one_of_ours_whatever_the_model_calls_it() -> None:
    sections = ["interests", "**Interests**", "Hobbies & Fun", "", "x" * 100_000, "Interests\u200b", "current project"]
    targets = [verdict(add("Likes opera", section=section)).edit.target for section in sections]
    assert targets == ["Interests", "Interests", "Notes", "Notes", "Notes", "Notes", "Notes"]


# The quote

TWO = ("I'm a nurse since May", "and now I live in Leeds")


@pytest.mark.parametrize(
    ("quote", "texts"),
    [
        ("I like tea", ["well, I LIKE\n\ttea."]),
        ("I'm Zoë's \"dad\"", ["I’m Zoe\u0308’s “dad”"]),
        ("vegetarian", ["Vegetarian"]),
        ("東京に住む", ["私は東京に住む看護師"]),
        # one whole word is enough, of a script without spaces two characters
        ("ski", ["I ski a lot"]),
        ("東京", ["私は東京駅へ行きました"]),
        ("彼氏が", ["彼氏がベジタリアンなんだけど"]),
        ("TOEIC … 今745点", ["TOEICを受けたよ。今745点だった"]),
        ("hob … its gas here", ["what pan for the hob, its gas here"]),
        ("me@x.org", ["mail me@x.org"]),
        ("like tea", ["I dislike tea no more, I like tea"]),
        # in pieces, of one message or of several
        ("a nurse … live in Leeds", ["I'm a nurse and I live in Leeds"]),
        ("live in Leeds … a nurse", ["I'm a nurse and I live in Leeds"]),
        ("I'm a nurse ... I live in Leeds", TWO),
        ("“I'm a nurse” … “I live in Leeds”", TWO),
        ("as a … I want", ["format: as a … I want"]),  # which the user typed so
        ("… live in Leeds …", ["I'm a nurse and I live in Leeds"]),
    ],
)
def test_a_quote_is_found_whatever_its_case_spaces_quotation_marks_and_pieces(quote: str, texts: list[str]) -> None:
    assert verdict(add("Is well", quote), *map(Message, texts)).reason != "you did not type its quote"


@pytest.mark.parametrize(
    ("quote", "texts"),
    [
        ("like tea", ["I dislike tea"]),
        ("run 1", ["I run 10 km"]),
        ("sk", ["I ski a lot"]),
        ("京", ["私は東京駅へ行きました"]),
        ("?", ["what now?"]),
        ("", ["what now?"]),
        ("I like tea", ["I like\u200b tea"]),
        ("I have been there", ["I've been there"]),
        ("nurse … Lee", ["I'm a nurse and I live in Leeds"]),
        ("I'm a nurse … I live in York", TWO),
        ("I'm a nurse and now", TWO),  # no piece of one message
        ("the password is [password]", ["the password is [password]"]),  # as a masked one is shown
        ("[password]", ["so [password] it is"]),
    ],
)
def test_a_quote_that_is_no_word_or_not_word_for_word_is_no_quote(quote: str, texts: list[str]) -> None:
    assert outcome(add("Is well", quote), *map(Message, texts))[0] == "reject"


def test_a_receipt_names_the_latest_message_for_each_piece() -> None:
    early, late, other = Message("I like tea", "1"), Message("yes, I like tea", "2"), Message("in my Leeds flat", "3")
    found = verdict(add("Likes tea in Leeds", "I like tea … in my Leeds flat"), early, late, other)
    assert {message.turn_id for message in found.messages} == {"2", "3"}


def test_a_message_of_6_000_characters_is_shown_whole_and_both_ends_of_a_longer_one() -> None:
    text = "a" * memory.LONGEST_MESSAGE + "b" * memory.LONGEST_MESSAGE
    shown = memory.as_shown(text)
    assert len(shown) <= memory.LONGEST_MESSAGE == 6_000
    head, tail = shown.split(memory.CUT)
    assert len(head) == len(tail) > 2_900
    assert text.startswith(head)
    assert text.endswith(tail)
    assert memory.as_shown(text[:6_000]) == text[:6_000]


# The gates, in their order

A_PASSWORD = "my wifi password is " + "hunter2-Porto"
GONE = [(f"Line {n}", "") for n in range(5)]
STOPPED: list[tuple[str, str, Edit, dict[str, Any]]] = [
    (
        *("reject", "it names no line that is there"),
        replace("Lives in Porto", "Lives in Rome"),
        {"now": Document(PROFILE.replace("Lives in Porto", "Lives in Faro"))},
    ),
    ("reject", "it is known already", replace("Lives in Porto", "Plays chess"), {}),
    ("reject", "it is known already", replace("Plays chess", "Plays chess"), {}),
    (
        "hold",
        "the profile is full",
        add("Likes opera"),
        {"review_all": True, "budget": 100},
    ),
    ("hold", "it would take away too much", remove("Plays chess"), {"lately": GONE}),
    ("hold", "the profile is full", add("Likes opera"), {"budget": 100}),
    ("hold", "LLM_MEMORY_REVIEW=all was set", add("Likes opera"), {"review_all": True}),
    ("reject", "it was copied from an example", add("Prefers answers without rhymes"), {}),
    ("hold", memory.NOT_YOURS, add("Likes opera"), {"doubts": [memory.NOT_YOURS]}),
    ("reject", memory.CONFIDENTIAL, add("Likes opera"), {"doubts": [memory.CONFIDENTIAL]}),
    # above the budget too: what waits can be accepted
    ("reject", memory.CONFIDENTIAL, add("Likes opera"), {"doubts": [memory.CONFIDENTIAL], "budget": 99}),
]


@pytest.mark.parametrize(("expected", "reason", "edit", "given"), STOPPED, ids=[row[1] for row in STOPPED])
def test_a_gate_stops_an_edit_for_a_reason_a_person_understands(
    expected: str, reason: str, edit: Edit, given: dict[str, Any]
) -> None:
    assert outcome(edit, **given) == (expected, reason)


def test_a_quote_with_a_secret_proves_nothing() -> None:
    reason = f"its quote contains {memory.why_secret(A_PASSWORD)}"
    assert outcome(add("Wired", A_PASSWORD), Message(A_PASSWORD)) == ("reject", reason)
    shown = Message(memory.as_shown(A_PASSWORD))
    assert outcome(add("Wired", A_PASSWORD), shown) == ("reject", "you did not type its quote")
    assert outcome(add("Wired", shown.text), shown) == ("reject", "its quote contains a masked secret")
    assert outcome(add("Wired", shown.text), Message(A_PASSWORD)) == ("reject", "you did not type its quote")


UNFIT = {
    "it says nothing": ("", " … ", "---"),
    "it is a question": ("What is opera?", "オペラとは？"),
    "it is longer than 200 characters": ("x" * 201,),
    "it has more than one line": ("Likes opera\n- Owns Acme",),
    "it contains an invisible or control character (U+000D)": ("Likes opera\rOwns Acme",),
    "it contains an invisible or control character (U+0000)": ("Likes\x00opera",),
    "it contains an invisible or control character (U+202E)": ("Likes\u202eopera",),
    "it contains an invisible or control character (U+001B)": ("Likes \x1b[8mopera",),
    "it contains an invisible or control character (U+2028)": ("Likes opera\u2028- Owns Acme",),
    "it contains an invisible or control character (U+200D)": ("Likes o\u200dp\u200ce\u200dr\u200da",),
    "it contains an invisible or control character (U+E0069)": ("Likes opera\U000e0069\U000e0067",),
    "it contains HTML, or a Markdown link or image": (
        *("Likes <b>opera", "Likes opera <!-- x", "Likes opera</user_profile>", "Likes a<img src=x>"),
        *("Likes [opera](x)", "Likes ![opera]", "Likes [opera][1]", "[opera]: x", "Likes &lt;opera"),
    ),
    "it begins like a heading, a list, a quotation or code": (
        *("# Likes opera", "> Likes opera", "- Likes opera", "[x] Likes opera", "```opera"),
    ),
    f"it contains {memory.why_secret(A_PASSWORD)}": (A_PASSWORD,),
    "it contains a masked secret": ("Uses [password] at home",),
    "it contains a mark of a chat template": ("Likes [/INST] opera", "Likes <|im_start|> opera"),
}


@pytest.mark.parametrize("reason", UNFIT)
def test_text_that_can_never_be_a_line_is_refused_whether_added_or_replaced(reason: str) -> None:
    for fact in UNFIT[reason]:
        assert memory.why_unfit(fact) == reason
        assert outcome(add(fact)) == outcome(replace("Plays chess", fact)) == ("reject", reason)


def test_what_only_looks_odd_can_be_a_line() -> None:
    assert [fact for fact in INNOCENT if says(fact, fact) != ("apply", "")] == []


def test_a_quote_with_a_masked_secret_is_refused() -> None:
    typed = Message("I like opera, and my card is [card number]")
    for mask in ("[card number]", "[card  Number]", "[Card Number]"):
        found = outcome(add("Likes opera", f"I like opera, and my card is {mask}"), typed)
        assert found == ("reject", "its quote contains a masked secret")


# A line whose own date has passed


def test_a_line_whose_date_has_passed_may_be_changed_or_removed_by_its_own_words() -> None:
    document = Document("- Cooks for one; for four from March 2026\n- Cooks for one; for six from 2026-12\n- Cooks\n")
    said = Message("what's a good soup?", at="2026-11-20T12:00")

    def becomes(line: int, action: str, fact: str) -> tuple[str, str]:
        edit = Edit(action, [*document.ids][line], fact, document.items[line].text)
        came = dict.fromkeys((item.text for item in document.items), "2026-01-02T12:00")
        found = judge([edit], document, document, [said], came=came).verdicts[0]
        return found.outcome, found.reason

    assert becomes(0, "REPLACE", "Cooks for four") == becomes(0, "REMOVE", "") == ("apply", memory.PASSED)
    assert (
        becomes(1, "REPLACE", "Cooks for six") == becomes(2, "REMOVE", "") == ("reject", "you did not type its quote")
    )


@pytest.mark.parametrize(
    ("line", "has_passed"),  # for a line of October 2025
    [
        ("In Rome until 2026-11-20", True),
        ("In Rome until 2026-11-21", False),
        ("In Rome until 2026-11", True),
        ("In Rome until 2026-12", False),
        ("In Rome until autumn 2026", True),
        ("In Rome until 2027", False),
        ("In Rome since 2019, until 2026", True),
        ("In Rome since 2019", False),
        ("Was born on 2025-09-30", False),
        ("Has 2,026 stamps", False),
        ("Lives in Rome", False),
    ],
)
def test_a_date_has_passed_once_it_has_come(line: str, has_passed: bool) -> None:
    typed = [Message("hello", at="2026-11-20T12:00"), Message("hello", at="2026-11-19T12:00")]
    assert memory.has_passed(line, "2025-10-01T12:00:00+00:00", typed) is has_passed


@pytest.mark.parametrize(("zone", "today"), [("Pacific/Auckland", "2026-11-21"), ("America/Lima", "2026-11-20")])
def test_a_date_has_passed_by_the_users_calendar(monkeypatch: pytest.MonkeyPatch, zone: str, today: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    typed = [Message("hello", at="2026-11-20T22:00:00+00:00")]
    try:
        days = ["2026-11-20", "2026-11-21", "2026-11-22"]
        assert max(day for day in days if memory.has_passed(f"Until {day}", "2026-11-02T12:00", typed)) == today
    finally:
        monkeypatch.undo()
        time.tzset()


def test_punctuation_that_a_model_puts_around_a_quote_is_none_of_it() -> None:
    assert outcome(add("Likes green tea", ", I like green tea."), Message("I like green tea a lot")) == ("apply", "")


def test_a_quote_with_an_ellipsis_that_was_typed_so_is_one_piece() -> None:
    assert outcome(add("Likes no tea", "no... tea"), Message("well no... tea and me")) == ("apply", "")


def test_earlier_messages_of_the_thread_cannot_be_quoted() -> None:
    said = Message("no, the other one", thread_id="a")
    assert outcome(add("Loves Turin", "looking at flats in Turin"), said)[0] == "reject"


# What is certainly quoted, by its shape

QUOTED = {
    "a fence": "fix\n```py\n# I live in Rome\n```",
    "an open fence": "fix\n~~~\nI live in Rome",
    "a mail's headers": "answer?\n\nVon: Eva\nBetreff: Hallo\n\nIch heiße Eva. I live in Rome.",
    "quoted lines": "answer?\n> hi\n> I live in Rome",
    "quotation marks": "who said “I live in Rome now”?",
    "straight quotation marks": 'who said "I live in Rome now"?',
    "apostrophes": "who sang 'I live in Rome but it's ok'?",
    "corner brackets": "英語で「I live in Rome」とは",
    "twice": "is “I live in Rome” or 'I live in Rome' right?",
}


@pytest.mark.parametrize("text", QUOTED.values(), ids=QUOTED)
def test_what_stands_only_in_a_quotation_is_held_but_not_what_the_user_says_too(text: str) -> None:
    edit = add("Lives in Rome", "I live in Rome")
    assert outcome(edit, Message(text)) == ("hold", "it is quoted")
    assert outcome(edit, Message(f"I live in Rome.\n\n{text}")) == ("apply", "")


def test_what_one_message_says_plainly_and_a_later_one_only_quotes_is_applied() -> None:
    plain, quoted = Message("I live in Rome", "turn-1"), Message(QUOTED["quotation marks"], "turn-2")
    edit = add("Lives in Rome", "I live in Rome")
    for messages in ((plain, quoted), (quoted, plain)):
        assert (outcome(edit, *messages), verdict(edit, *messages).messages) == (("apply", ""), (plain,))
    assert outcome(edit, quoted, quoted) == ("hold", "it is quoted")


@pytest.mark.parametrize(
    "text",
    [
        "I work nights,\nI weave baskets,\nI live in Rome",
        "About me:\n- I live in Rome\n- I weave",
        "is 'I have went' right? I live in Rome and a student insists",
        'check this email: "Dear Mr Bell, the heating is off." oh and remember I live in Rome',
        "corrige este párrafo: «El pago se hara en dos plasos.» y ya que estas: I live in Rome",
        'a 27" screen and a 24" one: I live in Rome, the other is 32" wide',
        "the dogs' home, I live in Rome, is the cats' too",
        "translate to French\n\nI live in Rome",  # what is meant is for the second look
    ],
)
def test_what_stands_outside_of_quotations_is_not_quoted(text: str) -> None:
    assert outcome(add("Lives in Rome", "I live in Rome"), Message(text)) == ("apply", "")


def test_quotation_marks_within_the_quote_do_not_count() -> None:
    for ending in ("", " and", ' or "Sure"'):
        said = Message(f'I hate answers that begin with "Certainly"{ending}')
        assert outcome(add('Hates answers that begin with "Certainly"', said.text), said) == ("apply", "")


def test_a_quote_that_begins_in_a_quotation_and_ends_behind_it_is_held() -> None:
    for text in ('my boss said "I have a yacht" yesterday', "my boss said “I have a yacht”, yesterday"):
        edit = add("Has a yacht", text.partition("said ")[2])
        assert outcome(edit, Message(text)) == ("hold", "it is quoted")


# Many edits


def test_a_new_job_may_change_every_line_about_the_old_one() -> None:
    document, said = (
        Document("".join(f"- Designs ships at Acme, type {n}\n" for n in range(10))),
        Message("I left Acme for Bolt"),
    )
    edits = [Edit("REPLACE", id_, item.text.replace("Acme", "Bolt"), said.text) for id_, item in document.ids.items()]
    assert len(judge(edits, document, document, [said]).of("apply")) == 10


def test_three_new_facts_plus_two_for_each_message_are_applied_but_none_of_one_more() -> None:
    rejected = [add("Likes opera", "I never said that")] * 9
    for count, messages in ((5, [SAID]), (9, [SAID] * 3)):
        assert len(judge(numbered(count) + rejected, NOW, NOW, messages).of("apply")) == count
        assert len(judge(numbered(count + 1), NOW, NOW, messages).of("hold")) == count + 1
    long = Message(SAID.text + " and so on" * 80)
    assert len(judge(numbered(8), NOW, NOW, [long]).of("apply")) == 8, "two more for each 400 bytes"


def removed(document: Document, texts: list[str], quote: str, **given: Any) -> list[str]:
    """Judge the removal of these lines, and return those that are removed."""
    ids = {item.text: id_ for id_, item in document.ids.items()}
    edits = [Edit("REMOVE", ids[text], "", quote) for text in texts]
    judgement = judge(edits, document, document, [Message(quote)], **given)
    return [found.item.text for found in judgement.of("apply") if found.item]


def test_within_a_day_half_of_the_lines_may_be_removed_and_five_at_least() -> None:
    lines = [item.text for item in FORTY.items]
    assert removed(FORTY, lines, "that is all over") == lines[:20]
    some = [(f"Likes the opera number {n} of very many, once", "") for n in range(4)]
    assert len(removed(FORTY, lines, "that is all over", lately=some)) == 22 - 4
    assert len(removed(FORTY, lines, "that is all over", lately=[("", "Likes tea")] * 30)) == 5, "it had ten lines"
    assert removed(NOW, [*ID], "forget everything about me") == [*ID], "four of four"


def test_a_line_is_taken_away_by_a_change_that_keeps_less_than_half_of_its_words() -> None:
    def most(old: str, new: str) -> int:
        """How many lines like this learning may change within a day."""
        numbers = [f"{n}{n}{n}" for n in range(30, 70)]
        document = Document("".join(f"- {old} {number}\n" for number in numbers))
        message = Message(" ".join(f"{new} {number}" for number in numbers))
        edits = [
            Edit("REPLACE", id_, f"{new} {number}", f"{new} {number}")
            for number, id_ in zip(numbers, document.ids, strict=True)
        ]
        return len(judge(edits, document, document, [message] * 40).of("apply"))

    assert most("Parks in slot", "Parks in box") == 40
    assert most("Parks in slot", "Owns a villa") == 20


def test_a_line_may_go_with_one_that_the_message_mentions_even_if_no_word_names_it() -> None:
    said = Message("I quit the hospital, I'm a florist now in the old town")
    document = Document(f"{PROFILE}- Night shifts, free on Mondays\n- Ward uses the Orion system\n- Parks in lot C\n")
    ids = {item.text: id_ for id_, item in document.ids.items()}
    goes_along = ["Night shifts, free on Mondays", "Ward uses the Orion system", "Parks in lot C"]
    edits = [Edit("REPLACE", ids["Works as a nurse"], "Works as a florist", "I'm a florist now")]
    edits += [Edit("REMOVE", ids[line], "", "I quit the hospital") for line in goes_along]
    assert outcomes(judge(edits, document, document, [said])) == ["apply"] * 4


def test_above_the_budget_lines_can_still_be_changed_and_removed() -> None:
    assert outcome(replace("Lives in Porto", "Lives in Rome"), budget=100)[0] == "apply"
    forget = "forget that I play chess"
    assert outcome(remove("Plays chess", forget), Message(forget), budget=100)[0] == "apply"


@pytest.mark.parametrize("condensing", [False, True])
def test_the_worst_that_a_model_can_reply_is_judged_in_no_time(condensing: bool) -> None:
    lines = [f"Keeps the blue box number {n} for the neighbours of Antwerp, Leeds and Rome" for n in range(200)]
    document = Document("".join(f"- {line}\n" for line in lines))
    text = "".join(f"word{n} I keep the blue box number {n}, or not, … and “so {n}”\n" for n in range(200))[:6_000]
    edits = [
        Edit("REMOVE", id_, "", f"{line} … I keep the blue box") for id_, line in zip(document.ids, lines, strict=True)
    ]
    edits[::2] = [
        Edit("REPLACE", id_, f"Sells the 12:40 box.{n} for Zentrix", "keep the blue box … or not … I keep the")
        for n, id_ in enumerate([*document.ids][::2])
    ]
    began = time.process_time()  # not how long it took: that would tell how busy this machine is
    if condensing:
        condensed(document, *edits, budget=999)
    else:
        judge(edits, document, document, [Message(text, thread_id="t")], budget=999)
    assert time.process_time() - began < 5, "it was 45 s once, with the profile locked"


# Condensing


def condensed(document: Document, *edits: Edit, **given: Any) -> Judgement:
    ordered = sorted(edits, key=lambda edit: edit.action == "REMOVE")
    given["doubts"] = dict(zip(ordered, given.get("doubts", []), strict=False))
    batch = memory.Batch("", review_all=given.pop("review_all", False))
    return Judgement(*memory.judge(ordered, document, document, batch, **given))


def test_condensing_quotes_the_lines_it_merges() -> None:
    gone = remove("Lives in Porto", "Lives in Porto")

    def found(*edits: Edit) -> list[str]:
        return outcomes(condensed(NOW, *edits, budget=100))

    nurse = "Works as a nurse"
    assert found(replace(nurse, "Nurse in Porto", "Lives in Porto"), gone) == ["apply", "apply"]
    assert found(replace(nurse, "Nurse in Porto", f"Lives in Porto … {nurse}"), gone) == ["apply", "apply"]
    assert found(replace(nurse, "Nurse in Porto", "Lives in Porto")) == ["reject"]
    assert found(remove("Lives in Porto", nurse)) == ["reject"]


@pytest.mark.parametrize("doubt", [memory.NOT_THE_SAME, memory.CONFIDENTIAL])
def test_condensing_removes_no_line_if_one_that_may_have_taken_its_words_was_not_changed(doubt: str) -> None:
    merged = replace("Lives in Porto", "Lives in Porto, works as a nurse in Berlin", "Lives in Porto")
    gone = remove("Works as a nurse", "Works as a nurse")
    assert outcomes(condensed(NOW, merged, gone, budget=60)) == ["apply", "apply"]
    judgement = condensed(NOW, merged, gone, budget=60, doubts=[doubt, ""])
    assert outcomes(judgement)[0] != "apply"
    assert outcomes(judgement)[1] == "hold"
    assert judgement.verdicts[1].reason == "a line that was to be merged with it was not changed"
    unproved = replace("Lives in Porto", "Lives in Porto, works as a nurse in Berlin", "I live in Berlin")
    assert outcomes(condensed(NOW, unproved, gone, budget=60)) == ["reject", "hold"]


def test_a_line_may_be_corrected_in_its_capitals_alone() -> None:
    message = Message("it's Works as a Nurse, with a capital")
    assert verdict(replace("Works as a nurse", "Works as a Nurse", "Works as a Nurse"), message).outcome == "apply"


def test_condensing_that_is_reviewed_is_reviewed_whole() -> None:
    merged = replace("Lives in Porto", "Lives in Porto, works as a nurse", "Lives in Porto")
    gone = remove("Works as a nurse", "Works as a nurse")
    assert outcomes(condensed(NOW, merged, gone, budget=60, review_all=True)) == ["hold", "hold"]


# The second look


@pytest.mark.parametrize(
    "reply",
    [
        "1 y\n2 n\n3 s",
        "1: Y\n2: N\n3: S",
        "1. y, 2. n, 3. s",
        "- **1**: yes\n- **2**: no\n- **3**: secret",
        "Fact 1: y\nFact 2: n\nFact 3: s",
        "<think>1 n, or is it?\n</think>\n1) y — they say so\n2) n (quoted)\n3) s",
        "1. 1, y\n2. 2, n\n3. 3, s",
        "1. Fact 1: y\n2. Fact 2: n\n3. Fact 3: s",
        "1y\n2n\n3s",
        "Here they are:\n\n1 y\n2 n\n3 s\n4 y",
    ],
)
def test_answers_are_read_in_whatever_formatting_they_come(reply: str) -> None:
    assert memory.parse_answers(reply, 3) == ["y", "n", "s"]


@pytest.mark.parametrize(
    "reply", ["", "y", "1 y\n2 n", "y n s", "1 y\n1 n\n2 y\n3 y", "1 maybe\n2 y\n3 y", "NO_UPDATE"]
)
def test_answers_that_are_missing_or_contradict_each_other_are_none(reply: str) -> None:
    assert memory.parse_answers(reply, 3) is None
