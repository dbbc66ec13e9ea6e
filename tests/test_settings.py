"""The settings: environment variables, understood; nonsense is told, and taken as the safe value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from llm_user_memory import Settings

if TYPE_CHECKING:
    from conftest import User

NAMES = ("AUTO", "DISABLED", "UPDATES", "NOTICES", "DEBUG")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "true", "YES", " On "], ("system", True, True, True, True, 0)),
        (["0", "false", "NO", " Off "], ("", False, False, False, False, 0)),
        (["perhaps", "2"], ("", True, False, False, False, 5)),
        (["", " "], ("", False, True, True, False, 0)),
    ],
    ids=["yes", "no", "nonsense", "empty"],
)
def test_a_switch_understands_every_way_to_write_yes_and_no(texts: list[str], expected: tuple[object, ...]) -> None:
    for text in texts:
        it = Settings({f"LLM_MEMORY_{name}": text for name in NAMES})
        assert (it.auto, it.disabled, it.updates, it.notices, it.debug, len(it.complaints)) == expected


@pytest.mark.parametrize(
    ("name", "field", "understood", "safe", "nonsense"),
    [
        ("AUTO", "auto", {"1": "system", " Prompt": "prompt", "0": "", "": ""}, "", ["perhaps"]),
        ("UPDATE_INTERVAL", "interval", {"0.5": 0.5, " 2 ": 2, "86400": 86400, "": 5}, 5, ["0", "5s", "86401"]),
        ("REVIEW", "review_all", {"all": True, " ALL ": True, "": False}, True, ["some"]),
        ("BUDGET", "budget", {"500": 500, " 20000 ": 20_000, "": 8_000}, 8_000, ["0", "99", "-500", "8k", "100000"]),
    ],
)
def test_nonsense_becomes_the_safe_value_and_a_complaint(
    name: str, field: str, understood: dict[str, Any], safe: object, nonsense: list[str]
) -> None:
    expected = {text: (value, 0) for text, value in understood.items()} | dict.fromkeys(nonsense, (safe, 1))
    found = {text: Settings({f"LLM_MEMORY_{name}": text}) for text in expected}
    assert {text: (getattr(each, field), len(each.complaints)) for text, each in found.items()} == expected


def test_a_complaint_quotes_what_was_written() -> None:
    assert "'Banana' is not valid" in Settings({"LLM_MEMORY_DISABLED": "Banana"}).complaints[0]


def test_status_reports_settings_it_cannot_understand(user: User) -> None:
    assert [Settings({"LLM_MEMORY_AUTO": text}).auto_off for text in ("0", "", "1")] == [True, False, False]
    names = [*NAMES, "UPDATE_INTERVAL", "REVIEW", "BUDGET"]
    status = user.status(**{f"LLM_MEMORY_{name}": "perhaps" for name in names})
    assert [any(f"LLM_MEMORY_{name}='perhaps'" in p for p in status["problems"]) for name in names] == [True] * 8
    assert status["state"].startswith("disabled")
    assert Settings({"LLM_MEMORY_UPDATE_INTERVAL": "NaN"}).complaints, "it is in every range"
    assert status["shell"]["active"] is False


def test_status_names_a_setting_that_there_is_not_and_knows_its_own(user: User) -> None:
    assert "There is no setting LLM_MEMORY_UPDATE\n" in user.run("status", LLM_MEMORY_UPDATE="false")[0]
    own: dict[str, Any] = {
        "LLM_MEMORY_NOTICES": "0",
        "LLM_MEMORY_PROFILE": "default",
        "LLM_MEMORY_DEBUG": "1",
        "LLM_MEMORY_LINE": "x",
    }
    assert "There is no setting" not in user.run("status", **own)[0]


def test_a_prompt_at_a_terminal_tells_of_a_setting_that_is_mistyped(user: User) -> None:
    terminal = user.terminal("llm", "Hello", LLM_MEMORY_REVEIW="all", LLM_MEMORY_UPDATES="flase")
    assert terminal.wait() == 0
    assert "memory: There is no setting LLM_MEMORY_REVEIW" in terminal.shown
    assert "memory: LLM_MEMORY_UPDATES='flase' is not valid; using false" in terminal.shown


def test_status_reports_a_model_that_llm_does_not_have(user: User) -> None:
    assert "llm can't load nosuch" in user.run("status", LLM_MEMORY_MODEL="nosuch")[0]
    assert "llm can't load nosuch" in user.run("status", LLM_MODEL="nosuch")[0]
    assert "can't load" not in user.run("status", LLM_MEMORY_MODEL="scripted-2", LLM_MODEL="nosuch")[0]
