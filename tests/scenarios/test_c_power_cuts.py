"""Group C: the power goes after each step of a transaction, with what was written and not synced.

`tests/crash` kills a process at named points, where whatever was written stays. Here the disk forgets: each
file keeps some part of what it was not asked to sync, so one log may be ahead of another.
"""

from functools import cache
from itertools import count
from random import Random

import pytest

from tests.storage.disks import Files, FragileDisk, files_of, root_of
from tests.txn.offsets import Committed, commit_plainly, committed
from tests.txn.producer import GROUP, OK, TOPIC, Producer, find_coordinator
from tests.txn.reader import ends, read
from tests.txn.world import Disconnected, World

TIMEOUT_MS = 10_000
PARTITIONS = (0, 1)
OLD_OFFSET, NEW_OFFSET = 3, 7


@cache
def before() -> Files:
    """What is on the disk: topics, coordinators, an offset, and a transaction that is over."""
    world = World()
    world.create(TOPIC, partitions=len(PARTITIONS))
    find_coordinator(world, GROUP, key_type=0)
    assert commit_plainly(world, OLD_OFFSET) == OK
    Producer(world).ready().begin({n: [b"old"] for n in PARTITIONS}).commit()
    files = files_of(world.broker.disk)
    world.close()
    return files


class Attempt:
    """One transaction on a disk whose power goes after a number of steps."""

    def __init__(self, seed: int, *, is_v2: bool, committed: bool, last_step: int) -> None:
        self.disk = FragileDisk(Random(f"{seed} {last_step}"), root_of(before()), last_step=1 << 30)
        self.world = World(disk=self.disk)
        self.producer = Producer(self.world, is_v2=is_v2, timeout_ms=TIMEOUT_MS).ready()
        self.committed = committed
        self.has_asked = self.is_confirmed = False
        self.disk.cut_after(last_step)

    def play(self) -> bool:
        """Write everywhere, and end it; whether the power went before it was over."""
        try:
            self._write()
            self.has_asked = True
            reply = self.producer.end(self.committed)
            # What is answered after the cut has reached nobody.
            self.is_confirmed = reply.error_code == OK and not self.disk.is_cut
            if not self.disk.is_cut:
                self.producer.settle()
        except (Disconnected, AssertionError):
            assert self.disk.is_cut
        return self.disk.is_cut

    def _write(self) -> None:
        self.producer.begin({n: [b"new"] for n in PARTITIONS})
        if not self.producer.is_v2:
            assert self.producer.add_offsets() == OK
        assert self.producer.commit_offsets({0: NEW_OFFSET}) == [OK]
        assert not self.disk.is_cut

    def recover(self) -> None:
        """Start again, and let pass what an abandoned transaction may take."""
        self.world.crash()
        self.world.pass_ms(TIMEOUT_MS + 2_000)

    def seen(self) -> tuple[list[list[bytes]], Committed]:
        (offset,) = committed(self.world, require_stable=True)
        return [read(self.world, partition=n) for n in PARTITIONS], offset

    def end(self) -> None:
        self.world.loop.close()


def outcome(*, is_new: bool) -> tuple[list[list[bytes]], Committed]:
    values = [b"old", b"new"] if is_new else [b"old"]
    return [values] * len(PARTITIONS), Committed(OK, NEW_OFFSET if is_new else OLD_OFFSET)


@pytest.mark.parametrize("is_v2", [False, True], ids=["V1", "V2"])
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_c35_c38_c44_c49_a_power_cut_after_any_step_leaves_one_outcome(
    is_v2: bool, commits: bool
) -> None:
    """K12, K4, K5: all of it or nothing, as it was confirmed; then the next instance goes on."""
    outcomes = set()
    for last_step in count(1):
        attempt = Attempt(35, is_v2=is_v2, committed=commits, last_step=last_step)
        is_cut = attempt.play()
        attempt.recover()
        where = f"after step {last_step}"

        seen = attempt.seen()
        outcomes.add(seen == outcome(is_new=True))
        if attempt.is_confirmed or not (attempt.has_asked and commits):
            assert seen == outcome(is_new=commits and attempt.has_asked), where
        assert seen in (outcome(is_new=True), outcome(is_new=False)), where
        assert all(len(set(ends(attempt.world, partition=n))) == 1 for n in PARTITIONS), where
        attempt.world.crash()
        assert attempt.seen() == seen, where
        Producer(attempt.world).ready().begin({n: [b"probe"] for n in PARTITIONS}).commit()
        assert [values[-1] for values in attempt.seen()[0]] == [b"probe", b"probe"], where
        attempt.end()
        if not is_cut:
            break

    assert last_step > 15
    assert outcomes == ({True, False} if commits else {False})
