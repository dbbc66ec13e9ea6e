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


@pytest.mark.parametrize(
    ("text", "expected"), [("all", (True, 0)), (" ALL ", (True, 0)), ("", (False, 0)), ("some", (True, 1))]
)
def test_all_edits_wait_for_review_if_the_user_wants_that(text: str, expected: tuple[bool, int]) -> None:
    settings = Settings.from_env({"LLM_MEMORY_REVIEW": text})
    assert (settings.review_all, len(settings.complaints)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500", (500, 0)), (" 20000 ", (20_000, 0)), ("", (8_000, 0))]
    + [(text, (8_000, 1)) for text in ("0", "99", "-500", "8k", "1e4", "10000000")],
)
def test_the_budget_is_a_number_of_characters(text: str, expected: tuple[int, int]) -> None:
    settings = Settings.from_env({"LLM_MEMORY_BUDGET": text})
    assert (settings.budget, len(settings.complaints)) == expected


def test_the_budget_is_reported_and_respected(user: User) -> None:
    user.profile = "# Me\n" + "".join(f"- Fact number {n} of this person\n" for n in range(20))
    user.has_learned("Plays chess", "I play chess")
    assert user.status(LLM_MEMORY_BUDGET="400")["profile"]["budget"] == 400
    assert "of 400 characters: too long" in user.llm("memory", "status", LLM_MEMORY_BUDGET="400").stdout
    added = user.llm("memory", "add", "Likes opera", LLM_MEMORY_BUDGET="400")
    assert "above 400, new facts wait for review" in added.stderr
    user.types("I like jazz")
    asked: list[str] = []

    def declines(model_id: str, request: str) -> str:
        asked.append(request)
        return "NO_UPDATE"

    user.learns(declines, budget=400)
    assert ["profile shorter" in request for request in asked] == [True, False]


def test_a_user_who_reviews_all_edits_gets_them_all_to_review(user: User) -> None:
    user.types("I like jazz")
    user.learns("ADD | Interests | Likes jazz | I like jazz", review_all=True)
    assert user.facts == []
    assert [(held["fact"], held["reason"]) for held in user.to_review()] == [("Likes jazz", "you review all edits")]


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf", "5s", "86401"])
def test_an_interval_that_is_none_becomes_five_seconds_and_a_complaint(text: str) -> None:
    settings = Settings.from_env({"LLM_MEMORY_UPDATE_INTERVAL": text})
    assert settings.interval == 5.0
    assert len(settings.complaints) == 1


def test_status_reports_settings_it_cannot_understand(user: User) -> None:
    names = [*NAMES, "UPDATE_INTERVAL", "REVIEW", "BUDGET"]
    status = user.status(**{f"LLM_MEMORY_{name}": "perhaps" for name in names})
    assert [any(f"LLM_MEMORY_{name}='perhaps'" in p for p in status["problems"]) for name in names] == [True] * 8
    assert status["state"].startswith("disabled")
    assert status["shell"]["active"] is False


def test_status_reports_a_model_that_llm_does_not_have(user: User) -> None:
    assert "LLM_MEMORY_MODEL=nosuch is not a model" in str(user.status(LLM_MEMORY_MODEL="nosuch")["problems"])
    assert user.status(LLM_MEMORY_MODEL="scripted-2")["problems"] == []
