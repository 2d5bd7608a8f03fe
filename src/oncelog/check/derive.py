"""What follows from a history: who wrote each value, where it stands, and whether it is proven.

One pass over the events fills columns of integers, about forty bytes for each value; there are no
objects per record. A *row* is the number of a value in the order in which values were first
mentioned, which is the order in which they were asked for. `finish` then adds to the position map
what acknowledgements say, for by then it is known which operations are proven.
"""

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog.check.columns import PagedInts
from oncelog.check.history import End, Event, Group, Kind, Op, Read, Run, Unreadable, Write

NONE: Final = -1

# Flags of a value.
READ: Final = 1
READ_IN_FINAL: Final = 2
READ_BEFORE_ASKED: Final = 4
ACKED: Final = 8  # an acknowledgement named its offset
PLACED: Final = 16  # a read found it in the partition that it was sent to

# States of an operation.
OPEN: Final = 0  # no completion: as good as unknown
CONFIRMED: Final = 1
FAILED: Final = 2
UNKNOWN: Final = 3

# Flags of an operation.
IS_TXN: Final = 1
IS_IDEMPOTENT: Final = 2
IS_SEEN: Final = 4  # one of its values was read
WANTS_COMMIT: Final = 8


def line_of(event: int) -> int:
    """Lines count from 1, events from 0, and the header comes first."""
    return event + 2


class Place(NamedTuple):
    """An offset of a partition."""

    part: str
    offset: int

    def __str__(self) -> str:
        return f"{self.part}@{self.offset}"


class Sighting(NamedTuple):
    """A place at which an event read something."""

    place: Place
    event: int


class Consumed:
    """The input ranges that the transactions of one group consumed from one partition."""

    __slots__ = ("end", "op", "start")

    def __init__(self) -> None:
        self.start = array("q")
        self.end = array("q")
        self.op = array("i")


class Partition:
    """One partition as all events together describe it."""

    __slots__ = (
        "conflicts",
        "ends",
        "ends_event",
        "final_event",
        "index",
        "log_start",
        "name",
        "positions",
    )

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self.index = index
        self.positions = PagedInts()  # offset -> row + 1
        self.conflicts: dict[int, list[int]] = {}  # offset -> all rows there, if more than one
        self.log_start = 0
        self.final_event: int | None = None  # the event that closed its final read
        self.ends: tuple[int, int] | None = None  # last_stable_offset, log_end_offset, at the end
        self.ends_event = NONE  # the one that found them

    def put(self, offset: int, row: int) -> None:
        """Note that a value stands at an offset."""
        held = self.positions.get(offset)
        if held == 0:
            self.positions.set(offset, row + 1)
        elif held != row + 1:
            rows = self.conflicts.setdefault(offset, [held - 1])
            if row not in rows:
                rows.append(row)


class Operations:
    """The columns of all operations that write."""

    def __init__(self) -> None:
        self.process = array("i")
        self.called = array("i")  # event number, NONE if the call was lost with its process
        self.completed = array("i")  # event number, NONE as long as it is open
        self.state = array("b")
        self.flags = array("b")
        self.tc = array("q")  # NONE if the end was never asked for

    def __len__(self) -> int:
        return len(self.process)

    def add(self, process: int, called: int, flags: int) -> int:
        """A new operation, still open."""
        self.process.append(process)
        self.called.append(called)
        self.completed.append(NONE)
        self.state.append(OPEN)
        self.flags.append(flags)
        self.tc.append(NONE)
        return len(self.process) - 1


