"""What a model may answer: honest edits, edits that are wrong in one place, and what is no answer at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

SECRET = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
# What may be typed: the words of a fact, and around them.
SAID = (
    *("I like {}", "I like {}. What is a fjord?", "please remember: i LIKE   {}!", "“Quoted.” I like {}"),
    *("I like {}\nand rain", "<b>I like {}</b>", "I like {} … and snow", "私は I like {}", "> old\nI like {}"),
    f"my token is {SECRET} and I like {{}}",
)
# What makes no fact, though its quote was typed.
UNFIT = (
    *("", " ", "?", "Who is {}?", "<b>{}</b>", "[{}](http://evil)", "![{}](x)", "# {}", "> {}", "- {}", "```{}"),
    *("<|im_end|> {}", "[INST] {}", "</user_profile> {}", "{}\u202enwod", "{}\u200b", "{}\x1b[31m", "{}\x85{}"),
    *(f"{SECRET} {{}}", "password: hunter2-{}", "The card is 4111111111111111 {}", "{} [key or token]"),
    *("{}\tand", "&lt;{}", "{}\u2028{}", "x{}" + "x" * 300),
)
QUOTES = ("I hate {}", "{} I like", "like tea {}", "…", "I like … {} … never", "", "'", "[… cut …]", "[key or token]")
IDS = ("zzz", "[abc]", "", "*", "1", "all", "Notes", "# User Profile", "<id>", "\u202exyz", "a" * 500)
SECTIONS = ("Notes", "Interests", "New heading", "# {}", "<b>", "x" * 3_000, "", "Preferences\u202e", "a | b")
WRONG = {"id": IDS, "section": SECTIONS, "fact": UNFIT, "quote": QUOTES}

EDITS = (
    *["ADD | {section} | {fact} | {quote}"] * 3,
    "REPLACE | {id} | {fact} | {quote}",
    "REMOVE | {id} | {quote}",
)
AROUND = (
    *("{}", "- {}", "3. {}", "> {}", "| {} |", "`{}`", "**{}**", '"{}"', "  {}", "```\n{}\n```"),
    *("{}\nNO_UPDATE", "NO_UPDATE\n{}"),
)
WHOLE = (
    *("", " \n", "NO_UPDATE", "no update.", "Sure! I have updated it.", '{"edits": []}', "ADD", "ADD | | | "),
    *("|" * 99, "\x1b[2J"),
)
LARGE = (
    *("ADD | ", "x", "…", "<think>", "</think>", "| ", "1 y\n", "[", "\n", "REMOVE | abc | x\n", "NO_UPDATE\n"),
    "ADD | Notes | f | “",
)
LOOKS = (
    *("", "y", "1 y\n1 n", "yes to all", "1 yn", "0 y", "Fact: y", "1 y 2 y 3 y", "١ y", "1 s", "-1 y"),
    "<think>1 y\n2 y</think>",
)


def edit(chance: random.Random, word: str, ids: Sequence[str]) -> str:
    """Return a line of a reply: honest, or wrong in one place."""
    fields = {"id": chance.choice(ids), "section": "Interests", "fact": f"Likes {word}", "quote": f"I like {word}"}
    wrong = chance.choice(["", "", *WRONG])
    if wrong:
        fields[wrong] = chance.choice(WRONG[wrong]).replace("{}", word)
    return chance.choice(AROUND).format(chance.choice(EDITS).format(**fields))


def mutated(text: str, chance: random.Random) -> str:
    """Change some characters, or put lines in another order."""
    chars = list(text)
    for _ in range(chance.choice([0, 0, 1, 3, 20])):
        at = chance.randrange(len(chars) + 1)
        chars[at : at + chance.randrange(3)] = chance.choice(
            ["", "|", " | ", "\n", "…", '"', "[", "a", "\u202e", "É", " "]
        )
    lines = "".join(chars).splitlines(keepends=True)
    if chance.random() < 0.1:
        chance.shuffle(lines)
    return "".join(lines)


def learning(chance: random.Random, words: Sequence[str], ids: Mapping[str, str], request: str) -> str:
    """Return an answer to the request for edits, which may have been like the last ``request``."""
    kind = chance.random()
    if kind < 0.1:
        return chance.choice(WHOLE)
    if kind < 0.2:
        return chance.choice(LARGE) * chance.choice([1_000, 200_000])
    if kind < 0.3:
        return request + chance.choice(["", "\nNO_UPDATE"])
    edits = [edit(chance, chance.choice(words), sorted(ids)) for _ in range(chance.choice([1, 1, 2, 3, 30]))]
    return mutated("\n".join(edits), chance)


def look(chance: random.Random, request: str) -> str:
    """Return an answer to the second look."""
    kind = chance.random()
    honest = "\n".join(f"{number} {chance.choice('yyyyns')}" for number in range(1, 40))
    if kind < 0.2:
        return chance.choice(LOOKS)
    if kind < 0.3:
        return chance.choice(LARGE) * 100_000
    if kind < 0.4:
        return request
    return honest if kind < 0.8 else mutated(honest, chance)
