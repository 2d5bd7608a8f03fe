"""Writes orders in transactions, some of which it aborts, and does not mind a broker's restart."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from oncelog.demo.orders import INPUT, Order

_TRANSACTIONAL_ID: Final = "order-entry"
_TRANSACTIONS: Final = 100
#: One transaction in so many is aborted.
_ABORTED_IN: Final = 8
_PAUSE_S: Final = 0.3


@dataclass(slots=True)
class Fed:
    """The numbers of the orders, by what became of the transaction they were in."""

    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    #: The broker was gone before it answered: the topic itself says what happened.
    unknown: set[int] = field(default_factory=set)

    @property
    def count(self) -> int:
        """How many were written, in vain or not."""
        return len(self.committed) + len(self.aborted) + len(self.unknown)


async def feed(
    servers: str, orders: Sequence[Order], seed: int, *, seconds: float, fed: Fed
) -> None:
    """Write all orders once each, spread over some time."""
    dice = random.Random(seed)
    size = max(1, len(orders) // _TRANSACTIONS)
    lots = [orders[start : start + size] for start in range(0, len(orders), size)]
    producer = None
    for lot in lots:
        numbers = {order.number for order in lot}
        is_aborted = dice.randrange(_ABORTED_IN) == 0
        try:
            if producer is None:
                producer = await _producer(servers)
            await _transaction(producer, lot, is_aborted=is_aborted)
        except (KafkaError, TimeoutError):
            fed.unknown |= numbers
            if producer is not None:
                await _give_up(producer)
                producer = None
        else:
            (fed.aborted if is_aborted else fed.committed).update(numbers)
        await asyncio.sleep(seconds / len(lots))
    if producer is not None:
        await producer.stop()


async def _producer(servers: str) -> Any:
    # To start takes the id over, and ends whatever an earlier one has left open.
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=_TRANSACTIONAL_ID)
    while True:
        try:
            await producer.start()
            return producer
        except KafkaError:
            await asyncio.sleep(_PAUSE_S)


async def _transaction(producer: Any, lot: Sequence[Order], *, is_aborted: bool) -> None:
    await producer.begin_transaction()
    sent = [
        await producer.send(INPUT, key=order.customer.encode(), value=order.encode())
        for order in lot
    ]
    await asyncio.gather(*sent)
    await (producer.abort_transaction() if is_aborted else producer.commit_transaction())


async def _give_up(producer: Any) -> None:
    try:
        await producer.stop()
    except KafkaError:
        pass  # the next one takes over
