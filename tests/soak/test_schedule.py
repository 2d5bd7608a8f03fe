"""Who is killed when."""

from oncelog.testing.soak.schedule import BROKER_SHARE, kills


def test_one_seed_gives_one_schedule() -> None:
    assert list(kills(7, duration_s=600, every_s=20)) == list(kills(7, duration_s=600, every_s=20))
    assert list(kills(7, duration_s=600, every_s=20)) != list(kills(8, duration_s=600, every_s=20))


def test_kills_come_about_as_often_as_was_asked_for_and_within_the_time() -> None:
    found = list(kills(1, duration_s=1000, every_s=10))

    assert 70 <= len(found) <= 130
    assert all(0 < each.at_s < 1000 for each in found)
    assert [each.at_s for each in found] == sorted(each.at_s for each in found)


def test_the_broker_is_left_alone_in_the_second_part_and_clients_are_not() -> None:
    found = list(kills(1, duration_s=1000, every_s=10))
    late = [each for each in found if each.at_s >= BROKER_SHARE * 1000]

    assert {each.target for each in found} == {"broker", "client"}
    assert {each.target for each in late} == {"client"}
