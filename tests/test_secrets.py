"""Secrets: seen, masked in what a model is sent, refused in what it answers."""

from __future__ import annotations

import re
import time

import pytest
from attacks import INNOCENT, SECRETS

from llm_user_memory import as_shown, mask_secrets, parse_reply, why_secret


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_seen_and_masked(name: str) -> None:
    text, secret = SECRETS[name]
    assert why_secret(text)
    masked = mask_secrets(f"I like tea. {text}\n\nI like milk.")
    assert secret not in masked
    assert masked.startswith("I like ")
    assert secret not in as_shown(f"{text}\n" + "word " * 3_000)


@pytest.mark.parametrize("text", INNOCENT)
def test_ordinary_text_that_looks_odd_is_no_secret(text: str) -> None:
    assert why_secret(text) == ""
    assert mask_secrets(text) == text


def test_the_kind_of_a_secret_is_said_in_words() -> None:
    kinds = {why_secret(text) for text, _ in SECRETS.values()}
    assert len(kinds) >= 7
    assert all(re.fullmatch(r"an? [\w ]+", kind) for kind in kinds)


def test_a_mask_says_what_was_there_and_keeps_the_rest() -> None:
    (one, first), (two, second) = SECRETS["GitHub token"], SECRETS["card"]
    before, middle, after = f"{one}; {two}!".replace(first, "\0").replace(second, "\0").split("\0")
    masked = mask_secrets(f"{one}; {two}!")
    assert re.fullmatch(rf"{re.escape(before)}\[[\w ]+\]{re.escape(middle)}\[card number\]{re.escape(after)}", masked)


def test_a_secret_inside_another_is_masked_whole() -> None:
    key = SECRETS["OpenAI key"][1]
    assert re.fullmatch(r"(?:password: )?\[[\w ]+\] and more", mask_secrets(f"password: {key}{key} and more"))


@pytest.mark.parametrize(
    "seed",
    [
        *("a", "A1a", "1 ", "a.", "eyJ-", "PASSWORD", "password for a ", "password:", "a://", "x://a:", "DE12 ABCD "),
        *("sk-", "bearer ", "-----BEGIN PRIVATE KEY-----", " ", "hunter2 is my ", "<think>", "| ", "write a ", "aA1/"),
    ],
)
def test_a_megabyte_of_anything_takes_no_time_that_grows_with_its_square(seed: str) -> None:
    text = seed * (1_000_000 // len(seed))
    start = time.process_time()
    mask_secrets(text)
    parse_reply(text)
    assert time.process_time() - start < 20  # about one second; minutes or hours where it grows so
