"""What a call of `llm` costs with memory: the whole process, and the time inside our code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import people
from table import Row, alone, compared, in_turns

if TYPE_CHECKING:
    import pathlib

# Runs one call in this interpreter with a clock around every way into our code.
INSIDE = """
import functools, json, sys, time
import click
import llm_user_memory as memory
took, depth = {"call": 0.0, "spawn": 0.0}, {"call": 0, "spawn": 0}

def clocked(function, key="call"):
    @functools.wraps(function)
    def run(*args, **kwargs):
        depth[key] += 1
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            depth[key] -= 1
            if not depth[key]:
                took[key] += time.perf_counter() - start
    return run

for place, names in ((memory, ["load_fragment"]), (memory.Call, ["_add_profile", "_note", "_tell"]),
                     (memory.Settings, ["__init__"])):
    for name in names:
        setattr(place, name, clocked(getattr(place, name)))
memory.spawn_worker = clocked(memory.spawn_worker, "spawn")

from llm.cli import cli
try:
    cli(sys.argv[1:])
finally:
    print(json.dumps(took), file=sys.stderr)
"""

# All that llm has loaded before it looks for plugins is not our cost.
IMPORT = """
import time
import llm.cli
start = time.perf_counter()
import llm_user_memory
print(time.perf_counter() - start)
"""


def run(quick: bool, folder: pathlib.Path) -> tuple[str, list[Row]]:
    times = 2 if quick else 60
    env = people.environment(folder / "user", LLM_MEMORY_UPDATE_INTERVAL="3600")
    home = people.home(folder / "user", people.profile(8_000))
    llm = [sys.executable, "-m", "llm", "What time is it?"]
    plain = env | {"LLM_LOAD_PLUGINS": "llm-scripted"}
    env |= {"LLM_LOAD_PLUGINS": "llm-scripted,llm-user-memory"}
    typed = env | {"LLM_MEMORY_AUTO": "1", "LLM_MEMORY_LINE": " llm 'What time is it?'"}
    wall: dict[bool, list[float]] = {True: [], False: []}

    def cpu(*, ours: bool) -> float:
        start = time.perf_counter()
        process = subprocess.Popen(llm, env=typed if ours else plain, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        wall[ours].append((time.perf_counter() - start) * 1000)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return (used.ru_utime + used.ru_stime) * 1000

    def instructions(*, ours: bool) -> float:
        """Millions of them: what the processor has to do, whatever else the machine does at the time."""
        valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
        environ = (typed if ours else plain) | {"PYTHONHASHSEED": "0"}
        done = subprocess.run([*valgrind, *llm], env=environ, capture_output=True, text=True, check=True)
        found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
        assert found
        return int(found[1].replace(",", "")) / 1e6

    def inside() -> dict[str, float]:
        command = [sys.executable, "-c", INSIDE, "What time is it?"]
        done = subprocess.run(command, env=typed, capture_output=True, text=True, check=True)
        found: dict[str, float] = json.loads(done.stderr.splitlines()[-1])
        return found

    def importing() -> float:
        done = subprocess.run([sys.executable, "-c", IMPORT], env=plain, capture_output=True, text=True, check=True)
        return float(done.stdout) * 1000

    with people.worker(env, home):
        ours, other = in_turns(times, lambda: cpu(ours=True), lambda: cpu(ours=False))
        counted = None
        if shutil.which("valgrind") and not quick:
            counted = in_turns(3, lambda: instructions(ours=True), lambda: instructions(ours=False))
        imports, calls = in_turns(times, importing, lambda: inside()["call"] * 1000)
    spawns = []
    for _ in range(times):
        spawns.append(inside()["spawn"] * 1000)
        people.end_worker(home)
    return "A call of llm, with a profile of 8,000 characters and a model that answers at once", [
        compared("CPU of the whole call, against llm without the plugin", [ours, other], 1.02, " ms", 0),
        compared("the same, on the clock", [wall[True], wall[False]], None, " ms", 0),
        compared("instructions of the call, counted", counted, 1.02, " million", 0)
        if counted
        else Row("instructions of the call, counted", "not counted: valgrind is not installed"),
        alone("of that: importing the plugin", imports, None, " ms"),
        alone("of that: inside our code, until the model is asked and at the end", calls, 5, " ms"),
        alone("starting a worker, when none runs: what the call waits for it", spawns, 1, " ms", 2),
    ]
