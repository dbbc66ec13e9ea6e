"""memory.db may be damaged, lost, locked or another's: only history goes, and it is said."""

from __future__ import annotations

import contextlib
import json
import pathlib
import shlex
import shutil
import sqlite3
import threading
import time
from typing import TYPE_CHECKING

import filelock
import pytest
from conftest import PROFILE, User, long_saved

import llm_user_memory as memory
from llm_user_memory import Busy, Edit, lock, take_in

if TYPE_CHECKING:
    from collections.abc import Callable


def kept(user: User) -> list[bytes]:
    return [path.read_bytes() for path in user.places.directory.glob("memory.db.unreadable-*")]


@pytest.fixture
def used(user: User) -> User:
    """A user whose memory.db has something of everything."""
    user.run("load", "-", stdin=PROFILE)
    user.has_learned("Has a dog", "I have a dog")
    user.has_to_review(Edit("ADD", "Preferences", "Always wants tea", "I always want tea"))
    return user


# Damage


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "its start": lambda data: b"\0garbage" * 20 + data[160:],
    "its middle": lambda data: data[:4096] + b"\xa5" * (len(data) - 4096),
    "its end": lambda data: data[: len(data) // 2],
    "its form": lambda data: data[:44] + b"\0\0\0\x09" + data[48:],
    "its plan": lambda data: data.replace(b"CREATE TABLE turns", b"CRE\xffTE TABLE turns"),
}


@pytest.mark.parametrize("damaged", list(DAMAGES))
def test_a_damaged_database_loses_history_only_and_is_kept(used: User, damaged: str) -> None:
    broken = DAMAGES[damaged](used.places.database.read_bytes())
    for number, command in enumerate(("status", "history", "add 'Plays go'", "undo", "learn"), 1):
        used.places.database.write_bytes(broken)
        with contextlib.suppress(
            AssertionError, sqlite3.DatabaseError, UnicodeError
        ):  # the first may say that it has set it aside
            if command == "learn":
                used.types("I have a bird")
                used.learns("NO_UPDATE")
            else:
                used.run(*shlex.split(command))
        assert "memory.db.unreadable-" in used.problems()
        assert kept(used) == [broken] * number
        assert {"Lives in Leeds", "Has a dog"} <= set(used.facts)
    used.run("add", "Plays chess")
    used.run("undo")
    assert "Plays chess" not in used.facts
    used.types("I have a cat")
    assert used.learns("ADD | Interests | Has a cat | I have a cat")
    assert "Has a cat" in used.facts
    assert used.query("pragma integrity_check", used.places.database) == "ok"


@pytest.mark.parametrize(
    "damage",
    [
        "update lines_fts_data set block = x'ff'",
        "update lines_fts_config set v = 99",
        "drop table lines_fts_config",
        "update _sqlite_migrations set name = 'm00' where id = 2",
        "update _sqlite_migrations set name = 'm00' where id = 1",
        "alter table edits rename to edit5",
        "alter table lines rename column until to untie",
    ],
    ids=[
        "words of the index",
        "form of the index",
        "part of the index",
        "last step",
        "first step",
        "name of a table",
        "name of a column",
    ],
)
def test_what_is_sound_for_sqlite_but_not_for_memory_is_damaged_too(used: User, damage: str) -> None:
    with contextlib.closing(sqlite3.connect(used.places.database)) as db, db:
        db.execute(damage)
    for command in ("search Leeds", "add 'Plays go'"):
        with contextlib.suppress(AssertionError):  # the first may say that it has set it aside
            used.run(*shlex.split(command))
    used.run("add", "Plays chess")
    assert {"Lives in Leeds", "Has a dog", "Plays chess"} <= set(used.facts)
    assert "memory.db.unreadable-" in used.problems()


@pytest.mark.parametrize(
    "error",
    [
        KeyError("no such model"),
        ValueError("malformed reply"),
        sqlite3.OperationalError("no such function: iif"),  # of an older SQLite
        sqlite3.OperationalError("no such module: fts5"),
        sqlite3.OperationalError("disk I/O error"),
        sqlite3.ProgrammingError("Cannot operate on a closed database."),
    ],
)
def test_an_error_of_others_that_sounds_like_damage_leaves_the_database(used: User, error: Exception) -> None:
    with pytest.raises(type(error)), memory.Memory(used.places):
        raise error
    assert not kept(used)


