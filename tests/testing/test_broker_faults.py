"""`Broker.fault`: what goes wrong with a broker, for clients as users have them."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import oncelog
from oncelog.testing import (
    Fault,
    ImpossibleFault,
    clock_jump,
    cut,
    disk_full,
    failing_sync,
    fence,
    kill,
    lose_reply,
    pause,
    restart,
    slow_disk,
)
from tests.testing.plain import NoReply, Plain

TOPIC = "orders"
PATIENT = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "linger.ms": 0,
}


@pytest.fixture(scope="module", params=["thread", "process"])
def broker(request: pytest.FixtureRequest) -> Iterator[oncelog.Broker]:
    """Both kinds, used by all tests of this file: each heals what it broke."""
    settings = {"log.message.timestamp.type": "LogAppendTime"}
    with oncelog.Broker(settings, process=request.param == "process", faults=True) as running:
        yield running


@pytest.fixture(autouse=True)
def _healed(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "broker" in request.fixturenames:
        request.getfixturevalue("broker").heal()


def a_producer(broker: oncelog.Broker, **more: object) -> Producer:
    given = {name.replace("_", "."): value for name, value in more.items()}
    return Producer({**PATIENT, "bootstrap.servers": broker.bootstrap_servers, **given})


def send(producer: Producer, value: str, *, topic: str = TOPIC) -> None:
    """Send one record and wait until it is acknowledged; raises what it was refused with."""
    errors: list[KafkaError | None] = []
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    if errors[0] is not None:
        raise KafkaException(errors[0])


def committed_values(broker: oncelog.Broker, topic: str = TOPIC) -> list[str]:
    settings = {
        **{name: value for name, value in PATIENT.items() if name != "linger.ms"},
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "audit",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
    }
    with closing(Consumer(settings)) as consumer:
        place = TopicPartition(topic, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=20)
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[str] = []
        while consumer.position([place])[0].offset < end:
            for message in consumer.consume(100, timeout=0.1):
                assert message.error() is None
                found.append((message.value() or b"").decode())
        return found


# --- the network ----------------------------------------------------------------------------------


def test_a_commit_whose_reply_is_lost_has_happened(broker: oncelog.Broker) -> None:
    topic = "lost-reply"
    producer = a_producer(broker, transactional_id="lost-reply")
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, "1")
    assert producer.flush(20) == 0
    lost = broker.fault(lose_reply("EndTxn"))

    with pytest.raises(KafkaException) as told:
        producer.commit_transaction(0.5)

    assert told.value.args[0].code() == KafkaError._TIMED_OUT
    assert lost.hits == 1
    assert committed_values(broker, topic) == ["1"]
    lost.end()
    producer.commit_transaction(20)
    assert committed_values(broker, topic) == ["1"]


def test_a_cut_after_the_commit_is_seen_through_by_the_client(broker: oncelog.Broker) -> None:
    topic = "cut-after"
    producer = a_producer(broker, transactional_id="cut-after")
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, "1")
    with broker.fault(cut("EndTxn")) as happened:
        producer.commit_transaction(20)
    assert happened.hits == 1
    assert committed_values(broker, topic) == ["1"]


# --- the broker -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [restart(), kill()], ids=["restart", "kill"])
def test_a_broker_that_is_gone_and_back_has_what_it_acknowledged(
    fault: Fault, broker: oncelog.Broker
) -> None:
    topic = f"again-{fault.name}"
    producer = a_producer(broker, enable_idempotence=True)
    address = broker.bootstrap_servers
    for number in range(2):
        send(producer, f"{number}", topic=topic)
        assert broker.fault(fault).hits == 1
    send(producer, "2", topic=topic)
    assert broker.bootstrap_servers == address
    assert committed_values(broker, topic) == ["0", "1", "2"]


def test_a_kill_in_the_middle_of_a_transaction_is_recovered(broker: oncelog.Broker) -> None:
    topic = "kill-open"
    producer = a_producer(broker, transactional_id="kill-open")
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, "1")
    assert producer.flush(20) == 0
    broker.fault(kill())
    producer.produce(topic, "2")
    producer.commit_transaction(20)
    assert committed_values(broker, topic) == ["1", "2"]


def test_whoever_holds_an_id_is_fenced(broker: oncelog.Broker) -> None:
    producer = a_producer(broker, transactional_id="mine")
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("fenced", "1")
    assert producer.flush(20) == 0

    assert broker.fault(fence("mine")).hits == 1

    with pytest.raises(KafkaException) as told:
        producer.commit_transaction(20)
    assert told.value.args[0].code() == KafkaError._FENCED
    assert committed_values(broker, "fenced") == []


def test_a_paused_broker_says_nothing_until_it_goes_on() -> None:
    with oncelog.Broker(process=True) as broker, Plain(broker.bootstrap_servers) as plain:
        with broker.fault(pause()) as paused:
            with pytest.raises(NoReply):
                plain.metadata(within_s=0.3)
            assert paused.hits == 1
        assert plain.reply()
        broker.fault(pause(seconds=0.2))
        began = time.monotonic()
        plain.metadata()
        assert 0.1 < time.monotonic() - began < 10


# --- the machine ----------------------------------------------------------------------------------


def test_a_full_disk_takes_nothing_until_there_is_room(broker: oncelog.Broker) -> None:
    producer = a_producer(broker, enable_idempotence=True)
    send(producer, "1", topic="full")
    with broker.fault(disk_full("full-0/*")) as full:
        producer.produce("full", "2")
        full.wait()
        assert producer.flush(0.2) == 1
        send(a_producer(broker), "1", topic="roomy")
    assert producer.flush(20) == 0
    assert committed_values(broker, "full") == ["1", "2"]


def test_a_slow_disk_lets_everybody_wait(broker: oncelog.Broker) -> None:
    producer = a_producer(broker)
    send(producer, "1", topic="slow")
    with broker.fault(slow_disk(seconds=0.5, paths="slow-0/*")) as slow:
        began = time.monotonic()
        send(producer, "2", topic="slow")
        took_s = time.monotonic() - began
    assert slow.hits >= 1
    assert took_s >= 0.5


def test_after_a_failed_sync_the_log_is_closed_until_a_restart(broker: oncelog.Broker) -> None:
    producer = a_producer(broker, message_timeout_ms=1000)
    send(producer, "1", topic="failing")
    failed = broker.fault(failing_sync("failing-0/*"))
    for value in ("2", "3"):
        with pytest.raises(KafkaException):
            send(producer, value, topic="failing")
    assert failed.hits == 1

    broker.fault(restart())

    send(a_producer(broker), "4", topic="failing")
    values = committed_values(broker, "failing")
    assert (values[0], values[-1]) == ("1", "4")
    # What was written and not synced may be there: nobody was told either way.
    assert set(values) <= {"1", "2", "4"}


def append_time_s(broker: oncelog.Broker, producer: Producer) -> float:
    """What the broker takes the time for."""
    times: list[int] = []
    producer.produce("clock", "?", on_delivery=lambda _, told: times.append(told.timestamp()[1]))
    assert producer.flush(20) == 0
    return times[0] / 1000


def test_a_clock_that_jumps_is_wrong_until_it_jumps_back(broker: oncelog.Broker) -> None:
    producer = a_producer(broker)
    hour_s = 3600
    with broker.fault(clock_jump(hours=1)) as jumped:
        ahead_s = append_time_s(broker, producer) - time.time()
        broker.fault(restart())
        still_ahead_s = append_time_s(broker, producer) - time.time()
        with broker.fault(clock_jump(hours=-2)):
            behind_s = append_time_s(broker, producer) - time.time()
    assert jumped.hits == 1
    right_s = append_time_s(broker, producer) - time.time()
    assert ahead_s == pytest.approx(hour_s, abs=30)
    assert still_ahead_s == pytest.approx(hour_s, abs=30)
    assert behind_s == pytest.approx(-hour_s, abs=30)
    assert right_s == pytest.approx(0, abs=30)


def test_what_is_wrong_with_the_machine_outlives_a_restart(broker: oncelog.Broker) -> None:
    producer = a_producer(broker, enable_idempotence=True)
    send(producer, "1", topic="still-full")
    with broker.fault(disk_full("still-full-0/*.log")) as full:
        producer.produce("still-full", "2")
        full.wait()
        broker.fault(kill())
        full.wait(full.hits + 1)
        assert producer.flush(0.1) == 1
    assert producer.flush(20) == 0
    assert committed_values(broker, "still-full") == ["1", "2"]


# --- what is not possible ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (lose_reply("EndTxn"), "lose_reply needs a broker with faults: Broker(faults=True)."),
        (disk_full(), "disk_full needs a broker with faults: Broker(faults=True)."),
        (clock_jump(hours=1), "clock_jump needs a broker with faults: Broker(faults=True)."),
        (pause(seconds=1), "Broker(process=True)"),
        (kill(), "start it with process=True, or with faults=True"),
    ],
)
def test_a_fault_that_is_not_possible_says_what_would_make_it_so(
    fault: Fault, sentence: str
) -> None:
    with oncelog.Broker() as broker, pytest.raises(ImpossibleFault) as refused:
        broker.fault(fault)
    assert sentence in str(refused.value)


def test_faults_of_nothing_are_refused() -> None:
    for wrong in (
        lambda: clock_jump(),
        lambda: pause(seconds=0),
        lambda: fence(""),
        lambda: slow_disk(seconds=-1),
    ):
        with pytest.raises(ImpossibleFault):
            wrong()


def test_a_broker_on_the_callers_loop_takes_faults_from_another_thread() -> None:
    async def main() -> list[int]:
        async with oncelog.Broker(faults=True) as broker:
            for fault in (restart(), fence("any")):
                with pytest.raises(ImpossibleFault, match=r"asyncio\.to_thread"):
                    broker.fault(fault)
            done = [
                await asyncio.to_thread(broker.fault, fault) for fault in (restart(), fence("any"))
            ]
            return [each.hits for each in done]

    assert asyncio.run(main()) == [1, 1]


@pytest.mark.oncelog(settings={"num.partitions": "3"}, process=True)
def test_the_fixture_has_faults_and_takes_a_marker(oncelog_broker: oncelog.Broker) -> None:
    with Plain(oncelog_broker.bootstrap_servers) as plain:
        lost = oncelog_broker.fault(lose_reply("Metadata"))
        with pytest.raises(NoReply):
            plain.metadata(within_s=0.2)
    assert lost.hits == 1
    assert oncelog_broker.fault(kill()).hits == 1
    producer = a_producer(oncelog_broker)
    assert len(producer.list_topics("new", timeout=20).topics["new"].partitions) == 3
