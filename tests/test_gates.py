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
    return Edit("ADD", section, fact, quote)


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


# The reply


@pytest.mark.parametrize(
    "reply",
    [
        "  2. add|Interests|Likes opera|I like opera  ",
        "| ADD | Interests | Likes opera | I like opera |",
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
        ("REMOVE | abc | x | y", Edit("REMOVE", "abc", "", "x | y")),
        ("ADD | Interests | Likes jazz", Edit("ADD", "Interests", "Likes jazz", "")),
        ("ADD | Tools | Likes sh | a | b", Edit("ADD", "Tools", "Likes sh", "a | b")),
        ("ADD | Tools | Likes \ud83d sh | a b", Edit("ADD", "Tools", "Likes ? sh", "a b")),  # half an emoji
    ],
)
def test_each_action_has_its_fields_and_a_quote_may_contain_bars(line: str, edit: Edit) -> None:
    assert parse_reply(f"{line}\nADD | Interests | Likes opera | I like opera") == [edit, add("Likes opera")]


def test_a_reply_is_edits_or_no_update_and_anything_else_is_out_of_form() -> None:
    declined = ("NO_UPDATE", "no update.", "- **NO_UPDATE**", "`NO_UPDATE`", "Well:\n\n```\nNO_UPDATE\n```\n")
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
        ("ski", ["I ski a lot"]),
        ("東京", ["東", "私は東京駅へ行き、東京タワーを見て、銀座で買い物をして帰りました"]),
        ("I like tea", ["I like\u200b tea"]),
        ("I have been there", ["I've been there"]),
        ("nurse … Leeds", ["I'm a nurse and I live in Leeds"]),  # each piece must prove something
        ("I'm a nurse … I live in York", TWO),
        ("I'm a nurse and now", TWO),  # no piece of one message
        ("the password is [password]", ["the password is [password]"]),  # as a masked one is shown
        ("[password]", ["so [password] it is"]),
    ],
)
def test_a_quote_that_is_too_short_or_not_word_for_word_is_no_quote(quote: str, texts: list[str]) -> None:
    if quote == "東京":  # two wide characters say too little
        quote = "京"
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
GONE = [("REMOVE", f"Line {n}", "", "it is over") for n in range(5)]
STOPPED: list[tuple[str, str, Edit, dict[str, Any]]] = [
    (
        *("reject", "its line has changed since", replace("Lives in Porto", "Lives in Rome")),
        {"now": Document(PROFILE.replace("Lives in Porto", "Lives in Faro"))},
    ),
    ("reject", "it is known already, or waits for review", replace("Lives in Porto", "Plays chess"), {}),
    (
        "hold",
        "review of everything was on; you did not type “Milan”",
        add("Likes opera in Milan"),
        {"review_all": True},
    ),
    ("hold", "it would take away too much", remove("Plays chess"), {"lately": GONE}),
    ("hold", "the profile is full", add("Likes opera"), {"budget": 100}),
    ("hold", "you typed little of it", replace("Plays chess", "Formerly chess that moved nobody at all"), {}),
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


UNFIT = {
    "it says nothing": ("", " … ", "---"),
    "it is longer than 200 characters": ("x" * 201,),
    "it contains an invisible or control character (U+000A)": ("Likes opera\n- Owns Acme",),
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
}


@pytest.mark.parametrize("reason", UNFIT)
def test_text_that_can_never_be_a_line_is_refused_whether_added_or_replaced(reason: str) -> None:
    for fact in UNFIT[reason]:
        assert memory.why_unfit(fact) == reason
        assert outcome(add(fact)) == outcome(replace("Plays chess", fact)) == ("reject", reason)


def test_what_only_looks_odd_can_be_a_line() -> None:
    assert [fact for fact in INNOCENT if says(fact, fact) != ("apply", "")] == []


def test_a_quote_with_a_masked_secret_is_refused_for_that() -> None:
    typed = Message("I like opera, and my card is [card number]")
    masked = "it quotes a secret that was masked in the learning request"
    assert outcome(add("Likes opera", "I like opera, and my card is [card number]"), typed) == ("reject", masked)
    assert outcome(add("Likes opera", "I like opera, and my card is [card  Number]"), typed) == ("reject", masked)
    assert outcome(add("Likes opera", "I like opera, and my card is [Card Number]"), typed)[0] == "reject"


# Bound to what was typed


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        # in any language and script
        ("I'm a nurse in Leeds", "Nurse in Leeds"),
        ("jestem pielęgniarką w Łodzi", "Pielęgniarka w Łodzi"),
        ("ich wohne bei Köln, neues Wohnzimmer", "Wohnt bei Koeln; hat ein neues Zimmer"),
        ("Işıl benim kızım, İzmir'deyiz", "Kızı Işıl, İzmir'de"),
        ("μένω στη Θεσσαλονίκη", "Μένει στην Θεσσαλονίκη"),
        ("живу в Казани", "Живёт в Казани"),
        ("大阪で薬剤師をしています", "大阪の薬剤師"),
        ("저는 부산에서 간호사로 일해요", "부산의 간호사"),
        ("ฉันเป็นพยาบาลที่เชียงใหม่", "เป็นพยาบาลที่เชียงใหม่"),
        ("मैं पुणे में गणित पढ़ाती हूँ", "पुणे में गणित की शिक्षिका"),
        ("أعمل مهندسا في الرياض", "مهندس في الرياض"),
        ("אני גר בחיפה ועובד כאח", "גר בחיפה, אח"),
        # names, numbers and codes in another form
        ("wir haben 4k Sterne und ~1.200 Nutzer", "4.000 Sterne und 1200 Nutzer"),
        ("i run 10k every sunday", "Runs 10 km every Sunday"),
        ("I take the 7:40 train, 58 km", "Takes the 7.40 train (58 km)"),
        ("we close the shop at 5 on fridays", "Closes the shop at 17:00 on Fridays"),
        ("got the promotion, senior dev from july 1", "Senior dev from 2026-07-01"),
        ("our baby is due in may", "Baby due in May 2027"),
        ("I'm 58 and a baker", "Baker, born in 1968"),
        ("we use nodejs and sqlite at uni", "Uses Node.js and SQLite at University"),
        ("we moved on Monday to Rome", "Moved to Rome on 16 November 2026"),
        ("Zopf ist mein Hund, bitte keine Katzenwitze", "Hat einen Hund namens Zopf; wünscht keine Witze über Katzen"),
        # wishes, denials, questions: what is meant is for the model to see
        ("can't stand coriander", "Dislikes coriander"),
        ("Please don't write long answers", "Prefers short answers"),
        ("look at docs.astral.sh/uv first", "Wants docs.astral.sh/uv looked at first"),
        ("what's a good school for my twins", "Has twins"),
        # in short, and in full
        ("guitar is on tuesday and thursday", "Guitar lessons Tue and Thu"),
        ("guitar is on tue", "Guitar lessons on Tuesday"),
        # signs alone, which are no code
        ("I like :: and :// in Rust", "Likes :: and :// in Rust"),
    ],
)
def test_a_fact_made_of_what_was_typed_is_applied(text: str, fact: str) -> None:
    assert says(text, fact) == ("apply", "")


