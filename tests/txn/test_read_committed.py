"""What a read_committed reader gets, on every path that leads to a record or past it."""

from random import Random

import pytest

from oncelog.core.packing import Codec, read_batches
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from oncelog.wire.messages.fetch import FetchRequest
from tests.txn.producer import OK, TOPIC, Producer
from tests.txn.reader import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    a_fetch,
    aborted,
    deliver,
    ends,
    fetch,
    fetched,
    list_offset,
    read,
)
from tests.txn.world import World

FETCH_BY_NAME = range(4, 13)


def rivals(world: World, *names: str, is_v2: bool = False) -> list[Producer]:
    return [Producer(world, name, is_v2=is_v2).ready() for name in names]


# --- the last stable offset -----------------------------------------------------------------


def test_the_oldest_open_transaction_holds_the_last_stable_offset(world: World) -> None:
    """Check 93."""
    one, two, three = rivals(world, "one", "two", "three")
    one.begin({0: [b"1"]}).commit()
    two.begin({0: [b"2"]})
    three.begin({0: [b"3"]})
    seen = [ends(world)]
    one.begin({0: [b"1"]}).commit()
    seen.append(ends(world))
    two.commit()
    seen.append(ends(world))
    three.abort()
    seen.append(ends(world))

    assert seen == [(2, 4), (2, 6), (3, 7), (8, 8)]


def test_a_marker_that_is_not_committed_yet_decides_nothing(world: World) -> None:
    """Check 94: between the marker's append and its sync the last stable offset stays."""
    line = world.connect()
    producer = Producer(line).ready().begin({0: [b"a"]})
    world.broker.disk.sync_s = 0.2
    end = line.begin(producer.an_end(True), 4)

    seen = set()
    for _ in range(100):
        data = fetch(world)
        seen.add((data.last_stable_offset, data.high_watermark, len(data.records or b"") > 0))

    assert line.answer(end).error_code == OK
    assert seen == {(0, 1, False), (2, 2, True)}


@pytest.mark.parametrize("version", FETCH_BY_NAME)
def test_nothing_at_or_above_the_last_stable_offset_is_returned(world: World, version: int) -> None:
    """Check 95, and both levels are told where it is."""
    committed, opened = rivals(world, "committed", "opened")
    committed.begin({0: [b"a"]}).commit()
    opened.begin({0: [b"b"]})
    committed.begin({0: [b"c"]}).commit()

    strict = fetch(world, 0, version=version)
    loose = fetch(world, 0, isolation=READ_UNCOMMITTED, version=version)
    beyond = [fetch(world, offset, version=version) for offset in (2, 3, 5)]

    batches = [header.base_offset for header, _ in read_batches(strict.records or b"")]
    assert batches == [0, 1]
    assert [h.base_offset for h, _ in read_batches(loose.records or b"")] == [0, 1, 2, 3, 4]
    assert (strict.last_stable_offset, strict.high_watermark) == (2, 5)
    assert (loose.last_stable_offset, loose.high_watermark) == (2, 5)
    assert [(d.error_code, bytes(d.records or b"")) for d in beyond] == [(OK, b"")] * 3


def test_both_levels_see_an_offset_that_is_out_of_range(world: World) -> None:
    """Check 95: below the log or beyond its end is an error, above the stable end is not."""
    Producer(world).ready().begin({0: [b"a"]})

    codes = [fetch(world, offset).error_code for offset in (-1, 0, 1, 2)]

    out = ErrorCode.OFFSET_OUT_OF_RANGE
    assert codes == [out, OK, OK, out]


@pytest.mark.parametrize("version", FETCH_BY_NAME)
def test_only_read_committed_is_told_what_was_aborted(world: World, version: int) -> None:
    """Check 99: a list that may be empty, or none at all."""
    producer = Producer(world).ready().begin({0: [b"a"]})
    producer.abort()

    strict = fetch(world, 0, version=version)
    behind = fetch(world, 2, version=version)
    loose = fetch(world, 0, isolation=READ_UNCOMMITTED, version=version)

    assert aborted(strict) == [(producer.producer_id, 0)]
    assert (aborted(behind), aborted(loose)) == ([], None)


