"""What is forgotten is gone for good, and what is cleared comes back only if it was not purged."""

from __future__ import annotations

import contextlib
import os
import random
import re
import sqlite3

import pytest
from conftest import PROFILE, User

import llm_user_memory
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


def id_of(user: User, text: str) -> str:
    return next(id for id, item in Document(user.profile).ids.items() if item.text == text)


# Gone


def test_what_is_forgotten_is_in_no_byte_of_any_of_our_files(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    user.has_learned("Lives in Zanzibar", "I live in Zanzibar")
    with user.memory() as memory:  # enough for SQLite to move lines between pages
        for number in range(150):
            lines = "".join(f"- Zanzibar {number} {n} {'x' * n}\n" for n in range(20))
            memory.history.overwrite("load", PROFILE + lines)
    user.has_to_review(
        Edit("ADD", "Preferences", "Recommend Zanzibar", "I say recommend Zanzibar"),
        Edit("ADD", "Preferences", "Recommend tea", "as they say in zanzibar"),
    )
    user.types("I say so", "Nobody knows where I live")
    user.learns("ADD | Notes | From Zanzibar | my home is Zanzibar")
    with user.memory() as memory:
        edit = Edit("ADD", "Notes", "Lives on an island", "")
        memory.review.refuse([Verdict(edit, "reject", "the user did not type “Zanzibar”")])
    user.places.database.with_name("memory.db.damaged-20260101T000000-0a1b").write_bytes(b"... Zanzibar ...")
    user.profile = "- ZANZIBAR, saved by an editor\n- Stays\n"
    with user.memory() as memory:
        memory.history.settle()
        user.places.profile.write_bytes(b"\xff Zanzibar\n")
        memory.history.overwrite("rollback", memory.history.version_text(1) + "- Zanzibar!\n")
    assert len(user.files_with("Zanzibar")) >= 4
    said = user.llm("memory", "forget", "zanzibar", "--yes", auto=None).stderr
    assert said.startswith("In the profile:\n  - Zanzibar!\n")
    assert "Forgotten." in said
    assert "logs.db" in said, "what llm's own log still contains, and where"
    assert user.files_with("Zanzibar") == []
    assert user.profile == PROFILE
    assert user.to_review() == []
    assert "[forgotten]" in user.run("diff", "0", "3")[0]
    assert user.run("why", "--refused")[1] == "Nothing was refused.\n"


def test_what_was_saved_into_a_displaced_file_is_forgotten_too(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    with user.places.profile.open("rb+") as file:
        user.run("add", "Plays chess")
        file.write(b"\xff Zanzibar")
    user.run("history")
    assert user.files_with("Zanzibar")
    user.run("load", "-", stdin="- Zanzibar\n")
    user.run("forget", "Zanzibar", "--yes")
    assert user.files_with("Zanzibar") == []


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


def test_forgetting_leaves_everything_else_as_it_was(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    user.run("add", "Plays chess")
    user.has_learned("Has a dog", "I have a dog")
    user.run("forget", "chess", "--yes")
    assert user.profile == PROFILE.replace("Leeds\n", "Leeds\n- Has a dog\n")
    assert user.text_of(1) == PROFILE
    assert user.text_of(2) == PROFILE.replace("Leeds\n", f"Leeds\n{REDACTED}")
    assert "I have a dog" in user.run("why", "dog")[0]


def test_a_version_that_said_what_is_forgotten_comes_back_without_it(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    user.run("load", "-", stdin="- Other\n")
    user.run("forget", "Leeds", "--yes")
    user.run("rollback", "1")
    assert user.profile == PROFILE.replace("- Lives in Leeds\n", "")


def test_a_text_that_is_only_a_receipt_can_be_forgotten(user: User) -> None:
    user.types("Since I moved to Leeds I play chess")
    user.learns("ADD | Interests | Plays chess | Since I moved to Leeds I play chess")
    user.run("forget", "Leeds", "--yes")
    assert user.facts == ["Plays chess"]
    assert user.files_with("Leeds") == []


def test_a_line_that_stays_keeps_its_receipt_without_what_is_forgotten(user: User) -> None:
    user.profile = PROFILE
    user.types("I moved to York")
    user.learns(f"REPLACE | {id_of(user, 'Lives in Leeds')} | Lives in York | I moved to York")
    user.run("forget", "Leeds", "--yes")
    shown = user.run("why", "York")[0]
    assert "I moved to York" in shown
    assert "before that" not in shown
    assert user.files_with("Leeds") == []


def test_an_error_that_quotes_what_is_forgotten_is_forgotten_too(user: User) -> None:
    user.types("My ex is called Bluebird", "I have a dog")
    with user.memory() as memory:
        take_in(memory, Log(user.places.logs))
        memory.turns.put_off(memory.turns.due(), "refused: 'ex is called Bluebird'")
        memory.db.report("condense", "refused: 'ex is called Bluebird'")
    assert user.files_with("Bluebird")
    user.run("forget", "Bluebird", "--yes")
    assert user.files_with("Bluebird") == []
    assert user.pending() == 1, "the dog's"


def test_a_heading_is_the_users_to_rename_and_then_goes_out_of_history(user: User) -> None:
    text = "# User Profile\n\n## Project Bluebird\n- Writes Go\n```\n# Bluebird, the code\n```\n"
    user.profile = text
    said = user.run("forget", "Bluebird", "--yes")[1]
    assert "“Project Bluebird” still says it" in said
    assert user.profile == text.replace("# Bluebird, the code\n", "")
    assert "Only the heading “Project Bluebird”" in user.run("forget", "Bluebird", "--yes", code=1)[1]
    user.profile = user.profile.replace("Project Bluebird", "Projects")
    user.run("forget", "Bluebird", "--yes")
    assert user.files_with("Bluebird") == []
    user.profile = "\ufeff# Anna's profile\n- Anna plays chess\n"
    user.run("forget", "anna", "--yes")
    assert user.text_of(user.versions()[-1][0]) == user.profile == "\ufeff# Anna's profile\n"
    user.run("add", "Plays chess", "--section", "Interests")
    user.run("clear")
    user.run("forget", "interests", "--yes", code=1)
    assert "## Interests" in user.text_of(user.versions()[-2][0])


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


# Naming it


def test_forget_asks_and_takes_no_for_an_answer(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    said = user.run("forget", "Leeds", stdin="n\n", code=1)[1]
    assert "- Lives in Leeds" in said
    assert "Forget it? [y/N]" in said
    assert (user.profile, user.versions()) == (PROFILE, [(1, "load")])
    user.run("forget", "Leeds", stdin="y\n")
    assert user.files_with("Leeds") == []


def test_forget_takes_a_whole_line_as_show_prints_it_or_part_of_one(user: User) -> None:
    user.run("load", "-", stdin="- [ ] Learns Polish\n1. Plays chess\n- Stays\n")
    user.has_to_review(Edit("ADD", "Interests", "Plays chess in a club", "I say I play chess in a club"))
    user.run("forget", "--yes", "--", "- [ ] Learns Polish")
    user.run("forget", "1. Plays chess", "--yes")
    assert user.profile == "- Stays\n"
    assert user.files_with("Polish") + user.files_with("chess") == []


def test_forget_takes_an_id_for_that_line_alone(user: User) -> None:
    user.profile = f"{PROFILE}- Lives in Leeds on weekends\n"
    shown = user.run("show", "--ids")[0]
    assert re.sub(r"^\[[a-z]+\] ", "", shown, flags=re.MULTILINE) == user.profile
    ids = {text: id for id, text in re.findall(r"^\[([a-z]+)\] - (.*)$", shown, re.MULTILINE)}
    assert list(ids) == ["Lives in Leeds", "Likes short answers", "Lives in Leeds on weekends"]
    said = user.run("forget", ids["Likes short answers"], "--yes")[1]
    assert said.startswith("In the profile:\n  - Likes short answers\n")
    user.run("forget", f"[{ids['Lives in Leeds']}]", "--yes")
    assert user.facts == ["Lives in Leeds on weekends"]
    assert user.files_with("Lives in Leeds on weekends")


def test_an_id_that_is_also_a_word_needs_brackets(user: User) -> None:
    word = id_of_first("- Likes tea\n")
    user.profile = f"- Likes tea\n- Plays {word}ball\n"
    user.run("forget", word, "--yes", code=1)
    user.profile = f"- Likes tea\n- Plays {word} ball\n"
    user.run("forget", word, "--yes")
    assert user.facts == ["Likes tea"]
    user.run("forget", f"[{word}]", "--yes")
    assert user.facts == []


def id_of_first(text: str) -> str:
    return next(iter(Document(text).ids))


@pytest.mark.parametrize(
    ("text", "goes", "stays"),
    [
        ("tea", "Likes tea with milk", "Takes the bus instead"),
        ("TKT-100", "Bought TKT-100", "Bought TKT-1000"),
        ("TKT-100", "Bought TKT-100/a", "Bought NTKT-100"),
        ("100", "Bought TKT-100", "Bought TKT-1001"),
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
        ("서울", "서울에 살고 있다", "부산에 살고 있다"),
        ("กรุงเทพ", "อยู่กรุงเทพมานาน", "อยู่เชียงใหม่"),
        ("राम", "राम से मिला", "आराम पसंद है"),
        ("राम", "मेरा भाई राम", "रामायण पढ़ता है"),
        ("علي", "أخوه علي", "علينا السفر"),
        ("Лев", "Его зовут Лев", "Любит Левкой"),
        ("tea tea", "Says tea tea", "Says tea teatime"),
        ("a b a", "Says x a b a b a", "Says a b ab"),
    ],
)
def test_forget_matches_whole_words_and_their_capitals(user: User, text: str, goes: str, stays: str) -> None:
    neighbours = f"- {stays}\n- Stays\n"
    user.run("load", "-", stdin=f"- {goes}\n{neighbours}")
    user.has_to_review(Edit("ADD", "Notes", goes, "as I said"), Edit("ADD", "Notes", stays, "as I said"))
    said = user.run("forget", "--yes", "--", text)[1]
    assert f"  - {stays}\n" not in said
    assert user.profile == neighbours
    assert user.text_of(1) == f"{REDACTED}{neighbours}"
    assert [held["fact"] for held in user.to_review()] == [stays]
    assert user.files_with(goes) == (user.files_with(stays) if goes in stays else [])


def test_parts_of_words_are_forgotten_only_when_asked_for(user: User) -> None:
    user.run("load", "-", stdin="- Likes teatime\n- Likes TEAROOMS\n- Likes tea\n- Stays\n")
    assert "To also look inside words: --part" in user.run("forget", "Tea", "--yes", code=1)[1]
    user.run("forget", "--part", "Tea", "--yes")
    assert user.facts == ["Stays"]
    assert user.files_with("tea") == []


def test_everything_to_be_forgotten_is_listed_first_each_text_once(user: User) -> None:
    user.run("load", "-", stdin="- Lives in Leeds\n- Leeds United fan\n")
    user.run("load", "-", stdin="- Lives in Leeds\n")
    user.has_learned("Works in Leeds", "I work in Leeds")
    user.has_learned("Walks to work", "I walk to work in Leeds")
    user.has_to_review(Edit("ADD", "Notes", "Recommend Leeds", "I recommend Leeds"))
    user.types("I like tea a lot")
    user.learns("ADD | Notes | Likes Leeds | I like Leeds")
    said = user.run("forget", "Leeds", stdin="n\n", code=1)[1]
    assert said.partition("This goes")[0].splitlines() == [
        *("In the profile:", "  - Lives in Leeds", "  - Works in Leeds"),
        *("In its history:", "  - Leeds United fan"),
        *("To review:", "  + Recommend Leeds"),
        *("Not learned:", "  + Likes Leeds"),
        *("What you typed:", "  I work in Leeds", "  I walk to work in Leeds"),
    ]


def test_a_line_removed_by_a_prompt_can_be_erased_for_good(user: User) -> None:
    user.has_learned("Has a cat", "I have a cat")
    user.types("Please forget that I have a cat")
    user.learns(f"REMOVE | {id_of(user, 'Has a cat')} | forget that I have a cat")
    assert user.files_with("have a cat")
    user.run("forget", "Has a cat", "--yes")
    assert user.files_with("a cat") == []


@pytest.mark.parametrize("text", ["", "   ", "Timbuktu"])
def test_forgetting_what_is_not_there_is_an_error_and_forgets_nothing(user: User, text: str) -> None:
    user.run("load", "-", stdin=PROFILE)
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


def test_a_forgotten_name_typed_in_small_letters_is_not_learned_from_either(user: User) -> None:
    user.types("my ex is called bluebird")
    assert "Forgotten." in user.run("forget", "Bluebird", "--yes")[1]
    assert user.learns("ADD | Notes | Knows Bluebird | my ex is called bluebird") is None


def test_a_text_that_is_only_in_a_message_still_to_be_learned_can_be_forgotten(user: User) -> None:
    user.types("My ex is called Bluebird")
    said = user.run("forget", "Bluebird", "--yes")[1]
    assert said.startswith("What you typed:\n  (a message in llm's log")
    assert "Forgotten." in said
    assert user.learns("ADD | Notes | Knows Bluebird | My ex is called Bluebird") is None


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


def test_turns_are_forgotten_before_lines_so_that_nobody_learns_them_in_between(user: User) -> None:
    user.has_learned("Has a dog", "I have a dog")
    user.types("I live in Leeds now")
    says = saying("Leeds")
    asked: list[str] = []

    class LearningMeanwhile(Says):
        words: str

        def __call__(self, text: str) -> bool:
            if not asked:
                asked.append(text)  # lines are looked at only when the turns are done with
                user.learns("ADD | Interests | Lives in Leeds | I live in Leeds")
            return super().__call__(text)

    with user.memory() as memory:
        memory.turns.forget(llm_user_memory.turns_saying(memory, Log(user.places.logs), says))
        memory.forgetting.forget(LearningMeanwhile("Leeds"))
    assert asked
    assert user.facts == ["Has a dog"]
    assert user.files_with("Leeds") == []


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


def test_clearing_is_undone_and_purging_leaves_nothing_of_ours(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    user.types("Hello")
    user.run("clear")
    assert user.profile == ""
    user.run("rollback", "--steps", "1")
    assert user.profile == PROFILE
    before = user.places.logs.read_bytes()
    user.run("clear", "--purge", stdin="n\n", code=1)
    assert user.profile == PROFILE
    done = user.llm("memory", "clear", "--purge", "--yes", auto=None)
    assert "logs.db" in done.stderr
    assert not user.places.directory.exists()
    assert user.places.logs.read_bytes() == before
    assert "Nothing is remembered" in user.llm("memory", "show", auto=None).stderr


def test_a_purge_while_a_model_thinks_leaves_nothing_of_ours(user: User) -> None:
    user.has_learned("Has a dog", "I have a dog")
    user.types("I live in Leeds now")
    with pytest.raises(Problem, match="was removed"):
        user.learns("ADD | Interests | Lives in Leeds | I live in Leeds", user.memory().forgetting.purge)
    assert not user.places.directory.exists()


def test_a_purge_takes_a_symlinked_profile_with_it_and_nothing_else(user: User) -> None:
    elsewhere = user.folder / "dotfiles" / "me.md"
    elsewhere.parent.mkdir()
    elsewhere.with_name(".me.md.kate.swap").write_text("not ours")
    user.places.create()
    user.places.profile.symlink_to(elsewhere)
    user.run("add", "Plays chess")
    _, said = user.run("clear", "--purge", stdin="n\n", code=1)
    assert str(elsewhere) in said
    assert "Plays chess" in elsewhere.read_text()
    user.run("clear", "--purge", "--yes")
    assert [path.name for path in elsewhere.parent.iterdir()] == [".me.md.kate.swap"]
    assert not user.places.directory.exists()


def test_purging_a_symlinked_directory_leaves_nothing_of_ours(user: User) -> None:
    directory = user.folder / "elsewhere"
    directory.mkdir(mode=0o700)
    user.places.directory.symlink_to(directory)
    user.run("add", "Plays chess")
    user.run("clear", "--purge", "--yes")
    assert not directory.exists()
    assert not user.places.directory.is_symlink()


def test_a_name_is_forgotten_also_where_it_was_typed_without_its_capital(user: User) -> None:
    user.has_learned("Has a dog", "my girlfriend maria gave me a dog")
    user.run("add", "Girlfriend is Maria")
    assert "my girlfriend maria gave me a dog" in user.run("forget", "Maria", "--yes")[1]
    assert user.facts == ["Has a dog"]
    assert user.files_with("maria") == []


def test_the_number_or_box_of_a_list_entry_is_no_word_of_it(user: User) -> None:
    user.profile = "1. Has two cats\n2. Plays chess\n3. Was born on 2 May\n- [x] Done with Rust\n"
    user.run("forget", "2", "--yes")
    assert user.facts == ["Has two cats", "Plays chess", "Done with Rust"]
    assert "No line contains" in user.run("forget", "x", "--yes", code=1)[1]


def test_forgetting_what_was_removed_leaves_other_removals_alone(user: User) -> None:
    user.has_learned("Has a cat", "I have a cat")
    user.has_learned("Plays chess", "I play chess")
    for line, quote in (("Has a cat", "the cat is gone"), ("Plays chess", "no chess any more")):
        user.types(quote)
        ids = {item.text: id for id, item in llm_user_memory.Document(user.profile).ids.items()}
        assert user.learns(f"REMOVE | {ids[line]} | {quote}")
    user.run("forget", "cat", "--yes")
    with user.memory() as opened:
        assert opened.turns.how_many("forgotten") == 2
