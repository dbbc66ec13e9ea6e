"""Tokens, and so money: edits against asking the model to write the whole profile again."""

from __future__ import annotations

import importlib
import pathlib
from typing import TYPE_CHECKING, Any

import people
from table import Row, compared

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Callable

PRICE = 6
"""What a token that is written costs, in tokens that are read."""
PROFILE = 1_500
TURNS = [
    "I moved from Leeds to York last week, could you list things to do when changing address?",
    "My sister's wedding is in June. I play the oboe in a quartet, what could we play there?",
    "Please explain borrow checking. I have written Go for ten years, so compare it with that.",
    "I am allergic to walnuts, please remember that! What cake could I bake instead?",
    "Shorter answers please, I always read them on my phone.",
]
# As a capable reader answered the request.
REPLY = """\
ADD | Personal Information | Lives in York since November 2026 (before: Leeds) | I moved from Leeds to York last week
ADD | Interests | Plays the oboe in a quartet | I play the oboe in a quartet
ADD | Personal Information | Has written Go for ten years (as of November 2026) | I have written Go for ten years
ADD | Personal Information | Allergic to walnuts | I am allergic to walnuts, please remember that!
ADD | Preferences | Wants shorter answers, always reads them on the phone | Shorter answers please, I always read them on my phone
"""

REWRITE = """\
You maintain a profile of the user. Below are the current profile and new messages from the user. Update the profile
with any new, lasting facts about the user: add what is new, correct what has changed, remove what is no longer true.
Keep everything else exactly as it is. Do not record temporary requests or facts about other people. Return the
complete updated profile in Markdown, with the same headings, and nothing else.

Current profile:
{}

New messages:
{}
"""


def tokenizer() -> Callable[[str], int] | None:
    """Counts tokens as Mistral's models do; its vocabulary comes with the package, so nothing is downloaded."""
    try:
        tekken: Any = importlib.import_module("mistral_common.tokens.tokenizers.tekken")
        package: Any = importlib.import_module("mistral_common")
    except ImportError:
        return None
    path = pathlib.Path(package.__file__).parent / "data" / "tekken_240911.json"
    encoder = tekken.Tekkenizer.from_file(path)
    return lambda text: len(encoder.encode(text, bos=False, eos=False))


def costs(count: Callable[[str], int], turns: int) -> dict[str, tuple[int, int]]:
    """Tokens read and written by one update of so many turns, each of which adds a fact."""
    text = people.profile(1_000)
    size = 1_000
    while count(text) < PROFILE:
        size += 50
        text = people.profile(size)
    document = memory.Document(text)
    said = [memory.Message(message, at="2026-11-20T12:00:00+00:00") for message in TURNS[:turns]]
    reply = "\n".join(REPLY.splitlines()[:turns])
    verdicts, after = memory.judge(memory.parse_reply(reply) or [], document, document, memory.Batch("", said))
    assert [verdict.outcome for verdict in verdicts] == ["apply"] * turns
    ours = count(memory.build_request(document, memory.Batch("", said))), count(reply)
    rewrite = count(REWRITE.format(text, "\n\n".join(TURNS[:turns]))), count(after.text)
    return {"ours": ours, "rewrite": rewrite, "none": (ours[0], count("NO_UPDATE"))}


def run(quick: bool, folder: pathlib.Path) -> tuple[str, list[Row]]:
    title = f"Tokens of an update, at a profile of {PROFILE:,} tokens, against having the model write the profile again"
    count = tokenizer()
    if count is None:
        how = "not measured, for want of a tokenizer: uv run --group bench python tests/bench tokens"
        return title, [Row("tokens", how)]
    rows = []
    for turns in (1, 5):
        found = costs(count, turns)
        name = "1 turn" if turns == 1 else f"{turns} turns at once"
        (read, written), (read_all, written_all) = found["ours"], found["rewrite"]
        rest = read + PRICE * found["none"][1]
        price, price_all = read + PRICE * written, read_all + PRICE * written_all
        for what, ours, other, most in (
            ("read", read, read_all, None),
            ("written", written, written_all, 0.1),
            (f"price, at 1:{PRICE}", price, price_all, 0.25),
            ("price, nothing to learn", rest, price_all, None),
        ):
            rows.append(compared(f"{name}: {what}", [[ours], [other]], most, digits=0))
    return title, rows
