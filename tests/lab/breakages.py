"""What breaks, or is done, while a marker is learned: each lasts as long as its context, and is then repaired."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from typing import TYPE_CHECKING

import unkind
from harm import WAYS as DAMAGES
from in_the_way import KINDS, PUT, Skipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from marked import Marked

FILES = ["profile.md", "memory.db", "memory.db-journal", "memory.db-wal", "memory.db-shm", "typed.jsonl"]
FILES += [".typed.jsonl.taken", "news", "greeted", "paused", "forgotten", "no-system", "worker.log"]
FILES += ["profile.lock", "learn.lock", "worker.lock", ".profile.md.new", ".memory.db.new", ".", "../logs.db"]
DAMAGED = ["profile.md", "memory.db", "memory.db-wal", "typed.jsonl", ".typed.jsonl.taken", "forgotten", "news"]
REPLIES = [
    *("{0}", "ADD | {1}", "ADD | Notes | {1}", "ADD | Notes | Has {1} | nobody said {1}", "NO_UPDATE", ""),
    *("REMOVE | {1} | {1}", "ADD | {1} | Has {1} | {1}", "ADD | Notes | {0} | {1}", "REPLACE | abc | Has {1} | {1}"),
    *("```\n{0}\n```", "ADD | Notes | Has `{1}` | {1}", "ADD | Notes | Has {1}\nADD | Notes | | {1}", "\0{0}"),
    *("<think>{1}</think>", "ADD | Notes | Has {1} | {1}\nADD | Notes | Likes {1} | {1}\n" * 9),
]
LOOKS = [
    "{0}",
    "1 n",
    "1 s",
    "1 {1}",
    "1 y {1}",
    "Fact 1: {0}",
    "",
    "2 y",
    "y, as they have {1}",
    "1 n\n1 s\n1 y",
    "\0",
]
SETTINGS = [
    *({"LLM_MEMORY_DEBUG": "1"}, {"LLM_MEMORY_REVIEW": "all"}, {"LLM_MEMORY_BUDGET": "100"}),
    *({"LLM_MEMORY_MODEL": "none"}, {"LLM_MEMORY_MODEL": "scripted-dead"}, {"LLM_MEMORY_MODEL": "scripted-garbage"}),
    *({"LLM_MEMORY_MODEL": "scripted-single"}, {"LLM_MODEL": "scripted-no-system"}, {"LLM_MODEL": "scripted-gemma"}),
    *({"LLM_MEMORY_UPDATES": "false"}, {"LLM_MEMORY_DISABLED": "1"}, {"LLM_MEMORY_UPDATE_INTERVAL": "soon"}),
    *({"LLM_MEMORY_AUTO": "prompt"}, {"PYTHONWARNINGS": "error::UserWarning"}, {"LANG": "C", "PYTHONUTF8": "0"}),
    {"LLM_MODEL": "scripted-key"},
]
CONFIGURED = ["extra-openai-models.yaml", "model_options.json", "aliases.json", "keys.json", "default_model.txt"]
BACKUPS = ["profile.md~", ".profile.md.swp", "profile.md.bak", "#profile.md#", "profile.md.~1~", ".profile.md.un~"]


@contextlib.contextmanager
def kept(life: Marked, name: str, text: str) -> Iterator[None]:
    """Have a file in the scripted model's folder."""
    path = life.person.script / name
    path.write_text(text, "utf-8")
    try:
        yield
    finally:
        path.unlink()


def a_model(life: Marked) -> AbstractContextManager[None]:
    chance = life.chance
    order = {"how": chance.choice(unkind.HOW), "form": chance.choice([*unkind.FORMS])}
    order |= {"when": chance.choice(["update", "look"]), "late": chance.random() < 0.3}  # type: ignore[dict-item]
    return life.named(order["how"], kept(life, "unkind.json", json.dumps(order)), order)


def a_reply(life: Marked) -> AbstractContextManager[None]:
    form = life.chance.choice(REPLIES)
    return life.named(form[:20], kept(life, "update.txt", form.format(life.sentence, life.marker)))


def a_look(life: Marked) -> AbstractContextManager[None]:
    form = life.chance.choice(LOOKS)
    return life.named(form[:20], kept(life, "look.txt", form.format(life.sentence, life.marker)))


