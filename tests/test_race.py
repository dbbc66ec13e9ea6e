"""An editor saves the profile again and again while a worker and commands write to it: no save is lost."""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from llm_user_memory import DEFAULT_SECTIONS, TITLE, Document, Home, Memory

if TYPE_CHECKING:
    import pathlib

HOMES = 16
"""Independent users at a time: most of a race is waiting for the others to be done."""
SAVES = 130
"""By the editor of each home."""
SECONDS = 25.0
"""After which editors no longer wait for a writer before they save."""
START = f"{TITLE}\n\n" + "".join(f"## {name}\n- Something about {name}\n\n" for name in DEFAULT_SECTIONS)

Context = multiprocessing.get_context("spawn")
Stop = Callable[[], bool]


def in_place(path: pathlib.Path, text: str) -> None:
    """Save as nano, VS Code and `echo >` do: the same file is emptied and written."""
    with path.open("w", encoding="utf-8", newline="") as file:
        for line in text.splitlines(keepends=True):
            file.write(line)


def in_place_late(path: pathlib.Path, text: str) -> None:
    """The same by a program that opens the file first, and empties it only when it has all of the text."""
    with path.open("r+", encoding="utf-8", newline="") as file:
        os.sched_yield()
        file.truncate()
        file.write(text)


def renamed(path: pathlib.Path, text: str) -> None:
    """Save as vim, emacs and `sed -i` do: another file is written, and takes the name."""
    aside = path.with_name("profile.md.new")
    aside.write_text(text, encoding="utf-8", newline="")
    os.replace(aside, path)


def inode(path: pathlib.Path) -> int:
    return path.stat().st_ino


def edit(home: Home, chance: random.Random, ending: float) -> None:
    """Save many times: read what is there, add a line, write it back, in every style."""
    for number in range(SAVES):
        text = home.profile.read_text("utf-8")
        line = f"- Saved {number} by an editor\n"
        cut = chance.choice([len(text), text.find("## Interests")])
        cut = cut if cut >= 0 and text.endswith("\n") else len(text)
        chance.choice([in_place, in_place_late, renamed])(home.profile, text[:cut] + line + text[cut:])
        # Most saves come just when a writer has written, some right behind another save.
        seen, latest = inode(home.profile), time.monotonic() + chance.choice([0, 0.1, 0.5, 0.5])
        while inode(home.profile) == seen and time.monotonic() < min(latest, ending):
            os.sched_yield()
            threading.Event().wait(0.002)


def work(home: Home, chance: random.Random, stop: Stop) -> int:
    """Change lines as the worker does: one added, replaced or removed by an edit."""
    changes = 0
    with Memory(home) as memory:
        while not stop():
            number = changes

            def make(text: str, number: int = number) -> str:
                document = Document(text)
                mine = [item for item in document.items if item.editable and item.text.startswith("Learned")]
                if len(mine) > 3:
                    item = chance.choice(mine)
                    return chance.choice([document.remove(item), document.replace(item, f"Learned {number}")]).text
                return document.add(chance.choice(DEFAULT_SECTIONS), f"Learned {number}").text

            changes += memory.change("worker", make, model="scripted") is not None
    return changes


def command(home: Home, chance: random.Random, stop: Stop) -> int:
    """Do what the commands do: add, undo, load, look."""
    changes = 0
    with Memory(home) as memory:
        while not stop():
            what = chance.randrange(8)
            if what == 0 and changes:
                version, _ = memory.overwrite("rollback", memory.version_text(memory.find_version(steps=1).id))
            elif what == 1:
                version, _ = memory.overwrite("load", START)
            elif what == 2:
                memory.settle()
                version = None
            elif what == 3:
                before = memory.profile()
                version, _ = memory.replace_text("edit", before, before + f"- Edited {changes}\n")
            else:
                version = memory.add([f"Added {changes}"], "Interests")
            changes += version is not None
    return changes


def homes(folder: pathlib.Path) -> list[Home]:
    return [Home(folder / str(number), isolated=True) for number in range(HOMES)]


def editors(folder: pathlib.Path) -> None:
    """The editors of all homes, a process of its own that knows nothing of memory's locks."""
    ending = time.monotonic() + SECONDS
    with ThreadPoolExecutor(HOMES) as pool:
        for done in [pool.submit(edit, home, random.Random(n), ending) for n, home in enumerate(homes(folder))]:
            done.result()


def writers(folder: pathlib.Path, what: Callable[[Home, random.Random, Stop], int]) -> None:
    """One kind of writer for every home; leaves how much it wrote, or why it failed."""
    stop = (folder / "stop").exists
    with ThreadPoolExecutor(HOMES) as pool:
        running = [pool.submit(what, home, random.Random(n), stop) for n, home in enumerate(homes(folder))]
        changes = sum(done.result() for done in running)
    (folder / what.__name__).write_text(str(changes))


def everything_kept(home: Home) -> str:
    """Profile, history and conflict copies of a home."""
    with Memory(home) as memory:
        memory.settle()
        history = "".join(memory.version_text(version) for version in range(1, memory.find_version(steps=0).id + 1))
        copies = [path.read_text("utf-8", "replace") for path in home.directory.glob("profile.md*")]
    return history + "".join(copies)


def lost(home: Home) -> Iterator[str]:
    kept = set(everything_kept(home).splitlines())
    for number in range(SAVES):
        if (line := f"- Saved {number} by an editor") not in kept:
            yield line


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot exchange two files")
def test_no_save_is_lost_to_a_worker_and_commands_that_write_at_the_same_time(tmp_path: pathlib.Path) -> None:
    for home in homes(tmp_path):
        home.create()
        home.profile.write_text(START)
    writing = [Context.Process(target=writers, args=(tmp_path, what)) for what in (work, command)]
    editing = Context.Process(target=editors, args=(tmp_path,))
    for process in [*writing, editing]:
        process.start()
    editing.join()
    (tmp_path / "stop").touch()
    for process in writing:
        process.join()
    assert [process.exitcode for process in [*writing, editing]] == [0, 0, 0]
    changes = {what: int((tmp_path / what).read_text()) for what in ("work", "command")}
    gone = {home.user_dir.name: found for home in homes(tmp_path) if (found := list(lost(home)))}
    print(f"{HOMES * SAVES:,} saves against {changes}: {sum(map(len, gone.values()))} lost")
    assert HOMES * SAVES >= 2_000
    assert sum(changes.values()) > 100, "there was hardly a race"
    assert gone == {}


def add_many(home: Home, name: str) -> None:
    with Memory(home) as memory:
        for number in range(30):
            memory.add([f"Fact {number} of {name}"], "Interests")


def test_no_fact_is_lost_when_the_lock_is_deleted_again_and_again_while_it_is_held(tmp_path: pathlib.Path) -> None:
    home = Home(tmp_path, isolated=True)
    names = ["Ada", "Ben", "Cy"]
    adding = [Context.Process(target=add_many, args=(home, name)) for name in names]
    for process in adding:
        process.start()
    while any(process.is_alive() for process in adding):
        home.profile_lock.unlink(missing_ok=True)
        threading.Event().wait(0.01)
    assert [process.exitcode for process in adding] == [0, 0, 0]
    facts = [item.text for item in Document(home.profile.read_text("utf-8")).items]
    assert sorted(facts) == sorted(f"Fact {number} of {name}" for name in names for number in range(30))
