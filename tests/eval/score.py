"""Score a profile by what was typed: pure functions, text in, numbers out.

A *pattern* describes a line of a profile: ``york & nurse|infirmi !leeds`` matches a line that contains York, and nurse
or infirmière, and not Leeds. Its words match the beginning of a word, without case and accents.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KINDS = {
    "forgotten": "the user asked to forget it",
    "secret": "a password, a key or a number of that kind",
    "sensitive": "health, religion, politics, sexuality, unless asked to remember",
    "given": "not what the user said: pasted, made up, merely asked about, or only planned",
    "others": "somebody else's life",
    "stale": "no longer true",
    "passing": "true for a day",
    "double": "other lines say it already",
}
"""Kinds of wrong lines; a line that matches several counts as the first."""


@dataclass(frozen=True)
class Part:
    """Some days of messages, and what the profile should and should not say at their end."""

    name: str
    days: Mapping[str, Sequence[str]]
    """Messages by date; one that begins with ``+`` continues the conversation of the one before it."""
    facts: Mapping[str, str]
    """Patterns, by a line that would be right."""
    wrong: Mapping[str, str]
    """Patterns by kind, with ``;`` between them."""


@dataclass(frozen=True)
class Case:
    """Somebody with a profile, who types: one part, or a year in several."""

    id: str
    parts: Sequence[Part]
    profile: Sequence[str] = ()


def case(
    id: str,  # noqa: A002
    group: str,
    *typed: str,
    profile: Sequence[str] = (),
    later: Sequence[str] = (),
    facts: Mapping[str, str] | None = None,
    **wrong: str,
) -> Case:
    """Make a case of messages typed on one day, and perhaps ``later`` ones of the next."""
    days = {"2026-03-14": typed} | ({"2026-03-15": later} if later else {})
    return Case(id, [Part(group, days, facts or {}, wrong)], profile)


def plain(text: str) -> str:
    """Take case, accents and typographic apostrophes out of a text."""
    letters = unicodedata.normalize("NFKD", text.casefold().replace("’", "'"))
    return " ".join("".join(c for c in letters if unicodedata.category(c) != "Mn").split())


def contains(line: str, words: str) -> bool:
    """Tell whether a line contains one of several words. Arabic and others join "and" to a word, so it may begin inside."""

    def pattern(word: str) -> str:
        return (
            (r"(?<![^\W_])" if word[:1].isascii() else "") + re.escape(word) + (r"(?!\d)" if word[-1].isdigit() else "")
        )

    return any(re.search(pattern(word), plain(line)) for word in map(plain, words.split("|")))


def matches(pattern: str, line: str) -> bool:
    wanted, _, unwanted = pattern.partition(" !")
    return all(contains(line, words) for words in wanted.split(" & ")) and not (unwanted and contains(line, unwanted))


def lines_of(profile: str) -> list[str]:
    """Read the lines of a profile that say something: no headings, no rules."""
    bare = (re.sub(r"^\s*(?:[-*+•]|\d+[.)])\s+", "", line).strip() for line in profile.splitlines())
    return [line for line in bare if re.search(r"[^\W_]", line) and not line.startswith("#")]


def doubles(lines: Sequence[str], facts: Sequence[str]) -> list[str]:
    """Find the lines that add nothing: all of their facts stand in other lines, or all of their words."""
    found = [line for at, line in enumerate(lines) if plain(line) in map(plain, lines[:at])]
    said = {plain(line): {fact for fact in facts if matches(fact, line)} for line in reversed(lines)}
    for line in sorted(said, key=lambda line: len(said[line])):
        if said[line] and said[line] <= set().union(*(said[other] for other in said if other != line)):
            del said[line]
            found.append(next(original for original in lines if plain(original) == line))
    return found


@dataclass(frozen=True)
class Score:
    """What a profile has of what it should say, and what else it says."""

    facts: int = 0
    missing: list[str] = field(default_factory=list)
    wrong: list[tuple[str, str]] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)
    """New lines that match no pattern: right or wrong, a person has to tell."""


def score(profile: str, part: Part, before: Sequence[str] = ()) -> Score:
    """Compare a profile with what it should say; lines that were there ``before`` are no news."""
    lines = lines_of(profile)
    kinds = [(kind, pattern) for kind in KINDS for pattern in part.wrong.get(kind, "").split("; ") if pattern]
    wrong = [(next((kind for kind, pattern in kinds if matches(pattern, line)), ""), line) for line in lines]
    fine = [line for kind, line in wrong if not kind]
    patterns = list(part.facts.values())
    return Score(
        len(patterns),
        [fact for fact, pattern in part.facts.items() if not any(matches(pattern, line) for line in fine)],
        [(kind, line) for kind, line in wrong if kind] + [("double", line) for line in doubles(fine, patterns)],
        [line for line in fine if line not in before and not any(matches(pattern, line) for pattern in patterns)],
    )
