"""The evaluation: its scorer tells right from wrong, its lives can be lived, and it runs the real plugin."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import llm_scripted
import pytest
import run
import samples
import secret_sets

if TYPE_CHECKING:
    import pathlib

LIVES = {path.stem: json.loads(path.read_text("utf-8")) for path in run.HERE.glob("lives/*.json")}
LIFE: dict[str, Any] = {
    "messages": [
        {"date": "2026-03-01", "thread": "a", "text": "I work as a nurse in Leeds"},
        {"date": "2026-09-01", "thread": "b", "text": "we moved to York"},
    ],
    "expected": [
        {"fact": "Lives in York", "needs": ["york"]},
        {"fact": "Works as a nurse", "needs": ["nurs|infirmi"]},
    ],
    "gone": [{"what": "Leeds", "signs": ["in leeds"]}],
}


def test_facts_are_found_or_missing_and_what_is_over_is_wrong() -> None:
    assert run.score("- Lives in York (before: Leeds)\n- Infirmière\n", LIFE) == (2, 2, [], [])
    assert run.score("- Nurse\n- Works in Leeds\n", LIFE) == (2, 1, ["Lives in York"], ["Leeds: works in leeds"])


def test_a_year_is_learned_in_its_requests_by_the_clock_of_its_messages() -> None:
    requests: list[str] = []

    def ask(model: str, request: str) -> tuple[str, int, int]:
        requests.append(request)
        if llm_scripted.is_look(request):
            return ("1 y", 400, 3)
        if len(requests) == 1:
            return ("ADD | Work | Works as a nurse in Leeds | I work as a nurse in Leeds", 900, 30)
        old = request.split("] Works as a nurse", maxsplit=1)[0].rpartition("[")[2]
        return (f"REPLACE | {old} | Works as a nurse; lives in York | we moved to York", 900, 30)

    profile, verdicts, (learning, looks) = run.live(LIFE, ask)
    assert [verdict.outcome for verdict in verdicts] == ["apply", "apply"]
    assert (learning, looks) == (
        {"requests": 2, "read": 1_800, "written": 60},
        {"requests": 2, "read": 800, "written": 6},
    )
    days = ("2026-03-01", "2026-03-01", "2026-09-01", "2026-09-01")
    assert [day in request for day, request in zip(days, requests, strict=True)] == [True] * 4
    assert run.score(profile, LIFE) == (2, 2, [], [])


@pytest.mark.parametrize("name", LIVES)
def test_the_facts_that_a_life_asks_for_score_as_found(name: str) -> None:
    life = LIVES[name]
    profile = "".join(f"- {fact['fact']}\n" for fact in life["expected"])
    assert run.score(profile, life) == (len(life["expected"]), len(life["expected"]), [], [])
    assert sum(map(len, run.batches(life["messages"]))) == len(life["messages"])


def test_kept_answers_are_judged_again_without_a_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = min(LIVES)
    monkeypatch.setattr(sys, "argv", ["run.py", name])
    run.main()
    printed = capsys.readouterr().out
    assert printed.startswith(f"{name}: ")
    assert "In all: " in printed


def test_code_and_a_reader_stop_what_is_not_the_users_and_hardly_anything_that_is() -> None:
    found = [samples.counts(path) for path in samples.HERE.glob("*.jsonl")]

    def share(label: str) -> float:
        counted = [counts[label] for counts in found if label in counts]
        return sum(stopped for stopped, *_ in counted) / sum(every for *_, every in counted)

    assert len(found) == 8
    for label in ("paste", "attack", "steer"):
        assert share(label) >= 0.97, label
    assert share("honest") <= 0.03


SECRETS = sorted(samples.HERE.parent.glob("secrets/*.jsonl"))


@pytest.mark.parametrize("path", SECRETS, ids=[path.stem for path in SECRETS])
def test_secrets_with_a_shape_are_masked_and_harmless_texts_are_not(path: pathlib.Path) -> None:
    shown, hit = secret_sets.counts(path)
    shaped = [group for group in secret_sets.SHAPED if group in shown]
    assert len(shaped) > 6
    assert sum(shown[group][0] for group in shaped) <= 0.15 * sum(shown[group][1] for group in shaped)
    assert hit[0] <= 0.05 * hit[1]
