"""What may be in the way of a file or folder: each obstacle stands there as long as its context lasts."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

FREE = [0, 4_000, 16_000, 45_000, 90_000]  # bytes that a full disk may have left
IS_ROOT = os.geteuid() == 0
NOBODY = 65534


class Skipped(Exception):
    """An obstacle that can't be put here."""


def need(condition: object) -> None:
    if not condition:
        raise Skipped


@contextlib.contextmanager
def in_place_of(path: pathlib.Path, put: Callable[[pathlib.Path], object]) -> Iterator[None]:
    """Put something in a file's place, then put the file back."""
    kept = path.with_name("kept-by-the-lab")
    if os.path.lexists(path):
        path.rename(kept)
    put(path)
    placed = identity(path)
    try:
        yield
    finally:
        if placed and identity(path) == placed:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        if os.path.lexists(kept):
            if path.name == "typed.jsonl" and path.exists():  # what was noted meanwhile
                kept.write_bytes(kept.read_bytes() + path.read_bytes())
            if path.is_dir():
                shutil.rmtree(path)
            kept.replace(path)


def identity(path: pathlib.Path) -> tuple[int, int] | None:
    with contextlib.suppress(FileNotFoundError):
        status = path.lstat()
        return status.st_ino, stat.S_IFMT(status.st_mode)
    return None


def device(path: pathlib.Path) -> None:
    need(IS_ROOT)
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))


@contextlib.contextmanager
def changed(path: pathlib.Path, change: Callable[[pathlib.Path], object]) -> Iterator[None]:
    """Change a file's mode or owner, then give them back, wherever it is then."""
    need(path.exists())
    file = os.open(path, os.O_RDONLY)
    before = os.fstat(file)
    change(path)
    try:
        yield
    finally:
        os.fchown(file, before.st_uid, before.st_gid)
        os.fchmod(file, stat.S_IMODE(before.st_mode))
        os.close(file)


@contextlib.contextmanager
def immutable(path: pathlib.Path) -> Iterator[None]:
    need(IS_ROOT and path.exists())
    path = path.resolve()
    need(subprocess.run(["chattr", "+i", path], capture_output=True, check=False).returncode == 0)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", path], capture_output=True, check=True)


@contextlib.contextmanager
def held(path: pathlib.Path) -> Iterator[None]:
    """Hold a lock, of the database by a transaction, of anything else by `flock`."""
    need(path.is_file())
    if path.suffix == ".db":
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("begin exclusive")
            yield
        return
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:  # it is held
            raise Skipped from error
        yield


@contextlib.contextmanager
def leased(path: pathlib.Path) -> Iterator[None]:
    """Hold a lease, as a file server does."""
    need(path.is_file() and path.name != "logs.db")  # else llm itself waits
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    with path.open("rb+") as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:  # it is open
            raise Skipped from error
        yield


@contextlib.contextmanager
def full(path: pathlib.Path) -> Iterator[None]:
    """Fill a small disk, but for a few bytes."""
    need(path.is_mount())
    filling = path / "filling"
    with contextlib.suppress(OSError), filling.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    os.truncate(filling, max(filling.stat().st_size - random.choice(FREE), 0))
    try:
        yield
    finally:
        filling.unlink()


def give_away(path: pathlib.Path) -> None:
    need(IS_ROOT)
    os.chown(path, NOBODY, NOBODY)


PUT: dict[str, Callable[[pathlib.Path], object]] = {
    "FIFO": os.mkfifo,
    "folder": pathlib.Path.mkdir,
    "link to nowhere": lambda path: path.symlink_to("/nowhere/at/all"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "device": device,
    "missing": lambda _: None,
}
KINDS: dict[str, Callable[[pathlib.Path], AbstractContextManager[None]]] = {
    **{name: partial(in_place_of, put=put) for name, put in PUT.items()},
    "read-only": partial(changed, change=lambda path: path.chmod(path.stat().st_mode & 0o555)),
    "unreadable": partial(changed, change=lambda path: path.chmod(0)),
    "another's": partial(changed, change=give_away),
    "immutable": immutable,
    "held": held,
    "leased": leased,
    "full": full,
}
