"""`__transaction_state`: Kafka's key and value, and what we add to it.

    key    version i16 = 0 | transactional id (i16 length)
    value  version i16 | producer id i64 | producer epoch i16 | timeout ms i32 | status i8
           | partitions [topic, [i32]] (null exactly when Empty) | last update i64 | start i64
           version 1 is flexible, with tags: 0 previous producer id i64, 1 next producer id i64,
           2 client transaction version i16; ours: 10000 last epoch i16, 10001 fenced i8,
           10002 topic ids [uuid], one for each topic of the partitions

Tags that a reader does not know are skipped, so Kafka's tools read our values and we read theirs.
A null value forgets the id.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias
from uuid import UUID

from oncelog.core.txn.machine import TxnState
from oncelog.core.types import TopicPartition
from oncelog.core.varints import uvarint

TAG_PREVIOUS_PRODUCER_ID: Final = 0
TAG_NEXT_PRODUCER_ID: Final = 1
TAG_CLIENT_VERSION: Final = 2
TAG_LAST_EPOCH: Final = 10_000
TAG_FENCED: Final = 10_001
TAG_TOPIC_IDS: Final = 10_002

#: The feature level from which values are written in the flexible form.
FIRST_FLEXIBLE: Final = 1

MAX_STRING_BYTES: Final = (1 << 15) - 1

#: Partitions with the id of their topic, where it is known.
Partitions: TypeAlias = tuple[tuple[TopicPartition, UUID | None], ...]

_FIXED: Final = struct.Struct(">hqhib")
_TIMES: Final = struct.Struct(">qq")


class BadTxnRecord(Exception):
    """Bytes that are not a transaction's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Txn:
    """A transactional id and its current transaction: the state, and also the log's record."""

    stored: ClassVar[bool] = True
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TxnState
    updated_at_ms: int
    #: When the first partition was added; None while nothing was.
    started_at_ms: int | None = None
    #: The partitions of the open transaction, in order; all of one topic have one id.
    partitions: Partitions = ()
    #: The epoch before the last bump that the client asked for: a repeat of that request is known.
    last_epoch: int | None = None
    previous_producer_id: int | None = None
    #: Reserved when the epochs of the present one run out: the next transaction has it.
    next_producer_id: int | None = None
    #: Which protocol the client of the open transaction speaks: 0, 1 or 2.
    client_version: int = 0
    #: The last abort was a newer instance's doing: its victim may not go on.
    is_fenced: bool = False

    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions alone, in order."""
        return tuple(topic_partition for topic_partition, _ in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The transactional id is gone."""

    stored: ClassVar[bool] = True
    transactional_id: str


Record: TypeAlias = Txn | Forgotten


def fits(transactional_id: str) -> bool:
    """Whether a key can hold the id: flexible requests carry longer strings."""
    return len(transactional_id.encode()) <= MAX_STRING_BYTES


def encode_key(transactional_id: str) -> bytes:
    """The key of an id."""
    name = transactional_id.encode()
    return struct.pack(">hh", 0, len(name)) + name


def decode_key(key: bytes) -> str | None:
    """The id, or None for a kind of key that we do not know."""
    if key[:2] != b"\0\0":
        return None
    try:
        (length,) = struct.unpack_from(">h", key, 2)
        if length != len(key) - 4:
            raise BadTxnRecord(f"a key of {len(key)} bytes with an id of {length}")
        return key[4:].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise BadTxnRecord(f"a key of {len(key)} bytes: {error}") from error


def encode_value(txn: Txn, *, flexible: bool) -> bytes:
    """The value in the form that the feature level asks for."""
    head = _FIXED.pack(
        1 if flexible else 0,
        txn.producer_id,
        txn.producer_epoch,
        txn.timeout_ms,
        txn.state.value,
    )
    times = _TIMES.pack(txn.updated_at_ms, -1 if txn.started_at_ms is None else txn.started_at_ms)
    if not flexible:
        return head + _encode_topics(txn) + times
    return head + _encode_compact_topics(txn) + times + _encode_tags(txn)


def _by_topic(txn: Txn) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic_partition, _ in txn.partitions:
        topics.setdefault(topic_partition.topic, []).append(topic_partition.partition)
    return topics


def _encode_topics(txn: Txn) -> bytes:
    if txn.state is TxnState.EMPTY:
        return struct.pack(">i", -1)
    topics = _by_topic(txn)
    out = struct.pack(">i", len(topics))
    for topic, partitions in topics.items():
        name = topic.encode()
        out += struct.pack(">h", len(name)) + name
        out += struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return out


def _encode_compact_topics(txn: Txn) -> bytes:
    if txn.state is TxnState.EMPTY:
        return b"\0"
    topics = _by_topic(txn)
    out = uvarint(len(topics) + 1)
    for topic, partitions in topics.items():
        name = topic.encode()
        out += uvarint(len(name) + 1) + name
        out += uvarint(len(partitions) + 1) + struct.pack(f">{len(partitions)}i", *partitions)
        out += b"\0"
    return out


