"""Patterns with one alternative taken out: what no sample misses, nobody can tell from a mistake."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Span = tuple[int, int]
# An escape, a class, what opens a group, and what ends an alternative or a group.
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?[a-z-]*:|\?<?[=!])?|[|)]", re.DOTALL)


def choices(pattern: str) -> Iterator[list[Span]]:
    """Yield the places of the alternatives of each group that has several."""
    open_groups: list[list[Span]] = [[]]
    begins = [0]
    for token in _TOKEN.finditer(f"{pattern})"):
        sign = token[0]
        if sign.startswith("("):
            open_groups.append([])
            begins.append(token.end())
        elif sign in "|)":
            open_groups[-1].append((begins[-1], token.start()))
            begins[-1] = token.end()
        if sign == ")":
            begins.pop()
            found = open_groups.pop()
            if len(found) > 1:
                yield found


def without_each(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield each alternative, and the pattern without it."""
    for spans in choices(pattern):
        for start, end in spans:
            is_last = (start, end) == spans[-1]
            left = pattern[: start - 1] + pattern[end:] if is_last else pattern[:start] + pattern[end + 1 :]
            yield pattern[start:end], left
