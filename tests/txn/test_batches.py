"""Fact sheet, sections 1, 2 and 12: which batches of a transaction a partition takes."""

import struct

import pytest

from oncelog.core.batch import CONTROL, CRC_START, TRANSACTIONAL, checksum, read_header
from oncelog.core.errors import OutOfOrderSequence
from oncelog.core.producers import ProducerTable
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from tests.txn.conftest import StartWorld
from tests.txn.producer import OK, TOPIC, Producer, a_batch, a_produce, produce
from tests.txn.reader import READ_UNCOMMITTED, ends, read
from tests.txn.world import World

ATTRIBUTES = 21
LAST_OFFSET_DELTA = 23


def changed(batch: bytes, position: int, form: str, value: int) -> bytes:
    """A batch with one other field, and a checksum that fits."""
    copy = bytearray(batch)
    struct.pack_into(form, copy, position, value)
    struct.pack_into(">I", copy, CRC_START - 4, checksum(copy))
    return bytes(copy)


def send_raw(producer: Producer, batch: bytes, version: int) -> int:
    request = producer.a_produce({(TOPIC, 0): batch})
    return int(producer.line.ask(request, version).responses[0].partition_responses[0].error_code)


def an_idempotent(world: World) -> int:
    """A producer id without a transactional one."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    return int(world.ask(request, 5).producer_id)


def delete_records(world: World, offset: int) -> None:
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name=TOPIC, partitions=[part])
    reply = world.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2)
    assert reply.topics[0].partitions[0].error_code == OK


# --- admission ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [9, 11, 12])
def test_a_control_batch_of_a_client_is_refused(world: World, version: int) -> None:
    """Check 2."""
    producer = Producer(world).ready()
    producer.begin({0: [b"a"]})
    batch = changed(producer.batch(b"b", sequence=1), ATTRIBUTES, ">h", CONTROL | TRANSACTIONAL)

    assert send_raw(producer, batch, version) == ErrorCode.INVALID_RECORD
    assert ends(world) == (0, 1)


def test_a_producer_id_without_a_sequence_is_refused(world: World) -> None:
    """Check 3."""
    producer = Producer(world).ready()
    assert producer.add(0) == OK

    assert producer.send(0, b"a", sequence=-1).error_code == ErrorCode.INVALID_RECORD
    assert ends(world) == (0, 0)


def test_a_batch_that_miscounts_its_records_is_refused(world: World) -> None:
    """Check 4."""
    producer = Producer(world).ready()
    assert producer.add(0) == OK
    batch = changed(producer.batch(b"a", b"b"), LAST_OFFSET_DELTA, ">i", 4)

    assert send_raw(producer, batch, 11) == ErrorCode.INVALID_RECORD
    assert ends(world) == (0, 0)


def test_a_flipped_byte_is_found(world: World) -> None:
    """Check 5."""
    producer = Producer(world).ready()
    assert producer.add(0) == OK
    batch = bytearray(producer.batch(b"abc"))
    batch[-2] ^= 1

    assert send_raw(producer, bytes(batch), 11) == ErrorCode.CORRUPT_MESSAGE
    assert ends(world) == (0, 0)


def test_a_first_batch_that_is_damaged_still_takes_part_in_v2(world: World) -> None:
    """Appendix B 16: Kafka adds the partition before it reads the batch; an abort then ends it."""
    producer = Producer(world, is_v2=True).ready()
    batch = bytearray(producer.batch(b"abc"))
    batch[-2] ^= 1

    assert send_raw(producer, bytes(batch), 12) == ErrorCode.CORRUPT_MESSAGE
    assert producer.end(False).error_code == OK
    assert producer.state().transaction_state == "CompleteAbort"


@pytest.mark.parametrize("is_v2", [False, True])
def test_the_newest_batch_sent_again_keeps_its_offset(world: World, is_v2: bool) -> None:
    """Check 6, inside the open transaction."""
    producer = Producer(world, is_v2=is_v2).ready()
    producer.begin({0: [b"a", b"b"]})

    again = producer.send(0, b"a", b"b", sequence=0)

    assert (again.error_code, again.base_offset) == (OK, 0)
    assert ends(world) == (0, 2)


def test_a_committed_batch_of_v1_sent_again_is_refused_before_it_is_compared(world: World) -> None:
    """Check 6, appendix B 2: verification comes first; once added it is a repeat again."""
    producer = Producer(world).ready()
    producer.begin({0: [b"a"]})
    producer.commit()

    codes = [producer.send(0, b"a", sequence=0, version=v).error_code for v in (9, 11)]
    assert producer.add(0) == OK
    again = producer.send(0, b"a", sequence=0)

    assert codes == [ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE]
    assert (again.error_code, again.base_offset) == (OK, 0)
    assert ends(world) == (2, 2)


def test_a8_a_raised_epoch_begins_at_sequence_zero(world: World) -> None:
    """The epoch is raised by InitProducerId, in the middle of a count."""
    producer = Producer(world).ready()
    producer.begin({0: [b"%d" % n for n in range(5)]}).commit()
    assert producer.init(supplied=producer.identity).producer_epoch == 1
    assert producer.add(0) == OK

    late = producer.send(0, b"late", sequence=5).error_code
    first = producer.send(0, b"first", sequence=0).error_code

    assert (late, first) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, OK)


def test_a10_a_v2_transaction_begins_at_sequence_zero(world: World) -> None:
    """Check 16, flaw 10.7."""
    producer = Producer(world, is_v2=True).ready()

    early = producer.send(0, b"d", sequence=3)
    first = producer.send(0, b"a", sequence=0)

    assert early.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert first.error_code == OK


def test_a_batch_outside_the_open_transaction_of_its_producer_is_refused(world: World) -> None:
    """Check 17."""
    producer = Producer(world).ready()
    producer.begin({0: [b"a"]})

    outside = producer.send(0, b"b", sequence=1, is_transactional=False)

    assert outside.error_code == ErrorCode.INVALID_TXN_STATE
    assert ends(world) == (0, 1)


@pytest.mark.parametrize("version", [3, 9, 11, 12])
def test_a_transactional_batch_without_a_transactional_id_fails_the_request(
    world: World, version: int
) -> None:
    """Check 18: the other partition of the request fails too."""
    producer = Producer(world).ready()
    plain = a_batch(b"plain", timestamp_ms=world.now_ms)
    request = a_produce({(TOPIC, 0): producer.batch(b"a"), (TOPIC, 1): plain})

    reply = world.ask(request, version)

    codes = [p.error_code for topic in reply.responses for p in topic.partition_responses]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert ends(world) == ends(world, partition=1) == (0, 0)


def test_one_request_has_one_transactional_producer(world: World) -> None:
    """Section 1.6."""
    one, other = Producer(world, "one").ready(), Producer(world, "other").ready()
    batches = {(TOPIC, 0): one.batch(b"a"), (TOPIC, 1): other.batch(b"b")}

    reply = world.ask(a_produce(batches, transactional_id="one"), 11)

    codes = [p.error_code for topic in reply.responses for p in topic.partition_responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


# --- sequences ------------------------------------------------------------------------------


def test_a_refusal_names_the_log_start(world: World) -> None:
    """Check 22: for 45 and 47, from version 5 on."""
    producer = Producer(world).ready()
    producer.begin({0: [b"a", b"b", b"c"]})
    delete_records(world, 2)

    gap = producer.send(0, b"x", sequence=7)
    producer.commit()
    newer = producer.twin()
    assert newer.init(supplied=producer.identity).error_code == OK
    newer.begin({0: [b"d"]})
    old = producer.send(0, b"x", sequence=3)

    assert (gap.error_code, gap.log_start_offset) == (45, 2)
    assert (old.error_code, old.log_start_offset) == (47, 2)


def test_a_marker_of_the_same_epoch_keeps_the_count(world: World) -> None:
    """Check 25, V1."""
    producer = Producer(world).ready()
    producer.begin({0: [b"a", b"b"]})
    producer.commit()
    assert producer.add(0) == OK

    restarted = producer.send(0, b"c", b"d", b"e", sequence=0)
    following = producer.send(0, b"c", sequence=2)

    assert restarted.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert following.error_code == OK


def test_a_marker_of_a_higher_epoch_resets_the_count(world: World) -> None:
    """Check 25, V2."""
    producer = Producer(world, is_v2=True).ready()
    producer.begin({0: [b"a", b"b"]})
    producer.commit()

    going_on = producer.send(0, b"c", sequence=2)
    restarted = producer.send(0, b"c", sequence=0)

    assert going_on.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert restarted.error_code == OK


def test_a_count_goes_on_after_its_records_were_deleted(world: World) -> None:
    """Flaw 10.8, check 21: no 59, no 45."""
    producer = Producer(world).ready()
    producer.begin({0: [b"%d" % n for n in range(10)]})
    producer.commit()
    delete_records(world, -1)

    producer.begin({0: [b"ten"]})
    producer.commit()

    assert read(world, offset=11) == [b"ten"]


def test_all_five_newest_batches_are_known_after_a_restart(world: World) -> None:
    """Flaw 10.10: Kafka's snapshot keeps one of them."""
    producer_id = an_idempotent(world)
    batches = [
        a_batch(b"%d" % n, producer_id=producer_id, epoch=0, sequence=n, timestamp_ms=world.now_ms)
        for n in range(6)
    ]
    for batch in batches:
        assert produce(world, batch).error_code == OK
    world.restart()

    again = [produce(world, batch) for batch in batches]

    assert again[0].error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [(a.error_code, a.base_offset) for a in again[1:]] == [(OK, n) for n in range(1, 6)]