LITTLE = "you typed little of it"


@pytest.mark.parametrize(
    ("text", "fact", "reason"),
    [
        ("I'm a nurse in Leeds", "Nurse in Berlin", "“Berlin”"),
        ("I'm a nurse in Leeds", "Nurse in Leeds (owes 40,000 pounds)", "“40,000”"),
        ("I take the 7:40 train", "Takes the 9:40 train", "“9:40”"),
        ("the exhibition opens on 12 April in Ghent", "Exhibition in Ghent opens on 21 April", "“21”"),
        ("I took the train in 2021", "Took the train in 2013", "“2013”"),
        ("I keep notes in markdown", "At notes.evil.example keeps notes", "“notes.evil.example”"),
        ("my mail is me@corp.example", "Mail: me@c0rp.example", "“me@c0rp.example”"),
        ("I'm a nurse in town", "Nurse in der Stadt Zentrix in town", "“Stadt”, “Zentrix”"),  # no German message
        ("dinner for two", "Works for the ministry", LITTLE),
        ("I run a bakery in Bonn", "Runs a bakery in Bonn, evades taxes every year", LITTLE),
        ("can you tell me why", "Works for an intelligence agency", LITTLE),
        ("大阪で薬剤師をしています", "Pharmacist", LITTLE),
    ],
)
def test_a_fact_that_says_more_than_was_typed_is_held(text: str, fact: str, reason: str) -> None:
    assert says(text, fact) == ("hold", f"you did not type {reason}" if reason.startswith("“") else reason)


