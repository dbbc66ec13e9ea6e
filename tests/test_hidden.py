"""Hidden characters: found where nobody sees them, left where a script or an emoji is spelled with them."""

from __future__ import annotations

import pytest
from attacks import INNOCENT

from llm_user_memory import printable, why_hidden

HIDDEN = {
    "control characters": "\x00 \x1b \x7f \x85",
    "format characters": "\u00ad \u061c \u200b \u200e \u200f \u202a \u202e \u2060 \u2066 \ufeff \ufff9",
    "line and paragraph separators": "\u2028 \u2029",
    "surrogates and private use": "\ud800 \ue000",
    "tags": "\U000e0001 \U000e0041 \U000e007f",
    "fillers of scripts": "\u034f \u115f \u1160 \u17b4 \u17b5 \u180e \u3164 \uffa0",
    "the blank Braille cell": "\u2800",
    "reserved code points": "\u2065 \ufff0",
    "joiners": "\u200c \u200d",
    "selectors of Mongolian": "\u180b \u180d \u180f",
    "variation selectors": "\ufe00 \ufe0e \ufe0f \U000e0100 \U000e01ef",
}

SEEN = {
    "a joiner between letters": ("क्\u200dष", "ශ්\u200dරී"),
    "a joiner between pictures": ("👩\u200d👧", "❤\ufe0f\u200d🔥", "🏳\ufe0f\u200d🌈"),
    "a non-joiner behind a letter": ("می\u200cکند",),
    "the presentation of a picture or a digit": ("☀\ufe0f", "☀\ufe0e", "1\ufe0f⃣", "#\ufe0f⃣", "‼\ufe0f", "ℹ\ufe0f"),
}

ALONE = {
    "a joiner at an end": ("\u200dtea", "tea\u200d"),
    "a joiner between ASCII characters": ("c\u200do\u200cr\u200dn", "1\u200d2"),
    "a row of joiners": ("می\u200c\u200d\u200cخواهم",),
    "two selectors": ("❤\ufe0f\ufe0f",),
    "a selector behind a letter": ("tea\ufe0f", "é\U000e0100"),
    "tags": ("🏴\U000e0075\U000e0073\U000e007f",),
    "what hangs on a character that is taken out": ("a\ufe0f\u200d❤", "\u200b\ufe0f"),
}


@pytest.mark.parametrize("char", "".join(HIDDEN.values()).replace(" ", ""), ids=lambda char: f"U+{ord(char):04X}")
def test_a_character_nobody_sees_is_found_between_letters(char: str) -> None:
    assert f"(U+{ord(char):04X})" in why_hidden(f"a{char}b")
    assert printable(f"a{char}b") == "a b"


@pytest.mark.parametrize("kind", SEEN)
def test_a_character_is_seen_in_the_company_it_belongs_to(kind: str) -> None:
    for text in SEEN[kind]:
        assert (why_hidden(text), printable(text)) == ("", text)


@pytest.mark.parametrize("kind", ALONE)
def test_the_same_characters_anywhere_else_are_hidden_text(kind: str) -> None:
    for text in ALONE[kind]:
        assert why_hidden(text), ascii(text)
        assert not why_hidden(printable(text))


def test_a_text_in_any_script_stays_as_it_is() -> None:
    assert [text for text in INNOCENT if printable(text) != text] == []


def test_line_ends_and_tabs_stay_but_a_return_does_not() -> None:
    assert printable("a\r\n\tb\u200b\n") == "a\n\tb \n"
    assert printable("a\r\x1b[2Kb") == "a  [2Kb"