# --- what was aborted -----------------------------------------------------------------------


def test_every_fetch_inside_an_aborted_transaction_names_it(world: World) -> None:
    """Checks 96 and 97: from every offset, and not from behind its marker."""
    producer = Producer(world, is_v2=True).ready()
    for number in range(5):
        assert producer.send(0, b"%d" % number, b"more").error_code == OK
    producer.abort()
    producer.begin({0: [b"kept"]}).commit()

    named = [aborted(fetch(world, offset)) for offset in range(13)]

    assert named == [[(producer.producer_id, 0)]] * 11 + [[]] * 2


@pytest.mark.parametrize("max_bytes", [1, 100, 170, 1000, 1 << 20])
def test_h116_fetches_of_any_size_make_progress_through_what_was_aborted(
    world: World, max_bytes: int
) -> None:
    """Scenario H116: a hundred batches, every offset as a start."""
    producer = Producer(world, is_v2=True).ready()
    producer.begin({0: [b"before"]}).commit()
    for number in range(100):
        assert producer.send(0, b"%d" % number).error_code == OK
    producer.abort()
    producer.begin({0: [b"after"]}).commit()

    starts = range(2, 103) if max_bytes >= 1000 else range(2, 103, 10)
    for offset in starts:
        assert read(world, offset=offset, max_bytes=max_bytes) == [b"after"]
    assert read(world, max_bytes=max_bytes) == [b"before", b"after"]


@pytest.mark.parametrize("is_v2", [False, True])
def test_h115_an_abort_hides_nothing_of_the_next_transaction(world: World, is_v2: bool) -> None:
    """Scenario H115: a fetch spans both, and begins anywhere."""
    producer = Producer(world, is_v2=is_v2).ready()
    producer.begin({0: [b"gone"]}).abort()
    producer.begin({0: [b"kept"]}).commit()
    producer.begin({0: [b"gone too"]}).abort()

    assert [read(world, offset=offset) for offset in range(6)] == [[b"kept"]] * 3 + [[]] * 3
    assert aborted(fetch(world)) == [(producer.producer_id, 0), (producer.producer_id, 4)]


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("crashes", [False, True])
def test_h112_interleaved_transactions_are_told_apart(
    world: World, is_v2: bool, crashes: bool
) -> None:
    """Check 98, scenario H112: record by record, one aborts and one commits."""
    one, other = rivals(world, "one", "other", is_v2=is_v2)
    for number in range(10):
        one.begin({0: [b"one %d" % number]})
        if crashes:
            world.crash()
        other.begin({0: [b"other %d" % number]})
        if crashes:
            world.crash()
    one.decide(False)
    if crashes:
        world.crash()
    other.decide(True)
    if crashes:
        world.crash()
    one.settle()
    other.settle()

    kept = [b"other %d" % number for number in range(10)]
    assert read(world) == kept
    assert all(read(world, max_bytes=size) == kept for size in (1, 200))


def test_h113_a_transaction_that_stays_open_holds_back_a_thousand_others(world: World) -> None:
    """Scenario H113: nothing above its first offset before it ends, all of it afterwards."""
    first, other = rivals(world, "first", "other", is_v2=True)
    assert first.send(0, b"first").error_code == OK
    for number in range(1_000):
        assert other.send(0, b"%d" % number).error_code == OK
        other.decide(True)
    other.settle()

    before = read(world)
    first.abort()

    assert before == []
    assert read(world) == [b"%d" % number for number in range(1000)]


def test_h117_a_partition_of_aborted_records_alone_is_read_to_its_end(world: World) -> None:
    """Scenario H117."""
    producer = Producer(world, is_v2=True).ready()
    for _ in range(5):
        producer.begin({0: [b"x", b"y"]}).abort()

    data = fetch(world)

    assert deliver(data, 0).records == ()
    assert deliver(data, 0).next_offset == data.last_stable_offset == 15
    assert read(world) == []


