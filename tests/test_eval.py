"""The evaluation: its scorer tells right from wrong, its cases can be passed, and it runs the real plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import llm
import pytest
import run
from cases import CASES
from score import KINDS, Case, Part, case, lines_of, matches, score
from streams import STREAMS

import llm_user_memory as memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import User

MOVED = Part(
    "moved",
    {"2026-03-14": ["I left Leeds for York"]},
    {"Lives in York": "york", "Works as a nurse": "nurs|infirmi"},
    {"stale": "leeds !york|until", "others": "sister & paint; uncle", "forgotten": "cat"},
)
RIGHT = "# User Profile\n\n## About\n- Lives in York (before: Leeds)\n* **Job:** infirmière\n"
ALL = [(one, part) for one in [*CASES, *STREAMS] for part in one.parts]


def test_facts_are_found_or_missing_and_other_new_lines_are_listed() -> None:
    right = score(RIGHT, MOVED)
    assert (right.facts, right.missing, right.wrong, right.unlisted) == (2, [], [], [])
    assert score("- Nurse, has a cat\n- Lives in York\n", MOVED).missing == ["Works as a nurse"]
    more = score(f"{RIGHT}- Likes tea\n- Owns a boat\n", MOVED, ["Likes tea"])
    assert (more.wrong, more.unlisted) == ([], ["Owns a boat"])
    assert score("Nurse in York", MOVED) == score("- Works as a nurse in York\n", MOVED)
    assert score("- Nurse in York\n- Lives in York\n", MOVED).wrong == [("double", "Lives in York")]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Lives in Leeds", "stale"),
        ("Her sister paints", "others"),
        ("An uncle in Wales", "others"),
        ("Used to have a cat", "forgotten"),
        ("lives in york", "double"),
        ("Lives in York (before: Leeds)", "double"),
    ],
)
def test_a_wrong_line_is_found_and_named_by_its_kind(line: str, kind: str) -> None:
    scored = score(f"{RIGHT}- {line}\n", MOVED)
    assert (scored.wrong, scored.missing, scored.unlisted) == ([(kind, line)], [], [])


@pytest.mark.parametrize(
    ("pattern", "line", "found"),
    [
        ("tea", "Works in a team", True),
        ("tea", "Eats steak", False),
        ("2", "Has 2 dogs", True),
        ("2", "Has 25 dogs", False),
        ("uses & nvim|vim", "Uses Vim", True),
        ("krakow", "Mieszka w Krakowie", True),
        ("kraków", "Mieszka w KRAKOWIE", True),
        ("عمان", "يسكن بعمّان", True),
        ("부산", "부산에서 일함", True),
        ("leeds !before|until", "Until 2025 in Leeds", False),
    ],
)
def test_a_pattern_matches_beginnings_of_words_without_case_and_accents(pattern: str, line: str, found: bool) -> None:
    assert matches(pattern, line) == found


@pytest.mark.parametrize(("one", "part"), ALL, ids=[f"{one.id}-{part.name}" for one, part in ALL])
def test_the_lines_that_a_case_asks_for_score_as_right(one: Case, part: Part) -> None:
    assert part.wrong.keys() <= KINDS.keys()
    assert all(matches(pattern, line) for line, pattern in part.facts.items())
    scored = score("\n".join(f"- {line}" for line in part.facts), part)
    assert (scored.missing, scored.wrong, scored.unlisted) == ([], [], [])


@pytest.mark.parametrize("one", [one for one in CASES if one.profile], ids=[one.id for one in CASES if one.profile])
def test_a_line_that_must_go_is_in_the_profile_its_case_starts_with(one: Case) -> None:
    wrong = one.parts[0].wrong
    patterns = [pattern for kind in ("stale", "forgotten") for pattern in wrong.get(kind, "").split("; ") if pattern]
    assert not patterns or any(matches(pattern, line) for pattern in patterns for line in lines_of(run.opening(one)))


class Keeper(llm.Model):
    """Model that keeps one person's profile, by edits or by rewriting it."""

    model_id = "keeper"

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: Any = None
    ) -> Iterator[str]:
        request = str(prompt.prompt)
        if "York" not in request:
            raise llm.ModelError("out of service")
        if "NO_UPDATE" not in request:
            yield "```markdown\n# User Profile\n- Lives in York\n- Lives in Leeds\n- Keeps newts\n```"
            return
        response.set_usage(input=900, output=30)
        old = request.split("] Lives in Leeds", maxsplit=1)[0].rpartition("[")[2]
        yield f"REPLACE | {old} | Lives in York since March 2026 (before: Leeds) | we moved to York\n"
        yield "ADD | Interests | Lives in Paris | I live in Paris"


@pytest.fixture
def moves() -> list[Case]:
    facts = {"Lives in York": "york", "Plays the oboe": "oboe"}
    profile = ["Lives in Leeds", "Interests: Plays the oboe"]
    later = ["+ who knows York well?"]
    return [
        case("moves", "changes", "we moved to York", profile=profile, later=later, facts=facts, stale="leeds !york")
    ]


def test_both_arms_learn_from_the_same_messages_and_are_reported_side_by_side(
    moves: list[Case], capsys: pytest.CaptureFixture[str]
) -> None:
    counts = run.evaluate(moves, ["edits", "rewrite"], Keeper())
    edits, rewrite = counts["changes", "edits"], counts["changes", "rewrite"]
    assert (edits["facts"], edits["missing"], edits["stale"], edits["unlisted"]) == (2, 0, 0, 0)
    assert (edits["read"], edits["written"]) == (1800, 60)
    assert (rewrite["facts"], rewrite["missing"], rewrite["stale"], rewrite["unlisted"]) == (2, 1, 1, 1)
    assert rewrite["read"] > 200
    printed = [line.split() for line in run.table(counts).splitlines()]
    assert [line[:2] for line in printed[1:]] == [[name, arm] for name in ("changes", "all") for arm in run.ARMS]
    assert "Keeps newts" in capsys.readouterr().err


def test_a_message_that_continues_a_conversation_is_logged_in_its_thread_on_its_day(user: User) -> None:
    edits = run.Edits(user.places, "", run.Meter(Keeper()))
    edits.hear("2026-03-14", ["York or Bath?", "who knows York?"])
    edits.hear("2026-03-15", ["+ and in York?"])
    turns = [(turn.thread_id, turn.at[:16]) for turn in memory.Log(user.places.logs).after("")]
    assert [at for _, at in turns] == ["2026-03-14T12:00", "2026-03-14T12:01", "2026-03-15T12:00"]
    assert turns[0][0] != turns[1][0] == turns[2][0]
    assert user.pending() == 0


def test_requests_that_fail_are_counted_and_leave_the_profile_as_it_was() -> None:
    profile = ["Lives in Leeds"]
    here = case("here", "facts", "I stay here", profile=profile, facts={"Lives in Leeds": "leeds"})
    for count in run.evaluate([here], ["edits", "rewrite"], Keeper()).values():
        assert (count["failed"], count["missing"]) == (1, 0)


def test_the_evaluation_runs_with_a_model_of_llm(capsys: pytest.CaptureFixture[str]) -> None:
    run.main(["-m", "scripted", "-n", "3", "--arm", "edits"])
    last = capsys.readouterr().out.splitlines()[-1].split()
    assert last[:3] == ["all", "edits", "3"]
    with pytest.raises(SystemExit):
        run.main(["-m", "scripted", "--only", "nothing"])
