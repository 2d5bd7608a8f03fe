"""An orderly stop: thousands of logs that nobody wrote to must not hold it up."""

from random import Random

from oncelog.testing.sim.disk import SimDisk
from tests.storage.disks import CountingDisk
from tests.storage.opened import State, open_on, simulated, state_of


def test_a_log_that_did_not_change_since_its_snapshot_is_left_as_it_is() -> None:
    async def main() -> tuple[set[str], State, State]:
        disk = SimDisk(Random(1))
        first = await open_on(disk)
        first.append(producer_id=7, sequence=0)
        await first.commit()
        before = state_of(first.partition)
        await first.logs.close()
        watched = CountingDisk(disk)
        second = await open_on(watched)
        watched.changed_paths.clear()
        await second.logs.close()
        after = state_of((await open_on(disk)).partition)
        return watched.changed_paths, before, after

    changed, before, after = simulated(main)

    assert not {path for path in changed if path.startswith("t-0/")}
    assert after == before


def test_a_log_that_has_grown_gets_a_new_snapshot() -> None:
    async def main() -> tuple[set[str], State, State]:
        disk = CountingDisk(SimDisk(Random(1)))
        first = await open_on(disk)
        first.append(producer_id=7, sequence=0)
        await first.logs.close()
        disk.changed_paths.clear()
        second = await open_on(disk)
        second.append(producer_id=7, sequence=1)
        await second.commit()
        before = state_of(second.partition)
        await second.logs.close()
        return disk.changed_paths, before, state_of((await open_on(disk)).partition)

    changed, before, after = simulated(main)

    assert "t-0/00000000000000000002.snapshot" in changed
    assert after == before
