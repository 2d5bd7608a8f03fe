"""Every option is read as Spark's Kafka source means it, and every mistake is a sentence."""

from typing import Any

import pytest

from oncelog.client.errors import ClientError
from oncelog.client.fetching import Isolation
from oncelog.core.types import TopicPartition
from oncelog.spark.planning import (
    Assign,
    AtOffsets,
    AtTime,
    AtTimes,
    End,
    Subscribe,
    SubscribePattern,
)
from oncelog.spark.source_options import check_for_batch, check_for_stream, parse_options

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def parsed(**options: str) -> Any:
    return parse_options({**SERVERS, "subscribe": "t", **options})


def test_little_needs_to_be_said() -> None:
    options = parsed()

    assert options.settings.bootstrap_servers == "127.0.0.1:9092"
    assert options.selection == Subscribe(("t",))
    assert (options.starting, options.ending) == (None, None)
    assert options.isolation is Isolation.READ_COMMITTED
    assert options.fail_on_data_loss
    assert not options.include_headers


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("subscribe", "a, b,a", Subscribe(("a", "b"))),
        ("SUBSCRIBEPATTERN", "orders-.*", SubscribePattern("orders-.*")),
        ("assign", '{"t": [1, 0]}', Assign((P0, P1))),
    ],
)
def test_what_is_read(name: str, value: str, meant: object) -> None:
    assert parse_options({**SERVERS, name: value}).selection == meant


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("startingOffsets", "Earliest", End.EARLIEST),
        ("startingOffsets", "latest", End.LATEST),
        ("startingOffsets", '{"t": {"0": 5, "1": -2}}', AtOffsets({P0: 5, P1: -2})),
        ("startingTimestamp", "1700000000000", AtTime(1700000000000)),
        ("startingOffsetsByTimestamp", '{"t": {"0": 7}}', AtTimes({P0: 7})),
    ],
)
def test_where_it_begins_and_ends(name: str, value: str, meant: object) -> None:
    assert parsed(**{name: value}).starting == meant
    assert parsed(**{name.replace("starting", "ending"): value}).ending == meant


def test_one_time_counts_more_than_times_and_times_more_than_offsets() -> None:
    both = {"startingOffsets": "latest", "startingOffsetsByTimestamp": '{"t": {"0": 7}}'}

    assert parsed(**both).starting == AtTimes({P0: 7})
    assert parsed(**both, startingTimestamp="9").starting == AtTime(9)


def test_limits_and_flags() -> None:
    options = parsed(
        maxOffsetsPerTrigger="10",
        minOffsetsPerTrigger="5",
        maxTriggerDelay="2m",
        minPartitions="3",
        maxRecordsPerPartition="7",
        failOnDataLoss="false",
        includeHeaders="TRUE",
        startingOffsetsByTimestampStrategy="latest",
        groupIdPrefix="meaningless",
    )

    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (10, 5)
    assert (options.min_partitions, options.max_records_per_partition) == (3, 7)
    assert options.max_trigger_delay_s == 120
    assert not options.fail_on_data_loss
    assert options.include_headers
    assert options.late_start_is_latest


def test_the_isolation_has_two_names() -> None:
    assert parsed(isolation="read_uncommitted").isolation is Isolation.READ_UNCOMMITTED
    kafkas = {"kafka.isolation.level": "read_uncommitted"}
    assert parsed(**kafkas).isolation is Isolation.READ_UNCOMMITTED
    with pytest.raises(ClientError, match="contradict"):
        parsed(isolation="read_committed", **kafkas)


def test_client_settings_are_passed_on() -> None:
    options = parsed(**{"kafka.client.id": "me", "kafka.request.timeout.ms": "2000"})

    assert (options.settings.client_id, options.settings.timeout_s) == ("me", 2.0)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"subscribe": "t"}, r"kafka\.bootstrap\.servers is missing"),
        ({**SERVERS}, "there is none"),
        ({**SERVERS, "subscribe": "t", "assign": "{}"}, "there is subscribe and assign"),
        ({**SERVERS, "subscribe": " , "}, "name a topic"),
        ({**SERVERS, "subscribePattern": "("}, "not a regular expression"),
        ({**SERVERS, "assign": "[1]"}, "assign cannot be read"),
        ({**SERVERS, "assign": '{"t": []}'}, "assign cannot be read"),
        ({**SERVERS, "assign": '{"t": [-1]}'}, "not the number of a partition"),
    ],
)
def test_what_cannot_be_read_from_is_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        parse_options(options)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("maxOffsetPerTrigger", "5", "maxOffsetsPerTrigger may be meant"),
        ("nonsense", "5", "there are subscribe"),
        ("maxOffsetsPerTrigger", "0", "maxOffsetsPerTrigger is '0': write a whole number above 0"),
        ("maxTriggerDelay", "soon", "write a duration"),
        ("failOnDataLoss", "maybe", "write true or false"),
        ("isolation", "serializable", "write read_committed or read_uncommitted"),
        ("startingOffsets", "first", "write earliest, latest, or offsets"),
        ("startingOffsets", '{"t": 5}', "instead of offsets"),
        ("startingOffsets", '{"t": {"0": -3}}', "cannot have the offset -3"),
        ("startingOffsets", '{"t": {"x": 3}}', "not the number of a partition"),
        ("startingOffsets", '{"t": {"0": true}}', "as its offset"),
        ("startingTimestamp", "yesterday", "milliseconds"),
        ("startingOffsetsByTimestamp", '{"t": {"0": -1}}', "cannot have"),
        ("startingOffsetsByTimestampStrategy", "guess", "write error or latest"),
        ("kafka.auto.offset.reset", "earliest", "say startingOffsets"),
        ("kafka.enable.auto.commit", "true", "no group is joined"),
        ("kafka.security.protocol", "PLAIN", "SASL_SSL"),
    ],
)
def test_mistakes_are_sentences(name: str, value: str, reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        parsed(**{name: value})


def test_a_batch_is_not_empty_by_definition() -> None:
    for ends in ({"startingOffsets": "latest"}, {"startingOffsets": '{"t": {"0": -1}}'}):
        with pytest.raises(ClientError, match="cannot be latest"):
            check_for_batch(parsed(**ends))
    with pytest.raises(ClientError, match="cannot be earliest"):
        check_for_batch(parsed(endingOffsets="earliest"))


def test_a_stream_has_no_end_and_limits_that_fit() -> None:
    with pytest.raises(ClientError, match="A stream has no end"):
        check_for_stream(parsed(endingOffsets="latest"))
    with pytest.raises(ClientError, match="above maxOffsetsPerTrigger"):
        check_for_stream(parsed(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4"))
