"""The module reads top to bottom, and costs next to nothing to load."""

from __future__ import annotations

import ast
import functools
import json
import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from conftest import BIN, PATIENCE, User

import llm_user_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = pathlib.Path(llm_user_memory.__file__).read_text("utf-8")
SECTIONS = [
    *("hooks", "settings and places", "profile", "edits", "log", "memory"),
    *("learning", "worker", "injection", "shell", "commands"),
]
MAY_USE = {
    "profile": {"settings and places"},
    "edits": {"profile"},
    "log": {"settings and places"},
    "memory": {"settings and places", "profile", "edits", "log"},
    "learning": {"settings and places", "profile", "edits", "log", "memory"},
    "shell": {"settings and places"},
}
"""From the design's table, where it forbids something; everyone may use the settings' section."""


@dataclass(frozen=True)
class Use:
    name: str
    line: int
    at_import: bool


@functools.cache
def section_lines() -> dict[str, int]:
    return {
        match[1]: SOURCE[: match.start()].count("\n") + 1
        for match in re.finditer(r"^# -- (.+?) -+$", SOURCE, re.MULTILINE)
    }


def section_of(line: int) -> str:
    return [name for name, start in section_lines().items() if start <= line][-1]


@functools.cache
def definitions() -> dict[str, int]:
    """Where each name that the module itself defines is defined first."""
    found: dict[str, int] = {}
    for node in ast.parse(SOURCE).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.setdefault(node.name, node.lineno)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        found.setdefault(name.id, node.lineno)
    return found


class _Uses(ast.NodeVisitor):
    """Uses of global names; annotations are never evaluated and do not count."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.found: list[Use] = []
        self.depth = 0

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.id in self.names:
            self.found.append(Use(node.id, node.lineno, self.depth == 0))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for outside in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(outside)
        local = {arg.arg for arg in (*node.args.args, *node.args.posonlyargs, *node.args.kwonlyargs)}
        local |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        inner = _Uses(self.names - local)
        inner.depth = self.depth + 1
        for statement in node.body:
            inner.visit(statement)
        self.found += inner.found

    def visit_Lambda(self, node: ast.Lambda) -> None:
        inner = _Uses(self.names - {arg.arg for arg in node.args.args})
        inner.depth = self.depth + 1
        inner.visit(node.body)
        self.found += inner.found


def uses() -> Iterator[Use]:
    visitor = _Uses(set(definitions()))
    visitor.visit(ast.parse(SOURCE))
    return (use for use in visitor.found if section_of(use.line) != "hooks")


def test_the_sections_stand_in_the_order_of_the_design() -> None:
    assert list(section_lines()) == SECTIONS


def test_below_the_hooks_a_name_is_used_only_below_the_line_that_defines_it() -> None:
    defined = definitions()
    early = sorted(
        {
            f"{use.name} (line {defined[use.name]}) is used in line {use.line}"
            for use in uses()
            if use.line < defined[use.name]
        }
    )
    assert early == []


def test_functions_use_names_of_their_own_section_or_earlier_ones_only() -> None:
    defined = definitions()
    assert [
        f"{use.name} in line {use.line}"
        for use in uses()
        if SECTIONS.index(section_of(use.line)) < SECTIONS.index(section_of(defined[use.name]))
    ] == []


def test_what_runs_at_import_uses_only_what_is_defined_above() -> None:
    defined = definitions()
    assert [use for use in uses() if use.at_import and use.line < defined[use.name]] == []


@pytest.mark.parametrize("section", MAY_USE)
def test_a_section_uses_only_the_sections_it_may(section: str) -> None:
    allowed = MAY_USE[section] | {section, "settings and places"}
    defined = definitions()
    assert [
        f"{use.name} of {section_of(defined[use.name])} in line {use.line}"
        for use in uses()
        if section_of(use.line) == section and section_of(defined[use.name]) not in allowed
    ] == []


def test_importing_the_module_brings_nothing_heavy_with_it() -> None:
    program = (
        "import json, sys, llm.cli; before = set(sys.modules); import llm_user_memory;"
        " print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={"LLM_LOAD_PLUGINS": ""}, capture_output=True, check=True, timeout=PATIENCE
    )
    assert set(json.loads(done.stdout)) <= {"llm_user_memory", "glob", "textwrap", "unicodedata"}


def test_a_call_that_memory_takes_part_in_does_not_load_what_only_the_worker_needs(user: User) -> None:
    user.profile = "- Prefers metric units\n"
    program = (
        "import sys, runpy, atexit\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "sys.argv = ['llm', 'x']\n"
        "runpy.run_module('llm', run_name='__main__')\n"
    )
    with user.memory() as opened:
        opened.pause()
    done = subprocess.run(
        [BIN / "python", "-c", program],
        env=user.env | {"LLM_MEMORY_AUTO": "1"},
        input=b"",
        capture_output=True,
        check=True,
        timeout=PATIENCE,
    )
    loaded = set(done.stderr.decode().split())
    assert "llm_user_memory" in loaded
    assert "Prefers metric units" in str(user.calls()[-1]["messages"])
    heavy = {"filelock", "platformdirs", "logging.handlers", "difflib"}
    assert sorted(loaded & heavy) == []
