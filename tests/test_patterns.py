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
PUBLIC = (
    *("password = settings.key", "password = app.secret", "pw = cfg_password", "password = $KEY_9"),
    *(f"my password is {word}" for word in ("wrong", "stolen", "missing", "visible", "active", "mandatory", "silly")),
    *("password: ~/keys/pw1", f"https://x.org/?page={noise(30)}", f"my public key: {noise(44)}"),
    *(f"-----BEGIN {kind}-----\n{noise(60)}\n-----END {kind}-----" for kind in ("CERTIFICATE", "PUBLIC KEY")),
    f"integrity sha512-{noise(60)}",
)
# A secret, and what is shown of it.
PASSWORDS = {
    **{f"{name}=hunter2porto": f"{name}=[password]" for name in ("passwd", "db_pass", "psk")},
    **{f"{word}: hunter2porto": f"{word}: [password]" for word in ("contraseña", "contrasena", "passwords")},
    "passcode is hunter2-x": "passcode is [password]",
    "password : hunter2porto": "password : [password]",
    '"pw" => "hunter2porto"': '"pw" => "[password]"',
    "my password is marmalade and I like tea": "my password is [password] and I like tea",
    "my password is marmalade but not yours": "my password is [password] but not yours",
    "my password is marmalade": "my password is [password]",
    "my password is marmalade ": "my password is [password] ",
    "the wifi password’s hunter2x": "the wifi password’s [password]",
    "密码是 hunter2x": "密码是 [password]",
    "パスワードは「hunter2x」": "パスワードは「[password]」",
    'curl -u "ann:hunter2-porto" x.org': 'curl -u "ann:[password]" x.org',
    "mysql -u root -p 'hunter2porto'": "mysql -u root -p '[password]'",
    **{
        f"{program} -u root -p hunter2porto": f"{program} -u root -p [password]"
        for program in ("mysql", "mongo", "sshpass", "redis-cli")
    },
}
KEYS = {
    **{f"{name}=s3cr3tvalue99": f"{name}=[key or token]" for name in ("my_sid", "PHPSESSID", "token", "auth")},
    "session: abc1defg": "session: [key or token]",
    "tokens: abc1defg": "tokens: [key or token]",
    "the token “abc1defghij”": "the token “[key or token]”",
    "use sk-abcdefghij-7klmnop": "use [key or token]",
    **{f"{it}.{noise(24)}7": "[key or token]" for it in ("xoxe", "ya29", "hvs", "hvb", "sk", "SG", "sl")},
    f"it is {noise(30)}==": "it is [key or token]",
    f"it is A1-b2-{noise(24)}": "it is [key or token]",
    **{
        f"https://x.org/?{name}={noise(30)}": f"https://x.org/?{name}=[key or token]"
        for name in ("pass", "code", "sig", "api_key")
    },
    **{f"{it} 4f8a1-9b2c7": f"{it} [recovery code]" for it in ("recovery key", "recovery code", "backup code")},
    "backup code abcd-9b2c7": "backup code [recovery code]",
    **{
        f"my {word} words: {WORDS}": f"my {word} words: [recovery code]"
        for word in ("recovery", "seed", "mnemonic", "wallet")
    },
    f"my seed is {WORDS}": "my seed is [recovery code]",
    f"my seed words: {WORDS.replace(' ', ', ')}": "my seed words: [recovery code]",
    "-----BEGIN PRIVATE KEY-----\nab-cd1\n-----END PRIVATE KEY-----": "[private key]",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nab1\n-----END PGP PRIVATE KEY BLOCK-----": "[private key]",
}
TEXTS = [
    *(around.replace("{}", secret) for around, secret in SECRETS.values()),
    *(*HARMLESS, *INNOCENT, *PIECES, *PASSWORDS, *KEYS, *PUBLIC),
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


def test_of_each_sample_its_secret_is_masked_and_nothing_else() -> None:
    expected = PASSWORDS | KEYS | {text: text for text in PUBLIC}
    assert {text: memory.mask_secrets(text) for text in expected} == expected


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
    assert [mark for mark in CHAT_MARKS if memory.without_chat_marks(mark).strip()] == []
    found = variants(memory, "_CHAT_MARKS", memory._CHAT_MARKS)
    assert unseen(found, lambda: [memory.without_chat_marks(mark) for mark in CHAT_MARKS]) == []


# A text that says "I live in Rome" in a quotation only, or does not.
HEADERS = [
    "from",
    "to",
    "cc",
    "date",
    "sent",
    "subject",
    "von",
    "an",
    "betreff",
    "de",
    "para",
    "à",
    "objet",
    "asunto",
    "da",
    "a",
    "oggetto",
    "件名",
    "差出人",
    "主题",
    "发件人",
]
QUOTED = (
    *(f"{name}: x y\n{name}: z\n\nI live in Rome" for name in HEADERS),
    *("From : x\nTo : y\n\nI live in Rome", "From:x\nTo:y\n\nI live in Rome"),
    *("```\nI live in Rome\n```", "~~~\nI live in Rome", "  ```\nI live in Rome\n```"),
    *("> I live in Rome", "  > I live in Rome", "it's said 'I live in Rome'"),
    *("“I live in Rome”", "„I live in Rome“", "„I live in Rome”", "«I live in Rome»", "「I live in Rome」"),
    *(
        "『I live in Rome』",
        '"I live in Rome"',
        "'I live in Rome'",
        "‘I live in Rome’",
        "“I live in Rome” and “I live in Rome”",
    ),
)
PLAIN = (
    *("```\nx\n```\nI live in Rome", "```\nx\n  ```\nI live in Rome", "From: x\n\nI live in Rome"),
    *(
        'a 5" pipe. I live in Rome in 6" of snow',
        "my parents' house. I live in Rome near Ann's",
        "“x” I live in Rome “y”",
    ),
)


def test_every_alternative_in_the_shapes_of_quotations_is_there_for_a_sample() -> None:
    def quoted() -> list[str]:
        memory.is_quoted.cache_clear()
        return [text for text in (*QUOTED, *PLAIN) if memory.is_quoted("I live in Rome", text)]

    assert quoted() == [*QUOTED]
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
CLASSES = ("ConnectError", "APIConnectionError", "ProtocolError", "ReadError", "URLError", "SSLError")


def failure(text: str, name: str = "APIError", status: int | None = None) -> Exception:
    error: Exception = type(name, (Exception,), {"status_code": status} if status else {})(text)
    return error


FAILURES = (
    *((memory.HOPELESS, failure(text)) for text in TOO_LONG),
    *((memory.HERE, failure(text)) for text in KEYS_WRONG),
    *((memory.HERE, failure("sorry", name)) for name in ("NeedsKey", "AuthenticationError")),
    *((memory.HERE, failure("the rate limit", "APIStatusError", status)) for status in (401, 403)),
    *((memory.PASSING, failure(text)) for text in NOT_NOW),
    *((memory.PASSING, failure("sorry", name)) for name in CLASSES),
    *((memory.PASSING, failure("sorry", "APIStatusError", status)) for status in (408, 429, 500)),
    (memory.PASSING, failure("Your credit balance is too low", "BadRequestError", 400)),
    *((memory.REFUSED, failure("the rate limit", "APIStatusError", status)) for status in (400, 404, 413, 422)),
    *((memory.REFUSED, failure(text)) for text in ("reconnect the wires", "sorry")),
)


def test_every_alternative_in_what_a_failure_says_is_there_for_a_sample() -> None:
    def kinds() -> list[tuple[str, str]]:
        return [(memory.why_failed("m", error).kind, str(error)) for _, error in FAILURES]

    assert kinds() == [(kind, str(error)) for kind, error in FAILURES]
    found: list[Variant] = []
    rows = memory._FAILURES
    for at, (pattern, *meaning) in enumerate(rows):
        found.append((f"all of: {pattern}", memory, "_FAILURES", (*rows[:at], *rows[at + 1 :], rows[-1])))
        for gone, left in without_each(pattern):
            changed = (*rows[:at], (left, *meaning), *rows[at + 1 :])
            found.append((f"{meaning[0]}: {gone}", memory, "_FAILURES", changed))
    assert unseen(found[:-1], kinds) == []


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
