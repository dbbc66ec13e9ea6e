"""The journal: a line for each call, taken in once, matched with the turn that llm logs, and shortened."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest
from conftest import User, eventually, fill, note, posix_only

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


def test_a_call_notes_how_much_was_typed_and_its_digest_and_never_a_word(user: User) -> None:
    user.says(SAID, LLM_MEMORY_MODEL="scripted-2", LLM_MEMORY_UPDATE_INTERVAL="3600")
    (line,) = [json.loads(line) for line in user.places.file("typed.jsonl").read_text("utf-8").splitlines()]
    assert (line["command"], line["learn"], line["model"]) == ("prompt", True, "scripted-2")
    assert (line["length"], line["sha256"]) == (len(SAID), memory.digest(SAID))
    assert user.files_with("Leeds") == []


def test_what_a_failed_call_typed_is_void(user: User) -> None:
    user.env["LLM_MEMORY_UPDATE_INTERVAL"] = "3600"
    failed = user.llm("-m", "scripted-key", SPY, check=False)
    assert failed.returncode == 1
    entries = user.memory().journal.read()
    assert entries.void == [found.id for found in entries.notes]
    user.llm(SPY, auto=None)
    user.llm(SAID)
    assert user.run("update")[0] == f"+ {SAID}\n"
    assert user.asked_about("a spy") == 0


def test_a_line_that_was_cut_short_spoils_neither_those_before_it_nor_those_behind(journal: memory.Journal) -> None:
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
def test_a_disk_that_fills_up_in_the_middle_of_a_line_costs_that_line_alone(tmp_path: pathlib.Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", disk], check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        journal = memory.Journal(disk / "typed.jsonl")
        filler = None
        fitting = []
        for name in (f"{n}" for n in range(40)):  # more than a page, which is what such a disk gives out
            size = journal.path.stat().st_size if journal.path.exists() else 0
            try:
                append(journal, name)
            except OSError:
                break
            if journal.path.read_bytes()[size:].endswith(b"\n"):
                fitting.append(name)
            filler = filler or fill(disk)
        assert not journal.path.read_bytes().endswith(b"\n"), "no line was cut short"
        assert filler
        filler.unlink()
        append(journal, "behind", "last")
        assert ids(journal) == [*fitting, "behind", "last"]
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@posix_only
def test_a_call_on_a_full_disk_goes_unlearned_and_the_next_ones_are_learned(user: User) -> None:
    user.places.create()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k,mode=700", "tmpfs", user.places.directory], check=False
    ).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        user.profile = "# Me\n- Mine\n"
        user.says("I play the oboe")
        user.comes_to_know("Mine", "I play the oboe")
        before = user.profile
        filler = fill(user.places.directory)
        user.says(SAID)
        assert "- I play the oboe" in user.calls(update=False)[-1]["system"]
        assert user.profile == before
        filler.unlink()
        user.says(ALSO)
        eventually(lambda: ALSO in user.facts, "learning")
        assert set(user.facts) <= {"Mine", "I play the oboe", SAID, ALSO}
    finally:
        for _ in user.workers():
            user.kill_worker()
        subprocess.run(["umount", "-l", user.places.directory], check=True)


# Shortening


def test_each_line_is_read_once_more_after_the_call_that_wrote_it_could_still_have_the_file_open(
    journal: memory.Journal,
) -> None:
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


@pytest.mark.parametrize(("around", "found"), [(0, True), (9_000, True), (10_000, False)])
def test_typed_words_are_looked_for_inside_a_prompt_of_ordinary_size(around: int, *, found: bool) -> None:
    prompt = "x" * around + SAID + "y" * around
    assert memory.typed_at(prompt, note(SAID), anywhere=True) == (around if found else None)
    assert memory.typed_at("x" * 30_000 + SAID, note(SAID)) == 30_000


def test_a_note_is_not_of_a_turn_that_was_logged_before_it_or_in_another_conversation() -> None:
    soon = (memory.utc_now() + dt.timedelta(seconds=5)).isoformat()
    for other in (note(SAID, at=soon), note(SAID, thread="other"), note(SAID, length=0), note(ALSO)):
        assert memory.match(turn(), SAID, [other]) is None
    for its in (note(SAID), note(SAID, thread="thread")):
        assert memory.match(turn(), f"Page {SAID}", [its]) == (its, 5)


def test_the_tail_of_a_prompt_counts_before_its_inside_and_more_words_before_fewer() -> None:
    inside, short, whole = note("hi"), note("nurse"), note(f"hi, {ALSO}")
    for notes in ([inside, short, whole], [whole, short, inside]):
        assert memory.match(turn(), f"hi, {ALSO}", notes) == (whole, 0)
        assert memory.match(turn(), f"hi, {ALSO}", [n for n in notes if n is not whole]) == (short, len(ALSO) - 1)
    assert memory.match(turn(), f"hi, {ALSO}!", [short, inside]) is not None


def test_a_note_stands_for_one_turn(user: User) -> None:
    user.types(SAID)
    user.llm(SAID, auto=None)
    with user.memory() as opened:
        assert memory.take_in(opened, memory.Log(user.places.logs)) == 1
        assert opened.waiting() == 1


@pytest.mark.parametrize("how", ["paused", "updates off"])
@pytest.mark.parametrize("continued", [True, False])
def test_words_of_a_killed_call_are_not_learned_when_they_are_typed_again_and_not_for_memory(
    user: User, how: str, *, continued: bool
) -> None:
    user.env["LLM_MEMORY_UPDATE_INTERVAL"] = "3600"
    user.types(SAID)
    thread = user.query("select id from threads")
    user.memory().journal.append(note(SPY, thread=thread if continued else None)._asdict())
    if how == "paused":
        user.run("pause")
    user.llm(*(["-c"] if continued else []), SPY, LLM_MEMORY_UPDATES="on" if how == "paused" else "off")
    user.run("resume")
    assert user.learns(f"ADD | Notes | Leeds | {SAID}\nADD | Notes | Spy | {SPY}")
    assert user.learns("NO_UPDATE") is None
    assert user.facts == ["Leeds"]


def test_a_call_in_a_conversation_matches_its_own_note_beside_one_of_a_killed_call(user: User) -> None:
    user.types(SAID)
    thread = user.query("select id from threads")
    user.memory().journal.append(note("hi", thread=thread)._asdict())
    user.llm("-c", f"hi, {ALSO}")
    eventually(lambda: len(user.facts) == 2, "learning")
    assert sorted(user.facts) == sorted([SAID, ALSO])
