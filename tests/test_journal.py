"""The journal: a line for each call, taken in once, matched with the turn that llm logs, and shortened."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from conftest import User, eventually, note, posix_only

import llm_user_memory as memory

if TYPE_CHECKING:
    import pathlib

SAID = "I live in Leeds"
ALSO = "I work as a nurse"
SPY = "I am a spy"


@pytest.fixture
def journal(tmp_path: pathlib.Path) -> memory.Journal:
    return memory.Journal(tmp_path / "typed.jsonl")


def ids(journal: memory.Journal) -> list[str]:
    return [found.id for found in journal.read().notes]


def append(journal: memory.Journal, *names: str) -> None:
    for name in names:
        journal.append(note(SAID, id=name)._asdict())


# A line for each call


def test_a_call_notes_the_length_and_digest_of_what_was_typed_and_never_a_word(idle: User) -> None:
    idle.says(SAID, LLM_MEMORY_MODEL="scripted-2")
    (line,) = [json.loads(line) for line in idle.places.file("typed.jsonl").read_text("utf-8").splitlines()]
    assert (line["command"], line["learn"], line["model"]) == ("prompt", True, "scripted-2")
    assert (line["length"], line["sha256"]) == (len(SAID), memory.digest(SAID))
    assert idle.files_with("Leeds") == []


def test_the_note_of_a_failed_call_is_void(idle: User) -> None:
    failed = idle.llm("-m", "scripted-key", SPY, check=False)
    assert failed.returncode == 1
    entries = idle.memory().journal.read()
    assert entries.void == [found.id for found in entries.notes]
    idle.llm(SPY, auto=None)
    idle.llm(SAID)
    assert idle.run("update")[0] == f"+ {SAID}\n"
    assert idle.asked_about("a spy") == 0


def test_a_line_that_was_cut_short_spoils_no_other_line(journal: memory.Journal) -> None:
    append(journal, "one")
    with journal.path.open("ab") as file:
        file.write(b'{"id": "half", "comm')
    append(journal, "two")
    journal.append({"void": "one"})
    journal.append({"failed": 'KeyError: {"a": 1}'})
    with journal.path.open("ab") as file:
        file.write(b'{"id"')
    entries = journal.read()
    assert [found.id for found in entries.notes] == ["one", "two"]
    assert (entries.void, entries.failure) == (["one"], 'KeyError: {"a": 1}')


@posix_only
def test_a_disk_that_fills_up_in_the_middle_of_a_line_costs_that_line_alone(journal: memory.Journal) -> None:
    import resource

    append(journal, "one")
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.path.stat().st_size + 10, most))
    try:
        with contextlib.suppress(OSError):
            append(journal, "cut")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert not journal.path.read_bytes().endswith(b"\n"), "no line was cut short"
    append(journal, "two", "three")
    assert ids(journal) == ["one", "two", "three"]


# Shortening


def test_a_line_written_while_the_journal_is_dropped_is_still_read(journal: memory.Journal) -> None:
    append(journal, "one")
    with journal.path.open("ab") as call:  # opened just before the journal is dropped, and written to after it
        assert ids(journal) == ["one"]
        journal.drop()
        append(journal, "two")
        call.write(json.dumps(note(SAID, id="late")._asdict()).encode() + b"\n")
    assert ids(journal) == ["one", "late", "two"]
    journal.drop()
    assert ids(journal) == ["two"]
    journal.drop()
    assert ids(journal) == []


def test_no_line_is_lost_while_calls_append_and_the_journal_is_shortened(journal: memory.Journal) -> None:
    ended = threading.Event()

    def call(name: str, written: list[str]) -> None:
        while not ended.wait(0.001):
            append(journal, line := f"{name} {len(written)}")
            written.append(line)

    written: list[list[str]] = [[], [], []]
    calls = [threading.Thread(target=call, args=(f"call {n}", written[n])) for n in range(3)]
    for thread in calls:
        thread.start()
    seen: set[str] = set()
    taken: set[bytes] = set()

    def taken_in() -> bool:
        seen.update(ids(journal))
        journal.drop()
        if journal.taken.exists():
            taken.add(journal.taken.read_bytes()[:60])
        return len(taken) > 1

    try:
        eventually(taken_in, "shortening the journal")
    finally:
        ended.set()
        for thread in calls:
            thread.join()
    seen.update(ids(journal))
    assert seen == {line for lines in written for line in lines}


def test_a_note_that_is_read_again_is_not_taken_in_again(user: User) -> None:
    user.types(SAID)
    kept = user.places.file("typed.jsonl").read_bytes()
    assert user.learns(f"ADD | Notes | Leeds | {SAID}")
    user.places.file("typed.jsonl").write_bytes(kept)  # as after a kill between taking in and dropping
    user.types(ALSO)
    assert user.learns(f"ADD | Notes | Nurse | {ALSO}")
    assert user.learns("NO_UPDATE") is None
    assert user.facts == ["Leeds", "Nurse"]


def test_notes_of_calls_that_were_killed_do_not_pile_up(user: User) -> None:
    with user.memory() as opened:
        for _ in range(3):
            notes = [note(SPY, learn=False) for _ in range(400)]
            opened.turns.take_notes(memory.Entries(notes, []))
        assert opened.turns.open_notes()[-1] == notes[-1]
        assert len(opened.turns.open_notes()) <= memory.MOST_OPEN_NOTES


# Matching notes and turns


def turn(**fields: Any) -> memory.Turn:
    given: dict[str, Any] = {"id": "turn", "thread_id": "thread", "model": "scripted"}
    return memory.Turn(**given | {"at": memory.utc_now().isoformat()} | fields)


def test_typed_words_are_looked_for_inside_a_prompt_of_ordinary_size() -> None:
    for around, found in (0, 0), (9_000, 9_000), (10_000, None):
        assert memory.typed_at("x" * around + SAID + "y" * around, note(SAID), anywhere=True) == found
    assert memory.typed_at("x" * 30_000 + SAID, note(SAID)) == 30_000


def test_a_note_matches_no_turn_logged_before_it_or_in_another_conversation() -> None:
    soon = (memory.utc_now() + dt.timedelta(seconds=5)).isoformat()
    for other in (note(SAID, at=soon), note(SAID, thread="other"), note(SAID, length=0), note(ALSO)):
        assert memory.match(turn(), SAID, [other]) is None
    for its in (note(SAID), note(SAID, thread="thread")):
        assert memory.match(turn(), f"Page {SAID}", [its]) == (its, 5)


def test_the_end_of_a_prompt_is_matched_before_its_inside_and_more_words_before_fewer() -> None:
    inside, short, whole = note("hi"), note("nurse"), note(f"hi, {ALSO}")
    for notes in ([inside, short, whole], [whole, short, inside]):
        assert memory.match(turn(), f"hi, {ALSO}", notes) == (whole, 0)
        assert memory.match(turn(), f"hi, {ALSO}", [n for n in notes if n is not whole]) == (short, len(ALSO) - 1)
    assert memory.match(turn(), f"hi, {ALSO}!", [short, inside]) is not None


def test_a_note_matches_one_turn_only(user: User) -> None:
    user.types(SAID)
    user.llm(SAID, auto=None)
    with user.memory() as opened:
        assert memory.take_in(opened, memory.Log(user.places.logs)) == 1
        assert opened.waiting() == 1


@pytest.mark.parametrize(("switch", "continued"), [("pause", True), ("updates", False)])
def test_words_of_a_killed_call_are_not_learned_when_typed_again_with_learning_off(
    idle: User, switch: str, *, continued: bool
) -> None:
    idle.types(SAID)
    thread = idle.query("select id from threads")
    idle.memory().journal.append(note(SPY, thread=thread if continued else None)._asdict())
    if switch == "pause":
        idle.run("pause")
    idle.llm(*(["-c"] if continued else []), SPY, LLM_MEMORY_UPDATES="on" if switch == "pause" else "off")
    idle.run("resume")
    assert idle.learns(f"ADD | Notes | Leeds | {SAID}\nADD | Notes | Spy | {SPY}")
    assert idle.learns("NO_UPDATE") is None
    assert idle.facts == ["Leeds"]


def test_a_call_in_a_conversation_matches_its_own_note_and_not_one_of_a_killed_call(idle: User) -> None:
    idle.types(SAID)
    idle.memory().journal.append(note("hi", thread=idle.query("select id from threads"))._asdict())
    idle.llm("-c", f"hi, {ALSO}")
    assert idle.learns(f"ADD | Notes | Leeds | {SAID}\nADD | Notes | Nurse | {ALSO}")
    assert idle.facts == ["Leeds", "Nurse"]
