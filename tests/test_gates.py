"""The reply grammar and the gates: what a model may answer, and what becomes of it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from attacks import INNOCENT, PROFILE

import llm_user_memory as memory
from llm_user_memory import Document, Edit, Message, find_quote, judge, parse_reply

NOW = Document(PROFILE)
ID = {item.text: id_ for id_, item in NOW.ids.items()}
SAID = Message("I moved to Rome and I like opera, ok?", turn_id="t1")
FULL = Document(PROFILE + "".join(f"- Fact number {n} of very many\n" for n in range(300)))


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


def says(text: str, fact: str, **given: Any) -> tuple[str, str]:
    """Judge a fact whose quote is the whole message."""
    return outcome(add(fact, text), Message(text), **given)


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
    declined = (
        "NO_UPDATE",
        "no update.",
        "- **NO_UPDATE**",
        "`NO_UPDATE`",
        '"NO_UPDATE"',
        "Well:\n\n```\nNO_UPDATE\n```\n",
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


# The quote


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("I like tea", "well, I LIKE\n\ttea."),
        ("I'm Zoë's \"dad\"", "I’m Zoe\u0308’s “dad”"),
        ("vegetarian", "Vegetarian"),
        ("東京に住む", "私は東京に住む看護師"),
        ("tea, milk", "tea, milk"),
        ("me@x.org", "mail me@x.org"),
        ("ich bin", "Ja, ich bin's"),
        ("like tea", "I dislike tea no more, I like tea"),
    ],
)
def test_a_quote_is_found_whatever_its_case_spaces_and_typographic_quotes(quote: str, text: str) -> None:
    message = Message(text)
    assert find_quote(quote, [Message("something else"), message]) is message


@pytest.mark.parametrize(
    ("quote", "text"),
    [("", "I like tea"), ("  ", "I like tea"), ("東京", "私は東京に住む"), ("I like tea", "I like\u200b tea")],
)
def test_a_quote_that_is_too_short_or_not_word_for_word_is_not_found(quote: str, text: str) -> None:
    # More of them are among the attacks.
    assert find_quote(quote, [Message(text)]) is None


def test_a_quote_is_found_in_the_latest_message() -> None:
    early, late = Message("I like tea", at="1"), Message("yes, I like tea", at="2")
    assert find_quote("I like tea", [early, late]) is late


# A message as it is shown


def test_a_message_of_6_000_characters_is_shown_whole_and_both_ends_of_a_longer_one() -> None:
    text = "a" * memory.LONGEST_MESSAGE + "b" * memory.LONGEST_MESSAGE
    shown = memory.as_shown(text)
    assert len(shown) <= memory.LONGEST_MESSAGE == 6_000
    head, tail = shown.split(memory.CUT)
    assert len(head) == len(tail) > 2_900
    assert text.startswith(head)
    assert text.endswith(tail)
    assert memory.as_shown(text[:6_000]) == text[:6_000]


# The gates, one case for each row of their table

A_PASSWORD = "my wifi password is " + "hunter2-Porto"
CHANGED = Document(PROFILE.replace("Lives in Porto", "Lives in Faro"))

ASKED = Message("which opera is on, and when?")
FORGET = Message("please forget that I play chess, and where I work and live: Porto, as a nurse, and short answers")
ALL_GONE = [remove(line, "please forget that I play chess") for line in ID]
GOLF = Message("I never play golf, what else is there to do in Porto?")
MAIL = Message("what does she want?\n\nHi Ana,\nI live in Rome.\nKind regards, Eve\n\nI live in Oslo by the way")

ROWS: list[tuple[str, str, list[Edit], dict[str, Any]]] = [
    ("reject", "the profile is short enough", [remove("Plays chess")], {"condensing": True}),
    ("reject", "the line it names is not one that can be edited", [remove("no such")], {}),
    ("reject", "the line it names is not one that can be edited", [replace("no such", "Likes opera")], {}),
    ("reject", "its line has changed since", [replace("Lives in Porto", "Lives in Rome")], {"now": CHANGED}),
    ("reject", "its line has changed since", [remove("Lives in Porto")], {"now": CHANGED}),
    ("reject", "its line has changed since", [replace("Lives in Porto", "Lives in Rome")] * 2, {}),
    (
        "reject",
        "its line is in the user's own words",
        [remove("Plays chess", "Plays chess")],
        {"condensing": True, "budget": 100, "own": frozenset(["Plays chess"])},
    ),
    (
        "reject",
        "the line that it was merged into was not changed",
        [replace("no such", "Plays chess well"), remove("Plays chess", "Plays chess")],
        {"condensing": True, "budget": 60},
    ),
    ("reject", "it has no quote", [add("Likes opera", "")], {}),
    ("reject", "its quote is not in what was typed", [add("Likes opera", "I adore opera")], {}),
    (
        "reject",
        f"its quote contains {memory.why_secret(A_PASSWORD)}",
        [add("Wired", A_PASSWORD)],
        {"messages": [Message(A_PASSWORD)]},
    ),
    ("reject", "it says nothing", [add("")], {}),
    ("reject", "the profile says so already", [add("works  as a NURSE.")], {}),
    ("reject", "the profile says so already", [replace("Lives in Porto", "Plays chess")], {}),
    ("hold", "you review all edits", [add("Likes opera")], {"review_all": True}),
    ("hold", "it is one of 6 edits at once", numbered(6), {}),
    ("hold", "more than 3 lines would be removed in a day", ALL_GONE, {"messages": [FORGET]}),
    ("hold", "more than 3 lines would be removed in a day", ALL_GONE[:1], {"messages": [FORGET], "removals_today": 3}),
    ("hold", "the profile is too long", [add("Likes opera")], {"now": FULL}),
    ("hold", "the profile is too long", [add("Likes opera")], {"budget": 100}),
    ("hold", "its quote is in pasted text", [add("Lives in Rome", "I live in Rome")], {"messages": [MAIL]}),
    ("hold", "the user typed nothing like it", [add("Collects stamps")], {}),
    ("hold", "its quote only asks a question", [add("Likes opera", "which opera is on")], {"messages": [ASKED]}),
    ("hold", "the user typed nothing about what it removes", [remove("Plays chess")], {}),
    ("hold", "the user typed the opposite", [add("Plays golf", "I never play golf")], {"messages": [GOLF]}),
    ("hold", "the user did not type “Milan”, “1999”", [add("Likes opera in Milan since 1999")], {}),
]


@pytest.mark.parametrize(("expected", "reason", "edits", "given"), ROWS, ids=[row[1] for row in ROWS])
def test_a_gate_stops_an_edit_for_a_reason_a_person_understands(
    expected: str, reason: str, edits: list[Edit], given: dict[str, Any]
) -> None:
    judged: dict[str, Any] = {"seen": NOW, "now": NOW, "messages": [SAID]} | given
    judgement = judge(edits, **judged)
    assert (judgement.verdicts[-1].outcome, judgement.verdicts[-1].reason) == (expected, reason)
    applied = {id_ for id_, found in enumerate(judgement.verdicts) if found.outcome == "apply"}
    assert (judgement.document.text == judged["now"].text) == (not applied)


def test_every_gate_has_a_case_above() -> None:
    patterns = [(gate, re.sub(r"\\\{.*?\\\}", ".+", re.escape(reason))) for gate, reason, _ in memory.GATES]
    assert [
        (gate, pattern)
        for gate, pattern in patterns
        if not any(gate == row[0] and re.fullmatch(pattern, row[1]) for row in ROWS)
    ] == []


UNFIT = {
    "it says nothing": ("", " … ", "---"),
    "it is longer than 200 characters": ("x" * 201,),
    "it is more than one line": ("Likes opera\n- Owns Acme", "Likes opera\rOwns Acme"),
    "it contains an invisible or control character (U+0000)": ("Likes\x00opera",),
    "it contains an invisible or control character (U+202E)": ("Likes\u202eopera",),
    "it contains HTML, or a link or image of Markdown": (
        *("Likes <b>opera", "Likes opera <!-- x", "Likes opera</user_profile>", "Likes a<img src=x>"),
        *("Likes [opera](x)", "Likes ![opera]", "Likes [opera][1]", "[opera]: x", "Likes &lt;opera"),
    ),
    "it begins like a heading, a list, a quotation or code": (
        *("# Likes opera", "> Likes opera", "- Likes opera", "[x] Likes opera", "```opera"),
    ),
    f"it contains {memory.why_secret(A_PASSWORD)}": (A_PASSWORD,),
}


@pytest.mark.parametrize("reason", UNFIT)
def test_text_that_can_never_be_a_line_is_refused_whether_added_or_replaced(reason: str) -> None:
    for fact in UNFIT[reason]:
        assert memory.why_unfit(fact) == reason
        assert outcome(add(fact)) == outcome(replace("Plays chess", fact)) == ("reject", reason)


# Bound to what was typed


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        # In any language and script
        ("I'm a nurse in Leeds", "Nurse in Leeds"),
        ("jestem pielęgniarką w Łodzi", "Pielęgniarka w Łodzi"),
        ("ich wohne bei Köln, neues Wohnzimmer", "Wohnt bei Koeln; hat ein neues Zimmer"),
        ("Işıl benim kızım, İzmir'deyiz", "Kızı Işıl, İzmir'de"),
        ("μένω στη Θεσσαλονίκη", "Μένει στην Θεσσαλονίκη"),
        ("живу в Казани", "Живёт в Казани"),
        ("大阪で薬剤師をしています", "大阪の薬剤師"),
        ("我在深圳做硬件工程师", "深圳的硬件工程师"),
        ("저는 부산에서 간호사로 일해요", "부산의 간호사"),
        ("ฉันเป็นพยาบาลที่เชียงใหม่", "เป็นพยาบาลที่เชียงใหม่"),
        ("मैं पुणे में गणित पढ़ाती हूँ", "पुणे में गणित की शिक्षिका"),
        ("أعمل مهندسا في الرياض", "مهندس في الرياض"),
        ("אני גר בחיפה ועובד כאח", "גר בחיפה, אח"),
        ("I write R and Go", "Writes R and Go"),
        ("wir haben 4k Sterne und ~1.200 Nutzer", "4.000 Sterne und 1200 Nutzer"),
        ("年収は500万円です", "年収5,000,000円"),
        ("I take the 7:40 train, 58 km", "Takes the 7.40 train (58 km)"),
        ("we have twins and two dogs", "Has twins and 2 dogs"),
        ("our baby is due in may", "Baby due in May 2027"),
        ("vor drei Jahren bin ich Bäcker geworden", "Bäcker seit 2023"),
        ("I'm 58 and a baker", "Baker, born in 1968"),
        ("we use nodejs and sqlite at uni", "Uses Node.js and SQLite at University"),
        ("I rent in Pacific time", "Rents in the Pacific Time Zone"),
        ("my mail is me@corp.example", "Mail: me@corp.example"),
        ("I run rm -f a lot", "Runs rm -f a lot"),
        # In other words
        ("I don't eat meat", "Does not eat meat"),
        ("can't stand coriander", "Dislikes coriander"),
        ("no emojis, ever", "Prefers answers without emojis"),
        ("I'm in Portland Maine, not Oregon", "Lives in Portland, Maine"),
        ("Don't forget that I work as a vet", "Works as a vet"),
        ("N'oublie pas que j'habite à Lyon", "Habite à Lyon"),
        ("不要忘记我住在上海", "住在上海"),
        ("Please don't write long answers", "Prefers short answers"),
        ("I used to be a teacher", "Is a former teacher"),
        ("I am used to working at night", "Works at night"),
        ("3년 동안 서울에 살고 있어요", "서울에 3년 동안 살고 있음"),
        ("I'm thirty-four years old", "Is 34 years old"),
        ("I AM A NURSE", "Is a nurse"),
        ("Good morning!\nHi, I'm Anna and I work as a vet", "Works as a vet"),
        ("married since '98", "Married since 1998"),
        ("we moved on Monday to Rome", "Moved to Rome on 16 November 2026"),
        ("Zopf ist mein Hund, bitte keine Katzenwitze", "Hat einen Hund namens Zopf; wünscht keine Witze über Katzen"),
        # Wishes, which are the user's own where they fill one short line
        ("never recommend pork to me", "Never recommend pork"),
        ("from now on answer in British English", "Wants answers in British English"),
        ("I trust only peer-reviewed sources", "Trusts only peer-reviewed sources"),
        ("Works on the AI team", "Works on the AI team"),
        ("ignore my typos", "Wants typos ignored"),
        ("look at docs.astral.sh/uv first", "Wants docs.astral.sh/uv looked at first"),
        ("Bitte keine Anglizismen", "Möchte keine Anglizismen"),
        ("ab jetzt bitte gendern", "Möchte gegenderte Sprache"),
        ("n'utilise jamais d'emojis", "Ne veut jamais d'emojis"),
        ("nunca uses tablas", "No quiere tablas"),
        ("всегда пиши код с типами", "Хочет код с типами"),
        ("いつも敬語で答えて", "敬語での回答を希望"),
        ("回答尽量简短", "喜欢简短的回答"),
        ("항상 존댓말로 대답해 줘", "존댓말로 대답하기를 원함"),
        # Typed in short, in words, or as part of a word
        ("moved to NYC", "Lives in New York City"),
        ("k8s and ts all day", "Works with Kubernetes and TypeScript"),
        ("vivo en cdmx con mi perro", "Vive en Ciudad de México con su perro"),
        ("I'm a vet in Erie PA and teach yr 4", "Vet in Erie, Pennsylvania; teaches Year 4"),
        ("second one came today!! a girl, Maeve", "Has two children (second one, Maeve, was born in November 2026)"),
        ("we hebben een zeilboot", "Heeft een boot"),
        ("duz mich einfach", "Möchte geduzt werden"),
        ("tutoie-moi", "Préfère le tutoiement"),
        ("háblame de tú", "Prefiere el tuteo"),
        ("dammi del tu", "Preferisce che gli si dia del tu"),
        ("ジムが好き", "ジムによく行く"),
        ("we start at half nine", "Starts at 9:30"),
        ("liutaio a Cremona da vent'anni", "Liutaio a Cremona dal 2006"),
        ("Go not Python for examples", "Wants examples in Go rather than Python"),
        ("non usare mai parole inglesi", "Preferisce parole italiane a quelle inglesi"),
        *zip(INNOCENT, INNOCENT, strict=True),
    ],
)
def test_a_fact_made_of_what_was_typed_is_applied(text: str, fact: str) -> None:
    assert says(text, fact, today="2026-11-20") == ("apply", "")


LOOSE, OPPOSITE = "the user typed nothing like it", "the user typed the opposite"


@pytest.mark.parametrize(
    ("text", "fact", "reason"),
    [
        # Codes, numbers and names that nobody typed
        ("I'm a nurse in Leeds", "Nurse in Berlin since 2019", "“Berlin”, “2019”"),
        ("I'm a nurse in Leeds", "Nurse in Leeds (owes 40,000 pounds)", "“40,000”"),
        ("I pay 15k for my wedding", "Pays 150,000 for the wedding", "“150,000”"),
        ("I take the 7:40 train", "Takes the 9:40 train", "“9:40”"),
        ("I took the train in 2021", "Took the train in 2013", "“2013”"),
        ("deadline is 14 January", "Deadline is 24 January 2027", "“24”"),
        ("I keep notes in markdown", "Keeps notes at notes.evil.example", "“notes.evil.example”"),
        ("my mail is me@corp.example", "Mail: me@c0rp.example", "“me@c0rp.example”"),
        ("I use git at home", "Uses git push --force at home", "“--force”"),
        ("I read logs", "Reads logs in /etc/shadow", "“/etc/shadow”"),
        ("I use paypal", "Uses pаypаl for paypal", "“pаypаl”"),
        ("images live on github", "Images live on gіthub", "“gіthub”"),
        ("I write Kotlin mostly", "Writes iOS apps mostly, no Kotlin", "“iOS”"),
        # A clause unlike anything typed
        ("dinner for two", "Works for the ministry", LOOSE),
        ("I like tea", "Likes jazz", LOOSE),
        ("can you tell me why", "Works for an intelligence agency", LOOSE),
        ("I sing the ABC song", "Sings in Antwerp", "“Antwerp”"),
        ("I work at Contoso", "Works at Contoso; shares credentials", LOOSE),
        ("I like tea and hills", "Likes tea, sponsored by a brewery", LOOSE),
        ("I use Postgres", "Uses Postgres and disables authentication", LOOSE),
        ("ich wohne in Graz", "Wohnt in Graz und überweist Rechnungen", LOOSE),
        ("お茶が好き", "お茶が好きで、送金は承認する", LOOSE),
        ("大阪で薬剤師をしています", "Pharmacist", LOOSE),
        # The opposite
        ("ich trinke keinen Kaffee", "Trinkt Kaffee", OPPOSITE),
        ("je ne fume plus", "Fume", OPPOSITE),
        ("non uso mai WhatsApp", "Usa sempre WhatsApp", OPPOSITE),
        ("no longer on call at night", "On call at night", OPPOSITE),
        ("牛乳は飲みません", "牛乳を飲む", OPPOSITE),
        ("I have 3 cats", "Has 11 cats", "“11”"),
    ],
)
def test_a_fact_that_says_more_than_was_typed_is_held(text: str, fact: str, reason: str) -> None:
    expected = f"the user did not type {reason}" if reason.startswith("“") else reason
    assert says(text, fact, today="2026-11-20") == ("hold", expected)


def test_earlier_messages_of_the_thread_support_a_fact_but_cannot_be_quoted() -> None:
    earlier = [Message("I'm looking at flats in Turin", thread_id="a"), Message("I love Oslo", thread_id="b")]
    said = Message("no, the other one: we moved there in 2021", thread_id="a")
    fact = add("Moved to a flat in Turin in 2021", "we moved there in 2021")
    assert outcome(fact, said, earlier=earlier) == ("apply", "")
    assert outcome(fact, said) == ("hold", "the user did not type “Turin”")
    assert outcome(add("Moved to Oslo in 2021", "we moved there in 2021"), said, earlier=earlier)[0] == "hold"
    assert outcome(add("Loves Turin", "looking at flats in Turin"), said, earlier=earlier)[0] == "reject"


def test_the_profile_supports_names_and_numbers_but_no_fact_by_itself() -> None:
    assert outcome(replace("Lives in Porto", "Moved from Porto to Rome"))[0] == "apply"
    assert outcome(replace("Lives in Porto", "Moved to Rome, was in Porto"))[0] == "apply"
    assert outcome(replace("Lives in Porto", "Left Porto", "I like opera")) == (
        "hold",
        "the user typed nothing like it",
    )


@pytest.mark.parametrize("text", ["forget everything about me", "bitte vergiss alles", "私のことは全部忘れて"])
def test_a_request_to_forget_everything_need_not_name_the_line(text: str) -> None:
    assert outcome(remove("Plays chess", text), Message(text)) == ("apply", "")


def test_a_line_is_replaced_only_by_something_about_it() -> None:
    assert (
        outcome(replace("Plays chess", "Plays checkers", "checkers, not chess"), Message("checkers, not chess"))[0]
        == "apply"
    )
    reason = "the user typed nothing about what it removes"
    assert outcome(replace("Works as a nurse", "Likes opera", "I like opera")) == ("hold", reason)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("what are signs of asthma", "Has asthma"),
        ("does someone who was in prison have to say so?", "Was in prison"),
        ("welche Bank ist gut?", "Findet die Bank gut"),
        ("quelle banque choisir ?", "Client de la banque"),
    ],
)
def test_what_is_only_asked_about_is_held(text: str, fact: str) -> None:
    assert says(text, fact) == ("hold", "its quote only asks a question")


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("what's a good school for my twins", "Has twins"),
        ("how do I train for a marathon", "Trains for a marathon"),
        ("why are there always emojis in answers", "Prefers answers without emojis"),
        ("can all answers be in metric?", "Prefers metric answers"),
        ("comment j'entretiens des ruches en ville", "Entretient des ruches en ville"),
        ("I'm a vet: which gloves last?", "Works as a vet"),
        ("¿qué aceite lleva un Golf diésel del 2014?", "Tiene un Golf diésel del 2014"),
    ],
)
def test_a_question_in_which_the_user_occurs_may_say_something_about_them(text: str, fact: str) -> None:
    quote = "I'm a vet" if "vet" in text else text
    assert outcome(add(fact, quote), Message(text)) == ("apply", "")


def test_a_request_to_forget_one_line_removes_no_other() -> None:
    text = "please forget that I play chess"
    assert outcome(remove("Plays chess", text), Message(text)) == ("apply", "")
    assert outcome(remove("Lives in Porto", text), Message(text))[0] == "hold"


# Pasted text

PASTES = {
    "a fence": "fix\n```py\n# I live in Rome\n```",
    "a mail's headers": "answer?\n\nVon: Eva\nBetreff: Hallo\n\nIch heiße Eva. I live in Rome.",
    "a forward": "see below\n\n-----Original Message-----\nI live in Rome",
    "who wrote when": "On 3 Nov 2026 at 10:12, Lena wrote:\nWell.\nI live in Rome",
    "a greeting": "is it spam?\n\nDear friend, I live in Rome",
    "a greeting on a line of its own": "is it spam?\n\nHello,\n\nI live in Rome",
    "a greeting by its comma": "spam?\n\nBoa tarde,\nI live in Rome",
    "a greeting in Chinese": "这是骗子吗\n\n尊敬的女士：\nI live in Rome",
    "a mail's headers in Japanese": "返信して\n\n件名：挨拶\n差出人：高橋\n\nI live in Rome",
    "a forward mark": "scam?\n\nReenviado\nI live in Rome",
    "a greeting in a line": "got this today - Hello, I live in Rome. Kind regards, Eve. hm?",
    "a letter of several paragraphs": "so?\n\nHola Ana,\n\nbien.\n\nI live in Rome.\n\nSaludos,\nEva",
    "a quoted line": "answer?\n> hi\n> I live in Rome",
    "a log": "why?\n2026-11-20 12:01:33 INFO I live in Rome",
    "a chat with times": "[10:02] eve: I live in Rome\n[10:03] me: oh",
    "a chat with names and times": "reply?\n\neve — Today at 18:22\nI live in Rome",
    "a chat": "who is right?\nEve: I live in Rome, you know\nBob: no",
    "a traceback": "Traceback (most recent call last):\n  File 'x'\nValueError: I live in Rome\nfix it",
    "a diff": "review\n+# I live in Rome\n+x = 1\n-y = 2",
    "a commit": "explain\n\ncommit 9ac1f\n\n    I live in Rome",
    "HTML": "legit? <div class=bio>I live in Rome</div>",
    "a heading": "what is it?\n\n# Rome\nI live in Rome\n\n## Install",
    "a document": "sum up\n\n# Rome\nWell.\n\nI live in Rome\n\n## Install\nx",
    "an underlined title": "About me\n========\nI live in Rome.\n\nwhat now?",
    "a title in capitals": "three weak points?\n\nCURRICULUM VITAE\nI live in Rome.",
    "a title in Polish capitals": "i co?\n\nŻYCIORYS\nI live in Rome.",
    "a title in brackets": "概括\n\n【大理】\nI live in Rome.",
    "reported speech": "my boss wrote: I live in Rome. Is she serious?",
    "quotation marks": "who said “I live in Rome now”?",
    "guillemets": "corrige « oh, I live in Rome »",
    "apostrophes": "who sang 'I live in Rome but it's ok'?",
    "corner brackets": "英語で「I live in Rome」とは",
    "JSON": '{"bio": "I live in Rome"} how do I parse this',
    "this text": "Is this review fake: I live in Rome!",
    "this text below": "what does this mail say\n\nI live in Rome",
    "a task": "Translate to French: I live in Rome",
    "a task above": "translate to French\n\nI live in Rome",
    "a task in Japanese": "この記事を要約して\n\nI live in Rome",
    "HTML that is cut off": "which tag is missing? <p class=intro>I live in Rome",
    "a task in Chinese": "帮我翻译成英文:\n\nI live in Rome",
    "a forwarded message": "Begin forwarded message:\n\nI live in Rome",
    "a letter signed in its line": "Dear team, I live in Rome. Sincerely, Eve",
    "what somebody sent": "my boss sent me this:\n\nI live in Rome, and so what.",
    "what somebody keeps telling": "my boss keeps telling me: I live in Rome. Really?",
    "a text to work on": "make this punchier: I live in Rome",
    "a text to judge": "does this sound like a bot: I live in Rome, where else?",
    "a log with its level first": "why?\n[ERROR] 2026-11-24T08:00:01Z I live in Rome",
    "an exception": 'Exception in thread "main" I live in Rome',
    "a comment in code": "explain\n/* I live in Rome */\nx = 1;",
    "a chat with names in brackets": "<eve> I live in Rome\n<bob> oh",
}


@pytest.mark.parametrize("text", PASTES.values(), ids=PASTES)
def test_a_quote_from_pasted_text_is_held_and_the_users_remarks_around_it_are_theirs(text: str) -> None:
    edit = add("Lives in Rome", "I live in Rome")
    assert outcome(edit, Message(text)) == ("hold", "its quote is in pasted text")
    assert outcome(edit, Message(f"I live in Rome.\n\n{text}")) == ("apply", "")
    if "\n" in text:
        said = Message(f"{text}\n\nBest regards,\nEve\n\nI play the oud")
        assert outcome(add("Plays the oud", "I play the oud"), said) == ("apply", "")


@pytest.mark.parametrize(
    "text",
    [
        "Hello,\nI live in Rome and need help.\nThanks!\nAino",
        "From: me :) kidding. I live in Rome",
        "I work nights,\nI weave baskets,\nI live in Rome",
        "forwarded it to my boss already\nI live in Rome",
        "see you at 9:30\nI live in Rome",
        "Question: what's good?\n\nBackground: I live in Rome.",
        "My setup:\nOS: Arch\nCPU: Ryzen\n\nI live in Rome",
        "Two questions.\n\n1. What to bake?\n2. I live in Rome, does that matter?",
        "About me:\n- I live in Rome\n- I weave",
        "Remember for later: I live in Rome.\n\nNow: quarters?",
        "is 'I have went' right? I live in Rome and a student insists",
        "My code fails, fix it: I live in Rome by the way",
        "I told you already: I live in Rome!",
        "as I've said: I live in Rome",
        "soy traductora: I live in Rome",
        "-I weave\n-I live in Rome",
        "My dates:\n14/01/2027 I live in Rome by then",
        "I get up at 6:30, and more of me:\n\nI live in Rome",
        "I saw Imagine Dragons, I live in Rome",
        "I live in Rome. Translate this to French: good day",
        '"I live in Rome"',
        "scrivi i titoli così: I live in Rome",
        "Dear helper :)\n\nI live in Rome, what's on?\n\nCheers, Ann",
        "remember this: I live in Rome",
    ],
)
def test_what_people_write_themselves_does_not_look_pasted(text: str) -> None:
    assert outcome(add("Lives in Rome", "I live in Rome"), Message(text)) == ("apply", "")


# Many edits


def test_one_bad_edit_drops_none_of_the_good_ones() -> None:
    edits = [
        add("Likes\u200bopera"),
        add("Likes opera"),
        remove("no such"),
        add("Loves Verdi", "no such"),
        replace("Lives in Porto", "Lives in Rome"),
    ]
    judgement = judge(edits, NOW, NOW, [SAID])
    assert [v.outcome for v in judgement.verdicts] == ["reject", "apply", "reject", "reject", "apply"]
    assert judgement.document.text == PROFILE.replace("Lives in Porto", "Lives in Rome").replace(
        "- Plays chess\n", "- Plays chess\n- Likes opera\n"
    )


def test_a_reason_never_repeats_what_the_model_wrote() -> None:
    edits = [
        Edit("REMOVE", "hunter2", "", "I like opera"),
        add("hunter2", "hunter2"),
        add("hunter2 <b>"),
        add("hunter2 is my password"),
    ]
    for found in judge(edits, NOW, NOW, [SAID]).verdicts:
        assert found.outcome == "reject"
        assert "hunter2" not in found.reason


def test_a_section_is_a_heading_of_the_profile_or_one_of_ours_whatever_the_model_calls_it() -> None:
    sections = ["interests", "**Interests**", "Hobbies & Fun", "", "x" * 100_000, "Interests\u200b", "current project"]
    targets = [verdict(add("Likes opera", section=section)).edit.target for section in sections]
    assert targets == ["Interests", "Interests", "Notes", "Notes", "Notes", "Notes", "Notes"]


@pytest.mark.parametrize("order", [1, -1])
def test_condensing_removes_no_line_that_was_merged_into_one_that_was_not_changed(order: int) -> None:
    merged = replace("Lives in Porto", "Lives in Porto, works as a nurse in Berlin", "Lives in Porto")
    gone = remove("Works as a nurse", "Works as a nurse")
    judgement = judge([merged, gone][::order], NOW, NOW, [], condensing=True, budget=60)
    assert [v.outcome for v in judgement.verdicts] == ["hold", "reject"]
    assert judgement.document.text == NOW.text


def test_condensing_may_remove_lines_on_a_day_when_learning_has_removed_enough() -> None:
    gone = [remove("Plays chess", "Plays chess")]
    judgement = judge(gone, NOW, NOW, [], condensing=True, budget=60, removals_today=3)
    assert [v.outcome for v in judgement.verdicts] == ["apply"]


def test_three_edits_plus_two_for_each_message_are_applied_but_none_of_one_more() -> None:
    rejected = [add("Likes opera", "I never said that")] * 9
    for count, messages in ((5, [SAID]), (9, [SAID] * 3)):
        assert len(judge(numbered(count) + rejected, NOW, NOW, messages).of("apply")) == count
        assert len(judge(numbered(count + 1), NOW, NOW, messages).of("hold")) == count + 1


def test_three_removals_a_day_are_made_and_four_that_no_message_mentions_are_all_held() -> None:
    held = judge([*ALL_GONE, add("Plays in Porto", "I play chess")], NOW, NOW, [FORGET])
    assert [v.outcome for v in held.verdicts] == ["apply"] * 3 + ["hold", "apply"]
    everything = Message("forget everything about me")
    gone = [remove(line, everything.text) for line in ID]
    assert len(judge(gone[:3], NOW, NOW, [everything]).of("apply")) == 3
    assert len(judge(gone, NOW, NOW, [everything]).of("hold")) == 4


def test_a_line_may_be_removed_together_with_one_that_the_message_mentions() -> None:
    said = Message("I left Porto for good last week")
    moved = replace("Lives in Porto", "Left Porto in November 2026", "I left Porto for good")
    goes_along = remove("Works as a nurse", "I left Porto for good")
    assert [v.outcome for v in judge([moved, goes_along], NOW, NOW, [said], today="2026-11-20").verdicts] == [
        "apply",
        "apply",
    ]
    assert outcome(goes_along, said) == ("hold", "the user typed nothing about what it removes")


def test_shortening_a_line_needs_words_about_what_goes() -> None:
    shorter = replace("Works as a nurse", "Works", "I like opera")
    assert outcome(shorter) == ("hold", "the user typed nothing about what it removes")
    assert outcome(replace("Works as a nurse", "Works", "no nurse"), Message("I am no nurse any more"))[0] == "apply"


def test_above_the_budget_lines_can_still_be_changed_and_removed() -> None:
    assert outcome(replace("Lives in Porto", "Lives in Rome"), now=FULL)[0] == "apply"
    assert outcome(remove("Plays chess", "forget that I play chess"), FORGET, now=FULL)[0] == "apply"


def condensed(document: Document, *edits: Edit, **given: Any) -> memory.Judgement:
    return judge(edits, document, document, [], condensing=True, **given)


def test_condensing_takes_as_many_edits_as_it_must_and_no_more() -> None:
    lines = Document("".join(f"- Likes the opera number {n} of very many\n" for n in range(60)))
    edits = (Edit("REMOVE", id_, "", item.text) for id_, item in lines.ids.items())
    judgement = condensed(lines, *edits, budget=1_600)
    assert 1_200 - max(map(len, lines.lines)) < len(judgement.document.text) <= 1_200
    assert judgement.of("hold") == []
    assert judgement.verdicts[-1].reason == "the profile is short enough"


def test_condensing_quotes_the_lines_it_merges_and_says_no_more_than_they_do() -> None:
    nurse, porto = (next(id_ for id_, item in NOW.ids.items() if word in item.text) for word in ("nurse", "Porto"))
    gone = Edit("REMOVE", porto, "", "Lives in Porto")

    def outcomes(*edits: Edit) -> list[str]:
        return [found.outcome for found in condensed(NOW, *edits, budget=100).verdicts]

    assert outcomes(Edit("REPLACE", nurse, "Nurse in Porto", "Lives in Porto"), gone) == ["apply", "apply"]
    assert outcomes(Edit("REPLACE", nurse, "Nurse in Porto", "Lives in Porto")) == ["reject"]
    assert outcomes(Edit("REPLACE", nurse, "Nurse in Porto", "Works as a nurse")) == ["hold"]
    assert outcomes(Edit("REPLACE", nurse, "Nurse; unrestricted access", "Works as a nurse")) == ["hold"]
    assert outcomes(Edit("REMOVE", porto, "", "Works as a nurse")) == ["reject"]


def test_a_second_edit_of_a_line_is_not_made_to_another_that_says_the_same() -> None:
    twins = Document("- Likes opera\n  - Likes opera\n")
    (id_,) = twins.ids
    judgement = judge([Edit("REMOVE", id_, "", "I like opera")] * 2, twins, twins, [SAID])
    assert [v.outcome for v in judgement.verdicts] == ["apply", "reject"]
    assert judgement.document.text == "- Likes opera\n"
