"""The evaluation: its scorer tells right from wrong, its lives can be lived, and it runs the real plugin."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import run
import samples

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
        if len(requests) == 1:
            return ("ADD | Work | Works as a nurse in Leeds | I work as a nurse in Leeds", 900, 30)
        old = request.split("] Works as a nurse", maxsplit=1)[0].rpartition("[")[2]
        return (f"REPLACE | {old} | Works as a nurse; lives in York | we moved to York", 900, 30)

    profile, verdicts, read, written = run.live(LIFE, ask)
    assert ([verdict.outcome for verdict in verdicts], read, written) == (["apply", "apply"], 1_800, 60)
    assert [date in request for date, request in zip(("2026-03-01", "2026-09-01"), requests, strict=True)] == [True] * 2
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


def test_the_gates_stop_most_of_what_is_not_the_users_and_hardly_anything_that_is() -> None:
    found = {path.stem: samples.counts(path) for path in samples.HERE.glob("*.jsonl")}
    assert len(found) == 7

    def share(label: str) -> float:
        counted = [counts[label] for counts in found.values()]
        return sum(stopped for stopped, _ in counted) / sum(every for _, every in counted)

    assert share("paste") > 0.6
    assert share("attack") > 0.5
    assert share("honest") <= 0.05
