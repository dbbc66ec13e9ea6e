"""The profile is the user's to write: `edit`, `load` and `add`, also while others write."""

from __future__ import annotations

import contextlib
import stat
from typing import TYPE_CHECKING

import pytest
from conftest import PATIENCE, PROFILE, User, eventually, posix_only

from llm_user_memory import TEMPLATE, TITLE, LockBusy, locked

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

pytestmark = posix_only


@contextlib.contextmanager
def editing(user: User, *script: str, code: int = 0, signal: int = 0) -> Iterator[list[str]]:
    """Do something while `llm memory edit` has an editor open, which runs this script at the end.

    What the command says is then in the list.
    """
    editor, said = user.folder / "an editor", list[str]()
    wait = (
        f"touch '{user.folder}/open'; polls=0;"
        f" until [ -e '{user.folder}/go' ] || [ $polls -gt 3000 ]; do sleep 0.02; polls=$((polls + 1)); done"
    )
    editor.write_text("\n".join(["#!/bin/sh", wait, *script]) + "\n")
    editor.chmod(0o700)
    process: subprocess.Popen[bytes] = user.start("memory", "edit", auto=None, EDITOR=f"'{editor}'")
    eventually((user.folder / "open").exists, "the editor")
    yield said
    if signal:
        process.send_signal(signal)
    (user.folder / "go").touch()
    said.append(process.communicate(timeout=PATIENCE)[1].decode())
    (user.folder / "open").unlink()
    (user.folder / "go").unlink()
    assert process.returncode == code, said


# Edit


