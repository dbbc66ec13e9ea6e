"""Measure how well a model keeps profiles: uv run python tests/eval/run.py -m MODEL

Each case is learned twice from the same messages, by the same model: as memory does it, with the real request, gates and
history in a home of its own (edits), and by having the model write the whole profile again, as many tools do (rewrite).
A profile is then scored by patterns, so the numbers can be repeated; a model's answers seldom can.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import pathlib
import re
import sys
import tempfile
from collections import Counter
from typing import TYPE_CHECKING, Any

import llm
from cases import CASES
from llm.cli import get_model_options
from score import KINDS, lines_of, score
from streams import STREAMS

import llm_user_memory as memory

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from conftest import Listener, make_log, note

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from score import Case, Score

REWRITE = """\
You keep the profile of a user, so that later answers fit them. Update it by the messages they typed, and reply with the
whole new profile in Markdown, with a heading for each section and one fact a line, and nothing else.

Record only what users state about themselves, likely still true in months, that would change a future answer; a fact
mentioned inside a question counts, and so does a complaint about the style of answers. Family, pets and colleagues: only
as they relate to the user. Make dates absolute. Correct or remove what is no longer true, obey "remember" and "forget",
keep everything else as it is, and say nothing twice.
Never record: others' lives, passing wishes and tasks, fiction, jokes, hypotheticals, text to translate, fix or summarise,
passwords or keys. Health, religion, politics, sexuality, ethnicity, crime: only if explicitly asked to remember.

<profile>
{}</profile>

{}
"""


class Meter:
    """Ask a model, and count the tokens that it reads and writes: as it says, else a quarter of the characters."""

    def __init__(self, model: llm.Model) -> None:
        self.model = model
        self.cost: Counter[str] = Counter()

    def __call__(self, model_id: str, request: str) -> str:
        try:
            response = self.model.prompt(request, stream=False, **get_model_options(self.model.model_id))
            reply = response.text()
        except Exception as error:
            self.cost["failed"] += 1
            print(f"{model_id} failed: {error}", file=sys.stderr)
            raise memory.ModelFailed(str(error)) from error
        usage = response.usage()
        self.cost.update(read=usage.input or len(request) // 4, written=usage.output or len(reply) // 4)
        return reply


class Edits:
    """The real thing: calls that note and log what was typed, and the learner."""

    def __init__(self, home: memory.Home, profile: str, ask: Meter) -> None:
        self.home, self.ask = home, ask
        home.create()
        home.profile.write_text(profile, "utf-8")
        self.logs: Any = make_log(home)
        self.thread = Listener().conversation()

    @property
    def profile(self) -> str:
        return memory.read_profile(self.home.profile)

    def hear(self, date: str, texts: Sequence[str]) -> list[str]:
        """Learn from a day, and return what was held for review."""
        at, held = dt.datetime.fromisoformat(f"{date}T12:00:00+00:00"), []
        for text in texts:
            self._call(at.isoformat(), text)
            at += dt.timedelta(minutes=1)
        with memory.Memory(self.home, now=lambda: at) as opened:
            log, settings = memory.Log(self.home.logs), memory.Settings(model=self.ask.model.model_id)
            memory.take_in(opened, log)
            learner = memory.Learner(opened, log, settings, self.ask)
            while (result := learner.learn()) and result.turns:
                held += [f"{v.edit.fact or v.before} ({v.reason})" for v in result.verdicts if v.outcome == "hold"]
        return held

    def _call(self, at: str, text: str) -> None:
        goes_on, typed = text.startswith("+ "), text.removeprefix("+ ")
        self.thread = self.thread if goes_on else Listener().conversation()
        said = note(typed, at=at, thread=self.thread.id if goes_on else None)
        memory.Journal(self.home.file("typed.jsonl")).append(said._asdict())
        response = self.thread.prompt(typed)
        response.text()
        response.log_to_db(self.logs)
        self.logs["turns"].update(response.id, {"datetime_utc": at})


class Rewrite:
    """The profile as the model last wrote it. It sees what was typed as it stands, secrets and all."""

    def __init__(self, home: memory.Home, profile: str, ask: Meter) -> None:
        self.profile, self.ask = profile, ask

    def hear(self, date: str, texts: Sequence[str]) -> list[str]:
        messages = "\n".join(f"<message {date}>\n{text.removeprefix('+ ')}\n</message>" for text in texts)
        with contextlib.suppress(memory.ModelFailed):
            reply = self.ask(self.ask.model.model_id, REWRITE.format(self.profile, messages))
            self.profile = re.sub(r"^\s*```.*$", "", reply, flags=re.MULTILINE).strip() + "\n"
        return []


ARMS: dict[str, type[Edits | Rewrite]] = {"edits": Edits, "rewrite": Rewrite}


def opening(case: Case) -> str:
    """Write the profile that a case begins with; a line may name its section."""
    document = memory.Document("")
    for line in case.profile:
        section, _, fact = line.rpartition(": ")
        document = document.add(section or memory.DEFAULT_SECTIONS[0], fact)
    return document.text


def play(case: Case, arm: str, model: llm.Model) -> Iterator[tuple[str, Score, list[str], Counter[str]]]:
    """Live through a case; yields of each part its name, score, what was held, and what it cost."""
    with tempfile.TemporaryDirectory(prefix="memory-eval-") as folder:
        first = opening(case)
        kept = ARMS[arm](memory.Home(pathlib.Path(folder), isolated=True), first, meter := Meter(model))
        for part in case.parts:
            meter.cost = Counter()
            held = [line for date, texts in part.days.items() for line in kept.hear(date, texts)]
            yield part.name, score(kept.profile, part, lines_of(first)), held, meter.cost


def evaluate(cases: Sequence[Case], arms: Sequence[str], model: llm.Model) -> dict[tuple[str, str], Counter[str]]:
    """Play all cases with these arms, and say of each what is to be looked at; counts by group and arm."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for number, case in enumerate(cases, 1):
        for arm in arms:
            for group, scored, held, cost in play(case, arm, model):
                found = {"cases": 1, "facts": scored.facts, "missing": len(scored.missing), "held": len(held)}
                cost.update(Counter(kind for kind, _ in scored.wrong), unlisted=len(scored.unlisted), **found)
                for name in (group, "all"):
                    counts.setdefault((name, arm), Counter()).update(cost)
                looked = {"missing": scored.missing, "unlisted": scored.unlisted, "held": held}
                lines = [*scored.wrong, *((kind, line) for kind, found in looked.items() for line in found)]
                print(f"{number}/{len(cases)} {case.id}, {group}, {arm}", file=sys.stderr)
                print(*(f"  {kind:9} {line}\n" for kind, line in lines), sep="", end="", file=sys.stderr)
    return counts


