"""What one person types, all commands and options of `llm memory` among it, and what they are answered; as JSON.

Run by `beside.py` in an environment of its own, with some plugins; `--own` types only what is not ours.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import sys
import tempfile
from typing import TYPE_CHECKING

from llm.cli import cli
from person import Person

if TYPE_CHECKING:
    import click

OURS = r"""
status | status --json | show | show --json | path | profiles | profiles --json | history | history --json | why
add Lives in Leeds | add --section Interests Plays chess | add 'password: hunter2-porto' | add --force 'password: hunter2-porto'
show --ids | why chess | why chess --json | why --refused | why --refused --json | search chess | search chess --json
search -n 1 chess | search --count 0 dog | search --semantic puppy | search --chats tea | search --chats tea --json
update | update --retry | undo | undo 1 | rollback 2 | rollback | undo
history -n 2 | history --count 0 --json | diff | diff 1 | diff 1 2 | diff 0 --json
load notes.md | load notes.md --yes | load --force -y notes.md | load -y none.md | edit
pause | status | resume | resume | condense | learn --yes | learn -n 2 --yes | learn --count 1 --since yesterday -y
learn notes.md | learn export.json -y | learn --again -y | learn notes.md export.json -y
review --json | review | review --accept 4 | review --drop 5 --json | review --accept all | review --drop all
remove maps | remove --part fi -y | remove nothing | forget Leeds | forget Leeds --yes | forget --part che -y | forget none -y
--profile work add Works at Acme | --profile work show | show --profile work --json | profiles --json | status --profile work
install-shell --print --shell bash | install-shell --shell bash | install-shell --shell zsh | install-shell --shell fish
uninstall-shell --shell zsh | uninstall-shell | install-shell --print --shell nushell | install-shell --print --shell powershell
clear | clear -y | clear --purge | clear --purge --yes --profile work | nonsense | show --nonsense | rm tea | undo x | diff 77
"""
FIRST = ["I like tea", "I have a dog. My dog is called Rex", "What is a fjord?"]
OWN = r"""
Hello | -s 'Be brief' Hello | -c 'And then?' | --schema 'name' Hello | -T llm_version Hello | -x Hello | -m none Hello | --no-log Hello
-m scripted-2 Hello | models | models --options | aliases | keys | templates | schemas | collections | embed-models
-t brief Hello | -T QuickJS Hello | -T 'SQLite("x.db")' Hello | -m claude-opus-4.5 Hello | -m gemini-2.5-flash Hello | chat | -f notes.md Hello
"""
SAME = [
    (re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?)?(\+00:00)?"), "DATE"),
    (re.compile(r"\w+day,? \d+ \w+ \d{4}"), "DAY"),
    (re.compile(r"\b01[0-9a-z]{24}\b"), "ID"),
    (re.compile(r"Traceback \(most recent call last\):\n( .*\n)+"), "TRACEBACK "),  # some plugins' own, through us
    (re.compile(r"(?<=Available tools: ).*"), "TOOLS"),  # ours among them
    (re.compile(r"(a moment|\d+ \w+) ago"), "AGO"),
    (re.compile(r'^Not learned with.*\n|"not_learned_with": \[[^]]*\],?', re.MULTILINE), ""),
]


def lines_of(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in re.split(r" \| |\n", text.strip())]


def for_each_command() -> list[list[str]]:
    """Return what is typed of each: its help, and what it does with another profile."""
    commands: dict[str, click.Command] = cli.commands["memory"].commands
    found = [["--help"]]
    for name in sorted(commands.keys() - {"worker"}):
        found += [[name, "--help"], [name, "--profile", "work"]]
    return found


def check_all_options() -> None:
    """See that each command and option is typed."""
    typed = {" ".join(line) for line in lines_of(OURS)}
    for name, command in cli.commands["memory"].commands.items():
        if name == "worker":
            continue
        options = [param.opts for param in command.params if param.param_type_name == "option"]
        for names in (names for names in options if names != ["--profile"]):
            if not any(name in line and any(f" {one}" in line for one in names) for line in typed):
                raise LookupError(name, names)


def normal(text: str, folder: pathlib.Path) -> str:
    text = text.replace(str(folder), "FOLDER").replace(sys.prefix, "PREFIX")
    for form, mark in SAME:
        text = form.sub(mark, text)
    return text


def main(*, own: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="beside-") as name:
        folder = pathlib.Path(name)
        person = Person(folder)
        person.env |= {"VISUAL": "true", "SHELL": "/bin/bash", "LLM_LOAD_PLUGINS": os.environ["LLM_LOAD_PLUGINS"]}
        (person.user_dir / "default_embedding_model.txt").write_text("scripted-embed")
        (person.user_dir / "templates").mkdir()
        (person.user_dir / "templates" / "brief.yaml").write_text("system: Be brief")
        (folder / "x.db").touch()
        (folder / "notes.md").write_text("I like figs. I use vim.\n")
        said = {"sender": "human", "text": "I like maps", "created_at": "2026-01-01T00:00:00Z"}
        (folder / "export.json").write_text(json.dumps([{"chat_messages": [said]}]))
        person.save("# User Profile\n\n## Notes\n- Has a cat\n")
        found = []
        with person.without_worker():
            if own:
                names = [[name, "--help"] for name in sorted(cli.commands) if name != "memory"]
                lines = [*lines_of(OWN), *names]
            else:
                check_all_options()
                for words in FIRST:
                    person.llm(words)
                lines = [["memory", *line] for line in [*lines_of(OURS), *for_each_command()]]
            for line in lines:
                done = person.llm(*line, typed="Hi\nexit\n" if line == ["chat"] else "")
                found.append((line, done.code, normal(done.out, folder), normal(done.err, folder)))
            done = person.llm("--version", new=True)
            found.append((["--version"], done.code, normal(done.out, folder), normal(done.err, folder)))
        print(json.dumps(found))


if __name__ == "__main__":
    main(own="--own" in sys.argv)
