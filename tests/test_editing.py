"""The profile is the user's to write: `edit`, `load` and `add`, also while others write."""

from __future__ import annotations

import stat

import pytest
from conftest import PROFILE, User, eventually, posix_only

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
    assert "Added: “In Hull”\nTo undo this: llm memory undo " in said
    assert user.versions() == [(1, "load"), (2, "edit")]
    assert "Nothing changed" in edit(user, "")
    assert len(user.versions()) == 2


def test_an_edit_of_no_fact_says_what_it_changed(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    said = edit(user, """sed -i.bak 's/## Preferences/## Wishes/' "$1" """)
    assert "Changed: headings, order" in said
    assert "To undo this: llm memory undo " in said
    assert "a doubled line" in edit(user, """echo '- Lives in Leeds' >> "$1" """)


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


def test_what_the_editor_itself_has_saved_meanwhile_does_not_come_back(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    saves = """echo '- My PIN is 4711' >> "$1"; llm memory history; llm memory add 'Has a dog'; """
    said = edit(user, f"""cp "$1" own; {saves} echo '- In Hull' >> own; cat own > "$1" """)
    assert user.facts == ["Lives in Leeds", "Has a dog", "Likes short answers", "In Hull"]
    assert user.authors == ["load", "outside", "add", "edit"]
    assert "Changed: “My PIN is 4711” → “In Hull”" in said


def test_all_that_changed_while_the_editor_was_open_is_told(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    assert "Added: “Has a dog”\nTo undo this: llm memory undo 2\n" in edit(user, "llm memory add 'Has a dog'")
    said = edit(user, """echo '- In Hull' >> "$1"; llm memory add 'Has a cat'""")
    assert "Added: “In Hull”\nTo undo this: llm memory undo 3\n" in said
    assert "Added: “Has a cat”\nTo undo this: llm memory undo 4\n" in said
    assert user.facts == ["Lives in Leeds", "Has a dog", "Has a cat", "Likes short answers", "In Hull"]


def test_the_editor_opens_while_a_model_is_asked_and_what_that_learns_stays_beside_the_edit(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    user.types("I have a dog")
    steps = user.folder / "step"
    waits = f"while [ ! -e '{steps}-learned' ]; do sleep 0.02; done"
    script = f"""cp "$1" own; touch '{steps}-open'; {waits}; echo '- In Hull' >> own; cat own > "$1" """
    terminal = user.terminal("llm", "memory", "edit", auto=None, EDITOR=editor(user, script))
    with lock(user.places, "learn"):
        eventually((user.folder / "step-open").exists, "the editor")
        assert user.learns("ADD | Personal Information | Has a dog | I have a dog")
    (user.folder / "step-learned").touch()
    assert terminal.wait() == 0
    assert user.facts == ["Lives in Leeds", "Has a dog", "Likes short answers", "In Hull"]


def test_a_line_that_is_reworded_is_told_as_changed(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    said = edit(user, """sed -i 's/Leeds/York/' "$1" """)
    assert said.startswith("Changed: “Lives in Leeds” → “Lives in York”\nTo undo this: ")
    assert "      Lives in Leeds → Lives in York\n" in user.run("history")[0]
    assert "Added: “Lives in Leeds”\nRemoved: “Lives in York”\n" in user.run("undo")[1]
    user.profile = user.profile.replace("Leeds", "Hull")
    assert "Lives in Leeds → Lives in Hull\n" in user.run("diff")[0]
    user.profile = user.profile.replace("Hull", "Bath").replace("short", "long")
    assert "→" not in user.run("diff")[0], "of two, nobody knows which became which"


def test_what_an_editor_saved_before_it_failed_is_told(user: User) -> None:
    said = user.run("edit", code=1, EDITOR=editor(user, """echo '- Likes tea' >> "$1"; exit 1"""))[1]
    assert said.startswith("Added: “Likes tea”\nTo undo this: llm memory undo 1\nError: ")
    assert user.facts == ["Likes tea"]


def test_an_undo_of_two_unrelated_edits_pairs_nothing(user: User) -> None:
    user.has_learned("Has a motorbike", "I have a motorbike")
    user.types("I have a wife, and sold the motorbike")
    bike = user.id_of("Has a motorbike")
    user.learns(f"ADD | Personal Information | Has a wife | I have a wife\nREMOVE | {bike} | sold the motorbike")
    assert "Added: “Has a motorbike”\nRemoved: “Has a wife”\n" in user.run("undo")[1]
    assert "→" not in user.run("history")[0]


def test_an_editor_that_deletes_the_profile_empties_it_and_that_can_be_undone(user: User) -> None:
    user.run("load", "-", stdin=PROFILE)
    assert "To undo this: llm memory undo " in edit(user, 'rm "$1"')
    assert user.profile == ""
    user.run("undo")
    assert user.profile == PROFILE


def test_a_profile_that_cannot_be_written_is_not_opened_in_the_editor_first(user: User) -> None:
    user.profile = PROFILE
    user.places.profile.chmod(0o444)
    assert "can't be written to" in user.run("edit", code=1, EDITOR=editor(user, "touch open"))[1]
    assert not (user.folder / "open").exists()


# Load


def test_a_load_while_the_model_thinks_is_what_its_edits_are_made_in(user: User) -> None:
    user.profile = PROFILE
    user.types("I have a dog")
    user.learns("ADD | Interests | Has a dog | I have a dog", lambda: user.run("load", "-", "--yes", stdin="- New\n"))
    assert user.facts == ["New", "Has a dog"]


# Add


def test_add_writes_at_once_under_its_heading_from_an_argument_or_from_stdin(user: User) -> None:
    user.profile = PROFILE
    user.run("add", "Plays chess", "--section", "preferences")
    user.llm("memory", "add", input="- Has two cats\n\n  Works in York  \n", auto=None)
    user.run("add", "-", "--section", "## Boats", stdin="* Owns a dinghy")
    assert user.profile == (
        f"{TITLE}\n\n## Personal Information\n- Lives in Leeds\n- Has two cats\n- Works in York\n\n"
        "## Preferences\n- Likes short answers\n- Plays chess\n\n## Boats\n- Owns a dinghy\n"
    )
    assert "nothing to add" in user.run("add", stdin=" \n", code=1)[1]
    user.run("add", "# of kids: two")
    assert "# of kids: two" in user.facts
    user.run("add", "Sails", "--section", "")
    assert user.profile.endswith("\n\n## Notes\n- Sails\n")
    user.profile = "1. Rows\n"
    user.run("add", "-", "--section", "Notes", stdin="Sails\nSails\nSwims\n")
    assert user.profile == "1. Rows\n\n## Notes\n- Sails\n- Swims\n"


ODD = ("2. Bundesliga fan", "- x", "# of kids: two", "1) is first", "[ ] open", "+ is a sign", "> 40", "• dot")


@pytest.mark.parametrize("fact", ODD)
def test_a_fact_that_looks_like_a_list_can_be_added_once_and_found_and_forgotten_alone(user: User, fact: str) -> None:
    user.profile = "- Bundesliga fan\n- Has two kids\n- Is first\n"
    user.profile += f"- {fact}\n"
    (said,) = user.facts[3:]
    user.run("add", "-", stdin=f"- {fact}\n")
    assert len(user.facts) == 4
    assert f"{said}\n" in user.run("why", "--", said)[0]
    assert f"{said}\n" in user.run("search", "--", said)[0]
    user.run("forget", "--yes", f"[{user.id_of(said)}]")
    assert user.facts == ["Bundesliga fan", "Has two kids", "Is first"]
    user.run("add", "--", fact)
    assert len(user.facts) == 4
    user.run("remove", "--", fact)
    assert user.facts == ["Bundesliga fan", "Has two kids", "Is first"]
    user.run("undo")
    user.run("forget", "--yes", "--", fact)
    assert len(user.facts) == 3


def test_a_mark_of_a_chat_template_is_added_only_by_force(user: User) -> None:
    assert (
        "line 1 has invisible characters, a user_profile tag or a chat mark"
        in user.run("add", "Hates [/INST] and <|im_start|>", code=1)[1]
    )
    user.run("add", "Hates [brackets]")
    assert user.facts == ["Hates [brackets]"]


def test_what_is_no_text_is_added_by_no_force(user: User) -> None:
    user.run("add", "Café")
    before = user.profile
    for command in (("add",), ("add", "x", "--section")):
        assert "invisible characters" in user.run(*command, "Caf\udce9", code=1)[1]
        assert "not UTF-8" in user.run(*command, "Caf\udce9", "--force", code=1)[1]
    assert user.profile == before
    assert user.versions() == [(1, "add")]


def test_what_is_there_already_is_told_and_the_rest_is_added(user: User) -> None:
    user.profile = PROFILE
    said = user.run("add", "-", stdin="Lives in Leeds\nPlays chess\n")[1]
    assert said.startswith("Added: “Plays chess”\nTo undo this: ")
    before = user.versions()
    assert user.run("add", "-", stdin="plays chess.\nlives in Leeds\n")[1] == "The profile says that already.\n"
    assert user.versions() == before


# Remove


LINES = "# Me\n\n## Interests\n- Likes tea\n- [ ] Learns Polish\n\n## Boats\n- Likes tea on a boat\nNo list\n"


@pytest.mark.parametrize("words", [["Polish"], ["- [ ] Learns Polish"], ["learns", "polish"], ["id"], ["[id]"]])
def test_remove_takes_one_line_out_by_its_words_or_its_id_and_undo_brings_it_back(user: User, words: list[str]) -> None:
    user.profile = LINES
    id = user.id_of("Learns Polish")
    given = [word.replace("id", id) if len(word) < 5 else word for word in words]
    out, said = user.run("remove", *given)
    assert user.profile == LINES.replace("- [ ] Learns Polish\n", "")
    assert (out, said) == ("", "Removed: “Learns Polish”\nTo undo this: llm memory undo 2\n")
    assert user.authors == ["unknown", "remove"]
    said = user.run("undo")[1]
    assert said.startswith("Undid change 2 (remove, a moment ago)\nAdded: “Learns Polish”\nTo redo: llm memory undo 3")
    assert user.profile == LINES


def test_remove_takes_several_ids(user: User) -> None:
    user.profile = LINES
    user.run("remove", user.id_of("Learns Polish"), f"[{user.id_of('Likes tea')}]", "--yes")
    assert user.facts == ["Likes tea on a boat"]


def test_remove_asks_only_where_several_lines_match_and_names_them(user: User) -> None:
    user.profile = LINES
    said = user.run("remove", "tea", code=1)[1]
    assert said.startswith("2 lines match:\n  Likes tea\n  Likes tea on a boat\nRemove them all? [y/N]: ")
    assert "add --yes" in said
    assert user.run("remove", "tea", stdin="n\n", code=1)[1].endswith("[y/N]: n\nNothing changed.\n")
    assert user.profile == LINES
    user.run("remove", "tea", stdin="y\n")
    assert user.facts == ["Learns Polish"]
    user.run("undo")
    user.run("remove", "--yes", "tea")
    assert user.facts == ["Learns Polish"]
    user.run("remove", "No", "list")
    assert "No list" not in user.profile


def test_remove_finds_nothing_in_what_is_not_there(user: User) -> None:
    assert "No line has 'tea'" in user.run("remove", "tea", code=1)[1]
    assert not user.places.directory.exists()
    user.profile = LINES
    assert "--part" in user.run("remove", "polis", code=1)[1]
    user.run("remove", "--part", "polis")
    assert "No line has 'Interests'" in user.run("remove", "Interests", code=1)[1]
    said = user.run("remove", f"[{user.id_of('Likes tea')}]", "xyz", code=1)[1]
    assert "see: llm memory show --ids" in said
    assert "--part" in user.run("remove", f"{user.id_of('Likes tea')}.", code=1)[1]
    assert "llm memory show" in user.run("remove", code=1)[1]


@pytest.mark.parametrize("command", ["undo", "remove chess", "forget chess --yes"])
def test_a_heading_of_ours_goes_with_its_last_line(user: User, command: str) -> None:
    user.profile = PROFILE
    user.run("add", "Plays chess", "--section", "Interests")
    user.run(*command.split())
    assert user.profile.rstrip("\n") == PROFILE.rstrip("\n")
