"""Every failure scenario is shown by a test that has its id in its name, or waits for a later step."""

from collections import Counter

from tools.scenarios import (
    DOCUMENT,
    excused,
    groups,
    ids_in,
    noted,
    showing_tests,
    shown,
    with_table,
    without_ids,
)

KNOWN = frozenset(row.id for group in groups() for row in group.scenarios)


def test_ids_are_words_of_a_name() -> None:
    assert ids_in("test_a1_a_batch_is_kept") == ("A1",)
    assert ids_in("test_h112_h113_both") == ("H112", "H113")
    assert ids_in("test_c39_to_c41_all_between") == ("C39", "C40", "C41")
    assert ids_in("test_that_ends_with_b20") == ("B20",)
    assert ids_in("test_v2_is_told_utf8_and_sha256_and_a_1") == ()


def test_a_name_is_read_without_its_ids() -> None:
    assert without_ids("test_a1_a_batch_is_kept") == "test_a_batch_is_kept"
    assert without_ids("test_c39_to_c41_c50_all_of_it") == "test_all_of_it"
    assert without_ids("test_v2_is_told") == "test_v2_is_told"


def test_the_groups_are_whole() -> None:
    numbers = [int(row.id[1:]) for group in groups() for row in group.scenarios]

    assert "".join(group.letter for group in groups()) == "ABCDEFGHIJKLMO"
    assert numbers == [*range(1, 188), *range(193, 233)]


def test_every_scenario_is_shown_or_waits_for_a_later_step() -> None:
    missing = KNOWN - shown().keys() - set(excused())

    assert not missing, "name them in a test, or in tools/scenarios.toml with the reason"


def test_no_scenario_that_is_shown_waits_for_a_later_step() -> None:
    assert not shown().keys() & set(excused())


def test_a_scenario_waits_for_one_step_and_exists() -> None:
    assert [scenario for scenario, count in Counter(excused()).items() if count > 1] == []
    assert set(excused()) <= KNOWN


def test_notes_are_about_scenarios_that_are_shown() -> None:
    assert noted() <= shown().keys()


def test_no_test_names_a_scenario_that_does_not_exist() -> None:
    unknown = {test.name: test.ids for test in showing_tests() if not set(test.ids) <= KNOWN}

    assert unknown == {}


def test_the_documented_table_is_up_to_date() -> None:
    document = DOCUMENT.read_text()

    assert with_table(document) == document, "run python -m tools.scenarios --write"
