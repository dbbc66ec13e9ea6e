"""Editors save the profile again and again while a worker and commands write to it: no save is lost, no line torn."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import click
import pytest
from conftest import User, eventually, in_the_moment

import llm_user_memory as memory
from llm_user_memory import DEFAULT_SECTIONS, TITLE, Document, Home, Memory

HOMES = 12
"""Independent users at a time: most of a race is waiting for the others to be done."""
START = f"{TITLE}\n\n" + "".join(f"## {name}\n- Something about {name}.\n\n" for name in DEFAULT_SECTIONS)
WHOLE = re.compile(r"|## .+|# User Profile|- (Something about [\w ]+|(Saved|Learned|Added) \w+)\.")
"""Every line that anyone here writes; a part of one is none."""
LAYOUTS = ["plain", "symlinked", "on tmpfs", "without exchange", "where nobody can tell who writes"]

Context = multiprocessing.get_context("spawn")
Stop = Callable[[], bool]


# -- editors: a text in, saved ---------------------------------------------------


def in_place(path: pathlib.Path, text: str, line: str) -> None:
    """Save as nano, VS Code and `echo >` do: the same file is emptied and written."""
    with path.open("w", encoding="utf-8", newline="") as file:
        for part in text.splitlines(keepends=True):
            file.write(part)


def in_place_late(path: pathlib.Path, text: str, line: str) -> None:
    """The same by a program that opens the file first, and empties it only when it has all of the text."""
    with path.open("r+", encoding="utf-8", newline="") as file:
        os.sched_yield()
        file.truncate()
        file.write(text)


def slowly(path: pathlib.Path, text: str, line: str) -> None:
    """Save as `llm … > profile.md` does: half a line, and a moment later the rest."""
    with path.open("wb", buffering=0) as file:
        cut = text.rindex(line) + len(line) // 2
        file.write(text[:cut].encode())
        threading.Event().wait(0.3)
        file.write(text[cut:].encode())


def appended(path: pathlib.Path, text: str, line: str) -> None:
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(line)


def renamed(path: pathlib.Path, text: str, line: str) -> None:
    """Save as vim and emacs do: another file is written, and takes the name."""
    aside = path.with_name("profile.md.new")
    aside.write_text(text, encoding="utf-8", newline="")
    os.replace(aside, path)


def sed(path: pathlib.Path, text: str, line: str) -> None:
    with tempfile.NamedTemporaryFile("w") as script:
        script.write(f"1a\\\n{line}")
        script.flush()
        in_place_option = ["-i", ""] if sys.platform == "darwin" else ["-i"]
        subprocess.run(["sed", *in_place_option, "-f", script.name, path], check=True, capture_output=True)


def git(path: pathlib.Path, text: str, line: str) -> None:
    """Check a file out as `git checkout` does: the old one is removed, and a new one written."""
    folder = path.parent.parent / "repository"

    def run(*args: str, given: bytes = b"") -> str:
        command = ["git", f"--git-dir={folder}", f"--work-tree={path.parent}", *args]
        done = subprocess.run(command, input=given, check=True, capture_output=True, cwd=path.parent)
        return done.stdout.decode().strip()

    if not folder.exists():
        run("init", "--quiet", str(path.parent))
    blob = run("hash-object", "-w", "--stdin", given=text.encode())
    run("update-index", "--add", "--cacheinfo", f"100644,{blob},{path.name}")
    while True:
        with contextlib.suppress(subprocess.CalledProcessError):  # someone else has made the file: run it again
            run("checkout-index", "-f", path.name)
            return


EDITORS = [in_place, in_place_late, slowly, appended, renamed, sed, git]
AT_ONCE = [renamed, sed]
"""Editors that nobody has to wait for, where the system can't tell who is writing: on a busy machine
the pause between opening a file and writing to it can outlast any patience."""


def edit(home: Home, chance: random.Random, saves: int, ending: float, layout: str) -> None:
    """Save many times: read what is there, add a line, write it back, in every style."""
    path = home.profile.resolve()
    editors = EDITORS if memory.open_for_writing(path) is not None and layout != LAYOUTS[-1] else AT_ONCE
    number = 0
    while number < saves:
        # For an instant there is no file where two can't be exchanged; some editors then fail, and say so.
        with contextlib.suppress(FileNotFoundError, subprocess.CalledProcessError):
            text = path.read_text("utf-8")
            line = f"- Saved {number}.\n"
            cut = chance.choice([len(text), text.find("## Interests")])
            cut = cut if cut >= 0 and text.endswith("\n") else len(text)
            seen = memory.file_identity(path)
            chance.choice(editors)(path, text[:cut] + line + text[cut:], line)
            number += 1
            # Most saves come just when a writer has written, some right behind another save.
            latest = time.monotonic() + chance.choice([0, 0.1, 0.5, 0.5])
            while memory.file_identity(path) == seen and time.monotonic() < min(latest, ending):
                threading.Event().wait(0.002)


# -- writers ----------------------------------------------------------------------


def work(home: Home, chance: random.Random, stop: Stop) -> int:
    """Change lines as the worker does: one added, replaced or removed by an edit."""
    changes = 0
    with Memory(home) as opened:
        while not stop():
            number = changes

            def make(text: str, number: int = number) -> str:
                document = Document(text)
                mine = [item for item in document.items if item.editable and item.text.startswith("Learned")]
                if len(mine) > 3:
                    item = chance.choice(mine)
                    return chance.choice([document.remove(item), document.replace(item, f"Learned {number}.")]).text
                return document.add(chance.choice(DEFAULT_SECTIONS), f"Learned {number}.").text

            with patient():
                changes += opened.history.change("worker", make, model="scripted") is not None
            threading.Event().wait(chance.random() / 20)  # or the other writer never has its turn
    return changes


def command(home: Home, chance: random.Random, stop: Stop) -> int:
    """Do what the commands do: add, edit, undo, load, look."""
    changes = 0
    with Memory(home) as opened:
        history = opened.history
        while not stop():
            before, what = history.latest_id(), chance.randrange(8)
            with patient():
                if what == 0 and changes:
                    # Never to an empty file: sed adds no line to one.
                    history.roll_back(max(1, history.latest_id() - 1))
                elif what == 1:
                    history.overwrite("load", START)
                elif what == 2:
                    history.settle()
                elif what == 3:
                    with memory.locked(home.lock("learn")):
                        memory.edited(opened)
                elif what == 4:
                    history.tidy()
                else:
                    history.add([f"Added {changes}."], "Interests")
            changes += history.latest_id() - before
            threading.Event().wait(chance.random() / 20)
    return changes


@contextlib.contextmanager
def patient() -> Iterator[None]:
    """Try again later what can't be done while a program is writing; any other problem is one."""
    try:
        yield
    except memory.Problem as problem:
        if "is being written by another program" not in problem.message:
            raise


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
    click.edit = lambda **_: threading.Event().wait(0.02)  # type: ignore[assignment]
    if layout == "without exchange":
        memory.exchange_files = lambda *_: False
    elif layout == LAYOUTS[-1]:
        memory.open_for_writing = lambda _: None  # type: ignore[assignment]
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
    writing = [Context.Process(target=writers, args=(folder, what, layout)) for what in (work, command)]
    editing = Context.Process(target=all_editors, args=(folder, saves, layout))
    for process in [*writing, editing]:
        process.start()
    editing.join()
    (folder / "stop").touch()
    for process in writing:
        process.join()
    assert [process.exitcode for process in [*writing, editing]] == [0, 0, 0]
    for home in homes(folder):
        check(home, saves)
    return sum(int((folder / what).read_text()) for what in ("work", "command"))


