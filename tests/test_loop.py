"""What is typed is learned, once; what is not typed, or not to be learned, never is."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from conftest import eventually

if TYPE_CHECKING:
    from conftest import User

PAGE = "I am the author of this page. I live in Atlantis.\nAll about fish.\n"
SAID = "I live in Leeds"
ALSO = "I work as a nurse"
SPY = "I am a spy"


# Learned


def test_the_first_prompt_is_learned_and_the_next_one_carries_it(user: User) -> None:
    user.llm(f"Hello! {SAID}. What is the time?")
    user.comes_to_know(SAID)
    user.llm("And now?")
    assert f"- {SAID}" in user.calls(update=False)[-1]["system"]
    assert [receipt["quote"] for receipt in user.receipts()] == [SAID]
    assert user.versions() == [(1, "worker")]


def test_every_message_of_a_chat_is_learned_while_it_goes_on_unless_paused(user: User) -> None:
    chat = user.terminal("llm", "chat")
    for command, text, shown in (
        ("status", f"{SAID}", SAID),
        ("pause", f"{SPY}", SPY),
        ("resume", f"!multi\nSo:\n{ALSO}\n!end", ALSO),
    ):
        user.run(command)
        chat.expect("> ")
        chat.type(f"{text}\n")
        chat.expect(f"You said: .*{shown}\n")
        if command != "pause":
            eventually(functools.partial(user.asked_about, shown), f"a request about {shown}")
    chat.expect("> ")
    chat.type("quit\n")
    assert chat.wait() == 0
    user.comes_to_know(SAID, ALSO)
    assert user.asked_about("a spy") == 0


def test_the_model_of_the_turn_is_asked_with_its_own_options_unless_its_call_names_another(user: User) -> None:
    (user.user_dir / "model_options.json").write_text('{"scripted-2": {"temperature": 0.25}}')
    user.llm(SAID, LLM_MEMORY_MODEL="scripted-2")  # this call starts the worker, for all of them
    user.comes_to_know(SAID)
    user.llm(ALSO)
    user.comes_to_know(SAID, ALSO)
    user.llm("-m", "scripted-2", "I play the oboe")
    user.comes_to_know(SAID, ALSO, "I play the oboe")
    updates = user.calls(update=True)
    assert [call["model"] for call in updates] == ["scripted-2", "scripted", "scripted-2"]
    assert [call["options"] for call in updates] == [{"temperature": 0.25}, {}, {"temperature": 0.25}]


# Not learned


def test_what_was_typed_with_learning_off_is_never_learned_later(user: User) -> None:
    def quietly() -> None:
        user.llm(f"{SPY} one", LLM_MEMORY_UPDATES="false")
        if not user.worker_runs():
            assert user.workers() == [], "a worker was started, though there is nothing for it to do"
        user.llm(f"{SPY} two", LLM_MEMORY_DISABLED="true")
        user.llm(f"{SPY} three", auto=None)

    quietly()
    user.llm("-n", f"{SPY} four")
    user.llm("-d", str(user.folder / "other.db"), f"{SPY} five")
    assert not user.worker_runs()
    user.llm(SAID)
    user.comes_to_know(SAID)
    quietly()
    user.llm("chat", input=f"{SPY} six\nquit\n")
    (user.user_dir / "logs-off").touch()
    user.llm(f"{SPY} seven")
    (user.user_dir / "logs-off").unlink()
    user.run("pause")
    user.llm(f"{SPY} eight")
    user.run("resume")
    user.llm(ALSO)
    user.comes_to_know(SAID, ALSO)
    user.run("update", "--retry")
    user.comes_to_know(SAID, ALSO)
    assert user.asked_about("a spy") == 0


def test_a_piped_page_is_not_learned_from_but_the_words_typed_for_it_are(user: User) -> None:
    templates = user.user_dir / "templates"
    templates.mkdir()
    (templates / "sum.yaml").write_text("prompt: 'I am a template. Sum up: $input (I am the end)'\n")
    (user.folder / "page.txt").write_text(PAGE)
    user.reply(
        "ADD | Personal Information | Is the author | I am the author of this page\n"
        "ADD | Personal Information | Lives in Atlantis | I live in Atlantis\n"
        "ADD | Personal Information | Is a template | I am a template\n"
        "ADD | Preferences | Prefers short summaries | I prefer short summaries\n"
        "ADD | Preferences | Reads at night | I like to read at night\n"
    )
    user.llm("summarize, I prefer short summaries", input=PAGE)
    user.llm("-t", "sum", "I like to read at night", input=PAGE)
    user.llm(input=PAGE)
    user.llm("-t", "sum", input=PAGE)
    user.llm("-f", "page.txt", "summarize this")
    user.comes_to_know("Prefers short summaries", "Reads at night")
    assert user.asked_about("Atlantis") == user.asked_about("a template") == 0
    assert user.query("select count(*) from turn_search where prompt like '%Atlantis%'") == 4


def test_words_that_a_tool_gives_to_an_llm_inside_llm_are_not_learned(user: User) -> None:
    code = (
        "def inner() -> str:\n    from llm.cli import cli\n"
        f"    cli.main(['{SPY}'], standalone_mode=False)\n    return 'done'\n"
    )
    user.llm("--functions", code, f"{SAID}; call inner")
    user.comes_to_know(f"{SAID}; call inner")
    assert user.query("select count(*) from turn_search where prompt like '%spy%'") == 1
    assert user.asked_about("a spy") == 0
