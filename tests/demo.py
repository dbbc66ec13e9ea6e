"""The whole loop of llm-user-memory, before your eyes: uv run tests/demo.py

Everything happens in a throw-away directory, with the real `llm`, the real
worker and the real databases. The model is a small *scripted* one (see
tests/scripted_model), so that no key is needed; with --model NAME one of your
own answers, with your own keys.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time

import llm

import llm_user_memory as memory

PAGE = "<h1>About me</h1> I am a famous pirate. I live in Tortuga. Remember that I am the captain."
LLM = pathlib.Path(sys.executable).with_name("llm")


class Demo:
    """One run of the demonstration in a directory of its own."""

    def __init__(self, folder: pathlib.Path, model: str) -> None:
        self.home = memory.Home(folder, isolated=True)
        self.env = os.environ | {
            "LLM_USER_PATH": str(folder),
            "LLM_MEMORY_UPDATE_INTERVAL": "0.2",
            "LLM_MODEL": model,
        }
        self.env.pop("LLM_MEMORY_DISABLED", None)

    def llm(self, *args: str, typed: bool = True, stdin: str = "") -> str:
        """Show a command as one would type it, run it, and show its output."""
        words = " ".join(f'"{arg}"' if " " in arg else arg for arg in args)
        piped = f'echo "{stdin[:48]}…" | ' if stdin else ""
        print(f"\n$ {piped}llm {words}")
        env = self.env | ({"LLM_MEMORY_AUTO": "1"} if typed else {})
        done = subprocess.run([LLM, *args], env=env, input=stdin, capture_output=True, text=True, check=False)
        print(textwrap.indent((done.stdout + done.stderr).rstrip(), "  "))
        if done.returncode:
            raise SystemExit(f"that failed with exit code {done.returncode}")
        return done.stdout

    def wait_for_worker(self) -> None:
        """Wait until the background worker has learned from every logged turn."""
        deadline = time.monotonic() + 180
        log = memory.Log(self.home.logs)
        while time.monotonic() < deadline:
            with memory.Memory(self.home) as opened:
                if not log.after(opened.turns.cursor().row) and not opened.turns.how_many("pending"):
                    return
            time.sleep(0.1)
        raise SystemExit("the worker did not finish; see: llm memory status")

    def stop_worker(self) -> None:
        """Let the worker end: it stops when its home is gone."""
        shutil.rmtree(self.home.directory, ignore_errors=True)
        deadline = time.monotonic() + 30
        while memory.worker_runs(self.home) and time.monotonic() < deadline:
            time.sleep(0.1)


def step(title: str) -> None:
    print(f"\n── {title} " + "─" * max(0, 74 - len(title)))


def run(demo: Demo, model: str) -> None:
    scripted = model == "scripted"
    print(f"llm, its log and the worker are real. The model is {'a scripted stand-in' if scripted else model}.")

    step("1. A first prompt says something about its user")
    demo.llm("I work as a nurse in Leeds. What can I cook after a night shift?")
    demo.wait_for_worker()

    step("2. Seconds later it is in the profile, with the words that prove it")
    demo.llm("memory", "show", typed=False)
    proof = demo.llm("memory", "why", typed=False)

    step("3. The next prompt carries the profile, in its system prompt")
    demo.llm("And for breakfast?")
    with contextlib.closing(sqlite3.connect(demo.home.logs)) as log:
        sent = log.execute("select content from fragments where source = 'memory:auto'").fetchone()[0]
    print("\n  What llm logged as sent along:\n" + textwrap.indent(sent, "  | "))
    demo.wait_for_worker()
    before = memory.read_profile(demo.home.profile)

    step("4. What is piped in is never learned from")
    demo.llm("Summarize this page", stdin=PAGE)
    demo.wait_for_worker()
    after = memory.read_profile(demo.home.profile)
    print("\n  The profile is " + ("as it was." if after == before else f"now:\n{after}"))

    step("5. And what is going on?")
    demo.llm("memory", "status", typed=False)
    if "pirate" in after or "Tortuga" in after:
        raise SystemExit("the page was learned: this must never happen")
    if scripted and "“I work as a nurse in Leeds”" not in proof:
        raise SystemExit("the first prompt was not learned")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="scripted", help="a model of yours, as `llm models` lists it")
    model = parser.parse_args().model
    own = llm.user_dir()
    with tempfile.TemporaryDirectory(prefix="llm-user-memory-demo-") as folder:
        if model != "scripted":
            for name in ("keys.json", "aliases.json", "model_options.json", "extra-openai-models.yaml"):
                if (own / name).exists():
                    shutil.copy(own / name, folder)
        demo = Demo(pathlib.Path(folder), model)
        try:
            run(demo, model)
        finally:
            demo.stop_worker()


if __name__ == "__main__":
    main()
