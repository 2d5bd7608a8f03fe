"""Markers: who may end a transaction in a partition, and what is left when things go wrong."""

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.txn.conftest import StartWorld
from tests.txn.markers import MarkerRequest, admin_marker, describe_producers
from tests.txn.producer import OK, TOPIC, Producer, produce
from tests.txn.reader import aborted, ends, fetch, markers, read
from tests.txn.world import World

STALE = ErrorCode.INVALID_PRODUCER_EPOCH
FUTURE = 1 << 20


def coordinator_epoch(world: World) -> int:
    """The leader epoch of the transaction log, as Metadata and ListOffsets tell it."""
    data = fetch(world, topic="__transaction_state", partition=0, isolation=0)
    return int.from_bytes((bytes(data.records or b""))[12:16], "big")


def marker(producer: Producer, *, epoch_delta: int = 0, **wanted: object) -> MarkerRequest:
    return MarkerRequest(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch + epoch_delta,
        committed=bool(wanted.pop("committed", False)),
        **wanted,  # type: ignore[arg-type] # fields by their names
    )


# --- what a partition takes -----------------------------------------------------------------


def test_markers_carry_the_epoch_of_their_coordinator(world: World) -> None:
    """Check 84: it grows with each start, and every partition remembers it."""
    producer = Producer(world).ready().begin({0: [b"a"]})
    producer.commit()
    world.restart()
    producer = producer.twin(world).begin({0: [b"b"]})
    producer.commit()

    first, second = (found[4] for found in markers(world))

    assert first < second
    assert [known.coordinator_epoch for known in describe_producers(world)] == [second]


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_of_a_replaced_coordinator_is_refused(world: World, version: int) -> None:
    """Check 85."""
    producer = Producer(world).ready().begin({0: [b"a"]})
    producer.commit()
    producer.begin({0: [b"b"]})
    before = ends(world)

    code = marker(producer, coordinator_epoch=-1).send(world, version)

    assert code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert ends(world) == before


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_of_an_older_epoch_is_refused(world: World, version: int) -> None:
    """Check 86."""
    Producer(world).ready()
    producer = Producer(world).ready().begin({0: [b"a"]})

    code = marker(producer, epoch_delta=-1, coordinator_epoch=FUTURE).send(world, version)

    assert code == STALE
    assert ends(world) == (0, 1)


def test_a_v2_marker_of_the_same_epoch_is_a_repeat_or_a_mistake(world: World) -> None:
    """Check 87, flaws 10.5 and 10.6 (KIP-1228, KAFKA-19999)."""
    producer = Producer(world, is_v2=True).ready().begin({0: [b"a"]})
    producer.commit()

    repeat = marker(producer, coordinator_epoch=FUTURE, transaction_version=2, committed=True)
    nothing_open = repeat.send(world)
    producer.begin({0: [b"b"]})
    something_open = repeat.send(world)

    assert (nothing_open, something_open) == (OK, STALE)
    producer.abort()
    assert read(world) == [b"a"]


@pytest.mark.parametrize("version", [1, 2])
def test_h123_an_administrator_ends_a_transaction_at_its_own_epoch(
    world: World, version: int
) -> None:
    """Check 88, scenario H123."""
    producer = Producer(world).ready().begin({0: [b"a"]})
    plain = Producer(world, "other").ready().begin({0: [b"b"]})
    plain.commit()
    assert read(world) == []

    code = admin_marker(*producer.identity).send(world, version)

    assert code == OK
    assert read(world) == [b"b"]


def test_after_an_administrator_a_v2_producer_may_go_on(world: World) -> None:
    """Appendix B 17: the coordinator still has the transaction open; what follows is part of it."""
    producer = Producer(world, is_v2=True).ready().begin({0: [b"a"]})
    # A coordinator's epoch of today: with a later one its own markers would be refused.
    epoch = coordinator_epoch(world)
    assert marker(producer, coordinator_epoch=epoch).send(world) == OK

    assert producer.send(0, b"b").error_code == OK
    producer.commit()

    assert read(world) == [b"b"]


@pytest.mark.parametrize("is_v2", [False, True])
def test_a_marker_that_an_administrator_dated_ahead_shuts_nobody_out(
    world: World, is_v2: bool
) -> None:
    """Section 7.5: in Kafka an epoch from the future leaves the next transaction in PrepareX."""
    producer = Producer(world, is_v2=is_v2).ready().begin({0: [b"a"], 1: [b"a"]})
    assert admin_marker(*producer.identity).send(world) == OK

    producer.abort()
    producer.begin({0: [b"b"], 1: [b"b"]}).commit()

    assert (read(world), read(world, partition=1)) == ([b"b"], [b"b"])