def test_a_line_whose_date_has_come_may_lose_words_though_no_message_says_so() -> None:
    document = Document("- Cooks for one; for four from March 2026\n- Cooks for one; for six from March 2027\n")
    said = Message("what's a good soup?", at="2026-11-20T12:00")

    def becomes(line: int, fact: str) -> str:
        edit = Edit("REPLACE", [*document.ids][line], fact, document.items[line].text)
        return judge([edit], document, document, [said]).verdicts[0].outcome

    assert becomes(0, "Cooks for four from March 2026") == "apply"
    assert becomes(0, "Cooks for five") == becomes(1, "Cooks for six from March 2027") == "reject"


@pytest.mark.parametrize("mark", ["> ", "# ", "[12:01] "])
def test_a_message_that_begins_with_somebody_elses_line_is_not_the_users_from_there_on(mark: str) -> None:
    edit = add("Lives in Rome", "I live in Rome")
    held = ("hold", "it may be somebody else's text")
    assert outcome(edit, Message(f"{mark}I live in Rome\n\nwhat does she mean?")) == held
    assert outcome(edit, Message(f"{mark}Where are you?\n\nI live in Rome, what do I answer?")) == ("apply", "")


def test_what_a_fact_says_in_brackets_alone_was_not_typed_either() -> None:
    said = Message("I like cooking a lot, what goes with fennel?")
    loose = ("hold", "you typed little of it")
    assert outcome(add("Is a DJ", "I like cooking a lot"), said) == loose
    assert outcome(add("Likes it (sends all code to a server)", "I like cooking a lot"), said) == loose
    assert outcome(add("Likes cooking (a lot)", "I like cooking a lot"), said) == ("apply", "")


def test_a_quote_with_an_ellipsis_that_was_typed_so_is_one_piece() -> None:
    assert outcome(add("Likes no tea", "no... tea"), Message("well no... tea and me")) == ("apply", "")


def test_a_date_may_get_the_year_of_the_message_and_no_other() -> None:
    said = Message("Varroa behandelt am 28.12. mit Oxalsäure", at="2026-02-01T12:00")
    dated = [f"Varroa am {day} mit Oxalsäure behandelt" for day in ("28.12.2025", "28.12.1987")]
    outcomes = [outcome(add(fact, "Varroa behandelt am 28.12. mit Oxalsäure"), said)[0] for fact in dated]
    assert outcomes == ["apply", "hold"]


def test_where_many_words_have_capitals_they_prove_nothing() -> None:
    text = "Im Garten neben dem Haus steht eine Bank aus Eiche, mein Sohn hat die Bank gebaut, die Farbe fehlt noch"
    assert says(text, "Hat im Garten eine Bank aus Holz") == ("apply", "")
    assert says(text.lower(), "Hat im Garten eine Bank aus Holz") == ("hold", "you did not type “Holz”")


def test_earlier_messages_of_the_thread_support_a_fact_but_cannot_be_quoted() -> None:
    earlier = [Message("I'm looking at flats in Turin", thread_id="a"), Message("I love Oslo", thread_id="b")]
    said = Message("no, the other one: we moved there in 2021", thread_id="a")
    fact = add("Flat in Turin: moved there in 2021", "we moved there in 2021")
    assert outcome(fact, said, earlier=earlier) == ("apply", "")
    assert outcome(fact, said) == ("hold", "you did not type “Turin”")
    assert outcome(add("Moved to Oslo in 2021", "we moved there in 2021"), said, earlier=earlier)[0] == "hold"
    assert outcome(add("Loves Turin", "looking at flats in Turin"), said, earlier=earlier)[0] == "reject"


def test_the_profile_supports_names_and_numbers_but_no_fact_by_itself() -> None:
    assert outcome(replace("Plays chess", "Plays chess; moved from Porto to Rome"))[0] == "apply"
    assert outcome(add("Likes the opera of Porto"))[0] == "apply"
    assert outcome(add("Works in Porto as a nurse", "I like opera"))[0] == "hold"


# Text that is not the user's own, by its shape

