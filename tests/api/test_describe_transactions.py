"""DescribeTransactions: who spoke last under an id. The rest of it is in tests/txn."""

import asyncio
from pathlib import Path

from oncelog.client.connection import Connection
from oncelog.runtime.config import BrokerConfig
from oncelog.server.broker import Broker
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    TransactionState,
)
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def start(data: Path) -> Broker:
    broker = Broker(BrokerConfig(), data, ("127.0.0.1", 0))
    await broker.start()
    return broker


async def connect(broker: Broker, client_id: str) -> Connection:
    return await Connection.open("127.0.0.1", broker.port, client_id=client_id)


async def init(connection: Connection) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    reply: InitProducerIdResponse = await connection.request(request)
    assert reply.error_code == 0, reply
    return reply


async def describe(connection: Connection) -> TransactionState:
    reply = await connection.request(DescribeTransactionsRequest(transactional_ids=["x"]))
    state: TransactionState = reply.transaction_states[0]
    return state


def test_who_is_refused_is_not_who_spoke_last(tmp_path: Path) -> None:
    async def scenario() -> TransactionState:
        broker = await start(tmp_path)
        old, new = await connect(broker, "old"), await connect(broker, "new")
        zombie = await init(old)
        await init(new)
        end = EndTxnRequest(
            transactional_id="x",
            producer_id=zombie.producer_id,
            producer_epoch=zombie.producer_epoch,
            committed=False,
        )
        refused = await old.request(end)
        assert refused.error_code == ErrorCode.PRODUCER_FENCED
        state = await describe(old)
        await old.close()
        await new.close()
        await broker.stop()
        return state

    state = asyncio.run(scenario())

    assert (state.client_id, state.client_host) == ("new", "127.0.0.1")
    assert state.last_heard_time_ms > 0


def test_who_spoke_before_a_restart_is_not_known(tmp_path: Path) -> None:
    async def scenario() -> TransactionState:
        broker = await start(tmp_path)
        connection = await connect(broker, "client")
        await init(connection)
        await connection.close()
        await broker.stop()
        broker = await start(tmp_path)
        connection = await connect(broker, "client")
        state = await describe(connection)
        await connection.close()
        await broker.stop()
        return state

    state = asyncio.run(scenario())

    assert (state.error_code, state.transaction_state) == (0, "Empty")
    assert (state.client_id, state.client_host, state.last_heard_time_ms) == ("", "", -1)


def test_a_long_name_is_kept_in_part(tmp_path: Path) -> None:
    async def scenario() -> TransactionState:
        broker = await start(tmp_path)
        connection = await connect(broker, "n" * 30_000)
        await init(connection)
        state = await describe(connection)
        await connection.close()
        await broker.stop()
        return state

    assert asyncio.run(scenario()).client_id == "n" * 200
