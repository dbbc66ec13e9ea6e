"""The profile is the user's to write: `edit`, `load` and `add`, also while others write."""

from __future__ import annotations

import stat
import sys

import pytest
from conftest import PROFILE, User, posix_only

from llm_user_memory import TITLE, lock

pytestmark = posix_only


def editor(user: User, script: str) -> str:
    """The value of EDITOR for an editor that runs this script in the user's folder."""
    program = user.folder / "an editor"
    program.write_text(f"#!/bin/sh\ncd '{user.folder}'\n{script}\n")
    program.chmod(0o700)
    return f"'{program}'"


def edit(user: User, script: str) -> str:
    """Edit with such an editor, which also does what happens meanwhile; return what the command says."""
    return user.run("edit", EDITOR=editor(user, script), LLM_MEMORY_AUTO="1")[1]


# Edit


def test_the_editor_has_the_profile_itself(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    said = edit(user, f"""[ "$1" = '{user.places.profile}' ] && echo '- In Hull' >> "$1" """)
    assert user.facts == ["Lives in Leeds", "Likes short answers", "In Hull"]
    assert "Added: In Hull\nTo undo this: llm memory undo " in said
    assert user.versions() == [(1, "load"), (2, "edit")]
    assert "Nothing changed" in edit(user, "")
    assert len(user.versions()) == 2


def test_nothing_is_learned_while_the_editor_is_open(user: User) -> None:
    learns = f"import fcntl; fcntl.flock(open('{user.places.lock_file('learn')}', 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    edit(
        user,
        f"""'{sys.executable}' -c "{learns}" || touch nobody-learns; LLM_MEMORY_LINE=" llm 'I live in Leeds'" llm 'I live in Leeds' </dev/null""",
    )
    assert (user.folder / "nobody-learns").exists()
    user.comes_to_know("I live in Leeds")


def test_a_new_profile_is_private_and_leaves_no_version_unless_edited(user: User) -> None:
    assert "Nothing changed" in edit(user, """cp "$1" seen""")
    assert (user.profile, user.versions()) == ("", [])
    edit(user, """echo '- Likes tea' >> "$1" """)
    assert (user.facts, user.versions()) == (["Likes tea"], [(1, "edit")])
    assert stat.S_IMODE(user.places.profile.stat().st_mode) == 0o600


@pytest.mark.parametrize("save", ["cat edited >", "cp edited aside; mv aside"])
def test_what_is_added_while_the_editor_is_open_stays_beside_the_edit(user: User, save: str) -> None:
    user.run("load", "-", stdin=PROFILE)
    (user.folder / "edited").write_text(PROFILE.replace("short", "long"))  # of what the editor read at its start
    said = edit(user, f"""llm memory add 'Has a dog'; {save} "$1" """)
    assert user.facts == ["Lives in Leeds", "Has a dog", "Likes long answers"]
    assert user.authors == ["load", "add", "edit"]
    assert "Likes long answers" in said
    assert "To undo this: llm memory undo " in said
    user.run("undo")
    assert user.facts == ["Lives in Leeds", "Has a dog", "Likes short answers"]


