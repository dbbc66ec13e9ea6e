"""What evaluations share: lives are lived with a model, or with the answers kept of one, and profiles are compared.

A life is somebody invented, in a JSON file: what they type or have in their profile, the facts that it must have in the
end (`expected`; each of `needs` is words of which a line must have one), and what must be `gone` (`signs` of it).
"""

from __future__ import annotations

import argparse
import json
import pathlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import llm
from llm.cli import get_model_options

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

WITH_MODEL = "have a model answer, with -m MODEL"

Life = dict[str, Any]
Lived = TypeVar("Lived")


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def keep(path: pathlib.Path, lines: Iterable[dict[str, Any]]) -> None:
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def wording_of(request: str) -> str:
    """Return which of the module's prompts a request has."""
    every = (memory.INSTRUCTIONS, memory.QUESTION, memory.CONDENSE_INSTRUCTIONS, memory.CONDENSE_QUESTION)
    return next(wording for wording in every if wording in request)


class Kept:
    """Answers that were given before, in their order."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.answers = iter(read(path))
        self.are_old = False
        """Whether they were given to other instructions, or to another question, than today's."""

    def __call__(self, model: str, request: str) -> memory.Reply:
        kept = next(self.answers, None)
        if not kept:
            raise SystemExit(f"{self.path} has too few answers for today's requests: {WITH_MODEL}")
        self.are_old |= wording_of(request) not in kept["request"]
        return counted(request, kept["reply"])


class Asked:
    """A model, and its answers."""

    def __init__(self, name: str) -> None:
        self.model = llm.get_model(name)
        self.options = get_model_options(self.model.model_id)
        self.answers: list[dict[str, Any]] = []

    def __call__(self, model: str, request: str) -> memory.Reply:
        reply = self.model.prompt(request, stream=False, **self.options).text()
        self.answers.append({"request": request, "reply": reply})
        return counted(request, reply)


def counted(request: str, reply: str) -> memory.Reply:
    return reply, len(request) // 4, len(reply) // 4


def parser(description: str | None, kept: pathlib.Path, names: str) -> argparse.ArgumentParser:
    """Return a parser of the options that all have."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("names", nargs="*", metavar=names, help="default: all")
    made.add_argument("-m", "--model", help="a model to answer; without it, the kept answers are judged again")
    made.add_argument("--kept", metavar="FOLDER", type=pathlib.Path, default=kept, help="where answers are kept")
    made.add_argument("--at-once", metavar="N", type=int, default=1, help="so many at the same time")
    return made


def chosen(folder: pathlib.Path, pattern: str, names: Sequence[str]) -> list[pathlib.Path]:
    return [path for path in sorted(folder.glob(pattern)) if not names or path.stem in names]


def live_all(
    folder: pathlib.Path, options: argparse.Namespace, live: Callable[[Life, memory.Ask], Lived]
) -> Iterator[tuple[str, Life, Lived]]:
    """Live the lives in a folder; a model's answers replace the kept ones when a life is complete."""

    def kept_for(path: pathlib.Path) -> pathlib.Path:
        return pathlib.Path(options.kept, f"{path.stem}.jsonl")

    def lived(path: pathlib.Path) -> tuple[str, Life, Lived]:
        life = json.loads(path.read_text("utf-8"))
        if options.model:
            asked = Asked(options.model)
            result = live(life, asked)
            keep(kept_for(path), asked.answers)
        else:
            kept = Kept(kept_for(path))
            result = live(life, kept)
            if kept.are_old:
                print(f"{path.stem}: the requests are worded otherwise now: {WITH_MODEL}")
        return path.stem, life, result

    paths = chosen(folder, "*.json", options.names)
    for path in list(paths):
        if not options.model and not kept_for(path).exists():
            print(f"{path.stem}: no kept answers: {WITH_MODEL}")
            paths.remove(path)
    with ThreadPoolExecutor(options.at_once) as pool:
        yield from pool.map(lived, paths)


class Score(NamedTuple):
    """How a profile compares with what is true of somebody at the end of the year."""

    facts: int
    found: int
    missing: list[str]
    wrong: list[str]
    """What should not stand there, with the line that says it."""


def has(line: str, needs: Sequence[str]) -> bool:
    """Whether a line has one of the words of each need, which `|` separates; a space is also the end of the line."""
    spaced = f" {line.casefold()} "
    return all(any(word in spaced for word in need.casefold().split("|")) for need in needs)


def score(profile: str, life: dict[str, Any]) -> Score:
    """Compare a profile with a life, by words that its lines must or must not have."""
    lines = [item.text for item in memory.Document(profile).items]

    missing = [fact["fact"] for fact in life["expected"] if not any(has(line, fact["needs"]) for line in lines)]
    wrong = [
        f"{gone['what']}: {line.casefold()}"
        for gone in life["gone"]
        for line in lines
        if has(line, ["|".join(gone["signs"])])
    ]
    return Score(len(life["expected"]), len(life["expected"]) - len(missing), missing, wrong)


def show(stopped: Sequence[memory.Verdict], **found: Sequence[str]) -> None:
    """Print what is missing or wrong, and which edits were not made."""
    for label, lines in found.items():
        print("".join(f"  {label}: {line}\n" for line in lines), end="")
    for verdict in stopped:
        edit, line = verdict.edit, verdict.item.text if verdict.item else ""
        print(f"  {verdict.outcome}: {edit.action} {line} → {edit.fact}: {verdict.reason}")
