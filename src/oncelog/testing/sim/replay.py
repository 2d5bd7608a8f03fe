"""Does a broker that starts on a copy of the disk know what the running one knows?"""

from collections.abc import Collection, Iterable, Iterator

from oncelog.core.groups.commands import FetchOffsets
from oncelog.runtime.partition import Partition
from oncelog.server.broker import BrokerCore


async def state_of(
    core: BrokerCore, *, topics: Collection[str], groups: Iterable[str]
) -> dict[str, str]:
    """What a broker knows of these topics and groups and of all transactional ids, by subject."""
    state: dict[str, str] = {}
    for partition in core.logs:
        if partition.topic_partition.topic in topics:
            state |= dict(_partition(partition))
    for txn in core.node.transactions.all_transactions():
        state[f"transactional id {txn.transactional_id}"] = repr(txn)
    for group in groups:
        found = await core.node.ask_group(group, FetchOffsets(group_id=group, topics=None))
        state[f"offsets of group {group}"] = repr(found)
    return state


def _partition(partition: Partition) -> Iterator[tuple[str, str]]:
    name = str(partition.topic_partition)
    log = partition.log
    yield (
        f"{name} from, stable, to",
        (f"{log.log_start_offset} {partition.last_stable_offset} {partition.high_watermark}"),
    )
    yield f"{name} aborted", repr(log.aborted(log.log_start_offset, log.log_end_offset))
    yield f"{name} open", repr(sorted(partition.producers.stability.open_transactions().items()))
    for producer_id, producer in partition.producers.items():
        known = (producer.producer_epoch, producer.coordinator_epoch, producer.batches)
        yield f"{name} producer {producer_id}", repr(known)


def differences(live: dict[str, str], replayed: dict[str, str]) -> list[str]:
    """What one knows and the other does not, as sentences."""
    return [
        f"{subject}: the running broker has {live.get(subject)}, a new one on the same disk "
        f"{replayed.get(subject)}"
        for subject in sorted(live.keys() | replayed.keys())
        if live.get(subject) != replayed.get(subject)
    ]