def test_only_what_was_saved_in_the_editor_is_the_edit(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    assert "Nothing changed" in edit(user, "llm memory add 'Has a dog'")
    said = edit(user, """echo '- In Hull' >> "$1"; llm memory add 'Has a cat'""")
    assert "Added: In Hull\nTo undo this: llm memory undo 3\n" in said
    assert user.facts == ["Lives in Leeds", "Has a dog", "Has a cat", "Likes short answers", "In Hull"]


def test_edit_says_that_it_waits_for_a_model_and_opens_the_editor_then(user: User) -> None:
    with lock(user.places, "learn"):
        terminal = user.terminal("llm", "memory", "edit", auto=None, EDITOR=editor(user, "touch open"))
        terminal.expect("Waiting for another process to finish")
        assert not (user.folder / "open").exists()
    assert terminal.wait() == 0
    assert (user.folder / "open").exists()


def test_an_editor_that_deletes_the_profile_empties_it_and_that_can_be_undone(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    assert "To undo this: llm memory undo " in edit(user, 'rm "$1"')
    assert user.profile == ""
    user.run("undo")
    assert user.profile == PROFILE


def test_a_profile_that_cannot_be_written_is_not_opened_in_the_editor_first(user: User) -> None:
    user.profile = PROFILE
    user.places.profile.chmod(0o444)
    assert "is read-only" in user.run("edit", code=1, EDITOR=editor(user, "touch open"))[1]
    assert not (user.folder / "open").exists()


# Load


def test_a_load_while_the_model_thinks_is_what_its_edits_are_made_in(user: User) -> None:
    user.profile = PROFILE
    user.types("I have a dog")
    user.learns("ADD | Interests | Has a dog | I have a dog", lambda: user.run("load", "-", stdin="- New\n"))
    assert user.facts == ["New", "Has a dog"]


# Add


def test_add_writes_at_once_under_its_heading_from_an_argument_or_from_stdin(user: User) -> None:
    user.profile = PROFILE
    user.run("add", "Plays chess", "--section", "preferences")
    user.llm("memory", "add", "--yes", input="- Has two cats\n\n  Works in York  \n", auto=None)
    user.run("add", "-", "--section", "## Boats", stdin="* Owns a dinghy")
    assert user.profile == (
        f"{TITLE}\n\n## Personal Information\n- Lives in Leeds\n- Has two cats\n- Works in York\n\n"
        "## Preferences\n- Likes short answers\n- Plays chess\n\n## Boats\n- Owns a dinghy\n"
    )
    assert "Nothing changed" in user.run("add", "lives in leeds.")[1]
    user.run("add", "-", stdin="# Boats\n- Sails\n")
    assert "- Works in York\n- Sails\n\n## Preferences" in user.profile, "a heading is no fact"
    assert "nothing to add" in user.run("add", stdin=" \n", code=1)[1]
    assert "Name a heading" in user.run("add", "x", "--section", "", code=1)[1]
    user.run("add", "# of kids: two")
    assert "# of kids: two" in user.facts
    user.profile = "1. Rows\n"
    user.run("add", "-", "--section", "Notes", stdin="Sails\nSails\nSwims\n")
    assert user.profile == "1. Rows\n\n## Notes\n1. Sails\n2. Swims\n"


ODD = ("2. Bundesliga fan", "- x", "# of kids: two", "1) is first", "[ ] open", "+ is a sign", "> 40", "• dot")


@pytest.mark.parametrize("fact", ODD)
def test_a_fact_that_looks_like_a_list_can_be_added_once_and_found_and_forgotten_alone(user: User, fact: str) -> None:
    user.profile = "- Bundesliga fan\n- Has two kids\n- Is first\n"
    user.profile += f"- {fact}\n"
    (said,) = user.facts[3:]
    assert "Nothing changed" in user.run("add", "-", stdin=f"- {fact}\n")[1]
    assert f"{said}\n" in user.run("why", "--", said)[0]
    assert f"{said}\n" in user.run("search", "--", said)[0]
    user.run("forget", "--yes", f"[{user.id_of(said)}]")
    assert user.facts == ["Bundesliga fan", "Has two kids", "Is first"]
    user.run("add", "--", fact)
    assert len(user.facts) == 4
    user.run("forget", "--yes", "--", fact)
    assert len(user.facts) == 3


def test_an_added_mark_of_a_chat_template_is_told(user: User) -> None:
    assert "will not be sent" in user.run("add", "Hates [/INST] and <|im_start|>")[1]
    assert "will not be sent" not in user.run("add", "Hates [brackets]")[1]


@pytest.mark.parametrize("command", [("add",), ("why",), ("search",), ("forget",), ("add", "x", "--section")])
def test_a_terminal_with_another_encoding_is_named_as_the_reason(user: User, command: tuple[str, ...]) -> None:
    said = user.run(*command, "Caf\udcc3\udca9", code=1, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", LC_ALL="C")[1]
    assert "encoding" in said
    assert "UTF-8" in said
    assert "invisible" not in said
