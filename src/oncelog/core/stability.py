"""What a read_committed reader may see: the last stable offset and the aborted transactions.

A transaction holds the last stable offset at its first record until its marker is below the high
watermark. Aborted ones are remembered in an index, so that a fetch can name those whose records it
returns; the client leaves these out.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

#: .txnindex: version i16 = 0 | producer id i64 | first i64 | last i64 | last stable offset i64
ENTRY: Final = struct.Struct(">hqqqq")


class EndedTxn(NamedTuple):
    """A transaction that has its marker in this partition."""

    producer_id: int
    first_offset: int
    marker_offset: int
    committed: bool


class AbortedTxn(NamedTuple):
    """An entry of the index: its records lie between the two offsets, the marker is the last."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Stability:
    """The transactions of one partition that are open, or whose end is not committed yet."""

    __slots__ = ("_ending", "_open")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._ending: list[EndedTxn] = []

    def __contains__(self, producer_id: int) -> bool:
        """Whether this producer has a transaction open here."""
        return producer_id in self._open

    @property
    def is_open(self) -> bool:
        """Whether any transaction is open here."""
        return bool(self._open)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """A transaction has written its first record here."""
        self._open.setdefault(producer_id, first_offset)

    def end(self, producer_id: int, marker_offset: int, *, committed: bool) -> EndedTxn | None:
        """A marker was appended; None where the producer had nothing open here."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        ended = EndedTxn(producer_id, first_offset, marker_offset, committed)
        self._ending.append(ended)
        return ended

    def open_transactions(self) -> dict[int, int]:
        """Producer id -> first offset, of the open ones."""
        return dict(self._open)

    def oldest_open_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return min(self._open.values(), default=None)

    def settle(self, high_watermark: int) -> None:
        """Forget the ended ones whose marker is committed."""
        if self._ending:
            self._ending = [e for e in self._ending if e.marker_offset >= high_watermark]

    def last_stable_offset(self, *, high_watermark: int, log_start_offset: int) -> int:
        """The end of what read_committed readers get."""
        first_unstable = min(self._open.values(), default=high_watermark)
        for ended in self._ending:
            if ended.marker_offset >= high_watermark:
                first_unstable = min(first_unstable, ended.first_offset)
        return min(max(first_unstable, log_start_offset), high_watermark)


def aborted_between(
    entries: Sequence[AbortedTxn], start: int, end: int
) -> Iterator[AbortedTxn | None]:
    """The aborted transactions with records in [start, end); a last None means: look no further.

    Entries come in the order of their markers. One whose marker is before `start` must not be
    named: the client would wait for that marker and drop what is good.
    """
    first = bisect_left(entries, start, key=lambda entry: entry.last_offset)
    for index in range(first, len(entries)):
        entry = entries[index]
        if entry.first_offset < end:
            yield entry
        if entry.last_stable_offset >= end:
            yield None
            return


def aborted_entry(ended: EndedTxn, oldest_open_offset: int | None) -> AbortedTxn:
    """What the index keeps of a transaction that was aborted."""
    stable = ended.marker_offset + 1 if oldest_open_offset is None else oldest_open_offset
    return AbortedTxn(ended.producer_id, ended.first_offset, ended.marker_offset, stable)
