"""README, help texts and behaviour agree, and the demonstration shows what it says."""

from __future__ import annotations

import importlib.metadata
import pathlib
import re
import subprocess
import sys
from typing import Any

import click
import pytest
from click.testing import CliRunner

import llm_user_memory as memory

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
REFERENCE = (ROOT / ".github" / "docs" / "commands.md").read_text("utf-8")
PAGES = [ROOT / "README.md", *(ROOT / ".github").rglob("*.md")]
HELP = CliRunner().invoke(memory.memory_group, ["--help"], terminal_width=80).output
COMMANDS = re.findall(r"^  ([a-z-]+)  +\S", HELP.partition("and exit.")[2], re.MULTILINE)


def test_the_page_of_commands_is_what_their_help_says_and_the_readme_names_no_other() -> None:
    check = [sys.executable, "-m", "cogapp", "--check", ".github/docs/commands.md"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, "run: uv run cog -r .github/docs/commands.md"
    assert sorted(re.findall("^## llm memory (.+)$", REFERENCE, re.MULTILINE)) == sorted(COMMANDS)
    assert set(re.findall(r"llm memory ([a-z][a-z-]+)", README)) <= set(COMMANDS)


def test_every_setting_is_in_the_table_and_the_readme_names_no_other() -> None:
    asked = {"LLM_MEMORY_PROFILE"}  # the one that is looked up with every path

    class Environment(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            asked.add(name)
            return default

    memory.Settings(Environment())
    listed = set(re.findall(r"^\| `(LLM_MEMORY_\w+)` \|", REFERENCE, re.MULTILINE))
    assert listed == asked - {"LLM_MEMORY_LINE"}, "which is our shell function's to set"
    assert set(re.findall(r"LLM_MEMORY_[A-Z_]*[A-Z]\b", README)) <= asked


ASKING = {"remove", "load", "forget", "clear", "learn"}
READING = {"show", "path", "status", "why", "search", "history", "diff", "profiles"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_help_has_an_example_and_it_takes_yes_if_it_changes_something_and_json_if_it_shows(
    command: str,
) -> None:
    assert re.search(rf"^  {command} +\S.*\n(?! {{10}})", HELP, re.MULTILINE), "a summary that fits"
    shown = CliRunner().invoke(memory.memory_group, [command, "--help"]).output
    assert "Example:" not in shown or re.search(rf"Example:\n  .*llm memory {command}", shown)
    options = [option for made in memory.memory_group.commands[command].params for option in made.opts]
    assert ("--yes" in options) == (command in ASKING)
    assert ("--yes" in shown) == (command in ASKING), "those that ask"
    assert ("--json" in shown) == (command in (READING | {"review"}) - {"path"})


def test_the_help_lists_every_command() -> None:
    assert "..." not in HELP.replace("[ARGS]...", "")
    assert len(COMMANDS) == len(set(COMMANDS))
    every = memory.memory_group.list_commands(click.Context(memory.memory_group))
    assert sorted(every) == sorted([*COMMANDS, "worker"])


def test_the_demonstration_shows_the_whole_loop() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "demo.py"], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, second, receipts, page, undone = re.split("── [1-5]\\.", done.stdout)[1:]
    assert "nurse in Leeds" in first
    assert second.index("in the oven") < second.index("no oven") < second.index("✓ It knew who was asking.")
    assert "you typed: “I'm a nurse in Leeds”" in receipts
    assert "✓ The profile is unchanged." in page
    assert "llm memory undo" in undone
    assert "✓ The profile is empty again." in undone
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= 1_000


def test_the_package_is_the_release_that_the_changelog_begins_with() -> None:
    changelog = (ROOT / ".github" / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"^## (\S+)", changelog, re.MULTILINE)[0] == importlib.metadata.version("llm-user-memory")


def test_every_link_into_the_repository_leads_to_a_file_and_none_to_an_invented_address() -> None:
    for page in PAGES:
        links = re.findall(r"\]\(([^)\s#]+)", page.read_text("utf-8"))
        assert [link for link in links if ":" not in link and not (page.parent / link).exists()] == [], page
    everywhere = [*PAGES, *(ROOT / ".github").rglob("*.yml"), ROOT / "pyproject.toml", ROOT / "llm_user_memory.py"]
    invented = r"(?:github\.com|githubusercontent\.com)/llm-user-memory"
    assert [path for path in everywhere if re.search(invented, path.read_text("utf-8"))] == []


def test_nothing_else_lies_at_the_top_of_the_repository() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    if listed.returncode:
        pytest.skip("not run: this is no checkout of git")
    tracked = {name.partition("/")[0] for name in listed.stdout.splitlines() if not name.startswith(".")}
    assert tracked == {"pyproject.toml", "README.md", "LICENSE", "llm_user_memory.py", "shell", "tests", "uv.lock"}