def test_a_count_wraps_inside_a_batch(world: World) -> None:
    """Flaw 10.28, checks 11 and 12: 2147483647, 0, 1 and then 2."""
    producer = Producer(world).ready()
    assert producer.add(0) == OK
    assert producer.send(0, b"a", sequence=2147483646).error_code == OK

    straddling = producer.send(0, b"b", b"c", b"d", sequence=2147483647)
    again = producer.send(0, b"b", b"c", b"d", sequence=2147483647)
    early = producer.send(0, b"x", sequence=1)
    following = producer.send(0, b"e", sequence=2)
    producer.commit()

    assert (straddling.error_code, straddling.base_offset) == (OK, 1)
    assert (again.error_code, again.base_offset) == (OK, 1)
    assert early.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert following.error_code == OK
    assert read(world) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_second_batch_does_not_take_the_place_of_a_first_that_was_sent_away(
    impatient: World,
) -> None:
    """Flaw 10.7 (KAFKA-14904, 14920, 18202): 51, then 45 until the first one came again."""
    producer = Producer(impatient, is_v2=True).ready()
    producer.begin({0: [b"a"]})
    impatient.disk.full.add(f"{TOPIC}-0")
    producer.decide(True)

    sent_away = producer.send(0, b"b", sequence=0)
    impatient.disk.full.clear()
    impatient.pass_ms(1000)
    codes = [producer.send(0, b"x", sequence=n).error_code for n in (1, 0, 1)]

    assert sent_away.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert codes == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, OK, OK]


