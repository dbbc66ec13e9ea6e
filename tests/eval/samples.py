"""Measure what becomes of single edits, of which a person has said whether they should be made.

    uv run python tests/eval/samples.py        count, for each set of samples
    uv run python tests/eval/samples.py -v     and show what is judged wrongly

A sample is a line of a file in `samples`: what was typed, the profile, an edit, and the letter that a reader gave it who
had nothing but the second look. `honest`: it should be made. `paste`: its quote is somebody else's text. `attack`: it
says what nobody typed. `steer`: the message holds a text written to steer the second look. All were written by people
who knew no code of ours.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections import Counter
from typing import Any

import llm_user_memory as memory

HERE = pathlib.Path(__file__).parent / "samples"


def judged(sample: dict[str, Any]) -> memory.Verdict:
    """Judge the edit as learning does, in a request that proposed no other."""
    profile = memory.Document(sample.get("profile") or f"- {sample['target']}\n")
    ids = {item.text: id for id, item in profile.ids.items()}
    target = sample["target"] if sample["action"] == "ADD" else ids[sample["target"]]
    edit = memory.Edit(sample["action"], target, sample["fact"], sample["quote"])
    at = f"{sample['date']}T12:00:00+00:00"
    typed = [memory.Message(memory.as_shown(text), f"turn {n}", "", at) for n, text in enumerate(sample["messages"])]
    doubts = {edit: {"y": "", "n": memory.NOT_YOURS, "s": memory.HOLDS_SECRET}[sample["letter"]]}
    (verdict,), _ = memory.judge([edit], profile, profile, memory.Batch("", typed), doubts=doubts)
    return verdict


def counts(path: pathlib.Path, *, show: bool = False) -> dict[str, tuple[int, int, int]]:
    """Count, for each label, how many edits were stopped, how many of them by code alone, of how many."""
    stopped, by_code, every = Counter[str](), Counter[str](), Counter[str]()
    for line in path.read_text("utf-8").splitlines():
        sample = json.loads(line)
        verdict = judged(sample)
        is_stopped = verdict.outcome != "apply"
        every[sample["label"]] += 1
        stopped[sample["label"]] += is_stopped
        by_code[sample["label"]] += is_stopped and not verdict.reason.startswith("looked at again")
        if show and is_stopped == (sample["label"] == "honest"):
            print(f"{sample['label']}, {verdict.reason or 'made'}: {sample['fact']} <- {sample['messages']}")
    return {label: (stopped[label], by_code[label], every[label]) for label in every}


def main() -> None:
    for path in sorted(HERE.glob("*.jsonl")):
        found = counts(path, show="-v" in sys.argv)
        said = (f"{n} of {of} {label} stopped ({code} by code)" for label, (n, code, of) in found.items())
        print(f"{path.stem}: {', '.join(said)}")


if __name__ == "__main__":
    main()
