"""A broker's settings: their defaults, their sources, and what is refused."""

import re
from pathlib import Path

import pytest

from oncelog.core.errors import InvalidConfig
from oncelog.core.topic_config import TOPIC_SETTINGS, TopicConfig, render
from oncelog.runtime.config import (
    BROKER_SETTINGS,
    BrokerConfig,
    load_config,
    read_file,
    variable_name,
)


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "broker.toml"


# --- defaults -------------------------------------------------------------------------------

# Apache Kafka 4.3's own defaults, where we keep them.
KAFKA_DEFAULTS = {
    "auto.create.topics.enable": "true",
    "num.partitions": "1",
    "log.retention.hours": "168",
    "log.retention.minutes": None,
    "log.retention.ms": None,
    "log.retention.check.interval.ms": "300000",
    "log.roll.hours": "168",
    "message.max.bytes": "1048588",
    "socket.request.max.bytes": "104857600",
    "connections.max.idle.ms": "600000",
    "fetch.max.bytes": "57671680",
    "max.incremental.fetch.session.cache.slots": "1000",
    "producer.id.expiration.ms": "86400000",
    "producer.id.expiration.check.interval.ms": "600000",
    "offsets.topic.num.partitions": "50",
    "offsets.retention.minutes": "10080",
    "offsets.retention.check.interval.ms": "600000",
    "offset.metadata.max.bytes": "4096",
    "group.initial.rebalance.delay.ms": "3000",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
    "group.max.size": "2147483647",
    "transaction.max.timeout.ms": "900000",
    "transactional.id.expiration.ms": "604800000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "3600000",
    "transaction.two.phase.commit.enable": "false",
    "transaction.state.log.num.partitions": "50",
    "transaction.state.log.segment.bytes": "104857600",
    "transaction.partition.verification.enable": "true",
    "add.partitions.to.txn.retry.backoff.ms": "20",
    "add.partitions.to.txn.retry.backoff.max.ms": "100",
    "request.timeout.ms": "30000",
}


def test_defaults_are_those_of_kafka() -> None:
    shown = {name: render(BROKER_SETTINGS[name].default) for name in KAFKA_DEFAULTS}

    assert shown == KAFKA_DEFAULTS


def test_a_topic_of_a_default_broker_has_the_default_settings() -> None:
    assert BrokerConfig().topic_defaults() == TopicConfig()


def test_every_topic_default_is_a_setting_of_the_broker_with_the_same_bounds() -> None:
    for topic in TOPIC_SETTINGS.values():
        if topic.synonym is not None:
            ours = BROKER_SETTINGS[topic.synonym]
            same = (ours.kind, ours.low, ours.high, ours.choices)
            assert same == (topic.kind, topic.low, topic.high, topic.choices), topic.name


# --- what topics inherit --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignments", "retention_ms"),
    [
        ([], 168 * 3_600_000),
        (["log.retention.hours=2"], 7_200_000),
        (["log.retention.hours=2", "log.retention.minutes=3"], 180_000),
        (["log.retention.minutes=3", "log.retention.ms=4"], 4),
        (["log.retention.hours=-1"], -1),
        (["log.retention.minutes=-1"], -1),
        (["log.retention.ms=-1", "log.retention.hours=2"], -1),
    ],
)
def test_the_finest_unit_of_retention_counts(assignments: list[str], retention_ms: int) -> None:
    config = load_config(assignments=assignments)

    assert config.topic_defaults().retention_ms == retention_ms


def test_the_finer_unit_of_rolling_counts() -> None:
    config = load_config(
        assignments=["log.roll.hours=1", "log.roll.jitter.hours=2", "log.roll.ms=9"]
    )

    assert config.topic_defaults().segment_ms == 9
    assert config.topic_defaults().segment_jitter_ms == 7_200_000


def test_topics_inherit_what_the_broker_sets() -> None:
    config = load_config(assignments=["message.max.bytes=99", "log.cleanup.policy=compact"])

    assert config.topic_defaults().max_message_bytes == 99
    assert config.topic_defaults().is_compacted


# --- sources --------------------------------------------------------------------------------


def test_later_sources_win(toml: Path) -> None:
    toml.write_text('num.partitions = 2\n"log.retention.ms" = 2\n[log.segment]\nbytes = 2000\n')
    environment = {"ONCELOG_LOG_RETENTION_MS": "3", "ONCELOG_LOG_SEGMENT_BYTES": "3000"}

    config = load_config(file=toml, environment=environment, assignments=["log.segment.bytes=4000"])

    assert config.num_partitions == 2
    assert config.log_retention_ms == 3
    assert config.log_segment_bytes == 4000


