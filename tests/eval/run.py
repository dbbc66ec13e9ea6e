"""Measure how well learning keeps the profiles of invented people, over a year of what they type.

    uv run python tests/eval/run.py            judge the kept answers again: a change of gates is measured without a model
    uv run python tests/eval/run.py -m MODEL   have a model answer, and keep its answers

A life is a file in `lives`: messages, facts that the profile must have at the end, and what must not stand there.
Learning is the real thing: turns in llm's log, both requests, gates, versions. Only the clock is that of the messages.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import pathlib
import sys
import tempfile
from collections import Counter
from typing import TYPE_CHECKING, Any

import lives
import sqlite_utils
from llm.migrations import migrate

import llm_user_memory as memory

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from conftest import Listener, typed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import llm

HERE = pathlib.Path(__file__).parent
AT_ONCE = 4
"""Most messages of one request; those of ten days share one, as if they waited for each other."""


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


def live(life: dict[str, Any], ask: memory.Ask) -> tuple[str, list[memory.Verdict], list[dict[str, int]]]:
    """Learn a year; return the profile, all verdicts, and what the requests cost: first those to learn, then looks."""
    verdicts: list[memory.Verdict] = []
    threads: dict[str, llm.Conversation] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = memory.Home(pathlib.Path(folder), isolated=True)
        home.create()
        migrate(sqlite_utils.Database(home.logs))  # llm's log; the one that tests copy belongs to one thread
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
    parser = lives.parser(__doc__, HERE / "answers", "LIFE")
    parser.add_argument("-v", "--verbose", action="store_true", help="also print the profiles")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    for name, life, (profile, verdicts, costs) in lives.live_all(HERE / "lives", options, live):
        result = lives.score(profile, life)
        stopped = [verdict for verdict in verdicts if verdict.outcome != "apply"]
        print(f"{name}: {result.found} of {result.facts} facts, {len(result.wrong)} wrong lines,", end=" ")
        print(f"{len(stopped)} of {len(verdicts)} edits held or refused")
        lives.show(stopped, missing=result.missing, wrong=result.wrong)
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