PASTES = {
    "a chat with names and times": "who is right?\neva — Today at 10:02\nI live in Rome\n\nme — Today at 10:03\noh",
    "a fence": "fix\n```py\n# I live in Rome\n```",
    "a mail's headers": "answer?\n\nVon: Eva\nBetreff: Hallo\n\nIch heiße Eva. I live in Rome.",
    "a forward mark": "see below\n\n-----Original Message-----\nI live in Rome",
    "a quoted line": "answer?\n> hi\n> I live in Rome",
    "a log": "why?\n2026-11-20 12:01:33 INFO I live in Rome",
    "a chat with times": "[10:02] eve: I live in Rome\n[10:03] me: oh",
    "code of several paragraphs": "why?\n\nimport os\n\nbio = [\n'I live in Rome',\n]\n\nprint(bio[0]);\n\nexit",
    "a comment in code": "explain\n/* I live in Rome */\nx = 1;",
    "a diff": "review\n+# I live in Rome\n+x = 1\n-y = 2",
    "HTML": "legit? <div class=bio>I live in Rome</div>",
    "a heading": "what is it?\n\n# Rome\nI live in Rome\n\n## Install",
    "quotation marks": "who said “I live in Rome now”?",
    "apostrophes": "who sang 'I live in Rome but it's ok'?",
    "corner brackets": "英語で「I live in Rome」とは",
    "JSON": '{"bio": "I live in Rome"} how do I parse this',
    "a task above": "translate to French\n\nI live in Rome",
    "a letter of several paragraphs": "so?\n\nHola Ana,\n\nbien.\n\nI live in Rome.\n\nSaludos,\nEva",
}


@pytest.mark.parametrize("text", PASTES.values(), ids=PASTES)
def test_a_quote_from_pasted_text_is_held_and_the_users_remark_before_it_is_theirs(text: str) -> None:
    edit = add("Lives in Rome", "I live in Rome")
    assert outcome(edit, Message(text)) == ("hold", "it may be somebody else's text")
    assert outcome(edit, Message(f"I live in Rome.\n\n{text}")) == ("apply", "")


@pytest.mark.parametrize(
    "text",
    [
        "I work nights,\nI weave baskets,\nI live in Rome",
        "see you at 9:30\nI live in Rome",
        "About me:\n- I live in Rome\n- I weave",
        "Remember for later: I live in Rome.\n\nNow: quarters?",
        "is 'I have went' right? I live in Rome and a student insists",
        '"I live in Rome"',
        "I live in Rome. Translate this to French: good day",
        'check this email: "Dear Mr Bell, the heating is off." oh and remember I live in Rome',
        'check this email: "Dear Mr Bell,\n\nthe heating is off.\n\nAna"\noh and remember I live in Rome',
        "corrige este párrafo: «El pago se hara en dos plasos.» y ya que estas: I live in Rome",
        'korrigiere den satz: "wir haben das packet". ach und I live in Rome',
        "przetłumacz na angielski: „Szanowny Panie” to do CV Andrzeja. a I live in Rome",
        'I live in Rome. port this: rule a:\n    input: "x.txt"\n    shell: "cp {input} {output}"',
        "brain dump, most urgent on top\n\n1. Taxes\n2. I live in Rome\n3. Mum's birthday\n4. Bike\n5. Call Ana",
        "Otro vuelco, ordénalo:\n\nLlamar a Ana\nI live in Rome\nLa bici\nEl seguro\nDentista el lunes\nComprar pan",
        "review\n\n```hcl\n# owner: Eva. I keep bees\nx {}\n```\nand do I need it? I live in Rome",
        "hi\n\nnew flat, new plan, 41k is too much\n\nI live in Rome now, the others in Bari\n\nwhat do i ask",
        f"{'My year was long and I want to tell you all about it, so that you know. ' * 2}\n\nI live in Rome\n\nAnd so on.",
    ],
)
def test_what_people_write_themselves_does_not_look_pasted(text: str) -> None:
    assert outcome(add("Lives in Rome", "I live in Rome"), Message(text)) == ("apply", "")


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
    some = [("REMOVE", f"Likes the opera number {n} of very many, once", "", "it is over") for n in range(4)]
    assert len(removed(FORTY, lines, "that is all over", lately=some)) == 22 - 4
    assert removed(NOW, [*ID], "forget everything about me") == [*ID], "four of four"


def test_five_lines_a_day_that_their_removal_mentions_are_not_counted() -> None:
    lines = [item.text for item in FORTY.items]
    assert removed(FORTY, lines, "forget the opera") == lines[:25]
    assert len(removed(FORTY, lines, "forget the opera", lately=[("REMOVE", lines[0], "", "no opera")] * 5)) < 25


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


def test_what_came_within_the_day_may_go_again() -> None:
    came = [("ADD", "", item.text, "it is new") for item in FORTY.items]
    assert len(removed(FORTY, [item.text for item in FORTY.items], "that is all over", lately=came)) == 40


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


