"""Counters, and the text that Prometheus reads."""

from oncelog.core.groups.commands import GroupRebalanced, MemberExpired, OffsetsExpired
from oncelog.core.txn.commands import (
    IdsExpired,
    TransactionFenced,
    TransactionTimedOut,
)
from oncelog.observe.metrics import Family, Histogram, HistogramFamily, Metrics, as_text


def test_a_family_has_its_help_its_type_and_a_line_for_each_sample() -> None:
    family = Family(
        name="oncelog_requests_total",
        kind="counter",
        help="Requests.",
        samples=(((("api", "Produce"),), 3), ((("api", "Fetch"),), 0)),
    )

    assert as_text([family]) == (
        "# HELP oncelog_requests_total Requests.\n"
        "# TYPE oncelog_requests_total counter\n"
        'oncelog_requests_total{api="Produce"} 3\n'
        'oncelog_requests_total{api="Fetch"} 0\n'
    )


def test_a_label_cannot_end_its_quotes_or_its_line() -> None:
    family = Family(name="g", kind="gauge", help="h", samples=(((("l", 'a"b\\c\nd'),), 1.5),))

    assert as_text([family]).splitlines()[-1] == r'g{l="a\"b\\c\nd"} 1.5'


def test_buckets_count_everything_up_to_their_bound() -> None:
    histogram = Histogram((0.5, 1.0))
    for value in (0.25, 0.5, 0.75, 8.0):
        histogram.observe(value)

    text = as_text([HistogramFamily(name="h_seconds", help="h", histogram=histogram)])

    assert text.splitlines()[2:] == [
        'h_seconds_bucket{le="0.5"} 2',
        'h_seconds_bucket{le="1"} 3',
        'h_seconds_bucket{le="+Inf"} 4',
        "h_seconds_sum 9.5",
        "h_seconds_count 4",
    ]


def test_notes_are_counted() -> None:
    metrics = Metrics()

    metrics.count(TransactionTimedOut(transactional_id="x", after_ms=1))
    metrics.count(TransactionFenced(transactional_id="x"))
    metrics.count(IdsExpired(count=3))
    metrics.count(GroupRebalanced(group_id="g", generation_id=1, member_count=2))
    metrics.count(MemberExpired(group_id="g", member_id="m"))
    metrics.count(OffsetsExpired(offset_count=5, group_count=1))
    metrics.count(object())

    assert metrics.transactions_timed_out == 1
    assert metrics.transactions_fenced == 1
    assert metrics.transactional_ids_expired == 3
    assert metrics.group_rebalances == 1
    assert metrics.group_members_expired == 1
    assert metrics.group_offsets_expired == 5
