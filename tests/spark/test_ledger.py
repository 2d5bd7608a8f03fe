"""The ledger: what a progress record holds, how it is replayed, and which batch may run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.markers import Marker, encode_marker
from oncelog.core.packing import encode_batch, read_batches
from oncelog.core.records import Record
from oncelog.core.types import TopicPartition
from oncelog.spark.errors import Refused
from oncelog.spark.ledger import (
    NOWHERE,
    RECENT_MAX,
    BatchName,
    Progress,
    Replay,
    UnreadableProgress,
    Verdict,
    advance,
    judge,
)
from oncelog.spark.offsets import Position

PROGRESS = Progress(
    query="q",
    batch=7,
    fingerprint="g",
    recent=("e", "f"),
    position=Position(offsets={TopicPartition("in", 0): 12, TopicPartition("in", 1): 9}),
    rows=5,
    rejected=1,
    total_rows=50,
    committed_ms=1000,
)


def batch(number: int, fingerprint: str = "x", query: str = "q") -> BatchName:
    return BatchName(query=query, number=number, fingerprint=fingerprint)


# --- the record -------------------------------------------------------------------------------


def test_a_progress_record_is_read_as_it_was_written() -> None:
    assert Progress.decode(PROGRESS.encode()) == PROGRESS


@pytest.mark.parametrize(
    "value",
    [b"", b"null", b"[]", b"{}", b"\xff", PROGRESS.encode().replace(b'"batch":7', b'"batch":"x"')],
)
def test_what_is_no_progress_is_an_error_and_never_no_progress(value: bytes) -> None:
    with pytest.raises(UnreadableProgress):
        Progress.decode(value)


def test_a_newer_format_says_what_to_do() -> None:
    newer = PROGRESS.encode().replace(b'"format":1', b'"format":2')
    with pytest.raises(UnreadableProgress, match="use the version of Oncelog that wrote it"):
        Progress.decode(newer)


# --- replay -----------------------------------------------------------------------------------


def data(
    producer_id: int, key: bytes, value: bytes | None, *, is_transactional: bool = True
) -> bytes:
    return encode_batch(
        [Record(0, 0, key, value)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=is_transactional,
    )


def marker(producer_id: int, *, commit: bool) -> bytes:
    ended = Marker(producer_id=producer_id, producer_epoch=0, committed=commit, coordinator_epoch=0)
    return encode_marker(ended, timestamp_ms=0)


def replayed(*batches: bytes) -> dict[bytes, bytes | None]:
    replay = Replay()
    for header, records in read_batches(b"".join(batches)):
        replay.feed(header, records)
    return replay.committed


def test_a_value_counts_from_its_commit_on() -> None:
    assert replayed(data(1, b"k", b"new")) == {}
    assert replayed(data(1, b"k", b"new"), marker(1, commit=True)) == {b"k": b"new"}


def test_an_aborted_value_leaves_the_last_committed_one() -> None:
    first = data(1, b"k", b"old"), marker(1, commit=True)
    assert replayed(*first, data(1, b"k", b"new"), marker(1, commit=False)) == {b"k": b"old"}


def test_another_sinks_open_transaction_hides_nothing() -> None:
    """At read_committed everything behind an open transaction would be hidden."""
    log = (data(2, b"other", b"1"), data(1, b"k", b"new"), marker(1, commit=True))
    assert replayed(*log) == {b"k": b"new"}


def test_a_marker_ends_only_its_own_producers_values() -> None:
    log = (data(1, b"k", b"new"), data(2, b"other", b"1"), marker(2, commit=True))
    assert replayed(*log) == {b"other": b"1"}


def test_what_is_not_transactional_counts_at_once() -> None:
    assert replayed(data(-1, b"k", b"v", is_transactional=False)) == {b"k": b"v"}


def test_a_tombstone_forgets() -> None:
    log = (data(1, b"k", b"v"), marker(1, commit=True), data(1, b"k", None), marker(1, commit=True))
    assert replayed(*log) == {b"k": None}


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.integers(0, 9)), max_size=30))
def test_replay_equals_a_plain_model(transactions: list[tuple[int, bool, int]]) -> None:
    log, expected = [], {}
    for producer_id, commit, value in transactions:
        key = b"k%d" % producer_id
        log += [data(producer_id, key, b"%d" % value), marker(producer_id, commit=commit)]
        if commit:
            expected[key] = b"%d" % value
    assert replayed(*log) == expected


# --- which batch may run ----------------------------------------------------------------------


def test_the_first_batch_of_a_new_name_runs() -> None:
    assert judge("job", None, batch(0), adopt=False) is Verdict.RUN


def test_the_next_batch_runs() -> None:
    assert judge("job", PROGRESS, batch(8), adopt=False) is Verdict.RUN


@pytest.mark.parametrize(("number", "fingerprint"), [(7, "g"), (6, "f"), (5, "e"), (7, "")])
def test_a_batch_that_is_committed_is_done(number: int, fingerprint: str) -> None:
    assert judge("job", PROGRESS, batch(number, fingerprint), adopt=False) is Verdict.DONE


@pytest.mark.parametrize("number", [5, 6, 7])
def test_a_committed_batch_with_other_input_is_refused(number: int) -> None:
    with pytest.raises(Refused, match="with other input than it has now"):
        judge("job", PROGRESS, batch(number, "zz"), adopt=False)


def test_a_batch_too_old_to_compare_is_refused() -> None:
    with pytest.raises(Refused, match="the checkpoint is an old copy"):
        judge("job", PROGRESS, batch(4, "d"), adopt=False)


def test_a_gap_is_refused_unless_it_is_adopted() -> None:
    with pytest.raises(Refused, match="does not follow batch 7"):
        judge("job", PROGRESS, batch(9), adopt=False)
    assert judge("job", PROGRESS, batch(9), adopt=True) is Verdict.RUN


def test_a_later_batch_without_progress_is_refused_unless_it_is_adopted() -> None:
    with pytest.raises(Refused, match="has no progress yet"):
        judge("job", None, batch(3), adopt=False)
    assert judge("job", None, batch(3), adopt=True) is Verdict.RUN


def test_another_query_is_refused_unless_it_is_adopted() -> None:
    with pytest.raises(Refused, match="belongs to query q"):
        judge("job", PROGRESS, batch(0, query="r"), adopt=False)
    assert judge("job", PROGRESS, batch(0, query="r"), adopt=True) is Verdict.RUN


def test_adopting_never_writes_a_committed_batch_of_the_same_query_again() -> None:
    assert judge("job", PROGRESS, batch(7, "g"), adopt=True) is Verdict.DONE
    with pytest.raises(Refused, match="with other input"):
        judge("job", PROGRESS, batch(7, "zz"), adopt=True)


def test_progress_remembers_the_fingerprints_of_the_batches_before() -> None:
    progress = None
    for number in range(RECENT_MAX + 20):
        name = batch(number, f"f{number}")
        progress = advance(progress, name, NOWHERE, rows=2, rejected=0, now_ms=0)
    assert progress is not None
    assert progress.total_rows == 2 * (RECENT_MAX + 20)
    assert len(progress.recent) == RECENT_MAX
    last = RECENT_MAX + 19
    for number in range(last - RECENT_MAX, last + 1):
        assert judge("job", progress, batch(number, f"f{number}"), adopt=False) is Verdict.DONE


def test_an_adopted_query_starts_a_memory_of_its_own() -> None:
    adopted = advance(PROGRESS, batch(0, "n", "r"), NOWHERE, rows=1, rejected=0, now_ms=0)
    assert (adopted.query, adopted.batch, adopted.recent) == ("r", 0, ())
    assert adopted.total_rows == 51