def test_the_editor_has_the_profile_itself(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    with editing(user, f"""[ "$1" = '{user.places.profile}' ] && echo '- In Hull' >> "$1" """) as said:
        pass
    assert user.facts == ["Lives in Leeds", "Likes short answers", "In Hull"]
    assert "+ In Hull\nTo undo this: llm memory rollback --only 2" in said[0]
    assert user.versions() == [(1, "load"), (2, "edit")]


def test_nothing_is_learned_while_the_editor_is_open(user: User) -> None:
    with editing(user):
        with pytest.raises(LockBusy), locked(user.places.lock("learn"), 0):
            pass
        user.llm("I live in Leeds")
        user.worker_pid()
        assert user.profile == TEMPLATE
    user.comes_to_know("I live in Leeds")


def test_a_secret_written_in_the_editor_stays_and_brings_a_warning(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    with editing(user, """echo '- Wifi password is hunter2secret9' >> "$1" """) as said:
        pass
    assert user.facts[-1] == "Wifi password is hunter2secret9"
    line = len(user.profile.splitlines())
    assert f"contains a password on line {line}; it is sent with every prompt. See: llm memory edit" in said[0]
    assert "hunter2" not in said[0]
    assert "The profile contains" not in user.run("add", "Has a dog")[1]


def test_a_template_that_stays_as_it_was_leaves_no_version(user: User) -> None:
    with editing(user) as said:
        assert user.profile == TEMPLATE
    assert "Nothing was changed" in said[0]
    assert (user.profile, user.versions()) == ("", [])
    with editing(user, """sed -i 's/## Interests/&\\n- Likes tea/' "$1" """):
        pass
    assert user.profile == TEMPLATE.replace("## Interests\n", "## Interests\n- Likes tea\n")
    assert user.versions() == [(1, "edit")]


def test_a_profile_that_begins_in_the_editor_is_for_its_owner_only(user: User) -> None:
    with editing(user, """echo '- Likes tea' >> "$1" """):
        pass
    assert stat.S_IMODE(user.places.profile.stat().st_mode) == 0o600


@pytest.mark.parametrize("save", ["cat edited >", "cp edited aside; mv aside"])
def test_what_is_added_while_the_editor_is_open_stays_beside_the_edit(user: User, save: str) -> None:
    user.run("load", "-", stdin=PROFILE)
    (user.folder / "edited").write_text(PROFILE.replace("short", "long"))  # of what the editor read at its start
    with editing(user, f"""{save} "$1" """) as said:
        user.run("add", "Has a dog")
    assert user.facts == ["Lives in Leeds", "Has a dog", "Likes long answers"]
    assert [author for _, author in user.versions()] == ["load", "add", "edit", "merge"]
    assert "Likes long answers" in said[0]
    assert "To undo this: llm memory rollback --only 3" in said[0]
    user.run("rollback", "--only", "3")
    assert user.facts == ["Lives in Leeds", "Has a dog", "Likes short answers"]


def test_what_was_saved_before_something_was_added_is_the_edit(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    with editing(user) as said:
        user.profile += "- In Hull\n"
        user.run("add", "Has a dog")
    assert "+ In Hull\nTo undo this: llm memory rollback --only 2" in said[0]
    assert user.facts == ["Lives in Leeds", "Has a dog", "Likes short answers", "In Hull"]


def test_what_is_added_while_the_editor_is_open_is_no_edit(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    with editing(user) as said:
        user.run("add", "Has a dog")
    assert "Nothing was changed" in said[0]
    assert user.facts == ["Lives in Leeds", "Has a dog", "Likes short answers"]


def test_where_both_changed_the_same_line_both_stay(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    with editing(user, """cat mine > "$1" """):
        (user.folder / "mine").write_text(PROFILE.replace("Leeds", "Hull"))
        user.run("load", "-", stdin=PROFILE.replace("Leeds", "York"))
    assert sorted(user.facts) == ["Likes short answers", "Lives in Hull", "Lives in York"]


def test_an_edit_is_kept_when_the_command_was_killed(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    with editing(user, """echo '- In Hull' >> "$1"; touch saved""", code=-9, signal=9):
        pass
    eventually((user.folder / "saved").exists, "saving")
    user.run("add", "Has a dog")
    assert user.facts == ["Lives in Leeds", "Has a dog", "Likes short answers", "In Hull"]
    assert [author for _, author in user.versions()] == ["load", "outside", "add"]


def test_editing_leaves_line_ends_byte_order_mark_and_missing_newline_as_they_are(user: User) -> None:
    text = "\ufeff# Me\r\n\r\n- Lives in Leeds\r\n- Likes tea"
    user.profile = text
    with editing(user, """sed -i 's/Leeds/York/' "$1" """):
        pass
    assert user.places.profile.read_bytes() == text.replace("Leeds", "York").encode()


def test_an_editor_that_deletes_the_profile_empties_it_and_that_can_be_undone(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    with editing(user, 'rm "$1"') as said:
        pass
    assert user.profile == ""
    assert "rollback --only 2" in said[0]
    user.run("rollback", "--only", "2")
    assert user.profile == PROFILE


def test_a_profile_that_cannot_be_written_is_not_opened_in_the_editor_first(user: User) -> None:
    user.profile = PROFILE
    user.places.profile.chmod(0o444)
    user.env["EDITOR"] = f"touch '{user.folder}/open'"
    assert "is read-only" in user.run("edit", code=1)[1]
    assert not (user.folder / "open").exists()


@pytest.mark.parametrize("editor", ["false", "no-such-editor", "'unbalanced"])
def test_an_editor_that_fails_is_an_error_that_names_the_next_step(user: User, editor: str) -> None:
    user.run("load", "-", stdin=PROFILE)
    user.env["EDITOR"] = editor
    assert "to use another one: export EDITOR=nano" in user.run("edit", code=1)[1]
    assert (user.profile, user.versions()) == (PROFILE, [(1, "load")])


# Load


def test_loading_keeps_what_was_there_in_history(user: User) -> None:
    user.profile = PROFILE
    user.has_learned("Has a dog", "I have a dog")
    user.run("load", "-", stdin="- New\n")
    assert user.profile == "- New\n"
    assert "Has a dog" in user.text_of(2)
    assert user.text_of(1) == PROFILE


def test_a_load_while_the_model_thinks_is_what_its_edits_are_made_in(user: User) -> None:
    user.profile = PROFILE
    user.types("I have a dog")
    user.learns("ADD | Interests | Has a dog | I have a dog", lambda: user.run("load", "-", stdin="- New\n"))
    assert user.facts == ["New", "Has a dog"]


def test_who_loads_a_profile_above_the_budget_is_told(user: User) -> None:
    _, said = user.run("load", "-", stdin="- Likes tea\n" * 1000)
    assert "12,000 characters" in said
    assert "8,000" in said


# Add


def test_add_writes_at_once_under_its_heading_from_an_argument_or_from_stdin(user: User) -> None:
    user.profile = PROFILE
    user.llm("memory", "add", "Plays chess", "--section", "preferences", auto=None)
    user.llm("memory", "add", "--yes", input="- Has two cats\n\n  Works in York  \n", auto=None)
    user.run("add", "-", "--section", "## Boats", stdin="* Owns a dinghy")
    assert user.profile == (
        f"{TITLE}\n\n## Personal Information\n- Lives in Leeds\n- Has two cats\n- Works in York\n\n"
        "## Preferences\n- Likes short answers\n- Plays chess\n\n## Boats\n- Owns a dinghy\n"
    )
    assert "nothing changed" in user.run("add", "lives in leeds.")[1]
    assert "nothing to add" in user.run("add", stdin=" \n", code=1)[1]


@pytest.mark.parametrize(
    ("there", "wanted"),
    [("Wealth", "Health"), ("Child 1", "Child 2"), ("Interest", "Interests"), ("Old", "Preference")],
)
def test_a_section_of_a_similar_name_is_another_one(user: User, there: str, wanted: str) -> None:
    user.run("load", "-", stdin=f"## {there}\n- Old\n\n## {there} too\n")
    user.run("add", "New", "--section", wanted)
    assert user.profile == f"## {there}\n- Old\n\n## {there} too\n\n## {wanted}\n- New\n"


def test_a_text_may_begin_with_a_dash(user: User) -> None:
    user.run("add", "- Likes tea")
    user.run("add", "-1 is their favourite number")
    assert user.facts == ["Likes tea", "-1 is their favourite number"]
    user.run("forget", "- Likes tea", "--yes")
    assert user.facts == ["-1 is their favourite number"]
    assert "No such option" in user.run("add", "--sektion", code=2)[1]


@pytest.mark.parametrize("section", ["A\nB", "#", " ", "x\u200by"])
def test_a_section_that_is_none_is_refused(user: User, section: str) -> None:
    assert "one line of text" in user.run("add", "Likes tea", "--section", section, code=1)[1]
    assert user.profile == ""


def test_edit_says_that_it_waits_for_a_model_and_opens_the_editor_then(user: User) -> None:
    user.places.create()
    opened, editor = user.folder / "opened", user.folder / "editor"
    editor.write_text(f"#!/bin/sh\ntouch '{opened}'\n")
    editor.chmod(0o700)
    with locked(user.places.lock("learn")):
        process = user.start("memory", "edit", auto=None, EDITOR=f"'{editor}'")
        assert process.stderr.readline() == "Waiting for a model's answer…\n".encode()
        assert not opened.exists()
    process.communicate(timeout=PATIENCE)
    assert (process.returncode, opened.exists()) == (0, True)
