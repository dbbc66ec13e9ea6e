"""Editors save the profile again and again while a worker and commands write to it: no save is lost, no line torn."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from conftest import PATIENCE, eventually

import llm_user_memory as memory
from llm_user_memory import DEFAULT_SECTIONS, TITLE, Document, Home, Memory, Problem

if TYPE_CHECKING:
    import pathlib

HOMES = 12
"""Independent users at a time: most of a race is waiting for the others to be done."""
START = f"{TITLE}\n\n" + "".join(f"## {name}\n- Something about {name}.\n\n" for name in DEFAULT_SECTIONS)
WHOLE = re.compile(r"|## .+|# User Profile|- (Something about [\w ]+|(Saved|Learned|Added) \w+)\.")
"""Every line that anyone here writes; a part of one is none."""
LAYOUTS = ["plain", "symlinked", "without exchange"]

Context = multiprocessing.get_context("spawn")
Stop = Callable[[], bool]


@contextlib.contextmanager
def gate(home: Home, *, ours: bool = False) -> Iterator[None]:
    """Keep an exchange from falling between the steps of a save that has several.

    On a busy machine a program may rest between them for any time, and while two of our exchanges
    happen, its save is lost. What one of them does to it is tested where nothing depends on chance.
    """
    import fcntl

    with (home.user_dir / "gate").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if ours else fcntl.LOCK_SH)
        yield


# -- editors: a text in, saved ---------------------------------------------------


def in_place(path: pathlib.Path, text: str, line: str) -> None:
    """Save as nano, VS Code and `echo >` do: the same file is emptied and written."""
    path.write_text(text, encoding="utf-8", newline="")


def appended(path: pathlib.Path, text: str, line: str) -> None:
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(line)


def renamed(path: pathlib.Path, text: str, line: str) -> None:
    """Save as vim, emacs and `sed -i` do: another file is written, and takes the name."""
    aside = path.with_name("profile.md.new")
    aside.write_text(text, encoding="utf-8", newline="")
    os.replace(aside, path)


def anew(path: pathlib.Path, text: str, line: str) -> None:
    """Save as `git checkout` does: the old file is removed, and a new one written."""
    path.unlink()
    in_place(path, text, line)


EDITORS = [in_place, appended, anew, renamed]


def identity(path: pathlib.Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


def edit(home: Home, chance: random.Random, saves: int, ending: float, layout: str) -> None:
    """Save many times: read what is there, add a line, write it back, in every style."""
    path = home.profile.resolve()
    begun = identity(path)
    eventually(lambda: identity(path) != begun, "the first write")
    for number in range(saves):
        save = chance.choice(EDITORS)
        free = save is renamed and layout != "without exchange"
        with contextlib.nullcontext() if free else gate(home):
            text = path.read_text("utf-8")
            line = f"- Saved {number}.\n"
            cut = chance.choice([len(text), text.find("## Interests")])
            cut = cut if cut >= 0 and text.endswith("\n") else len(text)
            seen = identity(path)
            save(path, text[:cut] + line + text[cut:], line)
        # Most saves come just when a writer has written, some right behind another save.
        latest = time.monotonic() + chance.choice([0, 0.1, 0.5, 0.5])
        while identity(path) == seen and time.monotonic() < min(latest, ending):
            threading.Event().wait(0.002)


# -- writers ----------------------------------------------------------------------


def work(home: Home, chance: random.Random, stop: Stop) -> int:
    """Change lines as the worker does: one added, replaced or removed by an edit."""
    changes = 0
    with Memory(home, PATIENCE, settling=0.05) as opened:
        while not stop():

            def make(text: str, number: int = changes) -> str:
                document = Document(text)
                mine = [item for item in document.items if item.editable and item.text.startswith("Learned")]
                if len(mine) > 3:
                    item = chance.choice(mine)
                    return chance.choice(
                        [document.apply(item, "", ""), document.apply(item, item.section, f"Learned {number}.")]
                    ).text
                return document.add(chance.choice(DEFAULT_SECTIONS), f"Learned {number}.").text

            changes += opened.history.change("worker", make, model="scripted") > 0
            threading.Event().wait(chance.random() / 20)  # or the other writer never has its turn
    return changes


def command(home: Home, chance: random.Random, stop: Stop) -> int:
    """Do what the commands do: add, undo, look."""
    changes = 0
    with Memory(home, PATIENCE, settling=0.05) as opened:
        history = opened.history
        while not stop():
            before, fact = history.latest(), f"Added {changes}."
            what = chance.choice(["undo", "look", "look", "add", "add", "add"])
            if what == "undo" and before > 2:
                with contextlib.suppress(Problem):  # an editor has touched the same lines since
                    history.undo(before)
            elif what == "look":
                history.adopt()
            else:
                history.change("add", lambda text, fact=fact: Document(text).add("Interests", fact).text)  # type: ignore[misc]
            changes += history.latest() - before
            threading.Event().wait(chance.random() / 20)
    return changes


# -- the race -----------------------------------------------------------------------


def homes(folder: pathlib.Path) -> list[Home]:
    return [Home(folder / str(number), isolated=True) for number in range(HOMES)]


def all_editors(folder: pathlib.Path, saves: int, layout: str) -> None:
    """The editors of all homes, a process of its own that knows nothing of memory's locks."""
    ending = time.monotonic() + saves / 4  # when editors no longer wait for a writer before they save
    with ThreadPoolExecutor(HOMES) as pool:
        for done in [pool.submit(edit, home, random.Random(), saves, ending, layout) for home in homes(folder)]:
            done.result()


