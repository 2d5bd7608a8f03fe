"""The settings of a topic: one typed attribute each, declared once with bounds and documentation.

An attribute carries Kafka's name with underscores for dots: `retention.ms` is `retention_ms`. The
broker's own settings (`runtime/config.py`) are declared with the same `setting` and give every topic
its defaults; `synonym` is the broker-level name of that default.
"""

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from oncelog.core.errors import InvalidConfig

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class Kind(Enum):
    """How a setting's text is read; the names are those that DescribeConfigs reports."""

    BOOLEAN = auto()
    STRING = auto()
    INT = auto()
    LONG = auto()
    DOUBLE = auto()
    LIST = auto()


_LIMITS: Final = {Kind.INT: (-INT_MAX - 1, INT_MAX), Kind.LONG: (-LONG_MAX - 1, LONG_MAX)}
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: its name, how its text is read, what it may be, and what it is for."""

    name: str
    kind: Kind
    default: Value
    documentation: str
    low: int | float | None = None
    high: int | float | None = None
    choices: tuple[str, ...] = ()
    pattern: str | None = None
    synonym: str | None = None

    @property
    def attribute(self) -> str:
        """The attribute that holds its value."""
        return self.name.replace(".", "_")

    @property
    def takes(self) -> str:
        """What a value may be, in words that follow "takes"."""
        if self.kind is Kind.BOOLEAN:
            return "true or false"
        if self.choices:
            return ("a list of " if self.kind is Kind.LIST else "") + " or ".join(self.choices)
        if self.pattern:
            return f"text of the form {self.pattern}"
        noun = {Kind.DOUBLE: "a number", Kind.STRING: "text", Kind.LIST: "a list"}
        return noun.get(self.kind, "a whole number") + self._range()

    def _range(self) -> str:
        low, high = self.low, self.high
        if low is not None and high is not None:
            return f" from {low} to {high}"
        if low is not None:
            return f" of at least {low}"
        return f" of at most {high}" if high is not None else ""

    def parse(self, text: str) -> Value:
        """Read a value; what does not fit raises `InvalidConfig` with a sentence."""
        value = self._read(text.strip())
        if value is None:
            raise InvalidConfig(f"{self.name} takes {self.takes}, not {_shown(text)}.")
        return value

    def _read(self, text: str) -> Value:
        match self.kind:
            case Kind.BOOLEAN:
                return {"true": True, "false": False}.get(text.lower())
            case Kind.STRING:
                return text if self._is_allowed(text) else None
            case Kind.LIST:
                return self._read_list(text)
            case Kind.INT | Kind.LONG:
                return self._bounded(int(text)) if _WHOLE.fullmatch(text) else None
            case Kind.DOUBLE:
                return self._bounded(float(text)) if _DECIMAL.fullmatch(text) else None

    def _read_list(self, text: str) -> tuple[str, ...] | None:
        items = tuple(dict.fromkeys(item.strip() for item in text.split(","))) if text else ()
        if not all(self._is_allowed(item) for item in items):
            return None
        # One order for one meaning: "delete,compact" and "compact,delete" are the same policy.
        return tuple(c for c in self.choices if c in items) or None if self.choices else items

    def _is_allowed(self, text: str) -> bool:
        if self.choices:
            return text in self.choices
        return self.pattern is None or re.fullmatch(self.pattern, text, re.ASCII) is not None

    def _bounded(self, number: int | float) -> int | float | None:
        low, high = _LIMITS.get(self.kind, (number, number))
        low = low if self.low is None else self.low
        high = high if self.high is None else self.high
        return number if low <= number <= high else None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def render(value: Value) -> str | None:
    """The text of a value, as `parse` reads it and DescribeConfigs shows it."""
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def setting(
    kind: Kind,
    default: Value,
    documentation: str,
    *,
    low: int | float | None = None,
    high: int | float | None = None,
    choices: tuple[str, ...] = (),
    pattern: str | None = None,
    synonym: str | None = None,
) -> Any:
    """Declare one setting as a dataclass field; the field's name gives the setting's name."""
    facts = {
        "kind": kind,
        "default": default,
        "documentation": documentation,
        "low": low,
        "high": high,
        "choices": choices,
        "pattern": pattern,
        "synonym": synonym,
    }
    return dataclasses.field(default=default, metadata={"setting": facts})


def settings_of(cls: Any) -> Mapping[str, Setting]:
    """Every setting that a dataclass declares, by name, in the order of declaration."""
    found = {}
    for field in dataclasses.fields(cls):
        if "setting" in field.metadata:
            name = field.name.replace("_", ".")
            found[name] = Setting(name=name, **field.metadata["setting"])
    return found


def nearest(name: str, names: Iterable[str]) -> str:
    """A second sentence that names the closest known name, or nothing if none is close."""
    close = difflib.get_close_matches(name.lower(), sorted(names), n=1, cutoff=0.6)
    return f" Did you mean {close[0]}?" if close else ""


_THROTTLED: Final = r"\*|none|[0-9]+:[0-9]+"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What one topic is set to, defaults included."""

    cleanup_policy: tuple[str, ...] = setting(
        Kind.LIST,
        ("delete",),
        "What happens to old records: delete drops whole segments by age or size, compact keeps "
        "the last record of each key.",
        choices=("compact", "delete"),
        synonym="log.cleanup.policy",
    )
    compression_type: str = setting(
        Kind.STRING,
        "producer",
        "The codec in which batches are stored; producer keeps whatever the client sent.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        synonym="compression.type",
    )
    delete_retention_ms: int = setting(
        Kind.LONG,
        86_400_000,
        "How long compaction keeps tombstones and transaction markers, so that a slow reader still "
        "meets them.",
        low=0,
        synonym="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: int = setting(
        Kind.LONG,
        60_000,
        "How long the files of a dropped segment stay on disk after they left the log.",
        low=0,
        synonym="log.segment.delete.delay.ms",
    )
    flush_messages: int = setting(
        Kind.LONG,
        LONG_MAX,
        "Sync the log after this many records, even where oncelog.flush would leave it to the "
        "operating system.",
        low=1,
        synonym="log.flush.interval.messages",
    )
    flush_ms: int = setting(
        Kind.LONG,
        LONG_MAX,
        "Sync the log when its oldest unsynced record is this old, even where oncelog.flush would "
        "leave it to the operating system.",
        low=0,
        synonym="log.flush.interval.ms",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        Kind.LIST,
        (),
        "Replicas whose fetching is slowed down, as partition:broker pairs, or * for all.",
        pattern=_THROTTLED,
    )
    index_interval_bytes: int = setting(
        Kind.INT,
        4096,
        "How many bytes of log lie between two entries of the offset index.",
        low=0,
        synonym="log.index.interval.bytes",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        Kind.LIST,
        (),
        "Replicas that are served more slowly, as partition:broker pairs, or * for all.",
        pattern=_THROTTLED,
    )
    max_compaction_lag_ms: int = setting(
        Kind.LONG,
        LONG_MAX,
        "The longest that a record may wait before compaction looks at it.",
        low=1,
        synonym="log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes: int = setting(
        Kind.INT,
        1_048_588,
        "The largest record batch that is accepted, as it is sent, its header included.",
        low=0,
        synonym="message.max.bytes",
    )
    message_timestamp_after_max_ms: int = setting(
        Kind.LONG,
        3_600_000,
        "How far a record's timestamp may lie ahead of the broker's clock.",
        low=0,
        synonym="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = setting(
        Kind.LONG,
        LONG_MAX,
        "How far a record's timestamp may lie behind the broker's clock.",
        low=0,
        synonym="log.message.timestamp.before.max.ms",
    )
    message_timestamp_type: str = setting(
        Kind.STRING,
        "CreateTime",
        "Whose clock stamps a record: the producer's (CreateTime) or the broker's (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = setting(
        Kind.DOUBLE,
        0.5,
        "The share of a log that must be new since the last compaction before the next one.",
        low=0,
        high=1,
        synonym="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = setting(
        Kind.LONG,
        0,
        "How long every record stays in the log before compaction may drop it.",
        low=0,
        synonym="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: int = setting(
        Kind.INT,
        1,
        "How many in-sync replicas must hold a record before acks=all is answered.",
        low=1,
        synonym="min.insync.replicas",
    )
    preallocate: bool = setting(
        Kind.BOOLEAN,
        False,
        "Whether a new segment's file is given its full size at once.",
        synonym="log.preallocate",
    )
    retention_bytes: int = setting(
        Kind.LONG,
        -1,
        "How large a partition may grow before its oldest segments are dropped; -1 for no limit.",
        low=-1,
        synonym="log.retention.bytes",
    )
    retention_ms: int = setting(
        Kind.LONG,
        604_800_000,
        "How long records are kept at least, by their timestamps; -1 for ever.",
        low=-1,
        synonym="log.retention.ms",
    )
    # Kafka 4 refuses segments below 1 MiB. Earlier releases took 14 bytes, and so do we: a test
    # that wants to see a log roll should not have to write megabytes.
    segment_bytes: int = setting(
        Kind.INT,
        1_073_741_824,
        "The size at which a segment is closed and the next one begun.",
        low=14,
        synonym="log.segment.bytes",
    )
    segment_index_bytes: int = setting(
        Kind.INT,
        10_485_760,
        "The size at which a segment's offset index is full, which closes the segment.",
        low=4,
        synonym="log.index.size.max.bytes",
    )
    segment_jitter_ms: int = setting(
        Kind.LONG,
        0,
        "Up to this much is taken off segment.ms at random, so that not all logs roll at once.",
        low=0,
        synonym="log.roll.jitter.ms",
    )
    segment_ms: int = setting(
        Kind.LONG,
        604_800_000,
        "The age at which a segment is closed, full or not, so that retention can drop it.",
        low=1,
        synonym="log.roll.ms",
    )
    unclean_leader_election_enable: bool = setting(
        Kind.BOOLEAN,
        False,
        "Whether a replica that has fallen behind may lead when no other is left, at the price of "
        "acknowledged records.",
        synonym="unclean.leader.election.enable",
    )

    @property
    def is_compacted(self) -> bool:
        """Whether old records give way to newer ones of the same key."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether old segments are dropped by age and size."""
        return "delete" in self.cleanup_policy

    @classmethod
    def from_overrides(cls, defaults: "TopicConfig", overrides: Mapping[str, str]) -> "TopicConfig":
        """A topic's settings: the broker's defaults with the topic's own values laid over them."""
        values: dict[str, Any] = {}
        for name, text in overrides.items():
            found = topic_setting(name)
            values[found.attribute] = found.parse(text)
        config = dataclasses.replace(defaults, **values)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise InvalidConfig(
                f"min.compaction.lag.ms is {config.min_compaction_lag_ms}, which is above "
                f"max.compaction.lag.ms, {config.max_compaction_lag_ms}."
            )
        return config