def test_a_marker_without_data_takes_an_offset_and_fences(world: World) -> None:
    """Check 89: no index entry, and lower epochs are refused from then on."""
    producer = Producer(world).ready()
    assert producer.add(0) == OK

    code = marker(producer, epoch_delta=3, coordinator_epoch=FUTURE).send(world)

    assert code == OK
    assert ends(world) == (1, 1)
    data = fetch(world, 0)
    assert aborted(data) == []
    assert producer.send(0, b"a").error_code == STALE


def test_a_transaction_and_its_marker_may_lie_in_different_segments(
    start_world: StartWorld,
) -> None:
    """Check 90, flaw 10.23: one entry, found from every offset; also after a crash."""
    world = start_world({})
    world.create("small", configs={"segment.bytes": "1048576", "segment.ms": "1000"})
    producer = Producer(world, topic="small").ready()
    other = Producer(world, "other", topic="small").ready()
    producer.begin({0: [b"gone"]})
    for number in range(3):
        world.pass_ms(2_000)  # Each batch has a segment of its own.
        other.begin({0: [b"%d" % number]}).commit()
    world.pass_ms(2_000)
    producer.abort()

    for crashed in (False, True):
        if crashed:
            world.crash()
        for offset in range(8):
            listed = aborted(fetch(world, offset, topic="small"))
            assert listed == ([(producer.producer_id, 0)] if offset < 8 else [])
        assert read(world, topic="small") == [b"0", b"1", b"2"]
    assert len([n for n in world.broker.disk.list("small-0") if n.endswith(".log")]) > 3


