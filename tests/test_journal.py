"""The journal: a line for each turn that llm has logged, taken in once, and its words found again in llm's log."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Any

import pytest
from conftest import Listener, User, eventually, make_log, note, posix_only

import llm_user_memory as memory

SAID = "I live in Leeds"
ALSO = "I work as a nurse"
SPY = "I am a spy"


def noted(user: User) -> list[dict[str, Any]]:
    return [json.loads(line) for line in user.places.journal.read_text("utf-8").splitlines()]


def log(user: User, prompt: str) -> str:
    """Have llm log a prompt, of which nothing is noted; return the turn's id."""
    response = Listener().prompt(prompt)
    response.text()
    response.log_to_db(make_log(user.places))
    return str(response.id)


def take_in(user: User) -> list[tuple[str, str | None]]:
    """Take the journal in; return the state of each turn, and what is shown of it to a model."""
    with user.memory() as opened:
        memory.take_in(opened)
        states = memory.rows(opened.db, "select id, state from turns order by id")
        typed = memory.read_messages(user.places, memory.due_turns(opened))
    shown = {message.turn_id: message.text for message in typed}
    return [(row["state"], shown.get(row["id"])) for row in states]


# A line for each logged turn


def test_a_call_notes_the_length_and_digest_of_what_was_typed_and_never_a_word(idle: User) -> None:
    idle.says(SAID, LLM_MEMORY_MODEL="scripted-2", LLM_MEMORY_REVIEW="all")
    (line,) = noted(idle)
    assert line.pop("at") <= memory.utc_now().isoformat()
    turn = idle.query("select id from turns")
    settings = {"model": "scripted-2", "review": True, "interval": 0.1, "budget": 8000}
    assert line == {"id": turn, "length": 15, "sha256": memory.digest(SAID), "behind": 0, **settings}
    assert idle.files_with("Leeds") == []


def test_a_call_that_fails_or_is_killed_before_llm_logs_it_notes_nothing(idle: User) -> None:
    assert idle.llm("-m", "scripted-key", SPY, check=False).returncode == 1
    (idle.script / "slow.txt").write_text(f"{SPY} 600")
    call = idle.start(SPY)
    eventually(lambda: len(idle.calls()) == 1, "the prompt")
    call.kill()
    call.wait()
    (idle.script / "slow.txt").unlink()
    idle.llm(SPY, auto=None)  # the same words, with memory off
    idle.llm(SAID)
    assert [line["length"] for line in noted(idle)] == [len(SAID)]
    assert f"Added: “{SAID}”\n" in idle.run("update")[1]
    assert idle.asked_about("a spy") == 0


@posix_only
def test_a_disk_that_fills_up_in_the_middle_of_a_line_costs_that_line_alone(user: User) -> None:
    import resource

    user.types(SAID)
    turn = log(user, SPY)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (user.places.journal.stat().st_size + 10, most))
    try:
        with contextlib.suppress(OSError):
            memory.append_line(user.places.journal, note(SPY, turn))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert not user.places.journal.read_bytes().endswith(b"\n"), "no line was cut short"
    user.types(ALSO)
    assert sorted(take_in(user), key=str) == [("gone", None), ("pending", SAID), ("pending", ALSO)]


def test_of_a_line_only_fields_of_their_kind_are_taken_up(user: User) -> None:
    fields = {"interval": "soon", "budget": None, "failed": 1, "model": 7, "behind": "x"}
    user.places.create()
    memory.append_line(user.places.journal, json.dumps({"id": "01x", "length": 3, **fields}))
    (entry,) = memory.journal_entries(user.places)
    assert (entry["id"], entry["length"], entry["model"], entry["behind"]) == ("01x", 3, "", 0)
    assert not entry.keys() & {"interval", "budget", "failed"}


def test_a_failure_that_names_a_file_outside_utf_8_is_read_as_it_was_written(user: User) -> None:
    failed = memory.in_words(OSError(13, "Permission denied", "/tmp/\udcff/\U0001f600.md"))
    user.places.create()
    memory.append_line(user.places.journal, json.dumps({"failed": failed, "at": "2026-11-20T12:00:00"}))
    with user.memory() as opened:
        assert memory.call_failure(opened) == failed
        assert not memory.new_notes(opened)


@pytest.mark.parametrize(
    "spoiled",
    [
        b'{"id": "half", "comm\n',
        b"\xff\xfe{\n",
        b"[1, 2]\n",
        b'{"id": "01x", "length": "long"}\n',
        b'{"id": "01x", "length": 1e999}\n',
        b'{"id": "01x", "length": 99999999999999999999}\n',
        b'{"id": "\\ud800", "length": 1}\n',
    ],
)
def test_a_line_that_cannot_be_read_spoils_no_other_line_and_is_told(user: User, spoiled: bytes) -> None:
    user.types(SAID)
    with user.places.journal.open("ab") as file:
        file.write(spoiled)
    user.types(ALSO)
    for _ in range(3):
        assert [said for _, said in take_in(user) if said] == [SAID, ALSO]
    user.run("update")
    assert user.facts == [SAID, ALSO]
    assert "Lost         1 this week, gone from typed.jsonl" in user.run("status")[0]


