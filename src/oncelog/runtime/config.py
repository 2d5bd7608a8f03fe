"""The settings of a broker, and where they come from.

Each later source wins: defaults, a TOML file, the environment, `--set name=value`. Settings carry
Kafka's names where they mean what Kafka means; ours begin with `oncelog.`. Nothing is ignored:
an unknown name or a bad value stops the start with a sentence that says where it stands.

    [log.retention]             ONCELOG_LOG_RETENTION_MS=60000
    ms = 60000                  --set log.retention.ms=60000
"""

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from oncelog.core.errors import InvalidConfig
from oncelog.core.topic_config import (
    INT_MAX,
    LONG_MAX,
    TOPIC_SETTINGS,
    Kind,
    Setting,
    TopicConfig,
    nearest,
    setting,
    settings_of,
)

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What one broker is set to, defaults included."""

    # --- who we are ---

    node_id: int = setting(
        Kind.INT, 1, "The number by which clients and other brokers know this broker.", low=0
    )
    cluster_id: str | None = setting(
        Kind.STRING,
        None,
        "The cluster's name on the wire; drawn at the first start and kept if it is not set.",
        pattern="[A-Za-z0-9_-]{1,64}",
    )

    # --- topics ---

    num_partitions: int = setting(
        Kind.INT, 1, "How many partitions a topic gets when nobody says.", low=1
    )
    default_replication_factor: int = setting(
        Kind.INT, 1, "How many replicas a topic gets when nobody says.", low=1, high=32767
    )
    auto_create_topics_enable: bool = setting(
        Kind.BOOLEAN, True, "Whether the first use of an unknown topic creates it."
    )
    delete_topic_enable: bool = setting(
        Kind.BOOLEAN, True, "Whether topics can be deleted by clients."
    )
    oncelog_partitions_max: int = setting(
        Kind.INT,
        20_000,
        "How many partitions the broker holds at most; a request for more is refused.",
        low=1,
    )

    # --- defaults of topic settings ---

    compression_type: str = setting(
        Kind.STRING,
        "producer",
        "The codec in which batches are stored; producer keeps whatever the client sent.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    )
    log_cleaner_delete_retention_ms: int = setting(
        Kind.LONG,
        86_400_000,
        "How long compaction keeps tombstones and transaction markers.",
        low=0,
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        Kind.LONG,
        LONG_MAX,
        "The longest that a record may wait before compaction looks at it.",
        low=1,
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        Kind.DOUBLE,
        0.5,
        "The share of a log that must be new since the last compaction before the next one.",
        low=0,
        high=1,
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        Kind.LONG,
        0,
        "How long every record stays in the log before compaction may drop it.",
        low=0,
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        Kind.LIST,
        ("delete",),
        "What happens to old records: delete drops whole segments, compact keeps the last record "
        "of each key.",
        choices=("compact", "delete"),
    )
    log_flush_interval_messages: int = setting(
        Kind.LONG,
        LONG_MAX,
        "Sync a log after this many records, even with oncelog.flush=os.",
        low=1,
    )
    log_flush_interval_ms: int = setting(
        Kind.LONG,
        LONG_MAX,
        "Sync a log when its oldest unsynced record is this old, even with oncelog.flush=os.",
        low=0,
    )
    log_index_interval_bytes: int = setting(
        Kind.INT,
        4096,
        "How many bytes of log lie between two entries of the offset index.",
        low=0,
    )
    log_index_size_max_bytes: int = setting(
        Kind.INT,
        10_485_760,
        "The size at which an offset index is full, which closes its segment.",
        low=4,
    )
    log_message_timestamp_after_max_ms: int = setting(
        Kind.LONG,
        HOUR_MS,
        "How far a record's timestamp may lie ahead of the broker's clock.",
        low=0,
    )
    log_message_timestamp_before_max_ms: int = setting(
        Kind.LONG,
        LONG_MAX,
        "How far a record's timestamp may lie behind the broker's clock.",
        low=0,
    )
    log_message_timestamp_type: str = setting(
        Kind.STRING,
        "CreateTime",
        "Whose clock stamps a record: the producer's (CreateTime) or the broker's (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
    )
    log_preallocate: bool = setting(
        Kind.BOOLEAN, False, "Whether a new segment's file is given its full size at once."
    )
    log_retention_bytes: int = setting(
        Kind.LONG,
        -1,
        "How large a partition may grow before its oldest segments are dropped; -1 for no limit.",
        low=-1,
    )
    log_retention_ms: int | None = setting(
        Kind.LONG,
        None,
        "How long records are kept at least; -1 for ever. Unset: log.retention.minutes counts.",
        low=-1,
    )
    log_retention_minutes: int | None = setting(
        Kind.INT,
        None,
        "How many minutes records are kept at least; -1 for ever. Unset: log.retention.hours "
        "counts.",
        low=-1,
    )
    log_retention_hours: int = setting(
        Kind.INT, 168, "How many hours records are kept at least; -1 for ever.", low=-1
    )
    log_roll_ms: int | None = setting(
        Kind.LONG,
        None,
        "The age at which a segment is closed. Unset: log.roll.hours counts.",
        low=1,
    )
    log_roll_hours: int = setting(
        Kind.INT, 168, "The age in hours at which a segment is closed.", low=1
    )
    log_roll_jitter_ms: int | None = setting(
        Kind.LONG,
        None,
        "Up to this much is taken off the rolling age at random. Unset: log.roll.jitter.hours "
        "counts.",
        low=0,
    )
    log_roll_jitter_hours: int = setting(
        Kind.INT, 0, "Up to this many hours are taken off the rolling age at random.", low=0
    )
    log_segment_bytes: int = setting(
        Kind.INT,
        1_073_741_824,
        "The size at which a segment is closed and the next one begun.",
        low=14,
    )
    log_segment_delete_delay_ms: int = setting(
        Kind.LONG,
        MINUTE_MS,
        "How long the files of a dropped segment stay on disk after they left the log.",
        low=0,
    )
    message_max_bytes: int = setting(
        Kind.INT, 1_048_588, "The largest record batch that is accepted, as it is sent.", low=0
    )
    min_insync_replicas: int = setting(
        Kind.INT,
        1,
        "How many in-sync replicas must hold a record before acks=all is answered.",
        low=1,
    )
    unclean_leader_election_enable: bool = setting(
        Kind.BOOLEAN,
        False,
        "Whether a replica that has fallen behind may lead when no other is left.",
    )

    # --- the log ---

    oncelog_flush: str = setting(
        Kind.STRING,
        "sync",
        "When acks=all is answered: sync waits until the disk has the record, os leaves it in the "
        "page cache, as Kafka does.",
        choices=("sync", "os"),
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        Kind.INT,
        MINUTE_MS,
        "How often the point up to which each log is synced is written down.",
        low=1,
    )
    log_retention_check_interval_ms: int = setting(
        Kind.LONG, 300_000, "How often the broker looks for segments to drop.", low=1
    )

    # --- producers and transactions ---

    producer_id_expiration_ms: int = setting(
        Kind.INT,
        86_400_000,
        "How long a partition remembers a producer that has gone quiet.",
        low=1,
    )
    producer_id_expiration_check_interval_ms: int = setting(
        Kind.INT, 600_000, "How often quiet producers are looked for.", low=1
    )
    transactional_id_expiration_ms: int = setting(
        Kind.INT, 604_800_000, "How long an unused transactional id is remembered.", low=1
    )
    transaction_max_timeout_ms: int = setting(
        Kind.INT, 900_000, "The longest transaction timeout that a producer may ask for.", low=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        Kind.INT, 10_000, "How often transactions that outlived their timeout are aborted.", low=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        Kind.INT, 3_600_000, "How often unused transactional ids are looked for.", low=1
    )
    transaction_two_phase_commit_enable: bool = setting(
        Kind.BOOLEAN,
        False,
        "Whether producers may prepare a transaction and leave its outcome open (KIP-939).",
    )
    oncelog_shard_rewrite_bytes: int = setting(
        Kind.INT,
        4_194_304,
        "From which size on the logs of groups, transactions and metadata are rewritten to their "
        "present state.",
        low=1,
    )
    oncelog_transaction_busy_wait_ms: int = setting(
        Kind.INT,
        2_000,
        "How long a request waits for the markers of the last transaction before it is answered "
        "CONCURRENT_TRANSACTIONS; 0 answers at once, as Kafka does.",
        low=0,
    )
    transaction_partition_verification_enable: bool = setting(
        Kind.BOOLEAN,
        True,
        "Whether a transactional batch of an older client is checked against its transaction.",
    )
    transaction_state_log_num_partitions: int = setting(
        Kind.INT,
        50,
        "How many partitions the transaction log has; fixed once it exists.",
        low=1,
    )
    transaction_state_log_replication_factor: int = setting(
        Kind.INT, 1, "How many replicas the transaction log has.", low=1, high=32767
    )
    transaction_state_log_min_isr: int = setting(
        Kind.INT, 1, "How many in-sync replicas must hold a change of the transaction log.", low=1
    )
    transaction_state_log_segment_bytes: int = setting(
        Kind.INT, 104_857_600, "The segment size of the transaction log.", low=14
    )
    transaction_state_log_load_buffer_size: int = setting(
        Kind.INT,
        5_242_880,
        "How many bytes are read at once when the transaction log is replayed.",
        low=1,
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        Kind.INT,
        20,
        "How long the broker waits before it tries again to add a partition to a transaction.",
        low=1,
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        Kind.INT,
        100,
        "How long the broker goes on trying to add a partition before the client has to.",
        low=0,
    )

    # --- groups ---

    offsets_topic_num_partitions: int = setting(
        Kind.INT,
        50,
        "How many partitions __consumer_offsets has; fixed once it exists.",
        low=1,
    )
    offsets_topic_replication_factor: int = setting(
        Kind.INT, 1, "How many replicas __consumer_offsets has.", low=1, high=32767
    )
    offsets_topic_segment_bytes: int = setting(
        Kind.INT, 104_857_600, "The segment size of __consumer_offsets.", low=14
    )
    offsets_retention_minutes: int = setting(
        Kind.INT,
        10_080,
        "How many minutes the offsets of a group without members are kept.",
        low=1,
    )
    offsets_retention_check_interval_ms: int = setting(
        Kind.LONG, 600_000, "How often old offsets are looked for.", low=1
    )
    offset_metadata_max_bytes: int = setting(
        Kind.INT, 4096, "The longest note that may accompany a committed offset.", low=0
    )
    group_initial_rebalance_delay_ms: int = setting(
        Kind.INT,
        3000,
        "How long an empty group waits for more members before its first assignment.",
        low=0,
    )
    group_min_session_timeout_ms: int = setting(
        Kind.INT, 6000, "The shortest session timeout that a member may ask for.", low=0
    )
    group_max_session_timeout_ms: int = setting(
        Kind.INT, 1_800_000, "The longest session timeout that a member may ask for.", low=0
    )
    group_max_size: int = setting(
        Kind.INT, INT_MAX, "How many members a group takes at most.", low=1
    )

    # --- connections and requests ---

    max_connections: int = setting(
        Kind.INT,
        10_000,
        "How many connections are open at once; further ones are closed as they come.",
        low=1,
    )
    connections_max_idle_ms: int = setting(
        Kind.LONG,
        600_000,
        "How long a connection may be silent before it is closed; -1 for ever.",
        low=-1,
    )
    socket_request_max_bytes: int = setting(
        Kind.INT, 104_857_600, "The largest request that is read.", low=1
    )
    request_timeout_ms: int = setting(
        Kind.INT, 30_000, "How long the broker waits for its own and other brokers' answers.", low=1
    )
    fetch_max_bytes: int = setting(
        Kind.INT, 57_671_680, "The most that one fetch brings back, whatever it asks for.", low=1024
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        Kind.INT, 1000, "How many fetch sessions are remembered (KIP-227).", low=0
    )
    oncelog_queued_requests_max: int = setting(
        Kind.INT,
        100,
        "How many requests of one connection wait for their answers before we stop reading from "
        "it.",
        low=1,
    )
    oncelog_half_frame_timeout_ms: int = setting(
        Kind.INT,
        30_000,
        "How long the rest of a request may take once its first byte is here; then the connection "
        "is closed.",
        low=1,
    )
    oncelog_write_stall_timeout_ms: int = setting(
        Kind.INT,
        60_000,
        "How long a client may leave its answers unread before its connection is closed.",
        low=1,
    )

    #: Where each value that is not a default came from, for DescribeConfigs and error messages.
    origins: Mapping[str, str] = dataclasses.field(
        default_factory=dict, compare=False, hash=False, repr=False
    )

    def topic_defaults(self) -> TopicConfig:
        """What a topic is set to when it says nothing itself."""
        values: dict[str, Any] = {
            topic.attribute: getattr(self, topic.synonym.replace(".", "_"))
            for topic in TOPIC_SETTINGS.values()
            if topic.synonym is not None
        }
        values["retention_ms"] = self._retention_ms()
        if self.log_roll_ms is None:
            values["segment_ms"] = self.log_roll_hours * HOUR_MS
        if self.log_roll_jitter_ms is None:
            values["segment_jitter_ms"] = self.log_roll_jitter_hours * HOUR_MS
        return TopicConfig(**values)

    def _retention_ms(self) -> int:
        """The finest unit that is set counts, as in Kafka; less than nothing means for ever."""
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return max(self.log_retention_minutes * MINUTE_MS, -1)
        return max(self.log_retention_hours * HOUR_MS, -1)

    def with_values(self, values: Mapping[str, str], *, origin: str) -> "BrokerConfig":
        """The same settings with some of them set anew; `origin` begins the error sentence."""
        changes: dict[str, Any] = {}
        for name, text in values.items():
            try:
                found = broker_setting(name)
                changes[found.attribute] = found.parse(text)
            except InvalidConfig as error:
                raise InvalidConfig(f"{origin}: {error}") from None
        came_from = MappingProxyType({**self.origins, **dict.fromkeys(values, origin)})
        return dataclasses.replace(self, **changes, origins=came_from)

    def checked(self) -> "BrokerConfig":
        """The same settings, if they agree with each other."""
        for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
            if getattr(self, BROKER_SETTINGS[name].attribute) == 0:
                raise InvalidConfig(f"{self._named(name)} is 0; it takes -1 (for ever) or more.")
        for lesser, greater in _ORDERED:
            low = getattr(self, BROKER_SETTINGS[lesser].attribute)
            high = getattr(self, BROKER_SETTINGS[greater].attribute)
            if low > high:
                raise InvalidConfig(
                    f"{self._named(lesser)} is {low}, which is above {self._named(greater)}, {high}."
                )
        return self

    def _named(self, name: str) -> str:
        origin = self.origins.get(name)
        return f"{name} ({origin})" if origin else name


#: Every broker setting by name.
BROKER_SETTINGS: Final[Mapping[str, Setting]] = settings_of(BrokerConfig)

_ORDERED: Final = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
)

#: Kafka's names for what is said otherwise here.
_ELSEWHERE: Final[Mapping[str, str]] = {
    "listeners": "say --listen HOST:PORT",
    "advertised.listeners": "say --advertise HOST:PORT",
    "log.dir": "say --data DIR",
    "log.dirs": "say --data DIR",
    "broker.id": "it is called node.id",
    "process.roles": "a broker keeps its own metadata",
    "controller.quorum.voters": "a broker keeps its own metadata",
    "controller.quorum.bootstrap.servers": "a broker keeps its own metadata",
    "log.message.format.version": "record batches are always stored in format 2",
    "flush": "it is called oncelog.flush",
}

#: Variables that begin with ONCELOG_ and are not settings of the broker.
OTHER_VARIABLES: Final[Mapping[str, str]] = {
    "ONCELOG_BOOTSTRAP": "the broker that the command line talks to",
}

#: Variables of the test suite and the benchmarks begin with these and are left to them.
OTHER_PREFIXES: Final = ("ONCELOG_TEST_", "ONCELOG_BENCH_")


def broker_setting(name: str) -> Setting:
    """The setting of this name; an unknown name raises `InvalidConfig` and suggests another."""
    if found := BROKER_SETTINGS.get(name):
        return found
    if where := _ELSEWHERE.get(name):
        raise InvalidConfig(f"{name} is not set here: {where}.")
    topic = TOPIC_SETTINGS.get(name)
    if topic is not None and topic.synonym is not None:
        raise InvalidConfig(f"{name} is a setting of a topic; the broker's is {topic.synonym}.")
    hint = nearest(name, BROKER_SETTINGS)
    raise InvalidConfig(f"there is no broker setting {name!r}.{hint}")


def load_config(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
    assignments: Sequence[str] = (),
) -> BrokerConfig:
    """Put the sources together, each over the one before it, and check the whole."""
    config = BrokerConfig()
    if file is not None:
        config = config.with_values(read_file(file), origin=str(file))
    for variable, name, text in _read_environment(environment):
        config = config.with_values({name: text}, origin=variable)
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise InvalidConfig(f"--set {assignment}: write it as name=value.")
        config = config.with_values({name.strip(): text}, origin=f"--set {assignment}")
    return config.checked()


# --- the file -------------------------------------------------------------------------------


def read_file(file: Path) -> dict[str, str]:
    """The settings of a TOML file; `[log.retention] ms = 1` and `log.retention.ms = 1` are one."""
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig(f"{file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{file} is not UTF-8: {error.reason} at {error.start}.") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(f"{file} is not TOML: {error}.") from error
    return dict(_flatten(tables, "", file))


def _flatten(table: Mapping[str, object], prefix: str, file: Path) -> Iterable[tuple[str, str]]:
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict):
            yield from _flatten(value, f"{name}.", file)
        else:
            yield name, _toml_text(name, value, file)


def _toml_text(name: str, value: object, file: Path) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case list() if all(isinstance(item, str) for item in value):
            return ",".join(value)
        case _:
            raise InvalidConfig(f"{file}: {name} is neither text, number, true, false nor a list.")


# --- the environment ------------------------------------------------------------------------


def variable_name(name: str) -> str:
    """`log.retention.ms` is ONCELOG_LOG_RETENTION_MS, and `oncelog.flush` ONCELOG_FLUSH."""
    return "ONCELOG_" + name.removeprefix("oncelog.").replace(".", "_").upper()


def _read_environment(environment: Mapping[str, str]) -> Iterable[tuple[str, str, str]]:
    names = {variable_name(name): name for name in BROKER_SETTINGS}
    for variable, text in sorted(environment.items()):
        if not variable.startswith("ONCELOG_") or variable.startswith(OTHER_PREFIXES):
            continue
        if variable in names:
            yield variable, names[variable], text
        elif variable not in OTHER_VARIABLES:
            close = nearest(
                variable.removeprefix("ONCELOG_").lower().replace("_", "."), BROKER_SETTINGS
            )
            raise InvalidConfig(f"{variable} is set, but there is no such setting.{close}")
