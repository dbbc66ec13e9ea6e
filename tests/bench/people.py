"""Made-up users: homes, profiles and logs to measure with."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil

import llm_user_memory as memory

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from conftest import make_log, note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

THINGS = ["Python", "sailing", "Welsh", "bread", "chess", "Rust", "the oboe", "gardens", "maps", "bees", "tea", "Bach"]
FORMS = [
    "Works with {} on weekdays, mostly for a hospital in Leeds",
    "Has been learning {} since March 2024",
    "Prefers examples with {} over general explanations",
    "Is writing a book about {} together with a friend",
    "Gives a course on {} at the local library every autumn",
    "Would like to know more about the history of {}",
]


def profile(characters: int) -> str:
    """A profile of about this many characters."""
    document = memory.Document("")
    number = 0
    while len(document.text) < characters - 60:
        form, thing = FORMS[number % len(FORMS)], THINGS[number // len(FORMS) % len(THINGS)]
        section = memory.DEFAULT_SECTIONS[number % 4]
        document = document.add(section, f"{form.format(thing)} (no. {number})")
        number += 1
    return document.text


def environment(user_dir: pathlib.Path, **variables: str) -> dict[str, str]:
    """What `llm` needs to run with this user directory and the scripted model."""
    user_dir.mkdir(parents=True, exist_ok=True)
    (user_dir / "default_model.txt").write_text("scripted")
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(user_dir), "LLM_USER_PATH": str(user_dir), "LANG": "C.UTF-8", **variables}


def home(user_dir: pathlib.Path, text: str) -> memory.Home:
    """A home with this profile and an empty log."""
    made = memory.Home(user_dir, isolated=True)
    made.create()
    made.profile.write_text(text, "utf-8")
    make_log(made).close()
    return made


def type_and_log(opened: memory.Memory, text: str) -> None:
    """What a call leaves behind: a turn in the log, and a note."""
    at, turn = memory.utc_now().isoformat(), os.urandom(8).hex()
    with contextlib.closing(sqlite3.connect(opened.home.logs)) as db, db:
        sql = "insert into turns (id, thread_id, model, datetime_utc) values (?, ?, 'scripted', ?)"
        db.execute(sql, [turn, turn, at])
        db.execute("insert into turn_search (turn_id, prompt, response) values (?, ?, 'Yes.')", [turn, text])
    memory.append_line(opened.home.journal, note(text, turn, at=at))


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.001)


@contextlib.contextmanager
def worker(env: dict[str, str], its: memory.Home) -> Iterator[int]:
    """A running worker's pid."""
    process = subprocess.Popen([sys.executable, "-m", "llm", "memory", "worker"], env=env)
    try:
        wait_for(lambda: memory.worker_runs(its))
        yield process.pid
    finally:
        process.kill()
        process.wait()


def end_worker(its: memory.Home) -> None:
    """Wait for the worker that a call has started, and kill it."""
    wait_for(lambda: memory.worker_runs(its))
    for process in psutil.process_iter(["cmdline", "environ"]):
        here = (process.info["environ"] or {}).get("LLM_USER_PATH") == str(its.user_dir)
        if here and process.info["cmdline"][-2:] == ["memory", "worker"]:
            process.kill()
    wait_for(lambda: not memory.worker_runs(its))