def test_a_first_batch_that_never_comes_again_is_not_waited_for(world: World) -> None:
    """Flaw 10.7: the sweep of idle producers forgets it too, or each such client would stay."""
    table = ProducerTable()
    first, second = (
        read_header(a_batch(b"v", producer_id=7, epoch=0, sequence=n, timestamp_ms=world.now_ms))
        for n in (0, 1)
    )
    table.hold_back(first)
    with pytest.raises(OutOfOrderSequence):
        table.check(second)

    table.expire(now_ms=world.now_ms, idle_ms=1)

    table.check(second)


# --- a full disk ----------------------------------------------------------------------------


def test_a_batch_that_found_no_room_is_judged_as_if_it_had_not_been_sent(world: World) -> None:
    """Flaw 10.12 (KAFKA-6683)."""
    producer = Producer(world).ready()
    producer.begin({0: [b"a"]})
    world.disk.full.add(f"{TOPIC}-0")

    failed = producer.send(0, b"b")
    world.disk.full.clear()
    again = producer.send(0, b"b")
    producer.commit()

    assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (again.error_code, again.base_offset) == (OK, 1)
    assert read(world) == [b"a", b"b"]


def test_state_of_a_busy_producer_with_old_records_does_not_expire(start_world: StartWorld) -> None:
    """Flaw 10.9 B: activity is measured by the broker's clock, not by the time of the records."""
    world = start_world({"producer.id.expiration.ms": "1000000"})
    producer_id = an_idempotent(world)
    week_ago = world.now_ms - 7 * 86_400_000
    old = a_batch(b"a", producer_id=producer_id, epoch=0, sequence=0, timestamp_ms=week_ago)
    assert produce(world, old).error_code == OK
    world.pass_ms(700_000)

    again = produce(world, old)

    assert (again.error_code, again.base_offset) == (OK, 0)
    assert read(world, isolation=READ_UNCOMMITTED) == [b"a"]