def test_a_marker_request_answers_for_each_partition(world: World) -> None:
    """Section 7.1: unknown partitions are named; one producer's markers share an entry."""
    producer = Producer(world).ready().begin({0: [b"a"], 1: [b"a"]})
    first, second = (
        admin_marker(*producer.identity, partition=partition).marker() for partition in (0, 1)
    )
    nowhere = admin_marker(*producer.identity, partition=9).marker()

    reply = world.ask(WriteTxnMarkersRequest(markers=[first, second, nowhere]), 1)

    (result,) = reply.markers
    codes = {p.partition_index: p.error_code for topic in result.topics for p in topic.partitions}
    assert codes == {0: OK, 1: OK, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


# --- a coordinator that carries on ----------------------------------------------------------


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("committed", [True, False])
def test_a_deleted_topic_does_not_hold_up_a_transaction(
    world: World, is_v2: bool, committed: bool
) -> None:
    """Check 92: deleted before the end is asked for."""
    world.create("doomed")
    producer = Producer(world, is_v2=is_v2).ready().begin({0: [b"a"]})
    if not is_v2:
        assert list(producer.add_all({"doomed": [0]}).values()) == [OK]
    assert producer.send(0, b"x", topic="doomed").error_code == OK
    world.delete("doomed")

    producer.decide(committed)
    producer.settle()

    assert read(world) == ([b"a"] if committed else [])


@pytest.mark.parametrize("is_made_anew", [False, True])
@pytest.mark.parametrize("is_v2", [False, True])
def test_a_topic_deleted_while_its_marker_waits_is_done(
    impatient: World, is_v2: bool, is_made_anew: bool
) -> None:
    """Check 92, flaw 10.26 (KAFKA-5202): deleted, and perhaps made anew, in PrepareCommit."""
    world = impatient
    world.create("doomed")
    producer = Producer(world, is_v2=is_v2, topic="doomed").ready().begin({0: [b"x"]})
    world.disk.full.add("doomed-0")
    producer.decide(True)
    world.delete("doomed")
    world.disk.full.clear()
    if is_made_anew:
        world.create("doomed")

    producer.settle()

    if is_made_anew:
        assert ends(world, topic="doomed") == (0, 0)
        producer.begin({0: [b"y"]}).commit()
        assert read(world, topic="doomed") == [b"y"]


@pytest.mark.parametrize("is_v2", [False, True])
def test_a_topic_deleted_while_its_marker_is_synced_is_done(world: World, is_v2: bool) -> None:
    """Check 92: at any moment, also when the marker is in the log and not committed yet."""
    for number in range(20):
        world.create("doomed")
        producer = Producer(world, f"x{number}", is_v2=is_v2, topic="doomed").ready()
        producer.begin({0: [b"x"]})
        line, deleting = world.connect(), world.connect()
        world.broker.disk.sync_s = 0.1
        end = line.begin(producer.an_end(True), 5 if is_v2 else 4)
        world.pass_ms(10 * number)
        gone = deleting.begin(world.a_deletion("doomed"), 6)
        assert line.answer(end).error_code == OK
        assert deleting.answer(gone).responses[0].error_code == OK
        world.broker.disk.sync_s = 0.001

        world.pass_ms(3_000)

        assert producer.state().transaction_state == "CompleteCommit", number


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("committed", [True, False])
def test_e72_markers_wait_until_there_is_room_for_them(
    impatient: World, is_v2: bool, committed: bool
) -> None:
    """Check 109, scenario E72: only what still lacks its marker is listed; then all is done."""
    world = impatient
    producer = Producer(world, is_v2=is_v2).ready().begin({0: [b"a"], 1: [b"a"]})
    world.disk.full.add(f"{TOPIC}-1")
    producer.decide(committed)
    world.pass_ms(1_000)

    state = producer.state().transaction_state
    waiting = producer.partitions()
    seen = read(world), read(world, partition=1)
    world.disk.full.clear()
    world.pass_ms(3_000)

    kept = [b"a"] if committed else []
    assert state == ("PrepareCommit" if committed else "PrepareAbort")
    assert waiting == [(TOPIC, 1)]
    assert seen == (kept, [])
    assert producer.state().transaction_state.startswith("Complete")
    assert read(world, partition=1) == kept


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("committed", [True, False])
def test_c41_a_coordinator_carries_on_after_a_crash(
    world: World, is_v2: bool, committed: bool
) -> None:
    """Check 76 on one node, flaw 10.6, scenario C41: one marker written, the other not."""
    producer = Producer(world, is_v2=is_v2).ready().begin({0: [b"a"], 1: [b"a"]})
    world.disk.full.add(f"{TOPIC}-1")
    producer.decide(committed)
    world.pass_ms(1_000)

    world.crash()
    producer = producer.twin(world)
    producer.settle()

    kept = [b"a"] if committed else []
    assert read(world) == read(world, partition=1) == kept
    producer.begin({0: [b"b"], 1: [b"b"]}).commit()
    assert read(world) == read(world, partition=1) == [*kept, b"b"]


def test_the_completion_waits_until_there_is_room_for_it(impatient: World) -> None:
    """Check 81: the CompleteX record finds no room; it is written later, and nobody is stuck."""
    world = impatient
    producer = Producer(world).ready().begin({0: [b"a"]})
    world.disk.full.add(f"{TOPIC}-0")
    producer.decide(True)
    world.disk.full = {"__transaction_state"}
    world.pass_ms(1_000)
    assert read(world) == [b"a"]
    assert producer.state().transaction_state == "PrepareCommit"
    world.disk.full.clear()
    world.pass_ms(3_000)

    assert producer.state().transaction_state == "CompleteCommit"


# --- a disk that fails ----------------------------------------------------------------------


def test_aborted_data_is_never_visible_where_its_index_could_not_be_written(world: World) -> None:
    """Flaw 10.12 (KAFKA-7866): the marker is in the log, its index entry is not."""
    producer = Producer(world).ready().begin({0: [b"aborted"]})
    world.disk.full.add(f"{TOPIC}-0/{0:020}.txnindex")
    producer.decide(False)
    world.pass_ms(1_000)

    offline = fetch(world)
    world.crash()
    producer = producer.twin(world)
    producer.settle()

    assert (offline.error_code, bytes(offline.records or b"")) == (56, b"")
    assert read(world) == []
    producer.begin({0: [b"b"]}).commit()
    assert read(world) == [b"b"]


def test_offsets_go_on_behind_a_marker_that_found_no_room(world: World) -> None:
    """Flaw 10.12: what failed took no offset, what follows takes the next."""
    producer = Producer(world).ready().begin({0: [b"a"]})
    world.disk.full.add(f"{TOPIC}-0")
    producer.decide(False)
    world.pass_ms(1_000)
    world.disk.full.clear()
    producer.settle()

    assert [found[0] for found in markers(world)] == [1]
    assert ends(world) == (2, 2)


# --- markers that come late -----------------------------------------------------------------


def test_a_late_marker_of_v1_ends_the_next_transaction_only_for_administrators(
    world: World,
) -> None:
    """Flaw 10.5 (KAFKA-19446): our coordinator writes each marker once, in its own process.

    From outside a marker of the same epoch cannot be told from an administrator's abort, which has
    to work (check 88); Kafka takes it too. A higher epoch of V2 can: see check 87.
    """
    producer = Producer(world).ready().begin({0: [b"a"]})
    producer.commit()
    (written,) = markers(world)
    producer.begin({0: [b"b"]})

    late = marker(producer, committed=True, coordinator_epoch=written[4])

    assert late.send(world) == OK
    producer.abort()
    assert read(world) == [b"a", b"b"]


def test_plain_records_beside_transactions_are_not_touched(world: World) -> None:
    """Section 7.3: a marker ends its own producer's transaction and nothing else."""
    one, other = Producer(world, "one").ready(), Producer(world, "other").ready()
    one.begin({0: [b"one"]})
    other.begin({0: [b"other"]})
    plain = one.batch(b"plain", sequence=-1, epoch=-1, producer_id=-1, is_transactional=False)
    assert produce(world, plain).error_code == OK
    one.abort()
    assert read(world) == []
    other.commit()

    assert read(world) == [b"other", b"plain"]
