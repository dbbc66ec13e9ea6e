"""Measure what is learned from single messages, with an empty profile: what small models find hard.

    uv run python tests/eval/singles.py            judge the kept answers again, without a model
    uv run python tests/eval/singles.py -m MODEL   have a model answer, and keep its answers

A set is a file in `singles`. Each message has the facts that are `expected` of it, if any; words of lines that are
`fine` too, being true and harmless; and words that its lines must `never` have, such as what is only asked about. All
other lines are wrong. Learning is the real thing: both requests and the gates.
"""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from collections import Counter
from typing import NamedTuple

import lives

import llm_user_memory as memory

HERE = pathlib.Path(__file__).parent / "singles"
DOUBTS = {memory.NOT_YOURS, memory.HOLDS_SECRET, memory.UNCHECKED}
"""Why an edit that code would make is not made after the second look."""


class Learned(NamedTuple):
    """What became of one message."""

    verdicts: list[memory.Verdict]
    out_of_form: int
    """How many replies to the learning request were neither edits nor `NO_UPDATE`."""


class Score(NamedTuple):
    """How facts compare with what their message says."""

    found: list[str]
    missing: list[str]
    other: list[str]


def learned_from(text: str, ask: memory.Ask) -> Learned:
    """Learn from one message, as the first that its user types."""
    replies: list[str] = []

    def asked(model: str, request: str) -> memory.Reply:
        reply = ask(model, request)
        if lives.wording_of(request) == memory.INSTRUCTIONS:
            replies.append(reply[0])
        return reply

    message = memory.Message(memory.as_shown(text), "turn", "thread", "2026-11-20T09:00:00+00:00")
    verdicts: list[memory.Verdict] = []
    with tempfile.TemporaryDirectory() as folder:
        home = memory.Home(pathlib.Path(folder), isolated=True)
        home.create()
        with memory.Memory(home) as opened, contextlib.suppress(memory.ModelFailed):
            verdicts += (
                memory.Learner(opened, memory.Settings(), asked).learn_from(memory.Batch("", [message])).verdicts
            )
    return Learned(verdicts, sum(memory.parse_reply(reply) is None for reply in replies))


def live(life: lives.Life, ask: memory.Ask) -> list[Learned]:
    return [learned_from(message["text"], ask) for message in life["messages"]]


def score(message: lives.Life, facts: list[str]) -> Score:
    """Compare the facts learned from a message with those that are expected of it."""
    never = message.get("never", [])
    allowed = [fact for fact in facts if not any(word in fact.casefold() for word in never)]
    found: list[str] = []
    good: set[str] = set()
    for expected in message["expected"]:
        saying = [fact for fact in allowed if lives.has(fact, expected["needs"])]
        found += [expected["fact"]] if saying else []
        good.update(saying)
    good.update(fact for fact in allowed if any(word in fact.casefold() for word in message.get("fine", [])))
    missing = [expected["fact"] for expected in message["expected"] if expected["fact"] not in found]
    return Score(found, missing, [fact for fact in facts if fact not in good])


def main() -> None:
    parser = lives.parser(__doc__, HERE / "answers", "SET")
    parser.add_argument("-v", "--verbose", action="store_true", help="also show what is missing or wrong")
    options = parser.parse_args()
    for name, life, learned in lives.live_all(HERE, options, live):
        facts = sum(len(message["expected"]) for message in life["messages"])
        counts = {"before": Counter[str](), "after": Counter[str]()}
        shown: list[str] = []
        for message, (verdicts, _) in zip(life["messages"], learned, strict=True):
            after = [verdict.edit.fact for verdict in verdicts if verdict.outcome == "apply"]
            denied = [verdict.edit.fact for verdict in verdicts if verdict.reason in DOUBTS]
            for when, kept in (("before", [*after, *denied]), ("after", after)):
                result = score(message, kept)
                counts[when].update(found=len(result.found), other=len(result.other))
                counts[when].update(silent=0 if message["expected"] else len(result.other))
            before = score(message, [*after, *denied])
            notes = [f"missing: {fact}" for fact in before.missing]
            notes += [f"other: {fact}" for fact in before.other]
            notes += [f"denied by the look: {fact}" for fact in denied]
            notes += [
                f"{verdict.outcome}: {verdict.edit.fact}: {verdict.reason}"
                for verdict in verdicts
                if verdict.outcome != "apply" and verdict.reason not in DOUBTS
            ]
            shown += [f"  {message['text']}", *(f"    {note}" for note in notes)] if notes else []
        for when, count in counts.items():
            said = "{found} of {facts} facts, {other} other lines, {silent} of them from messages that say nothing"
            print(f"{name}, {when} the second look: {said.format(facts=facts, **count)}")
        print(f"{name}: {sum(one.out_of_form for one in learned)} replies out of form")
        if options.verbose:
            print("\n".join(shown))


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
