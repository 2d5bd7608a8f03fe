"""Making things go wrong, as a plan says, and putting them right again."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random

from oncelog.check.history import Op
from oncelog.check.recorder import Recorder
from oncelog.testing.sim.client import Client
from oncelog.testing.sim.disk import Inode
from oncelog.testing.sim.keeper import Keeper
from oncelog.testing.sim.network import Link
from oncelog.testing.sim.plan import Fault, What
from oncelog.testing.sim.steps import Steps
from oncelog.testing.sim.world import SimBroker


class Injector:
    """Carries out the faults of a plan."""

    def __init__(
        self,
        broker: SimBroker,
        keeper: Keeper,
        steps: Steps,
        recorder: Recorder,
        clients: Mapping[str, Client],
        rng: Random,
    ) -> None:
        self._broker = broker
        self._keeper = keeper
        self._steps = steps
        self._recorder = recorder
        self._clients = clients
        self._rng = rng
        #: Faults that last, as long as they do; of several of one kind the worst counts.
        self._lasting: dict[What, list[Fault]] = {}
        self._is_healed = False
        self.injected_count = 0

    async def run(self, faults: tuple[Fault, ...]) -> None:
        """Inject all of them; returns when the last that has a time is over."""
        async with asyncio.TaskGroup() as tasks:
            for fault in faults:
                if fault.step is None:
                    tasks.create_task(self._one(fault))
                else:
                    self._at_step(fault)

    def heal(self) -> None:
        """End everything that lasts, and let no step end the broker any more."""
        self._is_healed = True
        for fault in [fault for lasting in self._lasting.values() for fault in lasting]:
            self._end(fault)
        trouble = self._broker.disk.trouble
        trouble.fails_sync = trouble.fails_write = False
        for link in self._broker.links():
            link.hang_up()  # A connection that went silent would only cost time now.

    def _at_step(self, fault: Fault) -> None:
        assert fault.step is not None, "it waits for a step"
        self._steps.at(fault.step, int(fault.at), lambda: self._begin(fault))

    async def _one(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at)
        self._begin(fault)
        if fault.what in (What.SYNC_ERROR, What.WRITE_ERROR):
            # What failed to sync or to write stays offline until a restart.
            await asyncio.sleep(fault.for_s)
            self._keeper.end(self._broker.crash, down_s=0.1)
        if fault in self._lasting.get(fault.what, ()):
            await asyncio.sleep(fault.for_s)
            self._end(fault)

    def _begin(self, fault: Fault) -> None:
        if self._is_healed:
            return
        self.injected_count += 1
        self._note(fault)
        broker, down_s, again_after = self._broker, fault.for_s, int(fault.amount)
        trouble = broker.disk.trouble
        match fault.what:
            case What.CRASH:
                self._keeper.end(broker.crash, down_s=down_s, again_after=again_after)
            case What.KILL:
                self._keeper.end(broker.kill, down_s=down_s, again_after=again_after)
            case What.ROT:
                self._keeper.end(broker.crash, down_s=down_s)
                self._rot()
            case What.STOP:
                self._keeper.stop(down_s=down_s, cut_after=again_after)
            case What.SYNC_ERROR | What.WRITE_ERROR:
                if fault.what is What.SYNC_ERROR:
                    trouble.fails_sync = True
                else:
                    trouble.fails_write = True
            case What.CUT | What.RESET | What.HANG_UP | What.MUTE | What.HOLD:
                self._trouble_link(fault)
            case What.PAUSE:
                if (client := self._clients.get(fault.target)) is not None:
                    client.stop_for(fault.for_s)
            case What.CUT_OFF:
                until = asyncio.get_running_loop().time() + fault.for_s
                broker.weather.cut_off[fault.target] = until
                for link in broker.links(fault.target):
                    link.hold(until)
            case What.CLOCK:
                broker.clock.wall_shift_ms += int(fault.amount * 1000)
            case What.FULL | What.SLOW_SYNC | What.DELAY | What.PIECES | What.REPEAT:
                self._lasting.setdefault(fault.what, []).append(fault)
                self._adjust()

    def _end(self, fault: Fault) -> None:
        lasting = self._lasting[fault.what]
        if fault in lasting:
            lasting.remove(fault)
            self._adjust()
            self._note(fault, over=True)

    def _adjust(self) -> None:
        """Let disk and network suffer from what lasts now."""

        def worst(what: What, otherwise: float) -> float:
            return max((fault.amount for fault in self._lasting.get(what, ())), default=otherwise)

        weather, trouble = self._broker.weather, self._broker.disk.trouble
        weather.max_delay_s = worst(What.DELAY, 0.005)
        weather.piece_bytes = int(worst(What.PIECES, 0)) or None
        weather.repeats = bool(self._lasting.get(What.REPEAT))
        trouble.sync_delay_s = worst(What.SLOW_SYNC, 0.0)
        trouble.is_full = bool(self._lasting.get(What.FULL))

    def _trouble_link(self, fault: Fault) -> None:
        links = self._broker.links(fault.target)
        if not links:
            return
        link: Link = self._rng.choice(links)
        match fault.what:
            case What.CUT:
                link.cut()
            case What.RESET:
                link.reset()
            case What.HANG_UP:
                link.hang_up()
            case What.HOLD:
                link.hold(asyncio.get_running_loop().time() + fault.for_s)
            case _:
                which = int(fault.amount)
                link.mute(inbound=bool(which & 1), outbound=bool(which & 2))

    def _rot(self) -> None:
        """Flip a bit of a file that has a checksum and can be made anew."""
        files = self._broker.disk.files()
        paths = [path for path in files if path.endswith((".snapshot", ".window"))]
        if paths:
            flip(self._rng, files[self._rng.choice(paths)])

    def _note(self, fault: Fault, *, over: bool = False) -> None:
        target = fault.target or "broker"
        if over:
            self._recorder.note(Op.FAULT, what=fault.what, target=target, over=True)
        else:
            self._recorder.note(Op.FAULT, what=fault.what, target=target)


def flip(rng: Random, inode: Inode, spared: Callable[[int], bool] = lambda position: False) -> None:
    """Change one bit of what a file holds, on the disk and for readers; not where it is spared."""
    if inode.data:
        position, bit = rng.randrange(len(inode.data)), 1 << rng.randrange(8)
        while spared(position):
            position = (position + 1) % len(inode.data)
        inode.data[position] ^= bit
        if position < len(inode.synced):
            inode.synced[position] ^= bit
