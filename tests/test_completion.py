"""llm's own completion, as click makes it, completes our commands in real shells, also through our function."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest
from conftest import BIN, posix_only
from shells import Place, session

if TYPE_CHECKING:
    import pathlib

    from conftest import User

pytestmark = posix_only

TURNS_IT_ON = {
    "bash": 'eval "$(_LLM_COMPLETE=bash_source llm)"',
    "zsh": 'autoload -Uz compinit; compinit -u; eval "$(_LLM_COMPLETE=zsh_source llm)"',
    "fish": "_LLM_COMPLETE=fish_source llm | source",
}


@pytest.mark.parametrize("shell", TURNS_IT_ON)
def test_tab_completes_our_commands_and_options_through_our_function_and_leaves_nothing_behind(
    shell: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path / "place", shell)
    place.write_rc()
    place.install(monkeypatch)
    user_dir = tmp_path / "llm"
    place.env |= {"PATH": f"{BIN}:{os.environ['PATH']}", "LLM_USER_PATH": str(user_dir)}
    with session(place) as opened:
        opened.run(TURNS_IT_ON[shell])
        for typed, completed in (("mem", "memory"), ("memory show --js", "--json")):
            opened.shown = ""
            opened.type(f"echo got; llm {typed}\t")
            opened.until(lambda: _plain(opened.shown).rstrip().endswith(completed), completed)  # noqa: B023
            opened.type("\x15true\r")
            opened.finish()
    assert not (user_dir / "memory").exists()


def _plain(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\x1b\([AB]", "", shown)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("llm mem", ["memory"]),
        ("llm --sy", ["--system", "--system-fragment"]),
        ("llm memory sho", ["show"]),
        ("llm memory --profile work sho", ["show"]),
        ("llm memory undo twelve --y", []),
        ("llm memory nonsense sho", ["show"]),
        ("llm memory rm sho", ["show"]),
        ("llm memory --profile wo", []),
    ],
)
def test_what_is_completed(user: User, words: str, found: list[str]) -> None:
    at = str(words.count(" "))
    done = user.llm(_LLM_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=at)
    assert re.findall("plain,(.*)", done.stdout) == found
    assert done.stderr == ""
    assert not user.places.base.exists()


def test_names_of_profiles_are_completed(user: User) -> None:
    for name in ("work", "wood", "home"):
        user.run("add", "Likes tea", LLM_MEMORY_PROFILE=name)
    for words in ("llm memory --profile wo", "llm memory show --profile wo"):
        at = str(words.count(" "))
        done = user.llm(_LLM_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=at)
        assert re.findall("plain,(.*)", done.stdout) == ["wood", "work"]
