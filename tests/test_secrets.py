"""Secrets: what is one and what is not, and what is shown in its place."""

from __future__ import annotations

import json
import re
import time

import pytest
import secret_sets
from attacks import HEX, INNOCENT, SECRETS, SMALL, noise

import llm_user_memory as memory
from llm_user_memory import as_shown, mask_secrets, why_secret

HARMLESS = (
    # talk about secrets, questions, placeholders
    *("forgot my password, how do I reset it", "the wifi password is too long to type", "password is case sensitive"),
    *("password: changeme is in the template", "password = getpass.getpass()", "token: ${{ secrets.GITHUB_TOKEN }}"),
    *("api_key = os.environ['KEY_2']", "postgres://user:password@localhost:5432/mydb", "la contraseña es incorrecta"),
    *("пароль должен содержать 8 символов", "パスワードは8文字以上です", "das Passwort steht auf dem Router"),
    *("A passphrase of six words is better", "recovery codes are printed", "token limit is 128k"),
    *("my pin collection has 340 pieces", "das Passwort habe ich 2023 geändert", "la clave de sol y 4 sostenidos"),
    *("my social life in 2024", "my passport expires 2027-05-01", "the PIN code 94110 is San Francisco", "GPIO pin 17"),
    "it says the password is incorrect even though caps lock is off",
    '<input id="pw" type="password" autocomplete="current-password" minlength="8">',
    "def reset_password(user, new_password):\n    if not tokens.verify(token, max_age=3600):",
    "/x/outside/tent Xq9zKv2LwT7b",
    *("LoadCredential=passphrase:/etc/credstore/borg", "路由器的密码忘记了,型号是 TL-XDR5480,要按复位键几秒?"),
    "ping fe80::1ff:fe23:4567:890a%eth0 works, 2001:db8:85a3::8a2e:370:7334 doesn't",
    *("OPENAI_API_KEY=sk-your-key-here", "Schlüsselnummer HSN 0603, passt da CT1139K1?"),
    # public, though random
    *("uuid v1.6.0 h1:NIvaJDMOsjHA8n1jAhLSgzrAzy1Hgr+hNrb57e+94F0=", "request_id=req_4f022ce4609e0ccf20d5f53b"),
    *("commit 9b1deb4d3b7d4bad9bdd2b0d7b3dcb6d1a2f3c4e", "request 6f1c2a52-3b1e-4a57-9d2b-2f0d3c6f9a11 is slow"),
    *(f"nginx@sha256:{noise(64, HEX)}", f"data:image/png;base64,{noise(80)}", f"ssh-rsa AAAAB3NzaC1yc2E{noise(60)} x"),
    *(f"https://docs.example/d/{noise(44)}/edit", f"https://x.org/?id={noise(30)}", f"/nix/store/{noise(32, SMALL)}-x"),
    *(f"donate to 0x{noise(40, HEX)}", f"ETag: W/{noise(27)}", "IMEI: 490154203237518"),
    *(f"refund pi_{noise(24)} of cus_{noise(14)}", f"pk_live_{noise(60)} may be public"),
    "PGP fingerprint D7E6 1D37 A2D4 91CC 578D 2331 3FBE BCC6 42A5 C3FF",
    "the box is at 2001:0db8:85a3:0000:0000:8a2e:0370:7334 for now",
    *("パスワードマネージャーは1Passwordを使っています", "password: ${DB_PASSWORD:?missing} in compose"),
    *("Qwen3-Coder-30B-A3B-Instruct-GGUF-Q4_K_M", "#100DaysOfCode"),
    *("r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR b KQkq", "1. d4 Nf6 2. c4 g6 3. Nc3 Bg7 4. e4 d6"),
    *("pin 1317 of the FPGA bank", "codes python rust swift kotlin scala julia ruby perl bash java haskell"),
    "want to buy milk eggs bread cheese butter apples onions garlic rice beans pasta salt pepper",
    "please write some short funny poems about clever brown foxes jumping over lazy sleeping dogs",
)


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_masked_and_nothing_else(name: str) -> None:
    around, secret = SECRETS[name]
    text = around.replace("{}", secret)
    masked = mask_secrets(f"Likes tea. {text}\n\nLikes milk.")
    assert why_secret(text)
    assert not [at for at in range(0, len(secret) - 5, 6) if secret[at : at + 6] in masked]
    assert secret not in masked
    first = around.split("{}")[0].split()[:1]
    assert masked.startswith(" ".join(["Likes tea.", *first]).split("=")[0])
    assert masked.endswith("\n\nLikes milk.")
    assert len(re.findall(r"\[[\w ]+\]", masked)) == 1


@pytest.mark.parametrize("prefix", ["hvs.", "hvb.", "ya29.", "sl.", "SG.", "xoxe.xoxp-", "sk.eyJ1Ijoi"])
def test_a_token_behind_a_dotted_prefix_is_masked(prefix: str) -> None:
    for length in (24, 40, 90):
        token = prefix + noise(length) + "7"
        assert token not in mask_secrets(f"export it as {token} please"), token