class Facts:
    """All that the anomalies are named from."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.events = 0
        self.ops = Operations()
        self.value = array("q")
        self.op = array("i")  # the operation that asked for it, NONE if none has
        self.part = array("i")  # where it was asked to go
        self.first_read = array("i")  # event number, or NONE
        self.flags = bytearray()
        #: Where it was first read in `part`; until then what its acknowledgement says; or NONE.
        self._offset = array("q")
        #: What acknowledgements said, where reads say otherwise; in a sound run there is none.
        self._other_acks: dict[int, int] = {}
        #: Every other place at which a value was read; in a sound run there is none.
        self.strays: dict[int, list[Sighting]] = {}
        #: When values were read whose transaction had not asked to commit, as far as is known.
        self.read_early: dict[int, int] = {}
        #: Which transaction read which value: rows of both columns belong together.
        self.reader = array("i")
        self.read_row = array("i")
        #: Values that a transaction read and had written itself.
        self.own_reads: list[tuple[int, Sighting]] = []
        self.consumed: dict[tuple[str, str], Consumed] = {}  # by group and partition
        #: Records that were read and could not be decoded.
        self.damaged: list[Sighting] = []
        self.partitions: dict[str, Partition] = {}
        self.by_index: list[Partition] = []
        self._rows = PagedInts()  # value -> row + 1
        self._open: dict[int, int] = {}  # call -> operation
        for name in run.parts:
            self.partition(name)
        for pipe in run.pipes:
            for name in pipe.source + pipe.target:
                self.partition(name)

    # --- while events arrive ------------------------------------------------------------------

    def add(self, event: Event) -> None:
        """Take in the next event."""
        self.events += 1
        op = event.op
        if op is Op.SEND or op is Op.TXN:
            self._add_operation(event)
        elif event.kind is not Kind.CALL:
            for step in event.steps:
                if type(step) is Read:
                    self._add_reads(event, step)
            if op is Op.FINAL:
                self._add_final(event)
        if event.details.starts is not None:
            for name, log_start in event.details.starts.items():
                partition = self.partition(name)
                partition.log_start = max(partition.log_start, log_start)

    def partition(self, name: str) -> Partition:
        """The partition of that name, new if nobody has named it yet."""
        found = self.partitions.get(name)
        if found is None:
            found = self.partitions[name] = Partition(name, len(self.by_index))
            self.by_index.append(found)
        return found

    def row_of(self, value: int) -> int | None:
        """The row of a value, if any event has named it."""
        row = self._rows.get(value) - 1
        return None if row == NONE else row

    def _add_operation(self, event: Event) -> None:
        ops = self.ops
        is_call = event.kind is Kind.CALL
        if is_call:
            op = self._open[event.n] = ops.add(event.process, event.n, self._op_flags(event))
        elif event.ref is None:
            op = ops.add(event.process, NONE, self._op_flags(event))
        else:
            op = self._open.pop(event.ref)
        if not is_call:
            ops.completed[op] = event.n
            ops.state[op] = _STATE[event.kind]
            if event.tc is not None:
                ops.tc[op] = event.tc
            if event.end is End.COMMIT:
                ops.flags[op] |= WANTS_COMMIT
            if event.group is not None:
                self._add_consumed(op, event.group)
        for step in event.steps:
            if type(step) is Write:
                self._add_write(event, op, step)
            elif type(step) is Read and not is_call:
                self._add_reads(event, step)
                self._add_reader(event, op, step)

    def _op_flags(self, event: Event) -> int:
        if event.op is Op.TXN:
            return IS_TXN | IS_IDEMPOTENT
        given = event.details.idempotent
        return IS_IDEMPOTENT if (self.run.idempotent if given is None else given) else 0

    def _add_write(self, event: Event, op: int, write: Write) -> None:
        row = self._rows.get(write.value) - 1
        if row == NONE:
            row = self._new_row(write.value)
        if self.op[row] == NONE:
            self._ask(row, op, self.partition(write.part))
        elif self.op[row] != op or event.kind is Kind.CALL:
            first = self.ops.called[self.op[row]]
            raise Unreadable(
                f"value {write.value} is written twice, by events {first} and {event.n}",
                line=line_of(event.n),
            )
        elif self.home(row).name != write.part:
            raise Unreadable(
                f"value {write.value} was asked for in {self.home(row).name} and is completed "
                f"in {write.part}",
                line=line_of(event.n),
            )
        if write.offset is not None:
            self._acknowledge(row, write.offset)
        if row in self.read_early and event.kind is not Kind.CALL:
            if event.tc is None or self.read_early[row] >= event.tc:
                del self.read_early[row]

    def _new_row(self, value: int) -> int:
        row = len(self.value)
        self._rows.set(value, row + 1)
        self.value.append(value)
        self.op.append(NONE)
        self.part.append(NONE)
        self._offset.append(NONE)
        self.first_read.append(NONE)
        self.flags.append(0)
        return row

    def _ask(self, row: int, op: int, partition: Partition) -> None:
        self.op[row] = op
        self.part[row] = partition.index
        if not self.flags[row] & READ:
            return
        # It was read before anything said that it was sent. If the call was lost together with
        # its process, that is in order; otherwise no send can explain the read.
        if self.ops.called[op] > self.first_read[row]:
            self.flags[row] |= READ_BEFORE_ASKED
        seen = self.strays.pop(row)
        at_home = [sighting for sighting in seen if sighting.place.part == partition.name]
        if at_home:
            self._place(row, at_home[0].place.offset)
            seen.remove(at_home[0])
        if seen:
            self.strays[row] = seen

    def _acknowledge(self, row: int, offset: int) -> None:
        if not self.flags[row] & PLACED:
            self._offset[row] = offset
        elif self._offset[row] != offset:
            self._other_acks[row] = offset
        self.flags[row] |= ACKED

    def _place(self, row: int, offset: int) -> None:
        if self.flags[row] & ACKED and self._offset[row] != offset:
            self._other_acks[row] = self._offset[row]
        self._offset[row] = offset
        self.flags[row] |= PLACED

    def _add_reads(self, event: Event, read: Read) -> None:
        flags = READ | READ_IN_FINAL if event.op is Op.FINAL else READ
        row_of, known, homes, offsets = self._rows.get, self.flags, self.part, self._offset
        for name, records in read.records.items():
            partition = self.partition(name)
            for offset, value in records:
                if value is None:
                    self.damaged.append(Sighting(Place(name, offset), event.n))
                    continue
                row = row_of(value) - 1
                if row == NONE:
                    row = self._new_row(value)
                if not known[row] & READ:
                    self._see(row, event)
                known[row] |= flags
                if homes[row] != partition.index:
                    self._stray(row, partition, offset, event.n)
                elif not known[row] & PLACED:
                    self._place(row, offset)
                elif offsets[row] == offset:
                    continue  # as most are: read again where it was read before
                else:
                    self._stray(row, partition, offset, event.n)
                partition.put(offset, row)

    def _see(self, row: int, event: Event) -> None:
        """A value is read for the first time."""
        self.first_read[row] = event.n
        op = self.op[row]
        if op == NONE:
            self.read_early[row] = event.t  # unless its writer's lines turn up later
        elif self.ops.flags[op] & IS_TXN:
            if self.ops.state[op] == OPEN or event.t < self.ops.tc[op]:
                self.read_early[row] = event.t

    def _add_reader(self, event: Event, op: int, read: Read) -> None:
        for name, records in read.records.items():
            for offset, value in records:
                row = NONE if value is None else self._rows.get(value) - 1
                if row == NONE:
                    continue
                if self.op[row] == op:
                    self.own_reads.append((row, Sighting(Place(name, offset), event.n)))
                elif event.kind is not Kind.FAIL:
                    self.reader.append(op)
                    self.read_row.append(row)

    def _add_consumed(self, op: int, group: Group) -> None:
        for part, (start, end) in group.offsets.items():
            if start is None or end is None or start >= end:
                continue
            consumed = self.consumed.setdefault((group.name, part), Consumed())
            consumed.start.append(start)
            consumed.end.append(end)
            consumed.op.append(op)

    def _stray(self, row: int, partition: Partition, offset: int, event: int) -> None:
        seen = self.strays.setdefault(row, [])
        place = Place(partition.name, offset)
        if all(sighting.place != place for sighting in seen):
            seen.append(Sighting(place, event))

    def _add_final(self, event: Event) -> None:
        """A final read closes the partitions it names the ends of, or else all of them."""
        if event.kind not in (Kind.OK, Kind.NOTE):
            return
        ends = event.details.ends
        for name, (last_stable_offset, log_end_offset) in (ends or {}).items():
            self.partition(name).ends = last_stable_offset, log_end_offset
            self.partition(name).ends_event = event.n
        if event.details.more:
            return
        for partition in self.by_index:
            if ends is None or partition.name in ends:
                partition.final_event = event.n

    # --- after the last event -----------------------------------------------------------------

    def finish(self) -> None:
        """Complete the position map with the acknowledgements of what is proven."""
        self._mark_seen_transactions()
        for row, flags in enumerate(self.flags):
            if not flags & ACKED or not self.is_proven(row):
                continue
            if not flags & PLACED:
                self.by_index[self.part[row]].put(self._offset[row], row)
            elif row in self._other_acks:
                self.by_index[self.part[row]].put(self._other_acks[row], row)

    def _mark_seen_transactions(self) -> None:
        for row, op in enumerate(self.op):
            if self.flags[row] & READ and op != NONE:
                self.ops.flags[op] |= IS_SEEN

    def is_proven(self, row: int) -> bool:
        """Whether the value certainly is in the log.

        A transaction is there as a whole or not at all, so one value that was seen proves the
        others. A plain send makes no such promise: each of its values stands for itself.
        """
        op = self.op[row]
        if op == NONE:
            return False
        if self.ops.flags[op] & IS_TXN:
            return self.is_proven_txn(op)
        state = self.ops.state[op]
        return state == CONFIRMED or (state != FAILED and bool(self.flags[row] & READ))

    def is_proven_txn(self, op: int) -> bool:
        """Whether the transaction certainly was committed."""
        if self.ops.state[op] == CONFIRMED:
            return bool(self.ops.flags[op] & WANTS_COMMIT)
        is_seen = bool(self.ops.flags[op] & IS_SEEN) and self.reads_committed
        return is_seen and self.ops.state[op] != FAILED

    @property
    def reads_committed(self) -> bool:
        """Whether the readers of this run ask for committed data only."""
        return self.run.isolation == "read_committed"

    def is_idempotent(self, row: int) -> bool:
        """Whether its sender was promised no duplicates and no reordering."""
        return bool(self.ops.flags[self.op[row]] & IS_IDEMPOTENT)

    def acked_offset(self, row: int) -> int | None:
        """What the value's acknowledgement named, proven or not."""
        if not self.flags[row] & ACKED:
            return None
        return self._other_acks.get(row, self._offset[row])

    def read_offset(self, row: int) -> int | None:
        """Where the value was first read in the partition it was asked to go to."""
        return self._offset[row] if self.flags[row] & PLACED else None

    def known_offset(self, row: int) -> int | None:
        """Where the value stands in the partition it was asked to go to."""
        flags = self.flags[row]
        if flags & PLACED or (flags & ACKED and self.is_proven(row)):
            return self._offset[row]
        return None

    def home(self, row: int) -> Partition:
        """The partition that the value was asked to go to."""
        return self.by_index[self.part[row]]

    def sightings(self, row: int) -> list[Sighting]:
        """All the places at which reads returned the value."""
        seen = self.strays.get(row, [])
        offset = self.read_offset(row)
        if offset is None:
            return seen
        return [Sighting(Place(self.home(row).name, offset), self.first_read[row]), *seen]

    def events_of(self, op: int) -> tuple[int, ...]:
        """The events of an operation: its call and its completion, as far as they are known."""
        known = self.ops.called[op], self.ops.completed[op]
        return tuple(event for event in known if event != NONE)

    def asked(self, op: int) -> str:
        """The same, as a sentence puts it."""
        return "events " + ", ".join(map(str, self.events_of(op)))

    def rows(self) -> Iterator[int]:
        """All rows, in the order in which their values were asked for."""
        return iter(range(len(self.value)))

    @property
    def is_final_complete(self) -> bool:
        """Whether every partition was read to its end after healing."""
        return bool(self.by_index) and all(
            partition.final_event is not None for partition in self.by_index
        )


_STATE: Final = {Kind.OK: CONFIRMED, Kind.FAIL: FAILED, Kind.UNKNOWN: UNKNOWN}
