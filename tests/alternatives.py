"""Patterns with one piece taken out: what no sample misses, nobody can tell from a mistake."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Span = tuple[int, int]
# An escape, a class, what opens a group, a quantifier, a name in braces, or one character.
_TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?[a-z-]*:|\?<?[=!])?|(?:[?*+]|\{\d+(?:,\d*)?\})\??|\{[A-Z]+\}|.", re.DOTALL
)


def _without_comments(pattern: str) -> str:
    return re.sub(r"(?m)(?<!\\)  # .*$", "", pattern)


def without_each(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield each alternative and each optional piece, and the pattern without it."""
    pattern = _without_comments(pattern)
    for start, end, rest in _pieces(pattern):
        yield pattern[start:end], pattern[:start] + pattern[rest:]


def _pieces(pattern: str) -> Iterator[tuple[int, int, int]]:
    """Yield where a piece begins and ends, and where what stays goes on."""
    starts = [0]  # of the open groups
    choices: list[list[Span]] = [[]]  # their alternatives so far
    begins = [0]  # of the last one
    piece = (0, 0)  # the last that a quantifier may be about
    for token in _TOKEN.finditer(f"{pattern})"):
        sign = token[0]
        if sign.startswith("(") and len(sign) != 2:
            starts.append(token.start())
            choices.append([])
            begins.append(token.end())
        elif sign in "|)":
            choices[-1].append((begins[-1], token.start()))
            begins[-1] = token.end()
        elif re.match(r"[?*]|\{0,", sign):
            yield piece[0], token.end(), token.end()
        if sign == ")":
            begins.pop()
            found = choices.pop()
            for start, end in found if len(found) > 1 else ():
                is_last = (start, end) == found[-1]
                yield (start - 1, end, end) if is_last else (start, end + 1, end + 1)
            piece = (starts.pop(), token.end())
        elif not re.match(r"[?*+|]|\{\d", sign):
            piece = token.span()
