"""Does every committed record of a pipeline's input have its effect in the output, once?

effect-lost, effect-twice, effect-foreign, batch-torn. A pipeline's output carries no values of its
own: each of its records names the input that it stands for, and the batch that wrote it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.check.anomaly import Anomaly, Name
from oncelog.check.derive import FAILED, NONE, READ_IN_FINAL, Facts, Place, line_of
from oncelog.check.history import Effect, Effects, Event, Kind, Op, Pipe, Unreadable


class _Seen(NamedTuple):
    """One effect of one input value, where a reader first found it."""

    place: Place
    batch: int | None
    event: int


@dataclass(slots=True)
class _Output:
    """What readers found in the output of one pipeline."""

    pipe: Pipe
    seen: dict[int, list[_Seen]] = field(default_factory=dict)  # by input value, places differ
    final: dict[int, list[_Seen]] = field(default_factory=dict)  # the same, of the final read
    #: The input of each batch: as noted, and as seen.
    batches: dict[int, set[int]] = field(default_factory=dict)

    def add(self, part: str, effect: Effect, event: Event) -> None:
        for value in effect.origins:
            found = _Seen(Place(part, effect.offset), effect.batch, event.n)
            _keep(self.seen.setdefault(value, []), found)
            if event.op is Op.FINAL:
                _keep(self.final.setdefault(value, []), found)
            if effect.batch is not None:
                self.batches.setdefault(effect.batch, set()).add(value)

    def is_seen_in(self, value: int, batch: int) -> bool:
        return any(found.batch == batch for found in self.seen.get(value, ()))

    def is_final_in(self, value: int, batch: int) -> bool:
        return any(found.batch == batch for found in self.final.get(value, ()))


def _keep(kept: list[_Seen], found: _Seen) -> None:
    if all((other.place, other.batch) != (found.place, found.batch) for other in kept):
        kept.append(found)


class PipeOutputs:
    """Collects the output of every pipeline of the run."""

    OPS: Final = frozenset({Op.BATCH, Op.POLL, Op.TXN, Op.FINAL})

    def __init__(self, pipes: tuple[Pipe, ...]) -> None:
        self.outputs = {pipe.name: _Output(pipe) for pipe in pipes}
        self._by_part = {part: self.outputs[pipe.name] for pipe in pipes for part in pipe.target}

    def add(self, event: Event) -> None:
        """Take in the next event."""
        if event.op is Op.BATCH:
            self._add_batch(event)
        elif event.kind is not Kind.CALL:
            for step in event.steps:
                if type(step) is Effects:
                    self._add_effects(event, step)

    def _add_batch(self, event: Event) -> None:
        pipe, batch = event.details.pipe, event.details.batch
        if pipe not in self.outputs or batch is None:
            raise Unreadable(
                f"batch {batch} of pipe {pipe!r:.100}: name the batch, and a pipe of the header",
                line=line_of(event.n),
            )
        self.outputs[pipe].batches.setdefault(batch, set()).update(event.details.values)

    def _add_effects(self, event: Event, effects: Effects) -> None:
        for part, records in effects.records.items():
            output = self._by_part.get(part)
            if output is None:
                raise Unreadable(
                    f"effects in {part!r:.100}, which the header gives to no pipe",
                    line=line_of(event.n),
                )
            for effect in records:
                output.add(part, effect, event)


def pipe_anomalies(facts: Facts, outputs: PipeOutputs) -> Iterator[Anomaly]:
    """All that is wrong with the output of pipelines."""
    for output in outputs.outputs.values():
        targets = [facts.partition(part) for part in output.pipe.target]
        is_final = all(partition.final_event is not None for partition in targets)
        is_whole = is_final and not any(partition.log_start for partition in targets)
        torn: set[int] = set()  # values whose effect is missing, and whose batch says so
        if is_whole:
            yield from _torn_batches(output, torn)
            yield from _lost_effects(facts, output, torn)
        yield from _repeated_effects(output)
        yield from _foreign_effects(facts, output)


def _torn_batches(output: _Output, torn: set[int]) -> Iterator[Anomaly]:
    """Batches of which somebody saw a part, and that did not stay or become whole."""
    for batch, values in sorted(output.batches.items()):
        seen = {value for value in values if output.is_seen_in(value, batch)}
        missing = sorted(value for value in values if not output.is_final_in(value, batch))
        if not seen or not missing:
            continue
        elsewhere = [value for value in missing if value in output.final]
        if len(missing) == len(values) == len(seen) and not elsewhere:
            continue  # all of it was there and all of it is gone: each effect is lost
        torn.update(missing)
        witness = min(seen)
        first = next(found for found in output.seen[witness] if found.batch == batch)
        where = f"the final read lacks {_effects_of(missing)}"
        if elsewhere:
            other = output.final[elsewhere[0]][0]
            where = (
                f"the effect of value {elsewhere[0]} is of batch {other.batch}, at {other.place}"
            )
        yield Anomaly(
            name=Name.BATCH_TORN,
            text=f"event {first.event} read the effect of value {witness} at {first.place}, of "
            f"batch {batch} of {output.pipe.name}, but {where}",
            values=(witness, *missing),
            events=(first.event,),
            places=(first.place,),
        )


def _effects_of(values: list[int]) -> str:
    shown = ", ".join(map(str, values[:3]))
    return f"those of {shown}{' and more' if len(values) > 3 else ''}"


def _lost_effects(facts: Facts, output: _Output, torn: set[int]) -> Iterator[Anomaly]:
    sources = {facts.partition(part).index for part in output.pipe.source}
    for row in facts.rows():
        value = facts.value[row]
        if facts.part[row] not in sources or value in output.final or value in torn:
            continue
        offset = facts.known_offset(row)
        if not facts.is_proven(row) or facts.home(row).log_start > (offset or 0):
            continue
        where = facts.home(row).name if offset is None else Place(facts.home(row).name, offset)
        yield Anomaly(
            name=Name.EFFECT_LOST,
            text=f"value {value} at {where} ({facts.asked(facts.op[row])}) was committed, and no "
            f"record of {', '.join(output.pipe.target)} stands for it",
            values=(value,),
            events=facts.events_of(facts.op[row]),
            places=() if offset is None else (Place(facts.home(row).name, offset),),
        )


def _repeated_effects(output: _Output) -> Iterator[Anomaly]:
    for value, seen in output.seen.items():
        places = {found.place: found for found in reversed(seen)}
        if len(places) < 2:
            continue
        found = sorted(places.values(), key=lambda one: one.event)
        where = " and ".join(f"{one.place} (event {one.event})" for one in found)
        yield Anomaly(
            name=Name.EFFECT_TWICE,
            text=f"value {value} has an effect of {output.pipe.name} at {where}",
            values=(value,),
            events=tuple(one.event for one in found),
            places=tuple(one.place for one in found),
        )


def _foreign_effects(facts: Facts, output: _Output) -> Iterator[Anomaly]:
    for value, seen in output.seen.items():
        why = _why_foreign(facts, output.pipe, value, seen[0].event)
        if why is not None:
            yield Anomaly(
                name=Name.EFFECT_FOREIGN,
                text=f"event {seen[0].event} read an effect of value {value} at {seen[0].place}, "
                f"which {why}",
                values=(value,),
                events=(seen[0].event,),
                places=(seen[0].place,),
            )


def _why_foreign(facts: Facts, pipe: Pipe, value: int, event: int) -> str | None:
    row = facts.row_of(value)
    if row is None or facts.op[row] == NONE:
        return "nobody sent"
    home, op = facts.home(row), facts.op[row]
    if home.name not in pipe.source:
        return f"was sent to {home.name}, no input of {pipe.name}"
    if facts.ops.called[op] > event:
        return f"was only sent by event {facts.ops.called[op]}"
    if facts.ops.state[op] == FAILED:
        return f"was not written, as event {facts.ops.completed[op]} says"
    is_there = facts.flags[row] & READ_IN_FINAL or facts.is_proven(row)
    if home.final_event is not None and not home.log_start and not is_there:
        return f"the input's final read, ended by event {home.final_event}, does not hold"
    return None
