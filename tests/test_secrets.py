"""Secrets: what is one and what is not, and what is shown in its place."""

from __future__ import annotations

import random
import re
import string

import pytest
from attacks import SECRETS

from llm_user_memory import as_shown, mask_secrets, why_secret

MIXED, SMALL, HEX = string.ascii_letters + string.digits, string.ascii_lowercase + "234567", "0123456789abcdef"


def noise(length: int, characters: str = MIXED) -> str:
    chooser = random.Random(length)
    return "".join(chooser.choice(characters) for _ in range(length))


# What people type around a secret, assembled from pieces so that no scanner takes this file for a leak.
TYPED = {
    "putty key": ("Private-Lines: 1\n{}\n", noise(64)),
    "webhook": ("post to https://discord.com/api/webhooks/1234567/{}", noise(40)),
    "letters only after a prefix": ("login with {} on the cluster", "hf" + "_" + noise(34, string.ascii_letters)),
    "hexadecimal after a prefix": ("supabase link {}", "sbp" + "_" + noise(40, HEX)),
    "bare": ("they gave me {} to try", noise(40)),
    "bare in lower case": ("my pat {} does not work", noise(52, SMALL)),
    "Ethereum key": ("import {} into the wallet", "0x" + noise(64, HEX)),
    "groups of a one-time password": ("the setup key: {}", "JBSW Y3DP " + "EHPK 3PXP"),
    "named, hexadecimal": ("DD_API_KEY={}", noise(32, HEX)),
    "named, a UUID": ("HEROKU_API_KEY={}", "ba704c1e-148c-46e0-" + "a5cc-67eedf111eb5"),
    "named by its header": ("curl -H 'X-Api-Key: {}' https://api.example", noise(36)),
    "named by its parameter": ("https://x.example/c?sv=2024-11-04&sig={}&sp=r", noise(43)),
    "named, of words": ("JWT_SECRET={}", "my-Super-" + "s3cret"),
    "session": ("Cookie: sessionid={}; theme=dark", noise(32, SMALL)),
    "recovery codes": ("backup codes: {}", "4f8a1-9b2c7 77d01-aa3e9"),
    "recovery codes on lines": ("recovery codes:\n{}", "4f8a1-9b2c7\n77d01-aa3e9"),
    "login of an address": ("redis://:{}@cache:6379/0", "Fuo-mx" + "VNS8"),
    "key as a login": ("dsn https://{}@o1.ingest.example/1", noise(32, HEX)),
    "container": ("docker run -e POSTGRES_PASSWORD={} postgres", "kiwi-" + "lamp"),
    "JSON": ('{"user": "lea", "password": "{}"}', "tromb" + "one"),
    "connection string": ("Server=db;Uid=sa;Pwd={};Encrypt=true", "Zebra!" + "cross4"),
    "words": ("the wifi password is {}, can you make a sign", "sunflower " + "fields"),
    "a word": ("our guest password is {}", "marma" + "lade"),
    "changed": ("I changed my password to {} yesterday", "Orchid#" + "2026"),
    "far from its name": ("she set the password of the old laptop as {}", "Muffin#" + "1"),
    "said before its name": ("I use {} as my password everywhere", "hunter2" + "!x"),
    "pair": ("login is anna / {}", "Blue!" + "Goose77"),
    "command": ("sshpass -p '{}' ssh me@host", "Gr4vel!" + "Pit"),
    "Spanish": ("la clave del wifi es {}", "gatonegro" + "2024"),
    "Portuguese": ("a senha do banco é {}", "abacaxi" + "#12"),
    "Polish": ("moje hasło: {}", "Pier" + "ogi"),
    "Turkish": ("wifi şifresi {}", "kedi" + "4455"),
    "Russian": ("пароль от роутера — {}", "snegir" + "2019"),
    "Chinese": ("WiFi密码是{}，别忘了", "shanghai" + "888"),
    "Japanese": ("パスワードは{}です", "sakura" + "8823"),
    "Korean": ("비밀번호는 {} 입니다", "kimchi" + "7788"),
    "Arabic": ("كلمة المرور هي {}", "nakheel" + "4421"),
    "Hindi": ("पासवर्ड है {}", "Mithai" + "@55"),
    "named words of a wallet": ("seed phrase: {}", "legal winner thank year wave " + "sausage"),
    "words of a wallet": (
        "is this valid? {}",
        "scheme spot photo card baby mountain device kick " + "cradle pact join borrow",
    ),
    "PIN": ("PIN der Karte: {}", "82" + "64"),
    "code of a Swedish door": ("portkoden är {}, skriv in den", "44" + "75#"),
    "a line of .pgpass": ("db1.corner.example:5432:shop:report:{}", "YjVe" + "XlKJi2oh8z"),
    "a code for wifi": ("WIFI:T:WPA;S:Duene;P:{};;", "moewe" + "9360"),
    "for sudo": ("echo '{}' | sudo -S reboot", "kelp#" + "Harbour30"),
    "reset": ("support reset it to {} today", "Tulip-2958" + "-raft"),
    "for an app": ("app password from google is {}, still refused", "lcoq onoa " + "rlwo ubrt"),
    "of curl": ("curl -u marek:'{}' https://nas.local", "Tram-3MR" + "9mUXm"),
    "one recovery code": ("recovery codes, one left: {}, now what", "1fc04" + "-ab53e"),
    "codes without a name": (
        "still valid?\n{}",
        "f39d8-cb2ab\ne03ae-9fa86\n121e6-cef29\n" + "a7092-93a84\n59ed5-fe13d",
    ),
    "refresh token": ("oauth2l refresh {} fails", "1//0" + noise(60)),
    "key of a mailing service": ("mailchimp {} exported", noise(32, HEX) + "-us21"),
    "PUK of a Swede": ("PUK-koden är {} men", "46719" + "896"),
    "BitLocker": ("is {} the one", "-".join(["435" + "292"] * 8)),
    "code of a door": ("il codice del cancello è {}", "19" + "47"),
    "card code": ("exp 09/27 cvv {}", "7" + "37"),
    "card": ("declined: {} 08/29", "5369 4713 " + "1535 6599"),
    "account": ("{} is mine", "ES91 2100 0418 " + "4502 0005 1332"),
    "social security number": ("my social is {}", "512-48" + "-3391"),
    "number of a Pole": ("mój PESEL to {}", "840214" + "12357"),
    "number of a Spaniard": ("mi DNI es {}", "53482" + "917K"),
}

