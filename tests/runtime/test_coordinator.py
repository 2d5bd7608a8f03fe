"""Who answers for a transactional id, and who says that it is somebody else."""

import asyncio
from pathlib import Path

import pytest

from oncelog.core.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from oncelog.core.types import TRANSACTION_TOPIC, TopicPartition, partition_for
from tests.runtime.test_node import a_core


def test_an_id_whose_log_is_not_served_here_is_sent_elsewhere(tmp_path: Path) -> None:
    """Check 41: a foreign partition is 16. 14 is never seen: who loads does not listen yet."""

    async def run() -> None:
        settings = {"transaction.state.log.num.partitions": "4"}
        async with a_core(tmp_path / "data", settings) as core:
            transactions = core.node.transactions
            with pytest.raises(CoordinatorNotAvailable):
                transactions.find("id")
            await core.node.ensure_transaction_topic()
            partition = core.node.partition(TRANSACTION_TOPIC, partition_for("id", 4))
            partition.take_offline("its disk failed")
            with pytest.raises(NotCoordinator):
                await transactions.init_producer_id("id", 60_000, None)

    asyncio.run(run())


def test_a_batch_that_overtakes_the_addition_of_its_partition_has_to_come_again(
    tmp_path: Path,
) -> None:
    """V1 only: a power cut could keep the batch, lose the addition, and mistake whose it is."""

    async def run() -> None:
        async with a_core(tmp_path / "data", {"oncelog.flush": "sync"}) as core:
            await core.node.ensure_transaction_topic()
            await core.node.ensure_topic("t")
            transactions, partition = core.node.transactions, TopicPartition("t", 0)
            identity = await transactions.init_producer_id("id", 60_000, None)
            who = ("id", identity.producer_id, identity.producer_epoch)
            adding = asyncio.create_task(transactions.add_partitions(*who, (partition,)))
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentTransactions):
                transactions.join_now(*who, partition, is_v2=False)

            await adding

            assert transactions.join_now(*who, partition, is_v2=False) is None

    asyncio.run(run())