@pytest.mark.parametrize("committed", [True, False])
def test_h114_a_transaction_over_many_partitions_is_seen_everywhere_or_nowhere(
    world: World, committed: bool
) -> None:
    """Scenario H114 on one node: the power goes when some of the markers are written."""
    world.create("wide", partitions=50)
    producer = Producer(world, topic="wide").ready()
    producer.begin({index: [b"%d" % index] for index in range(50)})
    world.disk.full = {f"wide-{index}/" for index in range(0, 50, 2)}
    producer.decide(committed)
    world.pass_ms(500)
    half = [read(world, topic="wide", partition=index) for index in range(50)]
    world.crash()
    producer.twin(world).settle()

    everywhere = [read(world, topic="wide", partition=index) for index in range(50)]

    assert everywhere == [[b"%d" % index] if committed else [] for index in range(50)]
    assert all(half[index] == [] for index in range(0, 50, 2))


def test_h121_control_records_reach_no_application_at_either_level(world: World) -> None:
    """Scenario H121."""
    one, other = rivals(world, "one", "other")
    one.begin({0: [b"a"]}).abort()
    other.begin({0: [b"b"]}).commit()
    one.begin({0: [b"c"]})

    assert read(world) == [b"b"]
    assert read(world, isolation=READ_UNCOMMITTED) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("codec", Codec)
def test_h125_every_codec_is_read_record_by_record(world: World, codec: Codec) -> None:
    """Scenario H125 in small: half of it aborted, one batch for each fetch."""
    rng = Random(codec)
    producers = rivals(world, "one", "two", "three", is_v2=True)
    kept: list[bytes] = []
    for number in range(60):
        producer = rng.choice(producers)
        values = [b"%d-%d" % (number, n) for n in range(rng.randint(1, 20))]
        assert producer.send(0, *values, codec=codec).error_code == OK
        if rng.random() < 0.5:
            kept += values
            producer.commit()
        else:
            producer.abort()

    assert read(world, max_bytes=1) == read(world) == kept


def test_random_transactions_are_read_as_a_plain_model_says(world: World) -> None:
    """Checks 95-98, with crashes: what is committed, in the order of the log."""
    rng = Random(4711)
    producers = rivals(world, *"abcd", is_v2=True)
    open_values: dict[str, list[bytes]] = {}
    committed: set[bytes] = set()
    sent: list[bytes] = []
    for number in range(300):
        producer = rng.choice(producers)
        name = producer.transactional_id
        if name in open_values and rng.random() < 0.3:
            commits = rng.random() < 0.5
            producer.decide(commits)
            values = open_values.pop(name)
            committed |= set(values) if commits else set()
        else:
            value = b"%d" % number
            assert producer.send(0, value).error_code == OK
            open_values.setdefault(name, []).append(value)
            sent.append(value)
        if number % 100 == 50:
            world.crash()
            producers = [each.twin(world) for each in producers]
    for producer in producers:
        producer.abort()

    assert read(world) == [value for value in sent if value in committed]
    assert read(world, max_bytes=150) == [value for value in sent if value in committed]


# --- waiting --------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
def test_a_fetch_that_waits_at_the_stable_end_wakes_with_the_decision(
    world: World, committed: bool
) -> None:
    """Check 100, flaw 10.23 (KAFKA-5376): the late answer names what was aborted."""
    producer = Producer(world).ready().begin({0: [b"a"]})
    line = world.connect()
    waiting = line.begin(a_fetch(0, max_wait_ms=20_000), 12)
    world.pass_ms(5_000)
    began = world.now_ms

    producer.decide(committed)
    data = fetched(line.answer(waiting))

    assert world.now_ms - began < 1_000
    assert aborted(data) == ([] if committed else [(producer.producer_id, 0)])
    assert [r.value for r in deliver(data, 0).records] == ([b"a"] if committed else [])