def check(home: Home, saves: int) -> None:
    folders = {home.directory, home.profile.resolve().parent}
    with Memory(home) as opened:
        opened.history.settle()
        texts = [opened.history.version_text(version) for version in range(opened.history.latest_id() + 1)]
        assert texts[-1] == opened.history.profile()

        def is_tidy() -> bool:
            opened.history.tidy()
            return not [path for folder in folders for path in folder.glob(".*")]

        eventually(is_tidy)
    lines = {line for text in texts for line in memory.split_lines(text)}
    assert {number for number in range(saves) if f"- Saved {number}.\n" not in lines} == set(), "lost"
    assert {line for line in lines if not WHOLE.fullmatch(line.removesuffix("\n"))} == set(), "torn"
    files = {path.name for folder in folders for path in folder.iterdir()}
    assert files <= {"profile.md", "profile.lock", "learn.lock", "memory.db"}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows lets nobody write a file that another has open")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_save_is_lost_or_torn_while_a_worker_and_commands_write(
    tmp_path: pathlib.Path, fuzz: float, record_property: Callable[[str, object], None], layout: str
) -> None:
    folder = tmp_path
    if layout == "on tmpfs":
        if not os.path.isdir("/dev/shm"):
            pytest.skip("there is no /dev/shm")
        folder = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm"))
    ending = time.monotonic() + fuzz / len(LAYOUTS)
    made = rounds = 0
    saves = 40 if fuzz else 8
    try:
        while not rounds or time.monotonic() < ending:
            (folder / str(rounds)).mkdir()
            made += race(folder / str(rounds), layout, saves)
            rounds += 1
    finally:
        if layout == "on tmpfs":
            shutil.rmtree(folder)
    record_property("fuzzed", f"{HOMES * rounds * saves:,} saves against {made:,} versions")
    assert made, "there was no race"


