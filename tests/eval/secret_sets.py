"""Measure what the table of secrets finds in messages as people type them.

    uv run python tests/eval/secret_sets.py        count, for each set
    uv run python tests/eval/secret_sets.py -v     and show what is judged wrongly

A line of a file in `secrets` is a message: `text`, with `{}` where its secret stands, which is in pieces so that no
scanner takes the file for a leak; an innocent one has none. Each set was written by somebody who knew no code of ours.
What has no shape (door codes, passwords of words in a sentence) is the second look's.
"""

from __future__ import annotations

import json
import pathlib
import sys

import llm_user_memory as memory

HERE = pathlib.Path(__file__).parent / "secrets"
SHAPED = ("provider token", "private key", "jwt", "random run", "setting", "login", "card", "iban")


def is_visible(secret: str, masked: str) -> bool:
    """Tell whether more than half of a secret can be read."""
    pieces = [secret[at : at + 6] for at in range(0, max(1, len(secret) - 5), 6)]
    return secret in masked or 2 * sum(piece in masked for piece in pieces) > len(pieces)


def counts(path: pathlib.Path, *, show: bool = False) -> tuple[dict[str, tuple[int, int]], tuple[int, int]]:
    """Count the visible secrets of each group, of how many, and the harmless texts that are masked, of how many."""
    visible: dict[str, tuple[int, int]] = {}
    hit = (0, 0)
    for line in path.read_text("utf-8").splitlines():
        sample = json.loads(line)
        secret = "".join(sample.get("secret", ()))
        text = sample["text"].replace("{}", secret, 1) if secret else sample["text"]
        masked = memory.mask_secrets(text)
        is_wrong = is_visible(secret, masked) if secret else masked != text
        if show and is_wrong:
            print(f"{sample['group']}: {text!r}")
        if secret:
            shown, every = visible.get(sample["group"], (0, 0))
            visible[sample["group"]] = (shown + is_wrong, every + 1)
        else:
            hit = (hit[0] + is_wrong, hit[1] + 1)
    return visible, hit


def main() -> None:
    for path in sorted(HERE.glob("*.jsonl")):
        visible, hit = counts(path, show="-v" in sys.argv)
        groups = ", ".join(f"{group} {n} of {of}" for group, (n, of) in visible.items())
        print(f"{path.stem}: visible {groups}; harmless texts masked: {hit[0]} of {hit[1]}")


if __name__ == "__main__":
    main()
