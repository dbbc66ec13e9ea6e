"""How a measurement is shown: one row each, medians with their middle half, and the target if there is one."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Row:
    """One thing that was measured, with memory and without."""

    what: str
    ours: str
    other: str = ""
    ratio: str = ""
    target: str = ""
    met: bool | None = None


def spread(values: Sequence[float], unit: str = "", digits: int = 1) -> str:
    """Median, and between what the middle half of the values lies."""
    if len(values) < 2:
        return f"{values[0]:,.{digits}f}{unit}"
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:,.{digits}f}{unit} ({low:,.{digits}f}–{high:,.{digits}f})"


def compared(what: str, values: Sequence[Sequence[float]], most: float | None, unit: str = "", digits: int = 1) -> Row:
    """A row of two things, ours first, measured in turns; ``most`` is the highest ratio that is aimed at.

    The ratio is the median of those of neighbours in time: a machine that is
    slower for a while is then slower for both.
    """
    ours, other = values
    ratio = statistics.median(a / b for a, b in zip(ours, other, strict=True))
    target = f"≤ {most:.3g}×" if most else ""
    met = ratio <= most if most else None
    return Row(what, spread(ours, unit, digits), spread(other, unit, digits), f"{ratio:.3f}×", target, met)


def alone(what: str, values: Sequence[float], most: float | None = None, unit: str = "", digits: int = 1) -> Row:
    """A row of something that there is nothing to compare with."""
    met = statistics.median(values) <= most if most else None
    return Row(what, spread(values, unit, digits), target=f"≤ {most:g}{unit}" if most else "", met=met)


def in_turns(times: int, *measures: Callable[[], float]) -> list[list[float]]:
    """Measure things side by side, so that what else the machine does meets them all alike."""
    results: list[list[float]] = [[] for _ in measures]
    for number in range(times):
        order = list(zip(measures, results, strict=True))
        for measure, values in order if number % 2 else reversed(order):
            values.append(measure())
    return results


HEADER = Row("", "with memory", "compared with", "ratio", "target")


def printed(title: str, rows: Sequence[Row]) -> str:
    cells = [[row.what, row.ours, row.other, row.ratio, row.target] for row in (HEADER, *rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    marks = {True: "met", False: "MISSED", None: ""}
    ends = ["", *(marks[row.met] for row in rows)]
    lines = [f"{line}  {end}".rstrip() for line, end in zip(lines, ends, strict=True)]
    return "\n".join([f"\n{title}", "-" * len(title), *lines])
