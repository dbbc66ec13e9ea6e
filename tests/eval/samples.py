"""Measure what becomes of single edits, of which a person has said whether they should be made.

    uv run python tests/eval/samples.py            count, for each set of samples, with the letters that are kept
    uv run python tests/eval/samples.py -v         and show what is judged wrongly
    uv run python tests/eval/samples.py -m MODEL   have a model look at each, and keep its letters

A sample is a line of a file in `samples`: what was typed, the profile, an edit, and the letter that a reader gave it who
had nothing but the second look. `honest`: it should be made. `paste`: its quote is somebody else's text. `attack`: it
says what nobody typed. `steer`: the message holds a text written to steer the second look. All were written by people
who knew no code of ours. `questions.json` has, for each set, a digest of the QUESTION that its letters answer.
"""

from __future__ import annotations

import json
import pathlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import lives

import llm_user_memory as memory

HERE = pathlib.Path(__file__).parent / "samples"
QUESTIONS = "questions.json"
DOUBTS = {"y": "", "n": memory.NOT_YOURS, "s": memory.HOLDS_SECRET, "": memory.UNCHECKED}

Sample = dict[str, Any]


class Case(NamedTuple):
    """A sample as learning has it."""

    edit: memory.Edit
    profile: memory.Document
    batch: memory.Batch

    def judged(self, letter: str) -> memory.Verdict:
        """Judge the edit as learning does, in a request that proposed no other."""
        doubts = {self.edit: DOUBTS[letter]}
        (verdict,), _ = memory.judge([self.edit], self.profile, self.profile, self.batch, doubts=doubts)
        return verdict


def case_of(sample: Sample) -> Case:
    profile = memory.Document(sample.get("profile") or f"- {sample['target']}\n")
    ids = {item.text: id for id, item in profile.ids.items()}
    target = sample["target"] if sample["action"] == "ADD" else ids[sample["target"]]
    edit = memory.Edit(sample["action"], target, sample["fact"], sample["quote"])
    at = f"{sample['date']}T12:00:00+00:00"
    typed = [memory.Message(memory.as_shown(text), f"turn {n}", "", at) for n, text in enumerate(sample["messages"])]
    return Case(edit, profile, memory.Batch("", typed))


def asked(sample: Sample, ask: memory.Ask) -> Sample:
    """Have a second look at a sample, once more if the reply is out of form, as learning does."""
    case = case_of(sample)
    request = memory.build_second_look([case.judged("y")], case.batch, case.profile)
    for _ in range(2):
        reply, *_ = ask("", request)
        if letters := memory.parse_answers(reply, 1):
            return {**sample, "letter": letters[0]}
    return {**sample, "letter": ""}


def counts(samples: list[Sample], *, show: bool = False) -> dict[str, tuple[int, int, int]]:
    """Count, for each label, how many edits were stopped, how many of them by code alone, of how many."""
    stopped, by_code, every = Counter[str](), Counter[str](), Counter[str]()
    for sample in samples:
        verdict = case_of(sample).judged(sample["letter"])
        is_stopped = verdict.outcome != "apply"
        every[sample["label"]] += 1
        stopped[sample["label"]] += is_stopped
        by_code[sample["label"]] += is_stopped and verdict.reason not in DOUBTS.values()
        if show and is_stopped == (sample["label"] == "honest"):
            print(f"{sample['label']}, {verdict.reason or 'made'}: {sample['fact']} <- {sample['messages']}")
    return {label: (stopped[label], by_code[label], every[label]) for label in every}


def kept_in(path: pathlib.Path, samples: list[Sample]) -> list[Sample]:
    """Read the letters that were given to these samples."""
    letters = {sample["id"]: sample["letter"] for sample in lives.read(path)} if path.exists() else {}
    if any(sample["id"] not in letters for sample in samples):
        raise SystemExit(f"{path} does not have all letters: {lives.WITH_MODEL}")
    return [{**sample, "letter": letters[sample["id"]]} for sample in samples]


def questions_of(folder: pathlib.Path) -> dict[str, str]:
    path = folder / QUESTIONS
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


def main() -> None:
    parser = lives.parser(__doc__, HERE, "SET")
    parser.add_argument("-v", "--verbose", action="store_true", help="also show what is judged wrongly")
    options = parser.parse_args()
    ask = lives.Asked(options.model) if options.model else None
    today = memory.digest(memory.QUESTION)
    with ThreadPoolExecutor(options.at_once) as pool:
        for path in lives.chosen(HERE, "*.jsonl", options.names):
            samples, kept = lives.read(path), options.kept / path.name
            if ask:
                lives.keep(kept, list(pool.map(lambda sample: asked(sample, ask), samples)))
                questions = {**questions_of(options.kept), path.stem: today}
                (options.kept / QUESTIONS).write_text(json.dumps(questions, indent=1) + "\n", "utf-8")
            elif questions_of(options.kept).get(path.stem) != today:
                print(f"{path.stem}: the question is worded otherwise now: {lives.WITH_MODEL}")
            found = counts(kept_in(kept, samples), show=options.verbose)
            said = (f"{n} of {of} {label} stopped ({code} by code)" for label, (n, code, of) in found.items())
            print(f"{path.stem}: {', '.join(said)}")


if __name__ == "__main__":
    main()
