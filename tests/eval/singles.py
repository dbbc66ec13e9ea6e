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
DOUBTS = {memory.NOT_YOURS, memory.CONFIDENTIAL, memory.UNCHECKED}
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


def kept_facts(verdicts: list[memory.Verdict]) -> tuple[list[str], list[str]]:
    """Return the facts that code would keep, before the second look, and those that are kept after it."""
    before = [verdict.edit.fact for verdict in verdicts if verdict.outcome == "apply" or verdict.reason in DOUBTS]
    after = [verdict.edit.fact for verdict in verdicts if verdict.outcome == "apply"]
    return before, after


def show(message: lives.Life, verdicts: list[memory.Verdict]) -> None:
    """Print what is missing or wrong before the second look, and which edits were not made."""
    result = score(message, kept_facts(verdicts)[0])
    stopped = [verdict for verdict in verdicts if verdict.outcome != "apply"]
    if result.missing or result.other or stopped:
        print(f"> {message['text']}")
        lives.show(stopped, missing=result.missing, other=result.other)


def main() -> None:
    parser = lives.parser(__doc__, HERE / "answers", "SET")
    parser.add_argument("-v", "--verbose", action="store_true", help="also show what is missing or wrong")
    options = parser.parse_args()
    for name, life, learned in lives.live_all(HERE, options, live):
        facts = sum(len(message["expected"]) for message in life["messages"])
        counts = {"before": Counter[str](), "after": Counter[str]()}
        for message, (verdicts, _) in zip(life["messages"], learned, strict=True):
            for count, kept in zip(counts.values(), kept_facts(verdicts), strict=True):
                result = score(message, kept)
                count.update(found=len(result.found), other=len(result.other))
                count.update(silent=0 if message["expected"] else len(result.other))
        for when, count in counts.items():
            print(f"{name}, {when} the second look: {count['found']} of {facts} facts,", end=" ")
            print(f"{count['other']} other lines, {count['silent']} of them from messages that say nothing")
        print(f"{name}: {sum(out_of_form for _, out_of_form in learned)} replies out of form")
        if options.verbose:
            for message, (verdicts, _) in zip(life["messages"], learned, strict=True):
                show(message, verdicts)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
