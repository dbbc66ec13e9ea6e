"""README, help texts and behaviour agree, and the demonstration shows what it says."""

from __future__ import annotations

import importlib.metadata
import pathlib
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

import llm_user_memory as memory

ROOT = pathlib.Path(__file__).parent.parent
REPOSITORY = "https://github.com/llm-user-memory/llm-user-memory"
README = (ROOT / "README.md").read_text("utf-8")
COMMANDS = {name: make() for name, make in memory.memory_group.declared.items() if not make().hidden}


def test_the_generated_part_of_the_readme_lists_every_command_and_the_readme_names_no_other() -> None:
    check = [sys.executable, "-m", "cogapp", "--check", "README.md"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, "run: uv run cog -r README.md"
    assert set(re.findall(r"llm memory ([a-z-]+)", README)) <= set(COMMANDS)


def test_every_setting_is_in_the_readme_and_the_readme_names_no_other() -> None:
    source = pathlib.Path(memory.__file__).read_text("utf-8")
    settings = set(re.findall(r"\b(?<!_)LLM_MEMORY_[A-Z_]*[A-Z]\b", source))
    assert set(re.findall(r"LLM_MEMORY_[A-Z_]*[A-Z]\b", README)) == settings


def test_every_command_has_a_help_text_those_that_change_take_yes_and_those_that_show_json() -> None:
    reading = {"show", "path", "status", "why", "search", "history", "diff", "profiles"}
    for name, command in COMMANDS.items():
        options = {option.name for option in command.params}
        assert command.help, name
        assert ("yes" in options) == (name not in reading), name
        assert ("json_" in options) == (name in (reading | {"review"}) - {"path"}), name


def test_every_command_is_in_one_group_of_the_help_with_an_example_and_a_summary_that_fits() -> None:
    assert sorted(" ".join(memory.GROUPS.values()).split()) == sorted(COMMANDS)
    shown = CliRunner().invoke(memory.memory_group, ["--help"], terminal_width=80).output
    assert "..." not in shown.replace("[ARGS]...", "")
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\S.*\n(?! {{10}})", shown, re.MULTILINE), name
        own = CliRunner().invoke(memory.memory_group, [name, "--help"]).output
        assert re.search(rf"Example:\n  .*llm memory {name}", own), name


def test_the_demonstration_shows_the_whole_loop() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "demo.py"], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, second, receipts, page, undone = re.split("── [1-5]\\.", done.stdout)[1:]
    assert "nurse in Leeds" in first
    assert second.index("in the oven") < second.index("no oven") < second.index("✓ It knew who was asking.")
    assert "“I'm a nurse in Leeds”" in receipts
    assert "✓ The profile is unchanged." in page
    assert "✓ The profile is empty again." in undone
    assert "\x1b" not in done.stdout


def test_the_readme_explains_how_to_run_what_ci_runs() -> None:
    ci = (ROOT / ".ci" / "run").read_text("utf-8")
    assert "uv run pytest" in README
    assert "run pytest" in ci


def test_the_package_is_the_release_that_the_changelog_begins_with_and_says_where_it_lives() -> None:
    package = importlib.metadata.metadata("llm-user-memory")
    changelog = (ROOT / ".github" / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"^## (\S+)", changelog, re.MULTILINE)[0] == package["Version"]
    urls = dict(line.split(", ") for line in package.get_all("Project-URL") or [])
    assert set(urls) == {"Homepage", "Documentation", "Changelog", "Issues", "CI"}
    assert all(url.startswith(REPOSITORY) for url in urls.values())


def test_every_link_into_the_repository_leads_to_a_file() -> None:
    texts = [README, *(path.read_text("utf-8") for path in (ROOT / ".github").rglob("*.md"))]
    texts += importlib.metadata.metadata("llm-user-memory").get_all("Project-URL") or []
    linked = {path for text in texts for path in re.findall(REPOSITORY + r"/blob/main/([^)\s]+)", text)}
    assert ".github/CHANGELOG.md" in linked
    places = (ROOT, pathlib.Path(memory.__file__).parent)  # where the tests run against a wheel
    assert [path for path in linked if not any((place / path).exists() for place in places)] == []


def test_nothing_else_lies_at_the_top_of_the_repository() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not run: this is no checkout of git")
    tracked = {name.partition("/")[0] for name in listed.stdout.splitlines() if not name.startswith(".")}
    assert tracked == {"pyproject.toml", "README.md", "LICENSE", "llm_user_memory.py", "shell", "tests", "uv.lock"}
