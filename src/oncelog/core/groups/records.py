"""The records of `__consumer_offsets`, byte for byte as Kafka writes them.

    key    int16 type  0, 1: an offset          2: a group         others belong to other group types
           string      group                    group
           string      topic
           int32       partition
    value  int16 version, then the fields of that version; no value: the key is deleted

Strings carry an int16 length and bytes an int32 length, -1 for null; version 4 of both values is
flexible: lengths are unsigned varints plus one, and tagged fields follow. All is big-endian. What
we cannot read (a key of another group type, a value from the future) is skipped: it is not ours to
judge, and refusing it would keep the whole shard offline.
"""

import struct
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias
from uuid import UUID

from oncelog.core.types import TopicPartition
from oncelog.core.varints import uvarint

LEGACY_OFFSET_KEY: Final = 0  # what Kafka 0.8.1 wrote; the same fields
OFFSET_KEY: Final = 1
GROUP_KEY: Final = 2
GROUP_VALUE_VERSION: Final = 3
FLEXIBLE_SINCE: Final = 4
TOPIC_ID_TAG: Final = 0
MAX_STRING_BYTES: Final = (1 << 15) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitted:
    """How far a group has come in one partition."""

    stored: ClassVar[bool] = True

    group_id: str
    partition: TopicPartition
    offset: int
    leader_epoch: int | None
    metadata: str
    committed_at_ms: int
    expires_at_ms: int | None  # only if the client chose a retention of its own
    topic_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetPending:
    """The same, said inside a transaction: it counts when the transaction's marker says so.

    Its bytes are those of a plain commit; the producer id is in the header of their batch.
    """

    stored: ClassVar[bool] = True

    producer_id: int
    committed: OffsetCommitted


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleted:
    """The offset is forgotten, and so is every pending one of the same partition."""

    stored: ClassVar[bool] = True

    group_id: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """A member, with what it subscribes to and what it was assigned."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """A group at one generation, with the assignment of its members."""

    stored: ClassVar[bool] = True

    group_id: str
    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_since_ms: int | None
    members: tuple[MemberMetadata, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeleted:
    """The group is gone."""

    stored: ClassVar[bool] = True

    group_id: str


StoredRecord: TypeAlias = (
    OffsetCommitted | OffsetPending | OffsetDeleted | GroupMetadata | GroupDeleted
)


class UnreadableRecord(Exception):
    """A value of `__consumer_offsets` that ends too early or lies about its lengths."""


def fits(text: str | None) -> bool:
    """Whether a record has room for it. Flexible requests can carry longer strings than this."""
    if text is None or len(text) <= MAX_STRING_BYTES // 4:  # no character takes more than 4 bytes
        return True
    return len(text.encode()) <= MAX_STRING_BYTES


# --- encoding -------------------------------------------------------------------------------


def encode(record: StoredRecord) -> tuple[bytes, bytes | None]:
    """The key and the value of one record."""
    match record:
        case OffsetCommitted():
            return _offset_key(record.group_id, record.partition), _offset_value(record)
        case OffsetPending():
            return encode(record.committed)
        case OffsetDeleted():
            return _offset_key(record.group_id, record.partition), None
        case GroupMetadata():
            return _group_key(record.group_id), _group_value(record)
        case GroupDeleted():
            return _group_key(record.group_id), None


def _offset_key(group_id: str, partition: TopicPartition) -> bytes:
    return b"".join(
        (
            struct.pack(">h", OFFSET_KEY),
            _string(group_id),
            _string(partition.topic),
            struct.pack(">i", partition.partition),
        )
    )


def _group_key(group_id: str) -> bytes:
    return struct.pack(">h", GROUP_KEY) + _string(group_id)


def _offset_value(record: OffsetCommitted) -> bytes:
    metadata = record.metadata.encode()
    epoch = -1 if record.leader_epoch is None else record.leader_epoch
    if record.expires_at_ms is not None:
        # Only version 1 can say when an offset expires, and it has no room for an epoch.
        head = struct.pack(">hqh", 1, record.offset, len(metadata))
        return head + metadata + struct.pack(">qq", record.committed_at_ms, record.expires_at_ms)
    if record.topic_id is None:
        head = struct.pack(">hqih", 3, record.offset, epoch, len(metadata))
        return head + metadata + struct.pack(">q", record.committed_at_ms)
    return b"".join(
        (
            struct.pack(">hqi", 4, record.offset, epoch),
            uvarint(len(metadata) + 1),
            metadata,
            struct.pack(">q", record.committed_at_ms),
            bytes((1, TOPIC_ID_TAG, 16)),  # one tagged field of 16 bytes
            record.topic_id.bytes,
        )
    )


def _group_value(record: GroupMetadata) -> bytes:
    since = -1 if record.state_since_ms is None else record.state_since_ms
    out = [
        struct.pack(">h", GROUP_VALUE_VERSION),
        _string(record.protocol_type),
        struct.pack(">i", record.generation_id),
        _string(record.protocol_name),
        _string(record.leader),
        struct.pack(">qi", since, len(record.members)),
    ]
    for member in record.members:
        out += (
            _string(member.member_id),
            _string(member.group_instance_id),
            _string(member.client_id),
            _string(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    return b"".join(out)


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


# --- decoding -------------------------------------------------------------------------------


def decode(key: bytes, value: bytes | None, timestamp_ms: int) -> StoredRecord | None:
    """The record that these bytes stand for, or None if it is none that we know.

    `timestamp_ms` is the record's own; values that carry their times do not need it.
    """
    reader = _Reader(key)
    match reader.int16():
        case 0 | 1:
            group_id = reader.text()
            partition = TopicPartition(reader.text(), reader.int32())
            if value is None:
                return OffsetDeleted(group_id=group_id, partition=partition)
            return _read_offset(group_id, partition, value, timestamp_ms)
        case 2:
            group_id = reader.text()
            if value is None:
                return GroupDeleted(group_id=group_id)
            return _read_group(group_id, value)
        case _:
            return None


def _read_offset(
    group_id: str, partition: TopicPartition, value: bytes, timestamp_ms: int
) -> OffsetCommitted | None:
    reader = _Reader(value)
    version = reader.int16()
    if not 0 <= version <= FLEXIBLE_SINCE:
        return None
    reader.is_flexible = version >= FLEXIBLE_SINCE
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.text()
    committed_at_ms = reader.int64()
    expires_at_ms = reader.int64() if version == 1 else -1
    tags = reader.tags()
    topic_id = tags.get(TOPIC_ID_TAG)
    return OffsetCommitted(
        group_id=group_id,
        partition=partition,
        offset=offset,
        leader_epoch=None if leader_epoch < 0 else leader_epoch,
        metadata=metadata,
        # A commit without a time of its own happened when its record was written.
        committed_at_ms=timestamp_ms if committed_at_ms < 0 else committed_at_ms,
        expires_at_ms=None if expires_at_ms < 0 else expires_at_ms,
        topic_id=UUID(bytes=topic_id) if topic_id is not None and any(topic_id) else None,
    )


def _read_group(group_id: str, value: bytes) -> GroupMetadata | None:
    reader = _Reader(value)
    version = reader.int16()
    if not 0 <= version <= FLEXIBLE_SINCE:
        return None
    reader.is_flexible = version >= FLEXIBLE_SINCE
    protocol_type = reader.text()
    generation_id = reader.int32()
    protocol_name = reader.nullable_text()
    leader = reader.nullable_text()
    since = reader.int64() if version >= 2 else -1
    members = tuple(_read_member(reader, version) for _ in range(reader.count()))
    reader.tags()
    return GroupMetadata(
        group_id=group_id,
        protocol_type=protocol_type,
        generation_id=generation_id,
        protocol_name=protocol_name,
        leader=leader,
        state_since_ms=None if since < 0 else since,
        members=members,
    )


def _read_member(reader: "_Reader", version: int) -> MemberMetadata:
    member_id = reader.text()
    group_instance_id = reader.nullable_text() if version >= 3 else None
    client_id = reader.text()
    client_host = reader.text()
    # Before version 1 there was one timeout for both.
    rebalance_timeout_ms = reader.int32() if version >= 1 else None
    session_timeout_ms = reader.int32()
    subscription = reader.data()
    assignment = reader.data()
    reader.tags()
    return MemberMetadata(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=(
            session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms
        ),
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )


class _Reader:
    """Walks over one key or value; every length is checked against what is left."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self.is_flexible = False

    def int16(self) -> int:
        return self._unpack(">h", 2)

    def int32(self) -> int:
        return self._unpack(">i", 4)

    def int64(self) -> int:
        return self._unpack(">q", 8)

    def text(self) -> str:
        return self.nullable_text() or ""

    def nullable_text(self) -> str | None:
        size = self._uvarint() - 1 if self.is_flexible else self.int16()
        if size < 0:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise UnreadableRecord(str(error)) from error

    def data(self) -> bytes:
        size = self._uvarint() - 1 if self.is_flexible else self.int32()
        return self._take(max(size, 0))

    def count(self) -> int:
        count = self._uvarint() - 1 if self.is_flexible else self.int32()
        if count > len(self._data) - self._position:
            raise UnreadableRecord(f"{count} elements do not fit into what is left")
        return max(count, 0)

    def tags(self) -> dict[int, bytes]:
        if not self.is_flexible:
            return {}
        tags: dict[int, bytes] = {}
        for _ in range(self._uvarint()):
            tag = self._uvarint()
            tags[tag] = self._take(self._uvarint())
        return tags

    def _unpack(self, form: str, size: int) -> int:
        (value,) = struct.unpack(form, self._take(size))
        assert isinstance(value, int)
        return value

    def _uvarint(self) -> int:
        value = shift = 0
        while shift <= 28:
            byte = self._take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise UnreadableRecord("variable-length integer of more than 5 bytes")

    def _take(self, size: int) -> bytes:
        taken = self._data[self._position : self._position + size]
        if len(taken) < size:
            raise UnreadableRecord(f"{size} bytes wanted, {len(taken)} left")
        self._position += size
        return taken
