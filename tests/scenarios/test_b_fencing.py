"""Group B: eight processes fight over one transactional id, and the broker loses its power meanwhile."""

import asyncio
from random import Random

from oncelog.core.batch import TRANSACTIONAL
from oncelog.testing.sim.world import Disconnected
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from tests.scenarios.simulated import Machine
from tests.scenarios.wire import OK, TOPIC, Wire
from tests.storage.opened import simulated
from tests.txn.reader import a_fetch, deliver, fetched

ID = "fought-over"
PARTITIONS = (0, 1)
TIMEOUT_MS = 5_000
FIGHT_S = 40.0


class Fight:
    """What all rivals together know."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self.machine = machine
        self.rng = Random(seed)
        self.newest = -1
        self.confirmed: list[bytes] = []
        self.refused: list[bytes] = []
        self.unknown: list[bytes] = []

    async def rival(self, number: int) -> None:
        """Take the id, write, commit; again and again, with pauses."""
        while asyncio.get_running_loop().time() < FIGHT_S:
            await asyncio.sleep(self.rng.uniform(0, 0.4))
            try:
                await self._transact(number)
            except Disconnected:
                continue

    async def _transact(self, number: int) -> None:
        wire = self.machine.connect()
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS)
        identity = await wire.ask(request, 5)
        if identity.error_code != OK:
            return
        epoch = identity.producer_epoch
        self.newest = max(self.newest, epoch)
        value = b"%d of %d" % (epoch, number)
        for partition in PARTITIONS:
            await asyncio.sleep(self.rng.choice((0, 0, 0.1)))
            batch = wire.batch(
                sequence=0,
                producer_id=identity.producer_id,
                epoch=epoch,
                attributes=TRANSACTIONAL,
                value=value,
            )
            sent = await wire.produce(batch, partition=partition, version=12, transactional_id=ID)
            if sent.error_code != OK:
                self.refused.append(value)
                return
        await asyncio.sleep(self.rng.choice((0, 0.01, 0.3)))
        end = EndTxnRequest(
            transactional_id=ID,
            producer_id=identity.producer_id,
            producer_epoch=epoch,
            committed=True,
        )
        newest = self.newest
        self.unknown.append(value)
        reply = await wire.ask(end, 5)
        self.unknown.remove(value)
        (self.confirmed if reply.error_code == OK else self.refused).append(value)
        assert reply.error_code != OK or newest == epoch, "a newer epoch had been granted"

    async def kills(self) -> None:
        """The power goes now and then."""
        for _ in range(6):
            await asyncio.sleep(self.rng.uniform(2, 8))
            await self.machine.restart()


async def read_committed(wire: Wire, partition: int) -> list[bytes]:
    """All that an application gets; nothing may be open."""
    values: list[bytes] = []
    offset = 0
    while True:
        data = fetched(await wire.ask(a_fetch(offset, topic=TOPIC, partition=partition), 12))
        found = deliver(data, offset)
        values += [record.value or b"" for record in found.records]
        if found.next_offset == offset:
            assert offset == data.high_watermark, "something is still open"
            return values
        offset = found.next_offset


def test_b26_whoever_fights_over_an_id_commits_in_the_order_of_epochs() -> None:
    """P8: nothing of a lower epoch commits once a higher one was granted, and nothing is torn."""

    async def main() -> Fight:
        machine = Machine(seed=26)
        wire = await machine.start()
        assert await wire.create_topic(partitions=len(PARTITIONS)) == OK
        fight = Fight(machine, 26)
        await asyncio.gather(fight.kills(), *(fight.rival(number) for number in range(8)))
        await asyncio.sleep(TIMEOUT_MS / 1000 + 2)
        first, second = [await read_committed(machine.connect(), n) for n in PARTITIONS]

        epochs = [int(value.split()[0]) for value in first]
        assert first == second
        assert epochs == sorted(set(epochs))
        assert set(fight.confirmed) <= set(first) <= {*fight.confirmed, *fight.unknown}
        return fight

    fight = simulated(main)

    assert len(fight.confirmed) > 20
    assert len(fight.refused) > 20
    assert fight.unknown