def writers(folder: pathlib.Path, what: Callable[[Home, random.Random, Stop], int], layout: str) -> None:
    """One kind of writer for every home; leaves how much it wrote, or why it failed."""
    real = memory.exchange

    def exchange(target: pathlib.Path, aside: pathlib.Path) -> None:
        home = next(home for home in homes(folder) if home.user_dir in target.parents)
        with gate(home, ours=True):
            real(target, aside)

    memory.exchange = exchange
    if layout == "without exchange":
        import ctypes

        ctypes.CDLL = None  # type: ignore[assignment, misc]
    stop = (folder / "stop").exists
    with ThreadPoolExecutor(HOMES) as pool:
        running = [pool.submit(what, home, random.Random(), stop) for home in homes(folder)]
        changes = sum(done.result() for done in running)
    (folder / what.__name__).write_text(str(changes))


def race(folder: pathlib.Path, layout: str, saves: int) -> int:
    """Let everyone write at once, then look at every home; how many versions were made."""
    for home in homes(folder):
        home.create()
        if layout == "symlinked":
            (home.user_dir / "dotfiles").mkdir()
            home.profile.symlink_to(home.user_dir / "dotfiles" / "profile.md")
        home.profile.write_text(START)
        home.profile.chmod(0o640)
    writing = [Context.Process(target=writers, args=(folder, what, layout), daemon=True) for what in (work, command)]
    editing = Context.Process(target=all_editors, args=(folder, saves, layout), daemon=True)
    for process in [*writing, editing]:
        process.start()
    editing.join(PATIENCE + saves)
    (folder / "stop").touch()
    for process in writing:
        process.join(PATIENCE)
    assert [process.exitcode for process in [*writing, editing]] == [0, 0, 0]
    for home in homes(folder):
        check(home, saves)
    return sum(int((folder / what).read_text()) for what in ("work", "command"))


def check(home: Home, saves: int) -> None:
    with Memory(home) as opened:
        opened.history.adopt()
        texts = [opened.history.text(version) for version in range(opened.history.latest() + 1)]
        assert texts[-1] == memory.read_profile(opened.home.profile)
    lines = {line for text in texts for line in memory.split_lines(text)}
    assert {number for number in range(saves) if f"- Saved {number}.\n" not in lines} == set(), "lost"
    assert {line for line in lines if not WHOLE.fullmatch(line.removesuffix("\n"))} == set(), "torn"
    folders = {home.directory, home.profile.resolve().parent}
    files = {path.name for folder in folders for path in folder.iterdir()}
    assert files <= {".gitignore", "profile.md", "profile.lock", "learn.lock", "memory.db"}, "left behind"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows lets nobody write a file that another has open")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_save_is_lost_or_torn_while_a_worker_and_commands_write(
    tmp_path: pathlib.Path, fuzz: float, record_property: Callable[[str, object], None], layout: str
) -> None:
    ending = time.monotonic() + fuzz / len(LAYOUTS)
    made = rounds = 0
    saves = 40 if fuzz else 4
    while not rounds or time.monotonic() < ending:
        (tmp_path / str(rounds)).mkdir()
        made += race(tmp_path / str(rounds), layout, saves)
        rounds += 1
    record_property("fuzzed", f"{HOMES * rounds * saves:,} saves against {made:,} versions")
