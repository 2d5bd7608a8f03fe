"""The Java client of today (4.3) and of 2021 (2.8) copies in transactions, exactly once.

4.3 speaks the second generation of transactions: it adds no partitions, and its epoch grows with each
transaction (KIP-890). 2.8 speaks the first: it keeps its epoch.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.client import aftermath
from tests.client.test_confluent import take, values_of
from tests.peers.java import KAFKA, OLD_CLIENTS, run
from tests.peers.oncelog import Oncelog, running_oncelog

pytestmark = pytest.mark.peers

PROGRAM = Path(__file__).parent / "programs" / "TransactionalCopy.java"
COUNT = 300


@pytest.fixture(scope="module")
def oncelog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oncelog]:
    directory = tmp_path_factory.mktemp("oncelog")
    with running_oncelog(directory, {"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


def copied(oncelog: Oncelog, topic: str) -> list[str]:
    """What a reader of committed records finds, which is exactly so many."""
    consumer = Consumer(
        {
            "bootstrap.servers": oncelog.bootstrap_servers,
            "group.id": f"{topic}-reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.subscribe([topic])
        return values_of(take(consumer, COUNT))
    finally:
        consumer.close()


def check(oncelog: Oncelog, source: str) -> None:
    """Every record once, the group at the end of its input, and nothing left open."""
    target = f"{source}-copy"
    left = aftermath.settled(oncelog.bootstrap_servers, (source, target), prefix=source)
    assert left.is_settled, left
    assert sorted(copied(oncelog, target)) == sorted(f"value-{n}" for n in range(COUNT))
    offsets = aftermath.committed(oncelog.bootstrap_servers, source, source)
    assert offsets == dict.fromkeys(range(3), COUNT // 3)


@pytest.mark.parametrize("peer", [KAFKA, OLD_CLIENTS])
def test_a_copy_is_exact_with_aborts_a_fenced_instance_and_a_rebalance(
    oncelog: Oncelog, peer: str
) -> None:
    sources = [f"{peer}-{what}" for what in ("aborts", "fence", "rebalance")]
    for name in sources:
        oncelog.create_topic(name, partitions=3)
        oncelog.create_topic(f"{name}-copy", partitions=3)

    output = run(peer, str(PROGRAM), oncelog.bootstrap_servers, str(COUNT), *sources)

    said = dict(line.split("=", 1) for line in output.stdout.splitlines())
    for name in sources:
        check(oncelog, name)
    assert said["fenced"] == "ProducerFencedException"
    assert said["rebalanced"] == "CommitFailedException"
    assert said["both worked"] == "true"
    ended = int(said["committed"]) + int(said["aborted"])
    assert int(said["committed"]) >= 15
    assert int(said["aborted"]) >= 10
    state = aftermath.describe(oncelog.bootstrap_servers, f"{sources[0]}-one")
    # The generation shows: one epoch for each transaction, or one for all.
    assert state.producer_epoch == (ended if peer == KAFKA else 0)
