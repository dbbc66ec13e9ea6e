"""Each alternative and optional piece of a pattern is there for a sample, which tells what goes wrong without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from alternatives import without_each
from attacks import INNOCENT, SECRETS, noise
from test_secrets import HARMLESS, PIECES

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from conftest import User

WORDS = "apple river stone cloud tiger maple"
PASSWORDS = (
    *(
        "password = settings.key",
        "password = app.secret",
        "pw = cfg_password",
        "password = $KEY_9",
        "passwd=hunter2porto",
    ),
    *(f"my password is {word}" for word in ("wrong", "stolen", "missing", "visible", "active", "mandatory", "silly")),
    *("passcode is hunter2-x", "contraseña: hunter2porto", "contrasena: hunter2porto", "db_pass=hunter2porto"),
    *("my password is marmalade and I like tea", "my password is marmalade but not yours", "my password is marmalade"),
    *(f"{program} -u root -p hunter2porto" for program in ("mysql", "mongo", "sshpass", "redis-cli")),
)
PUNCTUATED = (
    *("password: ~/keys/pw1", "password : hunter2porto", '"pw" => "hunter2porto"', "passwords: hunter2porto"),
    *("my password is marmalade ", "密码是 hunter2x", "パスワードは「hunter2x」", "the token “abc1defghij”"),
    *(
        'curl -u "ann:hunter2-porto" x.org',
        "mysql -u root -p 'hunter2porto'",
        "PHPSESSID=s3cr3tvalue99",
        "tokens: abc1defg",
    ),
    *("backup code abcd-9b2c7", "my seed words: apple, river, stone, cloud, tiger, maple", f"it is {noise(30)}=="),
    *(f"it is A1-b2-{noise(24)}", "-----BEGIN PGP PRIVATE KEY BLOCK-----\nab1\n-----END PGP PRIVATE KEY BLOCK-----"),
)
KEYS = (
    *("my_sid=s3cr3tvalue99", "token=abc1defg", "auth=abc1defg", "session: abc1defg", "sk-abcdefghij-7klmnop"),
    *(f"{prefix}.{noise(24)}7" for prefix in ("xoxe", "ya29", "hvs", "hvb", "sk", "SG", "sl")),
    *(f"recovery {word} 4f8a1-9b2c7" for word in ("key", "code")),
    *(f"my {word} words: {WORDS}" for word in ("recovery", "seed", "mnemonic", "wallet")),
    f"my seed is {WORDS}",
    "-----BEGIN PRIVATE KEY-----\nab-cd1\n-----END PRIVATE KEY-----",
)
PUBLIC = (
    *(f"integrity sha512-{noise(60)}", f"my public key: {noise(44)}"),
    *(f"-----BEGIN {kind}-----\n{noise(60)}\n-----END {kind}-----" for kind in ("CERTIFICATE", "PUBLIC KEY")),
    *(f"https://x.org/?{name}={noise(30)}" for name in ("page", "pass", "code", "sig", "api_key")),
)
TEXTS = [
    *(around.replace("{}", secret) for around, secret in SECRETS.values()),
    *(*HARMLESS, *INNOCENT, *PIECES, *PASSWORDS, *PUNCTUATED, *KEYS, *PUBLIC),
]


Variant = tuple[str, Any, Any, Any]  # what is gone; where the pattern stands: an owner, a name; what stands there then


def variants(owner: Any, name: Any, patterns: str | Sequence[str]) -> Iterator[Variant]:
    """Yield a pattern, or one of several, without each of its alternatives."""
    for at, pattern in enumerate([patterns] if isinstance(patterns, str) else patterns):
        for gone, left in without_each(pattern):
            changed = left if isinstance(patterns, str) else [*patterns[:at], left, *patterns[at + 1 :]]
            yield f"{name}: {gone}", owner, name, changed


def unseen(found: Iterable[Variant], look: Callable[[], object]) -> list[str]:
    """Return what can be gone, and nothing looks different."""
    before = look()
    missed = []
    for gone, owner, name, left in found:
        with pytest.MonkeyPatch.context() as patch:
            if isinstance(owner, dict):
                patch.setitem(owner, name, left)
            else:
                patch.setattr(owner, name, left)
            if look() == before:
                missed.append(gone)
    return missed


def test_every_alternative_in_the_table_of_secrets_is_there_for_a_sample() -> None:
    def masked() -> list[str]:
        memory._spelled.cache_clear()
        return [memory.mask_secrets(text) for text in TEXTS]

    found = [*variants(memory, "_PUBLIC", memory._PUBLIC)]
    for table in (memory._ATOMS, memory.SECRETS):
        for name, patterns in table.items():
            found += variants(table, name, patterns)
    assert unseen(found, masked) == []
    memory._spelled.cache_clear()


CHAT_MARKS = (
    *(
        "<|im_end|>",
        "<|/x|>",
        "<｜User｜>",
        "<｜end▁of▁sentence｜>",
        "<|turn>",
        "<turn|>",
        "<turn｜>",
        "<s>",
        "</s>",
        "<bos>",
    ),
    *("<eos>", "<think>", "<thinking>", "<tool>", "<tools>", "<tool_call>", "<function_call>", "<start_of_turn>"),
    *(
        "<end_of_turn>",
        "<<SYS>>",
        "<</SYS>>",
        "[INST]",
        "[/INST]",
        "[THINK]",
        "[ARGS]",
        "[BOS]",
        "[EOS]",
        "[TOOL_CALLS]",
    ),
)


def test_every_alternative_among_the_marks_of_chat_templates_is_there_for_a_sample() -> None:
    found = variants(memory, "_CHAT_MARKS", memory._CHAT_MARKS)
    assert unseen(found, lambda: [memory.without_chat_marks(mark) for mark in CHAT_MARKS]) == []


# A text that says "I live in Rome" in a quotation only, or does not.
HEADERS = ["from", "to", "cc", "date", "sent", "subject", "von", "an", "betreff", "de", "para", "à", "objet", "asunto"]
QUOTATIONS = (
    *(f"{name}: x y\n{name}: z\n\nI live in Rome" for name in HEADERS),
    *("```\nI live in Rome\n```", "~~~\nI live in Rome", "```\nx\n```\nI live in Rome", "> I live in Rome"),
    *(
        "  ```\nI live in Rome\n```",
        "```\nx\n  ```\nI live in Rome",
        "  > I live in Rome",
        "From : x\nTo : y\n\nI live in Rome",
    ),
    "From:x\nTo:y\n\nI live in Rome",
    *(
        quote.format("I live in Rome")
        for quote in ("“{}”", "„{}“", "„{}”", "«{}»", "「{}」", "『{}』", '"{}"', "'{}'", "‘{}’")
    ),
)


def test_every_alternative_in_the_shapes_of_quotations_is_there_for_a_sample() -> None:
    def quoted() -> list[bool]:
        memory.is_quoted.cache_clear()
        return [memory.is_quoted("I live in Rome", text) for text in QUOTATIONS]

    assert unseen(variants(memory, "_QUOTATIONS", memory._QUOTATIONS), quoted) == []
    memory.is_quoted.cache_clear()


TOO_LONG = ("context window", "context length", "context size", "too many tokens", "prompt is too long")
KEYS_WRONG = (
    "no API key",
    "invalid api-key",
    "incorrect api_key",
    "missing API key",
    "wrong apikey",
    "API key not found",
)
NOT_NOW = (
    *("connection reset", "unreachable", "name resolution", "nodename not known", "getaddrinfo failed", "timeout"),
    *(
        "timed out",
        "rate limit",
        "ratelimit",
        "overloaded",
        "unavailable",
        "server error",
        "servererror",
        "credit balance",
    ),
    *("quota", "billing", "error 402", "error 408", "error 429", "error 500", "error 504", "error 520", "error 529"),
)
CLASSES = ("ConnectError", "APIConnectionError", "ProtocolError", "ReadError", "URLError", "SSLError", "NeedsKey")
STATUSES = (400, 401, 403, 404, 408, 413, 422, 429, 500)


def failure(name: str, status: int | None, text: str) -> Exception:
    error: Exception = type(name, (Exception,), {"status_code": status} if status else {})(text)
    return error


FAILURES = (
    *(failure("APIError", None, text) for text in (*TOO_LONG, *KEYS_WRONG, *NOT_NOW, "reconnect the wires", "sorry")),
    *(failure(name, None, "it says nothing") for name in (*CLASSES, "AuthenticationError")),
    *(failure("APIStatusError", status, "the rate limit of quota") for status in STATUSES),
)


def test_every_alternative_in_what_a_failure_says_is_there_for_a_sample() -> None:
    found: list[Variant] = []
    rows = memory._FAILURES
    for at, (pattern, *meaning) in enumerate(rows):
        for gone, left in without_each(pattern):
            changed = (*rows[:at], (left, *meaning), *rows[at + 1 :])
            found.append((f"{meaning[0]}: {gone}", memory, "_FAILURES", changed))
    assert unseen(found, lambda: [memory.why_failed("m", error).kind for error in FAILURES]) == []


# Of a kind that can be no line, and of one that can.
LINES = (
    *(
        "<b>x",
        "a <!-- b",
        "</p>",
        "<?php",
        "<a href=x>",
        "Likes a<img src=x>",
        "Uses List<String>",
        "Is &lt;b",
        "Is &#60;b",
    ),
    *(
        "[a](b)",
        "![a]",
        "[a][b]",
        "[a] [b]",
        "[a]: b",
        "Has a[i][j]",
        "# A",
        "## A",
        "> A",
        "- A",
        "[x] A",
        "[x]",
        "``` a",
        "~~~ a",
    ),
    *("#", "-", ">", "#1 fan of jazz", "-5 degrees", "- ", "Where?", "Where？", "Where? "),
    *(f"Likes {mark} tea" for mark in CHAT_MARKS),
)


def test_every_alternative_in_what_can_be_no_line_is_there_for_a_sample() -> None:
    found: list[Variant] = []
    for reason, pattern in memory._UNFIT.items():
        if reason != "it contains a mark of a chat template":  # seen above
            found += variants(memory._UNFIT, reason, pattern)
    assert unseen(found, lambda: [memory.why_unfit(line) for line in LINES]) == []


BACKUPS = (
    *("#NAME#", ".#NAME", "NAME~", ".NAME~", "NAME.~1~", ".NAME.swp", "NAME.un~", "NAME.kate-swp", "NAME.1", "NAME.1~"),
    *(f"NAME{end}" for end in (".bak", "-bak", ".backup", ".old", ".orig", ".save", ".bak2", ".bak.1", ".old-3~")),
)
LEFT = (
    *(".news.12", ".NAME.new", ".memory.db.new", ".NAME.previous", "NAME.unreadable-D", ".NAME.new.unreadable-D"),
    *("memory.db.damaged-D", ".NAME.previous.unreadable-D"),
)


@pytest.mark.parametrize(("form", "names"), [("_BACKUP", BACKUPS), ("_LEFT_ASIDE", LEFT)])
def test_every_alternative_in_the_names_of_files_beside_the_profile_is_there_for_a_sample(
    user: User, form: str, names: Sequence[str]
) -> None:
    user.places.create()
    for name in names:
        whole = name.replace("NAME", "profile.md").replace("-D", "-20261120T120000-1a2b")
        (user.places.directory / whole).touch()
    pattern = getattr(memory, form)
    assert (
        unseen(variants(memory, form, pattern), lambda: memory.files_beside(user.places, getattr(memory, form))) == []
    )
    assert len(memory.files_beside(user.places, pattern)) == len(names)
