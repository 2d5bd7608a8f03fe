"""What a topic may be set to, and what is said when it may not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidConfig
from oncelog.core.topic_config import (
    LONG_MAX,
    TOPIC_SETTINGS,
    Kind,
    Setting,
    TopicConfig,
    render,
)


def configured(**overrides: str) -> TopicConfig:
    named = {name.replace("_", "."): value for name, value in overrides.items()}
    return TopicConfig.from_overrides(TopicConfig(), named)


# The defaults of Apache Kafka 4.3, as its documentation of topic settings gives them.
KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def test_defaults_are_those_of_kafka() -> None:
    shown = {name: render(found.default) for name, found in TOPIC_SETTINGS.items()}

    assert shown == KAFKA_DEFAULTS


def test_an_override_wins_over_the_brokers_default() -> None:
    defaults = TopicConfig(retention_ms=5, segment_bytes=100)

    config = TopicConfig.from_overrides(defaults, {"retention.ms": "60000"})

    assert (config.retention_ms, config.segment_bytes) == (60_000, 100)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("delete", ("delete",)),
        ("compact", ("compact",)),
        ("delete,compact", ("compact", "delete")),
        ("compact, delete", ("compact", "delete")),
        ("compact,compact", ("compact",)),
    ],
)
def test_a_cleanup_policy_has_one_form_however_it_is_written(
    text: str, policy: tuple[str, ...]
) -> None:
    assert configured(cleanup_policy=text).cleanup_policy == policy


def test_a_topic_knows_whether_it_is_compacted_and_whether_it_is_deleted() -> None:
    both = configured(cleanup_policy="compact,delete")

    assert (both.is_compacted, both.is_deleted) == (True, True)
    assert (TopicConfig().is_compacted, TopicConfig().is_deleted) == (False, True)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("retention.ms", "soon", "retention.ms takes a whole number of at least -1, not 'soon'."),
        ("retention.ms", "-2", "of at least -1"),
        ("retention.ms", "9223372036854775808", "of at least -1"),
        ("retention.ms", "1_000", "a whole number"),
        ("retention.ms", "١", "a whole number"),
        ("retention.ms", "", "a whole number"),
        ("retention.ms", "1" * 5000, "a whole number"),
        ("index.interval.bytes", "2147483648", "of at least 0"),
        ("min.cleanable.dirty.ratio", "1.5", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "a number from 0 to 1"),
        ("preallocate", "yes", "true or false"),
        ("cleanup.policy", "", "a list of compact or delete"),
        ("cleanup.policy", "delete,shred", "a list of compact or delete"),
        ("message.timestamp.type", "createtime", "CreateTime or LogAppendTime"),
        ("compression.type", "brotli", "zstd"),
        ("leader.replication.throttled.replicas", "one", "of the form"),
    ],
)
def test_a_bad_value_is_refused_with_its_bounds(name: str, value: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(says)) as refused:
        TopicConfig.from_overrides(TopicConfig(), {name: value})

    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("retention.sm", "Did you mean retention.ms?"),
        ("retention_ms", "Did you mean retention.ms?"),
        ("Cleanup.Policy", "Did you mean cleanup.policy?"),
        ("log.retention.ms", "a topic's is retention.ms"),
        ("message.max.bytes", "a topic's is max.message.bytes"),
        ("remote.storage.enable", "no tiered storage"),
        ("zzz", "There is no topic setting 'zzz'."),
    ],
)
def test_an_unknown_name_is_refused_with_a_suggestion(name: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(says)):
        TopicConfig.from_overrides(TopicConfig(), {name: "1"})


def test_compaction_lags_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"above max.compaction.lag.ms"):
        configured(min_compaction_lag_ms="10", max_compaction_lag_ms="9")


def values_of(found: Setting) -> st.SearchStrategy[str]:
    low = 0 if found.low is None else found.low
    match found.kind:
        case Kind.BOOLEAN:
            return st.sampled_from(["true", "false", "TRUE", " False "])
        case Kind.DOUBLE:
            return st.floats(low, found.high or 1).map(str)
        case Kind.INT | Kind.LONG:
            top = 2**31 - 1 if found.kind is Kind.INT else LONG_MAX
            return st.integers(int(low), top).map(str)
        case Kind.LIST if found.pattern:
            return st.lists(st.sampled_from(["*", "0:1", "12:3"])).map(",".join)
        case Kind.LIST:
            return st.lists(st.sampled_from(found.choices), min_size=1).map(",".join)
        case Kind.STRING:
            return st.sampled_from(found.choices)


@given(data=st.data(), name=st.sampled_from(sorted(TOPIC_SETTINGS)))
def test_every_value_in_bounds_is_taken_and_reads_back_the_same(
    data: st.DataObject, name: str
) -> None:
    found = TOPIC_SETTINGS[name]

    value = found.parse(data.draw(values_of(found)))

    assert found.parse(render(value) or "") == value
    assert type(value) is type(found.default)


def test_every_setting_is_documented_in_a_sentence() -> None:
    for found in TOPIC_SETTINGS.values():
        assert found.documentation.endswith("."), found.name
