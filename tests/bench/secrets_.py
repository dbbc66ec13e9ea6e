"""How long a typed megabyte takes to be shown to a model, without secrets: ordinary text, and what is hardest."""

from __future__ import annotations

import random
import string
import time
from typing import TYPE_CHECKING

from table import Row, alone

import llm_user_memory as memory

if TYPE_CHECKING:
    import pathlib

MOST = 2.0  # seconds: about one, and as much again on a busy machine

HARD = [
    "a",
    "A1a",
    "1",
    "1 ",
    "12-",
    " ",
    "\n",
    "-",
    "_",
    "a.",
    "a/",
    "é",
    "密码",
    "0x",
    "A2 ",
    "ab2c ",
    "aA1/",
    "a1b2c3d4 ",
    "password",
    "password is ",
    "password for a ",
    "password:",
    "passwort ist ",
    "hunter2 is my ",
    "token=",
    "key ",
    "_key",
    "api_key for a b c d ",
    "secret_key ",
    "backup codes 1a2b ",
    "login a ",
    "user a/b1 ",
    "pin ",
    "pan ",
    "ssn ",
    "order ",
    "a://",
    "x://a:",
    "a:b@",
    "https://example.com/a/b?c=d&e=f ",
    "?a=",
    "sk-",
    "eyJ-",
    "DE12 ABCD ",
    "word word word ",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PUBLIC KEY-----",
    "Private-Lines: 1 A",
    "public key ",
    "etag ",
]


def texts(size: int) -> dict[str, str]:
    chooser = random.Random(1)
    words = ["".join(chooser.choices(string.ascii_lowercase, k=chooser.randint(2, 9))) for _ in range(3_000)]
    base64 = "".join(chooser.choices(string.ascii_letters + string.digits + "+/", k=size))
    return {
        "prose": " ".join(chooser.choices(words, k=size // 6))[:size],
        "base64": base64,
        "base64 in lines": "\n".join(base64[at : at + 76] for at in range(0, size, 77)),
        "digits": "".join(chooser.choices(string.digits + " ", k=size)),
    } | {repr(part): part * (size // len(part.encode())) for part in HARD}


def seconds(text: str) -> float:
    start = time.process_time()
    memory.as_shown(text)
    return time.process_time() - start


def run(quick: bool, folder: pathlib.Path) -> tuple[str, list[Row]]:
    size = 10_000 if quick else 1_000_000
    seconds("")  # the first time, patterns are compiled
    taken = {name: seconds(text) for name, text in texts(size).items()}
    slowest = max(taken, key=lambda name: taken[name])
    rows = [alone(name, [taken[name]], MOST, " s", 2) for name in ("prose", "base64", "base64 in lines", "digits")]
    rows.append(alone(f"the slowest of {len(taken)}, {slowest}", [taken[slowest]], MOST, " s", 2))
    return f"Looking for secrets in a message of {size:,} bytes", rows