HARMLESS = (
    # talk about secrets, questions, placeholders
    *("forgot my password, how do I reset it", "the wifi password is too long to type", "password is case sensitive"),
    *("password: changeme is in the template", "password = getpass.getpass()", "token: ${{ secrets.GITHUB_TOKEN }}"),
    *("api_key = os.environ['KEY_2']", "postgres://user:password@localhost/db", "la contraseña es incorrecta"),
    *("пароль должен содержать 8 символов", "パスワードは8文字以上です", "das Passwort steht auf dem Router"),
    *(
        "A passphrase of six words is better",
        "recovery codes are printed",
        "token limit is 128k",
        "2FA codes arrive late",
    ),
    *("my social life in 2024", "my passport expires 2027-05-01", "the PIN code 94110 is San Francisco", "GPIO pin 17"),
    # public, though random
    *("commit 9b1deb4d3b7d4bad9bdd2b0d7b3dcb6d1a2f3c4e", "request 6f1c2a52-3b1e-4a57-9d2b-2f0d3c6f9a11 is slow"),
    *(
        f"nginx@sha256:{noise(64, HEX)}",
        f"data:image/png;base64,{noise(80)}",
        f"ssh-rsa AAAAB3NzaC1yc2E{noise(60)} me@box",
    ),
    *(
        f"https://docs.example/d/{noise(44)}/edit",
        f"https://example.org/?utm_id={noise(30)}",
        f"/nix/store/{noise(32, SMALL)}-x",
    ),
    *(f"donate to 0x{noise(40, HEX)}", f"ETag: W/{noise(27)}", "order 4532 0151 1283 0366", "IMEI: 490154203237518"),
    *(
        f"refund pi_{noise(24)} of cus_{noise(14)}",
        f"pk_live_{noise(60)} may be public",
        f'data-sitekey="6LZ{noise(37)}"',
    ),
    "PGP fingerprint D7E6 1D37 A2D4 91CC 578D 2331 3FBE BCC6 42A5 C3FF",
    "the box is at 2001:0db8:85a3:0000:0000:8a2e:0370:7334 for now",
    *(
        "ISIN IE00B4L5Y983 is my ETF",
        "Message-ID: <CA2WZjAAnnPZfT17XMhZCL@mail.example>",
        f"spotify:playlist:{noise(22)}",
    ),
    *("パスワードマネージャーは1Passwordを使っています", "password: ${DB_PASSWORD:?missing} in compose"),
    *("ConvertHtml2PdfAndSendViaS3BucketHandlerV2Impl", "Qwen3-Coder-30B-A3B-Instruct-GGUF-Q4_K_M", "#100DaysOfCode"),
    *("r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR b KQkq", "1. d4 Nf6 2. c4 g6 3. Nc3 Bg7 4. e4 d6"),
    "want to buy milk eggs bread cheese butter apples onions garlic rice beans pasta salt pepper",
    "please write some short funny poems about clever brown foxes jumping over lazy sleeping dogs",
)


