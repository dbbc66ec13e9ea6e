"""Hidden characters: found where nobody sees them, left where a script or an emoji is spelled with them."""

from __future__ import annotations

import pytest
from attacks import INNOCENT

from llm_user_memory import printable, why_hidden

HIDDEN = (
    "\x00\x1b\x7f\x85"  # control characters
    "\u00ad\u061c\u200b\u200e\u200f\u202a\u202e\u2060\u2066\ufeff\ufff9\u2028\u2029"  # of format, and separators
    "\ud800\ue000\u2065\ufff0\U0001bca0\U0001d173"  # surrogates, private use, reserved
    "\U000e0001\U000e0041\U000e007f\ufe00\ufe0e\ufe0f\U000e0100\U000e01ef"  # tags and selectors
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180d\u180e\u180f\u2800\u3164\uffa0\u200c\u200d"  # of scripts
)

# Joiners between letters and between pictures, and the presentation of a picture or a digit.
SEEN = ["क्\u200dष", "ශ්\u200dරී", "می\u200cکند", "👩\u200d👧", "❤\ufe0f\u200d🔥", "🏳\ufe0f\u200d🌈"]
SEEN += ["\u115f\u1161\u11a8"]
SEEN += ["ខ្ញុំ\u200bរស់\u200bនៅ", "ខ្ញុំ\u200bប្រើ\u200bPython", "ไป\u200bบ้าน", "མི\u200bལ", "ᠮ\u180eᠠ", "ᠠ\u180bᠨ"]
SEEN += [
    "葛\U000e0100飾区",
    "辻\U000e0101さん",
    "芦\ufe00",
    "∩\ufe00",
    "ꩀ\ufe00",
    "Python\u200cها",
    "คน\u200b\u200bไทย",
]
SEEN += ["\u200fאבא", "أ\u061c1"]
SEEN += ["👁\ufe0f\u200d🗨\ufe0f", "👩🏽\u200d⚕\ufe0f"]
SEEN += [
    "🏃🏽\u200d♀\ufe0f\u200d➡\ufe0f",
    "👍🏽\ufe0f",
    "〰\ufe0f",
    "Ⓜ\ufe0f",
]
SEEN += ["☀\ufe0f", "☀\ufe0e", "1\ufe0f⃣", "#\ufe0f⃣", "‼\ufe0f", "ℹ\ufe0f"]

# Joiners at an end, between ASCII characters or in a row; selectors behind a letter or another; tags; what hangs on these.
ALONE = ["\u200dtea", "tea\u200d", "c\u200do\u200cr\u200dn", "1\u200d2", "می\u200c\u200d\u200cخواهم", "❤\ufe0f\ufe0f"]
ALONE += [
    "t\u200be\u200ca",
    "te\u200b\u200b\u200ba",
    "ж\u200bж",
    "a\u200fb",
    "אב\u200f\u200e\u200fג",
    "א\u202eabc\u202cב",
]
ALONE += [
    "is \u2066Zoë",
    "is \u2068Zoë\u2069",
    "+\u202a972\u202c",
    "is Zoë\u2069",
    "אב\u2067גד",
    "a\u202bb",
    "שלום \u202babc\u2069 def",
    "\u2067abc\u202c def",
    "\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
]
ALONE += [
    "🏴" + "\U000e0061" * 9 + "\U000e007f",
    "🏴\U000e0067\U000e0062\U000e0073",
    "👩\U000e0167\U000e0162",
    "葛\U000e0100\U000e0101",
]
ALONE += ["עם \u200fC++", "עם C++\u200f.", "أحب C#\u200e هنا"]  # beside a letter or sign that needs none
ALONE += ["☀\ufe01\ufe02\ufe03", "x\ufe00", "éé\u200dé", "tea\u2060"]
ALONE += ["tea\ufe0f", "é\U000e0100", "🏴\U000e0075\U000e0073\U000e007f", "a\ufe0f\u200d❤", "\u200b\ufe0f"]


@pytest.mark.parametrize("char", HIDDEN, ids=lambda char: f"U+{ord(char):04X}")
def test_a_character_nobody_sees_is_found_between_letters(char: str) -> None:
    assert f"(U+{ord(char):04X})" in why_hidden(f"a{char}b")
    assert printable(f"a{char}b") == "a b"


@pytest.mark.parametrize("text", SEEN)
def test_a_character_is_seen_in_the_company_it_belongs_to(text: str) -> None:
    assert (why_hidden(text), printable(text)) == ("", text)


@pytest.mark.parametrize("text", ALONE, ids=ascii)
def test_the_same_characters_anywhere_else_are_hidden_text(text: str) -> None:
    assert why_hidden(text)
    assert not why_hidden(printable(text))


def test_a_tab_is_a_control_character_in_a_line_and_stays_where_it_is_shown() -> None:
    assert "(U+0009)" in why_hidden("Likes\ttea")
    assert printable("Likes\ttea") == "Likes\ttea"


def test_a_text_in_any_script_stays_as_it_is_and_of_line_ends_all_but_a_return() -> None:
    assert [text for text in INNOCENT if printable(text) != text] == []
    assert printable("a\r\n\tb\u200b\n") == "a\n\tb \n"
    assert printable("a\r\x1b[2Kb") == "a  [2Kb"