def test_a_letter_that_is_damaged_in_the_database_stops_nothing(used: User) -> None:
    data = used.places.database.read_bytes()
    used.places.database.write_bytes(data.replace(b"Lives in Leeds", b"Lives in \xffeeds"))
    before = used.profile
    for command in ("status", "history", "why dog", "search dog", "show"):
        used.run(*shlex.split(command))
    assert used.profile == before
    used.run("add", "Plays chess")
    used.has_learned("Has a cat", "I have a cat")
    assert {"Lives in Leeds", "Has a dog", "Plays chess", "Has a cat"} <= set(used.facts)
    assert kept(used) == []


@pytest.mark.parametrize("damaged", ["replace(at, '-', 'w')", "substr(at, 1, 10)"], ids=["no date", "no zone"])
def test_a_date_that_is_damaged_in_the_database_stops_nothing(used: User, damaged: str) -> None:
    used.run("add", "Plays chess")
    with used.memory() as opened:
        opened.db.execute(f"update versions set at = {damaged}")
    for command in ("history", "diff", "why chess", "search chess", "status", "show"):
        used.run(*shlex.split(command))
    shown = used.terminal("llm", "memory", "show")
    assert shown.wait() == 0
    assert "Plays chess" in shown.shown
    assert "Undid change" in used.run("undo")[1]


RELEASED = sorted(pathlib.Path(__file__).parent.glob("released/*"))


@pytest.mark.parametrize("released", RELEASED, ids=[path.name for path in RELEASED])
def test_the_database_of_every_released_version_is_kept_with_all_that_is_in_it(
    user: User, released: pathlib.Path
) -> None:
    user.places.create()
    for path in released.iterdir():
        shutil.copy(path, user.places.directory)
    long_saved(user.places.profile)
    (user.user_dir / "default_embedding_model.txt").write_text("scripted-embed")
    assert user.facts == ["Lives in York", "Works as a nurse"]
    versions = json.loads(user.run("history", "--json")[0])
    assert [version["author"] for version in reversed(versions)] == [
        *("worker", "worker", "worker", "worker", "undo", "add", "worker", "forget")
    ]
    assert "you typed: “I moved to York”" in user.run("why", "York")[0]
    assert [edit["fact"] for edit in user.to_review()] == ["Loves opera"]
    assert "Owns a boat" in user.run("why", "--refused")[0]
    assert "Keeps two hens" in user.run("search", "hens")[0]
    assert "Keeps two hens" in user.run("search", "--semantic", "hens")[0]
    with user.memory() as opened:
        states = [row["state"] for row in memory.rows(opened.db, "select state from turns order by state")]
        assert states == ["done"] * 5 + ["forgotten", "pending"]
        assert opened.db["requests"].count == 6
    forgotten = user.query("select id from turns where state = 'forgotten'", user.places.database)
    assert user.places.forgotten.read_text("utf-8").split() == [forgotten], "it outlives this database too"
    user.has_learned("Has a dog", "I have a dog")
    user.run("undo", "5")
    assert sorted(user.facts) == ["Has a dog", "Lives in York", "Plays the cello", "Works as a nurse"]
    user.run("rollback", "3")
    assert sorted(user.facts) == ["Keeps two hens", "Lives in Leeds", "Plays the cello"]
    assert kept(user) == []


def test_the_pause_outlives_a_damaged_database(used: User) -> None:
    used.run("pause")
    used.places.database.write_bytes(b"This is no database.\n")
    assert "paused" in used.run("status", LLM_MEMORY_AUTO="1")[0]
    used.types("I have a cat")
    assert used.learns("ADD | Interests | Has a cat | I have a cat") is None


# Loss


@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_a_database_that_is_gone_loses_history_only(user: User, how: str) -> None:
    user.run("load", "-", stdin=PROFILE)
    user.run("load", "-", "--yes", stdin="- New\n")
    if how == "removed":
        user.places.database.unlink()
    else:
        user.places.database.write_bytes(b"")
    user.run("add", "Plays chess")
    assert user.facts == ["New", "Plays chess"], "and nothing that was displaced comes back"
    assert user.authors == ["unknown", "add"]


# Locks


def test_a_database_that_another_process_has_locked_is_sound(used: User) -> None:
    with contextlib.closing(sqlite3.connect(used.places.database, isolation_level=None)) as locked:
        locked.execute("begin exclusive")
        with pytest.raises(sqlite3.OperationalError, match="locked"), used.memory(patience=0.1) as memory:
            memory.history.versions()
    assert kept(used) == []
    assert len(used.versions()) == 2


