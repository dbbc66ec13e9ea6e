"""Each command and option of `llm memory` beside popular plugins, alone and together, with two versions of llm.

uv run python tests/lab/beside.py  # installs them into scratch environments: needs the network

It is answered as without them, but for the list of models; and without us, they and llm are as with us.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VERSIONS = ["llm==0.32.1", "llm"]  # the first is our minimum
PLUGINS = [
    *("llm-anthropic", "llm-gemini", "llm-ollama", "llm-cmd", "llm-jq", "llm-templates-fabric", "llm-templates-github"),
    *("llm-fragments-github", "llm-docs", "llm-tools-quickjs", "llm-tools-sqlite", "llm-cluster"),
]
TOO_SLOW = "as it takes long to start"
Answers = list[tuple[list[str], int, str, str]]


class Place(NamedTuple):
    """An environment with a version of llm, and the plugins that could be installed beside it."""

    folder: pathlib.Path
    plugins: list[str]

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def answers(self, plugins: list[str], *options: str) -> Answers:
        env = os.environ | {"LLM_LOAD_PLUGINS": ",".join(["llm-scripted", *plugins])}
        env.pop("PYTHONPATH", None)
        command = [self.python, str(HERE / "scene.py"), *options]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode or done.stderr:
            print(
                f"--- {plugins} {options}: exit {done.returncode}, at the start:", done.stderr[-2000:], file=sys.stderr
            )
            return []
        answers: Answers = json.loads(done.stdout)
        return answers


def made(folder: pathlib.Path, version: str) -> Place:
    python = str(folder / "bin" / "python")
    subprocess.run(["uv", "venv", "--quiet", folder], check=True)
    install = ["uv", "pip", "install", "--quiet", "--python", python, version]
    subprocess.run([*install, "-e", ROOT, "-e", ROOT / "tests/scripted_model"], check=True)
    plugins = []
    for plugin in PLUGINS:
        done = subprocess.run([*install, plugin], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"left out with {version}: {plugin}: {done.stderr.strip()[-200:]}")
        else:
            plugins.append(plugin)
    return Place(folder, plugins)


def compare(place: Place, version: str, counts: Counter[str]) -> None:
    sets = [[plugin] for plugin in place.plugins] + [place.plugins]
    us = "llm-user-memory"
    alone = place.answers([us])
    with ThreadPoolExecutor(2) as pool:
        beside = list(pool.map(lambda plugins: place.answers([*plugins, us]), sets))
        own = list(pool.map(lambda plugins: place.answers(plugins, "--own"), sets))
        own_with_us = list(pool.map(lambda plugins: place.answers([*plugins, us], "--own"), sets))
    for plugins, ours, theirs, theirs_with_us in zip(sets, beside, own, own_with_us, strict=True):
        for what, plain, now in (("ours", alone, ours), ("theirs", theirs, theirs_with_us)):
            counts[f"{version}: {what}"] += len(now)
            if not plain or len(plain) != len(now):
                counts["not run to the end"] += 1
            for before, after in zip(plain, now, strict=False):
                if TOO_SLOW in before[3] + after[3]:
                    counts["install-shell found the machine too slow"] += 1
                elif before != after:
                    counts["different"] += 1
                    print(f"--- {version}, {plugins}, {what}: {before}\n  now {after}", file=sys.stderr)


def main() -> None:
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for number, version in enumerate(VERSIONS):
            place = made(pathlib.Path(folder) / str(number), version)
            version_found = subprocess.run(
                [place.python, "-m", "llm", "--version"], capture_output=True, text=True, check=True
            )
            print(version_found.stdout.strip(), "beside", *place.plugins)
            compare(place, version_found.stdout.split()[-1], counts)
    for name, count in sorted(counts.items()):
        print(f"  {name:<40} {count:,}")


if __name__ == "__main__":
    main()
