"""The settings: environment variables, understood; nonsense is told, and taken as the safe value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from llm_user_memory import Settings

if TYPE_CHECKING:
    from conftest import User

NAMES = ("AUTO", "DISABLED", "UPDATES", "NOTICES", "DEBUG")


def switches(text: str) -> tuple[object, ...]:
    """What these settings are if each of them is set to this text, and how many of them are complained of."""
    found = Settings.from_env({f"LLM_MEMORY_{name}": text for name in NAMES})
    return found.auto, found.disabled, found.updates, found.notices, found.debug, len(found.complaints)


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
def test_a_switch_is_yes_or_no_in_every_way_to_write_it_and_nonsense_the_safe_value(
    texts: list[str], expected: tuple[object, ...]
) -> None:
    assert [switches(text) for text in texts] == [expected] * len(texts)


def test_what_is_not_set_is_the_default() -> None:
    assert Settings.from_env({}) == Settings()


@pytest.mark.parametrize(
    ("text", "auto", "off"),
    [("system", "system", False), (" Prompt", "prompt", False), ("0", "", True), ("", "", False)],
)
def test_the_profile_goes_where_llm_memory_auto_says(text: str, auto: str, *, off: bool) -> None:
    settings = Settings.from_env({"LLM_MEMORY_AUTO": text})
    assert (settings.auto, settings.auto_off) == (auto, off)


@pytest.mark.parametrize(("text", "interval"), [("0.5", 0.5), ("30", 30.0), (" 2 ", 2.0), ("86400", 86400.0)])
def test_the_interval_is_seconds_fractions_allowed(text: str, interval: float) -> None:
    settings = Settings.from_env({"LLM_MEMORY_UPDATE_INTERVAL": text})
    assert (settings.interval, settings.complaints) == (interval, ())


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf", "5s", "86401"])
def test_an_interval_that_is_none_becomes_five_seconds_and_a_complaint(text: str) -> None:
    settings = Settings.from_env({"LLM_MEMORY_UPDATE_INTERVAL": text})
    assert settings.interval == 5.0
    assert len(settings.complaints) == 1


def test_status_reports_settings_it_cannot_understand(user: User) -> None:
    names = [*NAMES, "UPDATE_INTERVAL"]
    status = user.status(**{f"LLM_MEMORY_{name}": "perhaps" for name in names})
    assert [any(f"LLM_MEMORY_{name}='perhaps'" in p for p in status["problems"]) for name in names] == [True] * 6
    assert status["state"].startswith("disabled")
    assert status["shell"]["active"] is False


def test_status_reports_a_model_that_llm_does_not_have(user: User) -> None:
    assert "LLM_MEMORY_MODEL=nosuch is not a model" in str(user.status(LLM_MEMORY_MODEL="nosuch")["problems"])
    assert user.status(LLM_MEMORY_MODEL="scripted-2")["problems"] == []