# -- the moments that a race seldom hits -----------------------------------------------


@pytest.fixture
def known(user: User) -> User:
    """A user whose profile is recorded, and at rest."""
    user.profile = START
    with user.memory() as opened:
        opened.history.settle()
    return user


def test_who_has_the_file_open_during_two_writes_loses_nothing(known: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "WRITER_PATIENCE", 0.1)
    with known.memory() as opened, known.places.profile.open("a") as file:
        opened.history.add(["Plays chess."], "Interests")
        if memory.open_for_writing(known.places.profile) is not None:
            with pytest.raises(memory.Problem, match="is being written by another program"):
                opened.history.add(["Plays go."], "Interests")
        file.write("- Saved 0.\n")
    with known.memory() as opened:
        opened.history.add(["Plays go."], "Interests")
    assert {"Plays chess.", "Plays go.", "Saved 0."} <= set(known.facts)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has a file open")
def test_what_is_written_to_the_displaced_file_between_two_looks_is_not_lost(
    known: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    with known.memory() as opened, known.places.profile.open("a") as file:
        opened.history.add(["Plays chess."], "Interests")

        def saves() -> None:
            file.write("- Saved 0.\n")
            file.close()

        in_the_moment(monkeypatch, memory, "read_bytes", saves)
        opened.history.tidy()
        opened.history.settle()
    assert {"Plays chess.", "Saved 0."} <= set(known.facts)


def test_a_file_that_is_gone_in_the_moment_of_a_write_is_waited_for(
    known: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = known.places.profile
    in_the_moment(monkeypatch, memory, "write_private", profile.unlink)
    in_the_moment(monkeypatch, time, "sleep", lambda: profile.write_text(f"{START}- Saved 0.\n"))
    with known.memory() as opened:
        opened.history.add(["Plays chess."], "Interests")
    assert {"Plays chess.", "Saved 0.", "Something about Interests."} <= set(known.facts)


def test_a_save_just_before_an_empty_profile_is_edited_stays(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    user.places.create()
    in_the_moment(monkeypatch, memory.History, "adopt", lambda: user.places.profile.write_text("- Saved 0.\n"))
    monkeypatch.setattr(click, "edit", lambda **_: None)
    with user.memory() as opened:
        memory.edited(opened)
    assert user.facts == ["Saved 0."]


def test_a_text_that_grows_while_it_is_read_is_not_taken_for_whole(
    known: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = known.places.profile
    profile.write_text(f"{START}- Sav")
    os.utime(profile, (0, 0))

    def goes_on() -> None:
        with profile.open("a") as file:
            file.write("ed 0.\n")
        os.utime(profile, (0, 0))  # within one tick of the clock of files

    in_the_moment(monkeypatch, memory, "read_bytes", goes_on)
    with known.memory() as opened:
        opened.history.settle()
        assert [opened.history.version_text(version) for version in (1, 2)] == [START, f"{START}- Saved 0.\n"]


def test_who_reads_a_symlinked_profile_in_the_moment_of_a_write_reads_it_then(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    (user.folder / "dotfiles").mkdir()
    user.places.create()
    user.places.profile.symlink_to(user.folder / "dotfiles" / "profile.md")
    previous = user.folder / "dotfiles" / memory.PREVIOUS.format("profile.md")
    previous.write_text(START)
    in_the_moment(monkeypatch, time, "sleep", lambda: os.replace(previous, user.folder / "dotfiles/profile.md"))
    assert user.profile == START


def test_what_is_forgotten_is_not_left_in_news_that_were_never_told(known: User) -> None:
    known.places.file(".news.new").write_text("learned “Plays the oboe”\n")
    known.run("add", "Plays the oboe")
    known.run("forget", "oboe", "--yes")
    assert known.files_with("oboe") == []
