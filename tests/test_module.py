"""The module reads top to bottom, and costs next to nothing to load."""

from __future__ import annotations

import ast
import functools
import json
import pathlib
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import filelock
from conftest import BIN, PATIENCE, User

import llm_user_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = pathlib.Path(llm_user_memory.__file__).read_text("utf-8")
TREE = ast.parse(SOURCE)
SECTIONS = [
    *("hooks", "settings and places", "text", "profile", "edits", "journal and log"),
    *("memory", "learning", "worker", "injection", "tools", "commands"),
]
MAY_USE = {
    "text": set(),
    "profile": {"text"},
    "edits": {"text", "profile"},
    "journal and log": {"text"},
    "memory": {"text", "profile", "edits", "journal and log"},
    "learning": {"text", "profile", "edits", "journal and log", "memory"},
    "worker": {"text", "journal and log", "memory", "learning"},
    "injection": {"text", "profile", "journal and log", "memory", "learning", "worker"},
}
"""From the design's table, where it forbids something; everyone may use the settings' section."""
LONGEST_FUNCTION = 40


@dataclass(frozen=True)
class Use:
    name: str
    line: int


@functools.cache
def section_lines() -> dict[str, int]:
    found = re.finditer(r"^# -- (.+?) -+$", SOURCE, re.MULTILINE)
    return {match[1]: SOURCE[: match.start()].count("\n") + 1 for match in found}


def section_of(line: int) -> str:
    return [name for name, start in section_lines().items() if start <= line][-1]


@functools.cache
def definitions() -> dict[str, int]:
    """Where each name that the module itself defines is defined first."""
    found: dict[str, int] = {}
    for node in TREE.body:
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

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.id in self.names:
            self.found.append(Use(node.id, node.lineno))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for outside in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(outside)
        local = {arg.arg for arg in (*node.args.args, *node.args.posonlyargs, *node.args.kwonlyargs)}
        local |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        inner = _Uses(self.names - local)
        for statement in node.body:
            inner.visit(statement)
        self.found += inner.found

    def visit_Lambda(self, node: ast.Lambda) -> None:
        inner = _Uses(self.names - {arg.arg for arg in node.args.args})
        inner.visit(node.body)
        self.found += inner.found


@functools.cache
def uses() -> list[Use]:
    visitor = _Uses(set(definitions()))
    visitor.visit(TREE)
    return [use for use in visitor.found if section_of(use.line) != "hooks"]


def documented() -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in ast.walk(TREE):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node


def test_the_sections_stand_in_the_order_of_the_design() -> None:
    assert list(section_lines()) == SECTIONS


def test_below_the_hooks_a_name_is_used_only_below_the_line_that_defines_it() -> None:
    defined = definitions()
    early = {use for use in uses() if use.line < defined[use.name]}
    assert sorted(f"{use.name} (line {defined[use.name]}) is used in line {use.line}" for use in early) == []


def test_a_section_uses_only_the_sections_it_may_and_no_private_names_of_others() -> None:
    wrong = []
    for use in uses():
        user, owner = section_of(use.line), section_of(definitions()[use.name])
        allowed = MAY_USE.get(user, set(SECTIONS)) | {user, "settings and places"}
        if owner not in allowed or (use.name.startswith("_") and user != owner):
            wrong.append(f"{use.name} of {owner} in line {use.line}")
    assert wrong == []


def test_no_name_is_defined_twice() -> None:
    targets = [
        target
        for node in TREE.body
        for target in (node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)])
    ]
    names = Counter(getattr(target, "id", getattr(target, "name", None)) for target in targets)
    assert [name for name, times in names.items() if name and times > 1] == []


def test_a_docstring_begins_with_a_verb_or_a_noun() -> None:
    first = {node.name: (ast.get_docstring(node) or "").partition(" ")[0].casefold() for node in documented()}
    assert [name for name, word in first.items() if word in {"what", "whether", "where", "why", "how"}] == []


def test_no_function_is_longer_than_forty_lines() -> None:
    functions = (node for node in documented() if not isinstance(node, ast.ClassDef))
    lengths = [(node.name, (node.end_lineno or 0) - node.lineno + 1) for node in functions]
    assert [found for found in lengths if found[1] >= LONGEST_FUNCTION] == []


def test_importing_the_module_brings_nothing_heavy_with_it() -> None:
    program = (
        "import json, sys, llm.cli; before = set(sys.modules); import llm_user_memory;"
        " print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={"LLM_LOAD_PLUGINS": ""}, capture_output=True, check=True, timeout=PATIENCE
    )
    assert set(json.loads(done.stdout)) <= {"llm_user_memory", "glob", "textwrap", "unicodedata"}


WATCHED = """
import atexit, json, runpy, sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event in {"open", "sqlite3.connect"} else None)
atexit.register(lambda: print(json.dumps([sorted(sys.modules), opened]), file=sys.stderr))
sys.argv = ["llm", "x"]
runpy.run_module("llm", run_name="__main__")
"""


def watched_call(user: User, **env: str) -> tuple[set[str], list[str]]:
    """Modules that a call of llm has loaded, and files of ours that it opened."""
    command = [str(BIN / "python"), "-c", WATCHED]
    done = subprocess.run(
        command, env=user.env | env, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=PATIENCE
    )
    modules, opened = json.loads(done.stderr.decode().splitlines()[-1])
    ours = f"{user.places.directory}/"
    return set(modules), [path.removeprefix(ours) for path in opened if path.startswith(ours)]


def test_a_call_loads_nothing_heavy_opens_no_database_and_reads_each_file_once(user: User) -> None:
    user.has_learned("Prefers metric units", "I prefer metric units")
    with filelock.FileLock(user.places.lock("worker")):  # or the call would start one
        modules, opened = watched_call(user, LLM_MEMORY_AUTO="1")
        without, _ = watched_call(user, LLM_LOAD_PLUGINS="llm-scripted")
    assert "Prefers metric units" in user.calls()[-2]["system"]
    assert sorted(opened) == ["profile.md", "typed.jsonl", "worker.lock"]
    assert modules - without <= {"llm_user_memory", "unicodedata"}
