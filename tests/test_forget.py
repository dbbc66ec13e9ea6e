"""What is forgotten is gone for good, and what is cleared comes back only if it was not purged."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import sqlite3

import pytest
from conftest import PROFILE, User

from llm_user_memory import (
    REDACTED,
    Document,
    Edit,
    Item,
    Log,
    Message,
    Problem,
    Says,
    Verdict,
    forget_for_good,
    saying,
    take_in,
)


def forget(user: User, text: str) -> None:
    """Forget as the command does, while something else has memory open."""
    with user.memory() as memory:
        forget_for_good(memory, Log(user.places.logs), saying(text))


# Gone


def test_what_is_forgotten_is_in_no_byte_of_any_of_our_files(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    user.has_learned("Lives in Zanzibar", "I live in Zanzibar")
    user.has_to_review(
        Edit("ADD", "Preferences", "Recommend Zanzibar", "I say recommend Zanzibar"),
        Edit("ADD", "Preferences", "Recommend tea", "as they say in zanzibar"),
    )
    user.types("I say so", "Nobody knows where I live")
    user.learns("ADD | Notes | From Zanzibar | my home is Zanzibar")
    user.types("I have a dog")
    with user.memory() as memory:
        edit = Edit("ADD", "Notes", "Lives on an island", "")
        memory.review.refuse([Verdict(edit, "reject", "the user did not type “Zanzibar”")])
        take_in(memory, Log(user.places.logs))
        memory.turns.put_off(memory.turns.due(), "the service refused: 'I live in Zanzibar'")
        memory.db.report("condense", "the service refused: 'I live in Zanzibar'")
    user.places.database.with_name("memory.db.damaged-20260101T000000-0a1b").write_bytes(b"... Zanzibar ...")
    user.profile = "- ZANZIBAR, saved by an editor\n- Stays\n"
    user.run("history")
    with user.places.profile.open("rb+") as displaced:
        user.run("add", "Plays chess")
        displaced.write(b"\xff Zanzibar")
    user.run("history")
    user.places.profile.write_bytes(b"\xff Zanzibar\n")
    user.run("load", "-", stdin=f"{PROFILE}- Zanzibar!\n")
    assert len(user.files_with("Zanzibar")) >= 5
    said = user.llm("memory", "forget", "zanzibar", "--yes", auto=None).stderr
    assert said.startswith("In the profile:\n  - Zanzibar!\n")
    assert "Forgotten." in said
    assert "logs.db" in said, "what llm's own log still contains, and where"
    assert user.files_with("Zanzibar") == []
    assert user.profile == PROFILE
    assert user.to_review() == []
    assert "[forgotten]" in user.run("diff", "0", "3")[0]
    assert user.run("why", "--refused")[1] == "Nothing was refused.\n"
    assert user.pending() == 1, "the dog's message, which was only put off"


def test_forgetting_reaches_what_lay_beside_a_profile_before_it_became_a_symlink(user: User) -> None:
    user.run("load", "-", stdin=PROFILE + "- Has a secret twin\n")
    elsewhere = user.folder / "dots" / "me.md"
    elsewhere.parent.mkdir()
    with user.places.profile.open("rb+"):  # an editor has it open, so it is kept
        user.run("add", "Plays chess")
        os.rename(user.places.profile, elsewhere)
        user.places.profile.symlink_to(elsewhere)
        assert ".profile.md.previous" in user.files_with("secret twin")
        user.run("forget", "secret twin", "--yes")
        assert user.files_with("secret twin") == []
    assert [path for path in elsewhere.parent.iterdir() if b"secret twin" in path.read_bytes()] == []


@pytest.mark.parametrize("seed", range(3))
def test_forgetting_leaves_no_pieces_in_the_pages_of_the_database(user: User, seed: int) -> None:
    """SQLite keeps pieces of what it moved between pages, here with some of the seeds, also with secure_delete."""
    chance = random.Random(seed)
    with user.memory() as memory:
        for part in range(3):
            lines = ["".join(chance.choices("abcdefgh ", k=chance.randint(5, 150))) for _ in range(700)]
            lines[7::10] = [f"Zanzibar {part} {n}" for n in range(70)]
            memory.history.overwrite("load", "".join(f"- {line}\n" for line in lines))
        memory.forgetting.forget(saying("Zanzibar"))
    assert user.files_with("Zanzibar") == []


def test_forgetting_leaves_everything_else_and_no_version_brings_it_back(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    user.has_learned("Has a dog", "I have a dog")
    user.run("clear")
    user.run("forget", "Leeds", "--yes")
    assert user.text_of(1) == PROFILE.replace("Lives in Leeds", "[forgotten]")
    kept = PROFILE.replace("- Lives in Leeds\n", "")
    user.run("rollback", "1")
    assert user.profile == kept
    user.run("rollback", "--only", str(user.versions()[-1][0]))
    user.run("rollback", "--only", "3")
    assert user.profile == kept.replace("Information\n", "Information\n- Has a dog\n")
    assert "I have a dog" in user.run("why", "dog")[0]


def test_a_line_stays_when_only_its_receipt_or_an_earlier_wording_is_forgotten(user: User) -> None:
    user.profile = PROFILE
    user.types("Since I moved to Leeds I play chess", "I moved to York")
    user.learns(
        "ADD | Interests | Plays chess | Since I moved to Leeds I play chess\n"
        f"REPLACE | {user.id_of('Lives in Leeds')} | Lives in York | I moved to York"
    )
    user.run("forget", "Leeds", "--yes")
    assert user.facts == ["Lives in York", "Likes short answers", "Plays chess"]
    shown = user.run("why", "York")[0]
    assert "I moved to York" in shown
    assert "before that" not in shown
    assert user.files_with("Leeds") == []


def test_a_line_removed_by_a_prompt_can_be_erased_and_other_removals_stay(user: User) -> None:
    for fact, quote, removal in (
        ("Has a cat", "I have a cat", "forget that I have a cat"),
        ("Plays chess", "I play chess", "no chess any more"),
    ):
        user.has_learned(fact, quote)
        user.types(f"Please, {removal}")
        assert user.learns(f"REMOVE | {user.id_of(fact)} | {removal}")
    assert user.files_with("have a cat")
    user.run("forget", "Has a cat", "--yes")
    assert user.files_with("a cat") == []
    with user.memory() as memory:
        assert memory.turns.how_many("forgotten") == 2


def test_a_heading_is_the_users_to_rename_and_then_goes_out_of_history(user: User) -> None:
    text = "# User Profile\n\n## Project Bluebird\n- Writes Go\n```\n# Bluebird, the code\n```\n"
    user.profile = text
    said = user.run("forget", "Bluebird", "--yes")[1]
    assert "“Project Bluebird” still says it" in said
    assert user.profile == text.replace("# Bluebird, the code\n", "")
    assert "To change a heading: llm memory edit" in user.run("forget", "Bluebird", "--yes", code=1)[1]
    user.profile = user.profile.replace("Project Bluebird", "Projects")
    user.run("forget", "Bluebird", "--yes")
    assert user.files_with("Bluebird") == []
    user.run("add", "Plays chess", "--section", "Interests")
    user.run("clear")
    user.run("forget", "interests", "--yes", code=1)
    assert "## Interests" in user.text_of(user.versions()[-2][0]), "a heading of ours is not the user's to forget"
    user.profile = "\ufeff# Anna's profile\n- Anna plays chess\n"
    user.run("forget", "anna", "--yes")
    assert user.text_of(user.versions()[-1][0]) == user.profile == "\ufeff# Anna's profile\n"


# Naming it


def test_forget_lists_everything_that_goes_and_asks_first(user: User) -> None:
    user.run("load", "-", stdin="- Lives in Leeds\n- Leeds United fan\n")
    user.run("load", "-", stdin="- Lives in Leeds\n")
    user.has_learned("Works in Leeds", "I work in Leeds")
    user.has_learned("Walks to work", "I walk to work in Leeds")
    user.has_to_review(Edit("ADD", "Notes", "Recommend Leeds", "I recommend Leeds"))
    user.types("I like tea a lot")
    user.learns("ADD | Notes | Likes Leeds | I like Leeds")
    before = user.profile, user.versions()
    said = user.run("forget", "Leeds", stdin="n\n", code=1)[1]
    assert said.partition("This will")[0].splitlines() == [
        *("In the profile:", "  - Lives in Leeds", "  - Works in Leeds"),
        *("In its history:", "  - Leeds United fan"),
        *("To review:", "  + Recommend Leeds"),
        *("Not learned:", "  + Likes Leeds"),
        *("What you typed:", "  I work in Leeds", "  I walk to work in Leeds"),
    ]
    assert "Forget it? [y/N]" in said
    assert (user.profile, user.versions()) == before
    user.run("forget", "Leeds", stdin="y\n")
    assert user.files_with("Leeds") == []


def test_forget_takes_a_whole_line_as_show_prints_it_or_part_of_one(user: User) -> None:
    user.run("load", "-", stdin="- [ ] Learns Polish\n1. Plays chess\n2. Has cats\n3. Was born on 2 May\n")
    user.has_to_review(Edit("ADD", "Interests", "Plays chess in a club", "I say I play chess in a club"))
    user.run("forget", "--yes", "--", "- [ ] Learns Polish")
    user.run("forget", "1. Plays chess", "--yes")
    assert user.files_with("Polish") + user.files_with("chess") == []
    user.run("forget", "2", "--yes")
    assert user.profile == "2. Has cats\n", "the number of a list entry is not part of its text"


def test_forget_takes_an_id_for_that_line_alone(user: User) -> None:
    user.profile = f"{PROFILE}- Lives in Leeds on weekends\n"
    shown = user.run("show", "--ids")[0]
    assert re.sub(r"^\[[a-z]+\] ", "", shown, flags=re.MULTILINE) == user.profile
    ids = {text: id for id, text in re.findall(r"^\[([a-z]+)\] - (.*)$", shown, re.MULTILINE)}
    assert ids == {fact["text"]: fact["id"] for fact in json.loads(user.run("show", "--json")[0])["facts"]}
    said = user.run("forget", ids["Likes short answers"], "--yes")[1]
    assert said.startswith("In the profile:\n  - Likes short answers\n")
    user.run("forget", f"[{ids['Lives in Leeds']}]", "--yes")
    assert user.facts == ["Lives in Leeds on weekends"]
    assert user.files_with("Lives in Leeds on weekends")


def test_an_id_that_is_also_a_word_needs_brackets(user: User) -> None:
    (word,) = Document("- Likes tea\n").ids
    user.profile = f"- Likes tea\n- Plays {word}ball\n"
    user.run("forget", word, "--yes", code=1)
    user.profile = f"- Likes tea\n- Plays {word} ball\n"
    user.run("forget", word, "--yes")
    assert user.facts == ["Likes tea"]
    user.run("forget", f"[{word}]", "--yes")
    assert user.facts == []


@pytest.mark.parametrize(
    ("text", "goes", "stays"),
    [
        ("tea", "Likes tea with milk", "Takes the bus instead"),
        ("TKT-100", "Bought TKT-100", "Bought TKT-1000"),
        ("TKT-100", "Bought TKT-100/a", "Bought NTKT-100"),
        ("Frank", "Frank's colleague", "Likes a frank discussion"),
        ("Frank", "FRANK is a colleague", "Says frankly what it is"),
        ("frank", "Frank’s colleague", "Is from Frankfurt"),
        ("mia's", "Is Mia’s mother", "Is Mia"),
        ("Zoë", "Is Zoe\u0308's mother", "Is Zoëlla"),
        ("straße", "Lives in the Bahnhof-Straße", "Lives in the Bahnhofstraße"),
        ("C++", "Writes C++", "Writes C"),
        (".com", "Works at acme.com", "Works at acme.company"),
        ("東京", "東京都に住んでいる", "京都に住んでいる"),
        ("Leeds", "Leedsに住んでいる", "Leedsonに住んでいる"),
        ("กรุงเทพ", "อยู่กรุงเทพมานาน", "อยู่เชียงใหม่"),
        ("राम", "राम से मिला", "आराम पसंद है"),
        ("राम", "मेरा भाई राम", "रामायण पढ़ता है"),
        ("علي", "أخوه علي", "علينا السفر"),
        ("a b a", "Says x a b a b a", "Says a b ab"),
    ],
)
def test_a_text_is_found_as_whole_words_with_its_capitals(text: str, goes: str, stays: str) -> None:
    assert (saying(text)(goes), saying(text)(stays)) == (True, False)


def test_parts_of_words_are_forgotten_only_when_asked_for(user: User) -> None:
    for goes, stays in (("Likes tea", "Likes teatime"), ("東京都に住む", "京都に住む")):
        user.run("load", "-", stdin=f"- {goes}\n- {stays}\n- Stays\n")
        user.has_to_review(Edit("ADD", "Notes", goes, "as I said"), Edit("ADD", "Notes", stays, "as I said"))
    user.run("forget", "tea", "--yes")
    user.run("forget", "東京", "--yes")
    assert user.text_of(1) == f"{REDACTED}- Likes teatime\n- Stays\n"
    assert user.profile == "- 京都に住む\n- Stays\n"
    assert [held["fact"] for held in user.to_review()] == ["Likes teatime", "京都に住む"]
    assert user.files_with("東京都") == []
    user.run("load", "-", stdin="- Likes teatime\n- Likes TEAROOMS\n- Stays\n")
    assert "To also look inside words: --part" in user.run("forget", "Tea", "--yes", code=1)[1]
    user.run("forget", "--part", "Tea", "--yes")
    assert user.facts == ["Stays"]
    assert user.files_with("tea") == []


def test_a_name_is_forgotten_also_where_it_was_typed_without_its_capital(user: User) -> None:
    user.has_learned("Has a dog", "my girlfriend maria gave me a dog")
    user.run("add", "Girlfriend is Maria")
    assert "my girlfriend maria gave me a dog" in user.run("forget", "Maria", "--yes")[1]
    assert user.facts == ["Has a dog"]
    assert user.files_with("maria") == []


def test_forgetting_what_is_not_there_is_an_error_and_forgets_nothing(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    for text in ("", "   ", "Timbuktu"):
        assert "see: llm memory show" in user.run("forget", text, "--yes", code=1)[1]
    assert user.text_of(1) == user.profile == PROFILE


# Messages


def test_turns_of_what_is_forgotten_are_never_learned_again(user: User) -> None:
    user.has_learned("Lives in Leeds", "I live in Leeds")
    user.types("I told you that I love Leeds")  # logged, and not looked at yet
    user.run("forget", "Leeds", "--yes")
    log = user.places.logs.read_bytes()
    user.places.logs.unlink()
    user.places.logs.write_bytes(log)  # restored from a backup
    with user.memory() as memory:
        memory.turns.retry()
    asked: list[str] = []
    assert user.learns("ADD | Interests | Loves Leeds | I love Leeds", lambda: asked.append("")) is None
    assert asked == []
    assert user.files_with("Leeds") == []


def test_a_text_that_is_only_in_a_message_still_to_be_learned_can_be_forgotten(user: User) -> None:
    for message in ("My ex is called Bluebird", "my ex is called bluebird"):
        user.types(message)
        said = user.run("forget", "Bluebird", "--yes")[1]
        assert said.startswith("What you typed:\n  (a message in llm's log")
        assert "Forgotten." in said
        assert user.learns(f"ADD | Notes | Knows Bluebird | {message}") is None


def test_forgetting_a_condensed_line_forgets_the_turns_of_the_lines_it_was_made_of(user: User) -> None:
    user.has_learned("Lives in Leeds", "I live in Leeds")
    item = Item(0, "", "- ", "Lives in Leeds", 0, editable=True)
    edit = Edit("REPLACE", "", "Resident of a northern city", "Lives in Leeds")
    with user.memory() as memory:
        version, _ = memory.history.overwrite("worker", "- Resident of a northern city\n")
        assert version
        memory.receipts.add(version.id, [Verdict(edit, "apply", "", Message("Lives in Leeds"), item)], "scripted")
        memory.forgetting.forget(saying("northern city"))
        assert memory.turns.how_many("forgotten") == 1


# Meanwhile


def test_what_is_forgotten_while_the_model_thinks_is_not_learned(user: User) -> None:
    user.has_learned("Has a dog", "I have a dog")
    user.types("I live in Leeds now")
    reply = "ADD | Interests | Lives in Leeds | I live in Leeds"
    user.learns(reply, lambda: forget(user, "Leeds"))
    assert user.learns(reply) is None
    assert user.facts == ["Has a dog"]
    assert user.files_with("Leeds") == []


def test_what_a_model_was_shown_and_is_forgotten_while_it_thinks_does_not_come_back(user: User) -> None:
    user.profile = PROFILE.replace("Lives in Leeds", "Works at Acme")
    user.types("I got promoted to team lead")
    user.learns("ADD | Notes | Team lead at Acme | I got promoted to team lead", lambda: forget(user, "Acme"))
    assert user.facts == ["Likes short answers"]
    assert user.files_with("Acme") == []
    assert user.learns("ADD | Notes | Team lead | I got promoted to team lead"), "the message itself still counts"
    assert user.facts == ["Likes short answers", "Team lead"]


def test_messages_are_forgotten_before_lines_so_that_nobody_learns_them_in_between(user: User) -> None:
    user.has_learned("Has a dog", "I have a dog")
    user.types("I live in Leeds now")
    learned: list[object] = []

    class LearningMeanwhile(Says):
        words: str

        def __call__(self, text: str) -> bool:
            if not learned and "dog" in text and "I" not in text:  # a line, and no message
                learned.append(user.learns("ADD | Interests | Lives in Leeds | I live in Leeds"))
            return super().__call__(text)

    with user.memory() as memory:
        forget_for_good(memory, Log(user.places.logs), LearningMeanwhile("Leeds"))
    assert learned == [None]
    assert user.facts == ["Has a dog"]


def test_an_edit_that_is_forgotten_while_it_is_reviewed_is_not_made(user: User) -> None:
    user.profile = PROFILE
    user.has_to_review(Edit("ADD", "Preferences", "Always asks Bluebird", "I always ask Bluebird"))
    with user.memory() as memory:
        (held,) = memory.review.edits()
        user.run("forget", "Bluebird", "--yes")
        version, (problem,) = memory.review.accept([held])
        assert version is None
        assert "no longer waiting" in problem
    assert user.files_with("Bluebird") == []


def test_nothing_is_called_forgotten_while_the_log_can_not_be_read(user: User) -> None:
    user.profile = PROFILE
    user.types("I live in Leeds now")
    with contextlib.closing(sqlite3.connect(user.places.logs, isolation_level=None)) as locked:
        locked.execute("begin exclusive")
        _, said = user.run("forget", "Leeds", "--yes", code=1)
    assert "Nothing is forgotten yet" in said
    assert "Forgotten." not in said
    assert "Lives in Leeds" in user.facts
    user.run("forget", "Leeds", "--yes")
    assert user.learns("ADD | Interests | Lives in Leeds | I live in Leeds") is None
    assert user.facts == ["Likes short answers"]


def test_where_the_database_can_not_be_tidied_forgetting_says_so_and_can_be_done_again(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    with contextlib.closing(sqlite3.connect(user.places.database, isolation_level=None)) as reader:

        def read(sql: str) -> None:
            if sql == "vacuum":
                reader.execute("begin")
                reader.execute("select * from state").fetchall()

        with user.memory(patience=0.1) as memory:
            memory.db.connection.set_trace_callback(read)
            with pytest.raises(Problem, match="pieces of it may be left"):
                memory.forgetting.forget(saying("Leeds"))
    assert user.facts == ["Likes short answers"]
    user.run("forget", "Leeds", "--yes")
    assert "No line contains" in user.run("forget", "Leeds", "--yes", code=1)[1]


# Clear


def test_a_purge_asks_and_leaves_nothing_of_ours(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    user.types("Hello")
    before = user.places.logs.read_bytes()
    user.run("clear", "--purge", stdin="n\n", code=1)
    assert user.profile == PROFILE
    assert "logs.db" in user.run("clear", "--purge", "--yes")[1]
    assert not user.places.directory.exists()
    assert user.places.logs.read_bytes() == before
    assert "Nothing is remembered" in user.run("show")[1]


def test_a_purge_while_a_model_thinks_leaves_nothing_of_ours(user: User) -> None:
    user.has_learned("Has a dog", "I have a dog")
    user.types("I live in Leeds now")
    with pytest.raises(Problem, match="was removed"):
        user.learns("ADD | Interests | Lives in Leeds | I live in Leeds", user.memory().forgetting.purge)
    assert not user.places.directory.exists()


def test_a_purge_follows_symlinks_to_what_is_ours_and_takes_nothing_else(user: User) -> None:
    elsewhere, directory = user.folder / "dotfiles" / "me.md", user.folder / "elsewhere"
    elsewhere.parent.mkdir()
    elsewhere.with_name(".me.md.kate.swap").write_text("not ours")
    directory.mkdir(mode=0o700)
    user.places.directory.symlink_to(directory)
    user.places.profile.symlink_to(elsewhere)
    user.run("add", "Plays chess")
    assert str(elsewhere) in user.run("clear", "--purge", stdin="n\n", code=1)[1]
    assert "Plays chess" in elsewhere.read_text()
    user.run("clear", "--purge", "--yes")
    assert [path.name for path in elsewhere.parent.iterdir()] == [".me.md.kate.swap"]
    assert not directory.exists()
    assert not user.places.directory.is_symlink()


def test_forgetting_names_the_files_kept_aside_that_go_with_it(user: User) -> None:
    user.run("add", "Plays chess")
    user.places.profile.write_bytes(b"\xff\xfe")
    user.run("rollback", "1")
    (kept,) = user.places.directory.glob("profile.md.unreadable-*")
    assert "Files kept aside" not in user.run("forget", "golf", "--yes", code=1)[1]
    assert kept.exists()
    said = user.run("forget", "chess", "--yes")[1]
    assert re.search(rf"Files kept aside:\n  .*{re.escape(kept.name)}\n", said)
    assert not kept.exists()
