"""Ids of an earlier, larger pool: what is open under them would hold up readers until it times out.

They are found by their names and taken over, with our own wire client: librdkafka cannot list
transactions. Where that client cannot get in, the brokers' time-out does it.
"""

import asyncio
import logging
from typing import Final

from oncelog.apps.clients import Clients
from oncelog.client import transactions
from oncelog.client.cluster import Cluster
from oncelog.client.errors import ClientError
from oncelog.client.settings import parse_settings

log = logging.getLogger("oncelog.apps")

#: More than this many is no former pool of ours.
_AT_MOST: Final = 1000


def fence_orphans(clients: Clients, prefix: str, first: int, *, wait_s: float) -> list[str]:
    """Take over the ids `prefix` + number from `first` on; answers their names."""
    try:
        return asyncio.run(_fence(clients, prefix, first, wait_s))
    except (ClientError, TimeoutError) as error:
        log.info("cannot look for ids of a larger pool", extra={"fields": {"error": str(error)}})
        return []


async def _fence(clients: Clients, prefix: str, first: int, wait_s: float) -> list[str]:
    given = {name: str(value) for name, value in clients.settings.items()}
    settings = parse_settings({**given, "bootstrap.servers": clients.bootstrap_servers})
    timeout_ms = round(clients.transaction_timeout_s * 1000)
    async with asyncio.timeout(wait_s), await Cluster.connect(settings) as cluster:
        found = await transactions.find(cluster)
        names = [
            txn.transactional_id for txn in found if is_beyond(txn.transactional_id, prefix, first)
        ]
        for name in names[:_AT_MOST]:
            await transactions.fence(cluster, name, timeout_ms=timeout_ms, wait_s=wait_s)
            log.info("took over an id of a larger pool", extra={"fields": {"id": name}})
        return names


def is_beyond(transactional_id: str, prefix: str, first: int) -> bool:
    """Whether an id is one of ours, with a number from `first` on."""
    rest = transactional_id.removeprefix(prefix)
    is_ours = transactional_id.startswith(prefix) and rest.isascii() and rest.isdigit()
    return is_ours and len(rest) < 10 and int(rest) >= first
