"""What a client may say about where replicas live: on a node that stands alone, only here."""

from collections.abc import Sequence

from oncelog.core.errors import InvalidReplicaAssignment
from oncelog.runtime.node import Node


def check_replicas(node: Node, broker_ids: Sequence[int]) -> None:
    """Refuse a list of replicas other than this broker alone."""
    if not broker_ids:
        raise InvalidReplicaAssignment("a partition needs at least one replica")
    if len(set(broker_ids)) < len(broker_ids):
        raise InvalidReplicaAssignment(f"a broker is named twice in {list(broker_ids)}")
    for broker_id in broker_ids:
        if broker_id != node.config.node_id:
            raise InvalidReplicaAssignment(f"there is no broker {broker_id} in this cluster")