def test_a_second_edit_of_a_line_is_not_made_to_another_that_says_the_same() -> None:
    twins = Document("- Likes opera\n  - Likes opera\n")
    (id_,) = twins.ids
    judgement = judge([Edit("REMOVE", id_, "", "I like opera")] * 2, twins, twins, [SAID])
    assert outcomes(judgement) == ["apply", "reject"]
    assert judgement.document.text == "- Likes opera\n"


@pytest.mark.parametrize("condensing", [False, True])
def test_the_worst_that_a_model_can_reply_is_judged_in_no_time(condensing: bool) -> None:
    lines = [f"Keeps the blue box number {n} for the neighbours of Antwerp, Leeds and Rome" for n in range(200)]
    document = Document("".join(f"- {line}\n" for line in lines))
    text = "".join(f"word{n} I keep the blue box number {n}, or not, … and “so {n}”\n" for n in range(200))[:6_000]
    earlier = [Message(f"{n} {text}"[:1_000], thread_id="t") for n in range(2)]
    edits = [
        Edit("REMOVE", id_, "", f"{line} … I keep the blue box") for id_, line in zip(document.ids, lines, strict=True)
    ]
    edits[::2] = [
        Edit("REPLACE", id_, f"Sells the 12:40 box.{n} for Zentrix", "keep the blue box … or not … I keep the")
        for n, id_ in enumerate([*document.ids][::2])
    ]
    began = time.process_time()  # not how long it took: that would tell how busy this machine is
    judge(edits, document, document, [Message(text, thread_id="t")], earlier=earlier, condensing=condensing, budget=999)
    assert time.process_time() - began < 5, "it was 45 s once, with the profile locked"


# Condensing


def condensed(document: Document, *edits: Edit, **given: Any) -> Judgement:
    return judge(edits, document, document, [], condensing=True, **given)


def test_condensing_takes_as_many_edits_as_it_must_and_no_more() -> None:
    edits = (Edit("REMOVE", id_, "", item.text) for id_, item in FORTY.ids.items())
    judgement = condensed(FORTY, *edits, budget=1_200)
    assert 900 - max(map(len, FORTY.lines)) < len(judgement.document.text) <= 900
    assert judgement.of("hold") == []
    assert judgement.verdicts[-1].reason == "the profile is short enough"


def test_condensing_quotes_the_lines_it_merges_and_says_no_more_than_they_do() -> None:
    gone = remove("Lives in Porto", "Lives in Porto")

    def found(*edits: Edit) -> list[str]:
        return outcomes(condensed(NOW, *edits, budget=100))

    nurse = "Works as a nurse"
    assert found(replace(nurse, "Nurse in Porto", "Lives in Porto"), gone) == ["apply", "apply"]
    assert found(replace(nurse, "Nurse in Porto", "Lives in Porto")) == ["reject"]
    assert found(replace(nurse, "Nurse in Porto", nurse)) == ["hold"]
    assert found(replace(nurse, "Nurse; unrestricted access", nurse)) == ["hold"]
    assert found(remove("Lives in Porto", nurse)) == ["reject"]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("quote", "fares"), [("Lives in Porto", ["hold", "hold"]), ("I live in Berlin", ["reject", "reject"])]
)
def test_condensing_removes_no_line_that_was_merged_into_one_that_was_not_changed(
    order: int, quote: str, fares: list[str]
) -> None:
    merged = replace("Lives in Porto", "Lives in Porto, works as a nurse in Berlin", quote)
    gone = remove("Works as a nurse", "Works as a nurse")
    judgement = condensed(NOW, *[merged, gone][::order], budget=60)
    assert outcomes(judgement) == fares
    assert judgement.verdicts[1].reason == "the line it was merged into was not changed"


def test_a_line_may_be_corrected_in_its_capitals_alone() -> None:
    message = Message("it's Works as a Nurse, with a capital")
    assert verdict(replace("Works as a nurse", "Works as a Nurse", "Works as a Nurse"), message).outcome == "apply"


def test_condensing_that_is_reviewed_is_reviewed_whole() -> None:
    merged = replace("Lives in Porto", "Lives in Porto, works as a nurse", "Lives in Porto")
    gone = remove("Works as a nurse", "Works as a nurse")
    assert outcomes(condensed(NOW, merged, gone, budget=60, review_all=True)) == ["hold", "hold"]


def test_condensing_may_remove_lines_on_a_day_when_learning_has_removed_enough() -> None:
    assert outcomes(condensed(NOW, remove("Plays chess", "Plays chess"), budget=60, lately=GONE)) == ["apply"]
