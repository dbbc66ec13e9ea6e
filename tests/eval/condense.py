"""Measure how well a model condenses the profiles of invented people: how much shorter they get, and what is lost.

    uv run python tests/eval/condense.py            judge the kept answers again, without a model
    uv run python tests/eval/condense.py -m MODEL   have a model answer, and keep its answers

A life is a file in `condense`: a profile, the lines of it that are the user's `own` and must stay as they are (all
others were learned), facts that must be in it afterwards, what is `gone`, and words that only `once` line should say.
Condensing is the real thing: both requests and the gates.
"""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from collections import Counter
from typing import NamedTuple

import lives

import llm_user_memory as memory

HERE = pathlib.Path(__file__).parent / "condense"


class Condensed(NamedTuple):
    profile: str
    verdicts: list[memory.Verdict]
    failure: str


def profile_of(life: lives.Life) -> str:
    return "".join(f"{line}\n" for line in life["profile"])


def live(life: lives.Life, ask: memory.Ask) -> Condensed:
    """Condense a profile whose lines, but for the user's own, were learned."""
    before = profile_of(life)
    own = {memory.fact_of(line) for line in life["own"]}
    said = (memory.Message("As I typed it", "turn", "thread", "2026-11-20T09:00:00+00:00"),)
    learned = [
        memory.Verdict(memory.Edit("ADD", item.section, item.text, item.text), "apply", "", said)
        for item in memory.Document(before).items
        if item.text not in own
    ]
    with tempfile.TemporaryDirectory() as folder:
        home = memory.Home(pathlib.Path(folder), isolated=True)
        home.create()
        with memory.Memory(home) as opened:
            opened.history.change(
                "worker",
                lambda _: before,
                lambda version: memory.record_edits(opened, learned, "", version),
            )
            verdicts: list[memory.Verdict] = []
            failure = ""
            try:
                verdicts += memory.Learner(opened, memory.Settings(), ask).learn_from(memory.Batch("")).verdicts
            except memory.ModelFailed as failed:
                failure = str(failed)
        return Condensed(memory.read_profile(home.profile), verdicts, failure)


def said_twice(profile: str, life: lives.Life) -> list[str]:
    """Return the lines that say what a line before them says, by words that only one should have."""
    texts = [item.text for item in memory.Document(profile).items]
    found = []
    for words in life["once"]:
        saying = [text for text in texts if any(word in text.casefold() for word in words.casefold().split("|"))]
        found += saying[1:]
    return found


def keeps_own(profile: str, life: lives.Life) -> bool:
    own: list[str] = life["own"]
    return [line for line in profile.splitlines() if line in own] == own


def main() -> None:
    parser = lives.parser(__doc__, HERE / "answers", "PROFILE")
    parser.add_argument("-v", "--verbose", action="store_true", help="also print the profiles")
    options = parser.parse_args()
    total = Counter[str]()
    for name, life, (profile, verdicts, failure) in lives.live_all(HERE, options, live):
        before = profile_of(life)
        result = lives.score(profile, life)
        over = [*result.wrong, *(f"said twice: {line}" for line in said_twice(profile, life))]
        own = "untouched" if keeps_own(profile, life) else "CHANGED"
        stopped = [verdict for verdict in verdicts if verdict.outcome != "apply"]
        print(f"{name}: {len(before):,} characters, then {len(profile):,};", end=" ")
        print(f"{result.found} of {result.facts} facts, {len(over)} lines too many, own lines {own},", end=" ")
        print(f"{len(stopped)} of {len(verdicts)} edits held or refused{failure and f'; {failure}'}")
        lives.show(stopped, missing=result.missing, over=over)
        if options.verbose:
            print(profile)
        total.update(before=len(before), after=len(profile), found=result.found, facts=result.facts, over=len(over))
        total.update(changed=own == "CHANGED", stopped=len(stopped), proposed=len(verdicts))
    print("In all: {before:,} characters, then {after:,}; {found} of {facts} facts,".format_map(total), end=" ")
    print("{over} lines too many, own lines changed in {changed},".format_map(total), end=" ")
    print("{stopped} of {proposed} edits held or refused".format_map(total))


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
