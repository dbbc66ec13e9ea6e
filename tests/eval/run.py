"""Measure how well learning keeps the profiles of invented people, over a year of what they type.

    uv run python tests/eval/run.py            judge the kept answers again: a change of gates is measured without a model
    uv run python tests/eval/run.py -m MODEL   have a model answer, and keep its answers

A life is a file in `lives`: messages, facts that the profile must have at the end, and what must not stand there.
Learning is the real thing: turns in llm's log, both requests, gates, versions. Only the clock is that of the messages.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import pathlib
import sys
import tempfile
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import llm

import llm_user_memory as memory

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from conftest import Listener, typed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = pathlib.Path(__file__).parent
AT_ONCE = 4
"""Most messages of one request; those of ten days share one, as if they waited for each other."""


class Score(NamedTuple):
    """How a profile compares with what is true of somebody at the end of the year."""

    facts: int
    found: int
    missing: list[str]
    wrong: list[str]
    """What should not stand there, with the line that says it."""


def score(profile: str, life: dict[str, Any]) -> Score:
    """Compare a profile with a life, by words that its lines must or must not have."""
    lines = [f" {item.text.casefold()} " for item in memory.Document(profile).items]

    def has(line: str, needs: Sequence[str]) -> bool:
        return all(any(word in line for word in need.casefold().split("|")) for need in needs)

    missing = [fact["fact"] for fact in life["expected"] if not any(has(line, fact["needs"]) for line in lines)]
    wrong = [
        f"{gone['what']}: {line.strip()}"
        for gone in life["gone"]
        for line in lines
        if any(sign.casefold() in line for sign in gone["signs"])
    ]
    return Score(len(life["expected"]), len(life["expected"]) - len(missing), missing, wrong)


def batches(messages: Sequence[dict[str, str]]) -> Iterator[list[dict[str, str]]]:
    """Split a year into requests."""
    batch: list[dict[str, str]] = []
    for message in messages:
        if batch:
            days = dt.date.fromisoformat(message["date"]) - dt.date.fromisoformat(batch[0]["date"])
            if len(batch) == AT_ONCE or days.days > 10:
                yield batch
                batch = []
        batch.append(message)
    yield batch


class Kept:
    """Answers that were given before, in their order."""

    def __init__(self, path: pathlib.Path) -> None:
        self.answers = iter([json.loads(line) for line in path.read_text("utf-8").splitlines()])
        self.are_old = False
        """Whether they were given to other instructions, or to another question, than today's."""

    def __call__(self, model: str, request: str) -> memory.Reply:
        kept = next(self.answers)
        reply = kept["reply"]
        wording = memory.INSTRUCTIONS if "<profile>" in request else memory.QUESTION
        self.are_old |= wording not in kept["request"]
        return reply, len(request) // 4, len(reply) // 4


class Asked:
    """A model, whose answers are kept."""

    def __init__(self, model: str, path: pathlib.Path) -> None:
        self.model, self.path = llm.get_model(model), path
        path.write_text("")

    def __call__(self, model: str, request: str) -> memory.Reply:
        reply = self.model.prompt(request, stream=False).text()
        with self.path.open("a", encoding="utf-8") as kept:
            kept.write(json.dumps({"request": request, "reply": reply}, ensure_ascii=False) + "\n")
        return reply, len(request) // 4, len(reply) // 4


def live(life: dict[str, Any], ask: memory.Ask) -> tuple[str, list[memory.Verdict], list[dict[str, int]]]:
    """Learn a year; return the profile, all verdicts, and what the requests cost: first those to learn, then looks."""
    verdicts: list[memory.Verdict] = []
    threads: dict[str, llm.Conversation] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = memory.Home(pathlib.Path(folder), isolated=True)
        for batch in batches(life["messages"]):
            for hour, message in enumerate(batch):
                at = f"{message['date']}T{9 + hour:02}:00:00+00:00"
                thread = threads.setdefault(message["thread"], Listener().conversation())
                typed(home, message["text"], thread=thread, at=at)
            day = dt.datetime.fromisoformat(f"{batch[-1]['date']}T20:00:00+00:00")
            with memory.Memory(home, now=lambda day=day: day) as opened:  # type: ignore[misc]
                memory.take_in(opened)
                learner = memory.Learner(opened, memory.Settings(), ask)
                while result := learner.learn():
                    verdicts += result.verdicts
        with memory.Memory(home) as opened:
            sums = "select count(*) as requests, sum(read) as read, sum(written) as written from requests group by look"
            costs = memory.rows(opened.db, f"{sums} order by look")
            return memory.read_profile(opened.home.profile), verdicts, costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lives", nargs="*", help="names of lives; default: all")
    parser.add_argument("-m", "--model", help="a model to answer; without it, the kept answers are judged again")
    parser.add_argument("-v", "--verbose", action="store_true", help="also print the profiles")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    for path in sorted(HERE.glob("lives/*.json")):
        answers = HERE / "answers" / f"{path.stem}.jsonl"
        if (options.lives and path.stem not in options.lives) or not (options.model or answers.exists()):
            continue
        life = json.loads(path.read_text("utf-8"))
        ask = Asked(options.model, answers) if options.model else Kept(answers)
        profile, verdicts, costs = live(life, ask)
        if isinstance(ask, Kept) and ask.are_old:
            print(f"{path.stem}: the requests are worded otherwise now: have a model answer them again, with -m MODEL")
        result = score(profile, life)
        stopped = [verdict for verdict in verdicts if verdict.outcome != "apply"]
        print(f"{path.stem}: {result.found} of {result.facts} facts, {len(result.wrong)} wrong lines,", end=" ")
        print(f"{len(stopped)} of {len(verdicts)} edits held or refused")
        for label, lines in (("missing", result.missing), ("wrong", result.wrong)):
            print("".join(f"  {label}: {line}\n" for line in lines), end="")
        for verdict in stopped:
            edit, line = verdict.edit, verdict.item.text if verdict.item else ""
            print(f"  {verdict.outcome}: {edit.action} {line} → {edit.fact}: {verdict.reason}")
        if options.verbose:
            print(profile)
        total.update(facts=result.facts, found=result.found, wrong=len(result.wrong))
        total.update(stopped=len(stopped), proposed=len(verdicts))
        for kind, cost in zip(("learning", "second looks"), costs, strict=False):
            total.update({f"{kind}, {name}": number for name, number in cost.items()})
    print("In all: {found} of {facts} facts, {wrong} wrong lines,".format_map(total), end=" ")
    print("{stopped} of {proposed} edits held or refused".format_map(total))
    for kind in ("learning", "second looks"):
        requests, read, written = (total[f"{kind}, {name}"] for name in ("requests", "read", "written"))
        print(f"{kind}: {requests} requests, {read:,} tokens read, {written:,} written")


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