def test_a_secret_is_masked_wherever_it_stands_again_unless_it_is_a_mere_word() -> None:
    odd, plain = "Lukewarm!" + "Otter", "dragon"
    assert odd not in mask_secrets(f"password={odd}\n\nlogin(('heat', '{odd}'))")
    assert mask_secrets(f"my password is {plain}, and I like {plain}fruit").endswith(f"I like {plain}fruit")


PIECES = {  # of the patterns that others are made of: a text that only it gets right
    "connect.sid=s3cr3tvalue99": "connect.sid=[key or token]",
    "basic dXNlcjpodW50ZXIy99": "basic [key or token]",
    "psk=hunter2porto": "psk=[password]",
    "pwd: hunter2-porto": "pwd: [password]",
    "pw is hunter2porto.": "pw is [password].",
    "curl -u ann:hunter2-porto x.org": "curl -u ann:[password] x.org",
    "password = settings.token": "password = settings.token",
}


@pytest.mark.parametrize("text", PIECES)
def test_what_one_piece_of_a_pattern_gets_right(text: str) -> None:
    assert mask_secrets(text) == PIECES[text]


@pytest.mark.parametrize("text", [*HARMLESS, *INNOCENT])
def test_ordinary_text_that_looks_odd_is_not_a_secret(text: str) -> None:
    assert (why_secret(text), mask_secrets(text)) == ("", text)


def test_a_mask_says_what_was_there_and_keeps_the_rest() -> None:
    (one, first), (two, second) = SECRETS["GitHub token"], SECRETS["card"]
    masked = mask_secrets(f"{one}; {two}!".replace("{}", first, 1).replace("{}", second))
    assert masked == "push with [key or token] please; my card [card number] expires in May!"


def test_a_secret_inside_another_or_across_the_cut_of_a_long_message_is_masked_whole() -> None:
    key = SECRETS["OpenAI key"][1]
    assert re.fullmatch(r"(?:password: )?\[[\w ]+\] and more", mask_secrets(f"password: {key}{key} and more"))
    around, secret = SECRETS["private key"]
    assert mask_secrets(around.replace("{}", secret)[:100]) == "it is [private key]"
    for words in range(1_470, 1_500):
        shown = as_shown("a " * words + key + " b" * 3_000)
        assert not [at for at in range(0, len(key) - 6, 6) if key[at : at + 6] in shown]


def test_the_dotted_capital_i_which_is_longer_in_lower_case_shifts_no_mask() -> None:
    password = "my password is " + "hunter2-" + "Porto"
    assert mask_secrets(f"İstanbul İİ, {password} İ") == "İstanbul İİ, my password is [password] İ"
    assert why_secret("Kod: İP12 1234 5678 9012 34") == ""
    assert why_secret("\u212aP12 1234 5678 9012 34") == ""  # the sign for kelvin, whose lower case is a k


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a ",
        "sk-",
        "key=",
        "a:b@",
        "-",
        '"',
        "1 ",
        "the password is ",
        "recovery codes: ",
        "-----BEGIN PRIVATE KEY-----",
    ],
)
def test_no_text_takes_minutes(piece: str) -> None:
    began = time.process_time()  # a megabyte takes about a second
    mask_secrets(piece * (200_000 // len(piece)))
    assert time.process_time() - began < 3


# What an atom of the table matches, and what it must not.
ATOMS = {
    "QUOTE": ("„", "-"),
    "VALUE": ("hunter2-porto", "<hunter2>"),
    "CODED": ("hunter2", "marmalade"),
    "PLACEHOLDER": ("$(", "hunter2"),
    "IS": ('": "', " - "),
    "PASSWORD": ("contraseña", "passport"),
    "KEY": ("key_id", "sidecar"),
    "CODE": ("4f8a1-9b2c7", "north-south"),
}


@pytest.mark.parametrize("name", memory._ATOMS)
def test_an_atom_of_the_table_matches_its_example_and_no_other(name: str) -> None:
    shape = memory._spelled(memory._ATOMS[name])
    example, other = ATOMS[name]
    assert re.fullmatch(shape, example)
    assert not re.match(shape, other)


def test_every_row_of_the_table_masks_what_no_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [around.replace("{}", secret) for around, secret in SECRETS.values()]
    for path in secret_sets.HERE.glob("*.jsonl"):
        samples = (json.loads(line) for line in path.read_text("utf-8").splitlines())
        texts += [one["text"].replace("{}", "".join(one["secret"]), 1) for one in samples if "secret" in one]
    masked = [mask_secrets(text) for text in texts]
    for group, rows in memory.SECRETS.items():
        for row in rows:
            others = [other for other in rows if other != row]
            monkeypatch.setitem(memory.SECRETS, group, others)
            assert masked != [mask_secrets(text) for text in texts], row
        monkeypatch.setitem(memory.SECRETS, group, rows)


def test_what_only_begins_like_a_public_key_is_masked() -> None:
    assert "aaaa" not in memory.mask_secrets("my api_key = sk-proj-aaaabbbbccccddddeeeeffff11112222")
    assert "aaaa" not in memory.mask_secrets("my password is aaaabbbbccccdddd1111")
