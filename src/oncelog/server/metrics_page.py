"""What `/metrics` says: the counters, and what is looked up when somebody asks.

A look at every partition of a large broker takes a while, so the broker goes on meanwhile.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from oncelog.api.registry import APIS
from oncelog.core.groups.group import GroupState
from oncelog.observe.metrics import Family, HistogramFamily, Labels, Metrics, as_text
from oncelog.runtime.node import Node

#: Only so many topics have a line of their own, those that are furthest behind.
TOPICS_NAMED: Final = 20
#: No topic can have this name.
OTHER_TOPICS: Final = "(other)"
#: After so many partitions it is others' turn.
PARTITIONS_AT_ONCE: Final = 500


async def page(node: Node, connection_count: int) -> str:
    """The whole page."""
    partition_count, offline_count, lag_by_topic = await _look_at_partitions(node)
    return as_text(
        (
            *_transactions(node),
            *_latencies(node.metrics),
            _lags(lag_by_topic),
            _gauge("oncelog_partitions", "Partitions that this broker holds.", partition_count),
            _gauge(
                "oncelog_offline_partitions",
                "Partitions that do not serve until somebody acts.",
                offline_count,
            ),
            *_groups(node),
            *_clients(node.metrics, connection_count),
        )
    )


def _gauge(name: str, help_: str, value: float) -> Family:
    return Family(name=name, kind="gauge", help=help_, samples=(((), value),))


def _counter(name: str, help_: str, value: float) -> Family:
    return Family(name=name, kind="counter", help=help_, samples=(((), value),))


# --- transactions -------------------------------------------------------------------------------


def _transactions(node: Node) -> tuple[Family, ...]:
    metrics, transactions = node.metrics, node.transactions
    since_ms = transactions.open_since_ms()
    oldest_ms = node.clock.now().wall_ms - min(since_ms) if since_ms else 0
    return (
        _gauge("oncelog_open_transactions", "Transactions that nobody has ended.", len(since_ms)),
        _gauge(
            "oncelog_oldest_open_transaction_seconds",
            "Age of the oldest open transaction; 0 if there is none.",
            max(oldest_ms, 0) / 1000,
        ),
        _gauge(
            "oncelog_ending_transactions",
            "Transactions that are decided and whose markers are being written.",
            transactions.markers.ending_count,
        ),
        _gauge(
            "oncelog_waiting_markers",
            "Partitions that lack the marker of a decided transaction.",
            transactions.markers.missing_count,
        ),
        _counter(
            "oncelog_transactions_committed_total",
            "Transactions that were committed.",
            metrics.transactions_committed,
        ),
        _counter(
            "oncelog_transactions_aborted_total",
            "Transactions that were aborted, timed out and fenced ones included.",
            metrics.transactions_aborted,
        ),
        _counter(
            "oncelog_transactions_timed_out_total",
            "Transactions that outlived their timeout.",
            metrics.transactions_timed_out,
        ),
        _counter(
            "oncelog_transactions_fenced_total",
            "Open transactions that a newer producer of the same id ended.",
            metrics.transactions_fenced,
        ),
        _counter(
            "oncelog_transactional_ids_expired_total",
            "Idle transactional ids that were forgotten.",
            metrics.transactional_ids_expired,
        ),
    )


def _latencies(metrics: Metrics) -> tuple[HistogramFamily, ...]:
    return (
        HistogramFamily(
            name="oncelog_commit_seconds",
            help="From EndTxn to its answer: the decision to commit is durable.",
            histogram=metrics.commit_seconds,
        ),
        HistogramFamily(
            name="oncelog_completion_seconds",
            help="From the decision until all markers are written: readers see the outcome.",
            histogram=metrics.completion_seconds,
        ),
    )


# --- partitions ---------------------------------------------------------------------------------


async def _look_at_partitions(node: Node) -> tuple[int, int, dict[str, int]]:
    partition_count = offline_count = 0
    lag_by_topic: dict[str, int] = {}
    for partition in node.logs:
        partition_count += 1
        if partition_count % PARTITIONS_AT_ONCE == 0:
            await asyncio.sleep(0)
        if partition.offline is not None:
            offline_count += 1
            continue
        lag = partition.high_watermark - partition.last_stable_offset
        if lag > 0:
            topic = partition.topic_partition.topic
            lag_by_topic[topic] = lag_by_topic.get(topic, 0) + lag
    return partition_count, offline_count, lag_by_topic


def _lags(lag_by_topic: dict[str, int]) -> Family:
    ordered = sorted(lag_by_topic.items(), key=lambda item: (-item[1], item[0]))
    others = sum(lag for _, lag in ordered[TOPICS_NAMED:])
    named = [*ordered[:TOPICS_NAMED], (OTHER_TOPICS, others)]
    return Family(
        name="oncelog_last_stable_offset_lag_records",
        kind="gauge",
        help="Offsets between the last stable offset and the high watermark, over all partitions "
        "of a topic; the furthest behind by name, the rest as one.",
        samples=tuple(((("topic", topic),), lag) for topic, lag in named),
    )


# --- groups and clients ---------------------------------------------------------------------------


def _groups(node: Node) -> tuple[Family, ...]:
    counts = node.groups.count_by_state()
    # A dead group is none: it has no line.
    states = {state.value: 0 for state in GroupState if state is not GroupState.DEAD} | counts
    metrics = node.metrics
    return (
        Family(
            name="oncelog_groups",
            kind="gauge",
            help="Consumer groups by state.",
            samples=tuple(((("state", state),), n) for state, n in states.items()),
        ),
        _counter(
            "oncelog_group_rebalances_total",
            "New generations of groups.",
            metrics.group_rebalances,
        ),
        _counter(
            "oncelog_group_members_expired_total",
            "Members of groups that went silent.",
            metrics.group_members_expired,
        ),
        _counter(
            "oncelog_group_offsets_expired_total",
            "Committed offsets that were dropped for their age.",
            metrics.group_offsets_expired,
        ),
    )


def _clients(metrics: Metrics, connection_count: int) -> tuple[Family, ...]:
    requests: Sequence[tuple[Labels, float]] = [
        ((("api", api.name),), metrics.requests[key]) for key, api in sorted(APIS.items())
    ]
    return (
        _gauge("oncelog_connections", "Connections that are open.", connection_count),
        _counter(
            "oncelog_connections_accepted_total",
            "Connections that were accepted.",
            metrics.connections_accepted,
        ),
        _counter(
            "oncelog_connections_refused_total",
            "Connections above max.connections, closed as they came.",
            metrics.connections_refused,
        ),
        Family(
            name="oncelog_requests_total",
            kind="counter",
            help="Requests that were begun.",
            samples=tuple(requests),
        ),
    )
