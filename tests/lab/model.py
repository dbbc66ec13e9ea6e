"""What DESIGN and README promise of a profile's history, as simply as it can be said."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re

State = dict[str, str]
"""The facts of a profile, and their headings."""


class Model:
    """The changes of one profile: what it says after each, who made it, and which other it undid."""

    def __init__(self) -> None:
        self.states: list[State] = [{}]  # 0 is the empty profile
        self.kinds = [""]
        self.undoes = [0]

    @property
    def now(self) -> State:
        return self.states[-1]

    def record(self, kind: str, state: State, undoes: int = 0) -> None:
        self.states.append(state)
        self.kinds.append(kind)
        self.undoes.append(undoes)

    def undone(self) -> set[int]:
        """Return the changes that were undone, by an undo that was not."""
        found: set[int] = set()
        for number in range(len(self.states) - 1, 0, -1):
            if self.undoes[number] and number not in found:
                found.add(self.undoes[number])
        return found

    def changed(self, number: int) -> tuple[set[str], set[str]]:
        """Return the facts that a change took out, and those it brought."""
        before = self.states[number - 1].keys()
        after = self.states[number].keys()
        return before - after, after - before

    def without(self, number: int) -> State:
        """Return the facts that there should be now if a change were undone."""
        gone, came = self.changed(number)
        back = {line: self.states[number - 1][line] for line in gone}
        return back | {line: section for line, section in self.now.items() if line not in came}

    def touched(self, number: int) -> set[int]:
        """Return the later changes that took out or brought what this change brought."""
        came = self.changed(number)[1]
        later = range(number + 1, len(self.states))
        return {other for other in later for facts in self.changed(other) if came & facts}

    def in_the_way(self, number: int) -> set[int]:
        """Return the later changes that took out what this change brought, and were not taken back.

        An undo or a rollback is in the way if it put something in its place, and there is something to take back.
        """
        gone = self.changed(number)[1] - self.now.keys()
        later = set(range(number + 1, len(self.states))) - self.undone()
        ways = {other for other in later if gone & self.changed(other)[0] and self.kinds[other] != "forget"}
        acts = self.without(number).keys() - self.now.keys()
        back = {other for other in ways if self.kinds[other] in {"undo", "rollback"}}
        return {other for other in ways if other not in back or (acts and self.changed(other)[1])}

    def may_be_undone(self) -> list[int]:
        """Return the changes that a plain undo may take back, if it would change anything."""
        undone = self.undone()
        numbers = range(1, len(self.states))
        # What an editor wrote first was there before the history.
        first = {1} if self.kinds[1:2] == ["editor"] else set()
        fit = [one for one in numbers if one not in undone | first and self.kinds[one] not in {"undo", "forget"}]
        return [one for one in fit if self.without(one) != self.now]

    def forget(self, gone: re.Pattern[str]) -> None:
        for state in self.states:
            for line in [line for line in state if gone.search(line)]:
                del state[line]
