"""Draw the README's picture, a real session in a real bash: uv run --group docs python tests/picture.py

The prompts go to the demo's scripted model. Everything else is real; only the words that the second
answer owes to the first prompt and a wrong line of the profile are highlighted, and comments are dimmed.
"""

from __future__ import annotations

import io
import os
import pathlib
import pty
import select
import sys
import tempfile
import time

from demo import COOK, FIRST, SECOND, Demo
from rich.color import parse_rgb_hex
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = pathlib.Path(__file__).parent.parent
PICTURE = ROOT / ".github" / "demo.svg"
COLUMNS = 88
PROMPT = "\x1b[0;1;32m$\x1b[0;1m "
RC = rf"""
stty columns {COLUMNS} rows 60
bind 'set enable-bracketed-paste off'
source '{ROOT}/shell/llm.bash'
PS1='\n\[\e[0;1;32m\]$\[\e[0;1m\] ' PS0='\e[0m'
"""
OWED = "night shift|vegetarian|no oven"
SISTER = "My sister can't eat nuts. Which cake?"
WRONG = "- Can't eat nuts"

# Fonts are named, not fetched: GitHub loads nothing for a picture.
FRAME = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px;
}}
{styles}
</style>
<defs>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
# Black, red, green, yellow, blue, magenta, cyan, white on a dark window, which is legible on any page.
COLOURS = ("484f58", "ff7b72", "7ee787", "d29922", "79c0ff", "d2a8ff", "56d4dd", "b1bac4")
THEME = TerminalTheme((22, 27, 34), (230, 237, 243), [parse_rgb_hex(each) for each in COLOURS])


class Bash:
    """An interactive bash in a pseudo-terminal, and what it has shown."""

    def __init__(self, env: dict[str, str]) -> None:
        self.shown, self.prompts = "", 0
        pid, self.fd = pty.fork()
        if pid == 0:
            os.execvpe("bash", ["bash", "-i"], env)

    def type(self, command: str) -> None:
        """Type a command once bash waits for one."""
        self.wait()
        os.write(self.fd, command.encode() + b"\n")
        self.prompts += 1

    def wait(self) -> str:
        """Wait for the next prompt; return what was shown before it."""
        deadline = time.monotonic() + 60
        while self.shown.count(PROMPT) <= self.prompts:
            if not select.select([self.fd], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise SystemExit(f"bash shows no prompt: {self.shown!r}")
            self.shown += os.read(self.fd, 65536).decode().replace("\r\n", "\n")
        return self.shown.rpartition(PROMPT)[0]


def record(demo: Demo, home: pathlib.Path) -> str:
    """Run the session; return what the terminal showed."""
    (home / ".bashrc").write_text(RC)
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    env = demo.env | {"HOME": str(home), "PATH": path, "TERM": "xterm-256color"}
    bash = Bash({name: value for name, value in env.items() if name not in {"NO_COLOR", "COLUMNS", "LINES"}})
    bash.type(f'llm "{FIRST}"')
    bash.wait()
    demo.wait_for_worker()
    bash.type(f'command llm "{SECOND}"  # seconds later, without memory')
    bash.type(f'llm "{SECOND}"  # with it')
    bash.type(f'llm "{SISTER}"')
    bash.wait()
    demo.wait_for_worker()
    bash.type("llm memory show")
    bash.type("llm memory why nuts  # but that is the sister")
    bash.type("llm memory undo")
    shown = bash.wait()
    os.close(bash.fd)
    told = (*OWED.split("|"), "memory: ", WRONG, "you typed: ", "Removed: “Can't eat nuts”")
    if missing := [word for word in told if word not in shown.partition(SECOND)[2]]:
        raise SystemExit(f"The session does not show {missing}:\n{shown}")
    return shown


def draw(shown: str) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    text = Text.from_ansi(shown.strip())
    text.highlight_regex(rf"({OWED})(?=(?s:.*)\nmemory: )", "yellow")
    text.highlight_regex(WRONG, "yellow")
    text.highlight_regex("  # .*", "not bold dim")
    console.print(text, soft_wrap=True)
    svg: str = console.export_svg(title="llm", theme=THEME, code_format=FRAME, unique_id="demo")
    return svg


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="llm-user-memory-picture-") as folder:
        home = pathlib.Path(folder)
        user_dir = home / "llm"
        user_dir.mkdir()
        demo = Demo(user_dir, COOK)
        try:
            PICTURE.write_text(draw(record(demo, home)), "utf-8")
        finally:
            demo.stop_worker()
    print(PICTURE)


if __name__ == "__main__":
    main()