def test_who_reads_and_then_writes_waits_for_another_writer(user: User) -> None:
    user.run("add", "Plays chess")

    def commit_late(other: sqlite3.Connection) -> None:
        time.sleep(0.5)
        other.execute("commit")

    with contextlib.closing(
        sqlite3.connect(user.places.database, isolation_level=None, check_same_thread=False)
    ) as other:
        other.execute("begin immediate")
        other.execute("insert into state values ('a', 'b')")
        thread = threading.Thread(target=commit_late, args=[other])
        thread.start()
        with user.memory() as opened:
            take_in(opened)
        thread.join()
    assert user.query("select value from state where key = 'a'", user.places.database) == "b"


def test_a_lock_is_waited_for_no_longer_than_was_asked_and_only_where_it_is_needed(user: User) -> None:
    user.run("add", "Plays chess")
    with filelock.FileLock(user.places.lock_file("profile"), is_singleton=False):
        assert user.authors == ["add"]
        with pytest.raises(Busy, match=r"profile\.lock is held by another process"), lock(user.places, "profile", 0.1):
            pass


# What was forgotten


def test_what_was_forgotten_is_not_offered_again_when_the_database_is_lost(user: User) -> None:
    user.types("My cat is called Zanzibar", "I play the cello")
    user.run("forget", "Zanzibar", "--yes")
    assert "Zanzibar" not in user.places.forgotten.read_text("utf-8")
    assert user.places.forgotten.stat().st_mode & 0o777 == 0o600
    for how in ("removed", "emptied", "damaged"):
        if how == "removed":
            user.places.database.unlink()
        else:
            user.places.database.write_bytes(b"" if how == "emptied" else b"\0garbage" * 2_000)
            user.llm("memory", "status", auto=None)
        user.places.journal.unlink(missing_ok=True)
        assert "To learn from: 1 text" in user.run("learn", stdin="n\n", code=1)[1], how
        assert user.run("search", "--chats", "Zanzibar")[0] == "", how
    user.run("clear", "--purge", "--yes")
    assert not user.places.directory.exists()


def test_what_was_forgotten_is_not_learned_where_the_database_is_an_older_copy(user: User) -> None:
    user.types("My cat is called Zanzibar", "I play the cello")
    with user.memory() as opened:
        memory.take_in(opened)
    older = user.places.database.read_bytes()
    user.run("forget", "Zanzibar", "--yes")
    user.places.database.write_bytes(older)
    assert "Learning from 1 message" in user.run("update")[1]
    assert "Zanzibar" not in str(user.calls(update=True))
    assert user.run("search", "--chats", "Zanzibar")[0] == ""
    user.places.forgotten.unlink()
    user.run("status")
    assert user.places.forgotten.read_text("utf-8").strip(), "it is in the database, too"


def test_an_empty_database_is_renamed_said_and_begun_anew(used: User) -> None:
    used.places.database.write_bytes(b"")
    assert "memory.db could not be read, and is kept as" in used.llm("memory", "history", auto=None).stderr
    assert kept(used) == [b""]
    assert "memory.db.unreadable-" in used.problems()
    assert {"Lives in Leeds", "Has a dog"} <= set(used.facts)


def test_a_first_start_that_is_killed_leaves_no_database_half_made(user: User) -> None:
    user.places.create()
    user.places.database.with_name(".memory.db.new").write_bytes(b"half")
    user.run("add", "Plays chess")
    assert kept(user) == []
    assert user.authors == ["add"]


def test_what_is_forgotten_stands_in_no_file_beside_a_database_in_wal_mode(user: User) -> None:
    user.run("add", "Lives in Zanzibar")
    with contextlib.closing(sqlite3.connect(user.places.database)) as reader:
        reader.execute("pragma journal_mode = wal")
    with contextlib.closing(sqlite3.connect(user.places.database)) as reader:
        reader.execute("select count(*) from lines").fetchall()
        user.run("add", "Has a boat in Zanzibar")
        assert "memory.db-wal" in user.files_with("Zanzibar")
    user.run("forget", "Zanzibar", "--yes")
    assert user.files_with("Zanzibar") == []
    user.run("clear", "--purge", "--yes")
    assert not user.places.directory.exists()


def test_damage_while_there_was_no_database_is_told_and_leaves_a_new_one_alone(user: User) -> None:
    def damaged() -> None:
        with user.memory(create=False):
            user.run("add", "Has a dog")
            raise sqlite3.DatabaseError("damaged")

    with pytest.raises(sqlite3.DatabaseError, match="damaged"):
        damaged()
    assert user.facts == ["Has a dog"]
    assert kept(user) == []