def a_file(life: Marked) -> AbstractContextManager[None]:
    """Something stands in the way of a file."""
    kind = life.chance.choice([*KINDS])
    name = "." if kind == "full" else life.chance.choice(FILES)
    if name == "." and kind in PUT and life.memory.is_mount():
        raise Skipped
    if (kind, name) == ("held", "learn.lock"):  # `update` waits, and says so
        raise Skipped
    life.is_readable = kind not in {"held", "leased"}  # whoever closes a database lets its locks go
    return life.named(kind, KINDS[kind](life.memory if name == "." else life.memory / name), name)


@contextlib.contextmanager
def _harmed(life: Marked, name: str, how: str) -> Iterator[None]:
    path = life.memory / name
    is_profile = name == "profile.md"
    if not (path.is_file() and path.stat().st_size) or (is_profile and how.startswith("a ")):  # which makes a new word
        raise Skipped
    path.write_bytes(DAMAGES[how](path.read_bytes(), life.chance))
    yield
    if is_profile:
        path.write_text("# Me\n\n## Notes\n- Likes tea\n")
    elif name == "memory.db":  # nobody knows any more that it was read
        life.has_read_export = False


def a_damage(life: Marked) -> AbstractContextManager[None]:
    how = life.chance.choice([*DAMAGES])
    name = life.chance.choice(DAMAGED)
    return life.named(how, _harmed(life, name, how), name)


def a_setting(life: Marked) -> AbstractContextManager[None]:
    setting = life.chance.choice(SETTINGS)
    return life.named(str(setting), life.set(**setting))


@contextlib.contextmanager
def _configured(life: Marked, name: str, text: str) -> Iterator[None]:
    """Break a file of llm's; what was typed before can't be learned."""
    path = life.person.user_dir / name
    before = path.read_bytes() if path.exists() else None
    path.write_text(text)
    yield
    path.unlink()
    if before is not None:
        path.write_bytes(before)


def a_configuration(life: Marked) -> AbstractContextManager[None]:
    name = life.chance.choice(CONFIGURED)
    text = life.chance.choice(["- model_id: [", "{", "nobody", '{"unkind": {"temperature": "hot"}}', "\x00"])
    return life.named(name, _configured(life, name, text), text)


@contextlib.contextmanager
def _wal(life: Marked) -> Iterator[None]:
    """Have another program read the database, which it has put into WAL mode."""
    with contextlib.closing(sqlite3.connect(life.memory / "memory.db", isolation_level=None)) as db:
        db.execute("pragma journal_mode = wal")
        db.execute("begin")
        db.execute("select count(*) from sqlite_master").fetchone()
        life.is_readable = False
        yield
        db.execute("commit")
    life.is_readable = True


@contextlib.contextmanager
def _log_locked(life: Marked) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(life.person.user_dir / "logs.db", isolation_level=None)) as db:
        db.execute("begin")
        db.execute("select count(*) from sqlite_master").fetchone()
        yield


@contextlib.contextmanager
def _backups(life: Marked) -> Iterator[None]:
    yield
    for name in life.chance.sample(BACKUPS, 3):
        (life.memory / name).write_bytes(b"b0VIM 9.0\0\xff\0- Has " + life.marker.encode() + b"\0- Stays\0")


@contextlib.contextmanager
def _interrupted(life: Marked, *args: str) -> Iterator[None]:
    """Interrupt or kill a command at any moment, a few times."""
    yield
    for _ in range(3):
        life.interrupt(*args, terminal=args[0] == "review")


OTHERS: dict[str, Callable[[Marked], AbstractContextManager[None]]] = {
    "WAL": _wal,
    "a locked log": _log_locked,
    "backups of an editor": _backups,
    "logging plugins": lambda life: kept(life, "logging", ""),
    "a slow model": lambda life: kept(life, "slow.txt", f"{life.marker} 1.5"),
    "an embedding that fails": lambda life: kept(life, "embed-error.txt", life.sentence),
    "nothing": lambda _: contextlib.nullcontext(),
}
INTERRUPTED = "update --retry, learn --yes, condense, review, worker, forget MARKER --yes, undo, add MARKER"


def another(life: Marked) -> AbstractContextManager[None]:
    commands = INTERRUPTED.replace("MARKER", life.marker).split(", ")
    name = life.chance.choice([*OTHERS, *commands])
    if name in OTHERS:
        return life.named(name, OTHERS[name](life))
    args = name.split()
    return life.named(f"interrupted {args[0]}", _interrupted(life, *args))


WAYS = [a_model, a_model, a_reply, a_look, a_file, a_file, a_damage, a_setting, a_configuration, another, another]
