"""What is forgotten is gone for good, and what is cleared comes back only if it was not purged."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import random
import re
import sqlite3

import filelock
import pytest
from conftest import PROFILE, User, in_the_moment

import llm_user_memory as memory
from llm_user_memory import Document, Edit, ModelFailed, Problem, Reply, matcher

# Gone


def test_what_is_forgotten_is_in_no_byte_of_any_of_our_files(user: User) -> None:
    user.run("load", "-", "--yes", stdin=PROFILE)
    user.has_learned("Lives in Zanzibar", "I live in Zanzibar")
    user.has_to_review(
        Edit("ADD", "Preferences", "Recommend Zanzibar", "I say recommend Zanzibar"),
        Edit("ADD", "Preferences", "Recommend tea", "as they say in zanzibar"),
    )
    user.types("I say so", "Nobody knows where I live")
    user.learns("ADD | Notes | From Zanzibar | my home is Zanzibar")

    def refuses(_: str, __: str) -> str:
        raise ModelFailed("the service refused: 'I live in Zanzibar'")

    user.types("I have a dog")
    user.learns(refuses)
    user.places.database.with_name("memory.db.damaged-20260101T000000-0a1b").write_bytes(b"... Zanzibar ...")
    user.profile = "- ZANZIBAR, saved by an editor\n- Stays\n"
    user.run("history")
    user.places.directory.joinpath(".profile.md.previous").write_text("Zanzibar")  # as 1.0 left it
    user.places.directory.joinpath(".profile.md.new.unreadable-20260101T000000-0a1b").write_bytes(b"\xff Zanzibar")
    user.places.profile.write_bytes(b"\xff Zanzibar\n")
    user.run("load", "-", "--yes", stdin=f"{PROFILE}- Zanzibar!\n")
    memory.append_line(user.places.worker_log, "Zanzibar")  # 1.0 kept errors' text
    with user.memory() as opened:
        for key in ("call_failed", "worker_failed"):
            memory.set_state(opened.db, key, f"{key}: Zanzibar")
    assert len(user.files_with("Zanzibar")) >= 5
    said = user.llm("memory", "forget", "zanzibar", "--yes", auto=None).stderr
    assert said.startswith("To be erased, also from history and receipts:\n")
    assert "\n  Zanzibar!\n" in said
    assert "Done. If you say it again, it may be learned." in said
    assert "logs.db" in said, "what llm's own log still contains, and where"
    assert user.files_with("Zanzibar") == []
    assert user.profile == PROFILE
    assert user.to_review() == []
    assert "[forgotten]" in user.run("diff", "0", "3")[0]
    assert user.run("why", "--refused")[0] == ""
    assert user.pending() == 1, "the dog's message, which was only put off"


@pytest.mark.parametrize("seed", range(3))
def test_forgetting_leaves_no_pieces_in_the_pages_of_the_database(user: User, seed: int) -> None:
    """SQLite keeps pieces of what it moved between pages, here with some of the seeds, also with secure_delete."""
    chance = random.Random(seed)
    with user.memory() as memory:
        for part in range(3):
            lines = ["".join(chance.choices("abcdefgh ", k=chance.randint(5, 150))) for _ in range(700)]
            lines[7::10] = [f"Zanzibar {part} {n}" for n in range(70)]
            memory.history.overwrite("load", "".join(f"- {line}\n" for line in lines))
    user.run("forget", "Zanzibar", "--yes")
    assert user.files_with("Zanzibar") == []


def test_forgetting_leaves_everything_else_and_no_version_brings_it_back(user: User) -> None:
    user.run("load", "-", "--yes", stdin=PROFILE)
    user.has_learned("Has a dog", "I have a dog")
    user.run("clear", "--yes")
    user.run("forget", "Leeds", "--yes")
    assert user.text_of(1) == PROFILE.replace("- Lives in Leeds\n", "")
    kept = PROFILE.replace("- Lives in Leeds\n", "")
    user.run("rollback", "1")
    assert user.profile == kept
    user.run("undo")
    user.run("undo", "3")
    assert user.profile == kept.replace("Information\n", "Information\n- Has a dog\n")
    assert "I have a dog" in user.run("why", "dog")[0]


def test_a_line_stays_when_only_its_receipt_or_an_earlier_wording_is_forgotten(user: User) -> None:
    user.profile = PROFILE
    user.types("Since I moved to Leeds I play chess", "I moved to York")
    user.learns(
        "ADD | Interests | Plays chess | Since I moved to Leeds I play chess\n"
        f"REPLACE | {user.id_of('Lives in Leeds')} | Lives in York | I moved to York"
    )
    said = user.run("forget", "Leeds", "--yes")[1]
    assert "\n  “Since I moved to Leeds I play chess”\n" in said
    assert user.facts == ["Lives in York", "Likes short answers", "Plays chess"]
    shown = user.run("why", "York")[0]
    assert "I moved to York" in shown
    assert "before that" not in shown
    assert user.files_with("Leeds") == []


def test_a_receipt_that_stays_is_not_listed_among_what_goes(user: User) -> None:
    user.has_learned("Lives in York", "I live in York")
    user.types("I moved to Bath last week")
    user.learns(f"REPLACE | {user.id_of('Lives in York')} | Lives in Bath | I moved to Bath")
    said = user.run("forget", "York", "--yes")[1]
    assert "I live in York" in said
    assert "I moved to Bath" not in said.partition("Prompts about it")[0]
    assert "“I moved to Bath”" in user.run("why", "Bath")[0]


def test_a_line_removed_by_a_prompt_can_be_erased_and_other_removals_stay(user: User) -> None:
    for fact, quote, removal in (
        ("Has a cat", "I have a cat", "forget that I have a cat"),
        ("Plays chess", "I play chess", "no chess any more"),
    ):
        user.has_learned(fact, quote)
        user.types(f"Please, {removal}")
        assert user.learns(f"REMOVE | {user.id_of(fact)} | {removal}")
    assert user.files_with("have a cat")
    user.run("forget", "Has", "a", "cat", "--yes")
    assert user.files_with("a cat") == []
    assert user.files_with("chess") != []
    assert user.query("select count(*) from turns where state = 'forgotten'", user.places.database) == 2


def test_a_prompt_that_changed_a_line_is_not_found_either_whatever_its_words(user: User) -> None:
    user.has_learned("Lives in York", "I live in York")
    user.types("I left York for good. I moved to Hull")
    user.learns(f"REPLACE | {user.id_of('Lives in York')} | Lives in Hull | I moved to Hull")
    said = user.run("forget", "Lives in York", "--yes")[1]
    assert "I left York for good" in said.partition("Prompts about it")[2]
    assert user.files_with("Lives in York") == []
    assert "York" not in user.run("search", "--chats", "york")[0]
    assert "you typed: “I moved to Hull”" in user.run("why", "Hull")[0]


def test_an_edit_that_waits_is_not_erased_with_the_line_it_would_have_replaced(user: User) -> None:
    user.has_learned("Lives in York", "I live in York")
    user.has_to_review(Edit("REPLACE", user.id_of("Lives in York"), "Lives in Hull", "I moved to Hull"))
    user.run("forget", "York", "--yes")
    assert user.files_with("York") == []
    assert "+ Lives in Hull\n" in user.run("review", stdin="y\n")[1]
    assert user.facts == ["Lives in Hull"]


def test_a_heading_is_the_users_to_rename_and_then_goes_out_of_history(user: User) -> None:
    text = "# User Profile\n\n## Project Bluebird\n- Writes Go\n```\n# Bluebird, the code\n```\n"
    user.profile = text
    said = user.run("forget", "Bluebird", "--yes")[1]
    assert "Headings that stay; see: llm memory edit:\n  Project Bluebird\n" in said
    assert user.profile == text.replace("# Bluebird, the code\n", "")
    user.run("forget", "Bluebird", "--yes", code=1)
    said = user.run("forget", "--part", "bluebottle", "--yes", code=1)[1]
    assert "llm memory show" in said
    user.profile = user.profile.replace("Project Bluebird", "Projects")
    user.run("forget", "Bluebird", "--yes")
    assert user.files_with("Bluebird") == []
    user.profile = "\ufeff# Anna's profile\n- Anna plays chess\n"
    user.run("forget", "anna", "--yes")
    assert user.text_of(user.versions()[-1][0]) == user.profile == "\ufeff# Anna's profile\n"


def test_our_own_mark_of_what_was_forgotten_is_not_a_word_of_the_user(user: User) -> None:
    user.has_learned("Has a cat", "I have a cat")
    user.types("Please forget that I have a cat")
    user.learns(f"REMOVE | {user.id_of('Has a cat')} | forget that I have a cat")
    user.has_learned("Plays chess", "I play chess like a cat")
    user.run("forget", "like a cat", "--yes")
    assert "[forgotten]" in [receipt["quote"] for receipt in user.receipts()]
    before = user.receipts()
    assert "No line has 'forgotten'" in user.run("forget", "forgotten", "--yes", code=1)[1]
    assert user.receipts() == before


def test_a_section_that_only_a_waiting_edit_names_is_shown_and_goes(user: User) -> None:
    user.has_to_review(Edit("ADD", "Project Bluebird", "Writes Go", "I write Go"))
    assert "\n  Project Bluebird\n" in user.run("forget", "Bluebird", stdin="n\n", code=1)[1]
    user.run("forget", "Bluebird", "--yes")
    assert user.files_with("Bluebird") == []


# Naming it


def test_forget_lists_everything_that_goes_and_asks_first(user: User) -> None:
    user.run("load", "-", "--yes", stdin="- Lives in Leeds\n- Leeds United fan\n")
    user.run("load", "-", "--yes", stdin="- Lives in Leeds\n")
    user.has_learned("Walks to work", "I walk to work in Leeds")
    user.has_to_review(Edit("ADD", "Notes", "Recommend Leeds", "I recommend Leeds"))
    user.types("I like tea a lot")
    user.learns("ADD | Notes | Likes Leeds | I like Leeds")
    user.run("add", "Plays chess")
    user.places.profile.write_bytes(b"\xff\xfe")
    user.run("rollback", str(user.versions()[-1][0]))
    (kept,) = user.places.directory.glob("profile.md.unreadable-*")
    before = user.profile, user.versions()
    said = user.run("forget", "Leeds", stdin="n\n", code=1)[1]
    listed = said.partition("llm's log, ")[0].splitlines()
    for line in (
        *("  Lives in Leeds", "  Leeds United fan", "  Recommend Leeds", "  Likes Leeds"),
        *("  “I walk to work in Leeds”", "  I walk to work in Leeds, you know"),
    ):
        assert line in listed
    assert kept.name in said
    assert "Forget this for good? [y/N]" in said
    assert (user.profile, user.versions()) == before
    assert "Files to be removed" not in user.run("forget", "golf", "--yes", code=1)[1]
    user.run("forget", "Leeds", stdin="y\n")
    assert user.files_with("Leeds") == []
    assert not kept.exists()


@pytest.mark.parametrize("state", ["waiting", "applied", "dropped", "refused"])
@pytest.mark.parametrize("column", ["section", "before", "fact", "quote", "thread"])
def test_what_is_listed_and_what_is_erased_are_the_same(user: User, state: str, column: str) -> None:
    edit = {"state": state, "fact": "Plays chess", "turns": '["export:1"]', "at": "2026-11-20T09:00:00+00:00"}
    edit |= {name: "" for name in ("section", "before", "quote", "reason", "thread") if name not in edit}
    with user.memory() as opened:
        opened.db["edits"].insert(edit | {column: "In Zanzibar"})
    said = user.run("forget", "Zanzibar", stdin="n\n", code=1)[1]
    listed = "“In Zanzibar”" if column == "quote" else "In Zanzibar"
    assert f"history and receipts:\n  {listed}\n" in said
    user.run("forget", "Zanzibar", "--yes")
    assert user.files_with("Zanzibar") == []
    assert "No line has 'Zanzibar'" in user.run("forget", "Zanzibar", "--yes", code=1)[1]


def test_damaged_files_are_named_also_where_only_a_prompt_says_it(user: User) -> None:
    user.types("I saw a zebra today")
    user.places.create()
    user.places.profile.write_bytes(b"\xff\xfe")
    user.run("load", "-", "--yes", stdin="- Plays chess\n")
    (kept,) = user.places.directory.glob("profile.md.unreadable-*")
    assert kept.name in user.run("forget", "zebra", stdin="n\n", code=1)[1]
    assert kept.exists()


def test_forget_takes_a_whole_line_as_show_prints_it_or_part_of_one_with_quotes_or_without(user: User) -> None:
    user.run("load", "-", "--yes", stdin="- [ ] Learns Polish\n1. Plays chess\n2. Has cats\n3. Was born on 2 May\n")
    user.has_to_review(Edit("ADD", "Interests", "Plays chess in a club", "I say I play chess in a club"))
    user.run("forget", "--yes", "--", "- [ ] Learns Polish")
    user.run("forget", "--yes", "1.", "Plays", "chess")
    assert user.files_with("Polish") + user.files_with("chess") == []
    user.run("forget", "2", "--yes")
    assert user.profile == "2. Has cats\n", "the number of a list entry is not part of its text"


def test_forget_takes_an_id_with_or_without_brackets_for_that_line_alone(user: User) -> None:
    (word,) = Document("- Likes tea\n").ids
    user.profile = f"- Likes tea\n- Likes tea with milk\n- Plays {word} ball\n"
    shown = user.run("show", "--ids")[0]
    assert re.sub(r"^\[[a-z]+\] ", "", shown, flags=re.MULTILINE) == user.profile
    assert f"[{word}] - Likes tea\n" in shown
    user.run("forget", f"[{word}]", "--yes")
    assert user.facts == ["Likes tea with milk", f"Plays {word} ball"]
    assert user.files_with("Likes tea with milk")
    user.run("forget", word, "--yes")
    assert user.facts == ["Likes tea with milk"], "a line says it, so it is a word"
    (word,) = Document(user.profile).ids
    assert "  Likes tea with milk\n" in user.run("forget", word, stdin="n\n", code=1)[1]
    user.run("forget", word, "--yes")
    assert user.facts == []


def test_forget_says_so_where_only_a_receipt_has_the_words(user: User) -> None:
    user.has_learned("Has a sister, Kate", "my sister Kate")
    said = user.run("forget", "sister Kate", stdin="n\n", code=1)[1]
    assert said.startswith(
        "'sister Kate' isn't in the profile now, but here:\nTo be erased, also from history and receipts:\n"
    )


def test_by_an_id_go_also_the_wordings_that_the_line_had_before(user: User) -> None:
    user.has_learned("Daughter Ida, seven", "my daughter Ida is seven")
    user.types("Ida is eight now")
    user.learns(f"REPLACE | {user.id_of('Daughter Ida, seven')} | Daughter Ida, eight | Ida is eight now")
    user.run("forget", user.id_of("Daughter Ida, eight"), "--yes")
    assert user.files_with("Ida") == []
    assert user.run("search", "Ida") == ("", "Nothing was found.\n")


def test_what_was_erased_before_is_not_listed_again(user: User) -> None:
    user.has_learned("Keeps bees", "I keep bees near Zanzibar")
    user.run("forget", "Zanzibar", "--yes")
    said = user.run("forget", "bees", stdin="n\n", code=1)[1]
    assert "  Keeps bees\n" in said
    assert "[forgotten]" not in said


@pytest.mark.parametrize("between", [" ", ",", ", "])
def test_several_ids_name_their_lines(user: User, between: str) -> None:
    user.profile = "- Likes tea\n- Plays chess\n- Has a cat\n"
    user.run("forget", between.join(map(user.id_of, ["Likes tea", "Has a cat"])), "--yes")
    assert user.facts == ["Plays chess"]


def test_an_id_means_neither_quotes_nor_prompts_nor_what_waits_nor_a_word(user: User) -> None:
    user.has_learned("Is a software engineer", "I am a software engineer")
    user.has_learned("Husband too", "my husband is a software engineer as well")
    user.has_to_review(Edit("ADD", "Interests", "Mentors: is a software engineer for girls", "girls"))
    user.run("forget", user.id_of("Is a software engineer"), "--yes")
    (receipt,) = user.receipts()
    assert receipt["quote"] == "my husband is a software engineer as well"
    assert [edit["fact"] for edit in user.to_review()] == ["Mentors: is a software engineer for girls"]
    user.profile = "- Go\n- Wants to go to Japan\n"
    user.run("history")
    user.profile = "- Go\n"
    user.run("forget", user.id_of("Go"), "--yes")
    assert user.files_with("Wants to go to Japan")


def test_by_an_id_forget_takes_former_lines_that_say_it_too(user: User) -> None:
    user.profile = "- Is a nurse\n- Works nights\n- Works nights in May\n"
    user.run("history")
    merged = "Is a nurse; works nights"
    user.profile = f"- {merged}\n- Works nights in May\n"
    assert merged in user.run("history")[0]
    user.run("undo")
    said = user.run("forget", user.id_of("Works nights"), "--yes")[1]
    assert f"  {merged}\n" in said
    assert user.facts == ["Is a nurse", "Works nights in May"]
    assert user.files_with(merged) == []
    user.run("undo", "3")
    assert "nights" not in " ".join(user.facts).replace("Works nights in May", "")


def test_by_an_id_forget_takes_former_lines_in_a_script_without_spaces_too(user: User) -> None:
    user.profile = "- 住在北京\n- 我住在北京已经十年\n"
    user.run("history")
    user.profile = "- 住在北京\n"
    user.run("forget", user.id_of("住在北京"), "--yes")
    assert user.files_with("已经十年") == []


def test_by_an_id_forget_lists_all_that_goes_with_the_line_too(user: User) -> None:
    user.has_learned("Has two dogs", "I keep a pair of hounds")
    said = user.run("forget", user.id_of("Has two dogs"), stdin="n\n", code=1)[1]
    for listed in ("Has two dogs", "“I keep a pair of hounds”", "I keep a pair of hounds, you know"):
        assert f"  {listed}\n" in said


def test_forget_says_so_where_only_a_prompt_has_the_words(user: User) -> None:
    user.has_learned("Has a tent", "I bought a tent")
    user.types("forget my tent")
    assert user.run("forget", "my tent", "--yes")[1].startswith("'my tent' isn't in the profile now")
    assert user.facts == ["Has a tent"]


@pytest.mark.parametrize(
    ("text", "goes", "stays"),
    [
        ("tea", "Likes TEA with milk", "Takes the bus instead"),
        ("TKT-100", "Bought TKT-100/a", "Bought TKT-1000 and NTKT-100"),
        ("frank", "Frank’s colleague", "Is from Frankfurt"),
        ("mia's", "Is Mia’s mother", "Is Mia"),
        ("Zoë", "Is Zoe\u0308's mother", "Is Zoëlla"),
        ("C++", "Writes C++", "Writes C"),
        ("🐕", "Has 🐕", "Has 🐈"),
        ("東京", "東京都に住んでいる", "京都に住んでいる"),
        ("Leeds", "Leedsに住んでいる", "Leedsonに住んでいる"),
        ("กรุงเทพ", "อยู่กรุงเทพมานาน", "อยู่เชียงใหม่"),
        ("राम", "राम से मिला", "रामायण पढ़ता है"),
        ("राम", "राम से मिला", "रामा से मिला"),
        ("a b a", "Says x a b a b a", "Says a b ab"),
    ],
)
def test_a_text_is_found_as_whole_words_in_any_case(text: str, goes: str, stays: str) -> None:
    says = matcher(text, Document(""))
    assert (says(goes), says(stays)) == (True, False)


def test_parts_of_words_are_forgotten_only_when_asked_for_and_nothing_never(user: User) -> None:
    user.run("load", "-", "--yes", stdin="- Likes teatime\n- Likes TEAROOMS\n- Stays\n")
    assert "--part" in user.run("forget", "Tea", "--yes", code=1)[1]
    for text in ("", "   ", "\ufeff"):
        assert "llm memory" in user.run("forget", text, "--part", "--yes", code=1)[1]
    user.run("forget", "--part", "Tea", "--yes")
    assert user.facts == ["Stays"]
    assert user.files_with("tea") == []


def test_parts_of_a_conversations_id_are_no_words(user: User) -> None:
    user.has_learned("Plays chess", "I play chess")
    (receipt,) = user.receipts()
    assert "No line has" in user.run("forget", "--part", receipt["thread"][4:9], "--yes", code=1)[1]
    assert user.receipts() == [receipt]


# Messages


def test_what_failed_is_still_told_in_words_after_something_else_is_forgotten(user: User) -> None:
    user.types("I live in Leeds", model="scripted-key")
    user.run("update", code=1)
    user.run("add", "Plays chess")
    user.run("forget", "chess", "--yes")
    assert user.problems().strip() == "learning failed"


def test_turns_of_what_is_forgotten_are_never_learned_again(user: User) -> None:
    user.has_learned("Lives in Leeds", "I live in Leeds")
    user.types("I told you that I love Leeds")  # logged, and not looked at yet
    user.run("forget", "Leeds", "--yes")
    log = user.places.logs.read_bytes()
    user.places.logs.unlink()
    user.places.logs.write_bytes(log)  # restored from a backup
    user.run("update", "--retry")
    asked: list[str] = []
    assert user.learns("ADD | Interests | Loves Leeds | I love Leeds", lambda: asked.append("")) is None
    assert (asked, user.calls(update=True)) == ([], [])
    assert user.files_with("Leeds") == []


def test_what_only_a_message_in_llms_log_says_is_shown_and_never_learned_from(user: User) -> None:
    for message in ("My ex is called Bluebird", "my ex is called bluebird"):
        user.types(message)
        said = user.run("forget", "Bluebird", stdin="n\n", code=1)[1]
        assert "this profile will ignore from now on" in said
        assert "Forget this for good? [y/N]" in said
        assert f"  {message}\n" in said
        user.run("forget", "Bluebird", stdin="y\n")
        assert user.learns(f"ADD | Notes | Knows Bluebird | {message}") is None


# Meanwhile


def test_what_a_model_was_shown_and_is_forgotten_while_it_thinks_does_not_come_back(user: User) -> None:
    user.profile = PROFILE.replace("Lives in Leeds", "Works at Acme")
    user.types("I got promoted to team lead")
    reply = "ADD | Notes | Team lead at Acme | I got promoted to team lead"
    user.learns(reply, lambda: user.run("forget", "Acme", "--yes"))
    assert user.facts == ["Likes short answers"]
    assert user.files_with("Acme") == []
    assert user.learns("ADD | Notes | Team lead | I got promoted to team lead"), "the message itself still counts"
    assert user.facts == ["Likes short answers", "Team lead"]


@pytest.mark.parametrize("command", [("forget", "Leeds", "--yes"), ("clear", "--yes")])
def test_what_is_removed_just_before_the_model_is_asked_about_it_is_not_learned(
    user: User, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    user.types("I live in Leeds")
    asked: list[str] = []
    with monkeypatch.context() as change:
        in_the_moment(change, memory, "next_batch", lambda: user.run(*command))
        assert user.learns("ADD | Notes | Lives in Leeds | I live in Leeds", lambda: asked.append("")) is None
    assert user.learns("ADD | Notes | Lives in Leeds | I live in Leeds") is None
    assert (user.facts, asked) == ([], [])


def test_an_edit_that_is_forgotten_while_it_is_reviewed_is_not_made(user: User) -> None:
    user.profile = PROFILE
    user.has_to_review(Edit("ADD", "Preferences", "Always asks Bluebird", "I always ask Bluebird"))
    terminal = user.terminal("llm", "memory", "review", auto=None)
    terminal.expect(r"Accept it\?")
    user.run("forget", "Bluebird", "--yes")
    terminal.type("y\r")
    terminal.wait()
    assert "Nothing changed." in terminal.shown
    assert user.files_with("Bluebird") == []


def test_nothing_is_called_forgotten_while_the_log_can_not_be_read(user: User) -> None:
    user.profile = PROFILE
    user.make_log()
    with contextlib.closing(sqlite3.connect(user.places.logs, isolation_level=None)) as locked:
        locked.execute("begin exclusive")
        _, said = user.run("forget", "Leeds", "--yes", code=1)
    assert "llm's log" in said
    assert "can't be read now" in said
    assert "Done." not in said
    assert "Lives in Leeds" in user.facts


# Clear


@pytest.mark.parametrize("options", [(), ("--purge", "--yes")])
def test_what_a_model_is_thinking_about_when_the_profile_is_cleared_is_not_learned(
    user: User, options: tuple[str, ...]
) -> None:
    user.has_learned("Has a dog", "I have a dog")
    user.types("I own Early Bird")
    reply = "ADD | Interests | Owns Early Bird | I own Early Bird"
    with contextlib.suppress(Problem, sqlite3.Error):  # there is no database any more
        user.learns(reply, lambda: user.run("clear", "--yes", *options))
        user.learns(reply)
    assert user.facts == []
    assert not options or user.files_with("Early Bird") + user.files_with("dog") == []


def test_clear_asks_first(user: User) -> None:
    user.run("add", "Has a dog")
    assert "Can't ask: stdin is not a terminal; add --yes" in user.run("clear", code=1)[1]
    assert user.facts == ["Has a dog"]


def test_what_is_cleared_no_longer_waits(user: User) -> None:
    user.types("I have a dog")
    assert user.run("clear", "--yes")[1] == "Nothing changed.\n"
    assert "Learning from" not in user.run("show")[1]
    assert "Pending" not in user.run("status")[0]
    user.types("I play the cello")
    assert "Pending      1 to learn" in user.run("status")[0]


def test_what_is_typed_after_a_clear_is_learned_even_if_the_clock_was_ahead(user: User) -> None:
    user.types("I have a dog")
    with user.memory() as opened:
        opened.now = lambda: memory.utc_now() + dt.timedelta(days=400)
        opened.history.overwrite("clear", "", lambda _: memory.skip_noted(opened))
    assert user.pending() == 0
    user.types("I play the cello")
    user.learns("ADD | Interests | Has a dog | I have a dog\nADD | Interests | Plays the cello | I play the cello")
    assert user.facts == ["Plays the cello"]


def test_clearing_ends_what_failed_to_be_learned(user: User) -> None:
    def down(model: str, request: str) -> Reply:
        raise ModelFailed("the service is down")

    user.types("I have a dog")
    user.learns(down)
    user.types("I play the cello")
    with contextlib.closing(sqlite3.connect(user.places.database, isolation_level=None)) as db:
        db.execute("update turns set state = 'aside'")
    assert "service is down" in user.run("status")[0]
    user.run("clear", "--yes")
    assert not re.search("service is down|Pending", user.run("status")[0])
    user.run("update", "--retry")
    assert user.facts == []


def test_a_clear_that_fails_leaves_what_waits(user: User) -> None:
    user.run("add", "Has a dog")
    user.types("I play the cello")
    user.places.profile.chmod(0o400)
    assert "can't be written to" in user.run("clear", "--yes", code=1)[1]
    user.places.profile.chmod(0o600)
    assert "Pending      1 to learn" in user.run("status")[0]


def test_clearing_wants_one_profile_named_and_a_purge_says_that_it_ends_a_pause(user: User) -> None:
    user.run("add", "Has a dog")
    for options in ((), ("--purge", "--yes")):
        said = user.run("clear", "--yes", *options, code=1, LLM_MEMORY_PROFILE="work+default")[1]
        assert "Several profiles are in use; add: --profile NAME" in said
    assert user.facts == ["Has a dog"]
    user.run("pause")
    said = user.run("clear", "--purge", "--yes")[1]
    assert "its history, and all else of profile default." in said
    assert "paused" not in user.run("status")[0]


def test_a_purge_asks_and_takes_what_is_ours_behind_symlinks_too_and_nothing_else(user: User) -> None:
    elsewhere, directory = user.folder / "dotfiles" / "me.md", user.folder / "elsewhere"
    elsewhere.parent.mkdir()
    elsewhere.with_name(".me.md.kate.swap").write_text("not ours")
    directory.mkdir(mode=0o700)
    user.places.directory.symlink_to(directory)
    user.places.profile.symlink_to(elsewhere)
    user.types("Hello")
    user.run("add", "Plays chess")
    (directory / "notes.txt").write_text("not ours")
    before = user.places.logs.read_bytes()
    assert str(elsewhere) in user.run("clear", "--purge", stdin="n\n", code=1)[1]
    assert "Plays chess" in elsewhere.read_text()
    assert "logs.db" in user.run("clear", "--purge", "--yes")[1]
    assert [path.name for path in elsewhere.parent.iterdir()] == [".me.md.kate.swap"]
    assert [path.name for path in directory.iterdir()] == ["notes.txt"]
    assert user.places.logs.read_bytes() == before


def test_a_purge_leaves_no_folder_of_the_workers_log(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(user.folder / "state"))
    user.run("add", "Plays chess")
    home = memory.Home(user.user_dir)  # as without LLM_USER_PATH
    home.worker_log.parent.mkdir(parents=True)
    memory.append_line(home.worker_log, "1 edit")
    (user.folder / "state" / "others").mkdir()
    memory.purge(home)
    assert [path.name for path in (user.folder / "state").iterdir()] == ["others"]


class Killed(BaseException):
    """Nothing of ours catches it, as nothing catches a kill."""


def test_what_a_killed_forget_has_left_on_the_disk_is_removed_by_the_next_command(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.has_learned("Plays the oboe", "I play the oboe")

    def kill() -> None:
        raise Killed

    with monkeypatch.context() as change:
        in_the_moment(change, memory, "exchange", kill)
        with pytest.raises(Killed), user.memory() as opened:
            memory.forget(opened, memory.matcher("oboe", Document("")))
    assert user.files_with("oboe")
    user.run("add", "Has a cat")
    assert user.files_with("oboe") == []
    assert user.facts == ["Has a cat"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_forget_takes_the_news_away(user: User, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool) -> None:
    user.has_learned("Plays the oboe", "I play the oboe")
    with monkeypatch.context() as change, user.memory() as opened:
        if is_killed:
            change.setattr(memory, "clean_up", lambda _: None)
        memory.forget(opened, memory.matcher("oboe", Document("")))
    user.run("history")
    assert user.files_with("oboe") == []
    assert memory.take_news(user.places) == []


def test_a_search_for_a_prompt_leaves_the_cleaning_after_a_killed_forget_to_others(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.run("add", "Has a cat")
    with user.memory() as opened, monkeypatch.context() as killed:
        killed.setattr(memory, "clean_up", lambda _: None)
        memory.forget(opened, memory.matcher("oboe", Document("")))
    with monkeypatch.context() as change:
        change.setattr(memory, "clean_up", lambda _: pytest.fail("it would wait for the lock"))
        assert "Has a cat" in memory.found_facts([user.places], "cat")
    user.run("history")
    assert user.query("select count(*) from state where key = 'unclean'", user.places.database) == 0


def test_no_forget_comes_between_a_change_and_its_news(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    user.types("I play the oboe, you know")
    held: list[bool] = []

    def try_lock() -> None:
        lock = filelock.FileLock(user.places.lock_file("profile"), timeout=0, is_singleton=False)
        try:
            lock.acquire()
        except filelock.Timeout:
            held.append(True)

    with monkeypatch.context() as change:
        in_the_moment(change, memory, "append_line", try_lock)
        assert user.learns("ADD | Interests | Plays the oboe | I play the oboe")
    assert held == [True]


def test_a_directory_where_the_displaced_file_belongs_stops_neither_forget_nor_purge(user: User) -> None:
    user.run("add", "Plays the oboe")
    (user.places.directory / ".profile.md.previous").mkdir()
    user.run("forget", "oboe", "--yes")
    assert user.files_with("oboe") == []
    user.run("clear", "--purge", "--yes")
    assert not user.places.database.exists()


def test_what_was_forgotten_is_offered_to_nobody_again(user: User) -> None:
    user.run("add", "Nurse")
    user.run("undo")
    user.run("forget", "Nurse", "--yes")
    assert "undo" not in user.run("show")[1]


def test_a_prompt_that_is_forgotten_is_not_asked_about_again(user: User) -> None:
    user.says("I play the oboe")
    assert "I play the oboe" in user.run("forget", "oboe", "--yes")[1]
    assert user.run("forget", "oboe", code=1)[1].startswith("Error: No line has 'oboe'")


def test_a_profile_that_never_was_is_not_said_to_be_removed(user: User) -> None:
    said = user.run("clear", "--purge", "--yes", code=1, LLM_MEMORY_PROFILE="wrok")[1]
    assert "There is no profile “wrok”" in said
    assert not user.places.directory.exists()


# Copies

BACKUPS = [
    *("profile.md~", "profile.md.~1~", "profile.md.~12~", "#profile.md#", ".profile.md.swp", ".profile.md.swo"),
    *("profile.md.bak", "profile.md.bak2", ".profile.md.un~", "profile.md.orig", "profile.md.save.1", "profile.md.1"),
]


def test_backups_of_an_editor_that_say_it_are_named_and_go_with_it(user: User) -> None:
    user.profile = PROFILE
    folder = user.places.directory
    for name in BACKUPS:
        folder.joinpath(name).write_bytes(b"b0VIM 9.0\0\xff\0- Lives in Leeds\0- Stays\0")
    folder.joinpath("profile.md.old").write_text("- Lives in York\n")
    folder.joinpath("my profile.md").write_text("- Lives in Leeds\n")
    folder.joinpath(".#profile.md").symlink_to("me@here.4711:1")
    said = user.run("forget", f"[{user.id_of('Lives in Leeds')}]", stdin="n\n", code=1)[1]
    assert [name for name in BACKUPS if name not in said.partition("Forget it?")[0]] == []
    assert "profile.md.old" not in said
    assert "my profile.md" not in said
    user.run("forget", f"[{user.id_of('Lives in Leeds')}]", "--yes")
    assert [name for name in BACKUPS if folder.joinpath(name).exists()] == []
    assert folder.joinpath("profile.md.old").exists()
    folder.joinpath("profile.md~").write_text("- Lives in Leeds\n")
    assert "profile.md~" in user.run("forget", "Leeds", "--yes")[1], "though nothing else says it any more"
    user.run("clear", "--purge", "--yes")
    assert sorted(os.listdir(folder)) == [".gitignore", "my profile.md"], "git still ignores what is left"


def test_backups_beside_the_file_that_a_profile_links_to_go_too(user: User) -> None:
    notes = user.folder / "notes"
    notes.mkdir()
    (notes / "me.md").write_text(PROFILE)
    (notes / "me.md~").write_text(PROFILE)
    (notes / "profile.txt~").write_text(PROFILE)
    user.places.create()
    user.places.profile.symlink_to(notes / "me.md")
    assert "me.md~" in user.run("forget", "Leeds", "--yes")[1]
    assert sorted(os.listdir(notes)) == ["me.md", "profile.txt~"]
