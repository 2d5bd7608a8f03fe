"""K5: after healing everything comes to rest, and every transactional id can be used.

What is still under way goes into the history as a `state`, and transactions that are made only to see
whether they commit as probes; the checker says of either that it is stuck.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from oncelog.check import Op, Payload, Recorder, Write, encode_payload
from oncelog.check.rest import AT_REST
from oncelog.client.admin import LATEST, list_groups, list_offsets
from oncelog.client.cluster import Cluster
from oncelog.client.transactions import OPEN_STATES, find
from oncelog.core.types import TopicPartition
from oncelog.testing.workload.final import place_of

#: The key of a probe's records: no copier has written them.
PROBE_KEY: Final = b"probe"
#: Used by nobody before.
NEW_ID: Final = "probe"
PROBE_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What brokers say of themselves."""

    open_txns: tuple[str, ...]
    groups: dict[str, str]
    #: Partitions whose last stable offset is below their end.
    unstable: tuple[str, ...]

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is under way."""
        is_rebalancing = any(doing.lower() not in AT_REST for doing in self.groups.values())
        return not (self.open_txns or self.unstable or is_rebalancing)


def note_state(
    recorder: Recorder, bootstrap: str, parts: Sequence[str], *, within_s: float
) -> State:
    """Wait until nothing is under way, or for so long; write down how it is, and answer it."""
    state = asyncio.run(_settled(bootstrap, parts, within_s))
    recorder.note(Op.STATE, open_txns=state.open_txns, groups=state.groups)
    return state


def come_to_rest(
    recorder: Recorder, bootstrap: str, parts: Sequence[str], *, run: int, within_s: float
) -> State:
    """Note the state, and then probe: a new transactional id and every one that is known.

    Each writes to all of the partitions (`topic:0`). Answers what was noted.
    """
    state = note_state(recorder, bootstrap, parts, within_s=within_s)
    # Not before: whoever opens an id ends what is open under it.
    for transactional_id in (NEW_ID, *asyncio.run(_known_ids(bootstrap))):
        probe(recorder, bootstrap, parts, run=run, transactional_id=transactional_id)
    asyncio.run(_settled(bootstrap, parts, within_s))
    return state


async def _settled(bootstrap: str, parts: Iterable[str], within_s: float) -> State:
    deadline = time.monotonic() + within_s
    async with await Cluster.open(bootstrap) as cluster:
        while True:
            state = await _look(cluster, parts)
            if state.is_at_rest or time.monotonic() > deadline:
                return state
            await asyncio.sleep(_LOOK_AGAIN_S)


async def _look(cluster: Cluster, parts: Iterable[str]) -> State:
    wanted = {TopicPartition(*place_of(part)): LATEST for part in parts}
    stable = await list_offsets(cluster, wanted, committed_only=True)
    ends = await list_offsets(cluster, wanted)
    txns = await find(cluster, states=OPEN_STATES)
    groups = await list_groups(cluster)
    return State(
        open_txns=tuple(txn.transactional_id for txn in txns),
        groups={group.group_id: group.group_state for group in groups},
        unstable=tuple(str(place) for place in wanted if stable[place] != ends[place]),
    )


async def _known_ids(bootstrap: str) -> list[str]:
    async with await Cluster.open(bootstrap) as cluster:
        return [txn.transactional_id for txn in await find(cluster)]


def probe(
    recorder: Recorder,
    bootstrap: str,
    parts: Sequence[str],
    *,
    run: int,
    transactional_id: str,
    within_s: float = PROBE_S,
) -> None:
    """Commit a record in each partition; whatever comes of it is written down.

    Each of its steps may take `within_s`.
    """
    settings = {"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0}
    producer = Producer({**settings, "transactional.id": transactional_id})
    process = _open(recorder, producer, transactional_id, within_s)
    values = [recorder.new_value() for _ in parts]
    writes = [Write(part, value) for part, value in zip(parts, values, strict=True)]
    call = recorder.call(process, Op.TXN, writes, tid=transactional_id, probe=True)
    offsets: dict[bytes, int] = {}

    def told(error: Any, message: Any) -> None:
        if error is None:
            offsets[message.value()] = message.offset()

    payloads = [
        encode_payload(Payload(run=run, process=process, txn_number=0, index=index, value=value))
        for index, value in enumerate(values)
    ]
    fields: dict[str, Any] = {"tid": transactional_id}
    try:
        producer.begin_transaction()
        for part, payload in zip(parts, payloads, strict=True):
            topic, partition = place_of(part)
            producer.produce(topic, payload, key=PROBE_KEY, partition=partition, on_delivery=told)
        producer.flush(within_s)
        fields |= {"end": "commit", "tc": time.monotonic_ns()}
        producer.commit_transaction(within_s)
    except KafkaException as error:
        broken = recorder.unknown if "end" in fields else recorder.fail
        broken(call, writes, err=error.args[0].name(), **fields)
        return
    placed = [
        Write(write.part, write.value, offsets.get(payload))
        for write, payload in zip(writes, payloads, strict=True)
    ]
    recorder.ok(call, placed, **fields)


def _open(recorder: Recorder, producer: Producer, transactional_id: str, within_s: float) -> int:
    """Take over the id; answers the process that goes on, which fails if this did."""
    process = recorder.new_process()
    call = recorder.call(process, Op.OPEN, tid=transactional_id)
    try:
        producer.init_transactions(within_s)
    except KafkaException as error:
        recorder.unknown(call, err=error.args[0].name())
        return recorder.new_process()
    recorder.ok(call, tid=transactional_id)
    return process