def test_a_value_remembers_where_it_came_from(toml: Path) -> None:
    toml.write_text("num.partitions = 2")

    config = load_config(file=toml, assignments=["node.id=7"])

    assert config.origins == {"num.partitions": str(toml), "node.id": "--set node.id=7"}


def test_a_file_may_use_the_types_of_toml(toml: Path) -> None:
    toml.write_text(
        "auto.create.topics.enable = false\n"
        'log.cleanup.policy = ["delete", "compact"]\n'
        "log.cleaner.min.cleanable.ratio = 0.25\n"
        'oncelog.flush = "os"\n'
    )

    config = load_config(file=toml)

    assert not config.auto_create_topics_enable
    assert config.log_cleanup_policy == ("compact", "delete")
    assert config.log_cleaner_min_cleanable_ratio == 0.25
    assert config.oncelog_flush == "os"


def test_our_own_settings_have_short_variables() -> None:
    assert load_config(environment={"ONCELOG_FLUSH": "os"}).oncelog_flush == "os"


def test_variables_of_others_are_left_alone() -> None:
    environment = {"PATH": "/bin", "ONCELOG_BOOTSTRAP": "a:1", "ONCELOG_TEST_SEED": "7"}

    assert load_config(environment=environment) == BrokerConfig()


def test_every_setting_has_a_variable_of_its_own() -> None:
    variables = {variable_name(name) for name in BROKER_SETTINGS}

    assert len(variables) == len(BROKER_SETTINGS)


def test_every_setting_can_stand_in_one_file(toml: Path) -> None:
    # A TOML key is a value or a table, so no name may be the beginning of another.
    given = {name: render(found.default) or "1" for name, found in BROKER_SETTINGS.items()}
    toml.write_text("".join(f'{name} = "{text}"\n' for name, text in given.items()))

    assert read_file(toml) == given


# --- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("log.retention.msec=1", "Did you mean log.retention.ms?"),
        ("log_retention_ms=1", "Did you mean log.retention.ms?"),
        ("retention.ms=1", "the broker's is log.retention.ms"),
        ("listeners=PLAINTEXT://:9092", "say --listen HOST:PORT"),
        ("flush=os", "it is called oncelog.flush"),
        ("oncelog.flush=never", "--set oncelog.flush=never: oncelog.flush takes sync or os"),
        ("num.partitions=0", "takes a whole number of at least 1, not '0'"),
        ("cluster.id=a b", "of the form"),
        ("num.partitions", "write it as name=value"),
        ("log.retention.hours=0", "it takes -1 (for ever) or more"),
        ("group.min.session.timeout.ms=1800001", "above group.max.session.timeout.ms"),
    ],
)
def test_a_bad_assignment_is_refused_with_a_sentence(assignment: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(says)):
        load_config(assignments=[assignment])


def test_a_misspelled_variable_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"ONCELOG_LOG_RETENTION_MSEC.*mean log\.retention\.ms"):
        load_config(environment={"ONCELOG_LOG_RETENTION_MSEC": "1"})


def test_a_bad_value_names_its_variable() -> None:
    with pytest.raises(InvalidConfig, match=r"^ONCELOG_NUM_PARTITIONS: num\.partitions takes"):
        load_config(environment={"ONCELOG_NUM_PARTITIONS": "many"})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("num.partitions = 0", "num.partitions takes a whole number"),
        ("num.partition = 1", "Did you mean num.partitions?"),
        ("num.partitions = ", "is not TOML"),
        ("num.partitions = 2024-01-01", "is neither text, number"),
        ("[[num.partitions]]", "is neither text, number"),
    ],
)
def test_a_bad_file_is_refused_by_name(toml: Path, content: str, says: str) -> None:
    toml.write_text(content)

    with pytest.raises(InvalidConfig, match=re.escape(says)) as refused:
        load_config(file=toml)

    assert str(toml) in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read: No such file"):
        load_config(file=tmp_path / "absent.toml")


def test_a_file_that_is_not_text_is_refused(toml: Path) -> None:
    toml.write_bytes(b"\xff\xfe")

    with pytest.raises(InvalidConfig, match="is not UTF-8"):
        load_config(file=toml)


def test_every_setting_is_documented_in_a_sentence() -> None:
    for found in BROKER_SETTINGS.values():
        assert found.documentation.endswith("."), found.name
