"""What the worker costs while it waits, and how long it takes when there is something."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import people
import psutil
from table import Row, alone, compared, in_turns

import llm_user_memory as memory

if TYPE_CHECKING:
    import pathlib

TELL_SIZE = "import psutil; print(psutil.Process().memory_info().rss / 2**20)"
POLLS_AN_HOUR = 3_600 / memory.Settings().interval


def fabricated(user_dir: pathlib.Path, turns: int) -> memory.Home:
    """A home whose log has so many turns, made as llm makes it, except for its search index, which we do not read."""
    home = people.home(user_dir, people.profile(2_000))
    with contextlib.closing(sqlite3.connect(home.logs)) as db:
        db.execute("pragma synchronous = off")
        trigger = db.execute("select sql from sqlite_master where name = 'turn_search_ai'").fetchone()[0]
        db.execute("drop trigger turn_search_ai")
        numbers = "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?)"
        db.execute(
            f"{numbers} insert into turns (id, thread_id, model, datetime_utc)"
            " select printf('%026d', i), printf('%026d', i / 4), 'scripted', '2026-11-20T12:00:00+00:00' from n",
            [turns],
        )
        db.execute(
            f"{numbers} insert into turn_search (turn_id, prompt, response)"
            " select printf('%026d', i), 'What is the answer to question ' || i, 'It is 42.' from n",
            [turns],
        )
        db.execute(trigger)
        db.commit()
    return home


def clocked(times: int, *things: object) -> list[list[float]]:
    """Microseconds that each of these functions takes."""

    def measure(thing: object) -> float:
        assert callable(thing)
        start = time.perf_counter()
        thing()
        return (time.perf_counter() - start) * 1e6

    return in_turns(times, *(lambda thing=thing: measure(thing) for thing in things))


def run(quick: bool, folder: pathlib.Path) -> tuple[str, list[Row]]:
    few, many = 1_000, 10_000 if quick else 1_000_000
    homes = [fabricated(folder / str(turns), turns) for turns in (many, few)]
    memories = [memory.Memory(home) for home in homes]

    def take_in(opened: memory.Memory) -> None:
        people.type_and_log(opened, "I like tea")
        assert memory.take_in(opened)

    times = 10 if quick else 2_000
    taken = clocked(times, *(lambda each=each: take_in(each) for each in memories))
    for each in memories:
        each.db.close()
    return "The worker", [
        compared(f"taking in a note, with {many:,} turns in the log, against {few:,}", taken, 1.5, " µs"),
        *at_rest(quick, folder / "rest"),
        in_time(quick, folder / "time"),
    ]


def at_rest(quick: bool, folder: pathlib.Path) -> list[Row]:
    """CPU and memory of a worker that has nothing to do; polls are counted by making them come fast."""
    home = people.home(folder, people.profile(8_000))
    interval = 0.02
    env = people.environment(folder, LLM_MEMORY_UPDATE_INTERVAL=str(interval))
    seconds = []
    with people.worker(env, home) as pid:
        with memory.Memory(home) as opened:
            people.type_and_log(opened, "I like tea")
        people.wait_for(lambda: "I like tea" in memory.read_profile(home.profile))
        for _ in range(2 if quick else 8):
            before, start = cpu_seconds(pid), time.monotonic()
            time.sleep(0.3 if quick else 2)
            # A poll takes a little longer than the interval; this many there were at most.
            polls = (time.monotonic() - start) / interval
            seconds.append((cpu_seconds(pid) - before) / polls * POLLS_AN_HOUR)
        size = megabytes(pid)
    bare = subprocess.run(
        [sys.executable, "-c", f"import llm.cli, llm; llm.get_model('scripted'); {TELL_SIZE}"],
        env=env | {"LLM_LOAD_PLUGINS": "llm-scripted"}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return [
        alone("CPU in an hour with nothing to do", seconds, None, " s", 2),
        compared("memory (RSS), against llm that has just started", [[size], [float(bare)]], None, " MB", 0),
    ]


def cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def megabytes(pid: int) -> float:
    return psutil.Process(pid).memory_info().rss / 2**20


def in_time(quick: bool, folder: pathlib.Path) -> Row:
    """From the commit of a turn to the written profile; the poll interval made so short that it does not count."""
    home = people.home(folder, people.profile(2_000))
    env = people.environment(folder, LLM_MEMORY_UPDATE_INTERVAL="0.001")
    took = []
    with people.worker(env, home), memory.Memory(home) as opened:
        for number in range(3 if quick else 40):
            text = f"I like colour number {number}"
            people.type_and_log(opened, text)
            start = time.perf_counter()
            people.wait_for(lambda text=text: text in home.profile.read_text("utf-8"))  # type: ignore[misc]
            took.append((time.perf_counter() - start) * 1000)
    return alone("from the logged turn to the written profile, above interval and model", took, 300, " ms", 0)