#: Every topic setting by name.
TOPIC_SETTINGS: Final[Mapping[str, Setting]] = settings_of(TopicConfig)

#: What Kafka's topics have and ours do not, and why: better than a guess at a misspelling.
_ABSENT: Final[Mapping[str, str]] = {
    "remote.storage.enable": "there is no tiered storage here",
    "remote.log.copy.disable": "there is no tiered storage here",
    "remote.log.delete.on.disable": "there is no tiered storage here",
    "local.retention.ms": "there is no tiered storage here; retention.ms is the limit",
    "local.retention.bytes": "there is no tiered storage here; retention.bytes is the limit",
    "message.format.version": "record batches are always stored in format 2",
    "message.downconversion.enable": "record batches are never converted to older formats",
    "message.timestamp.difference.max.ms": (
        "Kafka 4 split it into message.timestamp.before.max.ms and message.timestamp.after.max.ms"
    ),
}


def topic_setting(name: str) -> Setting:
    """The setting of this name; an unknown name raises `InvalidConfig` and suggests another."""
    if found := TOPIC_SETTINGS.get(name):
        return found
    if reason := _ABSENT.get(name):
        raise InvalidConfig(f"{name} is not supported: {reason}.")
    for other in TOPIC_SETTINGS.values():
        if other.synonym == name:
            raise InvalidConfig(f"{name} is a setting of the broker; a topic's is {other.name}.")
    hint = nearest(name, TOPIC_SETTINGS)
    raise InvalidConfig(f"There is no topic setting {_shown(name)}.{hint}")
