"""The logs of shards begin anew with their present state."""

import asyncio
from pathlib import Path

from oncelog.core.txn.records import Txn
from oncelog.core.types import TRANSACTION_TOPIC, TopicPartition
from oncelog.server.broker import BrokerCore
from tests.runtime.test_node import a_core

SETTINGS = {
    "oncelog.shard.rewrite.bytes": "4000",
    "transaction.state.log.num.partitions": "1",
    "num.partitions": "1",
}


async def some_transactions(core: BrokerCore, count: int) -> None:
    transactions = core.node.transactions
    await core.node.ensure_transaction_topic()
    topic = await core.node.ensure_topic("t")
    for _ in range(count):
        identity = await transactions.init_producer_id("id", 60_000, None)
        await transactions.add_partitions(
            "id",
            identity.producer_id,
            identity.producer_epoch,
            (TopicPartition(topic.name, 0),),
        )


def log_size(core: BrokerCore) -> int:
    return core.node.partition(TRANSACTION_TOPIC, 0).log.size_bytes


def test_a_log_of_history_shrinks_to_the_present_state(tmp_path: Path) -> None:
    async def run() -> tuple[int, int, Txn | None, Txn | None]:
        async with a_core(tmp_path / "data", SETTINGS) as core:
            await some_transactions(core, 30)
            before = log_size(core)
            await core.node.rewrite_shards()
            after = log_size(core)
            live = core.node.transactions.find("id")
        async with a_core(tmp_path / "data", SETTINGS) as core:
            return before, after, live, core.node.transactions.find("id")

    before, after, live, replayed = asyncio.run(run())

    assert after * 10 < before
    assert live is not None
    assert replayed == live


def test_a_log_that_is_mostly_present_state_is_left_alone(tmp_path: Path) -> None:
    async def run() -> tuple[int, int]:
        async with a_core(tmp_path / "data", SETTINGS) as core:
            await core.node.ensure_transaction_topic()
            for number in range(100):
                await core.node.transactions.init_producer_id(f"id-{number}", 60_000, None)
            before = core.node.partition(TRANSACTION_TOPIC, 0).log.log_start_offset
            await core.node.rewrite_shards()
            return before, core.node.partition(TRANSACTION_TOPIC, 0).log.log_start_offset

    assert asyncio.run(run()) == (0, 0)