def _encode_tags(txn: Txn) -> bytes:
    tags: list[tuple[int, bytes]] = []
    if txn.previous_producer_id is not None:
        tags.append((TAG_PREVIOUS_PRODUCER_ID, struct.pack(">q", txn.previous_producer_id)))
    if txn.next_producer_id is not None:
        tags.append((TAG_NEXT_PRODUCER_ID, struct.pack(">q", txn.next_producer_id)))
    if txn.client_version:
        tags.append((TAG_CLIENT_VERSION, struct.pack(">h", txn.client_version)))
    if txn.last_epoch is not None:
        tags.append((TAG_LAST_EPOCH, struct.pack(">h", txn.last_epoch)))
    if txn.is_fenced:
        tags.append((TAG_FENCED, b"\1"))
    ids = _topic_ids(txn)
    if any(ids):
        tags.append((TAG_TOPIC_IDS, b"".join(i.bytes if i else bytes(16) for i in ids)))
    out = uvarint(len(tags))
    for tag, body in tags:
        out += uvarint(tag) + uvarint(len(body)) + body
    return out


def _topic_ids(txn: Txn) -> Sequence[UUID | None]:
    ids: dict[str, UUID | None] = {}
    for topic_partition, topic_id in txn.partitions:
        ids.setdefault(topic_partition.topic, topic_id)
    return list(ids.values())


def decode_value(transactional_id: str, value: bytes) -> Txn | None:
    """A value of version 0 or 1; None for one that is newer than we are (KIP-915)."""
    try:
        version, producer_id, producer_epoch, timeout_ms, status = _FIXED.unpack_from(value)
        if version not in (0, 1):
            return None
        reader = _Reader(value, _FIXED.size, compact=version == 1)
        topics = reader.topics()
        updated_at_ms, started_at_ms = reader.times()
        tags = reader.tags() if version == 1 else {}
        state = TxnState(status)
    except (struct.error, ValueError, IndexError, UnicodeDecodeError) as error:
        raise BadTxnRecord(f"the state of {transactional_id!r}: {error}") from error
    ids = _decode_ids(tags.get(TAG_TOPIC_IDS, b""), len(topics))
    return Txn(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        state=state,
        updated_at_ms=updated_at_ms,
        started_at_ms=None if started_at_ms < 0 else started_at_ms,
        partitions=tuple(
            (TopicPartition(topic, partition), topic_id)
            for (topic, partitions), topic_id in zip(topics, ids, strict=True)
            for partition in partitions
        ),
        last_epoch=_int_tag(tags, TAG_LAST_EPOCH, ">h"),
        previous_producer_id=_known(_int_tag(tags, TAG_PREVIOUS_PRODUCER_ID, ">q")),
        next_producer_id=_known(_int_tag(tags, TAG_NEXT_PRODUCER_ID, ">q")),
        client_version=_int_tag(tags, TAG_CLIENT_VERSION, ">h") or 0,
        is_fenced=tags.get(TAG_FENCED) == b"\1",
    )


def _known(producer_id: int | None) -> int | None:
    return None if producer_id is None or producer_id < 0 else producer_id


def _int_tag(tags: dict[int, bytes], tag: int, pattern: str) -> int | None:
    body = tags.get(tag)
    if body is None or len(body) != struct.calcsize(pattern):
        return None
    return int(struct.unpack(pattern, body)[0])


def _decode_ids(body: bytes, count: int) -> list[UUID | None]:
    if len(body) != 16 * count:
        return [None] * count
    ids = [UUID(bytes=body[start : start + 16]) for start in range(0, len(body), 16)]
    return [topic_id if topic_id.int else None for topic_id in ids]


class _Reader:
    """Walks a value; whatever does not fit raises an error that the caller turns into one."""

    def __init__(self, data: bytes, position: int, *, compact: bool) -> None:
        self._data = data
        self._position = position
        self._compact = compact

    def topics(self) -> list[tuple[str, tuple[int, ...]]]:
        count = self._length(">i")
        found = []
        for _ in range(max(count, 0)):
            name = self._bytes(self._length(">h")).decode()
            partitions = self._ints(self._length(">i"))
            if self._compact:
                self.tags()
            found.append((name, partitions))
        return found

    def times(self) -> tuple[int, int]:
        updated, started = _TIMES.unpack(self._bytes(_TIMES.size))
        return updated, started

    def tags(self) -> dict[int, bytes]:
        tags = {}
        for _ in range(self._uvarint()):
            tag = self._uvarint()
            tags[tag] = self._bytes(self._uvarint())
        return tags

    def _length(self, pattern: str) -> int:
        if self._compact:
            return self._uvarint() - 1
        return int(struct.unpack(pattern, self._bytes(struct.calcsize(pattern)))[0])

    def _ints(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f">{max(count, 0)}i", self._bytes(4 * max(count, 0)))

    def _bytes(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise ValueError(f"{size} bytes wanted, {len(self._data) - self._position} left")
        found = self._data[self._position : end]
        self._position = end
        return found

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._position]
            self._position += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 28:
                raise ValueError("a variable-length integer of more than 5 bytes")