def test_g107_a_consumer_that_waits_behind_a_long_transaction_gets_all_of_it(
    world: World,
) -> None:
    """Twenty seconds, with others committing behind it: nothing before, nothing skipped."""
    long, other = rivals(world, "long", "other", is_v2=True)
    line = world.connect()
    sent: list[bytes] = []
    early: list[bytes] = []
    for second in range(20):
        waiting = line.begin(a_fetch(0, max_wait_ms=1_000), 12)
        for name, producer in ((b"long", long), (b"other", other)):
            sent.append(b"%s %d" % (name, second))
            assert producer.send(0, sent[-1]).error_code == OK
        other.commit()
        data = fetched(line.answer(waiting))
        early += [record.value or b"" for record in deliver(data, 0).records]
    waiting = line.begin(a_fetch(0, max_wait_ms=20_000), 12)
    long.commit()
    first = deliver(fetched(line.answer(waiting)), 0)

    values = [record.value or b"" for record in first.records]
    assert early == []
    assert values + read(world, offset=first.next_offset) == sent


def test_a_fetch_does_not_wake_for_what_it_may_not_read(world: World) -> None:
    """Check 100: other open data moves the high watermark and not the stable end."""
    producer = Producer(world).ready().begin({0: [b"a"]})
    line = world.connect()
    waiting = line.begin(a_fetch(0, max_wait_ms=3_000), 12)
    began = world.now_ms
    world.pass_ms(500)
    producer.begin({0: [b"b"]})

    data = fetched(line.answer(waiting))

    assert world.now_ms - began >= 3_000
    assert (data.error_code, bytes(data.records or b"")) == (OK, b"")


def test_a_fetch_session_is_told_when_the_stable_end_moves(world: World) -> None:
    """Check 100 for incremental fetches: a partition with no new bytes but a decision is news."""
    producer = Producer(world).ready().begin({0: [b"a"]})
    first = a_fetch(0)
    first.session_epoch = 0
    opened = world.ask(first, 12)
    following = FetchRequest(
        max_wait_ms=0, min_bytes=1, isolation_level=READ_COMMITTED,
        session_id=opened.session_id, session_epoch=1, topics=[],
    )  # fmt: skip

    quiet = world.ask(following, 12)
    producer.commit()
    following.session_epoch = 2
    news = fetched(world.ask(following, 12))

    assert list(quiet.responses) == []
    assert [r.value for r in deliver(news, 0).records] == [b"a"]


# --- ListOffsets ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 12))
def test_the_end_depends_on_the_isolation_level(world: World, version: int) -> None:
    """Check 101."""
    one, other = rivals(world, "one", "other")
    one.begin({0: [b"a"]}).commit()
    other.begin({0: [b"b"]})
    one.begin({0: [b"c"]}).commit()

    strict = list_offset(world, LATEST, version=version).offset
    loose = list_offset(world, LATEST, isolation=READ_UNCOMMITTED, version=version).offset
    first = list_offset(world, EARLIEST, version=version).offset

    assert (first, strict, loose) == (0, 2, 5)


def test_a_lookup_by_time_stops_at_the_stable_end(world: World) -> None:
    """Check 102, section 8.4."""
    one, other = rivals(world, "one", "other")
    start = world.now_ms
    one.begin({0: [b"a"]}).commit()
    world.pass_ms(10_000)
    other.begin({0: [b"b"]})

    def look_up(timestamp: int, isolation: int) -> tuple[int, int]:
        found = list_offset(world, timestamp, isolation=isolation)
        return found.offset, found.timestamp

    early = look_up(start, READ_COMMITTED)
    late = look_up(start + 5_000, READ_COMMITTED)
    newest = look_up(MAX_TIMESTAMP, READ_COMMITTED)
    loose = look_up(start + 5_000, READ_UNCOMMITTED)[0], look_up(MAX_TIMESTAMP, READ_UNCOMMITTED)[0]
    other.commit()

    assert early[0] == 0
    assert (late, newest) == ((-1, -1), (-1, -1))
    assert loose == (2, 2)
    assert look_up(start + 5_000, READ_COMMITTED)[0] == 2