def table(counts: dict[tuple[str, str], Counter[str]]) -> str:
    columns = ["cases", "facts there", "wrong lines", "unlisted", "held", "failed", "read", "written"]
    lines = [["group", "arm", *columns]]
    for key in sorted(counts, key=lambda key: key[0] == "all"):
        count = counts[key]
        facts = f"{count['facts'] - count['missing']} of {count['facts']}"
        wrong = ", ".join(f"{count[kind]} {kind}" for kind in KINDS if count[kind]) or "0"
        lines.append([*key, str(count["cases"]), facts, wrong, *(f"{count[column]:,}" for column in columns[3:])])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    cells = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join("  ".join(line).rstrip() for line in cells)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="one of llm's models")
    parser.add_argument("--arm", choices=ARMS, help="only this arm")
    parser.add_argument("--only", metavar="GROUP", help="only this group, or the case with this id")
    parser.add_argument("-n", type=int, metavar="N", help="only so many cases, of all groups alike")
    options = parser.parse_args(arguments)
    cases = [*CASES, *STREAMS]
    names = {case.id: {case.id, *(part.name for part in case.parts)} for case in cases}
    if options.only:
        cases = [case for case in cases if options.only in names[case.id]]
    if not cases:
        parser.error(f"there is no {options.only}; there are {', '.join(sorted(set().union(*names.values())))}")
    number = min(options.n or len(cases), len(cases))
    cases = [cases[at * len(cases) // number] for at in range(number)]
    print(table(evaluate(cases, [options.arm] if options.arm else list(ARMS), llm.get_model(options.model))))


if __name__ == "__main__":
    main()
