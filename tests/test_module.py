"""The module costs next to nothing to load, and what it wraps of llm is there."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
from typing import Any

import llm.cli
import llm.logs
import pytest
from click.testing import CliRunner
from conftest import BIN, PATIENCE, User

import llm_user_memory as memory


def test_this_version_of_llm_has_all_that_is_wrapped(user: User) -> None:
    """Run with the oldest and the newest llm (see the workflow): what fails here has changed in llm."""
    assert "This llm lacks" not in user.problems()
    for kind in (llm.Conversation, llm.AsyncConversation):
        for function in (kind.prompt, kind.chain):
            assert {"prompt", "fragments", "system_fragments"} <= set(inspect.signature(function).parameters)


@pytest.fixture
def known_calls(user: User, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions of llm that two calls of it use, of those that we wrap."""
    called = []
    for owner, name, _ in memory._STAND_INS:
        function = getattr(getattr(llm, owner), name, None)

        def noted(*args: object, function: Any = function, name: str = f"{owner}.{name}", **options: object) -> object:
            called.append(name)
            return function(*args, **options)

        monkeypatch.setattr(getattr(llm, owner), name, noted, raising=False)
    (user.user_dir / "templates").mkdir()
    (user.user_dir / "templates" / "brief.yaml").write_text("prompt: 'Be brief: $input'\n")
    for args in (["-t", "brief", "hello"], ["chat", "-t", "brief"]):
        done = CliRunner(env=user.env).invoke(llm.cli.cli, args, input="hello\nquit\n")
        assert done.exit_code == 0, done.output
    return called


OURS_WITHOUT = {
    "cli.resolve_fragments": "then a file called memory:auto must not be read in the profile's place: see on_fragments",
    "logs._conversation_name": "then a conversation must not be named after our frame: see on_name",
    "cli._apply_template": "then a template's words must not count as typed: see on_template",
}
"""What is undocumented in llm, and what to see to when it goes: find what took its place, and wrap that."""


def test_what_is_wrapped_of_llm_and_not_documented_is_still_called_as_we_expect(known_calls: list[str]) -> None:
    for name, advice in OURS_WITHOUT.items():
        assert name in known_calls, f"llm no longer calls llm.{name}; {advice}"


def test_what_llm_has_no_more_is_told_by_status(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(llm.AsyncConversation, "chain")
    monkeypatch.delattr(llm.logs, "_conversation_name")
    lacks = re.findall(r"lacks (llm\S+[a-z])", user.problems())
    assert lacks == ["llm.AsyncConversation.chain", "llm.logs._conversation_name"]


WATCHED = """
import atexit, json, runpy, sys
atexit.register(lambda: print(json.dumps(list(sys.modules)), file=sys.stderr))
sys.argv = ["llm", "x"]
runpy.run_module("llm", run_name="__main__")
"""


def loaded(user: User, plugins: str) -> set[str]:
    """Modules that a call of llm has loaded."""
    env = user.env | {"LLM_LOAD_PLUGINS": plugins, "LLM_MEMORY_AUTO": "1", "LLM_MEMORY_LINE": " llm x"}
    command = [str(BIN / "python"), "-c", WATCHED]
    done = subprocess.run(command, env=env, input="", capture_output=True, check=True, timeout=PATIENCE, text=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_a_call_that_sends_a_profile_and_leaves_a_note_loads_nothing_heavy(idle: User) -> None:
    idle.profile = "- Prefers metric units\n"
    without = loaded(idle, "llm-scripted")
    assert loaded(idle, "llm-scripted,llm-user-memory") - without <= {"llm_user_memory", "unicodedata"}
    assert "Prefers metric units" in idle.calls()[-1]["system"]
    assert idle.places.journal.exists()
