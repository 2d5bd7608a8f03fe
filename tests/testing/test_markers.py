"""Logs read without the broker's code: what they hold, and what may not be in them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from oncelog.check import Op, Payload, Recorder, Run, encode_payload, open_history
from oncelog.core.markers import Marker as LogMarker
from oncelog.core.markers import encode_marker
from oncelog.core.packing import Codec, encode_batch
from oncelog.core.records import Record
from oncelog.testing.workload.dump import Damaged, Segment, batches, walk
from oncelog.testing.workload.markers import Marker, logs_in, markers_of, note_markers

RUN = 7


def placed(*written: bytes, start: int = 0) -> Segment:
    """Batches, one after the other, as a log has them."""
    data = bytearray()
    offset = start
    for batch in written:
        data += offset.to_bytes(8, "big") + batch[8:]
        offset += int.from_bytes(batch[23:27], "big") + 1
    return Segment(f"{start:020}.log", bytes(data))


def records(*values: int) -> list[Record]:
    return [
        Record(
            0,
            0,
            b"key",
            encode_payload(Payload(run=RUN, process=0, txn_number=0, index=0, value=value)),
        )
        for value in values
    ]


def data(producer: int, sequence: int, *values: int, epoch: int = 0, codec: int = 0) -> bytes:
    return encode_batch(
        records(*values),
        codec=Codec(codec),
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def ended(producer: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> bytes:
    marker = LogMarker(
        producer_id=producer,
        producer_epoch=epoch,
        committed=commit,
        coordinator_epoch=coordinator_epoch,
    )
    return encode_marker(marker, timestamp_ms=0)


def found(*segments: Segment) -> list[Marker]:
    return list(markers_of(batches(segments), run=RUN))


def test_a_marker_ends_what_its_producer_has_written_since_the_last_one() -> None:
    log = placed(
        data(1, 0, 10, 11),
        data(2, 0, 20),
        ended(1, commit=True, coordinator_epoch=3),
        data(1, 2, 12),
        ended(2, commit=False, epoch=1),
        ended(1, commit=False, coordinator_epoch=3),
    )

    markers = found(log)

    assert [(m.offset, m.is_commit, m.producer_id, m.values) for m in markers[:2]] == [
        (3, True, 1, (10, 11)),
        (5, False, 2, (20,)),
    ]
    assert (markers[0].coordinator_epoch, markers[1].producer_epoch) == (3, 1)


def test_a_transaction_may_reach_over_several_files() -> None:
    first = placed(data(1, 0, 10), start=5)
    second = placed(data(1, 1, 11), ended(1, commit=True), start=6)

    assert [marker.values for marker in found(first, second)] == [(10, 11)]


def test_records_of_others_have_no_value() -> None:
    foreign = encode_batch(
        [Record(0, 0, None, b"hello"), Record(0, 0, None, None)],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )

    assert [marker.values for marker in found(placed(foreign, ended(1, commit=True)))] == [()]


def test_markers_are_noted_with_their_places(tmp_path: Path) -> None:
    (tmp_path / "a-0").mkdir()
    log = placed(data(1, 0, 10), ended(1, commit=True, epoch=1, coordinator_epoch=2))
    (tmp_path / "a-0" / log.name).write_bytes(log.data)
    history = tmp_path / "history.jsonl"

    with Recorder(history, Run()) as recorder:
        assert note_markers(recorder, logs_in(tmp_path, ["a:0"]), run=RUN) == 1

    (event,) = open_history(history).events
    assert (event.op, event.end, event.producer) == (Op.MARKER, "commit", (1, 1))
    assert (event.details.at, event.details.values) == ({"a:0": 1}, (10,))


def flipped(segment: Segment, byte: int) -> Segment:
    changed = bytearray(segment.data)
    changed[byte] ^= 1
    return Segment(segment.name, bytes(changed))


@pytest.mark.parametrize(
    ("why", "segments"),
    [
        ("a batch that is cut", [Segment("0.log", placed(data(1, 0, 10)).data[:-1])]),
        ("a batch that is cut", [Segment("0.log", placed(data(1, 0, 10)).data[:20])]),
        ("checksum", [flipped(placed(data(1, 0, 10)), 70)]),
        ("magic 3", [flipped(placed(data(1, 0, 10)), 16)]),
        ("offset 1, not 0", [flipped(placed(data(1, 0, 10)), 7)]),
        ("should begin at 1", [placed(data(1, 0, 10)), placed(data(1, 1, 11), start=2)]),
        ("wrote sequence 0 after 0", [placed(data(1, 0, 10), data(1, 0, 10))]),
        ("under epoch 0 after 1", [placed(data(1, 0, 10, epoch=1), data(1, 1, 11))]),
        ("under epoch 0 after 1", [placed(ended(1, commit=False, epoch=1), data(1, 1, 11))]),
        (
            "coordinator epoch 1 after one of 2",
            [
                placed(
                    ended(1, commit=True, coordinator_epoch=2),
                    ended(1, commit=True, coordinator_epoch=1),
                )
            ],
        ),
        ("compressed", [placed(data(1, 0, 10, codec=Codec.GZIP))]),
    ],
)
def test_what_no_broker_may_leave_behind_is_named(why: str, segments: Sequence[Segment]) -> None:
    with pytest.raises(Damaged, match=why):
        found(*segments)


def test_a_log_that_must_begin_at_its_beginning_and_does_not_is_named(tmp_path: Path) -> None:
    log = placed(data(1, 0, 10), start=5)
    (tmp_path / log.name).write_bytes(log.data)

    assert [batch.base_offset for batch in batches([log])] == [5]
    with pytest.raises(Damaged, match="should begin at 0"):
        walk(tmp_path)


def test_sequences_begin_again_after_the_highest() -> None:
    log = placed(data(1, 2**31 - 2, 10, 11), data(1, 0, 12))

    assert len(list(batches([log]))) == 2
