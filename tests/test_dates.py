"""Facts with an end: the last day is read from their words."""

from __future__ import annotations

import pytest

from llm_user_memory import last_day


@pytest.mark.parametrize(
    ("fact", "day"),
    [
        ("On parental leave until December 2026", "2026-12-31"),
        ("Lives in Rome until the end of March 2027", "2027-03-31"),
        ("In Rome till 12 May 2026", "2026-05-12"),
        ("In Rome until May 12th, 2026, then in Leeds", "2026-05-12"),
        ("Has a visa through 2027", "2027-12-31"),
        ("Parking permit expires on 2026-02-28", "2026-02-28"),
        ("Contract until 2026-02", "2026-02-28"),
        ("In Rome until 12/31/2026", "2026-12-31"),
        ("Tests A until May 2026, and B until June 2026", "2026-06-30"),
        ("Wohnt bis 31.12.2026 in Leipzig", "2026-12-31"),
        ("In Elternzeit bis Ende März 2027", "2027-03-31"),
        ("In Kur bis zum 3. Mai 2026", "2026-05-03"),
        ("En congé jusqu'en mars 2027", "2027-03-31"),
        ("À Lyon jusqu’au 1er août 2026", "2026-08-01"),
        ("De baja hasta el 5 de enero de 2027", "2027-01-05"),
        ("A Roma fino a dicembre 2026", "2026-12-31"),
        ("Em Lisboa até fevereiro de 2028", "2028-02-29"),
        ("Werkt thuis tot en met 1 mei 2026", "2026-05-01"),
        ("2026年12月まで東京に住む", "2026-12-31"),
        ("在北京工作到2026年3月5日为止", "2026-03-05"),
    ],
)
def test_the_last_day_of_a_fact_is_read_from_its_words(fact: str, day: str) -> None:
    assert str(last_day(fact)) == day


@pytest.mark.parametrize(
    "fact",
    [
        "Lives in Leeds since May 2020",
        "Lived in Rome until 2019",
        "Wohnte bis 2019 in Rom",
        "Works until 5 pm",
        "On leave until further notice",
        "Never eats until noon",
        "In Rome until 31 February 2026",
        "Born on 1999-12-31",
        "Runs 10.10.2020",
        "On call until 1800, by phone until 2000",
        "Is reading through 1984",
    ],
)
def test_other_facts_have_no_last_day(fact: str) -> None:
    assert last_day(fact) is None
