"""Random histories of a profile, beside a model of it that knows only what DESIGN and README promise.

uv run python tests/lab/histories.py --tries 300 --seed 0
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lab import WORD, Life, edited, fact, facts_in, run
from model import Model, State

if TYPE_CHECKING:
    import pathlib
    from collections import Counter

SECTIONS = ["Personal Information", "Interests", "Preferences", "Notes"]
STEPS = 16


class History(Life):
    """What somebody does to their profile, and what it should say."""

    def __init__(self, seed: int, folder: pathlib.Path) -> None:
        super().__init__(seed, folder)
        self.model = Model()
        self.texts: set[str] = set()
        self.known: list[str] = []  # every fact there ever was

    @property
    def now(self) -> State:
        return self.model.now

    def fact(self) -> str:
        new = fact(self.chance, self.known)
        self.known.append(new)
        return new

    def look(self, kind: str, wanted: State) -> None:
        """See that the profile says what it should, and take note of the change."""
        before = self.now
        text = self.person.text()
        found = facts_in(text)
        if len(dict(found)) < len(found):
            self.fail("doubled", text)
        # Whether an undo moves back what a change has moved is a matter of lines, not of facts.
        is_said = dict(found).keys() == wanted.keys() if kind == "undo" else dict(found) == wanted
        if not is_said:
            self.fail("lost or wrong", f"step {kind}", f"wanted {wanted}", f"found {dict(found)}")
        newest = self.person.data("history", "-n", "1")
        number = newest[0]["id"] if newest else 0
        undoes = newest[0]["undoes"] if newest else []
        headings = set(re.findall(r"^#+ (.*)", text, re.MULTILINE))
        emptied = headings.intersection(SECTIONS, before.values()) - {head for _, head in found}
        is_exact = undoes == [number - 1] or text in self.texts  # byte for byte what a change found
        if kind in {"undo", "forget"} and emptied and not is_exact:
            self.fail("heading left empty", text)
        self.texts.add(text)
        if number == len(self.model.states):
            self.model.record(kind, dict(found), *undoes)
        elif number != len(self.model.states) - 1 or dict(found) != before:
            self.fail("versions miscounted", number)

    # What happens: each step says what the profile should say after it.

    def add(self) -> None:
        new = self.fact()
        section = self.chance.choice(SECTIONS)
        self.do("add", new, "--section", section)
        self.look("add", {new: section} | self.now)

    def editor(self) -> None:
        text = edited(self.person.text(), self.chance)
        self.log.append(f"editor {text!r}")
        self.person.save(text)
        self.look("editor", dict(facts_in(text)))

    def learn(self) -> None:
        new = self.fact()
        ids = {entry["text"]: entry["id"] for entry in self.person.data("show")["facts"]}
        wanted = dict(self.now)
        section = self.chance.choice(SECTIONS[:4])
        edit = f"ADD | {section} | {new} | {new}"
        what = self.chance.choice(["add", "replace", "remove"])
        if ids and what != "add":
            old = self.chance.choice(sorted(ids))
            section = wanted.pop(old)
            edit = f"REPLACE | {ids[old]} | {new} | {new}" if what == "replace" else f"REMOVE | {ids[old]} | {new}"
        if what != "remove" or not ids:
            wanted = {new: section} | wanted
        (self.person.script / "update.txt").write_text(edit)
        waits = self.chance.random() < 0.3
        with self.person.without_worker():
            self.person.llm(new, LLM_MEMORY_REVIEW="all" if waits else "")
            self.do("update")
        is_held = facts_in(self.person.text()) == list(self.now.items())
        self.look("learn", self.now if waits or is_held else wanted)

    def review(self) -> None:
        waiting = self.person.data("review")
        if not waiting:
            return
        edit = self.chance.choice(waiting)
        wanted = dict(self.now)
        if self.chance.random() < 0.3:
            self.do("review", "--drop", str(edit["id"]))
        else:
            done = self.do("review", "--accept", str(edit["id"]))
            if done.code == 0:
                wanted.pop(edit["before"], None)
                if edit["fact"]:
                    old = self.now.get(edit["before"])
                    wanted = {edit["fact"]: old or edit["section"]} | wanted
            elif edit["before"] in self.now:
                self.fail("could not be accepted", edit, done.err)
        self.look("review", wanted)

    def rollback(self) -> None:
        number = self.chance.randrange(len(self.model.states))
        self.do("rollback", str(number))
        self.look("rollback", self.model.states[number])

    def forget(self) -> None:
        said = WORD.search(self.chance.choice(self.known)) if self.known else None
        if not said:
            return
        gone = re.compile(rf"\b{said[0]}\b")
        self.do("forget", said[0], "--yes")
        self.known = [line for line in self.known if not gone.search(line)]
        self.model.forget(gone)
        self.look("forget", dict(self.now))

    def undo(self) -> None:
        if self.chance.random() < 0.5 and len(self.model.states) > 1:
            self.undo_number(self.chance.randrange(1, len(self.model.states)))
        else:
            self.undo_newest()

    def undo_number(self, number: int) -> int:
        """Undo a change; return the one that is in the way, 0 if none is."""
        is_undone = number in self.model.undone()
        done = self.do("undo", str(number))
        if is_undone:
            (redo,) = re.findall(r"was undone; to redo it: llm memory undo (\d+)", done.err) or ["0"]
            if self.model.undoes[int(redo)] != number:
                self.fail("undone already, but not told by which", done.err)
            self.look("undo", self.now)
            return 0
        is_first = number == 1 and self.model.kinds[1] == "editor"  # it was there before the history
        if done.code and not is_first and self.model.kinds[number] != "forget":
            named = re.findall(r"Change (\d+) has since changed", done.err)
            touched = self.model.touched(number)
            if not named or int(named[0]) not in touched:
                self.fail("refused for nothing", done.err, touched)
            self.look("undo", self.now)
            return int(named[0]) if named else 0
        is_new = "Undid" in done.err
        if is_new and self.model.in_the_way(number):
            self.fail("not refused", f"{number}, {self.model.in_the_way(number)}")
        self.look("undo", self.now if done.code or not is_new else self.model.without(number))
        if not (done.code or is_new) and self.model.without(number) != self.now:
            self.fail("nothing undone", done.err, self.model.without(number))
        return 0

    def undo_newest(self) -> None:
        before = dict(self.now)
        size = len(self.model.states)
        could = {number: self.model.without(number) for number in self.model.may_be_undone()}
        undone = self.model.undone()
        done = self.do("undo")
        newest = self.person.data("history", "-n", "1")
        number = newest[0]["undoes"][0] if newest and newest[0]["id"] == size else 0
        if any(newer > number for newer in could) and "forget" not in done.err:
            self.fail("not the newest was undone", done.err, f"{list(could)}, not {number}")
        if number in undone or self.model.kinds[number] in {"undo", "forget"}:
            self.fail("undone again", done.err)
        self.look("undo", could.get(number, before))

    def finish(self) -> None:
        """See that a change is stuck neither by number nor by a plain undo."""
        for number in self.chance.sample(range(1, len(self.model.states)), min(3, len(self.model.states) - 1)):
            path = [number]
            while path and len(path) < 30:
                in_the_way = self.undo_number(path[-1])
                if in_the_way in path:
                    self.fail("stuck", f"{path} and {in_the_way}")
                    break
                if in_the_way:
                    path.append(in_the_way)
                else:
                    path.pop()


def attempt(seed: int, folder: pathlib.Path) -> tuple[int, Counter[str]]:
    life = History(seed, folder)
    life.counts.update({"lost or wrong": 0, "doubled": 0, "stuck": 0, "heading left empty": 0})
    steps: list[Any] = [life.add, life.editor, life.learn, life.review, life.undo, life.rollback, life.forget]
    for step in life.chance.choices(steps, [4, 4, 4, 2, 5, 1, 1], k=STEPS):
        step()
    life.finish()
    life.counts["versions"] = len(life.model.states) - 1
    return 1, life.counts


if __name__ == "__main__":
    run(attempt, str(__doc__), 300)
