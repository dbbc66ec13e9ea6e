"""What ten thousand versions of the profile cost, against ten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import people
from poll import clocked
from table import Row, alone, compared

import llm_user_memory as memory

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Sequence


def with_versions(folder: pathlib.Path, count: int) -> memory.Memory:
    """A history of so many versions, each with one line changed, recorded as ever but in one transaction."""
    opened = memory.Memory(people.home(folder, ""))
    lines = [f"- Fact number {number} about the user, of an ordinary length" for number in range(60)]
    with opened.db.atomic():
        for version in range(count):
            lines[version % len(lines)] = f"- Fact number {version} of version {version}, of an ordinary length"
            text = "# User Profile\n\n## Notes\n" + "\n".join(lines) + "\n"
            opened.history._add("worker", text)
    opened.home.profile.write_text(text)
    return opened


def changes_of_last(versions: memory.History) -> Sequence[memory.Change]:
    newest = versions.latest()
    return versions.changes(newest - 1, newest)


def run(quick: bool, folder: pathlib.Path) -> tuple[str, list[Row]]:
    few, many = 10, 500 if quick else 10_000
    memories = [with_versions(folder / str(count), count) for count in (many, few)]
    documents = [memory.Document(memory.read_profile(each.home.profile)) for each in memories]
    # The line that the last version brought.
    facts = [doc.items[(count - 1) % 60] for doc, count in zip(documents, (many, few), strict=True)]
    # Back and forth between two texts that both have: what the versions between hold is no matter.
    other = "# User Profile\n\n## Notes\n- One line\n"
    first = {id(each): each.history.text(1) for each in memories}

    things: dict[str, Callable[..., Any]] = {
        "history": lambda each, _: each.history.versions(10),
        "diff": lambda each, _: changes_of_last(each.history),
        "why": lambda each, fact: list(memory.wordings(each, fact.text)),
        "rollback": lambda each, _: each.history.overwrite(
            "rollback", other if len(memory.read_profile(each.home.profile)) > 99 else first[id(each)]
        ),
    }
    times = 3 if quick else 25
    rows = []
    for name, thing in things.items():
        measured = [
            lambda each=each, fact=fact, thing=thing: thing(each, fact)
            for each, fact in zip(memories, facts, strict=True)
        ]
        rows.append(
            compared(f"{name}, with {many:,} versions, against {few}", clocked(times, *measured), 1.5, " µs", 0)
        )
    size = memories[0].home.database.stat().st_size / many
    for each in memories:
        each.db.close()
    return "History", [*rows, alone(f"bytes of memory.db a version, of {many:,}", [size], None, "", 0)]