@pytest.mark.parametrize("name", [*SECRETS, *TYPED])
def test_a_secret_is_masked_and_nothing_else(name: str) -> None:
    around, secret = TYPED.get(name) or SECRETS[name]
    text = around.replace("{}", secret)
    masked = mask_secrets(f"Likes tea. {text}\n\nLikes milk.")
    assert re.fullmatch(r"an? [\w ]+", why_secret(text))
    assert secret not in masked
    assert masked.startswith("Likes ")
    if name in TYPED:
        first = around.split("{}")[0].split()[:1]
        assert masked.startswith(" ".join(["Likes tea.", *first]).split("=")[0])
        assert masked.endswith("\n\nLikes milk.")
        assert len(re.findall(r"\[[\w ]+\]", masked)) == 1


@pytest.mark.parametrize("text", HARMLESS)
def test_ordinary_text_that_looks_odd_is_not_a_secret(text: str) -> None:
    assert why_secret(text) == ""
    assert mask_secrets(text) == text


def test_a_mask_says_what_was_there_and_keeps_the_rest() -> None:
    (one, first), (two, second) = SECRETS["GitHub token"], SECRETS["card"]
    before, middle, after = f"{one}; {two}!".replace(first, "\0").replace(second, "\0").split("\0")
    masked = mask_secrets(f"{one}; {two}!")
    assert re.fullmatch(rf"{re.escape(before)}\[[\w ]+\]{re.escape(middle)}\[card number\]{re.escape(after)}", masked)


def test_a_secret_inside_another_or_across_the_cut_of_a_long_message_is_masked_whole() -> None:
    key = SECRETS["OpenAI key"][1]
    assert re.fullmatch(r"(?:password: )?\[[\w ]+\] and more", mask_secrets(f"password: {key}{key} and more"))
    for words in range(1_470, 1_500):
        shown = as_shown("a " * words + key + " b" * 3_000)
        assert not [at for at in range(0, len(key) - 6, 6) if key[at : at + 6] in shown]


def test_the_dotted_capital_i_which_is_longer_in_lower_case_shifts_no_mask() -> None:
    text, _ = SECRETS["GitHub token"]
    assert mask_secrets(f"İİİ {text} İ") == f"İİİ {mask_secrets(text)} İ"
    assert mask_secrets("İstanbul, my password is " + "hunter2-" + "Porto") == "İstanbul, my password is [password]"
    assert why_secret("Kod: İP12 1234 5678 9012 34") == ""
