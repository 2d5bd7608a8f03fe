"""What the broker says of itself after healing, and what stands in its logs: notes for the checker."""

import asyncio
from collections.abc import Iterable

from oncelog.check.history import Op
from oncelog.check.rest import AT_REST
from oncelog.client.transactions import OPEN_STATES
from oncelog.testing.sim.client import Client, Part, Stage, part_name
from oncelog.testing.sim.world import Disconnected
from oncelog.testing.workload.dump import Damaged, Segment
from oncelog.testing.workload.markers import note_markers
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.list_transactions import ListTransactionsRequest


class Auditor(Client):
    """Asks which transactions are open and what the groups are doing."""

    async def note_state(self, *, within_s: float) -> None:
        """Wait until nothing is under way, or for so long; then write down how it is."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while True:
            open_txns, groups = await self._look()
            is_busy = open_txns or any(doing.lower() not in AT_REST for doing in groups.values())
            if not is_busy or loop.time() > deadline:
                self._recorder.note(Op.STATE, open_txns=open_txns, groups=groups)
                return
            await asyncio.sleep(0.5)

    async def _look(self) -> tuple[list[str], dict[str, str]]:
        while True:
            try:
                txns = await self.ask(ListTransactionsRequest(state_filters=[*OPEN_STATES]), 0)
                found = await self.ask(ListGroupsRequest(), 4)
            except Disconnected:
                await self.pause()
                continue
            return (
                [txn.transactional_id for txn in txns.transaction_states],
                {group.group_id: group.group_state for group in found.groups},
            )


def note_logs(stage: Stage, parts: Iterable[Part]) -> list[str]:
    """Write down every marker on the disk; answers what is wrong with the files, if anything is."""
    files = stage.broker.disk.files()
    logs = {
        part_name(part): [
            Segment(path.rpartition("/")[2], bytes(inode.data))
            for path, inode in files.items()
            if path.startswith(f"{part[0]}-{part[1]}/") and path.endswith(".log")
        ]
        for part in parts
    }
    try:
        note_markers(stage.recorder, logs, run=stage.run)
    except Damaged as error:
        return [f"the logs on the disk are not as they should be: {error}"]
    return []
