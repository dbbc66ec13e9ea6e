"""Measure how well a model uses a profile, or leaves it alone, with the sentence that stands in front of it (FRAME).

    uv run python tests/eval/frame.py                              print what is kept
    uv run python tests/eval/frame.py -m MODEL                     have a model answer, and keep its answers
    uv run python tests/eval/frame.py --judge MODEL                have a model judge these, and keep what it says
    uv run python tests/eval/frame.py --judge MODEL --against FILE have it compare them, blind, with those in FILE

In `frame` are the profiles of two invented people and 35 prompts. `useful`: a good answer needs lines of the profile.
`needless`: a line is tempting, but not to be brought up. `opinion`: the user's opinion must get no more weight.
`other`: the prompt differs from the profile, or is about somebody else. `search`: facts that a search has `found` are
sent instead (FOUND). `look` says what a judge has to look for.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import pathlib
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lives
import llm

import llm_user_memory as memory

HERE = pathlib.Path(__file__).parent / "frame"
KEPT = HERE / "answers.jsonl"
KINDS = ("useful", "needless", "opinion", "other", "search")
QUESTION = """\
The user whom the profile describes wrote the prompt. What to look for in the answer: {look}

Is the answer as it should be in this? Judge nothing else. Write one line: y or n, a colon, and a short reason."""
PAIR = """\
The user whom the profile describes wrote the prompt. What to look for in both answers: {look}

Which is better for this user, first in this, then as a whole? Write one line: A, B or = (if they are alike), a colon, \
and a short reason."""

Line = dict[str, Any]
"""A prompt, with the answer and what a judge said of it as far as they are known."""
Ask = Callable[[str, str], str]
"""Sends a prompt with a system text, which may be empty; returns the reply."""


def kept_in(path: pathlib.Path, prompts: list[Line]) -> list[Line]:
    """Read the answers to today's prompts; what a judge said counts while `look` is the same."""
    kept = {line["prompt"]: line for line in lives.read(path)} if path.exists() else {}
    if any(prompt["prompt"] not in kept for prompt in prompts):
        sys.exit(f"{path} does not have all answers: {lives.WITH_MODEL}")
    lines = []
    for prompt in prompts:
        line = kept[prompt["prompt"]]
        letter = line["letter"] if line["look"] == prompt["look"] else ""
        lines.append({**line, **prompt, "letter": letter})
    return lines


def profile_of(line: Line) -> str:
    return (HERE / f"{line['profile']}.md").read_text("utf-8")


def system_text(line: Line) -> str:
    """Return what a call sends of the profile, or of the facts `found` by a search, as it is put together today."""
    if "found" in line:
        return memory.FOUND.format(line["found"])
    with tempfile.TemporaryDirectory() as folder:
        home = memory.Home(pathlib.Path(folder), isolated=True)
        home.directory.mkdir()
        home.profile.write_text(profile_of(line), "utf-8")
        (fragment,) = memory.fragments_of([home])
    return str(fragment)


def answered(line: Line, ask: Ask) -> Line:
    system = system_text(line)
    return {**line, "system": system, "answer": ask(line["prompt"], system), "letter": ""}


def parsed(reply: str, letters: str) -> tuple[str, str]:
    """Read a letter and its reason; a reply out of form has no letter."""
    found = re.match(rf"[\s*]*([{letters}])[*\s]*(?:[:.,;–—\n-][*\s]*|(?<==)|$)(.*)", reply, re.DOTALL)
    return (found[1], found[2].strip()) if found else ("", reply)


def to_judge(line: Line, answers: dict[str, str], question: str) -> str:
    texts = {"profile": profile_of(line), "prompt": line["prompt"], **answers}
    tagged = "".join(f"<{name}>\n{text.strip()}\n</{name}>\n\n" for name, text in texts.items())
    return tagged + question.format(look=line["look"])


def judged(line: Line, ask: Ask) -> Line:
    request = to_judge(line, {"answer": line["answer"]}, QUESTION)
    letter, reason = parsed(ask(request, ""), "yn")
    return {**line, "letter": letter, "reason": reason}


def compared(line: Line, other: Line, ask: Ask) -> tuple[str, str]:
    """Tell whether an answer is better or worse than the other, and why. A hash says which of them is A."""
    is_a = hashlib.sha256(line["prompt"].encode()).digest()[0] % 2 == 0
    a, b = (line, other) if is_a else (other, line)
    request = to_judge(line, {"answer-A": a["answer"], "answer-B": b["answer"]}, PAIR)
    letter, reason = parsed(ask(request, ""), "AB=")
    mine = "A" if is_a else "B"
    said = {"": "out of form", "=": "alike", mine: "better"}
    return said.get(letter, "worse"), reason


def shown(line: Line, reason: str) -> str:
    return f"  {line['kind']}, {line['profile']}: {line['prompt']}\n    look: {line['look']}\n    judge: {reason}"


def report(lines: list[Line]) -> None:
    """Print how many answers of each kind are as they should be, and which are not."""
    for kind in KINDS:
        these = [line for line in lines if line["kind"] == kind]
        letters = Counter(line["letter"] for line in these)
        print(f"{kind}: {letters['y']} of {len(these)} as they should be", end="")
        print(f", {letters['']} not judged: use --judge MODEL" if letters[""] else "")
        for line in these:
            if line["letter"] == "n":
                print(shown(line, line["reason"]))


def report_pairs(lines: list[Line], found: Iterable[tuple[str, str]]) -> None:
    """Print how often the kept answer is better or worse than the other, and where."""
    counts = Counter[str]()
    for line, (said, reason) in zip(lines, found, strict=True):
        counts[said] += 1
        if said != "alike":
            print(f"{said}:\n{shown(line, reason)}")
    print("The kept answers are better {better} times, worse {worse}, alike {alike}".format_map(counts))


def asking(name: str) -> Ask:
    model = llm.get_model(name)
    return lambda prompt, system: str(model.prompt(prompt, system=system or None, stream=False).text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="a model to answer")
    parser.add_argument("--judge", metavar="MODEL", help="a model to judge the kept answers")
    parser.add_argument("--against", metavar="FILE", type=pathlib.Path, help="kept answers to another wording")
    parser.add_argument("--kept", metavar="FILE", type=pathlib.Path, default=KEPT, help="where answers are kept")
    parser.add_argument("--at-once", metavar="N", type=int, default=1, help="requests at the same time")
    options = parser.parse_args()
    if options.against and not options.judge:
        parser.error("--against needs --judge MODEL")
    prompts = lives.read(HERE / "prompts.jsonl")
    with ThreadPoolExecutor(options.at_once) as pool:
        if options.model:
            answer = asking(options.model)
            lives.keep(options.kept, pool.map(lambda line: answered(line, answer), prompts))
        lines = kept_in(options.kept, prompts)
        if any(line["system"] != system_text(line) for line in lines):
            print(f"The profile is sent in other words now: {lives.WITH_MODEL}")
        if options.against:
            judge, others = asking(options.judge), kept_in(options.against, prompts)
            report_pairs(lines, pool.map(lambda line, other: compared(line, other, judge), lines, others))
            return
        if options.judge:
            judge = asking(options.judge)
            lines = list(pool.map(lambda line: judged(line, judge), lines))
            lives.keep(options.kept, lines)
    report(lines)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
