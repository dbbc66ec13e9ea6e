"""Hostile and random replies of the model, to the request for edits and to the second look.

uv run python tests/lab/answers.py --tries 300 --seed 0

No fact enters without a quote that was typed; a line that no reply names stays byte for byte; nothing secret, unseen or
marked up enters; what waits has a reason; and nothing hangs.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import replies
from lab import UNSEEN, WORD, Life, lived, run

if TYPE_CHECKING:
    import pathlib

STEPS = 8
NEVER = re.compile(r"[<>]\w|\]\(|!\[|^[#>`-]|<\||\[INST|[\u200b\u2028\u202e\x85\x1b\t]|ghp_|hunter2|\b4111|&lt;|\?$")
"""What no fact may have."""

PROFILE = """\
---
about: me
---
# User Profile

Prose of my own.

## Preferences
- Likes tea k1
- Uses vim k2
  - with a plugin k3
* Avoids nuts k4

## Notes
| a | b |
|---|---|
- Has bees k5
```
- Not a fact k6
```
"""


def bare(text: str) -> str:
    """Return a text without spaces, case and typography."""
    straight = text.translate(str.maketrans("“”„’‘", '"""\'\''))
    return re.sub(r"\s+", "", straight).casefold()


class Misled(Life):
    """Somebody whose model answers anything."""

    def __init__(self, seed: int, folder: pathlib.Path) -> None:
        super().__init__(seed, folder)
        self.person.patience = 60
        self.person.save(PROFILE.replace("\n", self.chance.choice(["\n", "\r\n"])))
        self.number = 1_000 * seed + 100
        self.typed = PROFILE.splitlines()  # and what a line of the profile says, when it is condensed
        self.thought: set[str] = set()  # words that stood in thoughts alone

    def word(self) -> str:
        self.number += 1
        return f"k{self.number}"

    def requests(self, kind: str) -> list[str]:
        path = self.person.script / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [call["prompt"] for call in map(json.loads, lines) if call[kind]]

    def say(self, word: str) -> str:
        self.typed.append(self.chance.choice(replies.SAID).format(word))
        return self.typed[-1]

    def step(self) -> None:
        chance = self.chance
        words = [self.word() for _ in range(chance.choice([1, 1, 2, 3]))]
        with self.person.without_worker():
            for word in words:
                self.person.llm(self.say(word))
        (self.person.folder / "notes.txt").write_text(self.say(words[0]))
        ids = {one["id"]: one["text"] for one in self.person.data("show")["facts"]}
        looks = self.requests("look")
        is_honest = chance.random() < 0.2
        reply = f"ADD | Interests | Likes {words[0]} | i like {words[0]}"
        look = "1 y"
        command = ["update"]
        if not is_honest:
            reply = replies.learning(chance, words, ids, [*self.requests("update"), ""][-1])
            look = replies.look(chance, [*looks, ""][-1])
            command = chance.choice([["update"]] * 6 + [["condense"], ["learn", "notes.txt", "-y"]])
        if chance.random() < 0.1:
            thought = self.word()
            self.thought.add(thought)
            reply = f"<think>\nADD | Notes | Thinks {thought} | I like {words[0]}\n</think>\n{reply}"
        (self.person.script / "update.txt").write_text(reply, "utf-8")
        (self.person.script / "look.txt").write_text(look, "utf-8")
        self.log.append(f"reply {reply[:600]!r}, look {look[:200]!r}")
        before = self.person.text()

        done = self.do(*command)
        now = self.person.text()
        if done.code not in {0, 1}:
            self.fail("hung or ended otherwise", done)
        if command[0] == "learn" and now != before:
            self.fail("learned from the past", now)
        if is_honest and f"Likes {words[0]}" not in now:
            self.fail("an honest reply was not taken", self.person.data("review"), now)
        self.look_at_lines(before, now, reply, ids)
        is_agreed = len(self.requests("look")) > len(looks) and re.search(r"\d\W*y", look)
        self.look_at_facts(before, now, is_agreed=bool(is_agreed))
        self.look_for_secrets()
        what = chance.choice(["show", "why", "status", "history", "review"])
        done = self.person.llm("memory", what, terminal=True)
        shown = done.out + done.err
        if UNSEEN.search(re.sub(r"\x1b\[[\d;]*m", "", shown)):
            self.fail("control character in a terminal", repr(shown))

    def look_at_lines(self, before: str, now: str, reply: str, ids: dict[str, str]) -> None:
        """See that lines stay byte for byte, and in order, but those whose ids the reply has."""
        named = {text for id, text in ids.items() if id in reply.casefold()}
        kept = [line for line in before.splitlines(keepends=True) if line.strip().lstrip("-* ") not in named]
        there = iter(now.splitlines(keepends=True))
        if missing := [line for line in kept if line not in there]:
            self.fail("a line that was not named has changed", missing, repr(before), repr(now))

    def look_at_facts(self, before: str, now: str, *, is_agreed: bool) -> None:
        """See that what is new has a receipt and was agreed to, and that what waits has a reason."""
        new = Counter(now.splitlines()) - Counter(before.splitlines())
        facts = {line.strip().lstrip("-* ") for line in new if line.strip() and not line.startswith("## ")}
        if facts and not is_agreed:
            self.fail("applied without a look", facts)
        receipts = {one["text"]: one["receipts"] for one in self.person.data("why")}
        for fact in facts:
            self.counts["applied"] += 1
            self.look_at_fact(fact, receipts.get(fact, []))
        for edit in self.person.data("review"):
            self.counts["waits"] += 1
            self.look_at_fact(edit["fact"], [edit])
            if not edit["reason"]:
                self.fail("waits without a reason", edit)

    def look_at_fact(self, fact: str, receipts: list[dict[str, Any]]) -> None:
        """See that a fact may be one, and that each piece of its quote was typed."""
        if NEVER.search(fact) or len(fact) > 200 or self.thought & set(WORD.findall(fact)):
            self.fail("entered", repr(fact))
        if not receipts:
            self.fail("no receipt", fact)
        sources = [bare(typed) for typed in self.typed]
        for receipt in receipts:
            quote = receipt["quote"]
            pieces = [piece.strip(" \"'") for piece in re.split(r"…|\.\.\.", quote)]
            is_whole = any(bare(quote) in source for source in sources)
            if not is_whole and not all(any(bare(piece) in source for source in sources) for piece in pieces):
                self.fail("a quote was not typed", receipt)
            if not re.search(r"\w", quote):
                self.fail("empty quote", receipt)

    def look_for_secrets(self) -> None:
        files = [path for path in self.person.memory.rglob("*") if path.is_file()]
        if any(replies.SECRET.encode() in path.read_bytes() for path in files):
            self.fail("a secret in a file of ours")
        if any(replies.SECRET in request for kind in ("update", "look") for request in self.requests(kind)):
            self.fail("a secret in a request")


def attempt(seed: int, folder: pathlib.Path) -> tuple[int, Counter[str]]:
    return lived(Misled(seed, folder), STEPS)


if __name__ == "__main__":
    run(attempt, str(__doc__), 300)