@pytest.mark.parametrize("field", ["id", "sha256"])
def test_a_message_whose_note_has_a_flipped_bit_is_counted_by_status(user: User, field: str) -> None:
    user.types(SAID)
    line = user.places.journal.read_text("utf-8")
    value = json.loads(line)[field]
    user.places.journal.write_text(line.replace(value, chr(ord(value[0]) ^ 1) + value[1:]), "utf-8")
    user.types(ALSO)
    user.run("update")
    assert user.facts == [ALSO]
    assert user.status()["lost"] == 1
    with user.memory() as later:
        later.db.execute("update turns set at = '2020-11-20T12:00:00+00:00'")
    assert json.loads(user.run("status", "--json")[0])["lost"] == 0


def test_a_flipped_bit_anywhere_in_the_journal_stops_no_learning(user: User) -> None:
    turn = log(user, SAID)
    user.places.create()
    memory.append_line(user.places.journal, note(SAID, turn))
    line = bytearray(user.places.journal.read_bytes())
    with user.memory() as opened:
        for at in range(len(line)):
            line[at] ^= 1 << at % 8
            user.places.journal.write_bytes(line)
            line[at] ^= 1 << at % 8
            memory.take_in(opened)
    user.types(ALSO)
    assert ("pending", ALSO) in take_in(user)
    user.run("update")
    assert {ALSO} <= set(user.facts) <= {SAID, ALSO}


# Taking it in


def test_a_note_is_taken_in_once_however_often_it_is_read(user: User) -> None:
    user.types(SAID)
    kept = user.places.journal.read_bytes()
    assert user.learns(f"ADD | Notes | Leeds | {SAID}")
    user.places.journal.write_bytes(kept)  # as after a kill between taking in and removing
    user.types(ALSO)
    assert user.learns(f"ADD | Notes | Leeds again | {SAID}\nADD | Notes | Nurse | {ALSO}")
    assert user.learns("NO_UPDATE") is None
    assert user.facts == ["Leeds", "Nurse"]


def test_a_note_behind_a_long_year_of_failures_is_taken_in(user: User) -> None:
    user.places.create()
    failed = json.dumps({"failed": "the profile was not sent: " + "x" * 80, "at": "2026-11-20T12:00:00"})
    user.places.journal.write_text(f"{failed}\n" * 80_000)
    user.types(SAID)
    assert take_in(user) == [("pending", SAID)]


def test_a_line_written_to_a_journal_that_was_opened_before_it_was_taken_in_is_still_read(user: User) -> None:
    user.types(SAID)
    turn = log(user, ALSO)
    with user.places.journal.open("ab") as call:
        take_in(user)
        call.write(note(ALSO, turn).encode() + b"\n")
    assert [said for _, said in take_in(user)] == [SAID, ALSO]
    take_in(user)
    assert user.files_with(turn) == ["memory.db"]


def test_no_line_is_lost_while_calls_append_and_the_journal_is_taken_in(user: User) -> None:
    user.make_log()
    user.places.create()
    ended = threading.Event()

    def call(name: str, written: list[str]) -> None:
        while not ended.wait(0.001):
            memory.append_line(user.places.journal, note(SAID, line := f"{name} {len(written)}"))
            written.append(line)

    written: list[list[str]] = [[], [], []]
    calls = [threading.Thread(target=call, args=(f"call {n}", written[n])) for n in range(3)]
    with user.memory() as opened:

        def known() -> int:
            memory.take_in(opened)
            return int(memory.value(opened.db, "select count(*) from turns"))

        for thread in calls:
            thread.start()
        try:
            eventually(lambda: known() > 250 and sum(map(len, written)) > 500, "taking in")
        finally:
            ended.set()
            for thread in calls:
                thread.join()
        known()
        assert known() == sum(map(len, written))


# Finding the words


@pytest.mark.parametrize(
    ("prompt", "behind", "found"),
    [
        (f"All about fish.\n{SAID}", 0, True),
        (f"Sum up: {SAID} (in a template)", 16, True),
        ("All about fish.", 0, False),
        ("", 0, False),
    ],
)
def test_typed_words_are_found_by_place_and_digest_or_their_turn_is_gone(
    user: User, prompt: str, behind: int, found: bool
) -> None:
    user.places.create()
    memory.append_line(user.places.journal, note(SAID, log(user, prompt), behind=behind))
    assert take_in(user) == [("pending", SAID) if found else ("gone", None)]


@posix_only
def test_words_typed_between_a_long_page_and_a_template_are_found(idle: User) -> None:
    (idle.user_dir / "templates").mkdir()
    (idle.user_dir / "templates" / "wraps.yaml").write_text(f"prompt: 'Of $input: {'y' * 30_000}'\n")
    typed = f"{SAID}, {'z' * 4_000}"
    idle.llm("-t", "wraps", typed, input=f"{SPY} " * 20_000)
    idle.llm("-t", "wraps", SAID, input=f"{SAID} {SPY}")
    assert take_in(idle) == [("pending", typed), ("pending", SAID)]


def test_words_typed_beside_a_fragment_are_learned_unless_llm_has_cut_them_out_with_it(idle: User) -> None:
    page = idle.folder / "page.txt"
    asks = f"{ALSO}, sum this up: {SAID}?"
    for text in (f"{SPY}. {SAID}!", SAID):  # the second one is what llm cuts out of the prompt that it logs
        page.write_text(text)
        idle.llm("-f", str(page), asks)
    assert len(noted(idle)) == 2
    assert take_in(idle) == [("pending", asks), ("gone", None)]
