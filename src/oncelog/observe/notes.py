"""Notes: what happened, as data; here each becomes one log line.

The core does not log. It returns notes, and so do storage and runtime where an operator should
know. Tests assert on notes, not on text.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import ClassVar, Final

from oncelog.core.errors import BrokerError
from oncelog.core.groups.commands import GroupRebalanced, MemberExpired, OffsetsExpired
from oncelog.core.txn.commands import (
    IdsExpired,
    TransactionFenced,
    TransactionTimedOut,
)

log = logging.getLogger("oncelog")


@dataclass(frozen=True, slots=True, kw_only=True)
class TailCut:
    """Recovery cut bytes that were never acknowledged as synced; they are kept in `kept_in`."""

    level: ClassVar[int] = logging.WARNING
    phrase: ClassVar[str] = "cut a torn tail"
    partition: str
    kept_in: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """A file that is only a shortcut was missing or wrong and was made again from the log."""

    level: ClassVar[int] = logging.INFO
    phrase: ClassVar[str] = "rebuilt from the log"
    partition: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffline:
    """A log does not serve until somebody acts."""

    level: ClassVar[int] = logging.ERROR
    phrase: ClassVar[str] = "partition is offline"
    partition: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """All logs are open."""

    level: ClassVar[int] = logging.INFO
    phrase: ClassVar[str] = "logs are open"
    partitions: int
    clean: bool
    took_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayRemoved:
    """A directory that belongs to no topic, as a half-finished deletion leaves it."""

    level: ClassVar[int] = logging.INFO
    phrase: ClassVar[str] = "removed what a deleted topic left behind"
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionMoved:
    """Old records went."""

    level: ClassVar[int] = logging.INFO
    phrase: ClassVar[str] = "retention moved the log start"
    partition: str
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoreFailed:
    """Something that is done again and again did not work this time."""

    level: ClassVar[int] = logging.WARNING
    phrase: ClassVar[str] = "a regular task failed"
    chore: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingIgnored:
    """A setting that was changed while the broker ran, which this release does not take."""

    level: ClassVar[int] = logging.WARNING
    phrase: ClassVar[str] = "a stored setting is ignored"
    name: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerRefused:
    """A marker came too late: the transaction had ended there."""

    level: ClassVar[int] = logging.WARNING
    phrase: ClassVar[str] = "a transaction marker was refused"
    partition: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnownedTransactionAborted:
    """Records of a transaction that no coordinator knows, as a power cut may leave them."""

    level: ClassVar[int] = logging.WARNING
    phrase: ClassVar[str] = "aborted a transaction that nobody owns"
    partition: str
    producer_id: int


#: Notes of the core, which knows nothing of logs: their levels and phrases.
OF_THE_CORE: Final[Mapping[type, tuple[int, str]]] = {
    TransactionTimedOut: (logging.WARNING, "a transaction timed out and was aborted"),
    TransactionFenced: (logging.INFO, "a newer producer fenced an open transaction"),
    IdsExpired: (logging.INFO, "forgot idle transactional ids"),
    GroupRebalanced: (logging.INFO, "a group was rebalanced"),
    MemberExpired: (logging.WARNING, "a member of a group went silent"),
    OffsetsExpired: (logging.INFO, "dropped old offsets of groups"),
}


def write_note(note: object, more: Mapping[str, object] = MappingProxyType({})) -> None:
    """Turn a note into a log line; `more` is what the shell knows beside it."""
    if isinstance(note, BrokerError):
        log.warning("a shard could not act", extra={"fields": {"error": str(note)}})
        return
    values = {f.name: getattr(note, f.name) for f in fields(note)}  # type: ignore[arg-type] # notes are dataclasses
    level, phrase = line_of(type(note))
    log.log(level, phrase, extra={"fields": {**values, **more}})


def line_of(kind: type) -> tuple[int, str]:
    """The level and the phrase of a kind of note."""
    found = OF_THE_CORE.get(kind)
    return found if found is not None else (kind.level, kind.phrase)  # type: ignore[attr-defined] # ours have both