def test_h122_the_ends_never_go_back(world: World) -> None:
    """Scenario H122: at every step, with crashes, LSO <= HW and neither goes back."""
    rng = Random(7)
    producers = rivals(world, "a", "b", "c", is_v2=True)
    seen = [(0, 0)]
    for number in range(150):
        producer = rng.choice(producers)
        if rng.random() < 0.5:
            assert producer.send(0, b"%d" % number).error_code == OK
        else:
            assert producer.end(False).error_code == OK
        if number % 40 == 39:
            world.crash()
            producers = [each.twin(world) for each in producers]
        seen.append(ends(world))

    assert all(stable <= end for stable, end in seen)
    assert seen == sorted(seen)
    assert [stable for stable, _ in seen] == sorted(stable for stable, _ in seen)


# --- the head of the log --------------------------------------------------------------------


def delete_records(world: World, offset: int, topic: str = TOPIC) -> None:
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    wanted = DeleteRecordsTopic(name=topic, partitions=[part])
    reply = world.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=10_000), 2)
    assert reply.topics[0].partitions[0].error_code == OK


@pytest.mark.parametrize("committed", [True, False])
def test_deleting_into_an_open_transaction_does_not_close_it(world: World, committed: bool) -> None:
    """Section 8.1, appendix B 6: the stable end is not below the log start, as it is in Kafka."""
    one, other = rivals(world, "one", "other")
    one.begin({0: [b"a", b"b", b"c"]})
    other.begin({0: [b"d"]}).commit()
    delete_records(world, 2)

    assert (list_offset(world, EARLIEST).offset, *ends(world)) == (2, 2, 5)
    assert read(world, offset=2) == []
    one.decide(committed)
    one.settle()
    assert read(world, offset=2) == ([b"c", b"d"] if committed else [b"d"])


def test_deleting_all_of_an_open_transaction_leaves_it_open(world: World) -> None:
    """Appendix B 6: what follows is held back until it is decided."""
    one, other = rivals(world, "one", "other")
    one.begin({0: [b"a"]})
    delete_records(world, -1)
    other.begin({0: [b"b"]}).commit()

    before = read(world, offset=1)
    one.commit()

    assert before == []
    assert read(world, offset=1) == [b"b"]


def test_h120_retention_stops_at_an_open_transaction(world: World) -> None:
    """Scenario H120: its records and the knowledge of it stay until it is decided."""
    configs = {"segment.ms": "1000", "retention.ms": "60000"}
    world.create("short", configs=configs)
    old, opened, other = (
        Producer(world, name, topic="short", timeout_ms=900_000).ready()
        for name in ("old", "opened", "other")
    )
    old.begin({0: [b"old"]}).commit()
    world.pass_ms(2_000)
    opened.begin({0: [b"opened"]})
    for number in range(3):
        world.pass_ms(2_000)
        other.begin({0: [b"%d" % number]}).commit()
    world.pass_ms(600_000)
    held = list_offset(world, EARLIEST, topic="short").offset
    stable = list_offset(world, LATEST, topic="short").offset
    seen = read(world, topic="short", offset=held, isolation=READ_UNCOMMITTED)

    opened.commit()
    world.pass_ms(600_000)

    assert (held <= 2, stable) == (True, 2)
    assert b"opened" in seen
    assert list_offset(world, EARLIEST, topic="short").offset > 2


def test_a_transaction_larger_than_a_segment_is_whole(world: World) -> None:
    """Check 90 the other way round: many segments of one transaction, aborted and committed."""
    configs = {"segment.bytes": "1048576", "segment.ms": "500"}
    world.create("small", configs=configs)
    producer = Producer(world, is_v2=True, topic="small").ready()
    kept: list[bytes] = []
    for committed in (False, True, False):
        for number in range(10):
            assert producer.send(0, b"%d" % number).error_code == OK
            world.pass_ms(600)
        kept += [b"%d" % number for number in range(10)] if committed else []
        producer.decide(committed)
        producer.settle()

    assert read(world, topic="small") == kept
    world.crash()
    assert read(world, topic="small") == kept
    assert read(world, topic="small", max_bytes=1, offset=5) == kept
