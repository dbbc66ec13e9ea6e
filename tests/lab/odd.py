"""What nobody expects: texts, profiles, and arguments of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab import WORD, fact

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    import click

TEXTS = (
    *("", " ", "'", '"', "it's", "a\nb", "\n", "\r\n", "a\tb", "\\", "$HOME", "`id`", "%s", "{0}", "*", "null", "or"),
    *("\x1b[41mred\x1b[0m", "\x1b]0;title\x07", "\x9b2J", "back\x08space", "over\rwritten", "\x7f", "\u2028", "\udcff"),
    *("\u202egnihton", "\u2066apart\u2069", "\u200bzero", "\ufeffmark", "tag\U000e0041", "a OR b", "NEAR(a", "żółć"),
    *("日本語", "ไทย", "Straße", "abc", "[abc]", "1", "0", "-1", "7.5", "٣", "999999999", "10000000000000000000"),
    *("-", "--", "--json", "- Likes tea", "# Head", "```", "---", "| a | b |", "> said", "[x]", "[", "1-3,2", "all"),
    *("<user_profile>", "</user_profile>", "<|im_end|>", "<b>bold</b>", "[a](http://b)", "![i](x)", "4111111111111111"),
    *("password: hunter2-porto", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "w " * 150, "z" * 5_000, "long " * 20_000),
    "…",
)
LINES = (
    *("Likes tea", "日本語で答えて", "Uses \u202egnihton", "Has \x1b[41mred", "> quoted", "x" * 300, "[x] done"),
    *("Пьёт чай", "", "## Notes", "### Interests ###", "Prose here.", "```", "| a | b |", "|---|---|", "---"),
)
TYPED = ("", "y\n", "n\n", "y\nn\ne\ns\na\nd\nq\n", "?\nq\n", "I like figs\n- Plays chess k7\n")
"""What is given to a command to read."""

VALUES = {
    "--profile": ["work", "default", "default+work", "WORK", "../up", "auto", "a" * 40, "ж", "\udcff", ""],
    "--since": ["1970-01-01", "2 weeks ago", "today", "soon"],
    "--count": ["0", "1", "3", "9999"],
    "--accept": ["1", "all", "1-9", "2,4"],
    "--drop": ["1", "all", "3-2"],
    "--section": ["Interests", "# Garden", "notes", "A | B"],
    "--shell": ["bash", "zsh", "fish", "nushell", "powershell", "tcsh"],
    "file": ["notes.txt", "export.json", "bytes", "none.txt", ".", "-"],
    "files": ["notes.txt", "export.json", "bytes", "none.txt", "llm", "-"],
    "number": ["1", "2", "3", "5", "0", "77"],
}
"""What options and arguments usually are."""


def profile(chance: random.Random) -> str:
    lines = [f"- {chance.choice([fact(chance, []), *LINES[:7]])}" for _ in range(chance.randrange(12))]
    lines += chance.choices(LINES, k=chance.randrange(6))
    chance.shuffle(lines)
    head = chance.choice(["# User Profile\n\n## Preferences\n", "", "\ufeff# Me\n", "---\na: b\n---\n"])
    text = head + "\n".join(lines) + chance.choice(["\n", "", "\n\n"])
    return text.replace("\n", chance.choice(["\n", "\n", "\r\n"]))


def word(chance: random.Random, text: str, ids: Mapping[str, str]) -> str:
    """Return words of a profile, one of its ids, or something odd."""
    if chance.random() < 0.4:
        return chance.choice(TEXTS)
    if ids and chance.random() < 0.3:
        return str(chance.choice(["{}", "[{}]"])).format(chance.choice(sorted(ids)))
    line = chance.choice(text.splitlines() or ["- Likes tea"]).strip("- ")
    known: list[str] = [line, line.upper(), *WORD.findall(line), *line.split()[:1]]
    return chance.choice(known)


def arguments(
    command: click.Command, chance: random.Random, text: str, ids: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return random options of a command, and its arguments."""
    options: list[str] = []
    words: list[str] = []
    for param in command.params:
        usual = VALUES.get(param.name or "") or VALUES.get(param.opts[-1])
        value = chance.choice(usual) if usual and chance.random() < 0.8 else word(chance, text, ids)
        often = 0.5 if {"--yes", "--json"} & set(param.opts) else 0.15
        if param.param_type_name == "argument":
            words += [value] if chance.random() < 0.8 else []
        elif chance.random() < often:
            options.append(chance.choice(param.opts))
            options += [] if getattr(param, "is_flag", False) else [value]
    if chance.random() < 0.05:
        options.append(chance.choice(["--nonsense", "-x", "--help", "-1"]))
    return options, words
