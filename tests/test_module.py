"""The module costs next to nothing to load, a call opens no database, and what it wraps of llm is there."""

from __future__ import annotations

import inspect
import json
import subprocess
from typing import TYPE_CHECKING

import filelock
import llm.logs
from conftest import BIN, PATIENCE, User

from llm_user_memory import unsupported

if TYPE_CHECKING:
    import pytest


def test_this_version_of_llm_has_all_that_is_wrapped() -> None:
    """Run with the oldest and the newest llm (see the workflow): what fails here has changed in llm."""
    assert unsupported() == []
    for kind in (llm.Conversation, llm.AsyncConversation):
        for function in (kind.prompt, kind.chain):
            assert {"prompt", "fragments", "system_fragments"} <= set(inspect.signature(function).parameters)


def test_what_llm_has_no_more_is_told_by_status(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(llm.AsyncConversation, "chain")
    monkeypatch.delattr(llm.logs, "_conversation_name")
    assert unsupported() == ["llm.AsyncConversation.chain", "llm.logs._conversation_name"]
    assert "llm.AsyncConversation.chain" in user.problems()


WATCHED = """
import atexit, json, runpy, sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event in {"open", "sqlite3.connect"} else None)
atexit.register(lambda: print(json.dumps([sorted(sys.modules), opened]), file=sys.stderr))
sys.argv = ["llm", "x"]
runpy.run_module("llm", run_name="__main__")
"""


def watched_call(user: User, plugins: str) -> tuple[set[str], list[str]]:
    """Modules that a call of llm has loaded, and files of ours that it opened."""
    env = user.env | {"LLM_LOAD_PLUGINS": plugins, "LLM_MEMORY_AUTO": "1"}
    command = [str(BIN / "python"), "-c", WATCHED]
    done = subprocess.run(command, env=env, input="", capture_output=True, check=True, timeout=PATIENCE, text=True)
    modules, opened = json.loads(done.stderr.splitlines()[-1])
    ours = f"{user.places.directory}/"
    return set(modules), [path.removeprefix(ours) for path in opened if path.startswith(ours)]


def test_a_call_loads_nothing_heavy_opens_no_database_and_reads_each_file_once(user: User) -> None:
    user.has_learned("Prefers metric units", "I prefer metric units")
    with filelock.FileLock(user.places.lock_file("worker")):  # or the call would start one
        modules, opened = watched_call(user, "llm-scripted,llm-user-memory")
        without, _ = watched_call(user, "llm-scripted")
    assert "Prefers metric units" in user.calls()[-2]["system"]
    assert sorted(opened) == ["profile.md", "typed.jsonl", "worker.lock"]
    assert modules - without <= {"llm_user_memory", "unicodedata"}
